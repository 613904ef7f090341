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
#define FUND_PIECE ((uint64_t)4 << 20)
#define HUGE_BYTES (2u << 20)
#define MIN_FREE 4u                /* of either kind kept for reuse; they stay counted */
#define MAX_FREE 64u               /* so many, while they have no more … */
#define MAX_FREE_SUM (16u << 20)   /* … than so many bytes together */
#define MAX_FREE_BYTES (16u << 20) /* a larger one is not kept, … */
#define MAX_NEAR_BYTES (64u << 20) /* … of those that stg_chunk_create_near made */

#define LARGE_SHARE 4
#define ADVISED_CHUNKS 5 /* the buffers that are advised hold so many */
#define SPARE_SHARE 4    /* of what is needed, to spare */
#define MOST_LIMIT (UINT64_MAX / 8)

/* The one that came back last is the first. */
struct free_list {
    struct stg_chunk *first;
    unsigned n;
    uint64_t bytes;
};

struct stg_quota {
    _Atomic uint32_t refs;
    uint64_t limit;
    pthread_mutex_t lock; /* guards used, n_refused, kept */
    uint64_t used;
    uint64_t n_refused;
    struct free_list unused[2]; /* [is_near] */
    struct stg_fund fund;       /* take NULL: there is none */
    uint64_t funded;            /* of the fund's, at least `used` */
    struct stg_adviser adviser; /* advise NULL: there is none */
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

void stg_quota_set_fund(struct stg_quota *quota, const struct stg_fund *fund)
{
    quota->fund = *fund;
    quota->funded = fund->taken;
}

void stg_quota_set_adviser(struct stg_quota *quota, const struct stg_adviser *adviser)
{
    quota->adviser = *adviser;
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

/* Takes it out of the kept ones. The lock is held. */
static struct stg_chunk *unlink_unused(struct free_list *list, struct stg_chunk **at)
{
    struct stg_chunk *chunk = *at;
    *at = chunk->next;
    list->n--;
    list->bytes -= chunk->capacity;
    return chunk;
}

/* Gives every free chunk back to malloc. The lock is held. */
static void drop_free_chunks(struct stg_quota *quota)
{
    for (int i = 0; i < 2; i++) {
        while (quota->unused[i].first != NULL) {
            struct stg_chunk *chunk =
                unlink_unused(&quota->unused[i], &quota->unused[i].first);
            quota->used -= chunk->capacity;
            chunk_free(chunk);
        }
    }
}

void stg_quota_unref(struct stg_quota *quota)
{
    if (quota == NULL ||
        atomic_fetch_sub_explicit(&quota->refs, 1, memory_order_acq_rel) != 1)
        return;
    drop_free_chunks(quota);
    assert(quota->used == 0);
    if (quota->funded > quota->fund.taken)
        quota->fund.give(quota->fund.owner, quota->funded - quota->fund.taken);
    pthread_mutex_destroy(&quota->lock);
    free(quota);
}

static uint64_t add(uint64_t a, uint64_t b)
{
    return a < MOST_LIMIT && b < MOST_LIMIT - a ? a + b : MOST_LIMIT;
}

void stg_quota_advise(const struct stg_quota *quota, uint64_t limit_bytes,
                      uint64_t in_hand, struct stg_err *err)
{
    if (err == NULL)
        return;
    if (quota->adviser.advise != NULL)
        quota->adviser.advise(quota->adviser.owner, limit_bytes, in_hand, err);
    else
        stg_err_append(
            err, err->code,
            "raise staged.memory_budget until the dataset's buffers may take %" PRIu64
            " bytes",
            limit_bytes);
}

/* Near: a batch, of which users of the dataset may hold some. */
static int refuse(struct stg_quota *quota, uint64_t bytes, bool is_near, const char *what,
                  struct stg_err *err)
{
    uint64_t limit = add(quota->used, bytes);
    int rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                     "%s needs %" PRIu64 " bytes; the dataset holds %" PRIu64
                     " of the %" PRIu64 " bytes that its buffers may take: ",
                     what, bytes, quota->used, quota->limit);
    stg_quota_advise(quota, add(limit, limit / SPARE_SHARE), is_near ? bytes : 0, err);
    return rc;
}

/* A piece at once, or what is needed. The lock is held. */
static int draw_fund(struct stg_quota *quota, struct stg_err *err)
{
    if (quota->fund.take == NULL || quota->used <= quota->funded)
        return 0;
    uint64_t least = quota->used - quota->funded;
    uint64_t more = least > FUND_PIECE ? least : FUND_PIECE;
    if (more > least && quota->fund.take(quota->fund.owner, more, NULL) == 0)
        least = more;
    else if (quota->fund.take(quota->fund.owner, least, err) < 0)
        return -STAGER_RESOURCE_EXHAUSTED;
    quota->funded += least;
    return 0;
}

/* The lock is held. */
static int take_locked(struct stg_quota *quota, uint64_t bytes, bool is_near,
                       const char *what, struct stg_err *err)
{
    if (bytes > quota->limit - quota->used)
        drop_free_chunks(quota);
    if (bytes > quota->limit - quota->used) {
        quota->n_refused++;
        return refuse(quota, bytes, is_near, what, err);
    }
    quota->used += bytes;
    int rc = draw_fund(quota, err);
    if (rc == 0)
        return 0;
    quota->n_refused++;
    quota->used -= bytes;
    if (err != NULL)
        stg_err_prefix(err, rc, "%s", what);
    return rc;
}

int stg_quota_take(struct stg_quota *quota, uint64_t bytes, const char *what,
                   struct stg_err *err)
{
    pthread_mutex_lock(&quota->lock);
    int rc = take_locked(quota, bytes, false, what, err);
    pthread_mutex_unlock(&quota->lock);
    return rc;
}

/* The lock is held. */
static void give_locked(struct stg_quota *quota, uint64_t bytes)
{
    assert(quota->used >= bytes);
    quota->used -= bytes;
    uint64_t keep = quota->used + FUND_PIECE;
    keep = keep > quota->fund.taken ? keep : quota->fund.taken;
    if (quota->fund.take == NULL || quota->funded < keep + 2 * FUND_PIECE)
        return;
    quota->fund.give(quota->fund.owner, quota->funded - keep);
    quota->funded = keep;
}

void stg_quota_give(struct stg_quota *quota, uint64_t bytes)
{
    pthread_mutex_lock(&quota->lock);
    give_locked(quota, bytes);
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

uint64_t stg_quota_n_refused(const struct stg_quota *quota)
{
    struct stg_quota *m = (struct stg_quota *)quota;
    pthread_mutex_lock(&m->lock);
    uint64_t n = m->n_refused;
    pthread_mutex_unlock(&m->lock);
    return n;
}

uint64_t stg_quota_limit(const struct stg_quota *quota)
{
    return quota->limit;
}

bool stg_quota_is_large(const struct stg_quota *quota, uint64_t bytes)
{
    return bytes > quota->limit / LARGE_SHARE;
}

/* A free chunk of that capacity, or NULL. The lock is held. */
static struct stg_chunk *reuse(struct stg_quota *quota, uint64_t capacity, bool is_near)
{
    struct free_list *list = &quota->unused[is_near];
    uint64_t slack = is_near ? capacity / 8 : 0;
    for (struct stg_chunk **at = &list->first; *at != NULL; at = &(*at)->next) {
        if ((*at)->capacity >= capacity && (*at)->capacity - capacity <= slack)
            return unlink_unused(list, at);
    }
    return NULL;
}

static struct stg_chunk *chunk_new(uint64_t capacity, bool is_near)
{
    struct stg_chunk *chunk = calloc(1, sizeof(*chunk));
    if (chunk == NULL)
        return NULL;
    bool huge = capacity % HUGE_BYTES == 0;
    chunk->capacity = capacity;
    chunk->is_near = is_near;
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

static int create(struct stg_quota *quota, uint64_t capacity, bool is_near,
                  const char *what, struct stg_chunk **ret, struct stg_err *err)
{
    if (capacity > UINT64_MAX / 2)
        return stg_quota_take(quota, capacity, what, err);
    capacity = (capacity + ALIGN - 1) & ~(uint64_t)(ALIGN - 1);
    if (capacity == 0)
        capacity = ALIGN;
    pthread_mutex_lock(&quota->lock);
    struct stg_chunk *chunk = reuse(quota, capacity, is_near);
    int rc = chunk == NULL ? take_locked(quota, capacity, is_near, what, err) : 0;
    pthread_mutex_unlock(&quota->lock);
    if (rc < 0)
        return rc;
    if (chunk == NULL)
        chunk = chunk_new(capacity, is_near);
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

int stg_chunk_create(struct stg_quota *quota, uint64_t capacity, const char *what,
                     struct stg_chunk **ret, struct stg_err *err)
{
    return create(quota, capacity, false, what, ret, err);
}

int stg_chunk_create_near(struct stg_quota *quota, uint64_t capacity, const char *what,
                          struct stg_chunk **ret, struct stg_err *err)
{
    return create(quota, capacity, true, what, ret, err);
}

int stg_chunk_renew(struct stg_quota *quota, uint64_t bytes, const char *what,
                    struct stg_chunk **chunk, struct stg_err *err)
{
    struct stg_chunk *old = *chunk;
    if (old != NULL && old->capacity >= bytes && old->capacity / 2 <= bytes &&
        atomic_load_explicit(&old->refs, memory_order_acquire) == 1)
        return 0;
    stg_chunk_unref(old);
    *chunk = NULL;
    int rc = stg_chunk_create_near(quota, bytes, what, chunk, err);
    if (rc == 0 || !stg_quota_is_large(quota, bytes))
        return rc;
    rc = stg_err(err, -STAGER_DATA_LOSS,
                 "it takes %" PRIu64 " bytes, more than a quarter of the dataset's "
                 "buffers: ",
                 bytes);
    stg_quota_advise(quota, ADVISED_CHUNKS * bytes, 0, err);
    return rc;
}

struct stg_chunk *stg_chunk_ref(struct stg_chunk *chunk)
{
    atomic_fetch_add_explicit(&chunk->refs, 1, memory_order_relaxed);
    return chunk;
}

static bool is_full(const struct free_list *list)
{
    return list->n > MIN_FREE && (list->n > MAX_FREE || list->bytes > MAX_FREE_SUM);
}

/* Unlinks those that were kept longest, which are then no longer counted. Returns them,
 * linked, or NULL. The lock is held. */
static struct stg_chunk *trim(struct stg_quota *quota, struct free_list *list)
{
    struct stg_chunk *ret = NULL;
    while (is_full(list)) {
        struct stg_chunk **at = &list->first;
        while ((*at)->next != NULL)
            at = &(*at)->next;
        struct stg_chunk *old = unlink_unused(list, at);
        quota->used -= old->capacity;
        old->next = ret;
        ret = old;
    }
    return ret;
}

/* Keeps it if it can. Returns what has to be freed, linked, or NULL. The lock is held. */
static struct stg_chunk *keep(struct stg_quota *quota, struct stg_chunk *chunk)
{
    struct free_list *list = &quota->unused[chunk->is_near];
    if (chunk->capacity > (chunk->is_near ? MAX_NEAR_BYTES : MAX_FREE_BYTES) ||
        (chunk->is_near && quota->limit == UINT64_MAX)) {
        quota->used -= chunk->capacity;
        chunk->next = NULL;
        return chunk;
    }
    chunk->next = list->first;
    list->first = chunk;
    list->n++;
    list->bytes += chunk->capacity;
    return trim(quota, list);
}

void stg_chunk_unref(struct stg_chunk *chunk)
{
    if (chunk == NULL ||
        atomic_fetch_sub_explicit(&chunk->refs, 1, memory_order_acq_rel) != 1)
        return;
    struct stg_quota *quota = chunk->quota;
    chunk->quota = NULL;
    pthread_mutex_lock(&quota->lock);
    struct stg_chunk *old = keep(quota, chunk);
    pthread_mutex_unlock(&quota->lock);
    while (old != NULL) {
        struct stg_chunk *next = old->next;
        chunk_free(old);
        old = next;
    }
    stg_quota_unref(quota);
}

void stg_chunk_move(struct stg_chunk *chunk, struct stg_quota *to)
{
    struct stg_quota *from = chunk->quota;
    int rc = stg_quota_take(to, chunk->capacity, "", NULL);
    assert(rc == 0);
    (void)rc;
    chunk->quota = stg_quota_ref(to);
    stg_quota_give(from, chunk->capacity);
    stg_quota_unref(from);
}
