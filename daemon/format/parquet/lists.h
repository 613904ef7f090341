/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of a column of lists, made of levels and values. A page, or a part of one, may
 * begin and end inside a row. Rows that lie in a part are views of its values. The row
 * that ends a part is copied: it goes on where the next part does not begin with a row.
 * One thread until a chunk is handed out.
 */
#ifndef STG_DAEMON_PARQUET_LISTS_H
#define STG_DAEMON_PARQUET_LISTS_H

#include "daemon/format/list_rows.h"
#include "daemon/format/parquet/values.h"

struct stg_parquet_lists {
    const struct stg_parquet_column *column;
    const struct stg_parquet_leaf *leaf;
    struct stg_quota *quota;

    /* The rows that can be had, and their values. */
    struct stg_list_rows rows;
    const struct stg_parquet_values *values;

    /* A part, and how many of its rows were had. */
    struct stg_list_rows part;
    const struct stg_parquet_values *part_values;
    bool goes_on;              /* its first row began in a part before */
    bool inner_goes_on;        /* so did the first list of it */
    uint64_t n_slots, n_valid; /* values, of which so many are not null */
    uint8_t *valid;            /* of each value; NULL: none is null */
    uint64_t n_had;
    struct stg_chunk *memory; /* of all that */
    struct stg_chunk *masks;  /* of its levels, while they are read */

    /* The row that is put together of parts. */
    bool is_open;
    struct stg_parquet_values seam;
    uint64_t seam_bytes, seam_size; /* of strings; values that there is memory for */
    struct stg_chunk *seam_inner;
    uint64_t n_inner;
    int64_t seam_first[2];
    uint8_t seam_is_bad;
};

/* Begins a row group. */
void stg_parquet_lists_begin(struct stg_parquet_lists *lists);
void stg_parquet_lists_finish(struct stg_parquet_lists *lists);

/* Reads the n levels of a part, and moves the runs behind them. The caller decodes its
 * n_slots values to *values before it asks for rows. DATA_LOSS; RESOURCE_EXHAUSTED. */
int stg_parquet_lists_read(struct stg_parquet_lists *lists, uint64_t n,
                           struct stg_parquet_runs *repeats,
                           struct stg_parquet_runs *levels,
                           const struct stg_parquet_values *values, struct stg_err *err);

/* Goes on to the next rows. *ret: how many there are; 0: they need another part. is_last:
 * there is none. */
int stg_parquet_lists_next(struct stg_parquet_lists *lists, bool is_last, uint64_t *ret,
                           struct stg_err *err);

/* Makes n rows of a column that the file lacks, of values that the caller fills. *ret:
 * how many. */
int stg_parquet_lists_fill(struct stg_parquet_lists *lists, uint64_t n,
                           const struct stg_parquet_values *values, uint64_t *ret,
                           struct stg_err *err);

#endif
