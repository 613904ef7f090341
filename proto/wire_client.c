/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/wire_parts.h"

void stg_wire_client_fill(const struct stg_client_status *from, Stager__ClientStatus *to)
{
    stager__client_status__init(to);
    to->client_id = stg_wire_optional(from->client_id);
    to->program = stg_wire_optional(from->program);
    to->state = stg_wire_optional(from->state);
    STG_PUT(to, pid, from->pid);
    STG_PUT(to, uid, from->uid);
    STG_PUT(to, max_held, from->max_held);
    STG_PUT(to, held, from->held);
    STG_PUT(to, assigned, from->assigned);
    STG_PUT(to, taken, from->taken);
    STG_PUT(to, released, from->released);
    STG_PUT(to, redelivered, from->redelivered);
    STG_PUT(to, wait_ns, from->wait_ns);
    STG_PUT(to, violations, from->violations);
    STG_PUT(to, acknowledged, from->acknowledged);
    STG_PUT(to, gaps, from->gaps);
    STG_PUT(to, lost, from->lost);
    STG_PUT(to, daemon_wait_ns, from->daemon_wait_ns);
    to->last_error = stg_wire_optional(from->last_error);
    STG_PUT(to, batch_size, from->batch_size);
    STG_PUT(to, rank, from->rank);
}

void stg_wire_client_take(const Stager__ClientStatus *from, struct stg_client_status *ret)
{
    *ret = (struct stg_client_status){.client_id = stg_wire_taken(from->client_id),
                                      .program = stg_wire_taken(from->program),
                                      .state = stg_wire_taken(from->state),
                                      .pid = from->pid,
                                      .uid = from->uid,
                                      .max_held = from->max_held,
                                      .held = from->held,
                                      .assigned = from->assigned,
                                      .taken = from->taken,
                                      .released = from->released,
                                      .redelivered = from->redelivered,
                                      .wait_ns = from->wait_ns,
                                      .violations = from->violations,
                                      .acknowledged = from->acknowledged,
                                      .gaps = from->gaps,
                                      .lost = from->lost,
                                      .daemon_wait_ns = from->daemon_wait_ns,
                                      .last_error = stg_wire_taken(from->last_error),
                                      .batch_size = from->batch_size,
                                      .rank = from->rank};
}
