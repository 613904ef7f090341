/* SPDX-License-Identifier: Apache-2.0
 *
 * What monitoring costs: the metrics of 100 pipelines, each of which 8 clients read. The
 * time of a request for their text, one after the other, and CPU time of stagerd for it.
 * And CPU time of stagerd and of stager-metrics for an HTTP request each second, as of
 * Prometheus.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "tests/system/fixture.h"

#define N_PIPELINES 100
#define N_CLIENTS 8
#define MAX_SCRAPES 100000
#define LIMIT_NS 10000000000

static struct stager_stream *streams[N_PIPELINES][N_CLIENTS];
static uint64_t scrapes_ns[MAX_SCRAPES];

static void apply(struct fixture *fixture, int i)
{
    char yaml[512];
    snprintf(yaml, sizeof(yaml),
             "name: pipeline-%d\n"
             "dataset:\n  - range: {stop: 1000000000}\n  - batch: {batch_size: 16}\n"
             "graph:\n"
             "  - {name: wide, op: cast, input: [value], dtype: float32}\n"
             "  - {name: share, op: sigmoid, input: [wide]}\n"
             "staged: {features: {x: share}, num_clients: %d, delivery: broadcast, "
             "capacity: 2, num_threads: 1, max_batch_bytes: 65536}\n",
             i, N_CLIENTS);
    fixture_apply(fixture, yaml);
}

static void open_all(struct fixture *fixture)
{
    for (int i = 0; i < N_PIPELINES; i++) {
        char name[32];
        apply(fixture, i);
        snprintf(name, sizeof(name), "pipeline-%d", i);
        for (int k = 0; k < N_CLIENTS; k++)
            streams[i][k] = fixture_open(fixture, name, NULL, 2);
        for (int k = 0; k < N_CLIENTS; k++)
            stager_release(fixture_take(streams[i][k]));
    }
}

static size_t measure(struct fixture *fixture, double seconds, size_t *ret_bytes)
{
    struct stager *client;
    struct stg_err err = {0};
    size_t n = 0;
    uint64_t end = bench_now_ns() + (uint64_t)(seconds * 1e9);
    if (stager_connect(fixture->runtime, &client) < 0)
        bench_die("%s", stager_error_text(NULL));
    while (n < MAX_SCRAPES && (n < 3 || bench_now_ns() < end)) {
        char *text;
        uint64_t began = bench_now_ns();
        if (stg_admin_metrics(client, false, LIMIT_NS, &text, ret_bytes, &err) < 0)
            bench_die("%s", err.text);
        scrapes_ns[n++] = bench_now_ns() - began;
        free(text);
    }
    stager_disconnect(client);
    return n;
}

/* ---- over HTTP, each second ---- */

struct scraped {
    double daemon_ms, metrics_ms; /* CPU time for one request */
    double p50_ms;                /* until its end */
    size_t bytes;
};

static pid_t start_metrics(const struct fixture *fixture)
{
    pid_t pid = fork();
    if (pid == 0) {
        execl(STAGER_METRICS_PATH, "stager-metrics", "--runtime-dir", fixture->runtime,
              (char *)NULL);
        _exit(127);
    }
    return pid;
}

/* -1: it does not listen. */
static int dial(const struct fixture *fixture)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%.90s/metrics.sock",
             fixture->runtime);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
        return fd;
    close(fd);
    return -1;
}

/* Returns the bytes of the answer. */
static size_t get(int fd)
{
    static const char request[] = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    static char buf[65536];
    size_t bytes = 0;
    ssize_t n = send(fd, request, sizeof(request) - 1, MSG_NOSIGNAL);
    while (n > 0 && (n = read(fd, buf, sizeof(buf))) > 0) {
        if (bytes == 0 && memmem(buf, (size_t)n, " 200 OK", 7) == NULL)
            bench_die("stager-metrics: %.*s", (int)n, buf);
        bytes += (size_t)n;
    }
    close(fd);
    return bytes;
}

