/* SPDX-License-Identifier: Apache-2.0
 *
 * YAML (and so JSON) text -> a tree with the place of everything. Independent of
 * messages. Refused, each with its place: anchors, aliases, tags, a second document,
 * duplicate keys, keys that are no word, more than STG_TEXT_MAX_DEPTH levels,
 * STG_TEXT_MAX_NODES nodes or STG_TEXT_MAX_BYTES bytes. Only the files proto/load*.c
 * include this. Any thread.
 */
#ifndef STG_PROTO_LOAD_TEXT_H
#define STG_PROTO_LOAD_TEXT_H

#include "core/spec.h"

#define STG_TEXT_MAX_DEPTH 16
#define STG_TEXT_MAX_NODES 20000u

enum stg_text_kind { STG_TEXT_SCALAR, STG_TEXT_LIST, STG_TEXT_MAPPING };

/* Lines and columns count from 1, columns in characters. Immutable once parsed, but for
 * stg_text_sort. */
struct stg_text_node {
    enum stg_text_kind kind;
    bool plain; /* scalar: written without quotes */
    int line, column;
    const char *s; /* scalar: NUL-terminated, may hold other NULs */
    size_t s_bytes;
    struct stg_text_node *first; /* list, mapping: its entries */
    struct stg_text_node *next;  /* the next entry of the same parent */
    size_t n;                    /* list, mapping: how many */
    const char *key;             /* entry of a mapping: no NUL inside */
    int key_line, key_column;
};

/* The tree lives in `bump`. *ret is NULL for a text without content. INVALID_ARGUMENT
 * reads "FILE:LINE:COLUMN: …". */
int stg_text_parse(const char *text, size_t bytes, const char *file,
                   struct stg_bump *bump, struct stg_text_node **ret,
                   struct stg_err *err);

/* The entries of a mapping as an array ordered by key; in `bump`. NULL: out of memory. */
struct stg_text_node **stg_text_sorted(const struct stg_text_node *mapping,
                                       struct stg_bump *bump);

/* Sorts the entries of all mappings by key: two texts that differ in order of keys only
 * become equal. RESOURCE_EXHAUSTED: out of memory. */
int stg_text_sort(struct stg_text_node *node, struct stg_bump *bump);

/* What a scalar is by YAML 1.2's core schema; quoted is a string. The string points into
 * the tree. False when it looks like an integer but does not fit 64 bits. */
bool stg_text_value(const struct stg_text_node *node, struct stg_value *ret);

/* True for a scalar that is null: written as ~, null or not at all. */
bool stg_text_is_null(const struct stg_text_node *node);

/* What was found, for messages: `4`, "a list", `the string "x"`. Returns buf. */
const char *stg_text_found(const struct stg_text_node *node, char *buf, size_t bytes);

/* A copy for messages: control characters as \xNN, truncated to fit. Returns buf. */
const char *stg_text_printable(const char *s, size_t n, char *buf, size_t bytes);

#endif
