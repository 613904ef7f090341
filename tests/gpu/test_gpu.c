/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches on a GPU: the data that arrive equal the data sent, although their source
 * memory is overwritten once its lease is released; work that still reads a batch reads
 * the old data; and the state of two trainers after one is killed.
 */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/stager.h"
#include "core/status.h"
#include "proto/load.h"
#include "tests/check.h"
#include "tests/client/fake.h"
#include "tests/gpu/rig.h"
#include "tests/system/fixture.h"

#define SLOTS 8u      /* extents of the fake daemon */
#define ELEMENTS 8000 /* elements of a batch: as many as fit an extent */
#define BATCHES 400

static struct stg_err err;

static void rig_or_skip(struct rig *rig)
{
    if (rig_open(rig, &err) < 0)
        SKIP("%s", err.text);
    if (strcmp(rig->device->name, "standin") != 0)
        stg_test_keeps_descriptors();
}

/* ---- a daemon that overwrites released memory at once ---- */

struct source {
    struct fake fake;
    struct stg_pipeline_spec *spec;
    bool is_out[SLOTS];
    uint64_t number; /* of the next batch */
    pthread_t thread;
    _Atomic bool is_over;
};

static void source_start(struct source *source, const char *pipeline)
{
    *source = (struct source){0};
    CHECK_OK(stg_load_pipeline(pipeline, strlen(pipeline), "p", &source->spec, &err),
             err);
    source->fake.pipeline = source->spec;
    fake_start(&source->fake);
    source->fake.max_in_flight = 5;
}

static void source_stop(struct source *source)
{
    source->is_over = true;
    CHECK_INT(pthread_join(source->thread, NULL), 0);
    fake_stop(&source->fake);
    stg_pipeline_spec_destroy(source->spec);
}

static void take_back(struct source *source)
{
    struct stg_release_entry entry;
    while (stg_control_poll(&source->fake.control, &entry) == 1) {
        CHECK(entry.lease < SLOTS && source->is_out[entry.lease]);
        source->is_out[entry.lease] = false;
        memset(source->fake.segment + entry.lease * STG_GRANULE_BYTES, 0xee,
               STG_GRANULE_BYTES);
    }
}

/* Publishes as many as there is room for. Batch n holds n * ELEMENTS, n * ELEMENTS + 1
 * … */
static void publish(struct source *source)
{
    unsigned n_out = 0;
    uint64_t before = source->number;
    take_back(source);
    for (uint32_t i = 0; i < SLOTS; i++)
        n_out += source->is_out[i];
    for (uint32_t i = 0; i < SLOTS && n_out < source->fake.max_in_flight; i++) {
        if (source->is_out[i] || source->number == BATCHES)
            continue;
        source->is_out[i] = true;
        n_out++;
        fake_publish(&source->fake, i, source->number, (int64_t)source->number * ELEMENTS,
                     ELEMENTS);
        source->number++;
    }
    if (source->number != before && stg_control_waiting(&source->fake.control))
        fake_ring(&source->fake);
}

static void *publish_all(void *arg)
{
    struct source *source = arg;
    while (!source->is_over) {
        publish(source);
        sched_yield();
    }
    return NULL;
}

static struct stager_stream *source_open(struct source *source,
                                         const struct stager_options *options)
{
    struct stager_stream *stream = fake_open(&source->fake, options);
    CHECK_INT(pthread_create(&source->thread, NULL, publish_all, source), 0);
    return stream;
}

/* Values of a batch when the trainer's stream reached it: first, middle, last. */
#define LOOKS 3
static const size_t looks[LOOKS] = {0, ELEMENTS / 2, ELEMENTS - 1};

static void look_at(const struct rig *rig, struct stg_stream *stream,
                    const struct stager_batch *batch, int64_t *ret)
{
    struct stager_tensor x;
    CHECK_INT(stager_batch_tensor(batch, "x", &x), 0);
    CHECK_INT(x.device, 1);
    CHECK_INT(x.shape[0], ELEMENTS);
    for (int i = 0; i < LOOKS; i++)
        CHECK_OK(rig->device->copy_out(stream, &ret[i],
                                       (const int64_t *)x.data + looks[i], sizeof(ret[i]),
                                       &err),
                 err);
}

