/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ops/element.h"
#include "ops/op.h"

static const struct stg_param params[] = {
    {.name = "shape",
     .type = STG_PARAM_SHAPE,
     .required = true,
     .help = "every dimension is known"},
    {.name = "dtype",
     .type = STG_PARAM_DTYPE,
     .preset = "float32",
     .help = "any but string"},
    {.name = "initializer",
     .type = STG_PARAM_VALUES,
     .preset = "zeros",
     .help = "ones, zeros, or a number"},
};

static int initial_value(const struct stg_node *node, int dtype, struct stg_value *ret,
                         struct stg_err *err)
{
    const struct stg_attr *attr =
        stg_attr_find(node->attrs, node->n_attrs, "initializer");
    bool is_bool = dtype == STAGER_BOOL;
    struct stg_value value = {.kind = is_bool ? STG_VALUE_BOOL : STG_VALUE_INT};
    if (attr != NULL && attr->n_values != 1)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "initializer must be ones, zeros, or a number");
    if (attr != NULL && attr->values[0].kind != STG_VALUE_STRING) {
        value = attr->values[0];
    } else if (attr != NULL && strcmp(attr->values[0].s, "ones") == 0) {
        value.i = 1;
        value.f = 1;
    } else if (attr != NULL && strcmp(attr->values[0].s, "zeros") != 0) {
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "initializer must be ones, zeros, or a number, and is \"%.64s\"",
                       attr->values[0].s);
    }
    *ret = value;
    return 0;
}

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_node *node = ctx->node;
    const struct stg_attr *shape = stg_attr_find(node->attrs, node->n_attrs, "shape");
    int dtype = stg_dtype_from_name(
        stg_attr_string(node->attrs, node->n_attrs, "dtype", "float32"));
    if (stg_dtype_bytes(dtype) == 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "dtype: a variable cannot be %s",
                       stg_dtype_name(dtype));
    if (shape->n_values > STG_MAX_DIMS)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "shape has more than %d dimensions",
                       STG_MAX_DIMS);
    struct stg_value value;
    int rc = initial_value(node, dtype, &value, err);
    if (rc < 0)
        return rc;
    uint64_t *element = stg_bump_alloc(ctx->bump, sizeof(*element));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (element == NULL || output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    rc = stg_literal_store(&value, dtype, element, 0, err);
    if (rc < 0)
        return stg_err_prefix(err, rc, "initializer");
    output->dtype = dtype;
    output->ndim = (int)shape->n_values;
    for (int d = 0; d < output->ndim; d++)
        output->shape[d] = shape->values[d].i;
    ctx->plan = element;
    return 0;
}

/* The plan is the bytes of one element. */
static int initialize(const void *plan, struct stg_tensor *variable, struct stg_err *err)
{
    size_t bytes = stg_dtype_bytes(variable->dtype);
    for (uint64_t at = 0; at < variable->data_bytes; at += bytes)
        memcpy((char *)variable->data + at, plan, bytes);
    return 0;
}

const struct stg_op stg_op_variable = {
    .name = "variable",
    .summary =
        "Memory of whoever runs the graph, made once; as tf.compat.v1.get_variable.",
    .params = params,
    .n_params = sizeof(params) / sizeof(params[0]),
    .flags = STG_OP_VARIABLE,
    .infer = infer,
    .initialize = initialize,
};
