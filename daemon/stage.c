/* SPDX-License-Identifier: Apache-2.0
 *
 * The life of a stage, and what the loop asks of it. Runners are in produce.c, clients in
 * delivery.c.
 */
#include "daemon/stage.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "daemon/delivery.h"

#define MIB (1024.0 * 1024.0)
#define BUFFER_BYTES (64ull << 20)
#define MAX_DETACHED 64u
#define SWEEP_MILLIS 20

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + STG_GRANULE_BYTES - 1) / STG_GRANULE_BYTES * STG_GRANULE_BYTES;
}

/* ---- admission ---- */

static int too_small(const struct stg_staged *staged, const struct stg_stage_plan *plan,
                     uint32_t num_clients, uint32_t max_held, uint64_t share,
                     struct stg_err *err)
{
    return stg_err(
        err, -STAGER_RESOURCE_EXHAUSTED,
        "(capacity %u + num_threads %u + num_clients %u x max_held %u + 1) x "
        "max_batch_bytes %" PRIu64 " = %.1f MiB, and %.1f MiB for read buffers, do not "
        "fit the pipeline's memory_budget of %.1f MiB: raise it, or lower capacity, "
        "num_threads, max_held or batch_size",
        staged->capacity, staged->num_threads, num_clients, max_held,
        plan->max_batch_bytes,
        (double)(plan->n_extents * round_up(plan->max_batch_bytes)) / MIB,
        (double)plan->buffer_bytes / MIB, (double)share / MIB);
}

int stg_stage_plan(const struct stg_pipeline_spec *spec, const struct stg_graph *graph,
                   uint32_t num_clients, uint32_t max_held, uint64_t default_bytes,
                   struct stg_stage_plan *ret, struct stg_err *err)
{
    const struct stg_staged *staged = &spec->staged;
    struct stg_stage_plan plan = {
        .n_extents = (uint64_t)staged->capacity + staged->num_threads +
                     (uint64_t)num_clients * max_held + 1,
        .max_batch_bytes = staged->max_batch_bytes,
        .buffer_bytes = BUFFER_BYTES,
    };
    uint64_t share = staged->memory_budget;
    if (share != 0 && plan.buffer_bytes > share / 4)
        plan.buffer_bytes = share / 4;
    if (plan.max_batch_bytes == 0)
        plan.max_batch_bytes = stg_graph_batch_bytes(graph);
    bool known = plan.max_batch_bytes != 0;
    if (!known) {
        uint64_t room = share != 0 ? share - plan.buffer_bytes : default_bytes;
        plan.max_batch_bytes =
            room / plan.n_extents / STG_GRANULE_BYTES * STG_GRANULE_BYTES;
    }
    if (plan.max_batch_bytes > UINT64_MAX / 2 / plan.n_extents ||
        (known && share != 0 &&
         plan.n_extents * round_up(plan.max_batch_bytes) > share - plan.buffer_bytes))
        return too_small(staged, &plan, num_clients, max_held, share, err);
    if (plan.max_batch_bytes < STG_GRANULE_BYTES) {
        if (!known)
            return too_small(staged, &plan, num_clients, max_held,
                             share != 0 ? share : default_bytes, err);
        plan.max_batch_bytes = STG_GRANULE_BYTES; /* room for an error's text */
    }
    plan.max_batch_bytes = round_up(plan.max_batch_bytes);
    plan.arena_bytes = plan.n_extents * plan.max_batch_bytes;
    *ret = plan;
    return 0;
}

/* ---- life ---- */

