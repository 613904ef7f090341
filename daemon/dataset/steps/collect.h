/* SPDX-License-Identifier: Apache-2.0
 *
 * The common part of batch, rebatch, padded_batch and ragged_batch: collects records
 * until there are enough for a batch. An error block of the input passes through, and the
 * collected records stay. After a seek, an error takes the place of its batch instead.
 */
#ifndef STG_DAEMON_COLLECT_H
#define STG_DAEMON_COLLECT_H

#include "daemon/dataset/marks/marks.h"
#include "daemon/dataset/pieces.h"
#include "daemon/dataset/step.h"

struct stg_collector;

struct stg_collector_impl {
    /* Returns the collected records (collector->pieces) as one record, or an error block.
     */
    int (*make)(struct stg_collector *collector, struct stg_block **ret,
                struct stg_err *err);
    /* May be NULL. INVALID_ARGUMENT: no record of this block can be in a batch; each of
     * them becomes an error. */
    int (*check)(const struct stg_collector *collector, const struct stg_block *block,
                 struct stg_err *err);
};

/* The first member of a step's struct. */
struct stg_collector {
    struct stg_iter iter;
    const struct stg_collector_impl *impl;
    const struct stg_attr *sizes; /* of batches, in turn; one, except for rebatch */
    size_t now;                   /* size of the current batch */
    bool drop_remainder;
    struct stg_pieces pieces;
    struct stg_block *refused; /* its records from refused_at on still become errors */
    int64_t refused_at;
    struct stg_err refusal;

    bool is_sought; /* a batch has a number, and as many elements, errors included */

    struct stg_marks marks; /* unless it tells: while pieces has none */
    struct stg_marks begun; /* before the first one in pieces */

    bool tells;       /* the position after each record */
    uint64_t n_taken; /* elements of the input, errors included */
    uint64_t held_at; /* the number of the first one in pieces */
    uint64_t passed;  /* errors that were emitted since then */
    uint64_t n_known; /* errors to come that were emitted before the position of a seek */
};

/* Check the arguments of infer: batch_size, and (check_ranks) room for one dimension. */
int stg_collector_infer(const struct stg_step *step, const struct stg_schema *in,
                        struct stg_err *err);
int stg_collector_check_ranks(const struct stg_step *step, const struct stg_schema *in,
                              struct stg_err *err);

/* Returns the batch dimension by the step's batch_size: -1 unless all batches have the
 * same size, and the largest size if the step is_full. */
int64_t stg_collector_dimension(const struct stg_step *step);

/* Returns the same for the given sizes, at least one. */
int64_t stg_batch_dimension(const struct stg_step *step, const struct stg_attr *sizes);

/* Handles a failure to allocate a batch whose size depends on its data. If the quota has
 * refused memory since n_refused was read, the batch is too large: replaces it by an
 * error item that names the first row, and clears the pieces. Otherwise (such as a failed
 * malloc) returns rc unchanged. */
int stg_collector_too_large(struct stg_iter *iter, struct stg_pieces *pieces,
                            uint64_t n_refused, int rc, struct stg_block **ret,
                            struct stg_err *err);

/* Initialises the collector from the attributes of its step. */
void stg_collector_init(struct stg_collector *collector,
                        const struct stg_collector_impl *impl);

/* The iterator of every step that begins with a collector. */
extern const struct stg_iter_impl stg_collector_iter;

/* Returns the records of the pieces (at least 1) as one record, or an error block that
 * names the shapes that differ. A single piece is not copied. Clears the pieces. */
int stg_collector_stack(struct stg_iter *iter, struct stg_pieces *pieces,
                        struct stg_block **ret, struct stg_err *err);

/* Returns an error block for one record: the text of `error`, after the file and line of
 * the record if they are known. */
int stg_collector_refuse(struct stg_iter *iter, const struct stg_block *block,
                         int64_t record, const struct stg_err *error,
                         struct stg_block **ret, struct stg_err *err);

#endif
