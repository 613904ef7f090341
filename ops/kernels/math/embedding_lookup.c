/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "ops/base/element.h"
#include "ops/kernels/math/elementwise.h"

static const struct stg_param params[] = {
    {.name = "combiner",
     .type = STG_PARAM_STRING,
     .preset = "none",
     .help = "sum, mean or sqrtn: the ids of a row become one; none: each is its own"},
    {.name = "weighted",
     .type = STG_PARAM_BOOL,
     .preset = "false",
     .help = "with a combiner: the last input has one weight an id"},
};

enum combiner { NONE, SUM, MEAN, SQRTN };

/* Adds up rows ids[0 .. n) of the table, weighted (weights NULL: by 1), and writes one.
 * sum: room for a row. */
typedef void (*combine_kernel)(enum combiner combiner, const void *table,
                               const int64_t *ids, const void *weights, int64_t n,
                               int64_t width, void *sum, void *out);

struct plan {
    enum combiner combiner;
    bool is_ragged, is_weighted;
    combine_kernel kernel;
};

#define ROOT(x) _Generic((x), float : sqrtf, double : sqrt)(x)

#define COMBINE(op, dtype, type, value, ring, load, store)                               \
    static void op##_##dtype(enum combiner combiner, const void *table,                  \
                             const int64_t *ids, const void *weights, int64_t n,         \
                             int64_t width, void *scratch, void *out)                    \
    {                                                                                    \
        value *restrict sum = scratch;                                                   \
        value total = 0, squares = 0;                                                    \
        memset(sum, 0, (size_t)width * sizeof(value));                                   \
        for (int64_t i = 0; i < n; i++) {                                                \
            const type *row = (const type *)table + ids[i] * width;                      \
            value weight =                                                               \
                weights != NULL ? (value)load(((const type *)weights)[i]) : 1;           \
            for (int64_t k = 0; k < width; k++)                                          \
                sum[k] += weight * (value)load(row[k]);                                  \
            total += weight;                                                             \
            squares += weight * weight;                                                  \
        }                                                                                \
        value by = combiner == MEAN ? total : combiner == SQRTN ? ROOT(squares) : 1;     \
        for (int64_t k = 0; k < width; k++)                                              \
            ((type *)out)[k] = (type)store((by == 0 ? 0 : sum[k] / by));                 \
    }

STG_EACH_FLOAT(COMBINE, combine)

/* ---- when the pipeline is applied ---- */

static int check_table(const struct stg_component *table, const struct stg_component *ids,
                       struct stg_err *err)
{
    if (stg_dtype_bytes(table->dtype) == 0 || table->ndim < 1)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "input \"%s\" is %s of rank %d; a table must have numbers and at "
                       "least one dimension",
                       table->name, stg_dtype_name(table->dtype), table->ndim);
    if (ids->dtype != STAGER_INT32 && ids->dtype != STAGER_INT64)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "input \"%s\" is %s; ids must be int32 or int64", ids->name,
                       stg_dtype_name(ids->dtype));
    if (ids->ndim + table->ndim - 1 > STG_MAX_DIMS)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "the result would have %d dimensions, more than %d",
                       ids->ndim + table->ndim - 1, STG_MAX_DIMS);
    return 0;
}

static int read_plan(struct stg_op_infer *ctx, struct plan *plan, struct stg_err *err)
{
    static const char *const names[] = {"none", "sum", "mean", "sqrtn"};
    static const combine_kernel kernels[STG_N_DTYPES] = {STG_FLOAT_KERNELS(combine)};
    const struct stg_node *node = ctx->node;
    const char *name = stg_attr_string(node->attrs, node->n_attrs, "combiner", "none");
    size_t which = 0;
    while (which < 4 && strcmp(names[which], name) != 0)
        which++;
    if (which == 4)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "combiner must be sum, mean, sqrtn or none, not \"%.64s\"", name);
    plan->combiner = (enum combiner)which;
    plan->is_weighted = stg_attr_bool(node->attrs, node->n_attrs, "weighted", false);
    plan->kernel = kernels[ctx->inputs[0].dtype];
    size_t n = ctx->n_inputs - plan->is_weighted;
    plan->is_ragged = n == 3;
    if (plan->combiner == NONE && ctx->n_inputs != 2)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "takes 2 inputs without a combiner, has %zu", ctx->n_inputs);
    if (plan->combiner != NONE && n != 3 && n != 4)
        return stg_err(
            err, -STAGER_INVALID_ARGUMENT,
            "with a combiner the inputs are a table, values and row_splits, or "
            "a table, values, indices and dense_shape%s; there are %zu",
            plan->is_weighted ? "; then weights" : "", ctx->n_inputs);
    if (plan->combiner != NONE && plan->kernel == NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "input \"%s\" is %s; a combiner takes a table of floats",
                       ctx->inputs[0].name, stg_dtype_name(ctx->inputs[0].dtype));
    return 0;
}

