/* SPDX-License-Identifier: Apache-2.0
 *
 * What an operator asks before many users share a daemon: the memory and the wake-ups of
 * an idle stagerd with 64 pipelines, the time from `apply` to the first batch of a small
 * one, and what a batch costs stagerd with 500 clients of 64 pipelines, over 8 clients of
 * one.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "tests/system/fixture.h"

#define N_PIPELINES 64
#define N_CLIENTS 500
#define N_FEW 8
#define N_FIRST 50

struct idle {
    double pss_bytes, wakeups_per_s;
};

struct many {
    double pss_bytes, cpu_ns;
    uint64_t batches;
};

static struct stager_stream *streams[N_CLIENTS];

/* Returns the number behind `key` in a file of /proc; 0 if the process has gone. */
static double number_of(const char *path, const char *key)
{
    char line[256];
    double value = 0;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    while (fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0)
            value = strtod(line + strlen(key), NULL);
    }
    fclose(file);
    return value;
}

static double pss_bytes(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
    return 1024 * number_of(path, "Pss:");
}

/* Returns how often the threads of a process have slept: each wakes up as often. */
static double sleeps(pid_t pid)
{
    char path[300];
    double sum = 0;
    struct dirent *entry;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    if (tasks == NULL)
        bench_die("cannot read %s", path);
    while ((entry = readdir(tasks)) != NULL) {
        snprintf(path, sizeof(path), "/proc/%d/task/%.20s/status", (int)pid,
                 entry->d_name);
        sum += number_of(path, "voluntary_ctxt_switches:");
    }
    closedir(tasks);
    return sum;
}

static void apply(struct fixture *fixture, int i, int n_clients)
{
    char yaml[512];
    snprintf(yaml, sizeof(yaml),
             "name: pipeline-%d\n"
             "dataset:\n  - range: {stop: 1000000000}\n  - batch: {batch_size: 1024}\n"
             "graph:\n"
             "  - {name: wide, op: cast, input: [value], dtype: float32}\n"
             "  - {name: share, op: sigmoid, input: [wide]}\n"
             "staged: {features: {x: share}, num_clients: %d, delivery: split, "
             "capacity: 2, num_threads: 1, max_batch_bytes: 65536}\n",
             i, n_clients);
    fixture_apply(fixture, yaml);
}

static struct stager_stream *open_one(struct fixture *fixture, int i)
{
    char name[32];
    snprintf(name, sizeof(name), "pipeline-%d", i);
    return fixture_open(fixture, name, NULL, 2);
}

/* Without a client, and with settings as they are but for the folders. */
static struct idle measure_idle(double seconds)
{
    struct idle idle;
    struct fixture fixture;
    fixture_start(&fixture, "");
    for (int i = 0; i < N_PIPELINES; i++)
        apply(&fixture, i, N_FEW);
    sleep(2); /* until what `apply` began has ended */
    double before = sleeps(fixture.pid);
    usleep((useconds_t)(seconds * 1e6));
    idle.wakeups_per_s = (sleeps(fixture.pid) - before) / seconds;
    idle.pss_bytes = pss_bytes(fixture.pid);
    fixture_finish(&fixture);
    return idle;
}

static void measure_first(uint64_t *first_ns)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    for (int i = 0; i < N_FIRST; i++) {
        uint64_t began = bench_now_ns();
        apply(&fixture, i, 1);
        struct stager_stream *stream = open_one(&fixture, i);
        stager_release(fixture_take(stream));
        first_ns[i] = bench_now_ns() - began;
        stager_close(stream);
    }
    fixture_finish(&fixture);
}

/* Takes batches in turn for that long. */
static struct many measure_many(int n_pipelines, int n_clients, double seconds)
{
    struct many many = {0};
    struct fixture fixture;
    fixture_start(&fixture, "memory_budget: 1GiB\nmax_clients: 2000\n");
    for (int i = 0; i < n_pipelines; i++)
        apply(&fixture, i, (n_clients + n_pipelines - 1) / n_pipelines);
    for (int k = 0; k < n_clients; k++)
        streams[k] = open_one(&fixture, k % n_pipelines);
    for (int k = 0; k < n_clients; k++)
        stager_release(fixture_take(streams[k]));
    many.pss_bytes = pss_bytes(fixture.pid);
    uint64_t cpu_ns = bench_process_ns(fixture.pid);
    uint64_t end = bench_now_ns() + (uint64_t)(seconds * 1e9);
    while (bench_now_ns() < end) {
        for (int k = 0; k < n_clients; k++, many.batches++)
            stager_release(fixture_take(streams[k]));
    }
    many.cpu_ns = (double)(bench_process_ns(fixture.pid) - cpu_ns) / (double)many.batches;
    for (int k = 0; k < n_clients; k++)
        stager_close(streams[k]);
    fixture_finish(&fixture);
    return many;
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
    uint64_t first_ns[N_FIRST];
    bench_options_parse(
        argc, argv, 10,
        "an idle stagerd with 64 pipelines, apply to first batch, 500 clients", &options);
    raise_limit();
    struct idle idle = measure_idle(options.seconds);
    measure_first(first_ns);
    struct many few = measure_many(1, N_FEW, options.seconds / 4);
    struct many many = measure_many(N_PIPELINES, N_CLIENTS, options.seconds / 4);
    double p50_ms = (double)bench_percentile(first_ns, N_FIRST, 0.5) / 1e6;
    double p99_ms = (double)bench_percentile(first_ns, N_FIRST, 0.99) / 1e6;
    printf("idle with %d pipelines: %.2f MiB (PSS), %.3f wake-ups a second\n"
           "apply to first batch: p50 %.2f ms, p99 %.2f ms\n"
           "a batch of %d clients: %.1f us of CPU in stagerd, %.2f times that of %d; "
           "%.1f MiB\n",
           N_PIPELINES, idle.pss_bytes / 1048576, idle.wakeups_per_s, p50_ms, p99_ms,
           N_CLIENTS, many.cpu_ns / 1e3, many.cpu_ns / few.cpu_ns, N_FEW,
           many.pss_bytes / 1048576);
    if (options.json)
        printf("{\"bench\": \"operate\", \"idle_pss_bytes\": %.0f, "
               "\"idle_wakeups_per_s\": %.3f, "
               "\"first_p50_ms\": %.2f, \"first_p99_ms\": %.2f, \"clients\": %d, "
               "\"clients_pss_bytes\": %.0f, \"clients_cpu_ns\": %.0f, \"few_cpu_ns\": "
               "%.0f, "
               "\"ratio\": %.3f}\n",
               idle.pss_bytes, idle.wakeups_per_s, p50_ms, p99_ms, N_CLIENTS,
               many.pss_bytes, many.cpu_ns, few.cpu_ns, many.cpu_ns / few.cpu_ns);
    return 0;
}
