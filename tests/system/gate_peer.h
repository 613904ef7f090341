/* SPDX-License-Identifier: Apache-2.0
 *
 * A peer of stager-gate that speaks the SP protocol by hand
 * (https://github.com/nanomsg/nanomsg/blob/1.1.5/rfc/), so that it can send invalid
 * frames too.
 */
#ifndef STG_TESTS_SYSTEM_GATE_PEER_H
#define STG_TESTS_SYSTEM_GATE_PEER_H

#include "tests/system/fixture.h"

enum { PEER_REQ = 0x30, PEER_SUB = 0x21 };

/* Returns the pid of this fixture's gate; 0: none runs now. */
pid_t gate_pid(const struct fixture *fixture);

/* Waits until a gate other than `old` answers; fails the test after millis. Returns the
 * time taken. */
int64_t gate_wait(struct fixture *fixture, pid_t old, int64_t millis);

/* Returns a connection to gate/NAME, or -1. Blocking calls on it end after 2 s. */
int peer_connect(const struct fixture *fixture, const char *name);

/* The same, after a handshake with that protocol; fails the test on error. */
int peer_open(const struct fixture *fixture, const char *name, int protocol);

/* Transfer one SP message. Return false if the peer disconnected or sent nothing in
 * time. */
bool peer_send(int fd, const void *bytes, size_t n);
long peer_recv(int fd, void *buf, size_t capacity);

/* Gets a token for this user from attach.sock. */
void gate_token(const struct fixture *fixture, unsigned char ret[STG_TOKEN_BYTES]);

/* Sends a request through the gate and retries with new connections while it is down (10
 * s). Returns the reply's code, its text in err. request->token is used unchanged. */
int gate_ask(struct fixture *fixture, struct stg_request *request, struct stg_reply *ret,
             struct stg_err *err);

#endif
