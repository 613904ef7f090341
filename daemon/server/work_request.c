/* SPDX-License-Identifier: Apache-2.0
 *
 * A process asks to be a worker: who may open the pipeline may.
 */
#include <unistd.h>

#include "daemon/pyworker/work.h"
#include "daemon/server/session.h"

static int admit(struct stg_session *session, struct stg_pipeline *pipeline,
                 uint32_t most, int *ret_channel, struct stg_err *err)
{
    if (pipeline->workers == NULL)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "pipeline %s has no step py_function, and needs no workers",
                       pipeline->name);
    return stg_workers_admit(pipeline->workers, session->pid, most, &session->worker,
                             ret_channel, err);
}

void stg_request_work(struct stg_session *session, const struct stg_request *request)
{
    struct stg_err err = {0};
    struct stg_pipeline *pipeline = stg_request_pipeline(session, request);
    if (pipeline == NULL)
        return;
    int channel;
    if (admit(session, pipeline, request->most, &channel, &err) < 0) {
        stg_session_fail(session, request->id, err.code, err.text);
        return;
    }
    struct stg_reply reply = {
        .id = request->id,
        .kind = request->kind,
        .text = "",
        .name = pipeline->name,
        .function = stg_workers_function(pipeline->workers),
        .boundary = *stg_workers_output(pipeline->workers),
    };
    if (stg_session_reply(session, &reply, &channel, 1) < 0)
        stg_session_close(session); /* the channel did not reach it */
    close(channel);
}
