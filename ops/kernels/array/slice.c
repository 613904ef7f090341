/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "ops/base/move.h"

/* ---- slice ---- */

static const struct stg_param slice_params[] = {
    {.name = "begin",
     .type = STG_PARAM_INTS,
     .required = true,
     .min = INT64_MIN,
     .max = INT64_MAX,
     .help = "the first element, one number a dimension; negative counts from the end"},
    {.name = "size",
     .type = STG_PARAM_INTS,
     .required = true,
     .min = -1,
     .max = INT64_MAX,
     .help = "how many elements, one number a dimension; -1: all that follow"},
};

struct slice {
    int64_t begin[STG_MAX_DIMS], size[STG_MAX_DIMS];
};

static int64_t begin_of(const struct slice *plan, int d, int64_t dim)
{
    return plan->begin[d] < 0 ? dim + plan->begin[d] : plan->begin[d];
}

/* -1 where the input's dimension is not known. */
static int size_of(const struct slice *plan, int d, int64_t dim, int64_t *ret,
                   struct stg_err *err)
{
    int64_t size = plan->size[d];
    *ret = size;
    if (dim < 0)
        return 0;
    int64_t begin = begin_of(plan, d, dim);
    if (begin < 0 || begin > dim || (size >= 0 && size > dim - begin))
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "begin %" PRId64 ", size %" PRId64
                       " of dimension %d go beyond its %" PRId64 " elements",
                       plan->begin[d], size, d, dim);
    *ret = size < 0 ? dim - begin : size;
    return 0;
}

