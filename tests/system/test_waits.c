/* SPDX-License-Identifier: Apache-2.0
 *
 * Every wait ends: with a batch, the end, an error that names its cause, or a deadline. A
 * client that keeps batches holds up no other client.
 */
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/system/fixture.h"

static void a_held_batch_that_others_wait_for_expires(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply_endless(&fixture, "capacity: 1, num_clients: 2, delivery: broadcast, "
                                    "lease_timeout_millis: 200");
    struct stager_stream *fast = fixture_open(&fixture, "rows", "fast", 2);
    struct stager_stream *stuck = fixture_open(&fixture, "rows", "stuck", 2);
    struct stager_batch *in_hand = fixture_take(stuck), *batch;
    for (int i = 0; i < 20; i++)
        stager_release(fixture_take(fast));
    fixture_check_pad(in_hand);
    stager_release(in_hand);
    /* Batches left in its ring may have gone to others. */
    CHECK_INT(stager_next(stuck, 0, &batch), -STAGER_DEADLINE_EXCEEDED);
    CHECK_CONTAINS(stager_error_text(stuck), "lease_timeout_millis");
    stager_close(stuck);
    stager_close(fast);
    fixture_finish(&fixture);
}

static void the_batch_after_one_that_is_done_with_expires_too(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply_endless(&fixture, "capacity: 1, num_clients: 2, delivery: broadcast, "
                                    "lease_timeout_millis: 200");
    struct stager_stream *fast = fixture_open(&fixture, "rows", "fast", 2);
    struct stager_stream *stuck = fixture_open(&fixture, "rows", "stuck", 2);
    struct stager_batch *done = fixture_take(stuck), *in_hand = fixture_take(stuck),
                        *batch;
    for (int i = 0; i < 20; i++)
        stager_release(fixture_take(fast));
    stager_release(done);
    stager_release(in_hand);
    CHECK_INT(stager_next(stuck, 0, &batch), -STAGER_DEADLINE_EXCEEDED);
    CHECK_CONTAINS(stager_error_text(stuck), "held batch 1 ");
    stager_close(stuck);
    stager_close(fast);
    fixture_finish(&fixture);
}

/* Takes every batch and keeps the first, unacknowledged, for as long as it can. */
static void keeper_body(struct fixture *fixture, int fd, void *arg)
{
    struct stager_options options = {.struct_size = sizeof(options),
                                     .runtime_dir = fixture->runtime,
                                     .client_id = "keeper",
                                     .manual_ack = 1};
    struct stager_stream *stream;
    CHECK_INT(stager_open(NULL, "rows", &options, &stream), 0);
    trainer_send(fd, 1);
    struct stager_batch *first = fixture_take(stream);
    for (int i = 0; i < 6; i++)
        stager_release(fixture_take(stream));
    trainer_send(fd, 2);
    stager_release(first);
    stager_close(stream);
}

static bool two_are_held(const struct fixture_status *status, void *arg)
{
    for (uint32_t i = 0; i < status->n_clients; i++) {
        if (strcmp(status->clients[i].client_id, "slow") == 0)
            return status->clients[i].held == 2;
    }
    return false;
}

/* The keeper waits, but no client waits for its batch: the other one is slow. */
static void a_client_that_only_waits_itself_is_not_expired(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply_endless(&fixture, "capacity: 1, num_clients: 2, delivery: broadcast, "
                                    "lease_timeout_millis: 2000");
    struct trainer keeper;
    trainer_start(&keeper, keeper_body, &fixture, NULL);
    trainer_recv(keeper.fd);
    struct stager_stream *slow = fixture_open(&fixture, "rows", "slow", 2);
    fixture_wait(&fixture, "rows", 10000, two_are_held, NULL);
    /* The timeout of the slow client expires, and the keeper continues. */
    CHECK_INT(trainer_recv(keeper.fd), 2);
    trainer_join(&keeper);
    struct stager_batch *batch;
    int rc;
    while ((rc = stager_next(slow, 10000, &batch)) == 0)
        stager_release(batch);
    CHECK_INT(rc, -STAGER_DEADLINE_EXCEEDED);
    stager_close(slow);
    fixture_finish(&fixture);
}

