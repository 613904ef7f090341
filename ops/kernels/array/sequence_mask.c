/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ops/base/element.h"
#include "ops/base/move.h"

static const struct stg_param params[] = {
    {.name = "maxlen",
     .type = STG_PARAM_INT,
     .min = 0,
     .max = INT32_MAX,
     .help = "the size of the new dimension; default: the largest length of the batch"},
    {.name = "dtype",
     .type = STG_PARAM_DTYPE,
     .preset = "bool",
     .help = "dtype of the result"},
};

struct plan {
    int dtype;
    int64_t maxlen; /* -1: the largest */
    uint64_t one;   /* an element */
};

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_component *input = &ctx->inputs[0];
    const struct stg_node *node = ctx->node;
    struct plan *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (plan == NULL || output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    if (input->dtype != STAGER_INT32 && input->dtype != STAGER_INT64)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "input \"%s\" is %s; lengths must be int32 or int64", input->name,
                       stg_dtype_name(input->dtype));
    if (input->ndim == STG_MAX_DIMS)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "the input already has the maximum of %d dimensions",
                       STG_MAX_DIMS);
    plan->dtype =
        stg_dtype_from_name(stg_attr_string(node->attrs, node->n_attrs, "dtype", "bool"));
    plan->maxlen = stg_attr_int(node->attrs, node->n_attrs, "maxlen", -1);
    if (plan->dtype == STAGER_STRING)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "a mask cannot be made of strings");
    struct stg_value one = {.kind = plan->dtype == STAGER_BOOL ? STG_VALUE_BOOL
                                                               : STG_VALUE_INT,
                            .i = 1,
                            .f = 1.0};
    stg_literal_store(&one, plan->dtype, &plan->one, 0, NULL);
    *output = *input;
    output->dtype = plan->dtype;
    output->shape[output->ndim++] = plan->maxlen;
    ctx->plan = plan;
    return 0;
}

static int run(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    const struct stg_tensor *input = &ctx->inputs[0];
    int64_t n = stg_tensor_n(input), maxlen = plan->maxlen, shape[STG_MAX_DIMS];
    for (int64_t i = 0; plan->maxlen < 0 && i < n; i++)
        maxlen =
            stg_tensor_index(input, i) > maxlen ? stg_tensor_index(input, i) : maxlen;
    maxlen = maxlen < 0 ? 0 : maxlen;
    memcpy(shape, input->shape, sizeof(shape));
    shape[input->ndim] = maxlen;
    struct stg_tensor output;
    int rc = ctx->alloc(ctx, 0, plan->dtype, input->ndim + 1, shape, 0, &output, err);
    if (rc < 0)
        return rc;
    size_t bytes = stg_dtype_bytes(plan->dtype);
    char *to = output.data;
    for (int64_t i = 0; i < n; i++, to += maxlen * (int64_t)bytes) {
        int64_t length = stg_tensor_index(input, i);
        length = length < 0 ? 0 : length > maxlen ? maxlen : length;
        stg_move_fill(to, length, &plan->one, bytes);
        memset(to + length * (int64_t)bytes, 0, (size_t)(maxlen - length) * bytes);
    }
    return 0;
}

static uint64_t rows(const struct stg_op_run *ctx)
{
    const struct plan *plan = ctx->plan;
    return plan->maxlen >= 0;
}

const struct stg_op stg_op_sequence_mask = {
    .name = "sequence_mask",
    .summary = "True for the first n of each row; as tf.sequence_mask.",
    STG_PARAMS(params),
    .min_inputs = 1,
    .max_inputs = 1,
    .infer = infer,
    .run = run,
    .rows = rows,
};
