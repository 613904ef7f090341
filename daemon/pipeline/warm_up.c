/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/pipeline/warm_up.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/dataset/steps/py_function.h"
#include "daemon/pipeline/catalog_priv.h"

#define MEMORY_MILLIS 25000u /* for memory that comes back, as an open waits */
#define MILLIS_NS 1000000u
#define MAX_IN_FLIGHT 2u /* of clients, if there was none yet */

struct stg_warm_up {
    struct stg_catalog *catalog;
    char name[65];
    struct stg_pipeline *candidate; /* NULL: the pipeline itself fills its buffer */
    uint64_t id, generation;        /* of the pipeline, until it is done */
    enum stg_replace replace;
    bool unchanged;
    uint64_t began_ns;
    uint64_t n_gone; /* it waits for memory: of the catalog when it was refused, plus 1 */
    struct stg_err refusal; /* then */
    bool writes;            /* a change of the catalog waits for the disk */
    bool is_ended;          /* meanwhile */
    struct stg_err failure; /* of that change */
    bool is_done;
};

static void wrote(void *arg, const struct stg_changed *changed);

/* ---- beginning ---- */

static int check(const struct stg_pipeline *pipeline,
                 const struct stg_definition *definition, struct stg_err *err)
{
    if (stg_py_function_find(definition->spec) != NULL)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "a pipeline with a py_function cannot fill its buffer before its "
                       "first stream, which starts the workers: apply it without --warm "
                       "(warm=True in Python)");
    if (pipeline != NULL && pipeline->candidate != NULL)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "generation %" PRIu64
                       " of pipeline %s fills its buffer already, by another apply: wait "
                       "until that is done, or apply without --warm, which ends it",
                       pipeline->candidate->generation, pipeline->name);
    return 0;
}

static struct stg_warm_up *create(struct stg_catalog *catalog,
                                  const struct stg_pipeline *pipeline,
                                  enum stg_replace replace, struct stg_err *err)
{
    struct stg_warm_up *warm_up = calloc(1, sizeof(*warm_up));
    if (warm_up == NULL) {
        stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
        return NULL;
    }
    *warm_up = (struct stg_warm_up){.catalog = catalog,
                                    .id = pipeline->id,
                                    .generation = pipeline->generation,
                                    .replace = replace,
                                    .began_ns = uv_hrtime()};
    memcpy(warm_up->name, pipeline->name, sizeof(warm_up->name));
    return warm_up;
}

/* It is what the pipeline will be, in no list. */
static struct stg_pipeline *make_candidate(const struct stg_pipeline *pipeline,
                                           struct stg_definition *definition)
{
    struct stg_pipeline *candidate = calloc(1, sizeof(*candidate));
    if (candidate == NULL)
        return NULL;
    memcpy(candidate->name, pipeline->name, sizeof(candidate->name));
    candidate->definition = definition;
    candidate->generation = pipeline->generation + 1;
    candidate->id = pipeline->id;
    candidate->run_id = stg_catalog_make_id() >> 1;
    candidate->max_in_flight = pipeline->max_in_flight;
    return candidate;
}

int stg_warm_up_replace(struct stg_catalog *catalog, struct stg_pipeline *pipeline,
                        struct stg_definition *definition, enum stg_replace replace,
                        struct stg_warm_up **ret, struct stg_err *err)
{
    bool unchanged =
        pipeline->definition->spec->fingerprint == definition->spec->fingerprint;
    int rc = check(pipeline, definition, err);
    if (rc == 0 && !unchanged)
        rc = stg_catalog_check_replace(catalog, pipeline, definition, replace, err);
    struct stg_warm_up *warm_up =
        rc == 0 ? create(catalog, pipeline, replace, err) : NULL;
    if (warm_up == NULL)
        return rc < 0 ? rc : -STAGER_RESOURCE_EXHAUSTED;
    warm_up->unchanged = unchanged;
    if (!unchanged)
        warm_up->candidate = make_candidate(pipeline, definition);
    if (!unchanged && warm_up->candidate == NULL) {
        free(warm_up);
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    }
    if (unchanged)
        stg_definition_unref(definition);
    pipeline->candidate = warm_up->candidate;
    *ret = warm_up;
    return 0;
}

