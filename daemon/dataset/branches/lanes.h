/* SPDX-License-Identifier: Apache-2.0
 *
 * Readers that run at once: a lane is a reader step with one file after the other as its
 * input. The threads of the lanes open the files, read them and make the blocks, a
 * few ahead of the taker. The taker decides the order of lanes; what comes out of one
 * lane never depends on timing.
 *
 * All calls come from one thread at a time (the dataset's), in which a lane is also run
 * when it is asked for something that no other thread is at; and, where reads are short,
 * some other lane while a thread is at that one.
 */
#ifndef STG_DAEMON_LANES_H
#define STG_DAEMON_LANES_H

#include "daemon/dataset/step.h"

struct stg_lanes;

struct stg_lanes_config {
    struct stg_dataset *dataset;     /* borrowed */
    const struct stg_step *reader;   /* what a lane runs, and what it yields */
    const struct stg_schema *schema; /* both borrowed */
    const struct stg_schema *path;   /* of the input; borrowed */
    unsigned n_lanes;
    unsigned n_threads;           /* 0: the taker does everything */
    const struct stg_step *tuned; /* whose num_parallel_calls is auto: n_threads is the
                                     most; NULL: all work */
    unsigned least_threads;       /* of these, where they are tuned */
    int64_t buffer_records;       /* a lane has no more ready, nor more than two blocks */
};

enum stg_lane_answer {
    STG_LANE_BLOCK = 0, /* records, or an error in their place */
    STG_LANE_END = 1,   /* the file has no more: the lane may start again */
    STG_LANE_BUSY = 2   /* nothing yet */
};

int stg_lanes_create(const struct stg_lanes_config *config, struct stg_lanes **ret,
                     struct stg_err *err);
void stg_lanes_destroy(struct stg_lanes *lanes); /* NULL is allowed */

/* Begins with a file: `path` is a block of one record, or an error block, which then is
 * all there is. Takes the block, also on failure. The lane must be new or at its end. */
int stg_lanes_start(struct stg_lanes *lanes, unsigned lane, struct stg_block *path,
                    struct stg_err *err);

/* What the lane has next: an enum stg_lane_answer. A file that cannot be opened or read
 * is an error block, and then the end. Without `wait` the answer may be STG_LANE_BUSY.
 * Negative: out of memory, or stopped. */
int stg_lanes_take(struct stg_lanes *lanes, unsigned lane, bool wait,
                   struct stg_block **ret, struct stg_err *err);

/* Counts what lanes have got ready. Wait returns once it is no longer `seen`; makes
 * something ready itself when no thread does. */
uint64_t stg_lanes_ready(struct stg_lanes *lanes);
void stg_lanes_wait(struct stg_lanes *lanes, uint64_t seen);

/* Forgets all files; every lane may start again. Waits for the threads that are at one.
 */
void stg_lanes_clear(struct stg_lanes *lanes);

#endif
