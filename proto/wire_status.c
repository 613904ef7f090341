/* SPDX-License-Identifier: Apache-2.0
 *
 * The reply `status`: counters of a pipeline, what `auto` stands for, its clients, and
 * the batches of closed streams that processes keep (which `list` has too).
 */
#include "proto/wire_parts.h"

#define STATUS_TEXTS(F)                                                                  \
    F(state), F(delivery), F(last_error), F(on_timeout), F(container), F(py_function),   \
        F(gpu), F(gpu_why), F(thread_pool), F(commit_problem), F(remote)
#define STATUS_NUMBERS(F)                                                                \
    F(generation), F(run_id), F(pass), F(epoch), F(capacity), F(num_threads),            \
        F(num_clients), F(buffered), F(published), F(assigned), F(released), F(dropped), \
        F(dropped_rows), F(errors), F(redelivered), F(lost), F(rows), F(bytes),          \
        F(memory_bytes), F(memory_used_bytes), F(quarantined_bytes), F(max_batch_bytes), \
        F(producer_wait_ns), F(producer_busy_ns), F(timeouts), F(n_clients_left_out),    \
        F(made), F(ignored), F(ignored_elements), F(remainder_elements), F(in_hand),     \
        F(discarded), F(acknowledged), F(unacknowledged), F(discarded_published),        \
        F(evicted), F(feed_version), F(incomplete_rounds), F(container_tables),          \
        F(container_caches), F(container_bytes), F(workers), F(worker_calls),            \
        F(workers_lost), F(pipeline), F(partition), F(own_partitions), F(gpu_copies),    \
        F(capacity_auto), F(num_threads_auto), F(num_clients_auto), F(max_capacity),     \
        F(max_num_threads), F(warming_generation), F(warming_buffered), F(window_ns),    \
        F(window_batches), F(window_rows), F(window_clients_ns), F(window_wait_ns)
#define CLIENT_TEXTS(F) F(client_id), F(program), F(state), F(last_error)
#define CLIENT_NUMBERS(F)                                                                \
    F(pid), F(uid), F(max_in_flight), F(held), F(assigned), F(taken), F(released),       \
        F(redelivered), F(wait_ns), F(violations), F(acknowledged), F(gaps), F(lost),    \
        F(daemon_wait_ns), F(batch_size), F(rank)
#define QUARANTINED_TEXTS(F) F(program), F(pipeline)
#define QUARANTINED_NUMBERS(F) F(pid), F(uid), F(n_batches), F(bytes)

/* ---- batches of closed streams ---- */

int stg_wire_quarantined_fill(const struct stg_quarantined *all, size_t n,
                              struct stg_bump *bump, size_t *ret_n,
                              Stager__Quarantined ***ret)
{
    Stager__Quarantined **messages =
        stg_wire_messages(bump, n, sizeof(Stager__Quarantined));
    if (messages == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < n; i++) {
        const struct stg_quarantined *from = &all[i];
        Stager__Quarantined *to = messages[i];
        stager__quarantined__init(to);
        QUARANTINED_TEXTS(STG_PUT_TEXT);
        QUARANTINED_NUMBERS(STG_PUT_NUMBER);
    }
    *ret_n = n;
    *ret = messages;
    return 0;
}

int stg_wire_quarantined_take(Stager__Quarantined *const *messages, size_t n,
                              struct stg_bump *bump, size_t *ret_n,
                              struct stg_quarantined **ret_all)
{
    struct stg_quarantined *all = stg_bump_alloc(bump, n * sizeof(*all));
    if (all == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < n; i++) {
        const Stager__Quarantined *from = messages[i];
        struct stg_quarantined *ret = &all[i];
        QUARANTINED_TEXTS(STG_TAKE_TEXT);
        QUARANTINED_NUMBERS(STG_TAKE_NUMBER);
    }
    *ret_n = n;
    *ret_all = all;
    return 0;
}

/* ---- clients ---- */

