/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/storage/http/remote.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/host/share.h"
#include "daemon/storage/http/disk.h"
#include "daemon/storage/http/fetch_priv.h"
#include "daemon/storage/http/fetcher.h"
#include "daemon/storage/http/places.h"
#include "daemon/storage/http/recent.h"
#include "ops/base/hash.h"

/* A file's ranges at once, with those that several threads look at; of one that is read
 * in places. */
#define MAX_RANGES 24u
#define MAX_PLACES 1024u
/* Fetched where the memory for what is ahead is used up. */
#define SMALL_BYTES ((uint64_t)256 << 10)
/* Fetched in places of what was not announced. */
#define LEAST_BYTES ((uint64_t)64 << 10)
/* Of that memory, what is there for the first range of a file alone. */
#define FIRST_SHARE 2
/* What the reader's speed is measured over. */
#define SPEED_BYTES ((uint64_t)32 << 20)

struct range {
    uint64_t begin, end;
    struct stg_chunk *chunk;
    struct stg_fetch *fetch; /* NULL: all of it is there, from a disk */
    bool is_whole;           /* it may be kept on the disk */
    uint32_t turn, row;      /* of its piece; turn 0: it is none */
};

struct remote {
    struct stg_source source;
    struct stg_object *object;
    struct stg_remote_probe probe; /* object NULL: none */
    struct stg_file_user identity;
    struct stg_share *share; /* of that user */
    struct stg_quota *quota;
    uint64_t range_bytes;
    unsigned most_ranges;
    struct stg_version version;
    struct stg_version cached; /* while it is opened: of what lies on a disk */

    pthread_mutex_t lock; /* guards the rest */
    struct range *ranges; /* room for max_ranges */
    unsigned n, max_ranges;
    struct stg_places places;       /* of a file that is read in places */
    uint32_t turn;                  /* that was reached */
    uint64_t front;                 /* all before it was taken */
    uint64_t last_ns;               /* when the last read ended */
    uint64_t taken_bytes, taken_ns; /* by a reader that did not have to wait */
    uint64_t delay_ns;              /* that a range takes; 0: not known yet */
};

/* ---- ranges ---- */

static struct range *find(struct remote *remote, uint64_t offset)
{
    for (unsigned i = 0; i < remote->n; i++) {
        if (remote->ranges[i].begin <= offset && offset < remote->ranges[i].end)
            return &remote->ranges[i];
    }
    return NULL;
}

/* What has come as a whole may be of use once more; in memory, what was not announced:
 * footers. */
static void keep(struct remote *remote, const struct range *range)
{
    uint64_t bytes = range->end - range->begin;
    if (range->fetch == NULL || !range->is_whole ||
        stg_fetch_there(range->fetch) != bytes)
        return;
    stg_disk_put(remote->object->url, &remote->version, range->begin, range->chunk->data,
                 bytes);
    if (remote->identity.in_places && range->turn == 0)
        stg_recent_put(remote->object->url, &remote->version, range->begin,
                       range->chunk->data, bytes);
}

/* Copies the bytes of a range from a cache. Returns whether one has them. */
static bool has_cached(struct remote *remote, const struct range *range, uint64_t bytes)
{
    bool is_recent = remote->identity.in_places && range->turn == 0 &&
                     stg_recent_get(remote->object->url, &remote->version, range->begin,
                                    range->chunk->data, bytes);
    return is_recent || stg_disk_get(remote->object->url, &remote->version, range->begin,
                                     range->chunk->data, bytes);
}

static void drop(struct remote *remote, struct range *range)
{
    keep(remote, range);
    stg_fetch_cancel(range->fetch);
    stg_chunk_unref(range->chunk);
    *range = remote->ranges[--remote->n];
}

/* Room for one more: the range that is farthest from the reader goes. */
static void make_room(struct remote *remote, uint64_t offset)
{
    struct range *farthest = NULL;
    uint64_t most = 0;
    if (remote->n < remote->max_ranges)
        return;
    for (unsigned i = 0; i < remote->n; i++) {
        struct range *range = &remote->ranges[i];
        uint64_t far =
            range->begin > offset ? range->begin - offset : offset - range->begin;
        if (farthest == NULL || far > most) {
            farthest = range;
            most = far;
        }
    }
    drop(remote, farthest);
}

