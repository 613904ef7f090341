/* SPDX-License-Identifier: Apache-2.0
 *
 * stager_commit: a state and a tag in one message, answered when they are on disk.
 */
#include <string.h>

#include "client/api/reconnect.h"
#include "client/api/replay.h"
#include "client/stager.h"
#include "client/stream/progress.h"

#define COMMIT_NS 60000000000 /* a disk may be slow */

static int check(const struct stager_stream *stream, const char *state, const char *tag,
                 struct stg_err *err)
{
    struct stg_state ignored;
    if (stream->client->version < STG_PROTOCOL_COMMIT)
        return stg_client_outdated(stream->client, "has no commits", err);
    if (state == NULL || tag == NULL || tag[0] == '\0')
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "a commit needs a state and a tag");
    return stg_state_read(state, strlen(state), &ignored, err);
}

/* Returns whether the socket has ended because stagerd did, which may come back, or
 * because the stream has let go of it to follow. */
static bool is_away(const struct stager_stream *stream, int rc)
{
    return rc == -STAGER_UNAVAILABLE && stream->reconnect != NULL &&
           !stream->reconnect->only_follows && stream->client->broken &&
           !stg_stream_is_over(stream) &&
           (stream->is_gone || stream->is_replaced || stg_stream_is_lost(stream));
}

int stager_commit(struct stager_stream *stream, const char *state, const char *tag)
{
    int rc = stg_stream_enter(stream);
    if (rc == 0)
        rc = stg_replay_refuses(stream, "commits nothing");
    if (rc == 0)
        rc = check(stream, state, tag, &stream->err);
    if (rc < 0)
        return rc;
    struct stg_request request = {.kind = STG_REQUEST_COMMIT, .state = state, .tag = tag};
    struct stg_reply reply;
    rc = stg_client_call(stream->client, &request, COMMIT_NS, &reply, NULL, 0, NULL,
                         &stream->err);
    /* The same commit again is no error: stagerd may have ended after it was on disk. */
    if (is_away(stream, rc))
        return stg_reconnect_commit(stream, state, tag, COMMIT_NS);
    if (rc == -STAGER_UNAVAILABLE && stream->client->broken && stg_stream_is_over(stream))
        return stg_err(&stream->err, stream->finished, "%s", stream->final_text);
    return stg_stream_why(stream, rc);
}