static int clients_fill(const struct stg_pipeline_status *status, struct stg_bump *bump,
                        Stager__StatusReply *reply)
{
    reply->client =
        stg_wire_messages(bump, status->n_clients, sizeof(Stager__ClientStatus));
    if (reply->client == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    reply->n_client = status->n_clients;
    for (size_t i = 0; i < status->n_clients; i++) {
        const struct stg_client_status *from = &status->clients[i];
        Stager__ClientStatus *to = reply->client[i];
        stager__client_status__init(to);
        CLIENT_TEXTS(STG_PUT_TEXT);
        CLIENT_NUMBERS(STG_PUT_NUMBER);
    }
    return 0;
}

static int clients_take(const Stager__StatusReply *reply, struct stg_bump *bump,
                        struct stg_pipeline_status *status)
{
    status->clients = stg_bump_alloc(bump, reply->n_client * sizeof(*status->clients));
    if (status->clients == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    status->n_clients = reply->n_client;
    for (size_t i = 0; i < reply->n_client; i++) {
        const Stager__ClientStatus *from = reply->client[i];
        struct stg_client_status *ret = &status->clients[i];
        CLIENT_TEXTS(STG_TAKE_TEXT);
        CLIENT_NUMBERS(STG_TAKE_NUMBER);
    }
    return 0;
}

/* ---- what `auto` stands for ---- */

static int tuned_fill(const struct stg_pipeline_status *from, struct stg_bump *bump,
                      Stager__StatusReply *to)
{
    Stager__Tuned **all = stg_wire_messages(bump, from->n_tuned, sizeof(Stager__Tuned));
    if (all == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < from->n_tuned; i++) {
        const struct stg_tuned *tuned = &from->tuned[i];
        stager__tuned__init(all[i]);
        all[i]->what = stg_wire_required(tuned->what);
        all[i]->why = stg_wire_required(tuned->why);
        all[i]->from = tuned->from;
        all[i]->to = tuned->to;
    }
    to->tuned = all;
    to->n_tuned = from->n_tuned;
    return 0;
}

static int tuned_take(const Stager__StatusReply *from, struct stg_bump *bump,
                      struct stg_pipeline_status *ret)
{
    struct stg_tuned *tuned = stg_bump_alloc(bump, from->n_tuned * sizeof(*tuned));
    if (tuned == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < from->n_tuned; i++)
        tuned[i] = (struct stg_tuned){.what = from->tuned[i]->what,
                                      .why = from->tuned[i]->why,
                                      .from = from->tuned[i]->from,
                                      .to = from->tuned[i]->to};
    ret->tuned = tuned;
    ret->n_tuned = from->n_tuned;
    return 0;
}

/* ---- progress ---- */

static int progress_fill(const struct stg_pipeline_status *from, struct stg_bump *bump,
                         Stager__StatusReply *to)
{
    Stager__Progress **all =
        stg_wire_messages(bump, from->n_progress, sizeof(Stager__Progress));
    if (all == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < from->n_progress; i++) {
        const struct stg_status_progress *progress = &from->progress[i];
        stager__progress__init(all[i]);
        all[i]->what = stg_wire_required(progress->what);
        all[i]->unit = stg_wire_required(progress->unit);
        STG_PUT(all[i], done, progress->done);
        STG_PUT(all[i], total, progress->total);
        STG_PUT(all[i], elapsed_ns, progress->elapsed_ns);
    }
    to->progress = all;
    to->n_progress = from->n_progress;
    return 0;
}

static int progress_take(const Stager__StatusReply *from, struct stg_bump *bump,
                         struct stg_pipeline_status *ret)
{
    ret->progress = stg_bump_alloc(bump, from->n_progress * sizeof(*ret->progress));
    if (ret->progress == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < from->n_progress; i++)
        ret->progress[i] =
            (struct stg_status_progress){.what = from->progress[i]->what,
                                         .unit = from->progress[i]->unit,
                                         .done = from->progress[i]->done,
                                         .total = from->progress[i]->total,
                                         .elapsed_ns = from->progress[i]->elapsed_ns};
    ret->n_progress = from->n_progress;
    return 0;
}

/* ---- the reply ---- */

int stg_wire_status_fill(const struct stg_pipeline_status *from, struct stg_bump *bump,
                         Stager__StatusReply *to)
{
    stager__status_reply__init(to);
    to->name = stg_wire_required(from->name);
    STATUS_TEXTS(STG_PUT_TEXT);
    STATUS_NUMBERS(STG_PUT_NUMBER);
    to->moved = (char **)(uintptr_t)from->moved;
    to->n_moved = from->n_moved;
    int rc = clients_fill(from, bump, to);
    if (rc == 0)
        rc = tuned_fill(from, bump, to);
    if (rc == 0)
        rc = progress_fill(from, bump, to);
    if (rc == 0)
        rc = stg_wire_quarantined_fill(from->quarantined, from->n_quarantined, bump,
                                       &to->n_quarantined, &to->quarantined);
    return rc;
}

int stg_wire_status_take(const Stager__StatusReply *from, struct stg_bump *bump,
                         struct stg_pipeline_status *ret)
{
    *ret = (struct stg_pipeline_status){.name = from->name};
    STATUS_TEXTS(STG_TAKE_TEXT);
    STATUS_NUMBERS(STG_TAKE_NUMBER);
    ret->moved = (const char *const *)from->moved;
    ret->n_moved = from->n_moved;
    int rc = clients_take(from, bump, ret);
    if (rc == 0)
        rc = tuned_take(from, bump, ret);
    if (rc == 0)
        rc = progress_take(from, bump, ret);
    if (rc == 0)
        rc = stg_wire_quarantined_take(from->quarantined, from->n_quarantined, bump,
                                       &ret->n_quarantined, &ret->quarantined);
    return rc;
}
