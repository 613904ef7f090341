/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/base/op.h"

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    *output = ctx->inputs[0];
    return 0;
}

static int run(struct stg_op_run *ctx, struct stg_err *err)
{
    return ctx->view(ctx, 0, &ctx->inputs[0], err);
}

const struct stg_op stg_op_identity = {
    .name = "identity",
    .summary = "The input, unchanged and not copied; as tf.identity.",
    .min_inputs = 1,
    .max_inputs = 1,
    .flags = STG_OP_ROW_WISE | STG_OP_VIEWS,
    .infer = infer,
    .run = run,
    .launches = stg_launches_all,
};
