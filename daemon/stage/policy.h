/* SPDX-License-Identifier: Apache-2.0
 *
 * The policies of delivery: split, broadcast, round_robin. A policy is a constant table
 * of pure functions. It reads a view of the stage's parts and emits assignments; the
 * stage (delivery.c) applies them. A policy sees no stage, so it can change nothing.
 */
#ifndef STG_DAEMON_STAGE_POLICY_H
#define STG_DAEMON_STAGE_POLICY_H

#include "daemon/stage/membership.h"

/* The input of a policy. */
struct stg_delivery_view {
    const struct stg_buffer *buffer;
    const struct stg_membership *members;
    const struct stg_pass *pass;
    const struct stg_partitions
        *partitions; /* NULL: the boundary has no other partition */
    uint32_t num_clients;
};

/* One client's part of a step. */
struct stg_assignment {
    struct stg_client *client;
    uint32_t extent; /* STG_NO_EXTENT: the client skips an item, or its pass ends */
    uint64_t n_gaps; /* missing numbers before it, counted for this client */
    uint64_t skipped, cursor; /* of the client, afterwards */
    bool skips_error;         /* an error item that its state counts as delivered */
};

/* One step of delivery: the assignments, then the changes to the buffer. */
struct stg_assignments {
    struct stg_assignment *all; /* room for num_clients */
    uint32_t n, max;
    uint64_t n_taken;      /* items that leave the front of the buffer */
    uint64_t front;        /* ordinal of the item that moves to the front before that */
    uint64_t gaps_counted; /* of the buffer, afterwards */
    uint32_t returned; /* index of the returned item that is assigned; or STG_NO_EXTENT */
    bool is_lost;      /* no client can use that item any more */
    bool is_deferred;  /* the first item leaves the buffer and waits */
    bool discards;     /* at the end of a pass: discards the buffer */
};

struct stg_policy {
    const char *name;
    bool together; /* begins when num_clients are attached; reserves the place of a client
                      that may come back, and its unacknowledged items */
    bool is_ranked; /* each client has a rank, and a pass needs all of them */
    /* Emits the next step. Returns false if nothing can be assigned. */
    bool (*give)(const struct stg_delivery_view *view, struct stg_assignments *ret);
    /* Called when the pass is exhausted: emits the clients that have received everything,
     * so that they get its end or its failure. Returns whether the pass is over for all.
     */
    bool (*end)(const struct stg_delivery_view *view, struct stg_assignments *ret);
    /* Returns whether a published item can still be assigned to this client. */
    bool (*has_more)(const struct stg_delivery_view *view,
                     const struct stg_client *client);
    /* Returns whether other clients wait because this client has unacknowledged items, or
     * is away. */
    bool (*holds_up)(const struct stg_delivery_view *view,
                     const struct stg_client *client);
};

/* Returns the policy of a delivery. */
const struct stg_policy *stg_policy(enum stg_delivery delivery);

/* Clears *step for the next call of give or end. */
void stg_assignments_clear(struct stg_assignments *step,
                           const struct stg_delivery_view *view);

#endif
