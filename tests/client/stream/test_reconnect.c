/* SPDX-License-Identifier: Apache-2.0
 *
 * A stagerd that ends, and is started again in the same folder: the stream goes on.
 */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/api/close.h"
#include "client/stream/stream.h"
#include "tests/check.h"
#include "tests/client/fake.h"
#include "tests/client/rows.h"

/* ---- a stagerd with places, and the one after it ---- */

static struct stg_pipeline_spec split_of(uint32_t n)
{
    return (struct stg_pipeline_spec){
        .name = "fake", .staged = {.delivery = STG_DELIVERY_SPLIT, .num_clients = n}};
}

static void start(struct fake *fake)
{
    fake_start(fake);
    fake->rejoin = (struct stg_rejoin){.run = 11, .member = 12, .attempt = 3};
    fake->signature = "fake:1";
    fake->begins_pass = 1;
}

static struct stager_stream *start_and_open(struct fake *fake,
                                            const struct stager_options *options)
{
    start(fake);
    return fake_open(fake, options);
}

/* What is set in `ret` before stays. */
static void start_again(struct fake *ret, const struct fake *before)
{
    memcpy(ret->dir, before->dir, sizeof(ret->dir));
    fake_start(ret);
    ret->rejoin = (struct stg_rejoin){.run = 21, .member = 22, .attempt = 4};
    ret->signature = "fake:1";
    ret->max_in_flight = before->max_in_flight;
}

static void restart(struct fake *ret, struct fake *before)
{
    fake_die(before);
    start_again(ret, before);
}

/* Item `number` of the pass, of `rows` elements. */
static void publish(struct fake *fake, uint64_t pass, uint64_t number, uint64_t rows)
{
    struct stg_stream_place from = {
        .pass = pass, .place = {.items = number, .elements = number * rows}};
    fake_publish_from(fake, (uint32_t)(number % FAKE_SLOTS), number, &from,
                      (int64_t)(100 * number), (int64_t)rows);
}

static void stop_both(struct fake *before, struct fake *fake,
                      struct stager_stream *stream)
{
    fake_hang_up(fake);
    stager_close(stream);
    fake_stop(fake);
    fake_stop(before);
}

/* ---- the trainer ---- */

/* Polls until something else than a missed deadline comes, as Python does. */
static int poll_next(struct stager_stream *stream, struct stager_batch **ret)
{
    int64_t end_ns = stg_clock_ns() + INT64_C(10000000000);
    int rc;
    while ((rc = stager_next(stream, 0, ret)) == -STAGER_DEADLINE_EXCEEDED) {
        struct pollfd poll_fd = {.fd = stager_pollfd(stream), .events = POLLIN};
        CHECK(poll_fd.fd >= 0);
        CHECK(poll(&poll_fd, 1, 1000) >= 0);
        CHECK(stg_clock_ns() < end_ns);
    }
    return rc;
}

static struct stager_batch *poll_batch(struct stager_stream *stream)
{
    struct stager_batch *batch;
    int rc = poll_next(stream, &batch);
    if (rc < 0)
        FAIL("stager_next: %s", stager_error_text(stream));
    return batch;
}

/* Reconnects the stream to `fake`, which is listening, and takes the next batch. */
static struct stager_batch *next_of(struct fake *fake, struct stager_stream *stream)
{
    fake_serve(fake);
    struct stager_batch *batch = poll_batch(stream);
    fake_join(fake);
    return batch;
}

static struct stager_stream_info info_of(const struct stager_stream *stream)
{
    struct stager_stream_info info = {.struct_size = sizeof(info)};
    CHECK_INT(stager_stream_info(stream, &info), 0);
    return info;
}

static struct stg_state state_sent(const struct fake *fake)
{
    struct stg_state state;
    struct stg_err err = {0};
    CHECK_OK(stg_state_read(fake->opened_state, strlen(fake->opened_state), &state, &err),
             err);
    return state;
}

/* ---- what a trainer sees ---- */