/* Memory for `bytes` from offset on. A range that is only ahead leaves some for others'
 * first ones; one with a waiter takes little, if there is no more. */
static int take_chunk(struct remote *remote, bool ahead, uint64_t *bytes,
                      struct stg_chunk **ret, struct stg_err *err)
{
    struct stg_quota *quota = remote->quota;
    uint64_t limit = stg_quota_limit(quota);
    uint64_t room = remote->identity.in_places ? *bytes : remote->range_bytes;
    if (ahead && stg_quota_used(quota) + room > limit / FIRST_SHARE)
        return -STAGER_RESOURCE_EXHAUSTED;
    int rc = stg_chunk_create(quota, room, "reading ahead", ret, NULL);
    if (rc == 0 || ahead)
        return rc;
    if (*bytes > SMALL_BYTES)
        *bytes = SMALL_BYTES;
    struct stg_quota *unlimited;
    rc = stg_quota_create(0, &unlimited);
    if (rc == 0) {
        rc = stg_chunk_create(unlimited, SMALL_BYTES, "a range", ret, NULL);
        stg_quota_unref(unlimited);
    }
    return rc < 0 ? stg_err(err, rc, "%s: out of memory", remote->object->shown) : 0;
}

static int start_fetch(struct remote *remote, struct range *range, struct stg_err *err)
{
    struct stg_fetch_plan plan = {.object = remote->object,
                                  .kind = STG_FETCH_RANGE,
                                  .begin = range->begin,
                                  .end = range->end,
                                  .version = remote->version,
                                  .cached = remote->cached,
                                  .chunk = range->chunk};
    return stg_fetch_start(&plan, &range->fetch, err);
}

/* Ranges end at multiples of their length. */
static uint64_t aligned_bytes(const struct remote *remote, uint64_t begin)
{
    return remote->range_bytes - begin % remote->range_bytes;
}

/* In places: to the end of the piece, or what is wanted. Sets what the range is of. */
static uint64_t place_bytes(struct remote *remote, uint64_t wanted, struct range *range)
{
    struct stg_piece *piece = stg_places_find(&remote->places, range->begin);
    if (piece == NULL)
        return wanted < remote->range_bytes ? wanted : remote->range_bytes;
    range->turn = piece->turn;
    range->row = piece->row;
    return piece->end - range->begin;
}

/* wanted: by the reader. The lock is held. */
static int begin_range(struct remote *remote, uint64_t begin, uint64_t wanted, bool ahead,
                       struct stg_err *err)
{
    struct range range = {.begin = begin};
    uint64_t bytes = remote->identity.in_places ? place_bytes(remote, wanted, &range)
                                                : aligned_bytes(remote, begin);
    if (remote->version.known && bytes > remote->version.size - begin)
        bytes = remote->version.size - begin;
    uint64_t whole = bytes;
    int rc = take_chunk(remote, ahead, &bytes, &range.chunk, err);
    if (rc < 0)
        return rc;
    range.end = begin + bytes;
    range.is_whole =
        remote->identity.in_places ? bytes == whole : begin % remote->range_bytes == 0;
    if (!has_cached(remote, &range, bytes))
        rc = start_fetch(remote, &range, err);
    if (rc < 0) {
        stg_chunk_unref(range.chunk);
        return rc;
    }
    make_room(remote, begin);
    remote->ranges[remote->n++] = range;
    stg_places_begun(&remote->places, begin);
    return 0;
}

/* ---- how far ahead ---- */

/* Bytes that the reader takes while one range comes, in ranges, and the one that it is
 * at. */
