/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/format/window.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN 64u

void stg_window_init(struct stg_window *window, const struct stg_format_config *config,
                     const char *what)
{
    *window = (struct stg_window){.config = *config, .what = what, .at_end = true};
}

void stg_window_finish(struct stg_window *window)
{
    stg_chunk_unref(window->chunk);
    window->chunk = NULL;
}

void stg_window_reader_destroy(void *reader)
{
    if (reader == NULL)
        return;
    stg_window_finish(reader);
    free(reader);
}

void stg_window_reader_stop(void *reader)
{
}

/* A chunk's capacity is a multiple of ALIGN. */
void stg_window_start(struct stg_window *window, struct stg_source *source)
{
    window->source = source;
    window->fill = (window->fill + ALIGN - 1) & ~(uint64_t)(ALIGN - 1);
    window->scan = window->fill;
    window->base = 0 - window->fill;
    window->at_end = false;
}

static bool is_mine(const struct stg_window *window)
{
    return atomic_load_explicit(&window->chunk->refs, memory_order_acquire) == 1;
}

/* What is left goes to position `to` of data. */
static void move_to(struct stg_window *window, char *data, uint64_t to)
{
    uint64_t rest = stg_window_left(window);
    if (rest > 0)
        memmove(data + to, window->chunk->data + window->scan, rest);
    window->base += window->scan - to;
    window->scan = to;
    window->fill = to + rest;
}

/* Bytes of a chunk for a record that takes at least `bytes` and may turn out to be
 * longer: twice what there is of it, so that it is moved a few times only. */
static uint64_t chunk_bytes_for(const struct stg_window *window, uint64_t bytes)
{
    const struct stg_format_config *config = &window->config;
    uint64_t want = 2 * stg_window_left(window);
    uint64_t most = config->max_record_bytes + config->read_bytes;
    if (want > most)
        want = most;
    if (want < bytes)
        want = bytes;
    want += ALIGN;
    return want > config->chunk_bytes ? want : config->chunk_bytes;
}

/* Room for `bytes` from scan on, which is then at position `at` modulo ALIGN. */
static int make_room(struct stg_window *window, uint64_t bytes, uint64_t at,
                     struct stg_err *err)
{
    uint64_t want = chunk_bytes_for(window, bytes);
    if (window->chunk != NULL && is_mine(window) && window->chunk->capacity >= want &&
        window->chunk->capacity / 2 <= want) {
        move_to(window, window->chunk->data, at);
        return 0;
    }
    struct stg_chunk *chunk;
    int rc = stg_chunk_create(window->config.quota, want, window->what, &chunk, err);
    if (rc < 0)
        return rc;
    move_to(window, chunk->data, at);
    stg_chunk_unref(window->chunk);
    window->chunk = chunk;
    return 0;
}

int stg_window_compact(struct stg_window *window, struct stg_err *err)
{
    if (window->chunk == NULL)
        return 0;
    uint64_t at = window->scan % ALIGN;
    if (window->chunk->capacity / 2 > chunk_bytes_for(window, 0))
        return make_room(window, 0, at, err);
    if (stg_window_left(window) <= window->scan / 4 && is_mine(window))
        move_to(window, window->chunk->data, at);
    return 0;
}

int stg_window_align(struct stg_window *window, struct stg_err *err)
{
    if (window->chunk == NULL || window->scan % ALIGN == 0)
        return 0;
    return make_room(window, 0, 0, err);
}

int stg_window_check_stopped(const struct stg_window *window, struct stg_err *err)
{
    const _Atomic int *stopped = window->config.stopped;
    if (stopped != NULL && atomic_load_explicit(stopped, memory_order_relaxed) != 0)
        return stg_err(err, -STAGER_CANCELLED, "the pipeline was stopped");
    return 0;
}

/* Appends what the source has next to the chunk, which has room. */
static int fill(struct stg_window *window, struct stg_err *err)
{
    uint64_t bytes = window->chunk->capacity - window->fill;
    if (bytes > window->config.read_bytes)
        bytes = window->config.read_bytes;
    int64_t n = stg_source_read(window->source, window->base + window->fill,
                                window->chunk->data + window->fill, bytes, err);
    if (n < 0)
        return (int)n;
    window->fill += (uint64_t)n;
    window->at_end = n == 0;
    return 0;
}

int stg_window_need(struct stg_window *window, uint64_t bytes, bool same_chunk,
                    struct stg_err *err)
{
    while (stg_window_left(window) < bytes) {
        if (window->at_end)
            return STG_WINDOW_SHORT;
        int rc = stg_window_check_stopped(window, err);
        if (rc < 0)
            return rc;
        if (window->chunk == NULL || window->chunk->capacity - window->scan < bytes) {
            if (same_chunk)
                return STG_WINDOW_FULL;
            rc = make_room(window, bytes, window->scan % ALIGN, err);
        }
        if (rc == 0)
            rc = fill(window, err);
        if (rc < 0)
            return rc;
    }
    return STG_WINDOW_THERE;
}

bool stg_window_append(struct stg_window *window, struct stg_chunk *chunk, uint64_t at,
                       uint64_t bytes)
{
    uint64_t left = stg_window_left(window);
    if (chunk != window->chunk) {
        if (left > at)
            return false;
        move_to(window, chunk->data, at - left);
        stg_chunk_unref(window->chunk);
        window->chunk = stg_chunk_ref(chunk);
    }
    window->fill += bytes;
    return true;
}

/* Of what is skipped, the last byte is read: it says whether the file has that much. */
int stg_window_skip(struct stg_window *window, uint64_t bytes, struct stg_err *err)
{
    uint64_t left = stg_window_left(window);
    if (bytes <= left) {
        window->scan += bytes;
        return STG_WINDOW_THERE;
    }
    window->scan = window->fill;
    if (window->at_end)
        return STG_WINDOW_SHORT;
    window->base += bytes - left - 1;
    int rc = stg_window_need(window, 1, false, err);
    if (rc == STG_WINDOW_THERE)
        window->scan++;
    return rc;
}

void stg_window_seek(struct stg_window *window, uint64_t offset)
{
    uint64_t bytes = offset - stg_window_offset(window);
    if (bytes <= stg_window_left(window)) {
        window->scan += bytes;
        return;
    }
    window->scan = window->fill;
    window->base = offset - window->fill;
    window->at_end = false;
}
