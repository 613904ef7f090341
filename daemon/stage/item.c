/* SPDX-License-Identifier: Apache-2.0
 *
 * The buffer, and what becomes of each item. An item ends when it has left the buffer and
 * nobody has it unacknowledged; it is then counted once, so that at every moment
 *
 *   published = acknowledged + lost + discarded_published + buffered + unacknowledged
 *
 * where the last two are the items that still live: those in the buffer or waiting to be
 * given again, and the rest.
 */
#include <assert.h>
#include <string.h>

#include "daemon/stage/delivery.h"

/* Rounds, under round_robin: a round has an item for each rank. */
static uint64_t capacity_items(const struct stg_stage *stage)
{
    uint64_t capacity = stage->buffer.capacity;
    return stage->config.delivery == STG_DELIVERY_ROUND_ROBIN
               ? capacity * stage->config.num_clients
               : capacity;
}

bool stg_stage_has_room(const struct stg_stage *stage)
{
    return stage->buffer.next - stage->buffer.first < capacity_items(stage);
}

static void settle(struct stg_stage *stage, uint32_t extent)
{
    struct stg_item *item = &stage->buffer.items[extent];
    if (!item->unqueued || item->n_owed > 0)
        return;
    assert(item->lender);
    if (item->acked)
        stage->buffer.n_acknowledged++;
    else if (item->lost)
        stage->buffer.n_lost++;
    else
        stage->buffer.n_discarded++;
    item->lender = false;
    stg_stage_cut_unref(item->cut);
    item->cut = NULL;
    stg_extent_drop(stage->buffer.leases, extent);
    stage->effects.wake |= STG_WAKE_MEMORY;
}

void stg_item_publish(struct stg_stage *stage, uint32_t extent,
                      const struct stg_item *item)
{
    stage->buffer.items[extent] = (struct stg_item){
        .number = item->number,
        .bytes = item->bytes,
        .rows = item->rows,
        .is_error = item->is_error,
        .skipped = stage->counts.n_skipped,
        .device = item->device,
        .cut = stg_stage_cut_ref(item->cut),
        .lender = true,
    };
    stage->buffer.queue[stage->buffer.next % stage->buffer.queue_size] = extent;
    stage->buffer.next++;
    stage->buffer.n_published++;
    stage->buffer.n_rows += item->is_error ? 0 : item->rows;
    stage->buffer.n_bytes += item->bytes;
}

uint32_t stg_buffer_at(const struct stg_stage *stage, uint64_t ordinal)
{
    return stage->buffer.queue[ordinal % stage->buffer.queue_size];
}

void stg_buffer_pop(struct stg_stage *stage)
{
    uint32_t extent = stg_buffer_at(stage, stage->buffer.first++);
    stage->buffer.items[extent].unqueued = true;
    stg_tune_took(stage);
    stage->effects.wake |= STG_WAKE_ROOM;
    settle(stage, extent);
}

void stg_buffer_discard(struct stg_stage *stage)
{
    while (stage->buffer.first < stage->buffer.next)
        stg_buffer_pop(stage);
    while (stage->buffer.n_returned > 0) {
        uint32_t extent = stg_item_take_returned(stage, 0);
        stage->buffer.items[extent].n_owed--;
        settle(stage, extent);
    }
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next)
        c->cursor = stage->buffer.next; /* nobody is given what is no more */
}

void stg_item_acknowledge(struct stg_stage *stage, uint32_t extent)
{
    stage->buffer.items[extent].acked = true;
    stage->buffer.items[extent].n_owed--;
    settle(stage, extent);
}

void stg_item_lose(struct stg_stage *stage, uint32_t extent)
{
    stage->buffer.items[extent].lost = true;
    stage->buffer.items[extent].n_owed--;
    settle(stage, extent);
}

void stg_item_return(struct stg_stage *stage, uint32_t extent)
{
    uint32_t at = stage->buffer.n_returned;
    while (at > 0 && stage->buffer.items[stage->buffer.returned[at - 1]].number >
                         stage->buffer.items[extent].number) {
        stage->buffer.returned[at] = stage->buffer.returned[at - 1];
        at--;
    }
    stage->buffer.returned[at] = extent;
    stage->buffer.n_returned++;
}

uint32_t stg_item_take_returned(struct stg_stage *stage, uint32_t i)
{
    uint32_t extent = stage->buffer.returned[i];
    stage->buffer.n_returned--;
    memmove(&stage->buffer.returned[i], &stage->buffer.returned[i + 1],
            (stage->buffer.n_returned - i) * sizeof(stage->buffer.returned[0]));
    return extent;
}

void stg_item_put_aside(struct stg_stage *stage)
{
    uint32_t extent = stg_buffer_at(stage, stage->buffer.first);
    stage->buffer.items[extent].n_owed++;
    stage->buffer.items[extent].is_aside = true;
    stg_buffer_pop(stage);
    stg_item_return(stage, extent);
}
