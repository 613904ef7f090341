/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/index/index.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "daemon/index/layout.h"

#define PLACE_BYTES sizeof(struct stg_index_place)

struct stg_index {
    int dir, fd;
    char name[STG_FOLDER_NAME];
    char *key; /* its text */
    struct stg_index_head head;
    uint64_t places_at, bytes;
    bool is_checked, is_bad;
};

void stg_index_close(struct stg_index *index)
{
    if (index == NULL)
        return;
    if (index->fd >= 0)
        close(index->fd);
    close(index->dir);
    free(index->key);
    free(index);
}

static void discard(struct stg_index *index, enum stg_log_level level, const char *why)
{
    char shown[512];
    index->is_bad = true;
    unlinkat(index->dir, index->name, 0);
    stg_log(level, "the record index of %s %s; the next full pass builds it anew",
            stg_index_shown(index->key, shown, sizeof(shown)), why);
}

static bool damaged(struct stg_index *index)
{
    discard(index, STG_LOG_WARNING, "is damaged");
    return false;
}

void stg_index_refute(struct stg_index *index)
{
    discard(index, STG_LOG_WARNING,
            "is wrong: no record begins where it says (the file was changed, and its "
            "size and times were not)");
}

/* Returns the bytes read: fewer than asked for at the end of the file, or on failure. */
static size_t read_at(const struct stg_index *index, uint64_t at, void *buf, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t n =
            pread(index->fd, (char *)buf + done, bytes - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    return done;
}

/* ---- opening ---- */

static bool is_head(const struct stg_index *index)
{
    const struct stg_index_head *head = &index->head;
    uint64_t places;
    return memcmp(head->magic, STG_INDEX_MAGIC, sizeof(head->magic)) == 0 &&
           head->sum == stg_index_head_sum(head) &&
           !__builtin_mul_overflow(head->n_places, PLACE_BYTES, &places) &&
           head->n_places <= head->totals.n_records &&
           head->totals.n_records <= head->totals.n_positions &&
           stg_index_places_at(head->key_bytes) < index->bytes + 1 &&
           index->bytes - stg_index_places_at(head->key_bytes) == places;
}

/* Whether the key in the file is that of the index. */
static bool has_key(const struct stg_index *index, size_t key_bytes)
{
    if (index->head.key_bytes != key_bytes)
        return false;
    char *text = malloc(key_bytes);
    bool same = text != NULL &&
                read_at(index, sizeof(index->head), text, key_bytes) == key_bytes &&
                memcmp(text, index->key, key_bytes) == 0;
    free(text);
    return same;
}

/* An index of another layout, or of a key with the same name, is none, and is replaced by
 * the next one. */
static bool read_head(struct stg_index *index, const struct stg_index_key *key,
                      size_t key_bytes)
{
    struct stat st;
    if (fstat(index->fd, &st) < 0 || !S_ISREG(st.st_mode))
        return false;
    index->bytes = (uint64_t)st.st_size;
    if (read_at(index, 0, &index->head, sizeof(index->head)) != sizeof(index->head) ||
        !is_head(index))
        return damaged(index);
    if (index->head.version != STG_INDEX_VERSION || !has_key(index, key_bytes))
        return false;
    if (index->head.file_version == key->version &&
        index->head.file_bytes == key->bytes) {
        index->places_at = stg_index_places_at(key_bytes);
        return true;
    }
    discard(index, STG_LOG_INFO, "is stale: the file has changed");
    return false;
}

bool stg_index_open(const struct stg_index_key *key, struct stg_index **ret)
{
    int dir = stg_folder_take(&stg_index_folder);
    if (dir < 0)
        return false;
    size_t key_bytes = 0;
    struct stg_index *index = calloc(1, sizeof(*index));
    char *text = index != NULL ? stg_index_key_text(key, &key_bytes) : NULL;
    if (text == NULL) {
        free(index);
        close(dir);
        return false;
    }
    index->dir = dir;
    index->key = text;
    stg_folder_name(text, key_bytes, index->name);
    index->fd = openat(dir, index->name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (index->fd < 0 || !read_head(index, key, key_bytes)) {
        stg_index_close(index);
        return false;
    }
    *ret = index;
    return true;
}

const struct stg_index_totals *stg_index_totals(const struct stg_index *index)
{
    return &index->head.totals;
}

bool stg_index_is_bad(const struct stg_index *index)
{
    return index->is_bad;
}

uint64_t stg_index_bytes(const struct stg_index *index)
{
    return index->bytes;
}

/* ---- places ---- */

/* Whether a place can follow the one before it, which is NULL for the first. */
static bool is_next(const struct stg_index_head *head,
                    const struct stg_index_place *before,
                    const struct stg_index_place *place)
{
    bool inside =
        place->position < head->totals.n_positions && place->offset <= head->totals.end;
    return inside && (before == NULL ||
                      (place->position > before->position &&
                       place->record > before->record && place->offset > before->offset));
}

/* Reads all places: their sum, and their order. */
static bool check_places(const struct stg_index *index)
{
    const struct stg_index_head *head = &index->head;
    struct stg_index_place piece[STG_INDEX_PIECE + 1]; /* behind the last one before */
    uint64_t sum = 0;
    for (uint64_t at = 0; at < head->n_places; at += STG_INDEX_PIECE) {
        uint64_t n = head->n_places - at;
        n = n < STG_INDEX_PIECE ? n : STG_INDEX_PIECE;
        size_t bytes = n * PLACE_BYTES;
        if (read_at(index, index->places_at + at * PLACE_BYTES, piece + 1, bytes) !=
            bytes)
            return false;
        sum = stg_fingerprint64_join(sum, piece + 1, bytes);
        for (uint64_t i = 1; i <= n; i++) {
            if (!is_next(head, at + i > 1 ? &piece[i - 1] : NULL, &piece[i]))
                return false;
        }
        piece[0] = piece[n];
    }
    return sum == head->places_sum;
}

static bool read_place(const struct stg_index *index, uint64_t i,
                       struct stg_index_place *ret)
{
    return read_at(index, index->places_at + i * PLACE_BYTES, ret, PLACE_BYTES) ==
               PLACE_BYTES &&
           is_next(&index->head, NULL, ret);
}

bool stg_index_find(struct stg_index *index, uint64_t position,
                    struct stg_index_place *ret, uint64_t *ret_last)
{
    if (index->is_bad)
        return false;
    if (!index->is_checked && !check_places(index))
        return damaged(index);
    if (!index->is_checked)
        futimens(index->fd, NULL);
    index->is_checked = true;
    struct stg_index_place best, place;
    uint64_t last = UINT64_MAX;
    uint64_t low = 0, high = index->head.n_places; /* the places below low are before */
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (!read_place(index, middle, &place))
            return damaged(index);
        if (place.position < position) {
            best = place;
            low = middle + 1;
        } else {
            high = middle;
            last = place.position;
        }
    }
    *ret_last = last;
    if (low > 0)
        *ret = best;
    return low > 0;
}
