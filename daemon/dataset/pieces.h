/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks in a row that wait: collected for a batch, or made ahead and emitted as they
 * are asked for. One thread.
 */
#ifndef STG_DAEMON_PIECES_H
#define STG_DAEMON_PIECES_H

#include "daemon/dataset/block.h"

/* A zeroed struct is empty. */
struct stg_pieces {
    struct stg_block **blocks; /* those from `first` on are there */
    size_t first, n, size;
    int64_t n_records; /* of all that are there; error blocks have none */
    int64_t at;        /* records of the first one that were taken */
};

/* Appends. The block belongs to the pieces on success; on failure (RESOURCE_EXHAUSTED) it
 * is gone. */
int stg_pieces_add(struct stg_pieces *pieces, struct stg_block *block,
                   struct stg_err *err);

/* Appends the records index[0 .. n) of a block, which the caller keeps. A reference, if
 * these are all; views where they follow one another. */
int stg_pieces_add_picked(struct stg_pieces *pieces, struct stg_quota *quota,
                          struct stg_block *block, const int64_t *index, int64_t n,
                          struct stg_err *err);

static inline bool stg_pieces_any(const struct stg_pieces *pieces)
{
    return pieces->first < pieces->n;
}

/* Returns how many records and errors are there. */
uint64_t stg_pieces_count(const struct stg_pieces *pieces);

/* Takes the first block, or, when it has more than want records, that many of it. There
 * must be one. */
int stg_pieces_take(struct stg_pieces *pieces, struct stg_quota *quota, int64_t want,
                    struct stg_block **ret, struct stg_err *err);

/* Drops all; finish frees the memory too. */
void stg_pieces_clear(struct stg_pieces *pieces);
void stg_pieces_finish(struct stg_pieces *pieces);

#endif
