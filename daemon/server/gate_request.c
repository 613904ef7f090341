/* SPDX-License-Identifier: Apache-2.0
 *
 * A request that came through the gate: served by the table of attach.sock, for the user
 * of its token. A change that is sent again is done once.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/gate/gate.h"
#include "daemon/host/share.h"
#include "daemon/server/noting.h"
#include "daemon/server/probing.h"
#include "daemon/server/request.h"
#include "daemon/server/rules.h"
#include "ops/base/hash.h"

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
    if (request->kind == STG_REQUEST_TAP)
        return stg_err(
            err, -STAGER_UNIMPLEMENTED,
            "a tap waits as long as a connection lasts, and the gate has none: "
            "`stagerctl tap`, without --gate");
    if (request->kind == STG_REQUEST_DRAIN)
        return stg_err(err, -STAGER_PERMISSION_DENIED,
                       "stagerd is drained on attach.sock alone: `stagerctl drain`, "
                       "without --gate");
    if (request->kind == STG_REQUEST_AUDIT)
        return stg_err(err, -STAGER_UNIMPLEMENTED,
                       "an audit needs a descriptor, which cannot pass the gate: "
                       "`stagerctl audit`, without --gate");
    if (request->kind == STG_REQUEST_METRICS)
        return stg_err(err, -STAGER_UNIMPLEMENTED,
                       "metrics need a descriptor, which cannot pass the gate: "
                       "`stagerctl metrics`, without --gate");
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
    if (!stg_probing_is_change(request))
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

/* Nothing of a request waits in stagerd: one above the rate is refused. */
static int check_rate(const struct stg_identity *identity, struct stg_err *err)
{
    struct stg_share *share =
        stg_share_get(identity->uid, identity->gid, identity->groups, identity->n_groups);
    uint64_t wait = stg_share_spend(share, STG_QUOTA_REQUESTS, 1);
    stg_share_put(share);
    return wait == 0 ? 0
                     : stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                               "uid %u has sent more requests than its quota allows: "
                               "send it again in %" PRIu64 " ms, or raise "
                               "requests_per_second in quotas of stagerd.yaml",
                               (unsigned)identity->uid, wait / 1000000 + 1);
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

/* A request, until its reply is sent. */
struct gate_call {
    struct stg_session session;
    struct stg_session_answer answer;
    uint64_t tag;
    uint64_t sum; /* of a change whose reply is to be remembered; or 0 */
};

/* The loop is one thread. */
static struct gate_call brief;

static void begin_call(struct gate_call *call, struct stg_server *server, uint64_t tag)
{
    call->answer.n = 0;
    call->tag = tag;
    call->sum = 0;
    call->session = (struct stg_session){.server = server,
                                         .fd = -1,
                                         .pidfd = -1,
                                         .greeted = true,
                                         .is_anonymous = true,
                                         .program = "stager-gate",
                                         .answer = &call->answer};
}

/* Serves a change that is sent again from the cache. Returns whether it did, or refused
 * it. */
static bool serve_again(struct gate_call *call, const struct stg_request *request,
                        uint64_t sum)
{
    struct stg_session *session = &call->session;
    const struct stg_cached_reply *cached =
        stg_reply_cache_find(&session->server->replies, session->identity.uid,
                             request->request_id, request->request_id_bytes, uv_hrtime());
    if (cached != NULL && cached->request != sum) {
        stg_session_fail(
            session, request->id, -STAGER_INVALID_ARGUMENT,
            "this request_id belongs to another change: use a new one for each change");
    } else if (cached != NULL) {
        call->answer.n = cached->reply_bytes;
        memcpy(call->answer.bytes, cached->bytes + cached->id_bytes, call->answer.n);
    }
    return cached != NULL;
}

static void serve_call(struct gate_call *call, const struct stg_request *request)
{
    struct stg_err err = {0};
    uint64_t sum = fingerprint(request);
    stg_noting_begin(&call->session, request);
    if (check_request(request, &err) < 0) {
        stg_session_fail(&call->session, request->id, err.code, err.text);
        return;
    }
    if (stg_probing_is_change(request) && serve_again(call, request, sum))
        return;
    call->sum = stg_probing_is_change(request) ? sum : 0;
    stg_request_serve(&call->session, request);
}

static void end_call(struct gate_call *call, const struct stg_request *request)
{
    struct stg_server *server = call->session.server;
    const struct stg_session_answer *answer = &call->answer;
    if (call->sum != 0 && answer->n > 0)
        stg_reply_cache_add(&server->replies, call->session.identity.uid,
                            request->request_id, request->request_id_bytes, call->sum,
                            answer->bytes, answer->n, uv_hrtime());
    if (!server->stopping)
        stg_gate_reply(server->gate, call->tag, answer->bytes, answer->n);
}

static void serve_probed(struct stg_probing *probing)
{
    struct gate_call *call = probing->owner;
    if (!probing->server->stopping)
        serve_call(call, &probing->request);
}

static void served_probed(struct stg_probing *probing)
{
    end_call(probing->owner, &probing->request);
    free(probing->owner);
}

static const struct stg_probing_caller caller = {.serve = serve_probed,
                                                 .served = served_probed};

static void name_user(struct stg_session *session, const struct stg_identity *identity)
{
    session->identity = *identity;
    session->is_anonymous = false;
}

/* Begins a request that is answered later. */
static int probe(struct stg_server *server, uint64_t tag,
                 const struct stg_identity *identity, const void *payload, size_t bytes,
                 struct stg_err *err)
{
    struct gate_call *call = malloc(sizeof(*call));
    if (call == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    begin_call(call, server, tag);
    name_user(&call->session, identity);
    int rc = stg_probing_start(server, identity, payload, bytes, &caller, call,
                               &call->session.probing, err);
    if (rc < 0)
        free(call);
    return rc;
}

void stg_request_serve_gate(struct stg_server *server, uint64_t tag, const void *payload,
                            size_t bytes)
{
    struct stg_bump bump;
    struct stg_request request = {0};
    struct stg_err err = {0};
    begin_call(&brief, server, tag);
    stg_bump_init(&bump, 1u << 20);
    int rc = stg_wire_decode_request(payload, bytes, &bump, &request, &err);
    const struct stg_identity *identity =
        rc == 0 ? stg_gate_find_user(server->gate, request.token, request.token_bytes)
                : NULL;
    if (rc == 0)
        stg_noting_begin(&brief.session, &request);
    if (identity != NULL)
        name_user(&brief.session, identity);
    if (identity != NULL)
        rc = check_rate(identity, &err);
    if (rc == 0 && identity != NULL)
        rc = stg_rules_check(server->rules, identity, request.kind, &err);
    bool is_later = rc == 0 && identity != NULL && stg_probing_is_for(&request);
    if (is_later)
        rc = probe(server, tag, identity, payload, bytes, &err);
    if (rc < 0) {
        stg_session_fail(&brief.session, 0, rc, err.text);
    } else if (identity == NULL) {
        stg_session_fail(
            &brief.session, request.id, -STAGER_UNAUTHENTICATED,
            request.token == NULL
                ? "a request through the gate carries a token: `stagerctl token`"
                : "the token is unknown or has expired (after an hour, or with a "
                  "restart of stagerd): `stagerctl token` gives a new one");
    } else if (!is_later) {
        serve_call(&brief, &request);
    }
    if (!is_later || rc < 0)
        end_call(&brief, &request);
    stg_bump_finish(&bump);
}
