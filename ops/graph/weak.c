/* SPDX-License-Identifier: Apache-2.0
 *
 * Weak constants: the numbers of an expression, such as `price > 0`. A weak constant
 * takes the dtype of the tensor beside it, if the node that reads it needs one dtype for
 * all its inputs.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ops/base/element.h"
#include "ops/graph/priv.h"

static bool is_number(int dtype)
{
    return dtype != STAGER_BOOL && dtype != STAGER_STRING;
}

/* The weak number that an input is, or NULL. */
static struct stg_graph_node *weak_number(const struct stg_graph *graph,
                                          const struct stg_ref *ref)
{
    if (ref->kind != STG_REF_NODE)
        return NULL;
    struct stg_graph_node *node = &graph->nodes[ref->index];
    return node->inferred && stg_graph_is_weak(node) && is_number(node->outputs[0].dtype)
               ? node
               : NULL;
}

/* The first input that is a number and not weak; else the first weak one that is a float.
 * Or -1. */
static int strong_input(const struct stg_graph *graph, const struct stg_graph_node *node)
{
    int found = -1;
    for (size_t i = 0; i < node->n_inputs; i++) {
        const struct stg_component *component =
            stg_graph_component(graph, &node->inputs[i]);
        if (component == NULL || !is_number(component->dtype))
            continue;
        if (weak_number(graph, &node->inputs[i]) == NULL)
            return (int)i;
        if (found < 0 && component->dtype == STAGER_FLOAT32)
            found = (int)i;
    }
    return found;
}

static size_t n_readers(const struct stg_graph *graph, uint32_t index)
{
    size_t n = 0;
    for (size_t i = 0; i < graph->n_nodes; i++) {
        for (size_t k = 0; k < graph->nodes[i].n_inputs; k++) {
            const struct stg_ref *ref = &graph->nodes[i].inputs[k];
            n += ref->kind == STG_REF_NODE && ref->index == index;
        }
    }
    return n;
}

static bool is_finite(int dtype, double value)
{
    if (dtype == STAGER_FLOAT16)
        return isfinite(stg_f32_from_f16(stg_f16_from_f64(value)));
    return dtype == STAGER_FLOAT64 ? isfinite(value) : isfinite((float)value);
}

/* Does the dtype hold these literals? A float may be rounded. `beside` names the tensor.
 */
static int check_values(const struct stg_attr *values, int dtype, const char *beside,
                        struct stg_err *err)
{
    for (size_t i = 0; i < values->n_values; i++) {
        const struct stg_value *value = &values->values[i];
        uint64_t element;
        struct stg_err why = {0};
        bool is_float = dtype == STAGER_FLOAT16 || dtype == STAGER_BFLOAT16 ||
                        dtype == STAGER_FLOAT32 || dtype == STAGER_FLOAT64;
        if (stg_literal_store(value, dtype, &element, 0, &why) == 0 &&
            (!is_float || !isfinite(value->f) || is_finite(dtype, value->f)))
            continue;
        char number[32];
        if (value->kind == STG_VALUE_INT)
            snprintf(number, sizeof(number), "%" PRId64, value->i);
        else
            snprintf(number, sizeof(number), "%.9g", value->f);
        return stg_err(
            err, -STAGER_INVALID_ARGUMENT,
            "%s does not fit %s, the dtype of \"%s\" beside it; cast the tensor", number,
            stg_dtype_name(dtype), beside);
    }
    return 0;
}

/* The same node with the attribute dtype, by which equal ones are found. NULL: out of
 * memory. */
static struct stg_node *with_dtype(struct stg_bump *bump, const struct stg_node *from,
                                   int dtype)
{
    struct stg_node *node = stg_bump_alloc(bump, sizeof(*node));
    struct stg_attr *attrs = stg_bump_alloc(bump, (from->n_attrs + 1) * sizeof(*attrs));
    struct stg_value *name = stg_bump_alloc(bump, sizeof(*name));
    if (node == NULL || attrs == NULL || name == NULL)
        return NULL;
    name->kind = STG_VALUE_STRING;
    name->s = stg_dtype_name(dtype);
    name->s_bytes = strlen(name->s);
    memcpy(attrs, from->attrs, from->n_attrs * sizeof(*attrs));
    attrs[from->n_attrs] =
        (struct stg_attr){.name = "dtype", .n_values = 1, .values = name};
    *node = *from;
    node->attrs = attrs;
    node->n_attrs = from->n_attrs + 1;
    return node;
}

static int convert(struct stg_graph *graph, struct stg_graph_node *constant, int dtype,
                   const char *beside, struct stg_err *err)
{
    const struct stg_node *from = constant->spec;
    size_t n = n_readers(graph, (uint32_t)(constant - graph->nodes));
    if (n > 1)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "constant \"%s\" is weak, and has %zu readers; give it a dtype",
                       from->name, n);
    int rc = check_values(stg_attr_find(from->attrs, from->n_attrs, "value"), dtype,
                          beside, err);
    if (rc < 0)
        return rc;
    struct stg_node *spec = with_dtype(&graph->bump, from, dtype);
    if (spec == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    constant->spec = spec;
    constant->inferred = false;
    return 0;
}

int stg_graph_convert_weak(struct stg_graph *graph, const struct stg_graph_node *node,
                           struct stg_err *err)
{
    int strong = (node->op->flags & STG_OP_ONE_DTYPE) != 0 && node->why == NULL
                     ? strong_input(graph, node)
                     : -1;
    int rc = 0;
    for (size_t i = 0; rc == 0 && strong >= 0 && i < node->n_inputs; i++) {
        struct stg_graph_node *constant = weak_number(graph, &node->inputs[i]);
        int dtype = stg_graph_component(graph, &node->inputs[strong])->dtype;
        if (constant != NULL && (int)i != strong)
            rc = convert(graph, constant, dtype, node->input_names[strong], err);
    }
    return rc;
}
