/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches on a device, played by a stand-in (tests/standin): where tensors lie, and the
 * order of copies and kernels.
 */
#include <string.h>

#include "proto/load.h"
#include "tests/check.h"
#include "tests/client/device/on_device.h"

static struct stg_err err;

static bool is_there(const struct stager_batch *batch)
{
    void *event = NULL;
    CHECK_INT(stager_batch_event(batch, &event), 0);
    return device->event_query(event, &err) == 1;
}

/* ---- where tensors lie ---- */

static void tensors_are_on_the_device(void)
{
    struct fake fake;
    struct stager_stream *stream = on_device_start(&fake);
    CHECK(!fake.opened.manual_ack);
    CHECK_INT(fake.opened.max_in_flight, 4);
    CHECK_INT(standin->n_registered, 1);
    fake_publish(&fake, 3, 41, 1000, 5);
    struct stager_batch *batch = on_device_take(stream);
    standin->synchronize();
    struct stager_tensor x;
    CHECK_INT(stager_batch_tensor_at(batch, 0, &x), 0);
    CHECK_INT(x.device, 1);
    CHECK_INT(x.shape[0], 5);
    CHECK_INT(x.data_bytes, 40);
    CHECK_INT(((const int64_t *)standin->see(x.data))[4], 1004);
    struct stager_stream_info info = {.struct_size = sizeof(info)};
    stager_stream_info(stream, &info);
    CHECK_INT(info.device_bytes, 40);
    CHECK_INT(info.batches, 1);
    CHECK_INT(on_device_number(batch), 41);
    stager_release(batch);
    on_device_finish(&fake, stream);
}

static struct stg_component mixed[] = {
    {.name = "a", .dtype = STAGER_INT64, .ndim = 1, .shape = {-1}},
    {.name = "text", .dtype = STAGER_STRING, .ndim = 1, .shape = {-1}},
    {.name = "b", .dtype = STAGER_FLOAT32, .ndim = 1, .shape = {-1}},
    {.name = "none", .dtype = STAGER_FLOAT32, .ndim = 1, .shape = {-1}},
};

static uint64_t write_mixed(struct fake *fake, int64_t n, bool only_text)
{
    struct stg_batch_writer w;
    struct stg_tensor t;
    int64_t zero = 0, numbers = only_text ? 0 : n;
    CHECK_OK(stg_batch_writer_begin(&w, fake->segment, STG_GRANULE_BYTES, &fake->boundary,
                                    &err),
             err);
    CHECK_OK(stg_batch_writer_alloc(&w, 0, STAGER_INT64, 1, &numbers, 0, &t, &err), err);
    for (int64_t i = 0; i < numbers; i++)
        ((int64_t *)t.data)[i] = i;
    CHECK_OK(stg_batch_writer_alloc(&w, 1, STAGER_STRING, 1, &n, (uint64_t)n, &t, &err),
             err);
    memset(t.data, 's', (size_t)n);
    for (int64_t i = 0; i <= n; i++)
        ((int64_t *)(uintptr_t)t.begin)[i] = i;
    CHECK_OK(stg_batch_writer_alloc(&w, 2, STAGER_FLOAT32, 1, &numbers, 0, &t, &err),
             err);
    for (int64_t i = 0; i < numbers; i++)
        ((float *)t.data)[i] = (float)i / 2;
    CHECK_OK(stg_batch_writer_alloc(&w, 3, STAGER_FLOAT32, 1, &zero, 0, &t, &err), err);
    return stg_batch_writer_seal(&w);
}

