/* SPDX-License-Identifier: Apache-2.0
 *
 * The twin of a pipeline's memory on a GPU: stager-gpu, a process of its own, has memory
 * there and copies each finished batch to where it lies in the segment, before it is
 * published. So a batch is complete on the device when a trainer hears of it, its place
 * there is its place in the segment, and is free when its extent is.
 *
 * stager-gpu is not trusted, and not waited for without an end: when it is not there,
 * dies, or fails, batches are published without a twin, and each trainer copies for
 * itself. It is started again, sooner at first and later when that does not help; its
 * memory on the device outlives it, by the descriptor that is kept here.
 */
#ifndef STG_DAEMON_GPU_TWIN_H
#define STG_DAEMON_GPU_TWIN_H

#include <stdbool.h>
#include <stdint.h>

#include "core/device.h"

struct stg_twin;

/* Borrowed pointers outlive the twin. */
struct stg_twin_config {
    const char *name;   /* of the pipeline, for messages */
    const char *device; /* "cuda:N" as stager-gpu counts */
    int segment;
    uint64_t segment_bytes;
    uint64_t memory_bytes;        /* on the device; at most that of the segment */
    const _Atomic int *cancelled; /* not 0: the caller has stopped waiting; or NULL */
};

/* Starts, and waits until it is seen whether there is a GPU (10 s at most). That there is
 * none is no error. RESOURCE_EXHAUSTED. Not on the loop. */
int stg_twin_create(const struct stg_twin_config *config, struct stg_twin **ret,
                    struct stg_err *err);

/* Ends stager-gpu; waits for it, 2 s at most. No thread copies any more. NULL is allowed.
 */
void stg_twin_destroy(struct stg_twin *twin);

/* These bytes of the segment are as they are going to stay: copies them. The number of
 * the memory that has them now; 0: none has. Those of one `lane` wait for each other. Any
 * thread. */
uint32_t stg_twin_copy(struct stg_twin *twin, uint32_t lane, uint64_t offset,
                       uint64_t bytes);

/* The memory on the device, for a client. */
struct stg_twin_memory {
    int fd;          /* the caller's to close; -1: there is none */
    uint32_t number; /* what batches call it */
    uint64_t bytes;
    unsigned char uuid[STG_DEVICE_UUID_BYTES]; /* of the device */
};

void stg_twin_memory(struct stg_twin *twin, struct stg_twin_memory *ret);

/* How it is. why: "" when batches are copied. Returns how many were. Any thread. */
uint64_t stg_twin_status(struct stg_twin *twin, char *why, size_t bytes);

#endif