static int check_part(const struct stg_component *part, int dtype, int ndim,
                      const char *what, struct stg_err *err)
{
    if (part->dtype == dtype && part->ndim == ndim)
        return 0;
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "input \"%s\" is %s of rank %d; %s are %s of rank %d", part->name,
                   stg_dtype_name(part->dtype), part->ndim, what, stg_dtype_name(dtype),
                   ndim);
}

static int check_parts(const struct stg_op_infer *ctx, const struct plan *plan,
                       struct stg_err *err)
{
    const struct stg_component *inputs = ctx->inputs;
    int rc = check_part(&inputs[1], inputs[1].dtype, 1, "values", err);
    if (rc == 0 && plan->is_ragged)
        rc = check_part(&inputs[2], STAGER_INT64, 1, "row_splits", err);
    if (rc == 0 && !plan->is_ragged)
        rc = check_part(&inputs[2], STAGER_INT64, 2, "indices", err);
    if (rc == 0 && !plan->is_ragged)
        rc = check_part(&inputs[3], STAGER_INT64, 1, "the numbers of dense_shape", err);
    if (rc == 0 && plan->is_weighted)
        rc = check_part(&inputs[ctx->n_inputs - 1], inputs[0].dtype, 1, "weights", err);
    return rc;
}

static int64_t known_rows(const struct stg_op_infer *ctx, const struct plan *plan)
{
    if (plan->is_ragged)
        return ctx->inputs[2].shape[0] > 0 ? ctx->inputs[2].shape[0] - 1 : -1;
    const struct stg_tensor *shape = ctx->constants[3];
    return shape != NULL && stg_tensor_n(shape) > 0 ? ((const int64_t *)shape->data)[0]
                                                    : -1;
}

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_component *table = &ctx->inputs[0], *ids = &ctx->inputs[1];
    struct plan *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (plan == NULL || output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    int rc = check_table(table, ids, err);
    if (rc == 0)
        rc = read_plan(ctx, plan, err);
    if (rc == 0 && plan->combiner != NONE)
        rc = check_parts(ctx, plan, err);
    if (rc < 0)
        return rc;
    *output = *ids;
    if (plan->combiner != NONE)
        output->shape[0] = known_rows(ctx, plan);
    output->dtype = table->dtype;
    for (int d = 1; d < table->ndim; d++)
        output->shape[output->ndim++] = table->shape[d];
    ctx->plan = plan;
    return 0;
}

/* ---- each its own ---- */

static int out_of_range(const struct stg_tensor *ids, int64_t i, int64_t n_rows,
                        struct stg_err *err)
{
    return stg_err_row(err, -STAGER_INVALID_ARGUMENT, stg_tensor_row(ids, i),
                       "id %" PRId64 " (element %" PRId64
                       " of the ids) is not in [0, %" PRId64 ")",
                       stg_tensor_index(ids, i), i, n_rows);
}

static int run_each(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct stg_tensor *table = &ctx->inputs[0], *ids = &ctx->inputs[1];
    int64_t shape[STG_MAX_DIMS], n = stg_tensor_n(ids), n_rows = table->shape[0];
    int ndim = ids->ndim;
    memcpy(shape, ids->shape, sizeof(shape));
    size_t bytes = stg_dtype_bytes(table->dtype);
    for (int d = 1; d < table->ndim; d++) {
        shape[ndim++] = table->shape[d];
        bytes *= (size_t)table->shape[d];
    }
    struct stg_tensor output;
    int rc = ctx->alloc(ctx, 0, table->dtype, ndim, shape, 0, &output, err);
    if (rc < 0)
        return rc;
    char *to = output.data;
    for (int64_t i = 0; i < n; i++, to += bytes) {
        int64_t id = stg_tensor_index(ids, i);
        if (id < 0 || id >= n_rows)
            return out_of_range(ids, i, n_rows, err);
        memcpy(to, (const char *)table->data + (size_t)id * bytes, bytes);
    }
    return 0;
}

/* ---- one a row ---- */

