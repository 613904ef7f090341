/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/sources/csv_columns.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/dataset/block.h"
#include "daemon/dataset/sources/columns.h"
#include "daemon/format/csv_header.h"
#include "ops/base/element.h"
#include "ops/kernels/csv/csv.h"

struct csv {
    struct stg_iter iter;
    struct stg_iter *reader; /* of records; NULL: none so far */
    struct stg_schema record;
    struct stg_declared_column *declared; /* n, as are rules, row and copied */
    uint32_t n;
    struct stg_csv_rule *rules;
    struct stg_span *row; /* a record with quotes */
    bool *copied;         /* of a block: the column has empty fields with a default */
    struct stg_csv_dialect dialect;
    uint64_t serial;         /* of the header that the dialect is of */
    const uint32_t *fields;  /* and that of its columns */
    struct stg_chunk *rooms; /* for `ends` and `room` */
    uint32_t *ends, *room;
    struct stg_chunk *text;  /* for records with quotes; NULL: none so far */
    struct stg_err shortage; /* code not 0: there was no memory for them */

    struct stg_block *records; /* of which those from `at` on are left; NULL: none */
    int64_t at;
};

static int out_of_memory(const struct csv *csv, struct stg_err *err)
{
    return stg_step_err(csv->iter.step, -STAGER_RESOURCE_EXHAUSTED, err, "out of memory");
}

/* ---- options ---- */

bool stg_csv_has_columns(const struct stg_step *step)
{
    for (size_t i = 0; i < step->n_attrs; i++) {
        if (strncmp(step->attrs[i].name, "columns", strlen("columns")) == 0 ||
            strncmp(step->attrs[i].name, "defaults", strlen("defaults")) == 0)
            return true;
    }
    return false;
}

static bool is_dtype(int dtype)
{
    return dtype == STAGER_INT32 || dtype == STAGER_INT64 || dtype == STAGER_FLOAT32 ||
           dtype == STAGER_FLOAT64 || dtype == STAGER_STRING;
}

int stg_csv_columns_infer(const struct stg_step *step, const struct stg_schema *in,
                          struct stg_bump *bump, struct stg_schema *ret,
                          struct stg_err *err)
{
    int rc = stg_reader_check(step, in, err);
    if (rc == 0)
        rc = stg_columns_infer(step, bump, ret, err);
    if (rc < 0)
        return rc;
    if (!stg_step_bool(step, "header", false))
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "columns have their names from the header: set header: true, "
                            "or use decode_csv for files without one");
    for (size_t c = 0; c < ret->n; c++) {
        const struct stg_component *component = &ret->components[c];
        if (!is_dtype(component->dtype))
            return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                                "columns: %s is %s; a column of CSV is int32, int64, "
                                "float32, float64 or string",
                                component->name, stg_dtype_name(component->dtype));
    }
    return 0;
}

static struct stg_csv_rule rule_of(const struct stg_declared_column *column)
{
    struct stg_csv_rule rule = {.required = !column->has_default &&
                                            column->dtype != STAGER_STRING,
                                .s = column->text,
                                .s_bytes = column->text_bytes};
    switch (column->dtype) {
    case STAGER_INT32: memcpy(&rule.i32, &column->value, sizeof(rule.i32)); break;
    case STAGER_INT64: memcpy(&rule.i64, &column->value, sizeof(rule.i64)); break;
    case STAGER_FLOAT32: memcpy(&rule.f32, &column->value, sizeof(rule.f32)); break;
    case STAGER_FLOAT64: memcpy(&rule.f64, &column->value, sizeof(rule.f64)); break;
    default: break;
    }
    return rule;
}

/* ---- a block ---- */

