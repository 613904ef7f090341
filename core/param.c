/* SPDX-License-Identifier: Apache-2.0 */
#include "core/param.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/status.h"

#define NAME_MAX_BYTES 128
#define WHERE_BYTES 224
#define LIST_BYTES 512

static size_t smallest(size_t a, size_t b, size_t c)
{
    size_t ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* Levenshtein; names longer than NAME_MAX_BYTES are no typing error. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t a_bytes = strlen(a), b_bytes = strlen(b);
    if (a_bytes > NAME_MAX_BYTES || b_bytes > NAME_MAX_BYTES)
        return SIZE_MAX;
    size_t row[NAME_MAX_BYTES + 1];
    for (size_t j = 0; j <= b_bytes; j++)
        row[j] = j;
    for (size_t i = 1; i <= a_bytes; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_bytes; j++) {
            size_t above = row[j];
            row[j] = smallest(above + 1, row[j - 1] + 1,
                              diagonal + (a[i - 1] != b[j - 1] ? 1 : 0));
            diagonal = above;
        }
    }
    return row[b_bytes];
}

/* "memory" of "memory_budget". */
static bool is_first_word(const char *name, const char *known)
{
    size_t n = strlen(name);
    return n >= 3 && strncmp(name, known, n) == 0 && known[n] == '_';
}

const char *stg_nearest(const char *name, const char *const *names, size_t n)
{
    const char *best = NULL;
    size_t best_distance = 2 + strlen(name) / 3;
    for (size_t i = 0; i < n; i++) {
        size_t distance =
            is_first_word(name, names[i]) ? 1 : edit_distance(name, names[i]);
        if (distance < best_distance) {
            best = names[i];
            best_distance = distance;
        }
    }
    return best;
}

static const char *type_text(enum stg_param_type type)
{
    switch (type) {
    case STG_PARAM_INT: return "an integer";
    case STG_PARAM_FLOAT: return "a number";
    case STG_PARAM_BOOL: return "true or false";
    case STG_PARAM_STRING: return "a string";
    case STG_PARAM_DTYPE: return "the name of a dtype (float32, int64, string …)";
    case STG_PARAM_SHAPE: return "a shape (a list of integers, none negative)";
    case STG_PARAM_INTS: return "a list of integers";
    case STG_PARAM_STRINGS: return "a list of strings";
    case STG_PARAM_VALUES: return "a value or a list of values";
    case STG_PARAM_FIELDS: return "a mapping of mappings: {name: {key: value}}";
    }
    return "?";
}

static const char *kind_text(enum stg_value_kind kind)
{
    switch (kind) {
    case STG_VALUE_NULL: return "null";
    case STG_VALUE_INT: return "an integer";
    case STG_VALUE_FLOAT: return "a number with a fraction";
    case STG_VALUE_BOOL: return "true or false";
    case STG_VALUE_STRING: return "a string";
    }
    return "?";
}

/* "attribute 'axis' (line 3, column 7)"; without the place where it is not known. */
static const char *where(const struct stg_attr *attr, char *buf)
{
    if (attr->line > 0)
        snprintf(buf, WHERE_BYTES, "attribute '%.*s' (line %d, column %d)",
                 NAME_MAX_BYTES, attr->name, attr->line, attr->column);
    else
        snprintf(buf, WHERE_BYTES, "attribute '%.*s'", NAME_MAX_BYTES, attr->name);
    return buf;
}

static int wrong_type(const struct stg_param *param, const struct stg_attr *attr,
                      const struct stg_value *value, struct stg_err *err)
{
    char place[WHERE_BYTES];
    if (value == NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "%s must be %s, not %s",
                       where(attr, place), type_text(param->type),
                       attr->ndim == 0 ? "empty" : "a list");
    if (value->kind == STG_VALUE_STRING)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "%s must be %s, not the string \"%.64s\"", where(attr, place),
                       type_text(param->type), value->s);
    return stg_err(err, -STAGER_INVALID_ARGUMENT, "%s must be %s, not%s %s",
                   where(attr, place), type_text(param->type),
                   attr->ndim > 0 ? " a list with" : "", kind_text(value->kind));
}

static int out_of_range(const struct stg_param *param, const struct stg_attr *attr,
                        int64_t i, struct stg_err *err)
{
    char place[WHERE_BYTES];
    where(attr, place);
    if (param->max == INT64_MAX)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "%s must be at least %" PRId64 ", not %" PRId64, place, param->min,
                       i);
    if (param->min == INT64_MIN)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "%s must be at most %" PRId64 ", not %" PRId64, place, param->max,
                       i);
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "%s must be between %" PRId64 " and %" PRId64 ", not %" PRId64, place,
                   param->min, param->max, i);
}

