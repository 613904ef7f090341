/* SPDX-License-Identifier: Apache-2.0
 *
 * A bump allocator: many small allocations, one free. Specs and replies live in one. Not
 * for batches. One thread at a time.
 */
#ifndef STG_CORE_BUMP_H
#define STG_CORE_BUMP_H

#include <stddef.h>

struct stg_bump_chunk;

/* init/finish: memory of the struct is the caller's. A zeroed struct is initialised. */
struct stg_bump {
    struct stg_bump_chunk *chunks;
    size_t used;     /* bytes of the first chunk in use */
    size_t capacity; /* bytes of the first chunk */
    size_t total;    /* bytes of all chunks */
    size_t limit;    /* no more than this in total; 0: no limit */
};

void stg_bump_init(struct stg_bump *bump, size_t limit);

/* Frees everything at once. NULL is allowed. */
void stg_bump_finish(struct stg_bump *bump);

/* Drops all allocations but keeps the largest chunk for reuse: no malloc in a steady
 * state. */
void stg_bump_reset(struct stg_bump *bump);

/* Zeroed bytes, aligned to 64. NULL when out of memory or over the limit. */
void *stg_bump_alloc(struct stg_bump *bump, size_t bytes);

/* As stg_bump_alloc, not zeroed. */
void *stg_bump_alloc_raw(struct stg_bump *bump, size_t bytes);

/* A NUL-terminated copy of n bytes. NULL when out of memory. */
char *stg_bump_strndup(struct stg_bump *bump, const char *s, size_t n);

/* A copy of a text. NULL when out of memory. */
char *stg_bump_strdup(struct stg_bump *bump, const char *s);

/* A formatted text. NULL when out of memory. */
char *stg_bump_printf(struct stg_bump *bump, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
