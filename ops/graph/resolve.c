/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/graph/priv.h"

#define STAGED_PREFIX "staged:"
#define STAGED_PREFIX_BYTES (sizeof(STAGED_PREFIX) - 1)

int stg_graph_blame(const struct stg_graph_node *node, int code, struct stg_err *err)
{
    const struct stg_node *spec = node->spec;
    if (spec->line > 0)
        return stg_err_prefix(err, code, "node %s (%s), line %d", spec->name, spec->op,
                              spec->line);
    return stg_err_prefix(err, code, "node %s (%s)", spec->name, spec->op);
}

int stg_graph_invalid(struct stg_err *err)
{
    if (err != NULL)
        err->code = -STAGER_INVALID_ARGUMENT;
    return -STAGER_INVALID_ARGUMENT;
}

static int find_component(const struct stg_schema *schema, const char *name)
{
    for (size_t i = 0; i < schema->n; i++) {
        if (strcmp(schema->components[i].name, name) == 0)
            return (int)i;
    }
    return -1;
}

/* "node:12" -> bytes of "node", and 12. False when it is not of that form. */
static bool split_output(const char *name, size_t *ret_bytes, uint32_t *ret_output)
{
    const char *colon = strrchr(name, ':');
    if (colon == NULL || colon == name || colon[1] == '\0' || strlen(colon + 1) > 6)
        return false;
    uint32_t output = 0;
    for (const char *p = colon + 1; *p != '\0'; p++) {
        if (*p < '0' || *p > '9')
            return false;
        output = output * 10 + (uint32_t)(*p - '0');
    }
    *ret_bytes = (size_t)(colon - name);
    *ret_output = output;
    return true;
}

/* Is `name`, of "node:name", that output? */
static bool is_output(const struct stg_output_name *output, const char *name)
{
    return strncmp(output->entry, name, output->entry_bytes) == 0 &&
           strcmp(output->part, name + output->entry_bytes) == 0;
}

/* "node:label" of an op whose outputs have names. False when it is not of that form. */
static bool find_output(const struct stg_graph *graph, const char *name, int *ret_node,
                        uint32_t *ret_output)
{
    int node;
    const struct stg_op *op = stg_graph_named_op(graph, name, &node);
    if (op == NULL)
        return false;
    struct stg_output_name output = {0};
    for (uint32_t i = 0; op->next_output(&graph->spec->nodes[node], &output); i++) {
        if (is_output(&output, strchr(name, ':') + 1)) {
            *ret_node = node;
            *ret_output = i;
            return true;
        }
    }
    return false;
}

/* Of a client the boundary is given; of the daemon it is the spec's features. */
static const char *boundary_name(const struct stg_graph *graph, size_t i)
{
    if (graph->spec->staged.n_features > 0)
        return graph->spec->staged.features[i].path;
    return graph->has_element ? graph->element.components[i].name
                              : graph->boundary.components[i].name;
}

static size_t boundary_n(const struct stg_graph *graph)
{
    if (graph->spec->staged.n_features > 0)
        return graph->spec->staged.n_features;
    return graph->has_element ? graph->element.n : graph->boundary.n;
}

static int resolve_staged(const struct stg_graph *graph, const char *path,
                          struct stg_ref *ret, struct stg_err *err)
{
    size_t n = boundary_n(graph);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(boundary_name(graph, i), path) == 0) {
            *ret = (struct stg_ref){.kind = STG_REF_STAGED, .index = (uint32_t)i};
            return 0;
        }
    }
    struct stg_contest contest = {.wanted = path};
    for (size_t i = 0; i < n; i++)
        stg_contest_enter(&contest, boundary_name(graph, i));
    const char *near = stg_contest_end(&contest);
    if (near != NULL)
        return stg_err(err, -STAGER_NOT_FOUND,
                       "\"staged:%s\": no such feature; did you mean \"staged:%s\"?",
                       path, near);
    char list[STG_LIST_BYTES] = "";
    for (size_t i = 0; i < n; i++)
        stg_list_name(list, "%s", boundary_name(graph, i));
    return stg_err(err, -STAGER_NOT_FOUND,
                   "\"staged:%s\": no such feature in staged.features; there %s %s", path,
                   n == 1 ? "is" : "are", n == 0 ? "none" : list);
}