/* Takes up the header that the records are of. */
static int take_header(struct csv *csv, struct stg_err *err)
{
    const struct stg_csv_header *header =
        stg_csv_header_of(stg_reader_format(csv->reader));
    uint64_t ends_bytes =
        stg_block_room(stg_csv_n_ends(header->n_fields) * sizeof(*csv->ends));
    uint64_t bytes = ends_bytes + stg_csv_n_room(header->n_fields) * sizeof(*csv->room);
    csv->dialect.n_fields = header->n_fields;
    csv->dialect.column = header->columns;
    csv->fields = header->fields;
    if (csv->serial == header->serial && csv->rooms != NULL)
        return 0;
    int rc = stg_chunk_renew(csv->iter.dataset->quota, bytes, "the fields of records",
                             &csv->rooms, err);
    if (rc < 0)
        return stg_step_prefix(csv->iter.step, rc, err);
    csv->ends = (uint32_t *)(void *)csv->rooms->data;
    csv->room = (uint32_t *)(void *)(csv->rooms->data + ends_bytes);
    memset(csv->ends, 0xff, STG_CSV_ROWS * sizeof(*csv->ends));
    csv->serial = header->serial;
    return 0;
}

/* Rows of records that the same kernels can do; behind the first one, of this size. */
#define GROUP_BYTES (256u << 10)

struct group {
    const struct stg_csv_kernels *kernels;
    char *records[STG_CSV_ROWS];    /* where the records lie */
    const char *base[STG_CSV_ROWS]; /* the same, but for those with quotes: unescaped */
    uint32_t bytes[STG_CSV_ROWS];
    uint64_t text_bytes; /* of csv->text that are used */
    struct stg_csv_block block;
};

/* Of the rows from `first` to `end`. Returns 0 if the first is too long. */
static size_t begin_group(const struct stg_tensor *records, int64_t first, int64_t end,
                          struct group *ret)
{
    const struct stg_csv_kernels *best = stg_csv_kernels();
    int64_t bytes = (int64_t)records->data_bytes;
    int64_t limit = bytes - (best->needs_slack ? STG_CSV_SLACK : 0);
    bool is_fast = records->end[first] <= limit;
    int64_t most = records->begin[first] + GROUP_BYTES;
    size_t n = 0;
    ret->text_bytes = 0;
    ret->kernels = is_fast ? best : &stg_csv_kernels_scalar;
    for (; n < STG_CSV_ROWS && first < end; n++, first++) {
        int64_t from = records->begin[first], to = records->end[first];
        if ((to <= limit) != is_fast || to - from >= UINT32_MAX || (n > 0 && to > most))
            break;
        ret->base[n] = ret->records[n] = (char *)records->data + from;
        ret->bytes[n] = (uint32_t)(to - from);
    }
    ret->block = (struct stg_csv_block){
        .base = ret->base, .limit = (const char *)records->data + bytes, .n = n};
    return n;
}

/* Makes room for the records of a group that have quotes. */
static char *text_room(struct csv *csv, struct group *group, size_t i)
{
    uint64_t bytes = 0;
    if (group->text_bytes == 0) {
        for (size_t k = i; k < group->block.n; k++)
            bytes += (uint64_t)group->bytes[k] + STG_CSV_SLACK;
        if (stg_chunk_renew(csv->iter.dataset->quota, bytes, "records with quotes",
                            &csv->text, &csv->shortage) < 0)
            return NULL;
    }
    char *ret = csv->text->data + group->text_bytes;
    group->text_bytes += (uint64_t)group->bytes[i] + STG_CSV_SLACK;
    return ret;
}

/* Row i of a group, which has quotes: its fields are copied out, unescaped. Returns
 * whether it can be had. */
static bool unescape(struct csv *csv, struct group *group, size_t i)
{
    uint32_t field = 0, end = UINT32_MAX, *ends = csv->ends + i;
    char *text = text_room(csv, group, i);
    if (text == NULL || stg_csv_row(&csv->dialect, group->base[i], group->bytes[i], text,
                                    csv->row, &field) != csv->dialect.n_fields)
        return false;
    memset(text + group->bytes[i], 0, STG_CSV_SLACK);
    group->base[i] = text;
    for (uint32_t f = 0; f < csv->dialect.n_fields; f++) {
        int32_t c = csv->dialect.column[f];
        if (c >= 0)
            end = csv->row[c].start + csv->row[c].bytes;
        ends[(f + 1) * (size_t)STG_CSV_ROWS] = end;
    }
    return true;
}

/* Writes n rows that were unescaped to where the records lie. They are not looked at any
 * more. */
