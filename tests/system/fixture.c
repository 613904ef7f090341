/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/system/fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/check.h"

int64_t now_millis(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t fixture_millis(int64_t millis)
{
    const char *factor = getenv("STG_TEST_SLOW");
    return factor != NULL && atoi(factor) > 0 ? millis * atoi(factor) : millis;
}

static void pause_millis(int64_t millis)
{
    struct timespec wait = {.tv_sec = millis / 1000, .tv_nsec = millis % 1000 * 1000000};
    nanosleep(&wait, NULL);
}

/* ---- processes in separate namespaces, as in a container ---- */

/* The child may not use anything of the test's runner. */
static void must(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "enclosed: %s: %s\n", what, strerror(errno));
    _exit(126);
}

static void write_map(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    must(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text), path);
    close(fd);
}

static void keep_ids(uid_t uid, gid_t gid)
{
    char map[64];
    write_map("/proc/self/setgroups", "deny");
    snprintf(map, sizeof(map), "%u %u 1", (unsigned)uid, (unsigned)uid);
    write_map("/proc/self/uid_map", map);
    snprintf(map, sizeof(map), "%u %u 1", (unsigned)gid, (unsigned)gid);
    write_map("/proc/self/gid_map", map);
}

pid_t enclosed_fork(void)
{
    unsigned long flags = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | SIGCHLD;
    uid_t uid = geteuid();
    gid_t gid = getegid();
    fflush(NULL);
    pid_t pid = (pid_t)syscall(SYS_clone, flags, NULL, NULL, NULL, 0ul);
    if (pid < 0)
        SKIP("no namespaces here: %s", strerror(errno));
    if (pid == 0)
        keep_ids(uid, gid);
    return pid;
}

void enclosed_root(const char *dir, const char *below)
{
    char run[256];
    snprintf(run, sizeof(run), "%s/run", dir);
    must(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0, "private mounts");
    must(mkdir(dir, 0700) == 0 || errno == EEXIST, dir);
    must(mount("none", dir, "tmpfs", 0, "mode=700") == 0, "tmpfs");
    must(mkdir(run, 0700) == 0, run);
    must(mount(below, run, NULL, MS_BIND, NULL) == 0, below);
    must(chroot(dir) == 0 && chdir("/") == 0, "chroot");
}

/* ---- daemon ---- */

static void write_settings(struct fixture *fixture, const char *settings)
{
    FILE *file = fopen(fixture->config, "w");
    CHECK(file != NULL);
    fprintf(file,
            "runtime_dir: %s\nstate_dir: %s/home/state\npipeline_dir: %s/pipelines\n"
            "%s",
            fixture->runtime, fixture->dir, fixture->dir, settings);
    fclose(file);
}

/* Sets a library to preload. LD_PRELOAD ends a path at a space; the folders of
 * LD_LIBRARY_PATH may contain spaces. */
static void preload(const char *library)
{
    char path[4096];
    const char *slash = strrchr(library, '/'), *before = getenv("LD_LIBRARY_PATH");
    CHECK(slash != NULL);
    int n = snprintf(path, sizeof(path), "%.*s%s%s", (int)(slash - library), library,
                     before != NULL ? ":" : "", before != NULL ? before : "");
    CHECK(n < (int)sizeof(path));
    setenv("LD_LIBRARY_PATH", path, 1);
    setenv("LD_PRELOAD", slash + 1, 1);
}

static void spawn(struct fixture *fixture)
{
    fflush(NULL);
    fixture->pid = fixture->enclosed ? enclosed_fork() : fork();
    CHECK(fixture->pid >= 0);
    if (fixture->pid == 0) {
        char log[128];
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves no daemon behind */
        snprintf(log, sizeof(log), "%s/log", fixture->dir);
        int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
        dup2(fd, 1);
        dup2(fd, 2);
        if (fixture->preload != NULL) {
            preload(fixture->preload);
            setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1);
        }
        execl(STAGERD_PATH, "stagerd", "--foreground", "--config", fixture->config,
              (char *)NULL);
        _exit(127);
    }
}

static void show_log(struct fixture *fixture)
{
    char path[128], line[1024];
    snprintf(path, sizeof(path), "%s/log", fixture->dir);
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        fprintf(stderr, "    stagerd: %s", line);
    if (file != NULL)
        fclose(file);
}

void fixture_restart(struct fixture *fixture)
{
    spawn(fixture);
    int64_t deadline = now_millis() + fixture_millis(10000);
    struct stager *client;
    while (stager_connect(fixture->runtime, &client) < 0) {
        int status;
        if (waitpid(fixture->pid, &status, WNOHANG) != 0 || now_millis() > deadline) {
            show_log(fixture);
            FAIL("stagerd does not answer: %s", stager_error_text(NULL));
        }
        pause_millis(2);
    }
    stager_disconnect(client);
}