static int output_error(const struct stg_graph_node *node, const char *name,
                        struct stg_err *err)
{
    return stg_err(err, -STAGER_NOT_FOUND, "\"%s\": node %s has %zu output%s", name,
                   node->spec->name, node->n_outputs, node->n_outputs == 1 ? "" : "s");
}

int stg_graph_resolve(const struct stg_graph *graph, const char *name,
                      struct stg_ref *ret, struct stg_err *err)
{
    struct stg_ref ref;
    int rc = stg_graph_resolve_unfed(graph, name, &ref, err);
    int fed = rc < 0 ? stg_graph_fed_component(graph, name) : -1;
    if (fed >= 0) {
        *ret = (struct stg_ref){.kind = STG_REF_FEED, .index = (uint32_t)fed};
        return 0;
    }
    if (rc < 0)
        return rc;
    ref = stg_graph_fed(graph, ref);
    const struct stg_graph_transfer *transfer =
        ref.kind == STG_REF_STAGED ? stg_graph_transfer(graph, ref.index) : NULL;
    if (transfer != NULL)
        ref = (struct stg_ref){.kind = STG_REF_NODE, .index = transfer->widen};
    if (ref.kind == STG_REF_NODE)
        ref.index = graph->nodes[ref.index].same_as;
    *ret = stg_graph_carried(graph, ref);
    return 0;
}

int stg_graph_resolve_unfed(const struct stg_graph *graph, const char *name,
                            struct stg_ref *ret, struct stg_err *err)
{
    if (strncmp(name, STAGED_PREFIX, STAGED_PREFIX_BYTES) == 0)
        return resolve_staged(graph, name + STAGED_PREFIX_BYTES, ret, err);

    uint32_t output = 0;
    int node = stg_graph_find_node(graph, name, strlen(name));
    if (node < 0) {
        int component = find_component(&graph->element, name);
        if (component >= 0) {
            *ret =
                (struct stg_ref){.kind = STG_REF_ELEMENT, .index = (uint32_t)component};
            return 0;
        }
        size_t bytes = 0;
        if (split_output(name, &bytes, &output))
            node = stg_graph_find_node(graph, name, bytes);
        else
            find_output(graph, name, &node, &output);
    }
    if (node >= 0) {
        const struct stg_graph_node *known = &graph->nodes[node];
        if (known->inferred && output >= known->n_outputs)
            return output_error(known, name, err);
        *ret = (struct stg_ref){
            .kind = STG_REF_NODE, .index = (uint32_t)node, .output = output};
        return 0;
    }
    return stg_graph_no_tensor(graph, name, err);
}

/* ---- linking ---- */

static int check_name(const struct stg_graph *graph, size_t i, struct stg_err *err)
{
    const struct stg_node *node = &graph->spec->nodes[i];
    const char *name = node->name;
    if (name[0] == '\0' || strcmp(name, "staged") == 0 || strpbrk(name, ":^") != NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "a node cannot be called \"%s\"; give it a name without ':' and "
                       "'^', other than \"staged\"",
                       name);
    int first = stg_graph_find_node(graph, name, strlen(name));
    if ((size_t)first != i)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "another node on line %d has the same name; rename one",
                       graph->spec->nodes[first].line);
    if (find_component(&graph->element, name) >= 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "the dataset yields a component of the same name; rename the "
                       "node");
    return 0;
}

