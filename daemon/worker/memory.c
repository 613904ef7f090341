/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/worker/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/worker/frame.h"

enum use { FREE, MADE, SENT };

struct slot {
    int fd; /* 0: no memory yet */
    char *base;
    uint64_t capacity;
    uint64_t counted_bytes; /* what `used_bytes` has of it */
    enum use use;
    bool is_known; /* stager-worker has it */
    uint64_t id;   /* of the answer, SENT */
    uint64_t turn; /* of its last use */
};

struct stg_worker_memory {
    uint64_t most_bytes;
    unsigned n_retained;
    pthread_mutex_t lock; /* guards what follows, but for the bytes of slots in use */
    uint64_t used_bytes;  /* reserved, in use, and retained */
    uint64_t n_turns;
    struct slot slots[STG_WORKER_SLOTS];
};

static void count(struct stg_worker_memory *memory, struct slot *slot, uint64_t bytes)
{
    memory->used_bytes += bytes - slot->counted_bytes;
    slot->counted_bytes = bytes;
}

/* Its pages. */
static uint64_t held_bytes(const struct slot *slot)
{
    struct stat st;
    return slot->fd > 0 && fstat(slot->fd, &st) == 0 ? (uint64_t)st.st_blocks * 512 : 0;
}

/* Both processes keep the mapping, which has no pages then. */
static void give_pages_back(struct stg_worker_memory *memory, struct slot *slot)
{
    if (slot->fd > 0)
        (void)fallocate(slot->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                        (off_t)slot->capacity);
    count(memory, slot, 0);
}

static void unmap(struct slot *slot)
{
    if (slot->base != NULL)
        munmap(slot->base, slot->capacity);
    if (slot->fd > 0)
        close(slot->fd);
    *slot = (struct slot){0};
}

static int map(struct slot *slot, uint64_t bytes, struct stg_err *err)
{
    int fd = memfd_create("stager-batches", MFD_CLOEXEC);
    char *base = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0)
        base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        int number = errno;
        if (fd >= 0)
            close(fd);
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "no memory for batches: %s",
                       strerror(number));
    }
    *slot = (struct slot){.fd = fd, .base = base, .capacity = bytes};
    return 0;
}

/* ---- which slot ---- */

/* The free slot that was used last, of all or of those with so many bytes; of all without
 * pages for `oldest` the first one. NULL: there is none. */
static struct slot *find(struct stg_worker_memory *memory, uint64_t capacity)
{
    struct slot *best = NULL;
    for (size_t i = 0; i < STG_WORKER_SLOTS; i++) {
        struct slot *slot = &memory->slots[i];
        if (slot->use == FREE && slot->capacity == capacity &&
            (best == NULL || slot->turn > best->turn))
            best = slot;
    }
    return best;
}

/* The free slot whose last use is longest ago; has_pages: of those that keep pages. */
static struct slot *find_oldest(struct stg_worker_memory *memory, bool has_pages)
{
    struct slot *best = NULL;
    for (size_t i = 0; i < STG_WORKER_SLOTS; i++) {
        struct slot *slot = &memory->slots[i];
        if (slot->use == FREE && (!has_pages || slot->counted_bytes > 0) &&
            (best == NULL || slot->turn < best->turn))
            best = slot;
    }
    return best;
}

static unsigned count_retained(const struct stg_worker_memory *memory)
{
    unsigned n = 0;
    for (size_t i = 0; i < STG_WORKER_SLOTS; i++)
        n += memory->slots[i].use == FREE && memory->slots[i].counted_bytes > 0;
    return n;
}

/* The lock is held. */
static void set_free(struct stg_worker_memory *memory, struct slot *slot)
{
    slot->use = FREE;
    slot->turn = ++memory->n_turns;
    count(memory, slot, held_bytes(slot));
    if (count_retained(memory) > memory->n_retained)
        give_pages_back(memory, find_oldest(memory, true));
}

