/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection to the daemon: hello is said, requests are answered one at a time. The
 * public half is stager_connect and stager_disconnect; a stream is opened over one that
 * it then keeps. One thread at a time.
 */
#ifndef STG_CLIENT_TRANSPORT_CONNECT_H
#define STG_CLIENT_TRANSPORT_CONNECT_H

#include "client/transport/guard.h"
#include "client/transport/socket.h"
#include "core/bump.h"
#include "proto/wire.h"

struct stager {
    int fd;
    struct stg_guard *guard;
    struct sockaddr_un address;
    uint64_t last_id;
    bool broken;      /* a half-done exchange: nothing that follows can be trusted */
    bool is_answered; /* the last request */

    /* What the daemon said of itself. Strings live in hello_bump. */
    struct stg_bump hello_bump;
    uint32_t version;
    const char *daemon, *cuda;
    uint64_t instance;
    uint32_t pid;

    struct stg_bump bump; /* of the last reply */
    unsigned char buf[STG_MESSAGE_MAX_BYTES];
    size_t reply_bytes; /* the last reply lies in buf */
};

/* How long a request may take; open may be deferred by the daemon up to 30 s. */
#define STG_REQUEST_NS 10000000000
#define STG_OPEN_NS 35000000000

/* Connects to that address and says hello. FAILED_PRECONDITION names both protocol
 * ranges. The caller calls stager_disconnect. */
int stg_client_connect(const struct sockaddr_un *address, struct stager **ret,
                       struct stg_err *err);

/* The two halves of that: begin connects and sends the hello; greet waits for its reply.
 * waits: as for stg_socket_connect. DEADLINE_EXCEEDED: greet may be called again. */
int stg_client_begin(const struct sockaddr_un *address, bool waits, struct stager **ret,
                     struct stg_err *err);
int stg_client_greet(struct stager *client, int64_t deadline_ns, struct stg_err *err);

/* Sends a request (its id is set here) and waits for its reply; ret lives until the next
 * call. fds: max_fds descriptors at most that come with the reply; the caller closes
 * them. Returns the reply's own code with its text too. */
int stg_client_call(struct stager *client, struct stg_request *request, int64_t limit_ns,
                    struct stg_reply *ret, int *fds, size_t max_fds, size_t *ret_n_fds,
                    struct stg_err *err);

/* The two halves of that. `answer` reads only kind and id of the request, which ask has
 * set. is_answered false: what answer returned is not the daemon's code; after
 * DEADLINE_EXCEEDED it may be called again. */
int stg_client_ask(struct stager *client, struct stg_request *request,
                   int64_t deadline_ns, struct stg_err *err);
int stg_client_answer(struct stager *client, const struct stg_request *request,
                      int64_t deadline_ns, struct stg_reply *ret, int *fds,
                      size_t max_fds, size_t *ret_n_fds, struct stg_err *err);

/* Refuses what a stagerd of that protocol cannot do; `what`: "has no commits".
 * FAILED_PRECONDITION. */
int stg_client_outdated(const struct stager *client, const char *what,
                        struct stg_err *err);

/* The error that stager_error_text(NULL) returns: of this thread. */
struct stg_err *stg_client_err(void);

#endif
