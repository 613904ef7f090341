/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports: the counters of a stage, and what a client waits for. The latter answers the
 * request `why`, which a client makes when the deadline of its `next` passes.
 */
#include <inttypes.h>
#include <string.h>

#include "daemon/dataset/steps/py_function.h"
#include "daemon/pyworker/work.h"
#include "daemon/stage/priv.h"

#define SHOWN_NS UINT64_C(2000000000) /* what ends sooner has no progress to show */

static const char *state_name(const struct stg_stage *stage)
{
    if (stage->stop.is_on)
        return "stopping";
    if (stage->pass.failure.code != 0)
        return "failed";
    if (stage->pass.state != STG_PASS_NONE)
        return "running";
    return stage->pass.n_ended > stage->config.first_pass ? "ended" : "waiting";
}

const char *stg_stage_state(struct stg_stage *stage)
{
    pthread_mutex_lock(&stage->lock);
    const char *state = state_name(stage);
    pthread_mutex_unlock(&stage->lock);
    return state;
}

static void fill_memory(const struct stg_stage *stage, struct stg_pipeline_status *ret)
{
    struct stg_lease_usage usage;
    stg_lease_usage(stage->buffer.leases, &usage);
    ret->memory_bytes = stg_stage_arena_bytes(stage);
    ret->memory_used_bytes = usage.total - usage.free;
    /* An extent in work reserves its whole slot, of which a sparse arena backs a part. */
    if (ret->memory_used_bytes > ret->memory_bytes)
        ret->memory_used_bytes = ret->memory_bytes;
    ret->quarantined_bytes = usage.quarantined;
    ret->max_batch_bytes = stage->plan.max_batch_bytes;
}

/* Items that live: in the buffer or waiting to be given again, and the rest. */
static void fill_items(const struct stg_stage *stage, struct stg_pipeline_status *ret)
{
    ret->buffered =
        (uint32_t)(stage->buffer.next - stage->buffer.first) + stage->buffer.n_returned;
    ret->unacknowledged = 0;
    for (uint32_t i = 0; i < stage->buffer.max_extents; i++)
        ret->unacknowledged +=
            stage->buffer.items[i].lender && stage->buffer.items[i].unqueued;
    ret->unacknowledged -= stage->buffer.n_returned;
}

static void fill_tuned(struct stg_stage *stage, struct stg_bump *bump,
                       struct stg_pipeline_status *ret)
{
    struct stg_tuning_change changes[STG_TUNING_CHANGES];
    size_t n = stg_tuning_changes(stage->observers.tune.log, changes);
    struct stg_tuned *tuned = stg_bump_alloc(bump, n * sizeof(*tuned));
    for (size_t i = 0; i < n && tuned != NULL; i++)
        tuned[i] = (struct stg_tuned){.what = stg_text_keep(bump, changes[i].what),
                                      .why = stg_text_keep(bump, changes[i].change.why),
                                      .from = changes[i].change.from,
                                      .to = changes[i].change.to};
    ret->tuned = tuned;
    ret->n_tuned = tuned != NULL ? n : 0;
    ret->max_capacity = stage->observers.tune.capacity.limits.max;
    ret->max_num_threads = stage->observers.tune.threads.limits.max;
}

static void fill_gpu(struct stg_stage *stage, struct stg_bump *bump,
                     struct stg_pipeline_status *ret)
{
    char why[STG_ERR_TEXT_BYTES];
    if (stage->memory.mirror == NULL)
        return;
    ret->gpu = stage->config.spec->gpu.device;
    ret->gpu_copies = stg_mirror_status(stage->memory.mirror, why, sizeof(why));
    ret->gpu_why = stg_text_keep(bump, why);
}

