/* SPDX-License-Identifier: Apache-2.0
 *
 * Leases that this stream holds, handles on them, and the doorbell that gives them back.
 */
#ifndef STG_CLIENT_STREAM_LEASED_H
#define STG_CLIENT_STREAM_LEASED_H

#include "client/stream/stream.h"

/* A pool for max_in_flight staged batches and as many handles. INTERNAL: the daemon
 * granted a number that makes no sense; RESOURCE_EXHAUSTED. */
int stg_leases_init(struct stager_stream *stream, uint32_t max_in_flight,
                    struct stg_err *err);
void stg_leases_finish(struct stager_stream *stream);

/* n more handles. RESOURCE_EXHAUSTED. */
int stg_stream_add_batches(struct stager_stream *stream, uint32_t n, struct stg_err *err);

/* Rings the daemon's doorbell; one that the system had no room for is pending. */
void stg_stream_ring_doorbell(struct stager_stream *stream);

/* Rings if the ring is empty and the daemon asked for a doorbell, or if one is pending.
 * Does nothing once the stream is closed. */
void stg_stream_ring_if_dry(struct stager_stream *stream);

/* Gives the lease of a descriptor back that became no batch. */
void stg_lease_return(struct stager_stream *stream, const struct stg_descriptor *d);

/* Takes the lease of a descriptor whose batch at rest lies at base. One is free. */
struct stg_leased *stg_leased_take(struct stager_stream *stream,
                                   const struct stg_descriptor *d, const void *base);

/* The staged batch is in hand no more; its lease stays with the daemon. */
void stg_leased_forget(struct stager_stream *stream, struct stg_leased *leased);

/* As that, and the lease goes back. */
void stg_leased_return(struct stager_stream *stream, struct stg_leased *leased);

/* The lease is retained: drops what the trainer wrote to the batch, once it is not in
 * hand.
 */
void stg_leased_restore(struct stager_stream *stream, const struct stg_leased *leased);

/* Returns the items of the ring that were not taken and will not be read. Called only
 * once the daemon has detached this client: before, it would acknowledge them, and other
 * clients would not get them. */
void stg_stream_return_untaken(struct stager_stream *stream);

/* Hands out a handle on the staged batch. One is free. */
struct stager_batch *stg_batch_hand_out(struct stager_stream *stream,
                                        struct stg_leased *leased);

/* The handle is free; its staged batch is as it was. */
void stg_batch_hand_in(struct stager_batch *batch);

#endif
