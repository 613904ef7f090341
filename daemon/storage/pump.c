/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/storage/pump.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/host/fair.h"

#define N_PIECES 4u
#define PIECE_BYTES                                                                      \
    ((uint64_t)256 << 10) /* what was written is in the cache when read                  \
                           */
#define MEMORY_SHARE 64   /* of the quota, at most */

/* Bytes [at, n) of it are to be delivered. */
struct piece {
    char *data;
    uint64_t at, n;
};

struct pump {
    struct stg_source source;
    struct stg_source *inner; /* the thread's, once there is one */
    struct stg_quota *quota;
    const char *path;
    uint64_t position; /* of the next byte that is delivered; the caller's */
    bool declined;     /* no thread; the caller's, as is */
    bool has_thread;
    pthread_t thread;
    struct stg_chunk *chunk; /* of all pieces */
    uint64_t read;           /* bytes that the thread read */
    pthread_mutex_t lock;    /* guards what follows; the data of a piece that is among the
                                n belong to the caller, of the others to the thread */
    pthread_cond_t changed;
    struct piece pieces[N_PIECES];
    unsigned first, n;
    bool quits;
    int ended; /* behind the pieces: 1 the end, negative: failure */
    bool spoiled;
    struct stg_err failure;
};

/* ---- the thread ---- */

/* The lock is held, and given back meanwhile. */
static void fill(struct pump *pump)
{
    struct piece *piece = &pump->pieces[(pump->first + pump->n) % N_PIECES];
    struct stg_err err = {0};
    pthread_mutex_unlock(&pump->lock);
    int64_t n = stg_source_read(pump->inner, pump->read, piece->data, PIECE_BYTES, &err);
    pthread_mutex_lock(&pump->lock);
    if (n <= 0) {
        pump->ended = n < 0 ? (int)n : 1;
        pump->failure = err;
        pump->spoiled = pump->inner->spoiled;
        return;
    }
    pump->read += (uint64_t)n;
    piece->at = 0;
    piece->n = (uint64_t)n;
    pump->n++;
}

static void *thread_main(void *owner)
{
    struct pump *pump = owner;
    pthread_mutex_lock(&pump->lock);
    while (!pump->quits && pump->ended == 0) {
        if (pump->n < N_PIECES)
            fill(pump);
        else
            pthread_cond_wait(&pump->changed, &pump->lock);
        pthread_cond_broadcast(&pump->changed);
    }
    pthread_mutex_unlock(&pump->lock);
    return NULL;
}

/* ---- the caller ---- */

/* A dataset that cannot spare the memory, or a machine the thread, goes without. */
static int start(struct pump *pump, struct stg_err *err)
{
    uint64_t bytes = N_PIECES * PIECE_BYTES;
    pump->declined = true;
    if (stg_quota_limit(pump->quota) / MEMORY_SHARE < bytes)
        return 0;
    int rc =
        stg_chunk_create(pump->quota, bytes, "decompressing ahead", &pump->chunk, err);
    if (rc < 0)
        return stg_err_prefix(err, rc, "%s", pump->path);
    for (unsigned i = 0; i < N_PIECES; i++)
        pump->pieces[i].data = pump->chunk->data + i * PIECE_BYTES;
    pump->read = pump->position;
    pump->has_thread = stg_fair_start(&pump->thread, NULL, thread_main, pump) == 0;
    pump->declined = !pump->has_thread;
    return 0;
}

/* The first piece, waiting for it; NULL: the end, or a failure. The lock is held. */
static struct piece *first_piece(struct pump *pump)
{
    while (pump->n == 0 && pump->ended == 0)
        pthread_cond_wait(&pump->changed, &pump->lock);
    return pump->n > 0 ? &pump->pieces[pump->first] : NULL;
}

/* Up to `bytes` of the first piece, to buf unless that is NULL. 0: the end; or what the
 * source said. */
