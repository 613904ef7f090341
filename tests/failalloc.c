/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/failalloc.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "core/status.h"
#include "tests/check.h"

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *ptr, size_t bytes);
void *__real_aligned_alloc(size_t align, size_t bytes);
int __real_posix_memalign(void **ret, size_t align, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *ptr, size_t bytes);
void *__wrap_aligned_alloc(size_t align, size_t bytes);
int __wrap_posix_memalign(void **ret, size_t align, size_t bytes);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);

/* first: the allocation that fails, 0 for none; last: the last one that does. */
static _Atomic uint64_t count, first, last, n_failed;

static bool fails(void)
{
    uint64_t from = atomic_load(&first);
    if (from == 0)
        return false;
    uint64_t n = atomic_fetch_add(&count, 1) + 1;
    if (n < from || n > atomic_load(&last))
        return false;
    atomic_fetch_add(&n_failed, 1);
    errno = ENOMEM;
    return true;
}

static void arm(uint64_t from, uint64_t to)
{
    atomic_store(&first, 0);
    atomic_store(&count, 0);
    atomic_store(&n_failed, 0);
    atomic_store(&last, to);
    atomic_store(&first, from);
}

void stg_failalloc_once(uint64_t n)
{
    arm(n, n);
}

void stg_failalloc_from(uint64_t n)
{
    arm(n, UINT64_MAX);
}

uint64_t stg_failalloc_off(void)
{
    atomic_store(&first, 0);
    return atomic_load(&n_failed);
}

static uint64_t each(int (*attempt)(void *owner), void *owner, bool for_ever)
{
    for (uint64_t n = 1;; n++) {
        arm(n, for_ever ? UINT64_MAX : n);
        int rc = attempt(owner);
        if (stg_failalloc_off() == 0) {
            if (rc < 0)
                FAIL("no allocation failed, and it returned %d", rc);
            return n - 1;
        }
        if (rc != -STAGER_RESOURCE_EXHAUSTED)
            FAIL("allocation %llu failed (%s), and it returned %d", (unsigned long long)n,
                 for_ever ? "and all after it" : "alone", rc);
    }
}

uint64_t stg_failalloc_each(int (*attempt)(void *owner), void *owner)
{
    uint64_t n = each(attempt, owner, false);
    CHECK_INT(each(attempt, owner, true), n);
    return n;
}

void stg_failalloc_each_of_threads(int (*attempt)(void *owner), void *owner)
{
    each(attempt, owner, false);
    each(attempt, owner, true);
}

void *__wrap_malloc(size_t bytes)
{
    return fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    return fails() ? NULL : __real_calloc(n, bytes);
}

void *__wrap_realloc(void *ptr, size_t bytes)
{
    return fails() ? NULL : __real_realloc(ptr, bytes);
}

void *__wrap_aligned_alloc(size_t align, size_t bytes)
{
    return fails() ? NULL : __real_aligned_alloc(align, bytes);
}

int __wrap_posix_memalign(void **ret, size_t align, size_t bytes)
{
    return fails() ? ENOMEM : __real_posix_memalign(ret, align, bytes);
}

char *__wrap_strndup(const char *s, size_t n)
{
    size_t bytes = strnlen(s, n);
    char *copy = fails() ? NULL : __real_malloc(bytes + 1);
    if (copy != NULL) {
        memcpy(copy, s, bytes);
        copy[bytes] = '\0';
    }
    return copy;
}

char *__wrap_strdup(const char *s)
{
    return __wrap_strndup(s, strlen(s));
}
