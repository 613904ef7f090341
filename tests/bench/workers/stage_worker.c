/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/workers/stage_worker.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "tests/system/fixture.h"

#define START_MILLIS 20000
#define HEAD_BYTES 4096

static void pause_a_little(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

static struct sockaddr_in loopback(unsigned port)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr = {htonl(INADDR_LOOPBACK)}};
}

int bench_listen(unsigned *ret_port)
{
    struct sockaddr_in address = loopback(0);
    socklen_t bytes = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, bytes) < 0 || listen(fd, 1) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &bytes) < 0)
        bench_die("no port: %s", strerror(errno));
    *ret_port = ntohs(address.sin_port);
    return fd;
}

void bench_two_cpus(int ret[2])
{
    cpu_set_t set;
    int n = 0;
    if (sched_getaffinity(0, sizeof(set), &set) < 0)
        bench_die("no CPUs");
    for (int i = 0; i < CPU_SETSIZE && n < 2; i++) {
        if (CPU_ISSET(i, &set))
            ret[n++] = i;
    }
    if (n == 1)
        ret[1] = ret[0];
}

void bench_pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof(set), &set) < 0)
        bench_die("cannot run on CPU %d: %s", cpu, strerror(errno));
}

/* ---- requests ---- */

int bench_http_connect(unsigned port)
{
    struct sockaddr_in address = loopback(port);
    int64_t until = now_millis() + fixture_millis(START_MILLIS);
    int on = 1;
    for (;;) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
            bench_die("socket: %s", strerror(errno));
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
            return fd;
        close(fd);
        if (now_millis() > until)
            bench_die("nothing listens on port %u", port);
        pause_a_little();
    }
}

/* Returns the bytes of the head; what follows it is in the buffer too. */
static size_t read_head(int fd, char *head, size_t *ret_n)
{
    size_t n = 0;
    const char *end = NULL;
    while (end == NULL) {
        ssize_t got = recv(fd, head + n, HEAD_BYTES - n, 0);
        if (got <= 0)
            bench_die("the worker has ended the connection");
        n += (size_t)got;
        head[n] = '\0';
        end = strstr(head, "\r\n\r\n");
    }
    *ret_n = n;
    return (size_t)(end - head) + 4;
}

uint64_t bench_http_get(int fd, const char *path, char *ret, uint64_t capacity)
{
    char head[HEAD_BYTES + 1];
    int n = snprintf(head, sizeof(head), "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", path);
    if (send(fd, head, (size_t)n, MSG_NOSIGNAL) != n)
        bench_die("send: %s", strerror(errno));
    size_t had, head_bytes = read_head(fd, head, &had);
    const char *length = strcasestr(head, "\r\nContent-Length: ");
    int status = atoi(head + strlen("HTTP/1.1 "));
    if (status == 503)
        return 0;
    if (status != 200 || length == NULL)
        bench_die("%s: %.200s", path, head);
    uint64_t bytes = strtoull(length + strlen("\r\nContent-Length: "), NULL, 10);
    uint64_t at = had - head_bytes;
    if (bytes > capacity || at > bytes)
        bench_die("%s: %" PRIu64 " bytes are too many", path, bytes);
    memcpy(ret, head + head_bytes, at);
    while (at < bytes) {
        ssize_t got = recv(fd, ret + at, bytes - at, 0);
        if (got <= 0)
            bench_die("%s: the answer is cut", path);
        at += (uint64_t)got;
    }
    return bytes;
}

void bench_worker_path(const struct bench_worker *worker, uint64_t batch,
                       uint64_t of_epoch, char ret[192])
{
    snprintf(ret, 192, "/v1/batches/%s/0/%" PRIu64 "?epoch=%" PRIu64 "&index=%" PRIu64,
             worker->digest, batch, batch / of_epoch, batch % of_epoch);
}

/* ---- the worker ---- */

static void spawn(struct bench_worker *worker, int cpu, const char *pipeline)
{
    char listen[32];
    snprintf(listen, sizeof(listen), "127.0.0.1:%u", worker->port);
    fflush(NULL);
    worker->pid = fork();
    if (worker->pid < 0)
        bench_die("fork: %s", strerror(errno));
    if (worker->pid > 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (cpu >= 0)
        bench_pin(cpu);
    if (freopen("/dev/null", "w", stderr) != NULL)
        execl(STAGERD_PATH, "stagerd", "--worker", "--listen", listen, pipeline,
              (char *)NULL);
    _exit(127);
}

static pid_t child_of(pid_t pid)
{
    char path[64];
    int child = 0;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL || fscanf(file, "%d", &child) != 1)
        bench_die("%s: no stager-worker", path);
    fclose(file);
    return child;
}

/* Returns false while it starts. */
static bool learn_digest(struct bench_worker *worker)
{
    char text[65536];
    int fd = bench_http_connect(worker->port);
    uint64_t n = bench_http_get(fd, "/v1/worker", text, sizeof(text) - 1);
    close(fd);
    text[n] = '\0';
    const char *digest = strstr(text, "\"digest\": \"");
    return digest != NULL &&
           sscanf(digest, "\"digest\": \"%64[0-9a-f]", worker->digest) == 1;
}

void bench_worker_start(struct bench_worker *worker, int cpu, const char *pipeline)
{
    *worker = (struct bench_worker){0};
    close(bench_listen(&worker->port)); /* a port that nothing listens on */
    spawn(worker, cpu, pipeline);
    int64_t until = now_millis() + fixture_millis(START_MILLIS);
    while (!learn_digest(worker)) {
        if (now_millis() > until)
            bench_die("the worker does not start");
        pause_a_little();
    }
    worker->http_pid = child_of(worker->pid);
}

void bench_worker_stop(struct bench_worker *worker)
{
    int status;
    kill(worker->pid, SIGTERM);
    if (waitpid(worker->pid, &status, 0) != worker->pid || status != 0)
        bench_die("the worker did not end well: status %d", status);
}

uint64_t bench_worker_ns(const struct bench_worker *worker)
{
    return bench_process_ns(worker->pid) + bench_process_ns(worker->http_pid);
}
