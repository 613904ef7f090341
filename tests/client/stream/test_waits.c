/* SPDX-License-Identifier: Apache-2.0
 *
 * Sleep and wake-up: deadlines, doorbells, poll, signals.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "client/transport/socket.h"
#include "tests/check.h"
#include "tests/client/fake.h"

static int64_t millis_since(int64_t begin_ns)
{
    return (stg_clock_ns() - begin_ns) / 1000000;
}

static void no_wait_does_not_sleep(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    struct stager_batch *batch;
    for (int i = 0; i < 1000; i++)
        CHECK_INT(stager_next(stream, 0, &batch), -STAGER_DEADLINE_EXCEEDED);
    struct stager_stream_info info = {.struct_size = sizeof(info)};
    stager_stream_info(stream, &info);
    CHECK_INT(info.sleeps, 0);
    CHECK_INT(info.wait_ns, 0);
    fake_finish(&fake, stream);
}

static void a_deadline_is_kept(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    struct stager_batch *batch;
    int64_t begin_ns = stg_clock_ns();
    CHECK_INT(stager_next(stream, 30, &batch), -STAGER_DEADLINE_EXCEEDED);
    CHECK_CONTAINS(stager_error_text(stream), "30 ms");
    CHECK(millis_since(begin_ns) >= 30);
    struct stager_stream_info info = {.struct_size = sizeof(info)};
    stager_stream_info(stream, &info);
    CHECK(info.sleeps >= 1);
    CHECK(info.wait_ns >= 29000000);
    /* the client requests no doorbell any more */
    CHECK(!stg_control_waiting(&fake.control));
    fake_finish(&fake, stream);
}

/* ---- a daemon on a separate thread ---- */

static void *publish_and_ring(void *owner)
{
    struct fake *fake = owner;
    fake_wait_asleep(fake);
    fake_publish(fake, 0, 0, 5, 1);
    fake_ring(fake);
    return NULL;
}

static void a_sleeper_is_woken_by_the_doorbell(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, publish_and_ring, &fake) == 0);
    struct stager_batch *batch;
    CHECK_INT(stager_next(stream, -1, &batch), 0);
    pthread_join(thread, NULL);
    CHECK(!stg_control_waiting(&fake.control));
    stager_release(batch);
    fake_finish(&fake, stream);
}

static void *publish_silently(void *owner)
{
    struct fake *fake = owner;
    fake_wait_asleep(fake);
    fake_publish(fake, 0, 0, 5, 1);
    return NULL;
}

static void a_lost_doorbell_costs_a_second_at_most(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, publish_silently, &fake) == 0);
    struct stager_batch *batch;
    int64_t begin_ns = stg_clock_ns();
    CHECK_INT(stager_next(stream, -1, &batch), 0);
    CHECK(millis_since(begin_ns) < 3000);
    pthread_join(thread, NULL);
    stager_release(batch);
    fake_finish(&fake, stream);
}

static void *ring_in_vain_and_die(void *owner)
{
    struct fake *fake = owner;
    fake_wait_asleep(fake);
    for (int i = 0; i < 1000; i++)
        fake_ring(fake);
    fake_hang_up(fake);
    return NULL;
}

static void a_sleeper_learns_at_once_that_the_daemon_died(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, ring_in_vain_and_die, &fake) == 0);
    struct stager_batch *batch;
    int64_t begin_ns = stg_clock_ns();
    CHECK_INT(stager_next(stream, -1, &batch), -STAGER_UNAVAILABLE);
    CHECK(millis_since(begin_ns) < 900); /* earlier than the guard's second */
    pthread_join(thread, NULL);
    fake_finish(&fake, stream);
}

static void a_spinner_needs_no_doorbell(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_options options = {.struct_size = sizeof(options),
                                     .spin_ns = 2000000000};
    struct stager_stream *stream = fake_open(&fake, &options);
    struct stager_batch *batch;
    CHECK_INT(stager_next(stream, 0, &batch), -STAGER_DEADLINE_EXCEEDED);
    pthread_t thread;
    CHECK(stg_control_waiting(&fake.control)); /* armed by the call above */
    CHECK(pthread_create(&thread, NULL, publish_silently, &fake) == 0);
    CHECK_INT(stager_next(stream, -1, &batch), 0);
    pthread_join(thread, NULL);
    struct stager_stream_info info = {.struct_size = sizeof(info)};
    stager_stream_info(stream, &info);
    CHECK_INT(info.sleeps, 0);
    stager_release(batch);
    fake_finish(&fake, stream);
}

