/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of the table: arguments checked, then launched on the stream's device.
 */
#include <cuda_runtime_api.h>

#include <string.h>

#include "core/status.h"
#include "cuda/blas.h"
#include "cuda/error.h"
#include "cuda/kernels.h"
#include "cuda/scope.h"

static int refuse(const char *kernel, const char *what, struct stg_err *err)
{
    return stg_err(err, -STAGER_INVALID_ARGUMENT, "cuda: kernel %s: %s", kernel, what);
}

static int refuse_dtype(const char *kernel, int dtype, struct stg_err *err)
{
    return stg_err(err, -STAGER_INVALID_ARGUMENT, "cuda: kernel %s takes no %s", kernel,
                   stg_dtype_name(dtype));
}

static bool is_float(int dtype)
{
    return dtype == STAGER_FLOAT32 || dtype == STAGER_FLOAT64 ||
           dtype == STAGER_FLOAT16 || dtype == STAGER_BFLOAT16;
}

/* 1: entered, with n to do; else what the kernel returns. Reports a missing device
 * even if n is 0. */
static int begin(struct stg_stream *stream, size_t n, struct stg_cuda_scope *scope,
                 struct stg_err *err)
{
    int rc = stg_cuda_enter(stg_cuda_device_of(stream), scope, err);
    if (rc < 0)
        return rc;
    return n > 0 ? 1 : stg_cuda_leave(scope, 0);
}

static int normalize_image(struct stg_stream *stream,
                           const struct stg_kernel_normalize *how, void *y, const void *x,
                           struct stg_err *err)
{
    const char *name = "normalize_image";
    if (how->x_dtype != STAGER_UINT8 && how->x_dtype != STAGER_FLOAT32)
        return refuse_dtype(name, how->x_dtype, err);
    if (how->y_dtype != STAGER_FLOAT32 && how->y_dtype != STAGER_FLOAT16)
        return refuse_dtype(name, how->y_dtype, err);
    if (how->channels < 1 || how->channels > STG_KERNEL_CHANNELS)
        return refuse(name, "an image has 1 to 4 channels", err);
    struct stg_cuda_scope scope;
    bool any = how->n > 0 && how->height > 0 && how->width > 0;
    int rc = begin(stream, any, &scope, err);
    if (rc <= 0)
        return rc;
    return stg_cuda_result(
        &scope, stg_cuda_normalize_image(how, y, x, stg_cuda_stream_of(stream)), name,
        err);
}

static int hash_bucket(struct stg_stream *stream, int64_t *y, const char *bytes,
                       const int64_t *offsets, size_t n, uint64_t num_buckets,
                       struct stg_err *err)
{
    if (num_buckets == 0)
        return refuse("hash_bucket", "num_buckets is 0", err);
    struct stg_cuda_scope scope;
    int rc = begin(stream, n, &scope, err);
    if (rc <= 0)
        return rc;
    return stg_cuda_result(&scope,
                           stg_cuda_hash_bucket(y, bytes, offsets, n, num_buckets,
                                                stg_cuda_stream_of(stream)),
                           "hash_bucket", err);
}

static int bucketize(struct stg_stream *stream, int32_t *y, int x_dtype, const void *x,
                     size_t n, const float *boundaries, size_t n_boundaries,
                     struct stg_err *err)
{
    if (x_dtype != STAGER_INT32 && x_dtype != STAGER_INT64 && x_dtype != STAGER_FLOAT32 &&
        x_dtype != STAGER_FLOAT64)
        return refuse_dtype("bucketize", x_dtype, err);
    struct stg_cuda_scope scope;
    int rc = begin(stream, n, &scope, err);
    if (rc <= 0)
        return rc;
    return stg_cuda_result(&scope,
                           stg_cuda_bucketize(y, x_dtype, x, n, boundaries, n_boundaries,
                                              stg_cuda_stream_of(stream)),
                           "bucketize", err);
}

