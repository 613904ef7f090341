/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/build.h"

#include <stdio.h>
#include <string.h>

/* Branches inside one another, and steps in all: a branch counts as often as it is
 * taken. */
#define MAX_DEPTH 16u
#define MAX_STEPS 4096u
#define MAX_INPUTS 256u

struct build {
    const struct stg_pipeline_spec *spec;
    struct stg_bump *bump;
    struct stg_dataset *dataset;              /* NULL: nothing is made */
    const struct stg_branch *open[MAX_DEPTH]; /* that are being built */
    unsigned depth;
    unsigned n_steps;
    bool *is_taken;                /* of each branch */
    const struct stg_step *single; /* that is_single; NULL: none so far */

    const struct stg_step *watched; /* gets these two, or NULL */
    const struct stg_schema *watched_in, *watched_out;
};

/* What flows from a list of steps. */
struct flow {
    const struct stg_schema *schema; /* NULL: there was no step */
    struct stg_iter *iter;
    const struct stg_step *unindexed; /* as in struct stg_input */
};

static int build_steps(struct build *build, const struct stg_step *steps, size_t n,
                       struct flow *ret, struct stg_err *err);

static const struct stg_transformation *find(const struct stg_step *step,
                                             struct stg_err *err)
{
    const struct stg_transformation *ret = stg_transformation_find(step->name);
    if (ret != NULL)
        return ret;
    char known[700] = "";
    for (size_t i = 0; i < stg_n_transformations; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof(known) - used, "%s%s", i > 0 ? ", " : "",
                 stg_transformations[i]->name);
    }
    stg_step_err(step, -STAGER_UNIMPLEMENTED, err, "unknown step; known: %s", known);
    return NULL;
}

/* ---- branches ---- */

static int fail_branch(const struct stg_branch *branch, struct stg_err *err,
                       const char *text)
{
    return stg_err(err, -STAGER_INVALID_ARGUMENT, "branch %s (line %d): %s", branch->name,
                   branch->line, text);
}

static int check_open(const struct build *build, const struct stg_branch *branch,
                      struct stg_err *err)
{
    for (unsigned i = 0; i < build->depth; i++) {
        if (build->open[i] == branch)
            return fail_branch(branch, err,
                               "the branch is its own input, through `from`");
    }
    if (build->depth == MAX_DEPTH)
        return fail_branch(branch, err, "branches are nested 17 deep; the maximum is 16");
    if (branch->n_steps == 0)
        return fail_branch(
            branch, err, "it has no steps; begin with a source, such as files or range");
    return 0;
}

static int build_branch(struct build *build, const struct stg_step *step,
                        const struct stg_value *name, struct stg_input *ret,
                        struct stg_err *err)
{
    const struct stg_pipeline_spec *spec = build->spec;
    size_t i = 0;
    while (i < spec->n_branches && strcmp(spec->branches[i].name, name->s) != 0)
        i++;
    if (i == spec->n_branches)
        return stg_step_err(
            step, -STAGER_INVALID_ARGUMENT, err,
            "unknown branch %s: define its steps below that name in `datasets`", name->s);
    const struct stg_branch *branch = &spec->branches[i];
    int rc = check_open(build, branch, err);
    if (rc < 0)
        return rc;
    build->is_taken[i] = true;
    build->open[build->depth++] = branch;
    struct flow flow;
    rc = build_steps(build, branch->steps, branch->n_steps, &flow, err);
    build->depth--;
    if (rc < 0)
        return rc;
    *ret = (struct stg_input){.name = branch->name,
                              .schema = flow.schema,
                              .unindexed = flow.unindexed,
                              .iter = flow.iter};
    return 0;
}

static int check_branches(const struct build *build, struct stg_err *err)
{
    const struct stg_pipeline_spec *spec = build->spec;
    for (size_t i = 0; i < spec->n_branches; i++) {
        for (size_t k = 0; k < i; k++) {
            if (strcmp(spec->branches[i].name, spec->branches[k].name) == 0)
                return fail_branch(&spec->branches[i], err,
                                   "another branch has the same name");
        }
        if (!build->is_taken[i])
            return fail_branch(
                &spec->branches[i], err,
                "no step uses the branch: name it in a `from`, or remove it");
    }
    return 0;
}