static unsigned n_ahead(const struct remote *remote)
{
    uint64_t n = 2;
    if (remote->delay_ns > 0 && remote->taken_ns > 0) {
        double bytes = (double)remote->taken_bytes / (double)remote->taken_ns *
                       (double)remote->delay_ns;
        n = 2 + (uint64_t)(bytes / (double)remote->range_bytes);
    }
    return n < remote->most_ranges ? (unsigned)n : remote->most_ranges;
}

/* The lock is held. */
static void plan_ahead(struct remote *remote, uint64_t end)
{
    unsigned n = n_ahead(remote);
    for (unsigned i = 1; i < n && end < remote->version.size; i++) {
        struct range *range = find(remote, end);
        if (range == NULL && begin_range(remote, end, 0, true, NULL) == 0)
            range = find(remote, end);
        if (range == NULL)
            return;
        end = range->end;
    }
}

/* ---- in places ---- */

/* Requests that have not been answered. */
static unsigned n_asked(const struct remote *remote)
{
    unsigned n = 0;
    for (unsigned i = 0; i < remote->n; i++) {
        const struct range *range = &remote->ranges[i];
        n += range->fetch != NULL &&
             stg_fetch_there(range->fetch) < range->end - range->begin;
    }
    return n;
}

/* So that a piece of each row, and those ahead, take half of the memory at most. */
static uint64_t piece_bytes(const struct remote *remote)
{
    uint64_t n = remote->places.n_announced + remote->most_ranges;
    uint64_t share = stg_quota_limit(remote->quota) / FIRST_SHARE / 2 / n;
    share = share < remote->range_bytes ? share : remote->range_bytes;
    return share > SMALL_BYTES ? share : SMALL_BYTES;
}

/* Begins what will be wanted next: a piece of each row, and some ahead of it. The lock is
 * held. */
static void plan_places(struct remote *remote)
{
    unsigned most = remote->places.n_rows + n_ahead(remote);
    stg_places_divide(&remote->places, piece_bytes(remote), remote->turn);
    while (remote->n < most && n_asked(remote) < remote->most_ranges) {
        struct stg_piece *next = stg_places_next(&remote->places);
        if (next == NULL || next->begin >= remote->version.size)
            return;
        if (find(remote, next->begin) != NULL)
            next->is_begun = true;
        else if (begin_range(remote, next->begin, 0, true, NULL) < 0)
            return;
    }
}

/* A reader that is at an offset has passed what was of no piece; and if it is at a piece,
 * those before it in its row, and all turns before its own. */
static bool is_passed(const struct range *range, uint64_t offset,
                      const struct stg_piece *at)
{
    if (range->turn == 0)
        return offset < range->begin || offset >= range->end;
    return at != NULL &&
           (range->turn < at->turn || (range->turn == at->turn && range->row == at->row &&
                                       range->end <= at->begin));
}

static void note_delay(struct remote *remote, struct stg_fetch *fetch)
{
    uint64_t elapsed = fetch != NULL ? stg_fetch_elapsed_ns(fetch) : 0;
    if (elapsed == 0)
        return;
    remote->delay_ns =
        remote->delay_ns == 0 ? elapsed : (7 * remote->delay_ns + elapsed) / 8;
}

static void note_speed(struct remote *remote, uint64_t bytes)
{
    if (remote->last_ns > 0)
        remote->taken_ns += stg_now_ns() - remote->last_ns;
    remote->taken_bytes += bytes;
    if (remote->taken_bytes < SPEED_BYTES)
        return;
    remote->taken_bytes /= 2;
    remote->taken_ns /= 2;
}

/* Drops what is taken. Of what several threads read out of order, one range stays. */
static void drop_taken(struct remote *remote, uint64_t offset, uint64_t bytes)
{
    if (offset <= remote->front && offset + bytes > remote->front)
        remote->front = offset + bytes;
    else if (offset > remote->front + remote->range_bytes)
        remote->front = offset - remote->range_bytes;
    for (unsigned i = 0; i < remote->n;) {
        struct range *range = &remote->ranges[i];
        if (range->end > remote->front) {
            i++;
            continue;
        }
        note_delay(remote, range->fetch);
        drop(remote, range);
    }
}