static void fill_progress(struct stg_stage *stage, struct stg_bump *bump,
                          struct stg_pipeline_status *ret)
{
    struct stg_activity_task tasks[STG_ACTIVITY_TASKS];
    size_t n = stg_activity_tasks(&stage->observers.activity, tasks);
    uint64_t now = stg_now_ns();
    ret->progress = stg_bump_alloc(bump, n * sizeof(*ret->progress));
    for (size_t i = 0; i < n && ret->progress != NULL; i++) {
        const struct stg_step *step = tasks[i].step;
        struct stg_status_progress one = {
            .what = stg_bump_printf(bump, "step %s (line %d)", step->name, step->line),
            .unit = tasks[i].unit,
            .done = tasks[i].done,
            .total = tasks[i].total,
            .elapsed_ns = now - tasks[i].began_ns,
        };
        if (one.what != NULL && one.elapsed_ns >= SHOWN_NS)
            ret->progress[ret->n_progress++] = one;
    }
}

void stg_stage_show_apart(struct stg_stage *stage, struct stg_bump *bump,
                          struct stg_pipeline_status *ret)
{
    size_t n = ret->n_clients;
    pthread_mutex_lock(&stage->lock);
    stg_delivery_run(stage);
    stg_clients_show(&stage->members, bump, ret);
    for (; n < ret->n_clients; n++) {
        if (strcmp(ret->clients[n].state, "attached") == 0)
            ret->clients[n].state = "apart";
    }
    stg_stage_commit(stage);
}

/* Counts releases that came without a doorbell, too. */
static void fill_numbers(struct stg_stage *stage, struct stg_pipeline_status *ret)
{
    stg_delivery_run(stage);
    ret->state = state_name(stage);
    ret->pass = stage->pass.n_ended;
    ret->epoch = stage->pass.epoch;
    ret->made = stage->counts.n_made;
    ret->published = stage->buffer.n_published;
    ret->dropped = stage->counts.n_dropped;
    ret->dropped_rows = stage->counts.n_dropped_rows;
    ret->ignored = stage->counts.n_ignored;
    ret->ignored_elements = stage->counts.n_ignored_elements;
    ret->remainder_elements = stage->counts.n_remainder_elements;
    ret->in_hand = stage->counts.n_in_hand;
    ret->discarded = stage->counts.n_discarded;
    ret->acknowledged = stage->buffer.n_acknowledged;
    ret->lost = stage->buffer.n_lost;
    ret->discarded_published = stage->buffer.n_discarded;
    ret->incomplete_rounds = stage->counts.n_incomplete;
    ret->assigned = stage->counts.n_assigned;
    ret->released = stage->counts.n_released;
    ret->redelivered = stage->counts.n_redelivered;
    ret->evicted = stage->counts.n_evicted;
    ret->errors = stage->counts.n_errors;
    ret->timeouts = stage->counts.n_timeouts;
    ret->feed_version =
        stage->boundary.feeds != NULL ? stage->boundary.feeds->version : 0;
    ret->rows = stage->buffer.n_rows;
    ret->bytes = stage->buffer.n_bytes;
    ret->producer_wait_ns = stage->counts.wait_ns;
    ret->producer_busy_ns = stage->counts.busy_ns;
    ret->capacity = stage->buffer.capacity;
    ret->num_threads = stage->runners.n_active;
    fill_items(stage, ret);
    fill_memory(stage, ret);
}

void stg_stage_status(struct stg_stage *stage, struct stg_bump *bump,
                      struct stg_pipeline_status *ret)
{
    pthread_mutex_lock(&stage->lock);
    fill_numbers(stage, ret);
    ret->last_error = stg_text_keep(bump, stage->counts.last_error);
    stg_stage_show_partition(stage, bump, ret);
    stg_clients_show(&stage->members, bump, ret);
    fill_tuned(stage, bump, ret);
    fill_gpu(stage, bump, ret);
    stg_remote_report(stage, bump, ret);
    stg_stage_show_pace(stage, ret);
    fill_progress(stage, bump, ret);
    stg_stage_commit(stage);
}

/* ---- for metrics ---- */

