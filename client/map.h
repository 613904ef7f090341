/* SPDX-License-Identifier: Apache-2.0
 *
 * Mapping the daemon's memory. What is mapped can neither shrink (so no SIGBUS) nor reach
 * a forked child or a core file. Any thread.
 */
#ifndef STG_CLIENT_MAP_H
#define STG_CLIENT_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

struct stg_map {
    void *base; /* NULL: not mapped */
    size_t bytes;
};

/* Maps `bytes` of the memfd, shared. `what` names it in errors: INTERNAL when it is
 * shorter or could shrink, RESOURCE_EXHAUSTED when there is no address space. fd stays
 * the caller's. */
int stg_map_open(int fd, uint64_t bytes, bool writable, const char *what,
                 struct stg_map *ret, struct stg_err *err);

/* Faults all of it in ahead of use, as far as the kernel likes to. */
void stg_map_populate(const struct stg_map *map);

void stg_map_close(struct stg_map *map);

#endif
