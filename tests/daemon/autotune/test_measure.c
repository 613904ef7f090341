/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "daemon/autotune/measure.h"
#include "daemon/autotune/remote_gain.h"
#include "tests/check.h"
#include "tests/failalloc.h"
#include "tests/ops/fixture.h"

#define MS UINT64_C(1000000)

/* ---- decisions ---- */

static void the_last_decisions_are_kept_in_order(void)
{
    struct stg_decisions decisions = {0};
    CHECK_INT(stg_decisions_n(&decisions), 0);
    for (uint64_t i = 0; i < 40; i++)
        stg_decide(&decisions, i, "num_threads", "decision %d", (int)i);
    CHECK_INT(stg_decisions_n(&decisions), STG_MAX_DECISIONS);
    for (size_t i = 0; i < STG_MAX_DECISIONS; i++) {
        char text[32];
        const struct stg_decision *d = stg_decisions_at(&decisions, i);
        snprintf(text, sizeof(text), "decision %d", (int)i + 8);
        CHECK_STR(d->text, text);
        CHECK_STR(d->what, "num_threads");
        CHECK_INT(d->at_ns, i + 8);
    }
}

static void a_decision_that_is_too_long_is_truncated(void)
{
    struct stg_decisions decisions = {0};
    char text[1000];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    stg_decide(&decisions, 1, "smart_stage", "%s", text);
    CHECK_INT(strlen(stg_decisions_at(&decisions, 0)->text), 255);
}

/* ---- stage workers ---- */

/* Four runners on four CPUs make 200 batches in a second, 10 ms each: half of them wait
 * for their turn. Workers make 300. */
static struct stg_pace with_workers(void)
{
    return (struct stg_pace){.elapsed_ns = 1000 * MS,
                             .n_items = 500,
                             .n_runners = 4,
                             .compute_ns = 2000 * MS,
                             .clients_ns = 1000 * MS,
                             .clients_wait_ns = 50 * MS,
                             .remote = {.n_items = 300,
                                        .n_local = 200,
                                        .n_answers = 300,
                                        .n_timed = 300,
                                        .cpu_ns = 3000 * MS,
                                        .local_cpu_ns = 2000 * MS}};
}

static uint64_t gain(const struct stg_pace *pace, double n_cpus, const char *want)
{
    char text[256] = "";
    uint64_t ret = stg_remote_gain(pace, n_cpus, text, sizeof(text));
    CHECK_CONTAINS(text, want);
    return ret;
}

static void workers_save_what_runners_would_take(void)
{
    struct stg_pace pace = with_workers();
    CHECK_INT(gain(&pace, 4,
                   "workers made 60 % of the batches; without them a step would take "
                   "about 1.2x as long"),
              5 * MS / 2);
    pace.n_runners = 1;
    CHECK_INT(gain(&pace, 4, "about 5.0x as long"), 10 * MS);
    pace.pull_ns = 3000 * MS; /* one runner at a time */
    pace.n_runners = 64;
    CHECK_INT(gain(&pace, 64, "about 7.5x as long"), 15 * MS);
}

static void more_runners_than_cpus_make_no_more(void)
{
    struct stg_pace pace = with_workers();
    CHECK_INT(gain(&pace, 2, "about 2.5x as long"), 5 * MS);
    CHECK_INT(gain(&pace, 0.5, "about 10.0x as long"), 20 * MS);
}

static void workers_that_save_nothing_are_named(void)
{
    struct stg_pace pace = with_workers();
    pace.n_runners = 8;
    CHECK_INT(gain(&pace, 8, "saved nothing: the trainer is the bottleneck"), 2 * MS);
    pace.clients_wait_ns = 900 * MS;
    CHECK_INT(gain(&pace, 8, "saved nothing: this host alone is as fast"), 2 * MS);
    pace.remote.n_items = 0;
    CHECK_INT(gain(&pace, 8, "workers made no batch of the last 200"), 5 * MS);
}

static void where_nothing_is_made_here_the_time_of_workers_counts(void)
{
    struct stg_pace pace = with_workers();
    pace.compute_ns = pace.remote.n_local = pace.remote.local_cpu_ns = 0;
    pace.n_runners = 1;
    CHECK_INT(gain(&pace, 4, "3.0x as long, by the CPU time that workers spent"),
              10 * MS);
    pace.remote.n_timed = pace.remote.cpu_ns = 0;
    CHECK_INT(gain(&pace, 4, "no batch was made here to compare with"), 0);
    pace.remote.n_items = 3;
    CHECK_INT(gain(&pace, 4, "too little was seen: 3 batches"), 0);
    CHECK_INT(gain(&(struct stg_pace){0}, 4, "too little was seen"), 0);
}

