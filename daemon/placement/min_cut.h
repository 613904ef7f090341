/* SPDX-License-Identifier: Apache-2.0
 *
 * The smallest cut of a network between two vertices, by the largest flow (Dinic 1970:
 * shortest ways first). One thread.
 */
#ifndef STG_DAEMON_PLACEMENT_MIN_CUT_H
#define STG_DAEMON_PLACEMENT_MIN_CUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STG_MIN_CUT_FOREVER (INT64_MAX / 4) /* an edge that is never cut */

struct stg_network;

/* Room for so many vertices and edges. NULL: out of memory. */
struct stg_network *stg_network_create(size_t n_vertices, size_t max_edges);
void stg_network_destroy(struct stg_network *network); /* NULL is allowed */

/* Takes all edges away. */
void stg_network_clear(struct stg_network *network);

void stg_network_add(struct stg_network *network, uint32_t from, uint32_t to,
                     int64_t capacity);

/* Which vertices are on the side of `source`; ret has room for all. Of several smallest
 * cuts the one with the fewest. Uses the capacities up: once. */
void stg_network_cut(struct stg_network *network, uint32_t source, uint32_t sink,
                     bool *ret);

#endif
