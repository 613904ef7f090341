/* SPDX-License-Identifier: Apache-2.0
 *
 * Photographs for a trainer that would take more than a CPU can decode: batches per
 * second of a stagerd bound to one CPU, of a worker bound to another one, and of both
 * together, by turns. `ratio` is both together over the sum of each alone: 1 is ideal.
 *
 * On a busy machine other processes take CPU time from each side. `cpu_ratio` leaves that
 * out: batches of both together over those that each would have made alone in the CPU
 * time that it used. What it does not see is a side that has nothing to do.
 *
 * Alone, the worker answers a client that only reads, on the CPU of stagerd. The trainer
 * is on that CPU too.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "tests/bench/workers/photographs.h"
#include "tests/bench/workers/stage_worker.h"
#include "tests/system/fixture.h"

#define BATCH 8
#define BATCH_TEXT "8"
#define N_WARM 12
#define N_CONNECTIONS 2
#define MAX_ROUNDS 64
#define BATCH_BYTES (16u << 20)

/* Small batches, so that a short run has many. As many runners more as requests wait for
 * the turn of what they made. */
static const char pipeline[] =
    "name: photographs\n"
    "dataset:\n" PHOTOGRAPHS_STEPS "- batch: {batch_size: " BATCH_TEXT
    ", drop_remainder: true}\n"
    "- repeat: {}\n"
    "staged: {num_threads: 8, capacity: 4, transfer_dtypes: {image: bfloat16}, features: "
    "{image: image}%s}\n";

struct side {
    double batches, seconds, cpu_s, other_cpu_s; /* other: of the worker, in `both` */
};

/* ---- stagerd ---- */

static double own_cpu_s(const struct fixture *fixture)
{
    return (double)(bench_process_ns(fixture->pid) + bench_process_ns(getpid())) / 1e9;
}

/* Adds what a trainer without other work takes. */
static void drain(struct fixture *fixture, const struct bench_worker *worker,
                  const char *yaml, double seconds, struct side *ret)
{
    fixture_apply(fixture, yaml);
    struct stager_stream *stream = fixture_open(fixture, "photographs", NULL, 2);
    for (int i = 0; i < N_WARM; i++)
        stager_release(fixture_take(stream));
    double cpu = own_cpu_s(fixture), theirs = (double)bench_worker_ns(worker) / 1e9;
    uint64_t began = bench_now_ns(), now = began;
    *ret = (struct side){0};
    while ((double)(now - began) < seconds * 1e9) {
        stager_release(fixture_take(stream));
        ret->batches++;
        now = bench_now_ns();
    }
    ret->seconds = (double)(now - began) / 1e9;
    ret->cpu_s = own_cpu_s(fixture) - cpu;
    ret->other_cpu_s = (double)bench_worker_ns(worker) / 1e9 - theirs;
    stager_close(stream);
}

/* ---- the worker alone ---- */

struct reading {
    const struct bench_worker *worker;
    _Atomic uint64_t next;
    uint64_t end_ns;
};

static void *read_batches(void *arg)
{
    struct reading *reading = arg;
    char path[192], *bytes = malloc(BATCH_BYTES);
    int fd = bench_http_connect(reading->worker->port);
    if (bytes == NULL)
        bench_die("out of memory");
    do {
        bench_worker_path(reading->worker, atomic_fetch_add(&reading->next, 1),
                          n_photographs / BATCH, path);
        if (bench_http_get(fd, path, bytes, BATCH_BYTES) == 0)
            bench_die("the worker refuses two requests at once");
    } while (bench_now_ns() < reading->end_ns);
    close(fd);
    free(bytes);
    return NULL;
}

static void read_all(struct bench_worker *worker, uint64_t first, double seconds,
                     struct side *ret)
{
    pthread_t threads[N_CONNECTIONS];
    uint64_t cpu = bench_worker_ns(worker), began = bench_now_ns();
    struct reading reading = {
        .worker = worker, .next = first, .end_ns = began + (uint64_t)(seconds * 1e9)};
    for (int i = 0; i < N_CONNECTIONS; i++) {
        if (pthread_create(&threads[i], NULL, read_batches, &reading) != 0)
            bench_die("no thread");
    }
    for (int i = 0; i < N_CONNECTIONS; i++)
        pthread_join(threads[i], NULL);
    *ret = (struct side){.batches = (double)(reading.next - first),
                         .seconds = (double)(bench_now_ns() - began) / 1e9,
                         .cpu_s = (double)(bench_worker_ns(worker) - cpu) / 1e9};
}

/* ---- figures ---- */

struct figures {
    double ratios[MAX_ROUNDS], cpu_ratios[MAX_ROUNDS];
    double local_busy[MAX_ROUNDS], remote_busy[MAX_ROUNDS]; /* together */
    double local_cpu[MAX_ROUNDS], remote_cpu[MAX_ROUNDS];
    double local[MAX_ROUNDS], remote[MAX_ROUNDS], both[MAX_ROUNDS];
    size_t n;
};

