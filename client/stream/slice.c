/* SPDX-License-Identifier: Apache-2.0
 *
 * A staged batch in slices of batch_size rows. Dense tensors and strings are windows into
 * the staged batch; row_splits, indices and dense_shape are rebased into the slice's own
 * scratch, which it keeps, so that nothing is allocated once sizes are stable.
 *
 * All bytes come from another process: what was checked is not read twice, or is checked
 * again where it decides how much is written.
 */
#include "client/stream/slice.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/stream/view.h"

static uint32_t part_at(const void *base, uint32_t i)
{
    uint32_t n = ((const struct stg_batch_header *)base)->n_tensors;
    return i < n ? stg_batch_part(base, i) : (uint32_t)STG_PART_VALUES;
}

/* ---- at open: what is known of the shapes ---- */

static const char *no_rows = ": it has no rows to slice; open without batch_size, or "
                             "stage a tensor with one row for each row of the batch";

/* Returns whether component i has the values of a ragged or sparse feature. */
static bool has_more_parts(const struct stg_schema *boundary, size_t i)
{
    uint32_t next = i + 1 < boundary->n ? boundary->components[i + 1].part
                                        : (uint32_t)STG_PART_VALUES;
    return next == STG_PART_ROW_SPLITS || next == STG_PART_INDICES;
}

static int check_component(const struct stg_schema *boundary, size_t i,
                           uint64_t batch_rows, struct stg_err *err)
{
    const struct stg_component *c = &boundary->components[i];
    bool has_parts = has_more_parts(boundary, i);
    if (batch_rows == 0 || c->ndim == 0 || c->shape[0] < 0)
        return 0;
    if (c->part == STG_PART_VALUES && !has_parts && (uint64_t)c->shape[0] != batch_rows)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "tensor %s has %" PRId64 " rows, a staged batch has %" PRIu64 "%s",
                       c->name, c->shape[0], batch_rows, no_rows);
    if (c->part == STG_PART_ROW_SPLITS && (uint64_t)c->shape[0] - 1 != batch_rows)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "tensor %s splits %" PRId64 " rows, a staged batch has %" PRIu64
                       "%s",
                       c->name, c->shape[0] - 1, batch_rows, no_rows);
    return 0;
}

/* The first dimension as a slice has it. */
static void slice_component(struct stg_schema *boundary, size_t i, uint32_t batch_size)
{
    struct stg_component *c = &boundary->components[i];
    bool has_parts = has_more_parts(boundary, i);
    if (c->ndim == 0 || c->part == STG_PART_DENSE_SHAPE)
        return;
    if (has_parts || c->part == STG_PART_INDICES)
        c->shape[0] = -1;
    else if (c->shape[0] >= 0)
        c->shape[0] = (int64_t)batch_size + (c->part == STG_PART_ROW_SPLITS);
}

int stg_slice_boundary(struct stg_schema *boundary, uint32_t batch_size,
                       uint64_t batch_rows, const char *pipeline, struct stg_err *err)
{
    if (batch_rows % batch_size != 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "batch_size %u does not divide the %" PRIu64
                       " rows of a staged batch of pipeline %s: use a divisor of that "
                       "number, or leave batch_size out",
                       batch_size, batch_rows, pipeline);
    for (size_t i = 0; i < boundary->n; i++) {
        int rc = check_component(boundary, i, batch_rows, err);
        if (rc < 0)
            return rc;
    }
    for (size_t i = 0; i < boundary->n; i++)
        slice_component(boundary, i, batch_size);
    return 0;
}

void stg_slice_slots(struct stg_schema *slots)
{
    for (size_t i = 0; i < slots->n; i++) {
        if (slots->components[i].ndim > 0)
            slots->components[i].shape[0] = -1;
    }
}

/* ---- a staged batch ---- */

/* How many rows tensor i says that the batch has; -1: it says nothing. */
static int64_t rows_said(const void *base, uint32_t i, struct stg_tensor *tensor,
                         const char **name)
{
    stg_batch_tensor_at(base, i, tensor, name);
    uint32_t next = part_at(base, i + 1);
    if (tensor->ndim == 0 || next == STG_PART_ROW_SPLITS || next == STG_PART_INDICES)
        return -1;
    switch (part_at(base, i)) {
    case STG_PART_ROW_SPLITS: return tensor->shape[0] - 1;
    case STG_PART_INDICES: return -1;
    case STG_PART_DENSE_SHAPE: return ((const int64_t *)tensor->data)[0];
    default: return tensor->shape[0];
    }
}

