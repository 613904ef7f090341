/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/layout.h"
#include "ops/graph/composite.h"
#include "ops/graph/priv.h"

/* Constants are made when a pipeline is applied: one file must not take the machine's
 * memory. */
#define MAX_BYTES ((size_t)512 << 20)

/* ---- inference ---- */

static int run_infer(struct stg_graph *graph, struct stg_graph_node *node,
                     struct stg_component *inputs, const struct stg_tensor **constants,
                     struct stg_err *err)
{
    struct stg_op_infer ctx = {
        .node = node->spec,
        .inputs = inputs,
        .constants = constants,
        .n_inputs = node->n_inputs,
        .bump = &graph->bump,
    };
    int rc = node->op->infer(&ctx, err);
    if (rc < 0)
        return rc;
    node->outputs = ctx.outputs;
    node->n_outputs = ctx.n_outputs;
    node->plan = ctx.plan;
    node->inferred = true;
    if ((node->op->flags & STG_OP_CONSTANT) != 0)
        node->values = ctx.plan;
    return stg_graph_fold(graph, node, err);
}

/* In a client a node whose inputs are not all known is left out: it ran in the daemon. */
static int infer_node(struct stg_graph *graph, struct stg_graph_node *node,
                      struct stg_err *err)
{
    size_t n = node->n_inputs;
    if (node->why != NULL)
        return 0;
    struct stg_component *inputs = stg_bump_alloc(&graph->bump, n * sizeof(*inputs));
    const struct stg_tensor **constants =
        stg_bump_alloc(&graph->bump, n * sizeof(struct stg_tensor *));
    if (inputs == NULL || constants == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");

    for (size_t i = 0; i < n; i++) {
        const struct stg_ref *ref = &node->inputs[i];
        if (ref->kind == STG_REF_FEED) {
            int rc = stg_graph_make_value(graph, ref, err);
            if (rc < 0)
                return rc;
        }
        const struct stg_component *component = stg_graph_component(graph, ref);
        if (component == NULL && ref->kind == STG_REF_NODE &&
            graph->nodes[ref->index].inferred) {
            const struct stg_graph_node *from = &graph->nodes[ref->index];
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "input \"%s\": node %s has %zu output%s", node->input_names[i],
                           from->spec->name, from->n_outputs,
                           from->n_outputs == 1 ? "" : "s");
        }
        if (component == NULL) {
            assert(!graph->has_element);
            return 0;
        }
        inputs[i] = *component;
        inputs[i].name = node->input_names[i];
        constants[i] = stg_graph_constant(graph, ref);
    }
    return run_infer(graph, node, inputs, constants, err);
}

static int infer_weak(struct stg_graph *graph, const struct stg_graph_node *node,
                      size_t n_before, struct stg_err *err)
{
    int rc = stg_graph_convert_weak(graph, node, err);
    for (size_t i = 0; rc == 0 && i < node->n_inputs; i++) {
        if (node->inputs[i].kind != STG_REF_NODE)
            continue;
        struct stg_graph_node *constant = &graph->nodes[node->inputs[i].index];
        if (constant->inferred || !stg_graph_is_weak(constant))
            continue;
        rc = run_infer(graph, constant, NULL, NULL, err);
        if (rc == 0)
            stg_graph_merge_constant(graph, constant, n_before);
    }
    return rc;
}

/* Two rounds: what the boundary is made of, then, once the boundary is known, what reads
 * it. */
static int infer_nodes(struct stg_graph *graph, bool after_boundary, struct stg_err *err)
{
    for (size_t i = 0; i < graph->n_nodes; i++) {
        struct stg_graph_node *node = &graph->nodes[graph->order[i]];
        if (((node->depends & STG_DEPENDS_STAGED) != 0) != after_boundary)
            continue;
        int rc = infer_weak(graph, node, i, err);
        if (rc == 0 && stg_graph_merge(graph, node, i))
            continue;
        stg_graph_follow_rows(graph, node);
        if (rc == 0)
            rc = infer_node(graph, node, err);
        if (rc < 0)
            rc = stg_graph_leave_out(graph, node, rc, err);
        if (rc < 0)
            return stg_graph_blame(node, rc, err);
    }
    return 0;
}

/* ---- boundary ---- */

static int blame_feature(const struct stg_graph *graph, size_t i, int code,
                         struct stg_err *err)
{
    const struct stg_feature *feature = &graph->spec->staged.features[i];
    return stg_err_prefix(err, code, "%s.%s, line %d",
                          graph->spec->is_step ? "output" : "staged.features",
                          feature->path, feature->line);
}

