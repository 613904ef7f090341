/* SPDX-License-Identifier: Apache-2.0 */
#include "core/bump.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN 64u
#define FIRST_CHUNK 4096u

/* The header of one heap allocation. Its usable bytes follow, aligned to 64. */
struct stg_bump_chunk {
    struct stg_bump_chunk *next;
    size_t bytes;
};

static char *chunk_bytes(struct stg_bump_chunk *chunk)
{
    return (char *)chunk + ALIGN;
}

void stg_bump_init(struct stg_bump *bump, size_t limit)
{
    *bump = (struct stg_bump){.limit = limit};
}

void stg_bump_finish(struct stg_bump *bump)
{
    if (bump == NULL)
        return;
    struct stg_bump_chunk *chunk = bump->chunks;
    while (chunk != NULL) {
        struct stg_bump_chunk *next = chunk->next;
        free(chunk);
        chunk = next;
    }
    stg_bump_init(bump, bump->limit);
}

void stg_bump_reset(struct stg_bump *bump)
{
    struct stg_bump_chunk *keep = bump->chunks;
    for (struct stg_bump_chunk *c = bump->chunks; c != NULL; c = c->next) {
        if (c->bytes > keep->bytes)
            keep = c;
    }
    struct stg_bump_chunk *chunk = bump->chunks;
    while (chunk != NULL) {
        struct stg_bump_chunk *next = chunk->next;
        if (chunk != keep)
            free(chunk);
        chunk = next;
    }
    bump->chunks = keep;
    bump->used = 0;
    bump->capacity = keep != NULL ? keep->bytes : 0;
    bump->total = bump->capacity;
    if (keep != NULL)
        keep->next = NULL;
}

/* Adds a chunk that is larger than all earlier chunks together, if the limit allows:
 * after a few resets, which keep only the largest, one chunk is enough. */
static int grow(struct stg_bump *bump, size_t bytes)
{
    size_t want = bump->total + bump->total / 2;
    want = want < FIRST_CHUNK ? FIRST_CHUNK : want & ~(size_t)(ALIGN - 1);
    if (want < bytes)
        want = bytes;
    if (bump->limit != 0 &&
        (bump->total > bump->limit || want > bump->limit - bump->total)) {
        want = bytes;
        if (bump->total > bump->limit || want > bump->limit - bump->total)
            return -1;
    }
    struct stg_bump_chunk *chunk = aligned_alloc(ALIGN, want + ALIGN);
    if (chunk == NULL)
        return -1;
    chunk->next = bump->chunks;
    chunk->bytes = want;
    bump->chunks = chunk;
    bump->used = 0;
    bump->capacity = want;
    bump->total += want;
    return 0;
}

void *stg_bump_alloc_raw(struct stg_bump *bump, size_t bytes)
{
    if (bytes > SIZE_MAX - 2 * ALIGN)
        return NULL;
    bytes = (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (bytes == 0)
        bytes = ALIGN;
    if (bump->capacity - bump->used < bytes && grow(bump, bytes) < 0)
        return NULL;
    void *ret = chunk_bytes(bump->chunks) + bump->used;
    bump->used += bytes;
    return ret;
}

void *stg_bump_alloc(struct stg_bump *bump, size_t bytes)
{
    void *ret = stg_bump_alloc_raw(bump, bytes);
    if (ret != NULL)
        memset(ret, 0, bytes);
    return ret;
}

char *stg_bump_strndup(struct stg_bump *bump, const char *s, size_t n)
{
    char *ret = stg_bump_alloc_raw(bump, n + 1);
    if (ret != NULL) {
        memcpy(ret, s, n);
        ret[n] = '\0';
    }
    return ret;
}

char *stg_bump_strdup(struct stg_bump *bump, const char *s)
{
    return stg_bump_strndup(bump, s, strlen(s));
}

char *stg_bump_printf(struct stg_bump *bump, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *text = n >= 0 ? stg_bump_alloc_raw(bump, (size_t)n + 1) : NULL;
    if (text == NULL)
        return NULL;
    va_start(args, fmt);
    vsnprintf(text, (size_t)n + 1, fmt, args);
    va_end(args);
    return text;
}
