/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/base/move.h"

#include <string.h>

void stg_move_strides(const struct stg_tensor *input, int64_t *ret)
{
    int64_t stride = 1;
    for (int d = input->ndim - 1; d >= 0; d--) {
        ret[d] = stride;
        stride *= input->shape[d];
    }
}

int stg_move_axis(const struct stg_node *node, const char *name, int64_t otherwise,
                  int rank, int *ret, struct stg_err *err)
{
    int64_t axis = stg_attr_int(node->attrs, node->n_attrs, name, otherwise);
    if (axis < -rank || axis >= rank)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "%s %lld is not in [%d, %d)", name,
                       (long long)axis, -rank, rank);
    *ret = (int)(axis < 0 ? axis + rank : axis);
    return 0;
}

void stg_move_fill(void *out, int64_t n, const void *element, size_t bytes)
{
    char *to = out;
    if (n <= 0)
        return;
    memcpy(to, element, bytes);
    for (int64_t done = 1; done < n; done *= 2)
        memcpy(to + done * (int64_t)bytes, to,
               (size_t)(done < n - done ? done : n - done) * bytes);
}

/* ---- strings ---- */

int stg_move_strings(struct stg_op_run *ctx, size_t i, const struct stg_tensor *input,
                     const int64_t *picks, int ndim, const int64_t *shape,
                     const char *text, size_t text_bytes, struct stg_err *err)
{
    struct stg_tensor output = {.ndim = ndim};
    memcpy(output.shape, shape, (size_t)ndim * sizeof(*shape));
    int64_t n = stg_tensor_n(&output), bytes = 0;
    for (int64_t k = 0; k < n; k++)
        bytes += picks[k] < 0 ? (int64_t)text_bytes
                              : input->end[picks[k]] - input->begin[picks[k]];
    int rc =
        ctx->alloc(ctx, i, STAGER_STRING, ndim, shape, (uint64_t)bytes, &output, err);
    if (rc < 0)
        return rc;
    int64_t *end = (int64_t *)(uintptr_t)output.end;
    char *to = output.data;
    for (int64_t k = 0; k < n; k++) {
        const char *s = text;
        size_t one = text_bytes;
        if (picks[k] >= 0) {
            s = (const char *)input->data + input->begin[picks[k]];
            one = (size_t)(input->end[picks[k]] - input->begin[picks[k]]);
        }
        if (one > 0)
            memcpy(to, s, one);
        to += one;
        end[k] = to - (char *)output.data;
    }
    return 0;
}

/* ---- the walk ---- */

struct walk {
    const struct stg_move *move;
    void (*row)(struct walk *walk, int64_t at);
    const void *in;
    void *out; /* elements, or the numbers of strings */
    int64_t done;
};

/* Where element i of a dimension lies, or -1. */
static inline int64_t place(const struct stg_move_dim *dim, int64_t i)
{
    if (dim->table != NULL)
        return dim->table[i];
    if (i < dim->before || i >= dim->n - dim->after)
        return -1;
    return (i - dim->before) * dim->stride;
}

#define ROW(type)                                                                        \
    static void row_##type(struct walk *walk, int64_t at)                                \
    {                                                                                    \
        const struct stg_move_dim *dim = &walk->move->dims[walk->move->ndim - 1];        \
        type *restrict out = (type *)walk->out + walk->done;                             \
        walk->done += dim->n;                                                            \
        if (at < 0) {                                                                    \
            stg_move_fill(out, dim->n, walk->move->fill, sizeof(type));                  \
            return;                                                                      \
        }                                                                                \
        const type *in = (const type *)walk->in + at;                                    \
        int64_t n = dim->n - dim->before - dim->after;                                   \
        stg_move_fill(out, dim->before, walk->move->fill, sizeof(type));                 \
        out += dim->before;                                                              \
        if (dim->table != NULL) {                                                        \
            for (int64_t i = 0; i < n; i++)                                              \
                out[i] = in[dim->table[i]];                                              \
        } else if (dim->stride == 1) {                                                   \
            memcpy(out, in, (size_t)n * sizeof(type));                                   \
        } else {                                                                         \
            for (int64_t i = 0; i < n; i++)                                              \
                out[i] = in[i * dim->stride];                                            \
        }                                                                                \
        stg_move_fill(out + n, dim->after, walk->move->fill, sizeof(type));              \
    }