static void the_next_batch_comes_from_a_stagerd_that_was_started_again(void)
{
    struct fake before = {0}, fake = {0};
    struct stager_stream *stream = start_and_open(&before, NULL);
    publish(&before, 0, 0, 2);
    publish(&before, 0, 1, 2);
    struct stager_batch *first = fake_take(stream);
    fake_die(&before);
    struct stager_batch *second = fake_take(stream); /* it was in the ring */
    stager_release(first);
    CHECK_INT(fake_next_code(stream), -STAGER_DEADLINE_EXCEEDED);
    CHECK_CONTAINS(stager_error_text(stream), "stagerd has ended");
    CHECK_CONTAINS(stager_error_text(stream), "ms of daemon_reconnect_millis left");
    CHECK_INT(info_of(stream).finished, 0);

    start_again(&fake, &before);
    publish(&fake, 0, 2, 2);
    struct stager_batch *third = next_of(&fake, stream);
    CHECK_INT(fake_first_value(third), 200);
    CHECK_INT(fake_first_value(second), 100);
    CHECK_INT(fake.opened.rejoin.run, 11);
    CHECK_INT(fake.opened.rejoin.member, 12);
    CHECK_INT(fake.opened.rejoin.attempt, 3);
    CHECK_STR(fake.client_id, before.client_id);
    CHECK_INT(state_sent(&fake).place.items, 2);
    CHECK_INT(state_sent(&fake).place.elements, 4);

    struct stager_stream_info info = info_of(stream);
    CHECK_INT(info.reconnects, 1);
    CHECK(info.reconnect_ns > 0);
    CHECK_INT(info.batches, 3);
    CHECK_INT(info.held, 2);
    stager_release(second);
    CHECK_INT(info_of(stream).held, 1);
    CHECK_INT(fake_releases(&before), 2);
    CHECK_INT(fake_releases(&fake), 0);
    stager_release(third);
    CHECK_INT(fake_releases(&fake), 1);
    stop_both(&before, &fake, stream);
}

static void a_stream_goes_on_after_each_of_many_stagerds(void)
{
    enum { N = 5 };
    static struct fake fakes[N];
    struct stager_batch *held[N];
    struct stager_stream *stream = start_and_open(&fakes[0], NULL);
    publish(&fakes[0], 0, 0, 3);
    held[0] = fake_take(stream);
    for (uint64_t i = 1; i < N; i++) {
        restart(&fakes[i], &fakes[i - 1]);
        publish(&fakes[i], 0, i, 3);
        held[i] = next_of(&fakes[i], stream);
        CHECK_INT(state_sent(&fakes[i]).place.items, i);
        CHECK_INT(fakes[i].opened.rejoin.run, i == 1 ? 11 : 21);
    }
    CHECK_INT(info_of(stream).reconnects, N - 1);
    CHECK_INT(info_of(stream).held, N);
    for (uint64_t i = 0; i < N; i++)
        CHECK_INT(fake_first_value(held[i]), 100 * i);
    for (uint64_t i = 0; i < N; i++) /* the oldest one first */
        stager_release(held[i]);
    CHECK_INT(info_of(stream).held, 0);
    fake_hang_up(&fakes[N - 1]);
    stager_close(stream);
    for (uint64_t i = 0; i < N; i++)
        fake_stop(&fakes[i]);
}

/* The ring page says that stagerd stops; it is as good as dead. */
static void a_stagerd_that_stops_is_awaited(void)
{
    struct fake before = {0}, fake = {0};
    struct stager_stream *stream = start_and_open(&before, NULL);
    publish(&before, 0, 0, 2);
    stg_ring_finish(&before.ring, STAGER_UNAVAILABLE,
                    STG_FINAL_STOPPED ": open the stream again when it runs");
    fake_die(&before);
    stager_release(fake_take(stream));
    CHECK_INT(fake_next_code(stream), -STAGER_DEADLINE_EXCEEDED);
    start_again(&fake, &before);
    publish(&fake, 0, 1, 2);
    stager_release(next_of(&fake, stream));
    stop_both(&before, &fake, stream);
}

static void a_pipeline_that_failed_with_the_same_code_is_over(void)
{
    struct fake fake = {0};
    struct stager_stream *stream = start_and_open(&fake, NULL);
    stg_ring_finish(&fake.ring, STAGER_UNAVAILABLE, "http://x/a: status 503");
    for (int i = 0; i < 2; i++) {
        CHECK_INT(fake_next_code(stream), -STAGER_UNAVAILABLE);
        CHECK_STR(stager_error_text(stream), "http://x/a: status 503");
    }
    CHECK_INT(info_of(stream).finished, 1);
    fake_finish(&fake, stream);
}

static void a_blocked_next_wakes_with_the_next_batch(void)
{
    struct fake before = {0}, fake = {0};
    struct stager_stream *stream = start_and_open(&before, NULL);
    restart(&fake, &before);
    publish(&fake, 0, 0, 2);
    fake_serve(&fake);
    struct stager_batch *batch;
    CHECK_INT(stager_next(stream, -1, &batch), 0);
    fake_join(&fake);
    CHECK_INT(fake_first_value(batch), 0);
    CHECK_INT(state_sent(&fake).place.items, 0);
    stager_release(batch);
    stop_both(&before, &fake, stream);
}

/* It began in the middle of a pass, and has no batch yet. */
static void a_stream_that_has_nothing_sends_no_state(void)
{
    struct fake before = {0}, fake = {0};
    start(&before);
    before.begins_pass = 0;
    struct stager_stream *stream = fake_open(&before, NULL);
    restart(&fake, &before);
    publish(&fake, 0, 7, 2);
    stager_release(next_of(&fake, stream));
    CHECK_STR(fake.opened_state, "");
    CHECK_INT(fake.opened.rejoin.member, 12);
    stop_both(&before, &fake, stream);
}

