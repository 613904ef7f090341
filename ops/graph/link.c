/* SPDX-License-Identifier: Apache-2.0
 *
 * Nodes: their ops, attributes and inputs, what depends on what, and their order.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "ops/base/element.h"
#include "ops/graph/priv.h"

/* ---- ops that this build does not have ----
 *
 * A client of an older build leaves out the nodes that it cannot make, so that the rest
 * of the graph works; the daemon may have run them ahead. */

/* Stands for an op that is not here: like nothing else, and known of it is nothing. */
static const struct stg_op absent_op = {.name = "absent", .flags = STG_OP_EACH_BATCH};

int stg_graph_leave_out(struct stg_graph *graph, struct stg_graph_node *node, int rc,
                        struct stg_err *err)
{
    if (graph->has_element || rc == -STAGER_RESOURCE_EXHAUSTED)
        return rc;
    struct stg_err *why = stg_bump_alloc(&graph->bump, sizeof(*why));
    if (why == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    *why = err != NULL ? *err : (struct stg_err){0};
    why->code = rc;
    if (err != NULL)
        *err = (struct stg_err){0};
    node->why = why;
    if (node->op == NULL)
        node->op = &absent_op;
    return 0;
}

size_t stg_graph_left_out(const struct stg_graph *graph, const char **ret)
{
    size_t n = 0;
    for (size_t i = 0; i < graph->spec->n_nodes; i++) {
        if (graph->nodes[i].why != NULL)
            ret[n++] = graph->spec->nodes[i].name;
    }
    return n;
}

/* Finds the node's op. In a client, one that is not there leaves the node out. */
static int find_op(struct stg_graph *graph, struct stg_graph_node *node,
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
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "unknown op; did you mean %s?",
                       near);
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "unknown op; docs/ops.md lists the ops");
}

/* ---- staged.transfer_dtypes ----
 *
 * Features that cross the boundary in half the width. Each is two nodes more than the
 * file has: one narrows what is staged, the other widens it for the nodes that read
 * "staged:…". */

static int blame_transfer(const struct stg_attr *attr, int code, struct stg_err *err)
{
    return stg_err_prefix(err, code, "staged.transfer_dtypes.%s, line %d", attr->name,
                          attr->line);
}

/* "cast" and "narrow" have one attribute. */
static struct stg_node *make_node(struct stg_graph *graph, const struct stg_attr *from,
                                  const char *op, int dtype)
{
    struct stg_node *node = stg_bump_alloc(&graph->bump, sizeof(*node));
    struct stg_attr *attr = stg_bump_alloc(&graph->bump, sizeof(*attr));
    struct stg_value *value = stg_bump_alloc(&graph->bump, sizeof(*value));
    char *name = stg_bump_printf(&graph->bump, "transfer.%s", from->name);
    if (node == NULL || attr == NULL || value == NULL || name == NULL)
        return NULL;
    const char *text = stg_dtype_name(dtype);
    *value =
        (struct stg_value){.kind = STG_VALUE_STRING, .s = text, .s_bytes = strlen(text)};
    *attr = (struct stg_attr){.name = "dtype", .n_values = 1, .values = value};
    *node = (struct stg_node){
        .name = name, .op = op, .attrs = attr, .n_attrs = 1, .line = from->line};
    return node;
}

static int add_transfer(struct stg_graph *graph, size_t k, struct stg_err *err)
{
    const struct stg_attr *attr = &graph->spec->staged.transfers[k];
    struct stg_graph_transfer *transfer = &graph->transfers[k];
    const char *text = attr->n_values == 1 && attr->values[0].kind == STG_VALUE_STRING
                           ? attr->values[0].s
                           : "";
    int narrow = stg_dtype_from_name(text), wide = stg_dtype_widened(narrow);
    if (wide == STAGER_DT_INVALID)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "\"%.64s\" is not a dtype to transfer; known: int8, int16, int32, "
                       "uint8, uint16, uint32, float16, bfloat16 and float32",
                       text);
    const char *name = stg_bump_printf(&graph->bump, "staged:%s", attr->name);
    if (name == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    int rc = stg_graph_resolve_unfed(graph, name, &transfer->staged, err);
    if (rc < 0)
        return stg_graph_invalid(err);
    transfer->narrow = (uint32_t)(graph->spec->n_nodes + 2 * k);
    transfer->widen = transfer->narrow + 1;
    struct stg_graph_node *nodes = &graph->nodes[transfer->narrow];
    nodes[0].spec = make_node(graph, attr, "narrow", narrow);
    nodes[1].spec = make_node(graph, attr, "cast", wide);
    return nodes[0].spec != NULL && nodes[1].spec != NULL
               ? 0
               : stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
}

