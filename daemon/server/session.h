/* SPDX-License-Identifier: Apache-2.0
 *
 * One connection: its process (SO_PEERCRED, pidfd), its requests, and at most one stream.
 * A message of one byte is a doorbell. Belongs to the loop.
 *
 * I4  No call blocks on an object whose file description a client shares: every send and
 * recv is MSG_DONTWAIT; a client that does not read its replies is disconnected. I5  No
 * descriptor is accepted from a client: recv has no control buffer. I11 Any input ends in
 * an answer or in the end of that connection.
 */
#ifndef STG_DAEMON_SERVER_SESSION_H
#define STG_DAEMON_SERVER_SESSION_H

#include "daemon/server/server.h"
#include "proto/wire.h"

/* For how long at most a client's memory is kept after the end of its socket, when its
 * process cannot be watched: its pid is of another namespace, and the kernel has no
 * SO_PEERPIDFD (before Linux 6.5). hold_timeout_millis may be shorter. */
#define STG_UNSEEN_MILLIS 30000u

/* A reply that is not sent on a socket. */
struct stg_session_answer {
    size_t n;
    char bytes[STG_MESSAGE_MAX_BYTES];
};

struct stg_session {
    struct stg_session *next;
    struct stg_server *server;
    int fd;    /* -1: closed; the session lives on while its process holds memory */
    int pidfd; /* -1: the process cannot be watched, its socket counts (unseen) */
    bool unseen;
    uv_poll_t poll, pid_poll;
    uv_timer_t deadline; /* of hello, of an open that waits, of a join */
    int n_handles;       /* closing the last one frees the session */
    bool closing;
    bool greeted;
    pid_t pid;
    struct stg_identity identity;
    char program[64];
    struct stg_session_answer
        *answer; /* of a caller without a socket: where its replies go */

    struct stg_instance *instance; /* what it is attached to */
    struct stg_client *client;
    bool joining;              /* open was answered, join was not */
    struct stg_worker *worker; /* or what it works for */

    /* An open that waits for memory, or for an older instance to go. */
    bool open_waits;
    struct stg_request open;
    struct stg_bump open_bump;
    struct stg_instance *open_private;
    struct stg_tracing *tracing;       /* what it traces, or NULL */
    char open_why[STG_ERR_TEXT_BYTES]; /* what it waits for */
    int open_code;                     /* what it fails with if that takes too long */
    uint64_t open_millis;              /* how long that is */
    uint64_t open_since;               /* of the loop's clock */
    bool open_brief;    /* for a process to release or end: no event reports that */
    uint64_t open_gone; /* it waits for memory: n_gone at the last try, plus 1; or 0 */
};

/* Takes the accepted socket; on failure it is closed. */
void stg_session_create(struct stg_server *server, int fd);

/* Tells an accepted socket why there is no session (number: as errno), and closes it. -1:
 * logs alone. */
void stg_session_refuse(int fd, int number);

/* Sends a reply, with n descriptors when n > 0. A session that cannot take it is closed;
 * one that can is told an error when there is no memory for the reply. Then the code is
 * negative, and no descriptor was sent. */
int stg_session_reply(struct stg_session *session, const struct stg_reply *reply,
                      const int *fds, size_t n);

/* Sends a reply without blocking; closes nothing. Whether it was sent. */
bool stg_session_post(struct stg_session *session, const struct stg_reply *reply);

void stg_session_fail(struct stg_session *session, uint64_t id, int code,
                      const char *text);

/* Tries an open that waits again. */
void stg_session_retry(struct stg_session *session);

/* Open was answered: the session is closed unless join follows in time. */
void stg_session_await_join(struct stg_session *session);
void stg_session_joined(struct stg_session *session);

/* Those of the list whose open waits for a process to release, or to end. */
void stg_session_retry_brief(struct stg_session *first);

/* Reaps what a closed session's living process released late; closes that of a worker who
 * is to go. */
void stg_session_sweep(struct stg_session *session);

/* Closes the socket; the session goes when its process holds nothing. */
void stg_session_close(struct stg_session *session);

/* Forgets everything, at the end of the daemon. */
void stg_session_abort(struct stg_session *session);

/* request.c: one row a request. */
void stg_request_serve(struct stg_session *session, const struct stg_request *request);

/* request.c: the pipeline of that name if the caller may see it; else NULL, and it was
 * told an error that names near ones. */
struct stg_pipeline *stg_request_pipeline(struct stg_session *session,
                                          const struct stg_request *request);

/* work_request.c: to be a worker. */
void stg_request_work(struct stg_session *session, const struct stg_request *request);

/* request_open.c: open, when its instance is live. Returns 0 when answered, 1: still
 * waiting. */
int stg_request_open(struct stg_session *session, const struct stg_request *request);

/* request_open.c: the open takes effect. */
void stg_request_join(struct stg_session *session, const struct stg_request *request);

#endif
