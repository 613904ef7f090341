/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of instances: sweeping, and memory that is given back before the end.
 */
#include "daemon/pipeline/catalog_priv.h"

bool stg_catalog_stopping(const struct stg_catalog *catalog)
{
    for (struct stg_instance *i = catalog->instances; i != NULL; i = i->next) {
        if (i->state == STG_INSTANCE_ENDING || i->shrinks ||
            (i->state == STG_INSTANCE_LIVE && stg_stage_stopping(i->stage) && !i->quiet))
            return true;
    }
    return false;
}

bool stg_catalog_kept(const struct stg_catalog *catalog)
{
    const struct stg_instance *i = catalog->instances;
    while (i != NULL && (i->state != STG_INSTANCE_LIVE || !i->quiet))
        i = i->next;
    return i != NULL;
}

uint64_t stg_catalog_n_gone(const struct stg_catalog *catalog)
{
    return catalog->n_gone;
}

void stg_catalog_discard(struct stg_instance *instance)
{
    if (instance->pipeline != NULL)
        instance->pipeline->instance = NULL;
    instance->pipeline = NULL;
}

void stg_catalog_abandon(struct stg_instance *instance)
{
    instance->abandoned = 1;
    if (instance->stage != NULL)
        stg_stage_stop(instance->stage, STAGER_CANCELLED,
                       "no client waits for it any more", false);
}

static void remove_instance(struct stg_instance *instance)
{
    struct stg_instance **at = &instance->catalog->instances;
    while (*at != instance)
        at = &(*at)->next;
    *at = instance->next;
    stg_catalog_free_instance(instance);
}

static void destroy_stage(uv_work_t *work)
{
    struct stg_instance *instance = work->data;
    stg_stage_destroy(instance->at_work);
}

static void destroyed_stage(uv_work_t *work, int status)
{
    struct stg_instance *instance = work->data;
    struct stg_catalog *catalog = instance->catalog;
    catalog->n_gone++;
    remove_instance(instance);
    stg_heap_trim(&catalog->trim, catalog->loop);
    catalog->hooks.changed(catalog->hooks.owner);
}

/* A worker destroys the stage: unmapping a large arena takes as long as faulting it in.
 */
static void end_instance(struct stg_instance *instance)
{
    stg_catalog_keep_counts(instance);
    instance->state = STG_INSTANCE_ENDING;
    instance->at_work = instance->stage;
    instance->stage = NULL;
    uv_queue_work(instance->catalog->loop, &instance->work, destroy_stage,
                  destroyed_stage);
}

static void shrink_stage(uv_work_t *work)
{
    struct stg_instance *instance = work->data;
    stg_stage_shrink(instance->stage);
}

static void shrunk_stage(uv_work_t *work, int status)
{
    struct stg_instance *instance = work->data;
    struct stg_catalog *catalog = instance->catalog;
    instance->shrinks = false;
    catalog->n_gone++;
    stg_heap_trim(&catalog->trim, catalog->loop);
    catalog->hooks.changed(catalog->hooks.owner);
}

/* Gives back the memory that a stage without clients does not need. */
static void shrink(struct stg_instance *instance)
{
    instance->shrinks = true;
    uv_queue_work(instance->catalog->loop, &instance->work, shrink_stage, shrunk_stage);
}

static void sooner(int millis, int *next_millis)
{
    if (millis >= 0 && (*next_millis < 0 || millis < *next_millis))
        *next_millis = millis;
}

/* Returns whether its runners have ended since the last sweep: an open may wait for
 * that. */
static bool sweep_live(struct stg_instance *instance, int *next_millis)
{
    stg_catalog_note(instance);
    if (instance->shrinks) {
        sooner(stg_stage_sweep(instance->stage), next_millis);
        return false;
    }
    if (stg_stage_finished(instance->stage)) {
        end_instance(instance);
        return true;
    }
    sooner(stg_stage_sweep(instance->stage), next_millis);
    sooner(stg_stage_choose_cut(instance->stage), next_millis);
    bool quiet = stg_stage_quiet(instance->stage);
    bool became = quiet && !instance->quiet;
    instance->quiet = quiet;
    if (became && !stg_stage_finished(instance->stage))
        shrink(instance);
    return became;
}

int stg_catalog_sweep(struct stg_catalog *catalog)
{
    int next_millis = -1;
    bool went = false;
    struct stg_instance *next;
    for (struct stg_instance *i = catalog->instances; i != NULL; i = next) {
        next = i->next;
        if (i->state == STG_INSTANCE_LIVE) {
            went |= sweep_live(i, &next_millis);
        } else if (i->state == STG_INSTANCE_FAILED) {
            stg_catalog_keep_counts(i);
            remove_instance(i);
            went = true;
        }
    }
    if (went)
        catalog->hooks.changed(catalog->hooks.owner);
    return next_millis;
}

void stg_catalog_stop(struct stg_catalog *catalog, int code, const char *text)
{
    for (struct stg_instance *i = catalog->instances; i != NULL; i = i->next) {
        i->abandoned = 1;
        if (i->stage != NULL)
            stg_stage_stop(i->stage, code, text, false);
    }
}

bool stg_catalog_working(const struct stg_catalog *catalog)
{
    for (struct stg_instance *i = catalog->instances; i != NULL; i = i->next) {
        if (i->state == STG_INSTANCE_CREATING || i->state == STG_INSTANCE_ENDING ||
            i->shrinks)
            return true;
    }
    return catalog->trim.is_running;
}

bool stg_catalog_quiet(const struct stg_catalog *catalog)
{
    for (struct stg_instance *i = catalog->instances; i != NULL; i = i->next) {
        if (i->state == STG_INSTANCE_LIVE && !stg_stage_quiet(i->stage))
            return false;
    }
    return !stg_catalog_working(catalog);
}
