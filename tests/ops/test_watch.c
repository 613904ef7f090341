/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ops/exec/profile.h"
#include "tests/check.h"
#include "tests/failalloc.h"
#include "tests/ops/fixture.h"

#define CSV                                                                              \
    "element record string [-1]\n"                                                       \
    "columns = decode_csv(record) record_defaults=[0, \"x\"]\n"                          \
    "unused = cast(columns:0) dtype=\"float32\"\n"                                       \
    "twice = concat(columns:0, columns:0) axis=0\n"                                      \
    "feature label = columns:0\n"                                                        \
    "feature word = columns:1\n"                                                         \
    "feature twice = twice\n"

static const char *const records[] = {"1,abc", "2,de"};
static const char *const wrong[] = {"1,abc", "x,de"};

/* Indices in the spec. */
enum { COLUMNS, UNUSED, TWICE };

struct seen {
    unsigned n_begun, n_nodes, n_ended, n_asked;
    uint32_t nodes[8];
    uint64_t last_end_ns;
    bool in_order;
    int rc;
    unsigned every;
    struct stg_run_watcher watcher;
};

static bool begin(void *owner, const struct stg_key *key)
{
    struct seen *seen = owner;
    if (seen->n_asked++ % seen->every != 0)
        return false;
    seen->n_begun++;
    seen->n_nodes = 0;
    seen->in_order = true;
    seen->last_end_ns = 0;
    return true;
}

static void node_ran(void *owner, uint32_t node, uint64_t begin_ns, uint64_t end_ns)
{
    struct seen *seen = owner;
    seen->in_order &= begin_ns >= seen->last_end_ns && end_ns >= begin_ns;
    seen->last_end_ns = end_ns;
    seen->nodes[seen->n_nodes++] = node;
}

static void end(void *owner, const struct stg_run *run, int rc)
{
    struct seen *seen = owner;
    seen->n_ended++;
    seen->rc = rc;
}

static void watch(struct seen *seen, struct stg_run *run, unsigned every)
{
    *seen = (struct seen){.every = every};
    seen->watcher = (struct stg_run_watcher){
        .owner = seen, .begin = begin, .node = node_ran, .end = end};
    stg_run_watch(run, &seen->watcher);
}

static void a_watcher_sees_each_node_that_runs_in_order(void)
{
    struct fixture_stage stage;
    struct stg_err err = {0};
    struct seen seen;
    fixture_stage_init(&stage, CSV);
    watch(&seen, stage.run, 1);
    struct stg_tensor feed = fixture_strings(&stage.bump, 2, records), out[3];
    CHECK_OK(stg_run_exec(stage.run, &feed, NULL, NULL, out, &err), err);
    CHECK_INT(seen.n_nodes, 2);
    CHECK_INT(seen.nodes[0], COLUMNS);
    CHECK_INT(seen.nodes[1], TWICE);
    CHECK(seen.in_order && seen.last_end_ns > 0);
    CHECK_INT(seen.n_ended, 1);
    CHECK_INT(seen.rc, 0);
    fixture_stage_finish(&stage);
}

static void a_watcher_that_declines_is_not_called_and_another_is(void)
{
    struct fixture_stage stage;
    struct stg_err err = {0};
    struct seen always, seldom;
    fixture_stage_init(&stage, CSV);
    watch(&always, stage.run, 1);
    watch(&seldom, stage.run, 4);
    struct stg_tensor feed = fixture_strings(&stage.bump, 2, records), out[3];
    for (int i = 0; i < 8; i++)
        CHECK_OK(stg_run_exec(stage.run, &feed, NULL, NULL, out, &err), err);
    CHECK_INT(always.n_begun, 8);
    CHECK_INT(always.n_ended, 8);
    CHECK_INT(seldom.n_asked, 8);
    CHECK_INT(seldom.n_begun, 2);
    CHECK_INT(seldom.n_ended, 2);
    fixture_stage_finish(&stage);
}

static void a_run_that_fails_ends_with_its_code_and_the_node_that_failed(void)
{
    struct fixture_stage stage;
    struct stg_err err = {0};
    struct seen seen;
    fixture_stage_init(&stage, CSV);
    watch(&seen, stage.run, 1);
    struct stg_tensor feed = fixture_strings(&stage.bump, 2, wrong), out[3];
    int rc = stg_run_exec(stage.run, &feed, NULL, NULL, out, &err);
    CHECK_INT(rc, -STAGER_INVALID_ARGUMENT);
    CHECK_INT(seen.n_nodes, 1);
    CHECK_INT(seen.nodes[0], COLUMNS);
    CHECK_INT(seen.rc, rc);
    fixture_stage_finish(&stage);
}

/* ---- the profile ---- */

