/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/run.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "ops/graph_priv.h"
#include "ops/resource.h"
#include "ops/split.h"

#define NO_FETCH UINT32_MAX
#define NO_SLOT UINT32_MAX

/* Every tensor of a run has a slot: feeds first, then the outputs of each node that is
 * needed. */
struct slot {
    uint32_t fetch; /* the fetch whose memory this output is written to, or NO_FETCH */
    bool is_view;   /* in this exec: not written, points elsewhere */
};

/* An output that an op writes: the node's own, or that of a reader whose work it took
 * over. */
struct output {
    const struct stg_graph_node *node; /* to blame for want of memory */
    const struct stg_component *component;
    uint32_t slot;
};

struct step {
    const struct stg_graph_node *node;
    const void *plan;       /* the node's, or one that does readers' work too */
    const uint32_t *inputs; /* slots */
    struct output *outputs; /* as many as the node has */
    bool is_absorbed;       /* another step does it */
};

struct fetch {
    uint32_t slot;
    bool is_primary; /* an op may write it in place; others are copied */
};

struct stg_run {
    const struct stg_graph *graph;
    struct stg_bump plan;    /* all arrays below */
    struct stg_bump memory;  /* intermediate tensors of one exec */
    struct stg_bump scratch; /* of one op */
    size_t n_feeds;
    uint32_t first_feed; /* slots of feed_dict follow those of the feeds of an exec */
    struct stg_tensor *tensors; /* one a slot */
    struct slot *slots;
    size_t n_slots;
    struct step *steps;
    size_t n_steps;
    struct fetch *fetches;
    size_t n_fetches;
    struct stg_tensor *inputs; /* of the op that runs; room for the largest */
    struct stg_split *split;   /* NULL: one thread */

    /* while an exec runs */
    const struct stg_sink *sink;
    const struct step *step;
    const struct stg_graph_node *blamed; /* for an error of the op that runs */
};

/* ---- what an op calls ---- */

static int alloc_in_memory(struct stg_run *run, int dtype, int ndim, const int64_t *shape,
                           uint64_t string_bytes, struct stg_tensor *ret,
                           struct stg_err *err)
{
    struct stg_tensor tensor = {.dtype = dtype, .ndim = ndim};
    memcpy(tensor.shape, shape, (size_t)ndim * sizeof(*shape));
    uint64_t n = 1, bytes = string_bytes;
    for (int d = 0; d < ndim; d++) {
        if (__builtin_mul_overflow(n, (uint64_t)shape[d], &n))
            goto fail;
    }
    if (dtype == STAGER_STRING) {
        int64_t *offsets =
            n < SIZE_MAX / 16 ? stg_bump_alloc_raw(&run->memory, (n + 1) * 8) : NULL;
        if (offsets == NULL)
            goto fail;
        offsets[0] = 0;
        tensor.begin = offsets;
        tensor.end = offsets + 1;
    } else if (__builtin_mul_overflow(n, stg_dtype_bytes(dtype), &bytes)) {
        goto fail;
    }
    tensor.data_bytes = bytes;
    tensor.data = stg_bump_alloc_raw(&run->memory, bytes);
    if (tensor.data == NULL)
        goto fail;
    *ret = tensor;
    return 0;

fail:
    return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "no memory for %llu elements of %s",
                   (unsigned long long)n, stg_dtype_name(dtype));
}

static uint32_t output_slot(const struct stg_run *run, size_t i)
{
    assert(i < run->step->node->n_outputs);
    return run->step->outputs[i].slot;
}

/* By an op that was run on parts, and now is run whole. */
static int alloc_again(const struct stg_run *run, uint32_t slot, int dtype, int ndim,
                       const int64_t *shape, uint64_t string_bytes,
                       struct stg_tensor *ret)
{
    const struct stg_tensor *tensor = &run->tensors[slot];
    assert(run->split != NULL && tensor->dtype == dtype && tensor->ndim == ndim &&
           memcmp(tensor->shape, shape, (size_t)ndim * sizeof(*shape)) == 0 &&
           tensor->data_bytes >= string_bytes);
    *ret = *tensor;
    return 0;
}