/* ---- steps ---- */

static void destroy_inputs(const struct stg_input *inputs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        stg_iter_destroy(inputs[i].iter);
}

/* The branches that one attribute names, behind the n inputs that there are. */
static int add_inputs(struct build *build, const struct stg_step *step, const char *attr,
                      struct stg_input *inputs, size_t *n, struct stg_err *err)
{
    const struct stg_attr *names = stg_attr_find(step->attrs, step->n_attrs, attr);
    for (size_t i = 0; names != NULL && i < names->n_values; i++) {
        if (*n == MAX_INPUTS)
            return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                                "more than %u inputs", MAX_INPUTS);
        int rc = build_branch(build, step, &names->values[i], &inputs[*n], err);
        if (rc < 0)
            return rc;
        ++*n;
    }
    return 0;
}

/* What stands before the step comes first, if anything does. */
static int gather_inputs(struct build *build, const struct stg_step *step,
                         const struct stg_transformation *transformation,
                         const struct flow *before, struct stg_input *inputs, size_t *n,
                         struct stg_err *err)
{
    if (before->schema != NULL)
        inputs[(*n)++] = (struct stg_input){.schema = before->schema,
                                            .unindexed = before->unindexed,
                                            .iter = before->iter};
    int rc = add_inputs(build, step, "from", inputs, n, err);
    if (rc == 0 && *n == 0)
        rc = stg_step_err(
            step, -STAGER_INVALID_ARGUMENT, err,
            "from is missing: name the input branches, such as from: [a, b]");
    if (rc == 0 && transformation->last_input != NULL)
        rc = add_inputs(build, step, transformation->last_input, inputs, n, err);
    return rc;
}

static int make_iter(struct build *build, const struct stg_step *step,
                     const struct stg_transformation *transformation,
                     const struct stg_schema *schema, struct stg_iter *input,
                     struct stg_iter **ret, struct stg_err *err)
{
    if (build->dataset == NULL)
        return 0;
    return transformation->create(build->dataset, step, schema, input, ret, err);
}

/* A step with several inputs. On failure what stands before it is still there. */
static int build_many(struct build *build, const struct stg_step *step,
                      const struct stg_transformation *transformation,
                      struct stg_schema *schema, struct flow *flow, struct stg_err *err)
{
    size_t n = 0, n_before = flow->schema != NULL;
    struct stg_input *inputs = stg_bump_alloc(build->bump, MAX_INPUTS * sizeof(*inputs));
    if (inputs == NULL)
        return stg_step_err(step, -STAGER_RESOURCE_EXHAUSTED, err, "out of memory");
    int rc = gather_inputs(build, step, transformation, flow, inputs, &n, err);
    if (rc == 0)
        rc = transformation->infer_many(step, inputs, n, build->bump, schema, err);
    for (size_t i = 1; rc == 0 && i < n && inputs[i].iter != NULL; i++)
        inputs[i - 1].iter->sibling = inputs[i].iter;
    if (rc == 0)
        rc = make_iter(build, step, transformation, schema, inputs[0].iter, &flow->iter,
                       err);
    for (size_t i = 0; rc == 0 && i < n && flow->unindexed == NULL; i++)
        flow->unindexed = inputs[i].unindexed;
    if (rc < 0) {
        for (size_t i = 0; i < n && inputs[i].iter != NULL; i++)
            inputs[i].iter->sibling = NULL;
        destroy_inputs(inputs + n_before, n - n_before);
    }
    return rc;
}

static bool is_indexed(const struct stg_transformation *transformation,
                       const struct stg_step *step)
{
    return transformation->is_indexable &&
           (transformation->is_unindexed == NULL || !transformation->is_unindexed(step));
}

