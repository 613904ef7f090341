/* SPDX-License-Identifier: Apache-2.0
 *
 * What the audit collects of a stage: sums and sets of items, in the order of events. The
 * loop takes them away every second or so, and writes them. Lock held.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/priv.h"

#define INTERVAL_NS UINT64_C(1000000000)
/* Between two visits of the loop. Of more items, several share a hash. */
#define MAX_CELLS 4096u

/* Asks the loop to come, at most once between two visits. */
static void ask(struct stg_stage *stage)
{
    stage->effects.asks_loop |= !stage->audit.is_due;
    stage->audit.is_due = true;
}

void stg_audit_tick(struct stg_stage *stage, uint64_t now_ns)
{
    struct stg_stage_audit *audit = &stage->audit;
    if (stage->config.audit_run == 0)
        return;
    if (audit->since_ns == 0)
        audit->since_ns = now_ns;
    else if (now_ns - audit->since_ns > INTERVAL_NS)
        ask(stage);
}

void stg_audit_hurry(struct stg_stage *stage)
{
    if (stage->audit.news.trails != NULL || stage->audit.news.shares != NULL)
        ask(stage);
}

static struct stg_audit_trail *trail_of(struct stg_stage *stage, uint64_t pass)
{
    struct stg_audit_trail *trail = stage->audit.news.trails;
    if (trail != NULL && trail->pass == pass)
        return trail;
    trail = calloc(1, sizeof(*trail));
    if (trail == NULL)
        return NULL;
    trail->run = stage->config.audit_run;
    trail->pass = pass;
    trail->has_contents = stage->config.audits_contents;
    trail->next = stage->audit.news.trails;
    stage->audit.news.trails = trail;
    return trail;
}

/* Items that are not published in their order have no hashes in that order. */
void stg_audit_published(struct stg_stage *stage, const struct stg_item *item)
{
    if (stage->config.audit_run == 0 || !stage->staged->deterministic)
        return;
    struct stg_audit_trail *trail = trail_of(stage, item->pass);
    if (trail == NULL || stg_audit_publish(trail, item->place, item->hash, MAX_CELLS) < 0)
        stage->audit.news.has_lost = true;
    else if (trail->n > MAX_CELLS / 2)
        ask(stage);
}

void stg_audit_skipped(struct stg_stage *stage, uint64_t pass, uint64_t place)
{
    if (stage->config.audit_run == 0)
        return;
    struct stg_audit_trail *trail = trail_of(stage, pass);
    if (trail == NULL || stg_taken_add(&trail->skipped, place, place + 1, NULL) < 0)
        stage->audit.news.has_lost = true;
}

static struct stg_audit_share *share_of(struct stg_stage *stage,
                                        struct stg_client *client, uint64_t pass,
                                        bool is_full)
{
    struct stg_audit_share *share = client->share;
    if (share != NULL && share->pass == pass && !is_full)
        return share;
    share = calloc(1, sizeof(*share));
    if (share == NULL)
        return NULL;
    share->run = stage->config.audit_run;
    share->attempt = client->attempt;
    share->pass = pass;
    snprintf(share->client, sizeof(share->client), "%s", client->client_id);
    share->next = stage->audit.news.shares;
    stage->audit.news.shares = share;
    client->share = share;
    return share;
}

/* Under round_robin every rank gets an error item: it counts for the first one. */
static bool counts(const struct stg_stage *stage, const struct stg_client *client,
                   const struct stg_item *item)
{
    return stage->config.audit_run != 0 &&
           !(item->is_error && stage->policy->is_ranked && client->rank > 0);
}

/* A set that is full is followed by another one. */
static void take(struct stg_stage *stage, struct stg_client *client,
                 const struct stg_item *item, bool acknowledged)
{
    int rc = -STAGER_RESOURCE_EXHAUSTED;
    for (int i = 0; i < 2 && rc < 0; i++) {
        struct stg_audit_share *share = share_of(stage, client, item->pass, i > 0);
        if (share != NULL)
            rc = stg_audit_take(acknowledged ? &share->acknowledged : &share->delivered,
                                item->place, item->hash);
        if (rc < 0)
            ask(stage);
    }
    stage->audit.news.has_lost |= rc < 0;
}

void stg_audit_delivered(struct stg_stage *stage, struct stg_client *client,
                         const struct stg_item *item, bool is_redelivered)
{
    if (!counts(stage, client, item))
        return;
    take(stage, client, item, false);
    if (client->share != NULL)
        client->share->n_redelivered += is_redelivered;
}

void stg_audit_acknowledged(struct stg_stage *stage, struct stg_client *client,
                            const struct stg_item *item)
{
    if (counts(stage, client, item))
        take(stage, client, item, true);
}

void stg_stage_name_attempt(struct stg_stage *stage, struct stg_client *client,
                            uint64_t attempt)
{
    pthread_mutex_lock(&stage->lock);
    client->attempt = attempt;
    pthread_mutex_unlock(&stage->lock);
}

bool stg_stage_take_news(struct stg_stage *stage, bool all, struct stg_audit_news *ret)
{
    struct stg_stage_audit *audit = &stage->audit;
    pthread_mutex_lock(&stage->lock);
    bool has_some =
        audit->news.trails != NULL || audit->news.shares != NULL || audit->news.has_lost;
    bool takes = has_some && (all || audit->is_due);
    if (takes) {
        *ret = audit->news;
        *audit = (struct stg_stage_audit){0};
        for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next)
            c->share = NULL;
    }
    pthread_mutex_unlock(&stage->lock);
    return takes;
}

void stg_audit_news_finish(struct stg_audit_news *news)
{
    while (news->trails != NULL) {
        struct stg_audit_trail *next = news->trails->next;
        stg_audit_trail_finish(news->trails);
        free(news->trails);
        news->trails = next;
    }
    while (news->shares != NULL) {
        struct stg_audit_share *next = news->shares->next;
        stg_audit_share_finish(news->shares);
        free(news->shares);
        news->shares = next;
    }
}
