/* SPDX-License-Identifier: Apache-2.0
 *
 * `smart_stage: auto`: which partition is in force, by trial. The user's own partition is
 * the baseline. Once enough is measured, the caller says which few partitions are worth a
 * trial (daemon/placement/cost.h); each is run in windows beside the baseline, now one
 * first, now the other, and is kept only when batches come faster with it by more than
 * the noise between windows. Then it tries nothing until the load or the set of clients
 * has changed. Trials take at most a twentieth of the time; a trial in vain doubles the
 * pause before the next one.
 *
 * A state machine without clock, thread or stage: the caller calls stg_smart_tick now and
 * then, and does what it says. One thread at a time.
 */
#ifndef STG_DAEMON_PLACEMENT_SMARTSTAGE_H
#define STG_DAEMON_PLACEMENT_SMARTSTAGE_H

#include "daemon/autotune/decision.h"

#define STG_SMART_MAX_PARTITIONS 4 /* the baseline, and three to try */
#define STG_SMART_MAX_PAIRS 14

/* What is seen of the stage at a tick. */
struct stg_smart_view {
    uint64_t now_ns;
    uint64_t n_made;    /* batches, ever */
    uint64_t n_taken;   /* by trainers, ever; in the order in which they were made */
    uint64_t n_changes; /* times that a trainer came or went, ever */
    bool is_running;    /* a pass runs: batches are made, or wait to be taken */
    bool is_tuning;     /* a number of `auto` is being tried: it has to be judged first */
    bool is_measured;   /* nodes of both sides are */
    double free_cores;  /* idle */
};

/* A partition to try. */
struct stg_smart_partition {
    char label[96];   /* for people: what it moves */
    double predicted; /* its pace over that of the baseline: 1.2 is a fifth faster */
    bool is_in_force; /* it was kept before */
    uint32_t id;      /* the caller's */
};

enum stg_smart_state {
    STG_SMART_WARM_UP, /* until enough is measured */
    STG_SMART_PLAN,    /* the caller is to say what to try */
    STG_SMART_FLUSH,   /* batches of the last partition are on their way */
    STG_SMART_WINDOW,  /* batches are counted */
    STG_SMART_HOLD,
};

struct stg_smart {
    enum stg_smart_state state;
    struct stg_decisions *decisions;
    struct stg_smart_partition
        partitions[STG_SMART_MAX_PARTITIONS]; /* [0] is the baseline */
    uint32_t n_partitions;
    uint32_t chosen, in_force; /* of partitions */

    uint32_t trying; /* of partitions */
    uint32_t n_pairs;
    double ratios[STG_SMART_MAX_PAIRS]; /* pace of what is tried over the baseline's */
    bool is_second;                     /* window of the pair */
    double first_pace;
    uint64_t made_at_switch, window_ns, window_taken;

    uint64_t since_ns; /* of the state, or of running */
    bool has_told;     /* that nothing is measured */
    uint64_t trial_began_ns, next_trial_ns;
    uint32_t n_in_vain; /* trials in a row that changed nothing */
    uint64_t n_changes;
    double best_gain; /* among those tried so far */
    uint32_t best;

    double held_pace, held_cores; /* when it was last decided */
    uint64_t look_ns, look_taken; /* HOLD: since when the pace is measured */
    uint32_t n_changed;           /* looks in a row that saw another load */
    bool has_others;              /* trainers came or went since it was planned */
};

/* decisions gets a line for each thing that is decided. */
void stg_smart_init(struct stg_smart *smart, struct stg_decisions *decisions);

/* Milliseconds until the next call. smart->partitions[smart->in_force] is the partition
 * to set, from the next batch that is pulled on. When the state is PLAN, call
 * stg_smart_plan, and this again. */
int stg_smart_tick(struct stg_smart *smart, const struct stg_smart_view *view);

/* Does it try partitions now, or is about to? Nothing else is to be tried meanwhile. */
bool stg_smart_in_trial(const struct stg_smart *smart);

/* The partitions to try, best first, at most STG_SMART_MAX_PARTITIONS - 1. None: nothing
 * is worth it; `why` says so to people. */
void stg_smart_plan(struct stg_smart *smart, uint64_t now_ns,
                    const struct stg_smart_partition *partitions, uint32_t n,
                    const char *why);

#endif
