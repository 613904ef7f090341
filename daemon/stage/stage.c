/* SPDX-License-Identifier: Apache-2.0
 *
 * The life of a stage, and what the loop asks of it. Runners are in runner.c, clients in
 * client.c and delivery.c.
 */
#include "daemon/stage/stage.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/stage/priv.h"

#define MAX_DETACHED 64u
#define SWEEP_MILLIS 20
/* Bounds the delay after a doorbell that a client could not ring. */
#define LOST_DOORBELL_MILLIS 1000

/* ---- life ---- */

static int init_buffer(struct stg_stage *stage, struct stg_err *err)
{
    const struct stg_stage_plan *plan = &stage->plan;
    stage->step.max = stage->config.num_clients;
    stage->step.all = calloc(stage->step.max, sizeof(stage->step.all[0]));
    stage->members.vacant = calloc(stage->step.max, sizeof(stage->members.vacant[0]));
    stage->members.ranks = calloc(stage->step.max, sizeof(stage->members.ranks[0]));
    if (stage->step.all == NULL || stage->members.vacant == NULL ||
        stage->members.ranks == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    /* Extents that detached clients sit on come on top of those that admission counts. */
    uint32_t max_extents = (uint32_t)plan->n_extents * 2 + MAX_DETACHED;
    return stg_buffer_init(&stage->buffer, plan->arena_bytes, plan->max_batch_bytes,
                           max_extents, stage->config.num_clients + MAX_DETACHED, err);
}

/* A private run is looked at, not trained on. */
static bool has_mirror(const struct stg_stage *stage)
{
    return stage->config.spec->gpu.device != NULL && !stage->config.private_run;
}

/* That it copies nothing now is no error. It has page-locked the arena then, or will do
 * without. */
static int make_mirror(struct stg_stage *stage, struct stg_err *err)
{
    const struct stg_pipeline_spec *spec = stage->config.spec;
    if (!has_mirror(stage))
        return 0;
    uint64_t all = stage->memory.arena.bytes, most = spec->gpu.memory_bytes;
    struct stg_mirror_config config = {
        .name = stage->config.name,
        .device = spec->gpu.device,
        .segment = stage->memory.arena.fd,
        .segment_bytes = all,
        .memory_bytes = most != 0 && most < all ? most : all,
        .cancelled = stage->config.cancelled,
    };
    int rc = stg_mirror_create(&config, &stage->memory.mirror, err);
    return rc < 0 ? rc : stg_segment_seal("stager-arena", &stage->memory.arena, err);
}

/* Begins the first pass. */
static void warm_up(struct stg_stage *stage)
{
    pthread_mutex_lock(&stage->lock);
    stg_delivery_run(stage);
    stg_stage_commit(stage);
}

/* Makes a stage without its parts; it owns the memory that the budget counts for it. */
static struct stg_stage *make_stage(const struct stg_stage_config *config,
                                    const struct stg_stage_plan *plan, const char *holder)
{
    struct stg_stage *stage = calloc(1, sizeof(*stage));
    if (stage == NULL)
        return NULL;
    stage->config = *config;
    stage->plan = *plan;
    if (config->remote.workers == NULL)
        stage->plan.num_remote = 0;
    stage->staged = &config->spec->staged;
    stage->policy = stg_policy(config->delivery);
    stage->buffer.round_items =
        config->delivery == STG_DELIVERY_ROUND_ROBIN ? config->num_clients : 1;
    stage->memory.budget_bytes = plan->reserved_bytes;
    memcpy(stage->memory.holder, holder, sizeof(stage->memory.holder));
    stage->pass.n_ended = config->first_pass;
    stage->members.n_passes = config->first_pass;
    stage->pass.next_number = config->first_number;
    stage->members.n_begin = config->resumed != NULL && config->resumed->n_begin != 0
                                 ? config->resumed->n_begin
                                 : config->num_clients;
    stage->members.had_begun = config->resumed != NULL && config->resumed->has_begun;
    if (config->start != NULL) {
        stage->start.state = STG_START_PENDING;
        stage->last_place = config->start->place;
    }
    pthread_mutex_init(&stage->lock, NULL);
    stg_activity_init(&stage->observers.activity);
    return stage;
}

static int make_parts(struct stg_stage *stage, struct stg_err *err)
{
    int rc = stg_runners_init(stage, err);
    if (rc == 0)
        rc = stg_remote_part_init(stage, err);
    if (rc == 0)
        rc = stg_observers_init(stage, err);
    if (rc == 0)
        rc = stg_stage_init_choice(stage, err);
    if (rc == 0)
        rc = stg_stage_make_arena(stage, has_mirror(stage), err);
    if (rc == 0)
        rc = init_buffer(stage, err);
    if (rc == 0)
        rc = stg_consumers_resume(stage, err);
    if (rc == 0)
        rc = make_mirror(stage, err);
    return rc == 0 ? stg_runners_start(stage, err) : rc;
}

int stg_stage_create(const struct stg_stage_config *config,
                     const struct stg_stage_plan *plan, struct stg_stage **ret,
                     struct stg_err *err)
{
    char holder[STG_HOLDER_BYTES];
    stg_stage_name_holder(config, holder);
    int rc = stg_budget_take(config->budget, plan->reserved_bytes, holder, err);
    if (rc < 0)
        return rc;
    struct stg_stage *stage = make_stage(config, plan, holder);
    if (stage == NULL) {
        stg_budget_give(config->budget, plan->reserved_bytes, holder);
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    }
    rc = make_parts(stage, err);
    if (rc < 0) {
        stg_stage_destroy(stage);
        return rc;
    }
    if (config->warm)
        warm_up(stage);
    *ret = stage;
    return 0;
}

void stg_stage_destroy(struct stg_stage *stage)
{
    if (stage == NULL)
        return;
    if (stage->runners.n_started > 0)
        stg_stage_stop(stage, STAGER_CANCELLED, "stage destroyed", false);
    stg_runners_finish(stage);
    stg_remote_part_finish(stage);
    stg_stage_finish_choice(stage);
    stg_observers_finish(&stage->observers);
    stg_mirror_destroy(stage->memory.mirror);
    stg_feed_set_unref(stage->boundary.feeds);
    stg_stage_partition_unref(stage->boundary.partition);
    stg_stage_partition_unref(stage->boundary.trial);
    free(stage->boundary.chosen);
    while (stage->members.clients != NULL) {
        struct stg_client *next = stage->members.clients->next;
        stg_client_free(stage->members.clients);
        stage->members.clients = next;
    }
    stg_audit_news_finish(&stage->audit.news);
    stg_buffer_finish(&stage->buffer);
    free(stage->step.all);
    free(stage->members.vacant);
    free(stage->members.ranks);
    stg_taken_finish(&stage->members.left);
    stg_segment_destroy(&stage->memory.arena);
    stg_budget_give(stage->config.budget, stage->memory.budget_bytes,
                    stage->memory.holder);
    stg_activity_finish(&stage->observers.activity);
    pthread_mutex_destroy(&stage->lock);
    free(stage->memory.backed);
    free(stage);
}

void stg_stage_stop(struct stg_stage *stage, int code, const char *text, bool drain)
{
    pthread_mutex_lock(&stage->lock);
    if (!stage->stop.is_on) {
        stage->stop.words.code = -code;
        snprintf(stage->stop.words.text, sizeof(stage->stop.words.text), "%s", text);
        stg_stage_begin_stop(stage);
    }
    stage->stop.drains = drain;
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (c->state == STG_CLIENT_AWAY)
            stg_client_forget(stage, c, text);
    }
    stage->effects.wake |= STG_WAKE_ALL;
    stg_delivery_run(stage);
    stg_stage_commit(stage);
}

