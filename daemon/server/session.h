/* SPDX-License-Identifier: Apache-2.0
 *
 * One connection: its process (SO_PEERCRED, pidfd), its replies, and at most one stream.
 * Belongs to the loop.
 *
 * I4  No call blocks on an object whose file description a client shares: every send and
 * recv is MSG_DONTWAIT; a client that does not read its replies is disconnected. I11 Any
 * input ends in a reply or in the end of that connection.
 */
#ifndef STG_DAEMON_SERVER_SESSION_H
#define STG_DAEMON_SERVER_SESSION_H

#include "daemon/server/server.h"
#include "proto/wire.h"

/* For how long at most a client's memory is kept after the end of its socket, when its
 * process cannot be watched: its pid is of another namespace, and the kernel has no
 * SO_PEERPIDFD (before Linux 6.5). lease_timeout_millis may be shorter. */
#define STG_UNWATCHED_MILLIS 30000u

#define STG_JOIN_MILLIS 25000 /* from the reply to an open to the join */

/* A reply that is not sent on a socket. */
struct stg_session_answer {
    size_t n;
    char bytes[STG_MESSAGE_MAX_BYTES];
};

/* A warm apply or rollback, whose reply comes when the new version has taken over. */
struct stg_warming {
    struct stg_warm_up *warm_up;
    struct stg_bump bump;   /* of the reply */
    struct stg_reply reply; /* without generation and boundary */
};

struct stg_session {
    struct stg_session *next;
    struct stg_server *server;
    int fd;    /* -1: closed; the session lives on while its process holds memory */
    int pidfd; /* -1: the process cannot be watched, its socket counts (unwatched) */
    bool unwatched;
    uv_poll_t poll, pid_poll;
    uv_timer_t deadline; /* of hello, of an open that waits, of a join */
    int n_handles;       /* closing the last one frees the session */
    bool closing;
    bool greeted;
    uint32_t version; /* of the protocol, that the peer speaks at most */
    pid_t pid;
    struct stg_identity identity;
    struct stg_share *share; /* of the user; NULL: not known yet, or of the gate */
    bool is_counted;         /* on the quota of connections */
    bool is_paced;           /* it reads nothing until pace, which its rate needs */
    uv_timer_t pace;
    char program[64];
    enum stg_request_kind asks; /* the request, and the pipeline that it names */
    char asks_of[STG_LANE_MAX_BYTES + 1];
    char client_id[STG_LANE_MAX_BYTES + 1]; /* of its stream */
    bool is_anonymous; /* through the gate, without a token: identity is not known */
    struct stg_session_answer
        *answer; /* of a caller without a socket: where its replies go */

    struct stg_instance *instance; /* what it is attached to */
    struct stg_client *client;
    bool joining;                /* open was answered, join was not */
    uint64_t member;             /* in the record of its run; 0: it cannot reconnect */
    struct stg_journal *journal; /* where its commits go; NULL: it can make none */
    char lane[STG_LANE_MAX_BYTES + 1];
    char committer[STG_LANE_MAX_BYTES + 1]; /* the client_id */
    uint64_t attempt;                       /* of the lane, when it opened */
    bool commits;                           /* one of its commits waits for the disk */
    bool audits;                            /* it waits for an audit */
    struct stg_worker *worker;              /* or what it works for */

    /* An open that waits for memory, or for an older instance to go. */
    bool open_waits;
    struct stg_request open;
    struct stg_bump open_bump;
    struct stg_instance *open_private;
    bool open_apart;                   /* the last one was of a run apart */
    struct stg_probing *probing;       /* of the request that it makes, or NULL */
    struct stg_tracing *tracing;       /* what it traces, or NULL */
    struct stg_tapping *tapping;       /* the batch that it waits for, or NULL */
    struct stg_index_job *index_job;   /* what it began, or NULL */
    uint64_t index_pipeline;           /* of an applied one; 0: a file */
    struct stg_warming *warming;       /* what it waits for, or NULL */
    char open_why[STG_ERR_TEXT_BYTES]; /* what it waits for */
    int open_code;                     /* what it fails with if that takes too long */
    uint64_t open_millis;              /* how long that is */
    uint64_t open_since;               /* of the loop's clock */
    bool open_brief;      /* for a process to release or end: no event reports that */
    uint64_t hosts_look;  /* of an open whose hosts etcd has */
    uint64_t hosts_entry; /* that it begins in; 0: it waits for the hosts */
    uint64_t open_gone;   /* it waits for memory: n_gone at the last try, plus 1; or 0 */
};

/* Makes a session of an accepted socket, and watches its process. NULL: the socket is
 * closed. */
struct stg_session *stg_session_create(struct stg_server *server, int fd);

/* Sends to an accepted socket why there is no session (number: as errno), and closes it.
 * -1: logs alone. */
void stg_session_refuse(int fd, int number);

static inline struct stg_reply stg_reply_to(const struct stg_request *request)
{
    return (struct stg_reply){.id = request->id, .kind = request->kind, .text = ""};
}

/* Sends a reply, with n descriptors when n > 0. Closes a session that cannot take it;
 * sends an error instead without memory for the reply. Then the code is negative, and no
 * descriptor was sent. */
int stg_session_reply(struct stg_session *session, const struct stg_reply *reply,
                      const int *fds, size_t n);

/* Sends a reply without blocking; closes nothing. Returns whether it was sent. */
bool stg_session_post(struct stg_session *session, const struct stg_reply *reply);

void stg_session_fail(struct stg_session *session, uint64_t id, int code,
                      const char *text);
void stg_session_fail_with(struct stg_session *session, const struct stg_request *request,
                           const struct stg_err *err);

/* Sends the reply, or the error (rc negative). */
void stg_session_finish(struct stg_session *session, const struct stg_reply *reply,
                        int rc, const struct stg_err *err);

/* Returns the pipeline that the request names if the user may see it. NULL: the request
 * failed with the names that are near. */
struct stg_pipeline *stg_session_find_pipeline(struct stg_session *session,
                                               const struct stg_request *request);

/* Frees a warm apply; one that is not done ends. NULL is allowed. */
void stg_session_end_warming(struct stg_warming *warming);

/* Ends the wait of an open, the hello or the join that has not come in time. */
void stg_session_set_deadline(struct stg_session *session, uint64_t millis);

/* The open that waits has that private instance, which stays until the open lets it go.
 * NULL: none. */
void stg_session_claim(struct stg_session *session, struct stg_instance *instance);

/* Drops an open that waits. */
void stg_session_stop_waiting(struct stg_session *session);

/* Reaps what the living processes of closed sessions released late; closes sessions of
 * workers that are disconnected. */
void stg_session_sweep_all(struct stg_server *server);

/* Keeps the memory of a session that may close. */
void stg_session_hold(struct stg_session *session);
void stg_session_release(struct stg_session *session);

/* Closes the socket; the session goes when its process holds nothing. */
void stg_session_close(struct stg_session *session);

/* Drops everything, at the end of the daemon. */
void stg_session_abort(struct stg_session *session);

#endif
