/* SPDX-License-Identifier: Apache-2.0
 *
 * Trainer and daemon in different pid, mount and user namespaces, in both directions: a
 * container that mounts only the runtime directory. Also the behaviour if the kernel does
 * not let the daemon watch such a process.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/system/fixture.h"

#define ENCLOSED true
#define OUTSIDE false

static void apply_numbers(struct fixture *fixture, const char *staged)
{
    char yaml[512];
    snprintf(yaml, sizeof(yaml),
             "name: numbers\n"
             "dataset:\n  - range: {stop: 100}\n  - batch: {batch_size: 2}\n"
             "staged: {%s}\n",
             staged);
    fixture_apply(fixture, yaml);
}

/* Like trainer_start, in a container with only the runtime directory. */
static void enclosed_start(struct trainer *trainer,
                           void (*body)(struct fixture *fixture, int fd, void *arg),
                           struct fixture *fixture, void *arg)
{
    int pair[2];
    char root[128];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    snprintf(root, sizeof(root), "%s/root", fixture->dir);
    trainer->pid = enclosed_fork();
    trainer->fd = pair[0];
    if (trainer->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        enclosed_root(root, fixture->runtime);
        snprintf(fixture->runtime, sizeof(fixture->runtime), "/run");
        body(fixture, pair[1], arg);
        _exit(0);
    }
    close(pair[1]);
}

static int64_t first_value(const struct stager_batch *batch)
{
    struct stager_tensor t;
    CHECK_INT(stager_batch_tensor(batch, "value", &t), 0);
    return ((const int64_t *)t.data)[0];
}

/* Takes the whole pass, sends the sum of all numbers and the pid inside the container. */
static void sum_all(struct fixture *fixture, int fd, void *arg)
{
    struct stager_stream *stream = fixture_open(fixture, "numbers", "container", 2);
    struct stager_batch *batch;
    int64_t sum = 0;
    int rc;
    CHECK(access("/proc", F_OK) < 0);
    while ((rc = stager_next(stream, fixture_millis(20000), &batch)) == 0) {
        struct stager_tensor t;
        CHECK_INT(stager_batch_tensor(batch, "value", &t), 0);
        for (int64_t i = 0; i < t.shape[0]; i++)
            sum += ((const int64_t *)t.data)[i];
        stager_release(batch);
    }
    CHECK_INT(rc, -STAGER_OUT_OF_RANGE);
    struct stager_stream_info info = {.struct_size = sizeof(info)};
    stager_stream_info(stream, &info);
    trainer_send(fd, sum);
    trainer_send(fd, getpid());
    trainer_send(fd, info.unwatched);
    stager_close(stream);
}

/* Holds two batches until it is killed or gets a request to close; then until a request
 * to release.
 */
static void hold_two(struct fixture *fixture, int fd, void *arg)
{
    struct stager_stream *stream = fixture_open(fixture, "rows", "holder", 2);
    struct stager_batch *first = fixture_take(stream), *second = fixture_take(stream);
    struct stager_stream_info info = {.struct_size = sizeof(info)};
    stager_stream_info(stream, &info);
    trainer_send(fd, first_value(second)); /* the first is acknowledged by then */
    trainer_send(fd, info.unwatched);
    trainer_recv(fd);
    stager_close(stream);
    trainer_send(fd, 0);
    trainer_recv(fd);
    fixture_check_pad(first);
    stager_release(first);
    stager_release(second);
    trainer_send(fd, 0);
    trainer_recv(fd);
}

static bool nothing_is_held(const struct fixture_status *status, void *arg)
{
    return status->quarantined_bytes == 0 && status->n_clients == status->n_gone;
}

static void a_trainer_in_a_container_trains_and_leaves(void)
{
    struct fixture fixture;
    struct trainer trainer;
    fixture_start(&fixture, "");
    apply_numbers(&fixture, "capacity: 2");
    enclosed_start(&trainer, sum_all, &fixture, NULL);
    CHECK_INT(trainer_recv(trainer.fd), 99 * 100 / 2);
    CHECK_INT(trainer_recv(trainer.fd), 1);
    CHECK_INT(trainer_recv(trainer.fd), 0);
    trainer_join(&trainer);
    fixture_wait(&fixture, "numbers", 5000, nothing_is_held, NULL);
    fixture_finish(&fixture);
}

/* The batches of the dead trainer go to this one, and its memory is released at once. */
static void check_reaped(struct fixture *fixture, struct trainer *trainer, bool visible)
{
    int64_t value = trainer_recv(trainer->fd);
    CHECK_INT(trainer_recv(trainer->fd), 0); /* it is watched */
    struct fixture_status status;
    fixture_status(fixture, "rows", &status);
    CHECK_INT(status.n_clients, 1);
    CHECK_INT(status.clients[0].pid, visible ? trainer->pid : 0);
    struct stager_stream *stream = fixture_open(fixture, "rows", "heir", 2);
    trainer_kill(trainer);
    struct stager_batch *batch;
    struct stager_batch_info info = {.struct_size = sizeof(info)};
    do {
        batch = fixture_take(stream);
        stager_batch_info(batch, &info);
        int64_t got = first_value(batch);
        stager_release(batch);
        if (info.redelivered)
            CHECK_INT(got, value);
    } while (!info.redelivered);
    stager_close(stream);
    fixture_wait(fixture, "rows", 5000, nothing_is_held, NULL);
}

