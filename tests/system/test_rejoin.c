/* SPDX-License-Identifier: Apache-2.0
 *
 * A client that left and reconnects under its name resumes at its position. Also the
 * conditions under which a stage lives on.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/system/fixture.h"

/* Takes and releases `arg` items, reports that, takes one more, reports it, and waits to
 * die. */
static void victim_body(struct fixture *fixture, int fd, void *arg)
{
    struct stager_stream *stream = fixture_open(fixture, "p", "victim", 2);
    trainer_send(fd, 1);
    for (int64_t i = 0; i < *(const int *)arg; i++)
        fixture_expect_value(stream, i);
    fixture_take(stream);
    trainer_send(fd, 2);
    trainer_recv(fd);
}

static bool victim_has(const struct fixture_status *status, void *arg)
{
    for (uint32_t i = 0; i < status->n_clients; i++) {
        if (strcmp(status->clients[i].client_id, "victim") == 0)
            return status->clients[i].assigned == *(const uint64_t *)arg;
    }
    return false;
}

/* Waits until the daemon has assigned it one item more than it took. */
static void kill_victim(struct fixture *fixture, struct trainer *victim)
{
    uint64_t n = 4;
    CHECK_INT(trainer_recv(victim->fd), 2);
    fixture_wait(fixture, "p", 10000, victim_has, &n);
    trainer_kill(victim);
}

static void start_victim(struct fixture *fixture, struct trainer *victim, int n)
{
    trainer_start(victim, victim_body, fixture, &n);
    CHECK_INT(trainer_recv(victim->fd), 1);
}

static void a_client_that_reconnects_to_a_broadcast_misses_nothing(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply_range(&fixture, 12, "num_clients: 2, delivery: broadcast, capacity: 3");
    struct trainer victim;
    start_victim(&fixture, &victim, 2);
    struct stager_stream *other = fixture_open(&fixture, "p", "other", 2);
    for (int i = 0; i < 3; i++)
        fixture_expect_value(other, i);
    kill_victim(&fixture, &victim);
    /* The victim was assigned 2 and 3; the buffer keeps 3 more for it. */
    for (int i = 3; i < 7; i++)
        fixture_expect_value(other, i);
    struct stager_batch *batch;
    CHECK_INT(stager_next(other, 100, &batch), -STAGER_DEADLINE_EXCEEDED);
    struct fixture_status status = fixture_balance(&fixture);
    CHECK_INT(status.n_away, 1);
    CHECK_INT(status.buffered, 3);
    for (uint32_t i = 0; i < status.n_clients; i++) {
        if (strcmp(status.clients[i].state, "away") == 0)
            CHECK_INT(status.clients[i].taken, 3);
    }
    struct stager_stream *again = fixture_open(&fixture, "p", "victim", 2);
    for (int i = 2; i < 12; i++) {
        CHECK_INT(fixture_expect_value(again, i), i < 4);
        if (i >= 7)
            fixture_expect_value(other, i);
    }
    fixture_expect_code(again, STAGER_OUT_OF_RANGE, "end of pass");
    fixture_expect_code(other, STAGER_OUT_OF_RANGE, "end of pass");
    status = fixture_balance(&fixture);
    CHECK_INT(status.redelivered, 2);
    CHECK_INT(status.lost, 0);
    CHECK_INT(status.acknowledged, 12);
    for (uint32_t i = 0; i < status.n_clients; i++) {
        bool back = strcmp(status.clients[i].client_id, "victim") == 0;
        CHECK_INT(status.clients[i].acknowledged, 12);
        CHECK_INT(status.clients[i].redelivered, back ? 2 : 0);
        CHECK_INT(status.clients[i].taken, back ? 13 : 12); /* one of them twice */
        CHECK_INT(status.clients[i].assigned, back ? 14 : 12);
    }
    stager_close(other);
    stager_close(again);
    fixture_finish(&fixture);
}

static void without_redeliver_what_was_not_acknowledged_is_lost(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply_range(
        &fixture, 12,
        "num_clients: 1, delivery: broadcast, capacity: 3, redeliver: false");
    struct trainer victim;
    start_victim(&fixture, &victim, 2);
    kill_victim(&fixture, &victim);
    struct stager_stream *again = fixture_open(&fixture, "p", "victim", 2);
    for (int i = 4; i < 12; i++)
        CHECK(!fixture_expect_value(again, i));
    fixture_expect_code(again, STAGER_OUT_OF_RANGE, "end of pass");
    struct fixture_status status = fixture_balance(&fixture);
    CHECK_INT(status.lost, 2);
    CHECK_INT(status.clients[0].lost, 2);
    CHECK_INT(status.acknowledged, 10);
    stager_close(again);
    fixture_finish(&fixture);
}

