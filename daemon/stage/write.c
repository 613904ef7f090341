/* SPDX-License-Identifier: Apache-2.0
 *
 * An element becomes a batch at rest: by the function of the last step, if it has one,
 * then by the stage subgraph of the item's cut, straight into the extent.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/dataset/steps/py_function.h"
#include "daemon/pyworker/work.h"
#include "daemon/stage/priv.h"

/* ---- executors ---- */

static void executor_finish(struct stg_executor *executor)
{
    stg_run_destroy(executor->run);
    stg_profiler_finish(&executor->profiler);
    stg_stage_cut_unref(executor->cut);
    *executor = (struct stg_executor){0};
}

/* Takes a reference on the cut. */
static int executor_init(struct stg_stage *stage, struct stg_stage_cut *cut,
                         struct stg_executor *executor, struct stg_err *err)
{
    const struct stg_parallel *parallel =
        stage->config.pool != NULL ? stg_pool_parallel(stage->config.pool) : NULL;
    executor->cut = stg_stage_cut_ref(cut);
    int rc = cut != NULL ? stg_run_create_cut(cut->cut, &executor->run, err)
                         : stg_run_create_stage(stage->config.graph, &executor->run, err);
    if (rc == 0 && parallel != NULL)
        rc = stg_run_parallel(executor->run, parallel, err);
    if (rc == 0)
        rc = stg_profiler_init(&executor->profiler, stage->config.graph, executor->run,
                               STG_SAMPLE_EVERY, err);
    if (rc < 0)
        executor_finish(executor);
    else
        stg_trace_run(stage, executor->run, &executor->watcher);
    return rc;
}

/* ---- writing ---- */

/* What no row is to blame for ("mod:f: ValueError: …", an element that is behind a split)
 * gets the file and line of the first row, and how many rows follow. */
static void add_first_place(struct stg_stage *stage, const struct stg_work *work,
                            struct stg_err *err)
{
    const struct stg_block *block = work->block;
    if (block->rows == NULL || block->n_rows < 1) {
        stg_err_prefix(err, err->code, "batch %" PRIu64 " of epoch %" PRIu64, work->index,
                       work->epoch);
        return;
    }
    char place[512];
    stg_provenance_text(stage->runners.dataset, &block->rows[0], place, sizeof(place));
    if (block->n_rows > 1)
        stg_err_prefix(err, err->code, "%s and %" PRId64 " row%s after it", place,
                       block->n_rows - 1, block->n_rows == 2 ? "" : "s");
    else
        stg_err_prefix(err, err->code, "%s", place);
}

/* "node columns (decode_csv): …" gets the file and line of the row to blame. */
static void add_place(struct stg_stage *stage, const struct stg_work *work,
                      struct stg_err *err)
{
    const struct stg_block *block = work->block;
    if (err->row >= 0 && block->rows != NULL && err->row < block->n_rows) {
        char place[512];
        stg_provenance_text(stage->runners.dataset, &block->rows[err->row], place,
                            sizeof(place));
        stg_err_prefix(err, err->code, "%s", place);
    } else {
        add_first_place(stage, work, err);
    }
}

void stg_error_disguise(struct stg_err *err)
{
    if (err->code != -STAGER_OUT_OF_RANGE)
        return;
    err->code = -STAGER_FAILED_PRECONDITION;
    stg_err_prefix(err, err->code, "OUT_OF_RANGE, not in closed_exception_types");
}

static uint64_t write_error(char *base, uint64_t capacity, const struct stg_err *err)
{
    struct stg_err seen = *err;
    stg_error_disguise(&seen);
    return stg_batch_write_error(base, capacity, -seen.code, seen.text);
}

static void feed(struct stg_executor *executor, const struct stg_feed_set *feeds)
{
    if (feeds == NULL || feeds->version == executor->feed_version)
        return;
    stg_run_feed(executor->run, feeds->tensors);
    executor->feed_version = feeds->version;
}

static uint64_t align(uint64_t bytes)
{
    return (bytes + STG_TENSOR_ALIGN - 1) / STG_TENSOR_ALIGN * STG_TENSOR_ALIGN;
}

