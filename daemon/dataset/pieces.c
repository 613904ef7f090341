/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/pieces.h"

#include <stdlib.h>

int stg_pieces_add(struct stg_pieces *pieces, struct stg_block *block,
                   struct stg_err *err)
{
    if (pieces->first == pieces->n)
        pieces->first = pieces->n = 0;
    if (pieces->n == pieces->size) {
        size_t size = pieces->size > 0 ? 2 * pieces->size : 8;
        struct stg_block **blocks =
            realloc(pieces->blocks, size * sizeof(struct stg_block *));
        if (blocks == NULL) {
            stg_block_unref(block);
            return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
        }
        pieces->blocks = blocks;
        pieces->size = size;
    }
    pieces->blocks[pieces->n++] = block;
    pieces->n_records += block->n_records;
    return 0;
}

int stg_pieces_add_picked(struct stg_pieces *pieces, struct stg_quota *quota,
                          struct stg_block *block, const int64_t *index, int64_t n,
                          struct stg_err *err)
{
    struct stg_block *part;
    if (n == 0)
        return 0;
    int rc = 0;
    if (n == block->n_records)
        part = stg_block_ref(block);
    else if (index[n - 1] - index[0] == n - 1)
        rc = stg_block_slice(quota, block, index[0], n, &part, err);
    else
        rc = stg_block_pick(quota, block, index, n, &part, err);
    return rc == 0 ? stg_pieces_add(pieces, part, err) : rc;
}

uint64_t stg_pieces_count(const struct stg_pieces *pieces)
{
    uint64_t n = (uint64_t)pieces->n_records;
    for (size_t i = pieces->first; i < pieces->n; i++)
        n += pieces->blocks[i]->error.code != 0;
    return n;
}

int stg_pieces_take(struct stg_pieces *pieces, struct stg_quota *quota, int64_t want,
                    struct stg_block **ret, struct stg_err *err)
{
    struct stg_block *block = pieces->blocks[pieces->first];
    int64_t left = block->n_records - pieces->at;
    int64_t n = left < want ? left : want;
    if (n < block->n_records) {
        int rc = stg_block_slice(quota, block, pieces->at, n, ret, err);
        if (rc < 0)
            return rc;
    } else {
        *ret = stg_block_ref(block);
    }
    pieces->n_records -= n;
    pieces->at += n;
    if (n == left) {
        stg_block_unref(block);
        pieces->first++;
        pieces->at = 0;
    }
    return 0;
}

void stg_pieces_clear(struct stg_pieces *pieces)
{
    for (size_t i = pieces->first; i < pieces->n; i++)
        stg_block_unref(pieces->blocks[i]);
    pieces->first = pieces->n = 0;
    pieces->n_records = pieces->at = 0;
}

void stg_pieces_finish(struct stg_pieces *pieces)
{
    stg_pieces_clear(pieces);
    free(pieces->blocks);
    *pieces = (struct stg_pieces){0};
}
