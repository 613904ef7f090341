/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/host/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/cgroup.h"
#include "daemon/host/share.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define MIB (1024ull * 1024ull)
#define LOOK_BYTES MIB         /* below this, available memory is not checked */
#define NAMED_HOLDERS 4        /* in the text of a refusal */
#define CHUNK_BYTES (64 * MIB) /* between two checks of `cancelled` */

struct stg_budget_holder {
    struct stg_budget_holder *next;
    uint64_t bytes;
    char name[];
};

static uint64_t mem_available(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    if (file == NULL)
        return UINT64_MAX;
    char line[256];
    uint64_t kib = UINT64_MAX / 1024;
    while (fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1)
            break;
    }
    fclose(file);
    return kib * 1024;
}

static void take_lesser_room(void *owner, const char *folder, bool is_v1)
{
    uint64_t *least = owner, max, current;
    if (stg_cgroup_numbers(folder, is_v1 ? "memory.limit_in_bytes" : "memory.max", &max,
                           1) == 0 ||
        stg_cgroup_numbers(folder, is_v1 ? "memory.usage_in_bytes" : "memory.current",
                           &current, 1) == 0)
        return;
    uint64_t room = max > current ? max - current : 0;
    *least = room < *least ? room : *least;
}

uint64_t stg_memory_available(void)
{
    uint64_t available = mem_available();
    stg_cgroup_each("", "memory", take_lesser_room, &available);
    return available;
}

/* Returns `total`, or the default if it is 0. used: bytes of the budget already in use,
 * which the machine no longer counts as available. */
static uint64_t total_or_default(uint64_t total, uint64_t used)
{
    if (total != 0)
        return total;
    total = (stg_memory_available() + used) / 4;
    return total < 64 * MIB ? 64 * MIB : total;
}

void stg_budget_init(struct stg_budget *budget, uint64_t total)
{
    budget->total = total_or_default(total, 0);
    budget->used = 0;
    budget->holders = NULL;
    budget->reclaim = NULL;
    budget->whole = NULL;
    budget->share = NULL;
    pthread_mutex_init(&budget->lock, NULL);
}

void stg_budget_init_part(struct stg_budget *budget, struct stg_budget *whole,
                          struct stg_share *share)
{
    *budget = (struct stg_budget){.whole = whole, .share = share};
}

static struct stg_budget *whole_of(struct stg_budget *budget)
{
    return budget->whole != NULL ? budget->whole : budget;
}

uint64_t stg_budget_total(const struct stg_budget *budget)
{
    return budget->whole != NULL ? budget->whole->total : budget->total;
}

void stg_budget_finish(struct stg_budget *budget)
{
    while (budget->holders != NULL) {
        struct stg_budget_holder *next = budget->holders->next;
        free(budget->holders);
        budget->holders = next;
    }
    pthread_mutex_destroy(&budget->lock);
}

/* ---- holders: refusals name them, except those whose names could not be allocated ----
 */

static struct stg_budget_holder **find_holder(struct stg_budget *budget, const char *name)
{
    struct stg_budget_holder **at = &budget->holders;
    while (*at != NULL && strcmp((*at)->name, name) != 0)
        at = &(*at)->next;
    return at;
}

static void add_to_holder(struct stg_budget *budget, uint64_t bytes, const char *name)
{
    struct stg_budget_holder **at = find_holder(budget, name);
    if (*at == NULL && bytes > 0) {
        *at = calloc(1, sizeof(**at) + strlen(name) + 1);
        if (*at != NULL)
            memcpy((*at)->name, name, strlen(name) + 1);
    }
    if (*at != NULL)
        (*at)->bytes += bytes;
}

static void take_from_holder(struct stg_budget *budget, uint64_t bytes, const char *name)
{
    struct stg_budget_holder **at = find_holder(budget, name), *holder = *at;
    if (holder == NULL)
        return;
    holder->bytes -= bytes < holder->bytes ? bytes : holder->bytes;
    if (holder->bytes > 0)
        return;
    *at = holder->next;
    free(holder);
}

