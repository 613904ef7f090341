/* SPDX-License-Identifier: Apache-2.0
 *
 * Single elements on the device, and how many threads look at them. Numbers are rounded
 * as ops/base/element.c rounds them; the *.cu are compiled without contraction of a
 * multiplication and an addition.
 */
#ifndef STG_CUDA_ELEMENT_CUH
#define STG_CUDA_ELEMENT_CUH

#include <cuda_fp16.h>
#include <stdint.h>

#include "core/status.h"

/* LAUNCH(grid, stream, kernel)(arguments…). A build for no GPU has another one. */
#ifndef LAUNCH
#define BLOCK 256
#define MAX_BLOCKS 4096
#define LAUNCH(grid, stream, ...) __VA_ARGS__<<<(grid), BLOCK, 0, (stream)>>>
#endif

/* Element i of those that a thread takes: i = FIRST; i < n; i += STRIDE. */
#define FIRST ((size_t)blockIdx.x * BLOCK + threadIdx.x)
#define STRIDE ((size_t)gridDim.x * BLOCK)

static inline unsigned blocks(size_t n)
{
    size_t wanted = (n + BLOCK - 1) / BLOCK;
    return wanted < MAX_BLOCKS ? (unsigned)wanted : MAX_BLOCKS;
}

/* The two halves as types that cannot be mixed up with uint16_t. */
struct half16 {
    uint16_t bits;
};
struct brain16 {
    uint16_t bits;
};

static __device__ inline float load(float x)
{
    return x;
}

static __device__ inline double load(double x)
{
    return x;
}

static __device__ inline float load(half16 x)
{
    return __half2float(__ushort_as_half(x.bits));
}

static __device__ inline float load(brain16 x)
{
    return __uint_as_float((uint32_t)x.bits << 16);
}

static __device__ inline void store(float *y, float x)
{
    *y = x;
}

static __device__ inline void store(double *y, double x)
{
    *y = x;
}

static __device__ inline void store(half16 *y, float x)
{
    y->bits = __half_as_ushort(__float2half_rn(x));
}

static __device__ inline void store(brain16 *y, float x)
{
    uint32_t bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        y->bits = (uint16_t)((bits >> 16 & 0x8000) | 0x7fc0);
    else
        y->bits = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#endif
