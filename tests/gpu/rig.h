/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests and the benchmark of a GPU share: the device (or, to try the tests
 * themselves, a stand-in), a stream of the trainer's, memory to look at what is there.
 */
#ifndef STG_TESTS_GPU_RIG_H
#define STG_TESTS_GPU_RIG_H

#include <stdbool.h>
#include <stddef.h>

#include "core/device.h"

struct rig {
    const struct stg_device *device;
    struct stg_stream *stream; /* the trainer's */
    struct stg_device_event *event;
};

/* From the folder in environment STG_CUDA_DIR. 0, or negative with the reason why there
 * is none. Not before fork: a device is not for both halves. */
int rig_open(struct rig *rig, struct stg_err *err);
void rig_close(struct rig *rig);

/* What to give as stager_options.device_stream. */
void *rig_native(const struct rig *rig);

/* Bytes a second of copies of so many bytes onto the device from RIG_BUFFERS buffers of
 * the host, as many under way as there are: page-locked ones, or what malloc gives. */
#define RIG_BUFFERS 4
double rig_copy_rate(const struct rig *rig, size_t bytes, bool locked, double seconds);

/* Waits for all that is on the trainer's stream. */
int rig_wait(const struct rig *rig, struct stg_err *err);

#endif
