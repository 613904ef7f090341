/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda/plugin.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "core/status.h"
#include "cuda/error.h"
#include "cuda/scope.h"

static int count(int *ret, struct stg_err *err)
{
    int n; /* untouched by the runtime when it fails */
    cudaError_t error = cudaGetDeviceCount(&n);
    if (error == cudaSuccess && n == 0)
        error = cudaErrorNoDevice;
    if (error != cudaSuccess)
        return stg_cuda_error(error, "count of devices", err);
    *ret = n;
    return 0;
}

/* What an older driver does not know is not there. */
static int attribute(int device, enum cudaDeviceAttr which)
{
    int value = 0;
    if (cudaDeviceGetAttribute(&value, which, device) == cudaSuccess)
        return value;
    cudaGetLastError();
    return 0;
}

static int facts(int device, struct stg_device_facts *ret, struct stg_err *err)
{
    struct cudaDeviceProp p;
    struct stg_device_facts facts = {0};
    cudaError_t error = cudaGetDeviceProperties(&p, device);
    if (error == cudaSuccess)
        error = cudaDriverGetVersion(&facts.driver);
    if (error == cudaSuccess)
        error = cudaRuntimeGetVersion(&facts.runtime);
    if (error != cudaSuccess)
        return stg_cuda_error(error, "description of the device", err);
    snprintf(facts.name, sizeof(facts.name), "%.63s", p.name);
    facts.major = p.major;
    facts.minor = p.minor;
    facts.memory_bytes = p.totalGlobalMem;
    facts.register_read_only =
        attribute(device, cudaDevAttrHostRegisterReadOnlySupported) != 0;
    facts.ipc = attribute(device, cudaDevAttrIpcEventSupport) != 0;
    facts.memory_fds = stg_cuda_passes_memory(device);
    static_assert(sizeof(p.uuid) == STG_DEVICE_UUID_BYTES, "CUDA's size");
    memcpy(facts.uuid, &p.uuid, sizeof(facts.uuid));
    facts.mps = attribute(device, cudaDevAttrMpsEnabled) != 0;
    *ret = facts;
    return 0;
}

static int describe(int device, char *buf, size_t bytes, struct stg_err *err)
{
    struct stg_device_facts f;
    int rc = facts(device, &f, err);
    if (rc < 0)
        return rc;
    snprintf(buf, bytes, "%s, compute capability %d.%d, %.0f GiB", f.name, f.major,
             f.minor, (double)f.memory_bytes / (1 << 30));
    return 0;
}

static int device_alloc(int device, size_t bytes, void **ret, struct stg_err *err)
{
    struct stg_cuda_scope scope;
    int rc = stg_cuda_enter(device, &scope, err);
    if (rc < 0)
        return rc;
    void *ptr = NULL;
    cudaError_t error = cudaSuccess;
    if (bytes > PTRDIFF_MAX) /* which the driver would round up to little */
        error = cudaErrorMemoryAllocation;
    else if (bytes > 0)
        error = cudaMalloc(&ptr, bytes);
    rc = stg_cuda_result(&scope, error, "allocation", err);
    if (rc == 0)
        *ret = ptr;
    return rc;
}

static void device_free(int device, void *ptr)
{
    struct stg_cuda_scope scope;
    if (ptr != NULL && stg_cuda_enter(device, &scope, NULL) == 0)
        stg_cuda_result(&scope, cudaFree(ptr), "memory's end", NULL);
}

/* Zero bytes would leave a sticky error; a read-only mapping can be pinned only where
 * the device says so. */
static int host_register(int device, void *ptr, size_t bytes, bool read_only,
                         struct stg_err *err)
{
    struct stg_cuda_scope scope;
    int rc = stg_cuda_enter(device, &scope, err);
    if (rc < 0)
        return rc;
    if (ptr == NULL || bytes == 0)
        return stg_cuda_leave(&scope, stg_err(err, -STAGER_INVALID_ARGUMENT,
                                              "cuda: cannot register %zu bytes at %p",
                                              bytes, ptr));
    unsigned flags = cudaHostRegisterPortable;
    if (read_only && !attribute(device, cudaDevAttrHostRegisterReadOnlySupported))
        return stg_cuda_leave(
            &scope,
            stg_err(err, -STAGER_UNIMPLEMENTED,
                    "cuda: device %d cannot page-lock a read-only mapping", device));
    if (read_only)
        flags |= cudaHostRegisterReadOnly;
    return stg_cuda_result(&scope, cudaHostRegister(ptr, bytes, flags), "page-locking",
                           err);
}

static void host_unregister(void *ptr)
{
    struct stg_cuda_scope scope;
    if (ptr != NULL && stg_cuda_enter_any(&scope, NULL) == 0)
        stg_cuda_result(&scope, cudaHostUnregister(ptr), "page-locking's end", NULL);
}

static int host_alloc(size_t bytes, void **ret, struct stg_err *err)
{
    struct stg_cuda_scope scope;
    void *ptr = NULL;
    int rc = bytes > 0 ? stg_cuda_enter_any(&scope, err) : 0;
    if (rc == 0 && bytes > 0)
        rc = stg_cuda_result(&scope, cudaHostAlloc(&ptr, bytes, cudaHostAllocPortable),
                             "page-locked memory", err);
    if (rc == 0)
        *ret = ptr;
    return rc;
}

static void host_free(void *ptr)
{
    struct stg_cuda_scope scope;
    if (ptr != NULL && stg_cuda_enter_any(&scope, NULL) == 0)
        stg_cuda_result(&scope, cudaFreeHost(ptr), "page-locked memory's end", NULL);
}

static const struct stg_device cuda_device = {
    .abi = STG_DEVICE_ABI,
    .struct_bytes = sizeof(struct stg_device),
    .name = "cuda",
    .count = count,
    .describe = describe,
    .facts = facts,
    .alloc = device_alloc,
    .free = device_free,
    .shared_make = stg_cuda_shared_make,
    .shared_import = stg_cuda_shared_import,
    .shared_release = stg_cuda_shared_release,
    .host_register = host_register,
    .host_unregister = host_unregister,
    .host_alloc = host_alloc,
    .host_free = host_free,
    .stream_create = stg_cuda_stream_create,
    .stream_wrap = stg_cuda_stream_wrap,
    .stream_destroy = stg_cuda_stream_destroy,
    .stream_wait = stg_cuda_stream_wait,
    .copy_in = stg_cuda_copy_in,
    .copy_out = stg_cuda_copy_out,
    .event_create = stg_cuda_event_create,
    .event_record = stg_cuda_event_record,
    .event_query = stg_cuda_event_query,
    .event_wait = stg_cuda_event_wait,
    .event_native = stg_cuda_event_native,
    .event_destroy = stg_cuda_event_destroy,
    .kernels = &stg_cuda_kernels,
};

const struct stg_device *stg_cuda_device(void)
{
    return &cuda_device;
}
