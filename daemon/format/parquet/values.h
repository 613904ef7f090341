/* SPDX-License-Identifier: Apache-2.0
 *
 * The values of a page, as an array of the dtype that a step declares: one for each row,
 * or each element of a list; a null has the default. One thread until a chunk is handed
 * out.
 */
#ifndef STG_DAEMON_PARQUET_VALUES_H
#define STG_DAEMON_PARQUET_VALUES_H

#include "core/batch.h"
#include "daemon/format/parquet/encoding.h"
#include "daemon/format/parquet/footer.h"

/* A column as a step declares it. Strings are borrowed. */
struct stg_parquet_column {
    struct stg_parquet_want want;
    int64_t shape[STG_MAX_LISTS]; /* of the lists; -1: any length */
    uint64_t value;               /* the default of a number, in its first bytes */
    const char *text;             /* and that of a string */
    uint64_t text_bytes;
    bool takes_codes; /* strings may be coded */
};

/* Numbers lie at `fixed`. String i is the bytes [begin[i], end[i]) of base; behind the
 * last offsets is room for one more. */
struct stg_parquet_values {
    uint64_t n;
    const char *fixed;
    const char *base;
    uint64_t base_bytes;
    int64_t *begin, *end;
    const int32_t *codes;   /* in place of begin and end, of the page's `coded` */
    const uint8_t *valid;   /* 0: the value is null, and has no default; NULL: none is */
    struct stg_chunk *data; /* the bytes of the page; what lies in it stays with it */
    struct stg_chunk *values; /* what was decoded, or NULL */
};

void stg_parquet_values_finish(struct stg_parquet_values *values);

/* A page, decompressed: its bytes lie in values->data, which has text_bytes to spare
 * behind them. Or the next rows of one whose values are indices. */
struct stg_parquet_page {
    const struct stg_parquet_column *column;
    const struct stg_parquet_leaf *leaf;
    int encoding;
    uint64_t n;                      /* rows, or entries of a dictionary */
    struct stg_parquet_runs *levels; /* of definition; NULL: no value is null */
    const uint8_t *valid;            /* in place of levels: which are not null, n_valid */
    uint64_t n_valid;
    struct stg_parquet_bytes bytes;
    struct stg_parquet_runs *indices;            /* NULL: bytes are the values */
    const struct stg_parquet_values *dictionary; /* of the indices; NULL: none */
    const struct stg_strings *coded; /* the same, and behind it the default; NULL:
                                           the values are not coded */
    struct stg_quota *quota;
};

/* Decodes a page, or rows of it: moves levels and indices behind them. Sets all of
 * *values but data, which may be replaced. DATA_LOSS, UNIMPLEMENTED: the page cannot be
 * had; RESOURCE_EXHAUSTED. */
int stg_parquet_decode(const struct stg_parquet_page *page,
                       struct stg_parquet_values *values, struct stg_err *err);

/* Passes over rows of a page with indices. */
int stg_parquet_pass(const struct stg_parquet_page *page, struct stg_err *err);

/* Begins the levels of a page, and its indices, which follow their width. DATA_LOSS. */
int stg_parquet_begin_levels(struct stg_parquet_runs *levels,
                             struct stg_parquet_bytes bytes, unsigned max_level,
                             struct stg_err *err);
int stg_parquet_begin_indices(struct stg_parquet_runs *indices,
                              struct stg_parquet_bytes bytes, struct stg_err *err);

/* Makes n rows of a column that the file lacks. */
int stg_parquet_fill(const struct stg_parquet_column *column, uint64_t n,
                     struct stg_quota *quota, struct stg_parquet_values *values,
                     struct stg_err *err);

/* Returns how many bytes of levels a page has in which no value is null: a guess that
 * puts its values where they are aligned. */
uint64_t stg_parquet_level_bytes(uint64_t n, unsigned max_level);

/* Makes *chunk have that capacity: keeps it if no other has a reference. DATA_LOSS if a
 * page asks for more than the dataset has room for. */
int stg_parquet_room(struct stg_quota *quota, uint64_t bytes, struct stg_chunk **chunk,
                     struct stg_err *err);

#endif
