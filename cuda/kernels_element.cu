/* SPDX-License-Identifier: Apache-2.0
 *
 * Element by element: cast, log1p, bucketize, hash_bucket.
 */
#include "core/fingerprint.h"
#include "cuda/element.cuh"
#include "cuda/kernels.h"

/* ---- cast: by way of one of three wide types that hold all values of a dtype ---- */

enum width { WIDE_INT, WIDE_UINT, WIDE_FLOAT };

struct wide {
    enum width width;
    int64_t i;
    uint64_t u;
    double f;
};

static __device__ wide wide_int(int64_t i)
{
    wide ret = {WIDE_INT, i, 0, 0};
    return ret;
}

static __device__ wide wide_float(double f)
{
    wide ret = {WIDE_FLOAT, 0, 0, f};
    return ret;
}

static __device__ wide load_wide(int dtype, const void *x, size_t k)
{
    wide unsigned_64 = {WIDE_UINT, 0, 0, 0};
    switch (dtype) {
    case STAGER_INT8: return wide_int(((const int8_t *)x)[k]);
    case STAGER_INT16: return wide_int(((const int16_t *)x)[k]);
    case STAGER_INT32: return wide_int(((const int32_t *)x)[k]);
    case STAGER_INT64: return wide_int(((const int64_t *)x)[k]);
    case STAGER_UINT8: return wide_int(((const uint8_t *)x)[k]);
    case STAGER_UINT16: return wide_int(((const uint16_t *)x)[k]);
    case STAGER_UINT32: return wide_int(((const uint32_t *)x)[k]);
    case STAGER_BOOL: return wide_int(((const uint8_t *)x)[k] != 0);
    case STAGER_UINT64: unsigned_64.u = ((const uint64_t *)x)[k]; return unsigned_64;
    case STAGER_FLOAT64: return wide_float(((const double *)x)[k]);
    case STAGER_FLOAT32: return wide_float(((const float *)x)[k]);
    case STAGER_FLOAT16: return wide_float(load(((const half16 *)x)[k]));
    default: return wide_float(load(((const brain16 *)x)[k]));
    }
}

/* Truncation; what does not fit is the smallest value, as in ops/kernels/math/cast.c. */
static __device__ int32_t int32_of(double x)
{
    return x > -2147483649.0 && x < 2147483648.0 ? (int32_t)x : INT32_MIN;
}

static __device__ int64_t int64_of(double x)
{
    return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN;
}

static __device__ uint64_t uint64_of(double x)
{
    return x >= 0x1p63 && x < 0x1p64 ? (uint64_t)x : (uint64_t)int64_of(x);
}

static __device__ uint64_t bits_of(int dtype, wide x)
{
    if (x.width == WIDE_INT)
        return (uint64_t)x.i;
    if (x.width == WIDE_UINT)
        return x.u;
    switch (dtype) {
    case STAGER_INT64: return (uint64_t)int64_of(x.f);
    case STAGER_UINT32: return (uint64_t)int64_of(x.f);
    case STAGER_UINT64: return uint64_of(x.f);
    default: return (uint64_t)(int64_t)int32_of(x.f);
    }
}

static __device__ float float_of(wide x)
{
    return x.width == WIDE_INT    ? __ll2float_rn(x.i)
           : x.width == WIDE_UINT ? __ull2float_rn(x.u)
                                  : __double2float_rn(x.f);
}

static __device__ double double_of(wide x)
{
    return x.width == WIDE_INT    ? __ll2double_rn(x.i)
           : x.width == WIDE_UINT ? __ull2double_rn(x.u)
                                  : x.f;
}

static __device__ bool bool_of(wide x)
{
    return x.width == WIDE_INT ? x.i != 0 : x.width == WIDE_UINT ? x.u != 0 : x.f != 0;
}

static __device__ void store_wide(int dtype, wide x, void *y, size_t k)
{
    switch (dtype) {
    case STAGER_INT8:
    case STAGER_UINT8: ((uint8_t *)y)[k] = (uint8_t)bits_of(dtype, x); break;
    case STAGER_INT16:
    case STAGER_UINT16: ((uint16_t *)y)[k] = (uint16_t)bits_of(dtype, x); break;
    case STAGER_INT32:
    case STAGER_UINT32: ((uint32_t *)y)[k] = (uint32_t)bits_of(dtype, x); break;
    case STAGER_INT64:
    case STAGER_UINT64: ((uint64_t *)y)[k] = bits_of(dtype, x); break;
    case STAGER_BOOL: ((uint8_t *)y)[k] = bool_of(x); break;
    case STAGER_FLOAT32: ((float *)y)[k] = float_of(x); break;
    case STAGER_FLOAT64: ((double *)y)[k] = double_of(x); break;
    case STAGER_FLOAT16: store((half16 *)y + k, float_of(x)); break;
    default: store((brain16 *)y + k, float_of(x)); break;
    }
}

