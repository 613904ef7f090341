/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams while a call of the daemon fails: the open fails, or batches arrive, or an
 * error item replaces a batch. No client waits for ever, and the next stream gets every
 * row.
 */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "client/transport/admin.h"
#include "tests/check.h"
#include "tests/faults/inside.h"

#define N_LINES 23
#define MAX_CALLS 200        /* calls of next in one pass */
#define RECONNECT_MILLIS 500 /* less than a call of next may take */

static struct inside in;

/* Two epochs of N_LINES rows {number, text}, in batches of 4. */
static void apply_rows(const char *name, const char *staged)
{
    char lines[1024] = "", yaml[2048], text[512];
    for (int i = 0; i < N_LINES; i++)
        snprintf(lines + strlen(lines), sizeof(lines) - strlen(lines), "%d,t%d\n", i, i);
    const char *path = inside_file(&in, "rows.csv", lines);
    snprintf(
        yaml, sizeof(yaml),
        "dataset:\n  - files: {pattern: [\"%s\"]}\n"
        "  - text_line: {}\n"
        "  - shuffle: {buffer_size: 8, seed: 7}\n  - repeat: {count: 2}\n"
        "  - batch: {batch_size: 4}\n"
        "graph:\n"
        "  - {name: c, op: decode_csv, input: [record], record_defaults: [0, \"\"]}\n"
        "  - {name: h, op: string_to_hash_bucket_fast, input: [\"c:1\"], "
        "num_buckets: 100}\n"
        "staged:\n  features: {n: \"c:0\", t: \"c:1\", h: h}\n"
        "  capacity: 2\n  max_batch_bytes: 65536\n  memory_budget: 16777216\n%s",
        path, staged);
    if (inside_apply(&in, name, yaml, false, text) < 0)
        FAIL("%s", text);
}

/* A stagerd that cannot receive looks like one that has ended. */
static int open_stream(const char *name, bool private_run, struct stager_stream **ret,
                       char text[512])
{
    struct stager_options options = {.struct_size = sizeof(options),
                                     .runtime_dir = in.runtime,
                                     .daemon_reconnect_millis = RECONNECT_MILLIS,
                                     .private_run = private_run};
    int rc = stager_open(NULL, name, &options, ret);
    if (rc < 0)
        snprintf(text, 512, "%.500s", stager_error_text(NULL));
    return rc;
}

static void add_numbers(const struct stager_batch *batch, unsigned seen[N_LINES])
{
    struct stager_tensor n;
    CHECK_INT(stager_batch_tensor(batch, "n", &n), 0);
    const int32_t *values = n.data;
    for (int64_t i = 0; i < n.shape[0]; i++) {
        CHECK(values[i] >= 0 && values[i] < N_LINES);
        seen[values[i]]++;
    }
}

/* Runs one turn: a batch (0), the end (OUT_OF_RANGE), or the error that ended the stream.
 * An error item is one of the batches. */
static int turn(struct stager_stream *stream, unsigned seen[N_LINES], int *item_error,
                char text[512])
{
    struct stager_batch *batch;
    struct stager_stream_info info = {.struct_size = sizeof(info)};
    int rc = stager_next(stream, inside_millis(4000), &batch);
    if (rc == 0) {
        add_numbers(batch, seen);
        stager_release(batch);
        return 0;
    }
    if (rc != -STAGER_OUT_OF_RANGE)
        snprintf(text, 512, "%.500s", stager_error_text(stream));
    stager_stream_info(stream, &info);
    if (info.at_end || info.finished || rc == -STAGER_DEADLINE_EXCEEDED)
        return rc;
    *item_error = rc;
    return 0;
}

/* Runs a whole pass; returns the first error, or 0. */
static int read_pass(struct stager_stream **streams, int n, unsigned seen[N_LINES],
                     char text[512])
{
    int rc = 0, item_error = 0, n_ended = 0;
    bool ended[2] = {false, false};
    for (int i = 0; i < MAX_CALLS && n_ended < n; i++) {
        if (ended[i % n])
            continue;
        int one = turn(streams[i % n], seen, &item_error, text);
        ended[i % n] = one < 0;
        n_ended += one < 0;
        /* If the connection of one client fails before the broadcast begins, the other
         * client waits for a second one. */
        bool is_alone = one == -STAGER_DEADLINE_EXCEEDED && rc < 0 &&
                        strstr(text, "attached, waiting for 1 more") != NULL;
        if (one < 0 && one != -STAGER_OUT_OF_RANGE && !is_alone)
            rc = one;
    }
    if (n_ended < n)
        FAIL("%s: no end after %d calls", in.doing, MAX_CALLS);
    return rc < 0 ? rc : item_error;
}

