/* SPDX-License-Identifier: Apache-2.0
 *
 * The client's end of attach.sock: where it is, how to reach it, messages with deadlines,
 * doorbells. Handles bytes and descriptors, not requests. Every socket is
 * CLOEXEC; no call raises SIGPIPE. One thread at a time for one socket.
 */
#ifndef STG_CLIENT_TRANSPORT_SOCKET_H
#define STG_CLIENT_TRANSPORT_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/un.h>

#include "core/clock.h"
#include "core/err.h"

/* A deadline that never comes. */
#define STG_NEVER INT64_MAX

/* For bindings whose host may end a wait, as Python does at Ctrl-C: called after a
 * signal and ten times a second; true ends the wait as if its deadline had come. */
struct stg_patience {
    bool (*is_over)(void *arg);
    void *arg;
};

/* Of the calling thread's waits to connect, send and receive, from now on; NULL: none. It
 * is the caller's, and stays where it is. */
void stg_socket_set_patience(const struct stg_patience *patience);

/* stg_now_ns with a sign: what is left until a deadline may be less than nothing. */
static inline int64_t stg_clock_ns(void)
{
    return (int64_t)stg_now_ns();
}

/* Returns the deadline of a wait from now_ns on; millis negative: STG_NEVER. */
static inline int64_t stg_clock_deadline_ns(int64_t now_ns, int64_t millis)
{
    return millis >= 0 && millis < (STG_NEVER - now_ns) / 1000000
               ? now_ns + millis * 1000000
               : STG_NEVER;
}

/* The address of attach.sock in `runtime_dir`; NULL or "" means: environment
 * STAGER_RUNTIME_DIR, else /run/stager when a daemon's socket is there, else
 * $XDG_RUNTIME_DIR/stager when that exists, else /run/stager. INVALID_ARGUMENT when the
 * path is longer than an address may be. */
int stg_socket_find(const char *runtime_dir, struct sockaddr_un *ret,
                    struct stg_err *err);

/* Connects. UNAVAILABLE says how to start the daemon, PERMISSION_DENIED which group may.
 * waits: up to 10 s if the daemon accepts no connection. The caller closes *ret. */
int stg_socket_connect(const struct sockaddr_un *address, bool waits, int *ret,
                       struct stg_err *err);

/* Waits until something is to be read, the other end is closed, or until_ns has come. fd
 * -1: only for that time. Returns false if the thread's patience is over. */
bool stg_socket_wait(int fd, int64_t until_ns);

/* Sends one message. UNAVAILABLE when the daemon is gone, DEADLINE_EXCEEDED. */
int stg_socket_send(int fd, const void *data, size_t bytes, int64_t deadline_ns,
                    struct stg_err *err);

/* Receives one message that is no doorbell, and the descriptors that came with it
 * (CLOEXEC; the caller closes them). max_fds at least what is expected; when more come,
 * or the message is longer than `capacity`, all are closed and INTERNAL is returned.
 * Returns the bytes; UNAVAILABLE when the daemon is gone, DEADLINE_EXCEEDED. */
long stg_socket_receive(int fd, void *buf, size_t capacity, int *fds, size_t max_fds,
                        size_t *ret_n_fds, int64_t deadline_ns, struct stg_err *err);

/* Rings the daemon's doorbell: one byte, never blocks. A full queue means that a doorbell
 * is there already; a dead daemon is noticed when sleeping. False: the system had no room
 * for it, ring again. */
bool stg_socket_doorbell(int fd);

/* Sends one message if there is room for it now. Whether it was sent. */
bool stg_socket_post(int fd, const void *data, size_t bytes);

/* Takes doorbells off the socket without blocking. 0, or UNAVAILABLE (no text) when the
 * other end is closed. */
int stg_socket_drain(int fd);

/* Sleeps until something is to be read, the other end is closed, or until_ns has come. A
 * signal may end it early. */
void stg_socket_sleep(int fd, int64_t until_ns);

/* Says that no more comes from here, without a wait. Leaves fd open. */
void stg_socket_leave(int fd);

/* Says goodbye: no more doorbells from here, then waits (a second at most) until the
 * daemon has let go. Returns whether it has. Leaves fd open. */
bool stg_socket_part(int fd);

#endif
