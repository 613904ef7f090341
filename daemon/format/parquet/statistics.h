/* SPDX-License-Identifier: Apache-2.0
 *
 * What a file says of values that are not read: statistics, and how far they can be
 * trusted. Bounds are those that the format orders by the type of the column. The older
 * `min` and `max` count for signed numbers alone, and of floats none where one is NaN.
 * Bounds may be truncated: each value lies between them still. One thread.
 */
#ifndef STG_DAEMON_PARQUET_STATISTICS_H
#define STG_DAEMON_PARQUET_STATISTICS_H

#include "daemon/format/parquet/schema.h"
#include "daemon/format/row_filter.h"

/* As the file has them; data NULL: not written. They lie in the bytes of the file. */
struct stg_parquet_statistics {
    struct stg_row_text min, max;             /* min_value, max_value */
    struct stg_row_text older_min, older_max; /* min, max */
    int64_t n_nulls;                          /* -1: not written */
};

/* Reads the struct. */
void stg_parquet_statistics_read(struct stg_thrift *thrift,
                                 struct stg_parquet_statistics *ret);

/* Returns what is known of n values of the column, as values of a dtype. is_ordered: the
 * file says that min_value and max_value are by the order of the type. */
struct stg_row_bounds stg_parquet_bounds(const struct stg_parquet_leaf *leaf, int dtype,
                                         const struct stg_parquet_statistics *statistics,
                                         bool is_ordered, uint64_t n);

#endif