static int check_feature(const struct stg_graph *graph, size_t i, struct stg_err *err)
{
    const struct stg_feature *feature = &graph->spec->staged.features[i];
    for (size_t k = 0; k < i; k++) {
        if (strcmp(graph->spec->staged.features[k].path, feature->path) == 0)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "another feature has the same name");
    }
    unsigned depends = stg_graph_depends(graph, &graph->features[i]);
    if ((depends & STG_DEPENDS_STAGED) != 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "\"%s\" depends on a \"staged:\" tensor, which exists only after "
                       "the boundary; make it a target instead",
                       feature->tensor);
    if ((depends & STG_DEPENDS_VARIABLE) != 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "\"%s\" depends on a variable, which exists only in the trainer; "
                       "make it a target instead",
                       feature->tensor);
    const struct stg_ref *ref = &graph->features[i];
    if (ref->kind == STG_REF_NODE &&
        (graph->nodes[ref->index].op->flags & STG_OP_TABLE) != 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "\"%s\" is a vocabulary, which exists only in the daemon; stage "
                       "the output of lookup",
                       feature->tensor);
    return 0;
}

static void narrow_feature(struct stg_graph *graph, size_t i)
{
    const struct stg_graph_transfer *transfer = stg_graph_transfer(graph, i);
    if (transfer != NULL)
        graph->features[i] = (struct stg_ref){
            .kind = STG_REF_NODE, .index = graph->nodes[transfer->narrow].same_as};
}

static int resolve_feature(struct stg_graph *graph, size_t i, struct stg_err *err)
{
    const struct stg_feature *feature = &graph->spec->staged.features[i];
    int rc = stg_graph_resolve(graph, feature->tensor, &graph->features[i], err);
    if (rc < 0)
        return stg_graph_invalid(err);
    rc = check_feature(graph, i, err);
    if (rc < 0)
        return rc;
    narrow_feature(graph, i);
    const struct stg_component *component =
        stg_graph_component(graph, &graph->features[i]);
    assert(component != NULL);
    graph->boundary.components[i] = *component;
    graph->boundary.components[i].name = feature->path;
    graph->boundary.components[i].part = feature->part;
    return stg_composite_check_part(&graph->boundary, i, err);
}

static int make_boundary(struct stg_graph *graph, struct stg_err *err)
{
    size_t n = graph->spec->staged.n_features;
    bool all = n == 0;
    if (all)
        n = graph->element.n;
    graph->features = stg_bump_alloc(&graph->bump, n * sizeof(*graph->features));
    graph->boundary.components =
        stg_bump_alloc(&graph->bump, n * sizeof(struct stg_component));
    if (graph->features == NULL || graph->boundary.components == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");

    for (size_t i = 0; i < n; i++) {
        if (all) {
            graph->features[i] = stg_graph_fed(
                graph, (struct stg_ref){.kind = STG_REF_ELEMENT, .index = (uint32_t)i});
            narrow_feature(graph, i);
            graph->boundary.components[i] =
                *stg_graph_component(graph, &graph->features[i]);
            graph->boundary.components[i].name = graph->element.components[i].name;
            graph->boundary.components[i].part = graph->element.components[i].part;
            continue;
        }
        int rc = resolve_feature(graph, i, err);
        if (rc < 0)
            return blame_feature(graph, i, rc, err);
    }
    graph->boundary.n = n;
    return 0;
}

/* ---- what the compute side may fetch ---- */

/* The tensor that ought to be staged: the first one on the way up that comes from the
 * dataset alone. */
static const char *missing_from_boundary(const struct stg_graph *graph,
                                         const struct stg_ref *ref, const char *name)
{
    if (ref->kind != STG_REF_NODE)
        return name;
    const struct stg_graph_node *node = &graph->nodes[ref->index];
    if ((node->depends & (STG_DEPENDS_STAGED | STG_DEPENDS_VARIABLE)) == 0)
        return name;
    for (size_t i = 0; i < node->n_inputs; i++) {
        if ((stg_graph_depends(graph, &node->inputs[i]) &
             (STG_DEPENDS_ELEMENT | STG_DEPENDS_TABLE)) != 0)
            return missing_from_boundary(graph, &node->inputs[i], node->input_names[i]);
    }
    return name;
}

int stg_graph_check_compute(const struct stg_graph *graph, const struct stg_ref *ref,
                            const char *name, struct stg_err *err)
{
    unsigned depends = stg_graph_depends(graph, ref);
    /* With smart_stage what looks words up runs ahead (stg_partition_needs_create). */
    bool runs_ahead =
        graph->has_element && graph->spec->smart_stage != STG_SMART_STAGE_OFF;
    if ((depends & STG_DEPENDS_ELEMENT) == 0 &&
        ((depends & STG_DEPENDS_TABLE) == 0 || runs_ahead))
        return 0;
    const char *missing = missing_from_boundary(graph, ref, name);
    const struct stg_staged *staged = &graph->spec->staged;
    struct stg_ref from;
    if (stg_graph_resolve(graph, missing, &from, NULL) == 0 &&
        from.kind == STG_REF_NODE &&
        (graph->nodes[from.index].op->flags & STG_OP_TABLE) != 0)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "vocabulary \"%s\" exists only in the daemon; look words up "
                       "before the boundary, and stage the ids; or set smart_stage to on "
                       "or auto, so that the lookup runs ahead",
                       missing);
    for (size_t i = 0; i < staged->n_features; i++) {
        if (strcmp(staged->features[i].tensor, missing) == 0)
            return stg_err(err, -STAGER_FAILED_PRECONDITION,
                           "\"%s\" is computed before the boundary; it is staged, refer "
                           "to it as \"staged:%s\"",
                           missing, staged->features[i].path);
    }
    return stg_err(err, -STAGER_FAILED_PRECONDITION,
                   "\"%s\" is computed before the boundary and is not staged; add it to "
                   "staged.features and refer to it as \"staged:NAME\"",
                   missing);
}

