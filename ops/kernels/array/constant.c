/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/base/element.h"
#include "ops/base/op.h"

static const struct stg_param params[] = {
    {.name = "value",
     .type = STG_PARAM_VALUES,
     .required = true,
     .help = "a scalar or a rectangular list"},
    {.name = "dtype", .type = STG_PARAM_DTYPE, .help = "default: as tf.constant infers"},
    {.name = "shape",
     .type = STG_PARAM_SHAPE,
     .help = "reshapes the value; a single value fills it"},
    {.name = "weak",
     .type = STG_PARAM_BOOL,
     .help = "true: a number takes the dtype of the tensor beside it"},
};

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_node *node = ctx->node;
    const struct stg_attr *value = stg_attr_find(node->attrs, node->n_attrs, "value");
    const struct stg_attr *shape = stg_attr_find(node->attrs, node->n_attrs, "shape");
    const char *name = stg_attr_string(node->attrs, node->n_attrs, "dtype", NULL);
    int dtype = name != NULL ? stg_dtype_from_name(name)
                             : stg_literal_dtype(value->values, value->n_values);
    if (dtype == STAGER_DT_INVALID)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "value holds a null, or values of different types");

    int ndim = value->ndim;
    int64_t dims[STG_MAX_DIMS];
    for (int d = 0; d < ndim; d++)
        dims[d] = value->shape[d];
    if (shape != NULL) {
        if (shape->n_values > STG_MAX_DIMS)
            return stg_err(err, -STAGER_INVALID_ARGUMENT, "shape has more than %d dims",
                           STG_MAX_DIMS);
        ndim = (int)shape->n_values;
        for (int d = 0; d < ndim; d++)
            dims[d] = shape->values[d].i;
    }
    struct stg_component *output = stg_op_outputs(ctx, 1);
    struct stg_tensor *tensor = stg_bump_alloc(ctx->bump, sizeof(*tensor));
    if (output == NULL || tensor == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    int rc = stg_literal_tensor(value->values, value->n_values, dtype, ndim, dims,
                                ctx->bump, tensor, err);
    if (rc < 0)
        return stg_err_prefix(err, rc, "value");
    output->dtype = dtype;
    output->ndim = ndim;
    for (int d = 0; d < ndim; d++)
        output->shape[d] = dims[d];
    ctx->plan = tensor;
    return 0;
}

const struct stg_op stg_op_constant = {
    .name = "constant",
    .summary = "A value known when the pipeline is applied; as tf.constant.",
    STG_PARAMS(params),
    .flags = STG_OP_CONSTANT,
    .infer = infer,
};
