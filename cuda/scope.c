/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda/scope.h"

#include <cuda_runtime_api.h>
#include <stdio.h>

#include "cuda/error.h"

int stg_cuda_enter(int device, struct stg_cuda_scope *scope, struct stg_err *err)
{
    *scope = (struct stg_cuda_scope){0};
    cudaError_t error = cudaGetDevice(&scope->before);
    if (error != cudaSuccess)
        return stg_cuda_error(error, "current device", err);
    if (device == scope->before)
        return 0;
    error = cudaSetDevice(device);
    if (error != cudaSuccess) {
        char what[48];
        snprintf(what, sizeof(what), "device %d", device);
        return stg_cuda_error(error, what, err);
    }
    scope->changed = true;
    return 0;
}

int stg_cuda_leave(const struct stg_cuda_scope *scope, int rc)
{
    if (scope->changed)
        cudaSetDevice(scope->before);
    return rc;
}

int stg_cuda_result(const struct stg_cuda_scope *scope, int error, const char *what,
                    struct stg_err *err)
{
    return stg_cuda_leave(scope,
                          error == cudaSuccess ? 0 : stg_cuda_error(error, what, err));
}

int stg_cuda_device_of(const struct stg_stream *stream)
{
    return stream != NULL ? stream->device : 0;
}

struct CUstream_st *stg_cuda_stream_of(const struct stg_stream *stream)
{
    return stream != NULL ? stream->cuda : NULL;
}
