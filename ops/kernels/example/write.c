/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "ops/base/move.h"
#include "ops/kernels/example/example.h"

static const struct stg_example_span *span_of(const struct stg_example_batch *batch,
                                              uint32_t key, size_t i)
{
    return &batch->spans[key][i];
}

static int64_t count(const struct stg_example_span *span)
{
    struct stg_example_fault fault;
    uint64_t bytes = 0;
    return stg_example_count(span, &bytes, &fault);
}

/* Records lie where no cache has them any more, one behind the other: a few ahead are
 * asked for. */
#define AHEAD 12

static void read_ahead(const struct stg_example_batch *batch, uint32_t key, size_t i)
{
    if (i + AHEAD < batch->n_rows)
        __builtin_prefetch(batch->spans[key][i + AHEAD].s);
}

/* A tensor that is written from its begin on. */
struct writer {
    struct stg_tensor tensor;
    size_t element_bytes; /* 0: strings */
    int64_t at;
};

static int open_writer(const struct stg_example_batch *batch,
                       const struct stg_example_feature *f, int ndim,
                       const int64_t *shape, uint64_t string_bytes, struct writer *ret,
                       struct stg_err *err)
{
    *ret = (struct writer){.element_bytes = stg_dtype_bytes(f->dtype)};
    return batch->ctx->alloc(batch->ctx, f->output, f->dtype, ndim, shape, string_bytes,
                             &ret->tensor, err);
}

static void put_text(struct writer *w, const char *s, size_t n)
{
    int64_t from = w->tensor.begin[w->at];
    memcpy((char *)w->tensor.data + from, s, n);
    ((int64_t *)(uintptr_t)w->tensor.end)[w->at++] = from + (int64_t)n;
}

/* A list of n values. */
static void put_list(const struct stg_example_batch *batch, struct writer *w,
                     const struct stg_example_span *span, int64_t n)
{
    if (w->element_bytes > 0) {
        stg_example_read(span, (char *)w->tensor.data + (size_t)w->at * w->element_bytes);
        w->at += n;
        return;
    }
    struct stg_example_text one;
    if (n == 1 && stg_example_text_of(span, &one) == 1) {
        put_text(w, one.s, one.bytes);
        return;
    }
    stg_example_read(span, batch->texts);
    for (int64_t i = 0; i < n; i++)
        put_text(w, batch->texts[i].s, batch->texts[i].bytes);
}

/* The elements of `fill`, n times. */
static void put_fill(struct writer *w, const struct stg_tensor *fill, int64_t n)
{
    int64_t n_fill = stg_tensor_n(fill);
    for (int64_t i = 0; w->element_bytes == 0 && i < n; i++) {
        for (int64_t k = 0; k < n_fill; k++)
            put_text(w, (const char *)fill->data + fill->begin[k],
                     (size_t)(fill->end[k] - fill->begin[k]));
    }
    if (w->element_bytes > 0 && n > 0) {
        stg_move_fill((char *)w->tensor.data + (size_t)w->at * w->element_bytes, n,
                      fill->data, w->element_bytes);
        w->at += n;
    }
}

/* The dimension of the batch, where it has one, and these. */
static int shape_behind(const struct stg_example_batch *batch, int ndim,
                        const int64_t *shape, int64_t *ret)
{
    int n = batch->ctx->inputs[0].ndim;
    ret[0] = (int64_t)batch->n_rows;
    memcpy(ret + n, shape, (size_t)ndim * sizeof(*shape));
    return n + ndim;
}

static int write_sequence(const struct stg_example_batch *batch,
                          const struct stg_example_feature *f,
                          const struct stg_example_tally *tally, struct stg_err *err)
{
    int64_t shape[STG_MAX_DIMS + 1], tail[STG_MAX_DIMS] = {tally->most / f->n};
    memcpy(tail + 1, f->shape, (size_t)f->ndim * sizeof(*tail));
    int ndim = shape_behind(batch, f->ndim + 1, tail, shape);
    uint64_t bytes = tally->bytes, n_filled, more = 0;
    bool fits = !__builtin_mul_overflow((uint64_t)tally->most, batch->n_rows, &n_filled);
    if (fits && f->dtype == STAGER_STRING)
        fits = !__builtin_mul_overflow(n_filled - (uint64_t)tally->n, f->fill.data_bytes,
                                       &more) &&
               !__builtin_add_overflow(bytes, more, &bytes);
    if (!fits || n_filled > INT64_MAX / 8 || bytes > INT64_MAX)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                       "no memory for %zu records of %lld values", batch->n_rows,
                       (long long)tally->most);
    struct writer w;
    int rc = open_writer(batch, f, ndim, shape, bytes, &w, err);
    for (size_t i = 0; rc == 0 && i < batch->n_rows; i++) {
        const struct stg_example_span *span = span_of(batch, f->key, i);
        read_ahead(batch, f->key, i);
        int64_t n = count(span);
        put_list(batch, &w, span, n);
        put_fill(&w, &f->fill, tally->most - n);
    }
    return rc;
}

