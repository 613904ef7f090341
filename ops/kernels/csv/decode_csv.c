/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "ops/base/element.h"
#include "ops/base/number.h"
#include "ops/kernels/csv/plan.h"

static const struct stg_param params[] = {
    {.name = "record_defaults",
     .type = STG_PARAM_VALUES,
     .required = true,
     .help = "one default a column; its kind gives the dtype: 0 int32, 0.0 float32, \"\" "
             "string; null: required"},
    {.name = "out_type",
     .type = STG_PARAM_STRINGS,
     .help = "dtypes of the columns: int32, int64, float32, float64, string"},
    {.name = "field_delim", .type = STG_PARAM_STRING, .preset = ",", .help = "one byte"},
    {.name = "use_quote_delim",
     .type = STG_PARAM_BOOL,
     .preset = "true",
     .help = "false: a double quote is a character like others"},
    {.name = "na_value",
     .type = STG_PARAM_VALUES,
     .preset = "",
     .help = "a field of this text, or of one of a list, counts as empty"},
    {.name = "select_cols",
     .type = STG_PARAM_INTS,
     .min = 0,
     .max = STG_CSV_MAX_COLUMNS - 1,
     .help = "the fields to decode, strictly increasing; default: all"},
};

struct work {
    struct stg_op_run *ctx;
    const struct stg_csv_plan *plan;
    const struct stg_csv_kernels *kernels; /* of the block */
    const struct stg_tensor *input;
    const char *data, *limit;
    size_t n_rows;
    const char **base;         /* of every row */
    struct stg_span **strings; /* column -> fields of every row; NULL: no string */
    uint32_t *ends, *room;     /* of the block */
    struct stg_span *row;      /* one odd row */
    struct stg_tensor *outputs;
    uint64_t *string_bytes; /* a column */
    uint32_t bytes[STG_CSV_ROWS], counts[STG_CSV_ROWS];
};

static void *room(struct work *work, size_t n, size_t bytes)
{
    size_t total;
    if (__builtin_mul_overflow(n, bytes, &total))
        return NULL;
    return stg_bump_alloc_raw(work->ctx->scratch, total);
}

/* The column is a tensor of strings. */
static bool is_string(const struct stg_csv_plan *plan, uint32_t c)
{
    return plan->dtypes[c] == STAGER_STRING &&
           (plan->hashes == NULL || plan->hashes[c] == NULL);
}

static int prepare(struct work *work, struct stg_err *err)
{
    const struct stg_csv_plan *plan = work->plan;
    uint32_t n_columns = plan->n_columns, n_fields = plan->dialect.n_fields;
    work->base = room(work, work->n_rows, sizeof(*work->base));
    work->strings = room(work, n_columns, sizeof(*work->strings));
    work->ends = room(work, stg_csv_n_ends(n_fields), sizeof(*work->ends));
    work->room = room(work, stg_csv_n_room(n_fields), sizeof(*work->room));
    work->row = room(work, n_columns, sizeof(*work->row));
    work->outputs = room(work, n_columns, sizeof(*work->outputs));
    work->string_bytes = room(work, n_columns, sizeof(*work->string_bytes));
    if (work->base == NULL || work->strings == NULL || work->ends == NULL ||
        work->room == NULL || work->row == NULL || work->outputs == NULL ||
        work->string_bytes == NULL)
        goto fail;
    memset(work->ends, 0xff, STG_CSV_ROWS * sizeof(*work->ends));
    for (uint32_t c = 0; c < n_columns; c++) {
        work->string_bytes[c] = 0;
        work->strings[c] = NULL;
        if (!is_string(plan, c))
            continue;
        work->strings[c] = room(work, work->n_rows, sizeof(**work->strings));
        if (work->strings[c] == NULL)
            goto fail;
    }
    /* The last byte that is surely there. */
    int64_t last = 0;
    for (size_t i = 0; i < work->n_rows; i++)
        last = work->input->end[i] > last ? work->input->end[i] : last;
    work->limit = work->data + last;
    return 0;

fail:
    return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "no memory for %zu rows of %u fields",
                   work->n_rows, n_fields);
}