/* Slices take the entries of a row together, so rows may not come back. */
static int check_order(const struct stg_tensor *indices, const char *name,
                       struct stg_err *err)
{
    const int64_t *at = indices->data;
    int64_t rank = indices->shape[1], n = indices->shape[0];
    for (int64_t i = 1; i < n; i++) {
        if (at[i * rank] < at[(i - 1) * rank])
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "tensor %s: entry %" PRId64 " is of row %" PRId64
                           ", after one of row %" PRId64
                           ": only sorted indices can be sliced",
                           name, i, at[i * rank], at[(i - 1) * rank]);
    }
    return 0;
}

static int find_rows(const void *base, int64_t *ret, struct stg_err *err)
{
    const struct stg_batch_header *header = base;
    int64_t rows = -1;
    const char *first = "";
    for (uint32_t i = 0; i < header->n_tensors; i++) {
        struct stg_tensor tensor;
        const char *name;
        int64_t said = rows_said(base, i, &tensor, &name);
        if (part_at(base, i) == STG_PART_INDICES && check_order(&tensor, name, err) < 0)
            return -STAGER_INVALID_ARGUMENT;
        if (said < 0)
            continue;
        if (rows >= 0 && said != rows)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "tensor %s has %" PRId64 " rows, tensor %s %" PRId64 "%s",
                           name, said, first, rows, no_rows);
        if (rows < 0)
            first = name;
        rows = said;
    }
    if (rows < 0) /* scalars alone */
        rows = header->n_rows <= INT64_MAX ? (int64_t)header->n_rows : 0;
    *ret = rows;
    return 0;
}

int stg_slice_prepare(struct stager_stream *stream, struct stg_leased *leased,
                      struct stg_err *err)
{
    uint32_t batch_size = stream->batch_size;
    int64_t rows = 0;
    int rc = stg_leased_open(stream, leased, err);
    if (rc < 0)
        return rc;
    struct stg_err why = {0};
    if (stg_batch_check_parts(leased->base, true, &why) < 0)
        rc = stg_err(err, -STAGER_DATA_LOSS, "%s", why.text);
    else
        rc = find_rows(leased->base, &rows, err);
    if (rc == 0 && rows / batch_size >= UINT32_MAX)
        rc = stg_err(err, -STAGER_DATA_LOSS, "%" PRId64 " is not a valid number of rows",
                     rows);
    if (rc < 0)
        return stg_err_prefix(err, rc, "batch %" PRIu64, leased->number);
    leased->n_rows = rows;
    leased->next_slice = 0;
    leased->first_row =
        stream->skip_rows < (uint64_t)rows ? (int64_t)stream->skip_rows : rows;
    stream->skip_rows -= (uint64_t)leased->first_row;
    leased->n_slices =
        (uint32_t)((rows - leased->first_row + batch_size - 1) / batch_size);
    if (rows == 0) /* a batch without rows is a slice without rows */
        leased->n_slices = 1;
    stream->n_slices = leased->n_slices;
    return 0;
}

/* ---- a slice ---- */

static int damaged(const char *name, struct stg_err *err)
{
    return stg_err(err, -STAGER_DATA_LOSS,
                   "tensor %s changed while it was read: stagerd wrote to a published "
                   "batch, which is a bug",
                   name);
}

/* The slice's rows of a ragged feature whose row_splits are tensor i. */
static int find_ragged(const void *base, uint32_t i, int64_t first, int64_t n,
                       struct stg_slice_window *windows, size_t *scratch,
                       struct stg_err *err)
{
    struct stg_tensor values, splits;
    const char *name;
    stg_batch_tensor_at(base, i - 1, &values, NULL);
    stg_batch_tensor_at(base, i, &splits, &name);
    const int64_t *at = splits.data;
    int64_t from = at[first], to = at[first + n];
    if (from < 0 || to < from || to > values.shape[0])
        return damaged(name, err);
    windows[i - 1] = (struct stg_slice_window){.first = from, .n = to - from};
    windows[i] = (struct stg_slice_window){
        .first = first, .n = n + 1, .width = 1, .part = STG_PART_ROW_SPLITS};
    *scratch += (size_t)n + 1;
    return 0;
}

