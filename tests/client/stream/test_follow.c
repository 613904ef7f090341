/* SPDX-License-Identifier: Apache-2.0
 *
 * A pipeline that is replaced under a stream that follows it. The new version is another
 * fake daemon in the same folder.
 */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/stream/stream.h"
#include "tests/check.h"
#include "tests/client/fake.h"

static const struct stager_options follows = {
    .struct_size = sizeof(follows), .max_in_flight = 4, .follow = 1};

/* ---- a version, and the one after it ---- */

static void start(struct fake *fake)
{
    fake_start(fake);
    fake->max_in_flight = 4;
    fake->rejoin = (struct stg_rejoin){.run = 11, .member = 12, .attempt = 3};
    fake->signature = "fake:1";
    fake->begins_pass = 1;
}

/* The connection to `before` stays. What is set in `ret` before stays, too. */
static void replace(struct fake *ret, struct fake *before)
{
    char text[64];
    ret->generation = (before->generation != 0 ? before->generation : 1) + 1;
    snprintf(text, sizeof(text), "replaced by generation %d", (int)ret->generation);
    stg_ring_finish(&before->ring, STAGER_ABORTED, text);
    close(before->listener);
    before->listener = -1;
    memcpy(ret->dir, before->dir, sizeof(ret->dir));
    fake_start(ret);
    ret->max_in_flight = 4;
    ret->rejoin = (struct stg_rejoin){.run = 21, .member = 12, .attempt = 3};
    ret->signature = "fake:1";
}

static void publish(struct fake *fake, uint64_t number)
{
    uint32_t slot = (uint32_t)(number % FAKE_SLOTS);
    struct stg_stream_place from = {.place = {.items = number, .elements = 2 * number}};
    fake_publish_from(fake, slot, number, &from, (int64_t)(100 * number), 2);
    struct stg_batch_header *header =
        (struct stg_batch_header *)(fake->segment + slot * fake->slot_bytes);
    header->generation = fake->generation != 0 ? fake->generation : 1;
}

static void stop(struct fake *fakes, size_t n, struct stager_stream *stream)
{
    for (size_t i = 0; i < n; i++) {
        if (fakes[i].socket >= 0)
            fake_hang_up(&fakes[i]);
    }
    stager_close(stream);
    for (size_t i = n; i-- > 0;)
        fake_stop(&fakes[i]);
}

/* ---- the trainer ---- */

static uint64_t generation_of(const struct stager_batch *batch)
{
    struct stager_batch_info info = {.struct_size = sizeof(info)};
    CHECK_INT(stager_batch_info(batch, &info), 0);
    return info.generation;
}

static struct stager_stream_info info_of(const struct stager_stream *stream)
{
    struct stager_stream_info info = {.struct_size = sizeof(info)};
    CHECK_INT(stager_stream_info(stream, &info), 0);
    return info;
}

static int next_code(struct stager_stream *stream, int64_t millis)
{
    struct stager_batch *batch = NULL;
    int rc = stager_next(stream, millis, &batch);
    CHECK(rc < 0);
    CHECK(batch == NULL);
    return rc;
}

static struct stager_batch *next_of(struct fake *fake, struct stager_stream *stream)
{
    struct stager_batch *batch;
    fake_serve(fake);
    int rc = stager_next(stream, 20000, &batch);
    if (rc < 0)
        FAIL("stager_next: %s", stager_error_text(stream));
    fake_join(fake);
    return batch;
}

static void expect_over(struct fake *fake, struct stager_stream *stream, int code,
                        const char *text)
{
    fake_serve(fake);
    CHECK_INT(next_code(stream, 20000), code);
    CHECK_CONTAINS(stager_error_text(stream),
                   "replaced by generation 2, and the stream cannot follow: ");
    CHECK_CONTAINS(stager_error_text(stream), text);
    fake_join(fake);
    CHECK_INT(info_of(stream).finished, 1);
    CHECK_INT(next_code(stream, 0), code);
}