static void check_looks(const int64_t *looked)
{
    for (int64_t n = 0; n < BATCHES; n++) {
        for (int i = 0; i < LOOKS; i++) {
            int64_t want = n * ELEMENTS + (int64_t)looks[i];
            if (looked[n * LOOKS + i] != want)
                FAIL("batch %lld, element %zu: %lld, not %lld", (long long)n, looks[i],
                     (long long)looked[n * LOOKS + i], (long long)want);
        }
    }
}

/* Takes all batches and waits only for the end. beside: the trainer works on a stream
 * that it did not name at open. */
static void take_all(struct source *source, bool beside)
{
    struct rig rig;
    struct stg_stream *other;
    int64_t *looked;
    rig_or_skip(&rig);
    CHECK_OK(rig.device->stream_create(0, &other, &err), err);
    CHECK_OK(
        rig.device->host_alloc(BATCHES * LOOKS * sizeof(*looked), (void **)&looked, &err),
        err);
    struct stager_options options = {.struct_size = sizeof(options),
                                     .device = "cuda:0",
                                     .device_stream = rig_native(&rig),
                                     .device_capacity = 3};
    struct stager_stream *stream = source_open(source, &options);
    for (int n = 0; n < BATCHES; n++) {
        struct stager_batch *batch;
        if (stager_next(stream, 20000, &batch) < 0)
            FAIL("batch %d: %s", n, stager_error_text(stream));
        if (beside)
            CHECK_INT(stager_batch_wait(batch, other), 0);
        look_at(&rig, beside ? other : rig.stream, batch, looked + n * LOOKS);
        if (beside)
            stager_release_after(batch, other);
        else
            stager_release(batch);
    }
    CHECK_OK(rig_wait(&rig, &err), err);
    CHECK_OK(rig.device->event_record(rig.event, other, &err), err);
    CHECK_OK(rig.device->event_wait(rig.event, &err), err);
    check_looks(looked);
    struct stager_stream_info info = {.struct_size = sizeof(info)};
    stager_stream_info(stream, &info);
    CHECK_INT(info.device_bytes, BATCHES * ELEMENTS * sizeof(int64_t));
    stager_close(stream);
    rig.device->host_free(looked);
    rig.device->stream_destroy(other);
    rig_close(&rig);
}

static const char on_the_trainers[] = "name: p\ndataset:\n  - range: {stop: 1}\n";
static const char on_our_own[] = "name: p\ndataset:\n  - range: {stop: 1}\n"
                                 "staged: {stage_subgraph_stream_id: 1}\n";

static void batches_arrive_whole_on_the_trainers_stream(void)
{
    struct source source;
    source_start(&source, on_the_trainers);
    take_all(&source, false);
    source_stop(&source);
}

static void batches_arrive_whole_on_a_stream_of_our_own(void)
{
    struct source source;
    source_start(&source, on_our_own);
    take_all(&source, false);
    source_stop(&source);
}

static void batches_arrive_whole_for_work_on_another_stream(void)
{
    struct source source;
    source_start(&source, on_our_own);
    take_all(&source, true);
    source_stop(&source);
}

/* ---- a slow step ---- */

#define BUSY_BYTES ((size_t)256 << 20)
#define BUSY_ROUNDS 40