static void a_broadcast_continues_without_a_client_that_does_not_reconnect(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply_range(
        &fixture, 12,
        "num_clients: 2, delivery: broadcast, capacity: 3, reconnect_grace_millis: 300");
    struct trainer victim;
    start_victim(&fixture, &victim, 2);
    struct stager_stream *other = fixture_open(&fixture, "p", "other", 2);
    for (int i = 0; i < 4; i++)
        fixture_expect_value(other, i);
    kill_victim(&fixture, &victim);
    for (int i = 4; i < 12; i++)
        fixture_expect_value(other, i);
    fixture_expect_code(other, STAGER_OUT_OF_RANGE, "end of pass");
    struct fixture_status status = fixture_balance(&fixture);
    CHECK_INT(status.evicted, 1);
    CHECK_INT(status.n_gone, 1);
    CHECK_STR(status.clients[1].state, "gone");
    CHECK_CONTAINS(status.clients[1].last_error, "reconnect_grace_millis 300");
    CHECK_INT(status.clients[1].lost, 2);
    stager_close(other);
    fixture_finish(&fixture);
}

static void the_place_of_a_client_that_may_reconnect_is_kept(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply_range(&fixture, 12, "num_clients: 2, delivery: broadcast");
    struct trainer victim;
    start_victim(&fixture, &victim, 2);
    struct stager_stream *other = fixture_open(&fixture, "p", "other", 2), *third;
    for (int i = 0; i < 4; i++)
        fixture_expect_value(other, i);
    kill_victim(&fixture, &victim);
    struct stager_options options = {.struct_size = sizeof(options),
                                     .client_id = "third",
                                     .runtime_dir = fixture.runtime};
    CHECK_INT(stager_open(NULL, "p", &options, &third), -STAGER_RESOURCE_EXHAUSTED);
    CHECK_CONTAINS(stager_error_text(NULL), "victim (its place is reserved for ");
    CHECK_CONTAINS(stager_error_text(NULL), "reconnect_grace_millis");
    stager_close(other);
    fixture_finish(&fixture);
}

static void a_name_that_is_attached_is_refused(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply_range(&fixture, 12, "num_clients: 3");
    struct stager_stream *a = fixture_open(&fixture, "p", "a", 2), *b;
    struct stager_options options = {
        .struct_size = sizeof(options), .client_id = "a", .runtime_dir = fixture.runtime};
    char pid[32];
    snprintf(pid, sizeof(pid), "pid %d", (int)getpid());
    CHECK_INT(stager_open(NULL, "p", &options, &b), -STAGER_ALREADY_EXISTS);
    CHECK_CONTAINS(stager_error_text(NULL), pid);
    options.client_id = NULL; /* generated names may be equal */
    CHECK_INT(stager_open(NULL, "p", &options, &b), 0);
    struct stager_stream *c;
    CHECK_INT(stager_open(NULL, "p", &options, &c), 0);
    stager_close(a);
    stager_close(b);
    stager_close(c);
    fixture_finish(&fixture);
}

