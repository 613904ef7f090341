/* SPDX-License-Identifier: Apache-2.0
 *
 * An executor's nodes on a device: the same plan, and tensors that are the device's. All
 * its nodes run there or none; nothing waits for the device here. One thread at a time,
 * as the executor.
 */
#ifndef STG_OPS_EXEC_DEVICE_H
#define STG_OPS_EXEC_DEVICE_H

#include "core/device.h"
#include "ops/exec/run.h"

/* Of one launch of an executor. */
struct stg_run_device {
    const struct stg_device_kernels *kernels;
    struct stg_stream *stream;
    void *owner;
    /* Memory of the device for one output, aligned to 64, at least until the next launch.
     */
    int (*alloc)(void *owner, size_t bytes, void **ret, struct stg_err *err);
    /* A copy on the device of what an executor reads: a variable as it is now, or what
     * never changes while the executor lives. */
    int (*keep)(void *owner, const void *data, size_t bytes, bool is_variable,
                const void **ret, struct stg_err *err);
    int64_t *bad; /* of the device, one a node (stg_run_n_nodes): as in stg_op_device */
    /* Where the feeds of the exec, and those of stg_run_feed, lie on the device; what is
     * not needed may be NULL. */
    void *const *feeds, *const *fed;
};

/* Can all of a compute executor's nodes run on a device, where tensors of the boundary
 * are, and outputs that were carried over it, but no string and nothing else that is fed?
 * No when it writes a variable, or when a fetch is no node's output. */
bool stg_run_launches(const struct stg_run *run);

/* Returns the first node that cannot run there, "NAME (op)"; NULL: none, or it launches.
 */
const char *stg_run_stays(const struct stg_run *run, char *buf, size_t bytes);

/* Does it launch, and do its nodes only hand on what is on the device already? */
bool stg_run_forwards(const struct stg_run *run);

/* How many nodes it runs. */
size_t stg_run_n_nodes(const struct stg_run *run);

/* Node i of those: "NAME (op)". */
const char *stg_run_node_text(const struct stg_run *run, size_t i, char *buf,
                              size_t bytes);

/* Enqueues all of an executor that launches. feeds: the host's, as of stg_run_exec.
 * outputs: as there, and data is the device's. Watchers see each node's launch. Errors:
 * the op's, the device's, and of the feeds, as there; what was enqueued stays so. */
int stg_run_launch(struct stg_run *run, const struct stg_tensor *feeds,
                   const struct stg_run_device *how, const struct stg_key *key,
                   struct stg_tensor *outputs, struct stg_err *err);

/* Calls `each` with the memory of every variable that the executor writes. */
void stg_run_each_written(const struct stg_run *run,
                          void (*each)(void *owner, const void *data), void *owner);

#endif