/* ---- the bottleneck ---- */

/* One second of one runner and one trainer, a thousand batches. */
static struct stg_pace a_second(void)
{
    return (struct stg_pace){.elapsed_ns = 1000 * MS,
                             .n_items = 1000,
                             .n_runners = 1,
                             .clients_ns = 1000 * MS};
}

static enum stg_bottleneck find(const struct stg_pace *pace)
{
    char why[256] = "";
    enum stg_bottleneck found = stg_bottleneck_find(pace, why, sizeof(why));
    CHECK(why[0] != '\0');
    return found;
}

static void runners_that_wait_for_room_wait_for_the_trainer(void)
{
    struct stg_pace pace = a_second();
    pace.pull_ns = 100 * MS;
    pace.compute_ns = 200 * MS;
    pace.room_ns = 690 * MS;
    pace.clients_wait_ns = 20 * MS;
    CHECK_INT(find(&pace), STG_BOTTLENECK_TRAINER);
}

static void a_pull_that_has_no_cpu_waits_for_storage(void)
{
    struct stg_pace pace = a_second();
    pace.pull_ns = 900 * MS;
    pace.compute_ns = 50 * MS;
    pace.clients_wait_ns = 900 * MS;
    pace.sampled_pull_ns = 90 * MS;
    pace.sampled_cpu_ns = 9 * MS;
    pace.cpu_ns = 150 * MS;
    CHECK_INT(find(&pace), STG_BOTTLENECK_STORAGE);
}

static void a_pull_that_computes_decodes(void)
{
    struct stg_pace pace = a_second();
    pace.pull_ns = 900 * MS;
    pace.compute_ns = 50 * MS;
    pace.clients_wait_ns = 900 * MS;
    pace.sampled_pull_ns = 90 * MS;
    pace.sampled_cpu_ns = 88 * MS;
    pace.cpu_ns = 950 * MS;
    CHECK_INT(find(&pace), STG_BOTTLENECK_DECODE);
}

static void threads_that_compute_for_a_pull_that_waits_decode_too(void)
{
    struct stg_pace pace = a_second();
    pace.pull_ns = 900 * MS;
    pace.compute_ns = 50 * MS;
    pace.clients_wait_ns = 900 * MS;
    pace.sampled_pull_ns = 90 * MS;
    pace.sampled_cpu_ns = 2 * MS;
    pace.cpu_ns = 1900 * MS;
    CHECK_INT(find(&pace), STG_BOTTLENECK_DECODE);
}

static void runners_that_compute_hold_up_by_the_graph(void)
{
    struct stg_pace pace = a_second();
    pace.n_runners = 2;
    pace.pull_ns = 100 * MS;
    pace.compute_ns = 1800 * MS;
    pace.clients_wait_ns = 700 * MS;
    CHECK_INT(find(&pace), STG_BOTTLENECK_DAEMON_CPU);
}

static void runners_that_wait_for_workers_hold_up_by_the_function(void)
{
    struct stg_pace pace = a_second();
    pace.n_runners = 2;
    pace.pull_ns = 100 * MS;
    pace.compute_ns = 1800 * MS;
    pace.call_ns = 1700 * MS;
    pace.clients_wait_ns = 700 * MS;
    CHECK_INT(find(&pace), STG_BOTTLENECK_FUNCTION);
    pace.call_ns = 300 * MS;
    CHECK_INT(find(&pace), STG_BOTTLENECK_DAEMON_CPU);
    pace.n_items = 0; /* the trainer hangs, or a step takes longer than a second */
    pace.compute_ns = 0;
    pace.pull_ns = 0;
    pace.call_ns = 2000 * MS;
    CHECK_INT(find(&pace), STG_BOTTLENECK_FUNCTION);
}

static void without_other_work_the_bottleneck_is_the_transport(void)
{
    struct stg_pace pace = a_second();
    pace.pull_ns = 100 * MS;
    pace.compute_ns = 150 * MS;
    pace.room_ns = 200 * MS;
    pace.clients_wait_ns = 600 * MS;
    CHECK_INT(find(&pace), STG_BOTTLENECK_TRANSPORT);
}

