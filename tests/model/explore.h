/* SPDX-License-Identifier: Apache-2.0
 *
 * An explorer of every interleaving: threads are fibers, all memory that they use lies in
 * one region, and a state of the program is the bytes of that region. From each state
 * each fiber that can go on is let go on in turn, until every state that can be reached
 * was visited once. The code under test is the daemon's own (linked with its system calls
 * wrapped: wrap.c), not a copy of its ideas.
 *
 * A fiber gives up control only in fiber_block and fiber_choose: before it takes a lock,
 * while it sleeps, and where shared memory is touched. Between two of these nothing else
 * runs, which is what the locks of the program promise anyway.
 */
#ifndef STG_TESTS_MODEL_EXPLORE_H
#define STG_TESTS_MODEL_EXPLORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_FIBERS 12

/* ---- memory of the region ---- */

/* malloc and free of the program under test; zeroed. */
void *region_alloc(size_t bytes, size_t align);
void region_free(void *pointer);
size_t region_size(const void *pointer); /* of an allocation */
bool region_owns(const void *pointer);

/* ---- fibers ---- */

int fiber_start(const char *name, void *(*body)(void *arg), void *arg);
int fiber_self(void); /* -1: none, the set-up runs */
bool fiber_ended(int fiber);

/* Waits until ready(arg); looked at by the explorer. may_time_out: it may also come back
 * with false at any moment before, if the scenario lets time pass. */
bool fiber_block(bool (*ready)(void *arg), void *arg, bool may_time_out,
                 const char *what);

/* Comes back with any number below n for which enabled(arg, i) is true. */
int fiber_choose(int n, bool (*enabled)(void *arg, int i), void *arg, const char *what);

/* It is never run again, whatever it was doing: its process was killed. */
void fiber_kill(int fiber);

/* ---- exploring ---- */

struct scenario {
    const char *name;
    void (*set_up)(void);
    /* After every step: what must always hold. Reports by explore_fail. */
    void (*check)(void);
    /* In a state where nothing can happen any more (or only what changes nothing): is
     * that where the program may come to rest? */
    void (*at_rest)(void);
    /* Before and after the state is looked at: makes equal what makes no difference
     * (counters that only ever grow). NULL: nothing. */
    void (*canonical)(bool before);
    /* May one more wait with a deadline run out? NULL: never. */
    bool (*time_left)(void);
    /* How often a fiber may be interrupted that could have gone on; 0: without bound,
     * every interleaving. Switches where a fiber waits are free. */
    uint32_t max_preemptions;
    uint64_t max_states; /* more is a failure: the scenario is too large */
};

struct explored {
    uint64_t states, steps, rests;
    uint32_t depth;
};

/* Visits every state. Fails the test with the steps that lead to what is wrong. */
void explore(const struct scenario *scenario, struct explored *ret);

/* Does the program under test run (set_up, or a fiber)? Then its memory is the region's.
 */
bool explore_inside(void);

/* From check, at_rest or a fiber. */
void explore_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif
