/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "proto/wire.h"
#include "tests/check.h"
#include "tests/proto/golden.h"

static unsigned char buf[STG_MESSAGE_MAX_BYTES];

static struct stg_explain_input inputs[] = {
    {.from = 0, .bytes = 80, .staged = ""},
    {.from = 0,
     .output = 1,
     .bytes = 8,
     .staged = "ids",
     .crosses = true,
     .control = true},
};
static struct stg_explain_node nodes[] = {
    {.name = "record", .op = "", .in_daemon = true, .bytes = 80},
    {.name = "c",
     .op = "decode_csv",
     .in_daemon = true,
     .in_trainer = true,
     .n_daemon = 13,
     .daemon_ns = 2000,
     .n_trainer = 3,
     .trainer_ns = 2500,
     .bytes = 40,
     .inputs = inputs,
     .n_inputs = 2},
};
static struct stg_explain_tensor tensors[] = {
    {.name = "ids", .from = 1, .bytes = 40},
    {.name = "one", .is_constant = true},
};
static struct stg_explain_decision decision = {
    .age_ns = 99, .what = "smart_stage", .text = "moves c: faster"};
static const char *const steps[] = {"text_line", "batch"};
static const char *const reads[] = {"parquet reads 1 of 2: a"};

static const struct stg_reply reply = {
    .id = 11,
    .kind = STG_REQUEST_EXPLAIN,
    .explain =
        {
            .name = "criteo",
            .generation = 4,
            .state = "running",
            .smart_stage = "auto",
            .bottleneck = "trainer",
            .why = "why",
            .steps = steps,
            .n_steps = 2,
            .reads = reads,
            .n_reads = 1,
            .nodes = nodes,
            .n_nodes = 2,
            .tensors = tensors,
            .n_tensors = 2,
            .decisions = &decision,
            .n_decisions = 1,
            .n_left_out = 5,
            .elapsed_ns = 1012,
            .n_items = 1013,
            .n_runners = 1014,
            .pull_ns = 1015,
            .compute_ns = 1016,
            .room_ns = 1017,
            .trainers_ns = 1018,
            .trainers_wait_ns = 1019,
            .cpu_ns = 1020,
            .n_daemon_runs = 1021,
            .daemon_run_ns = 1022,
            .n_trainer_runs = 1023,
            .trainer_run_ns = 1024,
        },
};

static void check_bytes(long got, const unsigned char *want, size_t n)
{
    CHECK_INT(got, n);
    for (size_t i = 0; i < n; i++) {
        if (buf[i] != want[i])
            FAIL("byte %zu is %02x, not %02x", i, buf[i], want[i]);
    }
}

static void explain_is_the_golden_bytes_both_ways(void)
{
    struct stg_bump bump = {0};
    struct stg_err err = {0};
    struct stg_reply got;
    check_bytes(stg_wire_encode_reply(&reply, buf, sizeof(buf)), golden_reply_explain,
                sizeof(golden_reply_explain));
    CHECK_OK(stg_wire_decode_reply(golden_reply_explain, sizeof(golden_reply_explain),
                                   &bump, &got, &err),
             err);
    CHECK_INT(got.kind, STG_REQUEST_EXPLAIN);
    check_bytes(stg_wire_encode_reply(&got, buf, sizeof(buf)), golden_reply_explain,
                sizeof(golden_reply_explain));
    stg_bump_finish(&bump);
}

static void a_report_is_the_golden_bytes_both_ways(void)
{
    static const uint64_t bytes[] = {256, 0};
    static const struct stg_report_node two[] = {
        {.node = 3, .n = 13, .ns = 5000, .bytes = bytes, .n_bytes = 2}, {.node = 0}};
    const struct stg_request request = {.kind = STG_REQUEST_REPORT,
                                        .report = {.elapsed_ns = 1000000000,
                                                   .n_batches = 100,
                                                   .wait_ns = 7,
                                                   .n_runs = 13,
                                                   .run_ns = 9000,
                                                   .cpu_ns = 11,
                                                   .nodes = two,
                                                   .n_nodes = 2}};
    struct stg_bump bump = {0};
    struct stg_err err = {0};
    struct stg_request got;
    check_bytes(stg_wire_encode_request(&request, buf, sizeof(buf)),
                golden_request_report, sizeof(golden_request_report));
    CHECK_OK(stg_wire_decode_request(golden_request_report, sizeof(golden_request_report),
                                     &bump, &got, &err),
             err);
    CHECK_INT(got.kind, STG_REQUEST_REPORT);
    check_bytes(stg_wire_encode_request(&got, buf, sizeof(buf)), golden_request_report,
                sizeof(golden_request_report));
    stg_bump_finish(&bump);
}

