/* SPDX-License-Identifier: Apache-2.0
 *
 * The daemon's side of the nanomsg door (DESIGN.md section 6): starts, watches and ends
 * stager-gate, serves what it forwards by the request table of attach.sock with the
 * identity of the ticket's owner, and hands it events to publish. The gate is not
 * trusted and never waited for. Belongs to the loop.
 */
#ifndef STG_DAEMON_SERVER_GATE_H
#define STG_DAEMON_SERVER_GATE_H

#include "daemon/server/server.h"

struct stg_gate;

/* Nothing is started yet. */
int stg_gate_create(struct stg_server *server, struct stg_gate **ret,
                    struct stg_err *err);

/* Starts or ends the process. That it cannot be started is logged, and said to who asks
 * for a ticket. */
void stg_gate_enable(struct stg_gate *gate, bool enable);

/* Ends the process, waits for it (1 s at most), removes its sockets. NULL is allowed. */
void stg_gate_stop(struct stg_gate *gate);

/* After stg_gate_stop, when the loop has closed its handles. NULL is allowed. */
void stg_gate_destroy(struct stg_gate *gate);

/* Something happened; pipeline: its id, 0: none. NULL is allowed. */
void stg_gate_event(struct stg_gate *gate, enum stg_event_kind kind, uint64_t pipeline);

/* Fills the part new_ticket of a reply; strings live as long as the gate, the ticket
 * until the next call. FAILED_PRECONDITION: there is no gate, and why. */
int stg_gate_give_ticket(struct stg_gate *gate, const struct stg_identity *identity,
                         struct stg_reply *ret, struct stg_err *err);

#endif