static void a_trainer_that_dies_in_a_container_is_cleaned_up(void)
{
    struct fixture fixture;
    struct trainer trainer;
    fixture_start(&fixture, "");
    fixture_apply_endless(&fixture,
                          "capacity: 2, num_clients: 2, reconnect_grace_millis: 0");
    enclosed_start(&trainer, hold_two, &fixture, NULL);
    check_reaped(&fixture, &trainer, true);
    fixture_finish(&fixture);
}

/* The daemon sees only pid 0; the kernel's descriptor reports its death. */
static void a_daemon_in_a_container_serves_and_reaps_trainers_outside(void)
{
    struct fixture fixture;
    struct trainer trainer;
    fixture_start_enclosed(&fixture, "", ENCLOSED, NULL);
    fixture_apply_endless(&fixture,
                          "capacity: 2, num_clients: 2, reconnect_grace_millis: 0");
    trainer_start(&trainer, hold_two, &fixture, NULL);
    check_reaped(&fixture, &trainer, false);
    fixture_finish(&fixture);
}

static void an_older_kernel_watches_a_visible_pid(void)
{
    struct fixture fixture;
    struct trainer trainer;
    fixture_start_enclosed(&fixture, "", OUTSIDE, BLIND_PATH);
    fixture_apply_endless(&fixture,
                          "capacity: 2, num_clients: 2, reconnect_grace_millis: 0");
    enclosed_start(&trainer, hold_two, &fixture, NULL);
    check_reaped(&fixture, &trainer, true);
    fixture_finish(&fixture);
}

/* ---- a process that cannot be watched ---- */

static void start_unwatched(struct fixture *fixture, struct trainer *trainer,
                            const char *staged)
{
    fixture_start_enclosed(fixture, "", ENCLOSED, BLIND_PATH);
    fixture_apply_endless(fixture, staged);
    trainer_start(trainer, hold_two, fixture, NULL);
    trainer_recv(trainer->fd);
    CHECK_INT(trainer_recv(trainer->fd), 1); /* open has reported it */
    fixture_wait_log(fixture,
                     "pipeline rows: the process of client holder cannot be watched");
    fixture_wait_log(fixture, "the end of its socket counts as its death");
}

static bool is_quarantined(const struct fixture_status *status, void *arg)
{
    return status->quarantined_bytes > 0;
}

static void an_unwatched_trainer_that_dies_gives_back_after_a_while(void)
{
    struct fixture fixture;
    struct trainer trainer;
    start_unwatched(&fixture, &trainer,
                    "capacity: 2, num_clients: 2, reconnect_grace_millis: 0, "
                    "lease_timeout_millis: 1500");
    struct stager_stream *stream = fixture_open(&fixture, "rows", "heir", 2);
    trainer_kill(&trainer);
    /* A waiting client gets its batches at once; its memory stays for a while. */
    struct stager_batch_info info = {.struct_size = sizeof(info)};
    do {
        struct stager_batch *batch = fixture_take(stream);
        stager_batch_info(batch, &info);
        stager_release(batch);
    } while (!info.redelivered);
    struct fixture_status status;
    fixture_status(&fixture, "rows", &status);
    CHECK(status.quarantined_bytes > 0);
    stager_close(stream);
    CHECK(fixture_wait(&fixture, "rows", 10000, nothing_is_held, NULL) > 100);
    fixture_finish(&fixture);
}

static void an_unwatched_trainer_may_read_on_after_close_until_it_releases(void)
{
    struct fixture fixture;
    struct trainer trainer;
    start_unwatched(&fixture, &trainer,
                    "capacity: 2, num_clients: 2, reconnect_grace_millis: 0");
    struct stager_stream *stream = fixture_open(&fixture, "rows", "other", 2);
    trainer_send(trainer.fd, 0);
    trainer_recv(trainer.fd);
    fixture_wait(&fixture, "rows", 5000, is_quarantined, NULL);
    for (int i = 0; i < 20; i++) /* the memory is not used for these */
        stager_release(fixture_take(stream));
    trainer_send(trainer.fd, 0);
    trainer_recv(trainer.fd);
    stager_close(stream);
    fixture_wait(&fixture, "rows", 5000, nothing_is_held, NULL);
    trainer_send(trainer.fd, 0);
    trainer_join(&trainer);
    fixture_finish(&fixture);
}

static const struct stg_test tests[] = {
    TEST_SLOW(a_trainer_in_a_container_trains_and_leaves, 60),
    TEST_SLOW(a_trainer_that_dies_in_a_container_is_cleaned_up, 60),
    TEST_SLOW(a_daemon_in_a_container_serves_and_reaps_trainers_outside, 60),
    TEST_SLOW(an_older_kernel_watches_a_visible_pid, 60),
    TEST_SLOW(an_unwatched_trainer_that_dies_gives_back_after_a_while, 60),
    TEST_SLOW(an_unwatched_trainer_may_read_on_after_close_until_it_releases, 60),
};

TEST_MAIN(tests)
