/* SPDX-License-Identifier: Apache-2.0
 *
 * One, two and four trainers on one GPU, each of which gets every batch of 4 MiB: each
 * trainer copies, or all share one copy. Measures bytes per second of the slowest
 * trainer, and memory of the device as nvidia-smi counts it. Status 77 without a GPU that
 * can share memory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/stager.h"
#include "core/status.h"
#include "tests/bench/bench.h"
#include "tests/gpu/rig.h"
#include "tests/system/fixture.h"

#define BATCH_BYTES ((uint64_t)4 << 20)
#define MAX_TRAINERS 4
#define WARM_S 0.3

static const unsigned counts[] = {1, 2, 4};
#define N_COUNTS (sizeof(counts) / sizeof(counts[0]))

struct figures {
    double bytes_per_s; /* of the slowest */
    double memory_mib;  /* negative: unknown */
    uint64_t copied;    /* bytes, over all trainers */
};

/* ---- a trainer ---- */

struct course {
    double seconds;
};

static uint64_t take(struct stager_stream *stream, double seconds)
{
    uint64_t n = 0, until = bench_now_ns() + (uint64_t)(seconds * 1e9);
    while (bench_now_ns() < until) {
        struct stager_batch *batch;
        if (stager_next(stream, 20000, &batch) < 0)
            bench_die("next: %s", stager_error_text(stream));
        stager_release(batch);
        n++;
    }
    return n;
}

/* Reports when it is warm, measures on request, and stays until the next request. */
static void train(struct fixture *fixture, int fd, void *arg)
{
    const struct course *course = arg;
    struct stager_options options = {.struct_size = sizeof(options),
                                     .runtime_dir = fixture->runtime,
                                     .device = "cuda:0",
                                     .device_capacity = 3};
    struct stager_stream_info info = {.struct_size = sizeof(info)};
    struct stager_stream *stream;
    struct stg_err err = {0};
    struct rig rig;
    if (rig_open(&rig, &err) < 0)
        bench_die("%s", err.text);
    options.device_stream = rig_native(&rig);
    if (stager_open(NULL, "gpu", &options, &stream) < 0)
        bench_die("open: %s", stager_error_text(NULL));
    take(stream, WARM_S);
    trainer_send(fd, 0);
    uint64_t began = bench_now_ns();
    uint64_t n = take(stream, course->seconds);
    if (rig_wait(&rig, &err) < 0)
        bench_die("wait: %s", err.text);
    double rate = (double)(n * BATCH_BYTES) * 1e9 / (double)(bench_now_ns() - began);
    stager_stream_info(stream, &info);
    trainer_send(fd, (int64_t)rate);
    trainer_send(fd, (int64_t)info.device_bytes);
    stager_close(stream);
    rig_close(&rig);
}

/* ---- all trainers ---- */

/* Memory in use on device 0, MiB; negative: nvidia-smi is not installed. */
static double memory_in_use(void)
{
    double mib = -1;
    FILE *pipe = popen("nvidia-smi -i 0 --query-gpu=memory.used "
                       "--format=csv,noheader,nounits 2>/dev/null",
                       "r");
    if (pipe == NULL)
        return -1;
    if (fscanf(pipe, "%lf", &mib) != 1)
        mib = -1;
    pclose(pipe);
    return mib;
}

