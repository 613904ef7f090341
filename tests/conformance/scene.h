/* SPDX-License-Identifier: Apache-2.0
 *
 * The scene of the table of events: two trainers, alice and bob, twelve items, one
 * delivery.
 */
#ifndef STG_TESTS_CONFORMANCE_SCENE_H
#define STG_TESTS_CONFORMANCE_SCENE_H

#include "tests/conformance/pipelines.h"

#define N_ITEMS 12

enum { SPLIT, BROADCAST, ROUND_ROBIN, N_DELIVERIES };
#define EACH_DELIVERY(d) for (int d = 0; d < N_DELIVERIES; d++)

extern const char *const scene_deliveries[N_DELIVERIES];

extern struct scene {
    struct fixture fixture;
    int delivery;
    bool named; /* alice and bob set a client_id */
    struct actor alice, bob;
    struct actor_log of_alice, of_bob;
} scene;

/* Starts a daemon with the pipeline "rows". scene_join attaches alice and bob. */
void scene_set(int delivery, bool named, const char *graph, const char *staged);
void scene_join(struct actor *actor, const char *name);
void scene_set_and_join(int delivery, bool named, const char *graph, const char *staged);

/* Checks that every item is accounted for, and stops the daemon. */
void scene_finish(void);

/* One trainer, or both, take until the stream ends. The results are logged. */
void scene_drain(struct actor *actor, struct actor_log *log);
void scene_drain_both(void);

/* Checks for a log of n batches (first, first + step …), then that code. */
void scene_check_log(const struct actor_log *log, int first, int step, int n, int code);

/* Checks that both trainers reach the end, undisturbed, from that item on. Both then
 * leave. */
void scene_check_both_to_the_end(int first);

/* Checks that alice continues without bob. Alice gets all items; under round_robin, alice
 * gets ABORTED with a text that contains `named`. Alice then leaves. */
void scene_check_alice_goes_on(const char *named);

#endif
