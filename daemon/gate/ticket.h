/* SPDX-License-Identifier: Apache-2.0
 *
 * Tickets: 32 random bytes that stand for a user, given on attach.sock and shown with
 * each request at the gate, which does not know its peers. Bounded in number,
 * for each user and in all; forgotten with the daemon. Belongs to the loop.
 */
#ifndef STG_DAEMON_GATE_TICKET_H
#define STG_DAEMON_GATE_TICKET_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/host/identity.h"
#include "proto/wire.h"

#define STG_TICKET_SECONDS 3600
#define STG_TICKETS_A_USER 64
#define STG_TICKETS 4096

struct stg_ticket;

/* A zeroed one is empty. */
struct stg_tickets {
    struct stg_ticket *newest;
};

/* Makes a ticket for a user, valid for STG_TICKET_SECONDS from now_ns; the oldest of a
 * user with STG_TICKETS_A_USER goes. RESOURCE_EXHAUSTED: out of memory, or STG_TICKETS
 * are valid.
 */
int stg_tickets_give(struct stg_tickets *tickets, const struct stg_identity *identity,
                     uint64_t now_ns, unsigned char ret[STG_TICKET_BYTES],
                     struct stg_err *err);

/* Returns its user; NULL: unknown or expired. Takes the same time for each wrong one. The
 * identity lives until the next call of stg_tickets_give. */
const struct stg_identity *stg_tickets_find(const struct stg_tickets *tickets,
                                            const void *ticket, size_t bytes,
                                            uint64_t now_ns);

void stg_tickets_finish(struct stg_tickets *tickets);

#endif
