/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/index/trail.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "daemon/index/layout.h"

#define MAGIC "stgtrail"
/* Incremented when the format, or what a step counts, changes. */
#define VERSION 1
/* What the file grows by on the account of the folder. */
#define GROWTH_BYTES ((uint64_t)64 << 10)
/* Of the limit of the folder, the most that one trail takes: an eighth. */
#define SHARE 8
/* Of one step, so many passes have a trail: a new one removes that of an old pass. */
#define PASSES 16
/* What a crash left of the end of a file is looked at so far: 12 MiB, which is more than
 * any disk of a running system has not written yet. */
#define MOST_TORN ((uint64_t)1 << 18)

/* The file: a head, then parts of marks. Little-endian, as memory is. */
struct head {
    char magic[8];
    uint64_t version;
    struct stg_trail_key key;
    uint64_t sum; /* of all before it */
};

static_assert(sizeof(struct head) == 64, "layout");
static_assert(sizeof(struct stg_mark) == 48, "layout");

#define HEAD_BYTES sizeof(struct head)
#define MARK_BYTES sizeof(struct stg_mark)

struct stg_trail {
    struct stg_trail *next; /* guarded by trails_lock, as refs */
    unsigned refs;
    pthread_mutex_t lock; /* guards what follows */
    int dir, fd;          /* fd -1: there is no file yet */
    char name[STG_FOLDER_NAME];
    struct head head;
    uint64_t n_parts, reserved;
    struct stg_mark last; /* the last part, if there is any */
    bool is_full;         /* nothing is added any more */
    bool is_bad;          /* nor is anything found */
};

static pthread_mutex_t trails_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list */
static struct stg_trail *trails;                                /* that are open */
static _Atomic uint64_t spacing = STG_TRAIL_SPACING;
static _Atomic bool has_failed;

uint64_t stg_trail_spacing(void)
{
    return atomic_load_explicit(&spacing, memory_order_relaxed);
}

void stg_trail_set_spacing(uint64_t n)
{
    atomic_store(&spacing, n);
}

/* ---- the file; the lock is held ---- */

static uint64_t head_sum(const struct head *head)
{
    return stg_fingerprint64_join(0, head, offsetof(struct head, sum));
}

/* Of the i-th part of this trail. */
static uint64_t part_sum(const struct stg_trail *trail, uint64_t i,
                         const struct stg_mark *part)
{
    return stg_fingerprint64_join(trail->head.sum + i, part,
                                  offsetof(struct stg_mark, sum));
}

static void forget(struct stg_trail *trail)
{
    if (trail->fd >= 0)
        close(trail->fd);
    trail->fd = -1;
    trail->n_parts = 0;
    trail->is_bad = true;
}

static bool discard(struct stg_trail *trail, const char *why)
{
    if (trail->is_bad)
        return false;
    unlinkat(trail->dir, trail->name, 0);
    forget(trail);
    stg_log(STG_LOG_WARNING,
            "the trail %s of a step %s: a pass that continues in the middle produces "
            "what lies before",
            trail->name, why);
    return false;
}

static bool read_part(const struct stg_trail *trail, uint64_t i, struct stg_mark *ret)
{
    ssize_t n;
    do
        n = pread(trail->fd, ret, MARK_BYTES, (off_t)(HEAD_BYTES + i * MARK_BYTES));
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)MARK_BYTES && ret->sum == part_sum(trail, i, ret);
}

static bool is_last_part(const struct stg_mark *part)
{
    return part->n_held == STG_TRAIL_END || part->part == part->n_held;
}

/* Cuts off what a crash left half written: of the end of a file that is not synced, some
 * may be missing. */
static void trim_tail(struct stg_trail *trail)
{
    uint64_t n = trail->n_parts, least = n > MOST_TORN ? n - MOST_TORN : 0;
    while (n > least &&
           (!read_part(trail, n - 1, &trail->last) || !is_last_part(&trail->last)))
        n--;
    if (n == least && n > 0) {
        discard(trail, "is damaged");
        return;
    }
    trail->n_parts = n;
    if (!trail->is_full && ftruncate(trail->fd, (off_t)(HEAD_BYTES + n * MARK_BYTES)) < 0)
        trail->is_full = true;
}

static bool has_head(const struct stg_trail *trail, struct stat *ret)
{
    struct head head;
    return fstat(trail->fd, ret) == 0 && S_ISREG(ret->st_mode) &&
           pread(trail->fd, &head, HEAD_BYTES, 0) == (ssize_t)HEAD_BYTES &&
           memcmp(&head, &trail->head, HEAD_BYTES) == 0;
}

/* Opens the file, if it is there. One of another layout, or of a key with the same name,
 * is replaced. A file that cannot be written is read. */
