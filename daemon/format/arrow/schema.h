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

#define STG_ARROW_MAX_PARENTS 16

/* A column that was asked for. */
struct stg_arrow_want {
    const char *name; /* its path, with '/' between names */
    int dtype;
    uint32_t size; /* of its lists, which all have that many numbers; 0: no lists */
    bool may_lack; /* a file need not have it, and a value may be null */
};

/* Where a field stands in a record batch. */
struct stg_arrow_place {
    uint32_t node, extent;
    uint32_t n_views; /* columns before it whose buffers vary in number */
};

/* What it is in this file. */
struct stg_arrow_leaf {
    bool is_there;
    struct stg_arrow_field field;       /* of a list, its items; its name is not kept */
    struct stg_arrow_place place, item; /* item: of a list */
    uint32_t n_parents;                 /* structs around it */
    struct stg_arrow_place parents[STG_ARROW_MAX_PARENTS];
};

/* Finds n wanted columns in a schema of that version. A text names the column.
 * INVALID_ARGUMENT: there is none of that name or dtype; UNIMPLEMENTED: its type is not
 * supported; DATA_LOSS; RESOURCE_EXHAUSTED. */
int stg_arrow_schema_find(const void *schema, int version,
                          const struct stg_arrow_want *wants, uint32_t n,
                          struct stg_arrow_leaf *leaves, struct stg_err *err);

#endif