static int alloc_output(struct stg_op_run *ctx, size_t i, int dtype, int ndim,
                        const int64_t *shape, uint64_t string_bytes,
                        struct stg_tensor *ret, struct stg_err *err)
{
    struct stg_run *run = ctx->executor;
    uint32_t slot = output_slot(run, i);
    if (run->tensors[slot].dtype != STAGER_DT_INVALID)
        return alloc_again(run, slot, dtype, ndim, shape, string_bytes, ret);
    uint32_t fetch = run->slots[slot].fetch;
    struct stg_tensor tensor;
    int rc = fetch != NO_FETCH && run->sink != NULL
                 ? run->sink->alloc(run->sink->owner, fetch, dtype, ndim, shape,
                                    string_bytes, &tensor, err)
                 : alloc_in_memory(run, dtype, ndim, shape, string_bytes, &tensor, err);
    if (rc < 0) {
        run->blamed = run->step->outputs[i].node;
        return rc;
    }
    run->tensors[slot] = tensor;
    *ret = tensor;
    return 0;
}

static int view_output(struct stg_op_run *ctx, size_t i, const struct stg_tensor *tensor,
                       struct stg_err *err)
{
    struct stg_run *run = ctx->executor;
    uint32_t slot = output_slot(run, i);
    assert(run->tensors[slot].dtype == STAGER_DT_INVALID);
    run->tensors[slot] = *tensor;
    run->slots[slot].is_view = true;
    return 0;
}

/* ---- exec ---- */

/* What infer promised holds. Strings were allocated with a bound: now it is known. */
static void check_outputs(struct stg_run *run, const struct step *step)
{
    for (size_t i = 0; i < step->node->n_outputs; i++) {
        uint32_t slot = step->outputs[i].slot;
        struct stg_tensor *tensor = &run->tensors[slot];
        const struct stg_component *component = step->outputs[i].component;
        assert(tensor->dtype == component->dtype && tensor->ndim == component->ndim);
        for (int d = 0; d < tensor->ndim; d++)
            assert(component->shape[d] < 0 || component->shape[d] == tensor->shape[d]);
        if (tensor->dtype == STAGER_STRING && !run->slots[slot].is_view)
            tensor->data_bytes = (uint64_t)tensor->begin[stg_tensor_n(tensor)];
    }
}

static int run_step(struct stg_run *run, const struct step *step,
                    const struct stg_key *key, struct stg_err *err)
{
    const struct stg_graph_node *node = step->node;
    for (size_t i = 0; i < node->n_inputs; i++)
        run->inputs[i] = run->tensors[step->inputs[i]];
    for (size_t i = 0; i < node->n_outputs; i++) {
        run->tensors[step->outputs[i].slot].dtype = STAGER_DT_INVALID;
        run->slots[step->outputs[i].slot].is_view = false;
    }
    struct stg_op_run ctx = {
        .plan = step->plan,
        .inputs = run->inputs,
        .n_inputs = node->n_inputs,
        .key = *key,
        .scratch = &run->scratch,
        .alloc = alloc_output,
        .view = view_output,
        .executor = run,
    };
    run->step = step;
    int rc = 0;
    if (run->split == NULL ||
        !stg_split_run(run->split, node->op, &ctx, node->n_outputs)) {
        run->blamed = node;
        rc = node->op->run(&ctx, err);
    }
    stg_bump_reset(&run->scratch);
    if (rc < 0)
        return stg_err_prefix(err, rc, "node %s (%s)", run->blamed->spec->name,
                              run->blamed->op->name);
    check_outputs(run, step);
    return 0;
}

/* A fetch that no op wrote in place: a feed, a constant, a variable, a view, a duplicate.
 */
