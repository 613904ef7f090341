/* SPDX-License-Identifier: Apache-2.0
 *
 * Device memory received with the reply to open (a pipeline with `gpu`). Batches that lie
 * there are not copied. If the memory does not fit the client, the client copies as
 * usual.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/status.h"
#include "tests/check.h"
#include "tests/client/device/on_device.h"

#define NUMBER 3

static const char uuid[16] = "standin"; /* the stand-in's device */
static const char other[16] = "another one";

/* Memory as large as the segment, and the daemon's mapping of it. */
static char *offer(struct fake *fake)
{
    *fake = (struct fake){0};
    fake_start(fake);
    fake->max_in_flight = 4;
    fake->n_fds = 4;
    fake->device_bytes = FAKE_SEGMENT_BYTES;
    fake->device_number = NUMBER;
    fake->device = NUMBER;
    fake->device_uuid = uuid;
    fake->device_fd = memfd_create("device", MFD_CLOEXEC);
    CHECK(fake->device_fd >= 0 && ftruncate(fake->device_fd, FAKE_SEGMENT_BYTES) == 0);
    char *memory = mmap(NULL, FAKE_SEGMENT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
                        fake->device_fd, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}

static void finish(struct fake *fake, struct stager_stream *stream, char *memory)
{
    munmap(memory, FAKE_SEGMENT_BYTES);
    close(fake->device_fd);
    on_device_finish(fake, stream);
}

static void was_shared(struct stager_stream *stream, uint64_t n_shared, uint64_t n_copied)
{
    struct stager_stream_info info = {.struct_size = sizeof(info)};
    stager_stream_info(stream, &info);
    CHECK_INT(info.device_shared, n_shared);
    CHECK_INT(info.device_bytes, n_copied * 40);
    CHECK_INT(standin->n_copies, n_copied);
}

/* Takes one batch, which is copied whatever the daemon offered. */
static void is_copied(struct fake *fake, char *memory)
{
    fake_publish(fake, 2, 7, 500, 5);
    struct stager_stream *stream = on_device_open(
        fake, (struct stager_options){.struct_size = sizeof(struct stager_options)});
    struct stager_batch *batch = on_device_take(stream);
    standin->synchronize();
    CHECK_INT(on_device_seen(batch), 500);
    was_shared(stream, 0, 1);
    stager_release(batch);
    finish(fake, stream, memory);
}

static void a_shared_batch_is_read_where_it_lies(void)
{
    struct fake fake;
    char *memory = offer(&fake);
    struct stager_stream *stream = on_device_open(
        &fake, (struct stager_options){.struct_size = sizeof(struct stager_options)});
    CHECK(fake.opened.wants_device);
    CHECK_INT(standin->n_shared, 1);
    fake_publish(&fake, 2, 7, 500, 5);
    memcpy(memory, fake.segment, FAKE_SEGMENT_BYTES);
    struct stager_batch *batch = on_device_take(stream);
    CHECK_INT(on_device_seen(batch), 500);
    was_shared(stream, 1, 0); /* so the data did not come from the host */
    stager_release(batch);
    fake_hang_up(&fake);
    stager_close(stream);
    CHECK_INT(fake_releases(&fake), 1);
    finish(&fake, NULL, memory);
}

static void its_lease_goes_back_when_the_trainers_work_is_over(void)
{
    struct fake fake;
    char *memory = offer(&fake);
    struct stager_stream *stream = on_device_open(
        &fake, (struct stager_options){.struct_size = sizeof(struct stager_options)});
    fake_publish(&fake, 0, 1, 500, 5);
    fake_publish(&fake, 1, 2, 600, 5);
    struct stager_batch *first = on_device_take(stream);
    standin->block(NULL);
    stager_release(first);
    struct stager_batch *second = on_device_take(stream);
    CHECK_INT(fake_releases(&fake), 0);
    standin->unblock();
    standin->synchronize();
    stager_release(second);
    standin->synchronize();
    CHECK_INT(on_device_next_code(stream), -STAGER_DEADLINE_EXCEEDED);
    CHECK_INT(fake_releases(&fake), 2);
    finish(&fake, stream, memory);
}

static void memory_of_another_device_is_left_alone(void)
{
    struct fake fake;
    char *memory = offer(&fake);
    fake.device_uuid = other;
    is_copied(&fake, memory);
}

static void memory_smaller_than_its_declared_size_is_left_alone(void)
{
    struct fake fake;
    char *memory = offer(&fake);
    fake.device_bytes = 2 * FAKE_SEGMENT_BYTES;
    is_copied(&fake, memory);
}

static void a_batch_of_other_memory_is_copied(void)
{
    struct fake fake;
    char *memory = offer(&fake);
    fake.device = NUMBER + 1;
    is_copied(&fake, memory);
}

static void a_batch_beyond_the_memory_is_copied(void)
{
    struct fake fake;
    char *memory = offer(&fake);
    fake.device_bytes = STG_GRANULE_BYTES;
    CHECK_INT(ftruncate(fake.device_fd, STG_GRANULE_BYTES), 0);
    is_copied(&fake, memory);
}

static void memory_without_its_descriptor_is_an_error(void)
{
    struct fake fake;
    char *memory = offer(&fake);
    fake.n_fds = 3;
    CHECK_INT(fake_open_fails(&fake), -STAGER_INTERNAL);
    CHECK_CONTAINS(stager_error_text(NULL), "3 descriptors instead of 4");
    on_device_load();
    finish(&fake, NULL, memory);
}

static const struct stg_test tests[] = {
    TEST(a_shared_batch_is_read_where_it_lies),
    TEST(its_lease_goes_back_when_the_trainers_work_is_over),
    TEST(memory_of_another_device_is_left_alone),
    TEST(memory_smaller_than_its_declared_size_is_left_alone),
    TEST(a_batch_of_other_memory_is_copied),
    TEST(a_batch_beyond_the_memory_is_copied),
    TEST(memory_without_its_descriptor_is_an_error),
};

TEST_MAIN(tests)
