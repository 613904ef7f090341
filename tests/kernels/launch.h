/* SPDX-License-Identifier: Apache-2.0
 *
 * One op as a graph's only node, run on a device and on the host. A failure ends the
 * test.
 */
#ifndef STG_TESTS_KERNELS_LAUNCH_H
#define STG_TESTS_KERNELS_LAUNCH_H

#include "tests/kernels/host.h"

#define LAUNCH_INPUTS 6
#define LAUNCH_OUTPUTS 2

struct launched {
    struct stg_tensor there[LAUNCH_OUTPUTS]; /* of the device, copied to the host */
    struct stg_tensor here[LAUNCH_OUTPUTS];  /* of the host; data NULL: not run */
    int64_t bad;                             /* as in struct stg_op_device */
};

/* Runs the op. attrs: as in YAML, "axis: 1". with_host: on the host too. On the device
 * each input lies one element behind an aligned address. */
void launch_op(const struct bench *bench, const char *op, const char *attrs,
               const struct stg_tensor *inputs, size_t n, size_t n_outputs,
               bool with_host, struct launched *ret);
void launched_finish(struct launched *launched);

#endif