/* ---- tests ---- */

static void the_next_version_goes_on_where_the_trainer_is(void)
{
    static struct fake fakes[2];
    struct stg_state state;
    start(&fakes[0]);
    struct stager_stream *stream = fake_open(&fakes[0], &follows);
    CHECK(fakes[0].opened.follow);
    CHECK_INT(fakes[0].opened.generation, 0);
    CHECK_INT(info_of(stream).generation, 1);
    publish(&fakes[0], 0);
    publish(&fakes[0], 1);
    struct stager_batch *first = fake_take(stream);
    replace(&fakes[1], &fakes[0]);
    struct stager_batch *second = fake_take(stream); /* it was in the ring */
    CHECK_INT(info_of(stream).generation, 1);
    publish(&fakes[1], 2);
    struct stager_batch *third = next_of(&fakes[1], stream);
    CHECK_INT(fake_first_value(third), 200);
    CHECK_INT(generation_of(third), 2);
    CHECK_INT(generation_of(first), 1);
    CHECK_INT(fake_first_value(second), 100);
    CHECK(fakes[1].opened.follow);
    CHECK_INT(fakes[1].opened.generation, 1);
    CHECK_INT(fakes[1].opened.rejoin.run, 11);
    CHECK_STR(fakes[1].client_id, fakes[0].client_id);
    CHECK_INT(stg_state_read(fakes[1].opened_state, strlen(fakes[1].opened_state), &state,
                             NULL),
              0);
    CHECK_INT(state.place.items, 2);
    struct stager_stream_info info = info_of(stream);
    CHECK_INT(info.generation, 2);
    CHECK_INT(info.followed, 1);
    CHECK_INT(info.reconnects, 0);
    CHECK_INT(info.reconnect_ns, 0);
    CHECK_INT(info.held, 3);
    CHECK_INT(info.batches, 3);
    CHECK_INT(fake_releases(&fakes[0]), 0);
    stager_release(first);
    stager_release(second);
    CHECK_INT(fake_releases(&fakes[0]), 2);
    stager_release(third);
    CHECK_INT(fake_releases(&fakes[1]), 1);
    stop(fakes, 2, stream);
}

/* stagerd says that the state was of no use. */
static void a_version_with_other_content_begins_anew(void)
{
    static struct fake fakes[2];
    struct stg_state state;
    char text[STAGER_STATE_BYTES];
    start(&fakes[0]);
    struct stager_stream *stream = fake_open(&fakes[0], &follows);
    publish(&fakes[0], 0);
    publish(&fakes[0], 1);
    stager_release(fake_take(stream));
    stager_release(fake_take(stream));
    fakes[1].begins_pass = 1;
    fakes[1].anew = true;
    replace(&fakes[1], &fakes[0]);
    fakes[1].signature = "fake:2";
    publish(&fakes[1], 0);
    struct stager_batch *batch = next_of(&fakes[1], stream);
    CHECK_INT(fake_first_value(batch), 0);
    CHECK_INT(stager_state(stream, text, sizeof(text)), 0);
    CHECK_INT(stg_state_read(text, strlen(text), &state, NULL), 0);
    CHECK_STR(state.steps, "fake:2");
    CHECK_INT(state.place.items, 1);
    stager_release(batch);
    stop(fakes, 2, stream);
}

static void a_stream_follows_each_of_many_versions(void)
{
    enum { N = 5 };
    static struct fake fakes[N];
    struct stager_batch *held[N];
    start(&fakes[0]);
    struct stager_stream *stream = fake_open(&fakes[0], &follows);
    publish(&fakes[0], 0);
    held[0] = fake_take(stream);
    for (uint64_t i = 1; i < N; i++) {
        replace(&fakes[i], &fakes[i - 1]);
        publish(&fakes[i], i);
        held[i] = next_of(&fakes[i], stream);
        CHECK_INT(fakes[i].opened.generation, i);
    }
    CHECK_INT(info_of(stream).followed, N - 1);
    CHECK_INT(info_of(stream).held, N);
    for (uint64_t i = 0; i < N; i++) {
        CHECK_INT(fake_first_value(held[i]), 100 * i);
        CHECK_INT(generation_of(held[i]), i + 1);
    }
    for (uint64_t i = 0; i < N; i++)
        stager_release(held[i]);
    CHECK_INT(info_of(stream).held, 0);
    stop(fakes, N, stream);
}

