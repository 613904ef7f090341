/* SPDX-License-Identifier: Apache-2.0
 *
 * The gathering of a run that goes on after a restart of stagerd, or in the next version
 * of its pipeline: which members of its record came back, with which states, and where
 * the run begins again. It uses no clock, process or socket: the caller says what
 * happened. One thread at a time.
 */
#ifndef STG_DAEMON_RECOVER_GATHERING_H
#define STG_DAEMON_RECOVER_GATHERING_H

#include "core/spec.h"
#include "daemon/recover/record.h"

enum stg_gathered_state {
    STG_GATHERED_AWAITED,  /* it did not come yet */
    STG_GATHERED_ARRIVED,  /* it came, with its state */
    STG_GATHERED_ATTACHED, /* it is in the run again */
    STG_GATHERED_LATE,     /* the run goes on without it; it may come still */
    STG_GATHERED_GONE,     /* it has left, or its process ended */
};

struct stg_gathered {
    enum stg_gathered_state state;
    struct stg_state *place; /* where it is; NULL: it took nothing and has no place */
    uint32_t max_in_flight;
};

/* Of what kind the pipeline is. */
struct stg_gathering_rules {
    enum stg_delivery delivery;
    uint32_t num_clients;
    uint64_t batch_size; /* that the items of a split are counted with; 0: none */
    bool follows;        /* the pipeline was replaced; else stagerd was started again */
};

enum stg_gathering_state {
    STG_GATHERING_OPEN,    /* members are awaited */
    STG_GATHERING_BEGUN,   /* the run began again; some have yet to attach */
    STG_GATHERING_CLOSED,  /* all attached that will: no open waits for it */
    STG_GATHERING_FAILED,  /* the run cannot go on */
    STG_GATHERING_REPLACED /* another run has begun since */
};

struct stg_gathering {
    enum stg_gathering_state state;
    struct stg_gathering_rules rules;
    struct stg_run_record record;
    struct stg_gathered *members; /* as those of the record */
    struct stg_err failure;       /* FAILED, REPLACED: the reason */
    bool has_start;               /* BEGUN, CLOSED: the run began at `start`; else at the
                                     start of the pass start.pass */
    struct stg_state start;
    /* The caller's. */
    uint64_t since_ns; /* the first open came that waits for it, or the run began; 0:
                          neither */
    enum stg_gathering_state announced; /* to opens that wait */
    uint32_t n_expected; /* clients that the run, which has begun, waits for */
    bool is_used;        /* one has attached to it */
};

/* Takes the record, also on failure. RESOURCE_EXHAUSTED. */
int stg_gathering_create(const struct stg_gathering_rules *rules,
                         struct stg_run_record *record, struct stg_gathering **ret,
                         struct stg_err *err);
void stg_gathering_destroy(struct stg_gathering *gathering); /* NULL is allowed */

/* Returns the place of a member among the members, or -1. A member that follows may know
 * only the run before. */
int stg_gathering_find(const struct stg_gathering *gathering, uint64_t run,
                       uint64_t member, uint32_t uid);

/* The member came, while the gathering is open. state NULL: it has no place.
 * RESOURCE_EXHAUSTED. */
int stg_gathering_arrive(struct stg_gathering *gathering, int member,
                         const struct stg_state *state, uint32_t max_in_flight,
                         struct stg_err *err);

/* The process of a member ended. Returns whether that changed something. */
bool stg_gathering_lose(struct stg_gathering *gathering, int member);

/* The time is over: the members that did not come, or did not attach, are late. */
void stg_gathering_expire(struct stg_gathering *gathering);

uint32_t stg_gathering_count(const struct stg_gathering *gathering,
                             enum stg_gathered_state state);

/* Appends the names of the members in that state. */
void stg_gathering_name(const struct stg_gathering *gathering,
                        enum stg_gathered_state state, struct stg_err *err);

/* Returns what happened, as an error begins: "stagerd was started again". */
const char *stg_gathering_cause(const struct stg_gathering *gathering);

/* Begins the run if no member is awaited any more: sets `start`, or `failure` (ABORTED
 * ...). Returns 1: members are awaited; else the code of the failure, or 0. */
int stg_gathering_begin(struct stg_gathering *gathering);

/* Ends a gathering that failed or was replaced. */
void stg_gathering_fail(struct stg_gathering *gathering, const struct stg_err *err);
void stg_gathering_replace(struct stg_gathering *gathering);

/* Returns 0 if a member that comes now may attach to the run that began, which it may at
 * any time if it lost nothing meanwhile; else the reason, ABORTED. state: as in
 * stg_gathering_arrive. */
int stg_gathering_admit(const struct stg_gathering *gathering, int member,
                        const struct stg_state *state, struct stg_err *err);

/* Returns the largest max_in_flight of the members that came. */
uint32_t stg_gathering_max_in_flight(const struct stg_gathering *gathering);

#endif
