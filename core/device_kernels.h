/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops that run on a device: launches in the order of a stream, over memory of the device.
 * Each does what the op of its name does on the CPU (ops/), and differs from it by no
 * more than is said here. All pointers are the device's, aligned to their elements; y
 * overlaps no input unless it says so. Sizes of 0 are allowed. Errors: INVALID_ARGUMENT
 * (a dtype or a size that the kernel does not take), or the device's.
 */
#ifndef STG_CORE_DEVICE_KERNELS_H
#define STG_CORE_DEVICE_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

#define STG_KERNEL_CHANNELS 4

/* An order of work on a device; NULL is the default one of device 0. */
struct stg_stream;

/* Images x [n, height, width, channels], uint8 or float32, to y [n, channels, height,
 * width], float32 or float16: (x - mean[c]) / std[c], which is rounded as the CPU's. */
struct stg_kernel_normalize {
    size_t n, height, width, channels; /* channels: 1 to STG_KERNEL_CHANNELS */
    int x_dtype, y_dtype;
    float mean[STG_KERNEL_CHANNELS], std[STG_KERNEL_CHANNELS];
};

enum stg_kernel_combiner {
    STG_KERNEL_NONE, /* row r of y is the table's row ids[r] */
    STG_KERNEL_SUM,
    STG_KERNEL_MEAN,
    STG_KERNEL_SQRTN,
};

/* y [n, width] from table [n_table, width]. With a combiner row r of y is made of ids
 * splits[r] up to splits[r + 1], each times its weight (NULL: 1); no ids, or weights that
 * add up to 0: zeros. The sum is taken in the order of the ids, in float32 (float64 for
 * float64); what the CPU makes of it differs in the last place where it contracts a
 * multiplication and an addition into one. An id outside of the table counts as a row of
 * zeros, and *bad, if not NULL, becomes the least index of such an id when that is less
 * than what is there (write INT64_MAX first). */
struct stg_kernel_lookup {
    enum stg_kernel_combiner combiner;
    int dtype;     /* of table, y and weights: float32, float64, float16, bfloat16 */
    int ids_dtype; /* int32 or int64 */
    int64_t n, width, n_table;
    void *y;
    const void *table, *ids;
    const int64_t *splits; /* NULL without a combiner */
    const void *weights;
    int64_t *bad;
};

/* Any thread; a stream by one at a time. */
struct stg_device_kernels {
    int (*normalize_image)(struct stg_stream *stream,
                           const struct stg_kernel_normalize *how, void *y, const void *x,
                           struct stg_err *err);

    /* y[i] = x[i] as y_dtype, any but string: exactly what the op does. NaN becomes some
     * NaN. */
    int (*cast)(struct stg_stream *stream, int y_dtype, void *y, int x_dtype,
                const void *x, size_t n, struct stg_err *err);

    /* y[i]: FarmHash Fingerprint64 of bytes[offsets[i]] .. bytes[offsets[i + 1]] modulo
     * num_buckets (at least 1). Exact. */
    int (*hash_bucket)(struct stg_stream *stream, int64_t *y, const char *bytes,
                       const int64_t *offsets, size_t n, uint64_t num_buckets,
                       struct stg_err *err);

    /* y[i]: how many of the rising boundaries are not above x[i]; of NaN all. x is int32,
     * int64, float32 or float64. Exact. */
    int (*bucketize)(struct stg_stream *stream, int32_t *y, int x_dtype, const void *x,
                     size_t n, const float *boundaries, size_t n_boundaries,
                     struct stg_err *err);

    int (*embedding_lookup)(struct stg_stream *stream,
                            const struct stg_kernel_lookup *how, struct stg_err *err);

    /* y[i] = log(1 + x[i]), float32, float64, float16 or bfloat16, within 2 units in the
     * last place. y may be x. */
    int (*log1p)(struct stg_stream *stream, int dtype, void *y, const void *x, size_t n,
                 struct stg_err *err);

    /* Row r of y is row r of each x, one behind the other: row_bytes[i] bytes of x[i].
     * The arrays are the host's, read before the call returns. Exact. */
    int (*concat)(struct stg_stream *stream, void *y, const void *const *x,
                  const size_t *row_bytes, size_t n_x, size_t n_rows,
                  struct stg_err *err);
};

#endif
