/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the overhead of libstager on the way to a GPU for large batches that cost
 * nothing to make: batches of 64 MiB ready in shared memory, relative to the GPU's copies
 * of the same size from page-locked memory. Also measures a trainer's work on each batch,
 * as long as its copy, relative to the longer of both alone. Status 77 without a GPU.
 */
#include <stdio.h>
#include <string.h>

#include "client/stager.h"
#include "core/status.h"
#include "proto/load.h"
#include "tests/bench/bench.h"
#include "tests/client/fake.h"
#include "tests/gpu/rig.h"

#define BATCH_BYTES ((uint64_t)64 << 20)
#define SLOT_BYTES (BATCH_BYTES + STG_GRANULE_BYTES)
#define MAX_IN_FLIGHT 5u
/* One batch is always ready, whatever the trainer holds. */
#define SLOTS (2u * MAX_IN_FLIGHT)
#define WORK_ELEMENTS ((size_t)4 << 20)
#define ROUNDS 5
#define AHEAD 2 /* steps by which the trainer's thread runs ahead of its work */

static struct stg_err err;

static void must(int rc, const char *what)
{
    if (rc < 0)
        bench_die("%s: %s", what, err.text);
}

/* ---- prepared batches ---- */

struct source {
    struct fake fake;
    struct stg_pipeline_spec *spec;
    bool is_out[SLOTS];
    uint64_t number; /* of the next batch */
};

static void source_start(struct source *source)
{
    static const char pipeline[] = "name: p\ndataset:\n  - range: {stop: 1}\n"
                                   "staged: {stage_subgraph_stream_id: 1}\n";
    *source = (struct source){0};
    must(stg_load_pipeline(pipeline, sizeof(pipeline) - 1, "p", &source->spec, &err),
         "pipeline");
    source->fake.pipeline = source->spec;
    fake_start_with(&source->fake, SLOTS, SLOT_BYTES);
    source->fake.max_in_flight = MAX_IN_FLIGHT;
}

static void source_stop(struct source *source)
{
    fake_stop(&source->fake);
    stg_pipeline_spec_destroy(source->spec);
}

/* Once written, a batch is published again unchanged. */
static void publish(struct source *source, uint32_t slot)
{
    struct fake *fake = &source->fake;
    struct stg_batch_header *header = (void *)(fake->segment + slot * fake->slot_bytes);
    uint64_t number = source->number++;
    source->is_out[slot] = true;
    if (number < SLOTS) {
        fake_publish(fake, slot, number, 0, BATCH_BYTES / sizeof(int64_t));
        return;
    }
    header->number = number;
    struct stg_descriptor d = fake_descriptor(fake, slot, number, header->total_bytes);
    stg_ring_push(&fake->ring, &d);
}

static void offer(struct source *source)
{
    struct stg_release_entry entry;
    while (stg_control_poll(&source->fake.control, &entry) == 1)
        source->is_out[entry.lease] = false;
    for (uint32_t i = 0; i < SLOTS; i++) {
        if (!source->is_out[i])
            publish(source, i);
    }
}

/* ---- steps ---- */

struct trainer {
    const struct rig *rig;
    struct source *source;
    struct stager_stream *stream;
    void *x, *y; /* of work without a batch; the target of work's writes */
    struct stg_device_event *steps[AHEAD];
};

static void trainer_open(struct trainer *trainer, const struct rig *rig,
                         struct source *source)
{
    struct stager_options options = {.struct_size = sizeof(options),
                                     .device = "cuda:0",
                                     .device_stream = rig_native(rig),
                                     .device_capacity = 3};
    size_t bytes = WORK_ELEMENTS * sizeof(float);
    *trainer = (struct trainer){.rig = rig, .source = source};
    must(rig->device->alloc(0, bytes, &trainer->x, &err), "device memory");
    must(rig->device->alloc(0, bytes, &trainer->y, &err), "device memory");
    for (int i = 0; i < AHEAD; i++)
        must(rig->device->event_create(0, &trainer->steps[i], &err), "event");
    trainer->stream = fake_open(&source->fake, &options);
}

static void trainer_close(struct trainer *trainer)
{
    const struct stg_device *device = trainer->rig->device;
    stager_close(trainer->stream);
    for (int i = 0; i < AHEAD; i++)
        device->event_destroy(trainer->steps[i]);
    device->free(0, trainer->x);
    device->free(0, trainer->y);
}

static void work(const struct trainer *trainer, const void *x, unsigned launches)
{
    for (unsigned i = 0; i < launches; i++)
        must(trainer->rig->device->kernels->log1p(trainer->rig->stream, STAGER_FLOAT32,
                                                  trainer->y, x, WORK_ELEMENTS, &err),
             "log1p");
}

