/* SPDX-License-Identifier: Apache-2.0
 *
 * What kernels.cu offers to plugin.c, in C: launches on a stream of the current device.
 * Each returns the cudaError_t of the launch.
 */
#ifndef STG_CUDA_KERNELS_H
#define STG_CUDA_KERNELS_H

#include <stddef.h>

struct CUstream_st; /* what a cudaStream_t points to */

#ifdef __cplusplus
extern "C" {
#endif

/* y[i] = log1p(max(x[i], 0)); NaN stays NaN. n above 0. */
int stg_cuda_log1p_relu(float *y, const float *x, size_t n, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