static void strings_stay_where_they_are(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    fake.boundary = (struct stg_schema){.components = mixed, .n = 4};
    struct stager_stream *stream = on_device_open(
        &fake, (struct stager_options){.struct_size = sizeof(struct stager_options)});
    for (int only_text = 0; only_text < 2; only_text++) {
        struct stg_descriptor d =
            fake_descriptor(&fake, 0, 1, write_mixed(&fake, 100, only_text != 0));
        stg_ring_push(&fake.ring, &d);
        struct stager_batch *batch = on_device_take(stream);
        standin->synchronize();
        struct stager_tensor t;
        CHECK_INT(stager_batch_tensor(batch, "text", &t), 0);
        CHECK_INT(t.device, 0);
        CHECK_INT(((const char *)t.data)[99], 's');
        CHECK_INT(t.offsets[100], 100);
        CHECK_INT(stager_batch_tensor(batch, "none", &t), 0);
        CHECK_INT(t.device, 1);
        CHECK_INT(stager_batch_tensor(batch, "b", &t), 0);
        CHECK_INT(t.device, 1);
        if (only_text == 0) {
            CHECK(((const float *)standin->see(t.data))[99] == 49.5f);
            CHECK_INT(stager_batch_tensor(batch, "a", &t), 0);
            CHECK_INT(((const int64_t *)standin->see(t.data))[99], 99);
        }
        stager_release(batch);
        CHECK_INT(on_device_next_code(stream), -STAGER_DEADLINE_EXCEEDED);
    }
    on_device_finish(&fake, stream);
}

static void batches_of_growing_sizes_find_room(void)
{
    struct fake fake;
    struct stager_stream *stream = on_device_start(&fake);
    for (int i = 0; i < 12; i++) {
        fake_publish(&fake, (uint32_t)i, (uint64_t)i, i * 10, 1 + i * 600);
        struct stager_batch *batch = on_device_take(stream);
        standin->synchronize();
        CHECK_INT(on_device_seen(batch), i * 10);
        stager_release(batch);
    }
    on_device_finish(&fake, stream);
}

/* ---- the order of copies and kernels ---- */

static void next_does_not_wait_for_the_copy(void)
{
    struct fake fake;
    struct stager_stream *stream = on_device_start(&fake);
    fake_publish(&fake, 0, 1, 7, 3);
    standin->hold();
    struct stager_batch *batch = on_device_take(stream);
    CHECK(!is_there(batch));
    standin->go();
    standin->synchronize();
    CHECK(is_there(batch));
    CHECK_INT(on_device_seen(batch), 7);
    stager_release(batch);
    on_device_finish(&fake, stream);
}

static void batches_are_copied_ahead(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    fake.max_in_flight = 6;
    struct stager_stream *stream = on_device_open(
        &fake, (struct stager_options){.struct_size = sizeof(struct stager_options),
                                       .device_capacity = 3,
                                       .max_in_flight = 3});
    CHECK_INT(fake.opened.max_in_flight, 6);
    struct stager_batch *batches[5];
    for (uint32_t i = 0; i < 5; i++)
        fake_publish(&fake, i, i, (int64_t)i * 100, 2);
    batches[0] = on_device_take(stream);
    CHECK_INT(standin->n_copies, 4); /* the batch in hand, and three ahead */
    for (int i = 1; i < 5; i++)
        batches[i] = on_device_take(stream);
    CHECK_INT(standin->n_copies, 5);
    standin->synchronize();
    for (int i = 0; i < 5; i++) {
        CHECK_INT(on_device_number(batches[i]), i);
        CHECK_INT(on_device_seen(batches[i]), i * 100);
    }
    CHECK_INT(on_device_next_code(stream), -STAGER_DEADLINE_EXCEEDED);
    for (int i = 0; i < 5; i++)
        stager_release(batches[(i * 3 + 1) % 5]);
    on_device_finish(&fake, stream);
}

/* The daemon reuses that memory next: the client may not release it before the copy is
 * done. */
static void a_lease_goes_back_when_its_copy_is_done(void)
{
    struct fake fake;
    struct stager_stream *stream = on_device_start(&fake);
    fake_publish(&fake, 0, 1, 7, 3);
    standin->hold();
    stager_release(on_device_take(stream));
    CHECK_INT(fake_releases(&fake), 0);
    standin->go();
    standin->synchronize();
    CHECK_INT(fake_releases(&fake), 0); /* the client slept through it */
    CHECK_INT(on_device_next_code(stream), -STAGER_DEADLINE_EXCEEDED);
    CHECK_INT(fake_releases(&fake), 1);
    on_device_finish(&fake, stream);
}

