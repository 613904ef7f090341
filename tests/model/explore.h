/* SPDX-License-Identifier: Apache-2.0
 *
 * An explorer of every interleaving. Threads are fibers, all memory they use lies in one
 * region, and the bytes of that region are a state of the program. From each state the
 * explorer runs every runnable fiber in turn, until it has visited every reachable state.
 * The code under test is the daemon's code, linked with its system calls wrapped
 * (wrap.c), not a model of it.
 *
 * A fiber gives up control only in fiber_block and fiber_choose: before it takes a lock,
 * while it sleeps, and when it touches shared memory. No other fiber runs in between,
 * which the program's locks guarantee anyway.
 */
#ifndef STG_TESTS_MODEL_EXPLORE_H
#define STG_TESTS_MODEL_EXPLORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_FIBERS 16

/* ---- memory of the region ---- */

/* malloc and free of the program under test. The memory is zeroed, and belongs to the
 * process of the fiber that runs. */
void *region_alloc(size_t bytes, size_t align);
void *region_alloc_for(int process, size_t bytes, size_t align);
void region_free(void *pointer);
size_t region_size(const void *pointer); /* Returns the size of an allocation. */
bool region_owns(const void *pointer);
void region_free_process(int process); /* Frees what belongs to it. */

/* ---- fibers ---- */

int fiber_start(const char *name, void *(*body)(void *arg), void *arg);
int fiber_self(void); /* -1: none, set_up runs */
bool fiber_ended(int fiber);

/* Blocks until ready(arg) is true; the explorer evaluates it. may_time_out: may also
 * return false at any earlier time, if the scenario lets time pass. */
bool fiber_block(bool (*ready)(void *arg), void *arg, bool may_time_out,
                 const char *what);

/* Returns any number below n for which enabled(arg, i) is true. */
int fiber_choose(int n, bool (*enabled)(void *arg, int i), void *arg, const char *what);

/* The same, of a fiber that reads nothing of its stack after the choice: its stack is
 * then no part of the state. */
int fiber_choose_afresh(int n, bool (*enabled)(void *arg, int i), void *arg,
                        const char *what);

/* Never runs the fiber again, whatever its state: its process was killed. */
void fiber_kill(int fiber);

/* ---- processes: a fiber belongs to that of the fiber that started it ---- */

void fiber_belong(int fiber, int process);

/* What set_up does from here on, the process does. */
void process_act(int process);

/* Ends all fibers of the process, and frees its memory. Later fibers take their stacks.
 */
void process_kill(int process);

/* A later fiber may take the stack of this one, which has ended. */
void fiber_forget(int fiber);

/* A walk seldom takes a step of this fiber while there are others. */
void fiber_set_rare(int fiber);

/* ---- exploration ---- */

struct scenario {
    const char *name;
    void (*set_up)(void);
    /* Called in a state where no further step exists (or only steps that change nothing).
     * Fails through explore_fail unless the program may rest there. */
    void (*at_rest)(void);
    /* Called before and after the state is hashed. Evens out differences that no later
     * step depends on, such as counters for reports. NULL: none. */
    void (*canonical)(bool before);
    /* Returns whether one more wait with a deadline may time out. NULL: never. */
    bool (*time_left)(void);
    /* How often a fiber that could continue may be interrupted; 0: without a bound, every
     * interleaving. Switches at a wait are free. */
    uint32_t max_preemptions;
    /* Returns what the fiber does with that answer. NULL: traces have numbers. */
    const char *(*name_answer)(const char *what, int answer);
    uint64_t max_states; /* more states are a failure: the scenario is too large */
};

struct explored {
    uint64_t states, steps, rests;
    uint32_t depth;
};

/* Visits every state. On a failure, fails the test with the steps that lead to it. */
void explore(const struct scenario *scenario, struct explored *ret);

/* Goes n times from set_up to a rest, each time by steps drawn at random: for scenarios
 * with too many states. seed: of the first walk; not 0. */
void explore_walks(const struct scenario *scenario, uint64_t n, uint64_t seed,
                   struct explored *ret);

/* Returns whether the program under test runs (set_up, or a fiber). Its memory is then
 * the region's.
 */
bool explore_inside(void);

/* Called from at_rest or a fiber. */
void explore_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif
