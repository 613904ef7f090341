/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages compared with bytes written by make_golden.py. Hostile bytes:
 * test_wire_hostile.c.
 */
#include "proto/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/load.h"
#include "tests/check.h"
#include "tests/proto/example.h"
#include "tests/proto/golden.h"

static unsigned char buf[STG_MESSAGE_MAX_BYTES + 1];

/* ---- the structs of the golden messages ---- */

struct golden_request {
    const char *name;
    const unsigned char *bytes;
    size_t n;
    struct stg_request request;
};

#define GOLDEN(name) #name, golden_##name, sizeof(golden_##name)

static const unsigned char token[STG_TOKEN_BYTES] = {
    0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
    16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

static const struct golden_request requests[] = {
    {GOLDEN(request_hello),
     {.id = 1,
      .kind = STG_REQUEST_HELLO,
      .min_version = 1,
      .max_version = 3,
      .client = "trainer"}},
    {GOLDEN(request_check),
     {.id = 2,
      .kind = STG_REQUEST_CHECK,
      .text = "a: b\n",
      .text_bytes = 5,
      .file = "/p/x.yaml"}},
    {GOLDEN(request_apply),
     {.id = 3,
      .kind = STG_REQUEST_APPLY,
      .text = "a: b\n",
      .text_bytes = 5,
      .file = "/p/x.yaml",
      .replace = true,
      .name = "criteo"}},
    {GOLDEN(request_list), {.id = 4, .kind = STG_REQUEST_LIST}},
    {GOLDEN(request_status), {.id = 5, .kind = STG_REQUEST_STATUS, .name = "criteo"}},
    {GOLDEN(request_open),
     {.id = 1ull << 40,
      .kind = STG_REQUEST_OPEN,
      .name = "criteo",
      .client_id = "rank-0",
      .max_in_flight = 300,
      .private_run = true,
      .manual_ack = true}},
    {GOLDEN(request_delete), {.id = 7, .kind = STG_REQUEST_DELETE, .name = "criteo"}},
    {GOLDEN(request_new_token), {.id = 8, .kind = STG_REQUEST_NEW_TOKEN}},
    {GOLDEN(request_work), {.id = 11, .kind = STG_REQUEST_WORK, .name = "criteo"}},
    {GOLDEN(request_work_if_needed),
     {.id = 11, .kind = STG_REQUEST_WORK, .name = "criteo", .most = 300}},
    {GOLDEN(request_join), {.id = 12, .kind = STG_REQUEST_JOIN}},
    {GOLDEN(request_index_name), {.id = 13, .kind = STG_REQUEST_INDEX, .name = "criteo"}},
    {GOLDEN(request_index_text),
     {.id = 13,
      .kind = STG_REQUEST_INDEX,
      .text = "a: b\n",
      .text_bytes = 5,
      .file = "/p/x.yaml"}},
    {GOLDEN(request_index), {.id = 14, .kind = STG_REQUEST_INDEX}},
    {GOLDEN(request_commit),
     {.id = 15, .kind = STG_REQUEST_COMMIT, .tag = "step-1", .state = "{}"}},
    {GOLDEN(request_commits), {.id = 16, .kind = STG_REQUEST_COMMITS, .name = "criteo"}},
    {GOLDEN(request_audit), {.id = 18, .kind = STG_REQUEST_AUDIT, .name = "criteo"}},
    {GOLDEN(request_metrics), {.id = 22, .kind = STG_REQUEST_METRICS}},
    {GOLDEN(request_open_metrics),
     {.id = 22, .kind = STG_REQUEST_METRICS, .open_metrics = true}},
    {GOLDEN(request_open_resume),
     {.id = 17,
      .kind = STG_REQUEST_OPEN,
      .name = "criteo",
      .max_in_flight = 2,
      .resume = "tag:step-1"}},
    {GOLDEN(request_open_again),
     {.id = 19,
      .kind = STG_REQUEST_OPEN,
      .name = "criteo",
      .max_in_flight = 2,
      .rejoin = {.run = 11, .member = 1ull << 63, .attempt = 300}}},
    {GOLDEN(request_open_never),
     {.id = 20,
      .kind = STG_REQUEST_OPEN,
      .name = "criteo",
      .max_in_flight = 2,
      .never_reconnects = true}},
    {GOLDEN(request_open_follow),
     {.id = 22,
      .kind = STG_REQUEST_OPEN,
      .name = "criteo",
      .max_in_flight = 2,
      .follow = true,
      .generation = 300}},
    {GOLDEN(request_open_job),
     {.id = 22,
      .kind = STG_REQUEST_OPEN,
      .name = "criteo",
      .max_in_flight = 2,
      .job = "sweep-7"}},
    {GOLDEN(request_open_replays),
     {.id = 22,
      .kind = STG_REQUEST_OPEN,
      .name = "criteo",
      .max_in_flight = 2,
      .private_run = true,
      .replays = true}},
    {GOLDEN(request_commit_away),
     {.id = 21,
      .kind = STG_REQUEST_COMMIT,
      .tag = "step-1",
      .state = "{}",
      .name = "criteo",
      .client_id = "a",
      .named = true,
      .rejoin = {.run = 11, .member = 1ull << 63, .attempt = 300}}},
    {GOLDEN(request_apply_warm),
     {.id = 18,
      .kind = STG_REQUEST_APPLY,
      .text = "a: b\n",
      .text_bytes = 5,
      .replace = true,
      .warm = true}},
    {GOLDEN(request_rollback),
     {.id = 15,
      .kind = STG_REQUEST_ROLLBACK,
      .name = "criteo",
      .generation = 300,
      .warm = true}},
    {GOLDEN(request_rollback_last),
     {.id = 16,
      .kind = STG_REQUEST_ROLLBACK,
      .name = "criteo",
      .request_id = "id",
      .request_id_bytes = 2,
      .has_if_generation = true,
      .if_generation = 4}},
    {GOLDEN(request_versions),
     {.id = 17, .kind = STG_REQUEST_VERSIONS, .name = "criteo"}},
    {GOLDEN(request_schema),
     {.id = 23, .kind = STG_REQUEST_SCHEMA, .url = "/data/*.parquet", .first = 300}},
    {GOLDEN(request_tap),
     {.id = 24, .kind = STG_REQUEST_TAP, .name = "criteo", .millis = 300}},
    {GOLDEN(request_drain), {.id = 25, .kind = STG_REQUEST_DRAIN}},
    {GOLDEN(request_drain_disable),
     {.id = 26, .kind = STG_REQUEST_DRAIN, .disable = true}},
    {GOLDEN(request_trace),
     {.id = 9, .kind = STG_REQUEST_TRACE, .name = "criteo", .millis = 5000}},
    {GOLDEN(request_gate_delete),
     {.id = 9,
      .kind = STG_REQUEST_DELETE,
      .name = "criteo",
      .token = token,
      .token_bytes = sizeof(token),
      .request_id = "id\0\xff",
      .request_id_bytes = 4,
      .has_if_generation = true}},
};

static struct stg_component two_components[] = {
    {.name = "label", .dtype = STAGER_FLOAT32, .ndim = 1, .shape = {4096}},
    {.name = "ids", .dtype = STAGER_STRING, .ndim = 2, .shape = {-1, 26}}};
static struct stg_component ids_vector = {
    .name = "ids", .dtype = STAGER_INT64, .ndim = 1, .shape = {-1}};
static struct stg_component ids_scalar = {.name = "ids", .dtype = STAGER_INT64};

static struct stg_commit_entry two_commits[] = {{.tag = "step-1",
                                                 .client = "trainer",
                                                 .lane = "rank-0",
                                                 .attempt = 3,
                                                 .pass = 4,
                                                 .position = 5,
                                                 .time_ns = 1ull << 60},
                                                {.tag = "b"}};

static struct stg_file_column two_file_columns[] = {
    {.name = "user/id",
     .type = "INT64",
     .logical = "INT_64",
     .encodings = "PLAIN, RLE",
     .codec = "SNAPPY",
     .dtype = STAGER_INT64,
     .ndim = 2,
     .shape = {-1, 16},
     .nullable = true,
     .bytes = 300,
     .plain_bytes = 1ull << 40},
    {.name = "u", .problem = "a union", .has_dictionary = true}};

static const int64_t two_ids[] = {1, -1}, three_offsets[] = {0, 1, 3};
static struct stg_tap_tensor two_tap_tensors[] = {{.name = "id",
                                                   .dtype = STAGER_INT64,
                                                   .ndim = 2,
                                                   .shape = {300, 2},
                                                   .data = two_ids,
                                                   .data_bytes = sizeof(two_ids)},
                                                  {.name = "w/values",
                                                   .dtype = STAGER_STRING,
                                                   .ndim = 1,
                                                   .shape = {2},
                                                   .part = 1,
                                                   .shortened = true,
                                                   .data = "abc",
                                                   .data_bytes = 3,
                                                   .offsets = three_offsets,
                                                   .n_offsets = 3}};

static struct stg_version_entry two_versions[] = {{.generation = 300,
                                                   .time_ns = 1ull << 60,
                                                   .uid = 1000,
                                                   .content = 0xfedcba9876543210,
                                                   .file = "/p/x.yaml"},
                                                  {.generation = 301}};

static struct stg_list_entry two_entries[] = {{.name = "criteo",
                                               .state = "running",
                                               .file = "/p/x.yaml",
                                               .generation = 3,
                                               .n_clients = 2,
                                               .uid = 1000},
                                              {.name = "b"}};

static struct stg_client_status one_client = {.client_id = "rank-0",
                                              .program = "train",
                                              .state = "attached",
                                              .pid = 4711,
                                              .uid = 1000,
                                              .max_in_flight = 2,
                                              .held = 1,
                                              .assigned = 100,
                                              .taken = 99,
                                              .released = 98,
                                              .redelivered = 3,
                                              .wait_ns = 5000000000,
                                              .violations = 4};

static const struct stg_value six_values[] = {
    {.kind = STG_VALUE_INT, .i = -5, .f = -5},
    {.kind = STG_VALUE_FLOAT, .f = 1.5},
    {.kind = STG_VALUE_BOOL, .i = 1},
    {.kind = STG_VALUE_STRING, .s = "x\0y", .s_bytes = 3},
    {.kind = STG_VALUE_NULL},
    {.kind = STG_VALUE_INT, .i = 1ll << 62, .f = 0x1p62},
};
static const struct stg_attr defaults_attr = {.name = "record_defaults",
                                              .ndim = 2,
                                              .shape = {2, 3},
                                              .n_values = 6,
                                              .values = six_values,
                                              .line = 4,
                                              .column = 55};
static const char *const record_input[] = {"record"};
static const char *const rows_inputs[] = {"c:1", "staged:ids"};
static const char *const rows_target[] = {"rows"};
static const struct stg_node two_nodes[] = {
    {.name = "c",
     .op = "decode_csv",
     .inputs = record_input,
     .n_inputs = 1,
     .attrs = &defaults_attr,
     .n_attrs = 1,
     .line = 4,
     .column = 5},
    {.name = "rows", .op = "identity", .inputs = rows_inputs, .n_inputs = 2}};
static const struct stg_feature one_feature = {
    .path = "ids", .tensor = "c:2", .line = 6, .column = 20};
static const struct stg_pipeline_spec golden_spec = {
    .name = "p",
    .nodes = two_nodes,
    .n_nodes = 2,
    .targets = rows_target,
    .n_targets = 1,
    .staged = {.features = &one_feature,
               .n_features = 1,
               .structure = "{\"ids\":\"ids\"}",
               .capacity = 3,
               .num_threads = 2,
               .num_clients = 5,
               .timeout_millis = 1000,
               .delivery = STG_DELIVERY_BROADCAST,
               .max_batch_bytes = 65536,
               .memory_budget = 1 << 20,
               .lease_timeout_millis = 7,
               .start_timeout_millis = 8,
               .redeliver = false},
};

static const char *const two_advices[] = {"one", "two"};

struct golden_reply {
    const char *name;
    const unsigned char *bytes;
    size_t n;
    struct stg_reply reply;
};

static struct stg_list_entry entry_with_id = {.name = "b",
                                              .pipeline = 0xfedcba9876543210};

static const struct golden_reply replies[] = {
    {GOLDEN(reply_hello),
     {.id = 1,
      .kind = STG_REQUEST_HELLO,
      .version = 1,
      .daemon = "0.1.0",
      .instance = 0x0123456789abcdef,
      .pid = 42,
      .cuda = "no driver"}},
    {GOLDEN(reply_apply),
     {.id = 3,
      .kind = STG_REQUEST_APPLY,
      .name = "criteo",
      .generation = 1,
      .boundary = {two_components, 2},
      .advice = two_advices,
      .n_advice = 2,
      .max_batch_bytes = 1 << 24,
      .memory_bytes = 1ull << 33,
      .unchanged = true}},
    {GOLDEN(reply_list),
     {.id = 4, .kind = STG_REQUEST_LIST, .entries = two_entries, .n_entries = 2}},
    {GOLDEN(reply_status),
     {.id = 5,
      .kind = STG_REQUEST_STATUS,
      .status = {.name = "criteo",
                 .state = "running",
                 .delivery = "split",
                 .last_error = "row 7: bad",
                 .generation = 2,
                 .pass = 1,
                 .epoch = 5,
                 .capacity = 4,
                 .num_threads = 3,
                 .num_clients = 2,
                 .buffered = 6,
                 .published = 1001,
                 .assigned = 1002,
                 .released = 1003,
                 .dropped = 1004,
                 .errors = 1005,
                 .redelivered = 1006,
                 .lost = 1007,
                 .rows = 1008,
                 .bytes = 1009,
                 .memory_bytes = 1 << 30,
                 .memory_used_bytes = 1 << 29,
                 .quarantined_bytes = 1 << 28,
                 .max_batch_bytes = 1 << 27,
                 .producer_wait_ns = 2001,
                 .producer_busy_ns = 2002,
                 .timeouts = 2003,
                 .clients = &one_client,
                 .n_clients = 1,
                 .boundary = {&ids_vector, 1}}}},
    {GOLDEN(reply_open),
     {.id = 6,
      .kind = STG_REQUEST_OPEN,
      .name = "p",
      .generation = 9,
      .segment_bytes = 1 << 30,
      .max_in_flight = 2,
      .client_id = "rank-0",
      .structure = "{\"ids\":\"ids\"}",
      .boundary = {&ids_scalar, 1},
      .pipeline = &golden_spec}},
    {GOLDEN(reply_open_again),
     {.id = 19,
      .kind = STG_REQUEST_OPEN,
      .name = "p",
      .generation = 9,
      .segment_bytes = 1 << 30,
      .max_in_flight = 2,
      .rejoin = {.run = 11, .member = 1ull << 63, .attempt = 300}}},
    {GOLDEN(reply_open_anew),
     {.id = 22,
      .kind = STG_REQUEST_OPEN,
      .name = "p",
      .generation = 9,
      .segment_bytes = 1 << 30,
      .max_in_flight = 2,
      .anew = true}},
    {GOLDEN(reply_join), {.id = 12, .kind = STG_REQUEST_JOIN}},
    {GOLDEN(reply_delete), {.id = 7, .kind = STG_REQUEST_DELETE}},
    {GOLDEN(reply_new_token),
     {.id = 9,
      .kind = STG_REQUEST_NEW_TOKEN,
      .token = token,
      .seconds = 3600,
      .admin_url = "ipc:///a",
      .events_url = "ipc:///e"}},
    {GOLDEN(reply_work),
     {.id = 11,
      .kind = STG_REQUEST_WORK,
      .name = "criteo",
      .function = "m.n:f",
      .boundary = {two_components, 2}}},
    {GOLDEN(reply_work_pure),
     {.id = 11,
      .kind = STG_REQUEST_WORK,
      .name = "criteo",
      .function = "m.n:f",
      .boundary = {two_components, 2},
      .seed = 300,
      .pure = true}},
    {GOLDEN(reply_index),
     {.id = 13,
      .kind = STG_REQUEST_INDEX,
      .index = {.done = true,
                .n_files = 7,
                .n_done = 6,
                .n_built = 3,
                .n_existing = 2,
                .n_small = 1,
                .n_failed = 1,
                .bytes = 1ull << 40,
                .bytes_done = 300,
                .n_records = 1ull << 33,
                .index_bytes = 4096,
                .elapsed_ns = 5,
                .file = "/a",
                .problem = "no"}}},
    {GOLDEN(reply_commit), {.id = 15, .kind = STG_REQUEST_COMMIT}},
    {GOLDEN(reply_commits),
     {.id = 16,
      .kind = STG_REQUEST_COMMITS,
      .name = "criteo",
      .commits = two_commits,
      .n_commits = 2,
      .n_left_out = 300}},
    {GOLDEN(reply_status_warming),
     {.id = 18,
      .kind = STG_REQUEST_STATUS,
      .status = {.name = "criteo",
                 .generation = 2,
                 .warming_generation = 3,
                 .warming_buffered = 5}}},
    {GOLDEN(reply_status_window),
     {.id = 19,
      .kind = STG_REQUEST_STATUS,
      .status = {.name = "criteo",
                 .generation = 2,
                 .window_ns = 1000000000,
                 .window_batches = 300,
                 .window_rows = 301,
                 .window_clients_ns = 302,
                 .window_wait_ns = 303}}},
    {GOLDEN(reply_rollback),
     {.id = 15,
      .kind = STG_REQUEST_ROLLBACK,
      .name = "criteo",
      .generation = 300,
      .boundary = {&ids_vector, 1},
      .restored = 4}},
    {GOLDEN(reply_versions),
     {.id = 17,
      .kind = STG_REQUEST_VERSIONS,
      .name = "criteo",
      .versions = two_versions,
      .n_versions = 2}},
    {GOLDEN(reply_schema),
     {.id = 23,
      .kind = STG_REQUEST_SCHEMA,
      .schema = {.url = "/data/a",
                 .has_more = true,
                 .format = "parquet",
                 .compression = "gzip",
                 .delim = ";",
                 .has_header = true,
                 .note = "n",
                 .bytes = 1ull << 33,
                 .has_rows = true,
                 .n_parts = 3,
                 .columns = two_file_columns,
                 .n = 2,
                 .first = 300,
                 .n_total = 302}}},
    {GOLDEN(reply_tap),
     {.id = 24,
      .kind = STG_REQUEST_TAP,
      .tap = {.number = 300,
              .pass = 1,
              .epoch = 2,
              .index = 299,
              .rows = 4096,
              .bytes = 1ull << 33,
              .tensors = two_tap_tensors,
              .n = 2,
              .n_left_out = 7}}},
    {GOLDEN(reply_drain),
     {.id = 25, .kind = STG_REQUEST_DRAIN, .name = "criteo", .n_consumers = 300}},
    {GOLDEN(reply_audit), {.id = 18, .kind = STG_REQUEST_AUDIT}},
    {GOLDEN(reply_metrics), {.id = 22, .kind = STG_REQUEST_METRICS}},
    {GOLDEN(reply_trace), {.id = 9, .kind = STG_REQUEST_TRACE, .page_bytes = 1 << 24}},
    {GOLDEN(reply_gate_list),
     {.id = 4, .kind = STG_REQUEST_LIST, .entries = &entry_with_id, .n_entries = 1}},
    {GOLDEN(reply_error),
     {.id = 8, .code = -STAGER_NOT_FOUND, .text = "no pipeline \"x\""}},
};

#define N_REQUESTS (sizeof(requests) / sizeof(requests[0]))
#define N_REPLIES (sizeof(replies) / sizeof(replies[0]))

/* ---- golden ---- */

static void check_bytes(const char *name, long got, const unsigned char *want, size_t n)
{
    if (got != (long)n)
        FAIL("%s: %ld bytes, not %zu", name, got, n);
    for (size_t i = 0; i < n; i++) {
        if (buf[i] != want[i])
            FAIL("%s: byte %zu is %02x, not %02x", name, i, buf[i], want[i]);
    }
}

static void requests_are_the_golden_bytes(void)
{
    for (size_t i = 0; i < N_REQUESTS; i++) {
        long n = stg_wire_encode_request(&requests[i].request, buf, sizeof(buf));
        check_bytes(requests[i].name, n, requests[i].bytes, requests[i].n);
    }
}

static void check_rejoin(const struct stg_rejoin *got, const struct stg_rejoin *want)
{
    CHECK_INT(got->run, want->run);
    CHECK_INT(got->member, want->member);
    CHECK_INT(got->attempt, want->attempt);
}

static void check_same(const char *name, const char *got, const char *want)
{
    if ((got == NULL) != (want == NULL) || (got != NULL && strcmp(got, want) != 0))
        FAIL("%s: \"%s\" is not \"%s\"", name, got ? got : "(null)",
             want ? want : "(null)");
}

static void golden_bytes_are_the_requests(void)
{
    for (size_t i = 0; i < N_REQUESTS; i++) {
        struct stg_bump bump = {0};
        struct stg_err err = {0};
        struct stg_request got;
        CHECK_OK(
            stg_wire_decode_request(requests[i].bytes, requests[i].n, &bump, &got, &err),
            err);
        const struct stg_request *want = &requests[i].request;
        CHECK_INT(got.id, want->id);
        CHECK_INT(got.kind, want->kind);
        CHECK_INT(got.min_version, want->min_version);
        CHECK_INT(got.max_version, want->max_version);
        CHECK_INT(got.text_bytes, want->text_bytes);
        CHECK_INT(got.replace, want->replace);
        CHECK_INT(got.max_in_flight, want->max_in_flight);
        CHECK_INT(got.private_run, want->private_run);
        CHECK_INT(got.manual_ack, want->manual_ack);
        CHECK_INT(got.named, want->named);
        CHECK_INT(got.never_reconnects, want->never_reconnects);
        CHECK_INT(got.follow, want->follow);
        CHECK_INT(got.replays, want->replays);
        CHECK_INT(got.generation, want->generation);
        check_rejoin(&got.rejoin, &want->rejoin);
        check_same("client", got.client, want->client);
        check_same("name", got.name, want->name);
        check_same("text", got.text, want->text);
        check_same("file", got.file, want->file);
        check_same("client_id", got.client_id, want->client_id);
        check_same("job", got.job, want->job);
        check_same("tag", got.tag, want->tag);
        check_same("state", got.state, want->state);
        check_same("resume", got.resume, want->resume);
        CHECK_INT(got.has_if_generation, want->has_if_generation);
        CHECK_INT(got.if_generation, want->if_generation);
        CHECK_INT(got.generation, want->generation);
        CHECK_INT(got.warm, want->warm);
        CHECK_INT(got.disable, want->disable);
        CHECK_INT(got.millis, want->millis);
        CHECK_INT(got.token_bytes, want->token_bytes);
        CHECK_INT(got.request_id_bytes, want->request_id_bytes);
        CHECK((got.token == NULL) == (want->token == NULL));
        CHECK(want->token == NULL ||
              memcmp(got.token, want->token, want->token_bytes) == 0);
        CHECK(want->request_id == NULL ||
              memcmp(got.request_id, want->request_id, want->request_id_bytes) == 0);
        stg_bump_finish(&bump);
    }
}

static void replies_are_the_golden_bytes(void)
{
    for (size_t i = 0; i < N_REPLIES; i++) {
        long n = stg_wire_encode_reply(&replies[i].reply, buf, sizeof(buf));
        check_bytes(replies[i].name, n, replies[i].bytes, replies[i].n);
    }
}

/* Encoding is checked against the same bytes separately: decoding is its inverse. */
static void golden_bytes_are_the_replies(void)
{
    for (size_t i = 0; i < N_REPLIES; i++) {
        struct stg_bump bump = {0};
        struct stg_err err = {0};
        struct stg_reply got;
        struct stg_pipeline_spec *spec = NULL;
        CHECK_OK(stg_wire_decode_reply(replies[i].bytes, replies[i].n, &bump, &got, &err),
                 err);
        CHECK_INT(got.kind, replies[i].reply.kind);
        CHECK_INT(got.code, replies[i].reply.code);
        CHECK(got.pipeline == NULL);
        int rc = stg_wire_decode_pipeline(replies[i].bytes, replies[i].n, &spec, &err);
        CHECK_INT(rc, replies[i].reply.pipeline != NULL ? 0 : -STAGER_NOT_FOUND);
        got.pipeline = spec;
        long n = stg_wire_encode_reply(&got, buf, sizeof(buf));
        check_bytes(replies[i].name, n, replies[i].bytes, replies[i].n);
        stg_pipeline_spec_destroy(spec);
        stg_bump_finish(&bump);
    }
}

static void an_event_is_its_golden_bytes(void)
{
    const struct stg_event event = {.instance = 0x0123456789abcdef,
                                    .sequence = 300,
                                    .pipeline = 7,
                                    .kind = STG_EVENT_ATTACHED};
    struct stg_event got;
    struct stg_err err = {0};
    long n = stg_wire_encode_event(&event, buf, sizeof(buf));
    check_bytes("event", n, golden_event, sizeof(golden_event));
    CHECK_OK(stg_wire_decode_event(golden_event, sizeof(golden_event), &got, &err), err);
    CHECK_INT(got.instance, event.instance);
    CHECK_INT(got.sequence, 300);
    CHECK_INT(got.pipeline, 7);
    CHECK_STR(stg_event_name(got.kind), "attached");
    CHECK_STR(stg_event_name((enum stg_event_kind)77), "unknown");
    CHECK(stg_wire_encode_event(&event, buf, 3) < 0);
    for (size_t i = 0; i < sizeof(golden_event); i++)
        CHECK(stg_wire_decode_event(golden_event, i, &got, &err) < 0);
}

static void what_was_not_sent_is_empty(void)
{
    struct stg_bump bump = {0};
    struct stg_err err = {0};
    struct stg_reply list;
    CHECK_OK(stg_wire_decode_reply(golden_reply_list, sizeof(golden_reply_list), &bump,
                                   &list, &err),
             err);
    CHECK_STR(list.entries[1].name, "b");
    CHECK_STR(list.entries[1].state, "");
    CHECK_STR(list.entries[1].file, "");
    CHECK_INT(list.entries[1].generation, 0);
    CHECK_STR(list.text, "");
    stg_bump_finish(&bump);
}

static void max_in_flight_is_two_when_it_was_not_sent(void)
{
    static const unsigned char open[] = {0x3a, 0x03, 0x0a, 0x01, 'p'};
    struct stg_bump bump = {0};
    struct stg_err err = {0};
    struct stg_request got;
    CHECK_OK(stg_wire_decode_request(open, sizeof(open), &bump, &got, &err), err);
    CHECK_INT(got.max_in_flight, 2);
    CHECK_INT(got.private_run, false);
    CHECK(got.client_id == NULL);
    stg_bump_finish(&bump);
}

/* ---- pipelines ---- */

static struct stg_pipeline_spec *through_the_wire(const struct stg_pipeline_spec *spec)
{
    struct stg_reply reply = {
        .kind = STG_REQUEST_OPEN, .name = "p", .pipeline = spec, .max_in_flight = 1};
    struct stg_pipeline_spec *ret = NULL;
    struct stg_err err = {0};
    long n = stg_wire_encode_reply(&reply, buf, sizeof(buf));
    CHECK(n > 0);
    CHECK_OK(stg_wire_decode_pipeline(buf, (size_t)n, &ret, &err), err);
    return ret;
}

static void check_attrs(const struct stg_node *got, const struct stg_node *want)
{
    CHECK_INT(got->n_attrs, want->n_attrs);
    for (size_t i = 0; i < want->n_attrs; i++) {
        const struct stg_attr *a = &got->attrs[i], *b = &want->attrs[i];
        CHECK_STR(a->name, b->name);
        CHECK_INT(a->ndim, b->ndim);
        CHECK_INT(a->line, b->line);
        CHECK_INT(a->column, b->column);
        CHECK_INT(a->n_values, b->n_values);
        for (int k = 0; k < b->ndim; k++)
            CHECK_INT(a->shape[k], b->shape[k]);
        for (size_t k = 0; k < b->n_values; k++) {
            CHECK_INT(a->values[k].kind, b->values[k].kind);
            CHECK_INT(a->values[k].i, b->values[k].i);
            CHECK(a->values[k].f == b->values[k].f);
            CHECK_INT(a->values[k].s_bytes, b->values[k].s_bytes);
            if (b->values[k].kind == STG_VALUE_STRING)
                CHECK(memcmp(a->values[k].s, b->values[k].s, b->values[k].s_bytes + 1) ==
                      0);
        }
    }
}

static void check_spec(const struct stg_pipeline_spec *got,
                       const struct stg_pipeline_spec *want)
{
    check_same("name", got->name, want->name);
    CHECK_INT(got->n_steps, 0);
    CHECK_INT(got->fingerprint, 0);
    CHECK_INT(got->n_nodes, want->n_nodes);
    for (size_t i = 0; i < want->n_nodes; i++) {
        const struct stg_node *a = &got->nodes[i], *b = &want->nodes[i];
        CHECK_STR(a->name, b->name);
        CHECK_STR(a->op, b->op);
        CHECK_INT(a->line, b->line);
        CHECK_INT(a->column, b->column);
        CHECK_INT(a->n_inputs, b->n_inputs);
        for (size_t k = 0; k < b->n_inputs; k++)
            CHECK_STR(a->inputs[k], b->inputs[k]);
        check_attrs(a, b);
    }
    CHECK_INT(got->n_targets, want->n_targets);
    for (size_t i = 0; i < want->n_targets; i++)
        CHECK_STR(got->targets[i], want->targets[i]);
    const struct stg_staged *a = &got->staged, *b = &want->staged;
    CHECK_STR(a->structure, b->structure);
    CHECK_INT(a->n_features, b->n_features);
    for (size_t i = 0; i < b->n_features; i++) {
        CHECK_STR(a->features[i].path, b->features[i].path);
        CHECK_STR(a->features[i].tensor, b->features[i].tensor);
        CHECK_INT(a->features[i].line, b->features[i].line);
        CHECK_INT(a->features[i].column, b->features[i].column);
    }
    CHECK_INT(a->capacity, b->capacity);
    CHECK_INT(a->num_threads, b->num_threads);
    CHECK_INT(a->num_clients, b->num_clients);
    CHECK_INT(a->stream_id, b->stream_id);
    CHECK_INT(a->timeout_millis, b->timeout_millis);
    CHECK_INT(a->delivery, b->delivery);
    CHECK_INT(a->max_batch_bytes, b->max_batch_bytes);
    CHECK_INT(a->memory_budget, b->memory_budget);
    CHECK_INT(a->lease_timeout_millis, b->lease_timeout_millis);
    CHECK_INT(a->start_timeout_millis, b->start_timeout_millis);
    CHECK_INT(a->redeliver, b->redeliver);
}

static void a_pipeline_reaches_a_client_as_it_is(void)
{
    static const char *const texts[] = {
        example_yaml,
        "dataset: [repeat]\n",
        "dataset: [repeat]\nstaged: {features: x, redeliver: false, max_batch_bytes: "
        "1TiB, "
        "memory_budget: 3, lease_timeout_millis: 0, delivery: round_robin, "
        "stage_subgraph_stream_id: 6}\n",
        "dataset: [repeat]\ngraph:\n  a: {op: x, k: [[[\"a\\0\", ~], [1, .inf]]], e: [], "
        "f: "
        "~}\n  b: {op: y, input: [\"a:0..99\", ^a]}\ntargets: [a, \"b:1\"]\n",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct stg_pipeline_spec *spec = NULL;
        struct stg_err err = {0};
        CHECK_OK(stg_load_pipeline(texts[i], strlen(texts[i]), "p", &spec, &err), err);
        struct stg_pipeline_spec *got = through_the_wire(spec);
        check_spec(got, spec);
        stg_pipeline_spec_destroy(got);
        stg_pipeline_spec_destroy(spec);
    }
}

static void what_does_not_fit_is_refused(void)
{
    struct stg_request request = requests[2].request;
    CHECK_INT(stg_wire_encode_request(&request, buf, requests[2].n), requests[2].n);
    CHECK_INT(stg_wire_encode_request(&request, buf, requests[2].n - 1),
              -STAGER_RESOURCE_EXHAUSTED);
    char *text = calloc(1, STG_MESSAGE_MAX_BYTES + 1);
    CHECK(text != NULL);
    memset(text, 'x', STG_MESSAGE_MAX_BYTES);
    request.text = text;
    request.text_bytes = STG_TEXT_MAX_BYTES;
    CHECK(stg_wire_encode_request(&request, buf, sizeof(buf)) > 0);
    request.text_bytes = STG_MESSAGE_MAX_BYTES;
    CHECK_INT(stg_wire_encode_request(&request, buf, sizeof(buf)),
              -STAGER_RESOURCE_EXHAUSTED);
    struct stg_reply reply = {.code = -STAGER_INTERNAL, .text = text};
    CHECK_INT(stg_wire_encode_reply(&reply, buf, sizeof(buf)), -STAGER_OUT_OF_RANGE);
    free(text);
}

static void a_request_of_no_kind_is_not_sent(void)
{
    struct stg_request request = {.id = 1};
    CHECK_INT(stg_wire_encode_request(&request, buf, sizeof(buf)),
              -STAGER_INVALID_ARGUMENT);
}

static void an_error_carries_no_part(void)
{
    struct stg_reply reply = replies[4].reply, got;
    reply.code = -STAGER_ABORTED;
    reply.text = "gone";
    long n = stg_wire_encode_reply(&reply, buf, sizeof(buf));
    CHECK(n > 0);
    struct stg_bump bump = {0};
    struct stg_err err = {0};
    CHECK_OK(stg_wire_decode_reply(buf, (size_t)n, &bump, &got, &err), err);
    CHECK_INT(got.code, -STAGER_ABORTED);
    CHECK_INT(got.kind, STG_REQUEST_NONE);
    CHECK_STR(got.text, "gone");
    stg_bump_finish(&bump);
}

static const struct stg_test tests[] = {
    TEST(requests_are_the_golden_bytes),
    TEST(golden_bytes_are_the_requests),
    TEST(replies_are_the_golden_bytes),
    TEST(golden_bytes_are_the_replies),
    TEST(an_event_is_its_golden_bytes),
    TEST(what_was_not_sent_is_empty),
    TEST(max_in_flight_is_two_when_it_was_not_sent),
    TEST(a_pipeline_reaches_a_client_as_it_is),
    TEST(what_does_not_fit_is_refused),
    TEST(a_request_of_no_kind_is_not_sent),
    TEST(an_error_carries_no_part),
};

TEST_MAIN(tests)