static int check_targets(const struct stg_graph *graph, struct stg_err *err)
{
    for (size_t i = 0; i < graph->spec->n_targets; i++) {
        const char *name = graph->spec->targets[i];
        struct stg_ref ref;
        int rc = stg_graph_resolve(graph, name, &ref, err);
        if (rc == 0)
            rc = stg_graph_check_compute(graph, &ref, name, err);
        if (rc < 0) {
            stg_err_prefix(err, rc, "target %s", name);
            return stg_graph_invalid(err);
        }
    }
    return 0;
}

/* ---- create ---- */

static int copy_schema(struct stg_bump *bump, const struct stg_schema *schema,
                       struct stg_schema *ret, struct stg_err *err)
{
    return schema != NULL ? stg_schema_copy(schema, bump, ret, err) : 0;
}

static int check_given_boundary(const struct stg_graph *graph, struct stg_err *err)
{
    size_t n = graph->spec->staged.n_features;
    if (n > 0 && n != graph->boundary.n)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "the pipeline has %zu features, its boundary %zu", n,
                       graph->boundary.n);
    return 0;
}

static int create_inside(struct stg_graph *graph, const struct stg_schema *element,
                         const struct stg_schema *boundary, const struct stg_schema *fed,
                         struct stg_err *err)
{
    int rc = copy_schema(&graph->bump, element, &graph->element, err);
    if (rc == 0)
        rc = copy_schema(&graph->bump, fed, &graph->fed, err);
    if (rc < 0)
        return rc;
    if (element == NULL) {
        rc = copy_schema(&graph->bump, boundary, &graph->boundary, err);
        if (rc < 0)
            return rc;
        rc = check_given_boundary(graph, err);
        if (rc < 0)
            return rc;
    }
    rc = stg_graph_link(graph, err);
    if (rc < 0)
        return rc;
    rc = infer_nodes(graph, false, err);
    if (rc < 0)
        return rc;
    if (element != NULL) {
        rc = stg_graph_infer_feeds(graph, err);
        if (rc == 0)
            rc = make_boundary(graph, err);
        if (rc == 0)
            rc = stg_graph_check_needed(graph, err);
        if (rc < 0)
            return rc;
    }
    rc = infer_nodes(graph, true, err);
    if (rc < 0)
        return rc;
    return element != NULL ? check_targets(graph, err) : 0;
}

