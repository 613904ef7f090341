/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "ops/base/element.h"
#include "ops/base/json.h"
#include "ops/base/number.h"
#include "ops/base/text_column.h"

static const struct stg_param field_params[] = {
    {.name = "dtype",
     .type = STG_PARAM_DTYPE,
     .required = true,
     .help = "bool, int32, int64, float32, float64 or string"},
    {.name = "shape",
     .type = STG_PARAM_SHAPE,
     .preset = "[]",
     .help = "of nested lists; [] is a value"},
    {.name = "default_value",
     .type = STG_PARAM_VALUES,
     .help = "where a record has no such member, or null"},
};

static const struct stg_param params[] = {
    {.name = "features",
     .type = STG_PARAM_FIELDS,
     .required = true,
     .fields = field_params,
     .n_fields = sizeof(field_params) / sizeof(field_params[0]),
     .help = "which members of the object, by name: {label: {dtype: float32}}"},
};

struct feature {
    const char *name;
    size_t name_bytes;
    int dtype, ndim;
    int64_t shape[STG_MAX_DIMS], n;
    bool has_default;
    struct stg_tensor fill;
};

struct plan {
    struct feature *features;
    uint32_t n;
};

/* ---- plan ---- */

static const struct stg_attr *field_of(const struct stg_attr *attrs, size_t n,
                                       const char *field)
{
    struct stg_attr_path path;
    for (size_t i = 0; i < n; i++) {
        if (stg_attr_path(&attrs[i], "features", &path) && strcmp(path.field, field) == 0)
            return &attrs[i];
    }
    return NULL;
}

static int check_dtype(int dtype, struct stg_err *err)
{
    switch (dtype) {
    case STAGER_BOOL:
    case STAGER_INT32:
    case STAGER_INT64:
    case STAGER_FLOAT32:
    case STAGER_FLOAT64:
    case STAGER_STRING: return 0;
    default:
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "dtype cannot be %s, only bool, int32, int64, float32, float64, "
                       "string; cast makes others",
                       stg_dtype_name(dtype));
    }
}

static int plan_feature(struct stg_op_infer *ctx, const struct stg_attr *attrs, size_t n,
                        struct feature *f, struct stg_err *err)
{
    const struct stg_attr *shape = field_of(attrs, n, "shape");
    const struct stg_attr *fill = field_of(attrs, n, "default_value");
    f->dtype = stg_dtype_from_name(field_of(attrs, n, "dtype")->values->s);
    f->n = 1;
    int rc = check_dtype(f->dtype, err);
    if (rc < 0)
        return rc;
    f->ndim = shape != NULL ? (int)shape->n_values : 0;
    if (f->ndim + ctx->inputs[0].ndim > STG_MAX_DIMS)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "with those of the batch there are more than %d dimensions",
                       STG_MAX_DIMS);
    for (int d = 0; d < f->ndim; d++) {
        f->shape[d] = shape->values[d].i;
        if (__builtin_mul_overflow(f->n, f->shape[d], &f->n) || f->n > INT32_MAX)
            return stg_err(err, -STAGER_INVALID_ARGUMENT, "shape has too many elements");
    }
    if (fill == NULL || (fill->n_values == 1 && fill->values->kind == STG_VALUE_NULL))
        return 0;
    f->has_default = true;
    rc = stg_literal_tensor(fill->values, fill->n_values, f->dtype, f->ndim, f->shape,
                            ctx->bump, &f->fill, err);
    return rc < 0 ? stg_err_prefix(err, rc, "default_value") : 0;
}

static int check_name(const struct plan *plan, const struct feature *f,
                      struct stg_err *err)
{
    for (const struct feature *other = plan->features; other < f; other++) {
        if (other->name_bytes == f->name_bytes &&
            memcmp(other->name, f->name, f->name_bytes) == 0)
            return stg_err(err, -STAGER_INVALID_ARGUMENT, "the feature is given twice");
    }
    return 0;
}

