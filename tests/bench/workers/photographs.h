/* SPDX-License-Identifier: Apache-2.0
 *
 * JPEG files for benchmarks: those of the folder STAGER_BENCH_IMAGES, or without it 100
 * that are made here, 500 x 375, quality 93.
 */
#ifndef STG_TESTS_BENCH_WORKERS_PHOTOGRAPHS_H
#define STG_TESTS_BENCH_WORKERS_PHOTOGRAPHS_H

#include <stddef.h>

#define MAX_PHOTOGRAPHS 1000

struct photograph {
    unsigned char *data;
    unsigned long bytes;
};

extern struct photograph photographs[MAX_PHOTOGRAPHS];
extern size_t n_photographs;

/* Loads or makes them. Returns the folder; NULL: they are made. Failures end the program,
 * as with all of these. */
const char *photographs_create(void);
void photographs_destroy(void);

/* Writes them to a new folder, as 0.jpg, 1.jpg, …; folder: a template for mkdtemp, of at
 * most 64 bytes. */
void photographs_write(char *folder);
void photographs_remove(const char *folder);

#endif