/* Returns the next holder after `last` by descending size (NULL: the largest). Holders of
 * equal size keep their order. */
static const struct stg_budget_holder *next_holder(const struct stg_budget *budget,
                                                   const struct stg_budget_holder *last)
{
    const struct stg_budget_holder *found = NULL;
    bool passed = last == NULL;
    for (const struct stg_budget_holder *h = budget->holders; h != NULL; h = h->next) {
        bool comes =
            last == NULL || h->bytes < last->bytes || (passed && h->bytes == last->bytes);
        if (comes && h != last && (found == NULL || h->bytes > found->bytes))
            found = h;
        passed = passed || h == last;
    }
    return found;
}

static void name_holders(struct stg_budget *budget, struct stg_err *err)
{
    pthread_mutex_lock(&budget->lock);
    const struct stg_budget_holder *h = next_holder(budget, NULL);
    uint64_t rest = budget->used;
    const char *before = " (";
    for (int i = 0; i < NAMED_HOLDERS && h != NULL; i++) {
        stg_err_append(err, err->code, "%s%s %.1f MiB", before, h->name,
                       (double)h->bytes / MIB);
        before = ", ";
        rest -= h->bytes;
        h = next_holder(budget, h);
    }
    if (h != NULL)
        stg_err_append(err, err->code, ", others %.1f MiB", (double)rest / MIB);
    if (budget->holders != NULL)
        stg_err_append(err, err->code, ")");
    pthread_mutex_unlock(&budget->lock);
}

/* Takes the bytes and returns 0, or returns how many bytes are missing. */
static uint64_t try_take(struct stg_budget *budget, uint64_t bytes, const char *holder)
{
    pthread_mutex_lock(&budget->lock);
    uint64_t left = budget->total > budget->used ? budget->total - budget->used : 0;
    if (bytes <= left) {
        budget->used += bytes;
        add_to_holder(budget, bytes, holder);
    }
    pthread_mutex_unlock(&budget->lock);
    return bytes <= left ? 0 : bytes - left;
}

static double whole_mib(uint64_t bytes)
{
    return (double)(bytes / MIB + (bytes % MIB != 0));
}

static int refuse(struct stg_budget *budget, uint64_t bytes, const char *holder,
                  struct stg_err *err)
{
    uint64_t used = stg_budget_used(budget), total = budget->total;
    if (err == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
            "%s needs %.1f MiB, but memory_budget is %.1f MiB and %.1f MiB of it are in "
            "use",
            holder, (double)bytes / MIB, (double)total / MIB, (double)used / MIB);
    name_holders(budget, err);
    if (bytes < UINT64_MAX / 2)
        stg_err_append(err, err->code,
                       ": raise memory_budget in stagerd.yaml to %.0fMiB, or",
                       whole_mib(used + bytes));
    else
        stg_err_append(err, err->code, ":");
    return stg_err_append(
        err, err->code,
        " delete a pipeline or end a client that holds memory, or lower capacity, "
        "num_threads, max_in_flight, batch_size or memory_budget of the pipeline");
}

static int take_whole(struct stg_budget *budget, uint64_t bytes, const char *holder,
                      struct stg_err *err)
{
    uint64_t missing = try_take(budget, bytes, holder);
    if (missing > 0 && bytes <= budget->total && budget->reclaim != NULL) {
        budget->reclaim(budget->owner, missing);
        missing = try_take(budget, bytes, holder);
    }
    return missing == 0 ? 0 : refuse(budget, bytes, holder, err);
}

static int take_whole_free(struct stg_budget *budget, uint64_t bytes, const char *holder,
                           struct stg_err *err)
{
    return try_take(budget, bytes, holder) == 0 ? 0 : refuse(budget, bytes, holder, err);
}

