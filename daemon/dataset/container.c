/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/container.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "daemon/dataset/block.h"

struct entry {
    struct stg_shared shared;
    struct stg_container *container;
    struct entry *next;
    struct stg_content content; /* of a cache */
    uint64_t bytes;             /* counted on the daemon's memory */
    uint64_t used;              /* when last, in events */
    unsigned refs;
};

struct stg_container {
    struct stg_containers *containers;
    struct stg_container *next;
    struct entry *entries;
    unsigned refs;
    char name[];
};

struct stg_containers {
    struct stg_container_memory memory;
    struct stg_quota *quota; /* of blocks in containers; no limit */
    uint64_t key[2];
    pthread_mutex_t lock; /* guards all below, containers and entries; nothing that
                             counts memory is called under it */
    struct stg_container *first;
    uint64_t clock;
};

static bool is_table(const struct entry *entry)
{
    return entry->shared.table.data != NULL;
}

static void entry_free(struct entry *entry)
{
    if (entry == NULL)
        return;
    const struct stg_container_memory *memory = &entry->container->containers->memory;
    for (size_t i = 0; i < entry->shared.n_blocks; i++)
        stg_block_unref(entry->shared.blocks[i]);
    free(entry->shared.blocks);
    free(entry->shared.table.data);
    memory->give(memory->owner, entry->bytes);
    free(entry);
}

/* The lock is held. */
static void take_out(struct entry *entry)
{
    struct entry **at = &entry->container->entries;
    while (*at != entry)
        at = &(*at)->next;
    *at = entry->next;
}

static struct entry *use(struct entry *entry)
{
    entry->refs++;
    entry->used = ++entry->container->containers->clock;
    return entry;
}

void stg_shared_unref(struct stg_shared *shared)
{
    if (shared == NULL)
        return;
    struct entry *entry = (struct entry *)shared;
    struct stg_containers *containers = entry->container->containers;
    pthread_mutex_lock(&containers->lock);
    entry->used = ++containers->clock;
    /* What is cached waits for the next one; a table is read with its file anyway. */
    bool goes = --entry->refs == 0 && is_table(entry);
    if (goes)
        take_out(entry);
    pthread_mutex_unlock(&containers->lock);
    if (goes)
        entry_free(entry);
}

/* ---- containers ---- */

int stg_containers_create(const struct stg_container_memory *memory,
                          struct stg_containers **ret, struct stg_err *err)
{
    struct stg_containers *containers = calloc(1, sizeof(*containers));
    if (containers == NULL || stg_quota_create(0, &containers->quota) < 0) {
        free(containers);
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    }
    if (getrandom(containers->key, sizeof(containers->key), 0) !=
        (ssize_t)sizeof(containers->key)) {
        stg_quota_unref(containers->quota);
        free(containers);
        return stg_err(err, -STAGER_INTERNAL, "cannot get random numbers: %s",
                       strerror(errno));
    }
    containers->memory = *memory;
    pthread_mutex_init(&containers->lock, NULL);
    *ret = containers;
    return 0;
}

const uint64_t *stg_container_key(const struct stg_container *container)
{
    return container->containers->key;
}

void stg_containers_destroy(struct stg_containers *containers)
{
    if (containers == NULL)
        return;
    assert(containers->first == NULL);
    stg_quota_unref(containers->quota);
    pthread_mutex_destroy(&containers->lock);
    free(containers);
}

/* Takes the entry that was unused for longest out of its container, or NULL. */
static struct entry *take_oldest(struct stg_containers *containers)
{
    struct entry *oldest = NULL;
    pthread_mutex_lock(&containers->lock);
    for (struct stg_container *c = containers->first; c != NULL; c = c->next) {
        for (struct entry *entry = c->entries; entry != NULL; entry = entry->next) {
            if (entry->refs == 0 && (oldest == NULL || entry->used < oldest->used))
                oldest = entry;
        }
    }
    if (oldest != NULL) {
        take_out(oldest);
        oldest->container->refs++; /* until it is freed */
    }
    pthread_mutex_unlock(&containers->lock);
    return oldest;
}

void stg_containers_reclaim(struct stg_containers *containers, uint64_t bytes)
{
    struct entry *entry;
    uint64_t got = 0;
    while (got < bytes && (entry = take_oldest(containers)) != NULL) {
        struct stg_container *container = entry->container;
        got += entry->bytes;
        entry_free(entry);
        stg_container_leave(container);
    }
}

