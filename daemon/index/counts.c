/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <string.h>

#include "daemon/index/layout.h"

#define N_SETS 8192
#define N_WAYS 8

struct count {
    uint64_t name, version; /* hashes; version 0: empty */
    uint64_t n;
};

/* The latest counts: each set keeps the last N_WAYS of its names. */
static struct {
    pthread_mutex_t lock; /* guards what follows */
    struct count sets[N_SETS][N_WAYS];
    uint8_t oldest[N_SETS];
} counts = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Returns an empty count of that file. */
static struct count count_of(const struct stg_index_key *key)
{
    uint64_t name = stg_fingerprint64_join(key->bytes, key->reader, strlen(key->reader));
    name = stg_fingerprint64_join(name, key->url, strlen(key->url));
    return (struct count){.name = name, .version = key->version | 1};
}

static bool find_noted(const struct stg_index_key *key, uint64_t *ret)
{
    const struct count count = count_of(key);
    const struct count *set = counts.sets[count.name % N_SETS];
    bool found = false;
    pthread_mutex_lock(&counts.lock);
    for (int i = 0; i < N_WAYS && !found; i++) {
        found = set[i].name == count.name && set[i].version == count.version;
        if (found)
            *ret = set[i].n;
    }
    pthread_mutex_unlock(&counts.lock);
    return found;
}

/* A large file is read to be counted, because that builds its index. */
bool stg_index_count(const struct stg_index_key *key, uint64_t *ret)
{
    struct stg_index *index;
    if (key->bytes < stg_index_min_bytes())
        return find_noted(key, ret);
    if (!stg_index_open(key, &index))
        return false;
    *ret = stg_index_totals(index)->n_positions;
    stg_index_close(index);
    return true;
}

void stg_index_note_count(const struct stg_index_key *key, uint64_t n)
{
    if (key->bytes >= stg_index_min_bytes())
        return;
    struct count count = count_of(key);
    uint64_t set = count.name % N_SETS;
    count.n = n;
    pthread_mutex_lock(&counts.lock);
    counts.sets[set][counts.oldest[set]] = count;
    counts.oldest[set] = (uint8_t)((counts.oldest[set] + 1) % N_WAYS);
    pthread_mutex_unlock(&counts.lock);
}
