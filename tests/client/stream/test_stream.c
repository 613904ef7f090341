/* SPDX-License-Identifier: Apache-2.0
 *
 * The items in a stream's ring: batches, errors, ends, the terminal status.
 */
#include <errno.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/api/close.h"
#include "client/stream/stream.h"
#include "tests/check.h"
#include "tests/client/fake.h"

static void a_batch_is_a_view_of_shared_memory(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    fake_publish(&fake, 2, 41, 1000, 5);
    struct stager_batch *batch = fake_take(stream);

    struct stager_tensor x;
    CHECK_INT(stager_batch_tensor_at(batch, 0, &x), 0);
    CHECK_STR(x.name, "x");
    CHECK_INT(x.ndim, 1);
    CHECK_INT(x.shape[0], 5);
    CHECK_INT(x.data_bytes, 40);
    CHECK_INT(((const int64_t *)x.data)[4], 1004);
    /* Writes through the daemon's mapping are visible. */
    const struct stg_batch_header *header =
        (const void *)(fake.segment + 2 * STG_GRANULE_BYTES);
    struct stg_tensor mine;
    const char *name;
    stg_batch_tensor_at(header, 0, &mine, &name);
    ((int64_t *)mine.data)[4] = -1;
    CHECK_INT(((const int64_t *)x.data)[4], -1);

    struct stager_batch_info info = {.struct_size = sizeof(info)};
    stager_batch_info(batch, &info);
    CHECK_INT(info.number, 41);
    CHECK_INT(info.n_rows, 5);
    CHECK_INT(info.epoch, 3);
    CHECK_INT(info.n_tensors, 1);
    CHECK_INT(info.redelivered, 0);
    stager_release(batch);
    fake_finish(&fake, stream);
}

static void a_tensor_that_is_not_there_is_not_found(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    fake_publish(&fake, 0, 0, 1, 1);
    struct stager_batch *batch = fake_take(stream);
    struct stager_tensor x;
    CHECK_INT(stager_batch_tensor(batch, "y", &x), -STAGER_NOT_FOUND);
    CHECK_CONTAINS(stager_error_text(stream), "\"y\"");
    CHECK_CONTAINS(stager_error_text(stream), " x");
    CHECK_INT(stager_batch_tensor_at(batch, 1, &x), -STAGER_OUT_OF_RANGE);
    stager_release(batch);
    fake_finish(&fake, stream);
}

static void a_released_batch_returns_to_the_daemon_with_its_lease(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    fake_publish(&fake, 5, 0, 1, 1);
    struct stager_batch *batch = fake_take(stream);
    struct stg_release_entry entry;
    CHECK_INT(stg_control_poll(&fake.control, &entry), 0);
    stager_release(batch);
    CHECK_INT(stg_control_poll(&fake.control, &entry), 1);
    CHECK_INT(entry.lease, 5);
    CHECK_INT(entry.lease_generation, 1);
    stager_release(batch); /* a second release has no effect */
    CHECK_INT(stg_control_poll(&fake.control, &entry), 0);
    fake_finish(&fake, stream);
}

static void calling_next_acknowledges_the_batch_before(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    CHECK_INT(stg_control_asked(&fake.control), 0);
    fake_publish(&fake, 0, 0, 1, 1);
    struct stager_batch *first = fake_take(stream);
    CHECK_INT(stg_control_asked(&fake.control), 1); /* one batch taken */
    CHECK_INT(fake_next_code(stream), -STAGER_DEADLINE_EXCEEDED);
    CHECK_INT(stg_control_asked(&fake.control),
              2); /* inside the next call of `next`, and later */
    stager_release(first);
    fake_finish(&fake, stream);
}