static void measure(struct fixture *fixture, unsigned n, bool shared, double seconds,
                    struct figures *ret)
{
    char yaml[512];
    struct trainer trainers[MAX_TRAINERS];
    struct course course = {.seconds = seconds};
    struct stg_err err = {0};
    snprintf(yaml, sizeof(yaml),
             "name: gpu\ndataset:\n  - range: {stop: 1000000000}\n"
             "graph:\n  - {name: x, op: constant, value: 1.5, shape: [1048576]}\n"
             "staged: {features: {x: x}, capacity: 4, num_threads: 2, delivery: "
             "broadcast, num_clients: %u, stage_subgraph_stream_id: 1}\n%s",
             n, shared ? "gpu: {device: cuda:0}\n" : "");
    if (fixture_try_apply(fixture, yaml, true, &err) < 0)
        bench_die("apply: %s", err.text);
    double before = memory_in_use();
    for (unsigned i = 0; i < n; i++)
        trainer_start(&trainers[i], train, fixture, &course);
    for (unsigned i = 0; i < n; i++)
        trainer_recv(trainers[i].fd);
    double now = memory_in_use();
    *ret = (struct figures){.bytes_per_s = 1e18,
                            .memory_mib = before >= 0 && now >= 0 ? now - before : -1};
    for (unsigned i = 0; i < n; i++) {
        double rate = (double)trainer_recv(trainers[i].fd);
        ret->bytes_per_s = rate < ret->bytes_per_s ? rate : ret->bytes_per_s;
        ret->copied += (uint64_t)trainer_recv(trainers[i].fd);
    }
    for (unsigned i = 0; i < n; i++)
        trainer_join(&trainers[i]);
}

/* Runs in a separate process: both halves of a fork must not share a device. */
static bool can_share(void)
{
    int status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct stg_device_facts facts = {0};
        struct stg_err err = {0};
        struct rig rig;
        int rc = rig_open(&rig, &err);
        if (rc == 0)
            rc = rig.device->facts(0, &facts, &err);
        if (rc < 0)
            printf("skipped: %s\n", err.text);
        else if (!facts.memory_fds)
            printf("skipped: %s passes no memory on as a descriptor\n", facts.name);
        fflush(NULL);
        _exit(rc < 0 || !facts.memory_fds);
    }
    return waitpid(pid, &status, 0) == pid && status == 0;
}

static void print(struct figures f[N_COUNTS][2], bool json)
{
    static const char *const names[] = {"own", "shared"};
    for (size_t i = 0; i < N_COUNTS; i++) {
        for (int k = 0; k < 2; k++)
            printf("%u trainer%s, %-7s %6.2f GB/s each, %6.0f MiB of the device, %.2f GB "
                   "copied by trainers\n",
                   counts[i], counts[i] == 1 ? ": " : "s:", names[k],
                   f[i][k].bytes_per_s / 1e9, f[i][k].memory_mib,
                   (double)f[i][k].copied / 1e9);
    }
    if (!json)
        return;
    printf("{\"bench\": \"gpu_shared\", \"ratio\": %.3f, \"trainers\": [",
           f[N_COUNTS - 1][1].bytes_per_s / f[N_COUNTS - 1][0].bytes_per_s);
    for (size_t i = 0; i < N_COUNTS; i++) {
        printf("%s{\"n\": %u", i > 0 ? ", " : "", counts[i]);
        for (int k = 0; k < 2; k++)
            printf(", \"%s_bytes_per_s\": %.0f, \"%s_mib\": %.0f, \"%s_copied_bytes\": "
                   "%llu",
                   names[k], f[i][k].bytes_per_s, names[k], f[i][k].memory_mib, names[k],
                   (unsigned long long)f[i][k].copied);
        printf("}");
    }
    printf("]}\n");
}

int main(int argc, char **argv)
{
    struct bench_options options;
    struct figures figures[N_COUNTS][2];
    struct fixture fixture;
    bench_options_parse(argc, argv, 12, "trainers on one GPU that share a copy",
                        &options);
    if (!can_share())
        return 77;
    setenv("STAGER_CUDA_DIR", getenv("STG_CUDA_DIR"), 1);
    fixture_start(&fixture, "gpu: {use_multi_stream: true, multi_stream_num: 2, "
                            "stage_multi_stream: true}\n");
    for (size_t i = 0; i < N_COUNTS; i++) {
        for (int k = 0; k < 2; k++)
            measure(&fixture, counts[i], k == 1, options.seconds / N_COUNTS / 2,
                    &figures[i][k]);
    }
    fixture_finish(&fixture);
    print(figures, options.json);
    return 0;
}
