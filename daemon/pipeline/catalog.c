/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/pipeline/catalog.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/param.h"
#include "daemon/autotune/measure.h"
#include "daemon/dataset/steps/py_function.h"
#include "daemon/host/pool.h"
#include "daemon/host/share.h"
#include "daemon/pipeline/catalog_priv.h"
#include "daemon/pipeline/difference.h"
#include "daemon/pipeline/recovery.h"
#include "daemon/pipeline/store.h"
#include "daemon/pipeline/versions.h"
#include "daemon/pyworker/work.h"

#define CONTAINERS "containers" /* of the budget */

/* ---- containers that pipelines share ---- */

static int take_memory(void *owner, uint64_t bytes, const char *what, struct stg_err *err)
{
    int rc = stg_budget_take(owner, bytes, CONTAINERS, err);
    if (rc < 0 && err != NULL)
        stg_err_prefix(err, rc, "%s", what);
    return rc;
}

static void give_memory(void *owner, uint64_t bytes)
{
    stg_budget_give(owner, bytes, CONTAINERS);
}

static void reclaim_memory(void *owner, uint64_t bytes)
{
    stg_containers_reclaim(owner, bytes);
}

static int make_containers(struct stg_catalog *catalog, struct stg_budget *budget,
                           struct stg_err *err)
{
    struct stg_container_memory memory = {
        .owner = budget, .take = take_memory, .give = give_memory};
    int rc = stg_containers_create(&memory, &catalog->containers, err);
    if (rc < 0)
        return rc;
    budget->owner = catalog->containers;
    budget->reclaim = reclaim_memory;
    return 0;
}

struct stg_containers *stg_catalog_containers(struct stg_catalog *catalog)
{
    return catalog->containers;
}

/* ---- quotas ---- */

/* The pipeline and its files count on the share from now on, also above its limits. NULL:
 * on none. */
static void count_on(struct stg_pipeline *pipeline, struct stg_share *share)
{
    stg_share_give(pipeline->counted, STG_QUOTA_PIPELINES, 1);
    stg_share_give(pipeline->counted, STG_QUOTA_DISK, pipeline->disk_bytes);
    stg_share_add(share, STG_QUOTA_PIPELINES, 1);
    stg_share_add(share, STG_QUOTA_DISK, pipeline->disk_bytes);
    stg_journal_count_on(pipeline->journal, share);
    pipeline->counted = share;
}

/* Its definitions, the current one and earlier ones, have that many bytes on disk. */
static void count_disk(struct stg_pipeline *pipeline, uint64_t bytes)
{
    stg_share_give(pipeline->counted, STG_QUOTA_DISK, pipeline->disk_bytes);
    stg_share_add(pipeline->counted, STG_QUOTA_DISK, bytes);
    pipeline->disk_bytes = bytes;
}

/* The pipeline counts on the quota of the definition's applier from now on, with what the
 * definition adds on disk. A failure changes nothing. */
static int count_pipeline(struct stg_pipeline *pipeline,
                          const struct stg_definition *definition, struct stg_err *err)
{
    struct stg_share *share = definition->share;
    uint64_t needs = stg_store_needs(definition, pipeline->generation + 1);
    stg_share_give(pipeline->counted, STG_QUOTA_PIPELINES, 1);
    int rc = stg_share_take(share, STG_QUOTA_PIPELINES, 1, err);
    if (rc == 0) {
        rc = stg_share_take(share, STG_QUOTA_DISK, needs, err);
        stg_share_give(share, STG_QUOTA_PIPELINES, 1);
    }
    stg_share_add(pipeline->counted, STG_QUOTA_PIPELINES, 1);
    if (rc < 0)
        return rc;
    stg_share_give(share, STG_QUOTA_DISK, needs);
    count_on(pipeline, share);
    count_disk(pipeline, pipeline->disk_bytes + needs);
    return 0;
}

/* As count_pipeline, also above the limit: the pipeline is there. */
static void count_anyway(struct stg_pipeline *pipeline)
{
    count_on(pipeline, pipeline->definition->share);
}