/* CPU time from before each request until its end. */
static struct scraped scrape(const struct fixture *fixture, double seconds)
{
    struct scraped ret = {0};
    uint64_t daemon_ns = 0, metrics_ns = 0;
    int fd, n = seconds < 1 ? 1 : (int)seconds;
    pid_t pid = start_metrics(fixture);
    for (int i = 0; (fd = dial(fixture)) < 0; i++) {
        if (i > 10000)
            bench_die("stager-metrics does not listen");
        usleep(1000);
    }
    get(fd);
    for (int i = 0; i < n; i++) {
        sleep(1);
        uint64_t began = bench_now_ns();
        uint64_t daemon = bench_process_ns(fixture->pid), metrics = bench_process_ns(pid);
        ret.bytes = get(dial(fixture));
        scrapes_ns[i] = bench_now_ns() - began;
        daemon_ns += bench_process_ns(fixture->pid) - daemon;
        metrics_ns += bench_process_ns(pid) - metrics;
    }
    kill(pid, SIGTERM);
    waitpid(pid, NULL, 0);
    ret.p50_ms = (double)bench_percentile(scrapes_ns, (size_t)n, 0.5) / 1e6;
    ret.daemon_ms = (double)daemon_ns / n / 1e6;
    ret.metrics_ms = (double)metrics_ns / n / 1e6;
    return ret;
}

/* ---- all ---- */

static void close_all(void)
{
    for (int i = 0; i < N_PIPELINES; i++) {
        for (int k = 0; k < N_CLIENTS; k++)
            stager_close(streams[i][k]);
    }
}

/* Each stream has a few descriptors. */
static void raise_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

int main(int argc, char **argv)
{
    struct bench_options options;
    struct fixture fixture;
    size_t bytes = 0;
    bench_options_parse(argc, argv, 2,
                        "the metrics of 100 pipelines with 8 clients each, one request",
                        &options);
    raise_limit();
    fixture_start(&fixture, "memory_budget: 1GiB\nmax_clients: 2000\n");
    open_all(&fixture);
    uint64_t cpu_ns = bench_process_ns(fixture.pid);
    size_t n = measure(&fixture, options.seconds / 2, &bytes);
    cpu_ns = (bench_process_ns(fixture.pid) - cpu_ns) / n;
    uint64_t p50_ns = bench_percentile(scrapes_ns, n, 0.5);
    uint64_t p99_ns = bench_percentile(scrapes_ns, n, 0.99);
    struct scraped each = scrape(&fixture, options.seconds);
    close_all();
    fixture_finish(&fixture);

    printf(
        "metrics of %d pipelines x %d clients: p50 %.2f ms, p99 %.2f ms, %.2f ms of CPU "
        "in stagerd, %zu bytes (%zu requests)\n"
        "over HTTP, each second: p50 %.2f ms, %.2f ms of CPU: stagerd %.2f ms, "
        "stager-metrics %.2f ms\n",
        N_PIPELINES, N_CLIENTS, (double)p50_ns / 1e6, (double)p99_ns / 1e6,
        (double)cpu_ns / 1e6, bytes, n, each.p50_ms, each.daemon_ms + each.metrics_ms,
        each.daemon_ms, each.metrics_ms);
    if (options.json)
        printf(
            "{\"bench\": \"metrics\", \"p50_ms\": %.3f, \"p99_ms\": %.3f, \"cpu_ms\": "
            "%.3f, \"bytes\": %zu, \"http_p50_ms\": %.3f, \"http_daemon_cpu_ms\": %.3f, "
            "\"http_metrics_cpu_ms\": %.3f}\n",
            (double)p50_ns / 1e6, (double)p99_ns / 1e6, (double)cpu_ns / 1e6, bytes,
            each.p50_ms, each.daemon_ms, each.metrics_ms);
    return 0;
}
