/* SPDX-License-Identifier: Apache-2.0
 *
 * The buffer, and what becomes of each item. An item ends when it has left the buffer and
 * no client has it unacknowledged; it is then counted once, so that at every moment
 *
 *   published = acknowledged + lost + discarded_published + buffered + unacknowledged
 *
 * where the last two are the items that still live: those in the buffer or waiting to be
 * given again, and the rest.
 */
#include "daemon/stage/buffer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/partition.h"

int stg_buffer_init(struct stg_buffer *buffer, uint64_t arena_bytes, uint64_t slot_bytes,
                    uint32_t max_extents, uint32_t max_clients, struct stg_err *err)
{
    buffer->max_extents = max_extents;
    buffer->queue_size = max_extents;
    buffer->items = calloc(max_extents, sizeof(buffer->items[0]));
    buffer->queue = calloc(max_extents, sizeof(buffer->queue[0]));
    buffer->returned = calloc(max_extents, sizeof(buffer->returned[0]));
    if (buffer->items == NULL || buffer->queue == NULL || buffer->returned == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    int rc = stg_lease_core_create(arena_bytes, max_extents, max_clients,
                                   max_clients * STG_MAX_IN_FLIGHT, &buffer->leases, err);
    if (rc ==
        0) /* what admission promises holds whatever the sizes and the order of release */
        stg_lease_core_set_slot(buffer->leases, slot_bytes);
    return rc;
}

void stg_buffer_finish(struct stg_buffer *buffer)
{
    stg_lease_core_destroy(buffer->leases);
    free(buffer->items);
    free(buffer->queue);
    free(buffer->returned);
}

uint32_t stg_buffer_n_rounds(const struct stg_buffer *buffer)
{
    return (uint32_t)((buffer->next - buffer->first) / buffer->round_items);
}

bool stg_buffer_has_room(const struct stg_buffer *buffer)
{
    return buffer->next - buffer->first <
           (uint64_t)buffer->capacity * buffer->round_items;
}

static void retire(struct stg_buffer *buffer, uint32_t extent,
                   struct stg_effects *effects)
{
    struct stg_item *item = &buffer->items[extent];
    if (!item->unqueued || item->n_pending > 0)
        return;
    assert(item->lender);
    if (item->acked)
        buffer->n_acknowledged++;
    else if (item->lost)
        buffer->n_lost++;
    else
        buffer->n_discarded++;
    item->lender = false;
    stg_stage_partition_unref(item->partition);
    item->partition = NULL;
    stg_extent_drop(buffer->leases, extent);
    effects->wake |= STG_WAKE_MEMORY;
}

void stg_item_publish(struct stg_buffer *buffer, uint32_t extent,
                      const struct stg_item *item)
{
    buffer->items[extent] = (struct stg_item){
        .number = item->number,
        .bytes = item->bytes,
        .rows = item->rows,
        .pass = item->pass,
        .place = item->place,
        .hash = item->hash,
        .data = item->data,
        .is_error = item->is_error,
        .is_carried = item->is_carried,
        .before = item->before,
        .after = item->after,
        .skipped = item->skipped,
        .device = item->device,
        .tag = item->tag,
        .partition = stg_stage_partition_ref(item->partition),
        .lender = true,
    };
    buffer->queue[buffer->next % buffer->queue_size] = extent;
    buffer->next++;
    buffer->n_published++;
    buffer->n_rows += item->is_error ? 0 : item->rows;
    buffer->n_bytes += item->bytes;
}

uint32_t stg_buffer_at(const struct stg_buffer *buffer, uint64_t ordinal)
{
    return buffer->queue[ordinal % buffer->queue_size];
}

void stg_buffer_advance(struct stg_buffer *buffer, uint64_t ordinal)
{
    uint32_t extent = stg_buffer_at(buffer, ordinal);
    for (uint64_t i = ordinal; i > buffer->first; i--)
        buffer->queue[i % buffer->queue_size] = stg_buffer_at(buffer, i - 1);
    buffer->queue[buffer->first % buffer->queue_size] = extent;
}

void stg_buffer_pop(struct stg_buffer *buffer, struct stg_effects *effects)
{
    uint32_t extent = stg_buffer_at(buffer, buffer->first++);
    buffer->items[extent].unqueued = true;
    effects->events.has_taken = true;
    effects->events.n_rounds = stg_buffer_n_rounds(buffer);
    effects->events.taken_tag = buffer->items[extent].tag;
    effects->wake |= STG_WAKE_ROOM;
    retire(buffer, extent, effects);
}

void stg_buffer_discard(struct stg_buffer *buffer, struct stg_effects *effects)
{
    while (buffer->first < buffer->next)
        stg_buffer_pop(buffer, effects);
    while (buffer->n_returned > 0) {
        uint32_t extent = stg_item_take_returned(buffer, 0);
        buffer->items[extent].n_pending--;
        retire(buffer, extent, effects);
    }
}

void stg_item_acknowledge(struct stg_buffer *buffer, uint32_t extent,
                          struct stg_effects *effects)
{
    buffer->items[extent].acked = true;
    buffer->items[extent].n_pending--;
    retire(buffer, extent, effects);
}

void stg_item_lose(struct stg_buffer *buffer, uint32_t extent,
                   struct stg_effects *effects)
{
    buffer->items[extent].lost = true;
    buffer->items[extent].n_pending--;
    retire(buffer, extent, effects);
}

void stg_item_return(struct stg_buffer *buffer, uint32_t extent)
{
    uint32_t at = buffer->n_returned;
    while (at > 0 && buffer->items[buffer->returned[at - 1]].number >
                         buffer->items[extent].number) {
        buffer->returned[at] = buffer->returned[at - 1];
        at--;
    }
    buffer->returned[at] = extent;
    buffer->n_returned++;
}

uint32_t stg_item_take_returned(struct stg_buffer *buffer, uint32_t i)
{
    uint32_t extent = buffer->returned[i];
    buffer->n_returned--;
    memmove(&buffer->returned[i], &buffer->returned[i + 1],
            (buffer->n_returned - i) * sizeof(buffer->returned[0]));
    return extent;
}

void stg_item_defer(struct stg_buffer *buffer, struct stg_effects *effects)
{
    uint32_t extent = stg_buffer_at(buffer, buffer->first);
    buffer->items[extent].n_pending++;
    buffer->items[extent].is_deferred = true;
    stg_buffer_pop(buffer, effects);
    stg_item_return(buffer, extent);
}
