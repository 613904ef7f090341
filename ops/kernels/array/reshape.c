/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "ops/base/move.h"

/* All three are views: the elements stay where they are. */
struct plan {
    int ndim;
    int64_t shape[STG_MAX_DIMS]; /* reshape: as written */
    int axis;                    /* expand_dims */
    uint32_t squeezed;           /* squeeze: bit d is dimension d */
};

static int prepare(struct stg_op_infer *ctx, struct plan **ret_plan,
                   struct stg_component **ret_output, struct stg_err *err)
{
    *ret_plan = stg_bump_alloc(ctx->bump, sizeof(**ret_plan));
    *ret_output = stg_op_outputs(ctx, 1);
    if (*ret_plan == NULL || *ret_output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    (*ret_output)->dtype = ctx->inputs[0].dtype;
    ctx->plan = *ret_plan;
    return 0;
}

/* ---- reshape ---- */

static const struct stg_param reshape_params[] = {
    {.name = "shape",
     .type = STG_PARAM_INTS,
     .required = true,
     .min = -1,
     .max = INT64_MAX,
     .help = "the new shape; one dimension may be -1: what is left"},
};

/* Replaces -1 by what n elements leave for it. */
static int solve(int64_t n, int ndim, int64_t *shape, struct stg_err *err)
{
    int64_t known = 1;
    int open = -1;
    for (int d = 0; d < ndim; d++) {
        if (shape[d] < 0)
            open = d;
        else if (__builtin_mul_overflow(known, shape[d], &known))
            return stg_err(err, -STAGER_INVALID_ARGUMENT, "shape has too many elements");
    }
    if (open >= 0 && known > 0 && n % known == 0)
        shape[open] = n / known;
    else if (open >= 0 || n != known) {
        char text[128];
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "%" PRId64 " elements cannot have the shape %s", n,
                       stg_shape_text(shape, ndim, text, sizeof(text)));
    }
    return 0;
}

static int infer_reshape(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_attr *shape =
        stg_attr_find(ctx->node->attrs, ctx->node->n_attrs, "shape");
    struct plan *plan;
    struct stg_component *output;
    int rc = prepare(ctx, &plan, &output, err);
    if (rc < 0)
        return rc;
    if (shape->n_values > STG_MAX_DIMS)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "shape has more than %d dims",
                       STG_MAX_DIMS);
    int n_open = 0;
    plan->ndim = (int)shape->n_values;
    for (int d = 0; d < plan->ndim; d++) {
        plan->shape[d] = shape->values[d].i;
        n_open += plan->shape[d] < 0;
    }
    if (n_open > 1)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "shape has more than one -1");
    output->ndim = plan->ndim;
    memcpy(output->shape, plan->shape, sizeof(plan->shape));
    int64_t n = 1;
    for (int d = 0; d < ctx->inputs[0].ndim; d++) {
        int64_t dim = ctx->inputs[0].shape[d];
        if (dim < 0 || n < 0 || __builtin_mul_overflow(n, dim, &n))
            n = -1;
    }
    return n < 0 ? 0 : solve(n, output->ndim, output->shape, err);
}

static int run_reshape(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    struct stg_tensor view = ctx->inputs[0];
    int64_t n = stg_tensor_n(&view);
    view.ndim = plan->ndim;
    memcpy(view.shape, plan->shape, sizeof(plan->shape));
    int rc = solve(n, view.ndim, view.shape, err);
    return rc < 0 ? rc : ctx->view(ctx, 0, &view, err);
}

/* ---- expand_dims ---- */

static const struct stg_param expand_params[] = {
    {.name = "axis",
     .type = STG_PARAM_INT,
     .required = true,
     .help = "where the new dimension goes; negative counts from the last"},
};

static int infer_expand(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_component *input = &ctx->inputs[0];
    struct plan *plan;
    struct stg_component *output;
    int rc = prepare(ctx, &plan, &output, err);
    if (rc < 0)
        return rc;
    if (input->ndim == STG_MAX_DIMS)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "the input already has the maximum of %d dimensions",
                       STG_MAX_DIMS);
    rc = stg_move_axis(ctx->node, "axis", 0, input->ndim + 1, &plan->axis, err);
    if (rc < 0)
        return rc;
    output->ndim = input->ndim + 1;
    for (int d = 0; d < output->ndim; d++)
        output->shape[d] = d == plan->axis ? 1 : input->shape[d - (d > plan->axis)];
    return 0;
}

