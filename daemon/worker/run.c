/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/worker/run.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "daemon/host/cpus.h"
#include "daemon/host/helper.h"
#include "daemon/host/memory.h"
#include "daemon/host/text_file.h"
#include "daemon/worker/service.h"

#define DEFAULT_LISTEN "127.0.0.1:9465"
#define SOCKET_BYTES (1 << 20)
#define ZONE_BYTES 64
#define MAX_THREADS 1024
#define LEAST_BYTES (UINT64_C(64) << 20)
/* A stager-worker that was killed is started again, so often in so much time. */
#define MAX_RESTARTS 5
#define RESTARTS_NS UINT64_C(60000000000)

struct worker {
    struct stg_definition *pipelines[STG_WORKER_MAX_PIPELINES];
    size_t n_pipelines;
    struct stg_worker_service *service;
    int fd, signals;
    int input;        /* drains when it ends; -1: none */
    pid_t pid;        /* of stager-worker; 0: none */
    bool may_restart; /* stager-worker: it does not drain, and its port is fixed */
    uint64_t restarts_ns[MAX_RESTARTS]; /* when each was, in turns */
    unsigned n_restarts;
};

/* ---- pipelines ---- */

static int load(const char *path, struct stg_definition **ret, struct stg_err *err)
{
    struct stg_identity identity = {.uid = getuid(), .gid = getgid()};
    char *text = NULL;
    size_t bytes;
    int n = getgroups(STG_MAX_GROUPS, identity.groups);
    identity.n_groups = n > 0 ? (size_t)n : 0;
    int rc = stg_text_file_read(path, STG_TEXT_MAX_BYTES, NULL, &text, &bytes, err);
    if (rc == 0)
        rc = stg_definition_create(text, bytes, path, &identity, NULL, ret, err);
    free(text);
    return rc == 0 ? stg_worker_check(*ret, err) : rc;
}

static int load_all(struct worker *worker, const struct stg_worker_options *options,
                    struct stg_err *err)
{
    if (options->n_files == 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "--worker needs at least one PIPELINE.yaml");
    if (options->n_files > STG_WORKER_MAX_PIPELINES)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "a worker serves %d pipelines at most", STG_WORKER_MAX_PIPELINES);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < options->n_files; i++) {
        rc = load(options->files[i], &worker->pipelines[i], err);
        worker->n_pipelines += worker->pipelines[i] != NULL;
    }
    return rc;
}

/* It is a value of JSON and of a header. */
static int check_zone(const char *zone, struct stg_err *err)
{
    size_t n = zone != NULL ? strlen(zone) : 1, good = 0;
    while (zone != NULL && (isalnum((unsigned char)zone[good]) ||
                            (zone[good] != '\0' && strchr("._-", zone[good]) != NULL)))
        good++;
    if (zone == NULL || (good == n && n > 0 && n <= ZONE_BYTES))
        return 0;
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "--zone %s: a zone has 1 to %d letters, digits, '.', '_' and '-'",
                   zone, ZONE_BYTES);
}

static int find_threads(const char *threads, uint32_t *ret, struct stg_err *err)
{
    char *end;
    long n = threads != NULL ? strtol(threads, &end, 10) : (long)stg_cpus_whole();
    if (threads != NULL &&
        (!isdigit((unsigned char)threads[0]) || *end != '\0' || n < 1 || n > MAX_THREADS))
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "--threads %s: a number from 1 to %d", threads, MAX_THREADS);
    *ret = (uint32_t)n;
    return 0;
}

/* ---- stager-worker ---- */

static int start_http(struct worker *worker, const struct stg_worker_options *options,
                      struct stg_err *err)
{
    char program[4096];
    const char *argv[12] = {program, "--listen",
                            options->listen != NULL ? options->listen : DEFAULT_LISTEN};
    size_t n = 3;
    const struct {
        const char *name, *value;
    } more[] = {{"--token-file", options->token_file},
                {"--tls-cert", options->certificate},
                {"--tls-key", options->key},
                {"--zone", options->zone}};
    int ends[2], bytes = SOCKET_BYTES;
    for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++) {
        if (more[i].value == NULL)
            continue;
        argv[n++] = more[i].name;
        argv[n++] = more[i].value;
    }
    int rc = stg_helper_find("worker", "stager-worker", program, sizeof(program), err);
    if (rc < 0)
        return rc;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "socketpair: %s",
                       strerror(errno));
    for (int i = 0; i < 2; i++)
        setsockopt(ends[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    int number = stg_helper_spawn(program, (char *const *)(uintptr_t)argv, environ,
                                  ends[1], &worker->pid);
    close(ends[1]);
    worker->fd = ends[0];
    if (number == 0)
        return 0;
    worker->pid = 0;
    return stg_err(err, -STAGER_UNAVAILABLE, "cannot start %s: %s", program,
                   strerror(number));
}

static sigset_t ends_of(void)
{
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    return ends;
}

void stg_worker_block_signals(void)
{
    sigset_t ends = ends_of();
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
}

static int watch_signals(struct worker *worker, struct stg_err *err)
{
    sigset_t ends = ends_of();
    worker->signals = signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK);
    return worker->signals >= 0
               ? 0
               : stg_err(err, -STAGER_INTERNAL, "signalfd: %s", strerror(errno));
}

/* ---- life ---- */

/* A stager-worker that is started again would have another port. */
static bool has_any_port(const char *listen)
{
    size_t n = listen != NULL ? strlen(listen) : 0;
    return n >= 2 && strcmp(listen + n - 2, ":0") == 0;
}