/* A process that left but still maps a batch costs that memory, not the pipeline. */
static void a_batch_kept_after_close_does_not_keep_the_pipeline(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply_endless(&fixture, "capacity: 2, num_clients: 1");
    struct stager_stream *stream = fixture_open(&fixture, "rows", "first", 2);
    struct stager_batch *kept = fixture_take(stream);
    stager_close(stream);
    int64_t began = now_millis();
    for (int i = 0; i < 3; i++) {
        stream = fixture_open(&fixture, "rows", "again", 2);
        stager_release(fixture_take(stream));
        stager_close(stream);
    }
    CHECK(now_millis() - began < fixture_millis(10000));
    fixture_check_pad(kept);
    stager_release(kept);
    fixture_finish(&fixture);
}

static void a_stop_does_not_wait_for_batches_in_hand(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply_endless(&fixture, "capacity: 2");
    struct stager_stream *stream = fixture_open(&fixture, "rows", "a", 2);
    struct stager_batch *kept = fixture_take(stream);
    fixture_stop(&fixture);
    CHECK_INT(fixture_count_log(&fixture, "a runner still reads or computes"), 0);
    fixture_check_pad(kept);
    stager_release(kept);
    stager_close(stream);
    fixture_finish(&fixture);
}

/* Returns the thread of that name in stagerd, or 0. */
static pid_t find_thread(pid_t pid, const char *name)
{
    char path[64], comm[32];
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    CHECK(tasks != NULL);
    pid_t found = 0;
    struct dirent *entry;
    while (found == 0 && (entry = readdir(tasks)) != NULL) {
        snprintf(path, sizeof(path), "/proc/%d/task/%.16s/comm", (int)pid, entry->d_name);
        FILE *file = fopen(path, "re");
        if (file != NULL && fgets(comm, sizeof(comm), file) != NULL &&
            strncmp(comm, name, strlen(name)) == 0)
            found = (pid_t)atoi(entry->d_name);
        if (file != NULL)
            fclose(file);
    }
    closedir(tasks);
    return found;
}

/* Stops a runner like a debugger; false if that is forbidden. */
static bool stop_runner(pid_t runner)
{
    int status;
    CHECK(runner > 0);
    if (ptrace(PTRACE_ATTACH, runner, NULL, NULL) < 0)
        return false;
    CHECK_INT(waitpid(runner, &status, __WALL), runner);
    CHECK(WIFSTOPPED(status));
    return true;
}

/* SIGTERM ends stagerd, with status 0 and without its socket, although a runner is
 * stopped.
 */
static void end_without_runner(struct fixture *fixture, pid_t runner)
{
    int status;
    char path[256];
    kill(fixture->pid, SIGTERM);
    CHECK_INT(waitpid(runner, &status, __WALL), runner);
    CHECK_INT(waitpid(fixture->pid, &status, 0), fixture->pid);
    CHECK(WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), 0);
    snprintf(path, sizeof(path), "%.128s/attach.sock", fixture->runtime);
    CHECK(access(path, F_OK) < 0);
    fixture->pid = 0;
}

/* A thread stopped by a debugger is as unresponsive as one in a read from a dead
 * server. */
static void a_runner_that_hangs_does_not_keep_the_daemon(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply_endless(&fixture, "capacity: 2");
    struct stager_stream *stream = fixture_open(&fixture, "rows", "a", 2);
    stager_release(fixture_take(stream));
    pid_t runner = find_thread(fixture.pid, "rows/0");
    bool is_stopped = stop_runner(runner);
    if (is_stopped)
        end_without_runner(&fixture, runner);
    stager_close(stream);
    fixture_finish(&fixture);
    if (!is_stopped)
        SKIP("ptrace is not allowed here");
}

/* Lets a stopped runner continue to its next call of send, and no further. */
static void go_on_to_send(pid_t runner)
{
    struct __ptrace_syscall_info call = {0};
    int status;
    CHECK_INT(ptrace(PTRACE_SETOPTIONS, runner, NULL, PTRACE_O_TRACESYSGOOD), 0);
    do {
        CHECK_INT(ptrace(PTRACE_SYSCALL, runner, NULL, NULL), 0);
        CHECK_INT(waitpid(runner, &status, __WALL), runner);
        CHECK(WIFSTOPPED(status));
        if (WSTOPSIG(status) == (SIGTRAP | 0x80))
            CHECK(ptrace(PTRACE_GET_SYSCALL_INFO, runner, sizeof(call), &call) > 0);
    } while (call.op != PTRACE_SYSCALL_INFO_ENTRY || call.entry.nr != SYS_sendto);
}

