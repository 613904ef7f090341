/* SPDX-License-Identifier: Apache-2.0
 *
 * Making blocks: one allocation each, counted on the dataset's quota, and a reference on
 * a chunk when the block is a view of one. A block keeps the quota alive. One thread
 * until emitted; references from any thread.
 */
#ifndef STG_DAEMON_BLOCK_H
#define STG_DAEMON_BLOCK_H

#include "daemon/dataset/dataset.h"
#include "daemon/storage/ahead.h"
#include "daemon/storage/chunk.h"

/* Returns the bytes that an array takes in a block: rounded up to 64. */
static inline uint64_t stg_block_room(uint64_t bytes)
{
    return (bytes + 63) & ~(uint64_t)63;
}

/* Creates a block with n_components zeroed tensors and `bytes` to carve (a sum of
 * stg_block_room). chunk may be NULL; the block takes a reference on it.
 * RESOURCE_EXHAUSTED as stg_quota_take. */
int stg_block_create(struct stg_quota *quota, uint32_t n_components, uint64_t bytes,
                     struct stg_chunk *chunk, const char *what, struct stg_block **ret,
                     struct stg_err *err);

/* Takes bytes of the block, aligned to 64 and not zeroed. Asserts that enough are left.
 */
void *stg_block_carve(struct stg_block *block, uint64_t bytes);

/* Takes references on chunks that the block shows beside its own, once. Carves
 * n * sizeof(chunk pointer). */
void stg_block_hold(struct stg_block *block, struct stg_chunk *const *chunks, uint32_t n);

/* Takes a reference on the dictionary of a tensor, if it is coded. The block is no view.
 */
void stg_block_hold_dictionary(struct stg_block *block, uint32_t c);

/* Creates an error block with *error. */
int stg_block_create_error(struct stg_quota *quota, const struct stg_err *error,
                           uint64_t epoch, struct stg_block **ret, struct stg_err *err);

/* Moves the accounting of the block to another quota, which has no limit. The block must
 * not be a view. */
void stg_block_move(struct stg_block *block, struct stg_quota *to);

/* ---- views: blocks that use the memory of a parent block, and hold a reference on it.
 * The caller keeps the parent, which may be a view too. ---- */

/* Creates a view with the parent's records, rows and epoch, n_components zeroed tensors
 * that the caller fills in, and `bytes` to carve. */
int stg_block_derive(struct stg_quota *quota, struct stg_block *parent,
                     uint32_t n_components, uint64_t bytes, const char *what,
                     struct stg_block **ret, struct stg_err *err);

/* Returns n records, from `first` on, of a tensor whose first dimension counts records.
 * One record is even. */
struct stg_tensor stg_tensor_records(const struct stg_tensor *tensor, int64_t first,
                                     int64_t n);

/* Returns the first dimensions of the first n records together: of an even tensor, n
 * times shape[1]. */
static inline int64_t stg_tensor_lengths(const struct stg_tensor *tensor, int64_t n)
{
    return tensor->splits != NULL ? tensor->splits[n] - tensor->splits[0]
                                  : n * tensor->shape[1];
}

/* n (at least 1) records from `first` on: nothing is copied. Each must have equally many
 * rows, unless it is the only one. */
int stg_block_slice(struct stg_quota *quota, struct stg_block *parent, int64_t first,
                    int64_t n, struct stg_block **ret, struct stg_err *err);

/* The records index[0 .. n), n at least 1: strings stay where they are, all else is
 * copied. */
int stg_block_pick(struct stg_quota *quota, struct stg_block *parent,
                   const int64_t *index, int64_t n, struct stg_block **ret,
                   struct stg_err *err);

/* Hands out a block that a step keeps, up to `want` records a time: those from *at on.
 * The whole block when it is no more; *from is NULL and *at 0 when it is used up. An
 * error block goes whole. On failure both are as they were. */
int stg_block_divide(struct stg_quota *quota, struct stg_block **from, int64_t *at,
                     int64_t want, struct stg_block **ret, struct stg_err *err);

/* Bytes to carve for a copy of the tensor, and the copy, as component c: strings are put
 * together, or stay coded. */
uint64_t stg_block_tensor_room(const struct stg_tensor *tensor);
void stg_block_copy_tensor(struct stg_block *block, uint32_t c,
                           const struct stg_tensor *from);

/* The rows of all blocks, and how many records they have together; the epoch is the first
 * one's. And bytes to carve for that. */
uint64_t stg_block_rows_room(struct stg_block *const *blocks, size_t n);
void stg_block_join_rows(struct stg_block *to, struct stg_block *const *blocks, size_t n);

/* Component c of all blocks, one after the other, as component to_c: coded if all are,
 * with one dictionary. flat: the records'
 * own first dimensions, not the records, come one after the other. And bytes to carve. */
uint64_t stg_block_join_room(struct stg_block *const *blocks, size_t n, uint32_t c);
void stg_block_join(struct stg_block *to, uint32_t to_c, struct stg_block *const *blocks,
                    size_t n, uint32_t c, bool flat);

/* Copies all records of n blocks (n at least 1) with equal component shapes to a new
 * block. The epoch is that of the first block. The caller keeps the blocks. */
int stg_block_gather(struct stg_quota *quota, struct stg_block *const *blocks, size_t n,
                     const char *what, struct stg_block **ret, struct stg_err *err);

/* Turns the records of a block into one record with one more dimension. */
void stg_block_pack(struct stg_block *block);

/* The other way: a block of one record becomes the item, whose tensors lack the dimension
 * of records. */
void stg_block_unpack(struct stg_block *block);

#endif
