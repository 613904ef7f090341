/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the tests and the benchmark of a GPU: the device (or a stand-in, to try the
 * tests themselves), a stream of the trainer, memory to inspect data.
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

/* Loads the device from the folder in environment STG_CUDA_DIR. Returns 0, or a negative
 * code with the reason. Not before fork: both halves must not share a device. */
int rig_open(struct rig *rig, struct stg_err *err);
void rig_close(struct rig *rig);

/* Returns the value for stager_options.device_stream. */
void *rig_native(const struct rig *rig);

/* Returns bytes per second of copies of this size onto the device from RIG_BUFFERS host
 * buffers, all in flight: page-locked ones, or malloc's. */
#define RIG_BUFFERS 4
double rig_copy_rate(const struct rig *rig, size_t bytes, bool locked, double seconds);

/* Waits for all work on the trainer's stream. */
int rig_wait(const struct rig *rig, struct stg_err *err);

#endif
