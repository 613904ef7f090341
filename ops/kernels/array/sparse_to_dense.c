/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "ops/base/element.h"
#include "ops/base/move.h"

static const struct stg_param params[] = {
    {.name = "output_shape",
     .type = STG_PARAM_SHAPE,
     .help = "the shape, where it is not an input"},
    {.name = "default_value",
     .type = STG_PARAM_VALUES,
     .preset = "0",
     .help = "what stands where no value is"},
    {.name = "validate_indices",
     .type = STG_PARAM_BOOL,
     .preset = "true",
     .help = "indices must be in order and none twice"},
};

struct plan {
    int ndim;                    /* of output_shape, where it is an attribute; else 0 */
    int64_t shape[STG_MAX_DIMS]; /* likewise */
    bool validate;
    uint64_t fill; /* an element */
    const char *text;
    size_t text_bytes;
};

static int read_default(const struct stg_node *node, int dtype, struct plan *plan,
                        struct stg_err *err)
{
    const struct stg_attr *attr =
        stg_attr_find(node->attrs, node->n_attrs, "default_value");
    plan->text = "";
    if (attr == NULL)
        return 0;
    if (attr->n_values != 1 ||
        (dtype == STAGER_STRING && attr->values->kind != STG_VALUE_STRING))
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "default_value must be one %s",
                       stg_dtype_name(dtype));
    if (dtype == STAGER_STRING) {
        plan->text = attr->values->s;
        plan->text_bytes = attr->values->s_bytes;
        return 0;
    }
    int rc = stg_literal_store(attr->values, dtype, &plan->fill, 0, err);
    return rc < 0 ? stg_err_prefix(err, rc, "default_value") : 0;
}

/* The shape as an attribute, or as the input in the middle: its dimensions where they
 * are known, -1 where not. */
static int infer_shape(struct stg_op_infer *ctx, struct plan *plan,
                       struct stg_component *output, struct stg_err *err)
{
    const struct stg_attr *attr =
        stg_attr_find(ctx->node->attrs, ctx->node->n_attrs, "output_shape");
    const struct stg_component *indices = &ctx->inputs[0], *shape = &ctx->inputs[1];
    const struct stg_tensor *constant = ctx->n_inputs == 3 ? ctx->constants[1] : NULL;
    if ((attr != NULL) == (ctx->n_inputs == 3))
        return stg_err(
            err, -STAGER_INVALID_ARGUMENT,
            "inputs are indices, output_shape and values, or indices and values "
            "with an attribute output_shape");
    if (attr == NULL && (shape->dtype != indices->dtype || shape->ndim != 1))
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "output_shape is %s of rank %d; it must be %s as the indices, of "
                       "rank 1",
                       stg_dtype_name(shape->dtype), shape->ndim,
                       stg_dtype_name(indices->dtype));
    int64_t rank = attr != NULL ? (int64_t)attr->n_values : shape->shape[0];
    if (rank < 0)
        rank = indices->ndim == 2 ? indices->shape[1] : 1;
    if (rank < 1 || rank > STG_MAX_DIMS)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "the rank of the result must be known and from 1 to %d; it is the "
                       "length of output_shape",
                       STG_MAX_DIMS);
    output->ndim = (int)rank;
    for (int d = 0; d < output->ndim; d++) {
        output->shape[d] = attr != NULL       ? attr->values[d].i
                           : constant != NULL ? stg_tensor_index(constant, d)
                                              : -1;
        if (constant != NULL && output->shape[d] < 0)
            return stg_err(err, -STAGER_INVALID_ARGUMENT, "output_shape is negative");
    }
    plan->ndim = attr != NULL ? output->ndim : 0;
    memcpy(plan->shape, output->shape, sizeof(plan->shape));
    return 0;
}

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_component *indices = &ctx->inputs[0];
    const struct stg_component *values = &ctx->inputs[ctx->n_inputs - 1];
    struct plan *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (plan == NULL || output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    if (indices->dtype != STAGER_INT32 && indices->dtype != STAGER_INT64)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "input \"%s\" is %s; indices must be int32 or int64",
                       indices->name, stg_dtype_name(indices->dtype));
    if (indices->ndim > 2 || values->ndim > 1)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "indices have rank %d, values %d; at most 2 and 1 are taken",
                       indices->ndim, values->ndim);
    int rc = infer_shape(ctx, plan, output, err);
    if (rc < 0)
        return rc;
    output->dtype = values->dtype;
    plan->validate =
        stg_attr_bool(ctx->node->attrs, ctx->node->n_attrs, "validate_indices", true);
    ctx->plan = plan;
    return read_default(ctx->node, values->dtype, plan, err);
}