/* From the quota first, which has a lock of its own. */
static int take_both(struct stg_budget *budget, uint64_t bytes, const char *holder,
                     int (*take)(struct stg_budget *budget, uint64_t bytes,
                                 const char *holder, struct stg_err *err),
                     struct stg_err *err)
{
    int rc = stg_share_take(budget->share, STG_QUOTA_MEMORY, bytes, err);
    if (rc < 0)
        return stg_err_prefix(err, rc, "%s", holder);
    rc = take(whole_of(budget), bytes, holder, err);
    if (rc < 0)
        stg_share_give(budget->share, STG_QUOTA_MEMORY, bytes);
    return rc;
}

int stg_budget_take(struct stg_budget *budget, uint64_t bytes, const char *holder,
                    struct stg_err *err)
{
    return take_both(budget, bytes, holder, take_whole, err);
}

int stg_budget_take_free(struct stg_budget *budget, uint64_t bytes, const char *holder,
                         struct stg_err *err)
{
    return take_both(budget, bytes, holder, take_whole_free, err);
}

void stg_budget_give(struct stg_budget *budget, uint64_t bytes, const char *holder)
{
    stg_share_give(budget->share, STG_QUOTA_MEMORY, bytes);
    budget = whole_of(budget);
    pthread_mutex_lock(&budget->lock);
    budget->used -= bytes < budget->used ? bytes : budget->used;
    take_from_holder(budget, bytes, holder);
    pthread_mutex_unlock(&budget->lock);
}

void stg_budget_move(struct stg_budget *budget, uint64_t bytes, const char *from,
                     const char *to)
{
    budget = whole_of(budget);
    pthread_mutex_lock(&budget->lock);
    take_from_holder(budget, bytes, from);
    add_to_holder(budget, bytes, to);
    pthread_mutex_unlock(&budget->lock);
}

void stg_budget_resize(struct stg_budget *budget, uint64_t total)
{
    pthread_mutex_lock(&budget->lock);
    budget->total = total_or_default(total, budget->used);
    pthread_mutex_unlock(&budget->lock);
}

uint64_t stg_budget_used(struct stg_budget *budget)
{
    pthread_mutex_lock(&budget->lock);
    uint64_t used = budget->used;
    pthread_mutex_unlock(&budget->lock);
    return used;
}

static int failed(const char *what, const char *name, uint64_t bytes, struct stg_err *err)
{
    return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "%s of %.1f MiB for %s: %s", what,
                   (double)bytes / MIB, name, strerror(errno));
}

static int make_memfd(const char *name)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) /* before Linux 6.3 */
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return fd;
}

static int reserve_chunk(int fd, uint64_t at, uint64_t bytes)
{
    int rc;
    do {
        rc = fallocate(fd, 0, (off_t)at, (off_t)bytes);
    } while (rc < 0 && errno == EINTR);
    return rc;
}

/* Faults in a part of the segment. On Linux before 5.14 it has no effect: first use
 * faults the part in. */
static void populate(const struct stg_segment *segment, uint64_t at, uint64_t bytes)
{
    madvise((char *)segment->base + at, bytes, MADV_POPULATE_WRITE);
}

/* Reserves the memory of a segment or, if the segment is mapped, faults it in. */
static int fill(const char *name, const struct stg_segment *segment,
                const _Atomic int *cancelled, struct stg_err *err)
{
    for (uint64_t at = 0, n; at < segment->bytes; at += n) {
        n = segment->bytes - at < CHUNK_BYTES ? segment->bytes - at : CHUNK_BYTES;
        if (cancelled != NULL && atomic_load(cancelled))
            return stg_err(err, -STAGER_CANCELLED,
                           "%s: no client waits for this memory any more", name);
        if (segment->base != NULL)
            populate(segment, at, n);
        else if (reserve_chunk(segment->fd, at, n) < 0)
            return failed("reserving memory", name, segment->bytes, err);
    }
    return 0;
}

