/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of a device: what a place that can hold batches must offer. The CPU's is here
 * and is always there; CUDA's comes from libstager-cuda.so (cuda/), which is loaded at
 * run time and exports one function that returns one table. No program links it.
 */
#ifndef STG_CORE_DEVICE_H
#define STG_CORE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/device_kernels.h"
#include "core/err.h"

#define STG_DEVICE_ABI 3
#define STG_DEVICE_SYMBOL "stg_cuda_device"

/* A point in the order of work of a stream. */
struct stg_device_event;

#define STG_DEVICE_UUID_BYTES 16
#define STG_DEVICE_NAME_BYTES 32 /* of "cuda:N", with its end */

/* What a device is and can do. */
struct stg_device_facts {
    char name[64];         /* "NVIDIA H200" */
    int major, minor;      /* compute capability; 0.0: none */
    uint64_t memory_bytes; /* all of it */
    int driver, runtime;   /* CUDA versions, 13000 is 13.0; 0: none */
    /* The same in every process, whatever number it has there. */
    unsigned char uuid[STG_DEVICE_UUID_BYTES];
    bool register_read_only; /* pages that are mapped read-only can be page-locked */
    bool ipc;                /* other processes can open its allocations and events */
    bool memory_fds;         /* memory can be passed on as a descriptor */
    bool mps;                /* contexts made here share the device through MPS */
};

/* Memory of a device that several processes have. */
struct stg_device_shared {
    int device;
    void *memory;
    size_t bytes;    /* what was asked for, rounded up */
    uint64_t handle; /* the device's own */
};

/* All calls return 0 or a negative status code. UNAVAILABLE: there is no such device
 * here, the CPU path goes on; INVALID_ARGUMENT: no device of that number, or a bad
 * pointer; RESOURCE_EXHAUSTED: no memory. Any thread; a stream or an event by one at a
 * time. No call changes the calling thread's current device. */
struct stg_device {
    uint32_t abi;          /* STG_DEVICE_ABI */
    uint32_t struct_bytes; /* sizeof(struct stg_device) of the plugin */
    const char *name;      /* "cpu", "cuda" */

    /* How many devices there are. UNAVAILABLE with the reason (no driver, no device). */
    int (*count)(int *ret, struct stg_err *err);
    /* "NVIDIA H200, compute capability 9.0, 139 GiB", truncated to bytes. */
    int (*describe)(int device, char *buf, size_t bytes, struct stg_err *err);
    int (*facts)(int device, struct stg_device_facts *ret, struct stg_err *err);

    /* Memory on the device; 0 bytes give NULL, free accepts NULL. free waits for nothing:
     * what was enqueued on the memory is over before. */
    int (*alloc)(int device, size_t bytes, void **ret, struct stg_err *err);
    void (*free)(int device, void *ptr);

    /* Memory that other processes can import by a descriptor, which the caller closes.
     * It lives as long as a process has it or the descriptor. UNIMPLEMENTED:
     * this device passes no memory on as one. INVALID_ARGUMENT for 0 bytes. */
    int (*shared_make)(int device, size_t bytes, struct stg_device_shared *ret,
                       int *ret_fd, struct stg_err *err);
    /* What another process made, of so many bytes (its `bytes`); fd stays the caller's.
     * read_only: kernels of this process shall not write to it, where the device can see
     * to that. */
    int (*shared_import)(int device, int fd, size_t bytes, bool read_only,
                         struct stg_device_shared *ret, struct stg_err *err);
    /* As free; a zeroed one is fine. */
    void (*shared_release)(struct stg_device_shared *shared);

    /* Page-locks host memory for fast copies with all devices (read_only: the mapping
     * is). UNIMPLEMENTED when the device cannot do that with a read-only mapping: use a
     * bounce buffer. INVALID_ARGUMENT for 0 bytes. unregister accepts what was
     * registered, and NULL. */
    int (*host_register)(int device, void *ptr, size_t bytes, bool read_only,
                         struct stg_err *err);
    void (*host_unregister)(void *ptr);

    /* Page-locked host memory: a bounce buffer. As alloc and free. */
    int (*host_alloc)(size_t bytes, void **ret, struct stg_err *err);
    void (*host_free)(void *ptr);

    /* An order of work of its own, which no default stream of the process orders. */
    int (*stream_create)(int device, struct stg_stream **ret, struct stg_err *err);
    /* Wraps a stream that the caller made and keeps: `native` is its cudaStream_t, NULL
     * the device's default stream. */
    int (*stream_wrap)(int device, void *native, struct stg_stream **ret,
                       struct stg_err *err);
    void (*stream_destroy)(struct stg_stream *stream);
    /* What is enqueued on the stream from now on begins after the event was reached, as
     * it was recorded last (at once when it never was). The host does not wait. */
    int (*stream_wait)(struct stg_stream *stream, struct stg_device_event *event,
                       struct stg_err *err);

    /* Host to device, and back, ordered on the stream. From page-locked memory the call
     * returns before it is done, and src must stay as it is until then; other memory may
     * be read before it returns. */
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
    /* Its cudaEvent_t, which lives as long as the event. */
    void *(*event_native)(struct stg_device_event *event);
    void (*event_destroy)(struct stg_device_event *event);

    /* What runs on the device; NULL: nothing does (the ops are the CPU's kernels). */
    const struct stg_device_kernels *kernels;
};

/* The CPU stand-in: one device, streams that run at once, events that are always reached.
 */
const struct stg_device *stg_device_cpu(void);

/* The number in "cuda" (0) or "cuda:N". INVALID_ARGUMENT. */
int stg_device_number(const char *name, int *ret, struct stg_err *err);

/* Loads libstager-cuda.so once: from `dir` and nowhere else when it is given, else from
 * libdir/stager as installed, else by the linker's path. 0 and the table, or UNAVAILABLE
 * with the reason (no such file, what it lacks, another abi); the CPU path goes on, and a
 * later call tries again. A loaded table stays, whatever `dir` a later call names. That
 * it loads does not mean that there is a device: ask count. Thread-safe. */
int stg_device_cuda(const char *dir, const struct stg_device **ret, struct stg_err *err);

#endif
