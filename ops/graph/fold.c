/* SPDX-License-Identifier: Apache-2.0
 *
 * What a graph need not compute: the same thing twice, and what is known when the
 * pipeline is applied.
 */
#include <string.h>

#include "ops/graph/priv.h"

/* Known values stay in memory as long as the graph does: large ones are cheaper to make
 * for each batch. */
#define FOLD_MAX_BYTES (UINT64_C(1) << 20)
#define FOLD_SCRATCH_BYTES (UINT64_C(64) << 20) /* sizes may be constants of a graph */

/* ---- the same thing twice ---- */

static bool same_value(const struct stg_value *a, const struct stg_value *b)
{
    if (a->kind != b->kind)
        return false;
    switch (a->kind) {
    case STG_VALUE_NULL: return true;
    case STG_VALUE_FLOAT: return memcmp(&a->f, &b->f, sizeof(a->f)) == 0;
    case STG_VALUE_STRING:
        return a->s_bytes == b->s_bytes && memcmp(a->s, b->s, a->s_bytes) == 0;
    case STG_VALUE_INT:
    case STG_VALUE_BOOL: return a->i == b->i;
    }
    return false;
}

static bool same_attr(const struct stg_attr *a, const struct stg_attr *b)
{
    if (b == NULL || a->ndim != b->ndim || a->n_values != b->n_values ||
        memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof(a->shape[0])) != 0)
        return false;
    for (size_t i = 0; i < a->n_values; i++) {
        if (!same_value(&a->values[i], &b->values[i]))
            return false;
    }
    return true;
}

static bool same_attrs(const struct stg_node *a, const struct stg_node *b)
{
    if (a->n_attrs != b->n_attrs)
        return false;
    for (size_t i = 0; i < a->n_attrs; i++) {
        if (!same_attr(&a->attrs[i],
                       stg_attr_find(b->attrs, b->n_attrs, a->attrs[i].name)))
            return false;
    }
    return true;
}

static bool same_inputs(const struct stg_graph_node *a, const struct stg_graph_node *b)
{
    if (a->n_inputs != b->n_inputs || a->n_controls != b->n_controls)
        return false;
    for (size_t i = 0; i < a->n_inputs; i++) {
        if (!stg_ref_same(&a->inputs[i], &b->inputs[i]))
            return false;
    }
    return memcmp(a->controls, b->controls, a->n_controls * sizeof(*a->controls)) == 0;
}

static bool is_pure(const struct stg_op *op)
{
    const unsigned never = STG_OP_VARIABLE | STG_OP_STATEFUL | STG_OP_PLACEHOLDER |
                           STG_OP_TABLE | STG_OP_EACH_BATCH;
    return (op->flags & never) == 0;
}

static void read_first(const struct stg_graph *graph, struct stg_graph_node *node)
{
    for (size_t i = 0; i < node->n_inputs; i++) {
        if (node->inputs[i].kind != STG_REF_NODE)
            continue;
        node->inputs[i].index = graph->nodes[node->inputs[i].index].same_as;
        node->inputs[i] = stg_graph_carried(graph, node->inputs[i]);
    }
    size_t n = 0;
    for (size_t i = 0; i < node->n_controls; i++) {
        uint32_t control = graph->nodes[node->controls[i]].same_as;
        if (!stg_graph_is_carried(graph, control))
            node->controls[n++] = control;
    }
    node->n_controls = n;
}

/* Makes it the first equal node among the first n_before of the order, if there is one.
 */
static bool become_equal(const struct stg_graph *graph, struct stg_graph_node *node,
                         size_t n_before)
{
    for (size_t i = 0; i < n_before; i++) {
        const struct stg_graph_node *first = &graph->nodes[graph->order[i]];
        if (first->op != node->op || !first->inferred || !same_inputs(first, node) ||
            !same_attrs(first->spec, node->spec))
            continue;
        node->same_as = first->same_as;
        node->outputs = first->outputs;
        node->n_outputs = first->n_outputs;
        node->plan = first->plan;
        node->values = first->values;
        node->inferred = true;
        return true;
    }
    return false;
}

bool stg_graph_merge(const struct stg_graph *graph, struct stg_graph_node *node,
                     size_t n_before)
{
    read_first(graph, node);
    return is_pure(node->op) && !stg_graph_is_weak(node) &&
           become_equal(graph, node, n_before);
}