static void check_all(const unsigned seen[N_LINES], unsigned times)
{
    for (int i = 0; i < N_LINES; i++) {
        if (seen[i] != times)
            FAIL("%s: row %d came %u times, not %u", in.doing, i, seen[i], times);
    }
}

static const char shared[] = "  num_clients: 2\n  delivery: broadcast\n";

static void survive(const char *what,
                    int (*attempt)(struct inside *inside, char text[512]),
                    const char *pipeline, const char *staged)
{
    struct inside_scenario scenario = {.name = what, .attempt = attempt};
    inside_init(&in);
    inside_start(&in);
    apply_rows(pipeline, staged);
    inside_each(&in, &scenario);
    inside_stop(&in);
    inside_finish(&in);
}

/* ---- one client, then many, then a private run ---- */

static int read_rows(bool private_run, char text[512])
{
    struct stager_stream *stream;
    unsigned seen[N_LINES] = {0};
    int rc = open_stream("rows", private_run, &stream, text);
    if (rc < 0)
        return rc;
    rc = read_pass(&stream, 1, seen, text);
    stager_close(stream);
    if (rc == 0)
        check_all(seen, 2);
    return rc;
}

static int read_shared(struct inside *inside, char text[512])
{
    return read_rows(false, text);
}

static void serving_survives_every_fault(void)
{
    survive("serve", read_shared, "rows", "  num_threads: 2\n");
}

static int read_private(struct inside *inside, char text[512])
{
    return read_rows(true, text);
}

static void a_private_run_survives_every_fault(void)
{
    survive("private run", read_private, "rows", "");
}

/* ---- two clients that share every batch ---- */

static int read_both(struct inside *inside, char text[512])
{
    struct stager_stream *streams[2] = {NULL, NULL};
    unsigned seen[N_LINES] = {0};
    int rc = open_stream("both", false, &streams[0], text);
    if (rc == 0)
        rc = open_stream("both", false, &streams[1], text);
    if (rc == 0)
        rc = read_pass(streams, 2, seen, text);
    stager_close(streams[0]);
    stager_close(streams[1]);
    if (rc == 0)
        check_all(seen, 4);
    return rc;
}

static void a_broadcast_survives_every_fault(void)
{
    survive("broadcast", read_both, "both", shared);
}

/* ---- doorbells that the kernel refused ---- */

/* One batch at a time: one doorbell. */
static struct stager_stream *open_sleeper(void)
{
    struct stager_options options = {
        .struct_size = sizeof(options), .runtime_dir = in.runtime, .max_in_flight = 1};
    struct stager_stream *stream;
    if (stager_open(NULL, "both", &options, &stream) < 0)
        FAIL("%s", stager_error_text(NULL));
    return stream;
}

static void start_sleepers(void)
{
    inside_init(&in);
    inside_start(&in);
    apply_rows("both", shared);
}

static void stop_sleepers(struct stager_stream *streams[2])
{
    stager_close(streams[0]);
    stager_close(streams[1]);
    inside_stop(&in);
    inside_finish(&in);
}

/* Acts like an event loop: polls, and sleeps on the descriptor. */
static void expect_nothing_yet(struct stager_stream *stream)
{
    struct stager_batch *batch;
    CHECK_INT(stager_next(stream, 0, &batch), -STAGER_DEADLINE_EXCEEDED);
}

static void expect_woken(struct stager_stream *stream)
{
    struct pollfd fd = {.fd = stager_pollfd(stream), .events = POLLIN};
    struct stager_batch *batch;
    if (poll(&fd, 1, (int)inside_millis(5000)) != 1)
        FAIL("the doorbell that failed was not rung again");
    CHECK_INT(stager_next(stream, 0, &batch), 0);
    stager_release(batch);
}

