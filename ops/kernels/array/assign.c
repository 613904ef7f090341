/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops that write a variable. The output is the variable itself.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ops/base/element.h"
#include "ops/kernels/math/elementwise.h"

typedef void (*add_kernel)(void *variable, const void *value, int64_t n);

#define ADD(op, dtype, type, value_type, ring, load, store)                              \
    static void op##_##dtype(void *variable, const void *value, int64_t n)               \
    {                                                                                    \
        type *to = variable;                                                             \
        const type *from = value;                                                        \
        STG_SAME_OR_APART                                                                \
        for (int64_t i = 0; i < n; i++)                                                  \
            to[i] = (type)store(((ring)load(to[i]) + (ring)load(from[i])));              \
    }

STG_EACH_NUMBER(ADD, add)

static const add_kernel add_kernels[STG_N_DTYPES] = {STG_NUMBER_KERNELS(add)};

static int is_another(const struct stg_component *value, const char *wanted,
                      struct stg_err *err)
{
    char shape[128];
    return stg_err(
        err, -STAGER_INVALID_ARGUMENT, "input \"%s\" is %s %s; the variable is %s",
        value->name, stg_dtype_name(value->dtype),
        stg_shape_text(value->shape, value->ndim, shape, sizeof(shape)), wanted);
}

/* Output 0 is input 0. */
static int variable_output(struct stg_op_infer *ctx, struct stg_err *err)
{
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    *output = ctx->inputs[0];
    return 0;
}

static int check_number(const struct stg_component *variable, struct stg_err *err)
{
    if (add_kernels[variable->dtype] != NULL)
        return 0;
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "variable \"%s\" is %s, which cannot be added to", variable->name,
                   stg_dtype_name(variable->dtype));
}

static int infer_assign(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_component *variable = &ctx->inputs[0], *value = &ctx->inputs[1];
    char shape[128], wanted[192];
    snprintf(wanted, sizeof(wanted), "%s %s", stg_dtype_name(variable->dtype),
             stg_shape_text(variable->shape, variable->ndim, shape, sizeof(shape)));
    return stg_component_fits(value, variable) ? variable_output(ctx, err)
                                               : is_another(value, wanted, err);
}

static int infer_assign_add(struct stg_op_infer *ctx, struct stg_err *err)
{
    int rc = check_number(&ctx->inputs[0], err);
    return rc < 0 ? rc : infer_assign(ctx, err);
}

/* Dimensions that were not known when the pipeline was applied. */
static int check_shape(const struct stg_tensor *value, int ndim, const int64_t *wanted,
                       struct stg_err *err)
{
    char got[128], want[128];
    if (value->ndim == ndim &&
        memcmp(value->shape, wanted, (size_t)ndim * sizeof(*wanted)) == 0)
        return 0;
    return stg_err(err, -STAGER_INVALID_ARGUMENT, "the value is %s, but must be %s",
                   stg_shape_text(value->shape, value->ndim, got, sizeof(got)),
                   stg_shape_text(wanted, ndim, want, sizeof(want)));
}

static int run_assign(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct stg_tensor *variable = &ctx->inputs[0], *value = &ctx->inputs[1];
    int rc = check_shape(value, variable->ndim, variable->shape, err);
    if (rc < 0)
        return rc;
    memmove(variable->data, value->data,
            (size_t)stg_tensor_n(variable) * stg_dtype_bytes(variable->dtype));
    return ctx->view(ctx, 0, variable, err);
}

static int run_assign_add(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct stg_tensor *variable = &ctx->inputs[0], *value = &ctx->inputs[1];
    int rc = check_shape(value, variable->ndim, variable->shape, err);
    if (rc < 0)
        return rc;
    add_kernels[variable->dtype](variable->data, value->data, stg_tensor_n(variable));
    return ctx->view(ctx, 0, variable, err);
}

/* ---- scatter_add ---- */

