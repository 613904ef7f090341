/* SPDX-License-Identifier: Apache-2.0
 *
 * A device that is none, as a plugin under CUDA's name: streams are threads that work
 * when they like, or are told to; memory of the device cannot be read by who is not the
 * device; from page-locked memory a copy reads late, and from other memory at once. What
 * goes wrong with it (a copy that was not waited for, memory that is used too early)
 * would go wrong on a GPU, now and then.
 *
 * A test loads it by its folder (environment STG_STANDIN_DIR) before the library under
 * test looks for CUDA: the first table that was loaded stays. Of a helper process the
 * environment says what a test cannot: STG_STANDIN_DEVICES how many devices there are,
 * STG_STANDIN_MEMORY how many bytes can be shared (0: none can), STG_STANDIN_NO_READ_ONLY
 * (1) as no_read_only below.
 */
#ifndef STG_TESTS_STANDIN_H
#define STG_TESTS_STANDIN_H

#include "core/device.h"

#define STANDIN_SYMBOL "stg_standin"

struct standin {
    /* All streams stop before their next piece of work; and go on. */
    void (*hold)(void);
    void (*go)(void);
    /* Waits until no stream can go on. */
    void (*settle)(void);
    /* This stream stops here until unblock. */
    void (*block)(struct stg_stream *stream);
    void (*unblock)(void);

    /* Set before the first look at the device, or between calls. */
    bool no_read_only;                /* cannot page-lock what is mapped read-only */
    bool no_memory;                   /* nothing more on the device */
    unsigned fail_copy;               /* the n-th copy from now on fails; 0: none */
    unsigned fail_alloc, fail_kernel; /* likewise, of memory of the device; of a launch */
    int n_devices;                    /* 1; 0: UNAVAILABLE */

    /* What there is. */
    unsigned n_allocations, n_streams, n_events, n_registered, n_bounces;
    unsigned n_copies, n_allocs, n_launches; /* asked for */
    unsigned n_shared; /* of the allocations, those that others have too */

    /* Memory of the device as the host may look at it. */
    void *(*see)(const void *at);
};

/* kernels.c: those of cuda/ as plain C, launched on streams of the stand-in; NULL where
 * they could not be built. */
extern const struct stg_device_kernels *const standin_kernels;

/* For them: has the stream call `run` with `arg`, and free it. A launch that is to fail
 * does so at once. */
int standin_launch(struct stg_stream *stream, void (*run)(void *arg), void *arg,
                   struct stg_err *err);

#endif
