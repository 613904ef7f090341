/* SPDX-License-Identifier: Apache-2.0
 *
 * num_parallel_calls: auto. How many threads of a step work: a tuner (tuner.h) over what
 * the step's threads did and how long the step's consumer waited for them. One thread at
 * a time, but for the clocks.
 */
#ifndef STG_DAEMON_PARALLELISM_H
#define STG_DAEMON_PARALLELISM_H

#include "daemon/dataset/step.h"
#include "daemon/dataset/tuner.h"

struct stg_parallelism {
    bool is_on; /* immutable */
    const struct stg_step *step;
    struct stg_tuning *tuning;
    struct stg_tuner tuner;
    struct stg_tuner_sample window; /* so far */
    uint64_t began_ns;
    uint32_t n_took;    /* in the window; before it, while there are some to let pass */
    uint32_t n_to_skip; /* made before the change */
    bool is_counted;    /* its trial, among those that run */
    bool was_held;
};

/* Clocks of the calling thread. */
struct stg_thread_time {
    uint64_t wall_ns, cpu_ns;
    uint64_t n_sleeps; /* how often it went to sleep */
};

void stg_thread_time_now(struct stg_thread_time *ret);
/* From *since till now. A thread that never slept used a CPU all the time, or would have:
 * to wait for one is computing, too. */
void stg_thread_time_since(const struct stg_thread_time *since,
                           struct stg_thread_time *ret);

/* It goes on where the pass before ended, else begins with `start`; at least min, which
 * is 0 if the consumer can do without threads, and at most max, the threads that exist.
 * A zeroed one is off: nothing changes. */
void stg_parallelism_init(struct stg_parallelism *parallelism,
                          const struct stg_dataset *dataset, const struct stg_step *step,
                          unsigned start, unsigned min, unsigned max);

/* What was measured is for the next pass. */
void stg_parallelism_finish(struct stg_parallelism *parallelism);

/* A thread of the step was at work. */
void stg_parallelism_worked(struct stg_parallelism *parallelism,
                            const struct stg_thread_time *spent);

/* The consumer waited for the threads. */
void stg_parallelism_waited(struct stg_parallelism *parallelism, uint64_t ns);

/* The consumer took so many records at once. True: parallelism->tuner.value has changed.
 */
bool stg_parallelism_took(struct stg_parallelism *parallelism, int64_t n_records);

#endif
