/* SPDX-License-Identifier: Apache-2.0
 *
 * A request that came through the gate: served by the table of attach.sock, for the user
 * of its token. A change that is sent again is done once.
 */
#include <string.h>

#include "daemon/gate/gate.h"
#include "daemon/server/probing.h"
#include "daemon/server/request.h"
#include "ops/base/hash.h"

static bool is_change(const struct stg_request *request)
{
    return request->kind == STG_REQUEST_APPLY || request->kind == STG_REQUEST_DELETE ||
           request->kind == STG_REQUEST_ROLLBACK;
}

static int check_request(const struct stg_request *request, struct stg_err *err)
{
    if (request->kind == STG_REQUEST_OPEN || request->kind == STG_REQUEST_JOIN ||
        request->kind == STG_REQUEST_FEED || request->kind == STG_REQUEST_REPORT ||
        request->kind == STG_REQUEST_WHY || request->kind == STG_REQUEST_WORK ||
        request->kind == STG_REQUEST_COMMIT)
        return stg_err(err, -STAGER_UNIMPLEMENTED,
                       "a stream needs descriptors, which cannot pass the gate: use "
                       "libstager, which attaches to attach.sock");
    if (request->kind == STG_REQUEST_TRACE)
        return stg_err(err, -STAGER_UNIMPLEMENTED,
                       "a trace needs a descriptor, which cannot pass the gate: "
                       "`stagerctl trace`, without --gate");
    if (request->kind == STG_REQUEST_AUDIT)
        return stg_err(err, -STAGER_UNIMPLEMENTED,
                       "an audit needs a descriptor, which cannot pass the gate: "
                       "`stagerctl audit`, without --gate");
    if (request->kind == STG_REQUEST_INDEX)
        return stg_err(err, -STAGER_UNIMPLEMENTED,
                       "indexes are built as long as a connection lasts, and the gate "
                       "has none: `stagerctl index`, without --gate");
    if (request->warm)
        return stg_err(err, -STAGER_UNIMPLEMENTED,
                       "a warm apply lasts as long as a connection, and the gate has "
                       "none: `stagerctl apply --warm`, without --gate");
    if (request->kind == STG_REQUEST_NEW_TOKEN)
        return stg_err(err, -STAGER_PERMISSION_DENIED,
                       "tokens are given on attach.sock alone: `stagerctl token`");
    if (!is_change(request))
        return 0;
    if (request->request_id_bytes == 0 ||
        request->request_id_bytes > STG_REQUEST_ID_MAX_BYTES)
        return stg_err(
            err, -STAGER_INVALID_ARGUMENT,
            "apply, delete and rollback need a request_id of 1 to %d bytes, a new one "
            "for each change, so that a repeated request runs once",
            STG_REQUEST_ID_MAX_BYTES);
    return 0;
}

static uint64_t mix(uint64_t sum, const char *s, size_t n)
{
    return sum * 0x9e3779b97f4a7c15u ^ (s != NULL ? stg_fingerprint64(s, n) : 1);
}

/* What a change asks for, without its user and its request id. */
static uint64_t fingerprint(const struct stg_request *request)
{
    uint64_t numbers[] = {request->id,
                          request->kind,
                          request->replace,
                          request->has_if_generation,
                          request->if_generation,
                          request->generation};
    uint64_t sum = mix(0, (const char *)numbers, sizeof(numbers));
    const char *name = request->name != NULL ? request->name : "";
    sum = mix(sum, name, strlen(name));
    return mix(sum, request->text, request->text_bytes);
}

static void serve_as(struct stg_server *server, const struct stg_request *request,
                     const struct stg_identity *identity, struct stg_probing *probing,
                     struct stg_session_answer *answer)
{
    struct stg_session session = {
        .server = server,
        .fd = -1,
        .pidfd = -1,
        .greeted = true,
        .identity = *identity,
        .program = "stager-gate",
        .answer = answer,
        .probing = probing,
    };
    uint64_t now = uv_hrtime(), sum = fingerprint(request);
    struct stg_err err = {0};
    int rc = check_request(request, &err);
    const struct stg_cached_reply *cached = NULL;
    if (rc == 0 && is_change(request))
        cached =
            stg_reply_cache_find(&server->replies, identity->uid, request->request_id,
                                 request->request_id_bytes, now);
    if (cached != NULL && cached->request != sum)
        rc = stg_err(
            &err, -STAGER_INVALID_ARGUMENT,
            "this request_id belongs to another change: use a new one for each change");
    if (rc < 0) {
        stg_session_fail(&session, request->id, rc, err.text);
    } else if (cached != NULL) {
        answer->n = cached->reply_bytes;
        memcpy(answer->bytes, cached->bytes + cached->id_bytes, answer->n);
    } else {
        stg_request_serve(&session, request);
        if (is_change(request) && answer->n > 0)
            stg_reply_cache_add(&server->replies, identity->uid, request->request_id,
                                request->request_id_bytes, sum, answer->bytes, answer->n,
                                now);
    }
}

static void refuse(struct stg_session_answer *answer, uint64_t id, int code,
                   const char *text)
{
    struct stg_session session = {.fd = -1, .answer = answer};
    stg_session_fail(&session, id, code, text);
}

/* The loop is one thread. */
static struct stg_session_answer answer;

static void on_probed(struct stg_probing *probing)
{
    struct stg_server *server = probing->server;
    if (server->stopping)
        return;
    answer.n = 0;
    serve_as(server, &probing->request, &probing->identity, probing, &answer);
    stg_gate_reply(server->gate, probing->tag, answer.bytes, answer.n);
}

void stg_request_serve_gate(struct stg_server *server, uint64_t tag, const void *payload,
                            size_t bytes)
{
    struct stg_probing *probing = NULL;
    struct stg_bump bump;
    struct stg_request request;
    struct stg_err err = {0};
    answer.n = 0;
    stg_bump_init(&bump, 1u << 20);
    int rc = stg_wire_decode_request(payload, bytes, &bump, &request, &err);
    const struct stg_identity *identity =
        rc == 0 ? stg_gate_find_user(server->gate, request.token, request.token_bytes)
                : NULL;
    if (identity != NULL && stg_probing_is_for(&request))
        rc = stg_probing_start(server, identity, payload, bytes, on_probed, NULL, tag,
                               &probing, &err);
    if (rc < 0)
        refuse(&answer, 0, rc, err.text);
    else if (identity == NULL)
        refuse(&answer, request.id, -STAGER_UNAUTHENTICATED,
               request.token == NULL
                   ? "a request through the gate carries a token: `stagerctl token`"
                   : "the token is unknown or has expired (after an hour, or with a "
                     "restart of stagerd): `stagerctl token` gives a new one");
    else if (probing == NULL)
        serve_as(server, &request, identity, NULL, &answer);
    if (probing == NULL)
        stg_gate_reply(server->gate, tag, answer.bytes, answer.n);
    stg_bump_finish(&bump);
}
