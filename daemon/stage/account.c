/* SPDX-License-Identifier: Apache-2.0
 *
 * Counters of clients and measurements of the pace.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/stage/delivery.h"

/* The one client that all wait for, if there is exactly one. */
static struct stg_client *find_alone(const struct stg_stage *stage)
{
    struct stg_client *found = NULL;
    if (stage->stop.is_on || stage->pass.state == STG_PASS_NONE)
        return NULL;
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (!stage->kind->holds_up(stage, c))
            continue;
        if (found != NULL)
            return NULL;
        found = c;
    }
    return found;
}

void stg_account_waits(struct stg_stage *stage)
{
    struct stg_client *alone = find_alone(stage);
    if (alone == stage->members.alone)
        return;
    uint64_t now = stg_now_ns();
    if (stage->members.alone != NULL)
        stage->members.alone->daemon_wait_ns += now - stage->members.alone_ns;
    stage->members.alone = alone;
    stage->members.alone_ns = now;
}

/* ---- the pace ---- */

/* The sleep of a client that left since the last look is not counted. */
static uint64_t new_waits(struct stg_stage *stage, uint64_t now)
{
    uint64_t sum = 0;
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        uint64_t all = c->wait_ns + stg_client_waits_ns(c, now);
        if (all > c->wait_seen_ns)
            sum += all - c->wait_seen_ns;
        c->wait_seen_ns = all;
    }
    return sum;
}

void stg_account_load(struct stg_stage *stage, uint64_t now_ns)
{
    if (stage->observers.measure == NULL)
        return;
    struct stg_load *load = &stage->observers.measure->load;
    struct stg_runners *runners = &stage->runners;
    if (load->at_ns != 0 && now_ns > load->at_ns)
        load->clients_ns += stage->members.n_attached * (now_ns - load->at_ns);
    load->at_ns = now_ns;
    load->n_made = stage->counts.n_made;
    load->n_assigned = stage->counts.n_assigned;
    load->n_bytes = stage->buffer.n_bytes;
    load->compute_ns = stage->counts.busy_ns;
    load->call_ns =
        stage->counts.call_ns + runners->n_calling * now_ns - runners->calls_began_ns;
    uint64_t began = atomic_load_explicit(&runners->draw_began_ns, memory_order_relaxed);
    load->draw_ns =
        stage->counts.draw_ns + (began != 0 && began < now_ns ? now_ns - began : 0);
    load->room_ns =
        stage->counts.wait_ns + runners->n_waiting * now_ns - runners->waits_began_ns;
    load->clients_wait_ns += new_waits(stage, now_ns);
    load->cpu_ns = stg_process_cpu_ns();
}

void stg_account_work(struct stg_stage *stage, const struct stg_work *work)
{
    struct stg_measure *measure = stage->observers.measure;
    stage->counts.draw_ns += work->draw_ns;
    if (work->draw_cpu_ns != 0) {
        measure->load.sampled_draw_ns += work->draw_ns;
        measure->load.sampled_cpu_ns += work->draw_cpu_ns;
    }
    if (work->profiler->is_fresh)
        stg_profile_move(&measure->daemon, &work->profiler->profile);
    work->profiler->is_fresh = false;
    uint64_t now = stg_now_ns();
    if (stg_measure_is_due(measure, now)) {
        stg_account_load(stage, now);
        stg_measure_mark(measure);
    }
}

/* ---- one client ---- */

static const char *client_state(const struct stg_client *client)
{
    switch (client->state) {
    case STG_CLIENT_ATTACHED: return "attached";
    case STG_CLIENT_JOINING: return "joining";
    case STG_CLIENT_AWAY: return "away";
    case STG_CLIENT_DETACHED: break;
    }
    return client->forgotten ? "gone" : "detached";
}

static void fill(const struct stg_stage *stage, const struct stg_client *client,
                 struct stg_client_status *ret)
{
    uint64_t now = stg_now_ns();
    uint64_t alone = stage->members.alone == client ? now - stage->members.alone_ns : 0;
    *ret = (struct stg_client_status){
        .client_id = client->client_id,
        .program = client->program,
        .state = client_state(client),
        .last_error = client->last_error,
        .pid = (uint32_t)client->pid,
        .uid = (uint32_t)client->uid,
        .max_held = client->max_held,
        .held = client->n_assigned,
        .assigned = client->n_given,
        .taken = stg_client_taken(client),
        .released = client->n_released,
        .redelivered = client->n_redelivered,
        .wait_ns = client->wait_ns + stg_client_waits_ns(client, now),
        .violations = client->n_violations,
        .acknowledged = client->n_acknowledged,
        .gaps = client->n_gaps,
        .lost = client->n_lost,
        .daemon_wait_ns = client->daemon_wait_ns + alone,
        .batch_size = client->batch_size,
        .rank = client->rank,
    };
}

