/* SPDX-License-Identifier: Apache-2.0
 *
 * Mapping the daemon's memory. What is mapped can neither shrink (so no SIGBUS) nor reach
 * a forked child or a core file. Any thread.
 */
#ifndef STG_CLIENT_TRANSPORT_MAP_H
#define STG_CLIENT_TRANSPORT_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

struct stg_map {
    void *base; /* NULL: not mapped */
    size_t bytes;
};

enum stg_map_kind {
    STG_MAP_READ,          /* shared, read-only */
    STG_MAP_WRITE,         /* shared */
    STG_MAP_COPY_ON_WRITE, /* reads what is shared; a page that is written is our own */
};

/* Maps `bytes` of the memfd. `what` names it in errors: INTERNAL when it is shorter or
 * could shrink, RESOURCE_EXHAUSTED when there is no address space. fd stays the caller's.
 */
int stg_map_open(int fd, uint64_t bytes, enum stg_map_kind kind, const char *what,
                 struct stg_map *ret, struct stg_err *err);

/* Of a map of kind COPY_ON_WRITE: the pages on which [at, at + bytes) lies are shared
 * again; what was written there is gone. */
void stg_map_forget(const struct stg_map *map, const void *at, uint64_t bytes);

/* Faults in ahead of use what has memory, as far as the kernel likes to. A page without
 * memory stays so: to read it would allocate it. fd: what was mapped. */
void stg_map_populate(const struct stg_map *map, int fd);

void stg_map_close(struct stg_map *map);

#endif
