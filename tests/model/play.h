/* SPDX-License-Identifier: Apache-2.0
 *
 * A play: the daemon's stage with a cast of runners, trainers and the loop, and the
 * invariants of each of its states.
 */
#ifndef STG_TESTS_MODEL_PLAY_H
#define STG_TESTS_MODEL_PLAY_H

#include <stdbool.h>
#include <stdint.h>

/* Events besides runners that make items and trainers that take them. */
struct cast {
    const char *name;
    const char *staged;
    int n_items, n_trainers, n_passes;
    int n_kills;       /* of any trainer, at any moment */
    bool comes_back;   /* trainers have names; a killed one opens again */
    bool may_stop;     /* the pipeline is replaced (draining) at any moment */
    bool may_abort;    /* the stage is stopped without draining at any moment */
    uint32_t timeouts; /* waits for room may time out */
    bool tiny;         /* items are known to take no time */
    bool asks;         /* of the runners, one asks a stage worker, which has each item */
    int n_tunes;       /* of one runner or two, at any moment */
    bool fine;
    uint32_t max_preemptions; /* 0: every interleaving */
    uint64_t max_states;
};

/* Explores it. On a failure, fails the test with the steps that lead to it. */
void play_run(const struct cast *cast);

#endif