static void batches_in_hand_are_bounded_and_named(void)
{
    struct fake fake = {.n_doorbells = 2};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    for (uint32_t i = 0; i < 3; i++)
        fake_publish(&fake, i, 70 + i, i, 1);
    struct stager_batch *first = fake_take(stream), *second = fake_take(stream);
    CHECK_INT(fake_next_code(stream), -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(stager_error_text(stream), "70, 71");
    struct stager_stream_info info = {.struct_size = sizeof(info)};
    stager_stream_info(stream, &info);
    CHECK_INT(info.held, 2);
    CHECK_INT(info.max_in_flight, 2);
    CHECK_INT(stg_control_asked(&fake.control), 2); /* a refused call requests nothing */

    stager_release(first);
    struct stager_batch *third = fake_take(stream);
    CHECK_INT(fake_first_value(third), 2);
    CHECK_INT(fake_first_value(second), 1);
    stager_release(second);
    stager_release(third);
    CHECK_INT(fake_releases(&fake), 3);
    fake_finish(&fake, stream);
}

static void batches_are_released_in_any_order(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    fake.max_in_flight = 8;
    struct stager_options options = {.struct_size = sizeof(options), .max_in_flight = 8};
    struct stager_stream *stream = fake_open(&fake, &options);
    CHECK_INT(fake.opened.max_in_flight, 8);
    struct stager_batch *batches[8];
    for (int round = 0; round < 200; round++) {
        for (uint32_t i = 0; i < 8; i++)
            fake_publish(&fake, i, i, round * 8 + i, 2);
        for (int i = 0; i < 8; i++)
            batches[i] = fake_take(stream);
        for (int i = 0; i < 8; i++) {
            int at = (i * 3 + round) % 8;
            CHECK_INT(fake_first_value(batches[at]), round * 8 + at);
            stager_release(batches[at]);
        }
        CHECK_INT(fake_releases(&fake), 8);
    }
    fake_finish(&fake, stream);
}

static void an_error_item_is_reported_and_the_stream_continues(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    fake_publish_error(&fake, 0, 0, STAGER_INVALID_ARGUMENT, "a.csv: line 3: bad field");
    fake_publish(&fake, 1, 1, 5, 1);
    CHECK_INT(fake_next_code(stream), -STAGER_INVALID_ARGUMENT);
    CHECK_STR(stager_error_text(stream), "a.csv: line 3: bad field");
    CHECK_INT(fake_releases(&fake), 1); /* the client released its memory */
    struct stager_stream_info info = {.struct_size = sizeof(info)};
    stager_stream_info(stream, &info);
    CHECK_INT(info.errors, 1);
    CHECK_INT(info.held, 0);
    CHECK_INT(info.finished, 0);
    struct stager_batch *batch = fake_take(stream);
    CHECK_INT(fake_first_value(batch), 5);
    CHECK_STR(stager_error_text(stream), "");
    stager_release(batch);
    fake_finish(&fake, stream);
}

static void the_end_stays_until_rewind(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    CHECK_INT(stg_control_pass_wanted(&fake.control), 1);
    CHECK_INT(stager_rewind(stream), -STAGER_FAILED_PRECONDITION);
    fake_publish_end(&fake, 0);
    for (int i = 0; i < 3; i++)
        CHECK_INT(fake_next_code(stream), -STAGER_OUT_OF_RANGE);
    struct stager_stream_info info = {.struct_size = sizeof(info)};
    stager_stream_info(stream, &info);
    CHECK_INT(info.at_end, 1);

    fake_doorbells(&fake);
    CHECK_INT(stager_rewind(stream), 0);
    CHECK_INT(stg_control_pass_wanted(&fake.control), 2);
    CHECK_INT(fake_doorbells(&fake), 1);
    fake_publish(&fake, 0, 1, 9, 1);
    struct stager_batch *batch = fake_take(stream);
    CHECK_INT(fake_first_value(batch), 9);
    CHECK_INT(stager_rewind(stream), -STAGER_FAILED_PRECONDITION);
    stager_release(batch);
    fake_finish(&fake, stream);
}

static void the_terminal_status_is_returned_by_every_later_call(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    fake_publish(&fake, 0, 0, 3, 1);
    stg_ring_finish(&fake.ring, STAGER_ABORTED, "replaced by generation 2");
    struct stager_batch *batch =
        fake_take(stream); /* published batches are still delivered */
    for (int i = 0; i < 3; i++) {
        CHECK_INT(fake_next_code(stream), -STAGER_ABORTED);
        CHECK_STR(stager_error_text(stream), "replaced by generation 2");
    }
    CHECK_INT(stager_rewind(stream), -STAGER_ABORTED);
    struct stager_stream_info info = {.struct_size = sizeof(info)};
    stager_stream_info(stream, &info);
    CHECK_INT(info.finished, 1);
    CHECK_INT(fake_first_value(batch), 3);
    stager_release(batch);
    fake_finish(&fake, stream);
}

static void a_dead_daemon_is_reported_after_the_batches_left_in_the_ring(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    fake_publish(&fake, 0, 0, 3, 1);
    fake_publish(&fake, 1, 1, 4, 1);
    fake_hang_up(&fake);
    struct stager_batch *batch = fake_take(stream);
    stager_release(fake_take(stream));
    for (int i = 0; i < 2; i++) {
        CHECK_INT(fake_next_code(stream), -STAGER_UNAVAILABLE);
        CHECK_CONTAINS(stager_error_text(stream), "stagerd closed the connection");
    }
    CHECK_INT(fake_first_value(batch), 3);
    stager_release(batch);
    fake_finish(&fake, stream);
}

static void batches_stay_readable_after_close_until_each_is_released(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    fake_publish(&fake, 0, 0, 10, 1);
    fake_publish(&fake, 1, 1, 20, 1);
    struct stager_batch *first = fake_take(stream), *second = fake_take(stream);
    fake_hang_up(&fake);
    stager_close(stream);
    CHECK_INT(fake_releases(&fake), 0);
    CHECK_INT(fake_first_value(first), 10);
    stager_release(first);
    CHECK_INT(fake_releases(&fake), 1); /* the daemon may check at any time */
    CHECK_INT(fake_first_value(second), 20);
    stager_release(second);
    CHECK_INT(fake_releases(&fake), 1);
    fake_stop(&fake);
}

static void *wait_for_goodbye(void *owner)
{
    struct fake *fake = owner;
    char buf[16];
    while (recv(fake->socket, buf, sizeof(buf), 0) > 0)
        ;
    /* The daemon disconnected and waits for the client. Batches that the client did not
     * take are not released yet: a daemon that counts a release as an acknowledgement
     * then redelivers them. */
    CHECK_INT(fake_releases(fake), 1);
    CHECK_INT(stg_control_asked(&fake->control), 1);
    fake_hang_up(fake);
    return NULL;
}

static void close_gives_back_what_was_never_taken_once_the_daemon_let_go(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    fake_publish(&fake, 0, 0, 10, 1);
    fake_publish(&fake, 1, 1, 11, 1);
    fake_publish_error(&fake, 2, 2, STAGER_DATA_LOSS, "never read");
    fake_publish_end(&fake, 0);
    stager_release(fake_take(stream));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, wait_for_goodbye, &fake) == 0);
    stager_close(stream);
    pthread_join(thread, NULL);
    CHECK_INT(fake_releases(&fake),
              2); /* the batch and the error item; an end has no lease */
    fake_stop(&fake);
}

