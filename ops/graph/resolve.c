/* SPDX-License-Identifier: Apache-2.0
 *
 * Names to references, and what is said of a name that no tensor has: the nearest one, or
 * what there is.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ops/graph/composite.h"
#include "ops/graph/priv.h"

#define OUTPUT_NAME_BYTES 320
#define LIST_BYTES 300

int stg_graph_find_node(const struct stg_graph *graph, const char *name, size_t bytes)
{
    const struct stg_pipeline_spec *spec = graph->spec;
    for (size_t i = 0; i < spec->n_nodes; i++) {
        if (strlen(spec->nodes[i].name) == bytes &&
            memcmp(spec->nodes[i].name, name, bytes) == 0)
            return (int)i;
    }
    return -1;
}

int stg_graph_find_component(const struct stg_graph *graph, const char *name)
{
    for (size_t i = 0; i < graph->element.n; i++) {
        if (strcmp(graph->element.components[i].name, name) == 0)
            return (int)i;
    }
    return -1;
}

/* Of "node:label": the op of that node, if its outputs have names; else NULL. */
static const struct stg_op *named_op(const struct stg_graph *graph, const char *name,
                                     int *ret_node)
{
    const char *colon = strchr(name, ':');
    *ret_node =
        colon != NULL ? stg_graph_find_node(graph, name, (size_t)(colon - name)) : -1;
    const struct stg_op *op =
        *ret_node >= 0 ? stg_op_find(graph->spec->nodes[*ret_node].op) : NULL;
    return op != NULL && op->next_output != NULL ? op : NULL;
}

/* ---- the nearest name ---- */

/* The nearest of many names, without memory for all of them at once: the best so far
 * competes with the next few. Begin with `wanted` set; `end` gives it, or NULL. */
struct contest {
    const char *wanted;
    const char *names[32];
    size_t n;
};

static const char *contest_end(struct contest *contest)
{
    const char *best = stg_nearest(contest->wanted, contest->names, contest->n);
    contest->n = 0;
    if (best != NULL)
        contest->names[contest->n++] = best;
    return best;
}

static void contest_enter(struct contest *contest, const char *name)
{
    if (contest->n == sizeof(contest->names) / sizeof(contest->names[0]))
        contest_end(contest);
    contest->names[contest->n++] = name;
}

