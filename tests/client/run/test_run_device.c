/* SPDX-License-Identifier: Apache-2.0
 *
 * stager_run with nodes on a device, played by a stand-in (tests/standin) that has the
 * kernels of cuda/ in C: results, ordering, errors.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/api/close.h"
#include "client/compute/compute.h"
#include "client/device/copier.h"
#include "client/stream/stream.h"
#include "proto/load.h"
#include "tests/check.h"
#include "tests/client/device/on_device.h"

#define N 50

/* staged:x is int64 [n], value, value + 1 … */
static const char graph[] =
    "name: p\n"
    "dataset: [{files: {pattern: [a]}}, {text_line: {}}]\n"
    "graph:\n"
    "  - {name: number, op: cast, input: [\"staged:x\"], dtype: float32}\n"
    "  - {name: log, op: log1p, input: [number]}\n"
    "  - {name: table, op: variable, shape: [100, 3], initializer: random_normal, "
    "stddev: "
    "0.3, seed: 7}\n"
    "  - {name: rows, op: embedding_lookup, input: [table, \"staged:x\"]}\n"
    "  - {name: picked, op: gather, input: [table, \"staged:x\"]}\n"
    "  - {name: column, op: expand_dims, input: [log], axis: 1}\n"
    "  - {name: all, op: concat, input: [rows, column], axis: 1}\n"
    "  - {name: power, op: pow, input: [log, log]}\n"
    "  - {name: ones, op: ones_like, input: [rows]}\n"
    "  - {name: grown, op: scatter_add, input: [table, \"staged:x\", ones]}\n"
    "  - {name: same, op: identity, input: [\"staged:x\"]}\n"
    "  - {name: tall, op: expand_dims, input: [same], axis: 1}\n"
    "staged: {features: {x: x}, compute_device: %s, stage_subgraph_stream_id: %d}\n"
    "smart_stage_gpu: %s\n";

/* how: compute_device, or "smart_stage_gpu" without it. */
static void start(struct fake *fake, const char *how, int stream_id)
{
    char text[4096];
    struct stg_pipeline_spec *spec;
    struct stg_err err = {0};
    bool forwards = strcmp(how, "smart_stage_gpu") == 0;
    int n = snprintf(text, sizeof(text), graph, forwards ? "off" : how, stream_id,
                     forwards ? "on" : "off");
    CHECK_OK(stg_load_pipeline(text, (size_t)n, "test", &spec, &err), err);
    *fake = (struct fake){0};
    fake_start(fake);
    fake->max_in_flight = 6;
    fake->pipeline = spec;
}

static struct stager_stream *open_with(struct fake *fake, const char *how, int stream_id)
{
    if (standin == NULL)
        on_device_load();
    if (device->kernels == NULL)
        SKIP("built without CUDA");
    start(fake, how, stream_id);
    return on_device_open(
        fake, (struct stager_options){.struct_size = sizeof(struct stager_options)});
}

static void stop(struct fake *fake, struct stager_stream *stream)
{
    stg_pipeline_spec_destroy((struct stg_pipeline_spec *)(uintptr_t)fake->pipeline);
    on_device_finish(fake, stream);
}

static struct stager_batch *take(struct fake *fake, struct stager_stream *stream,
                                 uint32_t slot, int64_t value)
{
    fake_publish(fake, slot, slot + 1, value, N);
    return on_device_take(stream);
}

static void fetch(struct stager_stream *stream, struct stager_batch *batch,
                  const char *const *fetches, size_t n, struct stager_tensor *ret)
{
    if (stager_run(stream, batch, fetches, n, ret) < 0)
        FAIL("%s", stager_error_text(stream));
}

/* Returns its elements, wherever they lie. */
static const float *floats(const struct stager_tensor *tensor)
{
    if (tensor->device == 0)
        return tensor->data;
    standin->synchronize();
    return standin->see(tensor->data);
}

static void check_log(const struct stager_tensor *log, int64_t value)
{
    CHECK_INT(log->dtype, STAGER_FLOAT32);
    CHECK_INT(log->shape[0], N);
    const float *got = floats(log);
    for (int i = 0; i < N; i++) {
        float want = log1pf((float)(value + i));
        if (fabsf(got[i] - want) > 1e-6f * want)
            FAIL("element %d is %.9g, not %.9g", i, (double)got[i], (double)want);
    }
}

