/* SPDX-License-Identifier: Apache-2.0
 *
 * Containers: pipelines that write `container: NAME` share content, which is held once
 * and counted once in the daemon's memory. Two kinds of content are shared: vocabulary
 * tables with the same bytes, and the in-memory data of `cache` steps of the same
 * content. A container lives while a pipeline that names it is applied or runs. Cached
 * data stays in it, so that a later pass, or another pipeline, reads no files. Unused
 * content is dropped when its memory is needed. Any thread.
 */
#ifndef STG_DAEMON_CONTAINER_H
#define STG_DAEMON_CONTAINER_H

#include "daemon/dataset/dataset.h"

/* The account for the memory of containers. take returns 0, or RESOURCE_EXHAUSTED with
 * advice. */
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
/* Destroys all containers; every user must have left. NULL is allowed. */
void stg_containers_destroy(struct stg_containers *containers);

/* Drops unused content, least recently used first, until that many bytes are free or
 * nothing is left to drop. */
void stg_containers_reclaim(struct stg_containers *containers, uint64_t bytes);

/* Returns the container of that name, and creates it if needed. The caller calls
 * stg_container_leave. */
int stg_container_join(struct stg_containers *containers, const char *name,
                       struct stg_container **ret, struct stg_err *err);
void stg_container_leave(struct stg_container *container); /* NULL is allowed */

struct stg_container_usage {
    uint32_t n_tables, n_caches;
    uint64_t bytes;
};
void stg_container_usage(struct stg_container *container,
                         struct stg_container_usage *ret);

/* ---- content ---- */

/* A table, or the blocks of a cache; immutable. Reference counted. */
struct stg_shared {
    struct stg_tensor table;
    struct stg_block **blocks;
    size_t n_blocks;
};
void stg_shared_unref(struct stg_shared *shared); /* NULL is allowed; before leaving */

/* Adds the table, whose data is malloc'ed, to the container. If the container has a table
 * with the same bytes, *table becomes that one. On success the container owns the data.
 */
int stg_container_share_table(struct stg_container *container, struct stg_tensor *table,
                              struct stg_shared **ret, struct stg_err *err);

/* Identifies the elements that an iterator yields. The sums use the secret key of the
 * daemon's containers, so that a user cannot construct steps and files that collide with
 * another user's. */
struct stg_content {
    uint64_t steps; /* and the vocabularies of their graphs */
    uint64_t files; /* names, places, sizes and times, in order */
};

/* Returns the key: two numbers, random in each run of the daemon. */
const uint64_t *stg_container_key(const struct stg_container *container);

/* Returns the cached blocks of that content, or NULL. */
struct stg_shared *stg_container_find(struct stg_container *container,
                                      const struct stg_content *content);

/* Adds n blocks, which own their memory and include no error block, as that content. On
 * success returns 0 or 1. 1: the container took over the caller's references, and the
 * blocks are no longer counted on the quota of their maker. 0: the content exists
 * already; *ret is the existing one, and the caller keeps the blocks. RESOURCE_EXHAUSTED:
 * nothing has changed. */
int stg_container_keep(struct stg_container *container, const struct stg_content *content,
                       struct stg_block *const *blocks, size_t n, struct stg_shared **ret,
                       struct stg_err *err);

#endif