static void batches_that_stage_workers_make_late_hold_up_by_the_workers(void)
{
    struct stg_pace pace = a_second();
    pace.pull_ns = 20 * MS;
    pace.compute_ns = 10 * MS;
    pace.clients_wait_ns = 600 * MS;
    pace.remote.stall_ns = 500 * MS;
    CHECK_INT(find(&pace), STG_BOTTLENECK_WORKERS);
    pace.remote.stall_ns = 100 * MS;
    CHECK_INT(find(&pace), STG_BOTTLENECK_TRANSPORT);
    pace.clients_wait_ns = 50 * MS;
    pace.remote.stall_ns = 500 * MS;
    CHECK_INT(find(&pace), STG_BOTTLENECK_TRAINER);
}

static void one_batch_that_takes_longer_than_the_window_holds_up_too(void)
{
    struct stg_pace pace = a_second();
    pace.n_items = 0;
    pace.clients_wait_ns = 1000 * MS;
    CHECK_INT(find(&pace), STG_BOTTLENECK_DAEMON_CPU);
    pace.pull_ns = 990 * MS;
    pace.sampled_pull_ns = 10 * MS;
    pace.sampled_cpu_ns = 1 * MS;
    CHECK_INT(find(&pace), STG_BOTTLENECK_STORAGE);
}

static void without_batches_nothing_is_said(void)
{
    struct stg_pace pace = a_second();
    pace.elapsed_ns = 900 * MS;
    pace.n_items = 3;
    CHECK_INT(find(&pace), STG_BOTTLENECK_UNKNOWN);
    CHECK_INT(find(&(struct stg_pace){0}), STG_BOTTLENECK_UNKNOWN);
}

/* ---- marks ---- */

#define CSV                                                                              \
    "element record string [-1]\n"                                                       \
    "columns = decode_csv(record) record_defaults=[0, \"x\"]\n"                          \
    "feature label = columns:0\n"

static void the_pace_is_that_of_the_last_seconds(void)
{
    struct fixture_stage stage;
    fixture_stage_init(&stage, CSV);
    struct stg_measure *measure = stg_measure_create(stage.graph, 3);
    CHECK(measure != NULL);
    struct stg_pace pace;
    for (uint64_t ms = 500; ms <= 10000; ms += 100) {
        measure->load.at_ns = ms * MS;
        measure->load.n_made = ms * (ms < 8000 ? 1 : 2);
        if (stg_measure_is_due(measure, measure->load.at_ns))
            stg_measure_mark(measure);
    }
    stg_measure_pace(measure, &pace);
    CHECK(pace.elapsed_ns >= 1000 * MS && pace.elapsed_ns <= 2000 * MS);
    CHECK_INT(pace.n_items * MS, 2 * pace.elapsed_ns);
    CHECK_INT(pace.n_runners, 3);
    stg_measure_destroy(measure);
    fixture_stage_finish(&stage);
}

static void a_time_in_which_no_trainer_reads_is_no_part_of_it(void)
{
    struct fixture_stage stage;
    fixture_stage_init(&stage, CSV);
    struct stg_measure *measure = stg_measure_create(stage.graph, 1);
    struct stg_pace pace;
    struct stg_load load = {0};
    for (uint64_t ms = 100; ms <= 9000; ms += 100) {
        bool is_read = ms <= 3000 || ms > 8000;
        load.at_ns = ms * MS;
        load.n_made += is_read || ms == 3100 ? 100 : 7;
        load.clients_ns += 100 * MS;
        stg_measure_load(measure, &load, is_read);
        if (is_read && stg_measure_is_due(measure, load.at_ns))
            stg_measure_mark(measure);
        stg_measure_pace(measure, &pace);
        CHECK(pace.elapsed_ns <= 2000 * MS);
        if (ms > 3000 && ms <= 8000) { /* the first look ended the window */
            CHECK(measure->is_over);
            CHECK_INT(measure->load.at_ns, 3100 * MS);
        }
    }
    CHECK_INT(pace.n_items * MS, pace.elapsed_ns);
    CHECK_INT(pace.clients_ns, pace.elapsed_ns);
    stg_measure_destroy(measure);
    fixture_stage_finish(&stage);
}

/* ---- reports of trainers ---- */

enum { COLUMNS };

static void report(struct stg_measure *measure, struct stg_report_node node)
{
    struct stg_report one = {.n_runs = 2, .run_ns = 2000, .nodes = &node, .n_nodes = 1};
    stg_measure_report(measure, &one);
}

