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
    uint64_t capacity = stage->capacity;
    return stage->config.delivery == STG_DELIVERY_ROUND_ROBIN
               ? capacity * stage->config.num_clients
               : capacity;
}

bool stg_stage_has_room(const struct stg_stage *stage)
{
    return stage->queue_next - stage->queue_first < capacity_items(stage);
}

static void settle(struct stg_stage *stage, uint32_t extent)
{
    struct stg_item *item = &stage->items[extent];
    if (!item->unqueued || item->n_owed > 0)
        return;
    assert(item->lender);
    if (item->acked)
        stage->n_acknowledged++;
    else if (item->lost)
        stage->n_lost++;
    else
        stage->n_discarded_published++;
    item->lender = false;
    stg_stage_cut_unref(item->cut);
    item->cut = NULL;
    stg_extent_drop(stage->leases, extent);
    stage->wake |= STG_WAKE_MEMORY;
}

void stg_item_publish(struct stg_stage *stage, uint32_t extent,
                      const struct stg_item *item)
{
    stage->items[extent] = (struct stg_item){
        .number = item->number,
        .bytes = item->bytes,
        .rows = item->rows,
        .is_error = item->is_error,
        .skipped = stage->n_skipped,
        .device = item->device,
        .cut = stg_stage_cut_ref(item->cut),
        .lender = true,
    };
    stage->queue[stage->queue_next % stage->queue_size] = extent;
    stage->queue_next++;
    stage->n_published++;
    stage->n_rows += item->is_error ? 0 : item->rows;
    stage->n_bytes += item->bytes;
}

uint32_t stg_buffer_at(const struct stg_stage *stage, uint64_t ordinal)
{
    return stage->queue[ordinal % stage->queue_size];
}

void stg_buffer_pop(struct stg_stage *stage)
{
    uint32_t extent = stg_buffer_at(stage, stage->queue_first++);
    stage->items[extent].unqueued = true;
    stg_tune_took(stage);
    stage->wake |= STG_WAKE_ROOM;
    settle(stage, extent);
}

void stg_buffer_discard(struct stg_stage *stage)
{
    while (stage->queue_first < stage->queue_next)
        stg_buffer_pop(stage);
    while (stage->n_returned > 0) {
        uint32_t extent = stg_item_take_returned(stage, 0);
        stage->items[extent].n_owed--;
        settle(stage, extent);
    }
    for (struct stg_client *c = stage->clients; c != NULL; c = c->next)
        c->cursor = stage->queue_next; /* nobody is given what is no more */
}

void stg_item_acknowledge(struct stg_stage *stage, uint32_t extent)
{
    stage->items[extent].acked = true;
    stage->items[extent].n_owed--;
    settle(stage, extent);
}

void stg_item_lose(struct stg_stage *stage, uint32_t extent)
{
    stage->items[extent].lost = true;
    stage->items[extent].n_owed--;
    settle(stage, extent);
}

void stg_item_return(struct stg_stage *stage, uint32_t extent)
{
    uint32_t at = stage->n_returned;
    while (at > 0 &&
           stage->items[stage->returned[at - 1]].number > stage->items[extent].number) {
        stage->returned[at] = stage->returned[at - 1];
        at--;
    }
    stage->returned[at] = extent;
    stage->n_returned++;
}

uint32_t stg_item_take_returned(struct stg_stage *stage, uint32_t i)
{
    uint32_t extent = stage->returned[i];
    stage->n_returned--;
    memmove(&stage->returned[i], &stage->returned[i + 1],
            (stage->n_returned - i) * sizeof(stage->returned[0]));
    return extent;
}

void stg_item_put_aside(struct stg_stage *stage)
{
    uint32_t extent = stg_buffer_at(stage, stage->queue_first);
    stage->items[extent].n_owed++;
    stage->items[extent].is_aside = true;
    stg_buffer_pop(stage);
    stg_item_return(stage, extent);
}
