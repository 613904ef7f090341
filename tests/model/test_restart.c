/* SPDX-License-Identifier: Apache-2.0
 *
 * Restarts of stagerd. Its own code, from the request to the record, and the stream of
 * libstager go through random orders of commits, crashes of stagerd, ends of trainers and
 * reconnects.
 */
#include "tests/check.h"
#include "tests/model/restart.h"

static void run(struct restart_cast cast)
{
    cast.num_clients = cast.num_clients != 0 ? cast.num_clients : 2;
    cast.n_trainers = (int)cast.num_clients;
    cast.n_passes = cast.n_passes != 0 ? cast.n_passes : 1;
    cast.max_in_flight = cast.max_in_flight != 0 ? cast.max_in_flight : 2;
    restart_run(&cast);
}

static void a_split_goes_on_at_the_union_of_what_its_trainers_have(void)
{
    run((struct restart_cast){
        .name = "split", .staged = "capacity: 1", .n_items = 6, .n_crashes = 2});
    run((struct restart_cast){.name = "split, 2 runners",
                              .staged = "capacity: 2, num_threads: 2",
                              .n_items = 6,
                              .n_crashes = 2});
    run((struct restart_cast){.name = "split, 2 passes",
                              .staged = "capacity: 1",
                              .n_items = 3,
                              .n_passes = 2,
                              .n_crashes = 2});
}

static void a_trainer_of_a_split_ends_before_with_or_after_stagerd(void)
{
    run((struct restart_cast){.name = "split, a trainer ends",
                              .staged = "capacity: 1",
                              .n_items = 6,
                              .n_crashes = 2,
                              .n_kills = 1});
    run((struct restart_cast){.name = "split, a trainer ends, another opens",
                              .staged = "capacity: 1",
                              .n_items = 6,
                              .n_crashes = 2,
                              .n_kills = 1,
                              .n_newcomers = 1});
}

static void a_trainer_of_a_split_comes_late(void)
{
    run((struct restart_cast){.name = "split, time runs out",
                              .staged = "capacity: 1",
                              .n_items = 6,
                              .n_crashes = 2,
                              .n_times = 1});
}

static void each_trainer_of_a_broadcast_goes_on_at_its_own_place(void)
{
    run((struct restart_cast){.name = "broadcast",
                              .staged = "capacity: 2, delivery: broadcast",
                              .n_items = 4,
                              .n_crashes = 2});
    run((struct restart_cast){.name = "broadcast, 2 passes",
                              .staged = "capacity: 1, delivery: broadcast",
                              .n_items = 2,
                              .n_passes = 2,
                              .n_crashes = 2});
    run((struct restart_cast){.name = "broadcast, a trainer ends",
                              .staged = "capacity: 1, delivery: broadcast",
                              .n_items = 4,
                              .n_crashes = 2,
                              .n_kills = 1});
    run((struct restart_cast){.name = "broadcast, time runs out",
                              .staged = "capacity: 1, delivery: broadcast",
                              .n_items = 4,
                              .n_crashes = 2,
                              .n_times = 1});
}

static void ranks_go_on_at_the_same_round_or_end_together(void)
{
    run((struct restart_cast){.name = "round_robin",
                              .staged = "capacity: 1, delivery: round_robin",
                              .n_items = 6,
                              .n_crashes = 2});
    run((struct restart_cast){.name = "round_robin, 2 passes",
                              .staged = "capacity: 1, delivery: round_robin",
                              .n_items = 4,
                              .n_passes = 2,
                              .n_crashes = 2});
    run((struct restart_cast){.name = "round_robin, a rank ends",
                              .staged = "capacity: 1, delivery: round_robin",
                              .n_items = 6,
                              .n_crashes = 2,
                              .n_kills = 1});
}

static void three_trainers_go_on(void)
{
    run((struct restart_cast){.name = "split of 3, a trainer ends",
                              .num_clients = 3,
                              .staged = "capacity: 1",
                              .n_items = 6,
                              .n_crashes = 2,
                              .n_kills = 1});
    run((struct restart_cast){.name = "broadcast to 3, a trainer ends",
                              .num_clients = 3,
                              .staged = "capacity: 1, delivery: broadcast",
                              .n_items = 3,
                              .n_crashes = 2,
                              .n_kills = 1});
    run((struct restart_cast){.name = "round_robin to 3, a rank ends",
                              .num_clients = 3,
                              .staged = "capacity: 1, delivery: round_robin",
                              .n_items = 6,
                              .n_crashes = 2,
                              .n_kills = 1});
}

#define SECONDS 60
static const struct stg_test tests[] = {
    TEST_SLOW(a_split_goes_on_at_the_union_of_what_its_trainers_have, SECONDS),
    TEST_SLOW(a_trainer_of_a_split_ends_before_with_or_after_stagerd, SECONDS),
    TEST_SLOW(a_trainer_of_a_split_comes_late, SECONDS),
    TEST_SLOW(each_trainer_of_a_broadcast_goes_on_at_its_own_place, SECONDS),
    TEST_SLOW(ranks_go_on_at_the_same_round_or_end_together, SECONDS),
    TEST_SLOW(three_trainers_go_on, SECONDS),
};

TEST_MAIN(tests)