static void *end_the_pass(void *arg)
{
    struct fake *fake = arg;
    fake_wait_asleep(fake);
    CHECK_INT(fake_releases(fake), 1);
    fake_publish_end(fake, 0);
    fake_ring(fake);
    return NULL;
}

/* The end of a pass waits for batches that are not released. */
static void a_sleeping_client_holds_back_no_lease(void)
{
    struct fake fake;
    struct stager_stream *stream = on_device_start(&fake);
    pthread_t thread;
    struct stager_batch *batch = NULL;
    fake_publish(&fake, 0, 1, 7, 3);
    standin->hold();
    stager_release(on_device_take(stream));
    standin->go();
    CHECK_INT(pthread_create(&thread, NULL, end_the_pass, &fake), 0);
    CHECK_INT(stager_next(stream, -1, &batch), -STAGER_OUT_OF_RANGE);
    CHECK_INT(pthread_join(thread, NULL), 0);
    on_device_finish(&fake, stream);
}

/* The pipeline's copies run on stream 1. Only events order them after the trainer's
 * work. */
static struct stager_stream *start_beside(struct fake *fake, struct stg_stream **trainer,
                                          struct stg_pipeline_spec **spec)
{
    static const char text[] = "name: p\ndataset:\n  - range: {stop: 4}\n"
                               "staged: {stage_subgraph_stream_id: 1}\n";
    on_device_load();
    CHECK_OK(stg_load_pipeline(text, strlen(text), "p", spec, &err), err);
    CHECK_OK(device->stream_create(0, trainer, &err), err);
    *fake = (struct fake){.pipeline = *spec};
    fake_start(fake);
    fake->max_in_flight = 3;
    struct stager_options options = {.struct_size = sizeof(options),
                                     .device_stream = *trainer,
                                     .max_in_flight = 2,
                                     .device_capacity = 1};
    return on_device_open(fake, options);
}

static void stop_beside(struct fake *fake, struct stg_stream *trainer,
                        struct stg_pipeline_spec *spec)
{
    device->stream_destroy(trainer);
    stg_pipeline_spec_destroy(spec);
    on_device_stop(fake);
}

static void memory_is_written_again_after_the_trainers_work(void)
{
    struct fake fake;
    struct stg_stream *trainer;
    struct stg_pipeline_spec *spec;
    struct stager_stream *stream = start_beside(&fake, &trainer, &spec);
    fake_publish(&fake, 0, 1, 7, 3);
    struct stager_batch *batch = on_device_take(stream);
    standin->synchronize();
    struct stager_tensor x;
    CHECK_INT(stager_batch_tensor(batch, "x", &x), 0);
    const int64_t *at = standin->see(x.data);
    standin->block(trainer); /* a training step that still reads it */
    stager_release(batch);
    fake_publish(&fake, 1, 2, 8, 3);
    batch =
        /* takes the same lease's place, and therefore the same memory */
        on_device_take(stream);
    CHECK_INT(stager_batch_tensor(batch, "x", &x), 0);
    CHECK(standin->see(x.data) == at);
    standin->synchronize();
    CHECK_INT(*at, 7);
    CHECK(!is_there(batch));
    standin->unblock();
    standin->synchronize();
    CHECK_INT(*at, 8);
    CHECK(is_there(batch));
    stager_release(batch);
    stager_close(stream);
    stop_beside(&fake, trainer, spec);
}

static void memory_is_written_again_after_work_on_the_stream_that_is_named(void)
{
    struct fake fake;
    struct stg_stream *trainer, *other;
    struct stg_pipeline_spec *spec;
    struct stager_stream *stream = start_beside(&fake, &trainer, &spec);
    CHECK_OK(device->stream_create(0, &other, &err), err);
    fake_publish(&fake, 0, 1, 7, 3);
    struct stager_batch *batch = on_device_take(stream);
    CHECK_INT(stager_batch_wait(batch, other), 0);
    standin->synchronize();
    standin->block(other);
    stager_release_after(batch, other);
    fake_publish(&fake, 1, 2, 8, 3);
    batch = on_device_take(stream);
    standin->synchronize();
    CHECK(!is_there(batch));
    CHECK_INT(on_device_seen(batch), 7);
    standin->unblock();
    standin->synchronize();
    CHECK_INT(on_device_seen(batch), 8);
    stager_release_after(batch, trainer);
    stager_close(stream);
    device->stream_destroy(other);
    stop_beside(&fake, trainer, spec);
}

