/* SPDX-License-Identifier: Apache-2.0
 *
 * Records as TFRecord frames them, for the files that benchmarks read.
 */
#ifndef STG_TESTS_BENCH_FRAME_H
#define STG_TESTS_BENCH_FRAME_H

#include <stdint.h>

#include "daemon/storage/codec/crc32c.h"

/* Around the n bytes at `at` + STG_FRAME_HEAD: their length, and both checksums. Returns
 * the bytes of the frame. */
uint64_t bench_frame(void *at, uint64_t n);

/* A frame of n bytes that nobody can guess; *seed goes on. */
uint64_t bench_frame_random(void *at, uint64_t n, uint64_t *seed);

#endif
