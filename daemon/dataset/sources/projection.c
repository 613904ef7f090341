/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/sources/projection.h"

#include <stdio.h>
#include <string.h>

#include "daemon/dataset/dataset.h"
#include "daemon/dataset/step.h"

#define COLUMNS "columns/"
#define MAX_NAMES 400 /* bytes of the names of columns in a text */

static int out_of_memory(struct stg_err *err)
{
    return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "dataset: out of memory");
}

/* ---- what is named ---- */

/* A reference may be to a component, to a part of it (x/values), or to all that lies
 * below a name (user of user/id). */
static bool refers(const char *reference, const char *name)
{
    size_t n = strlen(name), k;
    reference += reference[0] == '^';
    k = strlen(reference);
    if (k < n)
        return strncmp(name, reference, k) == 0 && name[k] == '/';
    return strncmp(name, reference, n) == 0 &&
           (k == n || reference[n] == '/' || reference[n] == ':');
}

static bool nodes_name(const struct stg_node *nodes, size_t n, const char *name)
{
    bool ret = false;
    for (size_t i = 0; i < n && !ret; i++) {
        for (size_t k = 0; k < nodes[i].n_inputs && !ret; k++)
            ret = refers(nodes[i].inputs[k], name);
    }
    return ret;
}

static bool features_name(const struct stg_feature *features, size_t n, const char *name)
{
    bool ret = false;
    for (size_t i = 0; i < n && !ret; i++)
        ret = refers(features[i].tensor, name);
    return ret;
}

static bool graph_names(const struct stg_pipeline_spec *spec, const char *name)
{
    const struct stg_staged *staged = &spec->staged;
    bool ret = nodes_name(spec->nodes, spec->n_nodes, name) ||
               features_name(staged->features, staged->n_features, name);
    for (size_t i = 0; i < staged->n_feeds && !ret; i++) {
        const struct stg_feed *feed = &staged->feeds[i];
        ret = refers(feed->name, name) ||
              (feed->tensor != NULL && refers(feed->tensor, name));
    }
    return ret;
}

/* The column that an attribute of a step is of; NULL: it is of none. */
static const char *column_of(const struct stg_attr *attr)
{
    static const char *const fields[] = {COLUMNS, "defaults/", "shapes/"};
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (strncmp(attr->name, fields[i], strlen(fields[i])) == 0)
            return attr->name + strlen(fields[i]);
    }
    return NULL;
}

/* Such as padded_shapes/NAME, or a condition of `filters`. */
static bool attr_names(const struct stg_attr *attr, const char *name)
{
    const char *below = strchr(attr->name, '/');
    bool ret = below != NULL && refers(below + 1, name);
    for (size_t i = 0; i < attr->n_values && !ret; i++)
        ret = attr->values[i].kind == STG_VALUE_STRING && refers(attr->values[i].s, name);
    return ret;
}

static bool step_names(const struct stg_step *step, const char *name)
{
    bool ret = nodes_name(step->nodes, step->n_nodes, name) ||
               features_name(step->outputs, step->n_outputs, name) ||
               (step->reader != NULL && step_names(step->reader, name));
    for (size_t i = 0; i < step->n_attrs && !ret; i++)
        ret = column_of(&step->attrs[i]) == NULL && attr_names(&step->attrs[i], name);
    return ret;
}

static bool steps_name(const struct stg_step *steps, size_t n, const char *name)
{
    bool ret = false;
    for (size_t i = 0; i < n && !ret; i++)
        ret = step_names(&steps[i], name);
    return ret;
}

static bool is_used(const struct stg_pipeline_spec *spec, const char *name)
{
    bool ret = graph_names(spec, name) || steps_name(spec->steps, spec->n_steps, name);
    for (size_t i = 0; i < spec->n_branches && !ret; i++)
        ret = steps_name(spec->branches[i].steps, spec->branches[i].n_steps, name);
    return ret;
}

/* ---- steps without those that are not ---- */

struct projecting {
    const struct stg_pipeline_spec *spec;
    struct stg_bump *bump;
    bool is_less; /* a column was left out */
};

