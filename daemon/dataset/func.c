/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/func.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/dataset/vocabulary.h"
#include "ops/base/hash.h"
#include "ops/graph/composite.h"

struct stg_func_run {
    const struct stg_func *func;
    struct stg_dataset *dataset;
    struct stg_run *each, *many;
    struct stg_tensor *feeds, *outputs;
};

/* ---- when the pipeline is applied ---- */

/* The same elements behind one dimension that counts them. */
static int create_many(struct stg_func *func, const struct stg_schema *in)
{
    struct stg_component *components = calloc(in->n, sizeof(*components));
    if (components == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    for (size_t c = 0; c < in->n; c++)
        stg_component_prepend(&components[c], &in->components[c], -1);
    struct stg_schema schema = {.components = components, .n = in->n};
    int rc = stg_graph_create(&func->spec, &schema, NULL, &func->many, NULL);
    free(components);
    return rc == -STAGER_RESOURCE_EXHAUSTED ? rc : 0;
}

/* A tensor of a block has a dimension of its own before the record's. */
static int check_ranks(const struct stg_func *func, struct stg_err *err)
{
    const struct stg_schema *schema = stg_func_schema(func);
    for (size_t i = 0; i < schema->n; i++) {
        if (schema->components[i].ndim >= STG_MAX_DIMS)
            return stg_err(
                err, -STAGER_INVALID_ARGUMENT, "output %s has %d dimensions; at most %d",
                schema->components[i].name, schema->components[i].ndim, STG_MAX_DIMS - 1);
    }
    return 0;
}

/* Sets is_placed and record_bytes. */
static void measure(struct stg_func *func)
{
    const struct stg_schema *schema = stg_func_schema(func);
    func->is_placed = true;
    for (size_t i = 0; i < schema->n; i++) {
        const struct stg_component *c = &schema->components[i];
        uint64_t bytes = stg_dtype_bytes(c->dtype);
        func->is_placed &= c->dtype != STAGER_STRING;
        for (int d = 0; d < c->ndim; d++)
            func->is_placed &=
                c->shape[d] >= 0 &&
                !__builtin_mul_overflow(bytes, (uint64_t)c->shape[d], &bytes);
        func->is_placed &= bytes < UINT64_C(1) << 40;
        func->record_bytes += func->is_placed ? bytes : 0;
    }
}

int stg_func_create(const struct stg_step *step, const struct stg_feature *outputs,
                    size_t n_outputs, const struct stg_schema *in, struct stg_func **ret,
                    struct stg_err *err)
{
    struct stg_func *func = calloc(1, sizeof(*func));
    if (func == NULL)
        return stg_step_err(step, -STAGER_RESOURCE_EXHAUSTED, err, "out of memory");
    func->step = step;
    func->n_inputs = in->n;
    stg_bump_init(&func->bump, 0);
    int rc = stg_composite_features(in, step->nodes, step->n_nodes, &func->bump, &outputs,
                                    &n_outputs);
    if (rc < 0)
        stg_err(err, rc, "out of memory");
    func->spec = (struct stg_pipeline_spec){
        .nodes = step->nodes,
        .n_nodes = step->n_nodes,
        .staged = {.features = outputs, .n_features = n_outputs, .structure = ""},
        .is_step = true};
    if (rc == 0)
        rc = stg_graph_create(&func->spec, in, NULL, &func->each, err);
    if (rc == 0)
        rc = check_ranks(func, err);
    if (rc == 0 && stg_graph_is_row_wise(func->each)) {
        rc = create_many(func, in);
        if (rc < 0)
            stg_err(err, rc, "out of memory");
    }
    if (rc < 0) {
        stg_func_destroy(func);
        return stg_step_prefix(step, rc, err);
    }
    measure(func);
    *ret = func;
    return 0;
}

void stg_func_destroy(struct stg_func *func)
{
    if (func == NULL)
        return;
    stg_graph_destroy(func->many);
    stg_graph_destroy(func->each);
    stg_vocabularies_finish(&func->vocabularies);
    stg_bump_finish(&func->bump);
    free(func);
}

const struct stg_schema *stg_func_schema(const struct stg_func *func)
{
    return stg_graph_boundary(func->each);
}

/* ---- when a pass begins ---- */

/* Beyond what fits they are not kept: what was read goes with the func. */
static int count(uint64_t bytes, struct stg_dataset *dataset, struct stg_err *err)
{
    int rc = stg_quota_take(dataset->quota, bytes, "vocabularies", err);
    if (rc == 0)
        dataset->held_bytes += bytes;
    return rc;
}

int stg_func_load(struct stg_func *func, struct stg_dataset *dataset, struct stg_err *err)
{
    struct stg_vocabulary_reader reader = {.uid = dataset->identity.uid,
                                           .gid = dataset->identity.gid,
                                           .groups = dataset->identity.groups,
                                           .n_groups = dataset->identity.n_groups,
                                           .container = dataset->env.container};
    struct stg_vocabularies *read = &func->vocabularies;
    int rc = stg_vocabularies_load(func->each, &reader, read, err);
    if (rc == 0 && read->bytes > 0)
        rc = count(read->bytes, dataset, err);
    if (rc < 0)
        return stg_step_prefix(func->step, rc, err);
    func->pass = dataset->pass;
    if (read->n > 0) {
        dataset->vocabularies = stg_fingerprint64_join(
            dataset->vocabularies, &read->fingerprint, sizeof(read->fingerprint));
        dataset->n_vocabularies += read->n;
        dataset->vocabulary = read->file;
    }
    if (func->many != NULL)
        stg_graph_borrow_tables(func->many, func->each);
    return 0;
}

/* ---- executors ---- */

int stg_func_run_create(const struct stg_func *func, struct stg_dataset *dataset,
                        struct stg_func_run **ret, struct stg_err *err)
{
    struct stg_func_run *run = calloc(1, sizeof(*run));
    if (run == NULL)
        return stg_step_err(func->step, -STAGER_RESOURCE_EXHAUSTED, err, "out of memory");
    size_t n_outputs = stg_func_schema(func)->n;
    run->func = func;
    run->dataset = dataset;
    run->feeds = calloc(func->n_inputs, sizeof(*run->feeds));
    run->outputs = calloc(n_outputs, sizeof(*run->outputs));
    int rc = run->feeds != NULL && run->outputs != NULL
                 ? 0
                 : stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    if (rc == 0)
        rc = stg_run_create_stage(func->each, &run->each, err);
    if (rc == 0 && func->many != NULL)
        rc = stg_run_create_stage(func->many, &run->many, err);
    if (rc == 0) {
        stg_run_limit(run->each, dataset->env.tensor_bytes);
        if (run->many != NULL)
            stg_run_limit(run->many, dataset->env.tensor_bytes);
    }
    if (rc < 0) {
        stg_func_run_destroy(run);
        return stg_step_prefix(func->step, rc, err);
    }
    *ret = run;
    return 0;
}

void stg_func_run_destroy(struct stg_func_run *run)
{
    if (run == NULL)
        return;
    stg_run_destroy(run->each);
    stg_run_destroy(run->many);
    free(run->feeds);
    free(run->outputs);
    free(run);
}

/* ---- parts ---- */

int stg_func_parts_add(struct stg_func_parts *parts, struct stg_func_part part,
                       struct stg_err *err)
{
    struct stg_func_part *last = parts->n > 0 ? &parts->parts[parts->n - 1] : NULL;
    if (last != NULL && last->block == NULL && part.block == NULL) {
        last->n += part.n;
        return 0;
    }
    if (parts->n == parts->size) {
        size_t size = parts->size > 0 ? 2 * parts->size : 8;
        struct stg_func_part *grown = realloc(parts->parts, size * sizeof(*grown));
        if (grown == NULL) {
            stg_block_unref(part.block);
            return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
        }
        parts->parts = grown;
        parts->size = size;
    }
    parts->parts[parts->n++] = part;
    return 0;
}

void stg_func_parts_clear(struct stg_func_parts *parts)
{
    for (size_t i = 0; i < parts->n; i++)
        stg_block_unref(parts->parts[i].block);
    parts->n = 0;
}

void stg_func_parts_finish(struct stg_func_parts *parts)
{
    stg_func_parts_clear(parts);
    free(parts->parts);
    *parts = (struct stg_func_parts){0};
}

/* ---- where results go ---- */

/* Bytes of one record of output c. */
static uint64_t record_bytes(const struct stg_component *c)
{
    uint64_t bytes = stg_dtype_bytes(c->dtype);
    for (int d = 0; d < c->ndim; d++)
        bytes *= (uint64_t)c->shape[d];
    return bytes;
}

static void copy_rows(struct stg_block *block, const struct stg_block *input,
                      int64_t first, int64_t n)
{
    int64_t each = input->n_rows / input->n_records;
    block->n_records = n;
    block->n_rows = n * each;
    block->epoch = input->epoch;
    if (input->rows == NULL)
        return;
    size_t bytes = (size_t)block->n_rows * sizeof(*input->rows);
    struct stg_provenance *rows = stg_block_carve(block, bytes);
    memcpy(rows, input->rows + first * each, bytes);
    block->rows = rows;
}

static uint64_t rows_room(const struct stg_block *input, int64_t n)
{
    int64_t each = input->n_rows / input->n_records;
    return input->rows != NULL
               ? stg_block_room((uint64_t)(n * each) * sizeof(*input->rows))
               : 0;
}

int stg_func_place(const struct stg_func *func, struct stg_dataset *dataset,
                   struct stg_func_call *call, struct stg_err *err)
{
    const struct stg_schema *schema = stg_func_schema(func);
    int64_t n = call->input->n_records;
    call->output = NULL;
    if (!func->is_placed)
        return 0;
    uint64_t bytes = rows_room(call->input, n);
    for (size_t i = 0; i < schema->n; i++)
        bytes += stg_block_room((uint64_t)n * record_bytes(&schema->components[i]));
    struct stg_block *block;
    int rc = stg_block_create(dataset->quota, (uint32_t)schema->n, bytes, NULL,
                              "a block of results", &block, err);
    if (rc < 0)
        return stg_step_prefix(func->step, rc, err);
    for (size_t i = 0; i < schema->n; i++) {
        const struct stg_component *c = &schema->components[i];
        struct stg_tensor *tensor = &block->tensors[i];
        tensor->dtype = c->dtype;
        tensor->ndim = c->ndim + 1;
        tensor->shape[0] = n;
        memcpy(tensor->shape + 1, c->shape, (size_t)c->ndim * sizeof(c->shape[0]));
        tensor->data_bytes = (uint64_t)n * record_bytes(c);
        tensor->data = stg_block_carve(block, tensor->data_bytes);
    }
    copy_rows(block, call->input, 0, n);
    call->output = block;
    return 0;
}

/* Records of a placed output that are being written. */
struct place {
    struct stg_block *output;
    int64_t first, n;
};

static struct stg_tensor place_tensor(const struct place *place, size_t i)
{
    return stg_tensor_records(&place->output->tensors[i], place->first, place->n);
}

static int place_alloc(void *owner, size_t i, int dtype, int ndim, const int64_t *shape,
                       uint64_t string_bytes, struct stg_tensor *ret, struct stg_err *err)
{
    struct stg_tensor tensor = place_tensor(owner, i);
    tensor.ndim = ndim;
    memcpy(tensor.shape, shape, (size_t)ndim * sizeof(*shape));
    assert(tensor.dtype == dtype &&
           (uint64_t)stg_tensor_n(&tensor) * stg_dtype_bytes(dtype) == tensor.data_bytes);
    *ret = tensor;
    return 0;
}

static int place_copy(void *owner, size_t i, const struct stg_tensor *from,
                      struct stg_err *err)
{
    struct stg_tensor to = place_tensor(owner, i);
    uint64_t bytes = (uint64_t)stg_tensor_n(from) * stg_dtype_bytes(from->dtype);
    assert(bytes == to.data_bytes);
    memcpy(to.data, from->data, bytes);
    return 0;
}

/* Copies results of the executor into a block of n records. INVALID_ARGUMENT: they are
 * larger than any dataset should have room for. */
static int copy_outputs(struct stg_func_run *run, const struct stg_block *input,
                        int64_t first, int64_t n, struct stg_block **ret,
                        struct stg_err *error)
{
    uint32_t n_outputs = (uint32_t)stg_func_schema(run->func)->n;
    struct stg_block *block;
    uint64_t bytes = rows_room(input, n);
    for (uint32_t i = 0; i < n_outputs; i++) {
        assert(run->outputs[i].shape[0] == n);
        bytes += stg_block_tensor_room(&run->outputs[i]);
    }
    int rc = stg_block_create(run->dataset->quota, n_outputs, bytes, NULL,
                              "a block of results", &block, error);
    if (rc < 0 && stg_quota_is_large(run->dataset->quota, bytes))
        rc = error->code = -STAGER_INVALID_ARGUMENT;
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < n_outputs; i++)
        stg_block_copy_tensor(block, i, &run->outputs[i]);
    copy_rows(block, input, first, n);
    *ret = block;
    return 0;
}

