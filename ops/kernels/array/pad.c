/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "ops/base/element.h"
#include "ops/base/move.h"

static const struct stg_param params[] = {
    {.name = "paddings",
     .type = STG_PARAM_VALUES,
     .required = true,
     .help = "one [before, after] a dimension"},
    {.name = "mode",
     .type = STG_PARAM_STRING,
     .preset = "CONSTANT",
     .help = "CONSTANT, REFLECT or SYMMETRIC"},
    {.name = "constant_values",
     .type = STG_PARAM_VALUES,
     .preset = "0",
     .help = "what CONSTANT pads with: one value"},
};

enum mode { CONSTANT, REFLECT, SYMMETRIC };

struct plan {
    enum mode mode;
    int64_t before[STG_MAX_DIMS], after[STG_MAX_DIMS];
    uint64_t fill; /* an element */
    const char *text;
    size_t text_bytes;
};

static int read_mode(const struct stg_node *node, struct plan *plan, struct stg_err *err)
{
    static const char *const modes[] = {"CONSTANT", "REFLECT", "SYMMETRIC"};
    const char *mode = stg_attr_string(node->attrs, node->n_attrs, "mode", modes[0]);
    for (int i = 0; i < 3; i++) {
        if (strcasecmp(mode, modes[i]) == 0) {
            plan->mode = (enum mode)i;
            return 0;
        }
    }
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "mode must be CONSTANT, REFLECT or SYMMETRIC, not \"%.64s\"", mode);
}

static int read_fill(const struct stg_node *node, int dtype, struct plan *plan,
                     struct stg_err *err)
{
    const struct stg_attr *fill =
        stg_attr_find(node->attrs, node->n_attrs, "constant_values");
    plan->text = "";
    if (fill == NULL)
        return 0;
    const struct stg_value *value = fill->values;
    if (fill->n_values != 1 ||
        (dtype == STAGER_STRING && value->kind != STG_VALUE_STRING))
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "constant_values must be one %s",
                       stg_dtype_name(dtype));
    if (dtype == STAGER_STRING) {
        plan->text = value->s;
        plan->text_bytes = value->s_bytes;
        return 0;
    }
    int rc = stg_literal_store(value, dtype, &plan->fill, 0, err);
    return rc < 0 ? stg_err_prefix(err, rc, "constant_values") : 0;
}

static int read_paddings(const struct stg_node *node, int ndim, struct plan *plan,
                         struct stg_err *err)
{
    const struct stg_attr *pads = stg_attr_find(node->attrs, node->n_attrs, "paddings");
    bool good = pads->n_values == 2 * (size_t)ndim &&
                (ndim == 0 || (pads->ndim == 2 && pads->shape[1] == 2));
    for (size_t i = 0; good && i < pads->n_values; i++) {
        good = pads->values[i].kind == STG_VALUE_INT && pads->values[i].i >= 0 &&
               pads->values[i].i <= INT32_MAX;
        *(i % 2 == 0 ? &plan->before[i / 2] : &plan->after[i / 2]) = pads->values[i].i;
    }
    if (!good)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "paddings must be one [before, after] for each of the %d "
                       "dimensions, none negative",
                       ndim);
    return 0;
}

/* A mirror has something to show only where there are elements. */
static int check_dim(const struct plan *plan, int d, int64_t dim, struct stg_err *err)
{
    int64_t most = plan->mode == REFLECT ? dim - 1 : dim;
    int64_t wanted = plan->before[d] > plan->after[d] ? plan->before[d] : plan->after[d];
    if (plan->mode == CONSTANT || dim < 0 || wanted <= most)
        return 0;
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "paddings of dimension %d mirror %" PRId64
                   " elements, there are %" PRId64,
                   d, wanted, most < 0 ? 0 : most);
}

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_component *input = &ctx->inputs[0];
    struct plan *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (plan == NULL || output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    int rc = read_mode(ctx->node, plan, err);
    if (rc == 0)
        rc = read_fill(ctx->node, input->dtype, plan, err);
    if (rc == 0)
        rc = read_paddings(ctx->node, input->ndim, plan, err);
    *output = *input;
    for (int d = 0; rc == 0 && d < input->ndim; d++) {
        rc = check_dim(plan, d, input->shape[d], err);
        if (input->shape[d] >= 0)
            output->shape[d] += plan->before[d] + plan->after[d];
    }
    ctx->plan = plan;
    return rc;
}

/* REFLECT leaves the edge out of the mirror, SYMMETRIC shows it. */
static int mirror(struct stg_op_run *ctx, int d, int64_t dim, int64_t stride,
                  struct stg_move_dim *ret, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    int64_t edge = plan->mode == REFLECT ? 0 : 1;
    ret->n = plan->before[d] + dim + plan->after[d];
    int64_t *table = stg_bump_alloc_raw(ctx->scratch, (size_t)ret->n * sizeof(*table));
    if (table == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (int64_t i = 0; i < ret->n; i++) {
        int64_t from = i - plan->before[d];
        if (from < 0)
            from = -from - edge;
        else if (from >= dim)
            from = 2 * dim - 2 - from + edge;
        table[i] = from * stride;
    }
    ret->table = table;
    return 0;
}

static int run(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    const struct stg_tensor *input = &ctx->inputs[0];
    struct stg_move move = {.ndim = input->ndim,
                            .fill = &plan->fill,
                            .text = plan->text,
                            .text_bytes = plan->text_bytes};
    int64_t strides[STG_MAX_DIMS];
    stg_move_strides(input, strides);
    for (int d = 0; d < input->ndim; d++) {
        struct stg_move_dim *dim = &move.dims[d];
        int rc = check_dim(plan, d, input->shape[d], err);
        bool padded = plan->before[d] + plan->after[d] > 0;
        dim->stride = strides[d];
        dim->n = input->shape[d];
        if (rc == 0 && plan->mode != CONSTANT && padded) {
            rc = mirror(ctx, d, input->shape[d], strides[d], dim, err);
        } else {
            dim->n += plan->before[d] + plan->after[d];
            dim->before = plan->before[d];
            dim->after = plan->after[d];
        }
        if (rc < 0)
            return rc;
    }
    return stg_move_run(ctx, 0, input, &move, err);
}

const struct stg_op stg_op_pad = {
    .name = "pad",
    .summary = "More elements around a tensor: a constant, or its mirror; as tf.pad.",
    STG_PARAMS(params),
    .min_inputs = 1,
    .max_inputs = 1,
    .infer = infer,
    .run = run,
};
