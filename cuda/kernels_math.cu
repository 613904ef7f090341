/* SPDX-License-Identifier: Apache-2.0
 *
 * Element by element, of any number: binary, unary, fill.
 */
#include "cuda/kernels.h"
#include "cuda/number.cuh"

/* ---- binary ---- */

template <typename type> static __device__ inline type quotient(type x, type y)
{
    return x; /* launch.c refuses integers */
}

static __device__ inline float quotient(float x, float y)
{
    return __fdiv_rn(x, y);
}

static __device__ inline double quotient(double x, double y)
{
    return __ddiv_rn(x, y);
}

template <typename value>
static __device__ inline value compute(enum stg_kernel_binary op, value x, value y)
{
    switch (op) {
    case STG_KERNEL_ADD: return plus(x, y);
    case STG_KERNEL_SUBTRACT: return minus(x, y);
    case STG_KERNEL_MULTIPLY: return times(x, y);
    case STG_KERNEL_DIVIDE: return quotient(x, y);
    case STG_KERNEL_MINIMUM: return y < x || y != y ? y : x;
    default: return larger(x, y);
    }
}

template <typename value>
static __device__ inline bool compare(enum stg_kernel_binary op, value x, value y)
{
    switch (op) {
    case STG_KERNEL_EQUAL: return x == y;
    case STG_KERNEL_NOT_EQUAL: return x != y;
    case STG_KERNEL_LESS: return x < y;
    case STG_KERNEL_LESS_EQUAL: return x <= y;
    case STG_KERNEL_GREATER: return x > y;
    case STG_KERNEL_GREATER_EQUAL: return x >= y;
    case STG_KERNEL_LOGICAL_AND: return x != 0 && y != 0;
    default: return x != 0 || y != 0;
    }
}

template <typename type>
static __global__ void binary(struct stg_kernel_pair how, size_t n)
{
    const type *a = (const type *)how.x[0], *b = (const type *)how.x[1];
    for (size_t i = FIRST; i < n; i += STRIDE) {
        places from = find(&how.loops, (int64_t)i);
        typename value_of<type>::is x = get(a[from.at[0]]), y = get(b[from.at[1]]);
        if (how.op < STG_KERNEL_EQUAL)
            put((type *)how.y + i, compute(how.op, x, y));
        else
            ((uint8_t *)how.y)[i] = compare(how.op, x, y);
    }
}

int stg_cuda_binary(const struct stg_kernel_pair *how, struct CUstream_st *stream)
{
    size_t n = (size_t)size_of(&how->loops);
    unsigned grid = blocks(n);
#define RUN(type) LAUNCH(grid, stream, binary<type>)(*how, n)
    switch (how->dtype) {
        EACH_NUMBER(RUN)
    default: RUN(bool8); break;
    }
#undef RUN
    return cudaGetLastError();
}

/* ---- unary ---- */

template <typename type>
static __device__ inline type curve(enum stg_kernel_unary op, type x)
{
    return x; /* launch.c refuses integers */
}

static __device__ inline float curve(enum stg_kernel_unary op, float x)
{
    switch (op) {
    case STG_KERNEL_EXP: return expf(x);
    case STG_KERNEL_LOG: return logf(x);
    case STG_KERNEL_SQRT: return __fsqrt_rn(x);
    case STG_KERNEL_TANH: return tanhf(x);
    default: return __fdiv_rn(1.0f, 1.0f + expf(-x));
    }
}

static __device__ inline double curve(enum stg_kernel_unary op, double x)
{
    switch (op) {
    case STG_KERNEL_EXP: return exp(x);
    case STG_KERNEL_LOG: return log(x);
    case STG_KERNEL_SQRT: return __dsqrt_rn(x);
    case STG_KERNEL_TANH: return tanh(x);
    default: return __ddiv_rn(1.0, 1.0 + exp(-x));
    }
}

template <typename type> static __device__ inline type negative(type x)
{
    return (type)(0 - (uint64_t)x);
}

/* 0 - x would lose the sign of zero. */
static __device__ inline float negative(float x)
{
    return -x;
}

static __device__ inline double negative(double x)
{
    return -x;
}

template <typename type> static __device__ inline type magnitude(type x)
{
    return x < 0 ? negative(x) : x;
}

static __device__ inline float magnitude(float x)
{
    return fabsf(x);
}

static __device__ inline double magnitude(double x)
{
    return fabs(x);
}

/* relu: NaN stays, and so does -0. */
template <typename type>
static __global__ void unary(enum stg_kernel_unary op, type *y, const type *x, size_t n)
{
    typedef typename value_of<type>::is value;
    for (size_t i = FIRST; i < n; i += STRIDE) {
        value at = get(x[i]);
        switch (op) {
        case STG_KERNEL_NEGATIVE: put(&y[i], negative(at)); break;
        case STG_KERNEL_ABS: put(&y[i], magnitude(at)); break;
        case STG_KERNEL_RELU: put(&y[i], at < 0 ? (value)0 : at); break;
        case STG_KERNEL_LOGICAL_NOT: put(&y[i], (value)(at == 0)); break;
        default: put(&y[i], curve(op, at)); break;
        }
    }
}

int stg_cuda_unary(enum stg_kernel_unary op, int dtype, void *y, const void *x, size_t n,
                   struct CUstream_st *stream)
{
    unsigned grid = blocks(n);
#define RUN(type) LAUNCH(grid, stream, unary<type>)(op, (type *)y, (const type *)x, n)
    switch (dtype) {
        EACH_NUMBER(RUN)
    default: RUN(bool8); break;
    }
#undef RUN
    return cudaGetLastError();
}

/* ---- fill ---- */

template <typename type> static __global__ void fill(type *y, type value, size_t n)
{
    for (size_t i = FIRST; i < n; i += STRIDE)
        y[i] = value;
}

int stg_cuda_fill(void *y, unsigned unit, uint64_t value, size_t n,
                  struct CUstream_st *stream)
{
    unsigned grid = blocks(n);
    switch (unit) {
    case 8: LAUNCH(grid, stream, fill<uint64_t>)((uint64_t *)y, value, n); break;
    case 4:
        LAUNCH(grid, stream, fill<uint32_t>)((uint32_t *)y, (uint32_t)value, n);
        break;
    case 2:
        LAUNCH(grid, stream, fill<uint16_t>)((uint16_t *)y, (uint16_t)value, n);
        break;
    default: LAUNCH(grid, stream, fill<uint8_t>)((uint8_t *)y, (uint8_t)value, n); break;
    }
    return cudaGetLastError();
}