static int add_transfers(struct stg_graph *graph, struct stg_err *err)
{
    size_t n = graph->spec->staged.n_transfers;
    graph->transfers = stg_bump_alloc(&graph->bump, n * sizeof(*graph->transfers));
    if (graph->transfers == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (size_t k = 0; k < n; k++) {
        int rc = add_transfer(graph, k, err);
        if (rc < 0)
            return blame_transfer(&graph->spec->staged.transfers[k], rc, err);
        graph->n_transfers = k + 1;
    }
    return 0;
}

static int link_transfer(struct stg_graph *graph, uint32_t index, const char *name,
                         struct stg_ref from, struct stg_err *err)
{
    struct stg_graph_node *node = &graph->nodes[index];
    int rc = find_op(graph, node, err);
    if (rc < 0)
        return rc;
    node->inputs = stg_bump_alloc(&graph->bump, sizeof(*node->inputs));
    node->input_names = stg_bump_alloc(&graph->bump, sizeof(*node->input_names));
    if (node->inputs == NULL || node->input_names == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    node->inputs[0] = from;
    node->input_names[0] = name;
    node->n_inputs = 1;
    return 0;
}

static int link_transfers(struct stg_graph *graph, struct stg_err *err)
{
    const struct stg_staged *staged = &graph->spec->staged;
    for (size_t k = 0; k < graph->n_transfers; k++) {
        const struct stg_graph_transfer *transfer = &graph->transfers[k];
        const char *name = staged->n_features > 0
                               ? staged->features[transfer->staged.index].tensor
                               : staged->transfers[k].name;
        struct stg_ref from = {.kind = STG_REF_UNKNOWN};
        int rc = graph->has_element ? stg_graph_resolve(graph, name, &from, err) : 0;
        if (rc < 0) {
            stg_graph_invalid(err);
            return blame_transfer(&staged->transfers[k], -STAGER_INVALID_ARGUMENT, err);
        }
        rc = link_transfer(graph, transfer->narrow, name, from, err);
        if (rc == 0)
            rc = link_transfer(graph, transfer->widen, staged->transfers[k].name,
                               transfer->staged, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- inputs ---- */

static int check_arity(const struct stg_graph_node *node, struct stg_err *err)
{
    const struct stg_op *op = node->op;
    int n = (int)node->n_inputs;
    if (n >= op->min_inputs && (op->max_inputs < 0 || n <= op->max_inputs))
        return 0;
    if (op->max_inputs < 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "takes at least %d input%s, not %d",
                       op->min_inputs, op->min_inputs == 1 ? "" : "s", n);
    if (op->min_inputs == op->max_inputs)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "takes %d input%s, not %d",
                       op->min_inputs, op->min_inputs == 1 ? "" : "s", n);
    return stg_err(err, -STAGER_INVALID_ARGUMENT, "takes %d to %d inputs, not %d",
                   op->min_inputs, op->max_inputs, n);
}

static int link_control(struct stg_graph *graph, struct stg_graph_node *node,
                        const char *name, struct stg_err *err)
{
    int other = stg_graph_find_node(graph, name, strlen(name));
    if (other < 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "\"^%s\": unknown node", name);
    node->controls[node->n_controls++] = (uint32_t)other;
    return 0;
}

/* In a client: the node of "node:label" whose op this build does not have, or -1. */
static int find_absent(const struct stg_graph *graph, const char *name)
{
    const char *colon = strchr(name, ':');
    int node = colon != NULL && !graph->has_element
                   ? stg_graph_find_node(graph, name, (size_t)(colon - name))
                   : -1;
    return node >= 0 && stg_op_find(graph->spec->nodes[node].op) == NULL ? node : -1;
}

/* In a client: a component of the element, or a named output of an op that is not here,
 * whose number is unknown then. */
static int link_unknown(struct stg_graph *graph, struct stg_graph_node *node,
                        const char *name, struct stg_ref *ret, struct stg_err *err)
{
    int absent = find_absent(graph, name);
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
            strncmp(name, STG_STAGED_PREFIX, STG_STAGED_PREFIX_BYTES) != 0)
            rc = link_unknown(graph, node, name, ref, err);
        else if (rc < 0)
            rc = stg_graph_invalid(err);
        if (rc < 0)
            return rc;
        node->input_names[node->n_inputs++] = name;
    }
    return 0;
}

/* ---- order ---- */

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

/* ---- nodes ---- */

static int check_name(const struct stg_graph *graph, size_t i, struct stg_err *err)
{
    const struct stg_node *node = &graph->spec->nodes[i];
    const char *name = node->name;
    if (name[0] == '\0' || strcmp(name, "staged") == 0 || strpbrk(name, ":^") != NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "\"%s\" is not a valid name of a node; use one without ':' and "
                       "'^', other than \"staged\"",
                       name);
    int first = stg_graph_find_node(graph, name, strlen(name));
    if ((size_t)first != i)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "another node on line %d has the same name; rename one",
                       graph->spec->nodes[first].line);
    if (stg_graph_find_component(graph, name) >= 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "the dataset yields a component of the same name; rename the "
                       "node");
    return 0;
}

/* The graph of a step runs before any boundary, and has no owner of variables. */
static int check_step_node(const struct stg_graph *graph,
                           const struct stg_graph_node *node, struct stg_err *err)
{
    const unsigned never = STG_OP_VARIABLE | STG_OP_STATEFUL | STG_OP_PLACEHOLDER;
    if (!graph->spec->is_step)
        return 0;
    if ((node->op->flags & never) != 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "the graph of a step cannot have variables or placeholders; move "
                       "the node to the pipeline's `graph:`");
    for (size_t i = 0; i < node->spec->n_inputs; i++) {
        if (strncmp(node->spec->inputs[i], STG_STAGED_PREFIX, STG_STAGED_PREFIX_BYTES) ==
            0)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "\"%s\": the graph of a step sees only the components of its "
                           "element, not staged tensors",
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
                   "input \"%s\" is not a variable; only variables can be written",
                   node->input_names[0]);
}

static int link_node(struct stg_graph *graph, size_t i, struct stg_err *err)
{
    struct stg_graph_node *node = &graph->nodes[i];
    int rc = find_op(graph, node, err);
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
    int made = add_transfers(graph, err);
    if (made == 0)
        made = stg_graph_link_feeds(graph, err);
    if (made == 0)
        made = link_transfers(graph, err);
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
