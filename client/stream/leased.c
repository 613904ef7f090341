/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stream/leased.h"

#include <stdlib.h>

#include "client/stream/progress.h"

/* ---- the pool ---- */

int stg_stream_add_batches(struct stager_stream *stream, uint32_t n, struct stg_err *err)
{
    struct stg_batch_chunk *chunk =
        calloc(1, sizeof(*chunk) + n * sizeof(chunk->batches[0]));
    if (chunk == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    chunk->n = n;
    chunk->next = stream->chunks;
    stream->chunks = chunk;
    for (uint32_t i = n; i-- > 0;) {
        chunk->batches[i].stream = stream;
        chunk->batches[i].next_free = stream->free_batches;
        stream->free_batches = &chunk->batches[i];
    }
    return 0;
}

int stg_leases_init(struct stager_stream *stream, uint32_t max_in_flight,
                    struct stg_err *err)
{
    if (max_in_flight == 0 || max_in_flight > STG_MAX_IN_FLIGHT)
        return stg_err(err, -STAGER_INTERNAL,
                       "stagerd granted %u batches in flight; the valid range is 1 to %u",
                       max_in_flight, STG_MAX_IN_FLIGHT);
    stream->leases = calloc(max_in_flight, sizeof(*stream->leases));
    if (stream->leases == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    stream->max_in_flight = max_in_flight;
    for (uint32_t i = max_in_flight; i-- > 0;) {
        stream->leases[i].next_free = stream->free_leases;
        stream->free_leases = &stream->leases[i];
    }
    return stg_stream_add_batches(stream, max_in_flight, err);
}

void stg_leases_finish(struct stager_stream *stream)
{
    while (stream->chunks != NULL) {
        struct stg_batch_chunk *chunk = stream->chunks;
        for (uint32_t i = 0; i < chunk->n; i++) {
            free(chunk->batches[i].windows);
            free(chunk->batches[i].scratch);
        }
        stream->chunks = chunk->next;
        free(chunk);
    }
    free(stream->leases);
    free(stream->places);
}

/* ---- doorbells ---- */

void stg_stream_ring_doorbell(struct stager_stream *stream)
{
    stream->doorbell_pending = !stg_socket_doorbell(stream->client->fd);
    stream->has_news = stream->has_news && stream->doorbell_pending;
}

static void ring_if_few(struct stager_stream *stream, uint64_t few)
{
    if (stream->client != NULL &&
        (stg_ring_needs_doorbell(&stream->ring, few) || stream->doorbell_pending))
        stg_stream_ring_doorbell(stream);
}

void stg_stream_ring_if_dry(struct stager_stream *stream)
{
    ring_if_few(stream, 0);
}

/* ---- leases ---- */

/* Rings as long as a descriptor is left: the daemon gives the next one before the ring is
 * empty, and `next` makes no system call. */
static void post_release(struct stager_stream *stream, uint32_t lease,
                         uint32_t generation)
{
    stg_control_release(&stream->control, lease, generation);
    stream->has_news = true;
    ring_if_few(stream, 1);
}

void stg_lease_return(struct stager_stream *stream, const struct stg_descriptor *d)
{
    post_release(stream, d->lease, d->lease_generation);
}

struct stg_leased *stg_leased_take(struct stager_stream *stream,
                                   const struct stg_descriptor *d, const void *base)
{
    struct stg_leased *leased = stream->free_leases;
    stream->free_leases = leased->next_free;
    *leased = (struct stg_leased){
        .base = base,
        .number = d->number,
        .bytes = d->length,
        .assigned_ns = d->assigned_ns,
        .lease = d->lease,
        .lease_generation = d->lease_generation,
        .device = d->device,
        .elements = d->elements,
        .position = stream->ring.cursor,
        .redelivered = (d->flags & STG_DESCRIPTOR_REDELIVERED) != 0,
    };
    stream->held++;
    if (stream->copy_on_write) /* drops pages that were written after the last release */
        stg_map_forget(&stream->segment, base, d->length);
    return leased;
}

void stg_leased_forget(struct stager_stream *stream, struct stg_leased *leased)
{
    stg_progress_leave(stream, leased);
    leased->next_free = stream->free_leases;
    stream->free_leases = leased;
    stream->held--;
}

void stg_leased_return(struct stager_stream *stream, struct stg_leased *leased)
{
    stg_progress_leave(stream, leased);
    if (stream->copy_on_write)
        stg_map_forget(&stream->segment, leased->base, leased->bytes);
    post_release(stream, leased->lease, leased->lease_generation);
    stg_leased_forget(stream, leased);
}

void stg_leased_restore(struct stager_stream *stream, const struct stg_leased *leased)
{
    if (leased->n_in_hand == 0 && stream->copy_on_write)
        stg_map_forget(&stream->segment, leased->base, leased->bytes);
}

void stg_stream_return_untaken(struct stager_stream *stream)
{
    struct stg_descriptor d;
    for (unsigned i = 0; i < STG_RING_ENTRIES && stg_ring_take(&stream->ring, &d); i++) {
        if (d.kind == STG_DESCRIPTOR_BATCH || d.kind == STG_DESCRIPTOR_ERROR)
            stg_control_release(&stream->control, d.lease, d.lease_generation);
    }
}

/* ---- handles ---- */

/* Hands out a handle on the staged batch. */
struct stager_batch *stg_batch_hand_out(struct stager_stream *stream,
                                        struct stg_leased *leased)
{
    struct stager_batch *batch = stream->free_batches;
    stream->free_batches = batch->next_free;
    batch->leased = leased;
    batch->in_hand = true;
    leased->n_in_hand++;
    return batch;
}

void stg_batch_hand_in(struct stager_batch *batch)
{
    struct stager_stream *stream = batch->stream;
    batch->in_hand = false;
    batch->next_free = stream->free_batches;
    stream->free_batches = batch;
    batch->leased->n_in_hand--;
}
