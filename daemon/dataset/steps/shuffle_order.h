/* SPDX-License-Identifier: Apache-2.0
 *
 * What a shuffle's buffer holds after so many picks, without the picks before: a pick
 * takes slot random(k) below n, the last slot fills the hole, and the next record of the
 * input goes to the end. Followed backwards from the slots, each comes to the record that
 * it holds after about size x ln(size) picks. Any thread.
 */
#ifndef STG_DAEMON_SHUFFLE_ORDER_H
#define STG_DAEMON_SHUFFLE_ORDER_H

#include "core/random.h"

struct stg_shuffle_order {
    uint64_t buffer_size;
    uint64_t n_records; /* of the input; or any number from buffer_size + n_picks on */
    uint64_t n_picks;   /* 1 to n_records */
};

/* Returns how many slots are taken after the last pick, before the next record enters,
 * and how many records of the input have entered by then. */
uint64_t stg_shuffle_order_held(const struct stg_shuffle_order *order);
uint64_t stg_shuffle_order_entered(const struct stg_shuffle_order *order);

/* Sets ret[slot] to the number of the record in the slot, for each slot that is taken.
 * work: room for min(buffer_size, n_records) numbers. Picks from that stream. */
void stg_shuffle_order_find(const struct stg_shuffle_order *order,
                            struct stg_random *random, uint64_t *work, uint64_t *ret);

#endif
