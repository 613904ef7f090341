/* SPDX-License-Identifier: Apache-2.0
 *
 * The schema of an Arrow file: which field of its tree a wanted column is, where its
 * nodes and buffers stand among those of a record batch, and what dtypes it can become.
 * One thread.
 */
#ifndef STG_DAEMON_ARROW_SCHEMA_H
#define STG_DAEMON_ARROW_SCHEMA_H

#include "core/err.h"
#include "daemon/format/arrow/metadata.h"
#include "daemon/format/describing.h"
#include "daemon/format/list_rows.h"

#define STG_ARROW_MAX_PARENTS 16

/* A column that was asked for. */
struct stg_arrow_want {
    const char *name; /* its path, with '/' between names; those of the fields that make
                         a list or a map may be left out */
    int dtype;        /* STAGER_DT_INVALID: that of the file */
    unsigned n_lists; /* a value lies in so many lists, one in another */
    bool may_lack;    /* a file need not have it, and a value may be null */
    bool is_given;    /* its values are known: what a file has is not looked at */
};

/* Where a field stands in a record batch. */
struct stg_arrow_place {
    uint32_t node, extent;
    uint32_t n_views; /* columns before it whose buffers vary in number */
};

/* A list around a column; the first field in it is the next node. */
struct stg_arrow_list {
    struct stg_arrow_place place;
    uint64_t size;         /* elements of each; of no use if offset_bytes is not 0 */
    unsigned offset_bytes; /* 0: all have that size */
};

/* What it is in this file. */
struct stg_arrow_leaf {
    bool is_there;
    struct stg_arrow_field field; /* its name is not kept */
    struct stg_arrow_place place;
    unsigned n_lists;
    struct stg_arrow_list lists[STG_MAX_LISTS]; /* the outer one first */
    uint32_t n_parents;                         /* structs around it */
    struct stg_arrow_place parents[STG_ARROW_MAX_PARENTS];
    uint8_t depths[STG_ARROW_MAX_PARENTS]; /* lists around each of them */
};

/* Finds n wanted columns in a schema of that version. A text names the column.
 * INVALID_ARGUMENT: there is none of that name or dtype; UNIMPLEMENTED: its type is not
 * supported; DATA_LOSS; RESOURCE_EXHAUSTED. */
int stg_arrow_schema_find(const void *schema, int version,
                          const struct stg_arrow_want *wants, uint32_t n,
                          struct stg_arrow_leaf *leaves, struct stg_err *err);

/* Returns the narrowest dtype that fits a column. */
int stg_arrow_leaf_dtype(const struct stg_arrow_leaf *leaf);

/* Adds each column of a schema to a description: name, type, dtype, or why it cannot be
 * read. Errors as those of stg_arrow_schema_find. */
int stg_arrow_schema_describe(const void *schema, int version, struct stg_describing *to,
                              struct stg_err *err);

#endif