static int embedding_lookup(struct stg_stream *stream,
                            const struct stg_kernel_lookup *how, struct stg_err *err)
{
    const char *name = "embedding_lookup";
    if (!is_float(how->dtype))
        return refuse_dtype(name, how->dtype, err);
    if (how->ids_dtype != STAGER_INT32 && how->ids_dtype != STAGER_INT64)
        return refuse_dtype(name, how->ids_dtype, err);
    if (how->n < 0 || how->width < 0 || how->n_table < 0)
        return refuse(name, "a size is negative", err);
    if (how->combiner != STG_KERNEL_NONE && how->splits == NULL)
        return refuse(name, "a combiner needs row_splits", err);
    struct stg_cuda_scope scope;
    int rc = begin(stream, how->n > 0 && how->width > 0, &scope, err);
    if (rc <= 0)
        return rc;
    return stg_cuda_result(
        &scope, stg_cuda_embedding_lookup(how, stg_cuda_stream_of(stream)), name, err);
}

static int log1p_each(struct stg_stream *stream, int dtype, void *y, const void *x,
                      size_t n, struct stg_err *err)
{
    if (!is_float(dtype))
        return refuse_dtype("log1p", dtype, err);
    struct stg_cuda_scope scope;
    int rc = begin(stream, n, &scope, err);
    if (rc <= 0)
        return rc;
    return stg_cuda_result(
        &scope, stg_cuda_log1p(dtype, y, x, n, stg_cuda_stream_of(stream)), "log1p", err);
}

/* ---- concat ---- */

/* The widest unit in which all of it can be copied. */
static unsigned unit_of(const void *y, const void *const *x, const size_t *row_bytes,
                        size_t n_x)
{
    uintptr_t all = (uintptr_t)y | 16;
    for (size_t i = 0; i < n_x; i++)
        all |= (uintptr_t)x[i] | row_bytes[i];
    return (unsigned)(all & -all);
}

static int launch_concat(struct stg_cuda_concat *how, void *y, const void *const *x,
                         const size_t *row_bytes, size_t n_x, struct stg_stream *stream)
{
    how->n_x = (unsigned)n_x;
    how->at[0] = 0;
    for (size_t i = 0; i < n_x; i++) {
        how->x[i] = x[i];
        how->row_units[i] = row_bytes[i] / how->unit;
        how->at[i + 1] = how->at[i] + how->row_units[i];
    }
    if (how->at[n_x] == 0)
        return cudaSuccess;
    return stg_cuda_concat(how, y, stg_cuda_stream_of(stream));
}

static int concat(struct stg_stream *stream, void *y, const void *const *x,
                  const size_t *row_bytes, size_t n_x, size_t n_rows, struct stg_err *err)
{
    struct stg_cuda_scope scope;
    int rc = begin(stream, n_rows, &scope, err);
    if (rc <= 0)
        return rc;
    struct stg_cuda_concat how = {.n_rows = n_rows,
                                  .unit = unit_of(y, x, row_bytes, n_x)};
    for (size_t i = 0; i < n_x; i++)
        how.y_units += row_bytes[i] / how.unit;
    int error = cudaSuccess;
    for (size_t i = 0; i < n_x && error == cudaSuccess; i += STG_CUDA_CONCAT_INPUTS) {
        size_t n = n_x - i < STG_CUDA_CONCAT_INPUTS ? n_x - i : STG_CUDA_CONCAT_INPUTS;
        error = launch_concat(&how, y, x + i, row_bytes + i, n, stream);
        how.first += how.at[n];
    }
    return stg_cuda_result(&scope, error, "concat", err);
}

/* ---- cast ---- */

static int cast(struct stg_stream *stream, int y_dtype, void *y, int x_dtype,
                const void *x, size_t n, struct stg_err *err)
{
    if (stg_dtype_bytes(y_dtype) == 0)
        return refuse_dtype("cast", y_dtype, err);
    if (stg_dtype_bytes(x_dtype) == 0)
        return refuse_dtype("cast", x_dtype, err);
    size_t bytes = n * stg_dtype_bytes(x_dtype);
    if (x_dtype == y_dtype)
        return concat(stream, y, &x, &bytes, 1, 1, err);
    struct stg_cuda_scope scope;
    int rc = begin(stream, n, &scope, err);
    if (rc <= 0)
        return rc;
    return stg_cuda_result(
        &scope, stg_cuda_cast(y_dtype, y, x_dtype, x, n, stg_cuda_stream_of(stream)),
        "cast", err);
}

