/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/placement/min_cut.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NO_EDGE UINT32_MAX

/* Edge e and its way back are 2e and 2e + 1. */
struct edge {
    uint32_t to;
    uint32_t next; /* of the same vertex */
    int64_t capacity;
};

struct stg_network {
    size_t n_vertices, max_edges, n_edges; /* both ways */
    struct edge *edges;
    uint32_t *first, *at; /* of each vertex; `at`: not tried yet in this phase */
    uint32_t *level;      /* steps from the source; 0: not reached */
    uint32_t *queue;
};

struct stg_network *stg_network_create(size_t n_vertices, size_t max_edges)
{
    struct stg_network *network = calloc(1, sizeof(*network));
    if (network == NULL)
        return NULL;
    network->n_vertices = n_vertices;
    network->max_edges = 2 * max_edges;
    network->edges = calloc(2 * max_edges + 1, sizeof(*network->edges));
    network->first = calloc(n_vertices + 1, sizeof(*network->first));
    network->at = calloc(n_vertices + 1, sizeof(*network->at));
    network->level = calloc(n_vertices + 1, sizeof(*network->level));
    network->queue = calloc(n_vertices + 1, sizeof(*network->queue));
    if (network->edges == NULL || network->first == NULL || network->at == NULL ||
        network->level == NULL || network->queue == NULL) {
        stg_network_destroy(network);
        return NULL;
    }
    stg_network_clear(network);
    return network;
}

void stg_network_destroy(struct stg_network *network)
{
    if (network == NULL)
        return;
    free(network->edges);
    free(network->first);
    free(network->at);
    free(network->level);
    free(network->queue);
    free(network);
}

void stg_network_clear(struct stg_network *network)
{
    network->n_edges = 0;
    memset(network->first, 0xff, network->n_vertices * sizeof(*network->first));
}

static void add_half(struct stg_network *network, uint32_t from, uint32_t to,
                     int64_t capacity)
{
    network->edges[network->n_edges] =
        (struct edge){.to = to, .next = network->first[from], .capacity = capacity};
    network->first[from] = (uint32_t)network->n_edges++;
}

void stg_network_add(struct stg_network *network, uint32_t from, uint32_t to,
                     int64_t capacity)
{
    assert(network->n_edges + 2 <= network->max_edges);
    add_half(network, from, to, capacity);
    add_half(network, to, from, 0);
}

/* Numbers what can be reached by how far it is. */
static bool find_levels(struct stg_network *network, uint32_t source, uint32_t sink)
{
    size_t n = 0;
    memset(network->level, 0, network->n_vertices * sizeof(*network->level));
    network->level[source] = 1;
    network->queue[n++] = source;
    for (size_t i = 0; i < n; i++) {
        uint32_t from = network->queue[i];
        for (uint32_t e = network->first[from]; e != NO_EDGE;
             e = network->edges[e].next) {
            const struct edge *edge = &network->edges[e];
            if (edge->capacity <= 0 || network->level[edge->to] != 0)
                continue;
            network->level[edge->to] = network->level[from] + 1;
            network->queue[n++] = edge->to;
        }
    }
    return network->level[sink] != 0;
}

/* Depth is bounded by the number of levels. Returns what went through. */
static int64_t push(struct stg_network *network, uint32_t from, uint32_t sink,
                    int64_t most)
{
    if (from == sink)
        return most;
    for (; network->at[from] != NO_EDGE;
         network->at[from] = network->edges[network->at[from]].next) {
        struct edge *edge = &network->edges[network->at[from]];
        if (edge->capacity <= 0 || network->level[edge->to] != network->level[from] + 1)
            continue;
        int64_t room = edge->capacity < most ? edge->capacity : most;
        int64_t went = push(network, edge->to, sink, room);
        if (went == 0)
            continue;
        edge->capacity -= went;
        network->edges[network->at[from] ^ 1].capacity += went;
        return went;
    }
    return 0;
}

void stg_network_cut(struct stg_network *network, uint32_t source, uint32_t sink,
                     bool *ret)
{
    while (find_levels(network, source, sink)) {
        memcpy(network->at, network->first, network->n_vertices * sizeof(*network->at));
        while (push(network, source, sink, INT64_MAX) > 0)
            ;
    }
    for (size_t i = 0; i < network->n_vertices; i++)
        ret[i] = network->level[i] != 0;
}
