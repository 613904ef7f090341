/* SPDX-License-Identifier: Apache-2.0
 *
 * shuffle with `global: true`: an order of all records of an indexable input. The records
 * are divided into blocks that follow one another. The blocks come in the order of a
 * keyed permutation, so many at once (a window), and the records of a window in a random
 * order. With `exact` a block is one record, and the order is a permutation of all.
 *
 * Where the input has files that keep records together, such as row groups, a block is
 * one of these, several, or a piece of one (global/parts.h).
 *
 * A window is read from its first to its last record, as they lie in the input. What
 * comes at a place is a function of (seed, pass, iteration, place) and of the number of
 * records, so that a skip reads nothing but the window in which it ends.
 */
#ifndef STG_DAEMON_GLOBAL_SHUFFLE_H
#define STG_DAEMON_GLOBAL_SHUFFLE_H

#include "daemon/dataset/step.h"

/* Returns whether the step has `global: true`. */
bool stg_global_shuffle_is(const struct stg_step *step);

/* Check the options of such a step, and refuse those of another. INVALID_ARGUMENT. */
int stg_global_shuffle_check(const struct stg_step *step, struct stg_err *err);
int stg_global_shuffle_refuse(const struct stg_step *step, struct stg_err *err);

/* As create of struct stg_transformation. */
int stg_global_shuffle_create(struct stg_dataset *dataset, const struct stg_step *step,
                              const struct stg_schema *schema, struct stg_iter *input,
                              struct stg_iter **ret, struct stg_err *err);

/* How the records of an iteration are divided. */
struct stg_global_layout {
    uint64_t n;               /* records */
    uint64_t block, n_blocks; /* records of a block; the last may have fewer */
    uint64_t window;          /* blocks of a window; the last may have fewer */
    uint64_t short_window;    /* which of them has the last block */
    /* Where the input keeps records together (struct stg_extent): the most records of a
     * window, and of a piece of such a part. 0: blocks have one size. */
    uint64_t most, piece;
};

/* Sets all but short_window, from the options of a step and what its input has. */
void stg_global_layout_init(struct stg_global_layout *layout, const struct stg_step *step,
                            const struct stg_extent *extent);
/* Returns the place of the first record of a window, and the window that has a place. */
uint64_t stg_global_layout_begin(const struct stg_global_layout *layout, uint64_t window);
uint64_t stg_global_layout_find(const struct stg_global_layout *layout, uint64_t place);

#endif