/* The first column, if none is used: the step counts its rows. */
static const char *find_spare(const struct projecting *to, const struct stg_step *step)
{
    const char *first = NULL;
    for (size_t i = 0; i < step->n_attrs; i++) {
        const char *column = column_of(&step->attrs[i]);
        if (column != NULL && is_used(to->spec, column))
            return NULL;
        first = first == NULL ? column : first;
    }
    return first;
}

/* Returns false if there is no memory. */
static bool project_attrs(struct projecting *to, struct stg_step *step)
{
    const char *spare = find_spare(to, step);
    struct stg_attr *attrs =
        stg_bump_alloc(to->bump, (step->n_attrs + 1) * sizeof(*attrs));
    size_t n = 0;
    for (size_t i = 0; attrs != NULL && i < step->n_attrs; i++) {
        const char *column = column_of(&step->attrs[i]);
        if (column == NULL || is_used(to->spec, column) ||
            (spare != NULL && strcmp(column, spare) == 0))
            attrs[n++] = step->attrs[i];
    }
    to->is_less |= n < step->n_attrs;
    step->attrs = attrs;
    step->n_attrs = n;
    return attrs != NULL;
}

static const struct stg_step *project_steps(struct projecting *to,
                                            const struct stg_step *steps, size_t n)
{
    struct stg_step *copy = stg_bump_alloc(to->bump, (n + 1) * sizeof(*copy));
    bool ok = copy != NULL;
    for (size_t i = 0; ok && i < n; i++) {
        copy[i] = steps[i];
        ok = project_attrs(to, &copy[i]);
        if (ok && copy[i].reader != NULL)
            ok = (copy[i].reader = project_steps(to, copy[i].reader, 1)) != NULL;
    }
    return ok ? copy : NULL;
}

/* Projects the steps and branches of *spec. */
static int project(struct projecting *to, struct stg_pipeline_spec *spec,
                   struct stg_err *err)
{
    struct stg_branch *branches =
        stg_bump_alloc(to->bump, (spec->n_branches + 1) * sizeof(*branches));
    spec->steps = project_steps(to, spec->steps, spec->n_steps);
    bool ok = spec->steps != NULL && branches != NULL;
    for (size_t i = 0; ok && i < spec->n_branches; i++) {
        branches[i] = spec->branches[i];
        branches[i].steps = project_steps(to, branches[i].steps, branches[i].n_steps);
        ok = branches[i].steps != NULL;
    }
    spec->branches = branches;
    return ok ? 0 : out_of_memory(err);
}

/* ---- components ---- */

static bool is_same(const struct stg_component *a, const struct stg_component *b)
{
    return strcmp(a->name, b->name) == 0 && a->dtype == b->dtype && a->ndim == b->ndim &&
           a->part == b->part &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof(a->shape[0])) == 0;
}

/* Returns whether the components that are left are those of the element, in their order,
 * and the graph names none of the others. Names that a step makes of names may be others
 * with fewer of them. */
static bool find_places(const struct stg_pipeline_spec *spec,
                        const struct stg_schema *element, const struct stg_schema *left,
                        uint32_t *places)
{
    size_t n = 0;
    for (size_t c = 0; c < element->n; c++) {
        const struct stg_component *component = &element->components[c];
        if (n < left->n && is_same(component, &left->components[n]))
            places[n++] = (uint32_t)c;
        else if (graph_names(spec, component->name))
            return false;
    }
    return n == left->n;
}

static bool any_takes_all(const struct stg_step *steps, size_t n)
{
    bool ret = false;
    for (size_t i = 0; i < n && !ret; i++) {
        const struct stg_transformation *step = stg_transformation_find(steps[i].name);
        ret = step == NULL || step->takes_all;
    }
    return ret;
}

/* Without features, each component of the element is one. */
static bool may_be_less(const struct stg_pipeline_spec *spec)
{
    bool ret = spec->staged.n_features > 0 && !any_takes_all(spec->steps, spec->n_steps);
    for (size_t i = 0; i < spec->n_branches && ret; i++)
        ret = !any_takes_all(spec->branches[i].steps, spec->branches[i].n_steps);
    return ret;
}

