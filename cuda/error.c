/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda/error.h"

#include <cuda_runtime_api.h>

#include "core/status.h"

static int code_of(int error)
{
    switch (error) {
    case cudaErrorInsufficientDriver:
    case cudaErrorStubLibrary:
    case cudaErrorNoDevice:
    case cudaErrorInitializationError:
    case cudaErrorCallRequiresNewerDriver:
    case cudaErrorDevicesUnavailable:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorMpsConnectionFailed:
    case cudaErrorMpsRpcFailure:
    case cudaErrorMpsServerNotReady:
    case cudaErrorMpsMaxClientsReached:
    case cudaErrorMpsMaxConnectionsReached: return -STAGER_UNAVAILABLE;
    case cudaErrorMemoryAllocation: return -STAGER_RESOURCE_EXHAUSTED;
    case cudaErrorInvalidValue:
    case cudaErrorInvalidDevice:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorHostMemoryNotRegistered: return -STAGER_INVALID_ARGUMENT;
    case cudaErrorHostMemoryAlreadyRegistered: return -STAGER_ALREADY_EXISTS;
    case cudaErrorNotSupported: return -STAGER_UNIMPLEMENTED;
    default: return -STAGER_INTERNAL;
    }
}

/* 35 means both "no libcuda.so.1" and "too old a one": the driver's version decides. */
static int driver_error(const char *what, struct stg_err *err)
{
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (driver == 0)
        return stg_err(err, -STAGER_UNAVAILABLE,
                       "cuda: %s: no NVIDIA driver (libcuda.so.1 was not found)", what);
    return stg_err(err, -STAGER_UNAVAILABLE,
                   "cuda: %s: the NVIDIA driver supports CUDA %d.%d, this plugin needs "
                   "%d.%d: update the driver",
                   what, driver / 1000, driver % 1000 / 10, runtime / 1000,
                   runtime % 1000 / 10);
}

int stg_cuda_error(int error, const char *what, struct stg_err *err)
{
    int rc;
    if (error == cudaErrorInsufficientDriver)
        rc = driver_error(what, err);
    else if (error == cudaErrorNoDevice)
        rc = stg_err(
            err, -STAGER_UNAVAILABLE,
            "cuda: %s: the driver finds no device (is CUDA_VISIBLE_DEVICES empty?)",
            what);
    else
        rc = stg_err(err, code_of(error), "cuda: %s: %s", what,
                     cudaGetErrorString((cudaError_t)error));
    cudaGetLastError();
    return rc;
}
