/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/kernels/csv/plan.h"

#include <inttypes.h>
#include <string.h>

#include "ops/base/element.h"

static int column_dtype(const struct stg_value *value, const struct stg_attr *out_type,
                        size_t i, int *ret, struct stg_err *err)
{
    int dtype = STAGER_DT_INVALID;
    if (out_type != NULL)
        dtype = stg_dtype_from_name(out_type->values[i].s);
    else if (value->kind != STG_VALUE_NULL)
        dtype = stg_literal_dtype(value, 1);
    switch (dtype) {
    case STAGER_INT32:
    case STAGER_INT64:
    case STAGER_FLOAT32:
    case STAGER_FLOAT64:
    case STAGER_STRING: *ret = dtype; return 0;
    default: break;
    }
    if (out_type == NULL && value->kind == STG_VALUE_NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "record_defaults[%zu] is null (required) and has no type; give "
                       "the columns' types in out_type",
                       i);
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "column %zu cannot be %s, only int32, int64, float32, float64, string",
                   i, out_type != NULL ? out_type->values[i].s : stg_dtype_name(dtype));
}

static int column_rule(const struct stg_value *value, int dtype, size_t i,
                       struct stg_csv_rule *rule, struct stg_err *err)
{
    rule->s = "";
    if (value->kind == STG_VALUE_NULL) {
        rule->required = true;
        return 0;
    }
    if (dtype == STAGER_STRING) {
        if (value->kind != STG_VALUE_STRING)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "record_defaults[%zu] is not a string", i);
        rule->s = value->s;
        rule->s_bytes = value->s_bytes;
        return 0;
    }
    void *into = dtype == STAGER_INT32     ? (void *)&rule->i32
                 : dtype == STAGER_INT64   ? (void *)&rule->i64
                 : dtype == STAGER_FLOAT32 ? (void *)&rule->f32
                                           : (void *)&rule->f64;
    int rc = stg_literal_store(value, dtype, into, 0, err);
    return rc < 0 ? stg_err_prefix(err, rc, "record_defaults[%zu]", i) : 0;
}

static const struct stg_value *text_attr(const struct stg_node *node, const char *name)
{
    const struct stg_attr *attr = stg_attr_find(node->attrs, node->n_attrs, name);
    return attr != NULL && attr->n_values == 1 ? &attr->values[0] : NULL;
}

/* The texts of na_value that are not empty: an empty field counts as empty anyway. */
static int plan_na(const struct stg_node *node, struct stg_bump *bump,
                   const struct stg_value **ret, size_t *ret_n, struct stg_err *err)
{
    const struct stg_attr *attr = stg_attr_find(node->attrs, node->n_attrs, "na_value");
    if (attr == NULL || attr->n_values == 0)
        return 0;
    struct stg_value *na = stg_bump_alloc(bump, attr->n_values * sizeof(*na));
    if (na == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    size_t n = 0;
    for (size_t i = 0; i < attr->n_values; i++) {
        if (attr->ndim > 1 || attr->values[i].kind != STG_VALUE_STRING)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "na_value is a string or a list of strings; quote a value "
                           "that YAML reads as another type, such as \"NaN\"");
        if (attr->values[i].s_bytes > 0)
            na[n++] = attr->values[i];
    }
    *ret = na;
    *ret_n = n;
    return 0;
}

