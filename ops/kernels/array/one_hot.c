/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "ops/base/element.h"
#include "ops/base/move.h"

static const struct stg_param params[] = {
    {.name = "depth",
     .type = STG_PARAM_INT,
     .required = true,
     .min = 0,
     .max = INT32_MAX,
     .help = "the size of the new dimension"},
    {.name = "on_value", .type = STG_PARAM_VALUES, .preset = "1", .help = "at the index"},
    {.name = "off_value", .type = STG_PARAM_VALUES, .preset = "0", .help = "elsewhere"},
    {.name = "axis",
     .type = STG_PARAM_INT,
     .preset = "-1",
     .help = "where the new dimension goes; -1: last"},
    {.name = "dtype",
     .type = STG_PARAM_DTYPE,
     .help = "default: that of on_value or off_value, else float32"},
};

struct plan {
    int dtype, axis;
    int64_t depth;
    uint64_t on, off; /* elements */
};

static int read_value(const struct stg_node *node, const char *name, int64_t otherwise,
                      int dtype, uint64_t *ret, struct stg_err *err)
{
    const struct stg_attr *attr = stg_attr_find(node->attrs, node->n_attrs, name);
    struct stg_value preset = {.kind =
                                   dtype == STAGER_BOOL ? STG_VALUE_BOOL : STG_VALUE_INT,
                               .i = otherwise,
                               .f = (double)otherwise};
    if (attr != NULL && attr->n_values != 1)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "%s must be one value", name);
    int rc = stg_literal_store(attr != NULL ? attr->values : &preset, dtype, ret, 0, err);
    return rc < 0 ? stg_err_prefix(err, rc, "%s", name) : 0;
}

static int dtype_of(const struct stg_node *node, struct stg_err *err)
{
    const char *name = stg_attr_string(node->attrs, node->n_attrs, "dtype", NULL);
    const struct stg_attr *on = stg_attr_find(node->attrs, node->n_attrs, "on_value");
    if (on == NULL)
        on = stg_attr_find(node->attrs, node->n_attrs, "off_value");
    int dtype = name != NULL ? stg_dtype_from_name(name)
                : on != NULL ? stg_literal_dtype(on->values, on->n_values)
                             : STAGER_FLOAT32;
    if (dtype == STAGER_STRING || dtype == STAGER_DT_INVALID)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "the result must be numbers or bools, not strings");
    return dtype;
}

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_component *input = &ctx->inputs[0];
    const struct stg_node *node = ctx->node;
    struct plan *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (plan == NULL || output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    if (input->dtype != STAGER_UINT8 && input->dtype != STAGER_INT8 &&
        input->dtype != STAGER_INT32 && input->dtype != STAGER_INT64)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "input \"%s\" is %s; indices must be uint8, int8, int32 or int64",
                       input->name, stg_dtype_name(input->dtype));
    if (input->ndim == STG_MAX_DIMS)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "the input already has the maximum of %d dimensions",
                       STG_MAX_DIMS);
    int64_t axis = stg_attr_int(node->attrs, node->n_attrs, "axis", -1);
    if (axis < -1 || axis > input->ndim)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "axis %" PRId64 " is not in [-1, %d]", axis, input->ndim);
    plan->axis = axis < 0 ? input->ndim : (int)axis;
    plan->depth = stg_attr_int(node->attrs, node->n_attrs, "depth", 0);
    int rc = dtype_of(node, err);
    if (rc < 0)
        return rc;
    plan->dtype = output->dtype = rc;
    rc = read_value(node, "on_value", 1, plan->dtype, &plan->on, err);
    if (rc == 0)
        rc = read_value(node, "off_value", 0, plan->dtype, &plan->off, err);
    output->ndim = input->ndim + 1;
    for (int d = 0; d < output->ndim; d++)
        output->shape[d] =
            d == plan->axis ? plan->depth : input->shape[d - (d > plan->axis)];
    ctx->plan = plan;
    return rc;
}

static int64_t index_at(const struct stg_tensor *input, int64_t i)
{
    switch (input->dtype) {
    case STAGER_UINT8: return ((const uint8_t *)input->data)[i];
    case STAGER_INT8: return ((const int8_t *)input->data)[i];
    case STAGER_INT32: return ((const int32_t *)input->data)[i];
    default: return ((const int64_t *)input->data)[i];
    }
}

static int run(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    const struct stg_tensor *input = &ctx->inputs[0];
    int64_t shape[STG_MAX_DIMS], inner = 1;
    for (int d = 0; d <= input->ndim; d++) {
        shape[d] = d == plan->axis ? plan->depth : input->shape[d - (d > plan->axis)];
        inner *= d > plan->axis ? shape[d] : 1;
    }
    struct stg_tensor output;
    int rc = ctx->alloc(ctx, 0, plan->dtype, input->ndim + 1, shape, 0, &output, err);
    if (rc < 0)
        return rc;
    int64_t n = stg_tensor_n(input);
    size_t bytes = stg_dtype_bytes(plan->dtype);
    stg_move_fill(output.data, n * plan->depth, &plan->off, bytes);
    for (int64_t i = 0; i < n; i++) {
        int64_t index = index_at(input, i);
        if (index < 0 || index >= plan->depth)
            continue;
        int64_t at = (i / inner * plan->depth + index) * inner + i % inner;
        memcpy((char *)output.data + at * (int64_t)bytes, &plan->on, bytes);
    }
    return 0;
}

static uint64_t rows(const struct stg_op_run *ctx)
{
    const struct plan *plan = ctx->plan;
    return plan->axis > 0;
}

const struct stg_op stg_op_one_hot = {
    .name = "one_hot",
    .summary = "One value at the index, another elsewhere; as tf.one_hot.",
    STG_PARAMS(params),
    .min_inputs = 1,
    .max_inputs = 1,
    .infer = infer,
    .run = run,
    .rows = rows,
};