static int init_tables(struct stg_stage *stage, struct stg_err *err)
{
    /* Extents that detached clients sit on come on top of those that admission counts. */
    stage->max_extents = (uint32_t)stage->plan.n_extents * 2 + MAX_DETACHED;
    stage->queue_size = stage->max_extents;
    stage->items = calloc(stage->max_extents, sizeof(stage->items[0]));
    stage->queue = calloc(stage->queue_size, sizeof(stage->queue[0]));
    stage->returned = calloc(stage->max_extents, sizeof(stage->returned[0]));
    if (stage->items == NULL || stage->queue == NULL || stage->returned == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    uint32_t max_clients = stage->config.num_clients + MAX_DETACHED;
    int rc =
        stg_lease_core_create(stage->plan.arena_bytes, stage->max_extents, max_clients,
                              max_clients * STG_MAX_HELD, &stage->leases, err);
    if (rc ==
        0) /* what admission promises holds whatever the sizes and the order of release */
        stg_lease_core_set_slot(stage->leases, stage->plan.max_batch_bytes);
    return rc;
}

int stg_stage_create(const struct stg_stage_config *config,
                     const struct stg_stage_plan *plan, struct stg_stage **ret,
                     struct stg_err *err)
{
    uint64_t bytes = plan->arena_bytes + plan->buffer_bytes;
    int rc = stg_budget_take(config->budget, bytes, config->name, err);
    if (rc < 0)
        return rc;
    struct stg_stage *stage = calloc(1, sizeof(*stage));
    if (stage == NULL) {
        stg_budget_give(config->budget, bytes);
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    }
    stage->config = *config;
    stage->plan = *plan;
    stage->staged = &config->spec->staged;
    stage->budget_bytes = bytes;
    stage->passes_ended = config->first_pass;
    stage->next_number = config->first_number;
    pthread_mutex_init(&stage->lock, NULL);

    rc = stg_runners_init(stage, err);
    if (rc == 0)
        rc = stg_segment_create("stager-arena", plan->arena_bytes, false,
                                config->cancelled, &stage->arena, err);
    if (rc == 0)
        rc = init_tables(stage, err);
    if (rc == 0)
        rc = stg_runners_start(stage, err);
    if (rc < 0) {
        stg_stage_destroy(stage);
        return rc;
    }
    *ret = stage;
    return 0;
}

static void destroy_client(struct stg_stage *stage, struct stg_client *client)
{
    struct stg_client **at = &stage->clients;
    while (*at != client)
        at = &(*at)->next;
    *at = client->next;
    stg_segment_destroy(&client->ring_segment);
    stg_segment_destroy(&client->control_segment);
    free(client->assigned);
    free(client);
}

void stg_stage_destroy(struct stg_stage *stage)
{
    if (stage == NULL)
        return;
    if (stage->runners.n_started > 0)
        stg_stage_stop(stage, STAGER_CANCELLED, "stage destroyed", false);
    stg_runners_finish(stage);
    stg_feed_set_unref(stage->feeds);
    while (stage->clients != NULL)
        destroy_client(stage, stage->clients);
    stg_lease_core_destroy(stage->leases);
    stg_segment_destroy(&stage->arena);
    stg_budget_give(stage->config.budget, stage->budget_bytes);
    pthread_mutex_destroy(&stage->lock);
    free(stage->items);
    free(stage->queue);
    free(stage->returned);
    free(stage);
}

void stg_stage_stop(struct stg_stage *stage, int code, const char *text, bool drain)
{
    pthread_mutex_lock(&stage->lock);
    if (!stage->stopping) {
        stage->stopping = true;
        stage->last_words.code = -code;
        snprintf(stage->last_words.text, sizeof(stage->last_words.text), "%s", text);
        atomic_store(&stage->stopped, 1);
    }
    stage->draining = drain;
    stg_delivery_run(stage);
    stg_wake_runners(stage, STG_WAKE_ALL);
    pthread_mutex_unlock(&stage->lock);
}

uint32_t stg_stage_n_clients(struct stg_stage *stage)
{
    pthread_mutex_lock(&stage->lock);
    uint32_t n = stage->n_attached;
    pthread_mutex_unlock(&stage->lock);
    return n;
}

bool stg_stage_stopping(struct stg_stage *stage)
{
    pthread_mutex_lock(&stage->lock);
    bool stopping = stage->stopping;
    pthread_mutex_unlock(&stage->lock);
    return stopping;
}

bool stg_stage_quiet(struct stg_stage *stage)
{
    pthread_mutex_lock(&stage->lock);
    bool quiet = stage->stopping && stage->runners.n_alive == 0;
    pthread_mutex_unlock(&stage->lock);
    return quiet;
}

bool stg_stage_finished(struct stg_stage *stage)
{
    pthread_mutex_lock(&stage->lock);
    bool finished =
        stage->stopping && stage->runners.n_alive == 0 && stage->clients == NULL;
    pthread_mutex_unlock(&stage->lock);
    return finished;
}

void stg_stage_position(struct stg_stage *stage, uint64_t *ret_number, uint64_t *ret_pass)
{
    pthread_mutex_lock(&stage->lock);
    bool unfinished = stage->pass_state != STG_PASS_NONE;
    *ret_number = stage->next_number;
    *ret_pass = stage->passes_ended + unfinished;
    pthread_mutex_unlock(&stage->lock);
}

/* ---- attach ---- */

static int refuse_full(const struct stg_stage *stage, struct stg_err *err)
{
    stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
            "pipeline %s has num_clients %u, and as many are "
            "attached:",
            stage->config.name, stage->config.num_clients);
    for (const struct stg_client *c = stage->clients; c != NULL; c = c->next) {
        if (c->state == STG_CLIENT_ATTACHED)
            stg_err_append(err, err->code, " %s (pid %d)", c->client_id, (int)c->pid);
    }
    return stg_err_append(err, err->code,
                          "; raise num_clients, or wait until one leaves");
}

