/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of matrices by cuBLAS, which is found when a product is first wanted: the one
 * that the process has loaded, else the one that the linker finds. It is not linked; the
 * kernel of kernels_dense.cu does what it does not take.
 */
#ifndef STG_CUDA_BLAS_H
#define STG_CUDA_BLAS_H

#include <stdbool.h>

#include "core/device_kernels.h"

/* Of a stream, used by one thread at a time. Begins zeroed. */
struct stg_cuda_blas {
    void *handle;    /* cublasHandle_t; NULL: not made */
    bool has_failed; /* could not be made: not tried again */
};

/* The device of the stream is entered, and y has elements. Returns 1 if the product is
 * enqueued, 0 if there is no cuBLAS or it does not take this product, or the error of
 * cuBLAS. Floats are multiplied without TF32, and summed in float32 or float64. */
int stg_cuda_blas_matmul(struct stg_stream *stream, const struct stg_kernel_matmul *how,
                         struct stg_err *err);

/* The device is entered. Waits for its work. */
void stg_cuda_blas_finish(struct stg_cuda_blas *blas);

/* blas_open.c: returns the library, or NULL. It stays loaded. */
void *stg_cuda_blas_open(void);

#endif
