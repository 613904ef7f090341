/* SPDX-License-Identifier: Apache-2.0
 *
 * No wake-up is lost. The daemon and the trainer run on separate threads, and both often
 * run out of work. A lost doorbell costs a second, until the client's guard notices: many
 * of them exceed the deadline.
 */
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include "client/transport/socket.h"
#include "tests/check.h"
#include "tests/client/fake.h"

#define ROUNDS 30000
#define SLOTS 4

struct stress {
    struct fake fake;
    uint64_t n_polls_timed_out; /* doorbells that only the daemon's guard made up for */
};

/* Acts like the daemon: takes releases, publishes within the credit, requests a doorbell,
 * checks once more, sleeps on the socket. */
static void *play_daemon(void *owner)
{
    struct stress *stress = owner;
    struct fake *fake = &stress->fake;
    bool is_free[SLOTS] = {true, true, true, true};
    uint64_t number = 0;
    unsigned n_free = SLOTS;
    while (number < ROUNDS || n_free < SLOTS) {
        struct stg_release_entry entry;
        bool moved = false;
        while (stg_control_poll(&fake->control, &entry) == 1) {
            is_free[entry.lease] = true;
            n_free++;
            moved = true;
        }
        for (uint32_t slot = 0; slot < SLOTS && number < ROUNDS; slot++) {
            if (!is_free[slot])
                continue;
            fake_publish(fake, slot, number, (int64_t)number, 1);
            is_free[slot] = false;
            n_free--;
            number++;
            moved = true;
            if (stg_control_waiting(&fake->control))
                fake_ring(fake);
            if (number % 7 == 0)
                break; /* lets the client run out of batches now and then */
        }
        if (moved)
            continue;
        stg_ring_want_doorbell(&fake->ring);
        if (stg_control_poll(&fake->control, &entry) == 1) {
            is_free[entry.lease] = true;
            n_free++;
            continue;
        }
        struct pollfd poll_fd = {.fd = fake->socket, .events = POLLIN};
        if (poll(&poll_fd, 1, 1000) == 0)
            stress->n_polls_timed_out++;
        fake_doorbells(fake);
    }
    fake_publish_end(fake, 0);
    if (stg_control_waiting(&fake->control))
        fake_ring(fake);
    return NULL;
}

static void consume(struct stager_stream *stream, bool by_poll)
{
    for (uint64_t i = 0;; i++) {
        struct stager_batch *batch;
        int rc;
        while ((rc = stager_next(stream, by_poll ? 0 : -1, &batch)) ==
               -STAGER_DEADLINE_EXCEEDED) {
            struct pollfd poll_fd = {.fd = stager_pollfd(stream), .events = POLLIN};
            CHECK(poll(&poll_fd, 1, 5000) ==
                  1); /* the library's guard does not help here */
        }
        if (rc == -STAGER_OUT_OF_RANGE) {
            CHECK_INT(i, ROUNDS);
            return;
        }
        CHECK_INT(rc, 0);
        struct stager_tensor x;
        CHECK_INT(stager_batch_tensor(batch, "x", &x), 0);
        CHECK_INT(((const int64_t *)x.data)[0], (int64_t)i);
        if (i % 11 == 0)
            sched_yield();
        stager_release(batch);
    }
}

static void run(bool by_poll, uint32_t spin_ns)
{
    static struct stress stress;
    fake_start(&stress.fake);
    stress.fake.max_in_flight = SLOTS;
    struct stager_options options = {
        .struct_size = sizeof(options), .max_in_flight = SLOTS, .spin_ns = spin_ns};
    struct stager_stream *stream = fake_open(&stress.fake, &options);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, play_daemon, &stress) == 0);
    consume(stream, by_poll);
    pthread_join(thread, NULL);
    CHECK_INT(stress.n_polls_timed_out, 0);
    struct stager_stream_info info = {.struct_size = sizeof(info)};
    stager_stream_info(stream, &info);
    CHECK_INT(info.batches, ROUNDS);
    stager_close(stream);
    fake_stop(&stress.fake);
}

static void no_doorbell_is_lost_by_a_sleeper(void)
{
    run(false, 0);
}

static void no_doorbell_is_lost_by_a_spinner(void)
{
    run(false, 20000);
}

static void no_doorbell_is_lost_by_a_poller(void)
{
    run(true, 0);
}

static const struct stg_test tests[] = {
    TEST_SLOW(no_doorbell_is_lost_by_a_sleeper, 60),
    TEST_SLOW(no_doorbell_is_lost_by_a_spinner, 60),
    TEST_SLOW(no_doorbell_is_lost_by_a_poller, 60),
};

TEST_MAIN(tests)
