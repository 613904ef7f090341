/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/base/join.h"

#include <string.h>

int stg_join_check(const struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_component *first = &ctx->inputs[0];
    for (size_t i = 1; i < ctx->n_inputs; i++) {
        const struct stg_component *other = &ctx->inputs[i];
        if (other->dtype != first->dtype)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "input \"%s\" is %s, input \"%s\" is %s; cast one",
                           first->name, stg_dtype_name(first->dtype), other->name,
                           stg_dtype_name(other->dtype));
        if (other->ndim != first->ndim)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "input \"%s\" has %d dimensions, input \"%s\" has %d",
                           first->name, first->ndim, other->name, other->ndim);
    }
    return 0;
}

int stg_join_axis(const struct stg_node *node, int rank, int *ret, struct stg_err *err)
{
    int64_t axis = stg_attr_int(node->attrs, node->n_attrs, "axis", 0);
    if (axis < -rank || axis >= rank)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "axis %lld is not in [%d, %d)",
                       (long long)axis, -rank, rank);
    *ret = (int)(axis < 0 ? axis + rank : axis);
    return 0;
}

bool stg_join_merge(int64_t *into, int64_t dim)
{
    if (*into < 0)
        *into = dim;
    return dim < 0 || *into == dim;
}

static uint64_t all_string_bytes(const struct stg_op_run *ctx)
{
    uint64_t bytes = 0;
    for (size_t k = 0; k < ctx->n_inputs; k++) {
        const struct stg_tensor *input = &ctx->inputs[k];
        int64_t n = stg_tensor_n(input);
        bool gaps = input->end != input->begin + 1;
        if (n > 0 && !gaps)
            bytes += (uint64_t)(input->end[n - 1] - input->begin[0]);
        for (int64_t i = 0; i < n && gaps; i++)
            bytes += (uint64_t)(input->end[i] - input->begin[i]);
    }
    return bytes;
}

/* One input while it is read: the next string, and how many go into one outer row. */
struct source {
    const char *data;
    const int64_t *begin, *end;
    int64_t n;
};

static struct source *open_sources(const struct stg_op_run *ctx, int64_t n_outer)
{
    struct source *ret = stg_bump_alloc(ctx->scratch, ctx->n_inputs * sizeof(*ret));
    for (size_t k = 0; k < ctx->n_inputs && ret != NULL; k++) {
        const struct stg_tensor *input = &ctx->inputs[k];
        ret[k] = (struct source){.data = input->data,
                                 .begin = input->begin,
                                 .end = input->end,
                                 .n = stg_tensor_n(input) / n_outer};
    }
    return ret;
}

/* Eight bytes are the common case of hashed features: no call of memcpy for each. */
static int join_strings(const struct stg_op_run *ctx, int64_t n_outer,
                        const struct stg_tensor *output, struct stg_err *err)
{
    struct source *sources = open_sources(ctx, n_outer);
    if (sources == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    char *to = output->data;
    int64_t *end = (int64_t *)(uintptr_t)output->end;
    for (int64_t outer = 0; outer < n_outer; outer++) {
        for (size_t k = 0; k < ctx->n_inputs; k++) {
            struct source *source = &sources[k];
            for (int64_t i = 0; i < source->n; i++) {
                const char *from = source->data + *source->begin;
                size_t bytes = (size_t)(*source->end++ - *source->begin++);
                if (bytes == 8)
                    memcpy(to, from, 8);
                else
                    memcpy(to, from, bytes);
                to += bytes;
                *end++ = to - (char *)output->data;
            }
        }
    }
    return 0;
}

/* Pieces of one element are the common case of stack: no call of memcpy for each. */
static void join_dense(const struct stg_op_run *ctx, int64_t n_outer,
                       const struct stg_tensor *output)
{
    size_t element = stg_dtype_bytes(output->dtype);
    size_t row = (size_t)(stg_tensor_n(output) / n_outer) * element, at = 0;
    for (size_t k = 0; k < ctx->n_inputs; k++) {
        const struct stg_tensor *input = &ctx->inputs[k];
        size_t piece = (size_t)(stg_tensor_n(input) / n_outer) * element;
        const char *from = input->data;
        char *to = (char *)output->data + at;
        at += piece;
        if (piece == 4) {
            for (int64_t outer = 0; outer < n_outer; outer++, from += 4, to += row)
                memcpy(to, from, 4);
        } else if (piece == 8) {
            for (int64_t outer = 0; outer < n_outer; outer++, from += 8, to += row)
                memcpy(to, from, 8);
        } else if (piece > 0) {
            for (int64_t outer = 0; outer < n_outer; outer++, from += piece, to += row)
                memcpy(to, from, piece);
        }
    }
}

static int join_on_device(const struct stg_op_run *ctx, int64_t n_outer,
                          const struct stg_tensor *output, struct stg_err *err)
{
    const void **x = stg_bump_alloc(ctx->scratch, ctx->n_inputs * sizeof(*x));
    size_t *bytes = stg_bump_alloc(ctx->scratch, ctx->n_inputs * sizeof(*bytes));
    if (x == NULL || bytes == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (size_t k = 0; k < ctx->n_inputs; k++) {
        const struct stg_tensor *input = &ctx->inputs[k];
        x[k] = input->data;
        bytes[k] =
            (size_t)(stg_tensor_n(input) / n_outer) * stg_dtype_bytes(input->dtype);
    }
    return ctx->device->kernels->concat(ctx->device->stream, output->data, x, bytes,
                                        ctx->n_inputs, (size_t)n_outer, err);
}

int stg_join(struct stg_op_run *ctx, int64_t n_outer, int ndim, const int64_t *shape,
             struct stg_err *err)
{
    int dtype = ctx->inputs[0].dtype;
    bool strings = dtype == STAGER_STRING;
    uint64_t string_bytes = strings ? all_string_bytes(ctx) : 0;
    struct stg_tensor output;
    int rc = ctx->alloc(ctx, 0, dtype, ndim, shape, string_bytes, &output, err);
    if (rc < 0)
        return rc;
    if (n_outer == 0)
        return 0;
    if (ctx->device != NULL)
        return join_on_device(ctx, n_outer, &output, err);
    if (strings)
        return join_strings(ctx, n_outer, &output, err);
    join_dense(ctx, n_outer, &output);
    return 0;
}
