/* SPDX-License-Identifier: Apache-2.0
 *
 * States in C: a stream that opens at the state of another goes on after it.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/stream/stream.h"
#include "tests/check.h"
#include "tests/system/fixture.h"

static struct stager_stream *open_at(struct fixture *fixture, const char *state,
                                     uint32_t rank, uint32_t world_size)
{
    struct stager_options options = {.struct_size = sizeof(options),
                                     .runtime_dir = fixture->runtime,
                                     .state = state,
                                     .rank = rank,
                                     .world_size = world_size};
    struct stager_stream *stream;
    if (stager_open(NULL, "p", &options, &stream) < 0)
        FAIL("stager_open: %s", stager_error_text(NULL));
    return stream;
}

static void a_stream_goes_on_at_every_state_of_another(void)
{
    struct fixture fixture;
    char state[STAGER_STATE_BYTES], again[STAGER_STATE_BYTES];
    fixture_start(&fixture, "");
    fixture_apply_range(&fixture, 8, "num_threads: 2, capacity: 3");
    for (int k = 0; k <= 8; k++) {
        struct stager_stream *stream = open_at(&fixture, NULL, 0, 0);
        for (int i = 0; i < k; i++)
            fixture_expect_value(stream, i);
        CHECK_INT(stager_state(stream, state, 16), -STAGER_INVALID_ARGUMENT);
        CHECK_INT(stager_state(stream, state, sizeof(state)), 0);
        stager_close(stream);
        stream = open_at(&fixture, state, 0, 0);
        CHECK_INT(stager_state(stream, again, sizeof(again)), 0);
        CHECK_STR(again, state);
        for (int i = k; i < 8; i++) {
            struct stager_batch_info info = {.struct_size = sizeof(info)};
            struct stager_batch *batch = fixture_take(stream);
            CHECK_INT(stager_batch_info(batch, &info), 0);
            CHECK_INT(info.position, i + 1);
            stager_release(batch);
        }
        fixture_expect_code(stream, STAGER_OUT_OF_RANGE, "end of pass");
        stager_close(stream);
    }
    fixture_finish(&fixture);
}

static void a_rank_gets_its_batch_whatever_the_order_of_joining(void)
{
    struct fixture fixture;
    struct stager_stream *ranks[3];
    fixture_start(&fixture, "");
    fixture_apply_range(&fixture, 12, "delivery: round_robin, num_clients: 3");
    for (uint32_t r = 3; r-- > 0;)
        ranks[r] = open_at(&fixture, NULL, r, 3);
    for (int round = 0; round < 4; round++) {
        for (int r = 0; r < 3; r++)
            fixture_expect_value(ranks[r], 3 * round + r);
    }
    for (int r = 0; r < 3; r++)
        fixture_expect_code(ranks[r], STAGER_OUT_OF_RANGE, "end of pass");
    stager_close(ranks[1]);
    struct stager_options options = {
        .struct_size = sizeof(options), .runtime_dir = fixture.runtime, .world_size = 3};
    CHECK_INT(stager_open(NULL, "p", &options, &ranks[1]), -STAGER_ALREADY_EXISTS);
    CHECK_CONTAINS(stager_error_text(NULL), "rank 0 of pipeline p is client");
    options.rank = 3;
    CHECK_INT(stager_open(NULL, "p", &options, &ranks[1]), -STAGER_INVALID_ARGUMENT);
    stager_close(ranks[0]);
    stager_close(ranks[2]);
    fixture_finish(&fixture);
}

static struct stager_stream *open_resumed(struct fixture *fixture, const char *resume,
                                          int want)
{
    struct stager_options options = {.struct_size = sizeof(options),
                                     .runtime_dir = fixture->runtime,
                                     .resume = resume};
    struct stager_stream *stream = NULL;
    CHECK_INT(stager_open(NULL, "p", &options, &stream), want);
    return stream;
}

static void a_commit_is_where_a_stream_resumes(void)
{
    struct fixture fixture;
    static char early[STAGER_STATE_BYTES], late[STAGER_STATE_BYTES];
    fixture_start(&fixture, "");
    fixture_apply_range(&fixture, 8, "");
    struct stager_stream *stream = open_resumed(&fixture, "current", 0);
    fixture_expect_value(stream, 0);
    CHECK_INT(stager_state(stream, early, sizeof(early)), 0);
    CHECK_INT(stager_commit(stream, early, "one"), 0);
    CHECK_INT(stager_commit(stream, early, "one"), 0);
    fixture_expect_value(stream, 1);
    CHECK_INT(stager_state(stream, late, sizeof(late)), 0);
    CHECK_INT(stager_commit(stream, late, "one"), -STAGER_ALREADY_EXISTS);
    CHECK_CONTAINS(stager_error_text(stream), "position differs");
    CHECK_INT(stager_commit(stream, "{}", "two"), -STAGER_INVALID_ARGUMENT);
    CHECK_INT(stager_commit(stream, late, ""), -STAGER_INVALID_ARGUMENT);
    CHECK_INT(stager_commit(stream, late, NULL), -STAGER_INVALID_ARGUMENT);
    CHECK_INT(stager_commit(stream, NULL, "two"), -STAGER_INVALID_ARGUMENT);
    CHECK_INT(stager_commit(stream, late, "two"), 0);
    stager_close(stream);
    open_resumed(&fixture, NULL, -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(stager_error_text(NULL), "the last one with tag two");
    open_resumed(&fixture, "tag:none", -STAGER_NOT_FOUND);
    stream = open_resumed(&fixture, "tag:one", 0);
    fixture_expect_value(stream, 1);
    stager_close(stream);
    stream = open_resumed(&fixture, "current", 0);
    fixture_expect_value(stream, 2);
    stager_close(stream);
    fixture_finish(&fixture);
}

static void expect_refusal(struct fixture *fixture, struct stg_request request, int code,
                           const char *text)
{
    struct stager *client;
    struct stg_reply reply;
    struct stg_err err = {0};
    CHECK_INT(stager_connect(fixture->runtime, &client), 0);
    CHECK_INT(stg_admin_call(client, &request, &reply, &err), code);
    CHECK_CONTAINS(err.text, text);
    stager_disconnect(client);
}

static void a_commit_needs_a_stream_and_the_list_a_right(void)
{
    struct fixture fixture;
    char path[256];
    const struct stg_request commit = {
        .kind = STG_REQUEST_COMMIT, .tag = "a", .state = "{}"};
    const struct stg_request list = {.kind = STG_REQUEST_COMMITS, .name = "p"};
    fixture_start(&fixture, "");
    fixture_apply_range(&fixture, 8, "");
    expect_refusal(&fixture, commit, -STAGER_FAILED_PRECONDITION,
                   "must be sent on the connection of a stream");
    if (geteuid() == 0) {
        snprintf(path, sizeof(path), "%s/attach.sock", fixture.runtime);
        CHECK(chmod(fixture.dir, 0755) == 0 && chmod(fixture.runtime, 0755) == 0 &&
              chmod(path, 0666) == 0 && seteuid(65534) == 0);
        expect_refusal(&fixture, list, -STAGER_PERMISSION_DENIED, "belongs to uid 0");
        CHECK(seteuid(0) == 0);
    }
    fixture_finish(&fixture);
}

/* The journal is a FIFO for a while, whose opening waits: a disk that hangs. */
static void a_stream_has_one_commit_at_a_time_at_the_disk(void)
{
    struct fixture fixture;
    struct stg_reply reply;
    struct stg_err err = {0};
    char state[STAGER_STATE_BYTES], path[256];
    fixture_start(&fixture, "");
    fixture_apply_range(&fixture, 8, "");
    struct stager_stream *stream = open_resumed(&fixture, "current", 0);
    fixture_expect_value(stream, 0);
    CHECK_INT(stager_state(stream, state, sizeof(state)), 0);
    CHECK_INT(stager_commit(stream, state, "one"), 0);
    snprintf(path, sizeof(path), "%s/home/state/commits/p.journal", fixture.dir);
    CHECK(unlink(path) == 0 && mkfifo(path, 0600) == 0);
    struct stg_request request = {
        .kind = STG_REQUEST_COMMIT, .state = state, .tag = "two"};
    CHECK_INT(stg_client_call(stream->client, &request, 0, &reply, NULL, 0, NULL, &err),
              -STAGER_DEADLINE_EXCEEDED);
    for (int i = 0; i < 100; i++) {
        CHECK_INT(stager_commit(stream, state, "three"), -STAGER_UNAVAILABLE);
        CHECK_CONTAINS(stager_error_text(stream), "an earlier commit of this stream");
    }
    fixture_expect_value(stream, 1);
    int fd = open(path, O_RDONLY | O_CLOEXEC); /* the disk answers */
    int rc = -STAGER_UNAVAILABLE;
    while (rc == -STAGER_UNAVAILABLE)
        rc = stager_commit(stream, state, "three");
    CHECK_INT(rc, 0);
    close(fd);
    stager_close(stream);
    open_resumed(&fixture, "tag:none", -STAGER_NOT_FOUND);
    CHECK_CONTAINS(stager_error_text(NULL), "the last ones: one two three");
    fixture_finish(&fixture);
}