int stg_container_join(struct stg_containers *containers, const char *name,
                       struct stg_container **ret, struct stg_err *err)
{
    pthread_mutex_lock(&containers->lock);
    struct stg_container *c = containers->first;
    while (c != NULL && strcmp(c->name, name) != 0)
        c = c->next;
    if (c == NULL && (c = calloc(1, sizeof(*c) + strlen(name) + 1)) != NULL) {
        strcpy(c->name, name);
        c->containers = containers;
        c->next = containers->first;
        containers->first = c;
    }
    if (c != NULL)
        c->refs++;
    pthread_mutex_unlock(&containers->lock);
    if (c == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    *ret = c;
    return 0;
}

void stg_container_leave(struct stg_container *container)
{
    if (container == NULL)
        return;
    struct stg_containers *containers = container->containers;
    pthread_mutex_lock(&containers->lock);
    bool goes = --container->refs == 0;
    if (goes) {
        struct stg_container **at = &containers->first;
        while (*at != container)
            at = &(*at)->next;
        *at = container->next;
    }
    pthread_mutex_unlock(&containers->lock);
    while (goes && container->entries != NULL) {
        struct entry *entry = container->entries;
        assert(entry->refs == 0);
        container->entries = entry->next;
        entry_free(entry);
    }
    if (goes)
        free(container);
}

void stg_container_usage(struct stg_container *container, struct stg_container_usage *ret)
{
    *ret = (struct stg_container_usage){0};
    pthread_mutex_lock(&container->containers->lock);
    for (struct entry *entry = container->entries; entry != NULL; entry = entry->next) {
        ret->n_tables += is_table(entry);
        ret->n_caches += !is_table(entry);
        ret->bytes += entry->bytes;
    }
    pthread_mutex_unlock(&container->containers->lock);
}

/* ---- entries ---- */

/* An entry that is counted and not yet in the container. */
static int entry_create(struct stg_container *container, uint64_t bytes,
                        struct entry **ret, struct stg_err *err)
{
    const struct stg_container_memory *memory = &container->containers->memory;
    struct entry *entry = calloc(1, sizeof(*entry));
    if (entry == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    char what[96];
    snprintf(what, sizeof(what), "container %s", container->name);
    int rc = memory->take(memory->owner, bytes, what, err);
    if (rc < 0) {
        free(entry);
        return rc;
    }
    entry->container = container;
    entry->bytes = bytes;
    *ret = entry;
    return 0;
}

/* `there`, or the entry, which is put in where there is none: used once more. The lock is
 * held. */
static struct entry *use_or_put_in(struct entry *there, struct entry *entry)
{
    if (there == NULL) {
        entry->next = entry->container->entries;
        entry->container->entries = entry;
        there = entry;
    }
    use(there);
    return there;
}

/* The lock is held. */
static struct entry *find_table(struct stg_container *container,
                                const struct stg_tensor *table)
{
    struct entry *entry = container->entries;
    while (entry != NULL &&
           (!is_table(entry) || entry->shared.table.data_bytes != table->data_bytes ||
            memcmp(entry->shared.table.data, table->data, table->data_bytes) != 0))
        entry = entry->next;
    return entry;
}

int stg_container_share_table(struct stg_container *container, struct stg_tensor *table,
                              struct stg_shared **ret, struct stg_err *err)
{
    struct entry *entry;
    int rc = entry_create(container, table->data_bytes, &entry, err);
    if (rc < 0)
        return rc;
    entry->shared.table = *table;
    pthread_mutex_lock(&container->containers->lock);
    struct entry *there = use_or_put_in(find_table(container, table), entry);
    pthread_mutex_unlock(&container->containers->lock);
    if (there != entry)
        entry_free(entry);
    *table = there->shared.table;
    *ret = &there->shared;
    return 0;
}

/* The lock is held. */
static struct entry *find_cache(struct stg_container *container,
                                const struct stg_content *content)
{
    struct entry *entry = container->entries;
    while (entry != NULL && (is_table(entry) || entry->content.steps != content->steps ||
                             entry->content.files != content->files))
        entry = entry->next;
    return entry;
}

struct stg_shared *stg_container_find(struct stg_container *container,
                                      const struct stg_content *content)
{
    pthread_mutex_lock(&container->containers->lock);
    struct entry *entry = find_cache(container, content);
    if (entry != NULL)
        use(entry);
    pthread_mutex_unlock(&container->containers->lock);
    return entry != NULL ? &entry->shared : NULL;
}

static void fill(struct entry *entry, struct stg_block *const *blocks, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        entry->shared.blocks[i] = blocks[i];
        stg_block_move(blocks[i], entry->container->containers->quota);
    }
    entry->shared.n_blocks = n;
}

int stg_container_keep(struct stg_container *container, const struct stg_content *content,
                       struct stg_block *const *blocks, size_t n, struct stg_shared **ret,
                       struct stg_err *err)
{
    uint64_t bytes = n * sizeof(blocks[0]);
    for (size_t i = 0; i < n; i++)
        bytes += blocks[i]->bytes;
    struct entry *entry;
    int rc = entry_create(container, bytes, &entry, err);
    if (rc < 0)
        return rc;
    entry->content = *content;
    entry->shared.blocks = calloc(n + 1, sizeof(blocks[0]));
    if (entry->shared.blocks == NULL) {
        entry_free(entry);
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    }
    pthread_mutex_lock(&container->containers->lock);
    struct entry *there = find_cache(container, content);
    if (there == NULL)
        fill(entry, blocks, n);
    there = use_or_put_in(there, entry);
    pthread_mutex_unlock(&container->containers->lock);
    if (there != entry)
        entry_free(entry);
    *ret = &there->shared;
    return there == entry;
}
