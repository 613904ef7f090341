/* SPDX-License-Identifier: Apache-2.0
 *
 * Sorting names of files: a million of them, which begin alike as paths do. They are
 * compared eight bytes at a time, and those that are equal there by the next eight
 * (quicksort by keys), so that no byte of a path is looked at more often than it is worth
 * and memory is gone through in order. Names that come folder by folder are sorted in
 * each folder; all together only where folders do not follow one another then.
 */
#ifndef STG_DAEMON_PATHS_H
#define STG_DAEMON_PATHS_H

#include <stddef.h>

/* Bytes that sorting n names takes. */
size_t stg_paths_sort_bytes(size_t n);

/* Sorts n names by their bytes, as strcmp has it. -STAGER_RESOURCE_EXHAUSTED: no memory;
 * the names are as they were. */
int stg_paths_sort(const char **names, size_t n);

#endif
