/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/server/connection.h"

#include <errno.h>
#include <sys/socket.h>

#include "daemon/host/share.h"
#include "daemon/pyworker/work.h"
#include "daemon/server/noting.h"
#include "daemon/server/probing.h"
#include "daemon/server/request.h"
#include "daemon/server/rules.h"

#define MESSAGES_A_TURN 16

static void on_readable(uv_poll_t *poll, int status, int events);

static void read_on(struct stg_session *session)
{
    if (session->is_paced || session->probing != NULL)
        return;
    uv_poll_start(&session->poll, UV_READABLE | UV_DISCONNECT, on_readable);
}

static void on_pace(uv_timer_t *timer)
{
    struct stg_session *session = timer->data;
    session->is_paced = false;
    if (!session->closing)
        read_on(session);
}

/* A user above the rate of its quota: its requests wait in their sockets. */
static void pace(struct stg_session *session)
{
    uint64_t wait = stg_share_spend(session->share, STG_QUOTA_REQUESTS, 1);
    if (wait == 0 || session->closing)
        return;
    session->is_paced = true;
    uv_poll_start(&session->poll, UV_DISCONNECT, on_readable);
    uv_timer_start(&session->pace, on_pace, wait / 1000000 + 1, 0);
}

static void serve_probed(struct stg_probing *probing)
{
    struct stg_session *session = probing->owner;
    if (!session->closing)
        stg_request_serve(session, &probing->request);
}

static void served_probed(struct stg_probing *probing)
{
    struct stg_session *session = probing->owner;
    session->probing = NULL;
    if (!session->closing)
        read_on(session);
    stg_session_release(session);
}

static const struct stg_probing_caller caller = {.serve = serve_probed,
                                                 .served = served_probed};

/* The next request is read when this one is served. */
static void probe(struct stg_session *session, uint64_t id, const void *bytes, size_t n)
{
    struct stg_err err = {0};
    if (stg_probing_start(session->server, &session->identity, bytes, n, &caller, session,
                          &session->probing, &err) < 0) {
        stg_session_fail(session, id, err.code, err.text);
        return;
    }
    stg_session_hold(session);
    uv_poll_start(&session->poll, UV_DISCONNECT, on_readable);
}

static void serve_message(struct stg_session *session, const void *bytes, size_t n)
{
    struct stg_bump bump;
    struct stg_request request;
    struct stg_err err = {0};
    stg_bump_init(&bump, 1u << 20);
    session->server->counts.n_requests++;
    int rc = stg_wire_decode_request(bytes, n, &bump, &request, &err);
    if (rc == 0 && !session->open_waits)
        stg_noting_begin(session, &request);
    if (rc < 0) {
        stg_session_fail(session, 0, rc, err.text);
        if (rc != -STAGER_RESOURCE_EXHAUSTED || session->client == NULL)
            stg_session_close(session); /* a stream outlives a request without memory */
    } else if (!session->greeted && request.kind != STG_REQUEST_HELLO) {
        stg_session_fail(session, request.id, -STAGER_FAILED_PRECONDITION,
                         "the first request of a connection must be hello");
        stg_session_close(session);
    } else if (session->tracing != NULL) {
        stg_session_fail(
            session, request.id, -STAGER_FAILED_PRECONDITION,
            "this connection traces a pipeline: use another one for requests");
    } else if (session->tapping != NULL) {
        stg_session_fail(
            session, request.id, -STAGER_FAILED_PRECONDITION,
            "this connection waits for a batch: use another one for requests");
    } else if (session->open_waits || session->worker != NULL ||
               (session->client != NULL && request.kind != STG_REQUEST_FEED &&
                request.kind != STG_REQUEST_REPORT && request.kind != STG_REQUEST_JOIN &&
                request.kind != STG_REQUEST_WHY && request.kind != STG_REQUEST_COMMIT)) {
        stg_session_fail(session, request.id, -STAGER_FAILED_PRECONDITION,
                         "this connection belongs to a stream or a worker: use another "
                         "one for requests");
    } else if (stg_rules_check(session->server->rules, &session->identity, request.kind,
                               &err) < 0) {
        stg_session_fail(session, request.id, err.code, err.text);
    } else if (stg_probing_is_for(&request)) {
        probe(session, request.id, bytes, n);
    } else if (request.kind == STG_REQUEST_OPEN) {
        stg_request_open(session, &request, bytes, n);
    } else {
        stg_request_serve(session, &request);
    }
    stg_bump_finish(&bump);
}

static void ring(struct stg_session *session)
{
    if (session->client != NULL)
        stg_stage_doorbell(session->instance->stage, session->client);
    if (session->worker != NULL)
        stg_worker_ready(session->worker);
    stg_server_sweep_soon(session->server);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    static char buf[STG_MESSAGE_MAX_BYTES + 1];
    struct stg_session *session = poll->data;
    bool doorbell = false;
    if (session->probing != NULL || session->is_paced) { /* its end alone is watched */
        stg_session_close(session);
        return;
    }
    for (int i = 0; i < MESSAGES_A_TURN && !session->closing &&
                    session->probing == NULL && !session->is_paced;
         i++) {
        ssize_t n = recv(session->fd, buf, sizeof(buf), MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
            break;
        if (n <= 0 || (size_t)n > STG_MESSAGE_MAX_BYTES) {
            stg_session_close(session);
            return;
        }
        if (n == 1) {
            doorbell = true;
            continue;
        }
        serve_message(session, buf, (size_t)n);
        pace(session);
    }
    if (doorbell && !session->closing)
        ring(session);
}

void stg_connection_create(struct stg_server *server, int fd)
{
    struct stg_session *session = stg_session_create(server, fd);
    if (session != NULL)
        read_on(session);
}
