/* SPDX-License-Identifier: Apache-2.0
 *
 * What batch, rebatch, padded_batch and ragged_batch have in common: records are
 * collected until there are enough for one. An error from above goes by, what is
 * collected stays.
 */
#ifndef STG_DAEMON_COLLECT_H
#define STG_DAEMON_COLLECT_H

#include "daemon/dataset/pieces.h"
#include "daemon/dataset/step.h"

struct stg_collector;

struct stg_collector_impl {
    /* What is collected, in collector->pieces, as one record, or as an error block. */
    int (*make)(struct stg_collector *collector, struct stg_block **ret,
                struct stg_err *err);
    /* May be NULL. INVALID_ARGUMENT: no record of this block can be in a batch; each of
     * them becomes an error. */
    int (*check)(const struct stg_collector *collector, const struct stg_block *block,
                 struct stg_err *err);
};

/* A step's struct begins with it. */
struct stg_collector {
    struct stg_iter iter;
    const struct stg_collector_impl *impl;
    const struct stg_attr *sizes; /* of batches in turn; one, but for rebatch */
    size_t now;                   /* the size of the one that is made */
    bool drop_remainder;
    struct stg_pieces pieces;
    struct stg_block *refused; /* those from refused_at on are still to be errors */
    int64_t refused_at;
    struct stg_err refusal;
};

/* The checks of infer: batch_size, and check_ranks: room for one dimension more. */
int stg_collector_infer(const struct stg_step *step, const struct stg_schema *in,
                        struct stg_err *err);
int stg_collector_check_ranks(const struct stg_step *step, const struct stg_schema *in,
                              struct stg_err *err);

/* The size of a batch as a dimension, by the step's batch_size: -1 unless all are equally
 * large, the largest one where the step is_full. */
int64_t stg_collector_dimension(const struct stg_step *step);

/* As that, by those sizes, of which there is one at least. */
int64_t stg_batch_dimension(const struct stg_step *step, const struct stg_attr *sizes);

/* If the quota has refused memory since n_refused was read: the batch of these pieces,
 * whose size depends on its data, is too large. Replaces it by an error item that names
 * the first row, and clears the pieces. Returns other errors, such as a malloc that
 * failed, as they are. */
int stg_collector_too_large(struct stg_iter *iter, struct stg_pieces *pieces,
                            uint64_t n_refused, int rc, struct stg_block **ret,
                            struct stg_err *err);

/* Sets what the step's attributes say. */
void stg_collector_init(struct stg_collector *collector,
                        const struct stg_collector_impl *impl);

/* For the iterator's next and rewind. */
int stg_collector_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                       struct stg_err *err);
int stg_collector_rewind(struct stg_iter *iter, struct stg_err *err);
void stg_collector_destroy(struct stg_iter *iter);

/* All records of the pieces (at least 1) as one, or an error block that says which shapes
 * differ. One piece is passed on as it is: no copy. The pieces are cleared. */
int stg_collector_stack(struct stg_iter *iter, struct stg_pieces *pieces,
                        struct stg_block **ret, struct stg_err *err);

/* An error for one record of a block: error says why. In front of it comes the file and
 * line of the record, if it has one. */
int stg_collector_refuse(struct stg_iter *iter, const struct stg_block *block,
                         int64_t record, const struct stg_err *error,
                         struct stg_block **ret, struct stg_err *err);

#endif
