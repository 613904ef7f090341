/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of a device: what a place that can hold batches must offer. The CPU's is here
 * and is always there; CUDA's comes from libstager-cuda.so (cuda/), which is loaded at
 * run time and exports one function that returns one table. Nobody links it.
 */
#ifndef STG_CORE_DEVICE_H
#define STG_CORE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

#define STG_DEVICE_ABI 1
#define STG_DEVICE_SYMBOL "stg_cuda_device"

/* An order of work on a device; NULL is the default one of device 0. */
struct stg_stream;
/* A point in that order. */
struct stg_device_event;

/* All calls return 0 or a negative status code. UNAVAILABLE: there is no such device
 * here, the CPU path goes on; INVALID_ARGUMENT: no device of that number, or a bad
 * pointer; RESOURCE_EXHAUSTED: no memory. Any thread; a stream or an event by one at a
 * time. No call changes the calling thread's current device. */
struct stg_device {
    uint32_t abi;          /* STG_DEVICE_ABI */
    uint32_t struct_bytes; /* sizeof(struct stg_device) of who built it */
    const char *name;      /* "cpu", "cuda" */

    /* How many devices there are. UNAVAILABLE with the reason (no driver, no device). */
    int (*count)(int *ret, struct stg_err *err);
    /* "NVIDIA H200, compute capability 9.0, 139 GiB", cut to bytes. */
    int (*describe)(int device, char *buf, size_t bytes, struct stg_err *err);

    /* Memory on the device; 0 bytes give NULL, free accepts NULL. */
    int (*alloc)(int device, size_t bytes, void **ret, struct stg_err *err);
    void (*free)(int device, void *ptr);

    /* Page-locks host memory for fast copies (read_only: the mapping is). UNIMPLEMENTED
     * when the device cannot do that with a read-only mapping: use a bounce buffer.
     * INVALID_ARGUMENT for 0 bytes. unregister accepts what was registered, and NULL. */
    int (*host_register)(void *ptr, size_t bytes, bool read_only, struct stg_err *err);
    void (*host_unregister)(void *ptr);

    int (*stream_create)(int device, struct stg_stream **ret, struct stg_err *err);
    void (*stream_destroy)(struct stg_stream *stream);

    /* Host to device, ordered on the stream; returns before it is done on a real device.
     */
    int (*copy_in)(struct stg_stream *stream, void *dst, const void *src, size_t bytes,
                   struct stg_err *err);
    int (*copy_out)(struct stg_stream *stream, void *dst, const void *src, size_t bytes,
                    struct stg_err *err);

    int (*event_create)(int device, struct stg_device_event **ret, struct stg_err *err);
    int (*event_record)(struct stg_device_event *event, struct stg_stream *stream,
                        struct stg_err *err);
    /* 1 when reached or never recorded, 0 when not, negative on error. Never blocks. */
    int (*event_query)(struct stg_device_event *event, struct stg_err *err);
    int (*event_wait)(struct stg_device_event *event, struct stg_err *err);
    void (*event_destroy)(struct stg_device_event *event);

    /* Kernels, each with a twin on the CPU. y[i] = log1p(max(x[i], 0)), n float32; NaN
     * stays NaN. y may be x. */
    int (*log1p_relu)(struct stg_stream *stream, float *y, const float *x, size_t n,
                      struct stg_err *err);
};

/* The CPU stand-in: one device, streams that run at once, events that are always reached.
 */
const struct stg_device *stg_device_cpu(void);

/* Loads libstager-cuda.so once: from `dir` and nowhere else when it is given, else from
 * libdir/stager as installed, else by the linker's path. 0 and the table, or UNAVAILABLE
 * with the reason (no such file, what it lacks, another abi); the CPU path goes on, and a
 * later call tries again. A loaded table stays, whatever `dir` a later call names. That
 * it loads does not mean that there is a device: ask count. Thread-safe. */
int stg_device_cuda(const char *dir, const struct stg_device **ret, struct stg_err *err);

#endif
