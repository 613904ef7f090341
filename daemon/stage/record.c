/* SPDX-License-Identifier: Apache-2.0
 *
 * What a stagerd that is started again has to know of this run (daemon/recover).
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/priv.h"

uint64_t stg_stage_run_version(struct stg_stage *stage)
{
    pthread_mutex_lock(&stage->lock);
    uint64_t version =
        stage->members.n_changes + stage->pass.n_ended + stage->members.n_passes;
    pthread_mutex_unlock(&stage->lock);
    return version;
}

/* A rank that is away is missing; any other client that is away has lost its place. */
static bool is_member(const struct stg_stage *stage, const struct stg_client *client,
                      const struct stg_client *joining)
{
    bool is_away = client->state == STG_CLIENT_AWAY && stage->policy->is_ranked;
    bool is_back = client->state == STG_CLIENT_JOINING && client->reconnects &&
                   stg_stage_is_shared(stage); /* it has its number */
    return client->member != 0 && (client->state == STG_CLIENT_ATTACHED ||
                                   client == joining || is_away || is_back);
}

/* Without memory it is as if the client had acknowledged nothing. */
static char *copy_acknowledged(const struct stg_client *client)
{
    char text[STG_TAKEN_TEXT_BYTES];
    bool has_some = client->acknowledged.n > 0 &&
                    stg_taken_write(&client->acknowledged, text, NULL) == 0;
    return has_some ? strdup(text) : NULL;
}

static void note_member(const struct stg_client *client, struct stg_run_member *ret)
{
    *ret = (struct stg_run_member){
        .member = client->member,
        .attempt = client->attempt,
        .process = client->process,
        .pid = (uint32_t)client->pid,
        .uid = client->uid,
        .rank = client->rank,
        .consumer = client->consumer,
        .is_named = client->named,
        .took_over = client->took_over,
        .follows = client->follows,
        .acknowledged = copy_acknowledged(client),
    };
    memcpy(ret->client_id, client->client_id, sizeof(ret->client_id));
}

/* The record is written before the client has joined, and has to be right when it has. */
static void foresee(const struct stg_stage *stage, const struct stg_client *joining,
                    struct stg_run_record *ret)
{
    uint32_t rank;
    bool takes_over;
    ret->has_begun |= stg_client_foresee(stage, joining, &rank, &takes_over);
    if (joining->member == 0)
        return;
    struct stg_run_member *member = &ret->members[ret->n_members - 1];
    member->rank = rank;
    member->took_over |= takes_over;
}

static int note_members(const struct stg_stage *stage, const struct stg_client *joining,
                        struct stg_run_record *ret)
{
    const struct stg_membership *members = &stage->members;
    size_t n = 0;
    for (const struct stg_client *c = members->clients; c != NULL; c = c->next)
        n++;
    ret->members = calloc(n + 1, sizeof(ret->members[0]));
    ret->vacant = calloc(members->n_vacant + 1, sizeof(ret->vacant[0]));
    if (ret->members == NULL || ret->vacant == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    for (; ret->n_vacant < members->n_vacant; ret->n_vacant++)
        ret->vacant[ret->n_vacant] = members->vacant[ret->n_vacant];
    for (const struct stg_client *c = members->clients; c != NULL; c = c->next) {
        if (is_member(stage, c, joining))
            note_member(c, &ret->members[ret->n_members++]);
        else if (c->state == STG_CLIENT_ATTACHED)
            ret->n_others++;
        if (c == joining)
            foresee(stage, c, ret);
    }
    return 0;
}

/* Where the run begins that its clients wait for, or where clients of a split shared the
 * items from: the states of those that are left do not have it. */
static void note_origin(const struct stg_stage *stage, struct stg_run_record *ret)
{
    bool awaits = stage->config.delivery == STG_DELIVERY_BROADCAST && !ret->has_begun;
    const struct stg_state *origin =
        awaits ? stage->config.start : stg_stage_origin(stage);
    ret->has_origin = origin != NULL && (awaits || stg_stage_is_shared(stage));
    if (ret->has_origin)
        ret->origin = *origin;
}

int stg_stage_note_run(struct stg_stage *stage, const struct stg_client *joining,
                       struct stg_run_record *ret)
{
    pthread_mutex_lock(&stage->lock);
    ret->run = stg_stage_run_id(&stage->config);
    ret->num_clients = stage->config.num_clients;
    ret->pass = stage->pass.n_ended;
    ret->numbers_pass = stage->members.n_passes;
    ret->consumers = stage->members.n_consumers;
    ret->has_begun = stage->members.begun || stage->members.had_begun;
    ret->is_full = stage->members.left_is_full ||
                   stg_taken_write(&stage->members.left, ret->left, NULL) < 0;
    int rc = note_members(stage, joining, ret);
    note_origin(stage, ret);
    pthread_mutex_unlock(&stage->lock);
    return rc;
}
