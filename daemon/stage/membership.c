/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/stage/membership.h"

#include <stdio.h>
#include <string.h>

bool stg_client_is_there(const struct stg_client *client)
{
    return client->state == STG_CLIENT_ATTACHED || client->state == STG_CLIENT_JOINING;
}

bool stg_client_takes_part(const struct stg_client *client)
{
    return client->state == STG_CLIENT_ATTACHED || client->state == STG_CLIENT_AWAY;
}

const struct stg_client *stg_client_successor(const struct stg_membership *members,
                                              const struct stg_client *away)
{
    for (const struct stg_client *c = members->clients; c != NULL; c = c->next) {
        if (c->state == STG_CLIENT_JOINING && c->named &&
            strcmp(c->client_id, away->client_id) == 0)
            return c;
    }
    return NULL;
}

bool stg_members_are_none(const struct stg_membership *members)
{
    return members->n_attached + members->n_away + members->n_joining == 0;
}

bool stg_pass_is_exhausted(const struct stg_pass *pass)
{
    return pass->state == STG_PASS_EXHAUSTED && pass->publish_next >= pass->end_sequence;
}

const struct stg_assigned *stg_client_unacknowledged(const struct stg_client *client)
{
    for (uint32_t i = 0; i < client->n_assigned; i++) {
        if (!client->assigned[i].acked)
            return &client->assigned[i];
    }
    return NULL;
}

uint64_t stg_client_pass(const struct stg_client *client)
{
    return client->base_pass + client->ends;
}

bool stg_client_wants_pass(const struct stg_client *client)
{
    return client->ends == 0 ||
           stg_control_pass_wanted(&client->control) == client->ends + 1;
}

bool stg_client_asks(const struct stg_pass *pass, const struct stg_client *client)
{
    return client->state == STG_CLIENT_ATTACHED &&
           stg_client_pass(client) == pass->n_ended && stg_client_wants_pass(client);
}

bool stg_client_in_pass(const struct stg_pass *pass, const struct stg_client *client)
{
    return pass->state != STG_PASS_NONE && stg_client_asks(pass, client);
}

uint32_t stg_client_credits(const struct stg_buffer *buffer,
                            const struct stg_client *client)
{
    return client->state == STG_CLIENT_ATTACHED
               ? stg_lease_client_credits(buffer->leases, client->lease_client)
               : 0;
}

bool stg_client_may_have(const struct stg_partitions *partitions,
                         const struct stg_client *client, const struct stg_item *item)
{
    const struct stg_stage_partition *partition = item->partition;
    if (item->is_error || partitions == NULL)
        return true;
    if (partition == NULL)
        return !stg_partition_needs_ahead(partitions, client->needs);
    return client->joined < partition->n_known ||
           stg_partition_suffices(partition->partition, client->needs);
}

/* A sleep that began before the last item came is that item's. */
uint64_t stg_client_waits_ns(const struct stg_client *client, uint64_t now_ns)
{
    if (client->state != STG_CLIENT_ATTACHED)
        return 0;
    uint64_t since = stg_control_waiting_since(&client->control);
    return since > client->last_given_ns && since < now_ns ? now_ns - since : 0;
}

uint64_t stg_client_taken(const struct stg_client *client)
{
    uint64_t taken = client->asked - (client->asked > 0 && client->is_asking);
    if (taken > client->ring.head)
        taken = client->ring.head;
    uint64_t n_ends = client->ends;
    if (client->ends > 0 && taken <= client->end_position)
        n_ends--; /* pushed, not taken */
    n_ends += client->ring.finished && taken == client->ring.head;
    return client->taken_before + taken - n_ends;
}

uint64_t stg_clients_waited_ns(struct stg_membership *members, uint64_t now_ns)
{
    for (struct stg_client *c = members->clients; c != NULL; c = c->next) {
        uint64_t all = c->wait_ns + stg_client_waits_ns(c, now_ns);
        if (all > c->wait_seen_ns)
            members->waited_ns += all - c->wait_seen_ns;
        c->wait_seen_ns = all;
    }
    return members->waited_ns;
}

/* ---- reports ---- */

const char *stg_text_keep(struct stg_bump *bump, const char *text)
{
    const char *retained = stg_bump_strdup(bump, text);
    return retained != NULL ? retained : "?";
}

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

static void fill(const struct stg_membership *members, const struct stg_client *client,
                 struct stg_client_status *ret)
{
    uint64_t now = stg_now_ns();
    uint64_t alone = members->alone == client ? now - members->alone_ns : 0;
    *ret = (struct stg_client_status){
        .client_id = client->client_id,
        .program = client->program,
        .state = client_state(client),
        .last_error = client->last_error,
        .pid = (uint32_t)client->pid,
        .uid = (uint32_t)client->uid,
        .max_in_flight = client->max_in_flight,
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

static void append(struct stg_bump *bump, const struct stg_client_status *client,
                   struct stg_pipeline_status *status)
{
    struct stg_client_status *to = &status->clients[status->n_clients++];
    *to = *client;
    to->client_id = stg_text_keep(bump, client->client_id);
    to->program = stg_text_keep(bump, client->program);
    to->last_error = stg_text_keep(bump, client->last_error);
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

void stg_gone_note(struct stg_membership *members, const struct stg_client *client)
{
    struct stg_client_status status;
    fill(members, client, &status);
    stg_gone_add(&members->gone, &status);
}

void stg_clients_show(const struct stg_membership *members, struct stg_bump *bump,
                      struct stg_pipeline_status *ret)
{
    size_t n = 0;
    for (const struct stg_client *c = members->clients; c != NULL; c = c->next)
        n++;
    if (!grow(bump, n, ret))
        return;
    for (const struct stg_client *c = members->clients; c != NULL; c = c->next) {
        struct stg_client_status one;
        fill(members, c, &one);
        if (!c->adopted || c->n_assigned > 0)
            append(bump, &one, ret);
    }
    stg_gone_show(&members->gone, bump, ret);
}