int stg_projection_init(const struct stg_pipeline_spec *spec,
                        const struct stg_schema *element, struct stg_bump *bump,
                        struct stg_projection *ret, struct stg_err *err)
{
    struct projecting to = {.spec = spec, .bump = bump};
    struct stg_pipeline_spec less = *spec;
    struct stg_schema left;
    *ret =
        (struct stg_projection){.spec = *spec, .n_element = element->n, .n = element->n};
    if (!may_be_less(spec))
        return 0;
    int rc = project(&to, &less, err);
    if (rc < 0 || !to.is_less)
        return rc;
    rc = stg_dataset_infer(&less, bump, &left, NULL);
    if (rc < 0)
        return rc == -STAGER_RESOURCE_EXHAUSTED ? out_of_memory(err) : 0;
    uint32_t *places = stg_bump_alloc(bump, (left.n + 1) * sizeof(*places));
    if (places == NULL)
        return out_of_memory(err);
    if (!find_places(spec, element, &left, places))
        return 0;
    ret->spec = less;
    ret->places = places;
    ret->n = left.n;
    return 0;
}

/* ---- in words ---- */

struct telling {
    struct stg_bump *bump;
    const char **texts; /* NULL: they are counted */
    size_t n;
};

/* The name of a column that an attribute declares, or NULL. */
static const char *declared(const struct stg_attr *attr)
{
    size_t n = strlen(COLUMNS);
    return strncmp(attr->name, COLUMNS, n) == 0 ? attr->name + n : NULL;
}

static size_t count_columns(const struct stg_step *step)
{
    size_t n = 0;
    for (size_t i = 0; i < step->n_attrs; i++)
        n += declared(&step->attrs[i]) != NULL;
    return n;
}

/* As many names as fit. */
static void list_columns(const struct stg_step *step, char *to)
{
    size_t at = 0, n = 0;
    for (size_t i = 0; i < step->n_attrs; i++) {
        const char *name = declared(&step->attrs[i]);
        if (name == NULL)
            continue;
        if (at + strlen(name) + strlen(", ") > MAX_NAMES) {
            strcpy(to + at, ", …");
            return;
        }
        at += (size_t)sprintf(to + at, "%s%s", n++ > 0 ? ", " : "", name);
    }
}

/* Steps, and those that read less. Returns false if there is no memory. */
static bool tell_steps(struct telling *to, const struct stg_step *steps,
                       const struct stg_step *less, size_t n_steps)
{
    bool ok = true;
    for (size_t i = 0; ok && i < n_steps; i++) {
        char names[MAX_NAMES + sizeof(", …")] = "";
        size_t n = count_columns(&steps[i]), n_less = count_columns(&less[i]);
        if (steps[i].reader != NULL)
            ok = tell_steps(to, steps[i].reader, less[i].reader, 1);
        if (n_less == n || !ok)
            continue;
        if (to->texts != NULL) {
            list_columns(&less[i], names);
            to->texts[to->n] = stg_bump_printf(to->bump, "%s reads %zu of %zu: %s",
                                               steps[i].name, n_less, n, names);
            ok = to->texts[to->n] != NULL;
        }
        to->n++;
    }
    return ok;
}

static bool tell(struct telling *to, const struct stg_pipeline_spec *spec,
                 const struct stg_pipeline_spec *less)
{
    to->n = 0;
    bool ok = tell_steps(to, spec->steps, less->steps, spec->n_steps);
    for (size_t i = 0; ok && i < spec->n_branches; i++)
        ok = tell_steps(to, spec->branches[i].steps, less->branches[i].steps,
                        spec->branches[i].n_steps);
    return ok;
}

int stg_projection_tell(const struct stg_pipeline_spec *spec,
                        const struct stg_projection *projection, struct stg_bump *bump,
                        const char *const **ret, size_t *ret_n)
{
    struct telling to = {.bump = bump};
    tell(&to, spec, &projection->spec);
    to.texts = stg_bump_alloc(bump, (to.n + 1) * sizeof(*to.texts));
    if (to.texts == NULL || !tell(&to, spec, &projection->spec))
        return -STAGER_RESOURCE_EXHAUSTED;
    *ret = to.texts;
    *ret_n = to.n;
    return 0;
}

void stg_projection_spread(const struct stg_projection *projection,
                           const struct stg_tensor *from, struct stg_tensor *to)
{
    for (size_t i = 0; i < projection->n; i++)
        to[projection->places[i]] = from[i];
}
