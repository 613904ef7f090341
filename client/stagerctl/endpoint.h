/* SPDX-License-Identifier: Apache-2.0
 *
 * The gate from outside: libnanomsg as any program would use it. Only here is it seen.
 * One thread.
 */
#ifndef STG_STAGERCTL_ENDPOINT_H
#define STG_STAGERCTL_ENDPOINT_H

#include "core/err.h"
#include "proto/wire.h"

/* A socket of nanomsg, or -1. */

/* To ask at, and to listen at. A gate that is down for a moment is waited for in ask and
 * listen. INVALID_ARGUMENT: no ipc:// address, or a longer path than a socket may have;
 * NOT_FOUND, PERMISSION_DENIED: there is none, or it is not ours. */
int stg_endpoint_open_admin(const char *url, int *ret, struct stg_err *err);
int stg_endpoint_open_events(const char *url, int *ret, struct stg_err *err);

/* -1 is allowed. */
void stg_endpoint_close(int endpoint);

/* Sends a message, waits for its answer (10 s); bytes written to buf, or
 * DEADLINE_EXCEEDED. */
long stg_endpoint_ask(int endpoint, const void *message, size_t bytes, void *buf,
                      size_t capacity, struct stg_err *err);

/* The next event: 1; 0: none within millis, or a signal came. What is no event is passed
 * over. */
int stg_endpoint_listen(int endpoint, int millis, struct stg_event *ret);

#endif
