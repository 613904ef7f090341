/* SPDX-License-Identifier: Apache-2.0
 *
 * `capacity: auto` and `num_threads: auto` of one stage. An observer: the stage reports
 * events, and the tuners propose numbers to use from the next item on. Published items
 * make windows; what a window measured goes to the tuners, one after the other.
 *
 * Uses no stage and reads no clock. The caller's lock guards it.
 */
#ifndef STG_DAEMON_AUTOTUNE_TUNE_H
#define STG_DAEMON_AUTOTUNE_TUNE_H

#include "core/err.h"
#include "core/spec.h"
#include "daemon/dataset/tuning.h"

/* One attached client: the counters at this moment, and the tuner's marks. */
struct stg_tune_consumer {
    struct stg_tune_consumer *next;
    uint64_t wait_ns, n_given; /* ever */
    uint64_t mark_wait_ns, mark_n_given;
};

/* The stage at a moment. */
struct stg_tune_view {
    uint64_t now_ns;
    uint64_t room_ns;  /* finished items waited for room, all together, ever */
    uint32_t n_rounds; /* published and not taken */
    bool together;     /* consumers are as fast as the one that waits least */
    struct stg_tune_consumer *consumers;
};

struct stg_tune_numbers {
    uint32_t num_threads, capacity;
};

struct stg_tune_limits {
    uint32_t max_threads, max_capacity;
    double cpus; /* that the threads share */
};

struct stg_tune {
    bool is_on;
    struct stg_tuner threads, capacity;
    const struct stg_staged *staged; /* borrowed; its numbers are the keys in `log` */
    struct stg_tuner_sample window;  /* n_items, busy, serial, cpu and least so far */
    bool begins;                     /* the next look begins a window */
    uint64_t began_ns, room_before_ns;
    uint64_t n_to_skip; /* items that come before the next window */
    struct stg_tuning *log;
    bool owns_log;
    bool was_held; /* by trials of partitions: nothing was measured */
    uint64_t n_reported;
};

/* log NULL: one that lives as long as *tune. *ret: the numbers to begin with. Call finish
 * after a failure too. RESOURCE_EXHAUSTED. */
int stg_tune_init(struct stg_tune *tune, const struct stg_staged *staged,
                  const struct stg_tune_limits *limits, struct stg_tuning *log,
                  struct stg_tune_numbers *ret, struct stg_err *err);
void stg_tune_finish(struct stg_tune *tune); /* zero is allowed */

/* Event: an item was published, pulled and computed in these times. Returns whether
 * stg_tune_look is due. */
bool stg_tune_published(struct stg_tune *tune, uint64_t pull_ns, uint64_t busy_ns,
                        uint64_t cpu_ns, bool has_consumers);

/* Event: items were taken, down to so many rounds. */
void stg_tune_taken(struct stg_tune *tune, uint32_t n_rounds);

/* Event: clients came or went, or the partition changed. Returns as stg_tune_published.
 */
bool stg_tune_changed(struct stg_tune *tune);

/* Begins or ends a window when it is time. True: *ret are other numbers than before. */
bool stg_tune_look(struct stg_tune *tune, const struct stg_tune_view *view,
                   struct stg_tune_numbers *ret);

/* Writes the changes since the last call, those of the dataset's steps too, oldest first,
 * and returns how many. */
size_t stg_tune_news(struct stg_tune *tune,
                     struct stg_tuning_change ret[STG_TUNING_CHANGES]);

/* Is a number on trial, of the stage or of a step of its dataset? */
bool stg_tune_in_trial(const struct stg_tune *tune);

#endif
