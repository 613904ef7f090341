/* SPDX-License-Identifier: Apache-2.0
 *
 * The function table of a device, which is a place that can hold batches. The table of
 * the CPU is always available. CUDA's is in libstager-cuda.so (cuda/), which is loaded at
 * run time and exports one function that returns the table. No program links to it.
 */
#ifndef STG_CORE_DEVICE_H
#define STG_CORE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/device_kernels.h"
#include "core/err.h"

#define STG_DEVICE_ABI 4
#define STG_DEVICE_SYMBOL "stg_cuda_device"

/* A point in the order of work of a stream. */
struct stg_device_event;

#define STG_DEVICE_UUID_BYTES 16
#define STG_DEVICE_NAME_BYTES 32 /* of "cuda:N", with its end */

/* The properties and features of a device. */
struct stg_device_facts {
    char name[64];         /* "NVIDIA H200" */
    int major, minor;      /* compute capability; 0.0: none */
    uint64_t memory_bytes; /* total */
    int driver, runtime;   /* CUDA versions, 13000 is 13.0; 0: none */
    /* The same in every process, even if the device number differs. */
    unsigned char uuid[STG_DEVICE_UUID_BYTES];
    bool register_read_only; /* pages that are mapped read-only can be page-locked */
    bool ipc;                /* other processes can open its allocations and events */
    bool memory_fds;         /* memory can be exported as a file descriptor */
    bool mps;                /* contexts made here share the device through MPS */
};

/* Device memory that several processes share. */
struct stg_device_shared {
    int device;
    void *memory;
    size_t bytes;    /* the requested size, rounded up */
    uint64_t handle; /* internal to the device */
};

/* All calls return 0 or a negative status code. UNAVAILABLE: this machine has no such
 * device; the CPU path still works. INVALID_ARGUMENT: no device of that number, or a bad
 * pointer. RESOURCE_EXHAUSTED: out of memory. Any thread; one thread at a time per stream
 * or event. No call changes the calling thread's current device. */
struct stg_device {
    uint32_t abi;          /* STG_DEVICE_ABI */
    uint32_t struct_bytes; /* sizeof(struct stg_device) of the plugin */
    const char *name;      /* "cpu", "cuda" */

    /* Returns the number of devices. UNAVAILABLE with the reason (no driver, no device).
     */
    int (*count)(int *ret, struct stg_err *err);
    /* "NVIDIA H200, compute capability 9.0, 139 GiB", truncated to bytes. */
    int (*describe)(int device, char *buf, size_t bytes, struct stg_err *err);
    int (*facts)(int device, struct stg_device_facts *ret, struct stg_err *err);

    /* Allocate and free device memory. 0 bytes yield NULL, which free accepts. free does
     * not wait: work that uses the memory must be complete. */
    int (*alloc)(int device, size_t bytes, void **ret, struct stg_err *err);
    void (*free)(int device, void *ptr);

    /* Allocates memory that other processes can import by a descriptor, which the caller
     * closes. The memory lives while a process holds it or the descriptor. UNIMPLEMENTED:
     * this device cannot export memory. INVALID_ARGUMENT for 0 bytes. */
    int (*shared_make)(int device, size_t bytes, struct stg_device_shared *ret,
                       int *ret_fd, struct stg_err *err);
    /* Imports memory that another process exported, with its `bytes`. The caller keeps
     * fd. read_only: prevents writes by kernels of this process, if the device can. */
    int (*shared_import)(int device, int fd, size_t bytes, bool read_only,
                         struct stg_device_shared *ret, struct stg_err *err);
    /* Releases the memory like free. A zeroed struct is allowed. */
    void (*shared_release)(struct stg_device_shared *shared);

    /* Page-locks host memory for fast copies with all devices. read_only: the mapping is
     * read-only; UNIMPLEMENTED if the device cannot page-lock it (use a bounce buffer).
     * INVALID_ARGUMENT for 0 bytes. unregister accepts registered memory, and NULL. */
    int (*host_register)(int device, void *ptr, size_t bytes, bool read_only,
                         struct stg_err *err);
    void (*host_unregister)(void *ptr);

    /* Allocate and free page-locked host memory, for a bounce buffer. */
    int (*host_alloc)(size_t bytes, void **ret, struct stg_err *err);
    void (*host_free)(void *ptr);

    /* Creates a stream that does not synchronize with the default streams of the process.
     */
    int (*stream_create)(int device, struct stg_stream **ret, struct stg_err *err);
    /* Wraps a stream that the caller owns. native: its cudaStream_t; NULL: the default
     * stream of the device. */
    int (*stream_wrap)(int device, void *native, struct stg_stream **ret,
                       struct stg_err *err);
    void (*stream_destroy)(struct stg_stream *stream);
    /* Makes later work on the stream wait for the last record of the event (if it was
     * never recorded, the work does not wait). The host does not wait. */
    int (*stream_wait)(struct stg_stream *stream, struct stg_device_event *event,
                       struct stg_err *err);

    /* Copy from host to device, and back, in the order of the stream. With page-locked
     * memory the call returns before the copy is complete, and src must not change until
     * then. Other memory may be read before the call returns. */
    int (*copy_in)(struct stg_stream *stream, void *dst, const void *src, size_t bytes,
                   struct stg_err *err);
    int (*copy_out)(struct stg_stream *stream, void *dst, const void *src, size_t bytes,
                    struct stg_err *err);

    int (*event_create)(int device, struct stg_device_event **ret, struct stg_err *err);
    int (*event_record)(struct stg_device_event *event, struct stg_stream *stream,
                        struct stg_err *err);
    /* Returns 1 if the event is reached or was never recorded, else 0; negative on error.
     * Never blocks. */
    int (*event_query)(struct stg_device_event *event, struct stg_err *err);
    int (*event_wait)(struct stg_device_event *event, struct stg_err *err);
    /* Returns its cudaEvent_t, which lives as long as the event. */
    void *(*event_native)(struct stg_device_event *event);
    void (*event_destroy)(struct stg_device_event *event);

    /* Kernels for the device; NULL: none (the ops use the CPU's kernels). */
    const struct stg_device_kernels *kernels;
};

/* Returns the CPU stand-in: one device whose streams run work immediately and whose
 * events are always reached. */
const struct stg_device *stg_device_cpu(void);

/* Parses the device number of "cuda" (0) or "cuda:N". INVALID_ARGUMENT. */
int stg_device_number(const char *name, int *ret, struct stg_err *err);

/* Loads libstager-cuda.so once: only from `dir` if it is not NULL, else from the
 * installed libdir/stager, else by the linker's path. Returns 0 and the table, or
 * UNAVAILABLE with the reason (no such file, a missing symbol, another abi); a later call
 * then tries again. A loaded table stays loaded, and later calls ignore `dir`. A loaded
 * library does not imply a device: call count. Thread-safe. */
int stg_device_cuda(const char *dir, const struct stg_device **ret, struct stg_err *err);

#endif