static void step(const struct trainer *trainer, bool batches, unsigned launches)
{
    struct stager_batch *batch;
    struct stager_tensor x;
    if (!batches) {
        work(trainer, trainer->x, launches);
        return;
    }
    offer(trainer->source);
    if (stager_next(trainer->stream, 20000, &batch) < 0)
        bench_die("next: %s", stager_error_text(trainer->stream));
    if (stager_batch_tensor(batch, "x", &x) < 0 || x.device != 1)
        bench_die("x is not on the device");
    work(trainer, x.data, launches);
    stager_release(batch);
}

/* Nanoseconds for a step: with batches, with this much work on each, or with both. */
static double measure(const struct trainer *trainer, bool batches, unsigned launches,
                      double seconds)
{
    const struct stg_device *device = trainer->rig->device;
    uint64_t n = 0, began = bench_now_ns();
    do {
        struct stg_device_event *event = trainer->steps[n % AHEAD];
        must(device->event_wait(event, &err), "wait");
        step(trainer, batches, launches);
        must(device->event_record(event, trainer->rig->stream, &err), "event");
        n++;
    } while ((double)(bench_now_ns() - began) < seconds * 1e9);
    must(rig_wait(trainer->rig, &err), "wait");
    return (double)(bench_now_ns() - began) / (double)n;
}

/* ---- complete runs ---- */

struct figures {
    double locked;               /* bytes per second */
    double copied, worked, both; /* ns per step */
    unsigned launches;
};

/* Work that lasts as long as a copy, so that it hides nothing of either. */
static unsigned calibrate(const struct trainer *trainer, double seconds)
{
    measure(trainer, true, 0, seconds); /* slots get their memory */
    double copied = measure(trainer, true, 0, seconds);
    double launch = measure(trainer, false, 8, seconds) / 8;
    return copied > launch ? (unsigned)(copied / launch + 0.5) : 1;
}

/* In turns: the machine is not quiet. */
static void measure_all(const struct trainer *trainer, double seconds,
                        struct figures *ret)
{
    double locked[ROUNDS], copied[ROUNDS], worked[ROUNDS], both[ROUNDS];
    double part = seconds / (ROUNDS + 1) / 4;
    ret->launches = calibrate(trainer, part * 2);
    for (int i = 0; i < ROUNDS; i++) {
        locked[i] = rig_copy_rate(trainer->rig, BATCH_BYTES, true, part);
        copied[i] = measure(trainer, true, 0, part);
        worked[i] = measure(trainer, false, ret->launches, part);
        both[i] = measure(trainer, true, ret->launches, part);
    }
    ret->locked = bench_median(locked, ROUNDS);
    ret->copied = bench_median(copied, ROUNDS);
    ret->worked = bench_median(worked, ROUNDS);
    ret->both = bench_median(both, ROUNDS);
}

static void print(const struct figures *f, bool json)
{
    double rate = (double)BATCH_BYTES * 1e9 / f->copied;
    double longer = f->copied > f->worked ? f->copied : f->worked;
    printf("copies, page-locked:   %6.2f GB/s\n", f->locked / 1e9);
    printf("batches of 64 MiB:     %6.2f GB/s; %.3f of such copies\n", rate / 1e9,
           rate / f->locked);
    printf("a step: batches alone %.3f ms, %u kernels alone %.3f ms, both %.3f ms; the "
           "longer over both %.3f\n",
           f->copied / 1e6, f->launches, f->worked / 1e6, f->both / 1e6,
           longer / f->both);
    if (!json)
        return;
    printf(
        "{\"bench\": \"gpu_copy\", \"batch_bytes\": %llu, \"locked_bytes_per_s\": %.0f, "
        "\"bytes_per_s\": %.0f, \"ratio\": %.3f, \"launches\": %u, \"batches_ms\": "
        "%.4f, \"work_ms\": %.4f, \"both_ms\": %.4f, \"overlap_ratio\": %.3f}\n",
        (unsigned long long)BATCH_BYTES, f->locked, rate, rate / f->locked, f->launches,
        f->copied / 1e6, f->worked / 1e6, f->both / 1e6, longer / f->both);
}

int main(int argc, char **argv)
{
    struct bench_options options;
    struct figures figures = {0};
    struct source source;
    struct trainer trainer;
    struct rig rig;
    bench_options_parse(argc, argv, 10, "64 MiB batches onto a GPU, beside work",
                        &options);
    int rc = rig_open(&rig, &err);
    if (rc == 0 && rig.device->kernels == NULL)
        rc = stg_err(&err, -STAGER_UNIMPLEMENTED, "the device has no kernels");
    if (rc < 0) {
        printf("skipped: %s\n", err.text);
        return 77;
    }
    source_start(&source);
    trainer_open(&trainer, &rig, &source);
    measure_all(&trainer, options.seconds, &figures);
    trainer_close(&trainer);
    rig_close(&rig);
    source_stop(&source);
    print(&figures, options.json);
    return 0;
}
