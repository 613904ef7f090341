/* SPDX-License-Identifier: Apache-2.0
 *
 * What a stream says of itself.
 */
#include "client/device/copier.h"
#include "client/stager.h"
#include "client/stream/stream.h"

size_t stager_target_count(const struct stager_stream *stream)
{
    return stream->spec != NULL ? stream->spec->n_targets : 0;
}

const char *stager_target(const struct stager_stream *stream, size_t i)
{
    return i < stager_target_count(stream) ? stream->spec->targets[i] : NULL;
}

const char *stager_structure(const struct stager_stream *stream)
{
    return stream->structure;
}

void stager_stream_info(const struct stager_stream *stream,
                        struct stager_stream_info *ret)
{
    bool ours = stg_stream_is_ours(stream); /* a forked child has no ring page */
    *ret = (struct stager_stream_info){
        .batches = stream->n_batches,
        .errors = stream->n_errors,
        .wait_ns = stream->wait_ns,
        .sleeps = stream->n_sleeps,
        .held = stream->held,
        .max_held = stream->max_held,
        .at_end = stream->at_end && !stg_copier_is_ahead(stream),
        .finished = stream->finished != 0 && !stg_copier_is_ahead(stream),
        .unseen = stream->unseen,
        .end_pass = stream->end_pass,
        .device_bytes = stream->device_bytes,
        .device_shared = stream->n_shared,
        .dropped_batches = ours ? stg_ring_dropped_batches(&stream->ring) : 0,
        .dropped_rows = ours ? stg_ring_dropped_rows(&stream->ring) : 0,
    };
}

const char *stager_error_text(const struct stager_stream *stream)
{
    return stream != NULL ? stream->err.text : stg_client_err()->text;
}
