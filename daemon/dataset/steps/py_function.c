/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/steps/py_function.h"

#include <ctype.h>
#include <string.h>

#include "daemon/dataset/step.h"
#include "daemon/dataset/steps/py_calls.h"

#define NAME "py_function"
#define TYPES "output_types/"
#define SHAPES "output_shapes/"

/* ---- "module:name" ---- */

/* The end of names with dots between them; NULL: there is none. */
static const char *dotted(const char *at)
{
    do {
        if (*at == '.')
            at++;
        if (!isalpha((unsigned char)*at) && *at != '_' && (unsigned char)*at < 0x80)
            return NULL;
        while (isalnum((unsigned char)*at) || *at == '_' || (unsigned char)*at >= 0x80)
            at++;
    } while (*at == '.');
    return at;
}

static int check_function(const struct stg_step *step, struct stg_err *err)
{
    const char *function = stg_attr_string(step->attrs, step->n_attrs, "function", "");
    const char *at = function[0] == '.' ? NULL : dotted(function);
    if (at != NULL && *at == ':' && at[1] != '.')
        at = dotted(at + 1);
    else
        at = NULL;
    if (at != NULL && *at == '\0')
        return 0;
    return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                        "function is \"%.64s\"; it must be \"module:name\", such as "
                        "\"mytrainer.features:augment\"",
                        function);
}

/* ---- what it gives ---- */

static const struct stg_component *find_component(const struct stg_schema *schema,
                                                  const char *name)
{
    for (size_t c = 0; c < schema->n; c++) {
        if (strcmp(schema->components[c].name, name) == 0)
            return &schema->components[c];
    }
    return NULL;
}

/* The name in an attribute "FIELD/NAME", or NULL. */
static const char *name_in(const struct stg_attr *attr, const char *field)
{
    size_t bytes = strlen(field);
    return strncmp(attr->name, field, bytes) == 0 ? attr->name + bytes : NULL;
}

static int read_type(const struct stg_step *step, const struct stg_attr *attr,
                     struct stg_component *to, struct stg_err *err)
{
    const struct stg_value *value = attr->values;
    bool is_text = attr->n_values == 1 && value->kind == STG_VALUE_STRING;
    int dtype = is_text ? stg_dtype_from_name(value->s) : -1;
    if (dtype > 0) {
        to->dtype = dtype;
        return 0;
    }
    return stg_step_err(
        step, -STAGER_INVALID_ARGUMENT, err,
        "output_types of %.64s: \"%.64s\" is not a dtype, such as float32 or string",
        to->name, is_text ? value->s : "?");
}

static int read_shape(const struct stg_step *step, const struct stg_attr *attr,
                      struct stg_component *to, struct stg_err *err)
{
    bool ok = attr->ndim == 1 && attr->n_values <= STG_MAX_DIMS;
    for (size_t d = 0; ok && d < attr->n_values; d++) {
        const struct stg_value *value = &attr->values[d];
        ok = value->kind == STG_VALUE_NULL ||
             (value->kind == STG_VALUE_INT && value->i >= -1 && value->i <= INT32_MAX);
        to->shape[d] = value->kind == STG_VALUE_INT ? value->i : -1;
    }
    if (!ok)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "output_shapes of %.64s must be a list of at most %d "
                            "dimensions, with null or -1 for an unknown one",
                            to->name, STG_MAX_DIMS);
    to->ndim = (int)attr->n_values;
    return 0;
}

static bool ends_with(const char *name, size_t bytes, const char *end)
{
    size_t n = strlen(end);
    return bytes > n && strcmp(name + bytes - n, end) == 0;
}

/* "ids/row_splits" behind "ids/values" are one ragged component. */
static bool is_splits(const struct stg_component *before, const struct stg_component *c)
{
    size_t bytes = strlen(c->name), n = bytes - strlen("row_splits");
    return ends_with(c->name, bytes, "/row_splits") && before != NULL &&
           strncmp(before->name, c->name, n) == 0 &&
           strcmp(before->name + n, "values") == 0;
}

