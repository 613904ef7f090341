/* SPDX-License-Identifier: Apache-2.0
 *
 * bucket_by_sequence_length: elements of like length wait together until there are enough
 * for a batch. A batch comes when its last element does; what is left at the end comes
 * by bucket.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/dataset/func.h"
#include "daemon/dataset/marks/marks.h"
#include "daemon/dataset/steps/collect.h"
#include "daemon/dataset/steps/padding.h"

#define ASK_RECORDS 256

struct bucket {
    struct stg_pieces records; /* copies, one a block; position.elements: its number */
    int64_t batch_size;
    int64_t most; /* elements of a dimension when padded to the boundary; else -1 */
};

struct buckets {
    struct stg_iter iter;
    struct stg_feature length;
    struct stg_func *func; /* NULL: component `component` has the lengths */
    struct stg_func_run *run;
    size_t component;
    const struct stg_padding *padding;
    bool pad_to_boundary, no_padding, drop_remainder;
    const struct stg_value *boundaries;
    size_t n_boundaries, n_buckets;
    struct bucket *buckets;
    int64_t ask;
    struct stg_func_parts parts;
    struct stg_pieces made;
    struct stg_marks marks;
    uint64_t first;   /* number of the first record of the block that is added */
    size_t n_flushed; /* buckets, at the end */
    bool ended;
};

/* ---- infer ---- */

static int check_boundaries(const struct stg_step *step, struct stg_err *err)
{
    const struct stg_attr *boundaries =
        stg_attr_find(step->attrs, step->n_attrs, "bucket_boundaries");
    const struct stg_attr *sizes =
        stg_attr_find(step->attrs, step->n_attrs, "bucket_batch_sizes");
    size_t n = boundaries != NULL ? boundaries->n_values : 0;
    size_t n_sizes = sizes != NULL ? sizes->n_values : 0;
    if (n_sizes != n + 1)
        return stg_step_err(
            step, -STAGER_INVALID_ARGUMENT, err,
            "%zu bucket_batch_sizes for %zu bucket_boundaries; there must be one more "
            "size than boundaries, for elements of the last boundary's length or longer",
            n_sizes, n);
    if (n == 0 && stg_step_bool(step, "pad_to_bucket_boundary", false))
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "pad_to_bucket_boundary needs bucket_boundaries");
    for (size_t i = 0; i < n_sizes; i++) {
        if (sizes->values[i].i < 1 || sizes->values[i].i > INT32_MAX)
            return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                                "bucket_batch_sizes has %" PRId64
                                "; each must be 1 or more, and below 2^31",
                                sizes->values[i].i);
        if (i > 0 && i < n && boundaries->values[i].i <= boundaries->values[i - 1].i)
            return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                                "bucket_boundaries %" PRId64 " and %" PRId64
                                ": they must increase",
                                boundaries->values[i - 1].i, boundaries->values[i].i);
    }
    return 0;
}

static int bad_length(const struct stg_step *step, const struct stg_component *c,
                      const char *name, struct stg_err *err)
{
    char shape[128];
    return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                        "element_length %.64s is %s %s; it must be an integer (int32 or "
                        "int64), or have a dimension, the first of which is the length",
                        name, stg_dtype_name(c->dtype),
                        stg_shape_text(c->shape, c->ndim, shape, sizeof(shape)));
}

/* Finds the component that element_length names, or makes the func that computes it: one
 * of both. */
static int find_length(const struct stg_step *step, const struct stg_schema *in,
                       struct stg_feature *feature, size_t *ret_component,
                       struct stg_func **ret_func, struct stg_err *err)
{
    const char *name = stg_attr_string(step->attrs, step->n_attrs, "element_length", "");
    const struct stg_component *c = NULL;
    *ret_func = NULL;
    for (size_t i = 0; i < in->n && c == NULL; i++) {
        *ret_component = i;
        if (strcmp(in->components[i].name, name) == 0)
            c = &in->components[i];
    }
    if (c == NULL) {
        *feature = (struct stg_feature){.path = "element_length",
                                        .tensor = name,
                                        .line = step->line,
                                        .column = step->column};
        int rc = stg_func_create(step, feature, 1, in, ret_func, err);
        if (rc < 0)
            return rc;
        c = &stg_func_schema(*ret_func)->components[0];
    }
    if (c->ndim > 0 || c->dtype == STAGER_INT32 || c->dtype == STAGER_INT64)
        return 0;
    int rc = bad_length(step, c, name, err);
    stg_func_destroy(*ret_func);
    return rc;
}

