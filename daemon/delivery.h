/* SPDX-License-Identifier: Apache-2.0
 *
 * What delivery.c and expire.c offer the rest of a stage. All with the stage's lock held,
 * any thread.
 */
#ifndef STG_DAEMON_DELIVERY_H
#define STG_DAEMON_DELIVERY_H

#include "daemon/stage_priv.h"

/* Takes in releases and acknowledgements of every client, gives out what can be given,
 * ends the pass, begins the next one, rings whom it concerns, wakes waiting runners. */
void stg_delivery_run(struct stg_stage *stage);

/* Is every item of the pass published, and none to come? */
bool stg_pass_drawn_out(const struct stg_stage *stage);

/* Is it attached, and asks for the pass that is next or runs? */
bool stg_client_asks(const struct stg_stage *stage, const struct stg_client *client);

/* May one more item be published? Counts items that were not yet assigned (rounds, under
 * round_robin; under broadcast until the slowest client was assigned it). */
bool stg_stage_has_room(const struct stg_stage *stage);

/* The item, of a sealed extent, takes its place at the end of the buffer, its turn and
 * room being there. number, bytes, rows and is_error of *item are used. Give it out with
 * stg_delivery_run. */
void stg_item_publish(struct stg_stage *stage, uint32_t extent,
                      const struct stg_item *item);

/* on_timeout: evict. Detaches the client that holds up the others most, with
 * DEADLINE_EXCEEDED and `why` as its last words: there may be room now. False when there
 * is none to evict: under split nobody holds up another. */
bool stg_stage_evict_slowest(struct stg_stage *stage, const char *why);

/* The stage's reference on an item's extent goes. */
void stg_item_drop(struct stg_stage *stage, uint32_t extent);

/* The client gets nothing any more; what it did not acknowledge goes to others (split).
 */
void stg_client_detach(struct stg_stage *stage, struct stg_client *client);

/* As detach, after telling it why (code positive) and shutting its socket. */
void stg_client_expel(struct stg_stage *stage, struct stg_client *client, int code,
                      const char *text);

/* expire.c: detaches clients whose clock has run out. now_ns is not before the last
 * assignment. */
void stg_expire_clients(struct stg_stage *stage, uint64_t now_ns);

#endif
