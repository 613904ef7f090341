/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches on a device: errors and ends among prefetched batches, the effects of close,
 * refusals.
 */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/client/device/on_device.h"

/* ---- errors, ends ---- */

static void an_error_item_keeps_its_place(void)
{
    struct fake fake;
    struct stager_stream *stream = on_device_start(&fake);
    fake_publish(&fake, 0, 1, 1, 1);
    fake_publish(&fake, 1, 2, 2, 1);
    fake_publish_error(&fake, 2, 3, STAGER_DATA_LOSS, "row 5 is bad");
    fake_publish(&fake, 3, 4, 4, 1);
    struct stager_batch *first = on_device_take(stream), *second = on_device_take(stream);
    CHECK_INT(on_device_number(first), 1);
    CHECK_INT(on_device_number(second), 2);
    CHECK_INT(on_device_next_code(stream), -STAGER_DATA_LOSS);
    CHECK_STR(stager_error_text(stream), "row 5 is bad");
    struct stager_batch *third = on_device_take(stream);
    CHECK_INT(on_device_number(third), 4);
    stager_release(first);
    stager_release(second);
    stager_release(third);
    on_device_finish(&fake, stream);
}

static void the_end_comes_after_what_is_ahead(void)
{
    struct fake fake;
    struct stager_stream *stream = on_device_start(&fake);
    struct stager_stream_info info = {.struct_size = sizeof(info)};
    fake_publish(&fake, 0, 1, 1, 1);
    fake_publish(&fake, 1, 2, 2, 1);
    fake_publish_end(&fake, 0);
    stager_release(on_device_take(stream));
    stager_stream_info(stream, &info);
    CHECK_INT(info.at_end, 0);
    CHECK_INT(stager_rewind(stream), -STAGER_FAILED_PRECONDITION);
    stager_release(on_device_take(stream));
    CHECK_INT(on_device_next_code(stream), -STAGER_OUT_OF_RANGE);
    CHECK_INT(on_device_next_code(stream), -STAGER_OUT_OF_RANGE);
    stager_stream_info(stream, &info);
    CHECK_INT(info.at_end, 1);
    CHECK_INT(stager_rewind(stream), 0);
    fake_publish(&fake, 2, 3, 3, 1);
    stager_release(on_device_take(stream));
    on_device_finish(&fake, stream);
}

/* A stagerd ends; the batches that were copied ahead come first. */
static void what_is_ahead_comes_before_a_reconnect(void)
{
    struct fake before = {.rejoin = {.run = 1, .member = 2}}, fake = before;
    fake_start(&before);
    before.max_in_flight = fake.max_in_flight = 4;
    struct stager_stream *stream = on_device_open(
        &before, (struct stager_options){.struct_size = sizeof(struct stager_options)});
    for (uint32_t i = 0; i < 3; i++)
        fake_publish(&before, i, i + 1, i + 1, 1);
    struct stager_batch *held = on_device_take(stream), *batch = NULL;
    fake_die(&before);
    for (uint64_t i = 2; i < 4; i++) {
        batch = on_device_take(stream);
        CHECK_INT(on_device_number(batch), i);
        stager_release(batch);
    }
    CHECK_INT(on_device_next_code(stream), -STAGER_DEADLINE_EXCEEDED);
    memcpy(fake.dir, before.dir, sizeof(fake.dir));
    fake_start(&fake);
    fake.max_in_flight = 4;
    fake_publish(&fake, 0, 4, 4, 1);
    fake_serve(&fake);
    CHECK_INT(stager_next(stream, -1, &batch), 0);
    fake_join(&fake);
    standin->synchronize();
    CHECK_INT(on_device_seen(batch), 4);
    CHECK_INT(on_device_seen(held), 1);
    CHECK_INT(standin->n_registered, 2);
    stager_release_after(held, NULL);
    CHECK_INT(standin->n_registered, 1);
    stager_release(batch);
    fake_hang_up(&fake);
    stager_close(stream);
    on_device_stop(&fake);
    fake_stop(&before);
}