static int run_expand(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    const struct stg_tensor *input = &ctx->inputs[0];
    struct stg_tensor view = *input;
    view.ndim = input->ndim + 1;
    for (int d = 0; d < view.ndim; d++)
        view.shape[d] = d == plan->axis ? 1 : input->shape[d - (d > plan->axis)];
    return ctx->view(ctx, 0, &view, err);
}

/* ---- squeeze ---- */

static const struct stg_param squeeze_params[] = {
    {.name = "axis",
     .type = STG_PARAM_VALUES,
     .help = "dimensions of 1 to take out, an integer or a list; default: all of 1"},
};

static int squeezed_dims(const struct stg_node *node, const struct stg_component *input,
                         uint32_t *ret, struct stg_err *err)
{
    const struct stg_attr *axis = stg_attr_find(node->attrs, node->n_attrs, "axis");
    size_t n = axis != NULL ? axis->n_values : 0;
    *ret = 0;
    for (size_t i = 0; i < n; i++) {
        int64_t d = axis->values[i].i;
        if (axis->values[i].kind != STG_VALUE_INT || d < -input->ndim || d >= input->ndim)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "axis must hold integers in [%d, %d)", -input->ndim,
                           input->ndim);
        *ret |= 1u << (d < 0 ? d + input->ndim : d);
    }
    for (int d = 0; n == 0 && d < input->ndim; d++) {
        if (input->shape[d] < 0)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "the size of dimension %d is not known before the batch; name "
                           "the dimensions in axis",
                           d);
        *ret |= input->shape[d] == 1 ? 1u << d : 0;
    }
    return 0;
}

static int squeeze(const int64_t *from, int ndim, uint32_t squeezed, int64_t *to,
                   int *ret_ndim, struct stg_err *err)
{
    int n = 0;
    for (int d = 0; d < ndim; d++) {
        if ((squeezed >> d & 1) == 0)
            to[n++] = from[d];
        else if (from[d] >= 0 && from[d] != 1)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "dimension %d is %" PRId64 ", not 1", d, from[d]);
    }
    *ret_ndim = n;
    return 0;
}

static int infer_squeeze(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_component *input = &ctx->inputs[0];
    struct plan *plan;
    struct stg_component *output;
    int rc = prepare(ctx, &plan, &output, err);
    if (rc == 0)
        rc = squeezed_dims(ctx->node, input, &plan->squeezed, err);
    if (rc < 0)
        return rc;
    return squeeze(input->shape, input->ndim, plan->squeezed, output->shape,
                   &output->ndim, err);
}

static int run_squeeze(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    const struct stg_tensor *input = &ctx->inputs[0];
    struct stg_tensor view = *input;
    int rc =
        squeeze(input->shape, input->ndim, plan->squeezed, view.shape, &view.ndim, err);
    return rc < 0 ? rc : ctx->view(ctx, 0, &view, err);
}

const struct stg_op stg_op_reshape = {
    .name = "reshape",
    .summary = "The same elements in another shape, not copied; as tf.reshape.",
    STG_PARAMS(reshape_params),
    .min_inputs = 1,
    .max_inputs = 1,
    .flags = STG_OP_VIEWS,
    .infer = infer_reshape,
    .run = run_reshape,
    .launches = stg_launches_all,
};

const struct stg_op stg_op_expand_dims = {
    .name = "expand_dims",
    .summary = "One dimension of 1 more, not copied; as tf.expand_dims.",
    STG_PARAMS(expand_params),
    .min_inputs = 1,
    .max_inputs = 1,
    .flags = STG_OP_VIEWS,
    .infer = infer_expand,
    .run = run_expand,
    .launches = stg_launches_all,
};

const struct stg_op stg_op_squeeze = {
    .name = "squeeze",
    .summary = "Without dimensions of 1, not copied; as tf.squeeze.",
    STG_PARAMS(squeeze_params),
    .min_inputs = 1,
    .max_inputs = 1,
    .flags = STG_OP_VIEWS,
    .infer = infer_squeeze,
    .run = run_squeeze,
    .launches = stg_launches_all,
};