static int write_ragged(const struct stg_example_batch *batch,
                        const struct stg_example_feature *f,
                        const struct stg_example_tally *tally, struct stg_err *err)
{
    struct writer w;
    struct stg_tensor splits;
    int64_t n_splits = (int64_t)batch->n_rows + 1;
    int rc = open_writer(batch, f, 1, &tally->n, tally->bytes, &w, err);
    if (rc == 0)
        rc = batch->ctx->alloc(batch->ctx, f->output + 1, STAGER_INT64, 1, &n_splits, 0,
                               &splits, err);
    if (rc < 0)
        return rc;
    int64_t *to = splits.data;
    *to++ = 0;
    for (size_t i = 0; i < batch->n_rows; i++) {
        const struct stg_example_span *span = span_of(batch, f->key, i);
        read_ahead(batch, f->key, i);
        put_list(batch, &w, span, count(span));
        *to++ = w.at;
    }
    return 0;
}

/* Room for indices and dense_shape; the sizes of the last dimensions are the caller's. */
static int alloc_indices(const struct stg_example_batch *batch,
                         const struct stg_example_feature *f, int64_t n, int64_t rank,
                         int64_t **ret_indices, int64_t **ret_shape, struct stg_err *err)
{
    struct stg_op_run *ctx = batch->ctx;
    struct stg_tensor indices, dense;
    int64_t shape[2] = {n, rank};
    int rc = ctx->alloc(ctx, f->output + 1, STAGER_INT64, 2, shape, 0, &indices, err);
    if (rc == 0)
        rc = ctx->alloc(ctx, f->output + 2, STAGER_INT64, 1, &rank, 0, &dense, err);
    if (rc < 0)
        return rc;
    *ret_indices = indices.data;
    *ret_shape = dense.data;
    if (ctx->inputs[0].ndim == 1)
        *(*ret_shape)++ = (int64_t)batch->n_rows;
    return 0;
}

static int write_var_len(const struct stg_example_batch *batch,
                         const struct stg_example_feature *f,
                         const struct stg_example_tally *tally, struct stg_err *err)
{
    int64_t *to, *dense;
    bool is_batch = batch->ctx->inputs[0].ndim == 1;
    struct writer w;
    int rc = open_writer(batch, f, 1, &tally->n, tally->bytes, &w, err);
    if (rc == 0)
        rc = alloc_indices(batch, f, tally->n, is_batch ? 2 : 1, &to, &dense, err);
    if (rc < 0)
        return rc;
    *dense = tally->most;
    for (size_t i = 0; i < batch->n_rows; i++) {
        const struct stg_example_span *span = span_of(batch, f->key, i);
        read_ahead(batch, f->key, i);
        int64_t n = count(span);
        put_list(batch, &w, span, n);
        for (int64_t k = 0; k < n; k++) {
            if (is_batch)
                *to++ = (int64_t)i;
            *to++ = k;
        }
    }
    return 0;
}

/* ---- sparse ---- */

/* One record: its values, their indices dimension by dimension, their order. */
struct row {
    uint32_t n_dims;
    int64_t stride; /* between dimensions of indices */
    int64_t *indices;
    int64_t *order;
    uint64_t *numbers; /* values, by element_bytes; or batch->texts */
};

static int compare(const void *a, const void *b, void *owner)
{
    const struct row *row = owner;
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    for (uint32_t d = 0; d < row->n_dims; d++) {
        const int64_t *indices = row->indices + d * row->stride;
        if (indices[x] != indices[y])
            return indices[x] < indices[y] ? -1 : 1;
    }
    return x < y ? -1 : x > y; /* stable */
}

