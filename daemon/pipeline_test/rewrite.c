/* SPDX-License-Identifier: Apache-2.0
 *
 * Values become `range`, whose numbers choose rows of constants in a `map`: a test needs
 * no source that a pipeline has not.
 */
#include "daemon/pipeline_test/rewrite.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/batch.h"
#include "core/param.h"
#include "daemon/dataset/dataset.h"

struct rewrite {
    struct stg_pipeline_spec *spec;
    const struct stg_test_case *test;
    const char *path;
    struct stg_bump *bump;
    struct stg_err *err;
};

static int fail_memory(struct rewrite *r)
{
    return stg_err(r->err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
}

static bool is_named(const struct stg_step *step, const char *name)
{
    return strcmp(step->name, name) == 0;
}

static bool is_left_out(const struct stg_step *step)
{
    static const char *const names[] = {"shuffle", "repeat", "shuffle_and_repeat",
                                        "shard",   "cache",  "prefetch"};
    bool found = false;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        found |= is_named(step, names[i]);
    return found;
}

/* ---- attributes ---- */

static int attr_of(struct rewrite *r, const char *name, const struct stg_value *value,
                   struct stg_attr *ret)
{
    struct stg_value *copy = stg_bump_alloc(r->bump, sizeof(*copy));
    if (copy == NULL)
        return fail_memory(r);
    *copy = *value;
    *ret = (struct stg_attr){.name = name, .n_values = 1, .values = copy};
    return 0;
}

static struct stg_value int_value(int64_t i)
{
    return (struct stg_value){.kind = STG_VALUE_INT, .i = i, .f = (double)i};
}

static struct stg_value text_value(const char *s)
{
    return (struct stg_value){.kind = STG_VALUE_STRING, .s = s, .s_bytes = strlen(s)};
}

/* Replaces an attribute of a step, if it has that, or appends it. */
static int set_attr(struct rewrite *r, struct stg_step *step, const char *name,
                    const struct stg_value *value)
{
    struct stg_attr *attrs =
        stg_bump_alloc(r->bump, (step->n_attrs + 1) * sizeof(*attrs));
    if (attrs == NULL)
        return fail_memory(r);
    size_t at = step->n_attrs;
    for (size_t i = 0; i < step->n_attrs; i++) {
        attrs[i] = step->attrs[i];
        if (strcmp(attrs[i].name, name) == 0)
            at = i;
    }
    step->n_attrs += at == step->n_attrs;
    step->attrs = attrs;
    return attr_of(r, name, value, &attrs[at]);
}

/* ---- the steps of a branch, or of the pipeline ---- */

struct steps {
    struct stg_step *steps;
    size_t n;
};

static int copy_steps(struct rewrite *r, const struct stg_step *from, size_t n,
                      struct steps *ret)
{
    static const struct stg_value no = {.kind = STG_VALUE_BOOL};
    ret->steps = stg_bump_alloc(r->bump, (n + 1) * sizeof(*ret->steps));
    if (ret->steps == NULL)
        return fail_memory(r);
    for (size_t i = 0; i < n; i++) {
        struct stg_step *step = &ret->steps[ret->n];
        if (is_left_out(&from[i]))
            continue;
        *step = from[i];
        if (is_named(step, "py_function"))
            return stg_err(r->err, -STAGER_FAILED_PRECONDITION,
                           "step py_function (line %d): a test has no Python workers",
                           step->line);
        bool drops = stg_attr_find(step->attrs, step->n_attrs, "drop_remainder") != NULL;
        int rc = drops ? set_attr(r, step, "drop_remainder", &no) : 0;
        if (rc < 0)
            return rc;
        ret->n++;
    }
    return 0;
}

static bool has_source(const struct steps *steps)
{
    return steps->n > 0 &&
           (is_named(&steps->steps[0], "files") || is_named(&steps->steps[0], "range"));
}

static int use_path(struct rewrite *r, struct stg_step *files)
{
    struct stg_value path = text_value(r->path);
    if (!is_named(files, "files"))
        return stg_err(r->err, -STAGER_INVALID_ARGUMENT,
                       "step %s (line %d) reads no files; give the test `input`",
                       files->name, files->line);
    struct stg_step copy = *files;
    int rc = set_attr(r, &copy, "pattern", &path);
    if (rc < 0)
        return rc;
    struct stg_attr *attrs = (struct stg_attr *)(uintptr_t)copy.attrs;
    size_t n = 0;
    for (size_t i = 0; i < copy.n_attrs; i++) {
        if (strcmp(attrs[i].name, "listing") != 0)
            attrs[n++] = attrs[i];
    }
    copy.n_attrs = n;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(attrs[i].name, "pattern") == 0) {
            attrs[i].ndim = 1;
            attrs[i].shape[0] = 1;
        }
    }
    *files = copy;
    return 0;
}

/* ---- values ---- */

/* Of the steps before the source's end: paths are not data yet. */
static bool are_paths(const struct stg_schema *schema)
{
    return schema->n == 1 && strcmp(schema->components[0].name, "path") == 0;
}

