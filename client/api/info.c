/* SPDX-License-Identifier: Apache-2.0
 *
 * What a stream says of itself.
 */
#include <assert.h>

#include "client/api/replay.h"
#include "client/device/copier.h"
#include "client/stager.h"
#include "client/stream/stream.h"
#include "client/transport/sized.h"

/* A field that later fills padding would not change the size: there is none. */
static_assert(sizeof(struct stager_options) == STG_SIZE_TO(stager_options, replay_held) &&
                  sizeof(struct stager_batch_info) ==
                      STG_SIZE_TO(stager_batch_info, position) &&
                  sizeof(struct stager_stream_info) ==
                      STG_SIZE_TO(stager_stream_info, hosts_generation) &&
                  sizeof(struct stager_gpu_info) ==
                      STG_SIZE_TO(stager_gpu_info, reserved0),
              "a struct that may grow ends with its last field");

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

/* In hand, of all stagerds. */
static uint32_t count_held(const struct stager_stream *stream)
{
    uint32_t n = stream->held;
    for (const struct stager_stream *r = stream->retired; r != NULL; r = r->next_retired)
        n += r->held;
    return n;
}

/* Reconnects, and versions. */
static void count_reconnects(const struct stager_stream *stream,
                             struct stager_stream_info *info)
{
    const struct stg_reconnect *reconnect = stream->reconnect;
    if (reconnect == NULL)
        return;
    info->dropped_batches += reconnect->n_dropped;
    info->dropped_rows += reconnect->n_dropped_rows;
    info->reconnects = reconnect->n;
    info->followed = reconnect->n_followed;
    info->reconnect_ns = reconnect->away_ns;
    if (reconnect->since_ns != 0 && stream->is_gone)
        info->reconnect_ns += (uint64_t)(stg_clock_ns() - reconnect->since_ns);
}

int stager_stream_info(const struct stager_stream *stream, struct stager_stream_info *ret)
{
    bool ours = stg_stream_is_ours(stream); /* a forked child has no ring page */
    struct stager_stream_info info = {
        .batches = stream->n_batches,
        .errors = stream->n_errors,
        .wait_ns = stream->wait_ns,
        .sleeps = stream->n_sleeps,
        .held = count_held(stream),
        .max_in_flight = stream->max_in_flight,
        .at_end = stream->at_end && !stg_copier_is_ahead(stream),
        .finished = stg_stream_is_over(stream) && !stg_copier_is_ahead(stream),
        .unwatched = stream->unwatched,
        .end_pass = stream->end_pass,
        .generation = stream->generation,
        .device_bytes = stream->device_bytes,
        .device_shared = stream->n_shared,
        .dropped_batches = ours ? stg_ring_dropped_batches(&stream->ring) : 0,
        .dropped_rows = ours ? stg_ring_dropped_rows(&stream->ring) : 0,
        .hosts = (uint32_t)stream->hosts,
        .host = stream->host,
        .hosts_generation = stream->hosts_generation,
    };
    count_reconnects(stream, &info);
    stg_replay_info(stream, &info);
    return stg_sized_write(&info, STG_SIZE_TO(stager_stream_info, dropped_rows),
                           sizeof(info), "stager_stream_info", ret, stg_client_err());
}

const char *stager_error_text(const struct stager_stream *stream)
{
    return stream != NULL ? stream->err.text : stg_client_err()->text;
}