static uint64_t tensor_bytes(const struct stg_tensor *tensor)
{
    int64_t n = stg_tensor_n(tensor);
    if (tensor->dtype != STAGER_STRING)
        return align((uint64_t)n * stg_dtype_bytes(tensor->dtype));
    uint64_t bytes = 0;
    for (int64_t i = 0; i < n; i++)
        bytes += (uint64_t)(tensor->end[i] - tensor->begin[i]);
    return align((uint64_t)(n + 1) * sizeof(int64_t)) + align(bytes);
}

/* A batch that does not fit is computed once more outside of the arena, for its size:
 * which tensor came first says little of it. Ops count strings before they know their
 * bytes: an eighth to spare. */
static void tell_size(struct stg_stage *stage, struct stg_executor *executor,
                      const struct stg_schema *schema, const struct stg_tensor *element,
                      const struct stg_key *key, struct stg_err *err)
{
    struct stg_err none = {0};
    uint64_t bytes = stg_graph_schema_least_bytes(&(struct stg_schema){0}) +
                     schema->n * (sizeof(struct stg_tensor_entry) + STG_TENSOR_ALIGN);
    struct stg_tensor *tensors = calloc(schema->n + 1, sizeof(*tensors));
    if (tensors == NULL ||
        stg_run_exec(executor->run, element, key, NULL, tensors, &none) < 0) {
        free(tensors);
        return;
    }
    for (size_t i = 0; i < schema->n; i++)
        bytes += tensor_bytes(&tensors[i]) + strlen(schema->components[i].name);
    free(tensors);
    bytes += bytes / 8;
    if (bytes <= stage->plan.max_batch_bytes)
        return;
    stg_err_append(err, err->code, "; for all of this batch, ");
    stg_stage_advise_batch(stage, bytes, err);
}

/* Returns its bytes, or 0 and the error. */
static uint64_t write_by(struct stg_writer *writer, struct stg_executor *executor,
                         const struct stg_work *work, const struct stg_tensor *element,
                         char *base, struct stg_err *err)
{
    struct stg_stage *stage = writer->stage;
    const struct stg_schema *schema = executor->cut != NULL
                                          ? stg_cut_schema(executor->cut->cut)
                                          : stg_graph_boundary(stage->config.graph);
    struct stg_batch_writer batch;
    struct stg_extent_room place;
    struct stg_batch_room room;
    struct stg_sink sink = stg_sink_of_batch(&batch);
    struct stg_key key = {.pass = work->pass, .epoch = work->epoch, .index = work->index};
    feed(executor, work->feeds);
    uint64_t capacity = stg_stage_extent_room(stage, base, &place, &room);
    int rc = stg_batch_writer_begin_growing(&batch, base, capacity, &room, schema, err);
    if (rc == 0)
        rc = stg_run_exec(executor->run, element, &key, &sink, NULL, err);
    if (rc == -STAGER_RESOURCE_EXHAUSTED)
        tell_size(stage, executor, schema, element, &key, err);
    uint64_t bytes = rc == 0 ? stg_batch_writer_seal(&batch) : 0;
    if (rc == 0)
        rc = stg_batch_check_parts(base, true, err);
    if (rc < 0)
        err->code = rc;
    return rc == 0 ? bytes : 0;
}

/* 0: that cut does not work for this item, or there is no memory for it, and the error.
 */
static uint64_t write_other(struct stg_writer *writer, struct stg_stage_cut *cut,
                            const struct stg_work *work, const struct stg_tensor *element,
                            char *base, struct stg_err *err)
{
    struct stg_executor *other = &writer->other;
    if (other->cut != cut) {
        executor_finish(other);
        int rc = executor_init(writer->stage, cut, other, err);
        if (rc < 0) {
            err->code = rc;
            return 0;
        }
    }
    return write_by(writer, other, work, element, base, err);
}

static void count_call(struct stg_stage *stage, uint64_t began, bool ends)
{
    struct stg_runners *runners = &stage->runners;
    pthread_mutex_lock(&stage->lock);
    runners->n_calling += ends ? -1u : 1u;
    runners->calls_began_ns += ends ? -began : began;
    if (ends)
        stage->counts.call_ns += stg_now_ns() - began;
    pthread_mutex_unlock(&stage->lock);
}

