/* SPDX-License-Identifier: Apache-2.0
 *
 * The daemon's side of stager-gate: starts, watches and ends the process, passes on the
 * requests that it forwards, gives it replies and events to send, and keeps the tokens
 * of users. The process is not trusted, and the loop never waits for it. Belongs to the
 * loop.
 */
#ifndef STG_DAEMON_GATE_GATE_H
#define STG_DAEMON_GATE_GATE_H

#include <uv.h>

#include "daemon/host/identity.h"
#include "proto/wire.h"

struct stg_gate;

struct stg_gate_config {
    uv_loop_t *loop;
    const struct stg_settings *settings;
    uint64_t instance; /* of the daemon: events carry it */
    /* A request came. Exactly one stg_gate_reply follows. */
    void (*serve)(void *owner, uint64_t tag, const void *payload, size_t bytes);
    void *owner;
};

/* Nothing is started yet. */
int stg_gate_create(const struct stg_gate_config *config, struct stg_gate **ret,
                    struct stg_err *err);

/* Starts or ends the process. The log, and each request for a token, name what keeps it
 * from starting. */
void stg_gate_enable(struct stg_gate *gate, bool enable);

/* Ends the process, waits for it (1 s at most), removes its sockets. NULL is allowed. */
void stg_gate_stop(struct stg_gate *gate);

/* After stg_gate_stop, when the loop has closed its handles. NULL is allowed. */
void stg_gate_destroy(struct stg_gate *gate);

/* Something happened; pipeline: its id, 0: none. NULL is allowed. */
void stg_gate_event(struct stg_gate *gate, enum stg_event_kind kind, uint64_t pipeline);

/* Sends at once, or not at all. */
void stg_gate_reply(struct stg_gate *gate, uint64_t tag, const void *payload,
                    size_t bytes);

/* Fills the part new_token of a reply; strings live as long as the gate, the token
 * until the next call. FAILED_PRECONDITION: there is no gate, and why. */
int stg_gate_give_token(struct stg_gate *gate, const struct stg_identity *identity,
                        struct stg_reply *ret, struct stg_err *err);

/* Returns the user of a token until the next call of stg_gate_give_token, or NULL. */
const struct stg_identity *stg_gate_find_user(const struct stg_gate *gate,
                                              const void *token, size_t bytes);

#endif