void stg_graph_merge_constant(const struct stg_graph *graph, struct stg_graph_node *node,
                              size_t n_before)
{
    for (size_t i = 0; i < n_before; i++) {
        if (&graph->nodes[graph->order[i]] == node)
            n_before = i;
    }
    become_equal(graph, node, n_before);
}

/* ---- what is known ---- */

struct fold {
    struct stg_bump *bump;
    struct stg_tensor *outputs;
    bool is_too_large;
};

static int alloc_value(struct stg_op_run *ctx, size_t i, int dtype, int ndim,
                       const int64_t *shape, uint64_t string_bytes,
                       struct stg_tensor *ret, struct stg_err *err)
{
    struct fold *fold = ctx->executor;
    struct stg_tensor *tensor = &fold->outputs[i];
    uint64_t n, bytes;
    if (!stg_tensor_size(dtype, ndim, shape, string_bytes, &n, &bytes) ||
        n > FOLD_MAX_BYTES || bytes > FOLD_MAX_BYTES) {
        fold->is_too_large = true;
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "too large to be kept");
    }
    *tensor = (struct stg_tensor){.dtype = dtype, .ndim = ndim, .data_bytes = bytes};
    memcpy(tensor->shape, shape, (size_t)ndim * sizeof(*shape));
    tensor->data = stg_bump_alloc_raw(fold->bump, bytes);
    if (dtype == STAGER_STRING) {
        tensor->begin = stg_bump_alloc(fold->bump, (n + 1) * sizeof(*tensor->begin));
        tensor->end = tensor->begin != NULL ? tensor->begin + 1 : NULL;
    }
    if (tensor->data == NULL || (dtype == STAGER_STRING && tensor->begin == NULL))
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    *ret = *tensor;
    return 0;
}

static int view_value(struct stg_op_run *ctx, size_t i, const struct stg_tensor *tensor,
                      struct stg_err *err)
{
    struct fold *fold = ctx->executor;
    fold->outputs[i] = *tensor;
    return 0;
}

/* The inputs' values; false when one is not known. */
static bool known_inputs(const struct stg_graph *graph, const struct stg_graph_node *node,
                         struct stg_tensor *ret)
{
    for (size_t i = 0; i < node->n_inputs; i++) {
        const struct stg_tensor *value = stg_graph_constant(graph, &node->inputs[i]);
        if (value == NULL)
            return false;
        ret[i] = *value;
    }
    return true;
}

static void keep_values(struct stg_graph_node *node, struct stg_tensor *values)
{
    for (size_t i = 0; i < node->n_outputs; i++) {
        struct stg_tensor *value = &values[i];
        if (value->dtype == STAGER_STRING && value->end == value->begin + 1)
            value->data_bytes = (uint64_t)value->begin[stg_tensor_n(value)];
        memcpy(node->outputs[i].shape, value->shape, sizeof(value->shape));
    }
    node->values = values;
}

int stg_graph_fold(struct stg_graph *graph, struct stg_graph_node *node,
                   struct stg_err *err)
{
    if (node->n_inputs == 0 || node->n_controls > 0 || !is_pure(node->op))
        return 0;
    struct stg_bump scratch = {.limit = FOLD_SCRATCH_BYTES};
    struct stg_err why = {0};
    struct stg_tensor *inputs =
        stg_bump_alloc(&scratch, node->n_inputs * sizeof(*inputs));
    struct fold fold = {.bump = &graph->bump,
                        .outputs = stg_bump_alloc(
                            &graph->bump, node->n_outputs * sizeof(struct stg_tensor))};
    int rc = 0;
    if (inputs == NULL || fold.outputs == NULL) {
        rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    } else if (known_inputs(graph, node, inputs)) {
        struct stg_op_run ctx = {.plan = node->plan,
                                 .inputs = inputs,
                                 .n_inputs = node->n_inputs,
                                 .scratch = &scratch,
                                 .alloc = alloc_value,
                                 .view = view_value,
                                 .executor = &fold};
        rc = node->op->run(&ctx, &why);
        if (rc == 0)
            keep_values(node, fold.outputs);
        else if (rc == -STAGER_RESOURCE_EXHAUSTED && !fold.is_too_large)
            rc = stg_err(err, rc, "%s", why.text);
        else
            rc = 0; /* it is the batch's error, if the node is ever needed */
    }
    stg_bump_finish(&scratch);
    return rc;
}
