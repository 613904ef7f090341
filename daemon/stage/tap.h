/* SPDX-License-Identifier: Apache-2.0
 *
 * Looks at published batches: a wish is granted with a copy of the first values of the
 * next batch that any stage of the definition publishes. Clients do not notice: a stage
 * makes no batch for it, holds none back, and copies at most STG_TAP_BYTES of one that it
 * publishes anyway.
 */
#ifndef STG_DAEMON_STAGE_TAP_H
#define STG_DAEMON_STAGE_TAP_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/layout.h"
#include "proto/wire.h"

#define STG_TAP_TENSORS 256u
#define STG_TAP_BYTES 32768u    /* of names and values */
#define STG_TAP_VALUES 8        /* of a tensor */
#define STG_TAP_STRING_BYTES 64 /* of a string */

/* The loop's, from ask to withdraw. */
struct stg_tap_wish {
    struct stg_tap_wish *next;
    _Atomic bool is_granted; /* the rest is the loop's from here on */
    struct stg_tap_batch batch;
    struct stg_tap_tensor tensors[STG_TAP_TENSORS];
    size_t n_used;
    _Alignas(8) char bytes[STG_TAP_BYTES];
};

/* Of a definition: any thread. */
struct stg_tap {
    pthread_mutex_t lock; /* of the list; taken under the lock of a stage */
    _Atomic(struct stg_tap_wish *) first; /* not granted, the oldest first */
};

void stg_tap_init(struct stg_tap *tap);
void stg_tap_finish(struct stg_tap *tap); /* no wish is left */

/* A zeroed wish. */
void stg_tap_ask(struct stg_tap *tap, struct stg_tap_wish *wish);

/* Returns whether the wish has its batch. */
static inline bool stg_tap_is_granted(const struct stg_tap_wish *wish)
{
    return atomic_load_explicit(&wish->is_granted, memory_order_acquire);
}

/* Takes a wish back, granted or not. */
void stg_tap_withdraw(struct stg_tap *tap, struct stg_tap_wish *wish);

/* Grants the oldest wish with a batch that is complete. One check of a flag if there is
 * none, or no tap (NULL). */
void stg_tap_show(struct stg_tap *tap, const struct stg_batch_header *batch);

#endif