/* The elements that the reader of a branch yields, or `range`, and how many steps make
 * them. */
static int find_source(struct rewrite *r, const struct steps *steps, size_t *ret_n,
                       struct stg_schema *ret)
{
    static struct stg_component number = {.name = "value", .dtype = STAGER_INT64};
    struct stg_schema input;
    *ret = (struct stg_schema){.components = &number, .n = 1};
    *ret_n = 1;
    if (is_named(&steps->steps[0], "range"))
        return 0;
    for (size_t i = 1; i < steps->n; i++) {
        int rc = stg_dataset_infer_step(r->spec, &steps->steps[i], r->bump, &input, ret,
                                        r->err);
        *ret_n = i + 1;
        if (rc < 0 || !are_paths(ret))
            return rc;
    }
    return stg_err(r->err, -STAGER_INVALID_ARGUMENT,
                   "the pipeline yields paths; give the test `file` or `text`");
}

/* "price" of a pipeline, "left/price" of its branch `left`. NULL: it is another's. */
static const char *component_of(const char *key, const char *branch)
{
    size_t n = branch != NULL ? strlen(branch) : 0;
    if (n == 0)
        return key;
    return strncmp(key, branch, n) == 0 && key[n] == '/' ? key + n + 1 : NULL;
}

static int fail_component(struct rewrite *r, const struct stg_attr *value,
                          const char *name, const struct stg_schema *schema)
{
    const char *names[64];
    char all[512] = "";
    size_t n = schema->n < 64 ? schema->n : 64;
    for (size_t i = 0; i < n; i++) {
        size_t used = strlen(all);
        names[i] = schema->components[i].name;
        snprintf(all + used, sizeof(all) - used, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    const char *near = stg_nearest(name, names, n);
    if (near != NULL)
        return stg_err(r->err, -STAGER_INVALID_ARGUMENT,
                       "input (line %d): unknown component \"%s\"; did you mean \"%s\"?",
                       value->line, name, near);
    return stg_err(r->err, -STAGER_INVALID_ARGUMENT,
                   "input (line %d): the source has no component \"%s\"; it has: %s",
                   value->line, name, all);
}

static const struct stg_component *find_component(const struct stg_schema *schema,
                                                  const char *name)
{
    /* A list without names is that of the only component. */
    if (name[0] == '\0' && schema->n == 1)
        return &schema->components[0];
    for (size_t i = 0; i < schema->n; i++) {
        if (strcmp(schema->components[i].name, name) == 0)
            return &schema->components[i];
    }
    return NULL;
}

static int check_shape(struct rewrite *r, const struct stg_attr *value,
                       const struct stg_component *c)
{
    char want[128], got[128];
    bool fits = value->ndim == c->ndim + 1;
    for (int d = 0; fits && d < c->ndim && value->n_values > 0; d++)
        fits = c->shape[d] < 0 || c->shape[d] == value->shape[d + 1];
    if (fits || (value->ndim == 1 && value->n_values == 0))
        return 0;
    if (value->ndim == 0)
        return stg_err(r->err, -STAGER_INVALID_ARGUMENT,
                       "input (line %d): %s is one value; give a list, with a value for "
                       "each element",
                       value->line, c->name);
    return stg_err(r->err, -STAGER_INVALID_ARGUMENT,
                   "input (line %d): an element of %s is %s %s; the test gives %s",
                   value->line, c->name, stg_dtype_name(c->dtype),
                   stg_shape_text(c->shape, c->ndim, want, sizeof(want)),
                   stg_shape_text(value->shape + 1, value->ndim - 1, got, sizeof(got)));
}

/* `values/NAME` is all values of a component, `row/NAME` those of one element. */
static int add_component(struct rewrite *r, const struct stg_attr *value,
                         const struct stg_component *c, struct stg_node *nodes,
                         struct stg_feature *output)
{
    struct stg_attr *attrs = stg_bump_alloc(r->bump, 2 * sizeof(*attrs));
    const char **inputs = stg_bump_alloc(r->bump, 2 * sizeof(*inputs));
    char *values = stg_bump_printf(r->bump, "values/%s", c->name);
    char *row = stg_bump_printf(r->bump, "row/%s", c->name);
    if (attrs == NULL || inputs == NULL || values == NULL || row == NULL)
        return fail_memory(r);
    struct stg_value dtype = text_value(stg_dtype_name(c->dtype));
    attrs[0] = *value;
    attrs[0].name = "value";
    int rc = attr_of(r, "dtype", &dtype, &attrs[1]);
    inputs[0] = values;
    inputs[1] = "value";
    nodes[0] = (struct stg_node){.name = values,
                                 .op = "constant",
                                 .attrs = attrs,
                                 .n_attrs = 2,
                                 .line = value->line,
                                 .column = value->column};
    nodes[1] = (struct stg_node){.name = row,
                                 .op = "gather",
                                 .inputs = inputs,
                                 .n_inputs = 2,
                                 .line = value->line,
                                 .column = value->column};
    *output = (struct stg_feature){.path = c->name, .tensor = row};
    return rc;
}

/* The step `map` that makes elements of numbers. */
static int fill_map(struct rewrite *r, const char *branch,
                    const struct stg_schema *schema, struct stg_step *map, int64_t *ret_n)
{
    const struct stg_test_case *test = r->test;
    struct stg_node *nodes = stg_bump_alloc(r->bump, 2 * test->n_input * sizeof(*nodes));
    struct stg_feature *outputs =
        stg_bump_alloc(r->bump, test->n_input * sizeof(*outputs));
    if (nodes == NULL || outputs == NULL)
        return fail_memory(r);
    size_t n = 0;
    for (size_t i = 0; i < test->n_input; i++) {
        const struct stg_attr *value = &test->input[i];
        const char *name = component_of(value->name, branch);
        if (name == NULL)
            continue;
        const struct stg_component *c = find_component(schema, name);
        if (c == NULL)
            return fail_component(r, value, name, schema);
        int rc = check_shape(r, value, c);
        if (rc == 0 && n > 0 && value->shape[0] != *ret_n)
            rc = stg_err(r->err, -STAGER_INVALID_ARGUMENT,
                         "input (line %d): %s has %" PRId64 " elements, %s has %" PRId64,
                         value->line, c->name, value->shape[0], outputs[0].path, *ret_n);
        if (rc == 0)
            rc = add_component(r, value, c, &nodes[2 * n], &outputs[n]);
        if (rc < 0)
            return rc;
        *ret_n = value->shape[0];
        n++;
    }
    if (n == 0)
        return stg_err(r->err, -STAGER_INVALID_ARGUMENT,
                       branch != NULL
                           ? "input has nothing for the branch %s: name its components "
                             "%s/COMPONENT"
                           : "input is empty",
                       branch, branch);
    *map = (struct stg_step){.name = "map",
                             .nodes = nodes,
                             .n_nodes = 2 * n,
                             .outputs = outputs,
                             .n_outputs = n,
                             .line = test->line,
                             .column = test->column};
    return 0;
}

static int use_values(struct rewrite *r, const char *branch, struct steps *steps)
{
    struct stg_schema schema = {0};
    size_t n_source = 0;
    int64_t n = 0;
    struct stg_step map;
    int rc = find_source(r, steps, &n_source, &schema);
    if (rc == 0)
        rc = fill_map(r, branch, &schema, &map, &n);
    struct stg_step *to =
        stg_bump_alloc(r->bump, (steps->n - n_source + 2) * sizeof(*to));
    if (rc == 0 && to == NULL)
        rc = fail_memory(r);
    if (rc < 0)
        return rc;
    struct stg_value stop = int_value(n);
    to[0] = (struct stg_step){.name = "range", .line = r->test->line};
    rc = set_attr(r, &to[0], "stop", &stop);
    to[1] = map;
    memcpy(to + 2, steps->steps + n_source, (steps->n - n_source) * sizeof(*to));
    steps->n = steps->n - n_source + 2;
    steps->steps = to;
    return rc;
}

static int replace_source(struct rewrite *r, const char *branch, struct steps *steps)
{
    if (!has_source(steps))
        return 0;
    return r->path != NULL ? use_path(r, &steps->steps[0]) : use_values(r, branch, steps);
}

int stg_pipeline_test_rewrite(struct stg_pipeline_spec *spec,
                              const struct stg_test_case *test, const char *path,
                              struct stg_err *err)
{
    struct rewrite r = {
        .spec = spec, .test = test, .path = path, .bump = &spec->bump, .err = err};
    size_t n = spec->n_branches;
    struct stg_branch *branches = stg_bump_alloc(r.bump, (n + 1) * sizeof(*branches));
    struct steps *of = stg_bump_alloc(r.bump, (n + 1) * sizeof(*of));
    if (branches == NULL || of == NULL)
        return fail_memory(&r);
    if (path != NULL && n > 0)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "the pipeline has branches: give the test `input`, with "
                       "components BRANCH/COMPONENT");
    int rc = copy_steps(&r, spec->steps, spec->n_steps, &of[n]);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        branches[i] = spec->branches[i];
        rc = copy_steps(&r, branches[i].steps, branches[i].n_steps, &of[i]);
        branches[i].steps = of[i].steps;
        branches[i].n_steps = of[i].n;
    }
    if (rc < 0)
        return rc;
    /* find_source looks at these; their own sources are replaced after it. */
    spec->steps = of[n].steps;
    spec->n_steps = of[n].n;
    spec->branches = branches;
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = replace_source(&r, branches[i].name, &of[i]);
    if (rc == 0)
        rc = replace_source(&r, NULL, &of[n]);
    for (size_t i = 0; i < n; i++) {
        branches[i].steps = of[i].steps;
        branches[i].n_steps = of[i].n;
    }
    spec->steps = of[n].steps;
    spec->n_steps = of[n].n;
    return rc;
}
