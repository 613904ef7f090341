/* SPDX-License-Identifier: Apache-2.0
 *
 * A play of restarts: stagerd is killed between any two commits of its stage, trainers
 * end at any moment, and the others reconnect in any order. Each item is delivered as
 * docs/delivery.md says.
 */
#ifndef STG_TESTS_MODEL_RESTART_H
#define STG_TESTS_MODEL_RESTART_H

#include <stdbool.h>
#include <stdint.h>

struct restart_cast {
    const char *name;
    const char *staged;
    uint32_t num_clients; /* of the pipeline */
    int n_trainers;       /* that are there at the start */
    int n_items, n_passes;
    int n_crashes;   /* of stagerd */
    int n_kills;     /* of trainers */
    int n_times;     /* that clients are awaited no longer */
    int n_newcomers; /* clients that open meanwhile */
    uint32_t max_in_flight;
};

/* Explores it. On a failure, fails the test with the steps that lead to it. */
void restart_run(const struct restart_cast *cast);

#endif
