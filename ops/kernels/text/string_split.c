/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ops/kernels/text/text.h"

static const struct stg_param params[] = {
    {.name = "sep",
     .type = STG_PARAM_STRING,
     .preset = "",
     .help = "what stands between the pieces; empty: runs of white space"},
    {.name = "maxsplit",
     .type = STG_PARAM_INT,
     .min = INT64_MIN,
     .max = INT64_MAX,
     .preset = "-1",
     .help = "how often to split at most; negative: no limit"},
    {.name = "delimiter",
     .type = STG_PARAM_STRING,
     .help = "instead of sep: each of these bytes splits; empty: after each byte"},
    {.name = "skip_empty",
     .type = STG_PARAM_BOOL,
     .preset = "true",
     .help = "with delimiter: empty pieces are left out"},
    {.name = "result_type",
     .type = STG_PARAM_STRING,
     .preset = "ragged",
     .help = "ragged: values, row_splits; sparse: values, indices, dense_shape"},
};

struct plan {
    const char *sep;
    size_t sep_bytes;
    int64_t maxsplit;
    bool charset; /* of tf.compat.v1.string_split */
    bool bytes;   /* charset, and it is empty */
    bool skip_empty;
    bool sparse;
    bool splits[256];
};

static int check_attrs(const struct stg_node *node, struct stg_err *err)
{
    const struct stg_attr *attrs = node->attrs;
    size_t n = node->n_attrs;
    bool charset = stg_attr_find(attrs, n, "delimiter") != NULL;
    if (charset && (stg_attr_find(attrs, n, "sep") != NULL ||
                    stg_attr_find(attrs, n, "maxsplit") != NULL))
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "delimiter cannot be combined with sep or maxsplit");
    if (!charset && stg_attr_find(attrs, n, "skip_empty") != NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "skip_empty needs delimiter and cannot be combined with sep");
    const char *type = stg_attr_string(attrs, n, "result_type", "ragged");
    if (strcmp(type, "ragged") != 0 && strcmp(type, "sparse") != 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "result_type must be ragged or sparse, not \"%.64s\"", type);
    return 0;
}

static struct plan *make_plan(struct stg_op_infer *ctx)
{
    const struct stg_attr *attrs = ctx->node->attrs;
    size_t n = ctx->node->n_attrs;
    struct plan *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    if (plan == NULL)
        return NULL;
    const struct stg_attr *charset = stg_attr_find(attrs, n, "delimiter");
    const struct stg_attr *sep =
        charset != NULL ? charset : stg_attr_find(attrs, n, "sep");
    plan->charset = charset != NULL;
    plan->sep_bytes = sep != NULL ? sep->values[0].s_bytes : 0;
    plan->sep =
        stg_bump_strndup(ctx->bump, sep != NULL ? sep->values[0].s : "", plan->sep_bytes);
    if (plan->sep == NULL)
        return NULL;
    for (size_t i = 0; i < plan->sep_bytes; i++)
        plan->splits[(uint8_t)plan->sep[i]] = true;
    plan->bytes = plan->charset && plan->sep_bytes == 0;
    plan->maxsplit = stg_attr_int(attrs, n, "maxsplit", -1);
    plan->skip_empty = stg_attr_bool(attrs, n, "skip_empty", true);
    plan->sparse = strcmp(stg_attr_string(attrs, n, "result_type", ""), "sparse") == 0;
    return plan;
}

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    int rc = stg_text_check(ctx, err);
    if (rc == 0)
        rc = check_attrs(ctx->node, err);
    if (rc < 0)
        return rc;
    const struct stg_component *input = &ctx->inputs[0];
    struct plan *plan = make_plan(ctx);
    struct stg_component *outputs =
        stg_op_outputs(ctx, plan != NULL && plan->sparse ? 3 : 2);
    if (plan == NULL || outputs == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    outputs[0].dtype = STAGER_STRING;
    outputs[0].ndim = 1;
    outputs[0].shape[0] = -1;
    outputs[1].dtype = STAGER_INT64;
    outputs[1].ndim = plan->sparse ? 2 : 1;
    outputs[1].shape[0] = -1;
    if (plan->sparse) {
        outputs[1].shape[1] = input->ndim + 1;
        outputs[2].dtype = STAGER_INT64;
        outputs[2].ndim = 1;
        outputs[2].shape[0] = input->ndim + 1;
    } else {
        int64_t n = 1;
        for (int d = 0; d < input->ndim; d++)
            n = n < 0 || input->shape[d] < 0 ? -1 : n * input->shape[d];
        outputs[1].shape[0] = n < 0 ? -1 : n + 1;
    }
    ctx->plan = plan;
    return 0;
}

/* ---- one string ---- */

/* What is left of the string, and how often it was split. done: the last piece is out. */
struct cursor {
    const char *s, *end;
    int64_t n;
    bool done;
};

struct piece {
    const char *s;
    size_t bytes;
};

static bool take_rest(struct cursor *at, struct piece *ret)
{
    *ret = (struct piece){at->s, (size_t)(at->end - at->s)};
    at->done = true;
    return true;
}

static bool next_word(const struct plan *plan, struct cursor *at, struct piece *ret)
{
    if (plan->maxsplit >= 0 && at->n == plan->maxsplit)
        return take_rest(at, ret);
    while (at->n == 0 && at->s < at->end && stg_text_is_space(*at->s))
        at->s++;
    if (at->s == at->end)
        return false;
    ret->s = at->s;
    while (at->s < at->end && !stg_text_is_space(*at->s))
        at->s++;
    ret->bytes = (size_t)(at->s - ret->s);
    while (at->s < at->end && stg_text_is_space(*at->s))
        at->s++;
    at->n++;
    return true;
}

