/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/storage/ahead.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "ops/kernels/csv/csv.h"

#define MAX_READS 32u
#define MIN_WINDOW 8u
#define WINDOW_TURNS 4u /* as many turns' reads are planned */

enum state { FREE, PLANNED, RUNNING, DONE };

struct slot {
    struct stg_read read;
    enum state state;
};

#define FIRST_BYTES ((uint64_t)256 << 10) /* asked for when a file is opened */

struct open_slot {
    const char *url;
    const struct stg_file_user *identity;
    struct stg_source *source; /* once done; NULL: it failed */
    enum state state;
};

/* Slots first … first + n, modulo MAX_READS, are not FREE. */
struct stg_ahead {
    _Atomic uint32_t refs;
    pthread_mutex_t lock; /* guards states; what is in a slot belongs to its runner, then
                             to the reader */
    pthread_cond_t done;
    struct slot slots[MAX_READS];
    struct open_slot opens[STG_AHEAD_OPENS]; /* first_open … as the slots */
    unsigned first, n; /* the reader's; the lock is held to change them, and these */
    unsigned first_open, n_opens;
    unsigned window, n_taken; /* the reader's */
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
    ahead->window = MIN_WINDOW;
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
    assert(ahead->n == 0 && ahead->n_opens == 0);
    for (unsigned i = 0; i < MAX_READS; i++)
        free(ahead->slots[i].read.lines.at);
    pthread_cond_destroy(&ahead->done);
    pthread_mutex_destroy(&ahead->lock);
    free(ahead);
}

static void run(struct stg_read *read)
{
    char *to = read->chunk->data + read->at;
    read->n = stg_source_read(read->source, read->offset, to, read->bytes, &read->err);
    read->lines.n = read->lines.seen = 0;
    read->lines.origin = read->at;
    if (read->n > 0)
        read->lines.n = stg_csv_kernels()->newlines(to, (size_t)read->n, read->lines.at,
                                                    STG_AHEAD_LINES, &read->lines.seen);
}

/* Claims a slot, runs it with the lock released, and signals. The lock is held. */
static void run_slot(struct stg_ahead *ahead, struct slot *slot)
{
    slot->state = RUNNING;
    pthread_mutex_unlock(&ahead->lock);
    run(&slot->read);
    pthread_mutex_lock(&ahead->lock);
    slot->state = DONE;
    pthread_cond_broadcast(&ahead->done);
}

static struct stg_source *open_source(const char *url,
                                      const struct stg_file_user *identity)
{
    const struct stg_storage *storage;
    const char *path;
    struct stg_source *source;
    if (stg_storage_find(url, &storage, &path, NULL) < 0 ||
        storage->open(path, identity, &source, NULL) < 0)
        return NULL;
    if (storage->will_need != NULL && !identity->in_places)
        storage->will_need(source, 0, FIRST_BYTES);
    return source;
}

/* As run_slot. */
static void run_open(struct stg_ahead *ahead, struct open_slot *slot)
{
    slot->state = RUNNING;
    pthread_mutex_unlock(&ahead->lock);
    slot->source = open_source(slot->url, slot->identity);
    pthread_mutex_lock(&ahead->lock);
    slot->state = DONE;
    pthread_cond_broadcast(&ahead->done);
}

/* The lock is held. */
static bool work_open(struct stg_ahead *ahead)
{
    for (unsigned i = 0; i < ahead->n_opens; i++) {
        struct open_slot *slot = &ahead->opens[(ahead->first_open + i) % STG_AHEAD_OPENS];
        if (slot->state != PLANNED)
            continue;
        run_open(ahead, slot);
        return true;
    }
    return false;
}

static bool work_read(struct stg_ahead *ahead)
{
    for (unsigned i = 0; i < ahead->n; i++) {
        struct slot *slot = &ahead->slots[(ahead->first + i) % MAX_READS];
        if (slot->state != PLANNED)
            continue;
        run_slot(ahead, slot);
        return true;
    }
    return false;
}

bool stg_ahead_work(struct stg_ahead *ahead)
{
    pthread_mutex_lock(&ahead->lock);
    bool found = work_open(ahead) || work_read(ahead);
    pthread_mutex_unlock(&ahead->lock);
    return found;
}

bool stg_ahead_is_full(const struct stg_ahead *ahead)
{
    return ahead->n >= ahead->window;
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
    ahead->n_taken++;
}

unsigned stg_ahead_turn(struct stg_ahead *ahead)
{
    unsigned n = ahead->n_taken, window = WINDOW_TURNS * n;
    ahead->n_taken = 0;
    if (window > ahead->window)
        ahead->window = window < MAX_READS ? window : MAX_READS;
    return n;
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

/* ---- files ---- */

void stg_ahead_plan_open(struct stg_ahead *ahead, const char *url,
                         const struct stg_file_user *identity)
{
    assert(ahead->n_opens < STG_AHEAD_OPENS);
    pthread_mutex_lock(&ahead->lock);
    ahead->opens[(ahead->first_open + ahead->n_opens++) % STG_AHEAD_OPENS] =
        (struct open_slot){.url = url, .identity = identity, .state = PLANNED};
    pthread_mutex_unlock(&ahead->lock);
}

struct stg_source *stg_ahead_take_open(struct stg_ahead *ahead)
{
    assert(ahead->n_opens > 0);
    struct open_slot *slot = &ahead->opens[ahead->first_open];
    pthread_mutex_lock(&ahead->lock);
    while (slot->state == RUNNING)
        pthread_cond_wait(&ahead->done, &ahead->lock);
    struct stg_source *source = slot->source;
    *slot = (struct open_slot){.state = FREE};
    ahead->first_open = (ahead->first_open + 1) % STG_AHEAD_OPENS;
    ahead->n_opens--;
    pthread_mutex_unlock(&ahead->lock);
    return source;
}

void stg_ahead_cancel_opens(struct stg_ahead *ahead)
{
    while (ahead->n_opens > 0) {
        struct stg_source *source = stg_ahead_take_open(ahead);
        if (source != NULL)
            source->storage->close(source);
    }
}
