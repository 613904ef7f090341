/* SPDX-License-Identifier: Apache-2.0
 *
 * The source of the step harness, which replaces `range`.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/dataset/block.h"
#include "tests/check.h"
#include "tests/daemon/dataset/step_harness.h"

struct stg_test_source stg_test_source;

void stg_test_source_set_errors(const int64_t *errors, int n)
{
    stg_test_source.n_errors = n;
    for (int i = 0; i < n; i++)
        stg_test_source.errors[i] = errors[i];
}

struct source {
    struct stg_iter iter;
    int64_t n, at;
    int n_errors; /* number of records handed out */
};

enum { VALUE, TEXT, WEIGHT, GRID, WORDS, LIST };

static const struct stg_component components[] = {
    [VALUE] = {.name = "value", .dtype = STAGER_INT64},
    [TEXT] = {.name = "text", .dtype = STAGER_STRING},
    [WEIGHT] = {.name = "weight", .dtype = STAGER_FLOAT32},
    [GRID] = {.name = "grid", .dtype = STAGER_UINT8, .ndim = 2, .shape = {2, 3}},
    [WORDS] = {.name = "words", .dtype = STAGER_STRING, .ndim = 1, .shape = {2}},
    [LIST] = {.name = "list", .dtype = STAGER_INT64, .ndim = 1, .shape = {-1}},
};

static const int scalar[] = {VALUE, TEXT, WEIGHT};
static const int nd[] = {VALUE, TEXT, WEIGHT, GRID, WORDS};
static const int varied[] = {VALUE, TEXT, LIST};

static const int *kinds(size_t *ret_n)
{
    switch (stg_test_source.elements) {
    case STG_ELEMENTS_ND: *ret_n = 5; return nd;
    case STG_ELEMENTS_VARIED: *ret_n = 3; return varied;
    default: *ret_n = 3; return scalar;
    }
}

static int source_infer(const struct stg_step *step, const struct stg_schema *in,
                        struct stg_bump *bump, struct stg_schema *ret,
                        struct stg_err *err)
{
    size_t n;
    const int *of = kinds(&n);
    int rc = stg_step_is_source(step, in, err);
    if (rc == 0)
        rc = stg_schema_create(bump, n, ret, err);
    for (size_t c = 0; rc == 0 && c < n; c++)
        ret->components[c] = components[of[c]];
    return rc;
}

static int64_t list_length(int64_t i)
{
    return i * 7 % 4;
}

/* Strings of 0 to 12 bytes. */
static int64_t make_text(int64_t i, char *buf)
{
    return i % 5 == 0 ? 0 : sprintf(buf, "%.*s%d", (int)(i % 9), "abcdefgh", (int)i);
}

static void fill_strings(struct stg_block *block, struct stg_tensor *tensor,
                         int64_t first, int64_t n)
{
    int64_t *begin = stg_block_carve(block, (uint64_t)n * sizeof(int64_t));
    int64_t *end = stg_block_carve(block, (uint64_t)n * sizeof(int64_t));
    char *data = stg_block_carve(block, (uint64_t)n * 16);
    for (int64_t i = 0; i < n; i++) {
        begin[i] = i * 16 + 1;
        end[i] = begin[i] + make_text(first + i, data + begin[i]);
    }
    tensor->data = data;
    tensor->data_bytes = (uint64_t)n * 16;
    tensor->begin = begin;
    tensor->end = end;
}

static void fill_numbers(struct stg_block *block, struct stg_tensor *tensor,
                         int64_t first, int64_t n)
{
    tensor->data_bytes = (uint64_t)n * stg_dtype_bytes(tensor->dtype);
    tensor->data = stg_block_carve(block, tensor->data_bytes);
    for (int64_t i = 0; i < n; i++) {
        if (tensor->dtype == STAGER_INT64)
            ((int64_t *)tensor->data)[i] = first + i;
        else if (tensor->dtype == STAGER_FLOAT32)
            ((float *)tensor->data)[i] = (float)(first + i) / 2;
        else
            ((uint8_t *)tensor->data)[i] = (uint8_t)(first + i);
    }
}

static void fill(struct stg_block *block, const struct stg_component *component,
                 int64_t first, int64_t n, struct stg_tensor *tensor)
{
    int64_t each = 1;
    *tensor = (struct stg_tensor){
        .dtype = component->dtype, .ndim = component->ndim + 1, .shape = {n}};
    for (int d = 0; d < component->ndim; d++) {
        int64_t size = component->shape[d];
        tensor->shape[d + 1] = size >= 0 ? size : list_length(first);
        each *= tensor->shape[d + 1];
    }
    if (tensor->dtype == STAGER_STRING)
        fill_strings(block, tensor, first * each, n * each);
    else
        fill_numbers(block, tensor, first * each, n * each);
}

static void fill_rows(struct stg_block *block, int64_t first, int64_t n)
{
    struct stg_provenance *rows = stg_block_carve(block, (uint64_t)n * sizeof(*rows));
    for (int64_t i = 0; i < n; i++)
        rows[i] = (struct stg_provenance){.offset = 10 * (uint64_t)(first + i),
                                          .record = (uint64_t)(first + i)};
    block->rows = rows;
}