static void options_reach_the_daemon(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_options options = {.struct_size = sizeof(options),
                                     .client_id = "rank-3",
                                     .max_in_flight = 2,
                                     .private_run = 1,
                                     .manual_ack = 1};
    struct stager_stream *stream = fake_open(&fake, &options);
    CHECK_STR(fake.client_id, "rank-3");
    CHECK_INT(fake.opened.private_run, true);
    CHECK_INT(fake.opened.manual_ack, true);
    CHECK_STR(stager_structure(stream), "\"x\"");
    CHECK_INT(stager_target_count(stream), 0);
    CHECK(stager_target(stream, 0) == NULL);
    fake_finish(&fake, stream);
}

static void a_client_is_called_after_program_and_process(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    char want[128];
    snprintf(want, sizeof(want), "%s-%d", program_invocation_short_name, (int)getpid());
    CHECK_STR(fake.client_id, want);
    CHECK_INT(fake.opened.max_in_flight, 2);
    fake_finish(&fake, stream);
}

static int64_t *writable(const struct stager_batch *batch)
{
    struct stager_tensor x;
    CHECK_INT(stager_batch_tensor(batch, "x", &x), 0);
    return (int64_t *)(uintptr_t)x.data;
}

static void writes_to_a_copy_are_private_and_discarded_at_release(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_options options = {.struct_size = sizeof(options), .copy_on_write = 1};
    struct stager_stream *stream = fake_open(&fake, &options);
    fake_publish(&fake, 2, 0, 10, 3);
    struct stager_batch *batch = fake_take(stream);
    int64_t *values = writable(batch);
    values[0] = -1;
    CHECK_INT(fake_first_value(batch), -1);
    const struct stg_batch_header *header =
        (const void *)(fake.segment + 2 * STG_GRANULE_BYTES);
    struct stg_tensor mine;
    const char *name;
    stg_batch_tensor_at(header, 0, &mine, &name);
    CHECK_INT(((const int64_t *)mine.data)[0], 10);

    stager_release(batch);
    fake_publish(&fake, 2, 1, 20, 3);
    batch = fake_take(stream);
    CHECK_INT(fake_first_value(batch), 20);
    stager_release(batch);
    values[0] = -2; /* too late */
    fake_publish(&fake, 2, 2, 30, 3);
    batch = fake_take(stream);
    CHECK_INT(fake_first_value(batch), 30);
    stager_release(batch);
    fake_finish(&fake, stream);
}