static uint64_t bytes_of(const struct stg_profile *profile, size_t node, size_t output)
{
    return stg_mean(&profile->bytes[profile->first_output[node] + output]);
}

static void a_profile_has_the_bytes_of_every_output_and_feed(void)
{
    struct fixture_stage stage;
    struct stg_profiler profiler = {0};
    struct stg_err err = {0};
    fixture_stage_init(&stage, CSV);
    CHECK_OK(stg_profiler_init(&profiler, stage.graph, stage.run, 1, &err), err);
    struct stg_tensor feed = fixture_strings(&stage.bump, 2, records), out[3];
    CHECK_OK(stg_run_exec(stage.run, &feed, NULL, NULL, out, &err), err);
    const struct stg_profile *profile = &profiler.profile;
    CHECK(profiler.is_fresh);
    CHECK_INT(profile->n_runs, 1);
    CHECK_INT(bytes_of(profile, COLUMNS, 0), 2 * sizeof(int32_t));
    CHECK_INT(bytes_of(profile, COLUMNS, 1), strlen("abcde") + 3 * sizeof(int64_t));
    CHECK_INT(bytes_of(profile, TWICE, 0), 4 * sizeof(int32_t));
    CHECK_INT(stg_mean(&profile->of_feeds[0]), strlen("1,abc2,de") + 3 * sizeof(int64_t));
    CHECK_INT(profile->node_ns[COLUMNS].n, 1);
    CHECK_INT(profile->node_ns[UNUSED].n, 0);
    CHECK(profile->run_ns.sum >= profile->node_ns[COLUMNS].sum);
    fixture_stage_finish(&stage);
    stg_profiler_finish(&profiler);
}

/* They share memory that grows. */
static void strings_have_their_bytes_though_others_lie_there_now(void)
{
    struct fixture_stage stage;
    struct stg_profiler profiler = {0};
    struct stg_err err = {0};
    fixture_stage_init(&stage, "element record string [-1]\n"
                               "columns = decode_csv(record) record_defaults=[0, \"x\"]\n"
                               "a = concat(columns:1, columns:1) axis=0\n"
                               "b = concat(a, a, a, a, a, a, a, a) axis=0\n"
                               "c = concat(b, b, b, b, b, b, b, b) axis=0\n"
                               "d = concat(c, c, c, c, c, c, c, c) axis=0\n"
                               "e = concat(d, d, d, d, d, d, d, d) axis=0\n"
                               "feature e = e\n");
    CHECK_OK(stg_profiler_init(&profiler, stage.graph, stage.run, 1, &err), err);
    struct stg_tensor feed = fixture_strings(&stage.bump, 2, records), out[1];
    CHECK_OK(stg_run_exec(stage.run, &feed, NULL, NULL, out, &err), err);
    for (size_t node = 1, times = 2; node <= 5; node++, times *= 8)
        CHECK_INT(bytes_of(&profiler.profile, node, 0),
                  times * strlen("abcde") + (times * 2 + 1) * sizeof(int64_t));
    fixture_stage_finish(&stage);
    stg_profiler_finish(&profiler);
}

static void a_node_that_another_one_does_has_its_output_and_no_time(void)
{
    enum { SPLIT, IDS };
    struct fixture_stage stage;
    struct stg_profiler profiler = {0};
    struct stg_err err = {0};
    fixture_stage_init(&stage,
                       "element record string [-1]\n"
                       "columns = decode_csv(record) record_defaults=[\"x\"]\n"
                       "ids = string_to_hash_bucket_fast(columns) num_buckets=100\n"
                       "feature ids = ids\n");
    CHECK_OK(stg_profiler_init(&profiler, stage.graph, stage.run, 1, &err), err);
    struct stg_tensor feed = fixture_strings(&stage.bump, 2, (const char *[]){"a", "b"}),
                      out[1];
    CHECK_OK(stg_run_exec(stage.run, &feed, NULL, NULL, out, &err), err);
    CHECK_INT(profiler.profile.node_ns[SPLIT].n, 1);
    CHECK_INT(profiler.profile.node_ns[IDS].n, 0);
    CHECK_INT(bytes_of(&profiler.profile, IDS, 0), 2 * sizeof(int64_t));
    CHECK_INT(bytes_of(&profiler.profile, SPLIT, 0), 0);
    fixture_stage_finish(&stage);
    stg_profiler_finish(&profiler);
}

