/* SPDX-License-Identifier: Apache-2.0 */
#include "client/api/close.h"

#include <stdlib.h>

#include "client/device/copier.h"
#include "client/run/run.h"
#include "client/stream/lent.h"

/* A staged batch whose last slices were not taken goes to others as a whole: it may not
 * be given back before the daemon has let go either. */
static void leave_current(struct stager_stream *stream, bool parted)
{
    struct stg_lent *lent = stream->current;
    stream->current = NULL;
    if (lent == NULL || lent->n_in_hand > 0)
        return;
    if (parted)
        stg_lent_return(stream, lent);
    else
        stg_lent_forget(stream, lent);
}

/* A forked child has neither the mappings nor the lease: it frees its own copies. */
static void free_stream(struct stager_stream *stream, bool ours)
{
    stg_computer_destroy(stream->computer, ours);
    stg_copier_destroy(stream->copier, ours);
    if (ours) {
        stg_map_close(&stream->segment);
        stg_map_close(&stream->ring_page);
        stg_map_close(&stream->control_page);
    }
    stg_pipeline_spec_destroy(stream->spec);
    stg_guard_destroy(stream->guard);
    stg_bump_finish(&stream->bump);
    stg_lents_finish(stream);
    free(stream);
}

/* In a child of fork `held` does not fall any more: its batches may still be released,
 * which does nothing. */
void stg_stream_reap(struct stager_stream *stream)
{
    if (stream->client == NULL && stream->held == 0 && stream->pins == 0)
        free_stream(stream, stg_stream_is_ours(stream));
}

void stg_stream_pin(struct stager_stream *stream)
{
    stream->pins++;
}

void stg_stream_unpin(struct stager_stream *stream)
{
    stream->pins--;
    stg_stream_reap(stream);
}

void stg_run_drop(struct stager_stream *stream, struct stg_result *result,
                  bool has_native, void *native)
{
    stg_computer_drop(stream, result, has_native, native);
    stg_stream_unpin(stream);
}

void stager_close(struct stager_stream *stream)
{
    if (stream == NULL)
        return;
    if (stg_stream_is_ours(stream) && stream->control.page != NULL &&
        stream->client != NULL) {
        if (stream->copier != NULL)
            stg_copier_settle(stream);
        stg_control_part(&stream->control);
        bool parted = stg_socket_part(stream->client->fd);
        if (parted)
            stg_stream_return_untaken(stream);
        leave_current(stream, parted);
        if (stream->copier != NULL)
            stg_copier_leave(stream, parted);
    }
    stager_disconnect(stream->client);
    stream->client = NULL;
    stg_stream_reap(stream);
}
