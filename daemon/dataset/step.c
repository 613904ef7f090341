/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/step.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void place(const struct stg_step *step, char *buf, size_t bytes)
{
    if (step->line > 0)
        snprintf(buf, bytes, "step %s (line %d)", step->name, step->line);
    else
        snprintf(buf, bytes, "step %s", step->name);
}

int stg_step_err(const struct stg_step *step, int code, struct stg_err *err,
                 const char *fmt, ...)
{
    char text[STG_ERR_TEXT_BYTES], where[128];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    place(step, where, sizeof(where));
    return stg_err(err, code, "%s: %s", where, text);
}

int stg_step_prefix(const struct stg_step *step, int code, struct stg_err *err)
{
    char where[128];
    place(step, where, sizeof(where));
    stg_err_prefix(err, code, "%s", where);
    return code;
}

int64_t stg_step_int(const struct stg_step *step, const char *name, int64_t otherwise)
{
    return stg_attr_int(step->attrs, step->n_attrs, name, otherwise);
}

bool stg_step_bool(const struct stg_step *step, const char *name, bool otherwise)
{
    return stg_attr_bool(step->attrs, step->n_attrs, name, otherwise);
}

int stg_step_needs_input(const struct stg_step *step, const struct stg_schema *in,
                         struct stg_err *err)
{
    if (in != NULL)
        return 0;
    return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                        "a dataset begins with a source: files or range");
}

int stg_step_is_source(const struct stg_step *step, const struct stg_schema *in,
                       struct stg_err *err)
{
    if (in == NULL)
        return 0;
    return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                        "a source takes no input: put it first");
}

int stg_step_infer_count(const struct stg_step *step, const struct stg_schema *in,
                         struct stg_bump *bump, struct stg_schema *ret,
                         struct stg_err *err)
{
    int rc = stg_step_needs_input(step, in, err);
    if (rc < 0)
        return rc;
    int64_t count = stg_step_int(step, "count", -1);
    if (count < -1)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "count is %lld; it must be 0 or more, or -1 for no limit",
                            (long long)count);
    *ret = *in;
    return 0;
}