void stg_stage_forget(struct stg_stage *stage, const char *name, const char *why)
{
    pthread_mutex_lock(&stage->lock);
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (c->state == STG_CLIENT_AWAY && strcmp(c->client_id, name) == 0)
            stg_client_forget(stage, c, why);
    }
    stg_delivery_run(stage);
    stg_stage_commit(stage);
}

uint32_t stg_stage_n_clients(struct stg_stage *stage)
{
    pthread_mutex_lock(&stage->lock);
    uint32_t n = stage->members.n_attached;
    pthread_mutex_unlock(&stage->lock);
    return n;
}

bool stg_stage_is_used(struct stg_stage *stage)
{
    pthread_mutex_lock(&stage->lock);
    bool is_used = stage->members.n_attached + stage->members.n_joining > 0;
    pthread_mutex_unlock(&stage->lock);
    return is_used;
}

bool stg_stage_is_parting(struct stg_stage *stage, const struct stg_client *client)
{
    pthread_mutex_lock(&stage->lock);
    bool parts = client->has_lease && stg_control_parting(&client->control);
    pthread_mutex_unlock(&stage->lock);
    return parts;
}

void stg_stage_name_clients(struct stg_stage *stage, struct stg_err *err)
{
    pthread_mutex_lock(&stage->lock);
    for (const struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (c->state == STG_CLIENT_ATTACHED || c->state == STG_CLIENT_JOINING)
            stg_err_append(err, err->code, " %s (pid %d)", c->client_id, (int)c->pid);
    }
    pthread_mutex_unlock(&stage->lock);
}