static int infer_scatter(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_component *variable = &ctx->inputs[0], *indices = &ctx->inputs[1],
                               *updates = &ctx->inputs[2];
    int rc = check_number(variable, err);
    if (rc < 0)
        return rc;
    if (variable->ndim == 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "variable \"%s\" is a scalar and has no rows", variable->name);
    if (indices->dtype != STAGER_INT32 && indices->dtype != STAGER_INT64)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "input \"%s\" is %s; indices must be int32 or int64",
                       indices->name, stg_dtype_name(indices->dtype));
    int ndim = indices->ndim + variable->ndim - 1;
    if (ndim > STG_MAX_DIMS)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "the updates would have %d dimensions, more than %d", ndim,
                       STG_MAX_DIMS);
    struct stg_component wanted = *indices;
    wanted.dtype = variable->dtype;
    wanted.ndim = ndim;
    for (int d = 1; d < variable->ndim; d++)
        wanted.shape[indices->ndim + d - 1] = variable->shape[d];
    if (!stg_component_fits(updates, &wanted)) {
        char shape[128], text[192];
        snprintf(text, sizeof(text), "%s, its updates here %s",
                 stg_dtype_name(variable->dtype),
                 stg_shape_text(wanted.shape, ndim, shape, sizeof(shape)));
        return is_another(updates, text, err);
    }
    return variable_output(ctx, err);
}

/* All of them before anything is written. */
static int check_indices(const struct stg_tensor *indices, int64_t n_rows,
                         struct stg_err *err)
{
    int64_t n = stg_tensor_n(indices);
    for (int64_t i = 0; i < n; i++) {
        int64_t index = stg_tensor_index(indices, i);
        if (index < 0 || index >= n_rows)
            return stg_err_row(err, -STAGER_INVALID_ARGUMENT, stg_tensor_row(indices, i),
                               "index %" PRId64 " (element %" PRId64
                               ") is not in [0, %" PRId64 ")",
                               index, i, n_rows);
    }
    return 0;
}

static int run_scatter(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct stg_tensor *variable = &ctx->inputs[0], *indices = &ctx->inputs[1],
                            *updates = &ctx->inputs[2];
    int64_t shape[STG_MAX_DIMS], row = 1, n = stg_tensor_n(indices);
    memcpy(shape, indices->shape, sizeof(shape));
    for (int d = 1; d < variable->ndim; d++) {
        shape[indices->ndim + d - 1] = variable->shape[d];
        row *= variable->shape[d];
    }
    int rc = check_shape(updates, indices->ndim + variable->ndim - 1, shape, err);
    if (rc == 0)
        rc = check_indices(indices, variable->shape[0], err);
    if (rc < 0)
        return rc;
    size_t bytes = (size_t)row * stg_dtype_bytes(variable->dtype);
    const char *from = updates->data;
    for (int64_t i = 0; i < n; i++, from += bytes)
        add_kernels[variable->dtype]((char *)variable->data +
                                         (size_t)stg_tensor_index(indices, i) * bytes,
                                     from, row);
    return ctx->view(ctx, 0, variable, err);
}

#define FLAGS (STG_OP_STATEFUL | STG_OP_VIEWS)

const struct stg_op stg_op_assign = {
    .name = "assign",
    .summary = "The variable becomes the value; as tf.compat.v1.assign.",
    .min_inputs = 2,
    .max_inputs = 2,
    .flags = FLAGS,
    .infer = infer_assign,
    .run = run_assign,
};

const struct stg_op stg_op_assign_add = {
    .name = "assign_add",
    .summary = "The value is added to the variable; as tf.compat.v1.assign_add.",
    .min_inputs = 2,
    .max_inputs = 2,
    .flags = FLAGS,
    .infer = infer_assign_add,
    .run = run_assign_add,
};

const struct stg_op stg_op_scatter_add = {
    .name = "scatter_add",
    .summary = "Each update is added to the row of its index, one after the other; as "
               "tf.compat.v1.scatter_add.",
    .min_inputs = 3,
    .max_inputs = 3,
    .flags = FLAGS,
    .infer = infer_scatter,
    .run = run_scatter,
};
