/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan of an executor: which nodes run, where their tensors are, and which node
 * does the work of another.
 */
#include <stdlib.h>
#include <string.h>

#include "ops/exec/priv.h"
#include "ops/partition/priv.h"

/* ---- steps ---- */

static uint32_t slot_of(const struct stg_run *run, const struct stg_ref *ref,
                        const uint32_t *first_slot)
{
    ref = stg_graph_follow(run->graph, ref);
    if (ref->kind == STG_REF_FEED)
        return run->first_feed + ref->index;
    return ref->kind == STG_REF_NODE ? first_slot[ref->index] + ref->output : ref->index;
}

static int plan_step(struct stg_run *run, const struct stg_graph_node *node,
                     const uint32_t *first_slot, uint32_t index, struct stg_err *err)
{
    uint32_t *inputs = stg_bump_alloc(&run->plan, node->n_inputs * sizeof(*inputs));
    struct stg_run_output *outputs =
        stg_bump_alloc(&run->plan, node->n_outputs * sizeof(*outputs));
    if (inputs == NULL || outputs == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (size_t i = 0; i < node->n_inputs; i++)
        inputs[i] = slot_of(run, &node->inputs[i], first_slot);
    for (size_t i = 0; i < node->n_outputs; i++)
        outputs[i] = (struct stg_run_output){.node = node,
                                             .component = &node->outputs[i],
                                             .slot = first_slot[index] + (uint32_t)i};
    run->steps[run->n_steps++] = (struct stg_run_step){
        .node = node, .plan = node->plan, .inputs = inputs, .outputs = outputs};
    return 0;
}

/* Constants, tables and variables are no steps: their tensors are known now. */
static int plan_nodes(struct stg_run *run, const struct stg_resources *resources,
                      const bool *needed, const uint32_t *first_slot, struct stg_err *err)
{
    const struct stg_graph *graph = run->graph;
    for (size_t i = 0; i < graph->n_nodes; i++) {
        uint32_t index = graph->order[i];
        const struct stg_graph_node *node = &graph->nodes[index];
        if (!needed[index])
            continue;
        if (node->why != NULL)
            return stg_graph_blame(
                node, stg_err(err, node->why->code, "%s", node->why->text), err);
        if (node->values != NULL) {
            memcpy(&run->tensors[first_slot[index]], node->values,
                   node->n_outputs * sizeof(*node->values));
            continue;
        }
        if ((node->op->flags & STG_OP_PLACEHOLDER) != 0)
            return stg_err(err, -STAGER_FAILED_PRECONDITION,
                           "placeholder %s is needed but is not fed", node->spec->name);
        if ((node->op->flags & STG_OP_TABLE) != 0) {
            if (node->table.data == NULL)
                return stg_err(err, -STAGER_FAILED_PRECONDITION,
                               "vocabulary %s is needed but was not read",
                               node->spec->name);
            run->tensors[first_slot[index]] = node->table;
            continue;
        }
        if ((node->op->flags & STG_OP_VARIABLE) != 0) {
            const struct stg_tensor *variable =
                resources != NULL ? stg_resources_tensor(resources, index) : NULL;
            if (variable == NULL)
                return stg_err(err, -STAGER_FAILED_PRECONDITION,
                               "variable %s is needed but does not exist in this process",
                               node->spec->name);
            run->tensors[first_slot[index]] = *variable;
            continue;
        }
        int rc = plan_step(run, node, first_slot, index, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static uint32_t find_fetch(const struct stg_run *run, size_t i, uint32_t slot)
{
    for (size_t k = 0; k < i; k++) {
        if (run->fetches[k].slot == slot)
            return (uint32_t)k;
    }
    return (uint32_t)i;
}

/* The first fetch of an output that an op writes is where it is written. */
static void plan_fetches(struct stg_run *run, const struct stg_ref *refs, size_t n,
                         const uint32_t *first_slot)
{
    for (size_t i = 0; i < run->n_slots; i++)
        run->slots[i].fetch = STG_NO_FETCH;
    for (size_t i = 0; i < n; i++) {
        uint32_t slot = slot_of(run, &refs[i], first_slot);
        const struct stg_ref *ref = stg_graph_follow(run->graph, &refs[i]);
        bool written = ref->kind == STG_REF_NODE &&
                       run->graph->nodes[ref->index].op->run != NULL &&
                       run->graph->nodes[ref->index].values == NULL;
        run->fetches[i].slot = slot;
        run->fetches[i].first = find_fetch(run, i, slot);
        run->fetches[i].is_primary = written && run->slots[slot].fetch == STG_NO_FETCH;
        if (run->fetches[i].is_primary)
            run->slots[slot].fetch = (uint32_t)i;
    }
}

static void mark_needed(struct stg_run *run)
{
    for (size_t i = 0; i < run->n_fetches; i++)
        run->slots[run->fetches[i].slot].is_needed = true;
    for (size_t i = 0; i < run->n_steps; i++) {
        const struct stg_run_step *step = &run->steps[i];
        for (size_t k = 0; k < step->node->n_inputs; k++)
            run->slots[step->inputs[k]].is_needed = true;
    }
}

/* Numbers the slots of the nodes that are needed, and makes the arrays. */
static int plan_slots(struct stg_run *run, const bool *needed, size_t n_fetches,
                      uint32_t *first_slot, struct stg_err *err)
{
    const struct stg_graph *graph = run->graph;
    size_t n_slots = run->n_feeds + graph->n_feeds, n_needed = 0, max_inputs = 0;
    for (size_t i = 0; i < graph->n_nodes; i++) {
        first_slot[i] = STG_NO_SLOT;
        if (!needed[i])
            continue;
        first_slot[i] = (uint32_t)n_slots;
        n_slots += graph->nodes[i].n_outputs;
        n_needed++;
        if (graph->nodes[i].n_inputs > max_inputs)
            max_inputs = graph->nodes[i].n_inputs;
    }
    run->n_slots = n_slots;
    run->n_fetches = n_fetches;
    run->tensors = stg_bump_alloc(&run->plan, n_slots * sizeof(*run->tensors));
    run->slots = stg_bump_alloc(&run->plan, n_slots * sizeof(*run->slots));
    run->steps = stg_bump_alloc(&run->plan, n_needed * sizeof(*run->steps));
    run->fetches = stg_bump_alloc(&run->plan, n_fetches * sizeof(*run->fetches));
    run->max_inputs = max_inputs;
    run->own.run = run;
    run->own.inputs = stg_bump_alloc(&run->plan, max_inputs * sizeof(*run->own.inputs));
    if (run->tensors == NULL || run->slots == NULL || run->steps == NULL ||
        run->fetches == NULL || run->own.inputs == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    return 0;
}

/* ---- steps that do others' work ---- */

/* The readers of a slot. */
struct readers {
    uint32_t n; /* steps' inputs and fetches */
    struct stg_run_step *step;
};

static struct readers *find_readers(struct stg_run *run)
{
    struct readers *readers = calloc(run->n_slots + 1, sizeof(*readers));
    if (readers == NULL)
        return NULL;
    for (size_t i = 0; i < run->n_fetches; i++)
        readers[run->fetches[i].slot].n++;
    for (size_t i = 0; i < run->n_steps; i++) {
        struct stg_run_step *step = &run->steps[i];
        for (size_t k = 0; k < step->node->n_inputs; k++) {
            readers[step->inputs[k]].n++;
            readers[step->inputs[k]].step = step;
        }
    }
    return readers;
}

/* What reads nothing but this, waits for nothing else, and makes one tensor. */
static bool is_only_reader(const struct readers *readers)
{
    return readers->n == 1 && readers->step != NULL &&
           readers->step->node->n_inputs == 1 && readers->step->node->n_outputs == 1 &&
           readers->step->node->n_controls == 0;
}

static int absorb(struct stg_run *run, struct stg_run_step *step,
                  const struct readers *readers, struct stg_absorb *list)
{
    size_t n = 0;
    for (size_t i = 0; i < step->node->n_outputs; i++) {
        const struct readers *of = &readers[step->outputs[i].slot];
        if (is_only_reader(of))
            list[n++] = (struct stg_absorb){
                .output = i, .op = of->step->node->op, .plan = of->step->plan};
    }
    if (n == 0)
        return 0;
    const void *plan = step->node->op->absorb(step->plan, list, n, &run->plan);
    if (plan == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    step->plan = plan;
    for (size_t i = 0; i < n; i++) {
        struct stg_run_output *output = &step->outputs[list[i].output];
        if (!list[i].taken)
            continue;
        struct stg_run_step *reader = readers[output->slot].step;
        reader->is_absorbed = true;
        *output = reader->outputs[0];
    }
    return 0;
}

static void drop_absorbed(struct stg_run *run)
{
    size_t n = 0;
    for (size_t i = 0; i < run->n_steps; i++) {
        if (!run->steps[i].is_absorbed)
            run->steps[n++] = run->steps[i];
    }
    run->n_steps = n;
}

static int plan_absorbed(struct stg_run *run, struct stg_err *err)
{
    int rc = 0;
    struct readers *readers = find_readers(run);
    struct stg_absorb *list = calloc(run->n_slots + 1, sizeof(*list));
    if (readers == NULL || list == NULL)
        rc = -STAGER_RESOURCE_EXHAUSTED;
    /* From the last on, so that a reader that is taken over brings its own readers. */
    for (size_t i = run->n_steps; rc == 0 && i-- > 0;) {
        if (run->steps[i].node->op->absorb != NULL)
            rc = absorb(run, &run->steps[i], readers, list);
    }
    free(readers);
    free(list);
    drop_absorbed(run);
    return rc < 0 ? stg_err(err, rc, "out of memory") : 0;
}

static int plan_run(struct stg_run *run, const struct stg_resources *resources,
                    const struct stg_ref *refs, size_t n, struct stg_err *err)
{
    const struct stg_graph *graph = run->graph;
    bool *needed = calloc(graph->n_nodes + 1, sizeof(*needed));
    uint32_t *first_slot = calloc(graph->n_nodes + 1, sizeof(*first_slot));
    int rc;
    if (needed == NULL || first_slot == NULL) {
        rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
        goto done;
    }
    for (size_t i = 0; i < n; i++) {
        stg_graph_mark(graph, &refs[i], needed, NULL);
    }
    rc = plan_slots(run, needed, n, first_slot, err);
    if (rc < 0)
        goto done;
    rc = plan_nodes(run, resources, needed, first_slot, err);
    if (rc < 0)
        goto done;
    plan_fetches(run, refs, n, first_slot);
    mark_needed(run);
    rc = plan_absorbed(run, err);
    stg_run_plan_coded(run);
    if (rc == 0)
        rc = stg_run_plan_buffers(run, false, err);

done:
    free(needed);
    free(first_slot);
    return rc;
}

static int create(const struct stg_graph *graph, const struct stg_resources *resources,
                  size_t n_feeds, const struct stg_ref *refs, size_t n,
                  struct stg_run **ret, struct stg_err *err)
{
    struct stg_run *run = calloc(1, sizeof(*run));
    if (run == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    run->graph = graph;
    run->n_feeds = n_feeds;
    run->first_feed = (uint32_t)n_feeds;
    int rc = plan_run(run, resources, refs, n, err);
    if (rc < 0) {
        stg_run_destroy(run);
        return rc;
    }
    stg_run_feed(run, NULL);
    *ret = run;
    return 0;
}

int stg_run_create_stage(const struct stg_graph *graph, struct stg_run **ret,
                         struct stg_err *err)
{
    if (!graph->has_element)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "the stage subgraph needs the elements of the dataset");
    return create(graph, NULL, graph->element.n, graph->features, graph->boundary.n, ret,
                  err);
}

int stg_run_create_partition(const struct stg_partition *partition, struct stg_run **ret,
                             struct stg_err *err)
{
    const struct stg_graph *graph = partition->partitions->graph;
    struct stg_ref *refs = calloc(partition->schema.n + 1, sizeof(*refs));
    if (refs == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (size_t i = 0; i < partition->schema.n; i++)
        refs[i] = partition->partitions->ref[partition->slots[i]];
    int rc = create(graph, NULL, graph->element.n, refs, partition->schema.n, ret, err);
    free(refs);
    return rc;
}

int stg_run_create_compute(const struct stg_graph *graph, struct stg_resources *resources,
                           const char *const *fetches, size_t n_fetches,
                           struct stg_run **ret, struct stg_err *err)
{
    struct stg_ref *refs = calloc(n_fetches + 1, sizeof(*refs));
    if (refs == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n_fetches; i++) {
        rc = stg_graph_resolve(graph, fetches[i], &refs[i], err);
        if (rc == 0)
            rc = stg_graph_check_compute(graph, &refs[i], fetches[i], err);
        if (rc < 0)
            stg_err_prefix(err, rc, "fetch \"%s\"", fetches[i]);
    }
    if (rc == 0)
        rc = create(graph, resources, graph->boundary.n, refs, n_fetches, ret, err);
    free(refs);
    return rc;
}
