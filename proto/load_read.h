/* SPDX-License-Identifier: Apache-2.0
 *
 * Tree of load_text.h -> protobuf-c message, by descriptors alone; some messages have a
 * shape of their own (stg_read_shape). Fields `line` and `column` of any message are
 * where it stood in the text; they and fields of type Attribute are not keys. Only the
 * files proto/load*.c include this: load_read.c calls the others, and load_reader.c calls
 * none of them. One thread a reader.
 */
#ifndef STG_PROTO_LOAD_READ_H
#define STG_PROTO_LOAD_READ_H

#include <protobuf-c/protobuf-c.h>

#include "proto/load_text.h"
#include "proto/pipeline.pb-c.h"

/* Inputs of all nodes together, after ranges "node:a..b" are written out. */
#define STG_LOAD_MAX_INPUTS 4096u

struct stg_reader {
    const char *file;
    struct stg_bump *bump; /* messages and strings live here */
    struct stg_err *err;
    bool canonical; /* leave lines and columns out */
    size_t n_inputs;
    size_t path_bytes;
    char path[256]; /* "staged.capacity": where the reader is, for messages */
};

/* "FILE:LINE:COLUMN: path: …"; returns -STAGER_INVALID_ARGUMENT. */
int stg_read_fail(struct stg_reader *r, int line, int column, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
int stg_read_fail_memory(struct stg_reader *r);

/* "found X; expected …" at the node. */
int stg_read_fail_found(struct stg_reader *r, const struct stg_text_node *node,
                        const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Appends to the path; the returned mark undoes it. */
size_t stg_read_push(struct stg_reader *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void stg_read_pop(struct stg_reader *r, size_t mark);

/* A message of that type from a node, with its defaults. Everything it points to lives in
 * the reader's bump: it is never freed by protobuf-c. */
int stg_read_message(struct stg_reader *r, const struct stg_text_node *node,
                     const ProtobufCMessageDescriptor *type, ProtobufCMessage **ret);

/* The field of that name if it is a key, or NULL. */
const ProtobufCFieldDescriptor *stg_read_field(const ProtobufCMessageDescriptor *type,
                                               const char *name);

/* True for a field that is written in the text, false for one the loader fills in. */
bool stg_read_is_key(const ProtobufCFieldDescriptor *field);

/* Sets the fields `line` and `column` where a message has them. */
void stg_read_position(const struct stg_reader *r, const struct stg_text_node *node,
                       ProtobufCMessage *message);

/* A new message with its defaults, or NULL. */
ProtobufCMessage *stg_read_new(struct stg_reader *r,
                               const ProtobufCMessageDescriptor *type);

/* Reads a message that a text writes in another way than as a mapping of its fields. */
typedef int stg_read_shape(struct stg_reader *r, const struct stg_text_node *node,
                           ProtobufCMessage *message);

/* load_features.c: `features`. load_attribute.c: an attribute without a name, values,
 * conditions, codes. */
stg_read_shape stg_read_features, stg_read_unnamed, stg_read_values, stg_read_conditions,
    stg_read_codes;

/* load_attribute.c: an attribute of that name; place and value are the entry's. */
int stg_read_attribute(struct stg_reader *r, const struct stg_text_node *entry,
                       char *name, Stager__Attribute **ret);

/* Ranges and names (load_rules.c). */
struct stg_read_range {
    int64_t min, max;
};

/* What an integer field may hold; the type's own range when no rule says more. No field
 * holds more than INT64_MAX, because attributes are int64. */
struct stg_read_range stg_read_range_of(const ProtobufCFieldDescriptor *field,
                                        const ProtobufCMessageDescriptor *type);

/* May `auto`, or -1, stand for the number? Then by which one it is kept. */
bool stg_read_auto_of(const ProtobufCFieldDescriptor *field,
                      const ProtobufCMessageDescriptor *type, int64_t *ret);

/* Why a string is not allowed in that field, or NULL. */
const char *stg_read_string_rule(const ProtobufCFieldDescriptor *field,
                                 const ProtobufCMessageDescriptor *type, const char *s);

/* Does an unknown key of the message belong to another place of the file, or is it a name
 * of tf.data's or DeepRec's? What to say of it. */
bool stg_read_elsewhere(const ProtobufCMessageDescriptor *type, const char *key,
                        char *ret, size_t bytes);

#endif