static int blame(const struct feature *f, int code, struct stg_err *err)
{
    char name[STG_QUOTE_BYTES];
    return stg_err_prefix(err, code, "feature %s",
                          stg_quote(f->name, f->name_bytes, name));
}

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_attr *attrs = ctx->node->attrs;
    size_t n = ctx->node->n_attrs;
    if (ctx->inputs[0].dtype != STAGER_STRING)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "input \"%s\" is %s; records must be strings", ctx->inputs[0].name,
                       stg_dtype_name(ctx->inputs[0].dtype));
    struct plan *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    if (plan != NULL)
        plan->features = stg_bump_alloc(ctx->bump, n * sizeof(*plan->features));
    if (plan == NULL || plan->features == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (size_t i = 0, step; i < n; i += step) {
        struct feature *f = &plan->features[plan->n++];
        struct stg_attr_path path;
        step = stg_attr_entry(attrs + i, n - i, "features");
        stg_attr_path(&attrs[i], "features", &path);
        f->name = path.entry;
        f->name_bytes = path.entry_bytes;
        int rc = check_name(plan, f, err);
        if (rc == 0)
            rc = plan_feature(ctx, attrs + i, step, f, err);
        if (rc < 0)
            return blame(f, rc, err);
    }
    struct stg_component *outputs = stg_op_outputs(ctx, plan->n);
    if (outputs == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (uint32_t k = 0; k < plan->n; k++) {
        const struct feature *f = &plan->features[k];
        outputs[k] = ctx->inputs[0];
        outputs[k].dtype = f->dtype;
        for (int d = 0; d < f->ndim; d++)
            outputs[k].shape[outputs[k].ndim++] = f->shape[d];
    }
    ctx->plan = plan;
    return 0;
}

static bool next_output(const struct stg_node *node, struct stg_output_name *name)
{
    struct stg_attr_path path;
    if (name->attr >= node->n_attrs ||
        !stg_attr_path(&node->attrs[name->attr], "features", &path))
        return false;
    *name = (struct stg_output_name){.entry = path.entry,
                                     .entry_bytes = path.entry_bytes,
                                     .part = "",
                                     .attr = name->attr};
    name->attr +=
        stg_attr_entry(node->attrs + name->attr, node->n_attrs - name->attr, "features");
    return true;
}

/* ---- a record ---- */

struct work {
    struct stg_op_run *ctx;
    const struct plan *plan;
    int64_t n_rows, row;
    char **outputs;                  /* by feature: output of numbers */
    struct stg_text_column *columns; /* by feature: output of strings */
    struct stg_json_token **texts;   /* by feature: the strings of this record */
    bool *seen;                      /* by feature: this record has a value */
    struct stg_json at;
    struct stg_err *err;
};

static int fail_at(struct work *work, const char *text)
{
    const struct stg_tensor *input = &work->ctx->inputs[0];
    int64_t at = work->at.p - (const char *)input->data - input->begin[work->row];
    return stg_err_row(work->err, -STAGER_INVALID_ARGUMENT, work->row,
                       "byte %" PRId64 " of the record: %s", at, text);
}

static int fail_value(struct work *work, const struct feature *f,
                      const struct stg_json_token *token)
{
    char name[STG_QUOTE_BYTES], value[STG_QUOTE_BYTES], shape[128];
    stg_quote(f->name, f->name_bytes, name);
    if (f->ndim > 0 && (token->kind == '[' || token->kind == ']'))
        return stg_err_row(work->err, -STAGER_INVALID_ARGUMENT, work->row,
                           "feature %s does not have the shape %s", name,
                           stg_shape_text(f->shape, f->ndim, shape, sizeof(shape)));
    return stg_err_row(work->err, -STAGER_INVALID_ARGUMENT, work->row,
                       "feature %s: %s is not a valid %s", name,
                       stg_quote(token->s, token->bytes, value),
                       stg_dtype_name(f->dtype));
}

/* Stores element i of feature k of the record. Returns false if the type does not fit. */
static bool store(struct work *work, uint32_t k, int64_t i,
                  const struct stg_json_token *token)
{
    const struct feature *f = &work->plan->features[k];
    int64_t at = work->row * f->n + i;
    bool is_number = token->kind == '0';
    switch (f->dtype) {
    case STAGER_STRING: work->texts[k][i] = *token; return token->kind == '"';
    case STAGER_BOOL:
        ((bool *)work->outputs[k])[at] = token->kind == 't';
        return token->kind == 't' || token->kind == 'f';
    case STAGER_INT32:
        return is_number &&
               stg_parse_int32(token->s, token->bytes, (int32_t *)work->outputs[k] + at);
    case STAGER_INT64:
        return is_number &&
               stg_parse_int64(token->s, token->bytes, (int64_t *)work->outputs[k] + at);
    case STAGER_FLOAT32:
        return is_number &&
               stg_parse_float32(token->s, token->bytes, (float *)work->outputs[k] + at);
    default:
        return is_number &&
               stg_parse_float64(token->s, token->bytes, (double *)work->outputs[k] + at);
    }
}

/* Reads the nested lists of dimensions d and up. `token` is their first token. *at is the
 * index of the next element, and advances. */
static int read_box(struct work *work, uint32_t k, int d, int64_t *at,
                    struct stg_json_token token)
{
    static const struct stg_json_token end = {.kind = ']'};
    const struct feature *f = &work->plan->features[k];
    if (d == f->ndim)
        return store(work, k, (*at)++, &token) ? 0 : fail_value(work, f, &token);
    if (token.kind != '[')
        return fail_value(work, f, &end);
    for (int64_t i = 0; i < f->shape[d]; i++) {
        if (i > 0 && !stg_json_take(&work->at, ','))
            return fail_value(work, f, &end);
        if (!stg_json_next(&work->at, &token))
            return fail_at(work, work->at.fault);
        int rc = read_box(work, k, d + 1, at, token);
        if (rc < 0)
            return rc;
    }
    return stg_json_take(&work->at, ']') ? 0 : fail_value(work, f, &end);
}

/* Returns the index of the feature of that name, or n if no such feature is requested.
 * Searches from `from` on: members usually have the order of the features. */
static uint32_t find(const struct work *work, const char *s, size_t bytes, uint32_t from)
{
    uint32_t n = work->plan->n;
    for (uint32_t i = 0, k = from; i < n; i++, k = k + 1 < n ? k + 1 : 0) {
        const struct feature *f = &work->plan->features[k];
        if (f->name_bytes == bytes && memcmp(f->name, s, bytes) == 0)
            return k;
    }
    return n;
}

/* Reads the value of feature k. If a name occurs twice, the last value counts. */
static int read_value(struct work *work, uint32_t k)
{
    struct stg_json_token token;
    int64_t at = 0;
    if (k == work->plan->n)
        return stg_json_skip(&work->at) ? 0 : fail_at(work, work->at.fault);
    if (!stg_json_next(&work->at, &token))
        return fail_at(work, work->at.fault);
    work->seen[k] = token.kind != 'n';
    return work->seen[k] ? read_box(work, k, 0, &at, token) : 0;
}

static int read_member(struct work *work, uint32_t *from)
{
    struct stg_json_token name;
    if (!stg_json_next(&work->at, &name))
        return fail_at(work, work->at.fault);
    if (name.kind != '"')
        return fail_at(work, "expected the name of a member, as in \"name\": value");
    size_t bytes = name.bytes;
    const char *s = name.s;
    if (name.is_escaped) {
        char *text = stg_bump_alloc_raw(work->ctx->scratch, bytes + 1);
        if (text == NULL)
            return stg_err(work->err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
        bytes = stg_json_unescape(&name, text);
        s = text;
    }
    uint32_t k = find(work, s, bytes, *from);
    if (k < work->plan->n)
        *from = k + 1 < work->plan->n ? k + 1 : 0;
    if (!stg_json_take(&work->at, ':'))
        return fail_at(work, "expected ':' after the name of a member");
    return read_value(work, k);
}

static int read_object(struct work *work)
{
    uint32_t from = 0;
    if (!stg_json_take(&work->at, '{'))
        return fail_at(work, "a record must be one object: {\"name\": value}");
    if (!stg_json_take(&work->at, '}')) {
        do {
            int rc = read_member(work, &from);
            if (rc < 0)
                return rc;
        } while (stg_json_take(&work->at, ','));
        if (!stg_json_take(&work->at, '}'))
            return fail_at(work, "expected ',' or '}'");
    }
    return stg_json_ends(&work->at) ? 0
                                    : fail_at(work, "unexpected text after the object");
}

/* ---- a batch ---- */

static int put_texts(struct work *work, uint32_t k)
{
    const struct feature *f = &work->plan->features[k];
    struct stg_text_column *to = &work->columns[k];
    bool good = true;
    for (int64_t i = 0; good && i < f->n && work->seen[k]; i++) {
        const struct stg_json_token *token = &work->texts[k][i];
        good = stg_text_column_reserve(to, token->bytes);
        if (good)
            stg_text_column_end(to, stg_json_unescape(token, to->data + to->used));
    }
    if (!work->seen[k])
        good = stg_text_column_put_all(to, &f->fill);
    return good ? 0 : stg_err(work->err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
}

/* Writes the defaults of missing features, and the strings of the record. */
static int finish_record(struct work *work)
{
    for (uint32_t k = 0; k < work->plan->n; k++) {
        const struct feature *f = &work->plan->features[k];
        char name[STG_QUOTE_BYTES];
        if (!work->seen[k] && !f->has_default)
            return stg_err_row(work->err, -STAGER_INVALID_ARGUMENT, work->row,
                               "feature %s is required and missing; give it a "
                               "default_value",
                               stg_quote(f->name, f->name_bytes, name));
        if (f->dtype == STAGER_STRING) {
            int rc = put_texts(work, k);
            if (rc < 0)
                return rc;
        } else if (!work->seen[k] && f->fill.data_bytes > 0) {
            memcpy(work->outputs[k] + (size_t)work->row * f->fill.data_bytes,
                   f->fill.data, f->fill.data_bytes);
        }
    }
    return 0;
}

static int shape_of(const struct work *work, const struct feature *f, int64_t *ret)
{
    const struct stg_tensor *input = &work->ctx->inputs[0];
    memcpy(ret, input->shape, (size_t)input->ndim * sizeof(*ret));
    memcpy(ret + input->ndim, f->shape, (size_t)f->ndim * sizeof(*ret));
    return input->ndim + f->ndim;
}

static int prepare_feature(struct work *work, uint32_t k)
{
    const struct feature *f = &work->plan->features[k];
    struct stg_bump *scratch = work->ctx->scratch;
    int64_t shape[STG_MAX_DIMS], n;
    int ndim = shape_of(work, f, shape);
    struct stg_tensor output;
    if (f->dtype != STAGER_STRING) {
        int rc =
            work->ctx->alloc(work->ctx, k, f->dtype, ndim, shape, 0, &output, work->err);
        if (rc == 0)
            work->outputs[k] = output.data;
        return rc;
    }
    work->texts[k] =
        stg_bump_alloc_raw(scratch, (size_t)f->n * sizeof(struct stg_json_token));
    if (work->texts[k] == NULL || __builtin_mul_overflow(work->n_rows, f->n, &n) ||
        !stg_text_column_init(&work->columns[k], scratch, (uint64_t)n))
        return stg_err(work->err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    return 0;
}

static int prepare(struct work *work)
{
    struct stg_bump *scratch = work->ctx->scratch;
    uint32_t n = work->plan->n;
    work->outputs = stg_bump_alloc(scratch, n * sizeof(*work->outputs));
    work->columns = stg_bump_alloc(scratch, n * sizeof(*work->columns));
    work->texts = stg_bump_alloc(scratch, n * sizeof(*work->texts));
    work->seen = stg_bump_alloc(scratch, n * sizeof(*work->seen));
    if (work->outputs == NULL || work->columns == NULL || work->texts == NULL ||
        work->seen == NULL)
        return stg_err(work->err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (uint32_t k = 0; k < n; k++) {
        int rc = prepare_feature(work, k);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int run(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct stg_tensor *input = &ctx->inputs[0];
    struct work work = {
        .ctx = ctx, .plan = ctx->plan, .n_rows = stg_tensor_n(input), .err = err};
    int rc = prepare(&work);
    for (; rc == 0 && work.row < work.n_rows; work.row++) {
        memset(work.seen, 0, work.plan->n * sizeof(*work.seen));
        work.at =
            (struct stg_json){.p = (const char *)input->data + input->begin[work.row],
                              .end = (const char *)input->data + input->end[work.row]};
        rc = read_object(&work);
        if (rc == 0)
            rc = finish_record(&work);
    }
    for (uint32_t k = 0; rc == 0 && k < work.plan->n; k++) {
        const struct feature *f = &work.plan->features[k];
        int64_t shape[STG_MAX_DIMS];
        if (f->dtype == STAGER_STRING)
            rc = stg_text_column_write(&work.columns[k], ctx, k,
                                       shape_of(&work, f, shape), shape, err);
    }
    return rc;
}

const struct stg_op stg_op_parse_json = {
    .name = "parse_json",
    .summary = "Records of JSON, one object each, to a tensor a member; as RFC 8259 "
               "defines them.",
    STG_PARAMS(params),
    .min_inputs = 1,
    .max_inputs = 1,
    .infer = infer,
    .run = run,
    .rows = stg_rows_first,
    .next_output = next_output,
};