static int make_block(struct source *source, int64_t n, struct stg_block **ret,
                      struct stg_err *err)
{
    const struct stg_schema *schema = source->iter.schema;
    struct stg_block *block;
    int rc = stg_block_create(source->iter.dataset->quota, (uint32_t)schema->n,
                              stg_block_room((uint64_t)n * 400 + 4096), NULL,
                              "the source", &block, err);
    if (rc < 0)
        return rc;
    for (size_t c = 0; c < schema->n; c++)
        fill(block, &schema->components[c], source->at, n, &block->tensors[c]);
    fill_rows(block, source->at, n);
    block->n_records = block->n_rows = n;
    source->at += n;
    atomic_fetch_add(&stg_test_source.n_made, n);
    *ret = block;
    return 0;
}

static int make_error(struct source *source, struct stg_block **ret, struct stg_err *err)
{
    struct stg_err bad;
    stg_err(&bad, -STAGER_INVALID_ARGUMENT, "bad element before %d", (int)source->at);
    int rc = stg_block_create_error(source->iter.dataset->quota, &bad, 0, ret, err);
    source->n_errors += rc == 0;
    return rc;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int source_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                       struct stg_err *err)
{
    struct source *source = (struct source *)iter;
    const struct stg_test_source *is = &stg_test_source;
    int rc = stg_iter_stopped(iter, err);
    if (rc < 0)
        return rc;
    CHECK(want >= 1);
    int64_t stop = source->n;
    if (source->n_errors < is->n_errors) {
        int64_t error_at = least(is->errors[source->n_errors], source->n);
        if (error_at <= source->at)
            return make_error(source, ret, err);
        stop = error_at;
    }
    if (is->fail_at >= 0 && is->fail_at <= source->at)
        return stg_err(err, -STAGER_DATA_LOSS, "the source failed");
    if (is->fail_at >= 0)
        stop = least(stop, is->fail_at);
    if (source->at == source->n)
        return 1;
    if (is->elements == STG_ELEMENTS_VARIED)
        want = 1;
    return make_block(source, least(want, stop - source->at), ret, err);
}

static int source_rewind(struct stg_iter *iter, bool afresh, struct stg_err *err)
{
    ((struct source *)iter)->at = 0;
    ((struct source *)iter)->n_errors = 0;
    return 0;
}

static void source_destroy(struct stg_iter *iter)
{
    free(iter);
}

/* One after the other, with the errors between them. */
static int source_skip(struct stg_iter *iter, uint64_t n, uint64_t *ret,
                       struct stg_err *err)
{
    struct source *source = (struct source *)iter;
    const struct stg_test_source *is = &stg_test_source;
    if (is->cannot_skip || is->fail_at >= 0)
        return stg_iter_replay(iter, n, ret, err);
    for (*ret = 0; *ret < n; ++*ret) {
        if (source->n_errors < is->n_errors &&
            least(is->errors[source->n_errors], source->n) <= source->at)
            source->n_errors++;
        else if (source->at < source->n)
            source->at++;
        else
            break;
    }
    return 0;
}

static bool source_left(struct stg_iter *iter, uint64_t most, uint64_t *ret)
{
    const struct source *source = (struct source *)iter;
    *ret = (uint64_t)(source->n - source->at) +
           (uint64_t)(stg_test_source.n_errors - source->n_errors);
    return !stg_test_source.cannot_skip;
}

static int source_count(struct stg_iter *iter, struct stg_extent *ret,
                        struct stg_err *err)
{
    const struct source *source = (struct source *)iter;
    *ret = (struct stg_extent){.n = (uint64_t)(source->n + stg_test_source.n_errors)};
    return 0;
}

static int source_seek(struct stg_iter *iter, uint64_t n, struct stg_err *err)
{
    struct source *source = (struct source *)iter;
    const struct stg_test_source *is = &stg_test_source;
    source->at = source->n_errors = 0;
    for (; n > 0; n--) {
        if (source->n_errors < is->n_errors &&
            least(is->errors[source->n_errors], source->n) <= source->at)
            source->n_errors++;
        else
            source->at++;
    }
    return 0;
}

static const struct stg_iter_impl source_impl = {.next = source_next,
                                                 .rewind = source_rewind,
                                                 .destroy = source_destroy,
                                                 .skip = source_skip,
                                                 .left = source_left,
                                                 .left_has_errors = true,
                                                 .count = source_count,
                                                 .seek = source_seek};

static int source_create(struct stg_dataset *dataset, const struct stg_step *step,
                         const struct stg_schema *schema, struct stg_iter *input,
                         struct stg_iter **ret, struct stg_err *err)
{
    struct source *source =
        stg_iter_create(sizeof(*source), &source_impl, dataset, step, schema, input, err);
    if (source == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    source->n = least(stg_step_int(step, "stop", 0), stg_test_source.n);
    *ret = &source->iter;
    return 0;
}

static const struct stg_transformation source = {.name = "range",
                                                 .infer = source_infer,
                                                 .create = source_create,
                                                 .is_indexable = true};

/* The linker uses it instead of the real one (--wrap). */
const struct stg_transformation *__real_stg_transformation_find(const char *name);
const struct stg_transformation *__wrap_stg_transformation_find(const char *name);

const struct stg_transformation *__wrap_stg_transformation_find(const char *name)
{
    if (stg_test_source.enabled && strcmp(name, "range") == 0)
        return &source;
    return __real_stg_transformation_find(name);
}
