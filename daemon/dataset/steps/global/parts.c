/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/steps/global/parts.h"

#include <stdlib.h>

/* ---- blocks ---- */

struct divider {
    uint64_t block, piece, whole; /* records; whole: a part of so many is one block */
    uint64_t *to;                 /* NULL: blocks are counted */
    uint64_t n;
    uint64_t last; /* the end of the last block */
};

static void end_block(struct divider *d, uint64_t end)
{
    if (end == d->last)
        return;
    if (d->to != NULL)
        d->to[d->n] = end;
    d->n++;
    d->last = end;
}

static void add_pieces(struct divider *d, uint64_t begin, uint64_t end)
{
    uint64_t n = end - begin, n_pieces = n / d->piece + (n % d->piece > 0);
    for (uint64_t i = 1; i < n_pieces; i++)
        end_block(d, begin + n / n_pieces * i);
    end_block(d, end);
}

/* Small parts that follow one another make a block. */
static void divide(struct divider *d, const struct stg_extent *extent)
{
    uint64_t begin = 0;
    d->n = d->last = 0;
    for (uint64_t i = 0; i < extent->n_ends; i++) {
        uint64_t end = extent->ends[i];
        if (end - d->last > d->block)
            end_block(d, begin);
        if (end - begin > d->whole)
            add_pieces(d, begin, end);
        else if (end - d->last >= d->block)
            end_block(d, end);
        begin = end;
    }
    end_block(d, begin);
}

int stg_global_parts_init(struct stg_global_parts *parts, struct stg_quota *quota,
                          const struct stg_extent *extent, uint64_t block, uint64_t piece,
                          uint64_t window, struct stg_err *err)
{
    struct divider d = {.block = block, .piece = piece, .whole = window / 2};
    stg_global_parts_finish(parts);
    d.whole = d.whole > piece ? d.whole : piece;
    divide(&d, extent);
    uint64_t bytes = 3 * (d.n + 1) * sizeof(uint64_t);
    int rc = stg_quota_take(quota, bytes, "the blocks of a global shuffle", err);
    if (rc < 0)
        return rc;
    d.to = malloc(bytes);
    if (d.to == NULL) {
        stg_quota_give(quota, bytes);
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    }
    divide(&d, extent);
    *parts = (struct stg_global_parts){.ends = d.to,
                                       .n_blocks = d.n,
                                       .begins = d.to + d.n,
                                       .firsts = d.to + d.n + d.n + 1,
                                       .quota = quota,
                                       .taken = bytes};
    return 0;
}

void stg_global_parts_finish(struct stg_global_parts *parts)
{
    if (parts->ends == NULL)
        return;
    free(parts->ends);
    stg_quota_give(parts->quota, parts->taken);
    *parts = (struct stg_global_parts){.ends = NULL};
}

/* ---- windows ---- */

void stg_global_parts_order(struct stg_global_parts *parts,
                            const struct stg_permutation *order, uint64_t window)
{
    uint64_t place = 0, held = 0;
    parts->n_windows = parts->most = 0;
    for (uint64_t i = 0; i < parts->n_blocks; i++) {
        uint64_t block = stg_permutation_at(order, i);
        uint64_t n = parts->ends[block] - stg_global_parts_first(parts, block);
        if (i == 0 || n > window || held > window - n) {
            parts->begins[parts->n_windows] = place;
            parts->firsts[parts->n_windows++] = i;
            held = 0;
        }
        held += n;
        place += n;
        parts->most = held > parts->most ? held : parts->most;
    }
    parts->begins[parts->n_windows] = place;
    parts->firsts[parts->n_windows] = parts->n_blocks;
}

uint64_t stg_global_parts_find(const struct stg_global_parts *parts, uint64_t place)
{
    uint64_t low = 0, high = parts->n_windows - 1;
    while (low < high) {
        uint64_t middle = high - (high - low) / 2;
        if (parts->begins[middle] <= place)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}
