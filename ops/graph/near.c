/* SPDX-License-Identifier: Apache-2.0
 *
 * What is said of a name that no tensor has: the nearest one, or what there is.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ops/graph/composite.h"
#include "ops/graph/priv.h"

#define OUTPUT_NAME_BYTES 320

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

const struct stg_op *stg_graph_named_op(const struct stg_graph *graph, const char *name,
                                        int *ret_node)
{
    const char *colon = strchr(name, ':');
    *ret_node =
        colon != NULL ? stg_graph_find_node(graph, name, (size_t)(colon - name)) : -1;
    const struct stg_op *op =
        *ret_node >= 0 ? stg_op_find(graph->spec->nodes[*ret_node].op) : NULL;
    return op != NULL && op->next_output != NULL ? op : NULL;
}

const char *stg_contest_end(struct stg_contest *contest)
{
    const char *best = stg_nearest(contest->wanted, contest->names, contest->n);
    contest->n = 0;
    if (best != NULL)
        contest->names[contest->n++] = best;
    return best;
}

void stg_contest_enter(struct stg_contest *contest, const char *name)
{
    if (contest->n == sizeof(contest->names) / sizeof(contest->names[0]))
        stg_contest_end(contest);
    contest->names[contest->n++] = name;
}

static const char *nearest_tensor(const struct stg_graph *graph, const char *name)
{
    struct stg_contest contest = {.wanted = name};
    for (size_t i = 0; i < graph->spec->n_nodes; i++)
        stg_contest_enter(&contest, graph->spec->nodes[i].name);
    for (size_t i = 0; i < graph->element.n; i++)
        stg_contest_enter(&contest, graph->element.components[i].name);
    return stg_contest_end(&contest);
}

/* "node:lable" where the node has outputs with names: the nearest. NULL: it has none, or
 * there is no such node. */
static const char *nearest_output(const struct stg_graph *graph, const char *name,
                                  char *buf, size_t bytes)
{
    int node;
    const struct stg_op *op = stg_graph_named_op(graph, name, &node);
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

void stg_list_name(char *list, const char *fmt, ...)
{
    char name[OUTPUT_NAME_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(name, sizeof(name), fmt, args);
    va_end(args);
    size_t used = strlen(list), bytes = strlen(name), comma = used > 0 ? strlen(", ") : 0;
    if (used + comma + bytes + sizeof(", …") <= STG_LIST_BYTES) {
        memcpy(list + used, ", ", comma);
        memcpy(list + used + comma, name, bytes + 1);
    } else if (used >= sizeof("…") && strcmp(list + used - strlen("…"), "…") != 0)
        snprintf(list + used, STG_LIST_BYTES - used, ", …");
}

/* The outputs of the node of "node:label" that have names. False: none has. */
static bool show_outputs(const struct stg_graph *graph, const char *name, char *list)
{
    int node;
    const struct stg_op *op = stg_graph_named_op(graph, name, &node);
    struct stg_output_name output = {0};
    if (op == NULL)
        return false;
    while (op->next_output(&graph->spec->nodes[node], &output))
        stg_list_name(list, "%s:%.*s%s", graph->spec->nodes[node].name,
                      (int)output.entry_bytes, output.entry, output.part);
    return list[0] != '\0';
}

int stg_graph_no_tensor(const struct stg_graph *graph, const char *name,
                        struct stg_err *err)
{
    char buf[OUTPUT_NAME_BYTES], list[STG_LIST_BYTES] = "";
    const char *near = nearest_output(graph, name, buf, sizeof(buf));
    if (near == NULL && show_outputs(graph, name, list))
        return stg_err(err, -STAGER_NOT_FOUND, "\"%s\": no such output; there are %s",
                       name, list);
    size_t n = 0;
    const struct stg_component *parts = stg_composite_find(&graph->element, name, &n);
    if (parts != NULL)
        return stg_err(err, -STAGER_NOT_FOUND,
                       "\"%s\" is a %s component, which a feature may be and an op does "
                       "not read: name one of its tensors, such as \"%s\"",
                       name, n == 2 ? "ragged" : "sparse", parts[0].name);
    if (near == NULL)
        near = nearest_tensor(graph, name);
    if (near != NULL)
        return stg_err(err, -STAGER_NOT_FOUND,
                       "\"%s\": no such node or component; did you mean \"%s\"?", name,
                       near);
    for (size_t i = 0; i < graph->element.n; i++) /* a client knows none */
        stg_list_name(list, "%s", graph->element.components[i].name);
    return stg_err(err, -STAGER_NOT_FOUND, "\"%s\": no such node or component%s%s", name,
                   list[0] != '\0' ? "; the dataset yields " : "", list);
}
