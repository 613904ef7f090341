/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between stagerd and stager-worker, on a SEQPACKET socket pair, which
 * stager-worker has as number 3.
 */
#ifndef STG_DAEMON_WORKER_FRAME_H
#define STG_DAEMON_WORKER_FRAME_H

#include <stdint.h>

#include "core/division/deal.h"

#define STG_WORKER_FD 3
/* Batches of one request, and requests at once. */
#define STG_WORKER_MAX_BATCHES 64u
#define STG_WORKER_MAX_CONNECTIONS 128u
#define STG_WORKER_SLOTS STG_WORKER_MAX_CONNECTIONS
#define STG_WORKER_TEXT_BYTES 16384u
/* Before each batch of a body: u64 length, u32 CRC-32C, zeros. */
#define STG_WORKER_HEAD_BYTES 64u
#define STG_WORKER_NO_END UINT64_MAX

enum stg_worker_ask_kind {
    STG_WORKER_ASK = 1,  /* for batches */
    STG_WORKER_DONE = 2, /* the memory of that answer is free */
};

/* stager-worker -> stagerd */
struct stg_worker_ask {
    uint64_t id;
    uint32_t kind;
    uint32_t has_epoch; /* epoch and index are set */
    uint64_t pass, first, last;
    uint64_t epoch, index; /* of the first batch */
    struct stg_deal deal;  /* n_hosts 0: the request names none */
    uint64_t deal_first;   /* the record at which the hosts began to divide the pass */
    char digest[72];
};

enum stg_worker_answer_kind {
    STG_WORKER_HELLO = 1, /* text: the JSON of /v1/worker; last: its CPUs */
    STG_WORKER_ANSWER = 2,
    STG_WORKER_DRAIN = 3,
};

/* stagerd -> stager-worker; text_bytes of text follow. `bytes` of batches lie in a slot
 * of memory. Its descriptor comes along with the first answer there, and when it is
 * replaced: stager-worker maps it, and reads the memory until it says STG_WORKER_DONE. */
struct stg_worker_answer {
    uint64_t id;
    uint32_t kind;
    uint32_t status; /* of HTTP */
    uint32_t code;   /* of stager, positive; 0: none */
    uint32_t text_bytes;
    uint32_t slot, unused;
    uint64_t capacity; /* bytes of the slot */
    uint64_t bytes;
    uint64_t last;   /* batch in the body */
    uint64_t end;    /* items of the pass; STG_WORKER_NO_END: not known */
    uint64_t cpu_ns; /* that the thread spent which made the batches */
};

#endif
