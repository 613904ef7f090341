/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/server/noting.h"

#include <stdio.h>

#include "daemon/operations/operations.h"

/* In words of stagerctl. */
static const char *name_of(enum stg_request_kind kind)
{
    switch (kind) {
    case STG_REQUEST_NONE: return "connect";
    case STG_REQUEST_HELLO: return "hello";
    case STG_REQUEST_CHECK: return "check";
    case STG_REQUEST_APPLY: return "apply";
    case STG_REQUEST_LIST: return "list";
    case STG_REQUEST_STATUS: return "status";
    case STG_REQUEST_OPEN: return "open";
    case STG_REQUEST_DELETE: return "delete";
    case STG_REQUEST_FEED: return "feed";
    case STG_REQUEST_NEW_TOKEN: return "token";
    case STG_REQUEST_EXPLAIN: return "explain";
    case STG_REQUEST_TRACE: return "trace";
    case STG_REQUEST_WORK: return "work";
    case STG_REQUEST_REPORT: return "report";
    case STG_REQUEST_JOIN: return "join";
    case STG_REQUEST_WHY: return "why";
    case STG_REQUEST_INDEX: return "index";
    case STG_REQUEST_COMMIT: return "commit";
    case STG_REQUEST_COMMITS: return "commits";
    case STG_REQUEST_ROLLBACK: return "rollback";
    case STG_REQUEST_VERSIONS: return "versions";
    case STG_REQUEST_AUDIT: return "audit";
    case STG_REQUEST_METRICS: return "metrics";
    case STG_REQUEST_SCHEMA: return "schema";
    case STG_REQUEST_TAP: return "tap";
    case STG_REQUEST_DRAIN: return "drain";
    }
    return "";
}

void stg_noting_begin(struct stg_session *session, const struct stg_request *request)
{
    if (request->kind == STG_REQUEST_JOIN)
        return; /* it ends an open */
    session->asks = request->kind;
    stg_noting_name(session, request->name);
}

void stg_noting_name(struct stg_session *session, const char *pipeline)
{
    snprintf(session->asks_of, sizeof(session->asks_of), "%s",
             pipeline != NULL ? pipeline : "");
}

static struct stg_operation of_session(const struct stg_session *session,
                                       enum stg_operation_kind kind)
{
    return (struct stg_operation){.kind = kind,
                                  .has_user = !session->is_anonymous,
                                  .uid = session->identity.uid,
                                  .gid = session->identity.gid,
                                  .pid = session->pid,
                                  .program = session->program,
                                  .request = name_of(session->asks)};
}

void stg_noting_done(const struct stg_session *session, enum stg_operation_kind kind,
                     const char *pipeline, uint64_t generation)
{
    struct stg_operation operation = of_session(session, kind);
    operation.pipeline = pipeline;
    operation.generation = generation;
    if (kind == STG_OPERATION_ATTACHED)
        operation.client = session->client_id;
    stg_operations_note(&operation);
}

void stg_noting_changed(const struct stg_session *session, const struct stg_reply *reply)
{
    struct stg_operation operation =
        of_session(session, reply->restored > 0     ? STG_OPERATION_ROLLED_BACK
                            : reply->generation > 1 ? STG_OPERATION_REPLACED
                                                    : STG_OPERATION_APPLIED);
    operation.pipeline = reply->name;
    operation.generation = reply->generation;
    operation.unchanged = reply->unchanged;
    stg_operations_note(&operation);
}

void stg_noting_failed(const struct stg_session *session, int code, const char *reason)
{
    if (code != -STAGER_PERMISSION_DENIED && code != -STAGER_RESOURCE_EXHAUSTED &&
        code != -STAGER_UNAUTHENTICATED)
        return;
    struct stg_operation operation = of_session(session, STG_OPERATION_REFUSED);
    operation.pipeline = session->asks_of;
    operation.status = stg_status_name(code);
    operation.reason = reason;
    stg_operations_note(&operation);
}
