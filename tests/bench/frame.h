/* SPDX-License-Identifier: Apache-2.0
 *
 * Records with TFRecord's framing, for the files that benchmarks read.
 */
#ifndef STG_TESTS_BENCH_FRAME_H
#define STG_TESTS_BENCH_FRAME_H

#include <stdint.h>

#include "daemon/storage/codec/crc32c.h"

/* Frames the n bytes at `at` + STG_FRAME_HEAD: their length, and both checksums. Returns
 * the size of the frame. */
uint64_t bench_frame(void *at, uint64_t n);

/* Writes a frame of n random bytes; advances *seed. */
uint64_t bench_frame_random(void *at, uint64_t n, uint64_t *seed);

#endif