/* row_splits, checked. */
static int read_splits(const struct stg_tensor *splits, int64_t n, struct stg_err *err)
{
    const int64_t *at = splits->data;
    int64_t n_rows = splits->shape[0] - 1;
    bool good = n_rows >= 0 && at[0] == 0 && at[n_rows] == n;
    for (int64_t i = 0; good && i < n_rows; i++)
        good = at[i] <= at[i + 1];
    return good ? 0
                : stg_err(err, -STAGER_INVALID_ARGUMENT,
                          "row_splits must begin with 0, never decrease, and end with "
                          "the %" PRId64 " values",
                          n);
}

/* Rows as row_splits, from indices that are in order. */
static int make_splits(struct stg_op_run *ctx, int64_t n, const int64_t **ret,
                       int64_t *ret_rows, struct stg_err *err)
{
    const struct stg_tensor *indices = &ctx->inputs[2], *shape = &ctx->inputs[3];
    if (indices->shape[0] != n || indices->shape[1] == 0 ||
        shape->shape[0] != indices->shape[1])
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "%" PRId64 " values have indices [%" PRId64 ", %" PRId64
                       "] and a dense_shape of rank %" PRId64,
                       n, indices->shape[0], indices->shape[1], shape->shape[0]);
    int64_t n_rows = ((const int64_t *)shape->data)[0], rank = indices->shape[1], row = 0;
    if (n_rows < 0 || n_rows >= INT64_MAX / 8)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "dense_shape has %" PRId64 " rows",
                       n_rows);
    int64_t *splits =
        stg_bump_alloc(ctx->scratch, ((size_t)n_rows + 1) * sizeof(*splits));
    if (splits == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "no memory for %" PRId64 " rows",
                       n_rows);
    for (int64_t i = 0; i < n; i++) {
        int64_t to = ((const int64_t *)indices->data)[i * rank];
        if (to < row || to >= n_rows)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "index %" PRId64 " is row %" PRId64 " of %" PRId64
                           ", after row %" PRId64,
                           i, to, n_rows, row);
        for (; row < to; row++)
            splits[row + 1] = i;
    }
    for (; row < n_rows; row++)
        splits[row + 1] = n;
    *ret = splits;
    *ret_rows = n_rows;
    return 0;
}

/* The values as int64, all of them rows of the table. */
static int read_ids(struct stg_op_run *ctx, const int64_t *splits, const int64_t **ret,
                    struct stg_err *err)
{
    const struct stg_tensor *values = &ctx->inputs[1];
    int64_t n = values->shape[0], n_rows = ctx->inputs[0].shape[0], row = 0;
    int64_t *ids = stg_bump_alloc_raw(ctx->scratch, (size_t)n * sizeof(*ids));
    if (ids == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (int64_t i = 0; i < n; i++) {
        ids[i] = stg_tensor_index(values, i);
        if (ids[i] >= 0 && ids[i] < n_rows)
            continue;
        while (splits[row + 1] <= i)
            row++;
        return stg_err_row(err, -STAGER_INVALID_ARGUMENT, row,
                           "id %" PRId64 " (value %" PRId64 ") is not in [0, %" PRId64
                           ")",
                           ids[i], i, n_rows);
    }
    *ret = ids;
    return 0;
}

static int check_weights(const struct stg_op_run *ctx, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    int64_t n = ctx->inputs[1].shape[0];
    if (plan->is_weighted && ctx->inputs[ctx->n_inputs - 1].shape[0] != n)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "there are %" PRId64 " weights for %" PRId64 " values",
                       ctx->inputs[ctx->n_inputs - 1].shape[0], n);
    return 0;
}

static int find_rows(struct stg_op_run *ctx, const int64_t **ret_splits,
                     int64_t *ret_rows, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    int64_t n = ctx->inputs[1].shape[0];
    int rc = check_weights(ctx, err);
    if (rc < 0)
        return rc;
    if (!plan->is_ragged)
        return make_splits(ctx, n, ret_splits, ret_rows, err);
    *ret_splits = ctx->inputs[2].data;
    *ret_rows = ctx->inputs[2].shape[0] - 1;
    return read_splits(&ctx->inputs[2], n, err);
}