void stg_stage_numbers(struct stg_stage *stage, struct stg_pipeline_status *ret)
{
    pthread_mutex_lock(&stage->lock);
    fill_numbers(stage, ret);
    stg_stage_commit(stage);
}

static void fill_totals(const struct stg_stage *stage, uint64_t now,
                        struct stg_totals *ret)
{
    const struct stg_counts *counts = &stage->counts;
    const struct stg_buffer *buffer = &stage->buffer;
    const struct stg_runners *runners = &stage->runners;
    *ret = (struct stg_totals){
        .n = {[STG_TOTAL_MADE] = counts->n_made,
              [STG_TOTAL_PUBLISHED] = buffer->n_published,
              [STG_TOTAL_PUBLISHED_ROWS] = buffer->n_rows,
              [STG_TOTAL_PUBLISHED_BYTES] = buffer->n_bytes,
              [STG_TOTAL_DELIVERED] = counts->n_assigned,
              [STG_TOTAL_DELIVERED_ROWS] = counts->n_assigned_rows,
              [STG_TOTAL_DELIVERED_BYTES] = counts->n_assigned_bytes,
              [STG_TOTAL_ACKNOWLEDGED] = buffer->n_acknowledged,
              [STG_TOTAL_RELEASED] = counts->n_released,
              [STG_TOTAL_REDELIVERED] = counts->n_redelivered,
              [STG_TOTAL_LOST] = buffer->n_lost,
              [STG_TOTAL_DROPPED] = counts->n_dropped,
              [STG_TOTAL_DROPPED_ROWS] = counts->n_dropped_rows,
              [STG_TOTAL_IGNORED] = counts->n_ignored,
              [STG_TOTAL_IGNORED_ELEMENTS] = counts->n_ignored_elements,
              [STG_TOTAL_DISCARDED] = counts->n_discarded + buffer->n_discarded,
              [STG_TOTAL_TIMEOUTS] = counts->n_timeouts,
              [STG_TOTAL_EVICTED] = counts->n_evicted,
              [STG_TOTAL_ATTACHED] = stage->members.n_attaches,
              [STG_TOTAL_RECONNECTED] = stage->members.n_reconnected,
              [STG_TOTAL_PULL_NS] = counts->pull_ns,
              [STG_TOTAL_COMPUTE_NS] = counts->busy_ns,
              [STG_TOTAL_CALL_NS] = counts->call_ns,
              [STG_TOTAL_ROOM_WAIT_NS] =
                  counts->wait_ns + runners->n_waiting * now - runners->waits_began_ns},
    };
    stg_remote_add_totals(stage, ret);
    memcpy(ret->errors, counts->errors, sizeof(ret->errors));
}

/* What its clients do at this moment. */
static void add_present(struct stg_stage *stage, uint64_t now, struct stg_totals *ret)
{
    const struct stg_membership *members = &stage->members;
    for (const struct stg_client *c = members->clients; c != NULL; c = c->next) {
        size_t rank = (size_t)(stg_rank_of(stage, c) - members->ranks);
        if (rank >= ret->n_ranks)
            continue;
        ret->ranks[rank].n_held += c->n_assigned;
        if (c->state == STG_CLIENT_ATTACHED) {
            ret->ranks[rank].n_attached++;
            ret->ranks[rank].uid = (uint32_t)c->uid;
            ret->ranks[rank].job = c->job;
        }
        ret->ranks[rank].waiting_ns += stg_client_waits_ns(c, now);
        if (c == members->alone)
            ret->ranks[rank].held_up_ns += now - members->alone_ns;
    }
}

void stg_stage_add_totals(struct stg_stage *stage, struct stg_totals *ret)
{
    struct stg_totals now_here;
    pthread_mutex_lock(&stage->lock);
    uint64_t now = stg_now_ns();
    fill_totals(stage, now, &now_here);
    if (!stage->config.private_run) {
        now_here.ranks = stage->members.ranks;
        now_here.n_ranks = stage->config.num_clients;
    }
    stg_totals_add(ret, &now_here);
    if (!stage->config.private_run)
        add_present(stage, now, ret);
    pthread_mutex_unlock(&stage->lock);
}