static void drop_passed(struct remote *remote, uint64_t offset)
{
    struct stg_piece *at = stg_places_find(&remote->places, offset);
    if (at != NULL)
        at->is_read = true;
    if (at != NULL && at->turn > remote->turn)
        remote->turn = at->turn;
    for (unsigned i = 0; i < remote->n;) {
        struct range *range = &remote->ranges[i];
        if (!is_passed(range, offset, at)) {
            i++;
            continue;
        }
        note_delay(remote, range->fetch);
        drop(remote, range);
    }
}

/* ---- the source ---- */

/* The range that has the byte at offset; its chunk and fetch with references. */
static int take_range(struct remote *remote, uint64_t offset, uint64_t wanted,
                      struct range *ret, struct stg_err *err)
{
    int rc = 0;
    pthread_mutex_lock(&remote->lock);
    if (remote->identity.in_places)
        plan_places(remote);
    if (find(remote, offset) == NULL)
        rc = begin_range(remote, offset, wanted > LEAST_BYTES ? wanted : LEAST_BYTES,
                         false, err);
    if (rc == 0) {
        *ret = *find(remote, offset);
        stg_chunk_ref(ret->chunk);
        if (ret->fetch != NULL)
            stg_fetch_ref(ret->fetch);
        if (!remote->identity.in_places)
            plan_ahead(remote, ret->end);
    }
    pthread_mutex_unlock(&remote->lock);
    return rc;
}

/* Of one range. Returns how many bytes of it came to buf. */
static int64_t read_part(struct remote *remote, uint64_t offset, char *buf,
                         uint64_t bytes, struct stg_err *err)
{
    struct range range = {0};
    int rc = take_range(remote, offset, bytes, &range, err);
    if (rc < 0)
        return rc;
    if (bytes > range.end - offset)
        bytes = range.end - offset;
    uint64_t at = offset - range.begin;
    int64_t there = 0;
    if (range.fetch != NULL)
        there = stg_fetch_wait(range.fetch, at + bytes, remote->identity.stopped, err);
    else
        there = (int64_t)(at + bytes);
    if (there >= 0 && (uint64_t)there < at + bytes)
        there = stg_err(err, -STAGER_DATA_LOSS,
                        "%s: the object ends at offset %" PRIu64 " of %" PRIu64,
                        remote->object->shown, range.begin + (uint64_t)there,
                        remote->version.size);
    if (there >= 0)
        memcpy(buf, range.chunk->data + at, bytes);
    stg_fetch_unref(range.fetch);
    stg_chunk_unref(range.chunk);
    return there < 0 ? there : (int64_t)bytes;
}

static bool is_stopped(const struct remote *remote)
{
    const _Atomic int *stopped = remote->identity.stopped;
    return stopped != NULL && atomic_load_explicit(stopped, memory_order_relaxed) != 0;
}

/* At the last byte: whether it is still what it was when it was opened. */
static int check_again(struct remote *remote, struct stg_err *err)
{
    struct stg_version now;
    if (remote->probe.object == NULL)
        return 0;
    int rc = remote->probe.ask(remote->probe.object, &remote->identity, &now, err);
    if (rc < 0)
        return rc;
    if (now.size == remote->version.size &&
        strcmp(now.modified, remote->version.modified) == 0)
        return 0;
    return stg_err(
        err, -STAGER_DATA_LOSS,
        "%s: the file was replaced while it was read: the data may mix both versions",
        remote->object->shown);
}

static int64_t read_ranges(struct remote *remote, uint64_t offset, char *buf,
                           uint64_t bytes, struct stg_err *err)
{
    uint64_t done = 0;
    while (done < bytes) {
        int64_t n = read_part(remote, offset + done, buf + done, bytes - done, err);
        /* A reader of another place has dropped the range. */
        if (n == -STAGER_CANCELLED && !is_stopped(remote))
            continue;
        if (n < 0)
            return n;
        done += (uint64_t)n;
    }
    return (int64_t)done;
}