static void without_follow_the_stream_is_over(void)
{
    static struct fake fakes[2];
    start(&fakes[0]);
    struct stager_stream *stream = fake_open(&fakes[0], NULL);
    CHECK(!fakes[0].opened.follow);
    replace(&fakes[1], &fakes[0]);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(next_code(stream, 0), -STAGER_ABORTED);
        CHECK_STR(stager_error_text(stream), "replaced by generation 2");
    }
    CHECK_INT(info_of(stream).finished, 1);
    CHECK_INT(info_of(stream).generation, 1);
    stop(fakes, 2, stream);
}

/* Another reason with that code is no new version. */
static void a_deleted_pipeline_is_over(void)
{
    static struct fake fakes[1];
    start(&fakes[0]);
    struct stager_stream *stream = fake_open(&fakes[0], &follows);
    stg_ring_finish(&fakes[0].ring, STAGER_ABORTED, "the pipeline was deleted");
    CHECK_INT(next_code(stream, 0), -STAGER_ABORTED);
    CHECK_STR(stager_error_text(stream), "the pipeline was deleted");
    CHECK_INT(info_of(stream).finished, 1);
    stop(fakes, 1, stream);
}

static void a_version_that_lacks_something_is_refused(void)
{
    struct stg_component components[] = {
        {.name = "y", .dtype = STAGER_INT64, .ndim = 1, .shape = {-1}},
        {.name = "x", .dtype = STAGER_FLOAT32, .ndim = 1, .shape = {-1}},
        {.name = "x", .dtype = STAGER_INT64, .ndim = 2, .shape = {-1, 3}}};
    static const char *const texts[] = {
        "generation 2 of pipeline fake lacks feature \"x\"", "feature \"x\" is float32 ",
        "feature \"x\" is int64 "};
    for (size_t i = 0; i < 3; i++) {
        static struct fake fakes[2];
        memset(fakes, 0, sizeof(fakes));
        start(&fakes[0]);
        struct stager_stream *stream = fake_open(&fakes[0], &follows);
        publish(&fakes[0], 0);
        replace(&fakes[1], &fakes[0]);
        fakes[1].boundary = (struct stg_schema){.components = &components[i], .n = 1};
        struct stager_batch *batch = fake_take(stream);
        expect_over(&fakes[1], stream, -STAGER_FAILED_PRECONDITION, texts[i]);
        CHECK_INT(fake_first_value(batch), 0);
        stager_release(batch);
        stop(fakes, 2, stream);
    }
}

static void an_open_that_fails_ends_the_stream(void)
{
    static struct fake fakes[2];
    start(&fakes[0]);
    struct stager_stream *stream = fake_open(&fakes[0], &follows);
    replace(&fakes[1], &fakes[0]);
    fakes[1].open_code = -STAGER_NOT_FOUND;
    fakes[1].text = "pipeline fake has no feature x";
    expect_over(&fakes[1], stream, -STAGER_NOT_FOUND, "has no feature x");
    stop(fakes, 2, stream);
}

