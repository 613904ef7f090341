/* SPDX-License-Identifier: Apache-2.0
 *
 * What delivery.c, client.c and expire.c offer each other and the rest of a stage. All
 * with the stage's lock held, any thread.
 */
#ifndef STG_DAEMON_STAGE_DELIVERY_H
#define STG_DAEMON_STAGE_DELIVERY_H

#include "daemon/stage/priv.h"

/* ---- releases.c ---- */

/* Takes in what lies in its control page. INVALID_ARGUMENT: the page is broken. */
int stg_client_take_in(struct stg_stage *stage, struct stg_client *client,
                       struct stg_err *err);

/* ---- assign.c ---- */

/* Gives the client what it is owed since it came back. Whether anything changed. */
bool stg_client_give_owed(struct stg_stage *stage, struct stg_client *client);

/* Applies one step of the policy. Whether anything changed. */
bool stg_stage_assign(struct stg_stage *stage);

/* Ends the pass for the clients that had everything; *changed: for any. Returns whether
 * it is over for all. */
bool stg_stage_assign_ends(struct stg_stage *stage, bool *changed);

/* Gives the client the end of its pass. */
void stg_client_end(struct stg_stage *stage, struct stg_client *client);

/* ---- delivery.c ---- */

/* Takes in releases and acknowledgements of every client, gives out what can be given,
 * ends the pass, begins the next one, frees clients that have left and hold nothing.
 * Records which doorbells are to ring and which runners are to wake. */
void stg_delivery_run(struct stg_stage *stage);

/* Does what clients do change anything before the next item is published? While it does
 * not, nobody is asked to ring: that item's runner looks at what they did. */
bool stg_awaits_clients(const struct stg_stage *stage);

/* ---- client_open.c ---- */

/* Makes a client and its pages, without the lock. It is nowhere yet: stg_client_free. */
int stg_client_create(const struct stg_attach *attach, uint64_t instance,
                      struct stg_client **ret, struct stg_err *err);

/* Checks whether it may attach, and keeps a place for it: it is joining. Nothing else
 * changes. */
int stg_client_open(struct stg_stage *stage, const struct stg_attach *attach,
                    struct stg_client *client, struct stg_err *err);

/* May a client that is joining attach, as things are now? Else the stage is stopping, or
 * a client that joined meanwhile cannot be attached together with it. */
int stg_client_may_join(const struct stg_stage *stage, const struct stg_client *client,
                        struct stg_err *err);

/* Attaches it, after the reply was sent. It takes over the place of the one that is away
 * under its name. A stage that stops meanwhile tells it that next. */
void stg_client_join(struct stg_stage *stage, struct stg_client *client);

/* ---- client.c ---- */

/* Frees a client that is joining, as if it had never come. */
void stg_client_cancel(struct stg_stage *stage, struct stg_client *client);

/* Its socket is closed: it is away when it may come back, else gone. */
void stg_client_leave(struct stg_stage *stage, struct stg_client *client);

/* How it went that is away or gone of itself: "left" or "died". */
const char *stg_client_how(const struct stg_client *client);

/* It is told why (code positive), its socket is shut, and it is gone; who is away is
 * waited for no longer. */
void stg_client_expel(struct stg_stage *stage, struct stg_client *client, int code,
                      const char *text);

/* A violation costs its author the stream. `why` names what is wrong with its page. */
void stg_client_expel_violator(struct stg_stage *stage, struct stg_client *client,
                               const char *why);

/* Its process is dead, or holds nothing: leases and pages go. */
void stg_client_reap(struct stg_stage *stage, struct stg_client *client);

/* Frees those that are gone and that no session knows. */
void stg_clients_bury(struct stg_stage *stage);

/* Discards what is in the buffer: no client will take it. */
void stg_stage_discard(struct stg_stage *stage);

/* Nobody can go on: ABORTED to all, and the stage stops. */
void stg_stage_abort(struct stg_stage *stage, const char *text);

/* Who is away is waited for no longer; `why` completes a sentence. */
void stg_client_forget(struct stg_stage *stage, struct stg_client *client,
                       const char *why);

/* When nobody is left, and nobody may come back, the stage stops (unless keep_warm). */
void stg_stage_stop_when_left(struct stg_stage *stage);

/* ---- expire.c ---- */

/* on_timeout: evict. Detaches the client that holds up the others most, with
 * DEADLINE_EXCEEDED and `why` as its last words: there may be room now. False when there
 * is none to evict: under split nobody holds up another. */
bool stg_stage_evict_slowest(struct stg_stage *stage, const char *why);

/* Detaches clients whose clock has run out. now_ns is not before the last assignment.
 * Whether anybody went. */
bool stg_expire_clients(struct stg_stage *stage, uint64_t now_ns);

/* When the next who is away stops being waited for, or UINT64_MAX. */
uint64_t stg_expire_next_ns(const struct stg_stage *stage);

#endif
