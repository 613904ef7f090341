/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the gate's daemon side: gate.c (requests, tickets, events), gate_process.c
 * (the process and its socket pair).
 */
#ifndef STG_DAEMON_SERVER_GATE_PRIV_H
#define STG_DAEMON_SERVER_GATE_PRIV_H

#include "daemon/gate/frame.h"
#include "daemon/gate/kept.h"
#include "daemon/gate/ticket.h"
#include "daemon/server/gate.h"

/* One life of stager-gate. */
struct stg_gate_process {
    struct stg_gate *gate; /* NULL: given up, and goes when its handles are closed */
    uv_poll_t poll, pid_poll;
    int n_handles;
    int fd, pidfd;
    pid_t pid;
    bool ready; /* its sockets are bound */
    uint64_t began_ns;
    uint64_t full_since_ns; /* it has not read since then; 0: it reads */
};

struct stg_gate {
    struct stg_server *server;
    bool enabled;
    char why[STG_ERR_TEXT_BYTES]; /* why there can be none; "": there can */
    char dir[4096], program[4096];
    char admin_url[4096], events_url[4096];
    uid_t uid;        /* what it becomes when we are root */
    gid_t gid, group; /* group: whose sockets they are; (gid_t)-1: nobody else's */
    struct stg_gate_process *process;
    uv_timer_t restart;
    unsigned n_deaths; /* one soon after the other */

    struct stg_tickets tickets;
    struct stg_kept kept;
    uint64_t sequence;
    unsigned char ticket[STG_TICKET_BYTES]; /* the last one that was given */
};

/* gate_process.c: sends at once, or not at all. */
void stg_gate_send(struct stg_gate *gate, enum stg_gate_frame_kind kind, uint64_t tag,
                   const void *payload, size_t bytes);

/* gate.c: a request that came through; always sends exactly one reply. */
void stg_gate_serve(struct stg_gate *gate, uint64_t tag, const void *payload,
                    size_t bytes);

#endif
