/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <time.h>

#include "ops/base/op.h"

#define MAX_MICROSECONDS 60000000

static const struct stg_param params[] = {
    {.name = "sleep_microseconds",
     .type = STG_PARAM_INT,
     .max = MAX_MICROSECONDS,
     .preset = "0",
     .help = "how long the op takes"},
};

struct plan {
    int64_t microseconds;
};

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_node *node = ctx->node;
    if (ctx->n_inputs == 2 && ctx->inputs[1].dtype != STAGER_INT64)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "input \"%s\" is %s; microseconds must be int64",
                       ctx->inputs[1].name, stg_dtype_name(ctx->inputs[1].dtype));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    struct plan *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    if (output == NULL || plan == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    plan->microseconds =
        stg_attr_int(node->attrs, node->n_attrs, "sleep_microseconds", 0);
    *output = ctx->inputs[0];
    ctx->plan = plan;
    return 0;
}

/* The attribute and the sum of the second input. */
static int total(const struct stg_op_run *ctx, int64_t *ret, struct stg_err *err)
{
    int64_t microseconds = ((const struct plan *)ctx->plan)->microseconds;
    const struct stg_tensor *more = ctx->n_inputs == 2 ? &ctx->inputs[1] : NULL;
    int64_t n = more != NULL ? stg_tensor_n(more) : 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t value = ((const int64_t *)more->data)[i];
        if (value < 0 || value > MAX_MICROSECONDS - microseconds)
            return stg_err_row(err, -STAGER_INVALID_ARGUMENT, more->ndim > 0 ? i : -1,
                               "%lld microseconds: the total must be 0 to %d",
                               (long long)value, MAX_MICROSECONDS);
        microseconds += value;
    }
    *ret = microseconds;
    return 0;
}

static int run(struct stg_op_run *ctx, struct stg_err *err)
{
    int64_t microseconds = 0;
    int rc = total(ctx, &microseconds, err);
    if (rc < 0)
        return rc;
    struct timespec left = {.tv_sec = microseconds / 1000000,
                            .tv_nsec = microseconds % 1000000 * 1000};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
        ;
    return ctx->view(ctx, 0, &ctx->inputs[0], err);
}

const struct stg_op stg_op_sleep = {
    .name = "sleep",
    .summary = "The first input, after a while; as tf.data.experimental.sleep. For "
               "stages that are emulated.",
    STG_PARAMS(params),
    .min_inputs = 1,
    .max_inputs = 2,
    .flags = STG_OP_EACH_BATCH | STG_OP_VIEWS,
    .infer = infer,
    .run = run,
};