int64_t stg_remote_read(struct stg_source *source, uint64_t offset, void *buf,
                        size_t bytes, struct stg_err *err)
{
    struct remote *remote = (struct remote *)source;
    uint64_t size = remote->version.size;
    if (offset >= size)
        return 0;
    if (bytes > size - offset)
        bytes = size - offset;
    pthread_mutex_lock(&remote->lock);
    note_speed(remote, bytes);
    pthread_mutex_unlock(&remote->lock);
    int64_t n = read_ranges(remote, offset, buf, bytes, err);
    if (n >= 0 && offset + bytes == size) {
        int rc = check_again(remote, err);
        n = rc < 0 ? rc : n;
    }
    if (n < 0) {
        source->spoiled |= n == -STAGER_DATA_LOSS;
        return n;
    }
    pthread_mutex_lock(&remote->lock);
    if (remote->identity.in_places && n > 0)
        drop_passed(remote, offset + bytes - 1);
    else
        drop_taken(remote, offset, bytes);
    remote->last_ns = stg_now_ns();
    pthread_mutex_unlock(&remote->lock);
    if (n > 0)
        stg_share_pace(remote->share, STG_QUOTA_REMOTE, (uint64_t)n,
                       remote->identity.stopped);
    return n;
}

void stg_remote_will_need(struct stg_source *source, uint64_t offset, uint64_t bytes)
{
    struct remote *remote = (struct remote *)source;
    pthread_mutex_lock(&remote->lock);
    if (remote->identity.in_places)
        stg_places_announce(&remote->places, offset, offset + bytes);
    else if (offset < remote->version.size && find(remote, offset) == NULL)
        begin_range(remote, offset, 0, true, NULL);
    pthread_mutex_unlock(&remote->lock);
}

int stg_remote_size(struct stg_source *source, uint64_t *ret, struct stg_err *err)
{
    *ret = ((struct remote *)source)->version.size;
    return 0;
}

int stg_remote_version(struct stg_source *source, uint64_t *ret, struct stg_err *err)
{
    const struct remote *remote = (struct remote *)source;
    const struct stg_version *version = &remote->version;
    if (!version->known || (version->etag[0] == '\0' && version->modified[0] == '\0'))
        return stg_err(err, -STAGER_UNIMPLEMENTED,
                       "%s: the server states neither ETag nor Last-Modified",
                       remote->object->shown);
    uint64_t sum =
        stg_fingerprint64_join(version->size, version->etag, strlen(version->etag));
    *ret = stg_fingerprint64_join(sum, version->modified, strlen(version->modified));
    return 0;
}

void stg_remote_close(struct stg_source *source)
{
    struct remote *remote = (struct remote *)source;
    if (remote == NULL)
        return;
    while (remote->n > 0)
        drop(remote, &remote->ranges[0]);
    stg_places_finish(&remote->places);
    free(remote->ranges);
    stg_object_unref(remote->object);
    stg_object_unref(remote->probe.object);
    stg_quota_unref(remote->quota);
    stg_share_put(remote->share);
    pthread_mutex_destroy(&remote->lock);
    free(remote);
}

/* ---- opening ---- */

/* The first range says what there is; where some of it is kept, whether it is still
 * that. */
static int ask(struct remote *remote, struct stg_err *err)
{
    if (stg_disk_version(remote->object->url, &remote->cached) &&
        remote->cached.etag[0] == '\0')
        remote->cached.known = false;
    int rc = begin_range(remote, 0, 1, false, err);
    if (rc < 0)
        return rc;
    struct range *range = &remote->ranges[0];
    int64_t n = stg_fetch_wait(range->fetch, 0, remote->identity.stopped, err);
    if (n < 0)
        return (int)n;
    bool was_cached = remote->cached.known;
    remote->cached.known = false;
    remote->version = *stg_fetch_version(range->fetch);
    bool is_cached = stg_fetch_is_cached(range->fetch);
    if (is_cached || remote->identity.in_places) {
        range->is_whole = false;
        drop(remote, range);
    }
    if (is_cached)
        return 0;
    if (!was_cached || strcmp(remote->cached.etag, remote->version.etag) != 0)
        stg_disk_put_version(remote->object->url, &remote->version);
    if (remote->n > 0 && range->end > remote->version.size)
        range->end = remote->version.size;
    return 0;
}

