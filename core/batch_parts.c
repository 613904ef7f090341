/* SPDX-License-Identifier: Apache-2.0
 *
 * Sparse and ragged features of a batch at rest: whether their parts fit one another.
 */
#include <inttypes.h>
#include <string.h>

#include "core/batch.h"
#include "core/status.h"

/* One tensor of the batch, and what a message calls it. */
struct part {
    struct stg_tensor tensor;
    const char *name;
};

static struct part part_at(const void *base, uint32_t i)
{
    struct part part;
    stg_batch_tensor_at(base, i, &part.tensor, &part.name);
    return part;
}

static int misfit(struct stg_err *err, const struct part *part, const char *what)
{
    return stg_err(err, -STAGER_INVALID_ARGUMENT, "tensor %s: %s", part->name, what);
}

static int check_index_type(const struct part *part, int ndim, struct stg_err *err)
{
    if (part->tensor.dtype == STAGER_INT64 && part->tensor.ndim == ndim)
        return 0;
    return misfit(err, part,
                  ndim == 2 ? "indices are int64 of rank 2"
                            : "row_splits and dense_shape are int64 of rank 1");
}

static int check_splits(const struct part *part, int64_t n_values, struct stg_err *err)
{
    const int64_t *splits = part->tensor.data;
    int64_t n = part->tensor.shape[0], before = 0;
    if (splits[0] != 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "tensor %s: row_splits begin with %" PRId64 ", not with 0",
                       part->name, splits[0]);
    for (int64_t i = 1; i < n; i++) {
        if (splits[i] < before)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "tensor %s: row_splits fall at row %" PRId64 ", from %" PRId64
                           " to %" PRId64,
                           part->name, i - 1, before, splits[i]);
        before = splits[i];
    }
    if (before != n_values)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "tensor %s: row_splits end with %" PRId64 ", there are %" PRId64
                       " values",
                       part->name, before, n_values);
    return 0;
}

static int check_ragged(const void *base, uint32_t i, bool content, struct stg_err *err)
{
    struct part values = part_at(base, i - 1), splits = part_at(base, i);
    int rc = check_index_type(&splits, 1, err);
    if (rc < 0)
        return rc;
    if (splits.tensor.shape[0] < 1)
        return misfit(err, &splits, "row_splits have at least one entry");
    if (values.tensor.ndim < 1)
        return misfit(err, &values, "the values of a ragged feature have rank 1 or more");
    return content ? check_splits(&splits, values.tensor.shape[0], err) : 0;
}

static int check_indices(const struct part *indices, const struct part *shape,
                         struct stg_err *err)
{
    const int64_t *at = indices->tensor.data, *limit = shape->tensor.data;
    int64_t n = indices->tensor.shape[0], rank = indices->tensor.shape[1];
    for (int64_t d = 0; d < rank; d++) {
        if (limit[d] < 0)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "tensor %s: dimension %" PRId64 " is %" PRId64, shape->name, d,
                           limit[d]);
    }
    for (int64_t i = 0; i < n; i++, at += rank) {
        for (int64_t d = 0; d < rank; d++) {
            if (at[d] < 0 || at[d] >= limit[d])
                return stg_err(err, -STAGER_INVALID_ARGUMENT,
                               "tensor %s: entry %" PRId64 " has index %" PRId64
                               " in dimension %" PRId64 ", which has %" PRId64,
                               indices->name, i, at[d], d, limit[d]);
        }
    }
    return 0;
}

static int check_sparse(const void *base, uint32_t i, bool content, struct stg_err *err)
{
    struct part values = part_at(base, i - 1), indices = part_at(base, i),
                shape = part_at(base, i + 1);
    int rc = check_index_type(&indices, 2, err);
    if (rc == 0)
        rc = check_index_type(&shape, 1, err);
    if (rc < 0)
        return rc;
    if (values.tensor.ndim != 1)
        return misfit(err, &values, "the values of a sparse feature have rank 1");
    if (values.tensor.shape[0] != indices.tensor.shape[0])
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "tensor %s: %" PRId64 " indices for %" PRId64 " values",
                       indices.name, indices.tensor.shape[0], values.tensor.shape[0]);
    if (indices.tensor.shape[1] < 1 || indices.tensor.shape[1] != shape.tensor.shape[0])
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "tensor %s: indices of rank %" PRId64
                       " for a dense_shape of rank %" PRId64,
                       indices.name, indices.tensor.shape[1], shape.tensor.shape[0]);
    return content ? check_indices(&indices, &shape, err) : 0;
}

/* The part that tensor i is, or what no part is when there is no such tensor. */
static uint32_t kind_at(const void *base, uint32_t n, uint32_t i)
{
    return i < n ? stg_batch_part(base, i) : UINT32_MAX;
}

/* before: the part of tensor i - 1. */
static bool is_stray(const void *base, uint32_t n, uint32_t i, uint32_t before)
{
    switch (stg_batch_part(base, i)) {
    case STG_PART_ROW_SPLITS: return before != STG_PART_VALUES;
    case STG_PART_INDICES:
        return before != STG_PART_VALUES ||
               kind_at(base, n, i + 1) != STG_PART_DENSE_SHAPE;
    case STG_PART_DENSE_SHAPE: return before != STG_PART_INDICES;
    default: return false;
    }
}

int stg_batch_check_parts(const void *base, bool content, struct stg_err *err)
{
    uint32_t n = ((const struct stg_batch_header *)base)->n_tensors;
    uint32_t before = UINT32_MAX;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t part = stg_batch_part(base, i);
        int rc = 0;
        if (is_stray(base, n, i, before)) {
            struct part stray = part_at(base, i);
            return misfit(err, &stray, "a part without the others of its feature");
        }
        if (part == STG_PART_ROW_SPLITS)
            rc = check_ragged(base, i, content, err);
        else if (part == STG_PART_INDICES)
            rc = check_sparse(base, i, content, err);
        if (rc < 0)
            return rc;
        before = part;
    }
    return 0;
}

/* ---- picking features ---- */

static bool is_at(const char *path, const char *name)
{
    size_t n = strlen(path);
    return strncmp(name, path, n) == 0 && (name[n] == '\0' || name[n] == '/');
}

bool stg_schema_pick(const struct stg_schema *schema, const char *path, bool *picked)
{
    bool any = false;
    for (size_t i = 0; i < schema->n; i++) {
        if (!is_at(path, schema->components[i].name))
            continue;
        picked[i] = true;
        any = true;
    }
    stg_schema_pick_whole(schema, picked);
    return any;
}

/* The first part of a feature is VALUES, the others follow. */
void stg_schema_pick_whole(const struct stg_schema *schema, bool *picked)
{
    for (size_t first = 0, end; first < schema->n; first = end) {
        bool any = picked[first];
        for (end = first + 1;
             end < schema->n && schema->components[end].part != STG_PART_VALUES; end++)
            any = any || picked[end];
        for (size_t i = first; i < end; i++)
            picked[i] = any;
    }
}
