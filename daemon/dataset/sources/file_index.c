/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/sources/file_index.h"

#include <stdlib.h>
#include <string.h>

static struct stg_index_key key_of(const struct stg_file_index *file)
{
    return (struct stg_index_key){.url = file->url,
                                  .reader = file->reader,
                                  .version = file->version,
                                  .bytes = file->bytes};
}

/* A file of unknown version may change without a trace. */
bool stg_file_index_key(const struct stg_file_index *file, struct stg_source *source,
                        const char *url, struct stg_index_key *ret)
{
    const struct stg_storage *storage = source->storage;
    *ret = (struct stg_index_key){.url = url, .reader = file->reader};
    return file->reader != NULL && storage->version != NULL &&
           storage->size(source, &ret->bytes, NULL) == 0 &&
           storage->version(source, &ret->version, NULL) == 0;
}

static void count_index(_Atomic uint64_t *n, struct stg_file_index *file, uint64_t bytes)
{
    atomic_fetch_add_explicit(n, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&file->dataset->indexes.bytes, bytes, memory_order_relaxed);
}

/* ---- indexes of files that are not open ---- */

static void forget_cached(struct stg_cached_index *cached)
{
    stg_index_close(cached->index);
    free(cached->url);
    *cached = (struct stg_cached_index){0};
}

static void put_cached(struct stg_file_index *file)
{
    struct stg_cached_index *cached =
        &file->cached[file->n_cached++ % STG_FILE_INDEX_CACHED];
    forget_cached(cached);
    *cached = (struct stg_cached_index){.index = file->index,
                                        .url = strdup(file->url),
                                        .version = file->version,
                                        .bytes = file->bytes};
    file->index = NULL;
    if (cached->url == NULL)
        forget_cached(cached);
}

/* Takes the index of the file, if it is among those. */
static bool take_cached(struct stg_file_index *file)
{
    for (unsigned i = 0; i < STG_FILE_INDEX_CACHED; i++) {
        struct stg_cached_index *cached = &file->cached[i];
        if (cached->index == NULL || cached->version != file->version ||
            cached->bytes != file->bytes || strcmp(cached->url, file->url) != 0)
            continue;
        file->index = cached->index;
        cached->index = NULL;
        forget_cached(cached);
        file->looked = true;
        return true;
    }
    return false;
}

void stg_file_index_finish(struct stg_file_index *file)
{
    stg_file_index_drop(file);
    for (unsigned i = 0; i < STG_FILE_INDEX_CACHED; i++)
        forget_cached(&file->cached[i]);
}

/* ---- the file that is open ---- */

void stg_file_index_begin(struct stg_file_index *file, struct stg_source *source,
                          const char *url)
{
    stg_file_index_drop(file);
    file->so_far = (struct stg_index_totals){0};
    struct stg_index_key key;
    if (!stg_file_index_key(file, source, url, &key) || key.bytes < stg_index_min_bytes())
        return;
    file->file = source;
    file->url = url;
    file->version = key.version;
    file->bytes = key.bytes;
    if (take_cached(file))
        return;
    struct stg_index *index;
    if (stg_index_open(&key, &index)) {
        count_index(&file->dataset->indexes.n_found, file, stg_index_bytes(index));
        stg_index_close(index);
    } else {
        file->builder = stg_index_build(&key);
    }
}

void stg_file_index_drop(struct stg_file_index *file)
{
    stg_index_abandon(file->builder);
    file->builder = NULL;
    if (file->caches && file->index != NULL && !stg_index_is_bad(file->index))
        put_cached(file);
    stg_index_close(file->index);
    file->index = NULL;
    file->looked = false;
    file->same_until = 0;
    file->file = NULL;
}

/* The first record from builder->next on, until there is none. */
static void note(struct stg_file_index *file, const struct stg_records *records,
                 const int64_t *begin, const int64_t *end)
{
    int64_t n_parts = file->n_parts, from = 0;
    struct stg_index_builder *builder = file->builder;
    while (from < records->n &&
           records->base + (uint64_t)begin[(records->n - 1) * n_parts] >= builder->next) {
        int64_t high = records->n - 1; /* is far enough */
        while (from < high) {
            int64_t middle = from + (high - from) / 2;
            if (records->base + (uint64_t)begin[middle * n_parts] >= builder->next)
                high = middle;
            else
                from = middle + 1;
        }
        int64_t at = begin[from * n_parts];
        struct stg_index_place place = {
            .position = file->so_far.n_positions + (uint64_t)from,
            .record = records->first + (uint64_t)from,
            .offset = records->base + (uint64_t)at,
            .check = stg_index_check(records->chunk->data + at,
                                     (uint64_t)(end[from * n_parts] - at))};
        stg_index_note(builder, &place);
        from++;
    }
}

void stg_file_index_count(struct stg_file_index *file, const struct stg_records *records,
                          const int64_t *begin, const int64_t *end)
{
    if (records->bad.code != 0) {
        file->so_far.n_positions++;
        return;
    }
    int64_t last = (records->n - 1) * (int64_t)file->n_parts;
    if (file->builder != NULL &&
        records->base + (uint64_t)begin[last] >= file->builder->next)
        note(file, records, begin, end);
    file->so_far.n_positions += (uint64_t)records->n;
    file->so_far.n_records += (uint64_t)records->n;
    file->so_far.end = records->base + (uint64_t)end[last];
    atomic_store_explicit(&file->dataset->indexes.offset, file->so_far.end,
                          memory_order_relaxed);
}

void stg_file_index_end(struct stg_file_index *file)
{
    uint64_t version, bytes;
    if (file->builder == NULL ||
        file->file->storage->version(file->file, &version, NULL) < 0 ||
        version != file->version)
        return;
    if (stg_index_commit(file->builder, &file->so_far, &bytes))
        count_index(&file->dataset->indexes.n_built, file, bytes);
    file->builder = NULL;
}

struct stg_index *stg_file_index_find(struct stg_file_index *file)
{
    struct stg_index_key key = key_of(file);
    if (!file->looked && file->file != NULL && file->builder == NULL &&
        !stg_index_open(&key, &file->index))
        file->index = NULL;
    file->looked = true;
    return file->index;
}

bool stg_file_index_is_at(const struct stg_index_place *place,
                          const struct stg_records *records, const int64_t *begin,
                          const int64_t *end)
{
    return records->bad.code == 0 && records->n > 0 && records->first == place->record &&
           records->base + (uint64_t)begin[0] == place->offset &&
           stg_index_check(records->chunk->data + begin[0],
                           (uint64_t)(end[0] - begin[0])) == place->check;
}
