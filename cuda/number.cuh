/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers of any dtype on the device: what an element counts as, and arithmetic on that.
 * Halves count as float, and a bool as 0 or 1. Integers wrap.
 */
#ifndef STG_CUDA_NUMBER_CUH
#define STG_CUDA_NUMBER_CUH

#include "cuda/element.cuh"

struct bool8 {
    uint8_t bits;
};

template <typename type> struct value_of {
    typedef type is;
};
template <> struct value_of<half16> {
    typedef float is;
};
template <> struct value_of<brain16> {
    typedef float is;
};
template <> struct value_of<bool8> {
    typedef uint8_t is;
};

template <typename type> static __device__ inline type get(type x)
{
    return x;
}

static __device__ inline float get(half16 x)
{
    return load(x);
}

static __device__ inline float get(brain16 x)
{
    return load(x);
}

static __device__ inline uint8_t get(bool8 x)
{
    return x.bits != 0;
}

template <typename type> static __device__ inline void put(type *y, type x)
{
    *y = x;
}

static __device__ inline void put(half16 *y, float x)
{
    store(y, x);
}

static __device__ inline void put(brain16 *y, float x)
{
    store(y, x);
}

static __device__ inline void put(bool8 *y, uint8_t x)
{
    y->bits = x;
}

/* ---- arithmetic ---- */

template <typename type> static __device__ inline type plus(type x, type y)
{
    return (type)((uint64_t)x + (uint64_t)y);
}

static __device__ inline float plus(float x, float y)
{
    return x + y;
}

static __device__ inline double plus(double x, double y)
{
    return x + y;
}

template <typename type> static __device__ inline type minus(type x, type y)
{
    return (type)((uint64_t)x - (uint64_t)y);
}

static __device__ inline float minus(float x, float y)
{
    return x - y;
}

static __device__ inline double minus(double x, double y)
{
    return x - y;
}

template <typename type> static __device__ inline type times(type x, type y)
{
    return (type)((uint64_t)x * (uint64_t)y);
}

static __device__ inline float times(float x, float y)
{
    return x * y;
}

static __device__ inline double times(double x, double y)
{
    return x * y;
}

static __device__ inline float exp_of(float x)
{
    return expf(x);
}

static __device__ inline double exp_of(double x)
{
    return exp(x);
}

static __device__ inline float tanh_of(float x)
{
    return tanhf(x);
}

static __device__ inline double tanh_of(double x)
{
    return tanh(x);
}

/* The larger; NaN wins, and of equals the first. */
template <typename type> static __device__ inline type larger(type x, type y)
{
    return y > x || y != y ? y : x;
}

static inline int64_t size_of(const struct stg_kernel_loops *loops)
{
    int64_t n = 1;
    for (int d = 0; d < loops->n; d++)
        n *= loops->size[d];
    return n;
}

/* The place of element i of the output in both inputs. */
struct places {
    int64_t at[2];
};

static __device__ inline places find(const struct stg_kernel_loops *loops, int64_t i)
{
    places ret = {{0, 0}};
    for (int d = loops->n - 1; d > 0; d--) {
        int64_t rest = i / loops->size[d], k = i - rest * loops->size[d];
        ret.at[0] += k * loops->stride[0][d];
        ret.at[1] += k * loops->stride[1][d];
        i = rest;
    }
    ret.at[0] += i * loops->stride[0][0];
    ret.at[1] += i * loops->stride[1][0];
    return ret;
}

/* Calls X(type of the dtype) in a switch over dtypes. */
#define EACH_FLOAT(X)                                                                    \
    case STAGER_FLOAT32: X(float); break;                                                \
    case STAGER_FLOAT64: X(double); break;                                               \
    case STAGER_FLOAT16: X(half16); break;                                               \
    case STAGER_BFLOAT16:                                                                \
        X(brain16);                                                                      \
        break;
#define EACH_NUMBER(X)                                                                   \
    EACH_FLOAT(X)                                                                        \
    case STAGER_INT8: X(int8_t); break;                                                  \
    case STAGER_INT16: X(int16_t); break;                                                \
    case STAGER_INT32: X(int32_t); break;                                                \
    case STAGER_INT64: X(int64_t); break;                                                \
    case STAGER_UINT8: X(uint8_t); break;                                                \
    case STAGER_UINT16: X(uint16_t); break;                                              \
    case STAGER_UINT32: X(uint32_t); break;                                              \
    case STAGER_UINT64:                                                                  \
        X(uint64_t);                                                                     \
        break;

#endif