/* ---- apply ---- */

/* Tensors of n records for the graph of many, or of one record for that of one. */
static void set_feeds(struct stg_func_run *run, const struct stg_block *input,
                      int64_t first, int64_t n, bool as_one)
{
    for (size_t c = 0; c < run->func->n_inputs; c++) {
        struct stg_tensor *feed = &run->feeds[c];
        *feed = stg_tensor_records(&input->tensors[c], first, n);
        if (!as_one)
            continue;
        feed->ndim--;
        memmove(feed->shape, feed->shape + 1,
                (size_t)feed->ndim * sizeof(feed->shape[0]));
    }
}

/* "FILE: line 17 (offset 4711): step map (line 3): node …" */
static void blame(const struct stg_func_run *run, const struct stg_func_call *call,
                  int64_t record, struct stg_err *err)
{
    const struct stg_block *input = call->input;
    int64_t each = input->n_rows / input->n_records;
    int64_t row = each == 1 ? record : record * each + err->row;
    stg_step_prefix(run->func->step, err->code, err);
    if (input->rows == NULL || (each > 1 && err->row < 0) || row >= input->n_rows) {
        stg_err_prefix(err, err->code, "element %" PRIu64,
                       call->index + (uint64_t)record);
        return;
    }
    char place[512];
    stg_provenance_text(run->dataset, &input->rows[row], place, sizeof(place));
    stg_err_prefix(err, err->code, "%s", place);
}