static void taking_body(struct fixture *fixture, int fd, void *arg)
{
    struct stager_stream *stream = fixture_open(fixture, "rows", "a", 2);
    struct stager_batch *batch;
    trainer_send(fd, 1);
    while (stager_next(stream, 20000, &batch) == 0)
        stager_release(batch);
    stager_close(stream);
}

/* A runner that rings a doorbell holds the lock of the stage, and therefore stops the
 * loop. */
static void a_runner_that_hangs_with_a_lock_does_not_keep_the_daemon(void)
{
    struct fixture fixture;
    struct trainer trainer;
    fixture_start(&fixture, "");
    fixture_apply_endless(&fixture, "capacity: 2");
    trainer_start(&trainer, taking_body, &fixture, NULL);
    trainer_recv(trainer.fd);
    pid_t runner = find_thread(fixture.pid, "rows/0");
    bool is_stopped = stop_runner(runner);
    if (is_stopped) {
        go_on_to_send(runner);
        end_without_runner(&fixture, runner);
    }
    trainer_kill(&trainer);
    fixture_finish(&fixture);
    if (!is_stopped)
        SKIP("ptrace is not allowed here");
}

static long cpu_ticks(pid_t pid)
{
    char path[64], text[1024] = "";
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    CHECK(file != NULL && fgets(text, sizeof(text), file) != NULL);
    fclose(file);
    unsigned long user, system;
    CHECK(sscanf(strrchr(text, ')') + 2,
                 "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                 &system) == 2);
    return (long)(user + system);
}

/* Returns how often a thread of it has gone to sleep, and its name. */
static long thread_sleeps(pid_t pid, int tid, char ret_name[32])
{
    char path[64], line[256];
    long n = -1;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/status", (int)pid, tid);
    FILE *file = fopen(path, "re");
    CHECK(file != NULL);
    while (n < 0 && fgets(line, sizeof(line), file) != NULL) {
        sscanf(line, "Name: %31s", ret_name);
        sscanf(line, "voluntary_ctxt_switches: %ld", &n);
    }
    fclose(file);
    CHECK(n >= 0);
    return n;
}

/* Its first thread. */
static long loop_sleeps(pid_t pid)
{
    char name[32];
    return thread_sleeps(pid, (int)pid, name);
}

#define N_SLOW 50

/* Its items come from the runner, which also handles its releases. */
static void a_trainer_that_waits_for_a_slow_runner_does_not_wake_the_loop(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply(
        &fixture,
        "name: slow\n"
        "dataset:\n  - range: {stop: 1000}\n  - batch: {batch_size: 1}\n"
        "graph:\n  - {name: out, op: sleep, input: [value], sleep_microseconds: 10000}\n"
        "staged: {features: {value: out}, num_threads: 1}\n");
    struct stager_stream *stream = fixture_open(&fixture, "slow", "patient", 2);
    for (int i = 0; i < 3; i++)
        stager_release(fixture_take(stream));
    long before = loop_sleeps(fixture.pid);
    for (int i = 0; i < N_SLOW; i++)
        stager_release(fixture_take(stream));
    long n = loop_sleeps(fixture.pid) - before;
    if (n > N_SLOW / 2)
        FAIL("the loop woke %ld times for %d items", n, N_SLOW);

    struct stager_stream_info info = {.struct_size = sizeof(info)};
    struct fixture_status status;
    stager_stream_info(stream, &info);
    fixture_status(&fixture, "slow", &status);
    CHECK_INT(status.clients[0].released, 3 + N_SLOW);
    uint64_t seen_ns = status.clients[0].wait_ns;
    if (seen_ns < info.wait_ns / 2 || seen_ns > info.wait_ns)
        FAIL("it slept %llu ns, the status says %llu", (unsigned long long)info.wait_ns,
             (unsigned long long)seen_ns);
    stager_close(stream);
    fixture_finish(&fixture);
}

#define N_RUNNERS 4
#define N_TINY 1000
#define MAX_WINDOWS 20
#define WORK_NS 50000

/* Each runner of "tiny". */
static void runner_sleeps(pid_t pid, long ret[N_RUNNERS])
{
    char path[64], name[32];
    int i, n = 0;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    CHECK(dir != NULL);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        long sleeps = thread_sleeps(pid, atoi(entry->d_name), name);
        if (sscanf(name, "tiny/%d", &i) == 1 && i < N_RUNNERS) {
            ret[i] = sleeps;
            n++;
        }
    }
    closedir(dir);
    CHECK_INT(n, N_RUNNERS);
}

/* A trainer that is slower than the runners. */
static void work_on(struct stager_stream *stream, int n)
{
    struct timespec began, now;
    for (int i = 0; i < n; i++) {
        stager_release(fixture_take(stream));
        clock_gettime(CLOCK_MONOTONIC, &began);
        do {
            clock_gettime(CLOCK_MONOTONIC, &now);
        } while ((now.tv_sec - began.tv_sec) * 1000000000 + now.tv_nsec - began.tv_nsec <
                 WORK_NS);
    }
}

static void of_items_that_take_no_time_one_runner_makes_all(void)
{
#ifdef STG_SANITIZED
    SKIP("under a sanitizer every item takes its time");
#endif
    struct fixture fixture;
    long before[N_RUNNERS], after[N_RUNNERS];
    fixture_start(&fixture, "");
    fixture_apply(&fixture, "name: tiny\ndataset:\n  - range: {stop: 100000}\n"
                            "staged: {capacity: 4, num_threads: 4}\n");
    struct stager_stream *stream = fixture_open(&fixture, "tiny", "slow", 2);
    work_on(stream, 100); /* until the daemon has measured an item */
    int n = N_RUNNERS;
    for (int k = 0; n > 1 && k < MAX_WINDOWS;
         k++) { /* of which a busy machine spoils some */
        runner_sleeps(fixture.pid, before);
        work_on(stream, N_TINY);
        runner_sleeps(fixture.pid, after);
        n = 0;
        for (int i = 0; i < N_RUNNERS; i++)
            n += after[i] - before[i] > N_TINY / 20;
    }
    if (n > 1)
        FAIL("%d runners were woken for items that one makes in less time", n);
    stager_close(stream);
    fixture_finish(&fixture);
}

static void waiting_body(struct fixture *fixture, int fd, void *arg)
{
    trainer_send(fd, 1);
    struct stager_stream *stream = fixture_open(fixture, "late", arg, 2);
    stager_release(fixture_take(stream));
    trainer_send(fd, 2);
    stager_close(stream);
}

static void opens_that_wait_for_memory_cost_no_time(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "memory_budget: 220000000\n"); /* for one run */
    fixture_apply_endless(&fixture,
                          "capacity: 2, num_clients: 1, reconnect_grace_millis: 0");
    fixture_apply(&fixture, "name: late\n"
                            "dataset:\n  - range: {stop: 64}\n"
                            "  - batch: {batch_size: 2, drop_remainder: true}\n"
                            "staged: {num_clients: 2}\n");
    struct stager_stream *stream = fixture_open(&fixture, "rows", "first", 2);
    struct stager_batch *kept = fixture_take(stream);
    stager_close(stream);
    struct trainer waiting[2];
    char names[2][2] = {"a", "b"};
    for (int i = 0; i < 2; i++) {
        trainer_start(&waiting[i], waiting_body, &fixture, names[i]);
        trainer_recv(waiting[i].fd);
    }
    long before = cpu_ticks(fixture.pid);
    int64_t began = now_millis();
    while (now_millis() - began < 1000)
        poll(NULL, 0, 100);
    long ticks = cpu_ticks(fixture.pid) - before;
    if (ticks * 4 > sysconf(_SC_CLK_TCK))
        FAIL("%ld ticks in a second of waiting", ticks);
    stager_release(kept);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(trainer_recv(waiting[i].fd), 2);
        trainer_join(&waiting[i]);
    }
    fixture_finish(&fixture);
}

static const struct stg_test tests[] = {
    TEST(a_held_batch_that_others_wait_for_expires),
    TEST(the_batch_after_one_that_is_done_with_expires_too),
    TEST(a_client_that_only_waits_itself_is_not_expired),
    TEST(a_batch_kept_after_close_does_not_keep_the_pipeline),
    TEST(a_stop_does_not_wait_for_batches_in_hand),
    TEST(a_runner_that_hangs_does_not_keep_the_daemon),
    TEST_SLOW(a_runner_that_hangs_with_a_lock_does_not_keep_the_daemon, 40),
    TEST(opens_that_wait_for_memory_cost_no_time),
    TEST(a_trainer_that_waits_for_a_slow_runner_does_not_wake_the_loop),
    TEST(of_items_that_take_no_time_one_runner_makes_all),
};

TEST_MAIN(tests)
