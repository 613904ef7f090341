/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/base/op.h"

static const struct stg_param params[] = {
    {.name = "dtype",
     .type = STG_PARAM_DTYPE,
     .required = true,
     .help = "of what feeds it"},
    {.name = "shape",
     .type = STG_PARAM_INTS,
     .required = true,
     .min = -1,
     .max = INT64_MAX,
     .help = "-1: a dimension that is not known; []: a scalar"},
};

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_node *node = ctx->node;
    const struct stg_attr *shape = stg_attr_find(node->attrs, node->n_attrs, "shape");
    if (shape->n_values > STG_MAX_DIMS)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "shape has more than %d dimensions",
                       STG_MAX_DIMS);
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    output->dtype =
        stg_dtype_from_name(stg_attr_string(node->attrs, node->n_attrs, "dtype", ""));
    output->ndim = (int)shape->n_values;
    for (int d = 0; d < output->ndim; d++)
        output->shape[d] = shape->values[d].i;
    return 0;
}

const struct stg_op stg_op_placeholder = {
    .name = "placeholder",
    .summary = "What staged.feed_dict says; as tf.compat.v1.placeholder.",
    STG_PARAMS(params),
    .flags = STG_OP_PLACEHOLDER,
    .infer = infer,
};