static void the_options_of_the_first_open_are_sent_again(void)
{
    struct fake before = {0}, fake = {0};
    char name[] = "rank-1", field[] = "x";
    const char *fields[] = {field};
    struct stager_options options = {.struct_size = sizeof(options),
                                     .client_id = name,
                                     .max_in_flight = 2,
                                     .manual_ack = 1,
                                     .fields = fields,
                                     .n_fields = 1,
                                     .rank = 1,
                                     .world_size = 2,
                                     .resume = "start"};
    struct stager_stream *stream = start_and_open(&before, &options);
    memset(name, 'z', sizeof(name) - 1); /* the caller's again */
    memset(field, 'z', sizeof(field) - 1);
    fields[0] = NULL;
    restart(&fake, &before);
    publish(&fake, 0, 0, 2);
    stager_release(next_of(&fake, stream));
    CHECK_STR(fake.client_id, "rank-1");
    CHECK(fake.opened.named && fake.opened.manual_ack && fake.opened.has_fields);
    CHECK_INT(fake.opened.n_fields, 1);
    CHECK_INT(fake.opened.rank, 1);
    CHECK_INT(fake.opened.world_size, 2);
    CHECK(fake.opened.resume == NULL);
    stop_both(&before, &fake, stream);
}

/* ---- when it does not come back, or refuses ---- */

static void a_deadline_of_next_is_kept_while_stagerd_is_away(void)
{
    struct fake fake = {0};
    struct stager_stream *stream = start_and_open(&fake, NULL);
    fake_die(&fake);
    struct stager_batch *batch;
    int64_t begin_ns = stg_clock_ns();
    for (int i = 0; i < 2; i++)
        CHECK_INT(stager_next(stream, 60, &batch), -STAGER_DEADLINE_EXCEEDED);
    CHECK(stg_clock_ns() - begin_ns >= 120000000);
    CHECK(info_of(stream).wait_ns >= 100000000);
    stager_close(stream);
    fake_stop(&fake);
}

static void a_stagerd_that_stays_away_is_unavailable_after_the_limit(void)
{
    struct fake fake = {0};
    struct stager_options options = {.struct_size = sizeof(options),
                                     .daemon_reconnect_millis = 40};
    struct stager_stream *stream = start_and_open(&fake, &options);
    publish(&fake, 0, 0, 2);
    struct stager_batch *held = fake_take(stream), *batch;
    fake_die(&fake);
    CHECK_INT(stager_next(stream, -1, &batch), -STAGER_UNAVAILABLE);
    CHECK_CONTAINS(stager_error_text(stream), "did not come back within 40 ms");
    CHECK_INT(fake_next_code(stream), -STAGER_UNAVAILABLE);
    CHECK_CONTAINS(stager_error_text(stream), "within 40 ms");
    CHECK_INT(info_of(stream).finished, 1);
    CHECK_INT(stager_rewind(stream), -STAGER_UNAVAILABLE);
    char state[STAGER_STATE_BYTES];
    CHECK_INT(stager_state(stream, state, sizeof(state)), 0);
    CHECK_INT(stager_commit(stream, state, "a"), -STAGER_UNAVAILABLE);
    CHECK_CONTAINS(stager_error_text(stream), "within 40 ms");
    CHECK_INT(fake_first_value(held), 0);
    stager_release(held);
    stager_close(stream);
    fake_stop(&fake);
}

/* With the option, or with a stagerd that takes no stream up. */
static void a_stream_that_does_not_reconnect_is_unavailable_at_once(void)
{
    for (int i = 0; i < 3; i++) {
        struct fake fake = {0};
        start(&fake);
        struct stager_options options = {.struct_size = sizeof(options),
                                         .daemon_reconnect_millis =
                                             i == 0 ? STAGER_NEVER : 0};
        if (i > 0)
            fake.rejoin.member = 0;
        fake.irreproducible = i == 2 ? "deterministic: false" : NULL;
        struct stager_stream *stream = fake_open(&fake, &options);
        fake_die(&fake);
        CHECK_INT(fake_next_code(stream), -STAGER_UNAVAILABLE);
        CHECK_CONTAINS(stager_error_text(stream), "stagerd closed the connection");
        if (i == 2)
            CHECK_CONTAINS(stager_error_text(stream),
                           "are not the same in every run: deterministic: false");
        CHECK_INT(info_of(stream).reconnects, 0);
        stager_close(stream);
        fake_stop(&fake);
    }
}