/* ---- elementwise ---- */

static bool is_signed(int dtype)
{
    return dtype == STAGER_INT8 || dtype == STAGER_INT16 || dtype == STAGER_INT32 ||
           dtype == STAGER_INT64;
}

static bool is_number(int dtype)
{
    return is_float(dtype) || is_signed(dtype) || dtype == STAGER_UINT8 ||
           dtype == STAGER_UINT16 || dtype == STAGER_UINT32 || dtype == STAGER_UINT64;
}

static int64_t n_of(const struct stg_kernel_loops *loops)
{
    int64_t n = 1;
    for (int d = 0; d < loops->n; d++)
        n *= loops->size[d];
    return n;
}

static bool binary_takes(enum stg_kernel_binary op, int dtype)
{
    if (op == STG_KERNEL_LOGICAL_AND || op == STG_KERNEL_LOGICAL_OR)
        return dtype == STAGER_BOOL;
    if (op == STG_KERNEL_DIVIDE)
        return is_float(dtype);
    return is_number(dtype) || (dtype == STAGER_BOOL &&
                                (op == STG_KERNEL_EQUAL || op == STG_KERNEL_NOT_EQUAL));
}

static int binary(struct stg_stream *stream, const struct stg_kernel_pair *how,
                  struct stg_err *err)
{
    if (!binary_takes(how->op, how->dtype))
        return refuse_dtype("binary", how->dtype, err);
    struct stg_cuda_scope scope;
    int rc = begin(stream, (size_t)n_of(&how->loops), &scope, err);
    if (rc <= 0)
        return rc;
    return stg_cuda_result(&scope, stg_cuda_binary(how, stg_cuda_stream_of(stream)),
                           "binary", err);
}

static bool unary_takes(enum stg_kernel_unary op, int dtype)
{
    if (op == STG_KERNEL_LOGICAL_NOT)
        return dtype == STAGER_BOOL;
    if (op == STG_KERNEL_RELU)
        return is_number(dtype);
    if (op == STG_KERNEL_NEGATIVE || op == STG_KERNEL_ABS)
        return is_float(dtype) || is_signed(dtype);
    return is_float(dtype);
}

static int unary(struct stg_stream *stream, enum stg_kernel_unary op, int dtype, void *y,
                 const void *x, size_t n, struct stg_err *err)
{
    if (!unary_takes(op, dtype))
        return refuse_dtype("unary", dtype, err);
    struct stg_cuda_scope scope;
    int rc = begin(stream, n, &scope, err);
    if (rc <= 0)
        return rc;
    return stg_cuda_result(&scope,
                           stg_cuda_unary(op, dtype, y, x, n, stg_cuda_stream_of(stream)),
                           "unary", err);
}

static int fill(struct stg_stream *stream, void *y, unsigned unit, const void *value,
                size_t n, struct stg_err *err)
{
    if (unit != 1 && unit != 2 && unit != 4 && unit != 8)
        return refuse("fill", "an element has 1, 2, 4 or 8 bytes", err);
    struct stg_cuda_scope scope;
    uint64_t bits = 0;
    memcpy(&bits, value,
           unit); /* the first bytes are the lowest, as on every GPU's host */
    int rc = begin(stream, n, &scope, err);
    if (rc <= 0)
        return rc;
    return stg_cuda_result(
        &scope, stg_cuda_fill(y, unit, bits, n, stg_cuda_stream_of(stream)), "fill", err);
}

/* ---- matrices and rows ---- */

static int matmul(struct stg_stream *stream, const struct stg_kernel_matmul *how,
                  struct stg_err *err)
{
    const char *name = "matmul";
    if (!is_float(how->dtype) && how->dtype != STAGER_INT32 && how->dtype != STAGER_INT64)
        return refuse_dtype(name, how->dtype, err);
    if (how->m < 0 || how->k < 0 || how->n < 0)
        return refuse(name, "a size is negative", err);
    struct stg_cuda_scope scope;
    int rc = begin(stream, (size_t)(n_of(&how->loops) * how->m * how->n), &scope, err);
    if (rc <= 0)
        return rc;
    rc = stg_cuda_blas_matmul(stream, how, err);
    if (rc != 0)
        return stg_cuda_leave(&scope, rc < 0 ? rc : 0);
    return stg_cuda_result(&scope, stg_cuda_matmul(how, stg_cuda_stream_of(stream)), name,
                           err);
}

