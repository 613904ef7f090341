/* SPDX-License-Identifier: Apache-2.0
 *
 * An allocator that fails on request: malloc, calloc, realloc, aligned_alloc,
 * posix_memalign, strdup and strndup of all code linked statically into the test (the
 * linker's --wrap; allocations inside libc do not count). Link with the dependency
 * `failalloc` of tests/meson.build. Any thread; the counter belongs to the process.
 */
#ifndef STG_TESTS_FAILALLOC_H
#define STG_TESTS_FAILALLOC_H

#include <stdint.h>

/* Makes the n-th allocation from now (from 1) fail, and only that one. */
void stg_failalloc_once(uint64_t n);

/* Makes the n-th allocation from now and all after it fail. */
void stg_failalloc_from(uint64_t n);

/* Disarms. Returns the number of failures since it was armed. */
uint64_t stg_failalloc_off(void);

/* Calls attempt repeatedly: with its first allocation failing, then its second, and so
 * on, until a call meets no failure. First one allocation fails, then all from there on.
 * attempt makes something, releases it on success, checks the state on failure, and
 * returns the code. A failed allocation must give -STAGER_RESOURCE_EXHAUSTED (otherwise
 * the test ends). Returns the number of allocations of a call without failures. */
uint64_t stg_failalloc_each(int (*attempt)(void *owner), void *owner);

/* The same if threads allocate, so that the number varies from call to call. */
void stg_failalloc_each_of_threads(int (*attempt)(void *owner), void *owner);

#endif