/* ---- those that are gone ---- */

void stg_gone_add(struct stg_gone_list *list, const struct stg_client_status *status)
{
    struct stg_gone *gone = &list->entries[list->n++ % STG_MAX_GONE];
    gone->status = *status;
    gone->status.held = 0;
    gone->status.state = "gone";
    snprintf(gone->client_id, sizeof(gone->client_id), "%s", status->client_id);
    snprintf(gone->program, sizeof(gone->program), "%s", status->program);
    snprintf(gone->last_error, sizeof(gone->last_error), "%s", status->last_error);
}

const char *stg_account_keep(struct stg_bump *bump, const char *text)
{
    const char *kept = stg_bump_strndup(bump, text, strlen(text));
    return kept != NULL ? kept : "?";
}

static void append(struct stg_bump *bump, const struct stg_client_status *client,
                   struct stg_pipeline_status *status)
{
    struct stg_client_status *to = &status->clients[status->n_clients++];
    *to = *client;
    to->client_id = stg_account_keep(bump, client->client_id);
    to->program = stg_account_keep(bump, client->program);
    to->last_error = stg_account_keep(bump, client->last_error);
}

static size_t count_gone(const struct stg_pipeline_status *status)
{
    size_t n = 0;
    for (size_t i = 0; i < status->n_clients; i++)
        n += strcmp(status->clients[i].state, "gone") == 0;
    return n;
}

/* Room for n more clients. */
static bool grow(struct stg_bump *bump, size_t n, struct stg_pipeline_status *status)
{
    struct stg_client_status *clients =
        stg_bump_alloc(bump, (status->n_clients + n) * sizeof(clients[0]));
    if (clients == NULL)
        return false;
    if (status->n_clients > 0)
        memcpy(clients, status->clients, status->n_clients * sizeof(clients[0]));
    status->clients = clients;
    return true;
}

void stg_gone_show(const struct stg_gone_list *list, struct stg_bump *bump,
                   struct stg_pipeline_status *status)
{
    size_t n = list->n < STG_MAX_GONE ? list->n : STG_MAX_GONE;
    size_t shown = count_gone(status);
    if (n == 0 || shown >= STG_MAX_GONE || !grow(bump, n, status))
        return;
    for (size_t i = 1; i <= n && shown < STG_MAX_GONE; i++, shown++) {
        const struct stg_gone *gone = &list->entries[(list->n - i) % STG_MAX_GONE];
        struct stg_client_status one = gone->status;
        one.client_id = gone->client_id;
        one.program = gone->program;
        one.last_error = gone->last_error;
        append(bump, &one, status);
    }
}

void stg_account_gone(struct stg_stage *stage, const struct stg_client *client)
{
    struct stg_client_status status;
    fill(stage, client, &status);
    stg_gone_add(&stage->members.gone, &status);
}

void stg_account_clients(const struct stg_stage *stage, struct stg_bump *bump,
                         struct stg_pipeline_status *ret)
{
    size_t n = 0;
    for (const struct stg_client *c = stage->members.clients; c != NULL; c = c->next)
        n++;
    ret->n_clients = 0;
    if (!grow(bump, n, ret))
        return;
    for (const struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        struct stg_client_status one;
        fill(stage, c, &one);
        if (!c->adopted || c->n_assigned > 0)
            append(bump, &one, ret);
    }
    stg_gone_show(&stage->members.gone, bump, ret);
}

/* ---- what is measured ---- */

const struct stg_measure *stg_stage_look(struct stg_stage *stage)
{
    pthread_mutex_lock(&stage->lock);
    if (stage->observers.measure != NULL && stage->observers.measure->marks[1].at_ns != 0)
        stg_account_load(stage, stg_now_ns());
    return stage->observers.measure;
}

void stg_stage_unlook(struct stg_stage *stage)
{
    pthread_mutex_unlock(&stage->lock);
}

const struct stg_schema *stg_stage_crossing(const struct stg_stage *stage)
{
    return stage->boundary.cut != NULL ? stg_cut_schema(stage->boundary.cut->cut) : NULL;
}

struct stg_measure *stg_stage_take_measure(struct stg_stage *stage)
{
    pthread_mutex_lock(&stage->lock);
    if (stage->observers.measure != NULL && stage->observers.measure->marks[1].at_ns != 0)
        stg_account_load(stage, stg_now_ns());
    struct stg_measure *measure = stage->observers.measure;
    stage->observers.measure = NULL;
    pthread_mutex_unlock(&stage->lock);
    return measure;
}

void stg_stage_report(struct stg_stage *stage, const struct stg_report *report)
{
    pthread_mutex_lock(&stage->lock);
    if (stage->observers.measure != NULL)
        stg_measure_report(stage->observers.measure, report);
    pthread_mutex_unlock(&stage->lock);
}
