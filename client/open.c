/* SPDX-License-Identifier: Apache-2.0
 *
 * The request that opens a stream. A client that computes is asked by stagerd what of the
 * graph its build cannot, and says so.
 */
#include <stdlib.h>

#include "client/compute.h"
#include "client/stream.h"

/* A pipeline may be replaced while it is looked at. */
#define MAX_ASKED 8

/* What was looked at; the request refers to it. */
struct asked {
    struct stg_pipeline_spec *spec;
    const char **names;
};

static void asked_finish(struct asked *asked)
{
    stg_pipeline_spec_destroy(asked->spec);
    free(asked->names);
    *asked = (struct asked){0};
}

/* Who has no libstager-compute.so computes nothing, and is told so by stager_run. */
static int look(struct stager *client, const struct stg_reply *reply, struct asked *asked,
                struct stg_request *request, struct stg_err *err)
{
    const struct stg_compute *table = NULL;
    struct stg_err why = {0};
    asked_finish(asked);
    request->lacks_generation = reply->generation;
    request->lacks = NULL;
    request->n_lacks = 0;
    if (stg_compute_load(&table, &why) < 0)
        return 0;
    int rc =
        stg_wire_decode_pipeline(client->buf, client->reply_bytes, &asked->spec, err);
    if (rc < 0)
        return rc;
    asked->names = calloc(asked->spec->n_nodes + 1, sizeof(*asked->names));
    if (asked->names == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    rc =
        table->lacks(asked->spec, &reply->boundary, asked->names, &request->n_lacks, err);
    request->lacks = asked->names;
    return rc;
}

int stg_stream_call_open(struct stager *client, struct stg_request *request,
                         struct stg_reply *ret, int *fds, size_t max_fds,
                         size_t *ret_n_fds, struct stg_err *err)
{
    struct asked asked = {0};
    request->has_lacks = true;
    int rc = 0;
    for (int i = 0; rc == 0; i++) {
        rc = stg_client_call(client, request, STG_OPEN_NS, ret, fds, max_fds, ret_n_fds,
                             err);
        if (rc < 0 || !ret->asks)
            break;
        rc = i < MAX_ASKED
                 ? look(client, ret, &asked, request, err)
                 : stg_err(err, -STAGER_ABORTED,
                           "pipeline %s is replaced all the time: open it again when "
                           "that is over",
                           request->name);
    }
    asked_finish(&asked);
    return rc;
}
