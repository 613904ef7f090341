/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"

const char *const scene_deliveries[] = {"split", "broadcast", "round_robin"};

struct scene scene;

void scene_join(struct actor *actor, const char *name)
{
    struct actor_options options = {.client_id = scene.named ? name : NULL};
    actor_start(actor, &scene.fixture, &options);
}

void scene_set(int delivery, bool named, const char *graph, const char *staged)
{
    char all[256];
    memset(&scene, 0, sizeof(scene));
    scene.delivery = delivery;
    scene.named = named;
    fixture_start(&scene.fixture, "");
    snprintf(all, sizeof(all), "delivery: %s, num_clients: 2, capacity: 2%s%s",
             scene_deliveries[delivery], staged[0] != '\0' ? ", " : "", staged);
    apply_rows(&scene.fixture, N_ITEMS, graph, all);
}

void scene_set_and_join(int delivery, bool named, const char *graph, const char *staged)
{
    scene_set(delivery, named, graph, staged);
    scene_join(&scene.alice, "alice");
    scene_join(&scene.bob, "bob");
}

void scene_finish(void)
{
    check_accounts(&scene.fixture);
    fixture_finish(&scene.fixture);
}

void scene_drain(struct actor *actor, struct actor_log *log)
{
    actor_drain_all(actor, 1, log);
}

void scene_drain_both(void)
{
    struct actor actors[2] = {scene.alice, scene.bob};
    struct actor_log *logs = calloc(2, sizeof(*logs));
    CHECK(logs != NULL);
    logs[0] = scene.of_alice;
    logs[1] = scene.of_bob;
    actor_drain_all(actors, 2, logs);
    scene.alice = actors[0];
    scene.bob = actors[1];
    scene.of_alice = logs[0];
    scene.of_bob = logs[1];
    free(logs);
}

/* Checks the values of two logs together: each occurs at least once, and only redelivered
 * ones twice. */
static void check_together(int first, int n)
{
    int seen[N_ITEMS] = {0};
    const struct actor_log *logs[] = {&scene.of_alice, &scene.of_bob};
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < logs[k]->n; i++) {
            const struct actor_step *step = &logs[k]->steps[i];
            CHECK_INT(step->rc, 0);
            CHECK(step->value >= first && step->value < first + n);
            seen[step->value] += !step->redelivered;
        }
    }
    for (int i = first; i < first + n; i++) {
        if (seen[i] > 1)
            FAIL("item %d came %d times", i, seen[i]);
    }
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < logs[k]->n; i++)
            seen[logs[k]->steps[i].value]++;
    }
    for (int i = first; i < first + n; i++) {
        if (seen[i] == 0)
            FAIL("item %d did not come", i);
    }
}

void scene_check_log(const struct actor_log *log, int first, int step, int n, int code)
{
    CHECK_INT(log->end.rc, code);
    CHECK_INT(log->n, n);
    for (int i = 0; i < n; i++) {
        CHECK_INT(log->steps[i].rc, 0);
        CHECK_INT(log->steps[i].value, first + i * step);
    }
}

/* Checks that both trainers reach the end, undisturbed, from that item on. */
void scene_check_both_to_the_end(int first)
{
    scene_drain_both();
    CHECK_INT(scene.of_alice.end.rc, -STAGER_OUT_OF_RANGE);
    CHECK_INT(scene.of_bob.end.rc, -STAGER_OUT_OF_RANGE);
    int left = N_ITEMS - first;
    if (scene.delivery == SPLIT) {
        CHECK_INT(scene.of_alice.n + scene.of_bob.n, left);
        check_together(first, left);
    } else if (scene.delivery == BROADCAST) {
        scene_check_log(&scene.of_alice, first, 1, left, -STAGER_OUT_OF_RANGE);
        scene_check_log(&scene.of_bob, first, 1, left, -STAGER_OUT_OF_RANGE);
    } else {
        scene_check_log(&scene.of_alice, first, 2, left / 2, -STAGER_OUT_OF_RANGE);
        scene_check_log(&scene.of_bob, first + 1, 2, left / 2, -STAGER_OUT_OF_RANGE);
    }
    actor_leave(&scene.alice);
    actor_leave(&scene.bob);
}

/* Checks that alice continues without bob, which received the first items. */
void scene_check_alice_goes_on(const char *named)
{
    scene_drain(&scene.alice, &scene.of_alice);
    if (scene.delivery == ROUND_ROBIN) {
        CHECK_INT(scene.of_alice.end.rc, -STAGER_ABORTED);
        CHECK_CONTAINS(scene.of_alice.end.text, named);
    } else {
        CHECK_INT(scene.of_alice.end.rc, -STAGER_OUT_OF_RANGE);
        CHECK_INT(scene.of_alice.n, N_ITEMS);
        check_together(0, N_ITEMS);
    }
    actor_leave(&scene.alice);
}
