/* SPDX-License-Identifier: Apache-2.0
 *
 * What passes between stagerd and stager-gate: one message of a SEQPACKET socket pair is
 * one frame, this header and at most STG_GATE_PAYLOAD_MAX_BYTES. The gate is not trusted:
 * stagerd checks every frame, and ends a gate that sends another. A frame that stagerd
 * cannot send at once is dropped.
 */
#ifndef STG_DAEMON_GATE_FRAME_H
#define STG_DAEMON_GATE_FRAME_H

#include <stdint.h>

/* One message of attach.sock, also NN_RCVMAXSIZE. */
#define STG_GATE_PAYLOAD_MAX_BYTES 65536u
#define STG_GATE_FD 3 /* the gate's end */

/* The longest path a Unix socket may have; nanomsg 1.1.5 aborts beyond it. */
#define STG_GATE_PATH_MAX_BYTES 107

enum stg_gate_frame_kind {
    STG_GATE_READY = 1,   /* gate: both sockets are bound */
    STG_GATE_REQUEST = 2, /* gate: tag and a request; one at a time */
    STG_GATE_REPLY = 3,   /* stagerd: the same tag and its reply */
    STG_GATE_EVENT = 4,   /* stagerd: to be published */
};

struct stg_gate_frame {
    uint32_t kind;
    uint32_t zero;
    uint64_t tag;
};

#endif
