/* SPDX-License-Identifier: Apache-2.0
 *
 * `smart_stage: auto`: which partition is in force, by paired trials within a run. Once
 * enough is measured, the caller names the few partitions that are worth a trial
 * (daemon/placement/cost.h). Each is a challenger of the partition in force: the two take
 * turns in blocks of some milliseconds, a sequential test (daemon/placement/paired.h)
 * compares the time of a batch within each pair of blocks, and a challenger that is
 * faster takes over at once.
 *
 * What trials cost is bounded: the time lost in blocks of slower challengers stays below
 * a budget of STG_SMART_BUDGET of the time run so far and STG_SMART_CONSTANT_NS. A pair
 * that would exceed it waits; the partition in force runs meanwhile.
 *
 * Time is that of the clock on the wall, from one batch that trainers take to another.
 * It is the only measure that holds for each bottleneck: the trainer, the runners, cores
 * that both share, a quota. A block begins after the batches that were buffered before.
 *
 * A state machine without clock, thread or stage. One thread at a time.
 */
#ifndef STG_DAEMON_PLACEMENT_SMARTSTAGE_H
#define STG_DAEMON_PLACEMENT_SMARTSTAGE_H

#include "daemon/autotune/decision.h"
#include "daemon/placement/paired.h"

#define STG_SMART_MAX_PARTITIONS 4 /* the file's own, and three to try */
#define STG_SMART_BUDGET 0.005
#define STG_SMART_CONSTANT_NS UINT64_C(50000000)
#define STG_SMART_ERROR                                                                  \
    0.005 /* probability that a trial takes a partition that is not                      \
             faster by STG_SMART_LEAST, at any time */
#define STG_SMART_LEAST 0.01

/* What is seen of the stage at a tick. */
struct stg_smart_view {
    uint64_t now_ns;
    uint64_t n_taken;   /* batches, by trainers, ever */
    uint64_t n_changes; /* times that a trainer came or went, ever */
    uint32_t n_ahead;   /* batches that may be under way from a pull to a trainer */
    bool is_running;    /* a pass runs: batches are made, or wait to be taken */
    bool is_tuning;     /* a number of `auto` is being tried: it has to be judged first */
    bool is_measured;   /* nodes of both sides are */
    double free_cores;  /* idle */
};

/* A partition to try. */
struct stg_smart_partition {
    char label[96];   /* for people: what it moves */
    double predicted; /* its pace over that of the file's own: 1.2 is a fifth faster */
    bool is_in_force; /* it was taken before */
    uint32_t id;      /* the caller's */
};

enum stg_smart_state {
    STG_SMART_WARM_UP, /* until enough is measured */
    STG_SMART_PLAN,    /* the caller is to say what to try */
    STG_SMART_TRIAL,
    STG_SMART_HOLD,
};

/* Batches made by one partition in a row. Counters are those of batches taken. */
struct stg_smart_block {
    uint64_t pull_began_ns;
    uint32_t n_pulled;
    bool is_seen;               /* a batch of it was taken */
    uint64_t n_begin, begin_ns; /* at the last batch before it */
    uint64_t n_start, start_ns; /* once no batch that was made before is under way */
    uint64_t n_end, end_ns;     /* at its last batch so far */
};

/* A challenger against the partition in force. */
struct stg_smart_trial {
    struct stg_paired paired;
    double regret_ns; /* time lost so far; negative: won */
    double tried_ns;  /* of blocks so far */
    bool is_warm;     /* it has run: the first pair makes executors and memory */
    bool is_judged;
};

struct stg_smart {
    enum stg_smart_state state;
    struct stg_decisions *decisions;
    struct stg_smart_partition
        partitions[STG_SMART_MAX_PARTITIONS]; /* [0] is the file's own */
    struct stg_smart_trial trials[STG_SMART_MAX_PARTITIONS];
    uint32_t n_partitions;
    uint32_t in_force; /* of partitions */
    uint32_t trying;   /* of partitions, in TRIAL */
    double gain;       /* of the one in force over the file's own; 0: it is that */
    bool has_news;     /* the last trials have ended, and the caller has not read it */

    int phase; /* of the pair: enum in smartstage.c */
    bool challenger_first;
    uint32_t tag; /* of the first block of the pair; the second's is one more */
    struct stg_smart_block blocks[2];
    uint64_t block_ns, usual_ns; /* to last at least; of the one in force, last time */
    uint64_t pair_ns;            /* when it began */
    uint64_t n_taken, taken_ns;  /* at the last batch taken in TRIAL */
    bool is_noisy;
    double cost_ns; /* of a batch of the one in force, in the last pair */
    uint32_t n_stalls;
    uint64_t stalls_began_ns;
    uint64_t random;

    uint64_t since_ns;            /* of the state, or of running */
    uint64_t tick_ns, tick_taken; /* the last tick */
    uint64_t running_ns;          /* time in which batches were taken so far */
    uint32_t n_ahead;
    bool is_tuning;
    bool has_told;   /* that nothing is measured */
    bool is_resting; /* the budget is spent */
    uint64_t trial_began_ns, next_trial_ns;
    uint32_t n_in_vain; /* trials in a row that changed nothing */
    uint64_t n_changes;

    double held_pace, held_cores; /* when it was last decided */
    uint64_t look_ns, look_taken; /* HOLD: since when the pace is measured */
    uint32_t n_changed;           /* looks in a row that saw another load */
    bool has_others;              /* trainers came or went since it was planned */
};

/* decisions gets a line for each thing that is decided. */
void stg_smart_init(struct stg_smart *smart, struct stg_decisions *decisions);

/* Begins with a partition that an earlier run took, and its gain then. The trials
 * compare it with the file's own first. */
void stg_smart_begin_with(struct stg_smart *smart, const char *label, double gain);

/* Milliseconds until the next call. smart->partitions[smart->in_force] is the partition
 * to set. When the state is PLAN, call stg_smart_plan, and this again. */
int stg_smart_tick(struct stg_smart *smart, const struct stg_smart_view *view);

/* Event: a batch is being pulled. Returns whether it is to be made by the challenger,
 * smart->trying, rather than by the partition in force. *ret_tag: what to pass to
 * stg_smart_taken with it; 0: it belongs to no block. */
bool stg_smart_pull(struct stg_smart *smart, uint64_t now_ns, uint32_t *ret_tag);

/* Event: a batch of that tag was taken; so many have been, ever. */
void stg_smart_taken(struct stg_smart *smart, uint32_t tag, uint64_t n_taken,
                     uint64_t now_ns);

/* Does it compare partitions now? Nothing else is to be tried meanwhile. */
bool stg_smart_in_trial(const struct stg_smart *smart);

/* The partitions to try, best first, at most STG_SMART_MAX_PARTITIONS - 1. None: nothing
 * is worth it; `why` says so to people. */
void stg_smart_plan(struct stg_smart *smart, uint64_t now_ns,
                    const struct stg_smart_partition *partitions, uint32_t n,
                    const char *why);

#endif
