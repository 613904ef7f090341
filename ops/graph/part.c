/* SPDX-License-Identifier: Apache-2.0
 *
 * Sparse and ragged features: whether their tensors can be what they are said to be, as
 * far as dtypes and shapes tell. The rest is checked in each batch
 * (stg_batch_check_parts).
 */
#include <inttypes.h>

#include "ops/graph/priv.h"

/* dims: "[n, rank]", for the message. */
static int check_index(const struct stg_component *part, int ndim, const char *what,
                       const char *dims, struct stg_err *err)
{
    char shape[256];
    if (part->dtype == STAGER_INT64 && part->ndim == ndim)
        return 0;
    return stg_err(err, -STAGER_INVALID_ARGUMENT, "%s is int64 %s, found %s %s", what,
                   dims, stg_dtype_name(part->dtype),
                   stg_shape_text(part->shape, part->ndim, shape, sizeof(shape)));
}

/* Both are known, and differ. */
static bool differ(int64_t a, int64_t b)
{
    return a >= 0 && b >= 0 && a != b;
}

static int check_splits(const struct stg_component *values,
                        const struct stg_component *splits, struct stg_err *err)
{
    int rc = check_index(splits, 1, "row_splits", "[rows + 1]", err);
    if (rc < 0)
        return rc;
    if (splits->shape[0] == 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "row_splits have one entry more than there are rows, found none");
    if (values->ndim < 1)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "the values of a ragged feature have rank 1 or more, \"%s\" is a "
                       "scalar",
                       values->name);
    return 0;
}

static int check_indices(const struct stg_component *values,
                         const struct stg_component *indices, struct stg_err *err)
{
    int rc = check_index(indices, 2, "indices", "[values, rank]", err);
    if (rc < 0)
        return rc;
    if (values->ndim != 1)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "the values of a sparse feature have rank 1, \"%s\" has %d",
                       values->name, values->ndim);
    if (differ(values->shape[0], indices->shape[0]))
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "%" PRId64 " indices for %" PRId64 " values", indices->shape[0],
                       values->shape[0]);
    return 0;
}

static int check_shape(const struct stg_component *indices,
                       const struct stg_component *shape, struct stg_err *err)
{
    int rc = check_index(shape, 1, "dense_shape", "[rank]", err);
    if (rc < 0)
        return rc;
    if (shape->shape[0] == 0 || indices->shape[1] == 0 ||
        differ(indices->shape[1], shape->shape[0]))
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "a dense_shape of rank %" PRId64 " for indices of rank %" PRId64,
                       shape->shape[0], indices->shape[1]);
    return 0;
}

int stg_graph_check_part(const struct stg_schema *boundary, size_t i, struct stg_err *err)
{
    const struct stg_component *part = &boundary->components[i];
    if (part->part != STG_PART_VALUES && i == 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "a part without the values of its feature before it");
    switch (part->part) {
    case STG_PART_ROW_SPLITS: return check_splits(part - 1, part, err);
    case STG_PART_INDICES: return check_indices(part - 1, part, err);
    case STG_PART_DENSE_SHAPE: return check_shape(part - 1, part, err);
    default: return 0;
    }
}
