/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "ops/op.h"

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_component *table = &ctx->inputs[0], *ids = &ctx->inputs[1];
    if (stg_dtype_bytes(table->dtype) == 0 || table->ndim < 1)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "input \"%s\" is %s of rank %d; a table has numbers and at least "
                       "one dimension",
                       table->name, stg_dtype_name(table->dtype), table->ndim);
    if (ids->dtype != STAGER_INT32 && ids->dtype != STAGER_INT64)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "input \"%s\" is %s; ids are int32 or int64", ids->name,
                       stg_dtype_name(ids->dtype));
    if (ids->ndim + table->ndim - 1 > STG_MAX_DIMS)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "the result would have %d dimensions, more than %d",
                       ids->ndim + table->ndim - 1, STG_MAX_DIMS);
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    *output = *ids;
    output->dtype = table->dtype;
    for (int d = 1; d < table->ndim; d++)
        output->shape[output->ndim++] = table->shape[d];
    return 0;
}

static int64_t id_at(const struct stg_tensor *ids, int64_t i)
{
    return ids->dtype == STAGER_INT32 ? ((const int32_t *)ids->data)[i]
                                      : ((const int64_t *)ids->data)[i];
}

static int out_of_range(const struct stg_tensor *ids, int64_t i, int64_t n_rows,
                        struct stg_err *err)
{
    int64_t n = stg_tensor_n(ids);
    int64_t row = ids->ndim > 0 ? i / (n / ids->shape[0]) : -1;
    return stg_err_row(err, -STAGER_INVALID_ARGUMENT, row,
                       "id %" PRId64 " (element %" PRId64
                       " of the ids) is not in [0, %" PRId64 ")",
                       id_at(ids, i), i, n_rows);
}

static int run(struct stg_op_run *ctx, struct stg_err *err)
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
        int64_t id = id_at(ids, i);
        if (id < 0 || id >= n_rows)
            return out_of_range(ids, i, n_rows, err);
        memcpy(to, (const char *)table->data + (size_t)id * bytes, bytes);
    }
    return 0;
}

/* The ids. */
static uint64_t rows(const struct stg_op_run *ctx)
{
    return 2;
}

const struct stg_op stg_op_embedding_lookup = {
    .name = "embedding_lookup",
    .summary = "Rows of a table by their ids; as tf.nn.embedding_lookup with one table "
               "and no max_norm.",
    .min_inputs = 2,
    .max_inputs = 2,
    .infer = infer,
    .run = run,
    .rows = rows,
};