static void a_stagerd_that_is_unavailable_is_asked_again(void)
{
    struct fake before = {0}, fake = {0};
    struct stager_stream *stream = start_and_open(&before, NULL);
    restart(&fake, &before);
    fake.open_code = -STAGER_UNAVAILABLE;
    fake.text = "try again";
    for (int i = 0; i < 3; i++) {
        fake_serve(&fake);
        while (info_of(stream).reconnect_ns == 0 || stream->reconnect->why[0] == '\0')
            CHECK_INT(fake_next_code(stream), -STAGER_DEADLINE_EXCEEDED);
        CHECK_CONTAINS(stager_error_text(stream), "try again");
        stream->reconnect->why[0] = '\0';
        fake_join(&fake);
        fake_hang_up(&fake);
    }
    fake.open_code = 0;
    publish(&fake, 0, 0, 2);
    stager_release(next_of(&fake, stream));
    CHECK_INT(info_of(stream).reconnects, 1);
    stop_both(&before, &fake, stream);
}

static void a_stagerd_that_refuses_ends_the_stream_with_its_reason(void)
{
    static const int codes[] = {STAGER_ABORTED, STAGER_FAILED_PRECONDITION,
                                STAGER_NOT_FOUND};
    for (size_t i = 0; i < 3; i++) {
        struct fake before = {0}, fake = {0};
        struct stager_stream *stream = start_and_open(&before, NULL);
        publish(&before, 0, 0, 2);
        struct stager_batch *held = fake_take(stream), *batch;
        restart(&fake, &before);
        fake.open_code = -codes[i];
        fake.text = "rank 1 (pid 7) did not reconnect";
        fake_serve(&fake);
        CHECK_INT(poll_next(stream, &batch), -codes[i]);
        fake_join(&fake);
        for (int k = 0; k < 2; k++) {
            CHECK_INT(fake_next_code(stream), -codes[i]);
            CHECK_STR(stager_error_text(stream), fake.text);
        }
        CHECK_INT(info_of(stream).finished, 1);
        CHECK_INT(fake_first_value(held), 0);
        stager_release(held);
        stop_both(&before, &fake, stream);
    }
}

static void a_join_that_fails_ends_the_stream(void)
{
    struct fake before = {0}, fake = {0};
    struct stager_stream *stream = start_and_open(&before, NULL);
    restart(&fake, &before);
    fake.join_code = -STAGER_ABORTED;
    fake.text = "the run ended";
    fake_serve(&fake);
    struct stager_batch *batch;
    CHECK_INT(poll_next(stream, &batch), -STAGER_ABORTED);
    CHECK_STR(stager_error_text(stream), "the run ended");
    fake_join(&fake);
    stop_both(&before, &fake, stream);
}

/* It gets a run of its own, which is in no record. */
static void a_client_that_comes_late_joins_its_run(void)
{
    struct fake before = {0}, fake = {0};
    struct stager_stream *stream = start_and_open(&before, NULL);
    restart(&fake, &before);
    fake.rejoin.member = 0;
    publish(&fake, 0, 0, 2);
    stager_release(next_of(&fake, stream));
    stop_both(&before, &fake, stream);
}

