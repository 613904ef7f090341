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

/* Steps of a pipeline, with a folder for printf: random crops of 224 x 224 of its JPEG
 * files, flipped and normalized. */
#define PHOTOGRAPHS_STEPS                                                                \
    "- files: {pattern: [\"%s/*.jpg\"], shuffle: false}\n"                               \
    "- read_file: {}\n"                                                                  \
    "- map:\n"                                                                           \
    "    graph:\n"                                                                       \
    "    - {name: a, op: random_resized_crop, input: [bytes], size: [224, 224], seed: "  \
    "1}\n"                                                                               \
    "    - {name: b, op: random_flip, input: [a], seed: 2}\n"                            \
    "    - {name: c, op: normalize_image, input: [b], mean: [123.675, 116.28, "          \
    "103.53],\n"                                                                         \
    "       std: [58.395, 57.12, 57.375]}\n"                                             \
    "    output: {image: c}\n"

/* Loads or makes them. Returns the folder; NULL: they are made. Failures end the program,
 * as with all of these. */
const char *photographs_create(void);
void photographs_destroy(void);

/* Writes them to a new folder, as 0.jpg, 1.jpg, …; folder: a template for mkdtemp, of at
 * most 64 bytes. */
void photographs_write(char *folder);
void photographs_remove(const char *folder);

#endif