static void put_back(const struct group *group, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (group->base[i] != group->records[i])
            memcpy(group->records[i], group->base[i], group->bytes[i]);
    }
}

/* Finds the fields of a group. Returns the number of rows before one that has another
 * number of them. */
static size_t index_group(struct csv *csv, struct group *group)
{
    uint32_t counts[STG_CSV_ROWS];
    group->kernels->index(&csv->dialect, &group->block, group->bytes, csv->room,
                          csv->ends, counts);
    for (size_t i = 0; i < group->block.n; i++) {
        bool is_good = counts[i] == csv->dialect.n_fields ||
                       (counts[i] == STG_CSV_ODD && unescape(csv, group, i));
        if (!is_good)
            return i;
    }
    return group->block.n;
}

static void fill(const struct stg_tensor *tensor, int64_t first, size_t n, uint64_t value)
{
    unsigned width = stg_dtype_bytes(tensor->dtype);
    char *to = (char *)tensor->data + (uint64_t)first * width;
    for (size_t i = 0; i < n; i++)
        memcpy(to + i * width, &value, width);
}

/* Strings begin and end where they lie in the records. */
static bool show_strings(struct csv *csv, const struct stg_csv_kernels *kernels,
                         const struct stg_csv_block *block, char *const *records,
                         const uint32_t *ends, uint32_t c,
                         const struct stg_tensor *tensor, int64_t first)
{
    struct stg_span spans[STG_CSV_ROWS];
    int64_t *begin = (int64_t *)(uintptr_t)tensor->begin + first;
    int64_t *end = (int64_t *)(uintptr_t)tensor->end + first;
    uint64_t bytes;
    if (!kernels->spans(block, ends, &csv->rules[c], spans, &bytes))
        return false;
    for (size_t i = 0; i < block->n; i++) {
        begin[i] = records[i] - (char *)tensor->data + spans[i].start;
        end[i] = begin[i] + spans[i].bytes;
        csv->copied[c] |= spans[i].bytes == 0;
    }
    return true;
}

/* The rows of a file that lacks the column. */
static void show_default(struct csv *csv, uint32_t c, size_t n,
                         const struct stg_tensor *tensor, int64_t first)
{
    csv->copied[c] = true;
    if (tensor->dtype != STAGER_STRING) {
        fill(tensor, first, n, csv->declared[c].value);
        return;
    }
    memset((int64_t *)(uintptr_t)tensor->begin + first, 0, n * sizeof(int64_t));
    memset((int64_t *)(uintptr_t)tensor->end + first, 0, n * sizeof(int64_t));
}

/* Column c of a block, which begins with that row of the group, to the rows from `first`
 * on of its tensor. False: one of them cannot be had. */
static bool convert(struct csv *csv, const struct stg_csv_kernels *kernels,
                    const struct group *group, const struct stg_csv_block *block,
                    size_t row, uint32_t c, const struct stg_tensor *tensor,
                    int64_t first)
{
    const struct stg_csv_rule *rule = &csv->rules[c];
    if (csv->fields[c] == STG_CSV_NO_FIELD) {
        show_default(csv, c, block->n, tensor, first);
        return true;
    }
    const uint32_t *ends = csv->ends + (size_t)csv->fields[c] * STG_CSV_ROWS + row;
    switch (tensor->dtype) {
    case STAGER_INT32:
        return kernels->int32(block, ends, rule, (int32_t *)tensor->data + first);
    case STAGER_INT64:
        return kernels->int64(block, ends, rule, (int64_t *)tensor->data + first);
    case STAGER_FLOAT32:
        return kernels->float32(block, ends, rule, (float *)tensor->data + first);
    case STAGER_FLOAT64:
        return kernels->float64(block, ends, rule, (double *)tensor->data + first);
    default:
        return show_strings(csv, kernels, block, group->records + row, ends, c, tensor,
                            first);
    }
}