static void a_report_is_added_to_what_trainers_said(void)
{
    struct fixture_stage stage;
    fixture_stage_init(&stage, CSV);
    struct stg_measure *measure = stg_measure_create(stage.graph, 1);
    static const uint64_t bytes[] = {8, 30};
    for (int i = 0; i < 3; i++)
        report(measure,
               (struct stg_report_node){
                   .node = COLUMNS, .n = 2, .ns = 1000, .bytes = bytes, .n_bytes = 2});
    CHECK_INT(measure->client.n_runs, 6);
    CHECK_INT(stg_mean(&measure->client.run_ns), 1000);
    CHECK_INT(measure->client.node_ns[COLUMNS].n, 6);
    CHECK_INT(stg_mean(&measure->client.node_ns[COLUMNS]), 500);
    CHECK_INT(stg_mean(&measure->client.bytes[1]), 30);
    CHECK_INT(measure->daemon.node_ns[COLUMNS].n, 0);
    stg_measure_destroy(measure);
    fixture_stage_finish(&stage);
}

static void numbers_that_cannot_be_are_left_out(void)
{
    struct fixture_stage stage;
    fixture_stage_init(&stage, CSV);
    struct stg_measure *measure = stg_measure_create(stage.graph, 1);
    static const uint64_t bytes[] = {UINT64_MAX, 1, 2};
    static const struct stg_report_node wrong[] = {
        {.node = 1, .n = 1, .ns = 1}, /* the graph of one trainer */
        {.node = UINT32_MAX, .n = 1, .ns = 1},
        {.node = COLUMNS, .n = UINT64_MAX, .ns = 1},
        {.node = COLUMNS, .n = 1, .ns = UINT64_MAX},
        {.node = COLUMNS, .n = 0, .ns = 7},
        /* the graph of both */
        {.node = COLUMNS, .n = 1, .ns = 1, .bytes = bytes, .n_bytes = 3},
        {.node = COLUMNS, .bytes = bytes, .n_bytes = 1},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        report(measure, wrong[i]);
    CHECK_INT(measure->client.node_ns[COLUMNS].n, 0);
    CHECK_INT(measure->client.bytes[0].n, 0);
    stg_measure_report(measure, &(struct stg_report){.n_runs = UINT64_MAX, .run_ns = 1});
    stg_measure_report(measure, &(struct stg_report){.n_runs = 1, .run_ns = UINT64_MAX});
    CHECK_INT(measure->client.n_runs, 2 * sizeof(wrong) / sizeof(wrong[0]));
    stg_measure_destroy(measure);
    fixture_stage_finish(&stage);
}

static int make(void *owner)
{
    struct stg_measure *measure = stg_measure_create(owner, 1);
    stg_measure_destroy(measure);
    return measure != NULL ? 0 : -STAGER_RESOURCE_EXHAUSTED;
}

static void without_memory_nothing_leaks(void)
{
    struct fixture_stage stage;
    fixture_stage_init(&stage, CSV);
    CHECK(stg_failalloc_each(make, stage.graph) >= 5);
    fixture_stage_finish(&stage);
}

static const struct stg_test tests[] = {
    TEST(the_last_decisions_are_kept_in_order),
    TEST(a_decision_that_is_too_long_is_truncated),
    TEST(workers_save_what_runners_would_take),
    TEST(more_runners_than_cpus_make_no_more),
    TEST(workers_that_save_nothing_are_named),
    TEST(where_nothing_is_made_here_the_time_of_workers_counts),
    TEST(runners_that_wait_for_room_wait_for_the_trainer),
    TEST(a_pull_that_has_no_cpu_waits_for_storage),
    TEST(a_pull_that_computes_decodes),
    TEST(threads_that_compute_for_a_pull_that_waits_decode_too),
    TEST(runners_that_compute_hold_up_by_the_graph),
    TEST(runners_that_wait_for_workers_hold_up_by_the_function),
    TEST(without_other_work_the_bottleneck_is_the_transport),
    TEST(batches_that_stage_workers_make_late_hold_up_by_the_workers),
    TEST(one_batch_that_takes_longer_than_the_window_holds_up_too),
    TEST(without_batches_nothing_is_said),
    TEST(the_pace_is_that_of_the_last_seconds),
    TEST(a_time_in_which_no_trainer_reads_is_no_part_of_it),
    TEST(a_report_is_added_to_what_trainers_said),
    TEST(numbers_that_cannot_be_are_left_out),
    TEST(without_memory_nothing_leaks),
};
TEST_MAIN(tests)