static int copy_fetches(struct stg_run *run, struct stg_err *err)
{
    for (size_t i = 0; i < run->n_fetches; i++) {
        const struct fetch *fetch = &run->fetches[i];
        if (fetch->is_primary && !run->slots[fetch->slot].is_view)
            continue;
        int rc = run->sink->copy(run->sink->owner, i, &run->tensors[fetch->slot], err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int check_feed(const struct stg_run *run, size_t i, const struct stg_tensor *feed,
                      struct stg_err *err)
{
    const struct stg_component *c = run->graph->has_element
                                        ? &run->graph->element.components[i]
                                        : &run->graph->boundary.components[i];
    bool same = feed->dtype == c->dtype && feed->ndim == c->ndim;
    for (int d = 0; same && d < c->ndim; d++)
        same = c->shape[d] < 0 || c->shape[d] == feed->shape[d];
    if (same)
        return 0;
    char got[128], want[128];
    return stg_err(err, -STAGER_INVALID_ARGUMENT, "feed \"%s\" is %s %s, not %s %s",
                   c->name, stg_dtype_name(feed->dtype),
                   stg_shape_text(feed->shape, feed->ndim, got, sizeof(got)),
                   stg_dtype_name(c->dtype),
                   stg_shape_text(c->shape, c->ndim, want, sizeof(want)));
}

void stg_run_feed(struct stg_run *run, const struct stg_tensor *const *values)
{
    for (size_t i = 0; i < run->graph->n_feeds; i++) {
        const struct stg_tensor *value;
        stg_graph_feed(run->graph, i, &value);
        if (values != NULL && values[i] != NULL)
            value = values[i];
        if (value != NULL)
            run->tensors[run->first_feed + i] = *value;
    }
}

int stg_run_exec(struct stg_run *run, const struct stg_tensor *feeds,
                 const struct stg_key *key, const struct stg_sink *sink,
                 struct stg_tensor *outputs, struct stg_err *err)
{
    static const struct stg_key no_key;
    static const char nothing; /* an empty feed has an address too */
    stg_bump_reset(&run->memory);
    for (size_t i = 0; i < run->n_feeds; i++) {
        int rc = check_feed(run, i, &feeds[i], err);
        if (rc < 0)
            return rc;
        run->tensors[i] = feeds[i];
        if (feeds[i].data == NULL)
            run->tensors[i].data = (void *)(uintptr_t)&nothing;
    }
    run->sink = sink;
    for (size_t i = 0; i < run->n_steps; i++) {
        int rc = run_step(run, &run->steps[i], key != NULL ? key : &no_key, err);
        if (rc < 0)
            return rc;
    }
    if (sink != NULL) {
        int rc = copy_fetches(run, err);
        if (rc < 0)
            return rc;
    }
    for (size_t i = 0; outputs != NULL && i < run->n_fetches; i++)
        outputs[i] = run->tensors[run->fetches[i].slot];
    return 0;
}

/* ---- planning ---- */

/* Of a feed that is another tensor, that one's. */
static uint32_t slot_of(const struct stg_run *run, const struct stg_ref *ref,
                        const uint32_t *first_slot)
{
    const struct stg_graph_feed *feeds = run->graph->feeds;
    if (ref->kind == STG_REF_FEED && feeds[ref->index].has_source)
        ref = &feeds[ref->index].source;
    if (ref->kind == STG_REF_FEED)
        return run->first_feed + ref->index;
    return ref->kind == STG_REF_NODE ? first_slot[ref->index] + ref->output : ref->index;
}

static int plan_step(struct stg_run *run, const struct stg_graph_node *node,
                     const uint32_t *first_slot, uint32_t index, struct stg_err *err)
{
    uint32_t *inputs = stg_bump_alloc(&run->plan, node->n_inputs * sizeof(*inputs));
    struct output *outputs =
        stg_bump_alloc(&run->plan, node->n_outputs * sizeof(*outputs));
    if (inputs == NULL || outputs == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (size_t i = 0; i < node->n_inputs; i++)
        inputs[i] = slot_of(run, &node->inputs[i], first_slot);
    for (size_t i = 0; i < node->n_outputs; i++)
        outputs[i] = (struct output){.node = node,
                                     .component = &node->outputs[i],
                                     .slot = first_slot[index] + (uint32_t)i};
    run->steps[run->n_steps++] = (struct step){
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
        if ((node->op->flags & STG_OP_CONSTANT) != 0) {
            run->tensors[first_slot[index]] = *(const struct stg_tensor *)node->plan;
            continue;
        }
        if ((node->op->flags & STG_OP_PLACEHOLDER) != 0)
            return stg_err(err, -STAGER_FAILED_PRECONDITION,
                           "placeholder %s is needed and nothing feeds it",
                           node->spec->name);
        if ((node->op->flags & STG_OP_TABLE) != 0) {
            if (node->table.data == NULL)
                return stg_err(err, -STAGER_FAILED_PRECONDITION,
                               "vocabulary %s is needed and was not read",
                               node->spec->name);
            run->tensors[first_slot[index]] = node->table;
            continue;
        }
        if ((node->op->flags & STG_OP_VARIABLE) != 0) {
            const struct stg_tensor *variable =
                resources != NULL ? stg_resources_tensor(resources, index) : NULL;
            if (variable == NULL)
                return stg_err(err, -STAGER_FAILED_PRECONDITION,
                               "variable %s is needed and is not here", node->spec->name);
            run->tensors[first_slot[index]] = *variable;
            continue;
        }
        int rc = plan_step(run, node, first_slot, index, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* The first fetch of an output that an op writes is where it is written. */
static void plan_fetches(struct stg_run *run, const struct stg_ref *refs, size_t n,
                         const uint32_t *first_slot)
{
    for (size_t i = 0; i < run->n_slots; i++)
        run->slots[i].fetch = NO_FETCH;
    for (size_t i = 0; i < n; i++) {
        uint32_t slot = slot_of(run, &refs[i], first_slot);
        const struct stg_ref *ref = &refs[i];
        if (ref->kind == STG_REF_FEED && run->graph->feeds[ref->index].has_source)
            ref = &run->graph->feeds[ref->index].source;
        bool written =
            ref->kind == STG_REF_NODE && run->graph->nodes[ref->index].op->run != NULL;
        run->fetches[i].slot = slot;
        run->fetches[i].is_primary = written && run->slots[slot].fetch == NO_FETCH;
        if (run->fetches[i].is_primary)
            run->slots[slot].fetch = (uint32_t)i;
    }
}

/* Numbers the slots of the nodes that are needed, and makes the arrays. */
static int plan_slots(struct stg_run *run, const bool *needed, size_t n_fetches,
                      uint32_t *first_slot, struct stg_err *err)
{
    const struct stg_graph *graph = run->graph;
    size_t n_slots = run->n_feeds + graph->n_feeds, n_needed = 0, max_inputs = 0;
    for (size_t i = 0; i < graph->n_nodes; i++) {
        first_slot[i] = NO_SLOT;
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
    run->inputs = stg_bump_alloc(&run->plan, max_inputs * sizeof(*run->inputs));
    if (run->tensors == NULL || run->slots == NULL || run->steps == NULL ||
        run->fetches == NULL || run->inputs == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    return 0;
}

/* ---- steps that do others' work ---- */

/* Who reads a slot. */
struct readers {
    uint32_t n; /* steps' inputs and fetches */
    struct step *step;
};

static struct readers *find_readers(struct stg_run *run)
{
    struct readers *readers = calloc(run->n_slots + 1, sizeof(*readers));
    if (readers == NULL)
        return NULL;
    for (size_t i = 0; i < run->n_fetches; i++)
        readers[run->fetches[i].slot].n++;
    for (size_t i = 0; i < run->n_steps; i++) {
        struct step *step = &run->steps[i];
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

static int absorb(struct stg_run *run, struct step *step, const struct readers *readers,
                  struct stg_absorb *list)
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
        struct output *output = &step->outputs[list[i].output];
        if (!list[i].taken)
            continue;
        struct step *reader = readers[output->slot].step;
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
    for (size_t i = 0; rc == 0 && i < run->n_steps; i++) {
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
    rc = plan_absorbed(run, err);

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
                       "the stage side runs where the dataset is");
    return create(graph, NULL, graph->element.n, graph->features, graph->boundary.n, ret,
                  err);
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

int stg_run_parallel(struct stg_run *run, const struct stg_parallel *parallel,
                     struct stg_err *err)
{
    struct stg_split *split = stg_split_create(parallel);
    if (split == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    stg_split_destroy(run->split);
    run->split = split;
    return 0;
}

void stg_run_destroy(struct stg_run *run)
{
    if (run == NULL)
        return;
    stg_split_destroy(run->split);
    stg_bump_finish(&run->plan);
    stg_bump_finish(&run->memory);
    stg_bump_finish(&run->scratch);
    free(run);
}
