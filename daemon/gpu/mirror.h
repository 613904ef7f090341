/* SPDX-License-Identifier: Apache-2.0
 *
 * The device mirror of a pipeline's memory on a GPU: stager-gpu, a process of its own,
 * has memory there and copies each finished batch to where it lies in the segment, before
 * it is published. So a batch is complete on the device when a trainer hears of it, its
 * place there is its place in the segment, and is free when its extent is.
 *
 * stager-gpu is not trusted, and not waited for without an end: when it is not there,
 * dies, or fails, batches are published without a mirror, and each trainer copies for
 * itself. It is started again, sooner at first and later when that does not help; its
 * memory on the device outlives it, by the descriptor that is kept here.
 */
#ifndef STG_DAEMON_GPU_MIRROR_H
#define STG_DAEMON_GPU_MIRROR_H

#include <stdbool.h>
#include <stdint.h>

#include "core/device.h"

struct stg_mirror;

/* Borrowed pointers outlive the mirror. */
struct stg_mirror_config {
    const char *name;   /* of the pipeline, for messages */
    const char *device; /* "cuda:N" as stager-gpu counts */
    int segment;
    uint64_t segment_bytes;
    uint64_t memory_bytes;        /* on the device; at most that of the segment */
    const _Atomic int *cancelled; /* not 0: the caller has stopped waiting; or NULL */
};

/* Starts, and waits until it is seen whether there is a GPU (10 s at most). That there is
 * none is no error. RESOURCE_EXHAUSTED. Not on the loop. */
int stg_mirror_create(const struct stg_mirror_config *config, struct stg_mirror **ret,
                      struct stg_err *err);

/* Ends stager-gpu; waits for it, 2 s at most. No thread copies any more. NULL is allowed.
 */
void stg_mirror_destroy(struct stg_mirror *mirror);

/* These bytes of the segment are as they are going to stay: copies them. The number of
 * the memory that has them now; 0: none has. Those of one `runner` wait for each other.
 * Any thread. */
uint32_t stg_mirror_copy(struct stg_mirror *mirror, uint32_t runner, uint64_t offset,
                         uint64_t bytes);

/* The memory on the device, for a client. */
struct stg_mirror_memory {
    int fd;          /* the caller's to close; -1: there is none */
    uint32_t number; /* what batches call it */
    uint64_t bytes;
    unsigned char uuid[STG_DEVICE_UUID_BYTES]; /* of the device */
};

void stg_mirror_memory(struct stg_mirror *mirror, struct stg_mirror_memory *ret);

/* How it is. why: "" when batches are copied. Returns how many were. Any thread. */
uint64_t stg_mirror_status(struct stg_mirror *mirror, char *why, size_t bytes);

#endif