/* ---- what a client waits for ---- */

/* Clients that a text names. */
#define MAX_NAMED 3

static double seconds(uint64_t since_ns, uint64_t now_ns)
{
    return since_ns != 0 && since_ns < now_ns ? (double)(now_ns - since_ns) / 1e9 : 0;
}

static void name_client(const struct stg_stage *stage, const struct stg_client *client,
                        struct stg_err *why)
{
    if (stage->config.delivery == STG_DELIVERY_ROUND_ROBIN)
        stg_err_append(why, why->code, "rank %u, ", client->rank);
    stg_err_append(why, why->code, "client %.64s (pid %d)", client->client_id,
                   (int)client->pid);
}

/* ---- clients that others wait for ---- */

static void say_away(const struct stg_stage *stage, const struct stg_client *client,
                     uint64_t now, struct stg_err *why)
{
    uint64_t millis = stage->staged->reconnect_grace_millis;
    stg_err_append(why, why->code,
                   " has been away for %.1f s and may reconnect within "
                   "reconnect_grace_millis %" PRIu64,
                   seconds(client->away_until_ns - millis * 1000000u, now), millis);
}

static void say_holder(const struct stg_stage *stage, const struct stg_client *client,
                       uint64_t now, struct stg_err *why)
{
    const struct stg_assigned *held = stg_client_unacknowledged(client);
    name_client(stage, client, why);
    if (client->state == STG_CLIENT_AWAY) {
        say_away(stage, client, now, why);
        return;
    }
    if (!stg_client_asks(&stage->pass, client))
        stg_err_append(why, why->code, " has not asked for pass %" PRIu64,
                       stage->pass.n_ended);
    else if (held == NULL)
        stg_err_append(why, why->code, " has released none of its %u batches",
                       client->n_assigned);
    else if (held->position >= stg_control_taken(&client->control))
        stg_err_append(why, why->code,
                       " has not taken batch %" PRIu64 ", which it was given %.1f s ago",
                       held->number, seconds(held->assigned_ns, now));
    else
        stg_err_append(why, why->code, " has held batch %" PRIu64 " for %.1f s",
                       held->number, seconds(held->assigned_ns, now));
}

/* Does this one keep `waiter` from its next item or end? */
static bool holds_up(const struct stg_stage *stage, const struct stg_client *client,
                     const struct stg_client *waiter)
{
    bool away = client->state == STG_CLIENT_AWAY &&
                stage->config.delivery == STG_DELIVERY_ROUND_ROBIN;
    return client != waiter && stg_client_takes_part(client) &&
           (away || stg_stage_holds_up(stage, client));
}

/* False: no other client holds this one up. */
static bool say_holders(const struct stg_stage *stage, const struct stg_client *waiter,
                        uint64_t now, struct stg_err *why)
{
    bool is_end = stage->config.delivery == STG_DELIVERY_SPLIT;
    bool is_full = stage->config.delivery == STG_DELIVERY_BROADCAST;
    unsigned n = 0;
    for (const struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (!holds_up(stage, c, waiter) || ++n > MAX_NAMED)
            continue;
        if (n == 1 && is_full)
            stg_err(why, why->code, "broadcast: the buffer, capacity %u, is full: ",
                    stage->buffer.capacity);
        else if (n == 1)
            stg_err(why, why->code, "%s: ",
                    is_end ? "the pass ends when every batch is acknowledged"
                           : "round_robin deals to all ranks at once");
        else
            stg_err_append(why, why->code, "; ");
        say_holder(stage, c, now, why);
    }
    if (n > MAX_NAMED)
        stg_err_append(why, why->code, "; and %u more clients", n - MAX_NAMED);
    return n > 0;
}

/* ---- before a pass ---- */