static uint64_t take_position(struct stager_stream *stream)
{
    struct stager_batch_info info = {.struct_size = sizeof(info)};
    struct stager_batch *batch = fixture_take(stream);
    CHECK_INT(stager_batch_info(batch, &info), 0);
    stager_release(batch);
    return info.position;
}

static void clients_of_a_split_go_on_at_their_merged_states(void)
{
    enum { N = 8 };
    struct fixture fixture;
    static char states[2][STAGER_STATE_BYTES], merged[STAGER_STATE_BYTES];
    fixture_start(&fixture, "");
    fixture_apply_range(&fixture, N, "delivery: split, num_clients: 2");
    for (int k = 0; k <= 4; k++) {
        struct stager_stream *both[] = {open_at(&fixture, NULL, 0, 0),
                                        open_at(&fixture, NULL, 0, 0)};
        uint64_t sum = 0;
        for (int i = 0; i < k; i++)
            sum += take_position(both[i % 2 == 0]);
        for (int i = 0; i < 2; i++)
            if (stager_state(both[i], states[i], sizeof(states[i])) < 0)
                FAIL("stager_state: %s", stager_error_text(both[i]));
        const char *texts[] = {states[1], states[0]};
        CHECK_INT(stager_merge_states(texts, 1, merged, sizeof(merged)),
                  -STAGER_FAILED_PRECONDITION);
        CHECK_CONTAINS(stager_error_text(NULL), "consumer 1 of 2 is missing");
        CHECK_INT(stager_merge_states(texts, 2, merged, 100), -STAGER_INVALID_ARGUMENT);
        CHECK_INT(stager_merge_states((const char *const[]){states[0], NULL}, 2, merged,
                                      sizeof(merged)),
                  -STAGER_INVALID_ARGUMENT);
        CHECK_INT(stager_merge_states(texts, 2, merged, sizeof(merged)), 0);
        stager_close(both[0]);
        stager_close(both[1]);
        struct stager_stream *stream = open_at(&fixture, merged, 0, 0);
        for (int i = k; i < N; i++)
            sum += take_position(stream);
        CHECK_INT(sum, N * (N + 1) / 2);
        fixture_expect_code(stream, STAGER_OUT_OF_RANGE, "end of pass");
        stager_close(stream);
    }
    fixture_finish(&fixture);
}