static void one_run_in_a_few_is_measured_and_the_first_ones_all(void)
{
    struct fixture_stage stage;
    struct stg_profiler profiler = {0};
    struct stg_err err = {0};
    fixture_stage_init(&stage, CSV);
    CHECK_OK(stg_profiler_init(&profiler, stage.graph, stage.run, 16, &err), err);
    struct stg_tensor feed = fixture_strings(&stage.bump, 2, records), out[3];
    for (int i = 0; i < 64; i++)
        CHECK_OK(stg_run_exec(stage.run, &feed, NULL, NULL, out, &err), err);
    CHECK_INT(profiler.profile.n_runs, 4 + 3); /* 0-3, 16, 32, 48 */
    fixture_stage_finish(&stage);
    stg_profiler_finish(&profiler);
}

static void a_failed_run_leaves_the_profile_as_it_was(void)
{
    struct fixture_stage stage;
    struct stg_profiler profiler = {0};
    struct stg_err err = {0};
    fixture_stage_init(&stage, CSV);
    CHECK_OK(stg_profiler_init(&profiler, stage.graph, stage.run, 1, &err), err);
    struct stg_tensor feed = fixture_strings(&stage.bump, 2, wrong), out[3];
    CHECK(stg_run_exec(stage.run, &feed, NULL, NULL, out, &err) < 0);
    CHECK(!profiler.is_fresh);
    CHECK_INT(profiler.profile.n_runs, 0);
    CHECK_INT(profiler.profile.node_ns[COLUMNS].n, 0);
    fixture_stage_finish(&stage);
    stg_profiler_finish(&profiler);
}

static void a_profile_is_moved_and_added_to_another(void)
{
    struct fixture_stage stage;
    struct stg_profiler profiler = {0};
    struct stg_profile sum = {0};
    struct stg_err err = {0};
    fixture_stage_init(&stage, CSV);
    CHECK_OK(stg_profiler_init(&profiler, stage.graph, stage.run, 1, &err), err);
    CHECK_OK(stg_profile_init(&sum, stage.graph, &err), err);
    struct stg_tensor feed = fixture_strings(&stage.bump, 2, records), out[3];
    for (int i = 0; i < 2; i++) {
        CHECK_OK(stg_run_exec(stage.run, &feed, NULL, NULL, out, &err), err);
        stg_profile_move(&sum, &profiler.profile);
    }
    CHECK_INT(sum.n_runs, 2);
    CHECK_INT(sum.node_ns[TWICE].n, 2);
    CHECK_INT(bytes_of(&sum, TWICE, 0), 4 * sizeof(int32_t));
    CHECK_INT(profiler.profile.n_runs, 0);
    CHECK_INT(bytes_of(&profiler.profile, TWICE, 0), 0);
    fixture_stage_finish(&stage);
    stg_profiler_finish(&profiler);
    stg_profile_finish(&sum);
}

static void old_values_fade(void)
{
    struct stg_mean mean = {0};
    for (int i = 0; i < 100000; i++)
        stg_mean_add(&mean, 1000);
    CHECK_INT(stg_mean(&mean), 1000);
    for (int i = 0; i < 2000; i++)
        stg_mean_add(&mean, 50);
    CHECK(stg_mean(&mean) >= 50 && stg_mean(&mean) <= 60);
    for (int i = 0; i < 3; i++)
        stg_mean_add(&mean, UINT64_MAX);
    CHECK(stg_mean(&mean) > 60); /* and a sum that would overflow is clamped */
}

static void without_memory_there_is_no_profiler_and_no_leak(void)
{
    struct fixture_stage stage;
    fixture_stage_init(&stage, CSV);
    int rc = -1;
    for (int at = 1; rc < 0 && at < 20; at++) {
        struct stg_profiler profiler = {0};
        struct stg_err err = {0};
        stg_failalloc_from(at);
        rc = stg_profiler_init(&profiler, stage.graph, stage.run, 16, &err);
        stg_failalloc_off();
        CHECK(rc == 0 || rc == -STAGER_RESOURCE_EXHAUSTED);
        if (rc == 0) {
            fixture_stage_finish(&stage);
            stg_profiler_finish(&profiler);
        }
    }
    CHECK_INT(rc, 0);
}

static const struct stg_test tests[] = {
    TEST(a_watcher_sees_each_node_that_runs_in_order),
    TEST(a_watcher_that_declines_is_not_called_and_another_is),
    TEST(a_run_that_fails_ends_with_its_code_and_the_node_that_failed),
    TEST(a_profile_has_the_bytes_of_every_output_and_feed),
    TEST(strings_have_their_bytes_though_others_lie_there_now),
    TEST(a_node_that_another_one_does_has_its_output_and_no_time),
    TEST(one_run_in_a_few_is_measured_and_the_first_ones_all),
    TEST(a_failed_run_leaves_the_profile_as_it_was),
    TEST(a_profile_is_moved_and_added_to_another),
    TEST(old_values_fade),
    TEST(without_memory_there_is_no_profiler_and_no_leak),
};
TEST_MAIN(tests)