static void say_missing_at_start(const struct stg_stage *stage, uint64_t now,
                                 struct stg_err *why)
{
    uint32_t n = stage->config.num_clients;
    stg_err(
        why, why->code,
        "%s begins when num_clients %u are attached: %u attached, waiting for %u more "
        "for %.1f s",
        stage->config.delivery == STG_DELIVERY_BROADCAST ? "broadcast" : "round_robin", n,
        stage->members.n_attached, n - stage->members.n_attached,
        seconds(stage->timeouts.first_attach_ns, now));
}

static void say_not_asked(const struct stg_stage *stage, const struct stg_client *waiter,
                          uint64_t now, struct stg_err *why)
{
    uint32_t n = stage->config.num_clients, missing = n - stage->members.n_attached;
    stg_err(why, why->code,
            "pass %" PRIu64 " begins when every client asks for it, waiting for %.1f s",
            stage->pass.n_ended, seconds(stage->timeouts.asked_ns, now));
    unsigned named = 0;
    for (const struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (c == waiter || !stg_client_takes_part(c) ||
            stg_client_asks(&stage->pass, c) || ++named > MAX_NAMED)
            continue;
        stg_err_append(why, why->code, named == 1 ? ": " : "; ");
        name_client(stage, c, why);
        if (c->state == STG_CLIENT_AWAY)
            say_away(stage, c, now, why);
        else
            stg_err_append(why, why->code, " has not");
    }
    if (named > MAX_NAMED)
        stg_err_append(why, why->code, "; and %u more clients", named - MAX_NAMED);
    if (named == 0 && missing > 0)
        stg_err_append(why, why->code, ": %u of num_clients %u left", missing, n);
}

static void say_no_pass(const struct stg_stage *stage, const struct stg_client *waiter,
                        uint64_t now, struct stg_err *why)
{
    if (stage->policy->together && !stage->members.begun)
        say_missing_at_start(stage, now, why);
    else
        say_not_asked(stage, waiter, now, why);
}

/* ---- runners ---- */

/* Inserts a client into those that hold most, the first one most. */
static void insert_holder(const struct stg_client *holders[MAX_NAMED],
                          const struct stg_client *client)
{
    bool shifts = false;
    for (int i = 0; i < MAX_NAMED && client != NULL; i++) {
        const struct stg_client *next = holders[i];
        shifts |= next == NULL || client->n_assigned > next->n_assigned;
        if (shifts) {
            holders[i] = client;
            client = next;
        }
    }
}

static void say_no_memory(const struct stg_stage *stage, struct stg_err *why)
{
    const struct stg_client *holders[MAX_NAMED] = {NULL};
    for (const struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (c->n_assigned > 0)
            insert_holder(holders, c);
    }
    stg_err(why, why->code, "no memory is free for the next batch");
    for (int i = 0; i < MAX_NAMED && holders[i] != NULL; i++) {
        stg_err_append(why, why->code, i == 0 ? ": " : "; ");
        name_client(stage, holders[i], why);
        stg_err_append(why, why->code, " holds %u batch%s%s", holders[i]->n_assigned,
                       holders[i]->n_assigned == 1 ? "" : "es",
                       holders[i]->state == STG_CLIENT_DETACHED ? " though it left" : "");
    }
}

static void say_pulling(struct stg_stage *stage, uint64_t since, uint64_t now,
                        struct stg_err *why)
{
    char where[384];
    stg_activity_show(&stage->observers.activity, where, sizeof(where));
    stg_err(why, why->code,
            "the dataset is slow: it has worked on the next batch for %.1f s",
            seconds(since, now));
    if (where[0] != '\0')
        stg_err_append(why, why->code, ", %s", where);
}

