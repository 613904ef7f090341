/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/server/gate.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/server/gate_priv.h"
#include "daemon/server/session.h"
#include "ops/base/hash.h"

int stg_gate_create(struct stg_server *server, struct stg_gate **ret, struct stg_err *err)
{
    struct stg_gate *gate = calloc(1, sizeof(*gate));
    if (gate == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    gate->server = server;
    uv_timer_init(&server->loop, &gate->restart);
    gate->restart.data = gate;
    *ret = gate;
    return 0;
}

void stg_gate_destroy(struct stg_gate *gate)
{
    if (gate == NULL)
        return;
    stg_tickets_finish(&gate->tickets);
    stg_kept_finish(&gate->kept);
    explicit_bzero(gate->ticket, sizeof(gate->ticket));
    free(gate);
}

/* ---- events ---- */

void stg_gate_event(struct stg_gate *gate, enum stg_event_kind kind, uint64_t pipeline)
{
    if (gate == NULL)
        return;
    struct stg_event event = {.instance = gate->server->instance,
                              .sequence = ++gate->sequence,
                              .pipeline = pipeline,
                              .kind = kind};
    char buf[STG_EVENT_MAX_BYTES];
    long bytes = stg_wire_encode_event(&event, buf, sizeof(buf));
    if (bytes > 0)
        stg_gate_send(gate, STG_GATE_EVENT, 0, buf, (size_t)bytes);
}

/* ---- tickets ---- */

int stg_gate_give_ticket(struct stg_gate *gate, const struct stg_identity *identity,
                         struct stg_reply *ret, struct stg_err *err)
{
    if (!gate->enabled)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "the gate is turned off: write `gate: {enable: true}` into "
                       "stagerd.yaml, and reload stagerd");
    if (gate->why[0] != '\0')
        return stg_err(err, -STAGER_FAILED_PRECONDITION, "there is no gate: %s",
                       gate->why);
    int rc = stg_tickets_give(&gate->tickets, identity, uv_hrtime(), gate->ticket, err);
    if (rc < 0)
        return rc;
    ret->ticket = gate->ticket;
    ret->seconds = STG_TICKET_SECONDS;
    ret->admin_url = gate->admin_url;
    ret->events_url = gate->events_url;
    return 0;
}

/* ---- requests ---- */

static bool is_change(const struct stg_request *request)
{
    return request->kind == STG_REQUEST_APPLY || request->kind == STG_REQUEST_DELETE;
}

static int check_request(const struct stg_request *request, struct stg_err *err)
{
    if (request->kind == STG_REQUEST_OPEN || request->kind == STG_REQUEST_JOIN ||
        request->kind == STG_REQUEST_FEED || request->kind == STG_REQUEST_REPORT ||
        request->kind == STG_REQUEST_WHY || request->kind == STG_REQUEST_WORK)
        return stg_err(err, -STAGER_UNIMPLEMENTED,
                       "a stream needs descriptors, which cannot pass the gate: use "
                       "libstager, which attaches to attach.sock");
    if (request->kind == STG_REQUEST_TRACE)
        return stg_err(err, -STAGER_UNIMPLEMENTED,
                       "a trace needs a descriptor, which cannot pass the gate: "
                       "`stagerctl trace`, without --gate");
    if (request->kind == STG_REQUEST_NEW_TICKET)
        return stg_err(err, -STAGER_PERMISSION_DENIED,
                       "tickets are given on attach.sock alone: `stagerctl ticket`");
    if (!is_change(request))
        return 0;
    if (request->request_id_bytes == 0 ||
        request->request_id_bytes > STG_REQUEST_ID_MAX_BYTES)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "apply and delete carry a request_id of 1 to %d bytes, a new one "
                       "for each change: a request that is sent again is done once",
                       STG_REQUEST_ID_MAX_BYTES);
    return 0;
}

static uint64_t mix(uint64_t sum, const char *s, size_t n)
{
    return sum * 0x9e3779b97f4a7c15u ^ (s != NULL ? stg_fingerprint64(s, n) : 1);
}

/* What a change asks for, whoever asks and however often. */
static uint64_t fingerprint(const struct stg_request *request)
{
    uint64_t numbers[] = {request->id, request->kind, request->replace,
                          request->has_if_generation, request->if_generation};
    uint64_t sum = mix(0, (const char *)numbers, sizeof(numbers));
    const char *name = request->name != NULL ? request->name : "";
    sum = mix(sum, name, strlen(name));
    return mix(sum, request->text, request->text_bytes);
}

static void serve_as(struct stg_gate *gate, const struct stg_request *request,
                     const struct stg_identity *identity,
                     struct stg_session_answer *answer)
{
    struct stg_session session = {
        .server = gate->server,
        .fd = -1,
        .pidfd = -1,
        .greeted = true,
        .identity = *identity,
        .program = "stager-gate",
        .answer = answer,
    };
    uint64_t now = uv_hrtime(), sum = fingerprint(request);
    struct stg_err err = {0};
    int rc = check_request(request, &err);
    const struct stg_kept_reply *kept = NULL;
    if (rc == 0 && is_change(request))
        kept = stg_kept_find(&gate->kept, identity->uid, request->request_id,
                             request->request_id_bytes, now);
    if (kept != NULL && kept->request != sum)
        rc = stg_err(&err, -STAGER_INVALID_ARGUMENT,
                     "that request_id was another change's: a new one for each");
    if (rc < 0) {
        stg_session_fail(&session, request->id, rc, err.text);
    } else if (kept != NULL) {
        answer->n = kept->reply_bytes;
        memcpy(answer->bytes, kept->bytes + kept->id_bytes, answer->n);
    } else {
        stg_request_serve(&session, request);
        if (is_change(request) && answer->n > 0)
            stg_kept_add(&gate->kept, identity->uid, request->request_id,
                         request->request_id_bytes, sum, answer->bytes, answer->n, now);
    }
}

static void refuse(struct stg_session_answer *answer, uint64_t id, int code,
                   const char *text)
{
    struct stg_session session = {.fd = -1, .answer = answer};
    stg_session_fail(&session, id, code, text);
}

void stg_gate_serve(struct stg_gate *gate, uint64_t tag, const void *payload,
                    size_t bytes)
{
    static struct stg_session_answer answer; /* the loop is one thread */
    struct stg_bump bump;
    struct stg_request request;
    struct stg_err err = {0};
    answer.n = 0;
    stg_bump_init(&bump, 1u << 20);
    int rc = stg_wire_decode_request(payload, bytes, &bump, &request, &err);
    const struct stg_identity *identity =
        rc == 0 ? stg_tickets_find(&gate->tickets, request.ticket, request.ticket_bytes,
                                   uv_hrtime())
                : NULL;
    if (rc < 0)
        refuse(&answer, 0, rc, err.text);
    else if (identity == NULL)
        refuse(&answer, request.id, -STAGER_UNAUTHENTICATED,
               request.ticket == NULL
                   ? "a request through the gate carries a ticket: `stagerctl ticket`"
                   : "the ticket is not known, or has expired (they last an hour, and no "
                     "longer than stagerd): `stagerctl ticket` gives a new one");
    else
        serve_as(gate, &request, identity, &answer);
    stg_gate_send(gate, STG_GATE_REPLY, tag, answer.bytes, answer.n);
    stg_bump_finish(&bump);
}