/* Returns false when stager-worker has ended. */
static bool take_one(struct worker *worker)
{
    struct stg_worker_ask ask;
    ssize_t n = recv(worker->fd, &ask, sizeof(ask), 0);
    if (n < 0)
        return errno == EINTR || errno == EAGAIN;
    ask.digest[sizeof(ask.digest) - 1] = '\0';
    if (n == (ssize_t)sizeof(ask))
        stg_worker_take(worker->service, &ask);
    return n > 0;
}

/* stager-worker ends when its requests have. */
static void drain(struct worker *worker)
{
    struct stg_worker_answer answer = {.kind = STG_WORKER_DRAIN};
    stg_log(STG_LOG_INFO, "worker: draining");
    worker->may_restart = false;
    stg_worker_send(worker->fd, &answer, "", -1);
}

static void on_signal(struct worker *worker)
{
    struct signalfd_siginfo info;
    if (read(worker->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
        drain(worker);
}

static void on_input(struct worker *worker)
{
    char bytes[256];
    ssize_t n = read(worker->input, bytes, sizeof(bytes));
    if (n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN)))
        return;
    worker->input = -1;
    drain(worker);
}

/* Returns whether stager-worker was killed and may be started again. */
static bool reap(struct worker *worker, int *ret_status)
{
    uint64_t now = stg_now_ns(), *oldest;
    pid_t ended = waitpid(worker->pid, ret_status, 0);
    if (ended != worker->pid)
        *ret_status = -1;
    worker->pid = 0;
    oldest = &worker->restarts_ns[worker->n_restarts % MAX_RESTARTS];
    if (ended < 0 || !WIFSIGNALED(*ret_status) || !worker->may_restart ||
        (*oldest != 0 && now - *oldest < RESTARTS_NS))
        return false;
    *oldest = now;
    worker->n_restarts++;
    stg_log(STG_LOG_ERROR,
            "worker: stager-worker was killed by signal %d: it is started "
            "again, and clients ask again",
            WTERMSIG(*ret_status));
    return true;
}

/* The threads of the service send to the same number. */
static int restart(struct worker *worker, const struct stg_worker_options *options,
                   struct stg_err *err)
{
    int number = worker->fd;
    int rc = start_http(worker, options, err);
    if (rc == 0 && dup3(worker->fd, number, O_CLOEXEC) < 0)
        rc = stg_err(err, -STAGER_INTERNAL, "dup3: %s", strerror(errno));
    if (worker->fd != number)
        close(worker->fd);
    worker->fd = number;
    if (rc == 0)
        stg_worker_restart(worker->service);
    return rc;
}

/* Until stager-worker has ended, and is not started again. */
static int serve(struct worker *worker, const struct stg_worker_options *options,
                 struct stg_err *err)
{
    int status, rc;
    for (;;) {
        struct pollfd fds[] = {{.fd = worker->signals, .events = POLLIN},
                               {.fd = worker->fd, .events = POLLIN},
                               {.fd = worker->input, .events = POLLIN}};
        if (poll(fds, 3, -1) < 0 && errno != EINTR)
            return stg_err(err, -STAGER_INTERNAL, "poll: %s", strerror(errno));
        if (fds[0].revents != 0)
            on_signal(worker);
        if (fds[2].revents != 0)
            on_input(worker);
        if (fds[1].revents == 0 || take_one(worker))
            continue;
        if (!reap(worker, &status))
            return status == 0 ? 0
                               : stg_err(err, -STAGER_UNAVAILABLE,
                                         "stager-worker has ended: its message is above");
        rc = restart(worker, options, err);
        if (rc < 0)
            return rc;
    }
}

static void finish(struct worker *worker)
{
    if (worker->fd >= 0)
        close(worker->fd);
    if (worker->pid != 0)
        stg_helper_end(worker->pid);
    if (worker->signals >= 0)
        close(worker->signals);
    for (size_t i = 0; i < worker->n_pipelines; i++)
        stg_definition_unref(worker->pipelines[i]);
}

static uint64_t memory(void)
{
    uint64_t quarter = stg_memory_available() / 4;
    return quarter > LEAST_BYTES ? quarter : LEAST_BYTES;
}

static int start(struct worker *worker, const struct stg_worker_options *options,
                 struct stg_err *err)
{
    struct stg_worker_config config = {
        .pipelines = worker->pipelines, .memory_bytes = memory(), .zone = options->zone};
    int rc = check_zone(options->zone, err);
    if (rc == 0)
        rc = find_threads(options->threads, &config.n_threads, err);
    if (rc == 0)
        rc = load_all(worker, options, err);
    if (rc == 0)
        rc = watch_signals(worker, err);
    if (rc == 0)
        rc = start_http(worker, options, err);
    config.n_pipelines = worker->n_pipelines;
    config.fd = worker->fd;
    return rc == 0 ? stg_worker_create(&config, &worker->service, err) : rc;
}

int stg_worker_run(const struct stg_worker_options *options, struct stg_err *err)
{
    struct worker worker = {.fd = -1,
                            .signals = -1,
                            .input = options->until_eof ? STDIN_FILENO : -1,
                            .may_restart = !has_any_port(options->listen)};
    int rc = start(&worker, options, err);
    if (rc == 0)
        rc = serve(&worker, options, err);
    stg_worker_destroy(worker.service);
    finish(&worker);
    return rc;
}
