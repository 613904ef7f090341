/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that clients keep after they left.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/stage/priv.h"

static bool keeps(const struct stg_client *client)
{
    return client->state != STG_CLIENT_ATTACHED && !client->forgotten &&
           client->n_assigned > 0;
}

static uint64_t count_keepers(const struct stg_stage *stage)
{
    uint64_t n = 0;
    for (const struct stg_client *c = stage->members.clients; c != NULL; c = c->next)
        n += keeps(c);
    return n;
}

/* A stage whose runners ended lives on for them alone. */
uint32_t stg_stage_kept(struct stg_stage *stage, const struct stg_client *client,
                        uint64_t *ret_bytes)
{
    pthread_mutex_lock(&stage->lock);
    uint32_t n = keeps(client) ? client->n_assigned : 0;
    uint64_t bytes = 0;
    if (n > 0 && stage->stop.is_on && stage->runners.n_alive == 0)
        bytes = stage->memory.budget_bytes / count_keepers(stage);
    for (uint32_t i = 0; i < n && bytes == 0; i++)
        bytes += stg_extent_bytes(stage->buffer.leases, client->assigned[i].extent);
    pthread_mutex_unlock(&stage->lock);
    *ret_bytes = bytes;
    return n;
}

static const struct stg_client *first_keeper(const struct stg_stage *stage)
{
    const struct stg_client *c = stage->members.clients;
    while (c != NULL && !keeps(c))
        c = c->next;
    return c;
}

void stg_stage_shrink(struct stg_stage *stage)
{
    char holder[STG_HOLDER_BYTES];
    stg_runners_shed(stage);
    pthread_mutex_lock(&stage->lock);
    const struct stg_client *keeper = first_keeper(stage);
    uint64_t arena = stg_stage_arena_bytes(stage);
    uint64_t more =
        stage->memory.budget_bytes > arena ? stage->memory.budget_bytes - arena : 0;
    stg_budget_give(stage->config.budget, more, stage->memory.holder);
    stage->memory.budget_bytes -= more;
    if (keeper != NULL) {
        snprintf(holder, sizeof(holder),
                 "process %d (%.40s), which closed a stream of pipeline %s and keeps its "
                 "batches,",
                 (int)keeper->pid, keeper->program, stage->config.name);
        stg_budget_move(stage->config.budget, stage->memory.budget_bytes,
                        stage->memory.holder, holder);
        memcpy(stage->memory.holder, holder, sizeof(holder));
    }
    pthread_mutex_unlock(&stage->lock);
}
