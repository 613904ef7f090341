/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda/plugin.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/status.h"
#include "cuda/error.h"
#include "cuda/kernels.h"

struct stg_stream {
    int device;
    cudaStream_t cuda;
};

struct stg_device_event {
    int device;
    cudaEvent_t cuda;
};

/* A trainer's thread has a current device of its own: each call puts it back. */
struct scope {
    int before;
    bool changed;
};

static int enter(int device, struct scope *scope, struct stg_err *err)
{
    *scope = (struct scope){0};
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

static int leave(const struct scope *scope, int rc)
{
    if (scope->changed)
        cudaSetDevice(scope->before);
    return rc;
}

static int result(const struct scope *scope, int error, const char *what,
                  struct stg_err *err)
{
    return leave(scope, error == cudaSuccess ? 0 : stg_cuda_error(error, what, err));
}

static int device_of(const struct stg_stream *stream)
{
    return stream != NULL ? stream->device : 0;
}

static cudaStream_t stream_of(const struct stg_stream *stream)
{
    return stream != NULL ? stream->cuda : NULL;
}

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

static int describe(int device, char *buf, size_t bytes, struct stg_err *err)
{
    struct cudaDeviceProp p;
    cudaError_t error = cudaGetDeviceProperties(&p, device);
    if (error != cudaSuccess)
        return stg_cuda_error(error, "description of the device", err);
    snprintf(buf, bytes, "%s, compute capability %d.%d, %.0f GiB", p.name, p.major,
             p.minor, (double)p.totalGlobalMem / (1 << 30));
    return 0;
}

static int device_alloc(int device, size_t bytes, void **ret, struct stg_err *err)
{
    struct scope scope;
    int rc = enter(device, &scope, err);
    if (rc < 0)
        return rc;
    void *ptr = NULL;
    if (bytes > 0)
        rc = result(&scope, cudaMalloc(&ptr, bytes), "allocation", err);
    else
        leave(&scope, 0);
    if (rc == 0)
        *ret = ptr;
    return rc;
}

static void device_free(int device, void *ptr)
{
    struct scope scope;
    if (ptr == NULL || enter(device, &scope, NULL) < 0)
        return;
    cudaFree(ptr);
    leave(&scope, 0);
}

/* Zero bytes would leave a sticky error; a read-only mapping can be pinned only where
 * the device says so. */
static int host_register(void *ptr, size_t bytes, bool read_only, struct stg_err *err)
{
    int n, able = 0;
    int rc = count(&n, err);
    if (rc < 0)
        return rc;
    if (ptr == NULL || bytes == 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "cuda: cannot register %zu bytes at %p", bytes, ptr);
    unsigned flags = cudaHostRegisterPortable;
    if (read_only) {
        cudaError_t error =
            cudaDeviceGetAttribute(&able, cudaDevAttrHostRegisterReadOnlySupported, 0);
        if (error != cudaSuccess)
            return stg_cuda_error(error, "attributes of device 0", err);
        if (!able)
            return stg_err(err, -STAGER_UNIMPLEMENTED,
                           "cuda: device 0 cannot page-lock a read-only mapping");
        flags |= cudaHostRegisterReadOnly;
    }
    cudaError_t error = cudaHostRegister(ptr, bytes, flags);
    return error == cudaSuccess ? 0 : stg_cuda_error(error, "page-locking", err);
}

static void host_unregister(void *ptr)
{
    if (ptr != NULL && cudaHostUnregister(ptr) != cudaSuccess)
        cudaGetLastError();
}

/* Non-blocking: the default stream of a framework in the same process must not order
 * our copies. */
static int stream_create(int device, struct stg_stream **ret, struct stg_err *err)
{
    struct scope scope;
    int rc = enter(device, &scope, err);
    if (rc < 0)
        return rc;
    struct stg_stream *stream = calloc(1, sizeof(*stream));
    if (stream == NULL)
        return leave(&scope, stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                                     "cuda: no memory for a stream"));
    stream->device = device;
    rc = result(&scope, cudaStreamCreateWithFlags(&stream->cuda, cudaStreamNonBlocking),
                "making a stream", err);
    if (rc < 0)
        free(stream);
    else
        *ret = stream;
    return rc;
}

