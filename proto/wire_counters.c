/* SPDX-License-Identifier: Apache-2.0
 *
 * The names and counters of a pipeline in the reply to `status`.
 */
#include "proto/wire_parts.h"

void stg_wire_counters_fill(const struct stg_pipeline_status *from,
                            Stager__StatusReply *to)
{
    to->name = stg_wire_required(from->name);
    to->state = stg_wire_optional(from->state);
    to->delivery = stg_wire_optional(from->delivery);
    to->last_error = stg_wire_optional(from->last_error);
    STG_PUT(to, generation, from->generation);
    STG_PUT(to, run_id, from->run_id);
    STG_PUT(to, pass, from->pass);
    STG_PUT(to, epoch, from->epoch);
    STG_PUT(to, capacity, from->capacity);
    STG_PUT(to, num_threads, from->num_threads);
    STG_PUT(to, num_clients, from->num_clients);
    STG_PUT(to, buffered, from->buffered);
    STG_PUT(to, published, from->published);
    STG_PUT(to, assigned, from->assigned);
    STG_PUT(to, released, from->released);
    STG_PUT(to, dropped, from->dropped);
    STG_PUT(to, dropped_rows, from->dropped_rows);
    STG_PUT(to, errors, from->errors);
    STG_PUT(to, redelivered, from->redelivered);
    STG_PUT(to, lost, from->lost);
    STG_PUT(to, rows, from->rows);
    STG_PUT(to, bytes, from->bytes);
    STG_PUT(to, memory_bytes, from->memory_bytes);
    STG_PUT(to, memory_used_bytes, from->memory_used_bytes);
    STG_PUT(to, quarantined_bytes, from->quarantined_bytes);
    STG_PUT(to, max_batch_bytes, from->max_batch_bytes);
    STG_PUT(to, producer_wait_ns, from->producer_wait_ns);
    STG_PUT(to, producer_busy_ns, from->producer_busy_ns);
    STG_PUT(to, timeouts, from->timeouts);
    STG_PUT(to, n_clients_left_out, from->n_clients_left_out);
    STG_PUT(to, made, from->made);
    STG_PUT(to, ignored, from->ignored);
    STG_PUT(to, ignored_elements, from->ignored_elements);
    STG_PUT(to, in_hand, from->in_hand);
    STG_PUT(to, discarded, from->discarded);
    STG_PUT(to, acknowledged, from->acknowledged);
    STG_PUT(to, unacknowledged, from->unacknowledged);
    STG_PUT(to, discarded_published, from->discarded_published);
    STG_PUT(to, evicted, from->evicted);
    STG_PUT(to, feed_version, from->feed_version);
    STG_PUT(to, incomplete_rounds, from->incomplete_rounds);
    to->on_timeout = stg_wire_optional(from->on_timeout);
    to->container = stg_wire_optional(from->container);
    STG_PUT(to, container_tables, from->container_tables);
    STG_PUT(to, container_caches, from->container_caches);
    STG_PUT(to, container_bytes, from->container_bytes);
    to->py_function = stg_wire_optional(from->py_function);
    STG_PUT(to, workers, from->workers);
    STG_PUT(to, worker_calls, from->worker_calls);
    STG_PUT(to, workers_lost, from->workers_lost);
    stg_wire_gpu_status_fill(from, to);
    STG_PUT(to, pipeline, from->pipeline);
    STG_PUT(to, cut, from->cut);
    STG_PUT(to, own_cuts, from->own_cuts);
    to->moved = (char **)(uintptr_t)from->moved;
    to->n_moved = from->n_moved;
}

void stg_wire_counters_take(const Stager__StatusReply *from,
                            struct stg_pipeline_status *ret)
{
    *ret = (struct stg_pipeline_status){.name = from->name,
                                        .state = stg_wire_taken(from->state),
                                        .delivery = stg_wire_taken(from->delivery),
                                        .last_error = stg_wire_taken(from->last_error),
                                        .generation = from->generation,
                                        .run_id = from->run_id,
                                        .pass = from->pass,
                                        .epoch = from->epoch,
                                        .capacity = from->capacity,
                                        .num_threads = from->num_threads,
                                        .num_clients = from->num_clients,
                                        .buffered = from->buffered,
                                        .published = from->published,
                                        .assigned = from->assigned,
                                        .released = from->released,
                                        .dropped = from->dropped,
                                        .dropped_rows = from->dropped_rows,
                                        .errors = from->errors,
                                        .redelivered = from->redelivered,
                                        .lost = from->lost,
                                        .rows = from->rows,
                                        .bytes = from->bytes,
                                        .memory_bytes = from->memory_bytes,
                                        .memory_used_bytes = from->memory_used_bytes,
                                        .quarantined_bytes = from->quarantined_bytes,
                                        .max_batch_bytes = from->max_batch_bytes,
                                        .producer_wait_ns = from->producer_wait_ns,
                                        .producer_busy_ns = from->producer_busy_ns,
                                        .timeouts = from->timeouts,
                                        .made = from->made,
                                        .ignored = from->ignored,
                                        .ignored_elements = from->ignored_elements,
                                        .in_hand = from->in_hand,
                                        .discarded = from->discarded,
                                        .acknowledged = from->acknowledged,
                                        .unacknowledged = from->unacknowledged,
                                        .discarded_published = from->discarded_published,
                                        .evicted = from->evicted,
                                        .feed_version = from->feed_version,
                                        .incomplete_rounds = from->incomplete_rounds,
                                        .on_timeout = stg_wire_taken(from->on_timeout),
                                        .container = stg_wire_taken(from->container),
                                        .container_tables = from->container_tables,
                                        .container_caches = from->container_caches,
                                        .container_bytes = from->container_bytes,
                                        .py_function = stg_wire_taken(from->py_function),
                                        .workers = from->workers,
                                        .worker_calls = from->worker_calls,
                                        .workers_lost = from->workers_lost,
                                        .pipeline = from->pipeline,
                                        .n_clients_left_out = from->n_clients_left_out};
    stg_wire_gpu_status_take(from, ret);
    ret->cut = from->cut;
    ret->own_cuts = from->own_cuts;
    ret->moved = (const char *const *)from->moved;
    ret->n_moved = from->n_moved;
}