ROW(uint8_t)
ROW(uint16_t)
ROW(uint32_t)
ROW(uint64_t)

static void row_picks(struct walk *walk, int64_t at)
{
    const struct stg_move_dim *dim = &walk->move->dims[walk->move->ndim - 1];
    int64_t *out = (int64_t *)walk->out + walk->done;
    walk->done += dim->n;
    for (int64_t i = 0; i < dim->n; i++) {
        int64_t step = at < 0 ? -1 : place(dim, i);
        out[i] = step < 0 ? -1 : at + step;
    }
}

static void walk_dim(struct walk *walk, int d, int64_t at)
{
    const struct stg_move_dim *dim = &walk->move->dims[d];
    if (d == walk->move->ndim - 1) {
        walk->row(walk, at);
        return;
    }
    for (int64_t i = 0; i < dim->n; i++) {
        int64_t step = at < 0 ? -1 : place(dim, i);
        walk_dim(walk, d + 1, step < 0 ? -1 : at + step);
    }
}

static bool is_plain(const struct stg_move_dim *dim)
{
    return dim->table == NULL && dim->before == 0 && dim->after == 0;
}

/* Neighbouring dimensions that lie in the input as one become one; there is at least one
 * at the end. */
static void join_dims(const struct stg_move *move, struct stg_move *ret)
{
    *ret = *move;
    ret->ndim = 0;
    for (int d = 0; d < move->ndim; d++) {
        const struct stg_move_dim *dim = &move->dims[d];
        if (dim->n == 1 && is_plain(dim))
            continue;
        struct stg_move_dim *last = ret->ndim > 0 ? &ret->dims[ret->ndim - 1] : NULL;
        if (last != NULL && is_plain(dim) && is_plain(last) &&
            last->stride == dim->stride * dim->n) {
            last->n *= dim->n;
            last->stride = dim->stride;
            continue;
        }
        ret->dims[ret->ndim++] = *dim;
    }
    if (ret->ndim == 0)
        ret->dims[ret->ndim++] = (struct stg_move_dim){.n = 1, .stride = 1};
}

static int move_strings(struct stg_op_run *ctx, size_t i, const struct stg_tensor *input,
                        const struct stg_move *move, const struct stg_tensor *output,
                        struct stg_err *err)
{
    int64_t n = stg_tensor_n(output);
    struct walk walk = {.move = move, .row = row_picks};
    walk.out = stg_bump_alloc_raw(ctx->scratch, (size_t)n * sizeof(int64_t));
    if (walk.out == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    if (n > 0)
        walk_dim(&walk, 0, move->first);
    return stg_move_strings(ctx, i, input, walk.out, output->ndim, output->shape,
                            move->text, move->text_bytes, err);
}

int stg_move_run(struct stg_op_run *ctx, size_t i, const struct stg_tensor *input,
                 const struct stg_move *move, struct stg_err *err)
{
    struct stg_move joined;
    struct stg_tensor output = {.ndim = move->ndim};
    for (int d = 0; d < move->ndim; d++)
        output.shape[d] = move->dims[d].n;
    join_dims(move, &joined);
    if (input->dtype == STAGER_STRING)
        return move_strings(ctx, i, input, &joined, &output, err);
    int rc = ctx->alloc(ctx, i, input->dtype, output.ndim, output.shape, 0, &output, err);
    if (rc < 0)
        return rc;
    struct walk walk = {.move = &joined, .in = input->data, .out = output.data};
    switch (stg_dtype_bytes(input->dtype)) {
    case 1: walk.row = row_uint8_t; break;
    case 2: walk.row = row_uint16_t; break;
    case 4: walk.row = row_uint32_t; break;
    default: walk.row = row_uint64_t; break;
    }
    if (stg_tensor_n(&output) > 0)
        walk_dim(&walk, 0, joined.first);
    return 0;
}
