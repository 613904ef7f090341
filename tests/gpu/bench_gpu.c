/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures how fast batches of 4 MiB get from a daemon into the memory of a GPU. The
 * result is relative to the slower one of two rates: the GPU's copies from page-locked
 * memory, and the daemon's delivery to a trainer that reads nothing. Also measures the
 * speed of each kernel. Status 77 without a GPU.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/stager.h"
#include "core/status.h"
#include "tests/bench/bench.h"
#include "tests/gpu/rig.h"
#include "tests/system/fixture.h"

#define BATCH_BYTES ((size_t)4 << 20)
#define ROUNDS 5

static struct stg_err err;

static void must(int rc, const char *what)
{
    if (rc < 0)
        bench_die("%s: %s", what, err.text);
}

/* ---- batches ---- */

static double batch_rate(struct stager_stream *stream, const struct rig *rig,
                         double seconds)
{
    uint64_t bytes = 0, began = bench_now_ns(), now = began;
    while ((double)(now - began) < seconds * 1e9) {
        struct stager_batch *batch;
        if (stager_next(stream, 10000, &batch) < 0)
            bench_die("next: %s", stager_error_text(stream));
        stager_release(batch);
        bytes += BATCH_BYTES;
        now = bench_now_ns();
    }
    must(rig_wait(rig, &err), "wait");
    return (double)bytes * 1e9 / (double)(bench_now_ns() - began);
}

static struct stager_stream *open_stream(const struct fixture *fixture,
                                         const char *device, const struct rig *rig)
{
    struct stager_options options = {.struct_size = sizeof(options),
                                     .runtime_dir = fixture->runtime,
                                     .max_in_flight = 2,
                                     .device = device,
                                     .device_stream = rig_native(rig),
                                     .device_capacity = 3};
    struct stager_stream *stream;
    if (device == NULL)
        options.device_capacity = 0;
    if (stager_open(NULL, "gpu", &options, &stream) < 0)
        bench_die("open: %s", stager_error_text(NULL));
    return stream;
}

/* In turns: the machine is not quiet. */
static void measure_batches(const struct fixture *fixture, const struct rig *rig,
                            double seconds, double *ret_device, double *ret_host)
{
    double on_device[ROUNDS], on_host[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        struct stager_stream *stream = open_stream(fixture, "cuda:0", rig);
        batch_rate(stream, rig, 0.1);
        on_device[i] = batch_rate(stream, rig, seconds / ROUNDS / 2);
        stager_close(stream);
        stream = open_stream(fixture, NULL, rig);
        batch_rate(stream, rig, 0.1);
        on_host[i] = batch_rate(stream, rig, seconds / ROUNDS / 2);
        stager_close(stream);
    }
    *ret_device = bench_median(on_device, ROUNDS);
    *ret_host = bench_median(on_host, ROUNDS);
}

/* ---- kernels, over bytes read and written ---- */

#define N ((size_t)16 << 20)
#define WIDTH 64

struct memory {
    void *x, *y, *ids, *offsets;
};

static int run_cast(const struct rig *rig, const struct memory *m)
{
    return rig->device->kernels->cast(rig->stream, STAGER_FLOAT16, m->y, STAGER_FLOAT32,
                                      m->x, N, &err);
}

static int run_log1p(const struct rig *rig, const struct memory *m)
{
    return rig->device->kernels->log1p(rig->stream, STAGER_FLOAT32, m->y, m->x, N, &err);
}

static int run_normalize(const struct rig *rig, const struct memory *m)
{
    struct stg_kernel_normalize how = {.n = 64,
                                       .height = 224,
                                       .width = 224,
                                       .channels = 3,
                                       .x_dtype = STAGER_UINT8,
                                       .y_dtype = STAGER_FLOAT16,
                                       .mean = {123.675f, 116.28f, 103.53f},
                                       .std = {58.395f, 57.12f, 57.375f}};
    return rig->device->kernels->normalize_image(rig->stream, &how, m->y, m->x, &err);
}

static int run_bucketize(const struct rig *rig, const struct memory *m)
{
    return rig->device->kernels->bucketize(rig->stream, m->y, STAGER_FLOAT32, m->x, N,
                                           m->ids, 64, &err);
}

static int run_hash(const struct rig *rig, const struct memory *m)
{
    return rig->device->kernels->hash_bucket(rig->stream, m->y, m->x, m->offsets, N / 8,
                                             1000003, &err);
}

static int run_lookup(const struct rig *rig, const struct memory *m)
{
    struct stg_kernel_lookup how = {.combiner = STG_KERNEL_NONE,
                                    .dtype = STAGER_FLOAT32,
                                    .ids_dtype = STAGER_INT64,
                                    .n = (int64_t)(N / WIDTH),
                                    .width = WIDTH,
                                    .n_table = (int64_t)(N / WIDTH),
                                    .y = m->y,
                                    .table = m->x,
                                    .ids = m->offsets};
    return rig->device->kernels->embedding_lookup(rig->stream, &how, &err);
}

static int run_concat(const struct rig *rig, const struct memory *m)
{
    const void *x[2] = {m->x, (const char *)m->x + N * 2};
    size_t row_bytes[2] = {256, 256};
    return rig->device->kernels->concat(rig->stream, m->y, x, row_bytes, 2, N * 2 / 256,
                                        &err);
}

static const struct {
    const char *name;
    int (*run)(const struct rig *rig, const struct memory *m);
    double bytes; /* read and written by one run */
} kernels[] = {
    {"cast", run_cast, (double)N * 6},
    {"log1p", run_log1p, (double)N * 8},
    {"normalize_image", run_normalize, 64.0 * 224 * 224 * 9},
    {"bucketize", run_bucketize, (double)N * 8},
    {"hash_bucket", run_hash, (double)N / 8 * 24},
    {"embedding_lookup", run_lookup, (double)N * 8},
    {"concat", run_concat, (double)N * 8},
};
#define N_KERNELS (sizeof(kernels) / sizeof(kernels[0]))