void fixture_start(struct fixture *fixture, const char *settings)
{
    fixture_start_enclosed(fixture, settings, false, NULL);
}

void fixture_start_enclosed(struct fixture *fixture, const char *settings, bool enclosed,
                            const char *preload)
{
    *fixture = (struct fixture){.enclosed = enclosed, .preload = preload};
    const char *base = getenv("TMPDIR");
    snprintf(fixture->dir, sizeof(fixture->dir), "%.30s/stg-XXXXXX",
             base ? base : "/tmp");
    CHECK(mkdtemp(fixture->dir) != NULL);
    snprintf(fixture->runtime, sizeof(fixture->runtime), "%s/run", fixture->dir);
    snprintf(fixture->config, sizeof(fixture->config), "%s/stagerd.yaml", fixture->dir);
    write_settings(fixture, settings);
    fixture_restart(fixture);
}

static int wait_for(pid_t pid, int64_t millis)
{
    int status;
    int64_t deadline = now_millis() + fixture_millis(millis);
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (now_millis() > deadline)
            return -1;
        pause_millis(1);
    }
    return status;
}

void fixture_stop(struct fixture *fixture)
{
    kill(fixture->pid, SIGTERM);
    int status = wait_for(fixture->pid, 5000);
    if (status != 0) {
        show_log(fixture);
        FAIL("stagerd did not end well on SIGTERM: status %d", status);
    }
    fixture->pid = 0;
}

void fixture_kill(struct fixture *fixture)
{
    kill(fixture->pid, SIGKILL);
    waitpid(fixture->pid, NULL, 0);
    fixture->pid = 0;
}

static int remove_entry(const char *path, const struct stat *st, int type,
                        struct FTW *ftw)
{
    return remove(path);
}

