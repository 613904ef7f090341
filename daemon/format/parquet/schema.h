/* SPDX-License-Identifier: Apache-2.0
 *
 * The schema in a Parquet footer: which leaf of its tree a wanted column is, of which
 * type, and what dtypes it can become. One thread.
 */
#ifndef STG_DAEMON_PARQUET_SCHEMA_H
#define STG_DAEMON_PARQUET_SCHEMA_H

#include "core/err.h"
#include "daemon/format/describing.h"
#include "daemon/format/list_rows.h"
#include "daemon/format/parquet/thrift.h"

#define STG_PARQUET_NO_COLUMN UINT32_MAX

/* Numbers of the format's Type. */
enum stg_parquet_type {
    STG_PARQUET_BOOLEAN = 0,
    STG_PARQUET_INT32 = 1,
    STG_PARQUET_INT64 = 2,
    STG_PARQUET_INT96 = 3,
    STG_PARQUET_FLOAT = 4,
    STG_PARQUET_DOUBLE = 5,
    STG_PARQUET_BYTE_ARRAY = 6,
    STG_PARQUET_FIXED_LEN_BYTE_ARRAY = 7
};

/* A column that was asked for. */
struct stg_parquet_want {
    const char *name; /* its path, with '/' between names; those of the groups that make
                         a list or a map may be left out */
    int dtype;        /* STAGER_DT_INVALID: that of the file */
    unsigned n_lists; /* a value lies in so many lists, one in another */
    bool may_lack;    /* a file need not have it, and a value may be null */
    bool is_given;    /* its values are known: what a file has is not looked at */
};

/* What it is in this file. */
struct stg_parquet_leaf {
    bool is_there;
    int type;             /* enum stg_parquet_type */
    uint32_t value_bytes; /* of FIXED_LEN_BYTE_ARRAY */
    unsigned max_level;   /* a value is there at this definition level; 0: always */
    unsigned n_lists;     /* also its largest repetition level */
    /* A list has elements from this definition level on, is empty at the one below, and
     * null at lower ones. The outer one first. */
    unsigned list_levels[STG_MAX_LISTS];
    bool is_group, is_map; /* not there: a struct, a list or a map has the name */
    bool is_unsigned;      /* integers */
    unsigned bits;         /* of an integer: 8 to 64 */
    bool is_float16;
    bool is_bytewise; /* strings whose order is that of their bytes */
};

/* Returns the dtype that holds the values of a column, and no more. */
int stg_parquet_leaf_dtype(const struct stg_parquet_leaf *leaf);

/* Reads n_elements of the schema. Sets leaves[c] of each wanted column, columns[c] to the
 * number of its leaf, or STG_PARQUET_NO_COLUMN, and *ret to the number of all leaves. */
int stg_parquet_schema_read(struct stg_thrift *thrift, uint64_t n_elements,
                            const struct stg_parquet_want *wants, uint32_t n,
                            struct stg_parquet_leaf *leaves, uint32_t *columns,
                            uint32_t *ret, struct stg_err *err);

/* Adds each leaf of the schema to a description: name, type, dtype, or why it cannot be
 * read. DATA_LOSS. */
int stg_parquet_schema_describe(struct stg_thrift *thrift, uint64_t n_elements,
                                struct stg_describing *to, struct stg_err *err);

#endif