static int plan_columns(const struct stg_node *node, struct stg_bump *bump,
                        struct stg_csv_plan *plan, struct stg_err *err)
{
    const struct stg_attr *defaults =
        stg_attr_find(node->attrs, node->n_attrs, "record_defaults");
    const struct stg_attr *out_type =
        stg_attr_find(node->attrs, node->n_attrs, "out_type");
    bool flat = defaults->ndim == 1 || (defaults->ndim == 2 && defaults->shape[1] == 1);
    size_t n = defaults->n_values;
    if (!flat || n == 0 || n > STG_CSV_MAX_COLUMNS)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "record_defaults is a list with one default a column, 1 to %d",
                       STG_CSV_MAX_COLUMNS);
    if (out_type != NULL && out_type->n_values != n)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "out_type has %zu entries, record_defaults %zu",
                       out_type->n_values, n);
    plan->n_columns = (uint32_t)n;
    plan->dtypes = stg_bump_alloc(bump, n * sizeof(*plan->dtypes));
    plan->rules = stg_bump_alloc(bump, n * sizeof(*plan->rules));
    if (plan->dtypes == NULL || plan->rules == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");

    const struct stg_value *na = NULL;
    size_t n_na = 0;
    int rc = plan_na(node, bump, &na, &n_na, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < n; i++) {
        const struct stg_value *value = &defaults->values[i];
        rc = column_dtype(value, out_type, i, &plan->dtypes[i], err);
        if (rc < 0)
            return rc;
        plan->rules[i].na = na;
        plan->rules[i].n_na = n_na;
        rc = column_rule(value, plan->dtypes[i], i, &plan->rules[i], err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int plan_fields(const struct stg_node *node, struct stg_bump *bump,
                       struct stg_csv_plan *plan, struct stg_err *err)
{
    const struct stg_attr *select =
        stg_attr_find(node->attrs, node->n_attrs, "select_cols");
    size_t n = plan->n_columns;
    /* An empty list is TensorFlow's "all". */
    if (select != NULL && select->n_values == 0)
        select = NULL;
    if (select != NULL && select->n_values != n)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "select_cols has %zu entries, record_defaults %zu",
                       select->n_values, n);
    for (size_t i = 1; select != NULL && i < n; i++) {
        if (select->values[i].i <= select->values[i - 1].i)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "select_cols must be strictly increasing, and %" PRId64
                           " follows %" PRId64,
                           select->values[i].i, select->values[i - 1].i);
    }
    size_t n_fields = select != NULL ? (size_t)select->values[n - 1].i + 1 : n;
    int32_t *column = stg_bump_alloc(bump, n_fields * sizeof(*column));
    plan->fields = stg_bump_alloc(bump, n * sizeof(*plan->fields));
    if (column == NULL || plan->fields == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (size_t f = 0; f < n_fields; f++)
        column[f] = -1;
    for (size_t c = 0; c < n; c++) {
        plan->fields[c] = select != NULL ? (uint32_t)select->values[c].i : (uint32_t)c;
        column[plan->fields[c]] = (int32_t)c;
    }
    plan->dialect.select = select != NULL;
    plan->dialect.column = column;
    plan->dialect.n_fields = (uint32_t)n_fields;
    plan->dialect.n_columns = plan->n_columns;
    return 0;
}

int stg_csv_plan_infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_node *node = ctx->node;
    if (ctx->inputs[0].dtype != STAGER_STRING)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "input \"%s\" is %s; records must be strings", ctx->inputs[0].name,
                       stg_dtype_name(ctx->inputs[0].dtype));
    struct stg_csv_plan *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    if (plan == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    int rc = plan_columns(node, ctx->bump, plan, err);
    if (rc < 0)
        return rc;
    rc = plan_fields(node, ctx->bump, plan, err);
    if (rc < 0)
        return rc;
    const struct stg_value *delim = text_attr(node, "field_delim");
    if (delim != NULL && delim->s_bytes != 1)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "field_delim must be one byte, not %zu", delim->s_bytes);
    plan->dialect.delim = delim != NULL ? delim->s[0] : ',';
    plan->dialect.quotes =
        stg_attr_bool(node->attrs, node->n_attrs, "use_quote_delim", true);

    struct stg_component *outputs = stg_op_outputs(ctx, plan->n_columns);
    if (outputs == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (uint32_t c = 0; c < plan->n_columns; c++) {
        outputs[c] = ctx->inputs[0];
        outputs[c].dtype = plan->dtypes[c];
    }
    ctx->plan = plan;
    return 0;
}

/* ---- hashes ---- */

static const struct stg_csv_hash *plan_hash(const struct stg_hash_plan *plan,
                                            const struct stg_csv_rule *rule,
                                            struct stg_bump *bump)
{
    struct stg_csv_hash *hash = stg_bump_alloc(bump, sizeof(*hash));
    if (hash == NULL)
        return NULL;
    hash->buckets = plan->buckets;
    hash->missing =
        (int64_t)stg_modulus(stg_fingerprint64(rule->s, rule->s_bytes), &plan->buckets);
    return hash;
}

/* Columns that are only hashed: their strings are never written. */
const void *stg_csv_plan_absorb(const void *own, struct stg_absorb *readers, size_t n,
                                struct stg_bump *bump)
{
    const struct stg_csv_plan *plan = own;
    struct stg_csv_plan *ret = stg_bump_alloc(bump, sizeof(*ret));
    const struct stg_csv_hash **hashes =
        stg_bump_alloc(bump, plan->n_columns * sizeof(struct stg_csv_hash *));
    if (ret == NULL || hashes == NULL)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        size_t c = readers[i].output;
        if (readers[i].op != &stg_op_string_to_hash_bucket_fast)
            continue;
        hashes[c] = plan_hash(readers[i].plan, &plan->rules[c], bump);
        if (hashes[c] == NULL)
            return NULL;
        readers[i].taken = true;
    }
    *ret = *plan;
    ret->hashes = hashes;
    return ret;
}
