/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "core/status.h"
#include "cuda/error.h"
#include "cuda/scope.h"

static int no_memory(const char *what, struct stg_err *err)
{
    return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "cuda: no memory for %s", what);
}

/* Non-blocking: the default stream of a framework in the same process must not order
 * our copies. */
static int make(struct CUstream_st **ret, const struct stg_cuda_scope *scope,
                struct stg_err *err)
{
    return stg_cuda_result(scope, cudaStreamCreateWithFlags(ret, cudaStreamNonBlocking),
                           "making a stream", err);
}

static int stream_create(const struct stg_stream *from, struct stg_stream **ret,
                         struct stg_err *err)
{
    struct stg_cuda_scope scope;
    int rc = stg_cuda_enter(from->device, &scope, err);
    if (rc < 0)
        return rc;
    struct stg_stream *stream = malloc(sizeof(*stream));
    if (stream == NULL)
        return stg_cuda_leave(&scope, no_memory("a stream", err));
    *stream = *from;
    rc = from->foreign ? stg_cuda_leave(&scope, 0) : make(&stream->cuda, &scope, err);
    if (rc < 0)
        free(stream);
    else
        *ret = stream;
    return rc;
}

int stg_cuda_stream_create(int device, struct stg_stream **ret, struct stg_err *err)
{
    return stream_create(&(struct stg_stream){.device = device}, ret, err);
}

int stg_cuda_stream_wrap(int device, void *native, struct stg_stream **ret,
                         struct stg_err *err)
{
    const struct stg_stream from = {.device = device, .cuda = native, .foreign = true};
    return stream_create(&from, ret, err);
}

void stg_cuda_stream_destroy(struct stg_stream *stream)
{
    struct stg_cuda_scope scope;
    if (stream == NULL)
        return;
    if ((!stream->foreign || stream->blas.handle != NULL) &&
        stg_cuda_enter(stream->device, &scope, NULL) == 0) {
        stg_cuda_blas_finish(&stream->blas);
        cudaError_t error =
            stream->foreign ? cudaSuccess : cudaStreamDestroy(stream->cuda);
        stg_cuda_result(&scope, error, "a stream's end", NULL);
    }
    free(stream);
}

int stg_cuda_stream_wait(struct stg_stream *stream, struct stg_device_event *event,
                         struct stg_err *err)
{
    struct stg_cuda_scope scope;
    int rc = stg_cuda_enter(stg_cuda_device_of(stream), &scope, err);
    if (rc < 0)
        return rc;
    return stg_cuda_result(
        &scope, cudaStreamWaitEvent(stg_cuda_stream_of(stream), event->cuda, 0),
        "a stream's wait for an event", err);
}

static int copy(struct stg_stream *stream, void *dst, const void *src, size_t bytes,
                enum cudaMemcpyKind kind, struct stg_err *err)
{
    struct stg_cuda_scope scope;
    int rc = stg_cuda_enter(stg_cuda_device_of(stream), &scope, err);
    if (rc < 0)
        return rc;
    if (bytes == 0)
        return stg_cuda_leave(&scope, 0);
    return stg_cuda_result(
        &scope, cudaMemcpyAsync(dst, src, bytes, kind, stg_cuda_stream_of(stream)),
        kind == cudaMemcpyHostToDevice ? "copy in" : "copy out", err);
}

int stg_cuda_copy_in(struct stg_stream *stream, void *dst, const void *src, size_t bytes,
                     struct stg_err *err)
{
    return copy(stream, dst, src, bytes, cudaMemcpyHostToDevice, err);
}

int stg_cuda_copy_out(struct stg_stream *stream, void *dst, const void *src, size_t bytes,
                      struct stg_err *err)
{
    return copy(stream, dst, src, bytes, cudaMemcpyDeviceToHost, err);
}

int stg_cuda_event_create(int device, struct stg_device_event **ret, struct stg_err *err)
{
    struct stg_cuda_scope scope;
    int rc = stg_cuda_enter(device, &scope, err);
    if (rc < 0)
        return rc;
    struct stg_device_event *event = calloc(1, sizeof(*event));
    if (event == NULL)
        return stg_cuda_leave(&scope, no_memory("an event", err));
    event->device = device;
    rc = stg_cuda_result(&scope,
                         cudaEventCreateWithFlags(&event->cuda, cudaEventDisableTiming),
                         "making an event", err);
    if (rc < 0)
        free(event);
    else
        *ret = event;
    return rc;
}

int stg_cuda_event_record(struct stg_device_event *event, struct stg_stream *stream,
                          struct stg_err *err)
{
    struct stg_cuda_scope scope;
    int rc = stg_cuda_enter(event->device, &scope, err);
    if (rc < 0)
        return rc;
    return stg_cuda_result(&scope,
                           cudaEventRecord(event->cuda, stg_cuda_stream_of(stream)),
                           "recording an event", err);
}

int stg_cuda_event_query(struct stg_device_event *event, struct stg_err *err)
{
    struct stg_cuda_scope scope;
    int rc = stg_cuda_enter(event->device, &scope, err);
    if (rc < 0)
        return rc;
    cudaError_t error = cudaEventQuery(event->cuda);
    if (error == cudaErrorNotReady) {
        cudaGetLastError();
        return stg_cuda_leave(&scope, 0);
    }
    rc = stg_cuda_result(&scope, error, "asking an event", err);
    return rc < 0 ? rc : 1;
}

int stg_cuda_event_wait(struct stg_device_event *event, struct stg_err *err)
{
    struct stg_cuda_scope scope;
    int rc = stg_cuda_enter(event->device, &scope, err);
    if (rc < 0)
        return rc;
    return stg_cuda_result(&scope, cudaEventSynchronize(event->cuda),
                           "waiting for an event", err);
}

void *stg_cuda_event_native(struct stg_device_event *event)
{
    return event->cuda;
}

void stg_cuda_event_destroy(struct stg_device_event *event)
{
    struct stg_cuda_scope scope;
    if (event == NULL)
        return;
    if (stg_cuda_enter(event->device, &scope, NULL) == 0)
        stg_cuda_result(&scope, cudaEventDestroy(event->cuda), "an event's end", NULL);
    free(event);
}