int stg_schema_create(struct stg_bump *bump, size_t n, struct stg_schema *ret,
                      struct stg_err *err)
{
    struct stg_component *components = stg_bump_alloc(bump, n * sizeof(*components));
    if (components == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    *ret = (struct stg_schema){.components = components, .n = n};
    return 0;
}

void stg_iter_allow_uneven(struct stg_iter *iter)
{
    if (iter->impl->allow_uneven != NULL)
        iter->impl->allow_uneven(iter);
}

void stg_iter_pass_uneven(struct stg_iter *iter)
{
    stg_iter_allow_uneven(iter->input);
}

void stg_component_prepend(struct stg_component *to, const struct stg_component *from,
                           int64_t size)
{
    *to = *from;
    memmove(to->shape + 1, from->shape, (size_t)from->ndim * sizeof(from->shape[0]));
    to->shape[0] = size;
    to->ndim++;
}

void *stg_iter_create(size_t bytes, const struct stg_iter_impl *impl,
                      struct stg_dataset *dataset, const struct stg_step *step,
                      const struct stg_schema *schema, struct stg_iter *input,
                      struct stg_err *err)
{
    struct stg_iter *iter = calloc(1, bytes);
    if (iter == NULL) {
        stg_step_err(step, -STAGER_RESOURCE_EXHAUSTED, err, "out of memory");
        return NULL;
    }
    *iter = (struct stg_iter){
        .impl = impl, .input = input, .dataset = dataset, .step = step, .schema = schema};
    iter->pass = dataset->pass;
    for (; input != NULL; input = input->sibling) {
        iter->depth = input->depth > iter->depth ? input->depth : iter->depth;
        iter->varies |= input->varies;
        iter->nests |= input->nests || input->sibling != NULL;
    }
    iter->depth++;
    return iter;
}

void stg_dataset_met_error(struct stg_dataset *dataset, uint32_t depth)
{
    uint32_t now = atomic_load_explicit(&dataset->errors_from, memory_order_relaxed);
    while (depth != 0 && (now == 0 || depth < now) &&
           !atomic_compare_exchange_weak_explicit(&dataset->errors_from, &now, depth,
                                                  memory_order_relaxed,
                                                  memory_order_relaxed))
        ;
}

void stg_iter_trace(struct stg_iter *iter, uint64_t began_ns,
                    const struct stg_block *block)
{
    struct stg_trace *trace = iter->dataset->env.trace;
    uint64_t now = stg_now_ns();
    uint16_t name = stg_trace_known(trace, &iter->label);
    if (name == 0) {
        char text[128];
        place(iter->step, text, sizeof(text));
        name = stg_trace_name(trace, &iter->label, text);
    }
    stg_trace_add(trace, &(struct stg_trace_span){
                             .begin_ns = began_ns,
                             .end_ns = now,
                             .number = STG_NO_NUMBER,
                             .value = block != NULL ? (uint32_t)block->n_records : 0,
                             .kind = STG_SPAN_STEP,
                             .name = name,
                         });
}

/* ---- moving forward ---- */

#define REPLAY_RECORDS 1024 /* that are pulled at once */

int stg_iter_skip(struct stg_iter *iter, uint64_t n, uint64_t *ret, struct stg_err *err)
{
    if (iter->impl->skip != NULL)
        return iter->impl->skip(iter, n, ret, err);
    return stg_iter_replay(iter, n, ret, err);
}

int stg_iter_unexpected(const struct stg_block *error, struct stg_err *err)
{
    return stg_err(err, -STAGER_FAILED_PRECONDITION,
                   "the data is not what the position was taken of: it has an error item "
                   "where there was none: %.400s",
                   error->error.text);
}

int stg_iter_replay(struct stg_iter *iter, uint64_t n, uint64_t *ret, struct stg_err *err)
{
    int rc = 0;
    *ret = 0;
    while (rc == 0 && *ret < n) {
        uint64_t left = n - *ret;
        struct stg_block *block;
        rc = stg_iter_next(iter, left < REPLAY_RECORDS ? (int64_t)left : REPLAY_RECORDS,
                           &block, err);
        if (rc != 0)
            break;
        bool is_error = block->error.code != 0;
        *ret += is_error ? 1 : (uint64_t)block->n_records;
        if (is_error && stg_iter_is_clean(iter))
            rc = stg_iter_unexpected(block, err);
        stg_block_unref(block);
    }
    return rc < 0 ? rc : 0;
}

bool stg_iter_left(struct stg_iter *iter, uint64_t most, uint64_t *ret)
{
    const struct stg_iter_impl *impl = iter->impl;
    return impl->left != NULL && (impl->left_has_errors || stg_iter_is_clean(iter)) &&
           impl->left(iter, most, ret);
}

/* ---- any order ---- */

int stg_iter_count(struct stg_iter *iter, struct stg_extent *ret, struct stg_err *err)
{
    return iter->impl->count(iter, ret, err);
}

int stg_iter_seek(struct stg_iter *iter, uint64_t n, struct stg_err *err)
{
    return iter->impl->seek(iter, n, err);
}

void stg_extent_limit(struct stg_extent *extent, uint64_t n)
{
    if (n >= extent->n)
        return;
    extent->bytes = (uint64_t)((double)extent->bytes * (double)n / (double)extent->n);
    extent->n = n;
    extent->ends = NULL;
}

/* ---- life ---- */

/* What is left to do is a list; an iterator's inputs are put before the rest of it. */
void stg_iter_destroy(struct stg_iter *iter)
{
    while (iter != NULL) {
        struct stg_iter *inputs = iter->input, **end = &inputs;
        while (*end != NULL)
            end = &(*end)->sibling;
        *end = iter->sibling;
        stg_iter_progressed(iter);
        iter->impl->destroy(iter);
        iter = inputs;
    }
}

void stg_iter_free(struct stg_iter *iter)
{
    free(iter);
}

int stg_iter_rewind_inputs(const struct stg_iter *iter, bool afresh, struct stg_err *err)
{
    int rc = 0;
    for (struct stg_iter *input = iter->input; rc == 0 && input != NULL;
         input = input->sibling)
        rc = input->impl->rewind(input, afresh, err);
    return rc;
}

int stg_iter_stopped(const struct stg_iter *iter, struct stg_err *err)
{
    const _Atomic int *stopped = iter->dataset->env.stopped;
    if (stopped == NULL || atomic_load_explicit(stopped, memory_order_relaxed) == 0)
        return 0;
    return stg_err(err, -STAGER_CANCELLED, "the pipeline was stopped");
}

/* ---- where a row comes from ---- */

const char *stg_dataset_file(const struct stg_dataset *dataset, uint32_t file)
{
    return file < dataset->n_files ? dataset->files[file] : "?";
}

const char *stg_provenance_text(const struct stg_dataset *dataset,
                                const struct stg_provenance *row, char *buf, size_t bytes)
{
    char hidden[512];
    const char *file =
        stg_storage_shown(stg_dataset_file(dataset, row->file), hidden, sizeof(hidden));
    if (row->file == UINT32_MAX)
        snprintf(buf, bytes, "record %" PRIu64, row->record);
    else if (dataset->has_lines)
        snprintf(buf, bytes, "%s: line %" PRIu64 " (offset %" PRIu64 ")", file,
                 row->record + 1, row->offset);
    else if (dataset->has_records)
        snprintf(buf, bytes, "%s: record %" PRIu64 " (offset %" PRIu64 ")", file,
                 row->record, row->offset);
    else
        snprintf(buf, bytes, "%s", file);
    return buf;
}

bool stg_block_add_place(const struct stg_dataset *dataset, const struct stg_block *block,
                         struct stg_err *err)
{
    if (block->rows == NULL || block->n_rows < 1)
        return false;
    char place[512];
    stg_provenance_text(dataset, &block->rows[0], place, sizeof(place));
    if (block->n_rows > 1)
        stg_err_prefix(err, err->code, "%s and %" PRId64 " row%s after it", place,
                       block->n_rows - 1, block->n_rows == 2 ? "" : "s");
    else
        stg_err_prefix(err, err->code, "%s", place);
    return true;
}