static void a_sleeper_whose_doorbell_failed_is_rung_again(void)
{
    struct stager_stream *streams[2];
    start_sleepers();
    streams[0] = open_sleeper();
    expect_nothing_yet(streams[0]);
    inject_arm(INJECT_SEND, 1, false);
    streams[1] = open_sleeper(); /* now both have a batch */
    expect_woken(streams[0]);
    CHECK_INT(inject_off(), 1);
    stop_sleepers(streams);
}

/* The loop runs for longer than its longest pause between sweeps. It would also notice a
 * closed connection. */
static void let_the_daemon_rest(struct stager *client)
{
    for (uint64_t end = uv_hrtime() + 60000000; uv_hrtime() < end;) {
        struct stg_request request = {.kind = STG_REQUEST_LIST};
        struct stg_reply reply;
        struct stg_err err = {0};
        CHECK_OK(stg_admin_call(client, &request, &reply, &err), err);
    }
}

/* The doorbell of the request for the next pass fails: a sweep of the daemon finds the
 * request. */
static void a_sleeper_that_could_not_ring_is_found(void)
{
    struct stager_stream *streams[2];
    unsigned seen[N_LINES] = {0};
    struct stager *client;
    char text[512];
    start_sleepers();
    CHECK_INT(stager_connect(in.runtime, &client), 0);
    streams[0] = open_sleeper();
    streams[1] = open_sleeper();
    CHECK_INT(read_pass(streams, 2, seen, text), 0);
    CHECK_INT(stager_rewind(streams[1]), 0);
    let_the_daemon_rest(client);
    inject_only_this(true);
    inject_arm(INJECT_SEND, 1, true);
    CHECK_INT(stager_rewind(streams[0]), 0);
    expect_nothing_yet(streams[0]);
    CHECK(inject_off() > 0);
    inject_only_this(false);
    expect_woken(streams[0]);
    stager_disconnect(client);
    stop_sleepers(streams);
}

/* hello, open, join: a client that does not receive the reply has not attached. */
static void an_open_whose_reply_is_lost_begins_nothing(void)
{
    struct stager_stream *streams[2];
    char text[512];
    start_sleepers();
    for (uint64_t n = 2; n <= 3; n++) {
        unsigned seen[N_LINES] = {0};
        streams[0] = open_sleeper();
        inject_arm(INJECT_SENDMSG, n, false);
        CHECK_INT(open_stream("both", false, &streams[1], text), -STAGER_UNAVAILABLE);
        CHECK_INT(inject_off(), 1);
        expect_nothing_yet(streams[0]);
        streams[1] = open_sleeper();
        CHECK_INT(read_pass(streams, 2, seen, text), 0);
        check_all(seen, 4);
        stager_close(streams[0]);
        stager_close(streams[1]);
    }
    inside_stop(&in);
    inside_finish(&in);
}

/* ---- a deadline, and the reason for a wait ---- */

/* A single client's request times out, and it asks for the reason: neither ends a
 * stream. */
static int wait_in_vain(struct stager_stream *stream, char text[512])
{
    struct stager_batch *batch;
    int rc = stager_next(stream, 1, &batch);
    snprintf(text, 512, "%.500s", stager_error_text(stream));
    if (rc == -STAGER_DEADLINE_EXCEEDED && strstr(text, " within 1 ms") != NULL)
        return 0;
    return rc < 0 ? rc : -STAGER_INTERNAL;
}

static int ask_why(struct inside *inside, char text[512])
{
    struct stager_stream *stream;
    int rc = open_stream("both", false, &stream, text);
    if (rc < 0)
        return rc;
    for (int i = 0; i < 2 && rc == 0; i++)
        rc = wait_in_vain(stream, text);
    stager_close(stream);
    return rc;
}

static void a_deadline_survives_every_fault(void)
{
    survive("deadline", ask_why, "both", shared);
}

static const struct stg_test tests[] = {
    TEST_SLOW(serving_survives_every_fault, 200),
    TEST_SLOW(a_private_run_survives_every_fault, 200),
    TEST_SLOW(a_broadcast_survives_every_fault, 200),
    TEST(an_open_whose_reply_is_lost_begins_nothing),
    TEST(a_sleeper_whose_doorbell_failed_is_rung_again),
    TEST(a_sleeper_that_could_not_ring_is_found),
    TEST_SLOW(a_deadline_survives_every_fault, 200),
};
TEST_MAIN(tests)