static void a_client_id_is_taken_whole_or_refused(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply_range(&fixture, 12, "num_clients: 3");
    char names[2][129];
    for (int i = 0; i < 2; i++) {
        memset(names[i], 'n', 128);
        names[i][128] = '\0';
        names[i][126] = (char)('0' + i);
    }
    struct stager_options options = {.struct_size = sizeof(options),
                                     .client_id = names[0],
                                     .runtime_dir = fixture.runtime};
    struct stager_stream *refused, *streams[2];
    CHECK_INT(stager_open(NULL, "p", &options, &refused), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(stager_error_text(NULL),
                   "client_id has 128 bytes; the maximum is 127");
    for (int i = 0; i < 2; i++) {
        names[i][127] = '\0'; /* they differ in the last byte */
        streams[i] = fixture_open(&fixture, "p", names[i], 2);
    }
    stager_close(streams[0]);
    stager_close(streams[1]);
    fixture_finish(&fixture);
}

static void a_split_pass_waits_for_the_last_one_that_left(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply_range(&fixture, 12, "capacity: 3");
    struct trainer victim;
    start_victim(&fixture, &victim, 2);
    kill_victim(&fixture, &victim);
    struct fixture_status status = fixture_balance(&fixture);
    CHECK_INT(status.n_away, 1);
    CHECK_INT(status.n_attached, 0);
    CHECK_STR(status.state, "running");
    struct stager_options options = {.struct_size = sizeof(options),
                                     .runtime_dir = fixture.runtime};
    struct stager_stream *unnamed;
    CHECK_INT(stager_open(NULL, "p", &options, &unnamed), 0);
    for (int i = 2; i < 12; i++)
        CHECK_INT(fixture_expect_value(unnamed, i), i < 4);
    fixture_expect_code(unnamed, STAGER_OUT_OF_RANGE, "end of pass");
    status = fixture_balance(&fixture);
    CHECK_INT(status.redelivered, 2);
    CHECK_INT(status.acknowledged, 12);
    stager_close(unnamed);
    fixture_finish(&fixture);
}

static bool is_idle(const struct fixture_status *status, void *arg)
{
    return strcmp(status->state, "idle") == 0;
}

static void a_client_that_left_after_the_end_keeps_nothing_alive(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply_range(&fixture, 3, "");
    struct stager_stream *a = fixture_open(&fixture, "p", "a", 2);
    for (int i = 0; i < 3; i++)
        fixture_expect_value(a, i);
    fixture_expect_code(a, STAGER_OUT_OF_RANGE, "end of pass");
    stager_close(a);
    fixture_wait(&fixture, "p", 10000, is_idle, NULL);
    struct fixture_status status = fixture_balance(&fixture);
    CHECK_INT(status.acknowledged, 3);
    CHECK_INT(status.n_gone, 1);
    CHECK_CONTAINS(status.clients[0].last_error, "end of its pass");
    fixture_finish(&fixture);
}

static void a_client_past_its_reconnect_grace_ends_the_stage(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply_range(&fixture, 12, "capacity: 3, reconnect_grace_millis: 200");
    struct stager_stream *a = fixture_open(&fixture, "p", "a", 2);
    fixture_expect_value(a, 0);
    stager_close(a);
    fixture_wait(&fixture, "p", 10000, is_idle, NULL);
    struct fixture_status status = fixture_balance(&fixture);
    CHECK_INT(status.buffered, 0);
    CHECK(status.discarded_published > 0);
    CHECK_INT(status.acknowledged + status.discarded_published, status.published);
    a = fixture_open(&fixture, "p", "a", 2);
    fixture_expect_value(a, 0); /* a pass from its start */
    stager_close(a);
    fixture_finish(&fixture);
}

static bool is_full(const struct fixture_status *status, void *arg)
{
    return status->buffered >= 5 && status->n_attached == 0;
}

static void a_warm_stage_fills_its_buffer_and_waits(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply_range(&fixture, 40, "capacity: 5, keep_warm: true");
    struct stager_options options = {.struct_size = sizeof(options),
                                     .runtime_dir = fixture.runtime};
    for (int i = 0; i < 12; i += 3) {
        struct stager_stream *a;
        CHECK_INT(stager_open(NULL, "p", &options, &a), 0);
        for (int k = i; k < i + 3; k++)
            fixture_expect_value(a, k);
        stager_close(a);
        if (i == 3)
            fixture_wait(&fixture, "p", 10000, is_full, NULL);
        fixture_balance(&fixture);
    }
    fixture_finish(&fixture);
}

static void a_warm_stage_that_failed_is_made_anew(void)
{
    struct fixture fixture;
    char path[256], yaml[512];
    fixture_start(&fixture, "");
    fixture_numbers(&fixture, "late.csv", 0, 2, path);
    CHECK_INT(unlink(path), 0);
    snprintf(yaml, sizeof(yaml),
             "name: p\ndataset:\n  - files: {pattern: [%s]}\n  - text_line: {}\n"
             "staged: {max_batch_bytes: 64KiB, keep_warm: true}\n",
             path);
    fixture_apply(&fixture, yaml);
    struct stager_stream *stream = fixture_open(&fixture, "p", "a", 2);
    fixture_expect_code(stream, STAGER_NOT_FOUND, "late.csv");
    stager_close(stream);
    fixture_numbers(&fixture, "late.csv", 0, 2, path);
    stream = fixture_open(&fixture, "p", "a", 2);
    stager_release(fixture_take(stream));
    stager_close(stream);
    fixture_finish(&fixture);
}

static void a_private_run_ends_with_its_client(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "memory_budget: 160000000\n"); /* for one run */
    fixture_apply_range(&fixture, 12, "keep_warm: true");
    struct stager_options options = {.struct_size = sizeof(options),
                                     .runtime_dir = fixture.runtime,
                                     .client_id = "cat",
                                     .private_run = 1};
    for (int i = 0; i < 3; i++) {
        struct stager_stream *cat;
        CHECK_INT(stager_open(NULL, "p", &options, &cat), 0);
        fixture_expect_value(cat, 0);
        stager_close(cat);
    }
    fixture_finish(&fixture);
}

static const struct stg_test tests[] = {
    TEST(a_client_that_reconnects_to_a_broadcast_misses_nothing),
    TEST(without_redeliver_what_was_not_acknowledged_is_lost),
    TEST(a_broadcast_continues_without_a_client_that_does_not_reconnect),
    TEST(the_place_of_a_client_that_may_reconnect_is_kept),
    TEST(a_name_that_is_attached_is_refused),
    TEST(a_client_id_is_taken_whole_or_refused),
    TEST(a_split_pass_waits_for_the_last_one_that_left),
    TEST(a_client_that_left_after_the_end_keeps_nothing_alive),
    TEST(a_client_past_its_reconnect_grace_ends_the_stage),
    TEST(a_warm_stage_fills_its_buffer_and_waits),
    TEST(a_warm_stage_that_failed_is_made_anew),
    TEST(a_private_run_ends_with_its_client),
};

TEST_MAIN(tests)
