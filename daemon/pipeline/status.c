/* SPDX-License-Identifier: Apache-2.0
 *
 * What a pipeline counts over all of its instances of a generation.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/autotune/measure.h"
#include "daemon/host/pool.h"
#include "daemon/pipeline/catalog_priv.h"
#include "daemon/pipeline/recovery.h"
#include "daemon/pyworker/work.h"

static void add_counters(const struct stg_pipeline_status *from,
                         struct stg_pipeline_status *to)
{
    to->epoch = from->epoch;
    to->published += from->published;
    to->assigned += from->assigned;
    to->released += from->released;
    to->made += from->made;
    to->dropped += from->dropped;
    to->dropped_rows += from->dropped_rows;
    to->ignored += from->ignored;
    to->ignored_elements += from->ignored_elements;
    to->remainder_elements += from->remainder_elements;
    to->discarded += from->discarded;
    to->acknowledged += from->acknowledged;
    to->discarded_published += from->discarded_published;
    to->incomplete_rounds += from->incomplete_rounds;
    to->evicted += from->evicted;
    to->timeouts += from->timeouts;
    to->errors += from->errors;
    to->redelivered += from->redelivered;
    to->lost += from->lost;
    to->rows += from->rows;
    to->bytes += from->bytes;
    to->producer_wait_ns += from->producer_wait_ns;
    to->producer_busy_ns += from->producer_busy_ns;
}

void stg_catalog_keep_counts(struct stg_instance *instance)
{
    struct stg_pipeline *pipeline = instance->pipeline;
    if (pipeline == NULL)
        return;
    pipeline->instance = NULL;
    if (instance->stage == NULL)
        return;
    stg_stage_position(instance->stage, &pipeline->next_number, &pipeline->next_pass);
    if (stg_stage_quiet(instance->stage)) { /* not superseded by a state */
        stg_measure_destroy(pipeline->measure);
        pipeline->measure = stg_stage_take_measure(instance->stage);
    }
    struct stg_bump bump;
    struct stg_pipeline_status status = {0};
    stg_bump_init(&bump, 0);
    stg_stage_status(instance->stage, &bump, &status);
    add_counters(&status, &pipeline->past);
    for (size_t i = status.n_clients; i-- > 0;) { /* the last one gone comes first */
        if (strcmp(status.clients[i].state, "attached") != 0)
            stg_gone_add(&pipeline->gone, &status.clients[i]);
    }
    if (status.last_error[0] != '\0')
        snprintf(pipeline->last_error, sizeof(pipeline->last_error), "%s",
                 status.last_error);
    stg_bump_finish(&bump);
}

/* A candidate may never be adopted; a private run is looked at, not trained on. */
static bool has_totals(const struct stg_instance *instance)
{
    return instance->stage != NULL && !instance->is_candidate &&
           (!instance->private_run || instance->is_apart);
}

void stg_catalog_keep_totals(const struct stg_instance *instance)
{
    struct stg_pipeline *pipeline = instance->catalog->pipelines;
    while (pipeline != NULL && pipeline->id != instance->pipeline_id)
        pipeline = pipeline->next;
    if (pipeline != NULL && has_totals(instance))
        stg_stage_add_totals(instance->stage, &pipeline->totals);
}

void stg_catalog_add_totals(const struct stg_catalog *catalog,
                            const struct stg_pipeline *pipeline, struct stg_totals *ret)
{
    stg_totals_add(ret, &pipeline->totals);
    for (const struct stg_instance *i = catalog->instances; i != NULL; i = i->next) {
        if (i->pipeline_id == pipeline->id && has_totals(i))
            stg_stage_add_totals(i->stage, ret);
    }
}

static void show_workers(struct stg_workers *workers, struct stg_pipeline_status *ret)
{
    struct stg_workers_counts counts;
    stg_workers_count(workers, &counts);
    ret->py_function = stg_workers_function(workers);
    ret->workers = counts.n_ready;
    ret->worker_calls = counts.n_calls;
    ret->workers_lost = counts.n_lost;
}

