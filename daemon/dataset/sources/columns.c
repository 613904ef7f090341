/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/sources/columns.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ops/base/element.h"

#define COLUMNS "columns/"
#define DEFAULTS "defaults/"
#define SHAPES "shapes/"
#define MAX_COLUMNS 4096
#define MAX_DIMENSION 65536

/* The column that an attribute "columns/NAME" declares; NULL: another attribute. */
static const char *column_of(const struct stg_attr *attr)
{
    bool is_column = strncmp(attr->name, COLUMNS, strlen(COLUMNS)) == 0;
    return is_column ? attr->name + strlen(COLUMNS) : NULL;
}

/* Returns the attribute of a column in a field such as DEFAULTS, or NULL. */
static const struct stg_attr *attr_of(const struct stg_step *step, const char *field,
                                      const char *column)
{
    size_t n = strlen(field);
    for (size_t i = 0; i < step->n_attrs; i++) {
        const char *name = step->attrs[i].name;
        if (strncmp(name, field, n) == 0 && strcmp(name + n, column) == 0)
            return &step->attrs[i];
    }
    return NULL;
}

/* The names of a field are those of columns. field: with a slash behind it. */
static int check_names(const struct stg_step *step, const char *field,
                       struct stg_err *err)
{
    size_t n = strlen(field);
    for (size_t i = 0; i < step->n_attrs; i++) {
        const char *name = step->attrs[i].name;
        if (strncmp(name, field, n) == 0 && attr_of(step, COLUMNS, name + n) == NULL)
            return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                                "%.*s: columns has no \"%.64s\"", (int)n - 1, field,
                                name + n);
    }
    return 0;
}

int stg_columns_count(const struct stg_step *step, size_t *ret, struct stg_err *err)
{
    size_t n = 0;
    for (size_t i = 0; i < step->n_attrs; i++)
        n += column_of(&step->attrs[i]) != NULL;
    if (n == 0 || n > MAX_COLUMNS)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "columns names %zu columns; it must map 1 to %d of them to "
                            "their dtypes, such as {price: float32, user/id: int64}",
                            n, MAX_COLUMNS);
    *ret = n;
    int rc = check_names(step, DEFAULTS, err);
    return rc == 0 ? check_names(step, SHAPES, err) : rc;
}

static int read_default(const struct stg_step *step, struct stg_declared_column *column,
                        struct stg_err *err)
{
    const struct stg_attr *attr = attr_of(step, DEFAULTS, column->name);
    bool is_string = column->dtype == STAGER_STRING;
    if (attr == NULL)
        return 0;
    column->has_default = true;
    if (attr->n_values != 1 || is_string != (attr->values[0].kind == STG_VALUE_STRING))
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "the default of %s must be one %s", column->name,
                            stg_dtype_name(column->dtype));
    if (is_string) {
        column->text = attr->values[0].s;
        column->text_bytes = attr->values[0].s_bytes;
        return 0;
    }
    int rc = stg_literal_store(&attr->values[0], column->dtype, &column->value, 0, err);
    if (rc < 0) {
        stg_err_prefix(err, rc, "the default of %s", column->name);
        stg_step_prefix(step, rc, err);
    }
    return rc;
}

static bool is_dimension(const struct stg_value *value)
{
    return value->kind == STG_VALUE_NULL ||
           (value->kind == STG_VALUE_INT &&
            (value->i == -1 || (value->i > 0 && value->i <= MAX_DIMENSION)));
}

static int read_shape(const struct stg_step *step, struct stg_declared_column *column,
                      struct stg_err *err)
{
    const struct stg_attr *attr = attr_of(step, SHAPES, column->name);
    bool ok = attr == NULL || (attr->ndim == 1 && attr->n_values <= STG_MAX_LISTS);
    for (size_t d = 0; ok && attr != NULL && d < attr->n_values; d++) {
        const struct stg_value *value = &attr->values[d];
        ok = is_dimension(value);
        column->shape[d] = value->kind == STG_VALUE_INT ? value->i : -1;
    }
    if (!ok)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "shapes: that of %s must be a list of at most %d dimensions "
                            "from 1 to %d, with null or -1 for lists of any length",
                            column->name, STG_MAX_LISTS, MAX_DIMENSION);
    column->n_lists = attr != NULL ? (unsigned)attr->n_values : 0;
    return 0;
}