static int create(const struct stg_pipeline_spec *spec, const struct stg_schema *element,
                  const struct stg_schema *boundary, const struct stg_schema *fed,
                  size_t n_carried, struct stg_graph **ret, struct stg_err *err)
{
    struct stg_graph *graph = calloc(1, sizeof(*graph));
    if (graph == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    stg_bump_init(&graph->bump, MAX_BYTES);
    graph->spec = spec;
    graph->made_ns = stg_now_ns();
    graph->has_element = element != NULL;
    graph->n_carried = n_carried;
    int rc = create_inside(graph, element, boundary, fed, err);
    if (rc < 0) {
        stg_graph_destroy(graph);
        return rc;
    }
    *ret = graph;
    return 0;
}

int stg_graph_create(const struct stg_pipeline_spec *spec,
                     const struct stg_schema *element, const struct stg_schema *boundary,
                     struct stg_graph **ret, struct stg_err *err)
{
    return create(spec, element, boundary, NULL, 0, ret, err);
}

int stg_graph_create_fed(const struct stg_pipeline_spec *spec,
                         const struct stg_schema *boundary, const struct stg_schema *fed,
                         size_t n_carried, struct stg_graph **ret, struct stg_err *err)
{
    return create(spec, NULL, boundary, fed, n_carried, ret, err);
}

int stg_graph_load_tables(struct stg_graph *graph, bool borrowed, stg_graph_table *load,
                          void *owner, struct stg_err *err)
{
    graph->borrows_tables = borrowed;
    graph->made_ns = stg_now_ns();
    for (size_t i = 0; i < graph->n_nodes; i++) {
        struct stg_graph_node *node = &graph->nodes[i];
        if ((node->op->flags & STG_OP_TABLE) == 0)
            continue;
        int rc = load(owner, node->spec, &node->table, err);
        if (rc < 0)
            return stg_graph_blame(node, rc, err);
    }
    return 0;
}

void stg_graph_borrow_tables(struct stg_graph *graph, const struct stg_graph *from)
{
    assert(graph->n_nodes == from->n_nodes);
    graph->borrows_tables = true;
    graph->made_ns = stg_now_ns();
    for (size_t i = 0; i < graph->n_nodes; i++)
        graph->nodes[i].table = from->nodes[i].table;
}

void stg_graph_destroy(struct stg_graph *graph)
{
    if (graph == NULL)
        return;
    bool owns = graph->nodes != NULL && !graph->borrows_tables;
    for (size_t i = 0; owns && i < graph->n_nodes; i++)
        free(graph->nodes[i].table.data);
    stg_bump_finish(&graph->bump);
    free(graph);
}

/* ---- questions ---- */

const struct stg_schema *stg_graph_boundary(const struct stg_graph *graph)
{
    return &graph->boundary;
}

static uint64_t align64(uint64_t bytes)
{
    return (bytes + STG_TENSOR_ALIGN - 1) & ~(uint64_t)(STG_TENSOR_ALIGN - 1);
}

/* each: bytes of an element. False: not known, or more than can be counted. */
static bool count_component(const struct stg_component *c, uint64_t each, uint64_t *total)
{
    uint64_t bytes = each;
    for (int d = 0; d < c->ndim; d++) {
        if (c->shape[d] < 0 ||
            __builtin_mul_overflow(bytes, (uint64_t)c->shape[d], &bytes))
            return false;
    }
    return bytes < UINT64_MAX / 2 &&
           !__builtin_add_overflow(*total, align64(bytes), total);
}

static uint64_t head_bytes(const struct stg_schema *schema)
{
    uint64_t names = 0;
    for (size_t i = 0; i < schema->n; i++)
        names += strlen(schema->components[i].name) + 1;
    return align64(sizeof(struct stg_batch_header) +
                   schema->n * sizeof(struct stg_tensor_entry) + names);
}

uint64_t stg_graph_schema_bytes(const struct stg_schema *schema)
{
    uint64_t total = 0;
    for (size_t i = 0; i < schema->n; i++) {
        const struct stg_component *c = &schema->components[i];
        uint64_t each = stg_dtype_bytes(c->dtype);
        if (each == 0 || !count_component(c, each, &total))
            return 0;
    }
    return total + head_bytes(schema);
}

uint64_t stg_graph_schema_least_bytes(const struct stg_schema *schema)
{
    uint64_t total = 0;
    for (size_t i = 0; i < schema->n; i++) {
        const struct stg_component *c = &schema->components[i];
        uint64_t each = stg_dtype_bytes(c->dtype);
        count_component(c, each != 0 ? each : sizeof(int64_t), &total);
    }
    return total + head_bytes(schema);
}

uint64_t stg_graph_batch_bytes(const struct stg_graph *graph)
{
    return stg_graph_schema_bytes(&graph->boundary);
}

int stg_graph_describe(const struct stg_graph *graph, const char *tensor,
                       struct stg_component *ret, struct stg_err *err)
{
    struct stg_ref ref;
    int rc = stg_graph_resolve(graph, tensor, &ref, err);
    if (rc < 0)
        return rc;
    const struct stg_component *component = stg_graph_component(graph, &ref);
    if (component == NULL)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "\"%s\" is computed before the boundary: its shape is known only "
                       "to the daemon",
                       tensor);
    *ret = *component;
    return 0;
}

int stg_graph_passthrough(const struct stg_graph *graph, size_t i)
{
    if (!graph->has_element || i >= graph->boundary.n)
        return -1;
    const struct stg_ref *ref = &graph->features[i];
    return ref->kind == STG_REF_ELEMENT ? (int)ref->index : -1;
}
