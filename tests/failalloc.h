/* SPDX-License-Identifier: Apache-2.0
 *
 * An allocator that fails when it is told to: malloc, calloc, realloc, aligned_alloc,
 * posix_memalign, strdup and strndup of everything that is linked statically into the
 * test (the linker's --wrap; what libc allocates for itself does not count). Link with
 * the dependency `failalloc` of tests/meson.build. Any thread; the counter is of the
 * process.
 */
#ifndef STG_TESTS_FAILALLOC_H
#define STG_TESTS_FAILALLOC_H

#include <stdint.h>

/* From now on the n-th allocation (from 1) fails, and only that one. */
void stg_failalloc_once(uint64_t n);

/* From now on the n-th allocation and all after it fail. */
void stg_failalloc_from(uint64_t n);

/* None fails. Returns how many failed since it was armed. */
uint64_t stg_failalloc_off(void);

/* Calls attempt again and again: with its first allocation failing, then its second, and
 * so on, until one goes through without a failure; first one failure at a time, then all
 * from there on. attempt makes something, gives it back if that worked, checks what must
 * hold if it did not, and returns the code. A failed allocation must come back as
 * -STAGER_RESOURCE_EXHAUSTED (ends the test if not). Returns how many allocations it
 * makes when none fails. */
uint64_t stg_failalloc_each(int (*attempt)(void *owner), void *owner);

/* The same where threads allocate, so that their number differs from call to call. */
void stg_failalloc_each_of_threads(int (*attempt)(void *owner), void *owner);

#endif
