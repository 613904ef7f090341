/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/steps/shuffle_order.h"

#define NONE UINT64_MAX

/* Slots that are taken when the buffer is full. */
static uint64_t full(const struct stg_shuffle_order *order)
{
    return order->buffer_size < order->n_records ? order->buffer_size : order->n_records;
}

/* Slots that are taken before pick k. The buffer is full as long as records enter. */
static uint64_t taken(const struct stg_shuffle_order *order, uint64_t k)
{
    uint64_t size = full(order), n_more = order->n_records - size;
    return k <= n_more ? size : size - (k - n_more);
}

uint64_t stg_shuffle_order_held(const struct stg_shuffle_order *order)
{
    return taken(order, order->n_picks - 1) - 1;
}

uint64_t stg_shuffle_order_entered(const struct stg_shuffle_order *order)
{
    uint64_t size = full(order), n_more = order->n_records - size;
    uint64_t n = order->n_picks - 1;
    return size + (n < n_more ? n : n_more);
}

/* slots[i]: the slot that holds, after the last pick, what is in slot i now. From after
 * pick k to before it. */
static void undo_pick(struct stg_random *random, uint64_t k, uint64_t n, uint64_t *slots)
{
    uint64_t at = stg_random_below(random, k, n);
    slots[n - 1] = at < n - 1 ? slots[at] : NONE;
    slots[at] = at < n - 1 ? NONE : slots[at];
}

void stg_shuffle_order_find(const struct stg_shuffle_order *order,
                            struct stg_random *random, uint64_t *work, uint64_t *ret)
{
    uint64_t size = full(order), n_more = order->n_records - size;
    uint64_t unknown = stg_shuffle_order_held(order);
    for (uint64_t i = 0; i < size; i++)
        work[i] = i < unknown ? i : NONE;
    for (uint64_t k = order->n_picks; unknown > 0 && k-- > 0;) {
        undo_pick(random, k, taken(order, k), work);
        if (k == 0 || k > n_more || work[size - 1] == NONE)
            continue;
        ret[work[size - 1]] = size + k - 1;
        work[size - 1] = NONE;
        unknown--;
    }
    for (uint64_t i = 0; unknown > 0 && i < size; i++) {
        if (work[i] != NONE)
            ret[work[i]] = i;
    }
}