static void stream_destroy(struct stg_stream *stream)
{
    struct scope scope;
    if (stream == NULL)
        return;
    if (enter(stream->device, &scope, NULL) == 0) {
        cudaStreamDestroy(stream->cuda);
        leave(&scope, 0);
    }
    free(stream);
}

static int copy(struct stg_stream *stream, void *dst, const void *src, size_t bytes,
                enum cudaMemcpyKind kind, struct stg_err *err)
{
    struct scope scope;
    int rc = enter(device_of(stream), &scope, err);
    if (rc < 0)
        return rc;
    if (bytes == 0)
        return leave(&scope, 0);
    return result(&scope, cudaMemcpyAsync(dst, src, bytes, kind, stream_of(stream)),
                  kind == cudaMemcpyHostToDevice ? "copy in" : "copy out", err);
}

static int copy_in(struct stg_stream *stream, void *dst, const void *src, size_t bytes,
                   struct stg_err *err)
{
    return copy(stream, dst, src, bytes, cudaMemcpyHostToDevice, err);
}

static int copy_out(struct stg_stream *stream, void *dst, const void *src, size_t bytes,
                    struct stg_err *err)
{
    return copy(stream, dst, src, bytes, cudaMemcpyDeviceToHost, err);
}

static int event_create(int device, struct stg_device_event **ret, struct stg_err *err)
{
    struct scope scope;
    int rc = enter(device, &scope, err);
    if (rc < 0)
        return rc;
    struct stg_device_event *event = calloc(1, sizeof(*event));
    if (event == NULL)
        return leave(&scope, stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                                     "cuda: no memory for an event"));
    event->device = device;
    rc = result(&scope, cudaEventCreateWithFlags(&event->cuda, cudaEventDisableTiming),
                "making an event", err);
    if (rc < 0)
        free(event);
    else
        *ret = event;
    return rc;
}

static int event_record(struct stg_device_event *event, struct stg_stream *stream,
                        struct stg_err *err)
{
    struct scope scope;
    int rc = enter(event->device, &scope, err);
    if (rc < 0)
        return rc;
    return result(&scope, cudaEventRecord(event->cuda, stream_of(stream)),
                  "recording an event", err);
}

static int event_query(struct stg_device_event *event, struct stg_err *err)
{
    cudaError_t error = cudaEventQuery(event->cuda);
    if (error == cudaErrorNotReady) {
        cudaGetLastError();
        return 0;
    }
    return error == cudaSuccess ? 1 : stg_cuda_error(error, "asking an event", err);
}

static int event_wait(struct stg_device_event *event, struct stg_err *err)
{
    cudaError_t error = cudaEventSynchronize(event->cuda);
    return error == cudaSuccess ? 0 : stg_cuda_error(error, "waiting for an event", err);
}

static void event_destroy(struct stg_device_event *event)
{
    struct scope scope;
    if (event == NULL)
        return;
    if (enter(event->device, &scope, NULL) == 0) {
        cudaEventDestroy(event->cuda);
        leave(&scope, 0);
    }
    free(event);
}

static int log1p_relu(struct stg_stream *stream, float *y, const float *x, size_t n,
                      struct stg_err *err)
{
    struct scope scope;
    int rc = enter(device_of(stream), &scope, err);
    if (rc < 0)
        return rc;
    if (n == 0)
        return leave(&scope, 0);
    return result(&scope, stg_cuda_log1p_relu(y, x, n, stream_of(stream)),
                  "kernel log1p_relu", err);
}

static const struct stg_device cuda_device = {
    .abi = STG_DEVICE_ABI,
    .struct_bytes = sizeof(struct stg_device),
    .name = "cuda",
    .count = count,
    .describe = describe,
    .alloc = device_alloc,
    .free = device_free,
    .host_register = host_register,
    .host_unregister = host_unregister,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .event_create = event_create,
    .event_record = event_record,
    .event_query = event_query,
    .event_wait = event_wait,
    .event_destroy = event_destroy,
    .log1p_relu = log1p_relu,
};

const struct stg_device *stg_cuda_device(void)
{
    return &cuda_device;
}
