/* SPDX-License-Identifier: Apache-2.0
 *
 * The status of each client.
 */
#include <string.h>

#include "tests/check.h"
#include "tests/conformance/scene.h"

/* ---- the line of one client ---- */

struct wish {
    const char *client_id, *state; /* state NULL: any */
    uint64_t assigned, wait_ns;    /* lower bounds */
    struct fixture_status seen;
    int at; /* the client's index in `seen` */
};

static bool has_come_true(const struct fixture_status *status, void *arg)
{
    struct wish *wish = arg;
    for (uint32_t i = 0; i < status->n_clients; i++) {
        if (strcmp(status->clients[i].client_id, wish->client_id) != 0 ||
            (wish->state != NULL && strcmp(status->clients[i].state, wish->state) != 0) ||
            status->clients[i].assigned < wish->assigned ||
            status->clients[i].wait_ns < wish->wait_ns)
            continue;
        wish->seen = *status;
        wish->at = (int)i;
        return true;
    }
    return false;
}

static void wait_for(struct wish *wish)
{
    fixture_wait(&scene.fixture, "rows", 20000, has_come_true, wish);
}

static uint64_t taken_of(const struct wish *wish)
{
    return wish->seen.clients[wish->at].taken;
}

/* ---- taken ---- */

/* The daemon gives the first items to alice only after bob has attached. */
static void what_came_after_a_deadline_is_not_taken(void)
{
    static struct wish wish = {.client_id = "alice", .assigned = 1};
    scene_set(BROADCAST, true, "", "");
    scene_join(&scene.alice, "alice");
    CHECK_INT(actor_next(&scene.alice, 1).rc, -STAGER_DEADLINE_EXCEEDED);
    scene_join(&scene.bob, "bob");
    wait_for(&wish);
    CHECK_INT(taken_of(&wish), 0);
    CHECK_INT(actor_take(&scene.alice), 0);
    wait_for(&wish);
    CHECK_INT(taken_of(&wish), 1);
    CHECK_INT(actor_take(&scene.bob), 0);
    scene_check_both_to_the_end(1);
    scene_finish();
}

static void a_client_killed_while_it_sleeps_has_taken_nothing_more(void)
{
    static struct wish asleep = {.client_id = "alice", .wait_ns = 1},
                       given = {.client_id = "alice", .assigned = 1},
                       dead = {.client_id = "alice", .state = "away"};
    scene_set(BROADCAST, true, "", "");
    scene_join(&scene.alice, "alice");
    actor_begin_next(&scene.alice, -1);
    wait_for(&asleep);
    actor_stop(&scene.alice);
    scene_join(&scene.bob, "bob");
    wait_for(&given);
    CHECK_INT(taken_of(&given), 0);
    actor_kill(&scene.alice);
    wait_for(&dead);
    CHECK_INT(taken_of(&dead), 0);
    scene_join(&scene.alice, "alice");
    CHECK_INT(actor_take(&scene.alice), 0);
    wait_for(&given);
    CHECK_INT(taken_of(&given), 1);
    CHECK_INT(actor_take(&scene.bob), 0);
    scene_check_both_to_the_end(1);
    scene_finish();
}

/* ---- how a client left ---- */

static void the_status_of_away_clients_distinguishes_closed_from_killed(void)
{
    static struct wish wish = {.client_id = "alice"};
    EACH_DELIVERY(d)
    {
        scene_set_and_join(d, true, "", "");
        actor_keep(&scene.alice);
        wish.state = "away";
        actor_kill(&scene.alice);
        wait_for(&wish);
        CHECK_STR(wish.seen.clients[wish.at].last_error, "died");
        scene_join(&scene.alice, "alice");
        actor_keep(&scene.alice);
        actor_leave(&scene.alice);
        wait_for(&wish);
        CHECK_STR(wish.seen.clients[wish.at].last_error, "left");
        actor_leave(&scene.bob);
        scene_finish();
    }
}

static void the_status_of_gone_clients_distinguishes_closed_from_killed(void)
{
    static struct wish left = {.client_id = "alice", .state = "gone"},
                       died = {.client_id = "bob", .state = "gone"};
    scene_set_and_join(SPLIT, true, "", "reconnect_grace_millis: 0");
    actor_take(&scene.alice);
    actor_leave(&scene.alice);
    wait_for(&left);
    CHECK_STR(left.seen.clients[left.at].last_error, "left");
    actor_kill(&scene.bob);
    wait_for(&died);
    CHECK_STR(died.seen.clients[died.at].last_error, "died");
    scene_finish();
}

static const struct stg_test tests[] = {
    TEST(what_came_after_a_deadline_is_not_taken),
    TEST(a_client_killed_while_it_sleeps_has_taken_nothing_more),
    TEST(the_status_of_away_clients_distinguishes_closed_from_killed),
    TEST(the_status_of_gone_clients_distinguishes_closed_from_killed),
};

TEST_MAIN(tests)
