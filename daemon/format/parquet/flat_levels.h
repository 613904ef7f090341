/* SPDX-License-Identifier: Apache-2.0
 *
 * Levels of lists that do not lie in others, 64 at a time: a bit for each level. Pure
 * functions; any thread.
 */
#ifndef STG_DAEMON_PARQUET_FLAT_LEVELS_H
#define STG_DAEMON_PARQUET_FLAT_LEVELS_H

#include "daemon/format/list_rows.h"
#include "daemon/format/parquet/encoding.h"
#include "daemon/format/parquet/schema.h"

/* Of each level: a row begins with it; it is that of an element, which is not null; it is
 * that of a list that is null. */
struct stg_parquet_mask {
    uint64_t begins, has_slot, is_valid, is_null;
};

struct stg_parquet_flat {
    uint64_t n_rows, n_slots, n_valid, n_null_lists;
    bool goes_on;  /* the first level is none of a row that begins */
    bool is_short; /* why there is none of that: the levels end early */
};

/* Returns whether the levels of the column fit the functions below. */
bool stg_parquet_is_flat(const struct stg_parquet_leaf *leaf);

/* Returns how many masks n levels take. */
static inline uint64_t stg_parquet_n_masks(uint64_t n)
{
    return n / 64 + (n % 64 > 0);
}

/* Reads n levels, and moves the runs behind them. Returns false if they end early or one
 * is out of range. The first level begins a row, also where that goes on. */
bool stg_parquet_flat_read(const struct stg_parquet_leaf *leaf, uint64_t n,
                           struct stg_parquet_runs *repeats,
                           struct stg_parquet_runs *levels, struct stg_parquet_mask *to,
                           struct stg_parquet_flat *ret);

/* Sets first and bad of the rows, and which of their elements are not null; valid NULL:
 * all are. may_lack: a null is no bad row. */
void stg_parquet_flat_rows(const struct stg_parquet_mask *masks, uint64_t n,
                           bool may_lack, struct stg_list_rows *rows, uint8_t *valid);

#endif
