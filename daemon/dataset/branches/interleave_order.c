/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/branches/interleave_order.h"

#define EMPTY UINT64_MAX

void stg_interleave_order_begin(struct stg_interleave_order *order)
{
    for (uint32_t i = 0; i < order->n_slots; i++)
        order->slots[i].file = EMPTY;
    order->n_open = order->at = 0;
    order->left = order->block_length;
    order->n_files = 0;
}

static void go_on(struct stg_interleave_order *order)
{
    order->at = (order->at + 1) % order->n_slots;
    order->left = order->block_length;
}

/* The next file to the slot. 1: it does not exist. */
static int fill(struct stg_interleave_order *order, struct stg_interleave_slot *slot,
                struct stg_err *err)
{
    uint64_t n_records;
    int rc = order->count(order->owner, order->n_files, &n_records, err);
    if (rc != 0)
        return rc;
    *slot =
        (struct stg_interleave_slot){.file = order->n_files++, .n_records = n_records};
    order->n_open++;
    return 0;
}

/* Goes through all slots as often as each has a whole block, for up to n records. */
static uint64_t skip_rounds(struct stg_interleave_order *order, uint64_t n)
{
    uint64_t block = order->block_length, all;
    if (order->at > 0 || order->left < block || order->n_open < order->n_slots ||
        __builtin_mul_overflow(block, order->n_slots, &all))
        return 0;
    uint64_t rounds = n / all;
    for (uint32_t i = 0; i < order->n_slots; i++) {
        uint64_t has = (order->slots[i].n_records - order->slots[i].n_done) / block;
        rounds = has < rounds ? has : rounds;
    }
    for (uint32_t i = 0; i < order->n_slots; i++)
        order->slots[i].n_done += rounds * block;
    return rounds * all;
}

/* Up to n records of the visited slot. 1: no file has more. */
static int visit(struct stg_interleave_order *order, uint64_t n, uint64_t *ret,
                 struct stg_err *err)
{
    struct stg_interleave_slot *slot = &order->slots[order->at];
    int rc = slot->file == EMPTY ? fill(order, slot, err) : 0;
    if (rc != 0 && (rc != 1 || order->n_open == 0))
        return rc;
    uint64_t has = rc == 0 ? slot->n_records - slot->n_done : 0;
    if (rc == 0 && has == 0) {
        slot->file = EMPTY;
        order->n_open--;
    }
    n = has < n ? has : n;
    n = order->left < n ? order->left : n;
    if (n > 0)
        slot->n_done += n;
    order->left -= n;
    if (has == 0 || order->left == 0)
        go_on(order);
    *ret += n;
    return 0;
}

int stg_interleave_order_skip(struct stg_interleave_order *order, uint64_t n,
                              uint64_t *ret, struct stg_err *err)
{
    int rc = 0;
    *ret = 0;
    while (rc == 0 && *ret < n) {
        *ret += skip_rounds(order, n - *ret);
        if (*ret < n)
            rc = visit(order, n - *ret, ret, err);
    }
    return rc == 1 ? 0 : rc;
}