static int add_error(struct stg_func_run *run, const struct stg_func_call *call,
                     int64_t record, struct stg_err *error, struct stg_func_parts *ret,
                     struct stg_err *err)
{
    struct stg_func_part part = {.first = record, .n = 1};
    blame(run, call, record, error);
    error->row = -1;
    int rc = stg_block_create_error(run->dataset->quota, error, call->input->epoch,
                                    &part.block, err);
    if (rc < 0)
        return stg_step_prefix(run->func->step, rc, err);
    return stg_func_parts_add(ret, part, err);
}

/* That is no fault of a record's. */
static int no_memory(const struct stg_func_run *run, const struct stg_err *error,
                     struct stg_err *err)
{
    if (err != NULL)
        *err = *error;
    return stg_step_prefix(run->func->step, -STAGER_RESOURCE_EXHAUSTED, err);
}

/* Runs once. What an op says goes to *error. */
static int exec(struct stg_func_run *run, const struct stg_func_call *call, int64_t first,
                int64_t n, bool as_one, struct stg_err *error)
{
    struct stg_key key = {.pass = run->func->pass,
                          .epoch = call->epoch,
                          .index = call->index + (uint64_t)first};
    struct place place = {.output = call->output, .first = first, .n = n};
    struct stg_sink sink = {.owner = &place, .alloc = place_alloc, .copy = place_copy};
    set_feeds(run, call->input, first, n, as_one);
    error->row = -1;
    error->text[0] = '\0';
    int rc = stg_run_exec(as_one ? run->each : run->many, run->feeds, &key,
                          call->output != NULL ? &sink : NULL, run->outputs, error);
    for (size_t i = 0; rc == 0 && as_one && i < stg_func_schema(run->func)->n; i++) {
        struct stg_tensor *output = &run->outputs[i];
        memmove(output->shape + 1, output->shape,
                (size_t)output->ndim * sizeof(output->shape[0]));
        output->shape[0] = 1;
        output->ndim++;
    }
    error->code = rc;
    return rc;
}

