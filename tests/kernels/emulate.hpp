/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiles the *.cu as plain C++; included before everything else. A launch is a loop
 * over the threads of a small grid, so that each thread handles several elements. The
 * emulation does not cover the device's rounding and concurrent threads.
 */
#ifndef STG_TESTS_KERNELS_EMULATE_HPP
#define STG_TESTS_KERNELS_EMULATE_HPP

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#undef __global__
#define __global__
#define cudaGetLastError() cudaSuccess
#define BLOCK 32
#define MAX_BLOCKS 3
#define LAUNCH(grid, stream, ...) launch((grid), __VA_ARGS__)

static dim3 blockIdx, threadIdx, gridDim;

template <typename... types> struct launcher {
    unsigned grid;
    void (*kernel)(types...);

    void operator()(types... arguments) const
    {
        gridDim.x = grid;
        for (blockIdx.x = 0; blockIdx.x < grid; blockIdx.x++)
            for (threadIdx.x = 0; threadIdx.x < BLOCK; threadIdx.x++)
                kernel(arguments...);
    }
};

template <typename... types>
static launcher<types...> launch(unsigned grid, void (*kernel)(types...))
{
    launcher<types...> ret = {grid, kernel};
    return ret;
}

template <typename to, typename from> static inline to same_bits(from value)
{
    to ret;
    memcpy(&ret, &value, sizeof(ret));
    return ret;
}

static inline float __uint_as_float(uint32_t x)
{
    return same_bits<float>(x);
}

static inline uint32_t __float_as_uint(float x)
{
    return same_bits<uint32_t>(x);
}

static inline float __ll2float_rn(int64_t x)
{
    return (float)x;
}

static inline float __ull2float_rn(uint64_t x)
{
    return (float)x;
}

static inline double __ll2double_rn(int64_t x)
{
    return (double)x;
}

static inline double __ull2double_rn(uint64_t x)
{
    return (double)x;
}

static inline float __double2float_rn(double x)
{
    return (float)x;
}

static inline float __fdiv_rn(float x, float y)
{
    return x / y;
}

static inline double __ddiv_rn(double x, double y)
{
    return x / y;
}

static inline float __fsub_rn(float x, float y)
{
    return x - y;
}

static inline float __fsqrt_rn(float x)
{
    return sqrtf(x);
}

static inline double __dsqrt_rn(double x)
{
    return sqrt(x);
}

static inline uint64_t __umul64hi(uint64_t x, uint64_t y)
{
    return (uint64_t)((unsigned __int128)x * y >> 64);
}

static inline long long atomicMin(long long *at, long long value)
{
    long long before = *at;
    if (value < before)
        *at = value;
    return before;
}

#endif