/* ---- results ---- */

static const char *const some[] = {"all", "power", "log", "rows", "same", "staged:x"};
#define N_SOME (sizeof(some) / sizeof(some[0]))

/* The same value, computed on the host. */
static void check_some(struct fake *fake, struct stager_stream *stream,
                       const struct stager_tensor *results, int64_t value)
{
    struct fake other;
    struct stager_tensor want[N_SOME];
    start(&other, "on", 0);
    struct stager_stream *host = fake_open(&other, NULL);
    fake_publish(&other, 0, 1, value, N);
    struct stager_batch *batch = on_device_take(host);
    fetch(host, batch, some, N_SOME, want);
    for (size_t i = 0; i < N_SOME; i++) {
        CHECK_INT(want[i].device, 0);
        CHECK_INT(results[i].dtype, want[i].dtype);
        CHECK_INT(results[i].data_bytes, want[i].data_bytes);
        CHECK_INT(results[i].shape[0], want[i].shape[0]);
        const char *got = (const char *)floats(&results[i]);
        const char *wanted = want[i].data;
        for (size_t k = 0; k < want[i].data_bytes; k += 4) {
            float a, b;
            memcpy(&a, got + k, 4);
            memcpy(&b, wanted + k, 4);
            if (memcmp(&a, &b, 4) != 0 && !(fabsf(a - b) <= 3e-7f * fabsf(b)))
                FAIL("%s: byte %zu is %.9g, not %.9g", some[i], k, (double)a, (double)b);
        }
    }
    stager_release(batch);
    fake_hang_up(&other);
    stager_close(host);
    stg_pipeline_spec_destroy((struct stg_pipeline_spec *)(uintptr_t)other.pipeline);
    fake_stop(&other);
}

static void check_device(const char *how, int stream_id, unsigned wanted)
{
    struct fake fake;
    struct stager_stream *stream = open_with(&fake, how, stream_id);
    for (uint32_t i = 0; i < 4; i++) {
        struct stager_tensor results[N_SOME];
        struct stager_batch *batch = take(&fake, stream, i, (int64_t)i * 10);
        fetch(stream, batch, some, N_SOME, results);
        for (size_t k = 0; k < N_SOME; k++) {
            bool there =
                strcmp(some[k], "power") != 0 && strcmp(some[k], "staged:x") != 0;
            CHECK_INT(results[k].device, there ? wanted : 0);
        }
        check_some(&fake, stream, results, (int64_t)i * 10);
        stager_release(batch);
    }
    CHECK((standin->n_launches > 0) == (wanted != 0));
    stop(&fake, stream);
}

static void results_are_those_of_the_host(void)
{
    check_device("on", 0, 1);
}

static void they_are_on_a_stream_of_their_own(void)
{
    check_device("on", 1, 1);
}

static void without_compute_device_all_is_the_hosts(void)
{
    check_device("off", 0, 0);
}

static void with_smart_stage_gpu_tensors_of_the_boundary_are_on_the_device(void)
{
    static const char *const names[] = {"same", "tall", "log", "rows"};
    struct fake fake;
    struct stager_stream *stream = open_with(&fake, "smart_stage_gpu", 0);
    struct stager_batch *batch = take(&fake, stream, 0, 7);
    struct stager_tensor results[4];
    fetch(stream, batch, names, 4, results);
    for (int i = 0; i < 4; i++)
        CHECK_INT(results[i].device, i < 2 ? 1 : 0);
    CHECK_INT(results[1].ndim, 2);
    for (int i = 0; i < 2; i++) {
        const int64_t *got = (const int64_t *)(const void *)floats(&results[i]);
        for (int k = 0; k < N; k++)
            CHECK_INT(got[k], 7 + k);
    }
    check_log(&results[2], 7);
    CHECK_STR(stager_run_where(stream), "cuda:0");
    stager_release(batch);
    stop(&fake, stream);
}

