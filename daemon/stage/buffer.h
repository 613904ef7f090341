/* SPDX-License-Identifier: Apache-2.0
 *
 * The buffer of a stage: published items in order, their extents, and what becomes of
 * each item. Uses neither clients nor runners. Guarded by the stage's lock.
 */
#ifndef STG_DAEMON_STAGE_BUFFER_H
#define STG_DAEMON_STAGE_BUFFER_H

#include <stdint.h>

#include "core/lease.h"
#include "daemon/stage/effects.h"

struct stg_stage_partition;

/* One item of the stage's output; its slot is its extent's id. It lives from publishing
 * until it has left the buffer and no client has it unacknowledged; then it is counted,
 * once, as acknowledged, lost or discarded. */
struct stg_item {
    uint64_t number;
    uint64_t bytes;
    uint64_t rows;
    uint64_t skipped; /* the stage's n_skipped when it was published */
    uint64_t pass;
    uint64_t place; /* its number in the pass */
    uint64_t hash;  /* for the audit */
    struct stg_data_identity data;
    struct stg_pass_place before,
        after;          /* where a client is with it; of a round, the same */
    uint32_t n_pending; /* unacknowledged assignments, and places where it waits to be
                        given again */
    bool is_error;
    bool is_carried; /* an error item: a round before it is not whole yet */
    bool unqueued;   /* it left the buffer */
    bool acked;      /* a client acknowledged it */
    bool lost; /* a client had it, did not acknowledge it, and it is not given again */
    bool is_deferred; /* it waits to be given for the first time, out of the buffer */
    bool lender;      /* the stage still holds its reference on the extent */
    uint32_t device;  /* number of the memory on a device that has it too; 0: none has */
    uint32_t tag;     /* of a block of a trial of partitions; 0: none */
    struct stg_stage_partition *partition; /* one reference; NULL: good for all clients */
};

/* Ordinals count from the stage's start. */
struct stg_buffer {
    struct stg_lease_core *leases;
    struct stg_item *items; /* by extent id */
    uint32_t max_extents;
    uint32_t *queue; /* ring of extents, queue_size slots */
    uint32_t queue_size;
    uint32_t capacity;    /* now; rounds of round_items */
    uint32_t round_items; /* round_robin: an item for each rank; else 1 */
    uint64_t first, next; /* ordinals */
    uint32_t *returned;   /* split: to be delivered again, ascending numbers */
    uint32_t n_returned;
    uint64_t n_skipped; /* numbers dropped or ignored, each counted when its turn came */
    uint64_t gaps_counted; /* n_skipped up to which gaps were put down to a client */
    uint64_t n_published, n_acknowledged, n_lost, n_discarded;
    uint64_t n_rows, n_bytes; /* of published items */
};

/* Of arena_bytes, for extents of slot_bytes. Zero-initialised but for round_items and
 * capacity. RESOURCE_EXHAUSTED; finish also then. */
int stg_buffer_init(struct stg_buffer *buffer, uint64_t arena_bytes, uint64_t slot_bytes,
                    uint32_t max_extents, uint32_t max_clients, struct stg_err *err);
void stg_buffer_finish(struct stg_buffer *buffer);

/* Whole rounds that are published and not assigned. */
uint32_t stg_buffer_n_rounds(const struct stg_buffer *buffer);

/* May one more item be published? Counts items that were not yet assigned (rounds, under
 * round_robin; under broadcast until the slowest client was assigned it). */
bool stg_buffer_has_room(const struct stg_buffer *buffer);

/* The item, of a sealed extent, takes its place at the end of the buffer, its turn and
 * room being there. number, bytes, rows, is_error, is_carried, skipped, before, after,
 * device, tag and partition of *item are used. */
void stg_item_publish(struct stg_buffer *buffer, uint32_t extent,
                      const struct stg_item *item);

/* The extent of the buffer's item with that ordinal. */
uint32_t stg_buffer_at(const struct stg_buffer *buffer, uint64_t ordinal);

/* The item of that ordinal becomes the first one. */
void stg_buffer_advance(struct stg_buffer *buffer, uint64_t ordinal);

/* The first item leaves the buffer. */
void stg_buffer_pop(struct stg_buffer *buffer, struct stg_effects *effects);

/* Discards the items that are published and not given, or wait to be given again. */
void stg_buffer_discard(struct stg_buffer *buffer, struct stg_effects *effects);

/* A client that had the item acknowledged it, or lost it. */
void stg_item_acknowledge(struct stg_buffer *buffer, uint32_t extent,
                          struct stg_effects *effects);
void stg_item_lose(struct stg_buffer *buffer, uint32_t extent,
                   struct stg_effects *effects);

/* split: it waits to be given to another. */
void stg_item_return(struct stg_buffer *buffer, uint32_t extent);
uint32_t stg_item_take_returned(struct stg_buffer *buffer, uint32_t i);

/* split: the first item of the buffer waits likewise, without having been given. */
void stg_item_defer(struct stg_buffer *buffer, struct stg_effects *effects);

#endif