/* Offsets of strings of 8 bytes; below N / WIDTH * 8 they are ids too. */
static void fill(const struct rig *rig, const struct memory *m)
{
    size_t n = N / 8 + 1;
    int64_t *offsets = malloc(n * sizeof(*offsets));
    void *zeros = calloc(N, sizeof(float));
    if (offsets == NULL || zeros == NULL)
        bench_die("no memory");
    for (size_t i = 0; i < n; i++)
        offsets[i] = (int64_t)i * 8;
    must(rig->device->copy_in(rig->stream, m->offsets, offsets, n * sizeof(*offsets),
                              &err),
         "copy");
    must(rig->device->copy_in(rig->stream, m->x, zeros, N * sizeof(float), &err), "copy");
    must(rig->device->copy_in(rig->stream, m->ids, zeros, 4096, &err), "copy");
    must(rig_wait(rig, &err), "wait");
    free(offsets);
    free(zeros);
}

static void measure_kernels(const struct rig *rig, double *ret)
{
    struct memory m;
    must(rig->device->alloc(0, N * 8, &m.x, &err), "device memory");
    must(rig->device->alloc(0, N * 8, &m.y, &err), "device memory");
    must(rig->device->alloc(0, 4096, &m.ids, &err), "device memory");
    must(rig->device->alloc(0, (N / 8 + 1) * 8, &m.offsets, &err), "device memory");
    fill(rig, &m);
    for (size_t i = 0; i < N_KERNELS; i++) {
        must(kernels[i].run(rig, &m), kernels[i].name);
        must(rig_wait(rig, &err), kernels[i].name);
        uint64_t began = bench_now_ns();
        for (int k = 0; k < 20; k++)
            must(kernels[i].run(rig, &m), kernels[i].name);
        must(rig_wait(rig, &err), kernels[i].name);
        ret[i] = kernels[i].bytes * 20 * 1e9 / (double)(bench_now_ns() - began);
    }
    rig->device->free(0, m.x);
    rig->device->free(0, m.y);
    rig->device->free(0, m.ids);
    rig->device->free(0, m.offsets);
}

/* ---- the report as text ---- */

struct figures {
    double locked, pageable, device, host, kernels[N_KERNELS];
};

static void print(const struct stg_device_facts *facts, const struct figures *f,
                  bool json)
{
    double bound = f->locked < f->host ? f->locked : f->host;
    printf("%s, driver for CUDA %d.%d\n", facts->name, facts->driver / 1000,
           facts->driver % 1000 / 10);
    printf("copies, page-locked:   %6.2f GB/s; pageable %.2f\n", f->locked / 1e9,
           f->pageable / 1e9);
    printf("batches on the device: %6.2f GB/s; in host memory %.2f; %.2f of what bounds "
           "them\n",
           f->device / 1e9, f->host / 1e9, f->device / bound);
    for (size_t i = 0; i < N_KERNELS; i++)
        printf("%-22s %6.0f GB/s\n", kernels[i].name, f->kernels[i] / 1e9);
    if (!json)
        return;
    printf("{\"bench\": \"gpu\", \"card\": \"%s\", \"driver\": %d, \"runtime\": %d, "
           "\"register_read_only\": %s, \"bytes_per_s\": %.0f, \"host_bytes_per_s\": "
           "%.0f, \"locked_bytes_per_s\": %.0f, \"pageable_bytes_per_s\": %.0f, "
           "\"ratio\": %.3f, \"kernels_bytes_per_s\": {",
           facts->name, facts->driver, facts->runtime,
           facts->register_read_only ? "true" : "false", f->device, f->host, f->locked,
           f->pageable, f->device / bound);
    for (size_t i = 0; i < N_KERNELS; i++)
        printf("%s\"%s\": %.0f", i > 0 ? ", " : "", kernels[i].name, f->kernels[i]);
    printf("}}\n");
}

int main(int argc, char **argv)
{
    struct bench_options options;
    bench_options_parse(argc, argv, 10, "4 MiB batches from daemon to GPU", &options);
    struct fixture fixture;
    struct figures figures;
    struct stg_device_facts facts;
    struct rig rig;
    fixture_start(&fixture, "gpu: {use_multi_stream: true, multi_stream_num: 2, "
                            "stage_multi_stream: true}\n");
    fixture_apply(&fixture,
                  "name: gpu\n"
                  "dataset:\n  - range: {stop: 1000000000}\n"
                  "graph:\n  - {name: x, op: constant, value: 1.5, shape: [1048576]}\n"
                  "staged: {features: {x: x}, capacity: 4, stage_subgraph_stream_id: "
                  "1}\n");
    int rc = rig_open(&rig, &err);
    if (rc == 0 &&
        (rig.device->kernels == NULL || strcmp(rig.device->name, "standin") == 0))
        rc = stg_err(&err, -STAGER_UNIMPLEMENTED, "the device has no kernels to measure");
    if (rc < 0) {
        printf("skipped: %s\n", err.text);
        fixture_finish(&fixture);
        return 77;
    }
    must(rig.device->facts(0, &facts, &err), "facts");
    figures.locked = rig_copy_rate(&rig, BATCH_BYTES, true, options.seconds / 8);
    figures.pageable = rig_copy_rate(&rig, BATCH_BYTES, false, options.seconds / 8);
    measure_batches(&fixture, &rig, options.seconds / 2, &figures.device, &figures.host);
    measure_kernels(&rig, figures.kernels);
    rig_close(&rig);
    fixture_finish(&fixture);
    print(&facts, &figures, options.json);
    return 0;
}