int stg_graph_find_op(struct stg_graph *graph, struct stg_graph_node *node,
                      struct stg_err *err)
{
    node->op = stg_op_find(node->spec->op);
    if (node->op != NULL)
        return 0;
    if (!graph->has_element) {
        int rc = stg_err(err, -STAGER_UNIMPLEMENTED,
                         "this build of libstager-compute has no such op");
        return stg_graph_leave_out(graph, node, rc, err);
    }
    size_t n;
    const struct stg_op *const *ops = stg_op_all(&n);
    const char *names[256];
    assert(n <= sizeof(names) / sizeof(names[0]));
    for (size_t i = 0; i < n; i++)
        names[i] = ops[i]->name;
    const char *near = stg_nearest(node->spec->op, names, n);
    if (near != NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "no such op; did you mean %s?",
                       near);
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "no such op; docs/ops.md lists what there is");
}

static int check_arity(const struct stg_graph_node *node, struct stg_err *err)
{
    const struct stg_op *op = node->op;
    int n = (int)node->n_inputs;
    if (n >= op->min_inputs && (op->max_inputs < 0 || n <= op->max_inputs))
        return 0;
    if (op->max_inputs < 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "takes at least %d input%s, has %d",
                       op->min_inputs, op->min_inputs == 1 ? "" : "s", n);
    if (op->min_inputs == op->max_inputs)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "takes %d input%s, has %d",
                       op->min_inputs, op->min_inputs == 1 ? "" : "s", n);
    return stg_err(err, -STAGER_INVALID_ARGUMENT, "takes %d to %d inputs, has %d",
                   op->min_inputs, op->max_inputs, n);
}

static int link_control(struct stg_graph *graph, struct stg_graph_node *node,
                        const char *name, struct stg_err *err)
{
    int other = stg_graph_find_node(graph, name, strlen(name));
    if (other < 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "\"^%s\": no such node", name);
    node->controls[node->n_controls++] = (uint32_t)other;
    return 0;
}

/* In a client: a component of the element, or a named output of an op that is not here,
 * whose number nobody knows then. */
static int link_unknown(struct stg_graph *graph, struct stg_graph_node *node,
                        const char *name, struct stg_ref *ret, struct stg_err *err)
{
    int absent = stg_graph_find_absent(graph, name);
    if (absent < 0) {
        *ret = (struct stg_ref){.kind = STG_REF_UNKNOWN};
        return 0;
    }
    *ret = (struct stg_ref){.kind = STG_REF_NODE, .index = (uint32_t)absent};
    int rc = stg_err(err, -STAGER_UNIMPLEMENTED,
                     "input \"%s\": this build of libstager-compute has no op %s", name,
                     graph->spec->nodes[absent].op);
    return stg_graph_leave_out(graph, node, rc, err);
}

