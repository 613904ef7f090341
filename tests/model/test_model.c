/* SPDX-License-Identifier: Apache-2.0
 *
 * The complete state machine of the buffer. The daemon's stage, runners and delivery and
 * the client's stager_next run in every interleaving of k runners, n trainers and the
 * loop, with the kills, stops, restarts and timeouts of a scenario. Every state is
 * checked against the invariants. The program may rest only in a final state: a lost
 * wake-up would leave a trainer asleep, a masked end would leave one without an end.
 */
#include "tests/check.h"
#include "tests/model/play.h"

#define ASKS                                                                             \
    "capacity: 1, num_threads: 1, "                                                      \
    "remote: {workers: [\"http://worker:1\"], mode: on, max_requests: 1}"

/* ---- every interleaving ---- */

static void a_doorbell_is_never_lost_between_two_looks_at_shared_memory(void)
{
    play_run(&(struct cast){.name = "1 runner, 1 trainer, every look at shared memory",
                            .staged = "capacity: 1",
                            .n_items = 1,
                            .n_trainers = 1,
                            .n_passes = 1,
                            .fine = true});
}

static void one_runner_and_one_trainer_end_pass_after_pass(void)
{
    play_run(&(struct cast){.name = "1 runner, 1 trainer, 2 passes",
                            .staged = "capacity: 1",
                            .n_items = 1,
                            .n_trainers = 1,
                            .n_passes = 2});
}

static void two_runners_wake_each_other_and_end_once(void)
{
    play_run(&(struct cast){.name = "2 runners, 1 trainer",
                            .staged = "capacity: 1, num_threads: 2",
                            .n_items = 1,
                            .n_trainers = 1,
                            .n_passes = 1});
}

static void two_trainers_share_and_both_see_the_end(void)
{
    play_run(&(struct cast){.name = "1 runner, 2 trainers",
                            .staged = "capacity: 1",
                            .n_items = 1,
                            .n_trainers = 2,
                            .n_passes = 1});
}

static void a_trainer_killed_at_any_moment_holds_up_nothing(void)
{
    play_run(&(struct cast){.name = "1 runner, 1 trainer, 1 kill",
                            .staged = "capacity: 1",
                            .n_items = 2,
                            .n_trainers = 1,
                            .n_passes = 1,
                            .n_kills = 1});
}

static void a_stop_at_any_moment_reaches_everybody(void)
{
    play_run(&(struct cast){.name = "1 runner, 1 trainer, replaced and stopped",
                            .staged = "capacity: 1",
                            .n_items = 1,
                            .n_trainers = 1,
                            .n_passes = 1,
                            .may_stop = true,
                            .may_abort = true});
}

static void a_wait_for_room_may_run_out_at_any_moment(void)
{
    play_run(&(struct cast){.name = "1 runner, 1 trainer, timeouts",
                            .staged = "capacity: 1, timeout_millis: 10, on_timeout: drop",
                            .n_items = 2,
                            .n_trainers = 1,
                            .n_passes = 1,
                            .timeouts = 1});
}

/* ---- larger ones, with a bound on interruptions ---- */

static void two_runners_and_two_trainers_lose_nothing(void)
{
    play_run(&(struct cast){.name = "2 runners, 2 trainers, 1 kill",
                            .staged = "capacity: 1, num_threads: 2",
                            .n_items = 1,
                            .n_trainers = 2,
                            .n_passes = 1,
                            .n_kills = 1,
                            .max_preemptions = 1});
}

static void of_two_runners_of_tiny_items_one_always_continues(void)
{
    play_run(&(struct cast){.name = "2 runners of tiny items, 1 trainer, stopped",
                            .staged = "capacity: 1, num_threads: 2",
                            .n_items = 3,
                            .n_trainers = 1,
                            .n_passes = 1,
                            .may_abort = true,
                            .tiny = true,
                            .max_preemptions = 1});
}

static void a_runner_that_rests_or_works_again_holds_up_nothing(void)
{
    play_run(&(struct cast){.name = "2 runners, tuned, 1 trainer",
                            .staged = "capacity: 1, num_threads: 2",
                            .n_items = 2,
                            .n_trainers = 1,
                            .n_passes = 1,
                            .n_tunes = 1,
                            .max_preemptions = 2});
    play_run(&(struct cast){.name = "2 runners of tiny items, tuned, 1 trainer",
                            .staged = "capacity: 1, num_threads: 2",
                            .n_items = 2,
                            .n_trainers = 1,
                            .n_passes = 1,
                            .n_tunes = 1,
                            .tiny = true,
                            .max_preemptions = 2});
}

