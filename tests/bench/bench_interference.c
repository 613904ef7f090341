/* SPDX-License-Identifier: Apache-2.0
 *
 * The slowdown of a trainer that computes on a CPU while a stagerd beside it makes
 * batches at full speed: its speed relative to running alone, on CPU 0 (the first
 * permitted one), if the stage's thread pool has `cpus: "1"` (the second one), and if it
 * has none. Also beside a process that only computes, on CPU 1: the machine's share of
 * the effect. All variants take turns. Each round gives one ratio of each, and the median
 * counts.
 */
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "tests/bench/criteo.h"
#include "tests/system/fixture.h"

#define FILE_ROWS (24 * CRITEO_BATCH_ROWS)
#define SLICE_NS UINT64_C(100000000)
#define WARM_UP_NS 30000000
#define MAX_ROUNDS 1000
#define MIN_ROUNDS 3

enum { AWAY, ANYWHERE, SPINNER, N };
static const char *const names[N] = {"away", "anywhere", "spinner"};
static const char *const texts[N] = {"beside a stagerd on the other CPU",
                                     "beside a stagerd on both",
                                     "beside a program that computes on the other"};

struct neighbour {
    const char *pipeline; /* NULL: computes */
    int cpu;
    _Atomic int *runs;
    struct trainer trainer;
    double ratios[MAX_ROUNDS];
};

static void pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof(set), &set) < 0)
        bench_die("cannot go to CPU %d", cpu);
}

/* The first two permitted CPUs. */
static bool two_cpus(int ret[2])
{
    cpu_set_t set;
    int n = 0;
    if (sched_getaffinity(0, sizeof(set), &set) < 0)
        return false;
    for (int cpu = 0; cpu < CPU_SETSIZE && n < 2; cpu++) {
        if (CPU_ISSET(cpu, &set))
            ret[n++] = cpu;
    }
    return n == 2;
}

/* ---- the trainer ---- */

/* 64 KiB: fits a CPU's private cache, like the tile of a tuned kernel */
#define N_WEIGHTS 16384

static float weights[N_WEIGHTS];
static volatile float sink;

static void compute_once(void)
{
    float sum = 0;
    for (int i = 0; i < N_WEIGHTS; i++) {
        weights[i] = weights[i] * 0.999f + 0.001f;
        sum += weights[i];
    }
    sink = sum;
}

/* Steps per second. */
static double compute(uint64_t ns)
{
    uint64_t n = 0, began = bench_now_ns(), now = began;
    while (now - began < ns) {
        compute_once();
        n++;
        now = bench_now_ns();
    }
    return (double)n * 1e9 / (double)(now - began);
}

/* ---- the load beside it ---- */

static void take_batches(struct stager_stream *stream, const _Atomic int *runs)
{
    while (atomic_load_explicit(runs, memory_order_relaxed))
        stager_release(fixture_take(stream));
}

/* For each number that is not 0, runs until *runs is 0. */
static void be_beside(struct fixture *fixture, int fd, void *arg)
{
    const struct neighbour *neighbour = arg;
    struct stager_stream *stream = NULL;
    pin(neighbour->cpu);
    if (neighbour->pipeline != NULL)
        stream = fixture_open(fixture, neighbour->pipeline, NULL, 2);
    trainer_send(fd, 0);
    while (trainer_recv(fd) != 0) {
        if (stream != NULL)
            take_batches(stream, neighbour->runs);
        while (atomic_load_explicit(neighbour->runs, memory_order_relaxed))
            compute_once();
        trainer_send(fd, 0);
    }
    stager_close(stream);
}

/* A running runner finishes its batch, and finds no room for it. */
static void warm_up(void)
{
    struct timespec wait = {.tv_nsec = WARM_UP_NS};
    nanosleep(&wait, NULL);
}

static double compute_beside(struct neighbour *neighbour)
{
    atomic_store(neighbour->runs, 1);
    trainer_send(neighbour->trainer.fd, 1);
    warm_up();
    double rate = compute(SLICE_NS);
    atomic_store(neighbour->runs, 0);
    trainer_recv(neighbour->trainer.fd);
    warm_up();
    return rate;
}

static void start(struct fixture *fixture, const char *path, const char *pool,
                  struct neighbour *neighbour)
{
    static char yaml[CRITEO_PIPELINE_BYTES];
    if (neighbour->pipeline != NULL) {
        char staged[128];
        snprintf(staged, sizeof(staged), "capacity: 4, num_threads: 2%s", pool);
        criteo_pipeline(neighbour->pipeline, path, "{}", staged, yaml);
        fixture_apply(fixture, yaml);
    }
    trainer_start(&neighbour->trainer, be_beside, fixture, neighbour);
    trainer_recv(neighbour->trainer.fd);
}

static size_t measure(struct neighbour *neighbours, double seconds, double *ret_alone)
{
    static double alone[MAX_ROUNDS];
    size_t n = 0;
    uint64_t end = bench_now_ns() + (uint64_t)(seconds * 1e9);
    while (n < MAX_ROUNDS && (n < MIN_ROUNDS || bench_now_ns() < end)) {
        double before = compute(SLICE_NS);
        alone[n] = before;
        for (int i = 0; i < N; i++) {
            double beside = compute_beside(&neighbours[i]);
            double after = compute(SLICE_NS);
            neighbours[i].ratios[n] = beside / ((before + after) / 2);
            before = after;
        }
        n++;
    }
    *ret_alone = bench_median(alone, n);
    return n;
}

int main(int argc, char **argv)
{
    struct bench_options options;
    int cpus[2];
    bench_options_parse(argc, argv, 15, "a CPU-bound trainer beside a busy stagerd",
                        &options);
    if (!two_cpus(cpus)) {
        printf("needs two CPUs\n");
        return 77;
    }
    char settings[256], path[64];
    snprintf(settings, sizeof(settings),
             "memory_budget: 1GiB\nthread_pools:\n"
             "  - {global_name: away, inter_op_threads_num: 2, cpus: \"%d\"}\n",
             cpus[1]);
    criteo_file(FILE_ROWS, ',', path);
    struct fixture fixture;
    fixture_start(&fixture, settings);
    static struct neighbour neighbours[N] = {{.pipeline = "away"},
                                             {.pipeline = "anywhere"}};
    _Atomic int *runs = mmap(NULL, sizeof(*runs), PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (runs == MAP_FAILED)
        bench_die("no memory");
    for (int i = 0; i < N; i++) {
        neighbours[i].cpu = cpus[1];
        neighbours[i].runs = runs;
        start(&fixture, path, i == AWAY ? ", use_stage_subgraph_thread_pool: true" : "",
              &neighbours[i]);
    }
    pin(cpus[0]);
    double alone;
    size_t n = measure(neighbours, options.seconds, &alone);
    for (int i = 0; i < N; i++) {
        trainer_send(neighbours[i].trainer.fd, 0);
        trainer_join(&neighbours[i].trainer);
    }
    fixture_finish(&fixture);
    unlink(path);

    double ratios[N];
    for (int i = 0; i < N; i++) {
        ratios[i] = bench_median(neighbours[i].ratios, n);
        printf("%-44s %.3f of its speed alone\n", texts[i], ratios[i]);
    }
    if (options.json) {
        printf("{\"bench\": \"interference\", \"rounds\": %zu, \"steps_per_s\": %.0f", n,
               alone);
        for (int i = 0; i < N; i++)
            printf(", \"%s_ratio\": %.3f", names[i], ratios[i]);
        printf(", \"ratio\": %.3f}\n", ratios[AWAY]);
    }
    return 0;
}