static void auto_gives_tensors_of_the_device_whichever_way_they_came(void)
{
    struct fake fake;
    struct stager_stream *stream = open_with(&fake, "auto", 0);
    const char *name = "log";
    struct stager_tensor log;
    struct stager_batch *batch = take(&fake, stream, 0, 5);
    unsigned before = 0;
    for (int i = 0; i < 100000 && standin->n_launches == 0; i++) {
        fetch(stream, batch, &name, 1, &log);
        CHECK_INT(log.device, 1);
        if (i == 0)
            before = standin->n_launches;
        if (i == 0 || standin->n_launches > 0)
            check_log(&log, 5);
    }
    CHECK_INT(before, 0); /* the host's variant is tried first */
    CHECK(standin->n_launches > 0);
    for (int i = 0; i < 100000 && strstr(stager_run_where(stream), "measuring"); i++)
        fetch(stream, batch, &name, 1, &log);
    CHECK_CONTAINS(stager_run_where(stream), ": a step took ");
    CHECK_CONTAINS(stager_run_where(stream), " ms with cuda:0, ");
    stager_release(batch);
    stop(&fake, stream);
}

/* ---- ordering ---- */

static void stager_run_does_not_wait_for_the_device(void)
{
    struct fake fake;
    struct stager_stream *stream = open_with(&fake, "on", 0);
    const char *name = "log";
    struct stager_tensor log;
    void *event;
    struct stager_batch *batch = take(&fake, stream, 0, 7);
    CHECK_INT(stager_run_event(stream, &event), -STAGER_FAILED_PRECONDITION);
    standin->hold();
    fetch(stream, batch, &name, 1, &log);
    CHECK_INT(stager_run_event(stream, &event), 0);
    CHECK_INT(device->event_query(event, NULL), 0);
    standin->go();
    standin->synchronize();
    CHECK_INT(device->event_query(event, NULL), 1);
    check_log(&log, 7);
    name = "power";
    fetch(stream, batch, &name, 1, &log);
    CHECK_INT(stager_run_event(stream, &event), -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(stager_error_text(stream), "no result on a device");
    stager_release(batch);
    stop(&fake, stream);
}

/* Stalls the stream on which nodes run. The trainer's stream (is_own), or another one
 * passed to stager_run_wait, waits for it. */
static void check_order(bool is_own)
{
    struct fake fake;
    struct stager_stream *stream = open_with(&fake, "on", 1);
    struct stg_compute_device where;
    struct stg_stream *other;
    struct stg_device_event *event;
    struct stg_err err = {0};
    const char *name = "log";
    struct stager_tensor log;
    CHECK(stg_copier_where(stream->copier, &where));
    CHECK_OK(device->stream_create(0, &other, &err), err);
    CHECK_OK(device->event_create(0, &event, &err), err);
    struct stager_batch *batch = take(&fake, stream, 0, 7);
    standin->block(where.stream);
    fetch(stream, batch, &name, 1, &log);
    if (!is_own)
        CHECK_INT(stager_run_wait(stream, other), 0);
    CHECK_OK(device->event_record(event, is_own ? NULL : other, &err), err);
    standin->synchronize();
    CHECK_INT(device->event_query(event, &err), 0);
    standin->unblock();
    CHECK_OK(device->event_wait(event, &err), err);
    check_log(&log, 7);
    stager_release(batch);
    device->event_destroy(event);
    device->stream_destroy(other);
    stop(&fake, stream);
}

static void the_trainers_stream_waits_for_results(void)
{
    check_order(true);
}

static void another_stream_can_wait_for_results(void)
{
    check_order(false);
}

/* The trainer's stream stands still: memory that it received is not overwritten. */
static void results_stay_until_the_trainers_stream_has_read_them(void)
{
    struct fake fake;
    struct stager_stream *stream = open_with(&fake, "on", 1);
    const char *name = "log";
    struct stager_tensor first, other;
    struct stager_batch *batches[2] = {take(&fake, stream, 0, 7),
                                       take(&fake, stream, 1, 300)};
    fetch(stream, batches[0], &name, 1, &other); /* memory is available */
    fetch(stream, batches[0], &name, 1, &other);
    fetch(stream, batches[0], &name, 1, &first);
    check_log(&first, 7);
    standin->block(NULL);
    fetch(stream, batches[1], &name, 1, &other);
    check_log(&other, 300);
    fetch(stream, batches[1], &name, 1, &other);
    CHECK(other.data == first.data);
    check_log(&first, 7); /* its memory is next, and is unchanged */
    standin->unblock();
    check_log(&other, 300);
    stager_release(batches[0]);
    stager_release(batches[1]);
    stop(&fake, stream);
}

static void results_that_are_kept_stay(void)
{
    struct fake fake;
    struct stager_stream *stream = open_with(&fake, "on", 0);
    const char *name = "log";
    struct stager_tensor kept, other;
    struct stager_batch *batch = take(&fake, stream, 0, 7);
    fetch(stream, batch, &name, 1, &kept);
    struct stager_batch *home = NULL;
    struct stg_result *result = stg_run_keep(stream, &home);
    CHECK(result != NULL);
    stager_release(batch);
    for (uint32_t i = 1; i < 6; i++) {
        batch = take(&fake, stream, i, 100 * (int64_t)i);
        fetch(stream, batch, &name, 1, &other);
        CHECK(other.data != kept.data);
        stager_release(batch);
    }
    check_log(&other, 500);
    stager_close(stream); /* and outlives the stream */
    check_log(&kept, 7);
    stg_run_drop(home, result, true, NULL);
    stop(&fake, NULL);
}

static void nothing_is_allocated_in_a_steady_state(void)
{
    struct fake fake;
    struct stager_stream *stream = open_with(&fake, "on", 1);
    struct stager_tensor results[N_SOME];
    struct stager_batch *batch = take(&fake, stream, 0, 7);
    unsigned after = 0;
    for (int i = 0; i < 50; i++) {
        fetch(stream, batch, some, N_SOME, results);
        if (i == 6)
            after = standin->n_allocs + standin->n_bounces + standin->n_events;
    }
    CHECK_INT(standin->n_allocs + standin->n_bounces + standin->n_events, after);
    stager_release(batch);
    stop(&fake, stream);
}

/* ---- variables ---- */

static void what_was_written_is_seen(void)
{
    struct fake fake;
    struct stager_stream *stream = open_with(&fake, "on", 0);
    const char *rows = "rows", *both[] = {"grown", "rows"};
    struct stager_tensor before, after, written[2];
    struct stager_batch *batch = take(&fake, stream, 0, 7);
    fetch(stream, batch, &rows, 1, &before);
    CHECK_INT(before.device, 1);
    float was = floats(&before)[4];
    fetch(stream, batch, both, 2, written);
    CHECK_INT(written[0].device, 0);
    CHECK_INT(written[1].device, 0); /* in one run with a write, in their order */
    unsigned copies = standin->n_copies;
    for (int i = 0; i < 3; i++) {
        fetch(stream, batch, &rows, 1, &after);
        CHECK_INT(after.device, 1);
        CHECK(floats(&after)[4] == was + 1.0f);
    }
    /* one word for each run, and the table once */
    CHECK_INT(standin->n_copies - copies, 3 + 1);
    stager_release(batch);
    stop(&fake, stream);
}

/* ---- errors ---- */

static void an_id_without_a_row_is_reported_by_a_later_run(void)
{
    struct fake fake;
    struct stager_stream *stream = open_with(&fake, "on", 0);
    const char *name = "rows";
    struct stager_tensor rows;
    struct stager_batch *bad = take(&fake, stream, 0, 90);
    fetch(stream, bad, &name, 1, &rows);
    const float *got = floats(&rows);
    CHECK(got[9 * 3] != 0.0f && got[10 * 3] == 0.0f);
    stager_release(bad);
    struct stager_batch *good = take(&fake, stream, 1, 7);
    CHECK_INT(stager_run(stream, good, &name, 1, &rows), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(stager_error_text(stream), "batch 1, which already ran: node");
    CHECK_CONTAINS(stager_error_text(stream), "node rows (embedding_lookup): element 10");
    for (int i = 0; i < 4; i++) /* once */
        fetch(stream, good, &name, 1, &rows);
    CHECK_INT(rows.device, 1);
    stager_release(good);
    stop(&fake, stream);
}

static void an_error_of_the_last_batches_is_reported_before_the_end(void)
{
    struct fake fake;
    struct stager_stream *stream = open_with(&fake, "on", 1);
    const char *name = "rows";
    struct stager_tensor rows;
    struct stager_batch *good = take(&fake, stream, 0, 7), *bad[2];
    for (uint32_t i = 0; i < 2; i++)
        bad[i] = take(&fake, stream, 1 + i, 80 + 10 * (int64_t)i);
    for (int i = 0; i < 3; i++)
        fetch(stream, good, &name, 1, &rows);
    standin->synchronize();
    standin->hold(); /* their errors are not known yet */
    for (int i = 0; i < 2; i++)
        fetch(stream, bad[i], &name, 1, &rows);
    standin->go();
    stager_release(good);
    fake_publish_end(&fake, 0);
    CHECK_INT(on_device_next_code(stream), -STAGER_INVALID_ARGUMENT);
    CHECK_INT(on_device_next_code(stream), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(stager_error_text(stream), "which already ran: node rows");
    for (int i = 0; i < 2; i++) {
        CHECK_INT(on_device_next_code(stream), -STAGER_OUT_OF_RANGE);
        CHECK_CONTAINS(stager_error_text(stream), "pass");
        stager_release(bad[i]);
    }
    CHECK_INT(stager_rewind(stream), 0);
    stop(&fake, stream);
}

static void an_error_is_reported_when_the_device_is_behind(void)
{
    struct fake fake;
    struct stager_stream *stream = open_with(&fake, "on", 1);
    const char *name = "rows";
    struct stager_tensor rows;
    struct stager_batch *good = take(&fake, stream, 0, 7),
                        *bad = take(&fake, stream, 1, 60);
    for (int i = 0; i < 3; i++)
        fetch(stream, good, &name, 1, &rows);
    standin->synchronize();
    standin->hold();
    fetch(stream, bad, &name, 1, &rows); /* its error is not known yet */
    fetch(stream, good, &name, 1, &rows);
    standin->go();
    CHECK_INT(stager_run(stream, good, &name, 1, &rows), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(stager_error_text(stream), "batch 2, which already ran");
    stager_release(good);
    stager_release(bad);
    stop(&fake, stream);
}

static void an_error_names_the_node_and_the_element(void)
{
    static const char *const names[] = {"rows", "picked"};
    static const char *const texts[] = {
        "node rows (embedding_lookup): element 40 of input 1 is out of range",
        "node picked (gather): element 40 of input 1 is out of range"};
    for (int i = 0; i < 2; i++) {
        struct fake fake;
        struct stager_stream *stream = open_with(&fake, "on", 0);
        struct stager_tensor rows;
        struct stager_batch *batch = take(&fake, stream, 0, 60); /* up to 109 of 100 */
        fetch(stream, batch, &names[i], 1, &rows);
        const float *got = floats(&rows);
        CHECK(got[39 * 3] != 0 && got[40 * 3] == 0 && got[49 * 3 + 2] == 0);
        CHECK_INT(stager_run(stream, batch, &names[i], 1, &rows),
                  -STAGER_INVALID_ARGUMENT);
        CHECK_CONTAINS(stager_error_text(stream), texts[i]);
        stager_release(batch);
        stop(&fake, stream);
    }
}

static void a_kernel_that_fails_leaves_its_work_to_the_host(void)
{
    struct fake fake;
    struct stager_stream *stream = open_with(&fake, "on", 0);
    for (uint32_t i = 0; i < 4; i++) {
        struct stager_tensor results[N_SOME];
        struct stager_batch *batch = take(&fake, stream, i, 3);
        standin->fail_kernel = i == 1 ? 2 : 0;
        fetch(stream, batch, some, N_SOME, results);
        CHECK_INT(results[0].device, 1);
        check_some(&fake, stream, results, 3);
        stager_release(batch);
    }
    unsigned launches = standin->n_launches;
    struct stager_tensor log;
    struct stager_batch *batch = take(&fake, stream, 4, 3);
    fetch(stream, batch, some + 2, 1, &log); /* another fetch list tries again */
    CHECK(standin->n_launches > launches);
    stager_release(batch);
    stop(&fake, stream);
}

static void memory_that_is_not_there_costs_the_device_its_work(void)
{
    struct fake fake;
    struct stager_stream *stream = open_with(&fake, "on", 0);
    struct stager_batch *batch = take(&fake, stream, 0, 3);
    for (unsigned i = 1; i < 6; i++) {
        struct stager_tensor results[N_SOME];
        standin->fail_alloc = i;
        fetch(stream, batch, some, N_SOME, results);
        standin->fail_alloc = 0;
        CHECK_INT(results[0].device, 1);
        check_some(&fake, stream, results, 3);
    }
    stager_release(batch);
    stop(&fake, stream);
}

static void without_memory_results_are_the_hosts(void)
{
    struct fake fake;
    struct stager_stream *stream = open_with(&fake, "on", 0);
    struct stager_batch *batch = take(&fake, stream, 0, 3);
    for (int i = 0; i < 4; i++) {
        struct stager_tensor results[N_SOME];
        void *event;
        standin->no_memory = i < 2;
        fetch(stream, batch, some, N_SOME, results);
        CHECK_INT(results[0].device, i < 2 ? 0 : 1);
        CHECK_INT(stager_run_event(stream, &event),
                  i < 2 ? -STAGER_FAILED_PRECONDITION : 0);
        check_some(&fake, stream, results, 3);
    }
    stager_release(batch);
    stop(&fake, stream);
}

/* ---- descriptions ---- */

static void check_where(struct stager_stream *stream, struct stager_batch *batch,
                        const char *name, const char *where)
{
    struct stager_tensor ret;
    fetch(stream, batch, &name, 1, &ret);
    CHECK_STR(stager_run_where(stream), where);
}

static void it_is_said_where_it_ran_and_why(void)
{
    static const char *const how[] = {"on", "off", "auto"};
    static const char *const where[] = {"cuda:0", "host: compute_device is off",
                                        "measuring: turn 1 of 6, host"};
    for (int i = 0; i < 3; i++) {
        struct fake fake;
        struct stager_stream *stream = open_with(&fake, how[i], 0);
        CHECK_STR(stager_run_where(stream), "");
        struct stager_batch *batch = take(&fake, stream, 0, 3);
        check_where(stream, batch, "log", where[i]);
        if (i == 0) {
            check_where(
                stream, batch, "power",
                "host: none of the fetches runs on a GPU: node power (pow) does not");
            check_where(stream, batch, "grown",
                        "host: the fetches need nodes that write variables");
            standin->fail_kernel = 1;
            check_where(stream, batch, "rows",
                        "host: cuda:0 failed: node rows (embedding_lookup): standin: a "
                        "kernel failed");
            check_where(stream, batch, "log", "cuda:0");
        }
        stager_release(batch);
        stop(&fake, stream);
    }
}

static void a_child_of_fork_leaves_the_device_alone(void)
{
    fake_skip_where_forks_are_hidden();
    struct fake fake;
    struct stager_stream *stream = open_with(&fake, "on", 0);
    struct stager_tensor results[N_SOME];
    struct stager_batch *batch = take(&fake, stream, 0, 3);
    fetch(stream, batch, some, N_SOME, results);
    standin->synchronize();
    pid_t child = fork();
    if (child == 0) {
        stager_release(batch);
        stager_close(stream);
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    fetch(stream, batch, some, N_SOME, results);
    check_some(&fake, stream, results, 3);
    stager_release(batch);
    stop(&fake, stream);
}

static const struct stg_test tests[] = {
    TEST(results_are_those_of_the_host),
    TEST(they_are_on_a_stream_of_their_own),
    TEST(without_compute_device_all_is_the_hosts),
    TEST(with_smart_stage_gpu_tensors_of_the_boundary_are_on_the_device),
    TEST(auto_gives_tensors_of_the_device_whichever_way_they_came),
    TEST(stager_run_does_not_wait_for_the_device),
    TEST(the_trainers_stream_waits_for_results),
    TEST(another_stream_can_wait_for_results),
    TEST(results_stay_until_the_trainers_stream_has_read_them),
    TEST(results_that_are_kept_stay),
    TEST(nothing_is_allocated_in_a_steady_state),
    TEST(what_was_written_is_seen),
    TEST(an_id_without_a_row_is_reported_by_a_later_run),
    TEST(an_error_of_the_last_batches_is_reported_before_the_end),
    TEST(an_error_is_reported_when_the_device_is_behind),
    TEST(it_is_said_where_it_ran_and_why),
    TEST(an_error_names_the_node_and_the_element),
    TEST(a_kernel_that_fails_leaves_its_work_to_the_host),
    TEST(memory_that_is_not_there_costs_the_device_its_work),
    TEST(without_memory_results_are_the_hosts),
    TEST(a_child_of_fork_leaves_the_device_alone),
};

TEST_MAIN(tests)