static void find_file(struct stg_trail *trail)
{
    struct stat st;
    int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    trail->fd = openat(trail->dir, trail->name, O_RDWR | flags);
    if (trail->fd < 0 && (errno == EROFS || errno == EACCES)) {
        trail->fd = openat(trail->dir, trail->name, O_RDONLY | flags);
        trail->is_full = trail->fd >= 0;
    }
    if (trail->fd < 0)
        return;
    if (has_head(trail, &st)) {
        futimens(trail->fd, NULL); /* the least recently used files go first */
        trail->reserved = (uint64_t)st.st_size; /* stg_folder_open counts it */
        trail->n_parts = (trail->reserved - HEAD_BYTES) / MARK_BYTES;
        trim_tail(trail);
        return;
    }
    close(trail->fd);
    trail->fd = -1;
    unlinkat(trail->dir, trail->name, 0);
}

/* Returns the name of the file of a key in ret. */
static void name_of(const struct stg_trail_key *key, char ret[STG_FOLDER_NAME])
{
    char text[sizeof(*key)];
    memcpy(text, key, sizeof(text));
    stg_folder_name(text, sizeof(text), ret);
}

static void remove_old_pass(const struct stg_trail *trail)
{
    struct stg_trail_key key = trail->head.key;
    char name[STG_FOLDER_NAME];
    if (key.pass < PASSES)
        return;
    key.pass -= PASSES;
    name_of(&key, name);
    unlinkat(trail->dir, name, 0);
}

static bool make_file(struct stg_trail *trail)
{
    remove_old_pass(trail);
    trail->fd = openat(trail->dir, trail->name,
                       O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    return trail->fd >= 0 &&
           pwrite(trail->fd, &trail->head, HEAD_BYTES, 0) == (ssize_t)HEAD_BYTES;
}

/* The folder has removed the file to make room: the marks go to another one. */
static void leave_removed(struct stg_trail *trail)
{
    struct stat st;
    if (trail->fd < 0 || (fstat(trail->fd, &st) == 0 && st.st_nlink > 0))
        return;
    close(trail->fd);
    trail->fd = -1;
    trail->n_parts = trail->reserved = 0;
}

/* Counts the file with that many bytes more on the folder. */
static bool reserve(struct stg_trail *trail, uint64_t bytes)
{
    uint64_t end = HEAD_BYTES + trail->n_parts * MARK_BYTES + bytes;
    if (end <= trail->reserved)
        return true;
    leave_removed(trail);
    end = HEAD_BYTES + trail->n_parts * MARK_BYTES + bytes;
    uint64_t more = end - trail->reserved;
    more = more > GROWTH_BYTES ? more : GROWTH_BYTES;
    if (trail->reserved + more > stg_folder_limit(&stg_index_folder) / SHARE ||
        !stg_folder_reserve(&stg_index_folder, more)) {
        errno = ENOSPC;
        return false;
    }
    trail->reserved += more;
    return true;
}

/* ---- open trails ---- */

static struct stg_trail *create(const struct stg_trail_key *key)
{
    struct stg_trail *trail = calloc(1, sizeof(*trail));
    int dir = trail != NULL ? stg_folder_take(&stg_index_folder) : -1;
    if (dir < 0) {
        free(trail);
        return NULL;
    }
    trail->head = (struct head){.version = VERSION, .key = *key};
    memcpy(trail->head.magic, MAGIC, sizeof(trail->head.magic));
    trail->head.sum = head_sum(&trail->head);
    name_of(key, trail->name);
    pthread_mutex_init(&trail->lock, NULL);
    trail->dir = dir;
    find_file(trail);
    return trail;
}

struct stg_trail *stg_trail_open(const struct stg_trail_key *key)
{
    pthread_mutex_lock(&trails_lock);
    struct stg_trail *trail = trails;
    while (trail != NULL && memcmp(&trail->head.key, key, sizeof(*key)) != 0)
        trail = trail->next;
    if (trail == NULL) {
        trail = create(key);
        if (trail != NULL) {
            trail->next = trails;
            trails = trail;
        }
    }
    if (trail != NULL)
        trail->refs++;
    pthread_mutex_unlock(&trails_lock);
    return trail;
}

void stg_trail_close(struct stg_trail *trail)
{
    if (trail == NULL)
        return;
    pthread_mutex_lock(&trails_lock);
    bool is_last = --trail->refs == 0;
    struct stg_trail **at = &trails;
    while (is_last && *at != trail)
        at = &(*at)->next;
    if (is_last)
        *at = trail->next;
    pthread_mutex_unlock(&trails_lock);
    if (!is_last)
        return;
    if (trail->fd >= 0)
        close(trail->fd);
    close(trail->dir);
    pthread_mutex_destroy(&trail->lock);
    free(trail);
}

/* ---- marks ---- */

/* Whether a mark can follow the last one. */
static bool is_behind(const struct stg_trail *trail, const struct stg_mark *mark)
{
    const struct stg_mark *last = &trail->last;
    if (trail->n_parts == 0 || mark->iteration != last->iteration)
        return trail->n_parts == 0 || mark->iteration > last->iteration;
    bool is_end = mark->n_held == STG_TRAIL_END && last->n_held != STG_TRAIL_END;
    return mark->n_out >= last->n_out &&
           (mark->n_in > last->n_in || (mark->n_in == last->n_in && is_end));
}

static bool append(struct stg_trail *trail, struct stg_mark *parts, size_t n)
{
    size_t bytes = n * MARK_BYTES;
    if (!reserve(trail, bytes) || (trail->fd < 0 && !make_file(trail)))
        return false;
    for (size_t i = 0; i < n; i++)
        parts[i].sum = part_sum(trail, trail->n_parts + i, &parts[i]);
    off_t end = (off_t)(HEAD_BYTES + trail->n_parts * MARK_BYTES);
    ssize_t written = pwrite(trail->fd, parts, bytes, end);
    if (written != (ssize_t)bytes) { /* the next open cuts off what is there of it */
        errno = written < 0 ? errno : ENOSPC;
        return false;
    }
    trail->n_parts += n;
    trail->last = parts[n - 1];
    return true;
}

void stg_trail_add(struct stg_trail *trail, struct stg_mark *parts, size_t n)
{
    pthread_mutex_lock(&trail->lock);
    bool wanted = !trail->is_bad && !trail->is_full && is_behind(trail, &parts[0]);
    trail->is_full |= wanted && !append(trail, parts, n);
    bool failed = wanted && trail->is_full;
    int error = errno;
    pthread_mutex_unlock(&trail->lock);
    if (failed && !atomic_exchange(&has_failed, true))
        stg_log(STG_LOG_WARNING,
                "cannot store where steps stand in the folder of the record indexes "
                "(%s): a pass that continues behind the last place that was stored "
                "produces what lies between",
                strerror(error));
}

static bool is_at_most(const struct stg_mark *part, uint64_t iteration, uint64_t n_out)
{
    return part->iteration != iteration ? part->iteration < iteration
                                        : part->n_out <= n_out;
}

/* Counts the parts that are at most it. The lock is held. */
static bool count_parts(struct stg_trail *trail, uint64_t iteration, uint64_t n_out,
                        uint64_t *ret)
{
    struct stg_mark part;
    uint64_t low = 0, high = trail->n_parts; /* the parts below low are at most it */
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (!read_part(trail, middle, &part))
            return discard(trail, "is damaged");
        if (is_at_most(&part, iteration, n_out))
            low = middle + 1;
        else
            high = middle;
    }
    *ret = low;
    return true;
}