static struct stager_stream *open_named(struct fixture *fixture, const char *id,
                                        const char *state, int want)
{
    struct stager_options options = {.struct_size = sizeof(options),
                                     .runtime_dir = fixture->runtime,
                                     .client_id = id,
                                     .state = state};
    struct stager_stream *stream = NULL;
    CHECK_INT(stager_open(NULL, "p", &options, &stream), want);
    return stream;
}

/* Of a broadcast: also twice, and until the pipeline is deleted. */
static void clients_at_earlier_states_have_runs_of_their_own(void)
{
    enum { N = 40, AHEAD = 20 };
    struct fixture fixture;
    static char state[STAGER_STATE_BYTES];
    struct stager_stream *clients[3];
    fixture_start(&fixture, "");
    fixture_apply_range(&fixture, N, "delivery: broadcast, num_clients: 3, capacity: 2");
    for (int c = 0; c < 3; c++)
        clients[c] = open_named(&fixture, (const char *[]){"a", "b", "c"}[c], NULL, 0);
    for (int i = 0; i < 4; i++) {
        for (int c = 0; c < 3; c++)
            fixture_expect_value(clients[c], i);
        if (i == 0)
            CHECK_INT(stager_state(clients[0], state, sizeof(state)), 0);
    }
    for (int c = 1; c < 3; c++) {
        stager_close(clients[c]);
        clients[c] = open_named(&fixture, c == 1 ? "b" : "c", state, 0);
        fixture_expect_value(clients[c], 1);
    }
    for (int i = 4; i <= AHEAD; i++)
        fixture_expect_value(clients[0], i);
    open_named(&fixture, "c", state, -STAGER_ALREADY_EXISTS);
    CHECK_CONTAINS(stager_error_text(NULL), "in a run of its own: c (pid ");
    for (int i = 2; i < N; i++)
        fixture_expect_value(clients[1], i);
    fixture_expect_code(clients[1], STAGER_OUT_OF_RANGE, "end of pass");
    fixture_expect_value(clients[2], 2);
    fixture_expect_value(clients[0], AHEAD + 1);
    stager_close(clients[1]);
    struct stg_reply reply;
    stager_disconnect(fixture_ask(&fixture, STG_REQUEST_DELETE, "p", &reply));
    struct stager_batch *batch;
    int rc;
    for (int c = 0; c < 3; c += 2) {
        while ((rc = stager_next(clients[c], 20000, &batch)) == 0)
            stager_release(batch);
        CHECK_INT(rc, -STAGER_ABORTED);
        CHECK_CONTAINS(stager_error_text(clients[c]), "the pipeline was deleted");
        stager_close(clients[c]);
    }
    fixture_finish(&fixture);
}

static const struct stg_test tests[] = {
    TEST(a_stream_goes_on_at_every_state_of_another),
    TEST(a_rank_gets_its_batch_whatever_the_order_of_joining),
    TEST(a_commit_is_where_a_stream_resumes),
    TEST(a_commit_needs_a_stream_and_the_list_a_right),
    TEST(a_stream_has_one_commit_at_a_time_at_the_disk),
    TEST(clients_of_a_split_go_on_at_their_merged_states),
    TEST(clients_at_earlier_states_have_runs_of_their_own),
};

TEST_MAIN(tests)
