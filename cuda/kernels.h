/* SPDX-License-Identifier: Apache-2.0
 *
 * What the *.cu offer to launch.c, in C: launches on a stream of the current device, with
 * arguments that were checked (dtypes, no size of 0 but where it says so). Each returns
 * the cudaError_t of the launch. What they compute: core/device_kernels.h.
 */
#ifndef STG_CUDA_KERNELS_H
#define STG_CUDA_KERNELS_H

#include "core/device_kernels.h"

struct CUstream_st; /* what a cudaStream_t points to */

#define STG_CUDA_CONCAT_INPUTS 64

/* Of one launch of concat: input i is row_bytes[i] wide and begins at byte at[i] of a row
 * of y. All of them, and y, are multiples of unit bytes: 1, 2, 4, 8 or 16. */
struct stg_cuda_concat {
    const void *x[STG_CUDA_CONCAT_INPUTS];
    size_t row_units[STG_CUDA_CONCAT_INPUTS];
    size_t at[STG_CUDA_CONCAT_INPUTS + 1]; /* in units, of this launch's inputs */
    size_t first;                          /* unit of y's row where they begin */
    size_t y_units;                        /* a row of y */
    size_t n_rows;
    unsigned n_x, unit;
};

#ifdef __cplusplus
extern "C" {
#endif

int stg_cuda_cast(int y_dtype, void *y, int x_dtype, const void *x, size_t n,
                  struct CUstream_st *stream);
int stg_cuda_log1p(int dtype, void *y, const void *x, size_t n,
                   struct CUstream_st *stream);
int stg_cuda_bucketize(int32_t *y, int x_dtype, const void *x, size_t n,
                       const float *boundaries, size_t n_boundaries,
                       struct CUstream_st *stream);
int stg_cuda_hash_bucket(int64_t *y, const char *bytes, const int64_t *offsets, size_t n,
                         uint64_t num_buckets, struct CUstream_st *stream);
int stg_cuda_normalize_image(const struct stg_kernel_normalize *how, void *y,
                             const void *x, struct CUstream_st *stream);
int stg_cuda_embedding_lookup(const struct stg_kernel_lookup *how,
                              struct CUstream_st *stream);
int stg_cuda_concat(const struct stg_cuda_concat *how, void *y,
                    struct CUstream_st *stream);
int stg_cuda_binary(const struct stg_kernel_pair *how, struct CUstream_st *stream);
int stg_cuda_unary(enum stg_kernel_unary op, int dtype, void *y, const void *x, size_t n,
                   struct CUstream_st *stream);
int stg_cuda_fill(void *y, unsigned unit, uint64_t value, size_t n,
                  struct CUstream_st *stream);
int stg_cuda_matmul(const struct stg_kernel_matmul *how, struct CUstream_st *stream);
/* n_sums may be of no elements each; then there is no x. */
int stg_cuda_reduce(const struct stg_kernel_reduce *how, struct CUstream_st *stream);
int stg_cuda_softmax(const struct stg_kernel_softmax *how, struct CUstream_st *stream);
int stg_cuda_gather(const struct stg_kernel_gather *how, struct CUstream_st *stream);
int stg_cuda_gru(const struct stg_kernel_gru *how, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
