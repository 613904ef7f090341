/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>

#include "ops/base/element.h"
#include "ops/base/op.h"

static const struct stg_param params[] = {
    {.name = "code",
     .type = STG_PARAM_STRING,
     .preset = "INVALID_ARGUMENT",
     .help = "the status code of the error"},
    {.name = "message", .type = STG_PARAM_STRING, .help = "the text of the error"},
};

struct plan {
    int code;
    const char *message;
};

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_node *node = ctx->node;
    const struct stg_component *condition = &ctx->inputs[0];
    if (condition->dtype != STAGER_BOOL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "input \"%s\" is %s; the condition must be bool", condition->name,
                       stg_dtype_name(condition->dtype));
    const char *name =
        stg_attr_string(node->attrs, node->n_attrs, "code", "INVALID_ARGUMENT");
    int code = stg_status_from_name(name);
    if (code <= 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "code: \"%s\" is not the status code of an error", name);
    struct stg_component *outputs = stg_op_outputs(ctx, ctx->n_inputs - 1);
    struct plan *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    if (outputs == NULL || plan == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (size_t i = 0; i + 1 < ctx->n_inputs; i++)
        outputs[i] = ctx->inputs[i + 1];
    plan->code = code;
    plan->message = stg_attr_string(node->attrs, node->n_attrs, "message", "");
    ctx->plan = plan;
    return 0;
}

static int run(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    const struct stg_tensor *condition = &ctx->inputs[0];
    int64_t n = stg_tensor_n(condition);
    for (int64_t i = 0; i < n; i++) {
        if (!((const uint8_t *)condition->data)[i])
            return stg_err_row(err, -plan->code, stg_tensor_row(condition, i),
                               "assertion failed%s%s",
                               plan->message[0] != '\0' ? ": " : "", plan->message);
    }
    for (size_t i = 0; i + 1 < ctx->n_inputs; i++) {
        int rc = ctx->view(ctx, i, &ctx->inputs[i + 1], err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

const struct stg_op stg_op_assert = {
    .name = "assert",
    .summary = "Inputs from the second on, unchanged, where all of the first is true; "
               "else an error; as tf.debugging.Assert.",
    STG_PARAMS(params),
    .min_inputs = 2,
    .max_inputs = -1,
    .flags = STG_OP_VIEWS | STG_OP_STAYS,
    .infer = infer,
    .run = run,
};
