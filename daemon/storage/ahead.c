/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/storage/ahead.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "ops/csv.h"

#define MAX_READS 8u

enum state { FREE, PLANNED, RUNNING, DONE };

struct slot {
    struct stg_read read;
    enum state state;
};

/* Slots first … first + n, modulo MAX_READS, are not FREE. */
struct stg_ahead {
    _Atomic uint32_t refs;
    pthread_mutex_t lock; /* guards states; a slot's read belongs to who runs it, then to
                             the reader */
    pthread_cond_t done;
    struct slot slots[MAX_READS];
    unsigned first, n; /* the reader's; the lock is held to change them */
};

int stg_ahead_create(struct stg_ahead **ret)
{
    struct stg_ahead *ahead = calloc(1, sizeof(*ahead));
    if (ahead == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    atomic_store_explicit(&ahead->refs, 1, memory_order_relaxed);
    pthread_mutex_init(&ahead->lock, NULL);
    pthread_cond_init(&ahead->done, NULL);
    for (unsigned i = 0; i < MAX_READS; i++) {
        uint32_t *at = malloc(STG_AHEAD_LINES * sizeof(*at));
        if (at == NULL) {
            stg_ahead_unref(ahead);
            return -STAGER_RESOURCE_EXHAUSTED;
        }
        ahead->slots[i].read.lines.at = at;
    }
    *ret = ahead;
    return 0;
}

struct stg_ahead *stg_ahead_ref(struct stg_ahead *ahead)
{
    atomic_fetch_add_explicit(&ahead->refs, 1, memory_order_relaxed);
    return ahead;
}

void stg_ahead_unref(struct stg_ahead *ahead)
{
    if (ahead == NULL ||
        atomic_fetch_sub_explicit(&ahead->refs, 1, memory_order_acq_rel) != 1)
        return;
    assert(ahead->n == 0);
    for (unsigned i = 0; i < MAX_READS; i++)
        free(ahead->slots[i].read.lines.at);
    pthread_cond_destroy(&ahead->done);
    pthread_mutex_destroy(&ahead->lock);
    free(ahead);
}

static void run(struct stg_read *read)
{
    char *to = read->chunk->data + read->at;
    read->n = read->source->storage->read(read->source, read->offset, to, read->bytes,
                                          &read->err);
    read->lines.n = read->lines.seen = 0;
    read->lines.origin = read->at;
    if (read->n > 0)
        read->lines.n = stg_csv_kernels()->newlines(to, (size_t)read->n, read->lines.at,
                                                    STG_AHEAD_LINES, &read->lines.seen);
}

/* Claims a slot, runs it with the lock let go, and tells. The lock is held. */
static void run_slot(struct stg_ahead *ahead, struct slot *slot)
{
    slot->state = RUNNING;
    pthread_mutex_unlock(&ahead->lock);
    run(&slot->read);
    pthread_mutex_lock(&ahead->lock);
    slot->state = DONE;
    pthread_cond_broadcast(&ahead->done);
}

bool stg_ahead_work(struct stg_ahead *ahead)
{
    bool found = false;
    pthread_mutex_lock(&ahead->lock);
    for (unsigned i = 0; !found && i < ahead->n; i++) {
        struct slot *slot = &ahead->slots[(ahead->first + i) % MAX_READS];
        found = slot->state == PLANNED;
        if (found)
            run_slot(ahead, slot);
    }
    pthread_mutex_unlock(&ahead->lock);
    return found;
}

bool stg_ahead_is_full(const struct stg_ahead *ahead)
{
    return ahead->n == MAX_READS;
}

bool stg_ahead_is_empty(const struct stg_ahead *ahead)
{
    return ahead->n == 0;
}

void stg_ahead_plan(struct stg_ahead *ahead, struct stg_source *source, uint64_t offset,
                    struct stg_chunk *chunk, uint64_t at, uint64_t bytes)
{
    assert(ahead->n < MAX_READS);
    pthread_mutex_lock(&ahead->lock);
    struct slot *slot = &ahead->slots[(ahead->first + ahead->n++) % MAX_READS];
    slot->state = PLANNED;
    slot->read.source = source;
    slot->read.offset = offset;
    slot->read.chunk = stg_chunk_ref(chunk);
    slot->read.at = at;
    slot->read.bytes = bytes;
    pthread_mutex_unlock(&ahead->lock);
}

struct stg_read *stg_ahead_first(struct stg_ahead *ahead)
{
    assert(ahead->n > 0);
    struct slot *slot = &ahead->slots[ahead->first];
    pthread_mutex_lock(&ahead->lock);
    if (slot->state == PLANNED)
        run_slot(ahead, slot);
    while (slot->state != DONE)
        pthread_cond_wait(&ahead->done, &ahead->lock);
    pthread_mutex_unlock(&ahead->lock);
    return &slot->read;
}

/* The lock is held. */
static void free_first(struct stg_ahead *ahead)
{
    struct slot *slot = &ahead->slots[ahead->first];
    slot->state = FREE;
    stg_chunk_unref(slot->read.chunk);
    slot->read.chunk = NULL;
    ahead->first = (ahead->first + 1) % MAX_READS;
    ahead->n--;
}

void stg_ahead_drop(struct stg_ahead *ahead)
{
    assert(ahead->n > 0);
    pthread_mutex_lock(&ahead->lock);
    free_first(ahead);
    pthread_mutex_unlock(&ahead->lock);
}

void stg_ahead_cancel(struct stg_ahead *ahead)
{
    pthread_mutex_lock(&ahead->lock);
    for (unsigned i = 0; i < ahead->n; i++) {
        struct slot *slot = &ahead->slots[(ahead->first + i) % MAX_READS];
        if (slot->state == PLANNED)
            slot->state = DONE;
    }
    while (ahead->n > 0) {
        while (ahead->slots[ahead->first].state == RUNNING)
            pthread_cond_wait(&ahead->done, &ahead->lock);
        free_first(ahead);
    }
    pthread_mutex_unlock(&ahead->lock);
}