static int link_inputs(struct stg_graph *graph, struct stg_graph_node *node,
                       struct stg_err *err)
{
    const struct stg_node *spec = node->spec;
    size_t n = spec->n_inputs;
    node->inputs = stg_bump_alloc(&graph->bump, n * sizeof(*node->inputs));
    node->input_names = stg_bump_alloc(&graph->bump, n * sizeof(*node->input_names));
    node->controls = stg_bump_alloc(&graph->bump, n * sizeof(*node->controls));
    if (node->inputs == NULL || node->input_names == NULL || node->controls == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");

    for (size_t i = 0; i < n; i++) {
        const char *name = spec->inputs[i];
        if (name[0] == '^') {
            int rc = link_control(graph, node, name + 1, err);
            if (rc < 0)
                return rc;
            continue;
        }
        struct stg_ref *ref = &node->inputs[node->n_inputs];
        int rc = stg_graph_resolve(graph, name, ref, err);
        if (rc == -STAGER_NOT_FOUND && !graph->has_element &&
            strncmp(name, STAGED_PREFIX, STAGED_PREFIX_BYTES) != 0)
            rc = link_unknown(graph, node, name, ref, err);
        else if (rc < 0)
            rc = stg_graph_invalid(err);
        if (rc < 0)
            return rc;
        node->input_names[node->n_inputs++] = name;
    }
    return 0;
}

unsigned stg_graph_depends(const struct stg_graph *graph, const struct stg_ref *ref)
{
    switch (ref->kind) {
    case STG_REF_NODE: return graph->nodes[ref->index].depends;
    case STG_REF_STAGED: return STG_DEPENDS_STAGED;
    case STG_REF_FEED: {
        const struct stg_graph_feed *feed = &graph->feeds[ref->index];
        return (graph->has_element ? STG_DEPENDS_ELEMENT : 0u) |
               (feed->has_source ? stg_graph_depends(graph, &feed->source) : 0u);
    }
    case STG_REF_ELEMENT:
    case STG_REF_UNKNOWN: return STG_DEPENDS_ELEMENT;
    }
    return 0;
}

/* Says which nodes wait for one another: from any node that is left, inputs that are left
 * are followed until a node is met twice. */
static int cycle_error(const struct stg_graph *graph, const bool *placed,
                       struct stg_err *err)
{
    size_t at = 0;
    while (placed[at])
        at++;
    /* After n steps one is on the cycle itself. */
    for (size_t step = 0, start = at;; step++) {
        const struct stg_graph_node *node = &graph->nodes[at];
        size_t next = SIZE_MAX;
        for (size_t i = 0; i < node->n_inputs && next == SIZE_MAX; i++) {
            const struct stg_ref *from = stg_graph_awaited(graph, &node->inputs[i]);
            if (from != NULL && !placed[from->index])
                next = from->index;
        }
        for (size_t i = 0; i < node->n_controls && next == SIZE_MAX; i++) {
            if (!placed[node->controls[i]])
                next = node->controls[i];
        }
        assert(next != SIZE_MAX);
        if (step == graph->n_nodes) {
            start = at;
            stg_err(err, -STAGER_INVALID_ARGUMENT,
                    "line %d: these nodes form a cycle%s: ", node->spec->line,
                    graph->n_feeds > 0 ? " (with what feed_dict replaces)" : "");
        }
        if (step >= graph->n_nodes)
            stg_err_append(err, -STAGER_INVALID_ARGUMENT, "%s <- ", node->spec->name);
        at = next;
        if (step >= graph->n_nodes && at == start)
            return stg_err_append(err, -STAGER_INVALID_ARGUMENT, "%s",
                                  graph->nodes[start].spec->name);
    }
}

static bool is_ready(const struct stg_graph *graph, const struct stg_graph_node *node,
                     const bool *placed)
{
    for (size_t i = 0; i < node->n_inputs; i++) {
        const struct stg_ref *from = stg_graph_awaited(graph, &node->inputs[i]);
        if (from != NULL && !placed[from->index])
            return false;
    }
    for (size_t i = 0; i < node->n_controls; i++) {
        if (!placed[node->controls[i]])
            return false;
    }
    return true;
}

static void set_depends(const struct stg_graph *graph, struct stg_graph_node *node)
{
    node->depends =
        node->op->flags & (STG_OP_VARIABLE | STG_OP_STATEFUL) ? STG_DEPENDS_VARIABLE : 0u;
    if ((node->op->flags & STG_OP_TABLE) != 0)
        node->depends |= STG_DEPENDS_TABLE;
    if ((node->op->flags & STG_OP_PLACEHOLDER) != 0)
        node->depends |= STG_DEPENDS_PLACEHOLDER;
    for (size_t i = 0; i < node->n_inputs; i++)
        node->depends |= stg_graph_depends(graph, &node->inputs[i]);
    for (size_t i = 0; i < node->n_controls; i++)
        node->depends |= graph->nodes[node->controls[i]].depends;
}

/* Rounds over the nodes in the order of the file, so that files written top-down keep
 * their order. */
static int sort_nodes(struct stg_graph *graph, struct stg_err *err)
{
    bool *placed = calloc(graph->n_nodes + 1, sizeof(*placed));
    graph->order = stg_bump_alloc(&graph->bump, graph->n_nodes * sizeof(*graph->order));
    if (placed == NULL || graph->order == NULL) {
        free(placed);
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    }
    int rc = 0;
    size_t n = 0;
    while (n < graph->n_nodes) {
        size_t before = n;
        for (size_t i = 0; i < graph->n_nodes; i++) {
            if (placed[i] || !is_ready(graph, &graph->nodes[i], placed))
                continue;
            placed[i] = true;
            graph->order[n++] = (uint32_t)i;
            set_depends(graph, &graph->nodes[i]);
        }
        if (n == before) {
            rc = cycle_error(graph, placed, err);
            break;
        }
    }
    free(placed);
    return rc;
}

/* The graph of a step runs before any boundary, and nobody owns variables there. */
static int check_step_node(const struct stg_graph *graph,
                           const struct stg_graph_node *node, struct stg_err *err)
{
    const unsigned never = STG_OP_VARIABLE | STG_OP_STATEFUL | STG_OP_PLACEHOLDER;
    if (!graph->spec->is_step)
        return 0;
    if ((node->op->flags & never) != 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "the graph of a step has no variables and no placeholders; move "
                       "the node to the pipeline's `graph:`");
    for (size_t i = 0; i < node->spec->n_inputs; i++) {
        if (strncmp(node->spec->inputs[i], STAGED_PREFIX, STAGED_PREFIX_BYTES) == 0)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "\"%s\": the graph of a step sees components of its element "
                           "and no staged tensors",
                           node->spec->inputs[i]);
    }
    return 0;
}