static void say_calling(const struct stg_stage *stage,
                        const struct stg_workers_busy *busy, uint64_t now,
                        struct stg_err *why)
{
    const char *function = stg_workers_function(stage->config.workers);
    if (busy->pid != 0)
        stg_err(why, why->code,
                "py_function %s: a worker, pid %d, has been at work for %.1f s (%u of %u "
                "workers are)",
                function, (int)busy->pid, seconds(busy->since_ns, now), busy->n_busy,
                busy->n_ready);
    else
        stg_err(why, why->code,
                "py_function %s: no worker is ready; start one with `stager worker %s`",
                function, stage->config.name);
}

/* Is the longest wait of a runner the one for a worker? */
static bool is_calling(const struct stg_stage *stage, const struct stg_workers_busy *busy,
                       uint64_t pull_began, uint64_t now)
{
    const struct stg_runners *runners = &stage->runners;
    if (runners->n_calling == 0 || stage->config.workers == NULL)
        return false;
    uint64_t since =
        busy->pid != 0 ? busy->since_ns : runners->calls_began_ns / runners->n_calling;
    if (!stg_py_function_is_last(stage->config.spec))
        return true; /* the pull waits for it */
    return pull_began == 0 || seconds(since, now) >= seconds(pull_began, now);
}

static void say_runners(struct stg_stage *stage, const struct stg_workers_busy *busy,
                        uint64_t now, struct stg_err *why)
{
    struct stg_runners *runners = &stage->runners;
    uint64_t pull_began =
        atomic_load_explicit(&runners->pull_began_ns, memory_order_relaxed);
    if (runners->n_waiting_memory > 0)
        say_no_memory(stage, why);
    else if (!stg_buffer_has_room(&stage->buffer))
        stg_err(why, why->code,
                "the buffer, capacity %u, is full of batches that were made for the "
                "fields of other clients",
                stage->buffer.capacity);
    else if (is_calling(stage, busy, pull_began, now))
        say_calling(stage, busy, now, why);
    else if (pull_began != 0)
        say_pulling(stage, pull_began, now, why);
    else if (runners->pause_until_ns > now)
        stg_err(why, why->code, "many items in a row were ignored: %.200s",
                stage->counts.last_error);
    else if (stage->counts.n_in_hand > 0)
        stg_err(why, why->code,
                "the stage graph is slow: %" PRIu64 " of %u runners compute; the last "
                "batch was published %.1f s ago",
                stage->counts.n_in_hand, runners->n_active,
                seconds(stage->counts.published_ns, now));
    else
        stg_err(why, why->code, "stagerd is about to make the next batch");
}

/* ---- all ---- */

static void say(struct stg_stage *stage, const struct stg_client *client,
                const struct stg_workers_busy *busy, struct stg_err *why)
{
    uint64_t now = stg_now_ns();
    if (stage->stop.is_on)
        stg_err(why, why->code, "this run of the pipeline is stopping");
    else if (stage->pass.state == STG_PASS_NONE)
        say_no_pass(stage, client, now, why);
    else if (say_holders(stage, client, now, why))
        return;
    else if (stg_client_credits(&stage->buffer, client) == 0)
        stg_err(why, why->code, "this client has released none of its %u batches",
                client->n_assigned);
    else if (stg_pass_is_exhausted(&stage->pass) &&
             stg_client_unacknowledged(client) != NULL)
        stg_err(why, why->code,
                "the pass ends when every batch is acknowledged, and this client holds "
                "batch %" PRIu64,
                stg_client_unacknowledged(client)->number);
    else
        say_runners(stage, busy, now, why);
}

void stg_stage_why(struct stg_stage *stage, const struct stg_client *client,
                   struct stg_err *why)
{
    struct stg_workers_busy busy = {0};
    if (stage->config.workers != NULL)
        stg_workers_look(stage->config.workers, &busy);
    why->code = -STAGER_DEADLINE_EXCEEDED;
    pthread_mutex_lock(&stage->lock);
    stg_delivery_run(stage); /* what clients posted without a doorbell counts too */
    say(stage, client, &busy, why);
    stg_stage_commit(stage);
}