static void an_older_stagerd_is_refused(void)
{
    struct fake before = {0}, fake = {0};
    struct stager_stream *stream = start_and_open(&before, NULL);
    restart(&fake, &before);
    fake.version = STG_PROTOCOL_RECONNECT - 1;
    fake_serve(&fake);
    struct stager_batch *batch;
    CHECK_INT(poll_next(stream, &batch), -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(stager_error_text(stream), "takes up no streams");
    fake_join(&fake);
    stop_both(&before, &fake, stream);
}

/* The second one dies before it has answered the open. */
static void a_stagerd_that_ends_again_before_it_answers_is_awaited(void)
{
    struct fake before = {0}, middle = {0}, fake = {0};
    struct stager_stream *stream = start_and_open(&before, NULL);
    publish(&before, 0, 0, 2);
    stager_release(fake_take(stream));
    restart(&middle, &before);
    middle.stays_silent = true;
    fake_serve(&middle);
    while (middle.n_opened == 0)
        CHECK_INT(fake_next_code(stream), -STAGER_DEADLINE_EXCEEDED);
    fake_join(&middle);
    fake_die(&middle);
    start_again(&fake, &before);
    publish(&fake, 0, 1, 2);
    stager_release(next_of(&fake, stream));
    CHECK_INT(fake.opened.rejoin.run, 11); /* of the last open that was granted */
    fake_stop(&middle);
    stop_both(&before, &fake, stream);
}

/* ---- ends of passes ---- */

static void a_stream_at_the_end_of_its_pass_reconnects_after_rewind(void)
{
    struct fake before = {0}, fake = {0};
    struct stager_stream *stream = start_and_open(&before, NULL);
    publish(&before, 0, 0, 2);
    fake_publish_end(&before, 0);
    stager_release(fake_take(stream));
    CHECK_INT(fake_next_code(stream), -STAGER_OUT_OF_RANGE);
    fake_die(&before);
    CHECK_INT(fake_next_code(stream), -STAGER_OUT_OF_RANGE);
    CHECK_INT(info_of(stream).at_end, 1);
    CHECK_INT(stager_rewind(stream), 0);
    CHECK_INT(fake_next_code(stream), -STAGER_DEADLINE_EXCEEDED);
    start_again(&fake, &before);
    publish(&fake, 1, 0, 2);
    stager_release(next_of(&fake, stream));
    CHECK_INT(state_sent(&fake).pass, 1);
    CHECK_INT(state_sent(&fake).place.items, 0);
    CHECK_INT(info_of(stream).at_end, 0);
    stop_both(&before, &fake, stream);
}

/* ---- commits ---- */

/* Takes a commit on a connection that has no stream. */
static void *serve_commit(void *owner)
{
    struct fake *fake = owner;
    fake_accept(fake);
    fake_reply(fake, STG_REQUEST_COMMIT, fake->open_code, fake->text);
    return NULL;
}

/* Commits the state of the stream at `fake`; returns the code. */
static int commit(struct fake *fake, struct stager_stream *stream)
{
    char state[STAGER_STATE_BYTES];
    pthread_t thread;
    CHECK_INT(stager_state(stream, state, sizeof(state)), 0);
    CHECK(pthread_create(&thread, NULL, serve_commit, fake) == 0);
    int rc = stager_commit(stream, state, "a");
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_STR(fake->opened_state, state);
    fake_hang_up(fake);
    return rc;
}

/* The run waits for all clients, and they may wait for the commit. */
static void a_commit_does_not_wait_for_the_run(void)
{
    struct fake before = {0}, fake = {0};
    struct stager_options options = {.struct_size = sizeof(options), .client_id = "a"};
    struct stager_stream *stream = start_and_open(&before, &options);
    publish(&before, 0, 0, 2);
    publish(&before, 0, 1, 2);
    stager_release(fake_take(stream));
    restart(&fake, &before);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(commit(&fake, stream), 0);
        CHECK_INT(state_sent(&fake).place.items, 1 + i);
        CHECK_INT(fake.opened.rejoin.run, 11);
        CHECK_INT(fake.opened.rejoin.member, 12);
        CHECK_INT(fake.opened.rejoin.attempt, 3);
        CHECK_STR(fake.client_id, "a");
        CHECK(fake.opened.named);
        CHECK_INT(info_of(stream).reconnects, 0);
        if (i == 0) { /* what is in the ring stays there */
            struct stager_batch *batch = fake_take(stream);
            CHECK_INT(fake_first_value(batch), 100);
            stager_release(batch);
        }
    }
    publish(&fake, 0, 2, 2);
    stager_release(next_of(&fake, stream));
    stop_both(&before, &fake, stream);
}

static void a_commit_that_is_refused_does_not_end_the_stream(void)
{
    struct fake before = {0}, fake = {0};
    struct stager_stream *stream = start_and_open(&before, NULL);
    publish(&before, 0, 0, 2);
    stager_release(fake_take(stream));
    fake_die(&before);
    CHECK_INT(fake_next_code(stream), -STAGER_DEADLINE_EXCEEDED);
    start_again(&fake, &before);
    fake.open_code = -STAGER_ALREADY_EXISTS;
    fake.text = "another state";
    CHECK_INT(commit(&fake, stream), -STAGER_ALREADY_EXISTS);
    CHECK_STR(stager_error_text(stream), "another state");
    fake.open_code = 0;
    publish(&fake, 0, 1, 2);
    stager_release(next_of(&fake, stream));
    stop_both(&before, &fake, stream);
}

static void a_commit_waits_for_stagerd_up_to_the_limit(void)
{
    struct fake fake = {0};
    struct stager_options options = {.struct_size = sizeof(options),
                                     .daemon_reconnect_millis = 40};
    struct stager_stream *stream = start_and_open(&fake, &options);
    char state[STAGER_STATE_BYTES];
    CHECK_INT(stager_state(stream, state, sizeof(state)), 0);
    fake_die(&fake);
    int64_t begin_ns = stg_clock_ns();
    CHECK_INT(stager_commit(stream, state, "a"), -STAGER_UNAVAILABLE);
    CHECK(stg_clock_ns() - begin_ns >= 40000000);
    CHECK_CONTAINS(stager_error_text(stream), "cannot reach stagerd");
    stager_close(stream);
    fake_stop(&fake);
}