/* Appends a name to a list of them; what is too long ends in "…". */
__attribute__((format(printf, 2, 3))) static void list_name(char *list, const char *fmt,
                                                            ...)
{
    char name[OUTPUT_NAME_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(name, sizeof(name), fmt, args);
    va_end(args);
    size_t used = strlen(list), bytes = strlen(name), comma = used > 0 ? strlen(", ") : 0;
    if (used + comma + bytes + sizeof(", …") <= LIST_BYTES) {
        memcpy(list + used, ", ", comma);
        memcpy(list + used + comma, name, bytes + 1);
    } else if (used >= sizeof("…") && strcmp(list + used - strlen("…"), "…") != 0)
        snprintf(list + used, LIST_BYTES - used, ", …");
}

static const char *nearest_tensor(const struct stg_graph *graph, const char *name)
{
    struct contest contest = {.wanted = name};
    for (size_t i = 0; i < graph->spec->n_nodes; i++)
        contest_enter(&contest, graph->spec->nodes[i].name);
    for (size_t i = 0; i < graph->element.n; i++)
        contest_enter(&contest, graph->element.components[i].name);
    return contest_end(&contest);
}

/* "node:lable" where the node has outputs with names: the nearest. NULL: it has none, or
 * there is no such node. */
static const char *nearest_output(const struct stg_graph *graph, const char *name,
                                  char *buf, size_t bytes)
{
    int node;
    const struct stg_op *op = named_op(graph, name, &node);
    if (op == NULL)
        return NULL;
    struct stg_output_name output = {0};
    char next[OUTPUT_NAME_BYTES];
    const char *names[2] = {buf, next}, *best = NULL;
    while (op->next_output(&graph->spec->nodes[node], &output)) {
        snprintf(next, sizeof(next), "%s:%.*s%s", graph->spec->nodes[node].name,
                 (int)output.entry_bytes, output.entry, output.part);
        const char *near =
            stg_nearest(name, best != NULL ? names : names + 1, best != NULL ? 2 : 1);
        if (near != next)
            continue;
        snprintf(buf, bytes, "%s", next);
        best = buf;
    }
    return best;
}

/* The outputs of the node of "node:label" that have names. False: none has. */
static bool show_outputs(const struct stg_graph *graph, const char *name, char *list)
{
    int node;
    const struct stg_op *op = named_op(graph, name, &node);
    struct stg_output_name output = {0};
    if (op == NULL)
        return false;
    while (op->next_output(&graph->spec->nodes[node], &output))
        list_name(list, "%s:%.*s%s", graph->spec->nodes[node].name,
                  (int)output.entry_bytes, output.entry, output.part);
    return list[0] != '\0';
}

/* NOT_FOUND for a name that neither a node nor a component has: with the nearest, or with
 * the outputs of the node or the components that there are. */
static int no_tensor(const struct stg_graph *graph, const char *name, struct stg_err *err)
{
    char buf[OUTPUT_NAME_BYTES], list[LIST_BYTES] = "";
    const char *near = nearest_output(graph, name, buf, sizeof(buf));
    if (near == NULL && show_outputs(graph, name, list))
        return stg_err(err, -STAGER_NOT_FOUND, "\"%s\": unknown output; known: %s", name,
                       list);
    size_t n = 0;
    const struct stg_component *parts = stg_composite_find(&graph->element, name, &n);
    if (parts != NULL)
        return stg_err(err, -STAGER_NOT_FOUND,
                       "\"%s\" is a %s component, which can be a feature but not the "
                       "input of an op: name one of its tensors, such as \"%s\"",
                       name, n == 2 ? "ragged" : "sparse", parts[0].name);
    if (near == NULL)
        near = nearest_tensor(graph, name);
    if (near != NULL)
        return stg_err(err, -STAGER_NOT_FOUND,
                       "\"%s\": unknown node or component; did you mean \"%s\"?", name,
                       near);
    for (size_t i = 0; i < graph->element.n; i++) /* a client has none */
        list_name(list, "%s", graph->element.components[i].name);
    return stg_err(err, -STAGER_NOT_FOUND, "\"%s\": unknown node or component%s%s", name,
                   list[0] != '\0' ? "; the dataset yields " : "", list);
}

/* ---- resolving ---- */

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
    const struct stg_op *op = named_op(graph, name, &node);
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
    struct contest contest = {.wanted = path};
    for (size_t i = 0; i < n; i++)
        contest_enter(&contest, boundary_name(graph, i));
    const char *near = contest_end(&contest);
    if (near != NULL)
        return stg_err(err, -STAGER_NOT_FOUND,
                       "\"staged:%s\": unknown feature; did you mean \"staged:%s\"?",
                       path, near);
    char list[LIST_BYTES] = "";
    for (size_t i = 0; i < n; i++)
        list_name(list, "%s", boundary_name(graph, i));
    return stg_err(err, -STAGER_NOT_FOUND,
                   "\"staged:%s\": unknown feature; in staged.features there %s %s", path,
                   n == 1 ? "is" : "are", n == 0 ? "none" : list);
}

static int output_error(const struct stg_graph_node *node, const char *name,
                        struct stg_err *err)
{
    return stg_err(err, -STAGER_NOT_FOUND, "\"%s\": node %s has %zu output%s", name,
                   node->spec->name, node->n_outputs, node->n_outputs == 1 ? "" : "s");
}

int stg_graph_resolve_unfed(const struct stg_graph *graph, const char *name,
                            struct stg_ref *ret, struct stg_err *err)
{
    if (strncmp(name, STG_STAGED_PREFIX, STG_STAGED_PREFIX_BYTES) == 0)
        return resolve_staged(graph, name + STG_STAGED_PREFIX_BYTES, ret, err);

    uint32_t output = 0;
    int node = stg_graph_find_node(graph, name, strlen(name));
    if (node < 0) {
        int component = stg_graph_find_component(graph, name);
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
    return no_tensor(graph, name, err);
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