static int reduce(struct stg_stream *stream, const struct stg_kernel_reduce *how,
                  struct stg_err *err)
{
    const char *name = "reduce";
    if (!is_number(how->dtype) ||
        (how->op == STG_KERNEL_L2_NORMALIZE && !is_float(how->dtype)))
        return refuse_dtype(name, how->dtype, err);
    size_t n_sums = 1;
    for (int d = 0; d < how->n_dims; d++)
        n_sums *= how->is_reduced[d] ? 1 : (size_t)how->size[d];
    struct stg_cuda_scope scope;
    int rc = begin(stream, n_sums, &scope, err);
    if (rc <= 0)
        return rc;
    return stg_cuda_result(&scope, stg_cuda_reduce(how, stg_cuda_stream_of(stream)), name,
                           err);
}

static int softmax(struct stg_stream *stream, const struct stg_kernel_softmax *how,
                   struct stg_err *err)
{
    if (!is_float(how->dtype))
        return refuse_dtype("softmax", how->dtype, err);
    struct stg_cuda_scope scope;
    int rc = begin(stream, (size_t)(how->n_outer * how->n * how->n_inner), &scope, err);
    if (rc <= 0)
        return rc;
    return stg_cuda_result(&scope, stg_cuda_softmax(how, stg_cuda_stream_of(stream)),
                           "softmax", err);
}

static int gather(struct stg_stream *stream, const struct stg_kernel_gather *how,
                  struct stg_err *err)
{
    const char *name = "gather";
    if (how->unit != 1 && how->unit != 2 && how->unit != 4 && how->unit != 8)
        return refuse(name, "an element has 1, 2, 4 or 8 bytes", err);
    if (how->indices_dtype != STAGER_INT32 && how->indices_dtype != STAGER_INT64)
        return refuse_dtype(name, how->indices_dtype, err);
    struct stg_cuda_scope scope;
    int rc = begin(stream, (size_t)(how->batch * how->outer * how->n * how->inner),
                   &scope, err);
    if (rc <= 0)
        return rc;
    return stg_cuda_result(&scope, stg_cuda_gather(how, stg_cuda_stream_of(stream)), name,
                           err);
}

/* A state of no step is 0. */
static int gru(struct stg_stream *stream, const struct stg_kernel_gru *how,
               struct stg_err *err)
{
    const char *name = "gru";
    static const double zero;
    size_t n = (size_t)(how->n_rows * how->n);
    if (how->dtype != STAGER_FLOAT32 && how->dtype != STAGER_FLOAT64)
        return refuse_dtype(name, how->dtype, err);
    if (how->lengths != NULL && how->lengths_dtype != STAGER_INT32 &&
        how->lengths_dtype != STAGER_INT64)
        return refuse_dtype(name, how->lengths_dtype, err);
    if (how->n_steps == 0)
        return fill(stream, how->state, stg_dtype_bytes(how->dtype), &zero, n, err);
    struct stg_cuda_scope scope;
    int rc = begin(stream, n, &scope, err);
    if (rc <= 0)
        return rc;
    return stg_cuda_result(&scope, stg_cuda_gru(how, stg_cuda_stream_of(stream)), name,
                           err);
}

const struct stg_device_kernels stg_cuda_kernels = {
    .normalize_image = normalize_image,
    .cast = cast,
    .hash_bucket = hash_bucket,
    .bucketize = bucketize,
    .embedding_lookup = embedding_lookup,
    .log1p = log1p_each,
    .concat = concat,
    .binary = binary,
    .unary = unary,
    .fill = fill,
    .matmul = matmul,
    .reduce = reduce,
    .softmax = softmax,
    .gather = gather,
    .gru = gru,
};
