/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/format/parquet/flat_levels.h"

#include <string.h>

bool stg_parquet_is_flat(const struct stg_parquet_leaf *leaf)
{
    return leaf->n_lists == 1 && leaf->max_level >> STG_PARQUET_PLANES == 0;
}

/* Of machines without an instruction for it. */
static uint64_t count_ones(uint64_t word)
{
    word -= word >> 1 & UINT64_C(0x5555555555555555);
    word = (word & UINT64_C(0x3333333333333333)) +
           (word >> 2 & UINT64_C(0x3333333333333333));
    word = (word + (word >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return word * UINT64_C(0x0101010101010101) >> 56;
}

/* ---- from planes to masks ---- */

/* Which values are equal to a number, and which are greater. */
static inline void compare(const uint64_t *planes, unsigned n_planes, unsigned number,
                           uint64_t *ret_equal, uint64_t *ret_greater)
{
    uint64_t equal = UINT64_MAX, greater = 0;
    for (unsigned k = n_planes; k-- > 0;) {
        uint64_t bit = 0 - (uint64_t)(number >> k & 1);
        greater |= equal & planes[k] & ~bit;
        equal &= ~(planes[k] ^ bit);
    }
    *ret_equal = equal;
    *ret_greater = greater;
}

/* Returns false if a level is out of range. all: bits of levels that there are. */
static inline bool make_mask(const struct stg_parquet_leaf *leaf, unsigned n_planes,
                             uint64_t repeats, const uint64_t *levels, uint64_t all,
                             struct stg_parquet_mask *ret)
{
    uint64_t is_empty, is_over;
    compare(levels, n_planes, leaf->max_level, &ret->is_valid, &is_over);
    compare(levels, n_planes, leaf->list_levels[0] - 1, &is_empty, &ret->has_slot);
    ret->begins = ~repeats & all;
    ret->is_valid &= all;
    ret->has_slot &= all;
    ret->is_null = ~(ret->has_slot | is_empty) & all;
    return ((is_over & all) | (repeats & ~ret->has_slot)) == 0;
}

bool stg_parquet_flat_read(const struct stg_parquet_leaf *leaf, uint64_t n,
                           struct stg_parquet_runs *repeats,
                           struct stg_parquet_runs *levels, struct stg_parquet_mask *to,
                           struct stg_parquet_flat *ret)
{
    uint64_t repeat[STG_PARQUET_PLANES], level[STG_PARQUET_PLANES];
    *ret = (struct stg_parquet_flat){0};
    for (uint64_t done = 0; done < n; done += 64, to++) {
        uint64_t now = n - done < 64 ? n - done : 64, all = UINT64_MAX >> (64 - now);
        ret->is_short = !stg_parquet_runs_read_planes(repeats, repeat, now) ||
                        !stg_parquet_runs_read_planes(levels, level, now);
        if (ret->is_short || !make_mask(leaf, levels->width, repeat[0], level, all, to))
            return false;
        if (done == 0) {
            ret->goes_on = (repeat[0] & 1) != 0;
            to->begins |= 1;
        }
        ret->n_rows += count_ones(to->begins);
        ret->n_slots += count_ones(to->has_slot);
        ret->n_valid += count_ones(to->is_valid);
        ret->n_null_lists += to->is_null != 0 ? count_ones(to->is_null) : 0;
    }
    return true;
}

/* ---- from masks to rows ---- */

/* Where the rows of a mask begin. A level without an element is that of a row that
 * begins. Returns how many there are. */
static uint64_t place_rows(const struct stg_parquet_mask *mask, int64_t slot, int64_t *to)
{
    uint64_t n = 0;
    for (uint64_t left = mask->begins; left != 0; left &= left - 1, n++) {
        unsigned at = (unsigned)__builtin_ctzll(left);
        to[n] = slot + at;
        slot -= (mask->has_slot >> at & 1) == 0;
    }
    return n;
}

/* Rows with a null. */
static void mark_bad(const struct stg_parquet_mask *mask, uint64_t row, uint8_t *bad)
{
    uint64_t left = mask->is_null | (mask->has_slot & ~mask->is_valid);
    for (; left != 0; left &= left - 1) {
        uint64_t to_here = left ^ (left - 1);
        bad[row + count_ones(mask->begins & to_here) - 1] = 1;
    }
}

static void place_valid(const struct stg_parquet_mask *mask, uint64_t slot,
                        uint8_t *valid)
{
    for (uint64_t left = mask->has_slot; left != 0; left &= left - 1)
        valid[slot++] = (mask->is_valid & left & (0 - left)) != 0;
}

void stg_parquet_flat_rows(const struct stg_parquet_mask *masks, uint64_t n,
                           bool may_lack, struct stg_list_rows *rows, uint8_t *valid)
{
    uint64_t row = 0, slot = 0;
    memset(rows->bad, 0, rows->n);
    for (uint64_t i = 0; i < stg_parquet_n_masks(n); i++) {
        const struct stg_parquet_mask *mask = &masks[i];
        if (!may_lack)
            mark_bad(mask, row, rows->bad);
        if (valid != NULL)
            place_valid(mask, slot, valid);
        row += place_rows(mask, (int64_t)slot, rows->first + row);
        slot += count_ones(mask->has_slot);
    }
    rows->first[row] = (int64_t)slot;
}