static int bucket_infer(const struct stg_step *step, const struct stg_schema *in,
                        struct stg_bump *bump, struct stg_schema *ret,
                        struct stg_err *err)
{
    const struct stg_padding *padding;
    struct stg_feature feature;
    struct stg_func *func = NULL;
    size_t component;
    int rc = stg_step_needs_input(step, in, err);
    if (rc == 0)
        rc = stg_collector_check_ranks(step, in, err);
    if (rc == 0)
        rc = check_boundaries(step, err);
    if (rc == 0)
        rc = stg_padding_create(step, in, bump, &padding, err);
    if (rc == 0)
        rc = find_length(step, in, &feature, &component, &func, err);
    if (rc < 0)
        return rc;
    stg_func_destroy(func);
    int64_t size = stg_batch_dimension(
        step, stg_attr_find(step->attrs, step->n_attrs, "bucket_batch_sizes"));
    if (!stg_step_bool(step, "no_padding", false))
        return stg_padding_schema(padding, size, bump, ret, err);
    rc = stg_schema_create(bump, in->n, ret, err);
    for (size_t c = 0; rc == 0 && c < in->n; c++)
        stg_component_prepend(&ret->components[c], &in->components[c], size);
    return rc;
}

/* ---- batches ---- */

static int make_batch(struct buckets *buckets, struct bucket *bucket, struct stg_err *err)
{
    struct stg_iter *iter = &buckets->iter;
    struct stg_pieces *records = &bucket->records;
    struct stg_quota *quota = iter->dataset->quota;
    uint64_t n_refused = stg_quota_n_refused(quota);
    struct stg_block *batch;
    int rc = buckets->no_padding
                 ? stg_collector_stack(iter, records, &batch, err)
                 : stg_padding_batch(buckets->padding, quota, records->blocks, records->n,
                                     bucket->most, &batch, err);
    if (rc < 0)
        rc = stg_collector_too_large(iter, records, n_refused, rc, &batch, err);
    if (rc < 0)
        return rc;
    stg_pieces_clear(records);
    rc = stg_pieces_add(&buckets->made, batch, err);
    return rc < 0 ? stg_step_prefix(iter->step, rc, err) : 0;
}

static struct bucket *find_bucket(struct buckets *buckets, int64_t length)
{
    size_t i = 0;
    while (i < buckets->n_boundaries && length >= buckets->boundaries[i].i)
        i++;
    return &buckets->buckets[i];
}

/* Why a record of that length cannot be in a batch. */
static int check(const struct buckets *buckets, const struct stg_block *record,
                 const struct bucket *bucket, int64_t length, struct stg_err *err)
{
    size_t n = buckets->n_boundaries;
    if (buckets->no_padding)
        return 0;
    if (buckets->pad_to_boundary && bucket == &buckets->buckets[n])
        return stg_step_err(buckets->iter.step, -STAGER_INVALID_ARGUMENT, err,
                            "an element of length %" PRId64
                            ": with pad_to_bucket_boundary each must be shorter than the "
                            "last boundary, %" PRId64,
                            length, buckets->boundaries[n - 1].i);
    return stg_padding_check(buckets->padding, record, bucket->most, err);
}

/* Records are copied, so that one that waits does not keep the block of many. */
static int add_record(struct buckets *buckets, struct stg_block *block, int64_t i,
                      int64_t length, struct stg_err *err)
{
    struct stg_quota *quota = buckets->iter.dataset->quota;
    struct bucket *bucket = find_bucket(buckets, length);
    struct stg_block *record, *copy;
    struct stg_err refusal;
    int rc = stg_block_slice(quota, block, i, 1, &record, err);
    if (rc < 0)
        return stg_step_prefix(buckets->iter.step, rc, err);
    bool is_refused = check(buckets, record, bucket, length, &refusal) < 0;
    rc = is_refused
             ? stg_collector_refuse(&buckets->iter, record, 0, &refusal, &copy, err)
             : stg_block_gather(quota, &record, 1, "a bucket", &copy, err);
    stg_block_unref(record);
    if (rc == 0)
        copy->position.elements = buckets->first + (uint64_t)i;
    if (rc == 0)
        rc = stg_pieces_add(is_refused ? &buckets->made : &bucket->records, copy, err);
    if (rc < 0)
        return stg_step_prefix(buckets->iter.step, rc, err);
    return bucket->records.n_records == bucket->batch_size
               ? make_batch(buckets, bucket, err)
               : 0;
}