/* As the steps that draws go through. */
static void trace_call(struct stg_stage *stage, uint64_t began, int64_t n_rows)
{
    struct stg_trace *trace = stage->config.trace;
    if (!stg_trace_is_on(trace))
        return;
    uint16_t name = stg_trace_known(trace, &stage->counts.call_label);
    if (name == 0) {
        char text[64];
        snprintf(text, sizeof(text), "step py_function (line %d)",
                 stg_py_function_find(stage->config.spec)->line);
        name = stg_trace_name(trace, &stage->counts.call_label, text);
    }
    stg_trace_add(trace, &(struct stg_trace_span){.begin_ns = began,
                                                  .end_ns = stg_now_ns(),
                                                  .number = STG_NO_NUMBER,
                                                  .value = (uint32_t)n_rows,
                                                  .kind = STG_SPAN_STEP,
                                                  .name = name});
}

/* What it gave is in writer->given until the worker is released. */
static int call_function(struct stg_writer *writer, const struct stg_work *work,
                         struct stg_worker **ret, struct stg_err *err)
{
    struct stg_stage *stage = writer->stage;
    struct stg_work_call call = {
        .block = work->block,
        .pass = work->pass,
        .epoch = work->epoch,
        .index = work->index,
        .max_output_bytes = stage->plan.max_batch_bytes,
        .is_computed = work->drawn_cut != NULL || stg_run_computes(writer->own.run),
        .start_timeout_millis = stage->staged->start_timeout_millis,
        .stopped = &stage->stop.flag,
    };
    uint64_t began = stg_now_ns();
    count_call(stage, began, false);
    int rc = stg_work_call(stage->config.workers, &call, writer->given, ret, err);
    count_call(stage, began, true);
    trace_call(stage, began, work->block->n_rows);
    if (rc < 0)
        add_first_place(stage, work, err);
    return rc;
}

static void clear(struct stg_err *err)
{
    err->code = 0;
    err->text[0] = '\0';
}

/* By the item's cut, and when that fails by the one that is there instead: the pipeline's
 * own, or the least one. 0: an error. */
static uint64_t write_tensors(struct stg_writer *writer, struct stg_work *work,
                              const struct stg_tensor *element, char *base)
{
    uint64_t bytes = 0;
    struct stg_stage_cut *cut = work->drawn_cut, *last = cut;
    for (; bytes == 0 && cut != NULL; cut = cut->least) {
        clear(&work->err);
        work->cut_failed = cut != work->drawn_cut;
        bytes = write_other(writer, cut, work, element, base, &work->err);
        last = cut;
    }
    if (bytes != 0) {
        work->cut = stg_stage_cut_ref(last);
        work->profiler = &writer->other.profiler;
        return bytes;
    }
    if (last == NULL || !last->is_least) {
        work->cut_failed = last != NULL;
        clear(&work->err);
        bytes = write_by(writer, &writer->own, work, element, base, &work->err);
    }
    if (bytes == 0)
        add_place(writer->stage, work, &work->err);
    return bytes;
}

uint64_t stg_writer_write(struct stg_writer *writer, struct stg_work *work, char *base)
{
    struct stg_stage *stage = writer->stage;
    struct stg_worker *worker = NULL;
    const struct stg_tensor *element = work->block->tensors;
    work->profiler = &writer->own.profiler;
    if (work->block->error.code != 0)
        work->err = work->block->error;
    if (work->err.code == 0 && stage->config.workers != NULL) {
        call_function(writer, work, &worker, &work->err);
        element = writer->given;
    }
    uint64_t bytes = work->err.code == 0 ? write_tensors(writer, work, element, base) : 0;
    stg_work_release(worker);
    return bytes != 0 ? bytes : write_error(base, STG_GRANULE_BYTES, &work->err);
}

/* ---- life ---- */

static int create_given(struct stg_writer *writer, struct stg_err *err)
{
    struct stg_workers *workers = writer->stage->config.workers;
    if (workers == NULL)
        return 0;
    writer->given = calloc(stg_workers_output(workers)->n + 1, sizeof(*writer->given));
    return writer->given != NULL
               ? 0
               : stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
}

int stg_writer_init(struct stg_stage *stage, struct stg_writer *writer,
                    struct stg_err *err)
{
    writer->stage = stage;
    int rc = create_given(writer, err);
    if (rc == 0)
        rc = executor_init(stage, NULL, &writer->own, err);
    if (rc < 0)
        stg_writer_finish(writer);
    return rc;
}

void stg_writer_finish(struct stg_writer *writer)
{
    executor_finish(&writer->own);
    executor_finish(&writer->other);
    free(writer->given);
    *writer = (struct stg_writer){0};
}