bool stg_stage_stopping(struct stg_stage *stage)
{
    pthread_mutex_lock(&stage->lock);
    bool stopping = stage->stop.is_on;
    pthread_mutex_unlock(&stage->lock);
    return stopping;
}

bool stg_stage_quiet(struct stg_stage *stage)
{
    pthread_mutex_lock(&stage->lock);
    bool quiet = stage->stop.is_on && stage->runners.n_alive == 0;
    pthread_mutex_unlock(&stage->lock);
    return quiet;
}

bool stg_stage_finished(struct stg_stage *stage)
{
    pthread_mutex_lock(&stage->lock);
    bool finished = stage->stop.is_on && stage->runners.n_alive == 0 &&
                    stage->members.clients == NULL;
    pthread_mutex_unlock(&stage->lock);
    return finished;
}

void stg_stage_position(struct stg_stage *stage, uint64_t *ret_number, uint64_t *ret_pass)
{
    pthread_mutex_lock(&stage->lock);
    bool unfinished = stage->pass.state != STG_PASS_NONE;
    *ret_number = stage->pass.next_number;
    *ret_pass = stage->pass.n_ended + unfinished;
    pthread_mutex_unlock(&stage->lock);
}

/* ---- events of the loop ---- */

int stg_stage_attach(struct stg_stage *stage, const struct stg_attach *attach,
                     struct stg_attached *ret, struct stg_err *err)
{
    struct stg_client *client;
    int rc = stg_client_create(attach, stage->config.instance, &client, err);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&stage->lock);
    rc = stg_client_open(stage, attach, client, err);
    if (rc == 0) {
        *ret = (struct stg_attached){
            .client = client,
            .fds = {stage->memory.arena.fd, client->ring_segment.fd,
                    client->control_segment.fd},
            .segment_bytes = stage->memory.arena.bytes,
            .device = {.fd = -1},
        };
        if (attach->wants_device && stage->memory.mirror != NULL)
            stg_mirror_memory(stage->memory.mirror, &ret->device);
    }
    pthread_mutex_unlock(&stage->lock);
    if (rc < 0)
        stg_client_free(client);
    return rc;
}

/* The reply goes out without the lock. Meanwhile the client is still joining: its place
 * is kept, nothing else waits for it, and what it sends the loop reads afterwards. */
int stg_stage_join(struct stg_stage *stage, struct stg_client *client,
                   const struct stg_join *join, struct stg_err *err)
{
    pthread_mutex_lock(&stage->lock);
    int rc = stg_client_may_join(stage, client, err);
    stage->effects.reply = rc == 0 ? join : NULL;
    bool is_sent = stg_stage_commit(stage);
    if (rc < 0)
        return rc;
    if (!is_sent)
        return stg_err(err, -STAGER_UNAVAILABLE, "the reply to join cannot be sent");
    pthread_mutex_lock(&stage->lock);
    stg_client_join(stage, client);
    stg_delivery_run(stage);
    stg_stage_commit(stage);
    return 0;
}