/* The trainer's work enqueued after stager_next runs after the copy. */
static void the_trainers_stream_waits_for_the_copy(void)
{
    struct fake fake;
    struct stg_stream *trainer;
    struct stg_pipeline_spec *spec;
    struct stager_stream *stream = start_beside(&fake, &trainer, &spec);
    int64_t got[2] = {0, 0};
    fake_publish(&fake, 0, 1, 7, 2);
    standin->hold();
    struct stager_batch *batch = on_device_take(stream);
    struct stager_tensor x;
    CHECK_INT(stager_batch_tensor(batch, "x", &x), 0);
    CHECK_OK(device->copy_out(trainer, got, x.data, sizeof(got), &err), err);
    standin->go();
    standin->synchronize();
    CHECK_INT(got[0], 7);
    CHECK_INT(got[1], 8);
    stager_release(batch);
    stager_close(stream);
    stop_beside(&fake, trainer, spec);
}

static void without_read_only_page_locking_a_copy_bounces(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    fake.max_in_flight = 4;
    on_device_load();
    standin->no_read_only = true;
    struct stager_stream *stream = on_device_open(
        &fake, (struct stager_options){.struct_size = sizeof(struct stager_options)});
    CHECK_INT(standin->n_registered, 0);
    struct stager_batch *batches[3];
    for (uint32_t i = 0; i < 3; i++)
        fake_publish(&fake, i, i, (int64_t)i * 100, 2);
    standin->hold();
    for (int i = 0; i < 3; i++)
        batches[i] = on_device_take(stream);
    CHECK_INT(standin->n_bounces, 3);
    CHECK(!is_there(batches[0])); /* page-locked: the copy is made later */
    standin->go();
    standin->synchronize();
    for (int i = 0; i < 3; i++) {
        CHECK_INT(on_device_seen(batches[i]), i * 100);
        stager_release(batches[i]);
    }
    on_device_finish(&fake, stream);
}

/* If the client dies, its prefetched batches go to another client. */
static void what_is_ahead_is_not_acknowledged(void)
{
    struct fake fake;
    struct stager_stream *stream = on_device_start(&fake);
    for (uint32_t i = 0; i < 3; i++)
        fake_publish(&fake, i, i, i, 1);
    struct stager_batch *first = on_device_take(stream);
    CHECK_INT(stg_control_asked(&fake.control), 1);
    struct stager_batch *second = on_device_take(stream);
    CHECK_INT(stg_control_asked(&fake.control), 2); /* the first batch is released */
    struct stager_batch *third = on_device_take(stream);
    CHECK_INT(stg_control_asked(&fake.control), 3);
    CHECK_INT(on_device_next_code(stream), -STAGER_DEADLINE_EXCEEDED);
    /* the waiting call requested them all */
    CHECK_INT(stg_control_asked(&fake.control), 4);
    stager_release(first);
    stager_release(second);
    stager_release(third);
    on_device_finish(&fake, stream);
}

static const struct stg_test tests[] = {
    TEST(tensors_are_on_the_device),
    TEST(strings_stay_where_they_are),
    TEST(batches_of_growing_sizes_find_room),
    TEST(what_is_ahead_is_not_acknowledged),
    TEST(next_does_not_wait_for_the_copy),
    TEST(batches_are_copied_ahead),
    TEST(a_lease_goes_back_when_its_copy_is_done),
    TEST(a_sleeping_client_holds_back_no_lease),
    TEST(memory_is_written_again_after_the_trainers_work),
    TEST(memory_is_written_again_after_work_on_the_stream_that_is_named),
    TEST(the_trainers_stream_waits_for_the_copy),
    TEST(without_read_only_page_locking_a_copy_bounces),
};

TEST_MAIN(tests)
