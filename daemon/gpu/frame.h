/* SPDX-License-Identifier: Apache-2.0
 *
 * What passes between stagerd and stager-gpu, each a message of a SEQPACKET socket pair:
 * over STG_GPU_FD one start and one answer to it, over each channel jobs, one at a time,
 * and their answers. stagerd checks every message, and ends a stager-gpu that sends
 * another one. When STG_GPU_FD is closed, stager-gpu ends.
 */
#ifndef STG_DAEMON_GPU_FRAME_H
#define STG_DAEMON_GPU_FRAME_H

#include <stdint.h>

#define STG_GPU_FD 3
#define STG_GPU_CHANNELS 4u
#define STG_GPU_MAGIC 0x47555047u
#define STG_GPU_TEXT_BYTES 400

/* With descriptors: the pipeline's segment, the channels, and (device_bytes not 0) the
 * memory of a stager-gpu before this one, to go on with. */
struct stg_gpu_start {
    uint32_t magic;
    uint32_t zero;
    uint64_t segment_bytes;
    uint64_t wanted_bytes; /* of memory on the device, where there is none yet */
    uint64_t device_bytes;
};

/* With a descriptor of the memory, where it was made and code is 0. */
struct stg_gpu_ready {
    uint32_t magic;
    int32_t code;          /* 0, or a negative status, and it ends */
    uint64_t device_bytes; /* of the memory */
    unsigned char uuid[16];
    char text[STG_GPU_TEXT_BYTES]; /* what the device is; or why not */
};

/* Bytes of the segment go to the same place of the memory. */
struct stg_gpu_job {
    uint32_t magic;
    uint32_t zero;
    uint64_t job;
    uint64_t offset;
    uint64_t bytes;
};

struct stg_gpu_answer {
    uint32_t magic;
    int32_t code; /* 0: all of it is there */
    uint64_t job;
};

#endif
