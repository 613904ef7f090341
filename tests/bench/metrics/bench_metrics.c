/* SPDX-License-Identifier: Apache-2.0
 *
 * The time of `stagerctl metrics` without its process: one request for the metrics of 100
 * pipelines, each of which 8 clients read, until the text is in the client's memory; and
 * the CPU time of stagerd for it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

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
    size_t n = measure(&fixture, options.seconds, &bytes);
    cpu_ns = (bench_process_ns(fixture.pid) - cpu_ns) / n;
    close_all();
    fixture_finish(&fixture);

    uint64_t p50_ns = bench_percentile(scrapes_ns, n, 0.5);
    uint64_t p99_ns = bench_percentile(scrapes_ns, n, 0.99);
    printf(
        "metrics of %d pipelines x %d clients: p50 %.2f ms, p99 %.2f ms, %.2f ms of CPU "
        "in stagerd, %zu bytes (%zu requests)\n",
        N_PIPELINES, N_CLIENTS, (double)p50_ns / 1e6, (double)p99_ns / 1e6,
        (double)cpu_ns / 1e6, bytes, n);
    if (options.json)
        printf("{\"bench\": \"metrics\", \"p50_ms\": %.3f, \"p99_ms\": %.3f, \"cpu_ms\": "
               "%.3f, \"bytes\": %zu}\n",
               (double)p50_ns / 1e6, (double)p99_ns / 1e6, (double)cpu_ns / 1e6, bytes);
    return 0;
}