static void a_pinned_stream_keeps_its_memory_after_the_last_release(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    stg_stream_pin(stream);
    fake_publish(&fake, 2, 0, 10, 3);
    struct stager_batch *batch = fake_take(stream);
    const int64_t *values = writable(batch);
    stager_close(stream);
    stager_release(batch);
    CHECK_INT(values[0], 10);
    stg_stream_unpin(stream);
    fake_stop(&fake);
}

/* The child may only read, write and exit: any other system call kills it. */
static void take_without_system_calls(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0)
        _exit(77);
    for (uint64_t i = 0; i < 1000; i++) {
        fake_publish(&fake, i % 4, i, (int64_t)i, 4);
        struct stager_batch *batch;
        struct stager_tensor x;
        if (stager_next(stream, -1, &batch) != 0 ||
            stager_batch_tensor(batch, "x", &x) != 0 ||
            ((const int64_t *)x.data)[0] != (int64_t)i)
            syscall(SYS_exit, 2);
        stager_release(batch);
        if (fake_releases(&fake) != 1)
            syscall(SYS_exit, 3);
    }
    syscall(SYS_exit, 0);
}

static void a_ready_batch_costs_no_system_call(void)
{
#ifdef STG_SANITIZED
    SKIP("a sanitizer makes calls of its own");
#endif
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        take_without_system_calls();
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        SKIP("no seccomp here");
    CHECK(WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), 0);
}

/* Publishes the items of a split that this client takes, the first one in the last place.
 */
static void publish_backwards(struct fake *fake, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        uint64_t item = 2 * (n - i);
        struct stg_stream_place from = {
            .place = {.elements = item - 1, .items = item - 1}};
        fake_publish_from(fake, (uint32_t)i, i, &from, 0, 1);
    }
}

/* Each item would cost a walk over all ranges of the set. */
static void a_stream_without_states_keeps_no_set_of_items(void)
{
    for (int has_states = 0; has_states < 2; has_states++) {
        struct stg_pipeline_spec spec = {
            .name = "fake", .staged = {.delivery = STG_DELIVERY_SPLIT, .num_clients = 2}};
        struct fake fake = {0};
        fake_start(&fake);
        fake.pipeline = &spec;
        fake.irreproducible = has_states ? NULL : "deterministic: false";
        struct stager_stream *stream = fake_open(&fake, NULL);
        publish_backwards(&fake, 8);
        for (int i = 0; i < 8; i++) {
            struct stager_batch *batch;
            CHECK_INT(stager_next(stream, -1, &batch), 0);
            stager_release(batch);
        }
        CHECK_INT(stream->taken.n > 0, has_states);
        fake_finish(&fake, stream);
    }
}

static const struct stg_test tests[] = {
    TEST(a_batch_is_a_view_of_shared_memory),
    TEST(a_tensor_that_is_not_there_is_not_found),
    TEST(a_released_batch_returns_to_the_daemon_with_its_lease),
    TEST(calling_next_acknowledges_the_batch_before),
    TEST(batches_in_hand_are_bounded_and_named),
    TEST(batches_are_released_in_any_order),
    TEST(an_error_item_is_reported_and_the_stream_continues),
    TEST(the_end_stays_until_rewind),
    TEST(the_terminal_status_is_returned_by_every_later_call),
    TEST(a_dead_daemon_is_reported_after_the_batches_left_in_the_ring),
    TEST(batches_stay_readable_after_close_until_each_is_released),
    TEST(close_gives_back_what_was_never_taken_once_the_daemon_let_go),
    TEST(options_reach_the_daemon),
    TEST(a_client_is_called_after_program_and_process),
    TEST(writes_to_a_copy_are_private_and_discarded_at_release),
    TEST(a_pinned_stream_keeps_its_memory_after_the_last_release),
    TEST(a_ready_batch_costs_no_system_call),
    TEST(a_stream_without_states_keeps_no_set_of_items),
};

TEST_MAIN(tests)