/* What writes a variable is given the variable itself. */
static int check_state(const struct stg_graph *graph, const struct stg_graph_node *node,
                       struct stg_err *err)
{
    if ((node->op->flags & STG_OP_STATEFUL) == 0)
        return 0;
    const struct stg_ref *ref = &node->inputs[0];
    const struct stg_op *op =
        ref->kind == STG_REF_NODE ? stg_op_find(graph->nodes[ref->index].spec->op) : NULL;
    if (op != NULL && (op->flags & STG_OP_VARIABLE) != 0)
        return 0;
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "input \"%s\" is no variable, and nothing else can be written",
                   node->input_names[0]);
}

static int link_node(struct stg_graph *graph, size_t i, struct stg_err *err)
{
    struct stg_graph_node *node = &graph->nodes[i];
    int rc = stg_graph_find_op(graph, node, err);
    if (rc == 0)
        rc = check_step_node(graph, node, err);
    if (rc == 0)
        rc = link_inputs(graph, node, err);
    if (rc < 0 || node->why != NULL)
        return rc;
    rc = check_arity(node, err);
    if (rc == 0)
        rc = check_state(graph, node, err);
    if (rc == 0)
        rc = stg_param_check(node->op->params, node->op->n_params, node->spec->attrs,
                             node->spec->n_attrs, err);
    return rc < 0 ? stg_graph_leave_out(graph, node, rc, err) : 0;
}

int stg_graph_link(struct stg_graph *graph, struct stg_err *err)
{
    size_t n_written = graph->spec->n_nodes;
    graph->n_nodes = n_written + 2 * graph->spec->staged.n_transfers;
    graph->nodes = stg_bump_alloc(&graph->bump, graph->n_nodes * sizeof(*graph->nodes));
    if (graph->nodes == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (size_t i = 0; i < graph->n_nodes; i++) {
        graph->nodes[i].spec = i < n_written ? &graph->spec->nodes[i] : NULL;
        graph->nodes[i].same_as = (uint32_t)i;
    }
    int made = stg_graph_add_transfers(graph, err);
    if (made == 0)
        made = stg_graph_link_feeds(graph, err);
    if (made == 0)
        made = stg_graph_link_transfers(graph, err);
    if (made < 0)
        return made;
    for (size_t i = 0; i < n_written; i++) {
        int rc = check_name(graph, i, err);
        if (rc == 0)
            rc = link_node(graph, i, err);
        if (rc < 0)
            return stg_graph_blame(&graph->nodes[i], rc, err);
    }
    return sort_nodes(graph, err);
}