static bool read_row(const struct stg_example_batch *batch,
                     const struct stg_example_feature *f, size_t i, int64_t n,
                     struct row *row)
{
    for (uint32_t d = 0; d < f->n_index_keys; d++) {
        int64_t *to = row->indices + d * row->stride;
        stg_example_read(span_of(batch, f->index_keys[d], i), to);
        for (int64_t k = 0; k < n; k++) {
            if (to[k] < 0 || to[k] >= f->shape[d])
                return false;
        }
    }
    for (int64_t k = 0; k < n; k++)
        row->order[k] = k;
    if (!f->already_sorted)
        qsort_r(row->order, (size_t)n, sizeof(*row->order), compare, row);
    stg_example_read(span_of(batch, f->key, i),
                     f->dtype == STAGER_STRING ? (void *)batch->texts : row->numbers);
    return true;
}

static void put_row(const struct stg_example_batch *batch, const struct row *row,
                    int64_t n, struct writer *w)
{
    for (int64_t k = 0; k < n; k++) {
        int64_t from = row->order[k];
        if (w->element_bytes == 0) {
            put_text(w, batch->texts[from].s, batch->texts[from].bytes);
            continue;
        }
        memcpy((char *)w->tensor.data + (size_t)w->at++ * w->element_bytes,
               (const char *)row->numbers + (size_t)from * w->element_bytes,
               w->element_bytes);
    }
}

static int make_row(const struct stg_example_batch *batch,
                    const struct stg_example_feature *f, int64_t most, struct row *ret,
                    struct stg_err *err)
{
    uint64_t n, bytes = sizeof(int64_t);
    bool fits = !__builtin_mul_overflow((uint64_t)most, f->n_index_keys + 2u, &n) &&
                !__builtin_mul_overflow(n, bytes, &bytes);
    int64_t *room = fits ? stg_bump_alloc_raw(batch->ctx->scratch, bytes) : NULL;
    if (room == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                       "no memory for a record of %lld values", (long long)most);
    *ret = (struct row){.n_dims = f->n_index_keys,
                        .stride = most,
                        .order = room,
                        .numbers = (uint64_t *)room + most,
                        .indices = room + 2 * most};
    return 0;
}

static int write_sparse(const struct stg_example_batch *batch,
                        const struct stg_example_feature *f,
                        const struct stg_example_tally *tally, struct stg_err *err)
{
    int64_t *to, *dense;
    int64_t rank = batch->ctx->inputs[0].ndim + (int64_t)f->n_index_keys;
    struct writer w;
    struct row row;
    int rc = open_writer(batch, f, 1, &tally->n, tally->bytes, &w, err);
    if (rc == 0)
        rc = alloc_indices(batch, f, tally->n, rank, &to, &dense, err);
    if (rc == 0)
        rc = make_row(batch, f, tally->most, &row, err);
    if (rc < 0)
        return rc;
    memcpy(dense, f->shape, f->n_index_keys * sizeof(*dense));
    for (size_t i = 0; i < batch->n_rows; i++) {
        int64_t n = count(span_of(batch, f->key, i));
        if (!read_row(batch, f, i, n, &row))
            return -STAGER_OUT_OF_RANGE;
        put_row(batch, &row, n, &w);
        for (int64_t k = 0; k < n; k++) {
            if (batch->ctx->inputs[0].ndim == 1)
                *to++ = (int64_t)i;
            for (uint32_t d = 0; d < f->n_index_keys; d++)
                *to++ = row.indices[d * row.stride + row.order[k]];
        }
    }
    return 0;
}

int stg_example_write(const struct stg_example_batch *batch,
                      const struct stg_example_feature *feature,
                      const struct stg_example_tally *tally, struct stg_err *err)
{
    switch (feature->type) {
    case STG_EXAMPLE_FIXED_LEN_SEQUENCE:
        return write_sequence(batch, feature, tally, err);
    case STG_EXAMPLE_VAR_LEN: return write_var_len(batch, feature, tally, err);
    case STG_EXAMPLE_RAGGED: return write_ragged(batch, feature, tally, err);
    case STG_EXAMPLE_FIXED_LEN:
    case STG_EXAMPLE_SPARSE: break;
    }
    return write_sparse(batch, feature, tally, err);
}
