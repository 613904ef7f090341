/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/sources/filters.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/dataset/files/path_value.h"

#define FILTERS "filters/" /* CONJUNCTION/CONDITION: a column, an op, values */
#define MAX_CONDITIONS 1024

static bool is_condition(const struct stg_attr *attr)
{
    return strncmp(attr->name, FILTERS, strlen(FILTERS)) == 0;
}

static uint32_t count(const struct stg_step *step)
{
    uint32_t n = 0;
    for (size_t i = 0; i < step->n_attrs; i++)
        n += is_condition(&step->attrs[i]);
    return n;
}

bool stg_filters_any(const struct stg_step *step)
{
    return count(step) > 0;
}

/* ---- reading ---- */

struct reading {
    const struct stg_step *step;
    struct stg_bump *bump;
    struct stg_declared_column *columns; /* room for one more for each condition */
    size_t n_declared, n;
    struct stg_row_filter *filter;
};

/* Finds the column of a condition, or adds one. */
static int find_column(struct reading *reading, const char *name, uint32_t *ret,
                       struct stg_err *err)
{
    struct stg_declared_column more = {.name = name};
    size_t c = reading->n_declared;
    for (size_t i = 0; i < reading->n_declared; i++) {
        const struct stg_declared_column *column = &reading->columns[i];
        if (strcmp(column->name, name) != 0)
            continue;
        if (column->n_lists > 0)
            return stg_step_err(reading->step, -STAGER_INVALID_ARGUMENT, err,
                                "filters: %s is a column of lists, and conditions are of "
                                "single values",
                                name);
        more = *column;
        c = column->has_default ? c : i;
    }
    while (c >= reading->n_declared && c < reading->n &&
           strcmp(reading->columns[c].name, name) != 0)
        c++;
    if (c == reading->n)
        reading->columns[reading->n++] = more;
    *ret = (uint32_t)c;
    return 0;
}

static int read_condition(struct reading *reading, const struct stg_attr *attr,
                          struct stg_err *err)
{
    struct stg_row_condition *condition =
        &reading->filter->conditions[reading->filter->n];
    const struct stg_value *values = attr->values;
    *condition = (struct stg_row_condition){
        .conjunction = (uint32_t)strtoul(attr->name + strlen(FILTERS), NULL, 10)};
    if (attr->n_values < 2 || values[0].kind != STG_VALUE_STRING ||
        values[1].kind != STG_VALUE_STRING)
        return stg_step_err(
            reading->step, -STAGER_INVALID_ARGUMENT, err,
            "filters: a condition is a column, an op and a value, such as "
            "[price, \">\", 3.5]");
    int rc = find_column(reading, values[0].s, &condition->column, err);
    if (rc < 0)
        return rc;
    rc = stg_row_condition_init(condition, values[1].s, values + 2, attr->n_values - 2,
                                reading->bump, err);
    int dtype = reading->columns[condition->column].dtype;
    if (rc == 0 && dtype != STAGER_DT_INVALID)
        rc = stg_row_condition_check(condition, dtype, err);
    reading->filter->n++;
    if (rc == 0)
        return 0;
    stg_err_prefix(err, rc, "filters: the condition on %.256s", values[0].s);
    return stg_step_prefix(reading->step, rc, err);
}

int stg_filters_read(const struct stg_step *step,
                     const struct stg_declared_column *columns, size_t n,
                     struct stg_bump *bump, struct stg_row_filter *ret,
                     struct stg_declared_column **ret_columns, size_t *ret_n,
                     struct stg_err *err)
{
    uint32_t n_conditions = count(step);
    struct reading reading = {
        .step = step, .bump = bump, .n_declared = n, .n = n, .filter = ret};
    int rc = 0;
    if (n_conditions > MAX_CONDITIONS)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "filters has %u conditions; the maximum is %d", n_conditions,
                            MAX_CONDITIONS);
    reading.columns = stg_bump_alloc(bump, (n + n_conditions) * sizeof(*columns));
    *ret = (struct stg_row_filter){
        .conditions = stg_bump_alloc(bump, (n_conditions + 1) * sizeof(*ret->conditions)),
        .fixed = stg_bump_alloc(bump, n_conditions + 1)};
    if (reading.columns == NULL || ret->conditions == NULL || ret->fixed == NULL)
        return stg_step_err(step, -STAGER_RESOURCE_EXHAUSTED, err, "out of memory");
    memcpy(reading.columns, columns, n * sizeof(*columns));
    for (size_t i = 0; rc == 0 && i < step->n_attrs; i++) {
        if (is_condition(&step->attrs[i]))
            rc = read_condition(&reading, &step->attrs[i], err);
    }
    *ret_columns = reading.columns;
    *ret_n = reading.n;
    return rc;
}

/* ---- folders ---- */

/* The dtype as which a folder is compared. A number that is not declared: the wider one
 * that it converts to. */
static int dtype_of(const struct stg_row_condition *condition, int declared,
                    const char *text)
{
    bool is_number = !condition->is_text && !condition->is_bool;
    if (declared != STAGER_DT_INVALID)
        return declared;
    if (condition->is_bool)
        return STAGER_BOOL;
    return is_number && strpbrk(text, ".eEnN") != NULL ? STAGER_FLOAT64
           : is_number                                 ? STAGER_INT64
                                                       : STAGER_STRING;
}

static bool is_fulfilled(const struct stg_row_condition *condition, int dtype,
                         const struct stg_path_value *folder)
{
    int64_t begin = 0, end = (int64_t)folder->text_bytes;
    uint8_t valid = !folder->is_null;
    struct stg_row_values value = {.dtype = dtype,
                                   .fixed = &folder->value,
                                   .base = folder->text,
                                   .begin = &begin,
                                   .end = &end,
                                   .valid = &valid};
    return stg_row_condition_is(condition, &value);
}

static int look(const struct stg_row_condition *condition,
                const struct stg_declared_column *column, const char *url, uint8_t *ret,
                struct stg_err *err)
{
    struct stg_path_value folder;
    *ret = STG_ROW_VARIES;
    int rc = stg_path_value_find(url, column->name, STAGER_STRING, &folder, err);
    if (rc < 0 || !folder.is_there)
        return rc;
    int dtype = dtype_of(condition, column->dtype, folder.text);
    stg_path_value_finish(&folder);
    rc = stg_path_value_find(url, column->name, dtype, &folder, err);
    if (rc == 0)
        *ret = is_fulfilled(condition, dtype, &folder) ? STG_ROW_ALWAYS : STG_ROW_NEVER;
    stg_path_value_finish(&folder);
    return rc;
}

int stg_filters_look(struct stg_row_filter *filter,
                     const struct stg_declared_column *columns, const char *url,
                     struct stg_err *err)
{
    uint8_t may[MAX_CONDITIONS];
    int rc = 0;
    memset(may, 1, filter->n);
    for (uint32_t k = 0; rc == 0 && k < filter->n; k++) {
        const struct stg_row_condition *condition = &filter->conditions[k];
        rc = look(condition, &columns[condition->column], url, &filter->fixed[k], err);
    }
    return rc < 0 ? rc : !stg_row_filter_may(filter, may);
}