/* (capacity + num_threads + sum of max_held + 1) x max_batch_bytes must fit the arena. */
static int admit(const struct stg_stage *stage, uint32_t max_held, struct stg_err *err)
{
    uint64_t held = max_held;
    for (const struct stg_client *c = stage->clients; c != NULL; c = c->next)
        held += c->state == STG_CLIENT_ATTACHED ? c->max_held : 0;
    uint64_t n =
        (uint64_t)stage->staged->capacity + stage->staged->num_threads + held + 1;
    if (n <= stage->plan.n_extents)
        return 0;
    return stg_err(
        err, -STAGER_RESOURCE_EXHAUSTED,
        "max_held %u is too much: (capacity %u + num_threads %u + all max_held %" PRIu64
        " + 1) x max_batch_bytes %" PRIu64 " = %.1f MiB, but the pipeline has %.1f MiB: "
        "open with a smaller max_held, or raise num_clients or memory_budget",
        max_held, stage->staged->capacity, stage->staged->num_threads, held,
        stage->plan.max_batch_bytes, (double)(n * stage->plan.max_batch_bytes) / MIB,
        (double)stage->plan.arena_bytes / MIB);
}

static int create_client(struct stg_stage *stage, const struct stg_attach *attach,
                         struct stg_client **ret, struct stg_err *err)
{
    struct stg_client *client = calloc(1, sizeof(*client));
    if (client == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    client->max_held = attach->max_held;
    client->ack_explicit = attach->ack_explicit;
    client->pid = attach->pid;
    client->uid = attach->uid;
    client->socket = attach->socket;
    snprintf(client->client_id, sizeof(client->client_id), "%s", attach->client_id);
    snprintf(client->program, sizeof(client->program), "%s", attach->program);
    client->assigned = calloc(attach->max_held, sizeof(client->assigned[0]));
    int rc = client->assigned != NULL
                 ? 0
                 : stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    if (rc == 0)
        rc = stg_segment_create("stager-ring", STG_RING_BYTES, false, NULL,
                                &client->ring_segment, err);
    if (rc == 0)
        rc = stg_segment_create("stager-control", STG_CONTROL_BYTES, true, NULL,
                                &client->control_segment, err);
    if (rc == 0)
        rc = stg_lease_client_add(stage->leases, attach->max_held, &client->lease_client);
    if (rc < 0) {
        if (err->code == 0)
            stg_err(err, rc, "too many clients that died or left with batches in hand");
        stg_segment_destroy(&client->ring_segment);
        stg_segment_destroy(&client->control_segment);
        free(client->assigned);
        free(client);
        return rc;
    }
    stg_ring_format(client->ring_segment.base, stage->config.instance);
    stg_control_format(client->control_segment.base, stage->config.instance);
    client->ring.page = client->ring_segment.base;
    client->control.page = client->control_segment.base;
    *ret = client;
    return 0;
}

/* Which pass a newcomer is in: the running one; the next one; or, under split while
 * others are still there, the one that just ended, so that it is told the end at once. */
static uint64_t pass_to_join(const struct stg_stage *stage)
{
    bool late = stage->config.delivery == STG_DELIVERY_SPLIT && stage->n_attached > 0 &&
                stage->pass_state == STG_PASS_NONE &&
                stage->passes_ended > stage->config.first_pass;
    return stage->passes_ended - late;
}

int stg_stage_attach(struct stg_stage *stage, const struct stg_attach *attach,
                     struct stg_attached *ret, struct stg_err *err)
{
    struct stg_client *client = NULL;
    pthread_mutex_lock(&stage->lock);
    int rc = 0;
    if (stage->n_attached >= stage->config.num_clients)
        rc = refuse_full(stage, err);
    if (rc == 0)
        rc = admit(stage, attach->max_held, err);
    if (rc == 0)
        rc = create_client(stage, attach, &client, err);
    if (rc == 0) {
        client->base_pass = pass_to_join(stage);
        client->cursor = stage->queue_next;
        client->next = stage->clients;
        stage->clients = client;
        if (stage->n_attached++ == 0)
            stage->first_attach_ns = stg_now_ns();
        stg_wake_runners(stage, STG_WAKE_ROOM);
        *ret = (struct stg_attached){
            .client = client,
            .fds = {stage->arena.fd, client->ring_segment.fd, client->control_segment.fd},
            .segment_bytes = stage->arena.bytes,
            .first_number = stage->next_number,
        };
        stg_delivery_run(stage);
    }
    pthread_mutex_unlock(&stage->lock);
    return rc;
}

/* ---- events of the loop ---- */

static void reap(struct stg_stage *stage, struct stg_client *client)
{
    stg_lease_client_dead(stage->leases, client->lease_client, NULL, NULL);
    destroy_client(stage, client);
}

static void stop_when_left(struct stg_stage *stage)
{
    if (stage->n_attached > 0 || stage->stopping)
        return;
    stage->stopping = true;
    stage->last_words.code = -STAGER_CANCELLED;
    atomic_store(&stage->stopped, 1);
    stg_wake_runners(stage, STG_WAKE_ALL);
}

bool stg_stage_detach(struct stg_stage *stage, struct stg_client *client)
{
    pthread_mutex_lock(&stage->lock);
    stg_client_detach(stage, client);
    /* Who never asked for a pass was not told, or could not map, what it was given. */
    bool gone = client->n_assigned == 0 || stg_control_pass_wanted(&client->control) == 0;
    if (gone)
        reap(stage, client);
    stop_when_left(stage);
    stg_delivery_run(stage);
    pthread_mutex_unlock(&stage->lock);
    return gone;
}

void stg_stage_dead(struct stg_stage *stage, struct stg_client *client)
{
    pthread_mutex_lock(&stage->lock);
    stg_client_detach(stage, client);
    reap(stage, client);
    stop_when_left(stage);
    stg_delivery_run(stage);
    stg_wake_runners(stage, STG_WAKE_ALL);
    pthread_mutex_unlock(&stage->lock);
}

uint32_t stg_stage_client_held(struct stg_stage *stage, struct stg_client *client)
{
    pthread_mutex_lock(&stage->lock);
    uint32_t n = client->n_assigned;
    pthread_mutex_unlock(&stage->lock);
    return n;
}

void stg_stage_bell(struct stg_stage *stage, struct stg_client *client)
{
    pthread_mutex_lock(&stage->lock);
    client->bell_wanted = false;
    stg_delivery_run(stage);
    pthread_mutex_unlock(&stage->lock);
}

int stg_stage_sweep(struct stg_stage *stage)
{
    pthread_mutex_lock(&stage->lock);
    uint32_t n_waiting = 0;
    bool armed = stage->runners.n_waiting > 0 || stage->stopping;
    for (struct stg_client *c = stage->clients; c != NULL; c = c->next) {
        c->bell_wanted = false; /* a bell may have been lost: ask anew */
        n_waiting += c->state == STG_CLIENT_ATTACHED && stg_control_waiting(&c->control);
        armed = armed || c->state == STG_CLIENT_DETACHED;
    }
    stg_delivery_run(stage);
    uint64_t now = stg_now_ns(); /* after: nothing was assigned later than this */
    stg_expire_clients(stage, now);
    pthread_mutex_unlock(&stage->lock);
    return armed || n_waiting > 0 ? SWEEP_MILLIS : -1;
}

/* ---- status ---- */

static const char *state_name(const struct stg_stage *stage)
{
    if (stage->stopping)
        return "stopping";
    if (stage->failure.code != 0)
        return "failed";
    if (stage->pass_state != STG_PASS_NONE)
        return "running";
    return stage->passes_ended > stage->config.first_pass ? "ended" : "waiting";
}

const char *stg_stage_state(struct stg_stage *stage)
{
    pthread_mutex_lock(&stage->lock);
    const char *state = state_name(stage);
    pthread_mutex_unlock(&stage->lock);
    return state;
}

static void client_status(const struct stg_stage *stage, const struct stg_client *client,
                          struct stg_bump *bump, struct stg_client_status *ret)
{
    const char *id = stg_bump_strndup(bump, client->client_id, strlen(client->client_id));
    const char *program =
        stg_bump_strndup(bump, client->program, strlen(client->program));
    uint64_t waiting = client->waiting_since_ns;
    *ret = (struct stg_client_status){
        .client_id = id != NULL ? id : "?",
        .program = program != NULL ? program : "?",
        .state = client->state == STG_CLIENT_ATTACHED ? "attached" : "detached",
        .pid = (uint32_t)client->pid,
        .uid = (uint32_t)client->uid,
        .max_held = client->max_held,
        .held = client->n_assigned,
        .assigned = client->n_given,
        .taken = client->n_taken,
        .released = client->n_released,
        .redelivered = client->n_redelivered,
        .wait_ns = client->wait_ns + (waiting != 0 ? stg_now_ns() - waiting : 0),
        .violations = client->n_violations,
    };
}

void stg_stage_status(struct stg_stage *stage, struct stg_bump *bump,
                      struct stg_pipeline_status *ret)
{
    pthread_mutex_lock(&stage->lock);
    struct stg_lease_usage usage;
    stg_lease_usage(stage->leases, &usage);
    const char *error =
        stg_bump_strndup(bump, stage->last_error, strlen(stage->last_error));
    ret->state = state_name(stage);
    ret->last_error = error != NULL ? error : "";
    ret->pass = stage->passes_ended;
    ret->epoch = stage->epoch;
    ret->buffered = (uint32_t)(stage->queue_next - stage->queue_first);
    ret->published = stage->n_published;
    ret->assigned = stage->n_assigned;
    ret->released = stage->n_released;
    ret->dropped = stage->n_dropped;
    ret->errors = stage->n_errors;
    ret->redelivered = stage->n_redelivered;
    ret->lost = stage->n_lost;
    ret->rows = stage->n_rows;
    ret->bytes = stage->n_bytes;
    ret->timeouts = stage->n_timeouts;
    ret->made = stage->n_made;
    ret->ignored = stage->n_ignored;
    ret->in_hand = stage->n_in_hand;
    ret->discarded = stage->n_discarded;
    ret->feed_version = stage->feeds != NULL ? stage->feeds->version : 0;
    ret->memory_bytes = usage.total;
    ret->memory_used_bytes = usage.total - usage.free;
    ret->quarantined_bytes = usage.quarantined;
    ret->max_batch_bytes = stage->plan.max_batch_bytes;
    ret->producer_wait_ns = stage->wait_ns;
    ret->producer_busy_ns = stage->busy_ns;

    size_t n = 0;
    for (struct stg_client *c = stage->clients; c != NULL; c = c->next)
        n++;
    ret->clients = stg_bump_alloc(bump, n * sizeof(ret->clients[0]));
    ret->n_clients = 0;
    for (struct stg_client *c = stage->clients; c != NULL && ret->clients != NULL;
         c = c->next)
        client_status(stage, c, bump, &ret->clients[ret->n_clients++]);
    pthread_mutex_unlock(&stage->lock);
}