static void a_commit_at_the_end_of_a_pass_leaves_the_stream_there(void)
{
    struct fake before = {0}, fake = {0};
    struct stager_stream *stream = start_and_open(&before, NULL);
    publish(&before, 0, 0, 2);
    fake_publish_end(&before, 0);
    stager_release(fake_take(stream));
    CHECK_INT(fake_next_code(stream), -STAGER_OUT_OF_RANGE);
    restart(&fake, &before);
    CHECK_INT(commit(&fake, stream), 0);
    CHECK_INT(state_sent(&fake).pass, 1);
    CHECK_INT(fake_next_code(stream), -STAGER_OUT_OF_RANGE);
    CHECK_INT(stager_rewind(stream), 0);
    publish(&fake, 1, 0, 2);
    stager_release(next_of(&fake, stream));
    CHECK_INT(state_sent(&fake).pass, 1);
    stop_both(&before, &fake, stream);
}

static void slices_that_are_left_come_before_the_reconnect(void)
{
    struct fake before = {0}, fake = {0};
    struct stager_options options = {.struct_size = sizeof(options), .batch_size = 2};
    struct stager_stream *stream = start_and_open(&before, &options);
    publish(&before, 0, 0, 6);
    struct stager_batch *slices[3];
    slices[0] = fake_take(stream);
    fake_die(&before);
    for (int i = 1; i < 3; i++)
        slices[i] = fake_take(stream);
    start_again(&fake, &before);
    publish(&fake, 0, 1, 6);
    stager_release(next_of(&fake, stream));
    CHECK_INT(state_sent(&fake).place.items, 1);
    CHECK_INT(state_sent(&fake).rows, 0);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(fake_first_value(slices[i]), 2 * i);
        stager_release(slices[i]);
    }
    CHECK_INT(fake_releases(&before), 1);
    stop_both(&before, &fake, stream);
}

/* ---- a split ---- */

static bool has_item(const char *text, uint64_t item)
{
    struct stg_taken set = {0};
    struct stg_err err = {0};
    CHECK_OK(stg_taken_read(text, &set, &err), err);
    struct stg_taken_walk walk = {.set = &set};
    bool has = stg_taken_seek(&walk, item) && walk.begin <= item;
    stg_taken_finish(&set);
    return has;
}

/* A state of one consumer goes to stagerd, and that of all comes back. */
static void a_client_of_a_split_goes_on_at_the_united_state(void)
{
    struct fake before = {0}, fake = {0};
    struct stg_pipeline_spec spec = split_of(2);
    start(&before);
    before.pipeline = fake.pipeline = &spec;
    stg_ring_share(&before.ring,
                   &(struct stg_sharing){.run = 11, .consumer = 2, .consumers = 2});
    struct stager_stream *stream = fake_open(&before, NULL);
    publish(&before, 0, 1, 2);
    publish(&before, 0, 3, 2);
    for (int i = 0; i < 2; i++)
        stager_release(fake_take(stream));
    fake_die(&before);

    char text[STG_STATE_TEXT_BYTES];
    struct stg_state all = {.steps = "fake:1",
                            .order = STG_ORDER_VERSION,
                            .consumers = 2,
                            .place = {.items = 4, .elements = 8}};
    stg_state_write(&all, text);
    fake.state = text;
    start_again(&fake, &before);
    stg_ring_share(&fake.ring,
                   &(struct stg_sharing){.run = 21, .consumer = 1, .consumers = 2});
    publish(&fake, 0, 5, 2);
    stager_release(next_of(&fake, stream));
    struct stg_state sent = state_sent(&fake);
    CHECK_INT(sent.consumer, 2);
    CHECK_INT(sent.run, 11);
    CHECK(has_item(sent.taken, 1) && has_item(sent.taken, 3));
    CHECK(!has_item(sent.taken, 0) && !has_item(sent.taken, 2));

    struct stg_state now;
    struct stg_err err = {0};
    CHECK_INT(stager_state(stream, text, sizeof(text)), 0);
    CHECK_OK(stg_state_read(text, strlen(text), &now, &err), err);
    CHECK_INT(now.run, 21);
    for (uint64_t i = 0; i < 4; i++)
        CHECK(has_item(now.taken, i));
    CHECK(!has_item(now.taken, 4) && has_item(now.taken, 5));
    stop_both(&before, &fake, stream);
}