static void work_that_is_late_reads_its_own_batch(void)
{
    struct source source;
    struct rig rig;
    void *busy[2];
    int64_t *got;
    source_start(&source, on_our_own);
    rig_or_skip(&rig);
    if (rig.device->kernels == NULL || strcmp(rig.device->name, "standin") == 0)
        SKIP("the device has no kernels to be busy with for long");
    for (int i = 0; i < 2; i++)
        CHECK_OK(rig.device->alloc(0, BUSY_BYTES, &busy[i], &err), err);
    CHECK_OK(rig.device->host_alloc(BATCHES * LOOKS * sizeof(*got), (void **)&got, &err),
             err);
    struct stager_options options = {
        .struct_size = sizeof(options), .device = "cuda", .device_capacity = 2};
    struct stager_stream *stream = source_open(&source, &options);
    for (int n = 0; n < BATCHES; n++) {
        struct stager_batch *batch;
        if (stager_next(stream, 20000, &batch) < 0)
            FAIL("batch %d: %s", n, stager_error_text(stream));
        for (int i = 0; n < 5 && i < BUSY_ROUNDS; i++)
            CHECK_OK(rig.device->kernels->log1p(rig.stream, STAGER_FLOAT32, busy[i % 2],
                                                busy[(i + 1) % 2], BUSY_BYTES / 4, &err),
                     err);
        look_at(&rig, rig.stream, batch, got + n * LOOKS);
        stager_release(batch);
    }
    CHECK_OK(rig_wait(&rig, &err), err);
    check_looks(got);
    stager_close(stream);
    for (int i = 0; i < 2; i++)
        rig.device->free(0, busy[i]);
    rig.device->host_free(got);
    rig_close(&rig);
    source_stop(&source);
}

/* ---- nodes on the GPU ---- */

static const char with_nodes[] =
    "name: p\ndataset:\n  - range: {stop: 1}\n"
    "graph:\n"
    "  - {name: bucket, op: bucketize, input: [\"staged:x\"], boundaries: [8000, "
    "16000]}\n"
    "  - {name: twice, op: stack, input: [\"staged:x\", \"staged:x\"], axis: 1}\n"
    "staged: {features: {x: x}, compute_device: on, stage_subgraph_stream_id: 1}\n";

/* Only the trainer's stream reads the results of each run, and the test does not wait for
 * it. */
static void results_arrive_whole(void)
{
    static const char *const fetches[] = {"bucket", "twice"};
    struct source source;
    struct rig rig;
    int64_t *got;
    int32_t *buckets;
    source_start(&source, with_nodes);
    rig_or_skip(&rig);
    if (rig.device->kernels == NULL)
        SKIP("the device has no kernels");
    size_t bytes = BATCHES * LOOKS * sizeof(*got);
    CHECK_OK(rig.device->host_alloc(bytes, (void **)&got, &err), err);
    CHECK_OK(rig.device->host_alloc(bytes, (void **)&buckets, &err), err);
    struct stager_options options = {.struct_size = sizeof(options),
                                     .device = "cuda",
                                     .device_stream = rig_native(&rig)};
    struct stager_stream *stream = source_open(&source, &options);
    for (int n = 0; n < BATCHES; n++) {
        struct stager_batch *batch;
        struct stager_tensor results[2];
        if (stager_next(stream, 20000, &batch) < 0 ||
            stager_run(stream, batch, fetches, 2, results) < 0)
            FAIL("batch %d: %s", n, stager_error_text(stream));
        stager_release(batch);
        CHECK(results[0].device == 1 && results[1].device == 1);
        for (int i = 0; i < LOOKS; i++) {
            CHECK_OK(rig.device->copy_out(rig.stream, &buckets[n * LOOKS + i],
                                          (const int32_t *)results[0].data + looks[i],
                                          sizeof(*buckets), &err),
                     err);
            CHECK_OK(rig.device->copy_out(rig.stream, &got[n * LOOKS + i],
                                          (const int64_t *)results[1].data +
                                              2 * looks[i] + i % 2,
                                          sizeof(*got), &err),
                     err);
        }
    }
    CHECK_OK(rig_wait(&rig, &err), err);
    check_looks(got);
    for (int i = 0; i < BATCHES * LOOKS; i++)
        CHECK_INT(buckets[i], (got[i] >= 8000) + (got[i] >= 16000));
    stager_close(stream);
    rig.device->host_free(got);
    rig.device->host_free(buckets);
    rig_close(&rig);
    source_stop(&source);
}