/* As the kernels of columns take them. */
static const uint32_t *ends_of(const struct work *work, uint32_t column)
{
    return work->ends + (size_t)work->plan->fields[column] * STG_CSV_ROWS;
}

static struct stg_csv_block block_of(const struct work *work, size_t first, size_t n)
{
    return (struct stg_csv_block){
        .base = work->base + first, .limit = work->limit, .n = n};
}

/* Takes up the rows from `first` on that the same kernels can do: those behind which too
 * little is there to be read are the reference's. Returns how many; 0: a row is too long.
 */
static size_t begin_block(struct work *work, size_t first)
{
    const struct stg_csv_kernels *best = stg_csv_kernels();
    const int64_t *begin = work->input->begin + first, *end = work->input->end + first;
    int64_t limit = work->limit - work->data - (best->needs_slack ? STG_CSV_SLACK : 0);
    size_t left = work->n_rows - first, most = left < STG_CSV_ROWS ? left : STG_CSV_ROWS;
    bool fast = end[0] <= limit;
    work->kernels = fast ? best : &stg_csv_kernels_scalar;
    size_t n = 0;
    for (; n < most && (end[n] <= limit) == fast; n++) {
        if (end[n] - begin[n] >= UINT32_MAX)
            return 0;
        work->base[first + n] = work->data + begin[n];
        work->bytes[n] = (uint32_t)(end[n] - begin[n]);
    }
    return n;
}

/* A row with quotes or line breaks: its fields are copied out, unescaped. */
static bool index_odd_row(struct work *work, size_t first, size_t i)
{
    char *text = room(work, (size_t)work->bytes[i] + STG_CSV_SLACK, 1);
    if (text == NULL)
        return false;
    uint32_t field;
    int64_t n = stg_csv_row(&work->plan->dialect, work->base[first + i], work->bytes[i],
                            text, work->row, &field);
    if (n != work->plan->n_columns)
        return false;
    memset(text + work->bytes[i], 0, STG_CSV_SLACK);
    work->base[first + i] = text;
    uint32_t *ends = work->ends + i, end = UINT32_MAX;
    for (uint32_t f = 0; f < work->plan->dialect.n_fields; f++) {
        int32_t c = work->plan->dialect.column[f];
        if (c >= 0)
            end = work->row[c].start + work->row[c].bytes;
        ends[(f + 1) * (size_t)STG_CSV_ROWS] = end;
    }
    return true;
}

static bool index_block(struct work *work, size_t first, size_t n)
{
    const struct stg_csv_dialect *dialect = &work->plan->dialect;
    struct stg_csv_block block = block_of(work, first, n);
    work->kernels->index(dialect, &block, work->bytes, work->room, work->ends,
                         work->counts);
    for (size_t i = 0; i < n; i++) {
        uint32_t count = work->counts[i];
        if (count == dialect->n_fields ||
            (dialect->select && count > dialect->n_fields && count != STG_CSV_ODD))
            continue;
        if (count != STG_CSV_ODD || !index_odd_row(work, first, i))
            return false;
    }
    return true;
}

static bool convert_column(struct work *work, const struct stg_csv_block *block,
                           size_t first, uint32_t c)
{
    const struct stg_csv_kernels *kernels = work->kernels;
    const uint32_t *ends = ends_of(work, c);
    const struct stg_csv_rule *rule = &work->plan->rules[c];
    void *out = work->outputs[c].data;
    switch (work->plan->dtypes[c]) {
    case STAGER_INT32: return kernels->int32(block, ends, rule, (int32_t *)out + first);
    case STAGER_INT64: return kernels->int64(block, ends, rule, (int64_t *)out + first);
    case STAGER_FLOAT32: return kernels->float32(block, ends, rule, (float *)out + first);
    case STAGER_FLOAT64:
        return kernels->float64(block, ends, rule, (double *)out + first);
    default: break;
    }
    if (!is_string(work->plan, c))
        return kernels->hash(block, ends, rule, work->plan->hashes[c],
                             (int64_t *)out + first);
    uint64_t bytes = 0;
    bool good = kernels->spans(block, ends, rule, work->strings[c] + first, &bytes);
    work->string_bytes[c] += bytes;
    return good;
}