/* ---- doorbells to the daemon ---- */

static void publish_some(struct fake *fake, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        fake_publish(fake, i, i, 1, 1);
}

static void the_daemon_is_rung_once_for_each_wish_when_the_ring_is_dry(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    struct stager_batch *none;
    CHECK_INT(stager_next(stream, 0, &none), -STAGER_DEADLINE_EXCEEDED);
    CHECK_INT(fake_doorbells(&fake), 0); /* not requested */
    stg_ring_want_doorbell(&fake.ring);
    for (int i = 0; i < 2; i++)
        CHECK_INT(stager_next(stream, 0, &none), -STAGER_DEADLINE_EXCEEDED);
    CHECK_INT(fake_doorbells(&fake), 1);
    stg_ring_want_doorbell(&fake.ring);
    CHECK_INT(stager_next(stream, 0, &none), -STAGER_DEADLINE_EXCEEDED);
    CHECK_INT(fake_doorbells(&fake), 1);
    fake_finish(&fake, stream);
}

/* The daemon then has the time of a batch to give the next one. */
static void a_release_rings_while_one_batch_is_left_and_next_does_not(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    fake.max_in_flight = 3;
    struct stager_stream *stream = fake_open(&fake, NULL);
    struct stager_batch *batch;
    publish_some(&fake, 3);
    stg_ring_want_doorbell(&fake.ring);
    for (unsigned left = 3; left-- > 0;) {
        CHECK_INT(stager_next(stream, 0, &batch), 0);
        CHECK_INT(fake_doorbells(&fake), 0);
        stager_release(batch);
        CHECK_INT(fake_doorbells(&fake), left == 1);
    }
    fake_finish(&fake, stream);
}

static void the_last_ready_batch_rings_for_a_release_that_did_not(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    fake.max_in_flight = 3;
    struct stager_stream *stream = fake_open(&fake, NULL);
    struct stager_batch *first, *second, *third;
    publish_some(&fake, 3);
    stg_ring_want_doorbell(&fake.ring);
    CHECK_INT(stager_next(stream, 0, &first), 0);
    stager_release(first);
    CHECK_INT(stager_next(stream, 0, &second), 0);
    CHECK_INT(fake_doorbells(&fake), 0);
    CHECK_INT(stager_next(stream, 0, &third), 0);
    CHECK_INT(fake_doorbells(&fake), 1);

    stg_ring_want_doorbell(&fake.ring);
    fake_publish(&fake, 0, 3, 1, 1);
    CHECK_INT(stager_next(stream, 0, &first), 0);
    CHECK_INT(fake_doorbells(&fake), 0); /* there is no news for the daemon */
    stager_release(first);
    stager_release(second);
    stager_release(third);
    CHECK_INT(fake_doorbells(&fake), 1);
    fake_finish(&fake, stream);
}

static void a_release_rings_when_it_was_wished_for(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    struct stager_batch *batch;
    fake_publish(&fake, 0, 0, 1, 1);
    CHECK_INT(stager_next(stream, 0, &batch), 0);
    stg_ring_want_doorbell(&fake.ring);
    stager_release(batch);
    CHECK_INT(fake_doorbells(&fake), 1);
    fake_finish(&fake, stream);
}

static void a_daemon_that_takes_no_doorbells_does_not_hold_us_up(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    struct stager_batch *batch;
    for (int i = 0; i < 5000; i++) { /* more than any queue of messages holds */
        stg_ring_want_doorbell(&fake.ring);
        CHECK_INT(stager_next(stream, 0, &batch), -STAGER_DEADLINE_EXCEEDED);
    }
    CHECK(fake_doorbells(&fake) < 5000);
    fake_finish(&fake, stream);
}

/* ---- poll ---- */

static bool is_readable(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return poll(&poll_fd, 1, 0) == 1;
}