/* ---- two trainers, a real daemon ---- */

#define VALUES 20000

/* Writes each value that it got on the device into the pipe; ends with the pass. */
static void train(const char *runtime_dir, int to)
{
    struct rig rig;
    struct stager_stream *stream;
    struct stager_batch *batch;
    int64_t *got;
    struct stager_options options = {
        .struct_size = sizeof(options), .runtime_dir = runtime_dir, .device = "cuda:0"};
    if (rig_open(&rig, &err) < 0 ||
        rig.device->host_alloc(100 * sizeof(*got), (void **)&got, &err) < 0 ||
        stager_open(NULL, "p", &options, &stream) < 0)
        _exit(1);
    int rc;
    while ((rc = stager_next(stream, 20000, &batch)) == 0) {
        struct stager_tensor x;
        stager_batch_tensor_at(batch, 0, &x);
        if (x.device != 1 || x.data_bytes > 100 * sizeof(*got) ||
            rig.device->copy_out(rig.stream, got, x.data, x.data_bytes, &err) < 0 ||
            rig_wait(&rig, &err) < 0 ||
            write(to, got, x.data_bytes) != (ssize_t)x.data_bytes)
            _exit(2);
        stager_release(batch);
    }
    stager_close(stream);
    _exit(rc == -STAGER_OUT_OF_RANGE ? 0 : 3);
}

static pid_t start_trainer(void (*body)(const char *runtime_dir, int to),
                           const char *runtime_dir, int *ret_from)
{
    int fds[2];
    CHECK(pipe(fds) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        close(fds[0]);
        body(runtime_dir, fds[1]);
    }
    close(fds[1]);
    *ret_from = fds[0];
    return pid;
}

static size_t note(int from, bool *seen, size_t most)
{
    size_t n = 0;
    int64_t value;
    while (n < most && read(from, &value, sizeof(value)) == sizeof(value)) {
        CHECK(value >= 0 && value < VALUES);
        seen[value] = true;
        n++;
    }
    return n;
}

/* Looks from a separate process: both halves of a fork must not share a device. */
static void device_or_skip(bool shares)
{
    struct stg_device_facts facts = {0};
    struct rig rig;
    int status;
    pid_t probe = fork();
    if (probe == 0)
        _exit(rig_open(&rig, &err) < 0 || rig.device->facts(0, &facts, &err) < 0 ? 1
              : shares && !facts.memory_fds                                      ? 2
                                                                                 : 0);
    CHECK(waitpid(probe, &status, 0) == probe);
    if (status != 0)
        SKIP(WEXITSTATUS(status) == 2 ? "it passes no memory on as a descriptor"
                                      : "there is no device");
}

static void a_killed_trainer_costs_the_other_nothing(void)
{
    struct fixture fixture;
    static bool seen[VALUES];
    int from[2], status;
    device_or_skip(false);
    fixture_start(&fixture, "");
    fixture_apply(&fixture, "name: p\ndataset:\n  - range: {stop: 20000}\n"
                            "  - batch: {batch_size: 100}\n"
                            "staged: {capacity: 4, num_clients: 2}\n");
    pid_t first = start_trainer(train, fixture.runtime, &from[0]);
    CHECK_INT(note(from[0], seen, 1000), 1000);
    pid_t second = start_trainer(train, fixture.runtime, &from[1]);
    CHECK(note(from[1], seen, 300) > 0);
    kill(first, SIGKILL);
    CHECK(waitpid(first, &status, 0) == first);
    note(from[0], seen, SIZE_MAX);
    note(from[1], seen, SIZE_MAX);
    CHECK(waitpid(second, &status, 0) == second);
    CHECK_INT(status, 0);
    for (int i = 0; i < VALUES; i++) {
        if (!seen[i])
            FAIL("value %d reached no trainer", i);
    }
    close(from[0]);
    close(from[1]);
    fixture_finish(&fixture);
}

/* ---- trainers that share one copy ---- */