static int infer_slice(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_component *input = &ctx->inputs[0];
    const struct stg_node *node = ctx->node;
    const struct stg_attr *begin = stg_attr_find(node->attrs, node->n_attrs, "begin");
    const struct stg_attr *size = stg_attr_find(node->attrs, node->n_attrs, "size");
    struct slice *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (plan == NULL || output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    if ((int)begin->n_values != input->ndim || (int)size->n_values != input->ndim)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "begin has %zu and size %zu numbers, the input %d dimensions",
                       begin->n_values, size->n_values, input->ndim);
    *output = *input;
    ctx->plan = plan;
    for (int d = 0; d < input->ndim; d++) {
        plan->begin[d] = begin->values[d].i;
        plan->size[d] = size->values[d].i;
        int rc = size_of(plan, d, input->shape[d], &output->shape[d], err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int run_slice(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct slice *plan = ctx->plan;
    const struct stg_tensor *input = &ctx->inputs[0];
    struct stg_move move = {.ndim = input->ndim};
    int64_t strides[STG_MAX_DIMS];
    stg_move_strides(input, strides);
    for (int d = 0; d < input->ndim; d++) {
        int rc = size_of(plan, d, input->shape[d], &move.dims[d].n, err);
        if (rc < 0)
            return rc;
        move.dims[d].stride = strides[d];
        move.first += begin_of(plan, d, input->shape[d]) * strides[d];
    }
    return stg_move_run(ctx, 0, input, &move, err);
}

/* ---- split ---- */

static const struct stg_param split_params[] = {
    {.name = "num_or_size_splits",
     .type = STG_PARAM_VALUES,
     .required = true,
     .help = "how many equal parts, or a list of their sizes, one of which may be -1"},
    {.name = "axis",
     .type = STG_PARAM_INT,
     .preset = "0",
     .help = "the dimension to split; negative counts from the last"},
};

struct split {
    int axis;
    size_t n;
    bool equal;
    const int64_t *sizes; /* not where equal; one may be -1 */
};

static int read_sizes(struct stg_op_infer *ctx, struct split *plan, struct stg_err *err)
{
    const struct stg_attr *attr =
        stg_attr_find(ctx->node->attrs, ctx->node->n_attrs, "num_or_size_splits");
    int64_t *sizes = stg_bump_alloc(ctx->bump, (attr->n_values + 1) * sizeof(*sizes));
    if (sizes == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    plan->equal = attr->ndim == 0;
    plan->sizes = sizes;
    plan->n = attr->n_values;
    int n_open = 0;
    for (size_t i = 0; i < attr->n_values; i++) {
        sizes[i] = attr->values[i].i;
        n_open += sizes[i] == -1;
        if (attr->values[i].kind != STG_VALUE_INT || attr->ndim > 1 || sizes[i] < -1)
            n_open = 2;
    }
    if (plan->equal && (sizes[0] < 1 || sizes[0] > 4096))
        n_open = 2;
    if (n_open > 1 || plan->n == 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "num_or_size_splits must be a number from 1 to 4096, or a list of "
                       "sizes with at most one -1");
    if (plan->equal)
        plan->n = (size_t)sizes[0];
    return 0;
}

/* The size of part i of a dimension, or -1 where it is not known. */
static int64_t part(const struct split *plan, int64_t dim, size_t i)
{
    if (plan->equal)
        return dim < 0 ? -1 : dim / (int64_t)plan->n;
    if (plan->sizes[i] >= 0 || dim < 0)
        return plan->sizes[i];
    for (size_t k = 0; k < plan->n; k++)
        dim -= k != i ? plan->sizes[k] : 0;
    return dim;
}

static int check_parts(const struct split *plan, int64_t dim, struct stg_err *err)
{
    int64_t sum = 0;
    if (dim < 0)
        return 0;
    if (plan->equal && dim % (int64_t)plan->n != 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "%" PRId64 " elements of dimension %d cannot be split in %zu "
                       "equal parts",
                       dim, plan->axis, plan->n);
    for (size_t i = 0; !plan->equal && i < plan->n; i++) {
        int64_t size = part(plan, dim, i);
        if (size < 0 || __builtin_add_overflow(sum, size, &sum))
            sum = -1;
        if (sum < 0)
            break;
    }
    if (!plan->equal && sum != dim)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "num_or_size_splits does not add up to the %" PRId64
                       " elements of dimension %d",
                       dim, plan->axis);
    return 0;
}

static int infer_split(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_component *input = &ctx->inputs[0];
    struct split *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    if (plan == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    int rc = read_sizes(ctx, plan, err);
    if (rc == 0)
        rc = stg_move_axis(ctx->node, "axis", 0, input->ndim, &plan->axis, err);
    if (rc == 0)
        rc = check_parts(plan, input->shape[plan->axis], err);
    if (rc < 0)
        return rc;
    struct stg_component *outputs = stg_op_outputs(ctx, plan->n);
    if (outputs == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (size_t i = 0; i < plan->n; i++) {
        outputs[i] = *input;
        outputs[i].shape[plan->axis] = part(plan, input->shape[plan->axis], i);
    }
    ctx->plan = plan;
    return 0;
}

static int run_split(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct split *plan = ctx->plan;
    const struct stg_tensor *input = &ctx->inputs[0];
    int64_t strides[STG_MAX_DIMS], dim = input->shape[plan->axis];
    struct stg_move move = {.ndim = input->ndim};
    stg_move_strides(input, strides);
    for (int d = 0; d < input->ndim; d++)
        move.dims[d] = (struct stg_move_dim){.n = input->shape[d], .stride = strides[d]};
    int rc = check_parts(plan, dim, err);
    for (size_t i = 0; rc == 0 && i < plan->n; i++) {
        move.dims[plan->axis].n = part(plan, dim, i);
        rc = stg_move_run(ctx, i, input, &move, err);
        move.first += move.dims[plan->axis].n * strides[plan->axis];
    }
    return rc;
}

/* ---- transpose ---- */

static const struct stg_param transpose_params[] = {
    {.name = "perm",
     .type = STG_PARAM_INTS,
     .help = "dimension d of the result is perm[d] of the input; default: all reversed"},
};

struct transpose {
    int perm[STG_MAX_DIMS];
};

static int read_perm(const struct stg_attr *perm, int ndim, struct transpose *plan,
                     struct stg_err *err)
{
    uint32_t seen = 0;
    for (int d = 0; d < ndim; d++)
        plan->perm[d] = ndim - 1 - d;
    if (perm == NULL)
        return 0;
    for (size_t d = 0; d < perm->n_values && (int)perm->n_values == ndim; d++) {
        int64_t from = perm->values[d].i;
        from += from < 0 ? ndim : 0;
        if (from < 0 || from >= ndim)
            break;
        seen |= 1u << from;
        plan->perm[d] = (int)from;
    }
    if ((int)perm->n_values != ndim || seen != (1u << ndim) - 1)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "perm must name each of the %d dimensions once", ndim);
    return 0;
}

static int infer_transpose(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_component *input = &ctx->inputs[0];
    struct transpose *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (plan == NULL || output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    int rc = read_perm(stg_attr_find(ctx->node->attrs, ctx->node->n_attrs, "perm"),
                       input->ndim, plan, err);
    if (rc < 0)
        return rc;
    *output = *input;
    for (int d = 0; d < input->ndim; d++)
        output->shape[d] = input->shape[plan->perm[d]];
    ctx->plan = plan;
    return 0;
}

static int run_transpose(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct transpose *plan = ctx->plan;
    const struct stg_tensor *input = &ctx->inputs[0];
    struct stg_move move = {.ndim = input->ndim};
    int64_t strides[STG_MAX_DIMS];
    stg_move_strides(input, strides);
    for (int d = 0; d < input->ndim; d++) {
        move.dims[d].n = input->shape[plan->perm[d]];
        move.dims[d].stride = strides[plan->perm[d]];
    }
    return stg_move_run(ctx, 0, input, &move, err);
}

const struct stg_op stg_op_slice = {
    .name = "slice",
    .summary = "A part of a tensor; as tf.slice.",
    STG_PARAMS(slice_params),
    .min_inputs = 1,
    .max_inputs = 1,
    .infer = infer_slice,
    .run = run_slice,
};

const struct stg_op stg_op_split = {
    .name = "split",
    .summary = "A tensor in parts along a dimension; as tf.split.",
    STG_PARAMS(split_params),
    .min_inputs = 1,
    .max_inputs = 1,
    .infer = infer_split,
    .run = run_split,
};

const struct stg_op stg_op_transpose = {
    .name = "transpose",
    .summary = "Dimensions in another order; as tf.transpose.",
    STG_PARAMS(transpose_params),
    .min_inputs = 1,
    .max_inputs = 1,
    .infer = infer_transpose,
    .run = run_transpose,
};