/* The first entry of row `row` or of a later one. */
static int64_t find_entry(const int64_t *at, int64_t rank, int64_t n, int64_t row)
{
    int64_t low = 0, high = n;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (at[middle * rank] < row)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The slice's entries of a sparse feature whose indices are tensor i. */
static int find_sparse(const void *base, uint32_t i, int64_t first, int64_t n,
                       struct stg_slice_window *windows, size_t *scratch,
                       struct stg_err *err)
{
    struct stg_tensor indices;
    const char *name;
    stg_batch_tensor_at(base, i, &indices, &name);
    int64_t rank = indices.shape[1], n_entries = indices.shape[0];
    int64_t from = find_entry(indices.data, rank, n_entries, first);
    int64_t to = find_entry(indices.data, rank, n_entries, first + n);
    if (to < from)
        return damaged(name, err);
    windows[i - 1] = (struct stg_slice_window){.first = from, .n = to - from};
    windows[i] = (struct stg_slice_window){
        .first = from, .n = to - from, .width = rank, .part = STG_PART_INDICES};
    windows[i + 1] =
        (struct stg_slice_window){.n = rank, .width = 1, .part = STG_PART_DENSE_SHAPE};
    *scratch += (size_t)((to - from) * rank + rank);
    return 0;
}

/* Fills windows but for `own`; *ret: how many elements those take. */
static int find_windows(struct stager_batch *batch, int64_t first, int64_t n, size_t *ret,
                        struct stg_err *err)
{
    const void *base = batch->leased->base;
    *ret = 0;
    for (uint32_t i = 0; i < batch->n_windows; i++) {
        struct stg_tensor tensor;
        int rc = 0;
        stg_batch_tensor_at(base, i, &tensor, NULL);
        switch (part_at(base, i)) {
        case STG_PART_ROW_SPLITS:
            rc = find_ragged(base, i, first, n, batch->windows, ret, err);
            break;
        case STG_PART_INDICES:
            rc = find_sparse(base, i, first, n, batch->windows, ret, err);
            break;
        case STG_PART_DENSE_SHAPE: break;
        default:
            batch->windows[i] = (struct stg_slice_window){.first = first, .n = n};
            if (tensor.ndim == 0)
                batch->windows[i] = (struct stg_slice_window){.n = -1};
        }
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Rebased copies; as many elements as find_windows has counted. */
static void fill_scratch(struct stager_batch *batch, int64_t first_row)
{
    const void *base = batch->leased->base;
    int64_t *to = batch->scratch;
    for (uint32_t i = 0; i < batch->n_windows; i++) {
        struct stg_slice_window *window = &batch->windows[i];
        int64_t n = window->n * window->width;
        if (window->part == STG_PART_VALUES)
            continue;
        struct stg_tensor tensor;
        stg_batch_tensor_at(base, i, &tensor, NULL);
        window->own = to;
        if (n > 0)
            memcpy(to, (const int64_t *)tensor.data + window->first * window->width,
                   (size_t)n * sizeof(*to));
        if (window->part == STG_PART_DENSE_SHAPE)
            to[0] = batch->n_rows;
        for (int64_t k = 0; window->part == STG_PART_ROW_SPLITS && k < n; k++)
            to[k] -= window[-1].first;
        for (int64_t k = 0; window->part == STG_PART_INDICES && k < n; k += window->width)
            to[k] -= first_row;
        to += n;
    }
}

static int grow_windows(struct stager_batch *batch, uint32_t n, struct stg_err *err)
{
    batch->n_windows = 0;
    if (n > batch->max_windows) {
        free(batch->windows);
        batch->max_windows = 0;
        batch->windows = calloc(n, sizeof(*batch->windows));
        if (batch->windows == NULL)
            return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
        batch->max_windows = n;
    }
    batch->n_windows = n;
    return 0;
}

static int grow_scratch(struct stager_batch *batch, size_t n, struct stg_err *err)
{
    if (n <= batch->max_scratch)
        return 0;
    size_t most = n + n / 4; /* sparse slices differ in size */
    free(batch->scratch);
    batch->max_scratch = 0;
    batch->scratch = calloc(most, sizeof(*batch->scratch));
    if (batch->scratch == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    batch->max_scratch = most;
    return 0;
}

int stg_slice_make(struct stager_batch *batch, uint32_t batch_size, struct stg_err *err)
{
    struct stg_leased *leased = batch->leased;
    int64_t first = leased->first_row + (int64_t)leased->next_slice * batch_size;
    int64_t n = leased->n_rows - first < batch_size ? leased->n_rows - first : batch_size;
    size_t n_scratch;
    int rc = grow_windows(
        batch, ((const struct stg_batch_header *)leased->base)->n_tensors, err);
    if (rc == 0)
        rc = find_windows(batch, first, n, &n_scratch, err);
    if (rc == 0)
        rc = grow_scratch(batch, n_scratch, err);
    if (rc < 0)
        return rc;
    batch->slice = leased->next_slice;
    batch->n_rows = n;
    fill_scratch(batch, first);
    return 0;
}
