/* SPDX-License-Identifier: Apache-2.0
 *
 * A fake device, a plugin under CUDA's name. Streams are threads that work at any time,
 * or on request. Only the device can read device memory. A copy from page-locked memory
 * reads late, a copy from other memory at once. A bug that the stand-in reveals (a copy
 * without a wait, memory used too early) would occur on a GPU now and then.
 *
 * A test loads it by its folder (environment STG_STANDIN_DIR) before the library under
 * test looks for CUDA: the first table loaded stays. The environment configures the
 * stand-in of a helper process: STG_STANDIN_DEVICES is the number of devices,
 * STG_STANDIN_MEMORY the number of bytes that can be shared (0: none),
 * STG_STANDIN_NO_READ_ONLY (1) acts like no_read_only below.
 */
#ifndef STG_TESTS_STANDIN_H
#define STG_TESTS_STANDIN_H

#include "core/device.h"

#define STANDIN_SYMBOL "stg_standin"

struct standin {
    /* Stop all streams before their next piece of work; continue them. */
    void (*hold)(void);
    void (*go)(void);
    /* Waits until no stream can continue. */
    void (*synchronize)(void);
    /* Stops this stream here until unblock. */
    void (*block)(struct stg_stream *stream);
    void (*unblock)(void);

    /* Set before the first use of the device, or between calls. */
    bool no_read_only;  /* cannot page-lock read-only mappings */
    bool no_memory;     /* device memory is exhausted */
    unsigned fail_copy; /* the n-th copy from now on fails; 0: none */
    /* likewise, for memory of the device; for a launch */
    unsigned fail_alloc, fail_kernel;
    int n_devices; /* 1; 0: UNAVAILABLE */

    /* Existing objects. */
    unsigned n_allocations, n_streams, n_events, n_registered, n_bounces;
    unsigned n_copies, n_allocs, n_launches; /* requested */
    unsigned n_shared; /* those of the allocations that are shared with other processes */

    /* Returns the host's view of device memory. */
    void *(*see)(const void *at);
};

/* kernels.c: the kernels of cuda/ as plain C, launched on streams of the stand-in; NULL
 * if they were not built. */
extern const struct stg_device_kernels *const standin_kernels;

/* For them: the stream calls `run` with `arg`, and frees it. A launch set to fail does so
 * at once. */
int standin_launch(struct stg_stream *stream, void (*run)(void *arg), void *arg,
                   struct stg_err *err);

#endif