static void what_runs_on_a_gpu_is_the_golden_bytes_both_ways(void)
{
    static const struct stg_report_node node = {
        .node = 2, .n = 1, .ns = 50, .on_device = true};
    static struct stg_explain_node rows = {
        .name = "rows", .op = "", .in_trainer = true, .on_gpu = true};
    const struct stg_request request = {
        .kind = STG_REQUEST_REPORT,
        .report = {.n_runs = 1, .run_ns = 60, .nodes = &node, .n_nodes = 1}};
    const struct stg_reply explain = {
        .id = 11,
        .kind = STG_REQUEST_EXPLAIN,
        .explain = {.name = "p", .nodes = &rows, .n_nodes = 1}};
    struct stg_bump bump = {0};
    struct stg_err err = {0};
    struct stg_request asked;
    struct stg_reply decoded;
    check_bytes(stg_wire_encode_request(&request, buf, sizeof(buf)),
                golden_request_report_gpu, sizeof(golden_request_report_gpu));
    CHECK_OK(stg_wire_decode_request(golden_request_report_gpu,
                                     sizeof(golden_request_report_gpu), &bump, &asked,
                                     &err),
             err);
    CHECK(asked.report.nodes[0].on_device);
    check_bytes(stg_wire_encode_reply(&explain, buf, sizeof(buf)),
                golden_reply_explain_gpu, sizeof(golden_reply_explain_gpu));
    CHECK_OK(stg_wire_decode_reply(golden_reply_explain_gpu,
                                   sizeof(golden_reply_explain_gpu), &bump, &decoded,
                                   &err),
             err);
    CHECK(decoded.explain.nodes[0].on_gpu);
    stg_bump_finish(&bump);
}

static void a_replay_is_the_golden_bytes_both_ways(void)
{
    struct stg_replay_result replay = {.n_held = 4,
                                       .n_run = 150,
                                       .run_ns = 3000000000,
                                       .run_wait_ns = 1000000000,
                                       .n_replayed = 150,
                                       .replayed_ns = 2000000000,
                                       .client_id = "rank-0"};
    const struct stg_request request = {.kind = STG_REQUEST_REPORT,
                                        .report = {.replay = replay}};
    struct stg_bump bump = {0};
    struct stg_err err = {0};
    struct stg_request asked;
    check_bytes(stg_wire_encode_request(&request, buf, sizeof(buf)),
                golden_request_report_replay, sizeof(golden_request_report_replay));
    CHECK_OK(stg_wire_decode_request(golden_request_report_replay,
                                     sizeof(golden_request_report_replay), &bump, &asked,
                                     &err),
             err);
    check_bytes(stg_wire_encode_request(&asked, buf, sizeof(buf)),
                golden_request_report_replay, sizeof(golden_request_report_replay));
    replay.pid = 77;
    replay.age_ns = 300;
    const struct stg_reply explain = {
        .id = 11,
        .kind = STG_REQUEST_EXPLAIN,
        .explain = {.name = "p", .replays = &replay, .n_replays = 1}};
    struct stg_reply got;
    check_bytes(stg_wire_encode_reply(&explain, buf, sizeof(buf)),
                golden_reply_explain_replay, sizeof(golden_reply_explain_replay));
    CHECK_OK(stg_wire_decode_reply(golden_reply_explain_replay,
                                   sizeof(golden_reply_explain_replay), &bump, &got,
                                   &err),
             err);
    check_bytes(stg_wire_encode_reply(&got, buf, sizeof(buf)),
                golden_reply_explain_replay, sizeof(golden_reply_explain_replay));
    stg_bump_finish(&bump);
}