/* ---- requests ---- */

bool stg_worker_memory_reserve(struct stg_worker_memory *memory, uint64_t bytes)
{
    struct slot *slot;
    pthread_mutex_lock(&memory->lock);
    while (bytes > memory->most_bytes - memory->used_bytes &&
           (slot = find_oldest(memory, true)) != NULL)
        give_pages_back(memory, slot);
    bool fits = bytes <= memory->most_bytes - memory->used_bytes;
    memory->used_bytes += fits ? bytes : 0;
    pthread_mutex_unlock(&memory->lock);
    return fits;
}

int stg_worker_memory_take(struct stg_worker_memory *memory, uint64_t bytes,
                           uint32_t *ret, struct stg_err *err)
{
    int rc = 0;
    pthread_mutex_lock(&memory->lock);
    memory->used_bytes -= bytes;
    struct slot *slot = find(memory, bytes);
    if (slot == NULL) {
        slot = find_oldest(memory, false);
        if (slot == NULL)
            rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "too many answers at once");
        else
            give_pages_back(memory, slot);
        if (rc == 0)
            unmap(slot);
        if (rc == 0)
            rc = map(slot, bytes, err);
    }
    if (rc == 0) {
        slot->use = MADE;
        count(memory, slot, bytes);
        *ret = (uint32_t)(slot - memory->slots);
    }
    pthread_mutex_unlock(&memory->lock);
    return rc;
}

char *stg_worker_memory_base(struct stg_worker_memory *memory, uint32_t slot)
{
    return memory->slots[slot].base;
}

int stg_worker_memory_send(struct stg_worker_memory *memory, uint32_t i, uint64_t id)
{
    struct slot *slot = &memory->slots[i];
    pthread_mutex_lock(&memory->lock);
    int fd = slot->is_known ? -1 : slot->fd;
    slot->use = SENT;
    slot->id = id;
    slot->is_known = true;
    count(memory, slot, held_bytes(slot));
    pthread_mutex_unlock(&memory->lock);
    return fd;
}

void stg_worker_memory_done(struct stg_worker_memory *memory, uint64_t id)
{
    pthread_mutex_lock(&memory->lock);
    for (size_t i = 0; i < STG_WORKER_SLOTS; i++) {
        if (memory->slots[i].use == SENT && memory->slots[i].id == id)
            set_free(memory, &memory->slots[i]);
    }
    pthread_mutex_unlock(&memory->lock);
}

void stg_worker_memory_drop(struct stg_worker_memory *memory, uint32_t slot)
{
    pthread_mutex_lock(&memory->lock);
    set_free(memory, &memory->slots[slot]);
    pthread_mutex_unlock(&memory->lock);
}

void stg_worker_memory_restart(struct stg_worker_memory *memory)
{
    pthread_mutex_lock(&memory->lock);
    for (size_t i = 0; i < STG_WORKER_SLOTS; i++) {
        memory->slots[i].is_known = false;
        if (memory->slots[i].use == SENT)
            set_free(memory, &memory->slots[i]);
    }
    pthread_mutex_unlock(&memory->lock);
}

/* ---- life ---- */

int stg_worker_memory_create(uint64_t most_bytes, unsigned n_retained,
                             struct stg_worker_memory **ret, struct stg_err *err)
{
    struct stg_worker_memory *memory = calloc(1, sizeof(*memory));
    if (memory == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    memory->most_bytes = most_bytes;
    memory->n_retained = n_retained;
    pthread_mutex_init(&memory->lock, NULL);
    *ret = memory;
    return 0;
}

void stg_worker_memory_destroy(struct stg_worker_memory *memory)
{
    if (memory == NULL)
        return;
    for (size_t i = 0; i < STG_WORKER_SLOTS; i++)
        unmap(&memory->slots[i]);
    pthread_mutex_destroy(&memory->lock);
    free(memory);
}
