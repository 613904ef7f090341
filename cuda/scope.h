/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the plugin: streams and events, and the device that a call works on. A
 * trainer's thread has a current device of its own, so each call that changes it puts it
 * back.
 */
#ifndef STG_CUDA_SCOPE_H
#define STG_CUDA_SCOPE_H

#include <stdbool.h>

#include "core/device.h"
#include "cuda/blas.h"

struct CUstream_st; /* what a cudaStream_t points to */
struct CUevent_st;

struct stg_stream {
    int device;
    struct CUstream_st *cuda;
    bool foreign; /* wrapped: not destroyed with this */
    struct stg_cuda_blas blas;
};

struct stg_device_event {
    int device;
    struct CUevent_st *cuda;
};

struct stg_cuda_scope {
    bool changed;
};

/* Makes `device` the thread's current one; each success is followed by one leave. No
 * other device gets a context by that. */
int stg_cuda_enter(int device, struct stg_cuda_scope *scope, struct stg_err *err);

/* For what is no device's (page-locked memory): the thread's device where it has a
 * context, else one that we have one on; the thread's gets one where there is neither. */
int stg_cuda_enter_any(struct stg_cuda_scope *scope, struct stg_err *err);

/* Puts back what was current before; returns rc. */
int stg_cuda_leave(const struct stg_cuda_scope *scope, int rc);

/* Leaves with what a call of the runtime (cudaError_t) returned. */
int stg_cuda_result(const struct stg_cuda_scope *scope, int error, const char *what,
                    struct stg_err *err);

/* NULL is the default stream of device 0. */
int stg_cuda_device_of(const struct stg_stream *stream);
struct CUstream_st *stg_cuda_stream_of(const struct stg_stream *stream);

/* stream.c: members of the table. */
int stg_cuda_stream_create(int device, struct stg_stream **ret, struct stg_err *err);
int stg_cuda_stream_wrap(int device, void *native, struct stg_stream **ret,
                         struct stg_err *err);
void stg_cuda_stream_destroy(struct stg_stream *stream);
int stg_cuda_stream_wait(struct stg_stream *stream, struct stg_device_event *event,
                         struct stg_err *err);
int stg_cuda_copy_in(struct stg_stream *stream, void *dst, const void *src, size_t bytes,
                     struct stg_err *err);
int stg_cuda_copy_out(struct stg_stream *stream, void *dst, const void *src, size_t bytes,
                      struct stg_err *err);
int stg_cuda_event_create(int device, struct stg_device_event **ret, struct stg_err *err);
int stg_cuda_event_record(struct stg_device_event *event, struct stg_stream *stream,
                          struct stg_err *err);
int stg_cuda_event_query(struct stg_device_event *event, struct stg_err *err);
int stg_cuda_event_wait(struct stg_device_event *event, struct stg_err *err);
void *stg_cuda_event_native(struct stg_device_event *event);
void stg_cuda_event_destroy(struct stg_device_event *event);

/* shared.c: members of the table; and does the device pass memory on as descriptors? */
int stg_cuda_shared_make(int device, size_t bytes, struct stg_device_shared *ret,
                         int *ret_fd, struct stg_err *err);
int stg_cuda_shared_import(int device, int fd, size_t bytes, bool read_only,
                           struct stg_device_shared *ret, struct stg_err *err);
void stg_cuda_shared_release(struct stg_device_shared *shared);
bool stg_cuda_passes_memory(int device);

/* launch.c. */
extern const struct stg_device_kernels stg_cuda_kernels;

#endif