static bool in_range(const struct stg_param *param, int64_t i)
{
    return (param->min == 0 && param->max == 0) || (i >= param->min && i <= param->max);
}

static int check_value(const struct stg_param *param, const struct stg_attr *attr,
                       const struct stg_value *value, struct stg_err *err)
{
    bool fits = true, is_on;
    switch (param->type) {
    case STG_PARAM_INT:
    case STG_PARAM_INTS:
        fits = value->kind == STG_VALUE_INT;
        if (fits && !in_range(param, value->i))
            return out_of_range(param, attr, value->i, err);
        break;
    case STG_PARAM_FLOAT:
        fits = value->kind == STG_VALUE_FLOAT || value->kind == STG_VALUE_INT;
        break;
    case STG_PARAM_BOOL: fits = stg_value_switch(value, &is_on); break;
    case STG_PARAM_STRING:
    case STG_PARAM_STRINGS: fits = value->kind == STG_VALUE_STRING; break;
    case STG_PARAM_DTYPE:
        fits = value->kind == STG_VALUE_STRING && strlen(value->s) == value->s_bytes &&
               stg_dtype_from_name(value->s) != STAGER_DT_INVALID;
        break;
    case STG_PARAM_SHAPE: fits = value->kind == STG_VALUE_INT && value->i >= 0; break;
    case STG_PARAM_VALUES: break;
    case STG_PARAM_FIELDS: fits = false; break;
    }
    return fits ? 0 : wrong_type(param, attr, value, err);
}

static bool is_list(enum stg_param_type type)
{
    return type == STG_PARAM_SHAPE || type == STG_PARAM_INTS || type == STG_PARAM_STRINGS;
}

static int check_attr(const struct stg_param *param, const struct stg_attr *attr,
                      struct stg_err *err)
{
    if (param->type != STG_PARAM_VALUES) {
        if (is_list(param->type) && attr->ndim == 0)
            return wrong_type(param, attr, attr->n_values > 0 ? &attr->values[0] : NULL,
                              err);
        if (attr->ndim != (is_list(param->type) ? 1 : 0) ||
            (attr->ndim == 0 && attr->n_values != 1))
            return wrong_type(param, attr, NULL, err);
    }
    for (size_t i = 0; i < attr->n_values; i++) {
        int rc = check_value(param, attr, &attr->values[i], err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

bool stg_attr_path(const struct stg_attr *attr, const char *param,
                   struct stg_attr_path *ret)
{
    size_t bytes = strlen(param);
    const char *last = strrchr(attr->name, '/');
    if (last == NULL || strncmp(attr->name, param, bytes) != 0 ||
        attr->name[bytes] != '/' || last == attr->name + bytes)
        return false;
    ret->entry = attr->name + bytes + 1;
    ret->entry_bytes = (size_t)(last - ret->entry);
    ret->field = last + 1;
    return true;
}

size_t stg_attr_entry(const struct stg_attr *attrs, size_t n, const char *param)
{
    struct stg_attr_path first, path;
    if (n == 0 || !stg_attr_path(&attrs[0], param, &first))
        return 0;
    size_t i = 1;
    while (i < n && stg_attr_path(&attrs[i], param, &path) &&
           path.entry_bytes == first.entry_bytes &&
           memcmp(path.entry, first.entry, first.entry_bytes) == 0)
        i++;
    return i;
}

/* The FIELDS param that the attribute is a field of, or NULL. */
static const struct stg_param *find_fields(const struct stg_param *params, size_t n,
                                           const struct stg_attr *attr,
                                           struct stg_attr_path *ret)
{
    for (size_t i = 0; i < n; i++) {
        if (params[i].type == STG_PARAM_FIELDS &&
            stg_attr_path(attr, params[i].name, ret))
            return &params[i];
    }
    return NULL;
}

static const struct stg_param *find(const struct stg_param *params, size_t n,
                                    const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(params[i].name, name) == 0)
            return &params[i];
    }
    return NULL;
}

static int unknown(const struct stg_param *params, size_t n_params,
                   const struct stg_attr *attr, struct stg_err *err)
{
    char place[WHERE_BYTES], list[LIST_BYTES];
    const char *near = NULL, *name = strrchr(attr->name, '/');
    name = name != NULL ? name + 1 : attr->name;
    size_t near_distance = SIZE_MAX, used = 0;
    list[0] = '\0';
    for (size_t i = 0; i < n_params; i++) {
        const char *suggestion = stg_nearest(name, &params[i].name, 1);
        if (suggestion != NULL && edit_distance(name, suggestion) < near_distance) {
            near = suggestion;
            near_distance = edit_distance(name, suggestion);
        }
        if (used < sizeof(list))
            used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s",
                                     i > 0 ? ", " : "", params[i].name);
    }
    where(attr, place);
    if (near != NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "unknown %s; did you mean '%s'?",
                       place, near);
    if (n_params == 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "unknown %s; no attribute is allowed here", place);
    return stg_err(err, -STAGER_INVALID_ARGUMENT, "unknown %s; known: %s", place, list);
}