/* to->name and dtype are set. */
static int complete(const struct stg_step *step, const struct stg_schema *in,
                    struct stg_component *to, const struct stg_component *before,
                    struct stg_err *err)
{
    const struct stg_component *same = find_component(in, to->name);
    const struct stg_attr *shape = NULL;
    for (size_t i = 0; i < step->n_attrs && shape == NULL; i++) {
        const char *name = name_in(&step->attrs[i], SHAPES);
        if (name != NULL && strcmp(name, to->name) == 0)
            shape = &step->attrs[i];
    }
    if (shape == NULL && same == NULL)
        return stg_step_err(
            step, -STAGER_INVALID_ARGUMENT, err,
            "output_shapes has no entry for %.64s, and the input has no component of "
            "that name: add %.64s: […], with null or -1 for an unknown dimension",
            to->name, to->name);
    if (same != NULL) {
        to->ndim = same->ndim;
        memcpy(to->shape, same->shape, sizeof(to->shape));
        to->part = same->part;
    } else if (is_splits(before, to)) {
        to->part = STG_PART_ROW_SPLITS;
    }
    return shape != NULL ? read_shape(step, shape, to, err) : 0;
}

static int declared(const struct stg_step *step, const struct stg_schema *in, size_t n,
                    struct stg_bump *bump, struct stg_schema *ret, struct stg_err *err)
{
    int rc = stg_schema_create(bump, n, ret, err);
    size_t c = 0;
    for (size_t i = 0; rc == 0 && i < step->n_attrs; i++) {
        const char *name = name_in(&step->attrs[i], TYPES);
        if (name == NULL)
            continue;
        struct stg_component *to = &ret->components[c];
        *to = (struct stg_component){.name = name};
        rc = read_type(step, &step->attrs[i], to, err);
        if (rc == 0)
            rc = complete(step, in, to, c > 0 ? to - 1 : NULL, err);
        c++;
    }
    return rc;
}

/* Without types: what it gets, under the shapes that are written. */
static int alike(const struct stg_step *step, const struct stg_schema *in,
                 struct stg_bump *bump, struct stg_schema *ret, struct stg_err *err)
{
    int rc = stg_schema_create(bump, in->n, ret, err);
    for (size_t c = 0; rc == 0 && c < in->n; c++) {
        ret->components[c] = in->components[c];
        rc = complete(step, in, &ret->components[c], NULL, err);
    }
    return rc;
}

static int check_shapes(const struct stg_step *step, const struct stg_schema *out,
                        struct stg_err *err)
{
    for (size_t i = 0; i < step->n_attrs; i++) {
        const struct stg_attr *attr = &step->attrs[i];
        const char *name = name_in(attr, SHAPES);
        if (name != NULL && find_component(out, name) == NULL)
            return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                                "output_shapes names %.64s, which is not an output",
                                name);
        if (strcmp(attr->name, "output_shapes") == 0 ||
            strcmp(attr->name, "output_types") == 0)
            return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                                "%s must be a mapping by component, such as {image: …}",
                                attr->name);
    }
    return 0;
}

static int py_function_infer(const struct stg_step *step, const struct stg_schema *in,
                             struct stg_bump *bump, struct stg_schema *ret,
                             struct stg_err *err)
{
    int rc = stg_step_needs_input(step, in, err);
    if (rc == 0)
        rc = check_function(step, err);
    size_t n = 0;
    for (size_t i = 0; i < step->n_attrs; i++)
        n += name_in(&step->attrs[i], TYPES) != NULL;
    if (rc == 0)
        rc = n > 0 ? declared(step, in, n, bump, ret, err)
                   : alike(step, in, bump, ret, err);
    return rc == 0 ? check_shapes(step, ret, err) : rc;
}

static int py_function_create(struct stg_dataset *dataset, const struct stg_step *step,
                              const struct stg_schema *schema, struct stg_iter *input,
                              struct stg_iter **ret, struct stg_err *err)
{
    if (dataset->env.caller != NULL)
        return stg_py_calls_create(dataset, step, schema, input, ret, err);
    *ret = input;
    return 0;
}

const struct stg_transformation stg_py_function = {
    .name = NAME,
    .infer = py_function_infer,
    .create = py_function_create,
    .is_single = true,
    .takes_all = true,
};

/* ---- of a pipeline ---- */

static const struct stg_step *find_in(const struct stg_step *steps, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(steps[i].name, NAME) == 0)
            return &steps[i];
    }
    return NULL;
}

const struct stg_step *stg_py_function_find(const struct stg_pipeline_spec *spec)
{
    const struct stg_step *ret = find_in(spec->steps, spec->n_steps);
    for (size_t i = 0; ret == NULL && i < spec->n_branches; i++)
        ret = find_in(spec->branches[i].steps, spec->branches[i].n_steps);
    return ret;
}

bool stg_py_function_is_last(const struct stg_pipeline_spec *spec)
{
    return spec->n_steps > 0 && strcmp(spec->steps[spec->n_steps - 1].name, NAME) == 0;
}
