/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a batch is asked of a worker, and of which one: pure functions of what was
 * measured and of the time. No clock, lock or socket; any thread.
 */
#ifndef STG_DAEMON_REMOTE_STAGE_DECIDE_H
#define STG_DAEMON_REMOTE_STAGE_DECIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Latencies that are kept of the last answers. */
#define STG_N_LATENCIES 64u

/* ---- mode: auto ---- */

/* A stage at one moment. */
struct stg_auto_seen {
    uint64_t n_ready, capacity;  /* items of the buffer: published, and at most */
    bool is_pulling;             /* a runner reads the next element */
    uint32_t n_busy, n_active;   /* local runners: with an item in hand; all that work */
    uint32_t n_asking, n_remote; /* runners that ask workers: now; all */
};

/* Returns whether one batch more shortens the steps of trainers: all local runners work,
 * and less than half of the buffer is ready. The less is ready, the more requests at
 * once. */
bool stg_auto_asks(const struct stg_auto_seen *seen);

/* The runners of a stage. Each keeps an item until its turn, so that while an answer is
 * under way the others make one each, and wait. */
struct stg_auto_runners {
    uint32_t n_local, n_remote; /* 0 and 0: an answer may take any time */
    uint64_t gap_ns; /* mean between items of all local runners; 0: not known */
};

/* ---- a worker ---- */

/* What an attempt came to. */
enum stg_outcome {
    STG_OUTCOME_GOOD,
    STG_OUTCOME_BUSY,    /* it has too many requests: fewer at once */
    STG_OUTCOME_AWAY,    /* not reached, broken off, too slow, overloaded: again later */
    STG_OUTCOME_REFUSED, /* it does not serve this pipeline or this token: again later */
    STG_OUTCOME_ELEMENT, /* the element fails: the worker is fine */
    STG_OUTCOME_GARBAGE  /* never again */
};

/* What is known of a worker. */
struct stg_worker_load {
    bool is_listed;      /* the last look found it */
    bool is_out;         /* it has sent garbage */
    int zone;            /* 1: that of the pipeline; -1: another; 0: not known */
    uint64_t until_ns;   /* it is not asked before */
    unsigned n_failed;   /* in a row */
    unsigned n_asked;    /* requests in progress */
    unsigned most_asked; /* so many at once; 0: not known */
    unsigned n_good;     /* answers since that changed */
    unsigned fits;       /* requests at once that its CPUs are busy with; 0: not known */
    uint64_t item_ns;    /* mean latency, if no request waits for a CPU; 0: not known */
    uint64_t asked_ns;   /* when it was asked last */
};

bool stg_load_may_ask(const struct stg_worker_load *load, uint64_t now_ns);

/* Returns the worker to ask, of those that are not in `tried` (a bit each), or -1: none
 * has room. Those of the zone come first, then the one that answers first. */
int stg_load_choose(const struct stg_worker_load *loads, int n, uint64_t tried,
                    uint64_t now_ns);

/* Returns whether a worker that is not in `tried` can be asked once it has answered
 * others. */
bool stg_load_is_full(const struct stg_worker_load *loads, int n, uint64_t tried,
                      uint64_t now_ns);

/* Returns whether workers have room for one request more than n_asking, with answers
 * that come before all runners wait for them. A worker that takes longer even for its
 * only request is tried every two seconds, or after eight times as long as it takes. */
bool stg_load_has_room(const struct stg_worker_load *loads, int n, uint32_t n_asking,
                       const struct stg_auto_runners *runners, uint64_t now_ns);

/* Counts the request to the worker that was chosen. */
void stg_load_begin(struct stg_worker_load *load, uint64_t now_ns);

/* Takes over how many CPUs the worker says it has. */
void stg_load_note_cpus(struct stg_worker_load *load, unsigned long cpus);

/* Takes over how long a good answer took, before stg_load_note. */
void stg_load_note_latency(struct stg_worker_load *load, uint64_t ns);

/* Ends a request. retry_after_ns: what the answer asks for. Returns the outcome, which
 * for a worker that refuses its only request is AWAY, and not BUSY. */
enum stg_outcome stg_load_note(struct stg_worker_load *load, enum stg_outcome outcome,
                               uint64_t retry_after_ns, uint64_t now_ns);

static inline bool stg_outcome_is_failure(enum stg_outcome outcome)
{
    return outcome > STG_OUTCOME_BUSY && outcome != STG_OUTCOME_ELEMENT;
}

/* ---- bytes and time ---- */

/* Returns when so many bytes a second are kept again after an answer of `bytes`, where
 * they are at paid_ns before it; rate 0: no limit. */
uint64_t stg_rate_pay(uint64_t rate, uint64_t paid_ns, uint64_t bytes, uint64_t now_ns);

/* Finds when to ask a second worker, and when to give up an attempt, of n_all latencies
 * so far, of which the last STG_N_LATENCIES are in the ring. */
void stg_patience(const uint64_t *ring, uint64_t n_all, uint64_t *ret_hedge_ns,
                  uint64_t *ret_limit_ns);

#endif
