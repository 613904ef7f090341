/* SPDX-License-Identifier: Apache-2.0
 *
 * The plugin functions that launch.c and blas.c need, for emulated kernels: there is
 * always one device, and its memory is the host's.
 */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdlib.h>

#include "core/status.h"
#include "cuda/error.h"
#include "cuda/scope.h"

int stg_cuda_enter(int device, struct stg_cuda_scope *scope, struct stg_err *err)
{
    return 0;
}

int stg_cuda_leave(const struct stg_cuda_scope *scope, int rc)
{
    return rc;
}

int stg_cuda_result(const struct stg_cuda_scope *scope, int error, const char *what,
                    struct stg_err *err)
{
    return error == cudaSuccess
               ? 0
               : stg_err(err, -STAGER_INTERNAL, "%s: error %d", what, error);
}

int stg_cuda_device_of(const struct stg_stream *stream)
{
    return 0;
}

/* A fake one, where the environment names it: NVIDIA's would read memory of the host. */
void *stg_cuda_blas_open(void)
{
    const char *path = getenv("STG_FAKE_CUBLAS");
    return path != NULL ? dlopen(path, RTLD_NOW) : NULL;
}

struct CUstream_st *stg_cuda_stream_of(const struct stg_stream *stream)
{
    return NULL;
}
