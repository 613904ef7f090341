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
    bool named; /* alice and bob say who they are */
    struct actor alice, bob;
    struct actor_log of_alice, of_bob;
} scene;

/* A daemon with the pipeline "rows"; alice and bob come by scene_join. */
void scene_set(int delivery, bool named, const char *graph, const char *staged);
void scene_join(struct actor *actor, const char *name);
void scene_set_and_join(int delivery, bool named, const char *graph, const char *staged);

/* Checks that every item is accounted for, and ends the daemon. */
void scene_finish(void);

/* One or both take until nothing follows; logged. */
void scene_drain(struct actor *actor, struct actor_log *log);
void scene_drain_both(void);

/* A log of n batches: first, first + step …, then that code. */
void scene_check_log(const struct actor_log *log, int first, int step, int n, int code);

/* Both to the end, as if nothing had happened, from that item on; they leave. */
void scene_check_both_to_the_end(int first);

/* Alice alone, after bob is out of it: she gets all items, or, under round_robin, ABORTED
 * with a text that contains `named`; she leaves. */
void scene_check_alice_goes_on(const char *named);

#endif
