/* SPDX-License-Identifier: Apache-2.0
 *
 * stager_close, and streams that retire: what a reconnect leaves of the stagerd before.
 */
#include "client/api/close.h"

#include <stdlib.h>

#include "client/api/poll.h"
#include "client/api/replay.h"
#include "client/device/copier.h"
#include "client/stager.h"
#include "client/stream/leased.h"
#include "client/stream/stream.h"

/* ---- the last of it ---- */

/* A staged batch whose last slices were not taken goes to others as a whole: it may not
 * be given back before the daemon has let go either. */
static void leave_current(struct stager_stream *stream, bool parted)
{
    struct stg_leased *leased = stream->current;
    stream->current = NULL;
    if (leased == NULL || leased->n_in_hand > 0 || leased->is_retained)
        return;
    if (parted)
        stg_leased_return(stream, leased);
    else
        stg_leased_forget(stream, leased);
}

static void free_reconnect(struct stg_reconnect *reconnect)
{
    if (reconnect == NULL)
        return;
    stager_close(reconnect->next);
    stg_bump_finish(&reconnect->bump);
    free(reconnect);
}

static void unlink_retired(struct stager_stream *stream)
{
    struct stager_stream *owner = stream->owner;
    if (owner == NULL)
        return;
    struct stager_stream **link = &owner->retired;
    while (*link != stream)
        link = &(*link)->next_retired;
    *link = stream->next_retired;
}

/* A forked child has neither the mappings nor the lease: it frees its own copies. */
static void free_stream(struct stager_stream *stream, bool ours)
{
    for (struct stager_stream *r = stream->retired; r != NULL; r = r->next_retired)
        r->owner = NULL;
    unlink_retired(stream);
    free_reconnect(stream->reconnect);
    stg_poll_destroy(stream->poll);
    stg_replay_destroy(stream->replay);
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
    stg_leases_finish(stream);
    stg_taken_finish(&stream->taken);
    stg_taken_finish(&stream->before);
    free(stream);
}

static bool is_done(const struct stager_stream *stream)
{
    return stream->client == NULL && stream->held == 0 && stream->pins == 0 &&
           stream->views == 0;
}

void stg_stream_reap(struct stager_stream *stream)
{
    struct stager_stream *next;
    for (struct stager_stream *r = stream->retired; r != NULL; r = next) {
        next = r->next_retired;
        if (is_done(r))
            free_stream(r, stg_stream_is_ours(r));
    }
    if (is_done(stream))
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

void stg_batch_pin(struct stager_batch *batch)
{
    batch->stream->views++;
}

void stg_batch_unpin(struct stager_batch *batch)
{
    struct stager_stream *stream = batch->stream;
    stream->views--;
    stg_stream_reap(stream);
}

void stg_run_drop(struct stager_batch *home, struct stg_result *result, bool has_native,
                  void *native)
{
    stg_computer_drop(home->stream, result, has_native, native);
    stg_batch_unpin(home);
}

void stager_close(struct stager_stream *stream)
{
    if (stream == NULL)
        return;
    if (stg_stream_is_ours(stream) && stream->control.page != NULL &&
        stream->client != NULL) {
        if (stream->copier != NULL)
            stg_copier_synchronize(stream);
        stg_control_part(&stream->control);
        bool parted = stg_socket_part(stream->client->fd);
        if (parted)
            stg_stream_return_untaken(stream);
        leave_current(stream, parted);
        stg_replay_leave(stream, parted);
        if (stream->copier != NULL)
            stg_copier_leave(stream, parted);
    }
    free_reconnect(stream->reconnect);
    stream->reconnect = NULL;
    stg_results_forget(stream);
    stager_disconnect(stream->client);
    stream->client = NULL;
    stg_stream_reap(stream);
}

/* ---- a reconnect ---- */

/* Handles point to their stream. */
static void adopt(struct stager_stream *stream)
{
    for (struct stg_batch_chunk *chunk = stream->chunks; chunk != NULL;
         chunk = chunk->next) {
        for (uint32_t i = 0; i < chunk->n; i++)
            chunk->batches[i].stream = stream;
    }
}

static void move_counters(struct stager_stream *from, struct stager_stream *to)
{
    from->reconnect->n_dropped += stg_ring_dropped_batches(&from->ring);
    from->reconnect->n_dropped_rows += stg_ring_dropped_rows(&from->ring);
    to->n_batches = from->n_batches;
    to->n_errors = from->n_errors;
    to->wait_ns = from->wait_ns;
    to->n_sleeps = from->n_sleeps;
    to->device_bytes += from->device_bytes;
    to->n_shared += from->n_shared;
    to->n_over = from->n_over;
    to->end_pass = from->end_pass;
    to->dry_since_ns = from->dry_since_ns;
    to->err = from->err;
}

void stg_stream_exchange(struct stager_stream *stream, struct stager_stream *next)
{
    struct stager_stream old = *stream;
    move_counters(stream, next);
    *stream = *next;
    *next = old;
    adopt(stream);
    adopt(next);
    stream->pins = old.pins;
    stream->retired = old.retired;
    stream->results = old.results;
    stream->reconnect = old.reconnect;
    stream->poll = old.poll;
    next->pins = 0;
    next->retired = next->results = NULL;
    next->reconnect = NULL;
    next->poll = NULL;
}

void stg_stream_retire(struct stager_stream *old, struct stager_stream *owner)
{
    old->owner = owner;
    old->next_retired = owner->retired;
    owner->retired = old;
    if (old->copier != NULL)
        stg_copier_synchronize(old);
    leave_current(old, true);
    if (old->copier != NULL)
        stg_copier_leave(old, true);
    stager_disconnect(old->client);
    old->client = NULL;
    if (old->computer != NULL && owner->results == NULL)
        stg_results_keep(owner, old);
    stg_stream_reap(owner);
}