/* The second version is replaced between open and join. */
static void a_version_that_was_replaced_meanwhile_is_skipped(void)
{
    static struct fake fakes[3];
    start(&fakes[0]);
    struct stager_stream *stream = fake_open(&fakes[0], &follows);
    replace(&fakes[1], &fakes[0]);
    fakes[1].join_code = -STAGER_ABORTED;
    fakes[1].text = "replaced by generation 3";
    fakes[1].rejoin.run = 31;
    fake_serve(&fakes[1]);
    CHECK_INT(next_code(stream, 5), -STAGER_DEADLINE_EXCEEDED);
    while (stream->reconnect->why[0] == '\0')
        CHECK_INT(next_code(stream, 5), -STAGER_DEADLINE_EXCEEDED);
    fake_join(&fakes[1]);
    replace(&fakes[2], &fakes[1]);
    publish(&fakes[2], 0);
    stager_release(next_of(&fakes[2], stream));
    CHECK_INT(fakes[2].opened.generation, 1);
    CHECK_INT(fakes[2].opened.rejoin.run, 31);
    CHECK_INT(info_of(stream).followed, 1);
    CHECK_INT(info_of(stream).generation, 3);
    stop(fakes, 3, stream);
}

static void a_deadline_of_next_is_kept_while_the_version_starts(void)
{
    static struct fake fakes[2];
    start(&fakes[0]);
    struct stager_stream *stream = fake_open(&fakes[0], &follows);
    replace(&fakes[1], &fakes[0]);
    int64_t begin_ns = stg_clock_ns();
    for (int i = 0; i < 2; i++) {
        CHECK_INT(next_code(stream, 30), -STAGER_DEADLINE_EXCEEDED);
        CHECK_CONTAINS(stager_error_text(stream),
                       "pipeline fake was replaced by generation 2 ");
    }
    CHECK(stg_clock_ns() - begin_ns >= 60000000);
    CHECK_INT(info_of(stream).finished, 0);
    CHECK_INT(info_of(stream).reconnect_ns, 0);
    publish(&fakes[1], 0);
    stager_release(next_of(&fakes[1], stream));
    stop(fakes, 2, stream);
}

static void a_descriptor_wakes_for_the_new_version(void)
{
    static struct fake fakes[2];
    start(&fakes[0]);
    struct stager_stream *stream = fake_open(&fakes[0], &follows);
    struct pollfd poll_fd = {.fd = stager_pollfd(stream), .events = POLLIN};
    CHECK_INT(next_code(stream, 0), -STAGER_DEADLINE_EXCEEDED);
    CHECK_INT(poll(&poll_fd, 1, 0), 0);
    replace(&fakes[1], &fakes[0]);
    publish(&fakes[1], 0);
    fake_ring(&fakes[0]);
    CHECK_INT(poll(&poll_fd, 1, 5000), 1);
    fake_serve(&fakes[1]);
    struct stager_batch *batch;
    int rc, n_wakes = 0;
    while ((rc = stager_next(stream, 0, &batch)) == -STAGER_DEADLINE_EXCEEDED) {
        CHECK(n_wakes++ < 100);
        CHECK_INT(poll(&poll_fd, 1, 5000), 1);
    }
    CHECK_INT(rc, 0);
    fake_join(&fakes[1]);
    CHECK_INT(stager_pollfd(stream), poll_fd.fd);
    stager_release(batch);
    stop(fakes, 2, stream);
}

/* Its memory may be what the next version needs. */
static void the_stream_lets_go_of_the_old_version_first(void)
{
    static struct fake fakes[2];
    char byte;
    start(&fakes[0]);
    struct stager_stream *stream = fake_open(&fakes[0], &follows);
    publish(&fakes[0], 0);
    struct stager_batch *batch = fake_take(stream);
    replace(&fakes[1], &fakes[0]);
    CHECK_INT(next_code(stream, 0), -STAGER_DEADLINE_EXCEEDED);
    ssize_t n;
    while ((n = recv(fakes[0].socket, &byte, 1, MSG_DONTWAIT)) == 1) {
    }
    CHECK_INT(n, 0);
    CHECK(!stg_control_parting(&fakes[0].control));
    CHECK_INT(fake_first_value(batch), 0);
    stager_release(batch);
    CHECK_INT(fake_releases(&fakes[0]), 1);
    stop(fakes, 2, stream);
}

