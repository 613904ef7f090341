/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "ops/base/element.h"
#include "ops/kernels/example/example.h"

/* The record at hand. */
struct suspect {
    struct stg_op_run *ctx;
    const struct stg_example_plan *plan;
    const uint8_t *s;
    int64_t row;
    struct stg_example_span *spans; /* a key */
    struct stg_err *err;
};

static const char *const kind_names[] = {
    [STG_EXAMPLE_NONE] = "nothing",
    [STG_EXAMPLE_BYTES] = "string",
    [STG_EXAMPLE_FLOATS] = "float32",
    [STG_EXAMPLE_INTS] = "int64",
};

static const char *key_name(const struct stg_example_key *key, char *buf)
{
    return stg_quote(key->name, key->bytes, buf);
}

static int explain_fault(const struct suspect *x, const struct stg_example_fault *fault,
                         const struct stg_example_key *key)
{
    char name[STG_QUOTE_BYTES];
    int64_t at = fault->at - x->s;
    if (key == NULL)
        return stg_err_row(x->err, -STAGER_INVALID_ARGUMENT, x->row,
                           "not a tf.train.Example: byte %" PRId64 " of the record: %s",
                           at, fault->text);
    return stg_err_row(x->err, -STAGER_INVALID_ARGUMENT, x->row,
                       "feature %s: byte %" PRId64 " of the record: %s",
                       key_name(key, name), at, fault->text);
}

/* The values of a key, of that kind or none at all. *ret_n: how many. */
static int explain_list(const struct suspect *x, uint32_t k, enum stg_example_kind kind,
                        int64_t *ret_n)
{
    const struct stg_example_span *span = &x->spans[k];
    const struct stg_example_key *key = &x->plan->keys[k];
    struct stg_example_fault fault;
    char name[STG_QUOTE_BYTES];
    uint64_t bytes = 0;
    if (span->kind != STG_EXAMPLE_NONE && span->kind != kind)
        return stg_err_row(x->err, -STAGER_INVALID_ARGUMENT, x->row,
                           "feature %s holds %s, not %s", key_name(key, name),
                           kind_names[span->kind], kind_names[kind]);
    *ret_n = stg_example_count(span, &bytes, &fault);
    return *ret_n < 0 ? explain_fault(x, &fault, key) : 0;
}

static int explain_dense(const struct suspect *x, const struct stg_example_feature *f,
                         int64_t n)
{
    bool fixed = f->type == STG_EXAMPLE_FIXED_LEN;
    bool missing = x->spans[f->key].kind == STG_EXAMPLE_NONE;
    char name[STG_QUOTE_BYTES], shape[128];
    stg_quote(f->name, f->name_bytes, name);
    stg_shape_text(f->shape, f->ndim, shape, sizeof(shape));
    if (fixed && missing)
        return f->has_default
                   ? 0
                   : stg_err_row(x->err, -STAGER_INVALID_ARGUMENT, x->row,
                                 "feature %s (%s) is required and missing; give it a "
                                 "default_value",
                                 name, kind_names[f->kind]);
    if (fixed ? n == f->n : n % f->n == 0)
        return 0;
    return stg_err_row(x->err, -STAGER_INVALID_ARGUMENT, x->row,
                       fixed ? "feature %s has %" PRId64 " value%s; its shape %s takes "
                               "%" PRId64
                             : "feature %s has %" PRId64
                               " value%s; each step, of shape %s, takes %" PRId64,
                       name, n, n == 1 ? "" : "s", shape, f->n);
}

static int explain_indices(const struct suspect *x, const struct stg_example_feature *f,
                           uint32_t d, int64_t n)
{
    uint32_t k = f->index_keys[d];
    char name[STG_QUOTE_BYTES], values[STG_QUOTE_BYTES];
    int64_t n_indices = 0;
    int rc = explain_list(x, k, STG_EXAMPLE_INTS, &n_indices);
    if (rc < 0)
        return rc;
    key_name(&x->plan->keys[k], name);
    if (n_indices != n)
        return stg_err_row(x->err, -STAGER_INVALID_ARGUMENT, x->row,
                           "feature %s has %" PRId64 " indices in %s and %" PRId64
                           " values in %s",
                           stg_quote(f->name, f->name_bytes, (char[STG_QUOTE_BYTES]){0}),
                           n_indices, name, n, key_name(&x->plan->keys[f->key], values));
    int64_t *indices =
        (uint64_t)n < SIZE_MAX / sizeof(*indices)
            ? stg_bump_alloc_raw(x->ctx->scratch, (size_t)n * sizeof(*indices))
            : NULL;
    if (indices == NULL)
        return stg_err(x->err, -STAGER_RESOURCE_EXHAUSTED, "no memory for the indices");
    stg_example_read(&x->spans[k], indices);
    for (int64_t i = 0; i < n; i++) {
        if (indices[i] < 0 || indices[i] >= f->shape[d])
            return stg_err_row(x->err, -STAGER_INVALID_ARGUMENT, x->row,
                               "feature %s: index %" PRId64 " is not in [0, %" PRId64 ")",
                               name, indices[i], f->shape[d]);
    }
    return 0;
}

static int explain_feature(const struct suspect *x, const struct stg_example_feature *f)
{
    int64_t n = 0;
    int rc = explain_list(x, f->key, f->kind, &n);
    if (rc == 0 &&
        (f->type == STG_EXAMPLE_FIXED_LEN || f->type == STG_EXAMPLE_FIXED_LEN_SEQUENCE))
        rc = explain_dense(x, f, n);
    for (uint32_t d = 0; rc == 0 && d < f->n_index_keys; d++)
        rc = explain_indices(x, f, d, n);
    return rc;
}

int stg_example_explain(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct stg_example_plan *plan = ctx->plan;
    const struct stg_tensor *input = &ctx->inputs[0];
    size_t n_keys = plan->n_keys, n_rows = (size_t)stg_tensor_n(input);
    struct suspect x = {.ctx = ctx, .plan = plan, .err = err};
    struct stg_example_span **columns =
        stg_bump_alloc(ctx->scratch, n_keys * sizeof(*columns));
    x.spans = stg_bump_alloc(ctx->scratch, n_keys * sizeof(*x.spans));
    if (columns == NULL || x.spans == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (size_t k = 0; k < n_keys; k++)
        columns[k] = &x.spans[k];
    for (x.row = 0; x.row < (int64_t)n_rows; x.row++) {
        struct stg_example_fault fault;
        size_t bytes = (size_t)(input->end[x.row] - input->begin[x.row]);
        x.s = (const uint8_t *)input->data + input->begin[x.row];
        /* As if no byte could be read beyond: everything goes field by field. */
        struct stg_example_input in = {.plan = plan, .limit = x.s};
        memset(x.spans, 0, n_keys * sizeof(*x.spans));
        if (!stg_example_index(&in, x.s, bytes, columns, 0, &fault))
            return explain_fault(&x, &fault, fault.key);
        for (uint32_t k = 0; k < plan->n_features; k++) {
            int rc = explain_feature(&x, &plan->features[k]);
            if (rc < 0)
                return rc;
        }
    }
    /* Each record is good: there was no memory for their strings. */
    return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                   "no memory for the strings of %zu records", n_rows);
}