static int add_seals(const char *name, const struct stg_segment *segment, int seals,
                     struct stg_err *err)
{
    return fcntl(segment->fd, F_ADD_SEALS, seals) < 0
               ? failed("sealing", name, segment->bytes, err)
               : 0;
}

static int check_available(const char *name, uint64_t bytes, struct stg_err *err)
{
    uint64_t available = stg_memory_available();
    if (bytes <= available)
        return 0;
    return stg_err(
        err, -STAGER_RESOURCE_EXHAUSTED,
        "%s needs %.1f MiB, but the machine or the control group has %.1f MiB left", name,
        (double)bytes / MIB, (double)available / MIB);
}

/* Creates and maps a segment. sparse: reserves no memory for it. */
static int create(const char *name, uint64_t bytes, int seals, bool sparse,
                  const _Atomic int *cancelled, struct stg_segment *ret,
                  struct stg_err *err)
{
    int rc = sparse ? 0 : check_available(name, bytes, err);
    if (rc < 0)
        return rc;
    struct stg_segment segment = {.fd = make_memfd(name), .bytes = bytes};
    if (segment.fd < 0) {
        rc = failed("memfd_create", name, bytes, err);
        goto fail;
    }
    if (ftruncate(segment.fd, (off_t)bytes) < 0) {
        rc = failed("ftruncate", name, bytes, err);
        goto fail;
    }
    rc = sparse ? 0 : fill(name, &segment, cancelled, err);
    if (rc < 0)
        goto fail;
    segment.base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, segment.fd, 0);
    if (segment.base == MAP_FAILED) {
        segment.base = NULL;
        rc = failed("mmap", name, bytes, err);
        goto fail;
    }
    madvise(segment.base, bytes, MADV_DONTFORK);
    madvise(segment.base, bytes, MADV_DONTDUMP);
    rc = sparse ? 0 : fill(name, &segment, cancelled, err);
    if (rc == 0)
        rc = add_seals(name, &segment, seals, err);
    if (rc < 0)
        goto fail;
    *ret = segment;
    return 0;

fail:
    stg_segment_destroy(&segment);
    return rc;
}

int stg_segment_create(const char *name, uint64_t bytes, bool client_writable,
                       const _Atomic int *cancelled, struct stg_segment *ret,
                       struct stg_err *err)
{
    int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    if (!client_writable)
        seals |= F_SEAL_FUTURE_WRITE;
    return create(name, bytes, seals, false, cancelled, ret, err);
}

int stg_segment_create_sparse(const char *name, uint64_t bytes, struct stg_segment *ret,
                              struct stg_err *err)
{
    return create(name, bytes,
                  F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | F_SEAL_FUTURE_WRITE, true,
                  NULL, ret, err);
}

int stg_segment_back(const char *name, const struct stg_segment *segment, uint64_t at,
                     uint64_t bytes, struct stg_err *err)
{
    int rc = bytes < LOOK_BYTES ? 0 : check_available(name, bytes, err);
    if (rc == 0 && reserve_chunk(segment->fd, at, bytes) < 0)
        rc = failed("reserving memory", name, bytes, err);
    if (rc == 0)
        populate(segment, at, bytes);
    return rc;
}

int stg_segment_create_open(const char *name, uint64_t bytes,
                            const _Atomic int *cancelled, struct stg_segment *ret,
                            struct stg_err *err)
{
    return create(name, bytes, F_SEAL_SHRINK | F_SEAL_GROW, false, cancelled, ret, err);
}

int stg_segment_seal(const char *name, const struct stg_segment *segment,
                     struct stg_err *err)
{
    return add_seals(name, segment, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL, err);
}

void stg_segment_destroy(struct stg_segment *segment)
{
    if (segment->base != NULL) {
        munmap(segment->base, segment->bytes);
        close(segment->fd);
    } else if (segment->bytes != 0 && segment->fd >= 0) {
        close(segment->fd);
    }
    *segment = (struct stg_segment){.fd = -1};
}