static void a_copy_that_fails_costs_its_batch(void)
{
    struct fake fake;
    struct stager_stream *stream = on_device_start(&fake);
    fake_publish(&fake, 0, 1, 1, 1);
    fake_publish(&fake, 1, 2, 2, 1);
    fake_publish(&fake, 2, 3, 3, 1);
    standin->fail_copy = 2;
    struct stager_batch *batch = on_device_take(stream);
    CHECK_INT(on_device_next_code(stream), -STAGER_INTERNAL);
    CHECK_CONTAINS(stager_error_text(stream), "a copy failed");
    CHECK_INT(fake_releases(&fake), 1);
    stager_release(batch);
    batch = on_device_take(stream);
    CHECK_INT(on_device_number(batch), 3);
    standin->synchronize();
    CHECK_INT(on_device_seen(batch), 3);
    stager_release(batch);
    on_device_finish(&fake, stream);
}

static void a_damaged_batch_is_reported_at_once(void)
{
    struct fake fake;
    struct stager_stream *stream = on_device_start(&fake);
    fake_publish(&fake, 0, 1, 1, 1);
    fake.segment[0] ^= 0x55;
    CHECK_INT(on_device_next_code(stream), -STAGER_DATA_LOSS);
    CHECK_INT(fake_releases(&fake), 1);
    CHECK_INT(standin->n_copies, 0);
    on_device_finish(&fake, stream);
}

/* Batches that the client prefetched but did not hand out go to another client. */
static void batches_ahead_of_a_revocation_are_dropped(void)
{
    struct fake fake;
    struct stager_stream *stream = on_device_start(&fake);
    for (uint32_t i = 0; i < 3; i++)
        fake_publish(&fake, i, i, i, 1);
    struct stager_batch *batch = on_device_take(stream);
    stg_ring_finish(&fake.ring, STAGER_DEADLINE_EXCEEDED, "held for too long");
    stg_ring_revoke(&fake.ring);
    standin->synchronize();
    CHECK_INT(on_device_next_code(stream), -STAGER_DEADLINE_EXCEEDED);
    CHECK_CONTAINS(stager_error_text(stream), "held for too long");
    CHECK_INT(on_device_next_code(stream), -STAGER_DEADLINE_EXCEEDED);
    CHECK_INT(fake_releases(&fake), 2);
    stager_release(batch);
    CHECK_INT(fake_releases(&fake), 1);
    on_device_finish(&fake, stream);
}