static int read_column(const struct stg_step *step, const struct stg_attr *attr,
                       struct stg_declared_column *ret, struct stg_err *err)
{
    bool is_name = attr->n_values == 1 && attr->ndim == 0 &&
                   attr->values[0].kind == STG_VALUE_STRING;
    const char *dtype = is_name ? attr->values[0].s : "";
    *ret = (struct stg_declared_column){.name = column_of(attr),
                                        .dtype = stg_dtype_from_name(dtype)};
    if (ret->dtype != STAGER_STRING &&
        (stg_dtype_bytes(ret->dtype) == 0 || ret->dtype == STAGER_BFLOAT16))
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "columns: the dtype of %s is \"%.32s\"; it must be one such "
                            "as float32, int64 or string",
                            ret->name, dtype);
    int rc = read_shape(step, ret, err);
    return rc == 0 ? read_default(step, ret, err) : rc;
}

int stg_columns_read(const struct stg_step *step, struct stg_declared_column *ret,
                     struct stg_err *err)
{
    size_t n = 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < step->n_attrs; i++) {
        if (column_of(&step->attrs[i]) != NULL)
            rc = read_column(step, &step->attrs[i], &ret[n++], err);
    }
    return rc;
}

/* ---- components ---- */

/* Lists of lists that vary in length are values and row_splits. */
static bool is_pair(const struct stg_declared_column *column)
{
    return column->n_lists == 2 && column->shape[1] < 0;
}

static const char *part_name(struct stg_bump *bump, const char *name, const char *part)
{
    size_t bytes = strlen(name) + strlen(part) + 1;
    char *ret = stg_bump_alloc(bump, bytes);
    if (ret != NULL)
        snprintf(ret, bytes, "%s%s", name, part);
    return ret;
}

static bool infer_pair(const struct stg_declared_column *column, struct stg_bump *bump,
                       struct stg_component *values, struct stg_component *splits)
{
    int64_t n = column->shape[0];
    *values = (struct stg_component){.name = part_name(bump, column->name, "/values"),
                                     .dtype = column->dtype,
                                     .ndim = 1,
                                     .shape = {-1}};
    *splits = (struct stg_component){.name = part_name(bump, column->name, "/row_splits"),
                                     .dtype = STAGER_INT64,
                                     .ndim = 1,
                                     .shape = {n < 0 ? -1 : n + 1},
                                     .part = STG_PART_ROW_SPLITS};
    return values->name != NULL && splits->name != NULL;
}

static bool infer_columns(const struct stg_declared_column *columns, size_t n,
                          struct stg_bump *bump, struct stg_component *to)
{
    bool ok = true;
    for (size_t c = 0; c < n; c++) {
        const struct stg_declared_column *column = &columns[c];
        if (is_pair(column)) {
            ok &= infer_pair(column, bump, to, to + 1);
            to += 2;
            continue;
        }
        *to = (struct stg_component){
            .name = column->name, .dtype = column->dtype, .ndim = (int)column->n_lists};
        memcpy(to->shape, column->shape, column->n_lists * sizeof(to->shape[0]));
        to++;
    }
    return ok;
}

static int out_of_memory(const struct stg_step *step, struct stg_err *err)
{
    return stg_step_err(step, -STAGER_RESOURCE_EXHAUSTED, err, "out of memory");
}

int stg_columns_infer(const struct stg_step *step, struct stg_bump *bump,
                      struct stg_schema *ret, struct stg_err *err)
{
    size_t n = 0;
    int rc = stg_columns_count(step, &n, err);
    if (rc < 0)
        return rc;
    struct stg_declared_column *columns = stg_bump_alloc(bump, n * sizeof(*columns));
    if (columns == NULL)
        return out_of_memory(step, err);
    rc = stg_columns_read(step, columns, err);
    size_t n_components = n;
    for (size_t c = 0; rc == 0 && c < n; c++)
        n_components += is_pair(&columns[c]);
    if (rc == 0)
        rc = stg_schema_create(bump, n_components, ret, err);
    if (rc == 0 && !infer_columns(columns, n, bump, ret->components))
        rc = out_of_memory(step, err);
    return rc;
}

/* ---- rows ---- */

/* Rows may have different numbers of lists, or of values: tensors of theirs are uneven.
 */
static bool has_uneven_lists(const struct stg_column_view *view)
{
    return view->is_uneven && view->column->n_lists > 0 && view->column->shape[0] < 0;
}

static bool has_uneven_values(const struct stg_column_view *view)
{
    return has_uneven_lists(view) || (view->is_uneven && is_pair(view->column));
}

/* A row has one row_split more than lists. */
static uint64_t count_splits(const struct stg_column_view *view)
{
    const int64_t *first = view->rows->first + view->at;
    return (uint64_t)(first[view->n] - first[0]) + view->n;
}

