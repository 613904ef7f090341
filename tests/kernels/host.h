/* SPDX-License-Identifier: Apache-2.0
 *
 * A kernel of a device next to the op that it replaces. A failure ends the test.
 */
#ifndef STG_TESTS_KERNELS_HOST_H
#define STG_TESTS_KERNELS_HOST_H

#include "core/batch.h"
#include "core/device.h"

/* The device under test. It has kernels; NULL is one of its streams. */
struct bench {
    const struct stg_device *device;
    const struct stg_device_kernels *kernels;
};

/* Uses the kernels as plain C, on host memory (emulate.hpp). Skips the test without
 * nvcc. */
struct bench bench_emulated(void);

/* Uses the GPU's kernels. Skips the test without a GPU. */
struct bench bench_gpu(void);

/* Copy bytes to or from the device. up: a copy of data; down: n bytes into new host
 * memory. */
void *bench_up(const struct bench *bench, const void *data, size_t bytes);
void *bench_room(const struct bench *bench, size_t bytes);
void *bench_down(const struct bench *bench, const void *at, size_t bytes);
void bench_free(const struct bench *bench, void *at);

/* Returns output 0 of the op, in new memory, and its size. attrs are written as in a case
 * of tests/ops. */
void *host_run(const char *op, const char *attrs, const struct stg_tensor *inputs,
               size_t n, size_t *ret_bytes);

/* Checks that n elements are bitwise equal; any NaN equals a NaN. */
void host_same(const char *what, int dtype, const void *got, const void *want, size_t n);

/* Checks that they differ by at most `ulps` representable numbers. */
void host_near(const char *what, int dtype, const void *got, const void *want, size_t n,
               int64_t ulps);

/* Returns random bytes, the same every time. */
void host_random(uint64_t seed, void *data, size_t bytes);

/* A tensor over data, which the caller keeps. */
struct stg_tensor host_tensor(int dtype, int ndim, const int64_t *shape, void *data);

#endif
