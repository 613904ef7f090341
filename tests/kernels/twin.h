/* SPDX-License-Identifier: Apache-2.0
 *
 * A kernel of a device beside the op that it does the work of. Failures end the test.
 */
#ifndef STG_TESTS_KERNELS_TWIN_H
#define STG_TESTS_KERNELS_TWIN_H

#include "core/batch.h"
#include "core/device.h"

/* The device under test. It has kernels, and NULL is a stream of it. */
struct bench {
    const struct stg_device *device;
    const struct stg_device_kernels *kernels;
};

/* The kernels as plain C, over the host's memory (emulate.hpp); where there is no nvcc,
 * the test is skipped. */
struct bench bench_emulated(void);

/* The GPU's; the test is skipped where there is none. */
struct bench bench_gpu(void);

/* Bytes on the device. up: a copy of data; down: n of them into fresh memory of the
 * host. */
void *bench_up(const struct bench *bench, const void *data, size_t bytes);
void *bench_room(const struct bench *bench, size_t bytes);
void *bench_down(const struct bench *bench, const void *at, size_t bytes);
void bench_free(const struct bench *bench, void *at);

/* Output 0 of the op, in fresh memory, and its bytes. attrs as a case of tests/ops has
 * them. */
void *twin_run(const char *op, const char *attrs, const struct stg_tensor *inputs,
               size_t n, size_t *ret_bytes);

/* n elements are the same: bit by bit, and any NaN for a NaN. */
void twin_same(const char *what, int dtype, const void *got, const void *want, size_t n);

/* Or at most `ulps` representable numbers apart. */
void twin_near(const char *what, int dtype, const void *got, const void *want, size_t n,
               int64_t ulps);

/* Random bytes; the same every time. */
void twin_random(uint64_t seed, void *data, size_t bytes);

/* Over data, which the caller keeps. */
struct stg_tensor twin_tensor(int dtype, int ndim, const int64_t *shape, void *data);

#endif
