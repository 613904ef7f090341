/* SPDX-License-Identifier: Apache-2.0
 *
 * The toolkit may lack the headers of cuBLAS, so that the few calls and numbers that are
 * used are declared here, as cublas_api.h of CUDA 12 and 13 has them.
 */
#include "cuda/blas.h"

#include <dlfcn.h>
#include <library_types.h>
#include <limits.h>
#include <pthread.h>

#include "core/status.h"
#include "cuda/scope.h"

/* ---- the library ---- */

enum { SUCCESS = 0 };               /* cublasStatus_t */
enum { AS_IS = 0, TRANSPOSED = 1 }; /* cublasOperation_t */
/* cublasComputeType_t; pedantic: standard arithmetic, not TF32 */
enum { COMPUTE_32F = 68, COMPUTE_32F_PEDANTIC = 69, COMPUTE_64F = 70 };
enum { DEFAULT_ALGORITHM = -1 }; /* cublasGemmAlgo_t */
/* cublasMath_t: halves are not summed as halves */
enum { NO_REDUCED_PRECISION = 16 };

typedef int gemm_call(void *handle, int transa, int transb, int m, int n, int k,
                      const void *alpha, const void *a, int a_type, int lda,
                      long long a_stride, const void *b, int b_type, int ldb,
                      long long b_stride, const void *beta, void *c, int c_type, int ldc,
                      long long c_stride, int n_batches, int compute, int algorithm);

static struct {
    int (*create)(void **ret);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, struct CUstream_st *stream);
    int (*set_math)(void *handle, int mode);
    gemm_call *gemm;
} blas;

/* Guards the first look for the library, and is_found. */
static pthread_mutex_t find_lock = PTHREAD_MUTEX_INITIALIZER;
static enum { UNKNOWN, FOUND, MISSING } is_found;

static bool find_calls(void *library)
{
    const struct {
        const char *name;
        void *at;
    } calls[] = {
        {"cublasCreate_v2", &blas.create},          {"cublasDestroy_v2", &blas.destroy},
        {"cublasSetStream_v2", &blas.set_stream},   {"cublasSetMathMode", &blas.set_math},
        {"cublasGemmStridedBatchedEx", &blas.gemm},
    };
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        *(void **)calls[i].at = dlsym(library, calls[i].name);
        if (*(void **)calls[i].at == NULL)
            return false;
    }
    return true;
}

static bool find_library(void)
{
    void *library = stg_cuda_blas_open();
    return library != NULL && find_calls(library);
}

static bool is_there(void)
{
    pthread_mutex_lock(&find_lock);
    if (is_found == UNKNOWN)
        is_found = find_library() ? FOUND : MISSING;
    bool ret = is_found == FOUND;
    pthread_mutex_unlock(&find_lock);
    return ret;
}

/* ---- a handle ---- */

/* A handle for each stream: its memory is never shared by work of two. */
static bool make_handle(struct stg_cuda_blas *of, struct CUstream_st *stream)
{
    if (of->handle != NULL || of->has_failed)
        return of->handle != NULL;
    void *handle = NULL;
    of->has_failed = true;
    if (!is_there() || blas.create(&handle) != SUCCESS)
        return false;
    if (blas.set_stream(handle, stream) != SUCCESS ||
        blas.set_math(handle, NO_REDUCED_PRECISION) != SUCCESS) {
        blas.destroy(handle);
        return false;
    }
    of->handle = handle;
    of->has_failed = false;
    return true;
}

void stg_cuda_blas_finish(struct stg_cuda_blas *of)
{
    if (of->handle != NULL)
        blas.destroy(of->handle);
    *of = (struct stg_cuda_blas){0};
}

/* ---- a product ---- */

#define MAX_CALLS 64      /* of one product; the kernel does more at once */
#define MAX_BATCHES 65535 /* of one call, in every release */

static bool type_of(int dtype, int *ret_type, int *ret_compute)
{
    *ret_compute = COMPUTE_32F;
    switch (dtype) {
    case STAGER_FLOAT32:
        *ret_type = CUDA_R_32F;
        *ret_compute = COMPUTE_32F_PEDANTIC;
        return true;
    case STAGER_FLOAT64:
        *ret_type = CUDA_R_64F;
        *ret_compute = COMPUTE_64F;
        return true;
    case STAGER_FLOAT16: *ret_type = CUDA_R_16F; return true;
    case STAGER_BFLOAT16: *ret_type = CUDA_R_16BF; return true;
    default: return false;
    }
}