/* stagerd died while it wrote the numbers of the consumers. */
static void a_split_goes_on_after_a_stagerd_that_died_while_it_wrote(void)
{
    struct fake before = {0}, fake = {0};
    struct stg_pipeline_spec spec = split_of(2);
    struct stg_sharing sharing = {.run = 11, .consumer = 1, .consumers = 2};
    start(&before);
    before.pipeline = fake.pipeline = &spec;
    stg_ring_share(&before.ring, &sharing);
    struct stager_stream *stream = fake_open(&before, NULL);
    publish(&before, 0, 0, 2);
    stager_release(fake_take(stream));
    atomic_fetch_add(&before.ring.page->shared, 1);
    fake_die(&before);
    char state[STAGER_STATE_BYTES];
    CHECK_INT(stager_state(stream, state, sizeof(state)), -STAGER_UNAVAILABLE);
    start_again(&fake, &before);
    stg_ring_share(&fake.ring, &sharing);
    publish(&fake, 0, 1, 2);
    stager_release(next_of(&fake, stream));
    CHECK(has_item(state_sent(&fake).taken, 0));
    CHECK_INT(state_sent(&fake).consumer, 1);
    stop_both(&before, &fake, stream);
}

/* The trainer has asked for pass 1 already; the new run ends pass 0 once more. */
static void the_end_of_a_pass_that_the_trainer_has_left_does_not_come_again(void)
{
    struct fake before = {0}, fake = {0};
    struct stg_pipeline_spec spec = split_of(2);
    struct stg_sharing sharing = {.run = 11, .consumer = 1, .consumers = 1};
    start(&before);
    before.pipeline = fake.pipeline = &spec;
    stg_ring_share(&before.ring, &sharing);
    struct stager_stream *stream = fake_open(&before, NULL);
    publish(&before, 0, 0, 2);
    fake_publish_end(&before, 0);
    stager_release(fake_take(stream));
    CHECK_INT(fake_next_code(stream), -STAGER_OUT_OF_RANGE);
    CHECK_INT(stager_rewind(stream), 0);
    restart(&fake, &before);
    stg_ring_share(&fake.ring, &sharing);
    fake_publish_end(&fake, 0);
    publish(&fake, 1, 0, 2);
    struct stager_batch *batch = next_of(&fake, stream);
    struct stager_batch_info info = {.struct_size = sizeof(info)};
    CHECK_INT(stager_batch_info(batch, &info), 0);
    CHECK_INT(info.pass, 1);
    CHECK_INT(stg_control_pass_wanted(&fake.control), 2);
    stager_release(batch);
    stop_both(&before, &fake, stream);
}

/* ---- what the process has of it ---- */

static void a_child_of_fork_does_not_reconnect(void)
{
    fake_skip_where_forks_are_hidden();
    struct fake before = {0}, fake = {0};
    struct stager_stream *stream = start_and_open(&before, NULL);
    publish(&before, 0, 0, 2);
    struct stager_batch *held = fake_take(stream), *other;
    fake_die(&before);
    CHECK_INT(fake_next_code(stream), -STAGER_DEADLINE_EXCEEDED);
    start_again(&fake, &before);
    for (int i = 0; i < 2; i++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            if (stager_next(stream, 0, &other) != -STAGER_FAILED_PRECONDITION)
                _exit(1);
            stager_release(held);
            stager_close(stream);
            _exit(0);
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status));
        CHECK_INT(WEXITSTATUS(status), 0);
        if (i == 0) {
            publish(&fake, 0, 1, 2);
            stager_release(next_of(&fake, stream));
        }
    }
    CHECK_INT(fake_first_value(held), 0);
    CHECK_INT(fake_releases(&before), 0);
    stager_release(held);
    stop_both(&before, &fake, stream);
}

/* An epoll drops a descriptor whose socket is another one. */
static void a_registration_of_the_descriptor_in_an_event_loop_stays(void)
{
    struct fake before = {0}, fake = {0};
    struct stager_stream *stream = start_and_open(&before, NULL);
    int loop = epoll_create1(EPOLL_CLOEXEC), n_wakes = 0, rc;
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(epoll_ctl(loop, EPOLL_CTL_ADD, stager_pollfd(stream), &event) == 0);
    CHECK_INT(fake_next_code(stream), -STAGER_DEADLINE_EXCEEDED);
    CHECK_INT(epoll_wait(loop, &event, 1, 0), 0);
    fake_die(&before);
    struct stager_batch *batch;
    for (int i = 0; i < 3; i++) { /* attempts that fail: no call spins */
        CHECK_INT(epoll_wait(loop, &event, 1, 5000), 1);
        CHECK_INT(fake_next_code(stream), -STAGER_DEADLINE_EXCEEDED);
        CHECK_INT(epoll_wait(loop, &event, 1, 0), 0);
    }
    start_again(&fake, &before);
    fake_serve(&fake);
    do {
        CHECK_INT(epoll_wait(loop, &event, 1, 5000), 1);
        rc = stager_next(stream, 0, &batch);
        CHECK_INT(rc, -STAGER_DEADLINE_EXCEEDED);
        CHECK(n_wakes++ < 100);
    } while (info_of(stream).reconnects == 0);
    fake_join(&fake);
    CHECK_INT(epoll_wait(loop, &event, 1, 0), 0);
    publish(&fake, 0, 0, 2);
    fake_ring(&fake);
    CHECK_INT(epoll_wait(loop, &event, 1, 5000), 1);
    stager_release(fake_take(stream));
    close(loop);
    stop_both(&before, &fake, stream);
}