/* Sizes that depend on the batch. */
static int read_shape(const struct stg_op_run *ctx, int *ret_ndim, int64_t *ret_shape,
                      int64_t *ret_n, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    const struct stg_tensor *indices = &ctx->inputs[0], *shape = &ctx->inputs[1];
    const struct stg_tensor *values = &ctx->inputs[ctx->n_inputs - 1];
    int64_t length = plan->ndim > 0 ? plan->ndim : shape->shape[0];
    int64_t rank = indices->ndim == 2 ? indices->shape[1] : 1;
    int64_t n = indices->ndim == 0 ? 1 : indices->shape[0];
    if (length != rank || rank < 1 || rank > STG_MAX_DIMS)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "indices have %" PRId64 " coordinates, output_shape %" PRId64,
                       rank, shape->shape[0]);
    if (values->ndim == 1 && values->shape[0] != n)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "there are %" PRId64 " values and %" PRId64 " indices",
                       values->shape[0], n);
    for (int d = 0; d < (int)rank; d++) {
        ret_shape[d] = plan->ndim > 0 ? plan->shape[d] : stg_tensor_index(shape, d);
        if (ret_shape[d] < 0)
            return stg_err(err, -STAGER_INVALID_ARGUMENT, "output_shape is negative");
    }
    *ret_ndim = (int)rank;
    *ret_n = n;
    return 0;
}

/* Where value i goes, or an error. before: where the one before it went. */
static int place(const struct stg_op_run *ctx, int ndim, const int64_t *shape, int64_t i,
                 int64_t before, int64_t *ret, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    int64_t to = 0, first = stg_tensor_index(&ctx->inputs[0], i * ndim);
    for (int d = 0; d < ndim; d++) {
        int64_t k = stg_tensor_index(&ctx->inputs[0], i * ndim + d);
        if (k < 0 || k >= shape[d])
            return stg_err_row(err, -STAGER_INVALID_ARGUMENT,
                               first >= 0 && first < shape[0] ? first : -1,
                               "index %" PRId64 ": coordinate %" PRId64
                               " of dimension %d is not in [0, %" PRId64 ")",
                               i, k, d, shape[d]);
        to = to * shape[d] + k;
    }
    if (plan->validate && to <= before)
        return stg_err_row(err, -STAGER_INVALID_ARGUMENT, first,
                           "index %" PRId64 " is %s", i,
                           to == before ? "repeated" : "out of order");
    *ret = to;
    return 0;
}

static int run_strings(struct stg_op_run *ctx, int ndim, const int64_t *shape, int64_t n,
                       struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    struct stg_tensor dense = {.ndim = ndim};
    memcpy(dense.shape, shape, (size_t)ndim * sizeof(*shape));
    uint64_t bytes = sizeof(int64_t);
    bool fits = true;
    for (int d = 0; d < ndim; d++)
        fits = fits && !__builtin_mul_overflow(bytes, (uint64_t)shape[d], &bytes);
    int64_t *picks = fits ? stg_bump_alloc_raw(ctx->scratch, bytes) : NULL;
    if (picks == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "no memory for the strings");
    memset(picks, 0xff, bytes);
    int64_t to = -1;
    for (int64_t i = 0; i < n; i++) {
        int rc = place(ctx, ndim, shape, i, to, &to, err);
        if (rc < 0)
            return rc;
        picks[to] = ctx->inputs[ctx->n_inputs - 1].ndim == 0 ? 0 : i;
    }
    return stg_move_strings(ctx, 0, &ctx->inputs[ctx->n_inputs - 1], picks, ndim, shape,
                            plan->text, plan->text_bytes, err);
}

static int run(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    const struct stg_tensor *values = &ctx->inputs[ctx->n_inputs - 1];
    int64_t shape[STG_MAX_DIMS] = {0}, n = 0, to = -1;
    int ndim = 1;
    int rc = read_shape(ctx, &ndim, shape, &n, err);
    if (rc < 0)
        return rc;
    if (values->dtype == STAGER_STRING)
        return run_strings(ctx, ndim, shape, n, err);
    struct stg_tensor output;
    rc = ctx->alloc(ctx, 0, values->dtype, ndim, shape, 0, &output, err);
    if (rc < 0)
        return rc;
    size_t bytes = stg_dtype_bytes(values->dtype);
    stg_move_fill(output.data, stg_tensor_n(&output), &plan->fill, bytes);
    for (int64_t i = 0; i < n; i++) {
        rc = place(ctx, ndim, shape, i, to, &to, err);
        if (rc < 0)
            return rc;
        memcpy((char *)output.data + (size_t)to * bytes,
               (const char *)values->data + (values->ndim == 0 ? 0 : (size_t)i * bytes),
               bytes);
    }
    return 0;
}

const struct stg_op stg_op_sparse_to_dense = {
    .name = "sparse_to_dense",
    .summary = "Values at their indices, a default elsewhere; as "
               "tf.compat.v1.sparse_to_dense.",
    STG_PARAMS(params),
    .min_inputs = 2,
    .max_inputs = 3,
    .infer = infer,
    .run = run,
};