static int check_index(const struct stg_step *step,
                       const struct stg_transformation *transformation,
                       const struct stg_step *unindexed, struct stg_err *err)
{
    if (unindexed == NULL || transformation->needs_index == NULL ||
        !transformation->needs_index(step))
        return 0;
    if (stg_transformation_find(unindexed->name)->is_indexable)
        return stg_step_err(
            step, -STAGER_INVALID_ARGUMENT, err,
            "global: true needs an input whose records have numbers, and "
            "the rows that filters of %s (line %d) keeps have none: put a "
            "step filter behind this step in its place, or use a "
            "buffer_size without global",
            unindexed->name, unindexed->line);
    return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                        "global: true needs an input whose records have numbers, and "
                        "those of %s (line %d) have none before they are made: put %s "
                        "after this step, or use a buffer_size without global",
                        unindexed->name, unindexed->line, unindexed->name);
}

static int build_step(struct build *build, const struct stg_step *step, struct flow *flow,
                      struct stg_err *err)
{
    const struct stg_transformation *transformation = find(step, err);
    if (transformation == NULL)
        return -STAGER_UNIMPLEMENTED;
    if (build->n_steps++ == MAX_STEPS)
        return stg_step_err(
            step, -STAGER_INVALID_ARGUMENT, err,
            "more than %u steps, where a branch counts each time it is used", MAX_STEPS);
    struct stg_schema *schema = stg_bump_alloc(build->bump, sizeof(*schema));
    if (schema == NULL)
        return stg_step_err(step, -STAGER_RESOURCE_EXHAUSTED, err, "out of memory");
    int rc;
    if (transformation->infer_many != NULL) {
        rc = build_many(build, step, transformation, schema, flow, err);
    } else {
        rc = transformation->infer(step, flow->schema, build->bump, schema, err);
        if (rc == 0)
            rc = check_index(step, transformation, flow->unindexed, err);
        if (rc == 0)
            rc = make_iter(build, step, transformation, schema, flow->iter, &flow->iter,
                           err);
    }
    if (rc == 0 && step == build->watched) {
        build->watched_in = flow->schema;
        build->watched_out = schema;
    }
    if (rc == 0)
        flow->schema = schema;
    if (rc == 0 && !is_indexed(transformation, step))
        flow->unindexed = step;
    return rc;
}

/* Its workers are those of the pipeline. A branch may be taken more than once. */
static int check_single(struct build *build, const struct stg_step *step,
                        struct stg_err *err)
{
    const struct stg_transformation *transformation = stg_transformation_find(step->name);
    if (transformation == NULL || !transformation->is_single)
        return 0;
    if (build->single != NULL && build->single != step)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "a pipeline has one such step, and line %d has it: write one "
                            "function that calls both",
                            build->single->line);
    build->single = step;
    return 0;
}

/* Returns how many of the steps are made once for many passes, of which any may come
 * first: they are made as pass 0 makes them. */
static size_t count_lasting(const struct build *build, const struct stg_step *steps,
                            size_t n)
{
    const struct stg_dataset *dataset = build->dataset;
    while (n > 0 && !(strcmp(steps[n - 1].name, "cache") == 0 &&
                      (dataset->env.container != NULL ||
                       stg_attr_find(steps[n - 1].attrs, steps[n - 1].n_attrs,
                                     "filename") != NULL)))
        n--;
    return n;
}

static int build_steps(struct build *build, const struct stg_step *steps, size_t n,
                       struct flow *ret, struct stg_err *err)
{
    struct flow flow = {0};
    struct stg_dataset *dataset = build->dataset;
    uint64_t pass = dataset != NULL ? dataset->pass : 0;
    size_t n_lasting = dataset != NULL ? count_lasting(build, steps, n) : 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (dataset != NULL)
            dataset->pass = i < n_lasting ? 0 : pass;
        rc = check_single(build, &steps[i], err);
        if (rc == 0)
            rc = build_step(build, &steps[i], &flow, err);
    }
    if (dataset != NULL)
        dataset->pass = pass;
    if (rc < 0)
        stg_iter_destroy(flow.iter);
    else
        *ret = flow;
    return rc;
}