static int64_t take(struct pump *pump, char *buf, uint64_t bytes, struct stg_err *err)
{
    pthread_mutex_lock(&pump->lock);
    struct piece *piece = first_piece(pump);
    int ended = pump->ended;
    pthread_mutex_unlock(&pump->lock);
    if (piece == NULL) {
        pump->source.spoiled = pump->spoiled;
        if (ended < 0 && err != NULL)
            *err = pump->failure;
        return ended < 0 ? ended : 0;
    }
    uint64_t n = piece->n - piece->at < bytes ? piece->n - piece->at : bytes;
    if (buf != NULL)
        memcpy(buf, piece->data + piece->at, n);
    piece->at += n;
    pump->position += n;
    if (piece->at == piece->n) {
        pthread_mutex_lock(&pump->lock);
        pump->first = (pump->first + 1) % N_PIECES;
        pump->n--;
        pthread_cond_broadcast(&pump->changed);
        pthread_mutex_unlock(&pump->lock);
    }
    return (int64_t)n;
}

static int64_t read_pieces(struct pump *pump, uint64_t offset, char *buf, size_t bytes,
                           struct stg_err *err)
{
    uint64_t done = 0;
    int64_t n = 1;
    while (n > 0 && pump->position < offset)
        n = take(pump, NULL, offset - pump->position, err);
    while (n > 0 && done < bytes) {
        n = take(pump, buf + done, bytes - done, err);
        done += n > 0 ? (uint64_t)n : 0;
    }
    return n < 0 && done == 0 ? n : (int64_t)done;
}

static int64_t read_through(struct pump *pump, uint64_t offset, void *buf, size_t bytes,
                            struct stg_err *err)
{
    int64_t n = stg_source_read(pump->inner, offset, buf, bytes, err);
    pump->source.spoiled = pump->inner->spoiled;
    pump->position = n > 0 ? offset + (uint64_t)n : pump->position;
    return n;
}

static int64_t pump_read(struct stg_source *source, uint64_t offset, void *buf,
                         size_t bytes, struct stg_err *err)
{
    struct pump *pump = (struct pump *)source;
    assert(offset >= pump->position);
    if (!pump->has_thread && !pump->declined && pump->position >= STG_PUMP_START_BYTES) {
        int rc = start(pump, err);
        if (rc < 0)
            return rc;
    }
    return pump->has_thread ? read_pieces(pump, offset, buf, bytes, err)
                            : read_through(pump, offset, buf, bytes, err);
}

static int pump_size(struct stg_source *source, uint64_t *ret, struct stg_err *err)
{
    struct pump *pump = (struct pump *)source;
    return pump->inner->storage->size(pump->inner, ret, err);
}

static void pump_close(struct stg_source *source)
{
    struct pump *pump = (struct pump *)source;
    if (pump == NULL)
        return;
    pthread_mutex_lock(&pump->lock);
    pump->quits = true;
    pthread_cond_broadcast(&pump->changed);
    pthread_mutex_unlock(&pump->lock);
    if (pump->has_thread)
        pthread_join(pump->thread, NULL);
    pump->inner->storage->close(pump->inner);
    stg_chunk_unref(pump->chunk);
    pthread_cond_destroy(&pump->changed);
    pthread_mutex_destroy(&pump->lock);
    free(pump);
}

static const struct stg_storage pump_storage = {
    .scheme = "pump", .read = pump_read, .size = pump_size, .close = pump_close};

int stg_pump_open(struct stg_quota *quota, const char *path, struct stg_source **source,
                  struct stg_err *err)
{
    struct pump *pump = calloc(1, sizeof(*pump));
    if (pump == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "%s: out of memory", path);
    pump->source.storage = &pump_storage;
    pump->inner = *source;
    pump->quota = quota;
    pump->path = path;
    pthread_mutex_init(&pump->lock, NULL);
    pthread_cond_init(&pump->changed, NULL);
    *source = &pump->source;
    return 0;
}