static void a_client_that_holds_every_batch_gets_an_error(void)
{
    struct fake fake;
    struct stager_stream *stream = on_device_start(&fake);
    struct stager_batch *batches[4];
    for (uint32_t i = 0; i < 5; i++)
        fake_publish(&fake, i, i, i, 1);
    for (int i = 0; i < 4; i++)
        batches[i] = on_device_take(stream);
    CHECK_INT(on_device_next_code(stream), -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(stager_error_text(stream), "4 of 4");
    stager_release(batches[2]);
    batches[2] = on_device_take(stream);
    CHECK_INT(on_device_number(batches[2]), 4);
    for (int i = 0; i < 4; i++)
        stager_release(batches[i]);
    on_device_finish(&fake, stream);
}

/* ---- close ---- */

static void a_batch_in_hand_outlives_its_stream(void)
{
    struct fake fake;
    struct stager_stream *stream = on_device_start(&fake);
    for (uint32_t i = 0; i < 3; i++)
        fake_publish(&fake, i, i, i + 5, 1);
    struct stager_batch *batch = on_device_take(stream);
    stager_close(stream);
    CHECK(standin->n_allocations > 0);
    standin->synchronize();
    CHECK_INT(on_device_seen(batch), 5);
    stager_release(batch);
    on_device_stop(&fake);
}

static void close_waits_for_copies_under_way(void)
{
    struct fake fake;
    struct stager_stream *stream = on_device_start(&fake);
    for (uint32_t i = 0; i < 3; i++)
        fake_publish(&fake, i, i, i, 1);
    standin->hold();
    stager_release(on_device_take(stream));
    CHECK_INT(fake_releases(&fake), 0);
    standin->go();
    stager_close(stream);
    CHECK(fake_releases(&fake) >= 1);
    on_device_stop(&fake);
}

static void a_forked_child_touches_no_device(void)
{
    fake_skip_where_forks_are_hidden();
    struct fake fake;
    struct stager_stream *stream = on_device_start(&fake);
    fake_publish(&fake, 0, 1, 1, 1);
    struct stager_batch *batch = on_device_take(stream);
    standin->synchronize();
    pid_t child = fork();
    if (child == 0) {
        void *event;
        unsigned n_events = standin->n_events;
        bool good = on_device_next_code(stream) == -STAGER_FAILED_PRECONDITION &&
                    stager_batch_event(batch, &event) == -STAGER_FAILED_PRECONDITION &&
                    stager_batch_wait(batch, NULL) == -STAGER_FAILED_PRECONDITION;
        stager_release(batch);
        stager_release_after(batch, NULL);
        stager_close(stream);
        _exit(good && standin->n_events == n_events ? 0 : 1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_INT(status, 0);
    CHECK_INT(on_device_seen(batch), 1);
    stager_release(batch);
    on_device_finish(&fake, stream);
}

/* ---- open ---- */

static void refuse(const struct stager_options *options, int code, const char *why)
{
    struct stager_stream *stream = NULL;
    CHECK_INT(stager_open(NULL, "p", options, &stream), code);
    CHECK(stream == NULL);
    CHECK_CONTAINS(stager_error_text(NULL), why);
}

static void what_is_no_device_is_refused(void)
{
    static const char *const names[] = {"",        "gpu",     "cuda:", "cuda:x",
                                        "cuda:-1", "cuda:0x", "CUDA",  "cuda:99999"};
    struct stager_options options = {.struct_size = sizeof(options),
                                     .runtime_dir = "/nowhere"};
    on_device_load();
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        options.device = names[i];
        refuse(&options, -STAGER_INVALID_ARGUMENT, "\"cuda\" or \"cuda:N\"");
    }
    options.device = "cuda:1";
    refuse(&options, -STAGER_INVALID_ARGUMENT,
           "this process sees 1, numbered from cuda:0");
    options.device = "cuda";
    options.batch_size = 2;
    refuse(&options, -STAGER_INVALID_ARGUMENT, "batch_size");
    options.batch_size = 0;
    options.copy_on_write = 1;
    refuse(&options, -STAGER_INVALID_ARGUMENT, "copy_on_write");
    options.copy_on_write = 0;
    options.device_capacity = 65;
    refuse(&options, -STAGER_INVALID_ARGUMENT, "device_capacity is 65");
    options.device_capacity = 64;
    options.max_in_flight = 200;
    refuse(&options, -STAGER_INVALID_ARGUMENT, "264 together");
    options.max_in_flight = 0;
    refuse(&options, -STAGER_UNAVAILABLE, "/nowhere");
    standin->n_devices = 0;
    refuse(&options, -STAGER_UNAVAILABLE, "no device");
}

static void without_a_device_everything_else_works(void)
{
    struct fake fake = {0};
    on_device_load();
    standin->n_devices = 0;
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    fake_publish(&fake, 0, 1, 7, 3);
    struct stager_batch *batch = on_device_take(stream);
    struct stager_tensor x;
    void *event;
    CHECK_INT(stager_batch_tensor(batch, "x", &x), 0);
    CHECK_INT(x.device, 0);
    CHECK_INT(((const int64_t *)x.data)[0], 7);
    CHECK_INT(stager_batch_event(batch, &event), -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(stager_error_text(stream), "open the stream with a device");
    stager_release_after(batch, NULL);
    CHECK_INT(fake_releases(&fake), 1);
    on_device_finish(&fake, stream);
}

static const struct stg_test tests[] = {
    TEST(an_error_item_keeps_its_place),
    TEST(the_end_comes_after_what_is_ahead),
    TEST(what_is_ahead_comes_before_a_reconnect),
    TEST(a_copy_that_fails_costs_its_batch),
    TEST(a_damaged_batch_is_reported_at_once),
    TEST(batches_ahead_of_a_revocation_are_dropped),
    TEST(a_client_that_holds_every_batch_gets_an_error),
    TEST(a_batch_in_hand_outlives_its_stream),
    TEST(close_waits_for_copies_under_way),
    TEST(a_forked_child_touches_no_device),
    TEST(what_is_no_device_is_refused),
    TEST(without_a_device_everything_else_works),
};

TEST_MAIN(tests)
