/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/pipeline/catalog.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "core/log.h"
#include "core/param.h"
#include "daemon/autotune/measure.h"
#include "daemon/dataset/steps/py_function.h"
#include "daemon/host/pool.h"
#include "daemon/pipeline/catalog_priv.h"
#include "daemon/pyworker/work.h"

int stg_catalog_create(uv_loop_t *loop, const struct stg_settings *settings,
                       struct stg_budget *budget, uint64_t instance_id,
                       const struct stg_catalog_hooks *hooks, struct stg_catalog **ret,
                       struct stg_err *err)
{
    struct stg_catalog *catalog = calloc(1, sizeof(*catalog));
    if (catalog == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    catalog->loop = loop;
    catalog->settings = settings;
    int rc = stg_catalog_make_containers(catalog, budget, err);
    if (rc < 0) {
        free(catalog);
        return rc;
    }
    catalog->budget = budget;
    catalog->instance_id = instance_id;
    catalog->hooks = *hooks;
    catalog->trim = (struct stg_heap_trim){.done = hooks->changed, .owner = hooks->owner};
    catalog->access_gid = stg_group_id(settings->access_group);
    *ret = catalog;
    return 0;
}

/* ---- workers, of a pipeline with a step py_function ---- */

static void release_definition(void *keeper)
{
    stg_definition_unref(keeper);
}

static int make_workers(struct stg_catalog *catalog, const char *name,
                        struct stg_definition *definition, struct stg_workers **ret,
                        struct stg_err *err)
{
    *ret = NULL;
    if (stg_py_function_find(definition->spec) == NULL)
        return 0;
    struct stg_workers_config config = {.spec = definition->spec,
                                        .keeper = definition,
                                        .release = release_definition,
                                        .name = name,
                                        .budget = catalog->budget,
                                        .wake = catalog->hooks.wake,
                                        .owner = catalog->hooks.owner};
    int rc = stg_workers_create(&config, ret, err);
    if (rc == 0)
        stg_definition_ref(definition);
    return rc;
}

static void stop_workers(struct stg_pipeline *pipeline, const char *text)
{
    if (pipeline->workers != NULL)
        stg_workers_stop(pipeline->workers, text);
    stg_workers_unref(pipeline->workers);
    pipeline->workers = NULL;
}

/* ---- life ---- */

static void free_pipeline(struct stg_pipeline *pipeline)
{
    stop_workers(pipeline, "the pipeline was deleted");
    stg_definition_unref(pipeline->definition);
    stg_measure_destroy(pipeline->measure);
    free(pipeline);
}

void stg_catalog_free_instance(struct stg_instance *instance)
{
    stg_stage_destroy(instance->stage);
    stg_workers_unref(instance->config.workers);
    stg_definition_unref(instance->definition);
    free(instance);
}

void stg_catalog_destroy(struct stg_catalog *catalog)
{
    if (catalog == NULL)
        return;
    while (catalog->instances != NULL) {
        struct stg_instance *next = catalog->instances->next;
        stg_catalog_free_instance(catalog->instances);
        catalog->instances = next;
    }
    while (catalog->pipelines != NULL) {
        struct stg_pipeline *next = catalog->pipelines->next;
        free_pipeline(catalog->pipelines);
        catalog->pipelines = next;
    }
    stg_catalog_drop_containers(catalog);
    free(catalog);
}

struct stg_pipeline *stg_catalog_first(struct stg_catalog *catalog)
{
    return catalog->pipelines;
}

struct stg_pipeline *stg_catalog_find(struct stg_catalog *catalog, const char *name)
{
    for (struct stg_pipeline *p = catalog->pipelines; p != NULL; p = p->next) {
        if (strcmp(p->name, name) == 0)
            return p;
    }
    return NULL;
}

bool stg_catalog_allowed(const struct stg_catalog *catalog,
                         const struct stg_pipeline *pipeline,
                         const struct stg_identity *identity)
{
    if (identity->uid == 0 || identity->uid == pipeline->definition->applier.uid)
        return true;
    if (catalog->access_gid == (gid_t)-1)
        return false;
    if (identity->gid == catalog->access_gid)
        return true;
    for (size_t i = 0; i < identity->n_groups; i++) {
        if (identity->groups[i] == catalog->access_gid)
            return true;
    }
    return false;
}

/* ---- applying ---- */

static void make_up_name(struct stg_catalog *catalog, char *buf, size_t bytes)
{
    snprintf(buf, bytes, "prefetch");
    for (unsigned i = 1; stg_catalog_find(catalog, buf) != NULL; i++)
        snprintf(buf, bytes, "prefetch_%u", i);
}

int stg_catalog_check_name(const char *name, struct stg_err *err)
{
    static const char characters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
    size_t n = strlen(name);
    if (n >= 1 && n <= 64 && strspn(name, characters) == n && name[0] != '.')
        return 0;
    return stg_err(
        err, -STAGER_INVALID_ARGUMENT,
        "\"%s\" is no name for a pipeline: 1 to 64 of A-Z a-z 0-9 _ . -, the first "
        "not a dot",
        name);
}

/* The shared instance belongs to the past: its clients get the rest, then ABORTED. */
static void retire(struct stg_pipeline *pipeline, const char *text)
{
    struct stg_instance *instance = pipeline->instance;
    pipeline->instance = NULL;
    if (instance == NULL)
        return;
    instance->pipeline = NULL;
    instance->abandoned = 1;
    if (instance->stage != NULL)
        stg_stage_stop(instance->stage, STAGER_ABORTED, text, true);
}

static uint64_t make_id(void)
{
    uint64_t id;
    if (getrandom(&id, sizeof(id), 0) < 0 || id >> 1 == 0)
        id = uv_hrtime();
    return id;
}

static int replace_definition(struct stg_catalog *catalog, struct stg_pipeline *pipeline,
                              struct stg_definition *definition, enum stg_replace replace,
                              struct stg_err *err)
{
    struct stg_workers *workers = NULL;
    int rc = stg_catalog_check_replace(pipeline, definition, replace, err);
    if (rc == 0)
        rc = make_workers(catalog, pipeline->name, definition, &workers, err);
    if (rc == 0)
        rc = stg_catalog_save(catalog, pipeline->name, definition,
                              pipeline->generation + 1, err);
    if (rc < 0) {
        stg_workers_unref(workers);
        return rc;
    }
    pipeline->generation++;
    char text[128];
    snprintf(text, sizeof(text), "replaced by generation %" PRIu64, pipeline->generation);
    retire(pipeline, text);
    stop_workers(pipeline, text);
    pipeline->workers = workers;
    stg_definition_unref(pipeline->definition);
    pipeline->definition = definition;
    pipeline->run_id = make_id() >> 1;
    pipeline->next_number = 0;
    pipeline->next_pass = 0;
    pipeline->past = (struct stg_pipeline_status){0};
    pipeline->last_error[0] = '\0';
    pipeline->gone = (struct stg_gone_list){0};
    stg_measure_destroy(pipeline->measure);
    pipeline->measure = NULL;
    pipeline->from_dir = false;
    stg_catalog_tell(catalog, STG_EVENT_APPLIED, pipeline->id);
    return 0;
}

int stg_catalog_add(struct stg_catalog *catalog, const char *name,
                    struct stg_definition *definition, uint64_t generation,
                    struct stg_pipeline **ret, struct stg_err *err)
{
    struct stg_pipeline *pipeline = calloc(1, sizeof(*pipeline));
    if (pipeline == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    int rc = make_workers(catalog, name, definition, &pipeline->workers, err);
    if (rc < 0) {
        free(pipeline);
        return rc;
    }
    snprintf(pipeline->name, sizeof(pipeline->name), "%s", name);
    pipeline->definition = definition;
    pipeline->generation = generation;
    pipeline->id = make_id();
    pipeline->run_id = make_id() >> 1; /* a number of JSON, below 2^63 */
    struct stg_pipeline **at = &catalog->pipelines;
    while (*at != NULL && strcmp((*at)->name, name) < 0)
        at = &(*at)->next;
    pipeline->next = *at;
    *at = pipeline;
    *ret = pipeline;
    return 0;
}

static void unlink_pipeline(struct stg_catalog *catalog, struct stg_pipeline *pipeline)
{
    struct stg_pipeline **at = &catalog->pipelines;
    while (*at != pipeline)
        at = &(*at)->next;
    *at = pipeline->next;
}

/* Saved last: what is refused must not be there after a restart. */
static int add_and_save(struct stg_catalog *catalog, const char *name,
                        struct stg_definition *definition, struct stg_pipeline **ret,
                        struct stg_err *err)
{
    struct stg_pipeline *pipeline;
    int rc = stg_catalog_add(catalog, name, definition, 1, &pipeline, err);
    if (rc < 0)
        return rc;
    rc = stg_catalog_save(catalog, pipeline->name, definition, 1, err);
    if (rc < 0) {
        unlink_pipeline(catalog, pipeline);
        stg_workers_unref(pipeline->workers);
        free(pipeline);
        return rc;
    }
    *ret = pipeline;
    return 0;
}

int stg_catalog_apply(struct stg_catalog *catalog, struct stg_definition *definition,
                      const char *name, enum stg_replace replace,
                      struct stg_pipeline **ret, bool *ret_unchanged, struct stg_err *err)
{
    char made_up[65];
    if (name == NULL || name[0] == '\0')
        name = definition->spec->name;
    if (name == NULL) {
        make_up_name(catalog, made_up, sizeof(made_up));
        name = made_up;
    }
    int rc = stg_catalog_check_name(name, err);
    if (rc < 0)
        return rc;
    struct stg_pipeline *pipeline = stg_catalog_find(catalog, name);
    if (pipeline != NULL) {
        if (!stg_catalog_allowed(catalog, pipeline, &definition->applier))
            return stg_err(err, -STAGER_PERMISSION_DENIED,
                           "pipeline %s was applied by uid %u; choose another name", name,
                           (unsigned)pipeline->definition->applier.uid);
        *ret_unchanged =
            pipeline->definition->spec->fingerprint == definition->spec->fingerprint;
        rc = *ret_unchanged
                 ? 0
                 : replace_definition(catalog, pipeline, definition, replace, err);
        if (rc == 0 && *ret_unchanged)
            stg_definition_unref(definition);
        if (rc == 0)
            *ret = pipeline;
        return rc;
    }
    *ret_unchanged = false;
    rc = add_and_save(catalog, name, definition, ret, err);
    if (rc == 0)
        stg_catalog_tell(catalog, STG_EVENT_APPLIED, (*ret)->id);
    return rc;
}

int stg_catalog_delete(struct stg_catalog *catalog, struct stg_pipeline *pipeline,
                       struct stg_err *err)
{
    int rc = stg_catalog_forget(catalog, pipeline->name, err);
    if (rc < 0)
        return rc;
    retire(pipeline, "the pipeline was deleted");
    unlink_pipeline(catalog, pipeline);
    stg_catalog_tell(catalog, STG_EVENT_DELETED, pipeline->id);
    free_pipeline(pipeline);
    stg_heap_trim(&catalog->trim, catalog->loop);
    return 0;
}

/* ---- instances ---- */

static void create_stage(uv_work_t *work)
{
    struct stg_instance *instance = work->data;
    stg_stage_create(&instance->config, &instance->plan, &instance->at_work,
                     &instance->error);
}

static void created_stage(uv_work_t *work, int status)
{
    struct stg_instance *instance = work->data;
    struct stg_catalog *catalog = instance->catalog;
    instance->stage = instance->at_work;
    instance->at_work = NULL;
    instance->state = instance->stage != NULL ? STG_INSTANCE_LIVE : STG_INSTANCE_FAILED;
    if (instance->stage != NULL && instance->abandoned)
        stg_stage_stop(instance->stage, STAGER_ABORTED, "replaced", false);
    catalog->hooks.changed(catalog->hooks.owner);
    if (instance->state ==
        STG_INSTANCE_FAILED) /* who asked knows; who comes now did not */
        stg_catalog_discard(instance);
    /* Whoever asked for it has attached by now, or gave up. */
    if (instance->stage != NULL && !stg_stage_is_used(instance->stage))
        stg_stage_stop(instance->stage, STAGER_CANCELLED,
                       "no client waits for it any more", false);
}

static int new_instance(struct stg_catalog *catalog, struct stg_pipeline *pipeline,
                        bool private_run, uint32_t max_held, struct stg_instance **ret,
                        struct stg_err *err)
{
    struct stg_definition *definition = pipeline->definition;
    uint32_t num_clients = private_run ? 1 : definition->spec->staged.num_clients;
    struct stg_stage_plan plan;
    struct stg_plan_asked asked =
        stg_definition_asked(definition, num_clients, max_held < 2 ? 2 : max_held,
                             catalog->settings->default_pipeline_memory);
    int rc = stg_stage_plan(&asked, &plan, err);
    if (rc < 0)
        return rc;
    struct stg_instance *instance = calloc(1, sizeof(*instance));
    if (instance == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    instance->catalog = catalog;
    instance->pipeline = private_run ? NULL : pipeline;
    instance->definition = stg_definition_ref(definition);
    instance->generation = pipeline->generation;
    instance->pipeline_id = pipeline->id;
    instance->told_state = "";
    instance->private_run = private_run;
    instance->plan = plan;
    instance->n_gone = catalog->n_gone;
    instance->config = (struct stg_stage_config){
        .spec = definition->spec,
        .graph = definition->graph,
        .cuts = definition->cuts,
        .generation = pipeline->generation,
        .run_id = private_run ? make_id() >> 1 : pipeline->run_id,
        .first_number = private_run ? 0 : pipeline->next_number,
        .first_pass = private_run ? 0 : pipeline->next_pass,
        .instance = catalog->instance_id,
        .uid = definition->applier.uid,
        .gid = definition->applier.gid,
        .groups = definition->applier.groups,
        .n_groups = definition->applier.n_groups,
        .container = definition->container,
        .delivery = private_run ? STG_DELIVERY_SPLIT : definition->spec->staged.delivery,
        .private_run = private_run,
        .num_clients = num_clients,
        .budget = catalog->budget,
        .pool = definition->spec->staged.use_thread_pool
                    ? stg_pools_get(catalog->hooks.pools,
                                    definition->spec->staged.thread_pool_id)
                    : NULL,
        .workers = stg_workers_ref(pipeline->workers),
        .tuning = private_run ? NULL : definition->tuning,
        .trace = private_run ? NULL : &definition->trace,
        .cancelled = &instance->abandoned,
        .wake = catalog->hooks.wake,
        .owner = catalog->hooks.owner,
    };
    snprintf(instance->config.name, sizeof(instance->config.name), "%s", pipeline->name);
    instance->work.data = instance;
    instance->next = catalog->instances;
    catalog->instances = instance;
    if (!private_run)
        pipeline->instance = instance;
    uv_queue_work(catalog->loop, &instance->work, create_stage, created_stage);
    *ret = instance;
    return 0;
}

int stg_catalog_instance(struct stg_catalog *catalog, struct stg_pipeline *pipeline,
                         bool private_run, uint32_t max_held, struct stg_instance **ret,
                         struct stg_err *err)
{
    struct stg_instance *instance = private_run ? NULL : pipeline->instance;
    if (instance != NULL && instance->state == STG_INSTANCE_LIVE &&
        stg_stage_stopping(instance->stage)) {
        if (!stg_stage_quiet(instance->stage))
            return stg_err(err, -STAGER_UNAVAILABLE, "pipeline %s is still stopping",
                           pipeline->name);
        /* Who left and keeps batches keeps their memory, and nobody from the pipeline. */
        stg_catalog_keep_counts(instance);
        instance->pipeline = NULL;
        instance = NULL;
    }
    if (instance != NULL) {
        *ret = instance;
        return 0;
    }
    return new_instance(catalog, pipeline, private_run, max_held, ret, err);
}