static bool next_between(const struct plan *plan, struct cursor *at, struct piece *ret)
{
    if (plan->maxsplit >= 0 && at->n == plan->maxsplit)
        return take_rest(at, ret);
    size_t left = (size_t)(at->end - at->s);
    const char *found = plan->sep_bytes == 1
                            ? memchr(at->s, plan->sep[0], left)
                            : memmem(at->s, left, plan->sep, plan->sep_bytes);
    if (found == NULL)
        return take_rest(at, ret);
    *ret = (struct piece){at->s, (size_t)(found - at->s)};
    at->s = found + plan->sep_bytes;
    at->n++;
    return true;
}

static bool next_of_set(const struct plan *plan, struct cursor *at, struct piece *ret)
{
    /* Of an empty string there is no piece at all, not an empty one. */
    if (at->n == 0 && at->s == at->end)
        return false;
    at->n++;
    if (plan->bytes) {
        if (at->s == at->end)
            return false;
        *ret = (struct piece){at->s++, 1};
        return true;
    }
    do {
        const char *s = at->s;
        while (s < at->end && !plan->splits[(uint8_t)*s])
            s++;
        *ret = (struct piece){at->s, (size_t)(s - at->s)};
        at->done = s == at->end;
        at->s = s + (at->done ? 0 : 1);
    } while (plan->skip_empty && ret->bytes == 0 && !at->done);
    return !plan->skip_empty || ret->bytes > 0;
}

/* False: there are no more. */
static bool next_piece(const struct plan *plan, struct cursor *at, struct piece *ret)
{
    if (at->done)
        return false;
    if (plan->charset)
        return next_of_set(plan, at, ret);
    if (plan->sep_bytes > 0)
        return next_between(plan, at, ret);
    return next_word(plan, at, ret);
}

static struct cursor cursor_at(const struct stg_tensor *input, int64_t i)
{
    return (struct cursor){.s = (const char *)input->data + input->begin[i],
                           .end = (const char *)input->data + input->end[i]};
}

/* ---- all of them ---- */

static int64_t count_pieces(const struct plan *plan, const struct stg_tensor *input,
                            int64_t *ret_most)
{
    int64_t n = stg_tensor_n(input), total = 0, most = 0;
    for (int64_t i = 0; i < n; i++) {
        struct cursor at = cursor_at(input, i);
        struct piece piece;
        int64_t before = total;
        while (next_piece(plan, &at, &piece))
            total++;
        if (total - before > most)
            most = total - before;
    }
    *ret_most = most;
    return total;
}

/* Coordinates of one piece: those of its string, then its place among the pieces. */
static void write_index(const struct stg_tensor *input, int64_t string, int64_t place,
                        int64_t *to)
{
    for (int d = input->ndim - 1; d >= 0; d--) {
        to[d] = string % input->shape[d];
        string /= input->shape[d];
    }
    to[input->ndim] = place;
}

static void write_pieces(const struct plan *plan, const struct stg_tensor *input,
                         const struct stg_tensor *values, int64_t *second)
{
    int64_t n = stg_tensor_n(input), *end = (int64_t *)(uintptr_t)values->end, k = 0;
    char *to = values->data;
    if (!plan->sparse)
        second[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        struct cursor at = cursor_at(input, i);
        struct piece piece;
        for (int64_t place = 0; next_piece(plan, &at, &piece); place++) {
            memcpy(to, piece.s, piece.bytes);
            to += piece.bytes;
            if (plan->sparse)
                write_index(input, i, place, second + k * (input->ndim + 1));
            end[k++] = to - (char *)values->data;
        }
        if (!plan->sparse)
            second[i + 1] = k;
    }
}

static int run_sparse(struct stg_op_run *ctx, int64_t n, int64_t most,
                      const struct stg_tensor *values, struct stg_err *err)
{
    const struct stg_tensor *input = &ctx->inputs[0];
    int64_t shape[2] = {n, input->ndim + 1};
    struct stg_tensor indices, dense_shape;
    int rc = ctx->alloc(ctx, 1, STAGER_INT64, 2, shape, 0, &indices, err);
    if (rc == 0)
        rc = ctx->alloc(ctx, 2, STAGER_INT64, 1, &shape[1], 0, &dense_shape, err);
    if (rc < 0)
        return rc;
    int64_t *dims = dense_shape.data;
    memcpy(dims, input->shape, (size_t)input->ndim * sizeof(*dims));
    dims[input->ndim] = most;
    write_pieces(ctx->plan, input, values, indices.data);
    return 0;
}

static int run(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    const struct stg_tensor *input = &ctx->inputs[0];
    int64_t most, n = count_pieces(plan, input, &most);
    struct stg_tensor values, splits;
    int rc =
        ctx->alloc(ctx, 0, STAGER_STRING, 1, &n, stg_text_bytes(input), &values, err);
    if (rc < 0)
        return rc;
    if (plan->sparse)
        return run_sparse(ctx, n, most, &values, err);
    int64_t n_splits = stg_tensor_n(input) + 1;
    rc = ctx->alloc(ctx, 1, STAGER_INT64, 1, &n_splits, 0, &splits, err);
    if (rc == 0)
        write_pieces(plan, input, &values, splits.data);
    return rc;
}

const struct stg_op stg_op_string_split = {
    .name = "string_split",
    .summary = "Strings taken apart; as tf.strings.split, with delimiter as "
               "tf.compat.v1.string_split.",
    STG_PARAMS(params),
    .min_inputs = 1,
    .max_inputs = 1,
    .infer = infer,
    .run = run,
};