/* Converts row by row. Returns the number of rows before one that cannot be had. */
static size_t convert_slowly(struct csv *csv, const struct group *group, size_t n,
                             const struct stg_tensor *tensors, int64_t first,
                             uint32_t *ret_column)
{
    for (size_t i = 0; i < n; i++) {
        struct stg_csv_block one = {
            .base = group->base + i, .limit = group->block.limit, .n = 1};
        for (uint32_t c = 0; c < csv->n; c++) {
            *ret_column = c;
            if (!convert(csv, &stg_csv_kernels_scalar, group, &one, i, c, &tensors[c],
                         first + (int64_t)i))
                return i;
        }
    }
    return n;
}

/* Returns as convert_slowly does. */
static size_t convert_group(struct csv *csv, const struct group *group, size_t n,
                            const struct stg_tensor *tensors, int64_t first)
{
    struct stg_csv_block block = group->block;
    uint32_t column = 0;
    block.n = n;
    bool is_good = true;
    for (uint32_t c = 0; c < csv->n && is_good && n > 0; c++)
        is_good = convert(csv, group->kernels, group, &block, 0, c, &tensors[c], first);
    return is_good ? n : convert_slowly(csv, group, n, tensors, first, &column);
}

/* Converts up to n of the records. Returns how many could be had. */
static int64_t convert_records(struct csv *csv, int64_t n,
                               const struct stg_tensor *tensors)
{
    const struct stg_tensor *records = &csv->records->tensors[0];
    int64_t done = 0;
    while (done < n) {
        struct group group;
        size_t in_group = begin_group(records, csv->at + done, csv->at + n, &group);
        size_t good = in_group > 0 ? index_group(csv, &group) : 0;
        good = convert_group(csv, &group, good, tensors, done);
        put_back(&group, good);
        done += (int64_t)good;
        if (good < in_group || in_group == 0)
            break;
    }
    return done;
}

/* ---- strings with defaults ---- */

/* Gives a column of n strings, some of them empty, its default. */
static int copy_strings(struct csv *csv, struct stg_block *block, uint32_t c,
                        struct stg_err *err)
{
    struct stg_tensor *tensor = &block->tensors[c];
    const struct stg_csv_rule *rule = &csv->rules[c];
    int64_t *begin = (int64_t *)(uintptr_t)tensor->begin;
    int64_t *end = (int64_t *)(uintptr_t)tensor->end;
    uint64_t bytes = rule->s_bytes;
    struct stg_chunk *chunk;
    for (int64_t i = 0; i < block->n_records; i++)
        bytes += (uint64_t)(end[i] - begin[i]);
    int rc = stg_chunk_create_near(csv->iter.dataset->quota, bytes,
                                   "a column with defaults", &chunk, err);
    if (rc < 0)
        return stg_step_prefix(csv->iter.step, rc, err);
    uint64_t used = rule->s_bytes;
    memcpy(chunk->data, rule->s, rule->s_bytes);
    for (int64_t i = 0; i < block->n_records; i++) {
        uint64_t n = (uint64_t)(end[i] - begin[i]);
        memcpy(chunk->data + used, (const char *)tensor->data + begin[i], n);
        begin[i] = n > 0 ? (int64_t)used : 0;
        end[i] = n > 0 ? (int64_t)(used + n) : (int64_t)rule->s_bytes;
        used += n;
    }
    tensor->data = chunk->data;
    tensor->data_bytes = bytes;
    stg_block_hold(block, &chunk, 1);
    stg_chunk_unref(chunk);
    return 0;
}

