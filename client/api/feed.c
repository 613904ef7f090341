/* SPDX-License-Identifier: Apache-2.0
 *
 * stager_feed: one tensor in one message. The daemon checks that it fits the pipeline;
 * here only what would not make a message is refused.
 */
#include <stdlib.h>
#include <string.h>

#include "client/api/replay.h"
#include "client/stager.h"
#include "client/stream/stream.h"
#include "client/stream/value.h"

/* Of a slice the first offset is not 0; in a message it is. */
static int64_t *rebase(const struct stager_tensor *value, int64_t n)
{
    int64_t *offsets = calloc((size_t)n + 1, sizeof(*offsets));
    for (int64_t i = 0; offsets != NULL && i <= n; i++)
        offsets[i] = value->offsets[i] - value->offsets[0];
    return offsets;
}

static int send_feed(struct stager_stream *stream, const char *name,
                     const struct stager_tensor *value, int64_t n, uint64_t *ret)
{
    struct stg_err *err = &stream->err;
    struct stg_request request = {.kind = STG_REQUEST_FEED,
                                  .name = name,
                                  .dtype = value->dtype,
                                  .ndim = value->ndim,
                                  .data = value->data,
                                  .data_bytes = value->data_bytes};
    memcpy(request.shape, value->shape, (size_t)value->ndim * sizeof(request.shape[0]));
    int64_t *offsets = NULL;
    if (value->dtype == STAGER_STRING) {
        offsets = rebase(value, n);
        if (offsets == NULL)
            return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
        request.offsets = offsets;
        request.n_offsets = (size_t)n + 1;
        request.data =
            value->data != NULL ? (const char *)value->data + value->offsets[0] : "";
        request.data_bytes = (size_t)offsets[n];
    }
    struct stg_reply reply;
    int rc = stg_client_call(stream->client, &request, STG_REQUEST_NS, &reply, NULL, 0,
                             NULL, err);
    free(offsets);
    if (rc == 0 && ret != NULL)
        *ret = reply.feed_version;
    return stg_stream_why(stream, rc);
}

int stager_feed(struct stager_stream *stream, const char *name,
                const struct stager_tensor *value, uint64_t *ret_feed_version)
{
    int rc = stg_stream_enter(stream);
    if (rc == 0)
        rc = stg_replay_refuses(stream, "takes no feed");
    if (rc < 0)
        return rc;
    if (stg_stream_is_over(stream))
        return stg_err(&stream->err, stream->finished, "%s", stream->final_text);
    if (name == NULL || name[0] == '\0' || value == NULL)
        return stg_err(&stream->err, -STAGER_INVALID_ARGUMENT,
                       "a feed needs a name and a value");
    int64_t n = 0;
    rc = stg_value_check(value, STG_FEED_MAX_BYTES, &n, &stream->err);
    if (rc < 0)
        return stg_err_prefix(&stream->err, rc, "feed %s", name);
    return send_feed(stream, name, value, n, ret_feed_version);
}
