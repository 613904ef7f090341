/* SPDX-License-Identifier: Apache-2.0
 *
 * Containers: what pipelines that write `container: NAME` have in common is held once,
 * and counted once on the daemon's memory. Two things are: the tables of vocabularies
 * with the same bytes in them, and what steps `cache` of the same content keep in memory.
 * A container lives as long as a pipeline that names it is applied or runs, and what was
 * cached stays in it: a later pass, or another pipeline, reads nothing. Unused
 * content is dropped when its memory is needed. Any thread.
 */
#ifndef STG_DAEMON_CONTAINER_H
#define STG_DAEMON_CONTAINER_H

#include "daemon/dataset/dataset.h"

/* What their memory is counted on. take: 0, or RESOURCE_EXHAUSTED with what to do. */
struct stg_container_memory {
    void *owner;
    int (*take)(void *owner, uint64_t bytes, const char *what, struct stg_err *err);
    void (*give)(void *owner, uint64_t bytes);
};

struct stg_containers; /* of one daemon */
struct stg_container;

/* RESOURCE_EXHAUSTED. */
int stg_containers_create(const struct stg_container_memory *memory,
                          struct stg_containers **ret, struct stg_err *err);
/* All users have left. NULL is allowed. */
void stg_containers_destroy(struct stg_containers *containers);

/* Drops unused content, the longest unused first, until so many bytes were given back
 * or nothing is left to drop. */
void stg_containers_reclaim(struct stg_containers *containers, uint64_t bytes);

/* The container of that name; made if it is not there. The caller leaves it. */
int stg_container_join(struct stg_containers *containers, const char *name,
                       struct stg_container **ret, struct stg_err *err);
struct stg_container *stg_container_ref(struct stg_container *container);
void stg_container_leave(struct stg_container *container); /* NULL is allowed */

struct stg_container_usage {
    uint32_t n_tables, n_caches;
    uint64_t bytes;
};
void stg_container_usage(struct stg_container *container,
                         struct stg_container_usage *ret);

/* ---- what is in it ---- */

/* A table, or what a cache holds; immutable. Counted references. */
struct stg_shared {
    struct stg_tensor table;
    struct stg_block **blocks;
    size_t n_blocks;
};
void stg_shared_unref(struct stg_shared *shared); /* NULL is allowed; before leaving */

/* Puts the table, whose data is from malloc, into the container, or finds the one there
 * with the same bytes: *table is that one then. On success the data are the container's.
 */
int stg_container_share_table(struct stg_container *container, struct stg_tensor *table,
                              struct stg_shared **ret, struct stg_err *err);

/* What elements follow from. Sums by the key of the daemon's containers: a user cannot
 * write steps and files that look like another's. */
struct stg_content {
    uint64_t steps; /* and the vocabularies of their graphs */
    uint64_t files; /* names, places, sizes and times, in order */
};

/* Two numbers, random in each run of the daemon. */
const uint64_t *stg_container_key(const struct stg_container *container);

/* What a cache keeps of that content, or NULL. */
struct stg_shared *stg_container_find(struct stg_container *container,
                                      const struct stg_content *content);

/* Keeps n blocks in memory of their own, without an error among them; on success they are
 * no longer counted on the quota of their maker. If the content is there by now, that
 * is *ret, and the blocks stay the caller's; else the caller's references are the
 * container's. 1: that is so. RESOURCE_EXHAUSTED: nothing has changed. */
int stg_container_keep(struct stg_container *container, const struct stg_content *content,
                       struct stg_block *const *blocks, size_t n, struct stg_shared **ret,
                       struct stg_err *err);

#endif