static int copy_columns(struct csv *csv, struct stg_block *block, struct stg_err *err)
{
    for (uint32_t c = 0; c < csv->n; c++) {
        bool is_copied = csv->copied[c] && csv->rules[c].s_bytes > 0 &&
                         csv->declared[c].dtype == STAGER_STRING;
        int rc = is_copied ? copy_strings(csv, block, c, err) : 0;
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- what cannot be had ---- */

static void explain_column(struct csv *csv, const struct group *group,
                           const struct stg_tensor *tensors, struct stg_err *ret)
{
    uint32_t c = 0;
    char quoted[STG_QUOTE_BYTES];
    convert_slowly(csv, group, 1, tensors, 0, &c);
    struct stg_span span =
        stg_csv_field(csv->ends + (size_t)csv->fields[c] * STG_CSV_ROWS, 0);
    if (span.bytes == 0)
        stg_err(ret, -STAGER_INVALID_ARGUMENT,
                "column %.256s: the field is empty, and the step has no default for it",
                csv->declared[c].name);
    else
        stg_err(ret, -STAGER_INVALID_ARGUMENT, "column %.256s: %s is not a valid %s",
                csv->declared[c].name,
                stg_quote(group->base[0] + span.start, span.bytes, quoted),
                stg_dtype_name(csv->declared[c].dtype));
}

/* Why the next record cannot be had. tensors have room for one row. */
static void explain(struct csv *csv, const struct stg_tensor *tensors,
                    struct stg_err *ret)
{
    const struct stg_tensor *records = &csv->records->tensors[0];
    const char *s = (const char *)records->data + records->begin[csv->at];
    int64_t bytes = records->end[csv->at] - records->begin[csv->at];
    char quoted[STG_QUOTE_BYTES];
    struct group group;
    uint32_t field = 0;
    if (bytes >= UINT32_MAX) {
        stg_err(ret, -STAGER_INVALID_ARGUMENT,
                "the record has %" PRId64 " bytes; 4 GiB are too many", bytes);
        return;
    }
    begin_group(records, csv->at, csv->at + 1, &group);
    if (index_group(csv, &group) == 1) {
        explain_column(csv, &group, tensors, ret);
        return;
    }
    group.text_bytes = 0;
    char *text = text_room(csv, &group, 0);
    if (text == NULL)
        return;
    int64_t n = stg_csv_row(&csv->dialect, s, (size_t)bytes, text, csv->row, &field);
    if (n < 0)
        stg_err(ret, -STAGER_INVALID_ARGUMENT, "field %u: %s; the record is %s", field,
                stg_csv_fault_text(n), stg_quote(s, (size_t)bytes, quoted));
    else
        stg_err(ret, -STAGER_INVALID_ARGUMENT,
                "the record has %" PRId64 " fields, and the header %u: %s", n,
                csv->dialect.n_fields, stg_quote(s, (size_t)bytes, quoted));
}

/* The next record is an error item, unless there is no memory. */
static int make_bad(struct csv *csv, const struct stg_tensor *tensors,
                    struct stg_block **ret, struct stg_err *err)
{
    struct stg_err why = {0};
    char place[512];
    explain(csv, tensors, &why);
    if (csv->shortage.code != 0)
        return 0;
    stg_err_prefix(&why, why.code, "%s",
                   stg_provenance_text(csv->iter.dataset, &csv->records->rows[csv->at],
                                       place, sizeof(place)));
    return stg_block_create_error(csv->iter.dataset->quota, &why, csv->records->epoch,
                                  ret, err);
}

/* ---- the iterator ---- */

static void set_tensors(const struct csv *csv, struct stg_block *block, int64_t n)
{
    const struct stg_tensor *records = &csv->records->tensors[0];
    for (uint32_t c = 0; c < csv->n; c++) {
        struct stg_tensor *tensor = &block->tensors[c];
        int dtype = csv->declared[c].dtype;
        *tensor = (struct stg_tensor){.dtype = dtype, .ndim = 1, .shape = {n}};
        if (dtype == STAGER_STRING) {
            tensor->data = records->data;
            tensor->data_bytes = records->data_bytes;
            tensor->begin = stg_block_carve(block, (uint64_t)n * sizeof(int64_t));
            tensor->end = stg_block_carve(block, (uint64_t)n * sizeof(int64_t));
        } else {
            tensor->data_bytes = (uint64_t)n * stg_dtype_bytes(dtype);
            tensor->data = stg_block_carve(block, tensor->data_bytes);
        }
    }
}

static uint64_t block_bytes(const struct csv *csv, int64_t n)
{
    uint64_t bytes = 0;
    for (uint32_t c = 0; c < csv->n; c++) {
        int dtype = csv->declared[c].dtype;
        bool is_string = dtype == STAGER_STRING;
        unsigned width = is_string ? sizeof(int64_t) : stg_dtype_bytes(dtype);
        bytes += (is_string ? 2 : 1) * stg_block_room((uint64_t)n * width);
        bytes += stg_block_room(sizeof(struct stg_chunk *)); /* held, with defaults */
    }
    return bytes;
}

/* The block has the first n of the rows that it was made for. */
static void shorten(struct csv *csv, struct stg_block *block, int64_t n)
{
    block->n_records = block->n_rows = n;
    block->rows = csv->records->rows + csv->at;
    for (uint32_t c = 0; c < csv->n; c++) {
        struct stg_tensor *tensor = &block->tensors[c];
        tensor->shape[0] = n;
        if (tensor->dtype != STAGER_STRING)
            tensor->data_bytes = (uint64_t)n * stg_dtype_bytes(tensor->dtype);
    }
}

/* Without memory for records with quotes, the pass ends. */
static int fail(struct csv *csv, struct stg_err *err)
{
    int rc = csv->shortage.code;
    if (err != NULL)
        *err = csv->shortage;
    return stg_step_prefix(csv->iter.step, rc, err);
}

static int make_block(struct csv *csv, int64_t n, struct stg_block **ret,
                      struct stg_err *err)
{
    struct stg_quota *quota = csv->iter.dataset->quota;
    struct stg_block *block;
    int rc = stg_block_derive(quota, csv->records, csv->n, block_bytes(csv, n),
                              "a block of rows", &block, err);
    if (rc < 0)
        return stg_step_prefix(csv->iter.step, rc, err);
    set_tensors(csv, block, n);
    memset(csv->copied, 0, csv->n * sizeof(*csv->copied));
    int64_t n_good = convert_records(csv, n, block->tensors);
    rc = n_good == 0 && csv->shortage.code == 0 ? make_bad(csv, block->tensors, ret, err)
                                                : 0;
    if (n_good == 0 || csv->shortage.code != 0) {
        stg_block_unref(block);
        csv->at += rc == 0;
        return csv->shortage.code != 0 ? fail(csv, err) : rc;
    }
    shorten(csv, block, n_good);
    rc = copy_columns(csv, block, err);
    if (rc < 0) {
        stg_block_unref(block);
        return rc;
    }
    csv->at += n_good;
    *ret = block;
    return 0;
}

static void drop_records(struct csv *csv)
{
    stg_block_unref(csv->records);
    csv->records = NULL;
    csv->at = 0;
}

static int csv_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                    struct stg_err *err)
{
    struct csv *csv = (struct csv *)iter;
    if (csv->records == NULL) {
        struct stg_block *block;
        int rc = csv->reader->impl->next(csv->reader, want, &block, err);
        if (rc == 0 && block->error.code != 0) {
            *ret = block;
            return 0;
        }
        if (rc != 0)
            return rc;
        csv->records = block;
        csv->at = 0;
        rc = take_header(csv, err);
        if (rc < 0)
            return rc;
    }
    int64_t left = csv->records->n_records - csv->at;
    int rc = make_block(csv, left < want ? left : want, ret, err);
    if (rc == 0 && csv->at == csv->records->n_records)
        drop_records(csv);
    return rc;
}

static int csv_skip(struct stg_iter *iter, uint64_t n, uint64_t *ret, struct stg_err *err)
{
    struct csv *csv = (struct csv *)iter;
    uint64_t left =
        csv->records != NULL ? (uint64_t)(csv->records->n_records - csv->at) : 0;
    if (n < left) {
        csv->at += (int64_t)n;
        *ret = n;
        return 0;
    }
    drop_records(csv);
    int rc = csv->reader->impl->skip(csv->reader, n - left, ret, err);
    if (rc == 0)
        *ret += left;
    return rc;
}

static bool csv_left(struct stg_iter *iter, uint64_t most, uint64_t *ret)
{
    struct csv *csv = (struct csv *)iter;
    uint64_t left =
        csv->records != NULL ? (uint64_t)(csv->records->n_records - csv->at) : 0;
    bool is_known = csv->reader->impl->left(csv->reader, most, ret);
    *ret = stg_count_add(*ret, left);
    return is_known;
}

static int csv_rewind(struct stg_iter *iter, bool afresh, struct stg_err *err)
{
    struct csv *csv = (struct csv *)iter;
    drop_records(csv);
    return csv->reader->impl->rewind(csv->reader, afresh, err);
}

static int csv_count(struct stg_iter *iter, struct stg_extent *ret, struct stg_err *err)
{
    struct csv *csv = (struct csv *)iter;
    drop_records(csv);
    return csv->reader->impl->count(csv->reader, ret, err);
}

static int csv_seek(struct stg_iter *iter, uint64_t n, struct stg_err *err)
{
    struct csv *csv = (struct csv *)iter;
    drop_records(csv);
    return csv->reader->impl->seek(csv->reader, n, err);
}

static void csv_destroy(struct stg_iter *iter)
{
    struct csv *csv = (struct csv *)iter;
    drop_records(csv);
    if (csv->reader != NULL)
        csv->reader->impl->destroy(csv->reader);
    stg_chunk_unref(csv->rooms);
    stg_chunk_unref(csv->text);
    free(csv);
}

static const struct stg_iter_impl csv_impl = {.next = csv_next,
                                              .rewind = csv_rewind,
                                              .destroy = csv_destroy,
                                              .skip = csv_skip,
                                              .left = csv_left,
                                              .left_has_errors = true,
                                              .count = csv_count,
                                              .seek = csv_seek};

/* ---- life ---- */

/* Reads the columns; sets the names of the options. */
static int declare(struct csv *csv, struct stg_csv_reader_options *options,
                   struct stg_err *err)
{
    struct stg_bump *bump = &csv->iter.dataset->bump;
    size_t n = 0;
    int rc = stg_columns_count(csv->iter.step, &n, err);
    if (rc < 0)
        return rc;
    csv->n = (uint32_t)n;
    csv->declared = stg_bump_alloc(bump, n * sizeof(*csv->declared));
    csv->rules = stg_bump_alloc(bump, n * sizeof(*csv->rules));
    csv->row = stg_bump_alloc(bump, n * sizeof(*csv->row));
    csv->copied = stg_bump_alloc(bump, n * sizeof(*csv->copied));
    struct stg_csv_name *names = stg_bump_alloc(bump, n * sizeof(*names));
    if (csv->declared == NULL || csv->rules == NULL || csv->row == NULL ||
        csv->copied == NULL || names == NULL)
        return out_of_memory(csv, err);
    rc = stg_columns_read(csv->iter.step, csv->declared, err);
    if (rc < 0)
        return rc;
    for (uint32_t c = 0; c < csv->n; c++) {
        const struct stg_declared_column *column = &csv->declared[c];
        csv->rules[c] = rule_of(column);
        names[c] = (struct stg_csv_name){.name = column->name,
                                         .bytes = strlen(column->name),
                                         .column = c,
                                         .may_lack = column->has_default};
    }
    stg_csv_names_sort(names, csv->n);
    options->names = names;
    options->n_names = csv->n;
    csv->dialect = (struct stg_csv_dialect){
        .delim = options->delim, .quotes = options->quotes, .n_columns = csv->n};
    return 0;
}

int stg_csv_columns_create(struct stg_dataset *dataset, const struct stg_step *step,
                           const struct stg_schema *schema, struct stg_iter *input,
                           struct stg_reader_config *config,
                           struct stg_csv_reader_options *options, struct stg_iter **ret,
                           struct stg_err *err)
{
    struct csv *csv =
        stg_iter_create(sizeof(*csv), &csv_impl, dataset, step, schema, input, err);
    if (csv == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    int rc = declare(csv, options, err);
    if (rc == 0)
        rc =
            stg_reader_set_options(dataset, step, config, options, sizeof(*options), err);
    if (rc == 0)
        rc = stg_schema_create(&dataset->bump, 1, &csv->record, err);
    if (rc == 0) {
        csv->record.components[0] =
            (struct stg_component){.name = "record", .dtype = STAGER_STRING};
        rc = stg_reader_create(dataset, step, &csv->record, input, config, &csv->reader,
                               err);
    }
    if (rc < 0) {
        csv->reader = NULL;
        csv_destroy(&csv->iter);
        return rc;
    }
    *ret = &csv->iter;
    return 0;
}
