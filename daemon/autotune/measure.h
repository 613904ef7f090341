/* SPDX-License-Identifier: Apache-2.0
 *
 * What is measured of a running stage: time and bytes of the graph's nodes on either
 * side, counters of a recent window, and what was decided by it. Guarded by the stage's
 * lock; once the stage has ended it is its pipeline's, and shows how the last run went.
 */
#ifndef STG_DAEMON_AUTOTUNE_MEASURE_H
#define STG_DAEMON_AUTOTUNE_MEASURE_H

#include "daemon/autotune/bottleneck.h"
#include "daemon/autotune/decision.h"
#include "ops/exec/profile.h"
#include "proto/wire.h"

/* Counters at a moment; all but at_ns only grow. */
struct stg_load {
    uint64_t at_ns;
    uint64_t n_made, n_published, n_assigned, n_rows, n_bytes;
    uint64_t pull_ns, compute_ns, call_ns, room_ns;
    uint64_t sampled_pull_ns, sampled_cpu_ns;
    uint64_t clients_ns, clients_wait_ns;
    uint64_t cpu_ns;
    struct stg_remote_load remote;
};

struct stg_measure {
    struct stg_profile daemon, client; /* what runs where; of the client what it says */
    bool *on_device;                   /* of each node: trainers run it on a GPU */
    struct stg_mean client_cpu_ns;     /* of a batch, in a trainer's process */
    struct stg_load load;              /* as of the last look */
    struct stg_load marks[2]; /* a look a second ago or more, and one before; at_ns 0:
                                 there is none */
    bool is_over; /* no trainer reads: the last look was the last one of its window */
    uint32_t n_runners;
    struct stg_decisions decisions;
};

/* NULL: out of memory. */
struct stg_measure *stg_measure_create(const struct stg_graph *graph, uint32_t n_runners);
void stg_measure_destroy(struct stg_measure *measure);

/* Is it time for the next mark? */
bool stg_measure_is_due(const struct stg_measure *measure, uint64_t now_ns);

/* Takes a look. While no trainer reads, the first look ends the window, further looks
 * change nothing, and what happens until trainers read again is left out of the window.
 */
void stg_measure_load(struct stg_measure *measure, const struct stg_load *load,
                      bool is_read);

/* Takes `load` as a mark. */
void stg_measure_mark(struct stg_measure *measure);

/* What happened from one look to a later one. */
void stg_pace_between(const struct stg_load *from, const struct stg_load *to,
                      uint32_t n_runners, struct stg_pace *ret);

/* What happened lately: in the last second or two while items are made. */
void stg_measure_pace(const struct stg_measure *measure, struct stg_pace *ret);

/* Adds what a trainer reports. Numbers that cannot be (a node that is not there, more
 * time than has passed, more outputs than it has) are left out. */
void stg_measure_report(struct stg_measure *measure, const struct stg_report *report);

#endif
