/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/storage/http/recent.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ENTRIES 512u
#define MAX_BYTES ((uint64_t)16 << 20)
#define MAX_ENTRY_BYTES ((uint64_t)1 << 20)

struct entry {
    char *url;
    struct stg_version version;
    uint64_t begin, bytes;
    char *data;
    uint64_t used_at; /* the larger, the later */
};

static struct {
    pthread_mutex_t lock; /* guards the rest */
    struct entry entries[MAX_ENTRIES];
    unsigned n;
    uint64_t bytes, clock;
} recent = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is_same(const struct entry *entry, const char *url,
                    const struct stg_version *version, uint64_t begin, uint64_t bytes)
{
    return entry->begin == begin && entry->bytes == bytes &&
           entry->version.size == version->size &&
           strcmp(entry->version.etag, version->etag) == 0 &&
           strcmp(entry->version.modified, version->modified) == 0 &&
           strcmp(entry->url, url) == 0;
}

/* The lock is held, as for those below. */
static struct entry *find(const char *url, const struct stg_version *version,
                          uint64_t begin, uint64_t bytes)
{
    for (unsigned i = 0; i < recent.n; i++) {
        if (is_same(&recent.entries[i], url, version, begin, bytes))
            return &recent.entries[i];
    }
    return NULL;
}

static void drop(struct entry *entry)
{
    recent.bytes -= entry->bytes;
    free(entry->url);
    free(entry->data);
    *entry = recent.entries[--recent.n];
}

static void make_room(uint64_t bytes)
{
    while (recent.n == MAX_ENTRIES || recent.bytes + bytes > MAX_BYTES) {
        struct entry *oldest = &recent.entries[0];
        for (unsigned i = 1; i < recent.n; i++) {
            if (recent.entries[i].used_at < oldest->used_at)
                oldest = &recent.entries[i];
        }
        drop(oldest);
    }
}

static void add(const struct entry *entry)
{
    make_room(entry->bytes);
    recent.entries[recent.n] = *entry;
    recent.entries[recent.n++].used_at = ++recent.clock;
    recent.bytes += entry->bytes;
}

static bool is_named(const struct stg_version *version)
{
    return version->known && (version->etag[0] != '\0' || version->modified[0] != '\0');
}

bool stg_recent_get(const char *url, const struct stg_version *version, uint64_t begin,
                    void *buf, uint64_t bytes)
{
    if (!is_named(version))
        return false;
    pthread_mutex_lock(&recent.lock);
    struct entry *entry = find(url, version, begin, bytes);
    if (entry != NULL) {
        memcpy(buf, entry->data, bytes);
        entry->used_at = ++recent.clock;
    }
    pthread_mutex_unlock(&recent.lock);
    return entry != NULL;
}

void stg_recent_put(const char *url, const struct stg_version *version, uint64_t begin,
                    const void *buf, uint64_t bytes)
{
    if (!is_named(version) || bytes == 0 || bytes > MAX_ENTRY_BYTES)
        return;
    struct entry entry = {
        .url = strdup(url), .version = *version, .begin = begin, .bytes = bytes};
    entry.data = malloc(bytes);
    bool is_added = false;
    if (entry.url != NULL && entry.data != NULL) {
        memcpy(entry.data, buf, bytes);
        pthread_mutex_lock(&recent.lock);
        is_added = find(url, version, begin, bytes) == NULL;
        if (is_added)
            add(&entry);
        pthread_mutex_unlock(&recent.lock);
    }
    if (!is_added) {
        free(entry.url);
        free(entry.data);
    }
}

void stg_recent_finish(void)
{
    pthread_mutex_lock(&recent.lock);
    while (recent.n > 0)
        drop(&recent.entries[0]);
    pthread_mutex_unlock(&recent.lock);
}