/* ---- life ---- */

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
    int rc = make_containers(catalog, budget, err);
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
                                        .budget = stg_catalog_budget(catalog, definition),
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
    stg_gathering_destroy(pipeline->gathering);
    count_on(pipeline, NULL);
    stg_journal_unref(pipeline->journal);
    stg_definition_unref(pipeline->definition);
    stg_measure_destroy(pipeline->measure);
    free(pipeline->replays.entries);
    stg_totals_finish(&pipeline->totals);
    free(pipeline);
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
    stg_recovery_close(catalog);
    catalog->budget->reclaim = NULL;
    stg_containers_destroy(catalog->containers);
    stg_priors_finish(&catalog->priors);
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

bool stg_catalog_allowed_of(const struct stg_catalog *catalog, uid_t applier,
                            const struct stg_identity *identity)
{
    if (identity->uid == 0 || identity->uid == applier)
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

bool stg_catalog_allowed(const struct stg_catalog *catalog,
                         const struct stg_pipeline *pipeline,
                         const struct stg_identity *identity)
{
    return stg_catalog_allowed_of(catalog, pipeline->definition->applier.uid, identity);
}

/* ---- applying ---- */

static void make_up_name(struct stg_catalog *catalog, char *buf, size_t bytes)
{
    snprintf(buf, bytes, "prefetch");
    for (unsigned i = 1; stg_catalog_find(catalog, buf) != NULL; i++)
        snprintf(buf, bytes, "prefetch_%u", i);
}

/* The instance belongs to the past: its clients get the rest, then ABORTED. */
static void retire_one(struct stg_instance *instance, const char *text)
{
    instance->pipeline = NULL;
    instance->abandoned = 1;
    if (instance->stage != NULL)
        stg_stage_stop(instance->stage, STAGER_ABORTED, text, true);
}

static void retire(struct stg_catalog *catalog, struct stg_pipeline *pipeline,
                   const char *text)
{
    for (struct stg_instance *i = catalog->instances; i != NULL; i = i->next) {
        if (stg_catalog_is_of(i, pipeline))
            retire_one(i, text);
    }
    pipeline->instance = NULL;
}

/* ---- replacing ---- */

static bool busy(const struct stg_catalog *catalog, const struct stg_pipeline *pipeline)
{
    const struct stg_instance *i = catalog->instances;
    while (i != NULL && !(stg_catalog_is_of(i, pipeline) && i->stage != NULL &&
                          stg_stage_is_used(i->stage)))
        i = i->next;
    return i != NULL;
}

/* Returns whether a later run of the same script applies `after`. */
static bool same_script(const struct stg_definition *before,
                        const struct stg_definition *after)
{
    return before->script != NULL && after->script != NULL &&
           strcmp(before->script, after->script) == 0 &&
           before->script_run != after->script_run &&
           before->applier.uid == after->applier.uid;
}

static bool may_replace(const struct stg_catalog *catalog,
                        const struct stg_pipeline *pipeline,
                        const struct stg_definition *definition, enum stg_replace replace)
{
    if (busy(catalog, pipeline))
        return replace == STG_REPLACE_ALL;
    return replace != STG_REPLACE_OWN || same_script(pipeline->definition, definition);
}

static int refuse(const struct stg_catalog *catalog, const struct stg_pipeline *pipeline,
                  const struct stg_definition *definition, struct stg_err *err)
{
    bool is_busy = busy(catalog, pipeline);
    const struct stg_definition *before = pipeline->definition;
    char text[512];
    stg_difference(before->text, before->text_bytes, definition->text,
                   definition->text_bytes, text, sizeof(text));
    stg_err(err, -STAGER_FAILED_PRECONDITION,
            "pipeline %s already exists with other content: %s", pipeline->name,
            text[0] != '\0' ? text : "lines in another order, or another vocabulary");
    if (is_busy)
        stg_err_append(err, err->code, "; clients are attached:");
    for (const struct stg_instance *i = catalog->instances; i != NULL && is_busy;
         i = i->next) {
        if (stg_catalog_is_of(i, pipeline) && i->stage != NULL)
            stg_stage_name_clients(i->stage, err);
    }
    return stg_err_append(
        err, err->code, "; use --replace (replace=True in Python)%s, or another name",
        is_busy ? ", after which they receive the published batches, then ABORTED" : "");
}

int stg_catalog_check_replace(const struct stg_catalog *catalog,
                              const struct stg_pipeline *pipeline,
                              const struct stg_definition *definition,
                              enum stg_replace replace, struct stg_err *err)
{
    return may_replace(catalog, pipeline, definition, replace)
               ? 0
               : refuse(catalog, pipeline, definition, err);
}

/* Makes a definition that is stored the next generation: the clients of the last one get
 * what is published, then ABORTED. Returns whether those that follow go on where they
 * are. */
static bool install(struct stg_catalog *catalog, struct stg_pipeline *pipeline,
                    struct stg_definition *definition, uint64_t run_id)
{
    char text[128];
    pipeline->generation++;
    snprintf(text, sizeof(text), "replaced by generation %" PRIu64, pipeline->generation);
    bool goes_on = stg_recovery_hand_over(catalog, pipeline, definition);
    retire(catalog, pipeline, text);
    stop_workers(pipeline, text);
    if (!goes_on)
        stg_recovery_end(catalog, pipeline);
    stg_definition_unref(pipeline->definition);
    pipeline->definition = definition;
    pipeline->run_id = run_id;
    pipeline->next_number = 0;
    pipeline->next_pass = 0;
    pipeline->past = (struct stg_pipeline_status){0};
    pipeline->last_error[0] = '\0';
    pipeline->gone = (struct stg_gone_list){0};
    stg_measure_destroy(pipeline->measure);
    pipeline->measure = NULL;
    pipeline->from_dir = false;
    return goes_on;
}

void stg_catalog_drop(struct stg_pipeline *candidate, const char *text)
{
    if (candidate == NULL)
        return;
    if (candidate->instance != NULL)
        retire_one(candidate->instance, text);
    candidate->instance = NULL;
    free_pipeline(candidate);
}

static int make_journal(struct stg_catalog *catalog, const char *name,
                        struct stg_journal **ret, struct stg_err *err)
{
    struct stg_journal_config config = {.loop = catalog->loop,
                                        .state_dir = catalog->settings->state_dir,
                                        .name = name,
                                        .writers = &catalog->journals,
                                        .changed = catalog->hooks.changed,
                                        .owner = catalog->hooks.owner};
    return stg_journal_create(&config, ret, err);
}

/* Makes a pipeline that is in no list; it takes the reference of the definition. */
static int make_pipeline(struct stg_catalog *catalog, const char *name,
                         struct stg_definition *definition, struct stg_pipeline **ret,
                         struct stg_err *err)
{
    struct stg_pipeline *pipeline = calloc(1, sizeof(*pipeline));
    if (pipeline == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    int rc = make_workers(catalog, name, definition, &pipeline->workers, err);
    if (rc == 0)
        rc = make_journal(catalog, name, &pipeline->journal, err);
    if (rc < 0) {
        stg_workers_unref(pipeline->workers);
        free(pipeline);
        return rc;
    }
    snprintf(pipeline->name, sizeof(pipeline->name), "%s", name);
    pipeline->definition = definition;
    pipeline->id = stg_catalog_make_id();
    pipeline->run_id = stg_catalog_make_id() >> 1; /* a number of JSON, below 2^63 */
    *ret = pipeline;
    return 0;
}

static void link_pipeline(struct stg_catalog *catalog, struct stg_pipeline *pipeline)
{
    struct stg_pipeline **at = &catalog->pipelines;
    while (*at != NULL && strcmp((*at)->name, pipeline->name) < 0)
        at = &(*at)->next;
    pipeline->next = *at;
    *at = pipeline;
}

static void unlink_pipeline(struct stg_catalog *catalog, struct stg_pipeline *pipeline)
{
    struct stg_pipeline **at = &catalog->pipelines;
    while (*at != pipeline)
        at = &(*at)->next;
    *at = pipeline->next;
}

/* ---- changes ---- */

bool stg_catalog_changes(const struct stg_catalog *catalog,
                         const struct stg_pipeline *pipeline)
{
    const struct stg_change *change = catalog->change;
    return change != NULL && (pipeline == NULL || change->pipeline == pipeline);
}

static int remove_files(const struct stg_change *change, struct stg_err *err)
{
    const struct stg_settings *settings = change->catalog->settings;
    int rc = stg_store_forget(settings, change->pipeline->name, err);
    if (rc < 0)
        return rc;
    stg_journal_remove(change->pipeline->journal);
    stg_versions_forget(settings, change->pipeline->name);
    return 0;
}

/* Stores the next definition, after the one that it replaces is kept. */
static int write_files(const struct stg_change *change, struct stg_err *err)
{
    const struct stg_settings *settings = change->catalog->settings;
    const struct stg_pipeline *pipeline = change->pipeline;
    int rc = 0;
    if (pipeline->generation > 0)
        rc = stg_versions_keep(settings, pipeline->name, pipeline->definition,
                               pipeline->generation, err);
    else
        stg_versions_forget(settings, pipeline->name); /* of an interrupted delete */
    if (rc == 0)
        rc = stg_store_save(settings, pipeline->name, false, change->definition,
                            pipeline->generation + 1, err);
    return rc;
}

static void write_change(uv_work_t *work)
{
    struct stg_change *change = work->data;
    if (change->definition == NULL)
        remove_files(change, &change->err);
    else
        write_files(change, &change->err);
    change->disk_bytes =
        stg_versions_bytes(change->catalog->settings, change->pipeline->name);
}

/* The instance of the candidate is that of the pipeline from here on. */
static void take_instance(struct stg_pipeline *pipeline, struct stg_pipeline *candidate)
{
    struct stg_instance *instance = candidate->instance;
    candidate->definition = NULL;
    candidate->instance = NULL;
    pipeline->instance = instance;
    pipeline->max_in_flight = candidate->max_in_flight;
    if (instance == NULL)
        return;
    instance->pipeline = pipeline;
    instance->is_candidate = false;
    if (instance->config.audit_run != 0)
        instance->journal = stg_journal_ref(pipeline->journal);
}

/* It begins at the start, and the clients are elsewhere. */
static void drop_instance(struct stg_pipeline *candidate)
{
    if (candidate->instance != NULL)
        retire_one(candidate->instance, "the clients go on where they are");
    candidate->instance = NULL;
}

static void finish_delete(struct stg_change *change)
{
    struct stg_catalog *catalog = change->catalog;
    struct stg_pipeline *pipeline = change->pipeline;
    retire(catalog, pipeline, "the pipeline was deleted");
    stg_recovery_end(catalog, pipeline);
    unlink_pipeline(catalog, pipeline);
    stg_catalog_tell(catalog, STG_EVENT_DELETED, pipeline->id);
    free_pipeline(pipeline);
    change->pipeline = NULL;
    stg_heap_trim(&catalog->trim, catalog->loop);
}

static void finish_apply(struct stg_change *change)
{
    struct stg_catalog *catalog = change->catalog;
    struct stg_pipeline *pipeline = change->pipeline, *candidate = change->candidate;
    bool goes_on = false;
    if (pipeline->generation == 0) {
        pipeline->generation = 1;
        link_pipeline(catalog, pipeline);
    } else {
        goes_on =
            install(catalog, pipeline, change->definition,
                    candidate != NULL ? candidate->run_id : stg_catalog_make_id() >> 1);
        pipeline->workers = change->workers;
    }
    if (candidate != NULL && goes_on)
        drop_instance(candidate);
    if (candidate != NULL)
        take_instance(pipeline, candidate);
    stg_catalog_tell(catalog, STG_EVENT_APPLIED, pipeline->id);
    if (candidate != NULL && pipeline->instance != NULL)
        stg_catalog_note(pipeline->instance);
}

/* The disk has refused it: the pipeline stays as it was. */
static void give_up(struct stg_change *change)
{
    struct stg_pipeline *pipeline = change->pipeline;
    stg_workers_unref(change->workers);
    if (pipeline->generation == 0) {
        free_pipeline(pipeline); /* with the definition */
    } else {
        count_anyway(pipeline);
        if (change->candidate == NULL)
            stg_definition_unref(change->definition);
    }
    change->pipeline = NULL;
}

static void wrote_change(uv_work_t *work, int status)
{
    struct stg_change *change = work->data;
    struct stg_catalog *catalog = change->catalog;
    catalog->change = NULL;
    count_disk(change->pipeline, change->disk_bytes);
    if (change->err.code < 0)
        give_up(change);
    else if (change->definition == NULL)
        finish_delete(change);
    else
        finish_apply(change);
    struct stg_changed changed = {.pipeline = change->pipeline, .err = change->err};
    change->done.call(change->done.arg, &changed);
    free(change);
    catalog->hooks.changed(catalog->hooks.owner);
}

/* A disk that hangs delays nothing but changes, and opens of this pipeline. */
static int begin_change(struct stg_catalog *catalog, const struct stg_change *what,
                        struct stg_err *err)
{
    struct stg_change *change = catalog->change == NULL ? malloc(sizeof(*change)) : NULL;
    if (catalog->change != NULL)
        return stg_err(err, -STAGER_UNAVAILABLE,
                       "another change waits for the disk of state_dir: try again");
    if (change == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    int rc = what->definition != NULL
                 ? count_pipeline(what->pipeline, what->definition, err)
                 : 0;
    if (rc < 0) {
        free(change);
        return rc;
    }
    *change = *what;
    change->catalog = catalog;
    change->work.data = change;
    if (change->definition != NULL)
        change->definition->applied_ns = stg_versions_now_ns();
    catalog->change = change;
    uv_queue_work(catalog->loop, &change->work, write_change, wrote_change);
    return 0;
}

/* ---- applying ---- */

static int replace_definition(struct stg_catalog *catalog, struct stg_pipeline *pipeline,
                              struct stg_definition *definition, enum stg_replace replace,
                              const struct stg_change_done *done, struct stg_err *err)
{
    struct stg_change change = {
        .pipeline = pipeline, .definition = definition, .done = *done};
    int rc = stg_catalog_check_replace(catalog, pipeline, definition, replace, err);
    if (rc == 0)
        rc = make_workers(catalog, pipeline->name, definition, &change.workers, err);
    if (rc == 0)
        rc = begin_change(catalog, &change, err);
    if (rc < 0)
        stg_workers_unref(change.workers);
    return rc;
}

int stg_catalog_adopt(struct stg_catalog *catalog, struct stg_pipeline *pipeline,
                      struct stg_pipeline *candidate, enum stg_replace replace,
                      const struct stg_change_done *done, struct stg_err *err)
{
    struct stg_change change = {.pipeline = pipeline,
                                .candidate = candidate,
                                .definition = candidate->definition,
                                .done = *done};
    int rc =
        stg_catalog_check_replace(catalog, pipeline, candidate->definition, replace, err);
    return rc == 0 ? begin_change(catalog, &change, err) : rc;
}

int stg_catalog_replace(struct stg_catalog *catalog, struct stg_pipeline *pipeline,
                        struct stg_definition *definition, enum stg_replace replace,
                        const struct stg_change_done *done, struct stg_err *err)
{
    struct stg_changed same = {.pipeline = pipeline, .unchanged = true};
    if (pipeline->definition->spec->fingerprint != definition->spec->fingerprint)
        return replace_definition(catalog, pipeline, definition, replace, done, err);
    stg_definition_unref(definition);
    done->call(done->arg, &same);
    return 0;
}

static int add(struct stg_catalog *catalog, const char *name,
               struct stg_definition *definition, const struct stg_change_done *done,
               struct stg_err *err)
{
    struct stg_change change = {.definition = definition, .done = *done};
    int rc = make_pipeline(catalog, name, definition, &change.pipeline, err);
    if (rc < 0)
        return rc;
    rc = begin_change(catalog, &change, err);
    if (rc < 0) {
        change.pipeline->definition = NULL; /* the caller's */
        free_pipeline(change.pipeline);
    }
    return rc;
}

int stg_catalog_resolve(struct stg_catalog *catalog,
                        const struct stg_definition *definition, const char *name,
                        char ret_name[65], struct stg_pipeline **ret, struct stg_err *err)
{
    if (name == NULL || name[0] == '\0')
        name = definition->spec->name;
    int rc = name != NULL ? stg_store_check_name(name, err) : 0;
    if (rc < 0)
        return rc;
    if (name != NULL)
        snprintf(ret_name, 65, "%s", name);
    else
        make_up_name(catalog, ret_name, 65);
    *ret = stg_catalog_find(catalog, ret_name);
    if (*ret != NULL && !stg_catalog_allowed(catalog, *ret, &definition->applier))
        return stg_err(err, -STAGER_PERMISSION_DENIED,
                       "pipeline %s was applied by uid %u; choose another name", ret_name,
                       (unsigned)(*ret)->definition->applier.uid);
    return 0;
}

int stg_catalog_apply(struct stg_catalog *catalog, struct stg_definition *definition,
                      const char *name, enum stg_replace replace,
                      const struct stg_change_done *done, struct stg_err *err)
{
    char resolved[65];
    struct stg_pipeline *pipeline;
    int rc = stg_catalog_resolve(catalog, definition, name, resolved, &pipeline, err);
    if (rc < 0)
        return rc;
    return pipeline != NULL
               ? stg_catalog_replace(catalog, pipeline, definition, replace, done, err)
               : add(catalog, resolved, definition, done, err);
}

int stg_catalog_delete(struct stg_catalog *catalog, struct stg_pipeline *pipeline,
                       const struct stg_change_done *done, struct stg_err *err)
{
    struct stg_change change = {.pipeline = pipeline, .done = *done};
    return begin_change(catalog, &change, err);
}

/* ---- loading ---- */

/* Stores the generation of content that is another one than before the restart. The
 * pipeline can be served without it. */
static void save_loaded(struct stg_catalog *catalog, const struct stg_pipeline *pipeline)
{
    struct stg_err err = {0};
    struct stg_definition *definition = pipeline->definition;
    int rc = 0;
    if (pipeline->from_dir)
        rc = stg_versions_keep_seen(catalog->settings, pipeline->name, &err);
    else
        definition->applied_ns = stg_versions_now_ns();
    if (rc < 0)
        stg_log(STG_LOG_ERROR, "pipeline %s: %s", pipeline->name, err.text);
    if (stg_store_save(catalog->settings, pipeline->name, pipeline->from_dir, definition,
                       pipeline->generation, &err) < 0)
        stg_log(STG_LOG_ERROR, "pipeline %s keeps its old generation on disk: %s",
                pipeline->name, err.text);
}

static int load_file(struct stg_catalog *catalog, const char *path, bool from_dir,
                     struct stg_err *err)
{
    struct stg_store_source source = {.settings = catalog->settings,
                                      .containers = catalog->containers,
                                      .path = path,
                                      .from_dir = from_dir};
    struct stg_stored stored;
    struct stg_pipeline *pipeline;
    int rc = stg_store_read(&source, &stored, err);
    if (rc < 0)
        return rc;
    bool is_known = stg_catalog_find(catalog, stored.name) != NULL;
    if (!is_known)
        rc = make_pipeline(catalog, stored.name, stored.definition, &pipeline, err);
    if (is_known || rc < 0) {
        stg_definition_unref(stored.definition);
        return rc; /* what was applied wins over pipeline_dir */
    }
    pipeline->generation = stored.generation;
    pipeline->from_dir = from_dir;
    count_anyway(pipeline);
    link_pipeline(catalog, pipeline);
    if (!stored.is_saved)
        save_loaded(catalog, pipeline);
    count_disk(pipeline, stg_versions_bytes(catalog->settings, pipeline->name));
    return 0;
}

static void load_directory(struct stg_catalog *catalog, const char *directory,
                           bool from_dir)
{
    struct dirent **entries;
    int n = stg_store_list(directory, &entries);
    if (n < 0) {
        if (errno != ENOENT)
            stg_log(STG_LOG_WARNING, "cannot list %s: %s", directory, strerror(errno));
        return;
    }
    for (int i = 0; i < n; i++) {
        char path[4096];
        struct stg_err err = {0};
        snprintf(path, sizeof(path), "%s/%s", directory, entries[i]->d_name);
        if (load_file(catalog, path, from_dir, &err) < 0)
            stg_log(STG_LOG_ERROR, "pipeline not loaded: %s", err.text);
        free(entries[i]);
    }
    free(entries);
}

void stg_catalog_load(struct stg_catalog *catalog)
{
    char path[4096];
    if (stg_store_make_folders(catalog->settings) < 0)
        stg_log(STG_LOG_WARNING,
                "cannot create state_dir %s: %s; no pipeline can be applied until it "
                "exists (or set another state_dir in stagerd.yaml)",
                catalog->settings->state_dir, strerror(errno));
    stg_catalog_load_priors(catalog);
    if (stg_store_folder(catalog->settings, path, sizeof(path)))
        load_directory(catalog, path, false);
    load_directory(catalog, catalog->settings->pipeline_dir, true);
    stg_recovery_load(catalog);
    unsigned n = 0;
    for (struct stg_pipeline *p = catalog->pipelines; p != NULL; p = p->next)
        n++;
    stg_log(STG_LOG_INFO, "%u pipeline%s loaded", n, n == 1 ? "" : "s");
}
