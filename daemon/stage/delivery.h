/* SPDX-License-Identifier: Apache-2.0
 *
 * Which client gets which item, and when a pass ends: what delivery.c, client.c, expire.c
 * and the three kinds of delivery offer each other and the rest of a stage. All with the
 * stage's lock held, any thread.
 *
 * membership.c  what the state of a client says
 * releases.c    what a client posted
 * assign.c      one item to one client
 * client_open.c client.c    attaching, coming back; leaving, being away
 * split.c broadcast.c round_robin.c    one table of functions each
 * delivery.c    all of it in order: releases, deliveries, passes, doorbells
 * expire.c      timeouts
 */
#ifndef STG_DAEMON_STAGE_DELIVERY_H
#define STG_DAEMON_STAGE_DELIVERY_H

#include "daemon/stage/priv.h"

/* ---- kinds (constant tables) ---- */

struct stg_delivery_kind {
    bool together; /* begins when num_clients are there; keeps the place of who may come
                      back, and what it did not acknowledge */
    /* Gives out what can be given. Returns whether anything changed. */
    bool (*give)(struct stg_stage *stage);
    /* The pass is drawn out: tells its end (stg_client_end), or the stage's failure, to
     * who has had everything. Returns whether all were told; *changed: anybody. */
    bool (*end)(struct stg_stage *stage, bool *changed);
    /* Is something published that this client can still be given? */
    bool (*has_more)(const struct stg_stage *stage, const struct stg_client *client);
    /* Do others wait because of what this one did not acknowledge (or, when it is away,
     * for it)? */
    bool (*holds_up)(const struct stg_stage *stage, const struct stg_client *client);
    /* It went for good; in the middle of a pass, or not; `why` completes a sentence.
     * NULL: the others go on. */
    void (*gone)(struct stg_stage *stage, const struct stg_client *client,
                 bool in_the_middle, const char *why);
};

extern const struct stg_delivery_kind stg_delivery_split;
extern const struct stg_delivery_kind stg_delivery_broadcast;
extern const struct stg_delivery_kind stg_delivery_round_robin;

const struct stg_delivery_kind *stg_delivery_kind(enum stg_delivery delivery);

/* ---- delivery.c ---- */

/* Takes in releases and acknowledgements of every client, gives out what can be given,
 * ends the pass, begins the next one, frees clients that have left and hold nothing.
 * Records which doorbells are to ring and which runners are to wake. */
void stg_delivery_run(struct stg_stage *stage);

/* Does what clients do change anything before the next item is published? While it does
 * not, nobody is asked to ring: that item's runner looks at what they did. */
bool stg_awaits_clients(const struct stg_stage *stage);

/* How long it has slept for want of what it was not given yet. */
uint64_t stg_client_waits_ns(const struct stg_client *client, uint64_t now_ns);

/* Is every item of the pass published, and none to come? */
bool stg_pass_drawn_out(const struct stg_stage *stage);

/* The pass that it is in: the running one, or the next to begin. */
uint64_t stg_client_pass(const struct stg_client *client);

/* Did the client ask for the pass that it is in now? It can ask for one pass more than it
 * has the ends of, so that a client that reads no ends does not start pass after pass. */
bool stg_client_wants_pass(const struct stg_client *client);

/* Is it attached, and asks for the pass that is next or runs? */
bool stg_client_asks(const struct stg_stage *stage, const struct stg_client *client);

/* Is it attached and in the running pass? Only then it is given new items. */
bool stg_client_in_pass(const struct stg_stage *stage, const struct stg_client *client);

/* Free credits of an attached client, 0 of another. */
uint32_t stg_client_credits(const struct stg_stage *stage,
                            const struct stg_client *client);

/* The oldest item that it was given and did not acknowledge, or NULL. */
const struct stg_assigned *stg_client_unacknowledged(const struct stg_client *client);

/* Takes in what lies in its control page. INVALID_ARGUMENT: the page is broken. */
int stg_client_take_in(struct stg_stage *stage, struct stg_client *client,
                       struct stg_err *err);

/* Assigns the item to the client. again: it was given before (it is owed already, and the
 * descriptor says redelivered). False: no credit. */
bool stg_client_give(struct stg_stage *stage, struct stg_client *client, uint32_t extent,
                     bool again);

/* Gives what the client is owed since it came back. Whether anything changed. */
bool stg_client_give_owed(struct stg_stage *stage, struct stg_client *client);

/* The end of its pass, or the stage's failure. */
void stg_client_end(struct stg_stage *stage, struct stg_client *client);

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

/* Does it take part in the run: attached, or away? */
bool stg_client_takes_part(const struct stg_client *client);

/* The client that is joining under the name of this one, which is away; or NULL. */
const struct stg_client *stg_client_successor(const struct stg_stage *stage,
                                              const struct stg_client *away);

/* Is no client attached, away or joining? */
bool stg_stage_is_empty(const struct stg_stage *stage);

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

void stg_client_free(struct stg_client *client);

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

/* ---- membership.c ---- */

/* Items that it took out of its rings. */
uint64_t stg_client_taken(const struct stg_client *client);

/* How long clients slept for want of items, ever. Counts what was not counted yet. */
uint64_t stg_clients_waited_ns(struct stg_membership *members, uint64_t now_ns);

/* A copy that lives in bump; "?" without memory. */
const char *stg_text_keep(struct stg_bump *bump, const char *text);

/* Appends the clients: attached, away, detached, gone. */
void stg_clients_show(const struct stg_stage *stage, struct stg_bump *bump,
                      struct stg_pipeline_status *ret);

/* Remembers a client that is gone. */
void stg_gone_note(struct stg_stage *stage, const struct stg_client *client);

#endif