/* The lock is held. */
static bool find(struct stg_trail *trail, uint64_t iteration, uint64_t n_out,
                 struct stg_mark *ret, uint64_t *ret_at)
{
    uint64_t low;
    if (!count_parts(trail, iteration, n_out, &low) || low == 0)
        return false;
    if (!read_part(trail, low - 1, ret) || ret->part >= low || !is_last_part(ret))
        return discard(trail, "is damaged");
    uint64_t first = low - 1 - ret->part;
    if (!read_part(trail, first, ret) || ret->part != 0)
        return discard(trail, "is damaged");
    *ret_at = first + 1;
    return ret->iteration == iteration;
}

bool stg_trail_find(struct stg_trail *trail, uint64_t iteration, uint64_t n_out,
                    struct stg_mark *ret, uint64_t *ret_at)
{
    pthread_mutex_lock(&trail->lock);
    bool found = find(trail, iteration, n_out, ret, ret_at);
    pthread_mutex_unlock(&trail->lock);
    return found;
}

bool stg_trail_held(struct stg_trail *trail, const struct stg_mark *mark, uint64_t at,
                    uint64_t *ret)
{
    struct stg_mark part;
    bool ok = true;
    pthread_mutex_lock(&trail->lock);
    for (uint32_t i = 0; ok && i < mark->n_held; i++) {
        ok = read_part(trail, at + i, &part) && part.part == i + 1 &&
             part.value < mark->n_in && (i == 0 || part.value > ret[i - 1]);
        ret[i] = part.value;
    }
    if (!ok)
        discard(trail, "is damaged");
    pthread_mutex_unlock(&trail->lock);
    return ok;
}

/* The lock is held. */
static bool walk(struct stg_trail *trail, uint64_t iteration, uint64_t *at,
                 struct stg_mark *ret)
{
    if (*at == 0 && iteration > 0 && !count_parts(trail, iteration - 1, UINT64_MAX, at))
        return false;
    if (*at >= trail->n_parts)
        return false;
    if (!read_part(trail, (*at)++, ret))
        return discard(trail, "is damaged");
    return ret->iteration == iteration;
}

bool stg_trail_walk(struct stg_trail *trail, uint64_t iteration, uint64_t *at,
                    struct stg_mark *ret)
{
    pthread_mutex_lock(&trail->lock);
    bool found = walk(trail, iteration, at, ret);
    pthread_mutex_unlock(&trail->lock);
    return found;
}

void stg_trail_refute(struct stg_trail *trail)
{
    pthread_mutex_lock(&trail->lock);
    discard(trail, "does not fit the data, and is deleted");
    pthread_mutex_unlock(&trail->lock);
}
