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

#include <stdbool.h>
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

/* Loops over two inputs at once, the last is the innermost; the output is contiguous. */
#define STG_KERNEL_LOOPS 9 /* the dimensions of a tensor, and one */
struct stg_kernel_loops {
    int n; /* at least 1 */
    int64_t size[STG_KERNEL_LOOPS];
    int64_t stride[2][STG_KERNEL_LOOPS]; /* 0: repeated */
};

enum stg_kernel_binary {
    STG_KERNEL_ADD, /* integers wrap */
    STG_KERNEL_SUBTRACT,
    STG_KERNEL_MULTIPLY,
    STG_KERNEL_DIVIDE,  /* floats */
    STG_KERNEL_MINIMUM, /* NaN wins */
    STG_KERNEL_MAXIMUM,
    STG_KERNEL_EQUAL, /* from here on y is bool */
    STG_KERNEL_NOT_EQUAL,
    STG_KERNEL_LESS,
    STG_KERNEL_LESS_EQUAL,
    STG_KERNEL_GREATER,
    STG_KERNEL_GREATER_EQUAL,
    STG_KERNEL_LOGICAL_AND, /* bool, as may be those that ask for equality */
    STG_KERNEL_LOGICAL_OR,
    STG_KERNEL_N_BINARY,
};

/* y = x[0] OP x[1], element by element; strides are in elements. Exact. */
struct stg_kernel_pair {
    enum stg_kernel_binary op;
    int dtype; /* of both inputs */
    struct stg_kernel_loops loops;
    void *y;
    const void *x[2];
};

enum stg_kernel_unary {
    STG_KERNEL_NEGATIVE, /* floats and signed integers; exact */
    STG_KERNEL_ABS,
    STG_KERNEL_RELU, /* numbers; exact */
    STG_KERNEL_LOGICAL_NOT,
    STG_KERNEL_EXP, /* from here on floats: sqrt is exact, the others are within 4 units
                     */
    STG_KERNEL_LOG, /* in the last place */
    STG_KERNEL_SQRT,
    STG_KERNEL_TANH,
    STG_KERNEL_SIGMOID,
    STG_KERNEL_N_UNARY,
};

/* y = x[0] x[1] of matrices [m, k] and [k, n], [k, m] and [n, k] if transposed, all
 * contiguous; strides of the loops are in matrices. float32, float64, float16, bfloat16,
 * int32 and int64. Integers are exact. A sum of floats is taken in any order, in float32
 * (float64 for float64), and is rounded once: it differs from the CPU's by at most
 * k * epsilon * sum(|x[0]| |x[1]|), with the epsilon of that dtype, and a rounding to
 * y's.
 */
struct stg_kernel_matmul {
    int dtype;
    bool transpose[2];
    int64_t m, k, n;
    struct stg_kernel_loops loops;
    void *y;
    const void *x[2];
};

enum stg_kernel_reduction {
    STG_KERNEL_REDUCE_SUM,
    STG_KERNEL_REDUCE_MEAN,
    STG_KERNEL_REDUCE_MAX,
    STG_KERNEL_L2_NORMALIZE, /* y has the shape of x */
};

/* x over some of its dimensions, the last is the innermost. Sums of floats are taken in
 * float64, in any order, and rounded once; those of integers are exact, as are maxima. */
struct stg_kernel_reduce {
    enum stg_kernel_reduction op;
    int dtype; /* any number; l2_normalize: floats */
    int n_dims;
    int64_t size[STG_KERNEL_LOOPS];
    bool is_reduced[STG_KERNEL_LOOPS];
    double epsilon; /* l2_normalize */
    void *y;
    const void *x;
    void *scratch; /* stg_kernel_reduce_scratch bytes of the device */
};

/* Returns in how many parts each of n_sums sums is taken, so that there are enough
 * threads. */
static inline int64_t stg_kernel_reduce_parts(int64_t n_sums, int64_t n_each)
{
    int64_t by_size = n_each / 64, by_threads = n_sums > 0 ? 16384 / n_sums : 1;
    int64_t parts = by_size < by_threads ? by_size : by_threads;
    return parts > 1 ? parts : 1;
}

/* Returns the bytes of the scratch of a reduction to n_sums sums of n_each elements. */
static inline size_t stg_kernel_reduce_scratch(int64_t n_sums, int64_t n_each)
{
    return (size_t)n_sums * (size_t)(stg_kernel_reduce_parts(n_sums, n_each) + 1) * 8;
}

/* x [n_outer, n, n_inner], floats, as e^x that add up to 1 over n; those whose mask
 * (NULL: none) is 0 count as nothing, and where all are, y is 0. Within 8 units in the
 * last place, and of a sum of n. */
struct stg_kernel_softmax {
    int dtype;
    int64_t n_outer, n, n_inner;
    void *y;
    const void *x;
    const uint8_t *mask;
};

/* y [batch, outer, n, inner] from x [batch, outer, dim, inner] by indices [batch, n]. An
 * index that is not in [0, dim) takes zeros, and is reported as an id of a lookup. */
struct stg_kernel_gather {
    unsigned unit;     /* bytes of an element: 1, 2, 4 or 8 */
    int indices_dtype; /* int32 or int64 */
    int64_t batch, outer, dim, inner, n;
    void *y;
    const void *x, *indices;
    int64_t *bad; /* NULL: not reported */
};

/* The op gru, with scores augru: sequences x [n_rows, n_steps, n_in] to states out
 * [n_rows, n_steps, n], and the last ones to state [n_rows, n]. Weights are as in
 * docs/ops.md, float32 or float64. Sums are taken in the order of the CPU; exp and tanh
 * are those of the device, within 2 units in the last place in each step. */
struct stg_kernel_gru {
    int dtype;
    bool reset_after;
    int64_t n_rows, n_steps, n_in, n;
    const void *x, *scores; /* scores [n_rows, n_steps]; NULL: gru */
    const void *kernel, *back, *bias;
    const void *lengths; /* [n_rows], int32 or int64; NULL: n_steps */
    int lengths_dtype;
    void *out, *state;
    void *scratch; /* of the device; without reset_after 2 n_rows n elements */
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

    int (*binary)(struct stg_stream *stream, const struct stg_kernel_pair *how,
                  struct stg_err *err);
    /* y[i] = OP x[i]. y may be x. */
    int (*unary)(struct stg_stream *stream, enum stg_kernel_unary op, int dtype, void *y,
                 const void *x, size_t n, struct stg_err *err);
    /* n elements of `unit` bytes (1, 2, 4 or 8) become *value, which is the host's and
     * is read before the call returns. */
    int (*fill)(struct stg_stream *stream, void *y, unsigned unit, const void *value,
                size_t n, struct stg_err *err);
    int (*matmul)(struct stg_stream *stream, const struct stg_kernel_matmul *how,
                  struct stg_err *err);
    int (*reduce)(struct stg_stream *stream, const struct stg_kernel_reduce *how,
                  struct stg_err *err);
    int (*softmax)(struct stg_stream *stream, const struct stg_kernel_softmax *how,
                   struct stg_err *err);
    int (*gather)(struct stg_stream *stream, const struct stg_kernel_gather *how,
                  struct stg_err *err);
    int (*gru)(struct stg_stream *stream, const struct stg_kernel_gru *how,
               struct stg_err *err);
};

#endif
