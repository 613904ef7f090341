/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/storage/chunk.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

#define ALIGN 64u
#define HUGE_BYTES (2u << 20)
#define MAX_FREE 4u                /* chunks kept for reuse; they stay counted */
#define MAX_FREE_BYTES (16u << 20) /* a larger one is not kept */

struct stg_quota {
    _Atomic uint32_t refs;
    uint64_t limit;
    pthread_mutex_t lock; /* guards used, free_chunks, n_free */
    uint64_t used;
    struct stg_chunk *free_chunks;
    unsigned n_free;
};

int stg_quota_create(uint64_t limit_bytes, struct stg_quota **ret)
{
    struct stg_quota *quota = calloc(1, sizeof(*quota));
    if (quota == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    atomic_store_explicit(&quota->refs, 1, memory_order_relaxed);
    quota->limit = limit_bytes != 0 ? limit_bytes : UINT64_MAX;
    pthread_mutex_init(&quota->lock, NULL);
    *ret = quota;
    return 0;
}

struct stg_quota *stg_quota_ref(struct stg_quota *quota)
{
    atomic_fetch_add_explicit(&quota->refs, 1, memory_order_relaxed);
    return quota;
}

static void chunk_free(struct stg_chunk *chunk)
{
    free(chunk->data);
    free(chunk);
}

/* Gives every free chunk back to malloc. The lock is held. */
static void drop_free_chunks(struct stg_quota *quota)
{
    while (quota->free_chunks != NULL) {
        struct stg_chunk *chunk = quota->free_chunks;
        quota->free_chunks = chunk->next;
        quota->used -= chunk->capacity;
        chunk_free(chunk);
    }
    quota->n_free = 0;
}

void stg_quota_unref(struct stg_quota *quota)
{
    if (quota == NULL ||
        atomic_fetch_sub_explicit(&quota->refs, 1, memory_order_acq_rel) != 1)
        return;
    drop_free_chunks(quota);
    assert(quota->used == 0);
    pthread_mutex_destroy(&quota->lock);
    free(quota);
}

/* The lock is held. */
static int take_locked(struct stg_quota *quota, uint64_t bytes)
{
    if (bytes > quota->limit - quota->used)
        drop_free_chunks(quota);
    if (bytes > quota->limit - quota->used)
        return -STAGER_RESOURCE_EXHAUSTED;
    quota->used += bytes;
    return 0;
}

static int refuse(struct stg_quota *quota, uint64_t bytes, const char *what,
                  struct stg_err *err)
{
    return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                   "%s needs %" PRIu64 " bytes; the dataset holds %" PRIu64
                   " of the %" PRIu64
                   " bytes that its buffers may take: raise staged.memory_budget",
                   what, bytes, stg_quota_used(quota), quota->limit);
}

int stg_quota_take(struct stg_quota *quota, uint64_t bytes, const char *what,
                   struct stg_err *err)
{
    pthread_mutex_lock(&quota->lock);
    int rc = take_locked(quota, bytes);
    pthread_mutex_unlock(&quota->lock);
    return rc < 0 ? refuse(quota, bytes, what, err) : 0;
}

void stg_quota_give(struct stg_quota *quota, uint64_t bytes)
{
    pthread_mutex_lock(&quota->lock);
    assert(quota->used >= bytes);
    quota->used -= bytes;
    pthread_mutex_unlock(&quota->lock);
}

uint64_t stg_quota_used(const struct stg_quota *quota)
{
    struct stg_quota *m = (struct stg_quota *)quota;
    pthread_mutex_lock(&m->lock);
    uint64_t used = m->used;
    pthread_mutex_unlock(&m->lock);
    return used;
}

uint64_t stg_quota_limit(const struct stg_quota *quota)
{
    return quota->limit;
}

/* A free chunk of that capacity, or NULL. The lock is held. */
static struct stg_chunk *reuse(struct stg_quota *quota, uint64_t capacity)
{
    for (struct stg_chunk **at = &quota->free_chunks; *at != NULL; at = &(*at)->next) {
        struct stg_chunk *chunk = *at;
        if (chunk->capacity != capacity)
            continue;
        *at = chunk->next;
        quota->n_free--;
        return chunk;
    }
    return NULL;
}

static struct stg_chunk *chunk_new(uint64_t capacity)
{
    struct stg_chunk *chunk = calloc(1, sizeof(*chunk));
    if (chunk == NULL)
        return NULL;
    bool huge = capacity % HUGE_BYTES == 0;
    chunk->capacity = capacity;
    chunk->data = aligned_alloc(huge ? HUGE_BYTES : ALIGN, capacity);
    if (chunk->data == NULL) {
        free(chunk);
        return NULL;
    }
    /* An eighth of the time that its first bytes take; where there are none, no harm. */
    if (huge)
        madvise(chunk->data, capacity, MADV_HUGEPAGE);
    return chunk;
}

int stg_chunk_create(struct stg_quota *quota, uint64_t capacity, const char *what,
                     struct stg_chunk **ret, struct stg_err *err)
{
    if (capacity > UINT64_MAX / 2)
        return refuse(quota, capacity, what, err);
    capacity = (capacity + ALIGN - 1) & ~(uint64_t)(ALIGN - 1);
    if (capacity == 0)
        capacity = ALIGN;
    pthread_mutex_lock(&quota->lock);
    struct stg_chunk *chunk = reuse(quota, capacity);
    int rc = chunk == NULL ? take_locked(quota, capacity) : 0;
    pthread_mutex_unlock(&quota->lock);
    if (rc < 0)
        return refuse(quota, capacity, what, err);
    if (chunk == NULL)
        chunk = chunk_new(capacity);
    if (chunk == NULL) {
        stg_quota_give(quota, capacity);
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                       "%s needs %" PRIu64 " bytes: the machine is out of memory", what,
                       capacity);
    }
    chunk->quota = stg_quota_ref(quota);
    chunk->next = NULL;
    atomic_store_explicit(&chunk->refs, 1, memory_order_relaxed);
    *ret = chunk;
    return 0;
}

struct stg_chunk *stg_chunk_ref(struct stg_chunk *chunk)
{
    atomic_fetch_add_explicit(&chunk->refs, 1, memory_order_relaxed);
    return chunk;
}

void stg_chunk_unref(struct stg_chunk *chunk)
{
    if (chunk == NULL ||
        atomic_fetch_sub_explicit(&chunk->refs, 1, memory_order_acq_rel) != 1)
        return;
    struct stg_quota *quota = chunk->quota;
    chunk->quota = NULL;
    pthread_mutex_lock(&quota->lock);
    bool keep = quota->n_free < MAX_FREE && chunk->capacity <= MAX_FREE_BYTES;
    if (keep) {
        chunk->next = quota->free_chunks;
        quota->free_chunks = chunk;
        quota->n_free++;
    } else {
        quota->used -= chunk->capacity;
    }
    pthread_mutex_unlock(&quota->lock);
    if (!keep)
        chunk_free(chunk);
    stg_quota_unref(quota);
}