void fixture_finish(struct fixture *fixture)
{
    if (fixture->pid != 0)
        fixture_stop(fixture);
    nftw(fixture->dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- files ---- */

void fixture_file(struct fixture *fixture, const char *name, const void *bytes, size_t n,
                  char path[256])
{
    snprintf(path, 256, "%s/%s", fixture->dir, name);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    CHECK(fwrite(bytes, 1, n, file) == n);
    fclose(file);
}

void fixture_numbers(struct fixture *fixture, const char *name, int first, int n,
                     char path[256])
{
    snprintf(path, 256, "%s/%s", fixture->dir, name);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    for (int i = 0; i < n; i++)
        fprintf(file, "%d\n", first + i);
    fclose(file);
}

/* ---- requests ---- */

int fixture_try_apply(struct fixture *fixture, const char *yaml, bool replace,
                      struct stg_err *err)
{
    struct stager *client;
    if (stager_connect(fixture->runtime, &client) < 0)
        FAIL("connect: %s", stager_error_text(NULL));
    struct stg_request request = {.kind = STG_REQUEST_APPLY,
                                  .text = yaml,
                                  .text_bytes = strlen(yaml),
                                  .file = "test.yaml",
                                  .replace = replace};
    struct stg_reply reply;
    int rc = stg_admin_call(client, &request, &reply, err);
    stager_disconnect(client);
    return rc;
}

void fixture_apply(struct fixture *fixture, const char *yaml)
{
    struct stg_err err = {0};
    if (fixture_try_apply(fixture, yaml, true, &err) < 0)
        FAIL("apply: %s\n%s", err.text, yaml);
}

static void copy_client(const struct stg_client_status *from, size_t i,
                        struct fixture_status *ret)
{
    snprintf(ret->clients[i].client_id, sizeof(ret->clients[i].client_id), "%s",
             from->client_id);
    snprintf(ret->clients[i].state, sizeof(ret->clients[i].state), "%s", from->state);
    snprintf(ret->clients[i].last_error, sizeof(ret->clients[i].last_error), "%s",
             from->last_error);
    ret->clients[i].pid = from->pid;
    ret->clients[i].held = from->held;
    ret->clients[i].rank = from->rank;
    ret->clients[i].violations = from->violations;
    ret->clients[i].assigned = from->assigned;
    ret->clients[i].taken = from->taken;
    ret->clients[i].released = from->released;
    ret->clients[i].acknowledged = from->acknowledged;
    ret->clients[i].redelivered = from->redelivered;
    ret->clients[i].gaps = from->gaps;
    ret->clients[i].lost = from->lost;
    ret->clients[i].wait_ns = from->wait_ns;
    ret->clients[i].daemon_wait_ns = from->daemon_wait_ns;
    ret->n_attached += strcmp(from->state, "attached") == 0;
    ret->n_away += strcmp(from->state, "away") == 0;
    ret->n_detached += strcmp(from->state, "detached") == 0;
    ret->n_gone += strcmp(from->state, "gone") == 0;
}

static void copy_tuned(const struct stg_tuned *from, size_t i, struct fixture_status *ret)
{
    snprintf(ret->tuned[i].what, sizeof(ret->tuned[i].what), "%s", from->what);
    snprintf(ret->tuned[i].why, sizeof(ret->tuned[i].why), "%s", from->why);
    ret->tuned[i].from = from->from;
    ret->tuned[i].to = from->to;
    ret->n_tuned++;
}

static void copy_status(const struct stg_pipeline_status *from,
                        struct fixture_status *ret)
{
    *ret = (struct fixture_status){
        .published = from->published,
        .assigned = from->assigned,
        .released = from->released,
        .dropped = from->dropped,
        .dropped_rows = from->dropped_rows,
        .errors = from->errors,
        .redelivered = from->redelivered,
        .lost = from->lost,
        .rows = from->rows,
        .pass = from->pass,
        .memory_bytes = from->memory_bytes,
        .memory_used_bytes = from->memory_used_bytes,
        .quarantined_bytes = from->quarantined_bytes,
        .capacity = from->capacity,
        .num_threads = from->num_threads,
        .max_capacity = from->max_capacity,
        .max_num_threads = from->max_num_threads,
        .capacity_auto = from->capacity_auto,
        .num_threads_auto = from->num_threads_auto,
        .buffered = from->buffered,
        .made = from->made,
        .ignored = from->ignored,
        .ignored_elements = from->ignored_elements,
        .in_hand = from->in_hand,
        .discarded = from->discarded,
        .acknowledged = from->acknowledged,
        .unacknowledged = from->unacknowledged,
        .discarded_published = from->discarded_published,
        .evicted = from->evicted,
        .incomplete_rounds = from->incomplete_rounds,
        .timeouts = from->timeouts,
        .feed_version = from->feed_version,
    };
    snprintf(ret->state, sizeof(ret->state), "%s", from->state);
    snprintf(ret->last_error, sizeof(ret->last_error), "%s",
             from->last_error != NULL ? from->last_error : "");
    for (size_t i = 0; i < from->n_clients && i < 16; i++) {
        copy_client(&from->clients[i], i, ret);
        ret->n_clients++;
    }
    for (size_t i = 0; i < from->n_tuned && i < 16; i++)
        copy_tuned(&from->tuned[i], i, ret);
}

struct stager *fixture_ask(struct fixture *fixture, enum stg_request_kind kind,
                           const char *name, struct stg_reply *ret)
{
    struct stager *client;
    if (stager_connect(fixture->runtime, &client) < 0)
        FAIL("connect: %s", stager_error_text(NULL));
    struct stg_request request = {.kind = kind, .name = name};
    struct stg_err err = {0};
    if (stg_admin_call(client, &request, ret, &err) < 0)
        FAIL("%s: %s", name, err.text);
    return client;
}

void fixture_moved(const struct stg_pipeline_status *status, char *ret, size_t bytes)
{
    ret[0] = '\0';
    for (size_t i = 0; i < status->n_moved; i++)
        snprintf(ret + strlen(ret), bytes - strlen(ret), " %s", status->moved[i]);
}

void fixture_status(struct fixture *fixture, const char *name, struct fixture_status *ret)
{
    struct stg_reply reply;
    struct stager *client = fixture_ask(fixture, STG_REQUEST_STATUS, name, &reply);
    copy_status(&reply.status, ret);
    stager_disconnect(client);
}

struct fixture_status fixture_balance(struct fixture *fixture)
{
    struct fixture_status s;
    fixture_status(fixture, "p", &s);
    CHECK_INT(s.made, s.published + s.dropped + s.ignored + s.in_hand + s.discarded);
    CHECK_INT(s.published, s.acknowledged + s.lost + s.buffered + s.unacknowledged +
                               s.discarded_published);
    return s;
}

int64_t fixture_wait(struct fixture *fixture, const char *name, int64_t millis,
                     bool (*until)(const struct fixture_status *status, void *arg),
                     void *arg)
{
    int64_t began = now_millis();
    for (;;) {
        struct fixture_status status;
        fixture_status(fixture, name, &status);
        if (until(&status, arg))
            return now_millis() - began;
        if (now_millis() - began > fixture_millis(millis)) {
            show_log(fixture);
            FAIL("pipeline %s: not within %lld ms: state %s, published %llu, held %u",
                 name, (long long)millis, status.state,
                 (unsigned long long)status.published,
                 status.n_clients > 0 ? status.clients[0].held : 0);
        }
        pause_millis(1);
    }
}

struct stager_stream *fixture_open(struct fixture *fixture, const char *name,
                                   const char *client_id, uint32_t max_in_flight)
{
    struct stager_options options = {.struct_size = sizeof(options),
                                     .client_id = client_id,
                                     .runtime_dir = fixture->runtime,
                                     .max_in_flight = max_in_flight,
                                     .daemon_reconnect_millis = STAGER_NEVER};
    struct stager_stream *stream;
    if (stager_open(NULL, name, &options, &stream) < 0)
        FAIL("open %s: %s", name, stager_error_text(NULL));
    return stream;
}

struct stager_batch *fixture_take(struct stager_stream *stream)
{
    struct stager_batch *batch;
    if (stager_next(stream, fixture_millis(20000), &batch) < 0)
        FAIL("next: %s", stager_error_text(stream));
    return batch;
}

bool fixture_expect_value(struct stager_stream *stream, int64_t value)
{
    struct stager_batch *batch = fixture_take(stream);
    struct stager_batch_info info = {.struct_size = sizeof(info)};
    struct stager_tensor tensor;
    stager_batch_info(batch, &info);
    CHECK_INT(stager_batch_tensor(batch, "value", &tensor), 0);
    CHECK_INT(*(const int64_t *)tensor.data, value);
    stager_release(batch);
    return info.redelivered;
}

void fixture_expect_code(struct stager_stream *stream, int code, const char *text)
{
    struct stager_batch *batch;
    CHECK_INT(stager_next(stream, fixture_millis(20000), &batch), -code);
    CHECK_CONTAINS(stager_error_text(stream), text);
}

void fixture_apply_range(struct fixture *fixture, int stop, const char *staged)
{
    char yaml[512];
    snprintf(yaml, sizeof(yaml),
             "name: p\ndataset:\n  - range: {stop: %d}\nstaged: {%s}\n", stop, staged);
    fixture_apply(fixture, yaml);
}

void fixture_apply_endless(struct fixture *fixture, const char *staged)
{
    char yaml[1024];
    snprintf(
        yaml, sizeof(yaml),
        "name: rows\n"
        "dataset:\n  - range: {stop: 64}\n  - repeat: {}\n  - batch: {batch_size: 2}\n"
        "graph:\n  - {name: pad, op: constant, value: 1.5, shape: [100000]}\n"
        "staged: {features: {value: value, pad: pad}, %s}\n",
        staged);
    fixture_apply(fixture, yaml);
}

void fixture_check_pad(const struct stager_batch *batch)
{
    struct stager_tensor pad;
    CHECK_INT(stager_batch_tensor(batch, "pad", &pad), 0);
    const float *x = pad.data;
    for (int i = 0; i < 100000; i++) {
        if (x[i] != 1.5f)
            FAIL("pad[%d] is %f", i, (double)x[i]);
    }
}

/* ---- the log ---- */

unsigned fixture_count_log(const struct fixture *fixture, const char *text)
{
    char path[128], line[1024];
    unsigned n = 0;
    snprintf(path, sizeof(path), "%s/log", fixture->dir);
    FILE *log = fopen(path, "re");
    CHECK(log != NULL);
    while (fgets(line, sizeof(line), log) != NULL)
        n += strstr(line, text) != NULL;
    fclose(log);
    return n;
}

void fixture_wait_log(const struct fixture *fixture, const char *text)
{
    int64_t until = now_millis() + fixture_millis(20000);
    while (fixture_count_log(fixture, text) == 0) {
        if (now_millis() > until)
            FAIL("no line of the log says: %s", text);
        usleep(1000);
    }
}

/* ---- trainers ---- */

void trainer_start(struct trainer *trainer,
                   void (*body)(struct fixture *fixture, int fd, void *arg),
                   struct fixture *fixture, void *arg)
{
    int fds[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    fflush(NULL);
    trainer->pid = fork();
    CHECK(trainer->pid >= 0);
    if (trainer->pid == 0) {
        close(fds[0]);
        body(fixture, fds[1], arg);
        close(fds[1]);
        _exit(0);
    }
    close(fds[1]);
    trainer->fd = fds[0];
}

void trainer_send(int fd, int64_t value)
{
    CHECK(send(fd, &value, sizeof(value), MSG_NOSIGNAL) == sizeof(value));
}

int64_t trainer_recv(int fd)
{
    int64_t value = 0;
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    if (poll(&poll_fd, 1, (int)fixture_millis(20000)) != 1)
        FAIL("the other side says nothing");
    if (recv(fd, &value, sizeof(value), MSG_WAITALL) != sizeof(value))
        FAIL("the other side is gone");
    return value;
}

void trainer_join(struct trainer *trainer)
{
    int status = wait_for(trainer->pid, 20000);
    close(trainer->fd);
    if (status != 0)
        FAIL("trainer %d ended with status %d", (int)trainer->pid, status);
}

void trainer_kill(struct trainer *trainer)
{
    kill(trainer->pid, SIGKILL);
    waitpid(trainer->pid, NULL, 0);
    close(trainer->fd);
}