/* The length of record i of a tensor of lengths, or of what has the lengths. */
static int64_t length_of(const struct stg_tensor *tensor, int64_t i)
{
    if (tensor->ndim > 1)
        return tensor->shape[1];
    return tensor->dtype == STAGER_INT32 ? ((const int32_t *)tensor->data)[i]
                                         : ((const int64_t *)tensor->data)[i];
}

/* Records of a part of the block, whose lengths are in the tensor from `at` on. */
static int add_records(struct buckets *buckets, struct stg_block *block,
                       const struct stg_func_part *part, const struct stg_tensor *lengths,
                       int64_t at, struct stg_err *err)
{
    int rc = 0;
    for (int64_t k = 0; rc == 0 && k < part->n; k++)
        rc = add_record(buckets, block, part->first + k, length_of(lengths, at + k), err);
    return rc;
}

static int add_parts(struct buckets *buckets, const struct stg_func_call *call,
                     struct stg_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < buckets->parts.n; i++) {
        const struct stg_func_part *part = &buckets->parts.parts[i];
        struct stg_block *of = part->block != NULL ? part->block : call->output;
        if (of->error.code != 0)
            rc = stg_pieces_add(&buckets->made, stg_block_ref(of), err);
        else
            rc = add_records(buckets, call->input, part, &of->tensors[0],
                             part->block != NULL ? 0 : part->first, err);
    }
    return rc;
}

/* The block was pulled just now. */
static int add_block(struct buckets *buckets, struct stg_block *block,
                     struct stg_err *err)
{
    buckets->first = buckets->marks.n_in - (uint64_t)block->n_records;
    struct stg_func_call call = {
        .input = block, .epoch = buckets->marks.iteration, .index = buckets->first};
    struct stg_func_part all = {.n = block->n_records};
    if (buckets->func == NULL)
        return add_records(buckets, block, &all, &block->tensors[buckets->component], 0,
                           err);
    int rc = stg_func_place(buckets->func, buckets->iter.dataset, &call, err);
    if (rc < 0)
        return rc;
    rc = stg_func_apply(buckets->run, &call, 0, block->n_records, &buckets->parts, err);
    if (rc == 0)
        rc = add_parts(buckets, &call, err);
    stg_func_parts_clear(&buckets->parts);
    stg_block_unref(call.output);
    return rc;
}