static void slices_are_of_one_version(void)
{
    static struct fake fakes[2];
    struct stager_options options = follows;
    options.batch_size = 1;
    start(&fakes[0]);
    fakes[0].batch_rows = fakes[1].batch_rows = 2;
    struct stager_stream *stream = fake_open(&fakes[0], &options);
    publish(&fakes[0], 0);
    replace(&fakes[1], &fakes[0]);
    publish(&fakes[1], 1);
    for (int i = 0; i < 2; i++) {
        struct stager_batch *batch = fake_take(stream);
        CHECK_INT(fake_first_value(batch), i);
        CHECK_INT(generation_of(batch), 1);
        stager_release(batch);
    }
    struct stager_batch *batch = next_of(&fakes[1], stream);
    CHECK_INT(fake_first_value(batch), 100);
    CHECK_INT(generation_of(batch), 2);
    stager_release(batch);
    stop(fakes, 2, stream);
}

/* Its batches depend on timing: it has no place, and follows all the same. */
static void a_stream_without_states_follows(void)
{
    static struct fake fakes[2];
    start(&fakes[0]);
    fakes[0].rejoin = (struct stg_rejoin){0};
    fakes[0].irreproducible = "deterministic is false";
    struct stager_stream *stream = fake_open(&fakes[0], &follows);
    publish(&fakes[0], 0);
    stager_release(fake_take(stream));
    replace(&fakes[1], &fakes[0]);
    fakes[1].anew = true;
    fakes[1].rejoin = (struct stg_rejoin){0};
    publish(&fakes[1], 0);
    stager_release(next_of(&fakes[1], stream));
    CHECK_STR(fakes[1].opened_state, "");
    CHECK_INT(fakes[1].opened.rejoin.member, 0);
    /* It does not reconnect. */
    fake_die(&fakes[1]);
    CHECK_INT(next_code(stream, 0), -STAGER_UNAVAILABLE);
    CHECK_INT(info_of(stream).finished, 1);
    stop(fakes, 2, stream);
}

static void follow_needs_a_stagerd_to_open_again(void)
{
    struct stager_options options = follows;
    struct stager_stream *stream;
    options.daemon_reconnect_millis = STAGER_NEVER;
    CHECK_INT(stager_open(NULL, "fake", &options, &stream), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(stager_error_text(NULL), "follow needs a daemon_reconnect_millis");
}

static void a_stream_closes_in_the_middle_of_a_move(void)
{
    static struct fake fakes[2];
    start(&fakes[0]);
    struct stager_stream *stream = fake_open(&fakes[0], &follows);
    replace(&fakes[1], &fakes[0]);
    CHECK_INT(next_code(stream, 0), -STAGER_DEADLINE_EXCEEDED);
    CHECK(stream->reconnect->next != NULL);
    stop(fakes, 2, stream);
}

static const struct stg_test tests[] = {
    TEST(the_next_version_goes_on_where_the_trainer_is),
    TEST(a_version_with_other_content_begins_anew),
    TEST(a_stream_follows_each_of_many_versions),
    TEST(without_follow_the_stream_is_over),
    TEST(a_deleted_pipeline_is_over),
    TEST(a_version_that_lacks_something_is_refused),
    TEST(an_open_that_fails_ends_the_stream),
    TEST(a_version_that_was_replaced_meanwhile_is_skipped),
    TEST(a_deadline_of_next_is_kept_while_the_version_starts),
    TEST(a_descriptor_wakes_for_the_new_version),
    TEST(the_stream_lets_go_of_the_old_version_first),
    TEST(slices_are_of_one_version),
    TEST(a_stream_without_states_follows),
    TEST(follow_needs_a_stagerd_to_open_again),
    TEST(a_stream_closes_in_the_middle_of_a_move),
};
TEST_MAIN(tests)