struct course {
    int64_t batches, shared, copied_bytes;
};

/* Each value at its address; then the value that lay there. */
static void train_together(const char *runtime_dir, int to)
{
    struct rig rig;
    struct stager_stream *stream;
    struct stager_batch *batch;
    struct stager_stream_info info = {.struct_size = sizeof(info)};
    struct course course = {0};
    int64_t *got;
    struct stager_options options = {
        .struct_size = sizeof(options), .runtime_dir = runtime_dir, .device = "cuda:0"};
    if (rig_open(&rig, &err) < 0 ||
        rig.device->host_alloc(100 * sizeof(*got), (void **)&got, &err) < 0 ||
        stager_open(NULL, "p", &options, &stream) < 0)
        _exit(1);
    int rc;
    while ((rc = stager_next(stream, 20000, &batch)) == 0) {
        struct stager_tensor x;
        stager_batch_tensor_at(batch, 0, &x);
        if (x.device != 1 || x.data_bytes != 100 * sizeof(*got) ||
            rig.device->copy_out(rig.stream, got, x.data, x.data_bytes, &err) < 0 ||
            rig_wait(&rig, &err) < 0)
            _exit(2);
        for (int i = 0; i < 100; i++) {
            if (got[i] != course.batches * 100 + i)
                _exit(3);
        }
        course.batches++;
        stager_release(batch);
    }
    stager_stream_info(stream, &info);
    course.shared = (int64_t)info.device_shared;
    course.copied_bytes = (int64_t)info.device_bytes;
    stager_close(stream);
    bool is_told = write(to, &course, sizeof(course)) == sizeof(course);
    _exit(rc == -STAGER_OUT_OF_RANGE && is_told ? 0 : 4);
}

static void trainers_share_one_copy(unsigned n)
{
    struct fixture fixture;
    struct course course;
    char yaml[256];
    int from[4], status;
    pid_t pids[4];
    device_or_skip(true);
    setenv("STAGER_CUDA_DIR", getenv("STG_CUDA_DIR"), 1);
    fixture_start(&fixture, "");
    snprintf(yaml, sizeof(yaml),
             "name: p\ndataset:\n  - range: {stop: %d}\n  - batch: {batch_size: 100}\n"
             "staged: {capacity: 4, num_threads: 2, delivery: broadcast, num_clients: "
             "%u}\ngpu: {device: cuda:0}\n",
             VALUES, n);
    fixture_apply(&fixture, yaml);
    for (unsigned i = 0; i < n; i++)
        pids[i] = start_trainer(train_together, fixture.runtime, &from[i]);
    for (unsigned i = 0; i < n; i++) {
        CHECK_INT(read(from[i], &course, sizeof(course)), sizeof(course));
        CHECK(waitpid(pids[i], &status, 0) == pids[i]);
        CHECK_INT(status, 0);
        CHECK_INT(course.batches, VALUES / 100);
        CHECK_INT(course.shared, VALUES / 100);
        CHECK_INT(course.copied_bytes, 0);
        close(from[i]);
    }
    fixture_finish(&fixture);
}

static void two_trainers_share_one_copy(void)
{
    trainers_share_one_copy(2);
}

static void four_trainers_share_one_copy(void)
{
    trainers_share_one_copy(4);
}

static const struct stg_test tests[] = {
    TEST_SLOW(batches_arrive_whole_on_the_trainers_stream, 60),
    TEST_SLOW(batches_arrive_whole_on_a_stream_of_our_own, 60),
    TEST_SLOW(batches_arrive_whole_for_work_on_another_stream, 60),
    TEST_SLOW(work_that_is_late_reads_its_own_batch, 60),
    TEST_SLOW(results_arrive_whole, 60),
    TEST_SLOW(a_killed_trainer_costs_the_other_nothing, 120),
    TEST_SLOW(two_trainers_share_one_copy, 60),
    TEST_SLOW(four_trainers_share_one_copy, 60),
};

TEST_MAIN(tests)