static void show_candidate(const struct stg_pipeline *pipeline,
                           struct stg_pipeline_status *ret)
{
    const struct stg_pipeline *candidate = pipeline->candidate;
    if (candidate == NULL)
        return;
    ret->warming_generation = candidate->generation;
    if (candidate->instance != NULL && candidate->instance->stage != NULL)
        (void)stg_stage_warmth(candidate->instance->stage, &ret->warming_buffered, NULL);
}

static void show_container(const struct stg_definition *definition,
                           struct stg_pipeline_status *ret)
{
    struct stg_container_usage usage;
    if (definition->container == NULL)
        return;
    stg_container_usage(definition->container, &usage);
    ret->container = definition->spec->container;
    ret->container_tables = usage.n_tables;
    ret->container_caches = usage.n_caches;
    ret->container_bytes = usage.bytes;
}

bool stg_catalog_is_of(const struct stg_instance *instance,
                       const struct stg_pipeline *pipeline)
{
    return instance == pipeline->instance ||
           (instance->is_apart && instance->pipeline_id == pipeline->id);
}

void stg_catalog_show_apart(const struct stg_catalog *catalog,
                            const struct stg_pipeline *pipeline, struct stg_bump *bump,
                            struct stg_pipeline_status *ret)
{
    for (const struct stg_instance *i = catalog->instances; i != NULL; i = i->next) {
        if (i != pipeline->instance && stg_catalog_is_of(i, pipeline) && i->stage != NULL)
            stg_stage_show_apart(i->stage, bump, ret);
    }
}

/* Without bump: numbers alone. */
static void fill_numbers(struct stg_pipeline *pipeline, struct stg_bump *bump,
                         struct stg_pipeline_status *ret)
{
    static const char *const deliveries[] = {"split", "broadcast", "round_robin"};
    const struct stg_staged *staged = &pipeline->definition->spec->staged;
    struct stg_instance *instance = pipeline->instance;
    *ret =
        (struct stg_pipeline_status){.state = "idle", .last_error = pipeline->last_error};
    ret->pass = pipeline->next_pass;
    if (instance != NULL && instance->state == STG_INSTANCE_CREATING)
        ret->state = "starting";
    else if (instance != NULL && instance->stage != NULL && bump != NULL)
        stg_stage_status(instance->stage, bump, ret);
    else if (instance != NULL && instance->stage != NULL)
        stg_stage_numbers(instance->stage, ret);
    uint64_t epoch = instance != NULL ? ret->epoch : pipeline->past.epoch;
    add_counters(&pipeline->past, ret);
    ret->epoch = epoch;
    ret->name = pipeline->name;
    ret->generation = pipeline->generation;
    ret->run_id = pipeline->run_id;
    ret->delivery = deliveries[staged->delivery];
    if (ret->capacity == 0) /* no stage, which would have said what it is now */
        ret->capacity = staged->capacity;
    if (ret->num_threads == 0)
        ret->num_threads = staged->num_threads;
    ret->num_clients = staged->num_clients;
    ret->pipeline = pipeline->id;
    if (pipeline->workers != NULL)
        show_workers(pipeline->workers, ret);
}

void stg_catalog_numbers(struct stg_pipeline *pipeline, struct stg_pipeline_status *ret)
{
    fill_numbers(pipeline, NULL, ret);
}

void stg_catalog_status(struct stg_pipeline *pipeline, struct stg_bump *bump,
                        struct stg_pipeline_status *ret)
{
    static const char *const on_timeouts[] = {"drop", "wait", "evict"};
    const struct stg_staged *staged = &pipeline->definition->spec->staged;
    const struct stg_instance *instance = pipeline->instance;
    fill_numbers(pipeline, bump, ret);
    stg_gone_show(&pipeline->gone, bump, ret);
    ret->on_timeout = on_timeouts[staged->on_timeout];
    ret->capacity_auto = staged->capacity == 0;
    ret->num_threads_auto = staged->num_threads == 0;
    ret->num_clients_auto = staged->num_clients_auto;
    ret->boundary = *stg_graph_boundary(pipeline->definition->graph);
    ret->commit_problem = stg_journal_problem(pipeline->journal);
    show_container(pipeline->definition, ret);
    show_candidate(pipeline, ret);
    stg_recovery_show(pipeline, bump, ret);
    if (instance != NULL && instance->config.pool != NULL)
        ret->thread_pool = stg_pool_name(instance->config.pool);
}