static int by_number(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* Returns the numbers of the records that wait, which the caller frees, if it is time for
 * a mark. *ret_n: how many there are; UINT32_MAX: no mark now. */
static uint64_t *list_held(const struct buckets *buckets, uint32_t *ret_n)
{
    uint64_t n = 0, *held;
    for (size_t i = 0; i < buckets->n_buckets; i++)
        n += (uint64_t)buckets->buckets[i].records.n_records;
    *ret_n = 0;
    if (n == 0)
        return NULL;
    *ret_n = UINT32_MAX;
    held = stg_marks_are_due(&buckets->marks, n) ? malloc(n * sizeof(*held)) : NULL;
    if (held == NULL)
        return NULL;
    *ret_n = (uint32_t)n;
    n = 0;
    for (size_t i = 0; i < buckets->n_buckets; i++) {
        const struct stg_pieces *records = &buckets->buckets[i].records;
        for (size_t k = records->first; k < records->n; k++)
            held[n++] = records->blocks[k]->position.elements;
    }
    qsort(held, n, sizeof(*held), by_number);
    return held;
}

/* What is left, one bucket after the other. 1: nothing is. */
static int flush(struct buckets *buckets, struct stg_err *err)
{
    while (buckets->n_flushed < buckets->n_buckets) {
        struct bucket *bucket = &buckets->buckets[buckets->n_flushed++];
        if (bucket->records.n_records > 0 && !buckets->drop_remainder)
            return make_batch(buckets, bucket, err);
        stg_pieces_clear(&bucket->records);
    }
    return 1;
}

static int pull(struct buckets *buckets, struct stg_err *err)
{
    struct stg_block *block;
    uint32_t n_held;
    uint64_t *held = list_held(buckets, &n_held);
    int rc = stg_iter_stopped(&buckets->iter, err);
    if (rc == 0 && !buckets->ended)
        rc = stg_marks_pull(&buckets->iter, &buckets->marks, buckets->ask, held, n_held,
                            &block, err);
    free(held);
    if (rc < 0)
        return rc;
    if (rc == 1)
        buckets->ended = true;
    if (buckets->ended) {
        rc = flush(buckets, err);
        if (rc == 1)
            stg_marks_end(&buckets->iter, &buckets->marks);
        return rc;
    }
    if (block->error.code != 0)
        return stg_pieces_add(&buckets->made, block, err);
    rc = add_block(buckets, block, err);
    stg_block_unref(block);
    return rc;
}

static int bucket_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                       struct stg_err *err)
{
    struct buckets *buckets = (struct buckets *)iter;
    while (!stg_pieces_any(&buckets->made)) {
        int rc = pull(buckets, err);
        if (rc != 0)
            return rc;
    }
    int rc = stg_pieces_take(&buckets->made, iter->dataset->quota, want, ret, err);
    if (rc == 0)
        stg_marks_yield(&buckets->marks, *ret);
    return rc;
}

/* ---- moving forward ---- */

static void forget(struct buckets *buckets)
{
    for (size_t i = 0; i < buckets->n_buckets; i++)
        stg_pieces_clear(&buckets->buckets[i].records);
    stg_pieces_clear(&buckets->made);
    buckets->n_flushed = 0;
    buckets->ended = false;
}

/* The next n records of the input. They wait: none of them made a batch or an error. */
static int take_again(struct buckets *buckets, int64_t n, struct stg_err *err)
{
    struct stg_iter *iter = &buckets->iter;
    struct stg_block *block;
    int rc = 0;
    while (rc == 0 && n > 0) {
        rc = stg_marks_pull(iter, &buckets->marks, n, NULL, UINT32_MAX, &block, err);
        if (rc != 0)
            break;
        n -= block->error.code != 0 ? 1 : block->n_records;
        rc = block->error.code != 0 ? stg_iter_unexpected(block, err)
                                    : add_block(buckets, block, err);
        stg_block_unref(block);
    }
    if (rc == 1 || (rc == 0 && stg_pieces_any(&buckets->made)))
        rc = stg_marks_refute(iter, &buckets->marks, "other records were waiting", err);
    return rc;
}

static int restore(struct stg_iter *iter, const uint64_t *held, uint32_t n_held,
                   struct stg_err *err)
{
    struct buckets *buckets = (struct buckets *)iter;
    int rc = 0;
    forget(buckets);
    for (uint32_t i = 0, n; rc == 0 && i < n_held; i += n) {
        n = 1;
        while (n < ASK_RECORDS && i + n < n_held && held[i + n] == held[i] + n)
            n++;
        rc = stg_iter_stopped(iter, err);
        if (rc == 0)
            rc = stg_marks_skip_input(iter, &buckets->marks, held[i], err);
        if (rc == 0)
            rc = take_again(buckets, n, err);
    }
    return rc;
}

static int bucket_skip(struct stg_iter *iter, uint64_t n, uint64_t *ret,
                       struct stg_err *err)
{
    return stg_marks_skip(iter, &((struct buckets *)iter)->marks, n, restore, ret, err);
}

static bool bucket_left(struct stg_iter *iter, uint64_t most, uint64_t *ret)
{
    return stg_marks_left(iter, &((struct buckets *)iter)->marks, most, ret);
}

/* ---- life ---- */