static int missing(const struct stg_param *param, const char *entry, size_t entry_bytes,
                   struct stg_err *err)
{
    return stg_err(err, -STAGER_INVALID_ARGUMENT, "%s%.*s%sattribute '%s' is missing: %s",
                   entry_bytes > 0 ? "'" : "",
                   (int)(entry_bytes < NAME_MAX_BYTES ? entry_bytes : NAME_MAX_BYTES),
                   entry, entry_bytes > 0 ? "': " : "", param->name,
                   param->help != NULL ? param->help : type_text(param->type));
}

/* Of the attributes of one entry: is every required field there? */
static int check_entry(const struct stg_param *param, const struct stg_attr *attrs,
                       size_t n, struct stg_err *err)
{
    struct stg_attr_path path;
    for (size_t i = 0; i < param->n_fields; i++) {
        bool there = !param->fields[i].required;
        for (size_t k = 0; k < n && !there; k++)
            there = stg_attr_path(&attrs[k], param->name, &path) &&
                    strcmp(path.field, param->fields[i].name) == 0;
        if (!there) {
            stg_attr_path(&attrs[0], param->name, &path);
            return missing(&param->fields[i], path.entry, path.entry_bytes, err);
        }
    }
    return 0;
}

static int check_known(const struct stg_param *params, size_t n_params,
                       const struct stg_attr *attr, struct stg_err *err)
{
    struct stg_attr_path path;
    const struct stg_param *param = find_fields(params, n_params, attr, &path);
    const char *name = attr->name;
    if (param != NULL) {
        params = param->fields;
        n_params = param->n_fields;
        name = path.field;
    }
    param = find(params, n_params, name);
    return param != NULL ? check_attr(param, attr, err)
                         : unknown(params, n_params, attr, err);
}

static int check_required(const struct stg_param *param, const struct stg_attr *attrs,
                          size_t n, struct stg_err *err)
{
    bool there = !param->required || stg_attr_find(attrs, n, param->name) != NULL;
    for (size_t i = 0, step; param->type == STG_PARAM_FIELDS && i < n; i += step) {
        size_t n_entry = stg_attr_entry(attrs + i, n - i, param->name);
        int rc = n_entry > 0 ? check_entry(param, attrs + i, n_entry, err) : 0;
        if (rc < 0)
            return rc;
        there = there || n_entry > 0;
        step = n_entry > 0 ? n_entry : 1;
    }
    return there ? 0 : missing(param, "", 0, err);
}

int stg_param_check(const struct stg_param *params, size_t n_params,
                    const struct stg_attr *attrs, size_t n_attrs, struct stg_err *err)
{
    for (size_t i = 0; i < n_attrs; i++) {
        if (stg_attr_find(attrs, i, attrs[i].name) != NULL) {
            char place[WHERE_BYTES];
            return stg_err(err, -STAGER_INVALID_ARGUMENT, "%s is given twice",
                           where(&attrs[i], place));
        }
        int rc = check_known(params, n_params, &attrs[i], err);
        if (rc < 0)
            return rc;
    }
    for (size_t i = 0; i < n_params; i++) {
        int rc = check_required(&params[i], attrs, n_attrs, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

size_t stg_utf8_bytes(const char *at, size_t n)
{
    const unsigned char *s = (const unsigned char *)at;
    unsigned char low = 0x80, high = 0xbf;
    size_t more;
    if (s[0] < 0x80)
        return 1;
    if (s[0] >= 0xc2 && s[0] <= 0xdf)
        more = 1;
    else if (s[0] >= 0xe0 && s[0] <= 0xef)
        more = 2;
    else if (s[0] >= 0xf0 && s[0] <= 0xf4)
        more = 3;
    else
        return 0;
    if (s[0] == 0xe0)
        low = 0xa0; /* excludes overlong forms */
    else if (s[0] == 0xed)
        high = 0x9f; /* excludes surrogates */
    else if (s[0] == 0xf0)
        low = 0x90;
    else if (s[0] == 0xf4)
        high = 0x8f; /* excludes code points past U+10FFFF */
    if (n <= more || s[1] < low || s[1] > high)
        return 0;
    for (size_t i = 2; i <= more; i++) {
        if (s[i] < 0x80 || s[i] > 0xbf)
            return 0;
    }
    return more + 1;
}
