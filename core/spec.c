/* SPDX-License-Identifier: Apache-2.0 */
#include "core/spec.h"

#include <stdlib.h>
#include <string.h>

void stg_pipeline_spec_destroy(struct stg_pipeline_spec *spec)
{
    if (spec == NULL)
        return;
    stg_bump_finish(&spec->bump);
    free(spec);
}

void stg_settings_finish(struct stg_settings *settings)
{
    if (settings == NULL)
        return;
    struct stg_bump bump = settings->bump;
    *settings = (struct stg_settings){0};
    stg_bump_finish(&bump);
}

const struct stg_attr *stg_attr_find(const struct stg_attr *attrs, size_t n,
                                     const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(attrs[i].name, name) == 0)
            return &attrs[i];
    }
    return NULL;
}

bool stg_value_switch(const struct stg_value *value, bool *ret)
{
    static const char *const words[] = {"off", "on", "false", "true"};
    if (value->kind == STG_VALUE_BOOL) {
        *ret = value->i != 0;
        return true;
    }
    for (int i = 0; value->kind == STG_VALUE_STRING && i < 4; i++) {
        if (strlen(words[i]) != value->s_bytes || strcmp(words[i], value->s) != 0)
            continue;
        *ret = i % 2 != 0;
        return true;
    }
    return false;
}

static const struct stg_value *scalar(const struct stg_attr *attrs, size_t n,
                                      const char *name, enum stg_value_kind kind)
{
    const struct stg_attr *attr = stg_attr_find(attrs, n, name);
    if (attr == NULL || attr->ndim != 0 || attr->n_values != 1 ||
        attr->values[0].kind != kind)
        return NULL;
    return &attr->values[0];
}

int64_t stg_attr_int(const struct stg_attr *attrs, size_t n, const char *name,
                     int64_t otherwise)
{
    const struct stg_value *value = scalar(attrs, n, name, STG_VALUE_INT);
    return value != NULL ? value->i : otherwise;
}

double stg_attr_float(const struct stg_attr *attrs, size_t n, const char *name,
                      double otherwise)
{
    const struct stg_value *value = scalar(attrs, n, name, STG_VALUE_FLOAT);
    if (value == NULL)
        value = scalar(attrs, n, name, STG_VALUE_INT);
    return value != NULL ? value->f : otherwise;
}

bool stg_attr_bool(const struct stg_attr *attrs, size_t n, const char *name,
                   bool otherwise)
{
    const struct stg_value *value = scalar(attrs, n, name, STG_VALUE_BOOL);
    if (value == NULL)
        value = scalar(attrs, n, name, STG_VALUE_STRING);
    bool is_on = otherwise;
    return value != NULL && stg_value_switch(value, &is_on) ? is_on : otherwise;
}

const char *stg_attr_string(const struct stg_attr *attrs, size_t n, const char *name,
                            const char *otherwise)
{
    const struct stg_value *value = scalar(attrs, n, name, STG_VALUE_STRING);
    return value != NULL ? value->s : otherwise;
}