static void a_runner_that_asks_a_worker_and_one_of_tiny_items_wake_each_other(void)
{
    play_run(&(struct cast){.name = "a runner of tiny items, one that asks, 1 trainer",
                            .staged = ASKS,
                            .n_items = 1,
                            .n_trainers = 1,
                            .n_passes = 1,
                            .tiny = true,
                            .asks = true,
                            .max_preemptions = 1});
}

static void broadcast_to_two_continues_when_one_is_killed(void)
{
    play_run(&(struct cast){.name = "2 runners, broadcast to 2 trainers, 1 kill",
                            .staged = "capacity: 1, num_threads: 2, delivery: broadcast",
                            .n_items = 1,
                            .n_trainers = 2,
                            .n_passes = 1,
                            .n_kills = 1,
                            .max_preemptions = 1});
}

static void round_robin_deals_whole_rounds_or_reports_the_reason(void)
{
    play_run(&(struct cast){.name = "1 runner, round_robin to 2 trainers, 1 kill",
                            .staged = "capacity: 1, delivery: round_robin",
                            .n_items = 2,
                            .n_trainers = 2,
                            .n_passes = 1,
                            .n_kills = 1,
                            .max_preemptions = 1});
}

/* ---- named trainers that are killed at any moment and reconnect ---- */

static void a_name_that_is_killed_goes_on_where_it_was(const char *name,
                                                       const char *staged, int n_trainers,
                                                       int n_kills)
{
    play_run(&(struct cast){.name = name,
                            .staged = staged,
                            .n_items = n_trainers,
                            .n_trainers = n_trainers,
                            .n_passes = 1,
                            .n_kills = n_kills,
                            .comes_back = true,
                            .max_preemptions = 1});
}

static void a_name_killed_under_split_gets_the_rest(void)
{
    a_name_that_is_killed_goes_on_where_it_was("1 runner, 1 name, 2 kills", "capacity: 1",
                                               1, 2);
    a_name_that_is_killed_goes_on_where_it_was("1 runner, 2 names, 1 kill", "capacity: 1",
                                               2, 1);
}

static void a_name_killed_under_broadcast_misses_nothing(void)
{
    a_name_that_is_killed_goes_on_where_it_was("1 runner, broadcast to 1 name, 2 kills",
                                               "capacity: 1, delivery: broadcast", 1, 2);
    a_name_that_is_killed_goes_on_where_it_was("1 runner, broadcast to 2 names, 1 kill",
                                               "capacity: 1, delivery: broadcast", 2, 1);
}

static void a_name_killed_under_round_robin_keeps_its_rank(void)
{
    a_name_that_is_killed_goes_on_where_it_was("1 runner, round_robin to 1 name, 2 kills",
                                               "capacity: 1, delivery: round_robin", 1,
                                               2);
    a_name_that_is_killed_goes_on_where_it_was("1 runner, round_robin to 2 names, 1 kill",
                                               "capacity: 1, delivery: round_robin", 2,
                                               1);
}

#define SECONDS 280
static const struct stg_test tests[] = {
    TEST_SLOW(a_doorbell_is_never_lost_between_two_looks_at_shared_memory, SECONDS),
    TEST_SLOW(one_runner_and_one_trainer_end_pass_after_pass, SECONDS),
    TEST_SLOW(two_runners_wake_each_other_and_end_once, SECONDS),
    TEST_SLOW(two_trainers_share_and_both_see_the_end, SECONDS),
    TEST_SLOW(a_trainer_killed_at_any_moment_holds_up_nothing, SECONDS),
    TEST_SLOW(a_stop_at_any_moment_reaches_everybody, SECONDS),
    TEST_SLOW(a_wait_for_room_may_run_out_at_any_moment, SECONDS),
    TEST_SLOW(two_runners_and_two_trainers_lose_nothing, SECONDS),
    TEST_SLOW(of_two_runners_of_tiny_items_one_always_continues, SECONDS),
    TEST_SLOW(a_runner_that_rests_or_works_again_holds_up_nothing, SECONDS),
    TEST_SLOW(a_runner_that_asks_a_worker_and_one_of_tiny_items_wake_each_other, SECONDS),
    TEST_SLOW(broadcast_to_two_continues_when_one_is_killed, SECONDS),
    TEST_SLOW(round_robin_deals_whole_rounds_or_reports_the_reason, SECONDS),
    TEST_SLOW(a_name_killed_under_split_gets_the_rest, SECONDS),
    TEST_SLOW(a_name_killed_under_broadcast_misses_nothing, SECONDS),
    TEST_SLOW(a_name_killed_under_round_robin_keeps_its_rank, SECONDS),
};

TEST_MAIN(tests)