static double rate(const struct side *side)
{
    return side->batches / side->seconds;
}

static void note(struct figures *figures, const struct side *local,
                 const struct side *remote, const struct side *both)
{
    size_t i = figures->n++;
    figures->local[i] = rate(local);
    figures->remote[i] = rate(remote);
    figures->both[i] = rate(both);
    figures->local_busy[i] = both->cpu_s / both->seconds;
    figures->remote_busy[i] = both->other_cpu_s / both->seconds;
    figures->local_cpu[i] = local->batches / local->cpu_s;
    figures->remote_cpu[i] = remote->batches / remote->cpu_s;
    figures->ratios[i] = rate(both) / (rate(local) + rate(remote));
    figures->cpu_ratios[i] = both->batches / (both->cpu_s * figures->local_cpu[i] +
                                              both->other_cpu_s * figures->remote_cpu[i]);
}

static void tell(struct figures *figures, const struct bench_options *options)
{
    size_t n = figures->n;
    double local = bench_median(figures->local, n);
    double remote = bench_median(figures->remote, n);
    double both = bench_median(figures->both, n),
           ratio = bench_median(figures->ratios, n);
    double local_cpu = bench_median(figures->local_cpu, n);
    double remote_cpu = bench_median(figures->remote_cpu, n);
    double cpu_ratio = bench_median(figures->cpu_ratios, n);
    printf("stagerd alone %.1f batches/s (%.1f a second of CPU), a worker alone %.1f "
           "(%.1f), both together %.1f: %.2f of the sum; by CPU time %.2f\n",
           local, local_cpu, remote, remote_cpu, both, ratio, cpu_ratio);
    printf("together stagerd had its CPU for %.2f of the time, the worker for %.2f\n",
           bench_median(figures->local_busy, n), bench_median(figures->remote_busy, n));
    if (options->json)
        printf(
            "{\"bench\": \"remote_stage\", \"rounds\": %zu, \"local_batches_per_s\": "
            "%.1f, \"local_batches_per_cpu_s\": %.1f, \"worker_batches_per_cpu_s\": "
            "%.1f, \"worker_batches_per_s\": %.1f, \"batches_per_s\": %.1f, \"ratio\": "
            "%.3f, \"cpu_ratio\": %.3f}\n",
            n, local, local_cpu, remote_cpu, remote, both, ratio, cpu_ratio);
}

/* ---- main ---- */

static void show(struct fixture *fixture)
{
    struct stg_reply reply;
    struct stager *client =
        fixture_ask(fixture, STG_REQUEST_STATUS, "photographs", &reply);
    printf("%s\n", reply.status.remote);
    stager_disconnect(client);
}

static void run(const char *folder, double seconds, struct figures *figures)
{
    struct fixture fixture;
    struct bench_worker worker;
    char alone[2048], together[2048], remote[128], path[256];
    int cpus[2];
    bench_two_cpus(cpus);
    snprintf(alone, sizeof(alone), pipeline, folder, "");
    bench_pin(cpus[0]);
    fixture_start(&fixture, "memory_budget: 2GiB\n");
    fixture_file(&fixture, "photographs.yaml", alone, strlen(alone), path);
    bench_worker_start(&worker, cpus[1], path);
    snprintf(remote, sizeof(remote),
             ", remote: {max_requests: 8, workers: [\"http://127.0.0.1:%u\"]}",
             worker.port);
    snprintf(together, sizeof(together), pipeline, folder, remote);
    double slice = seconds < 15 ? seconds / 3 : 5;
    uint64_t end = bench_now_ns() + (uint64_t)(seconds * 1e9);
    do {
        struct side local, far, both;
        drain(&fixture, &worker, alone, slice, &local);
        read_all(&worker, figures->n * 10000, slice, &far);
        drain(&fixture, &worker, together, slice, &both);
        note(figures, &local, &far, &both);
    } while (bench_now_ns() < end && figures->n < MAX_ROUNDS);
    show(&fixture);
    bench_worker_stop(&worker);
    fixture_finish(&fixture);
}

int main(int argc, char **argv)
{
    struct bench_options options;
    static struct figures figures;
    char folder[64] = "/tmp/stg-remote-XXXXXX";
    bench_options_parse(argc, argv, 30.0,
                        "Photographs by a stagerd on one CPU and a stage worker on "
                        "another: batches per second over the sum of each alone. "
                        "STAGER_BENCH_IMAGES: a folder of .jpg.",
                        &options);
    photographs_create();
    photographs_write(folder);
    run(folder, options.seconds, &figures);
    tell(&figures, &options);
    photographs_remove(folder);
    photographs_destroy();
    return 0;
}