static bool convert_block(struct work *work, size_t first, size_t n)
{
    struct stg_csv_block block = block_of(work, first, n);
    for (uint32_t c = 0; c < work->plan->n_columns; c++) {
        if (!convert_column(work, &block, first, c))
            return false;
    }
    return true;
}

static int alloc_columns(struct work *work, bool strings, struct stg_err *err)
{
    for (uint32_t c = 0; c < work->plan->n_columns; c++) {
        if (is_string(work->plan, c) != strings)
            continue;
        int dtype = work->plan->dtypes[c];
        if (dtype == STAGER_STRING && !strings)
            dtype = STAGER_INT64;
        int rc =
            work->ctx->alloc(work->ctx, c, dtype, work->input->ndim, work->input->shape,
                             work->string_bytes[c], &work->outputs[c], err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static void copy_strings(struct work *work)
{
    const struct stg_csv_kernels *kernels = &stg_csv_kernels_scalar;
    for (size_t first = 0; first < work->n_rows; first += STG_CSV_ROWS) {
        size_t left = work->n_rows - first;
        struct stg_csv_block block =
            block_of(work, first, left < STG_CSV_ROWS ? left : STG_CSV_ROWS);
        for (uint32_t c = 0; c < work->plan->n_columns; c++) {
            if (!is_string(work->plan, c))
                continue;
            int64_t *offsets = (int64_t *)(uintptr_t)work->outputs[c].begin;
            kernels->string(&block, work->strings[c] + first, &work->plan->rules[c],
                            work->outputs[c].data, offsets + first);
        }
    }
}

/* ---- what is wrong ---- */

static bool parses(int dtype, const char *s, size_t n)
{
    union {
        int32_t i32;
        int64_t i64;
        float f32;
        double f64;
    } value;
    switch (dtype) {
    case STAGER_INT32: return stg_parse_int32(s, n, &value.i32);
    case STAGER_INT64: return stg_parse_int64(s, n, &value.i64);
    case STAGER_FLOAT32: return stg_parse_float32(s, n, &value.f32);
    case STAGER_FLOAT64: return stg_parse_float64(s, n, &value.f64);
    default: return true;
    }
}

/* Is it a line of titles: a name in each column of numbers? */
static bool has_titles(const struct work *work, const char *text)
{
    const struct stg_csv_plan *plan = work->plan;
    bool any = false, all = true;
    for (uint32_t c = 0; c < plan->n_columns && all; c++) {
        const char *s = text + work->row[c].start;
        size_t n = work->row[c].bytes;
        if (plan->dtypes[c] == STAGER_STRING)
            continue;
        any = true;
        all = n > 0 && ((s[0] | 0x20) >= 'a' && (s[0] | 0x20) <= 'z') &&
              !parses(plan->dtypes[c], s, n);
    }
    return any && all;
}

/* The hint stands behind the reason of a number that is none. */
static int explain_field(const struct stg_csv_plan *plan, int64_t row, uint32_t c,
                         const char *s, size_t n, const char *hint, struct stg_err *err)
{
    const struct stg_csv_rule *rule = &plan->rules[c];
    char quoted[STG_QUOTE_BYTES];
    if (stg_csv_is_missing(rule, s, n)) {
        if (!rule->required)
            return 0;
        return stg_err_row(err, -STAGER_INVALID_ARGUMENT, row,
                           "field %u is required and missing; give it a default in "
                           "record_defaults",
                           plan->fields[c]);
    }
    if (parses(plan->dtypes[c], s, n))
        return 0;
    return stg_err_row(err, -STAGER_INVALID_ARGUMENT, row,
                       "field %u: %s is not a valid %s%s", plan->fields[c],
                       stg_quote(s, n, quoted), stg_dtype_name(plan->dtypes[c]), hint);
}

static int explain_fault(int64_t fault, int64_t row, uint32_t field, const char *s,
                         size_t n, struct stg_err *err)
{
    char quoted[STG_QUOTE_BYTES];
    return stg_err_row(err, -STAGER_INVALID_ARGUMENT, row,
                       "field %u: %s; the record is %s", field, stg_csv_fault_text(fault),
                       stg_quote(s, n, quoted));
}

static int explain_row(const struct work *work, size_t i, char *text, struct stg_err *err)
{
    const struct stg_csv_plan *plan = work->plan;
    int64_t row = (int64_t)i;
    const char *s = work->data + work->input->begin[i];
    size_t bytes = (size_t)(work->input->end[i] - work->input->begin[i]);
    if (bytes >= UINT32_MAX)
        return stg_err_row(err, -STAGER_INVALID_ARGUMENT, row,
                           "the record has %zu bytes; 4 GiB are too many", bytes);
    uint32_t field = 0;
    int64_t n = stg_csv_row(&plan->dialect, s, bytes, text, work->row, &field);
    if (n < 0)
        return explain_fault(n, row, field, s, bytes, err);
    char quoted[STG_QUOTE_BYTES];
    if (n != plan->n_columns)
        return stg_err_row(err, -STAGER_INVALID_ARGUMENT, row,
                           "expected %u %sfields, the record has %" PRId64 ": %s",
                           plan->n_columns, plan->dialect.select ? "selected " : "", n,
                           stg_quote(s, bytes, quoted));
    for (uint32_t c = 0; c < plan->n_columns; c++) {
        const char *value = text + work->row[c].start;
        int rc = explain_field(plan, row, c, value, work->row[c].bytes, "", err);
        if (rc < 0 && has_titles(work, text))
            return explain_field(plan, row, c, value, work->row[c].bytes,
                                 "; if this line holds the titles of the columns, leave "
                                 "it out: text_line: {skip_header_lines: 1}, or csv: "
                                 "{header: true}",
                                 err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* The kernels only say that something is wrong; this finds the first bad row, and in it
 * what TensorFlow would find first. */
static int explain(struct work *work, struct stg_err *err)
{
    size_t longest = 0;
    for (size_t i = 0; i < work->n_rows; i++) {
        size_t bytes = (size_t)(work->input->end[i] - work->input->begin[i]);
        if (bytes < UINT32_MAX && bytes > longest)
            longest = bytes;
    }
    char *text = room(work, longest + STG_CSV_SLACK, 1);
    if (text == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                       "no memory for a record of %zu bytes", longest);
    for (size_t i = 0; i < work->n_rows; i++) {
        int rc = explain_row(work, i, text, err);
        if (rc < 0)
            return rc;
    }
    return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "no memory for quoted fields");
}

static int run(struct stg_op_run *ctx, struct stg_err *err)
{
    struct work work = {
        .ctx = ctx,
        .plan = ctx->plan,
        .input = &ctx->inputs[0],
        .data = ctx->inputs[0].data,
        .n_rows = (size_t)stg_tensor_n(&ctx->inputs[0]),
    };
    int rc = prepare(&work, err);
    if (rc < 0)
        return rc;
    rc = alloc_columns(&work, false, err);
    if (rc < 0)
        return rc;
    for (size_t first = 0, n; first < work.n_rows; first += n) {
        n = begin_block(&work, first);
        if (n == 0 || !index_block(&work, first, n) || !convert_block(&work, first, n))
            return explain(&work, err);
    }
    rc = alloc_columns(&work, true, err);
    if (rc < 0)
        return rc;
    copy_strings(&work);
    return 0;
}

const struct stg_op stg_op_decode_csv = {
    .name = "decode_csv",
    .summary = "CSV records to one tensor a column; every rule as tf.io.decode_csv of "
               "TensorFlow 2.21.",
    STG_PARAMS(params),
    .min_inputs = 1,
    .max_inputs = 1,
    .flags = STG_OP_ROW_WISE,
    .infer = stg_csv_plan_infer,
    .run = run,
    .rows = stg_rows_first,
    .absorb = stg_csv_plan_absorb,
};
