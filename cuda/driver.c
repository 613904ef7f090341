/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda/driver.h"

#include <cuda_runtime_api.h>

#include "core/status.h"
#include "cuda/error.h"

#define DRIVER 12000

int stg_cuda_find_calls(const struct stg_cuda_call *calls, size_t n, struct stg_err *err)
{
    for (size_t i = 0; i < n; i++) {
        enum cudaDriverEntryPointQueryResult found;
        cudaError_t error = cudaGetDriverEntryPointByVersion(
            calls[i].name, calls[i].at, DRIVER, cudaEnableDefault, &found);
        if (error != cudaSuccess)
            return stg_cuda_error(error, calls[i].name, err);
        if (found != cudaDriverEntryPointSuccess)
            return stg_err(err, -STAGER_UNIMPLEMENTED, "cuda: the driver has no %s",
                           calls[i].name);
    }
    return 0;
}

int stg_cuda_check(int result, const char *what, struct stg_err *err)
{
    return result == 0 ? 0 : stg_cuda_error(result, what, err);
}