static int build_all(struct build *build, struct flow *ret, struct stg_err *err)
{
    const struct stg_pipeline_spec *spec = build->spec;
    if (spec->n_steps == 0)
        return stg_err(
            err, -STAGER_INVALID_ARGUMENT,
            "dataset: it has no steps; begin with a source, such as files or range");
    build->is_taken = stg_bump_alloc(build->bump, spec->n_branches + 1);
    if (build->is_taken == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "dataset: out of memory");
    struct flow flow;
    int rc = build_steps(build, spec->steps, spec->n_steps, &flow, err);
    if (rc < 0)
        return rc;
    rc = check_branches(build, err);
    if (rc < 0)
        stg_iter_destroy(flow.iter);
    else
        *ret = flow;
    return rc;
}

int stg_dataset_infer(const struct stg_pipeline_spec *spec, struct stg_bump *bump,
                      struct stg_schema *ret, struct stg_err *err)
{
    struct build build = {.spec = spec, .bump = bump};
    struct flow flow;
    int rc = build_all(&build, &flow, err);
    if (rc == 0)
        *ret = *flow.schema;
    return rc;
}

int stg_dataset_infer_step(const struct stg_pipeline_spec *spec,
                           const struct stg_step *step, struct stg_bump *bump,
                           struct stg_schema *ret_input, struct stg_schema *ret_output,
                           struct stg_err *err)
{
    struct build build = {.spec = spec, .bump = bump, .watched = step};
    struct flow flow;
    int rc = build_all(&build, &flow, err);
    if (rc < 0)
        return rc;
    *ret_input = *build.watched_in;
    *ret_output = *build.watched_out;
    return 0;
}

static const struct stg_step *copy_full(const struct stg_step *steps, size_t n,
                                        struct stg_bump *bump)
{
    struct stg_step *copy = stg_bump_alloc(bump, (n + 1) * sizeof(*copy));
    for (size_t i = 0; copy != NULL && i < n; i++) {
        copy[i] = steps[i];
        copy[i].is_full = true;
    }
    return copy;
}

int stg_dataset_infer_full(const struct stg_pipeline_spec *spec, struct stg_bump *bump,
                           struct stg_schema *ret, struct stg_err *err)
{
    struct stg_pipeline_spec full = {.n_steps = spec->n_steps,
                                     .n_branches = spec->n_branches};
    struct stg_branch *branches =
        stg_bump_alloc(bump, (spec->n_branches + 1) * sizeof(*branches));
    full.steps = copy_full(spec->steps, spec->n_steps, bump);
    full.branches = branches;
    bool ok = full.steps != NULL && branches != NULL;
    for (size_t i = 0; ok && i < spec->n_branches; i++) {
        branches[i] = spec->branches[i];
        branches[i].steps = copy_full(branches[i].steps, branches[i].n_steps, bump);
        ok = branches[i].steps != NULL;
    }
    return ok ? stg_dataset_infer(&full, bump, ret, err)
              : stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "dataset: out of memory");
}

static bool pass_codes(const struct stg_step *steps, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct stg_transformation *step = stg_transformation_find(steps[i].name);
        if (step == NULL || !step->passes_codes)
            return false;
    }
    return true;
}

static bool all_pass_codes(const struct stg_pipeline_spec *spec)
{
    bool ret = pass_codes(spec->steps, spec->n_steps);
    for (size_t i = 0; i < spec->n_branches; i++)
        ret = ret && pass_codes(spec->branches[i].steps, spec->branches[i].n_steps);
    return ret;
}

int stg_build_iter(const struct stg_pipeline_spec *spec, struct stg_dataset *dataset,
                   struct stg_iter **ret, struct stg_err *err)
{
    struct stg_schema schema;
    int rc = stg_dataset_infer(spec, &dataset->bump, &schema, err);
    if (rc < 0)
        return rc;
    struct build build = {.spec = spec, .bump = &dataset->bump, .dataset = dataset};
    struct flow flow;
    dataset->takes_codes = dataset->env.takes_codes && all_pass_codes(spec);
    rc = build_all(&build, &flow, err);
    if (rc == 0)
        *ret = flow.iter;
    return rc;
}