static int bucket_rewind(struct stg_iter *iter, bool afresh, struct stg_err *err)
{
    struct buckets *buckets = (struct buckets *)iter;
    forget(buckets);
    stg_marks_rewind(&buckets->marks, afresh);
    return iter->input->impl->rewind(iter->input, afresh, err);
}

static void bucket_destroy(struct stg_iter *iter)
{
    struct buckets *buckets = (struct buckets *)iter;
    for (size_t i = 0; buckets->buckets != NULL && i < buckets->n_buckets; i++)
        stg_pieces_finish(&buckets->buckets[i].records);
    free(buckets->buckets);
    stg_pieces_finish(&buckets->made);
    stg_func_parts_finish(&buckets->parts);
    stg_func_run_destroy(buckets->run);
    stg_func_destroy(buckets->func);
    stg_marks_finish(&buckets->marks);
    free(buckets);
}

static const struct stg_iter_impl bucket_impl = {
    .next = bucket_next,
    .rewind = bucket_rewind,
    .destroy = bucket_destroy,
    .skip = bucket_skip,
    .left = bucket_left,
    .left_has_errors = true,
};

static int make_buckets(struct buckets *buckets, struct stg_err *err)
{
    const struct stg_step *step = buckets->iter.step;
    const struct stg_attr *boundaries =
        stg_attr_find(step->attrs, step->n_attrs, "bucket_boundaries");
    const struct stg_attr *sizes =
        stg_attr_find(step->attrs, step->n_attrs, "bucket_batch_sizes");
    buckets->boundaries = boundaries != NULL ? boundaries->values : NULL;
    buckets->n_boundaries = boundaries != NULL ? boundaries->n_values : 0;
    buckets->n_buckets = sizes->n_values;
    buckets->buckets = calloc(buckets->n_buckets, sizeof(*buckets->buckets));
    if (buckets->buckets == NULL)
        return stg_step_err(step, -STAGER_RESOURCE_EXHAUSTED, err, "out of memory");
    for (size_t i = 0; i < buckets->n_buckets; i++) {
        struct bucket *bucket = &buckets->buckets[i];
        bucket->batch_size = sizes->values[i].i;
        bucket->most = buckets->pad_to_boundary && i < buckets->n_boundaries
                           ? buckets->boundaries[i].i - 1
                           : -1;
        buckets->ask =
            bucket->batch_size > buckets->ask ? bucket->batch_size : buckets->ask;
    }
    buckets->ask = buckets->ask < ASK_RECORDS ? buckets->ask : ASK_RECORDS;
    return 0;
}

static int start(struct buckets *buckets, struct stg_err *err)
{
    struct stg_iter *iter = &buckets->iter;
    const struct stg_step *step = iter->step;
    const struct stg_schema *in = iter->input->schema;
    buckets->pad_to_boundary = stg_step_bool(step, "pad_to_bucket_boundary", false);
    buckets->no_padding = stg_step_bool(step, "no_padding", false);
    buckets->drop_remainder = stg_step_bool(step, "drop_remainder", false);
    int rc = make_buckets(buckets, err);
    if (rc == 0)
        rc = stg_padding_create(step, in, &iter->dataset->bump, &buckets->padding, err);
    if (rc == 0)
        rc = find_length(step, in, &buckets->length, &buckets->component, &buckets->func,
                         err);
    if (rc == 0 && buckets->func != NULL)
        rc = stg_func_load(buckets->func, iter->dataset, err);
    if (rc == 0 && buckets->func != NULL)
        rc = stg_func_run_create(buckets->func, iter->dataset, &buckets->run, err);
    return rc;
}

static int bucket_create(struct stg_dataset *dataset, const struct stg_step *step,
                         const struct stg_schema *schema, struct stg_iter *input,
                         struct stg_iter **ret, struct stg_err *err)
{
    struct buckets *buckets = stg_iter_create(sizeof(*buckets), &bucket_impl, dataset,
                                              step, schema, input, err);
    if (buckets == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    buckets->iter.varies = true;
    int rc = start(buckets, err);
    if (rc < 0) {
        bucket_destroy(&buckets->iter);
        return rc;
    }
    *ret = &buckets->iter;
    return 0;
}

const struct stg_transformation stg_bucket_by_sequence_length = {
    "bucket_by_sequence_length", bucket_infer, bucket_create};