static void a_call_that_found_nothing_arms_the_descriptor(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    struct stager_batch *batch;
    int fd = stager_pollfd(stream);
    CHECK(fd >= 0);
    CHECK(!stg_control_waiting(&fake.control));
    fake_ring(&fake); /* a stale doorbell */
    CHECK_INT(stager_next(stream, 0, &batch), -STAGER_DEADLINE_EXCEEDED);
    CHECK(!is_readable(fd)); /* drained, so that poll does not spin */
    CHECK(stg_control_waiting(&fake.control));

    fake_publish(&fake, 0, 0, 1, 1);
    fake_ring(&fake);
    CHECK(is_readable(fd));
    CHECK_INT(stager_next(stream, 0, &batch), 0);
    CHECK(!stg_control_waiting(&fake.control));
    stager_release(batch);
    CHECK_INT(stager_next(stream, 0, &batch), -STAGER_DEADLINE_EXCEEDED);
    CHECK(!is_readable(fd));

    fake_hang_up(&fake);
    CHECK(is_readable(fd)); /* the exit of the daemon wakes a poll too */
    CHECK_INT(stager_next(stream, 0, &batch), -STAGER_UNAVAILABLE);
    fake_finish(&fake, stream);
}

/* ---- signals ---- */

static volatile sig_atomic_t n_alarms;

static void count_alarm(int number)
{
    (void)number;
    n_alarms++;
}

static void signals_do_not_shorten_a_wait(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    struct sigaction action = {.sa_handler = count_alarm}; /* without SA_RESTART */
    sigaction(SIGALRM, &action, NULL);
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    struct itimerspec often = {.it_interval = {.tv_nsec = 2000000},
                               .it_value = {.tv_nsec = 2000000}};
    CHECK(timer_settime(timer, 0, &often, NULL) == 0);
    struct stager_batch *batch;
    int64_t begin_ns = stg_clock_ns();
    CHECK_INT(stager_next(stream, 60, &batch), -STAGER_DEADLINE_EXCEEDED);
    CHECK(millis_since(begin_ns) >= 60);
    CHECK(n_alarms >= 2);
    timer_delete(timer);
    fake_finish(&fake, stream);
}

static bool lose_patience(void *n_asked)
{
    return ++*(int *)n_asked == 3;
}

static void a_wait_for_an_answer_ends_with_its_threads_patience(void)
{
    int pair[2], n_asked = 0;
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
    struct stg_patience patience = {.is_over = lose_patience, .arg = &n_asked};
    stg_socket_set_patience(&patience);
    char buf[16];
    size_t n_fds = 0;
    struct stg_err err = {0};
    int64_t begin_ns = stg_clock_ns();
    CHECK_INT(
        stg_socket_receive(pair[0], buf, sizeof(buf), NULL, 0, &n_fds, STG_NEVER, &err),
        -STAGER_DEADLINE_EXCEEDED);
    CHECK_INT(n_asked, 3);
    CHECK(millis_since(begin_ns) >= 290);
    stg_socket_set_patience(NULL);
    CHECK_INT(stg_socket_receive(pair[0], buf, sizeof(buf), NULL, 0, &n_fds,
                                 stg_clock_ns() + 150000000, &err),
              -STAGER_DEADLINE_EXCEEDED);
    CHECK_INT(n_asked, 3);
    close(pair[0]);
    close(pair[1]);
}

static const struct stg_test tests[] = {
    TEST(no_wait_does_not_sleep),
    TEST(a_deadline_is_kept),
    TEST(a_sleeper_is_woken_by_the_doorbell),
    TEST(a_lost_doorbell_costs_a_second_at_most),
    TEST(a_sleeper_learns_at_once_that_the_daemon_died),
    TEST(a_spinner_needs_no_doorbell),
    TEST(the_daemon_is_rung_once_for_each_wish_when_the_ring_is_dry),
    TEST(a_release_rings_while_one_batch_is_left_and_next_does_not),
    TEST(the_last_ready_batch_rings_for_a_release_that_did_not),
    TEST(a_release_rings_when_it_was_wished_for),
    TEST(a_daemon_that_takes_no_doorbells_does_not_hold_us_up),
    TEST(a_call_that_found_nothing_arms_the_descriptor),
    TEST(signals_do_not_shorten_a_wait),
    TEST(a_wait_for_an_answer_ends_with_its_threads_patience),
};

TEST_MAIN(tests)
