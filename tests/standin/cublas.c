/* SPDX-License-Identifier: Apache-2.0
 *
 * A fake cuBLAS over host memory, under its name: the calls that cuda/blas.c makes, by
 * NVIDIA's definition. Matrices are stored by columns, and arguments that cuBLAS does
 * not accept have its status. A test loads it by its path, as a framework loads its own.
 */
#include <stdint.h>
#include <stdlib.h>

#include "ops/base/element.h"
#include "tests/standin/cublas.h"

#define VISIBLE __attribute__((visibility("default")))

/* Numbers of library_types.h and cublas_api.h. */
enum { OK = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };
enum { OP_N = 0, OP_T = 1 };
enum { TYPE_32F = 0, TYPE_64F = 1, TYPE_16F = 2, TYPE_16BF = 14 };
enum { BY_32F = 68, BY_32F_PEDANTIC = 69, BY_64F = 70 };

struct handle {
    int has_stream, math;
};

VISIBLE struct fake_cublas *fake_cublas(void);
VISIBLE int cublasCreate_v2(void **handle);
VISIBLE int cublasDestroy_v2(void *handle);
VISIBLE int cublasSetStream_v2(void *handle, void *stream);
VISIBLE int cublasSetMathMode(void *handle, int mode);
VISIBLE int cublasGemmStridedBatchedEx(void *handle, int transa, int transb, int m, int n,
                                       int k, const void *alpha, const void *A, int Atype,
                                       int lda, long long strideA, const void *B,
                                       int Btype, int ldb, long long strideB,
                                       const void *beta, void *C, int Ctype, int ldc,
                                       long long strideC, int batchCount, int computeType,
                                       int algo);

static struct fake_cublas control;

struct fake_cublas *fake_cublas(void)
{
    return &control;
}

int cublasCreate_v2(void **handle)
{
    control.n_created++;
    if (control.create != OK)
        return control.create;
    *handle = calloc(1, sizeof(struct handle));
    control.n_handles += *handle != NULL;
    return *handle != NULL ? OK : NOT_INITIALIZED;
}

int cublasDestroy_v2(void *handle)
{
    free(handle);
    control.n_handles--;
    return OK;
}

int cublasSetStream_v2(void *handle, void *stream)
{
    ((struct handle *)handle)->has_stream = 1;
    return OK;
}

int cublasSetMathMode(void *handle, int mode)
{
    ((struct handle *)handle)->math = mode;
    return OK;
}

static double get(int type, const void *data, long long i)
{
    switch (type) {
    case TYPE_32F: return (double)((const float *)data)[i];
    case TYPE_64F: return ((const double *)data)[i];
    case TYPE_16F: return (double)stg_f32_from_f16(((const uint16_t *)data)[i]);
    default: return (double)stg_f32_from_bf16(((const uint16_t *)data)[i]);
    }
}

static void put(int type, void *data, long long i, double value)
{
    switch (type) {
    case TYPE_32F: ((float *)data)[i] = (float)value; break;
    case TYPE_64F: ((double *)data)[i] = value; break;
    case TYPE_16F: ((uint16_t *)data)[i] = stg_f16_from_f64(value); break;
    default: ((uint16_t *)data)[i] = stg_bf16_from_f32((float)value); break;
    }
}

static int computes(int type, int compute)
{
    switch (type) {
    case TYPE_32F: return compute == BY_32F || compute == BY_32F_PEDANTIC;
    case TYPE_64F: return compute == BY_64F;
    case TYPE_16F:
    case TYPE_16BF: return compute == BY_32F;
    default: return 0;
    }
}

static int largest(int a, int b)
{
    return a > b ? a : b;
}

int cublasGemmStridedBatchedEx(void *handle, int transa, int transb, int m, int n, int k,
                               const void *alpha, const void *A, int Atype, int lda,
                               long long strideA, const void *B, int Btype, int ldb,
                               long long strideB, const void *beta, void *C, int Ctype,
                               int ldc, long long strideC, int batchCount,
                               int computeType, int algo)
{
    const struct handle *of = handle;
    int scalar = computeType == BY_64F ? TYPE_64F : TYPE_32F;
    control.n_calls++;
    if (control.product != OK)
        return control.product;
    if (of == NULL || !of->has_stream || of->math != 16)
        return NOT_INITIALIZED;
    if (Atype != Btype || Atype != Ctype || !computes(Atype, computeType) || algo != -1)
        return NOT_SUPPORTED;
    if (m < 0 || n < 0 || k < 0 || batchCount < 0 || transa < OP_N || transa > OP_T ||
        transb < OP_N || transb > OP_T || lda < largest(1, transa == OP_N ? m : k) ||
        ldb < largest(1, transb == OP_N ? k : n) || ldc < largest(1, m))
        return INVALID_VALUE;
    if (batchCount > 1 && strideC < (long long)ldc * n)
        return INVALID_VALUE;
    for (long long b = 0; b < batchCount; b++) {
        for (long long i = 0; i < m; i++) {
            for (long long j = 0; j < n; j++) {
                double sum = 0, by = get(scalar, beta, 0);
                long long at = b * strideC + i + j * ldc;
                for (long long p = 0; p < k; p++)
                    sum +=
                        get(Atype, A,
                            b * strideA + (transa == OP_N ? i + p * lda : p + i * lda)) *
                        get(Btype, B,
                            b * strideB + (transb == OP_N ? p + j * ldb : j + p * ldb));
                sum *= get(scalar, alpha, 0);
                put(Ctype, C, at, by == 0 ? sum : sum + by * get(Ctype, C, at));
            }
        }
    }
    return OK;
}
