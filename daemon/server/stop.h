/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of the process on SIGTERM and SIGINT. A thread receives the signals and wakes
 * the loop. It ends the process itself if the process still runs STG_STOP_END_MILLIS
 * later: the loop can wait for a lock that a stopped thread holds. Any thread.
 */
#ifndef STG_DAEMON_SERVER_STOP_H
#define STG_DAEMON_SERVER_STOP_H

#include <uv.h>

#define STG_STOP_END_MILLIS 8000

/* Blocks both signals in the calling thread and in the threads that it makes later, and
 * starts the thread that receives them. Returns 0 or errno. */
int stg_stop_start(void);

/* From now on the thread wakes `async` (NULL: nothing) when a signal has come, and calls
 * at_end before it ends the process. NULL for at_end: the server has ended. */
void stg_stop_serve(uv_async_t *async, void (*at_end)(void *owner), void *owner);

/* Returns the first signal that came, or 0. */
int stg_stop_signal(void);

/* Acts as if SIGTERM had come, also without the thread. */
void stg_stop_begin(void);

#endif