static void what_workers_saved_is_the_golden_bytes_both_ways(void)
{
    const struct stg_reply explain = {.id = 11,
                                      .kind = STG_REQUEST_EXPLAIN,
                                      .explain = {.name = "p",
                                                  .remote = "text",
                                                  .n_remote_items = 1028,
                                                  .n_local_items = 1029,
                                                  .remote_bytes = 1030,
                                                  .remote_stall_ns = 1031,
                                                  .remote_answer_ns = 1032,
                                                  .remote_cpu_ns = 1033,
                                                  .local_cpu_ns = 1034,
                                                  .alone_ns = 1035}};
    struct stg_bump bump = {0};
    struct stg_err err = {0};
    struct stg_reply got;
    check_bytes(stg_wire_encode_reply(&explain, buf, sizeof(buf)),
                golden_reply_explain_remote, sizeof(golden_reply_explain_remote));
    CHECK_OK(stg_wire_decode_reply(golden_reply_explain_remote,
                                   sizeof(golden_reply_explain_remote), &bump, &got,
                                   &err),
             err);
    check_bytes(stg_wire_encode_reply(&got, buf, sizeof(buf)),
                golden_reply_explain_remote, sizeof(golden_reply_explain_remote));
    stg_bump_finish(&bump);
}

static void a_request_to_explain_is_the_golden_bytes_both_ways(void)
{
    const struct stg_request request = {
        .id = 10, .kind = STG_REQUEST_EXPLAIN, .name = "criteo"};
    struct stg_bump bump = {0};
    struct stg_err err = {0};
    struct stg_request got;
    check_bytes(stg_wire_encode_request(&request, buf, sizeof(buf)),
                golden_request_explain, sizeof(golden_request_explain));
    CHECK_OK(stg_wire_decode_request(golden_request_explain,
                                     sizeof(golden_request_explain), &bump, &got, &err),
             err);
    CHECK_INT(got.kind, STG_REQUEST_EXPLAIN);
    CHECK_STR(got.name, "criteo");
    stg_bump_finish(&bump);
}

/* Indices of a hostile daemon: every reader of the reply uses them. */
static void a_place_that_is_not_there_is_refused(void)
{
    struct stg_explain_input input = {.from = 1, .staged = ""};
    struct stg_explain_node node = {
        .name = "n", .op = "", .inputs = &input, .n_inputs = 1};
    struct stg_explain_tensor tensor = {.name = "t", .from = 1};
    struct stg_reply wrong[] = {
        {.kind = STG_REQUEST_EXPLAIN,
         .explain = {.name = "p", .nodes = &node, .n_nodes = 1}},
        {.kind = STG_REQUEST_EXPLAIN,
         .explain = {.name = "p", .tensors = &tensor, .n_tensors = 1}},
    };
    for (size_t i = 0; i < 2; i++) {
        struct stg_bump bump = {0};
        struct stg_err err = {0};
        struct stg_reply got;
        long n = stg_wire_encode_reply(&wrong[i], buf, sizeof(buf));
        CHECK(n > 0);
        CHECK_INT(stg_wire_decode_reply(buf, (size_t)n, &bump, &got, &err),
                  -STAGER_INVALID_ARGUMENT);
        CHECK_CONTAINS(err.text, "node 1, which is not before it");
        stg_bump_finish(&bump);
    }
}

static const struct stg_test tests[] = {
    TEST(explain_is_the_golden_bytes_both_ways),
    TEST(a_report_is_the_golden_bytes_both_ways),
    TEST(a_replay_is_the_golden_bytes_both_ways),
    TEST(what_workers_saved_is_the_golden_bytes_both_ways),
    TEST(a_request_to_explain_is_the_golden_bytes_both_ways),
    TEST(what_runs_on_a_gpu_is_the_golden_bytes_both_ways),
    TEST(a_place_that_is_not_there_is_refused),
};

TEST_MAIN(tests)
