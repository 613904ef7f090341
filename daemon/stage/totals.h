/* SPDX-License-Identifier: Apache-2.0
 *
 * What a stage counts for metrics: numbers that only grow, and those of its ranks. A
 * pipeline adds up those of all its runs. Plain data; the owner guards it.
 */
#ifndef STG_DAEMON_STAGE_TOTALS_H
#define STG_DAEMON_STAGE_TOTALS_H

#include <stddef.h>
#include <stdint.h>

#define STG_N_CODES 17 /* of enum stager_status */
#define STG_WAIT_BOUNDS 11

enum stg_total {
    STG_TOTAL_MADE,
    STG_TOTAL_PUBLISHED,
    STG_TOTAL_PUBLISHED_ROWS,
    STG_TOTAL_PUBLISHED_BYTES,
    STG_TOTAL_DELIVERED,
    STG_TOTAL_DELIVERED_ROWS,
    STG_TOTAL_DELIVERED_BYTES,
    STG_TOTAL_ACKNOWLEDGED,
    STG_TOTAL_RELEASED,
    STG_TOTAL_REDELIVERED,
    STG_TOTAL_LOST,
    STG_TOTAL_DROPPED,
    STG_TOTAL_DROPPED_ROWS,
    STG_TOTAL_IGNORED,
    STG_TOTAL_IGNORED_ELEMENTS,
    STG_TOTAL_DISCARDED,
    STG_TOTAL_TIMEOUTS,
    STG_TOTAL_EVICTED,
    STG_TOTAL_ATTACHED,
    STG_TOTAL_RECONNECTED,
    STG_TOTAL_PULL_NS,
    STG_TOTAL_COMPUTE_NS,
    STG_TOTAL_CALL_NS,
    STG_TOTAL_ROOM_WAIT_NS,
    STG_TOTAL_REMOTE_BATCHES,
    STG_TOTAL_REMOTE_BYTES,
    STG_TOTAL_REMOTE_FAILED,
    STG_TOTAL_REMOTE_REDONE,
    STG_TOTAL_REMOTE_STALL_NS,
    STG_TOTAL_REMOTE_ANSWER_NS,
    STG_TOTAL_REMOTE_CPU_NS,
    STG_N_TOTALS
};

/* How long clients slept for each batch that they got: n[i] waits were at most
 * stg_wait_bounds_ns[i], and longer than the bound before; the last n has no bound. */
struct stg_waits {
    uint64_t n[STG_WAIT_BOUNDS + 1];
    uint64_t sum_ns;
};

extern const uint64_t stg_wait_bounds_ns[STG_WAIT_BOUNDS];

/* Of the clients that had one rank, one after the other. */
struct stg_rank_counts {
    struct stg_waits waits;
    uint64_t n_acknowledged;
    uint64_t held_up_ns; /* the stage waited for this rank alone */

    /* At this moment: */
    uint64_t waiting_ns; /* the client sleeps */
    uint32_t n_held, n_attached;
    uint32_t uid, job; /* of the client that is attached */
};

/* Zero-initialise. */
struct stg_totals {
    uint64_t n[STG_N_TOTALS];
    uint64_t errors[STG_N_CODES]; /* error items, by code */
    struct stg_rank_counts *ranks;
    size_t n_ranks;
};

void stg_waits_add(struct stg_waits *waits, uint64_t ns);

/* Adds `from`. Ranks for which there is no memory are left out. */
void stg_totals_add(struct stg_totals *to, const struct stg_totals *from);
void stg_totals_finish(struct stg_totals *totals);

#endif