/* Rows of many matrices that meet one are rows of one. */
static struct stg_kernel_matmul flat(const struct stg_kernel_matmul *how)
{
    struct stg_kernel_matmul ret = *how;
    struct stg_kernel_loops *loops = &ret.loops;
    int last = loops->n - 1;
    if (ret.transpose[0] || loops->stride[1][last] != 0 || loops->stride[0][last] != 1)
        return ret;
    ret.m *= loops->size[last];
    loops->size[last] = 1;
    for (int d = 0; d < last; d++) /* in matrices, which have become larger */
        loops->stride[0][d] /= how->loops.size[last];
    return ret;
}

static bool fits(const struct stg_kernel_matmul *how)
{
    int64_t n_calls = 1;
    for (int d = 0; d < how->loops.n - 1; d++)
        n_calls *= how->loops.size[d];
    return how->k > 0 && n_calls <= MAX_CALLS && how->m <= INT_MAX && how->n <= INT_MAX &&
           how->k <= INT_MAX && how->loops.size[how->loops.n - 1] <= MAX_BATCHES;
}

/* Columns come first in cuBLAS: our [m, n] is its [n, m], so that y = b a there. */
static int multiply(void *handle, const struct stg_kernel_matmul *how, const char *a,
                    const char *b, char *y)
{
    static const float one_f = 1, zero_f = 0;
    static const double one = 1, zero = 0;
    int type = 0, compute = 0, last = how->loops.n - 1;
    bool is_wide = how->dtype == STAGER_FLOAT64;
    type_of(how->dtype, &type, &compute);
    return blas.gemm(handle, how->transpose[1] ? TRANSPOSED : AS_IS,
                     how->transpose[0] ? TRANSPOSED : AS_IS, (int)how->n, (int)how->m,
                     (int)how->k, is_wide ? (const void *)&one : &one_f, b, type,
                     (int)(how->transpose[1] ? how->k : how->n),
                     how->loops.stride[1][last] * how->k * how->n, a, type,
                     (int)(how->transpose[0] ? how->m : how->k),
                     how->loops.stride[0][last] * how->m * how->k,
                     is_wide ? (const void *)&zero : &zero_f, y, type, (int)how->n,
                     how->m * how->n, (int)how->loops.size[last], compute,
                     DEFAULT_ALGORITHM);
}

/* A call for each turn of the outer loops. */
static int multiply_all(void *handle, const struct stg_kernel_matmul *how)
{
    const struct stg_kernel_loops *loops = &how->loops;
    int64_t bytes = (int64_t)stg_dtype_bytes(how->dtype), n_calls = 1;
    for (int d = 0; d < loops->n - 1; d++)
        n_calls *= loops->size[d];
    int status = SUCCESS;
    for (int64_t call = 0; call < n_calls && status == SUCCESS; call++) {
        int64_t at[2] = {0}, rest = call;
        for (int d = loops->n - 2; d >= 0; d--) {
            int64_t k = rest % loops->size[d];
            rest /= loops->size[d];
            at[0] += k * loops->stride[0][d];
            at[1] += k * loops->stride[1][d];
        }
        status = multiply(
            handle, how, (const char *)how->x[0] + at[0] * how->m * how->k * bytes,
            (const char *)how->x[1] + at[1] * how->k * how->n * bytes,
            (char *)how->y + call * loops->size[loops->n - 1] * how->m * how->n * bytes);
    }
    return status;
}

int stg_cuda_blas_matmul(struct stg_stream *stream, const struct stg_kernel_matmul *how,
                         struct stg_err *err)
{
    static struct stg_cuda_blas standard; /* of the default stream of device 0 */
    struct stg_cuda_blas *of = stream != NULL ? &stream->blas : &standard;
    struct stg_kernel_matmul product = flat(how);
    int type, compute;
    if (!type_of(how->dtype, &type, &compute) || !fits(&product) ||
        !make_handle(of, stg_cuda_stream_of(stream)))
        return 0;
    int status = multiply_all(of->handle, &product);
    if (status == SUCCESS)
        return 1;
    return stg_err(err, -STAGER_INTERNAL, "cuda: matmul: cuBLAS status %d", status);
}
