/* SPDX-License-Identifier: Apache-2.0
 *
 * A libuv loop that will not abort for want of memory, descriptors or threads while it
 * serves. libuv 1.44 ends the process in three places where our start can refuse instead:
 * the pipe of its signals, the threads of its pool (made at the first piece of work), and
 * the table of watched descriptors (grown when a high one is watched). Here the pipe is
 * tried first, the threads are tried and then made, and the table is grown once. What is
 * left: its own first allocations, and a kernel that refuses to watch a descriptor which
 * it had accepted a moment before.
 */
#ifndef STG_DAEMON_SERVER_LOOP_H
#define STG_DAEMON_SERVER_LOOP_H

#include <uv.h>

#include "core/err.h"

/* Descriptors below this can be watched without growing the table. */
#define STG_LOOP_DESCRIPTORS 65536u

/* RESOURCE_EXHAUSTED with the system's words, and the loop is not there. */
int stg_loop_init(uv_loop_t *loop, struct stg_err *err);

/* Closes every handle that is left, and the loop. */
void stg_loop_finish(uv_loop_t *loop);

/* RESOURCE_EXHAUSTED with libuv's words for its code. */
int stg_loop_error(const char *what, int code, struct stg_err *err);

#endif