int stg_warm_up_apply(struct stg_catalog *catalog, struct stg_definition *definition,
                      const char *name, enum stg_replace replace,
                      struct stg_warm_up **ret, struct stg_err *err)
{
    char resolved[65];
    struct stg_pipeline *pipeline;
    int rc = stg_catalog_resolve(catalog, definition, name, resolved, &pipeline, err);
    if (rc < 0)
        return rc;
    if (pipeline != NULL)
        return stg_warm_up_replace(catalog, pipeline, definition, replace, ret, err);
    rc = check(NULL, definition, err);
    struct stg_pipeline fresh = {.generation = 1};
    memcpy(fresh.name, resolved, sizeof(fresh.name));
    struct stg_warm_up *warm_up = rc == 0 ? create(catalog, &fresh, replace, err) : NULL;
    if (warm_up == NULL)
        return rc < 0 ? rc : -STAGER_RESOURCE_EXHAUSTED;
    warm_up->writes = true;
    rc = stg_catalog_apply(catalog, definition, resolved, replace,
                           &(struct stg_change_done){wrote, warm_up}, err);
    if (rc < 0)
        free(warm_up);
    else
        *ret = warm_up;
    return rc;
}

/* ---- going on ---- */

static int superseded(const struct stg_warm_up *warm_up,
                      const struct stg_pipeline *pipeline, struct stg_err *err)
{
    if (pipeline == NULL)
        return stg_err(err, -STAGER_ABORTED,
                       "pipeline %s was deleted while its next version filled its buffer",
                       warm_up->name);
    return stg_err(err, -STAGER_ABORTED,
                   "pipeline %s came to generation %" PRIu64
                   " by another change, while a version after generation %" PRIu64
                   " filled its buffer: check its status, then decide again",
                   warm_up->name, pipeline->generation, warm_up->generation);
}

/* Says where the error comes from, and what goes on. */
static int explain(const struct stg_warm_up *warm_up, struct stg_err *err)
{
    const struct stg_pipeline *candidate = warm_up->candidate;
    if (candidate == NULL)
        return stg_err_prefix(err, err->code,
                              "pipeline %s is applied, but cannot fill its buffer",
                              warm_up->name);
    stg_err_prefix(err, err->code, "generation %" PRIu64 " of pipeline %s",
                   candidate->generation, warm_up->name);
    return stg_err_append(err, err->code, "; generation %" PRIu64 " goes on",
                          warm_up->generation);
}

static bool is_late(const struct stg_warm_up *warm_up, uint64_t millis)
{
    return uv_hrtime() - warm_up->began_ns >= millis * MILLIS_NS;
}

static int check_time(const struct stg_warm_up *warm_up, uint64_t n_ready,
                      struct stg_err *err)
{
    if (!is_late(warm_up, STG_WARM_SECONDS * 1000ull))
        return 1;
    stg_err(err, -STAGER_DEADLINE_EXCEEDED,
            "%" PRIu64 " batches are ready after %u s, and the buffer is not full",
            n_ready, STG_WARM_SECONDS);
    return explain(warm_up, err);
}

/* Both versions together do not fit. */
static int refuse_memory(const struct stg_warm_up *warm_up, struct stg_err *err)
{
    *err = warm_up->refusal;
    if (warm_up->candidate == NULL)
        return explain(warm_up, err);
    stg_err_prefix(err, err->code,
                   "memory_budget has no room for generation %" PRIu64
                   " of pipeline %s beside generation %" PRIu64,
                   warm_up->candidate->generation, warm_up->name, warm_up->generation);
    return stg_err_append(
        err, err->code,
        "; or apply without --warm, which first ends generation %" PRIu64
        ", which goes on",
        warm_up->generation);
}

/* Memory of an instance that ends comes back soon. */
static int wait_for_memory(struct stg_warm_up *warm_up, struct stg_instance *instance,
                           struct stg_err *err)
{
    struct stg_catalog *catalog = warm_up->catalog;
    bool comes = stg_catalog_stopping(catalog) || catalog->n_gone != instance->n_gone;
    warm_up->refusal = instance->error;
    warm_up->n_gone = instance->n_gone + 1;
    stg_catalog_discard(instance);
    return comes ? 1 : refuse_memory(warm_up, err);
}

static int start(struct stg_warm_up *warm_up, struct stg_pipeline *target,
                 struct stg_err *err)
{
    struct stg_catalog *catalog = warm_up->catalog;
    struct stg_instance *instance;
    uint32_t most = target->max_in_flight;
    struct stg_wanted wanted = {
        .warm = true, .max_in_flight = most > 0 ? most : MAX_IN_FLIGHT, .client_id = ""};
    if (warm_up->n_gone != 0 && is_late(warm_up, MEMORY_MILLIS))
        return refuse_memory(warm_up, err);
    if (warm_up->n_gone == catalog->n_gone + 1)
        return 1; /* no memory came back since it was refused */
    int rc = stg_catalog_instance(catalog, target, &wanted, &instance, err);
    if (rc == -STAGER_UNAVAILABLE) /* the last run is stopping */
        return check_time(warm_up, 0, err);
    if (rc < 0)
        return explain(warm_up, err);
    instance->is_candidate = target == warm_up->candidate;
    return 1;
}