static int run_combined(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    const struct stg_tensor *table = &ctx->inputs[0];
    const int64_t *splits = NULL, *ids = NULL;
    int64_t n_rows = 0, shape[STG_MAX_DIMS], width = 1;
    int rc = find_rows(ctx, &splits, &n_rows, err);
    if (rc == 0)
        rc = read_ids(ctx, splits, &ids, err);
    if (rc < 0)
        return rc;
    memcpy(shape, table->shape, sizeof(shape));
    shape[0] = n_rows;
    for (int d = 1; d < table->ndim; d++)
        width *= shape[d];
    size_t bytes = stg_dtype_bytes(table->dtype);
    void *sum = stg_bump_alloc_raw(ctx->scratch, (size_t)width * sizeof(double));
    if (sum == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    struct stg_tensor output;
    rc = ctx->alloc(ctx, 0, table->dtype, table->ndim, shape, 0, &output, err);
    const char *weights = plan->is_weighted ? ctx->inputs[ctx->n_inputs - 1].data : NULL;
    for (int64_t r = 0; rc == 0 && r < n_rows; r++)
        plan->kernel(plan->combiner, table->data, ids + splits[r],
                     weights != NULL ? weights + (size_t)splits[r] * bytes : NULL,
                     splits[r + 1] - splits[r], width, sum,
                     (char *)output.data + (size_t)(r * width) * bytes);
    return rc;
}

/* ---- on a device ---- */

/* The kernel goes where row_splits say, so these are checked where the host has them. */
static bool launches(const void *plan, const struct stg_component *inputs,
                     size_t n_inputs, uint64_t on_host)
{
    const struct plan *p = plan;
    static const combine_kernel floats[STG_N_DTYPES] = {STG_FLOAT_KERNELS(combine)};
    return floats[inputs[0].dtype] != NULL &&
           (p->combiner == NONE || (p->is_ragged && (on_host & 4) != 0));
}

static int launch(struct stg_op_run *ctx, struct stg_err *err)
{
    static const enum stg_kernel_combiner combiners[] = {
        [NONE] = STG_KERNEL_NONE,
        [SUM] = STG_KERNEL_SUM,
        [MEAN] = STG_KERNEL_MEAN,
        [SQRTN] = STG_KERNEL_SQRTN,
    };
    const struct plan *plan = ctx->plan;
    const struct stg_tensor *table = &ctx->inputs[0], *ids = &ctx->inputs[1];
    struct stg_kernel_lookup how = {.combiner = combiners[plan->combiner],
                                    .dtype = table->dtype,
                                    .ids_dtype = ids->dtype,
                                    .n = stg_tensor_n(ids),
                                    .width = 1,
                                    .n_table = table->shape[0],
                                    .table = table->data,
                                    .ids = ids->data,
                                    .bad = ctx->device->bad};
    int64_t shape[STG_MAX_DIMS];
    int ndim = ids->ndim;
    memcpy(shape, ids->shape, sizeof(shape));
    if (plan->combiner != NONE) {
        int rc = check_weights(ctx, err);
        if (rc == 0)
            rc = read_splits(&ctx->device->hosts[2], how.n, err);
        if (rc < 0)
            return rc;
        shape[0] = how.n = ctx->inputs[2].shape[0] - 1;
        how.splits = ctx->inputs[2].data;
        how.weights = plan->is_weighted ? ctx->inputs[ctx->n_inputs - 1].data : NULL;
    }
    for (int d = 1; d < table->ndim; d++) {
        shape[ndim++] = table->shape[d];
        how.width *= table->shape[d];
    }
    struct stg_tensor output;
    int rc = ctx->alloc(ctx, 0, table->dtype, ndim, shape, 0, &output, err);
    how.y = rc == 0 ? output.data : NULL;
    return rc < 0
               ? rc
               : ctx->device->kernels->embedding_lookup(ctx->device->stream, &how, err);
}

static int run(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    if (ctx->device != NULL)
        return launch(ctx, err);
    return plan->combiner == NONE ? run_each(ctx, err) : run_combined(ctx, err);
}

/* The ids. */
static uint64_t rows(const struct stg_op_run *ctx)
{
    return ((const struct plan *)ctx->plan)->combiner == NONE ? 2 : 0;
}

const struct stg_op stg_op_embedding_lookup = {
    .name = "embedding_lookup",
    .summary =
        "Rows of a table by their ids, or the sum, mean or sqrtn of those of a row; "
        "as tf.nn.embedding_lookup with one table and no max_norm, and "
        "tf.nn.safe_embedding_lookup_sparse.",
    STG_PARAMS(params),
    .min_inputs = 2,
    .max_inputs = 5,
    .infer = infer,
    .run = run,
    .rows = rows,
    .launches = launches,
};