void stg_stage_expect(struct stg_stage *stage, uint32_t n_clients)
{
    pthread_mutex_lock(&stage->lock);
    stage->members.n_begin = n_clients;
    if (stage->members.n_attached > 0)
        stg_stage_begin_together(stage);
    stg_delivery_run(stage);
    stg_stage_commit(stage);
}

/* Returns whether nothing of it is left. Its socket may be closed then. */
static bool leave(struct stg_stage *stage, struct stg_client *client, bool is_dead)
{
    bool gone = true;
    pthread_mutex_lock(&stage->lock);
    struct stg_endpoint *endpoint = stg_endpoint_ref(client->endpoint);
    if (client->state == STG_CLIENT_JOINING) {
        stg_client_cancel(stage, client);
    } else {
        stg_client_leave(stage, client);
        gone = is_dead || client->n_assigned == 0;
        if (gone)
            stg_client_reap(stage, client);
    }
    stg_stage_stop_when_left(stage);
    stg_delivery_run(stage);
    stg_stage_commit(stage);
    stg_endpoint_close(endpoint);
    stg_endpoint_unref(endpoint);
    return gone;
}

bool stg_stage_detach(struct stg_stage *stage, struct stg_client *client)
{
    return leave(stage, client, false);
}

void stg_stage_dead(struct stg_stage *stage, struct stg_client *client)
{
    leave(stage, client, true);
}

uint32_t stg_stage_client_held(struct stg_stage *stage, struct stg_client *client)
{
    pthread_mutex_lock(&stage->lock);
    uint32_t n = client->n_assigned;
    pthread_mutex_unlock(&stage->lock);
    return n;
}

void stg_stage_doorbell(struct stg_stage *stage, struct stg_client *client)
{
    pthread_mutex_lock(&stage->lock);
    client->doorbell_wanted = false;
    stg_delivery_run(stage);
    stg_stage_commit(stage);
}

/* How long until a client must be looked at, if no event comes before. */
static int sweep_again(struct stg_stage *stage, uint64_t now)
{
    bool armed = stage->runners.n_waiting > 0 || stage->stop.is_on;
    bool awaits = stg_awaits_clients(stage);
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next)
        armed = armed || c->state == STG_CLIENT_DETACHED ||
                (c->pushed && c->state == STG_CLIENT_ATTACHED) ||
                (awaits && c->state == STG_CLIENT_ATTACHED &&
                 stg_control_waiting(&c->control));
    stage->effects.is_swept = armed;
    if (armed)
        return SWEEP_MILLIS;
    uint64_t next = stg_expire_next_ns(stage);
    uint64_t millis = next > now ? (next - now) / 1000000 + 1 : 1;
    if (stage->members.n_attached > 0 && millis > LOST_DOORBELL_MILLIS)
        return LOST_DOORBELL_MILLIS;
    if (next == UINT64_MAX)
        return -1;
    return millis < INT_MAX ? (int)millis : INT_MAX;
}

int stg_stage_sweep(struct stg_stage *stage)
{
    pthread_mutex_lock(&stage->lock);
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next)
        c->doorbell_wanted = false; /* a doorbell may have been lost: ask anew */
    stg_delivery_run(stage);
    uint64_t now = stg_now_ns(); /* after: nothing was assigned later than this */
    if (stg_expire_clients(stage, now)) {
        stg_stage_stop_when_left(stage);
        stg_delivery_run(stage);
    }
    int millis = sweep_again(stage, now);
    stg_stage_commit(stage);
    return millis;
}

/* ---- memory that clients keep after they left ---- */

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
uint32_t stg_stage_retained(struct stg_stage *stage, const struct stg_client *client,
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