/* Runs n records and adds the results as a part. */
static int run_part(struct stg_func_run *run, const struct stg_func_call *call,
                    int64_t first, int64_t n, bool as_one, struct stg_func_parts *ret,
                    struct stg_err *error)
{
    struct stg_func_part part = {.first = first, .n = n};
    int rc = exec(run, call, first, n, as_one, error);
    if (rc == 0 && call->output == NULL)
        rc = copy_outputs(run, call->input, first, n, &part.block, error);
    return rc < 0 ? rc : stg_func_parts_add(ret, part, error);
}

/* Halves until the records are found that an op refuses: k of them in n cost k log n
 * runs. */
int stg_func_apply(struct stg_func_run *run, const struct stg_func_call *call,
                   int64_t first, int64_t n, struct stg_func_parts *ret,
                   struct stg_err *err)
{
    struct stg_err error;
    if (run->many != NULL && n > 1) {
        int rc = run_part(run, call, first, n, false, ret, &error);
        if (rc == 0)
            return 0;
        if (rc == -STAGER_RESOURCE_EXHAUSTED)
            return no_memory(run, &error, err);
        rc = stg_func_apply(run, call, first, n / 2, ret, err);
        return rc < 0 ? rc
                      : stg_func_apply(run, call, first + n / 2, n - n / 2, ret, err);
    }
    int rc = 0;
    for (int64_t i = first; rc == 0 && i < first + n; i++) {
        rc = run_part(run, call, i, 1, true, ret, &error);
        if (rc == -STAGER_RESOURCE_EXHAUSTED)
            rc = no_memory(run, &error, err);
        else if (rc < 0)
            rc = add_error(run, call, i, &error, ret, err);
    }
    return rc;
}
