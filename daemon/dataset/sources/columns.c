/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/sources/columns.h"

#include <string.h>

#include "ops/base/element.h"

#define COLUMNS "columns/"
#define DEFAULTS "defaults/"
#define SHAPES "shapes/"
#define MAX_COLUMNS 4096
#define MAX_SIZE (1 << 24)

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

static int read_shape(const struct stg_step *step, struct stg_declared_column *column,
                      struct stg_err *err)
{
    const struct stg_attr *attr = attr_of(step, SHAPES, column->name);
    if (attr == NULL)
        return 0;
    const struct stg_value *value = attr->values;
    bool is_one = attr->ndim == 1 && attr->n_values == 1 && value->kind == STG_VALUE_INT;
    if (!is_one || value->i < 1 || value->i > MAX_SIZE || column->dtype == STAGER_STRING)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "shapes: that of %s must be a list of one dimension from 1 "
                            "to %d, of numbers",
                            column->name, MAX_SIZE);
    column->size = (uint32_t)value->i;
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

void stg_columns_infer(const struct stg_declared_column *columns, size_t n,
                       struct stg_component *ret)
{
    for (size_t c = 0; c < n; c++) {
        ret[c] =
            (struct stg_component){.name = columns[c].name, .dtype = columns[c].dtype};
        if (columns[c].size > 0) {
            ret[c].ndim = 1;
            ret[c].shape[0] = columns[c].size;
        }
    }
}