static void a_pinned_batch_of_the_stagerd_before_stays_after_its_release(void)
{
    struct fake before = {0}, fake = {0};
    struct stager_stream *stream = start_and_open(&before, NULL);
    publish(&before, 0, 4, 2);
    struct stager_batch *batch = fake_take(stream);
    struct stager_tensor x;
    CHECK_INT(stager_batch_tensor(batch, "x", &x), 0);
    stg_batch_pin(batch);
    restart(&fake, &before);
    publish(&fake, 0, 5, 2);
    stager_release(next_of(&fake, stream));
    stager_release(batch);
    CHECK(stream->retired != NULL);
    CHECK_INT(((const int64_t *)x.data)[0], 400);
    stg_batch_unpin(batch);
    CHECK(stream->retired == NULL);
    stop_both(&before, &fake, stream);
}

static void batches_of_the_stagerd_before_stay_readable_after_close(void)
{
    struct fake before = {0}, fake = {0};
    struct stager_stream *stream = start_and_open(&before, NULL);
    publish(&before, 0, 4, 2);
    struct stager_batch *old = fake_take(stream);
    restart(&fake, &before);
    publish(&fake, 0, 5, 2);
    struct stager_batch *batch = next_of(&fake, stream);
    CHECK_INT(stager_batch_tensor(old, "y", &(struct stager_tensor){0}),
              -STAGER_NOT_FOUND);
    CHECK_CONTAINS(stager_error_text(stream), "\"y\"");
    fake_hang_up(&fake);
    stager_close(stream);
    CHECK_INT(fake_first_value(old), 400);
    CHECK_INT(fake_first_value(batch), 500);
    stager_release(batch);
    CHECK_INT(fake_first_value(old), 400);
    stager_release(old);
    fake_stop(&fake);
    fake_stop(&before);
}

static void a_stream_closes_in_the_middle_of_a_reconnect(void)
{
    struct fake before = {0}, fake = {0};
    struct stager_stream *stream = start_and_open(&before, NULL);
    restart(&fake, &before);
    CHECK_INT(fake_next_code(stream), -STAGER_DEADLINE_EXCEEDED); /* no reply comes */
    CHECK(stream->reconnect->next != NULL);
    stager_close(stream);
    fake_stop(&fake);
    fake_stop(&before);
}

static const struct stg_test tests[] = {
    TEST(the_next_batch_comes_from_a_stagerd_that_was_started_again),
    TEST(a_stream_goes_on_after_each_of_many_stagerds),
    TEST(a_stagerd_that_stops_is_awaited),
    TEST(a_pipeline_that_failed_with_the_same_code_is_over),
    TEST(a_blocked_next_wakes_with_the_next_batch),
    TEST(a_stream_that_has_nothing_sends_no_state),
    TEST(the_options_of_the_first_open_are_sent_again),
    TEST(a_deadline_of_next_is_kept_while_stagerd_is_away),
    TEST(a_stagerd_that_stays_away_is_unavailable_after_the_limit),
    TEST(a_stream_that_does_not_reconnect_is_unavailable_at_once),
    TEST(a_stagerd_that_is_unavailable_is_asked_again),
    TEST(a_stagerd_that_refuses_ends_the_stream_with_its_reason),
    TEST(a_join_that_fails_ends_the_stream),
    TEST(a_client_that_comes_late_joins_its_run),
    TEST(an_older_stagerd_is_refused),
    TEST(a_stagerd_that_ends_again_before_it_answers_is_awaited),
    TEST(a_stream_at_the_end_of_its_pass_reconnects_after_rewind),
    TEST(a_commit_does_not_wait_for_the_run),
    TEST(a_commit_that_is_refused_does_not_end_the_stream),
    TEST(a_commit_waits_for_stagerd_up_to_the_limit),
    TEST(a_commit_at_the_end_of_a_pass_leaves_the_stream_there),
    TEST(slices_that_are_left_come_before_the_reconnect),
    TEST(a_client_of_a_split_goes_on_at_the_united_state),
    TEST(a_split_goes_on_after_a_stagerd_that_died_while_it_wrote),
    TEST(the_end_of_a_pass_that_the_trainer_has_left_does_not_come_again),
    TEST(a_child_of_fork_does_not_reconnect),
    TEST(a_registration_of_the_descriptor_in_an_event_loop_stays),
    TEST(a_pinned_batch_of_the_stagerd_before_stays_after_its_release),
    TEST(batches_of_the_stagerd_before_stay_readable_after_close),
    TEST(a_stream_closes_in_the_middle_of_a_reconnect),
};

TEST_MAIN(tests)
