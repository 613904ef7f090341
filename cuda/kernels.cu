/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda/kernels.h"

#define BLOCK 256
#define MAX_BLOCKS 4096

static __global__ void log1p_relu(float *y, const float *x, size_t n)
{
    size_t stride = (size_t)gridDim.x * BLOCK;
    for (size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x; i < n; i += stride)
        y[i] = log1pf(x[i] < 0.0f ? 0.0f : x[i]);
}

static unsigned blocks(size_t n)
{
    size_t wanted = (n + BLOCK - 1) / BLOCK;
    return wanted < MAX_BLOCKS ? (unsigned)wanted : MAX_BLOCKS;
}

int stg_cuda_log1p_relu(float *y, const float *x, size_t n, struct CUstream_st *stream)
{
    log1p_relu<<<blocks(n), BLOCK, 0, stream>>>(y, x, n);
    return cudaGetLastError();
}
