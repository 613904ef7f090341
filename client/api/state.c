/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a stream.
 */
#include <assert.h>
#include <string.h>

#include "client/device/copier.h"
#include "client/stager.h"
#include "client/stream/progress.h"

static_assert(STAGER_STATE_BYTES == STG_STATE_TEXT_BYTES, "every text fits");

int stager_state(struct stager_stream *stream, char *buf, size_t bytes)
{
    char text[STG_STATE_TEXT_BYTES];
    struct stg_state state;
    int rc = stg_stream_enter(stream);
    if (rc == 0)
        rc =
            stg_progress_state(stream, stg_copier_is_ahead(stream), &state, &stream->err);
    if (rc < 0)
        return rc;
    size_t n = stg_state_write(&state, text) + 1;
    if (n > bytes)
        return stg_err(
            &stream->err, -STAGER_INVALID_ARGUMENT,
            "the state needs %zu bytes, and buf has %zu (STAGER_STATE_BYTES is "
            "enough)",
            n, bytes);
    memcpy(buf, text, n);
    return 0;
}
