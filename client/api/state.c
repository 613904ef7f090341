/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a stream, and that of all consumers of a split.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "client/api/replay.h"
#include "client/device/copier.h"
#include "client/stager.h"
#include "client/stream/progress.h"

static_assert(STAGER_STATE_BYTES == STG_STATE_TEXT_BYTES, "every text fits");

static int copy(const char *text, size_t n, char *buf, size_t bytes, struct stg_err *err)
{
    if (n > bytes)
        return stg_err(
            err, -STAGER_INVALID_ARGUMENT,
            "the state needs %zu bytes, and buf has %zu (STAGER_STATE_BYTES is "
            "enough)",
            n, bytes);
    memcpy(buf, text, n);
    return 0;
}

int stager_merge_states(const char *const *states, size_t n, char *buf, size_t bytes)
{
    char text[STG_STATE_TEXT_BYTES];
    struct stg_state merged;
    struct stg_err *err = stg_client_err();
    *err = (struct stg_err){0};
    struct stg_state *all = calloc(n + 1, sizeof(*all));
    int rc = all != NULL ? 0 : stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const char *state = states[i] != NULL ? states[i] : "";
        rc = stg_state_read(state, strlen(state), &all[i], err);
        if (rc < 0)
            stg_err_prefix(err, rc, "state %zu", i + 1);
    }
    if (rc == 0)
        rc = stg_state_merge(all, n, &merged, err);
    free(all);
    return rc == 0 ? copy(text, stg_state_write(&merged, text) + 1, buf, bytes, err) : rc;
}

int stager_state(struct stager_stream *stream, char *buf, size_t bytes)
{
    char text[STG_STATE_TEXT_BYTES];
    struct stg_state state;
    int rc = stg_stream_enter(stream);
    if (rc == 0)
        rc = stg_replay_refuses(stream, "has no state");
    if (rc == 0)
        rc =
            stg_progress_state(stream, stg_copier_is_ahead(stream), &state, &stream->err);
    if (rc < 0)
        return rc;
    return copy(text, stg_state_write(&state, text) + 1, buf, bytes, &stream->err);
}