uint64_t stg_column_splits_room(const struct stg_column_view *view)
{
    uint64_t each = stg_block_room((view->n + 1) * sizeof(int64_t));
    uint64_t bytes = has_uneven_values(view) ? each : 0;
    if (!is_pair(view->column))
        return bytes;
    bytes += has_uneven_lists(view) ? each : 0;
    return bytes + stg_block_room(count_splits(view) * sizeof(int64_t));
}

static void set_splits(struct stg_tensor *tensor, const int64_t *splits)
{
    tensor->shape[1] = -1;
    tensor->splits = splits;
}

/* The row_splits of all rows. */
static void show_splits(const struct stg_column_view *view, struct stg_block *block,
                        struct stg_tensor *tensor)
{
    const struct stg_list_rows *rows = view->rows;
    const int64_t *first = rows->first + view->at;
    uint64_t bytes = count_splits(view) * sizeof(int64_t);
    int64_t *to = stg_block_carve(block, bytes);
    *tensor = (struct stg_tensor){.dtype = STAGER_INT64,
                                  .ndim = 2,
                                  .shape = {(int64_t)view->n, first[1] - first[0] + 1},
                                  .data = to,
                                  .data_bytes = bytes};
    for (uint64_t i = 0; i < view->n; i++) {
        const int64_t *inner = rows->inner + first[i];
        for (int64_t k = 0; k <= first[i + 1] - first[i]; k++)
            *to++ = inner[k] - inner[0];
    }
    if (!has_uneven_lists(view))
        return;
    int64_t *splits = stg_block_carve(block, (view->n + 1) * sizeof(*splits));
    for (uint64_t i = 0; i <= view->n; i++)
        splits[i] = first[i] + (int64_t)i;
    set_splits(tensor, splits);
}

/* Where each row begins among the values, or among lists of equal lengths. */
static void show_uneven(const struct stg_column_view *view, struct stg_block *block,
                        struct stg_tensor *tensor)
{
    const struct stg_list_rows *rows = view->rows;
    const int64_t *first = rows->first + view->at;
    int64_t *splits = stg_block_carve(block, (view->n + 1) * sizeof(*splits));
    for (uint64_t i = 0; i <= view->n; i++)
        splits[i] = is_pair(view->column) ? rows->inner[first[i]] : first[i];
    set_splits(tensor, splits);
}

/* The shape of rows that are alike. */
static void set_shape(const struct stg_column_view *view, struct stg_tensor *tensor)
{
    const struct stg_declared_column *column = view->column;
    bool is_dense = column->n_lists == 2 && !is_pair(column);
    int64_t n_values = stg_list_value_of(view->rows, view->at + 1) -
                       stg_list_value_of(view->rows, view->at);
    tensor->shape[tensor->ndim++] = is_dense ? n_values / column->shape[1] : n_values;
    if (is_dense)
        tensor->shape[tensor->ndim++] = column->shape[1];
}

struct stg_tensor *stg_column_show(const struct stg_column_view *view,
                                   struct stg_block *block, struct stg_tensor *tensor,
                                   uint64_t *ret_first, uint64_t *ret_n)
{
    *tensor = (struct stg_tensor){
        .dtype = view->column->dtype, .ndim = 1, .shape = {(int64_t)view->n}};
    *ret_first = view->at;
    *ret_n = view->n;
    if (view->column->n_lists > 0) {
        int64_t first = stg_list_value_of(view->rows, view->at);
        *ret_first = (uint64_t)first;
        *ret_n = (uint64_t)(stg_list_value_of(view->rows, view->at + view->n) - first);
        set_shape(view, tensor);
    }
    if (has_uneven_values(view))
        show_uneven(view, block, tensor);
    if (!is_pair(view->column))
        return tensor + 1;
    show_splits(view, block, tensor + 1);
    return tensor + 2;
}

/* A row with lists that have not the declared shape. */
static void explain_shape(const struct stg_column_view *view, struct stg_err *ret)
{
    const int64_t *first = view->rows->first + view->at;
    int64_t n = view->column->shape[0];
    if (n >= 0 && first[1] - first[0] != n)
        stg_err(ret, -STAGER_INVALID_ARGUMENT,
                "the list has %" PRId64 " elements, and shapes declares %" PRId64,
                first[1] - first[0], n);
    else
        stg_err(ret, -STAGER_INVALID_ARGUMENT,
                "an inner list has another number of elements than shapes declares, "
                "%" PRId64,
                view->column->shape[1]);
}

void stg_column_explain(const struct stg_column_view *view, struct stg_err *ret)
{
    bool is_list = view->column->n_lists > 0;
    if (is_list && view->rows->bad[view->at] == 0)
        explain_shape(view, ret);
    else
        stg_err(ret, -STAGER_INVALID_ARGUMENT,
                "%s null, and the step has no default for it",
                is_list ? "the list or an element of it is" : "the value is");
}
