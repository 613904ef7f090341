/* SPDX-License-Identifier: Apache-2.0
 *
 * A peer of stager-gate that speaks the SP wire by hand
 * (https://github.com/nanomsg/nanomsg/blob/1.1.5/rfc/): so that it can also lie.
 */
#ifndef STG_TESTS_SYSTEM_GATE_PEER_H
#define STG_TESTS_SYSTEM_GATE_PEER_H

#include "tests/system/fixture.h"

enum { PEER_REQ = 0x30, PEER_SUB = 0x21 };

/* The pid of this fixture's gate, 0: there is none now. */
pid_t gate_pid(const struct fixture *fixture);

/* Waits until there is one that is not `old` and answers; fails the test after millis.
 * How long it took. */
int64_t gate_wait(struct fixture *fixture, pid_t old, int64_t millis);

/* A connection to gate/NAME, or -1; blocking calls on it end after 2 s. */
int peer_connect(const struct fixture *fixture, const char *name);

/* The same, and hands were shaken as that protocol; fails the test. */
int peer_open(const struct fixture *fixture, const char *name, int protocol);

/* One SP message: false when the other end hung up or said nothing in time. */
bool peer_send(int fd, const void *bytes, size_t n);
long peer_recv(int fd, void *buf, size_t capacity);

/* A ticket of ours from attach.sock. */
void gate_ticket(const struct fixture *fixture, unsigned char ret[STG_TICKET_BYTES]);

/* Asks through the gate, again by a new connection for as long as it is down (10 s); the
 * reply's code, and its text in err. request->ticket is used as it is. */
int gate_ask(struct fixture *fixture, struct stg_request *request, struct stg_reply *ret,
             struct stg_err *err);

#endif