static __global__ void cast(int y_dtype, void *y, int x_dtype, const void *x, size_t n)
{
    for (size_t i = FIRST; i < n; i += STRIDE)
        store_wide(y_dtype, load_wide(x_dtype, x, i), y, i);
}

int stg_cuda_cast(int y_dtype, void *y, int x_dtype, const void *x, size_t n,
                  struct CUstream_st *stream)
{
    LAUNCH(blocks(n), stream, cast)(y_dtype, y, x_dtype, x, n);
    return cudaGetLastError();
}

/* ---- log1p ---- */

static __device__ float log1p_of(float x)
{
    return log1pf(x);
}

static __device__ double log1p_of(double x)
{
    return log1p(x);
}

template <typename type>
static __global__ void log1p_each(type *y, const type *x, size_t n)
{
    for (size_t i = FIRST; i < n; i += STRIDE)
        store(&y[i], log1p_of(load(x[i])));
}

int stg_cuda_log1p(int dtype, void *y, const void *x, size_t n,
                   struct CUstream_st *stream)
{
    unsigned grid = blocks(n);
    switch (dtype) {
    case STAGER_FLOAT32:
        LAUNCH(grid, stream, log1p_each<float>)((float *)y, (const float *)x, n);
        break;
    case STAGER_FLOAT64:
        LAUNCH(grid, stream, log1p_each<double>)((double *)y, (const double *)x, n);
        break;
    case STAGER_FLOAT16:
        LAUNCH(grid, stream, log1p_each<half16>)((half16 *)y, (const half16 *)x, n);
        break;
    default:
        LAUNCH(grid, stream, log1p_each<brain16>)((brain16 *)y, (const brain16 *)x, n);
        break;
    }
    return cudaGetLastError();
}

/* ---- bucketize: halves the range, as ops/kernels/math/bucketize.c ---- */

template <typename type, typename middle>
static __global__ void bucketize(int32_t *y, const type *x, size_t n,
                                 const float *boundaries, size_t n_boundaries)
{
    for (size_t i = FIRST; i < n; i += STRIDE) {
        middle value = (middle)x[i];
        size_t at = 0;
        for (size_t left = n_boundaries; left > 0;) {
            size_t half = (left + 1) / 2;
            at += value < (middle)boundaries[at + half - 1] ? 0 : half;
            left -= half;
        }
        y[i] = (int32_t)at;
    }
}

int stg_cuda_bucketize(int32_t *y, int x_dtype, const void *x, size_t n,
                       const float *boundaries, size_t n_boundaries,
                       struct CUstream_st *stream)
{
    unsigned grid = blocks(n);
    switch (x_dtype) {
    case STAGER_INT32:
        LAUNCH(grid, stream, bucketize<int32_t, float>)
        (y, (const int32_t *)x, n, boundaries, n_boundaries);
        break;
    case STAGER_INT64:
        LAUNCH(grid, stream, bucketize<int64_t, float>)
        (y, (const int64_t *)x, n, boundaries, n_boundaries);
        break;
    case STAGER_FLOAT32:
        LAUNCH(grid, stream, bucketize<float, float>)
        (y, (const float *)x, n, boundaries, n_boundaries);
        break;
    default:
        LAUNCH(grid, stream, bucketize<double, double>)
        (y, (const double *)x, n, boundaries, n_boundaries);
        break;
    }
    return cudaGetLastError();
}

/* ---- hash_bucket ---- */

/* The quotient by the rounded inverse is right or one too small. */
static __global__ void hash_bucket(int64_t *y, const char *bytes, const int64_t *offsets,
                                   size_t n, uint64_t divisor, uint64_t magic)
{
    for (size_t i = FIRST; i < n; i += STRIDE) {
        uint64_t hash =
            stg_farm_hash(bytes + offsets[i], (size_t)(offsets[i + 1] - offsets[i]));
        uint64_t rest = hash - __umul64hi(hash, magic) * divisor;
        y[i] = (int64_t)(rest >= divisor ? rest - divisor : rest);
    }
}

int stg_cuda_hash_bucket(int64_t *y, const char *bytes, const int64_t *offsets, size_t n,
                         uint64_t num_buckets, struct CUstream_st *stream)
{
    LAUNCH(blocks(n), stream, hash_bucket)
    (y, bytes, offsets, n, num_buckets, UINT64_MAX / num_buckets);
    return cudaGetLastError();
}