/* Returns 1 if it goes on to fill its buffer, 0 if that is done. */
static int look(struct stg_warm_up *warm_up, struct stg_instance *instance,
                struct stg_err *err)
{
    uint64_t n;
    if (!instance->config.warm ||
        (warm_up->candidate == NULL && !stg_stage_is_untouched(instance->stage)))
        return 0; /* it has its first client */
    int rc = stg_stage_warmth(instance->stage, &n, err);
    if (rc < 0 && warm_up->candidate == NULL)
        stg_catalog_abandon(instance);
    if (rc < 0)
        return explain(warm_up, err);
    return rc == 1 ? 0 : check_time(warm_up, n, err);
}

static int fill(struct stg_warm_up *warm_up, struct stg_pipeline *target,
                struct stg_err *err)
{
    struct stg_instance *instance = target->instance;
    if (instance == NULL ||
        (instance->state == STG_INSTANCE_LIVE && stg_stage_stopping(instance->stage)))
        return start(warm_up, target, err);
    if (instance->state == STG_INSTANCE_CREATING)
        return 1;
    if (instance->state == STG_INSTANCE_LIVE)
        return look(warm_up, instance, err);
    if (instance->error.code == -STAGER_RESOURCE_EXHAUSTED)
        return wait_for_memory(warm_up, instance, err);
    *err = instance->error;
    return explain(warm_up, err);
}

/* The candidate takes over when the disk has its definition. */
static int adopt(struct stg_warm_up *warm_up, struct stg_pipeline *pipeline,
                 struct stg_err *err)
{
    struct stg_catalog *catalog = warm_up->catalog;
    if (stg_catalog_changes(catalog, NULL))
        return 1;
    int rc = stg_catalog_adopt(catalog, pipeline, warm_up->candidate, warm_up->replace,
                               &(struct stg_change_done){wrote, warm_up}, err);
    warm_up->writes = rc == 0;
    return rc == 0 ? 1 : rc;
}

/* A new pipeline goes on to fill its buffer; a candidate has taken over. */
static void wrote(void *arg, const struct stg_changed *changed)
{
    struct stg_warm_up *warm_up = arg;
    warm_up->writes = false;
    warm_up->failure = changed->err;
    if (changed->pipeline != NULL) {
        warm_up->id = changed->pipeline->id;
        warm_up->generation = changed->pipeline->generation;
        warm_up->is_done = warm_up->candidate != NULL;
    }
    if (warm_up->is_ended)
        stg_warm_up_end(warm_up);
}

int stg_warm_up_step(struct stg_warm_up *warm_up, struct stg_pipeline **ret_pipeline,
                     bool *ret_unchanged, struct stg_err *err)
{
    struct stg_pipeline *candidate = warm_up->candidate;
    struct stg_pipeline *pipeline = stg_catalog_find(warm_up->catalog, warm_up->name);
    if (warm_up->writes)
        return 1;
    if (warm_up->failure.code < 0) {
        *err = warm_up->failure;
        return err->code;
    }
    if (pipeline == NULL || pipeline->id != warm_up->id ||
        pipeline->generation != warm_up->generation)
        return superseded(warm_up, pipeline, err);
    int rc = warm_up->is_done
                 ? 0
                 : fill(warm_up, candidate != NULL ? candidate : pipeline, err);
    if (rc == 0 && candidate != NULL && !warm_up->is_done)
        rc = adopt(warm_up, pipeline, err);
    if (rc != 0)
        return rc;
    warm_up->is_done = true;
    *ret_pipeline = pipeline;
    *ret_unchanged = warm_up->unchanged;
    return 0;
}

void stg_warm_up_end(struct stg_warm_up *warm_up)
{
    if (warm_up == NULL)
        return;
    if (warm_up->writes) { /* the change goes on without it */
        warm_up->is_ended = true;
        return;
    }
    struct stg_pipeline *pipeline = stg_catalog_find(warm_up->catalog, warm_up->name);
    struct stg_instance *instance = pipeline != NULL ? pipeline->instance : NULL;
    if (pipeline != NULL && pipeline->candidate == warm_up->candidate)
        pipeline->candidate = NULL;
    if (!warm_up->is_done && warm_up->candidate == NULL && instance != NULL &&
        instance->state == STG_INSTANCE_LIVE && instance->config.warm &&
        stg_stage_is_untouched(instance->stage))
        stg_catalog_abandon(instance);
    stg_catalog_drop(warm_up->candidate, "the apply that fills its buffer has ended");
    free(warm_up);
}
