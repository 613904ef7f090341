/* SPDX-License-Identifier: Apache-2.0
 *
 * The requests that the daemon serves, a row each. An open is none: it may have to wait.
 */
#include "daemon/server/request.h"

static const struct {
    enum stg_request_kind kind;
    stg_request_handler *serve;
} requests[] = {
    {STG_REQUEST_HELLO, stg_serve_hello},
    {STG_REQUEST_CHECK, stg_serve_check},
    {STG_REQUEST_APPLY, stg_serve_apply},
    {STG_REQUEST_LIST, stg_serve_list},
    {STG_REQUEST_STATUS, stg_serve_status},
    {STG_REQUEST_DELETE, stg_serve_delete},
    {STG_REQUEST_NEW_TOKEN, stg_serve_new_token},
    {STG_REQUEST_FEED, stg_serve_feed},
    {STG_REQUEST_EXPLAIN, stg_serve_explain},
    {STG_REQUEST_REPORT, stg_serve_report},
    {STG_REQUEST_WORK, stg_serve_work},
    {STG_REQUEST_TRACE, stg_serve_trace},
    {STG_REQUEST_INDEX, stg_serve_index},
    {STG_REQUEST_WHY, stg_serve_why},
    {STG_REQUEST_JOIN, stg_serve_join},
    {STG_REQUEST_ROLLBACK, stg_serve_rollback},
    {STG_REQUEST_VERSIONS, stg_serve_versions},
    {STG_REQUEST_COMMIT, stg_serve_commit},
    {STG_REQUEST_COMMITS, stg_serve_commits},
    {STG_REQUEST_AUDIT, stg_serve_audit},
    {STG_REQUEST_METRICS, stg_serve_metrics},
    {STG_REQUEST_SCHEMA, stg_serve_schema},
    {STG_REQUEST_TAP, stg_serve_tap},
    {STG_REQUEST_DRAIN, stg_serve_drain},
};

void stg_request_serve(struct stg_session *session, const struct stg_request *request)
{
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
        if (requests[i].kind == request->kind) {
            requests[i].serve(session, request);
            return;
        }
    }
    stg_session_fail(session, request->id, -STAGER_UNIMPLEMENTED,
                     "this stagerd does not support the request");
}