/* With what all have. Takes the object, also on failure. */
static int create(const struct stg_storage *storage, struct stg_object *object,
                  const struct stg_file_user *identity, struct remote **ret,
                  struct stg_err *err)
{
    struct stg_remote_settings settings;
    struct stg_quota *quota = stg_fetchers_quota();
    struct remote *remote = calloc(1, sizeof(*remote));
    unsigned max_ranges = identity->in_places ? MAX_PLACES : MAX_RANGES;
    struct range *ranges = calloc(max_ranges, sizeof(*ranges));
    struct stg_share *share =
        stg_share_get(identity->uid, identity->gid, identity->groups, identity->n_groups);
    if (remote == NULL || quota == NULL || ranges == NULL || share == NULL) {
        int rc =
            stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "%s: out of memory", object->shown);
        stg_object_unref(object);
        stg_quota_unref(quota);
        stg_share_put(share);
        free(remote);
        free(ranges);
        return rc;
    }
    stg_fetchers_settings(&settings);
    remote->source.storage = storage;
    remote->object = object;
    remote->identity = *identity;
    remote->share = share;
    remote->quota = quota;
    remote->ranges = ranges;
    remote->max_ranges = max_ranges;
    remote->range_bytes = settings.range_bytes;
    remote->most_ranges = settings.ranges_per_file;
    pthread_mutex_init(&remote->lock, NULL);
    *ret = remote;
    return 0;
}

int stg_remote_open(const struct stg_storage *storage, struct stg_object *object,
                    const struct stg_file_user *identity, struct stg_source **ret,
                    struct stg_err *err)
{
    struct remote *remote;
    int rc = create(storage, object, identity, &remote, err);
    if (rc < 0)
        return rc;
    rc = ask(remote, err);
    if (rc < 0) {
        stg_remote_close(&remote->source);
        return rc;
    }
    *ret = &remote->source;
    return 0;
}

int stg_remote_open_known(const struct stg_storage *storage, struct stg_object *object,
                          const struct stg_version *version,
                          const struct stg_remote_probe *probe,
                          const struct stg_file_user *identity, struct stg_source **ret,
                          struct stg_err *err)
{
    struct remote *remote;
    int rc = create(storage, object, identity, &remote, err);
    if (rc < 0) {
        stg_object_unref(probe->object);
        return rc;
    }
    remote->version = *version;
    remote->probe = *probe;
    *ret = &remote->source;
    return 0;
}

/* ---- all at once ---- */

int stg_remote_get(struct stg_object *object, uint64_t most_bytes,
                   const struct stg_file_user *identity, char **ret, size_t *ret_bytes,
                   struct stg_err *err)
{
    struct stg_quota *unlimited;
    struct stg_fetch_plan plan = {
        .object = object, .kind = STG_FETCH_ALL, .end = most_bytes};
    struct stg_fetch *fetch;
    int rc = stg_quota_create(0, &unlimited);
    if (rc == 0) {
        rc = stg_chunk_create(unlimited, most_bytes, "an answer", &plan.chunk, err);
        stg_quota_unref(unlimited);
    }
    if (rc == 0) {
        rc = stg_fetch_start(&plan, &fetch, err);
        stg_chunk_unref(plan.chunk);
    }
    if (rc < 0)
        return rc;
    int64_t n = stg_fetch_wait(fetch, UINT64_MAX, identity->stopped, err);
    char *text = n >= 0 ? malloc((size_t)n + 1) : NULL;
    if (n >= 0 && text == NULL)
        n = stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "%s: out of memory", object->shown);
    if (n >= 0) {
        memcpy(text, stg_fetch_chunk(fetch)->data, (size_t)n);
        text[n] = '\0';
        *ret = text;
        *ret_bytes = (size_t)n;
    }
    stg_fetch_cancel(fetch);
    return n < 0 ? (int)n : 0;
}
