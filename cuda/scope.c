/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda/scope.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "cuda/driver.h"
#include "cuda/error.h"

/* ---- the contexts that the runtime works in ---- */

#define MAX_DEVICES 64

static struct {
    CUresult (*retain)(CUcontext *, CUdevice);
    CUresult (*state)(CUdevice, unsigned *, int *);
    CUresult (*push)(CUcontext);
    CUresult (*pop)(CUcontext *);
} driver;

/* Guards the first look for the driver's calls. */
static pthread_mutex_t find_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool is_found;

/* Each is kept as long as the process lives, as the runtime keeps those that it makes. */
static _Atomic(CUcontext) contexts[MAX_DEVICES];

static int find_driver(struct stg_err *err)
{
    const struct stg_cuda_call calls[] = {
        {"cuDevicePrimaryCtxRetain", &driver.retain},
        {"cuDevicePrimaryCtxGetState", &driver.state},
        {"cuCtxPushCurrent", &driver.push},
        {"cuCtxPopCurrent", &driver.pop},
    };
    if (atomic_load(&is_found))
        return 0;
    pthread_mutex_lock(&find_lock);
    int rc = 0;
    if (!atomic_load(&is_found))
        rc = stg_cuda_find_calls(calls, sizeof(calls) / sizeof(calls[0]), err);
    if (rc == 0)
        atomic_store(&is_found, true);
    pthread_mutex_unlock(&find_lock);
    return rc;
}

static int find_context(int device, CUcontext *ret, struct stg_err *err)
{
    char what[48];
    CUcontext context = NULL;
    CUresult result = CUDA_ERROR_INVALID_DEVICE;
    int rc = find_driver(err);
    if (rc < 0)
        return rc;
    if (device >= 0 && device < MAX_DEVICES) {
        context = atomic_load(&contexts[device]);
        result = context != NULL ? CUDA_SUCCESS : driver.retain(&context, device);
    }
    if (result != CUDA_SUCCESS) {
        snprintf(what, sizeof(what), "device %d", device);
        return stg_cuda_check((int)result, what, err);
    }
    atomic_store(&contexts[device], context);
    *ret = context;
    return 0;
}

static int push(CUcontext context, struct stg_cuda_scope *scope, struct stg_err *err)
{
    int rc = stg_cuda_check((int)driver.push(context), "the device's context", err);
    scope->changed = rc == 0;
    return rc;
}

/* ---- in and out ---- */

static int look(int *ret_device, struct stg_cuda_scope *scope, struct stg_err *err)
{
    *scope = (struct stg_cuda_scope){0};
    cudaError_t error = cudaGetDevice(ret_device);
    return error == cudaSuccess ? 0 : stg_cuda_error(error, "current device", err);
}

/* The runtime's own way there (cudaSetDevice) would, on the way back, make a context on
 * the device that was current, where the thread has perhaps none. */
int stg_cuda_enter(int device, struct stg_cuda_scope *scope, struct stg_err *err)
{
    int current;
    CUcontext context = NULL;
    int rc = look(&current, scope, err);
    if (rc < 0 || device == current)
        return rc;
    rc = find_context(device, &context, err);
    return rc < 0 ? rc : push(context, scope, err);
}

int stg_cuda_enter_any(struct stg_cuda_scope *scope, struct stg_err *err)
{
    int current, is_active = 1;
    unsigned flags;
    int rc = look(&current, scope, err);
    if (rc < 0 || find_driver(NULL) < 0 ||
        driver.state(current, &flags, &is_active) != CUDA_SUCCESS || is_active)
        return rc;
    for (int i = 0; i < MAX_DEVICES; i++) {
        CUcontext context = atomic_load(&contexts[i]);
        if (context != NULL)
            return push(context, scope, err);
    }
    return 0;
}

int stg_cuda_leave(const struct stg_cuda_scope *scope, int rc)
{
    CUcontext ours;
    if (scope->changed)
        driver.pop(&ours);
    return rc;
}

int stg_cuda_result(const struct stg_cuda_scope *scope, int error, const char *what,
                    struct stg_err *err)
{
    return stg_cuda_leave(scope,
                          error == cudaSuccess ? 0 : stg_cuda_error(error, what, err));
}

/* ---- streams ---- */

int stg_cuda_device_of(const struct stg_stream *stream)
{
    return stream != NULL ? stream->device : 0;
}

struct CUstream_st *stg_cuda_stream_of(const struct stg_stream *stream)
{
    return stream != NULL ? stream->cuda : NULL;
}
