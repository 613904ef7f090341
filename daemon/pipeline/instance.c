/* SPDX-License-Identifier: Apache-2.0
 *
 * Instances of pipelines: the making of one, events of it, its sweeps, and its end.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "core/log.h"
#include "daemon/host/cpus.h"
#include "daemon/host/pool.h"
#include "daemon/host/share.h"
#include "daemon/pipeline/catalog_priv.h"
#include "daemon/pipeline/recovery.h"
#include "daemon/pipeline/signature.h"
#include "daemon/pyworker/work.h"

uint64_t stg_catalog_make_id(void)
{
    uint64_t id;
    if (getrandom(&id, sizeof(id), 0) < 0 || id >> 1 == 0)
        id = uv_hrtime();
    return id;
}

/* ---- events ---- */

void stg_catalog_tell(const struct stg_catalog *catalog, enum stg_event_kind kind,
                      uint64_t pipeline_id)
{
    catalog->hooks.event(catalog->hooks.owner, kind, pipeline_id);
}

static void note_state(struct stg_instance *instance)
{
    static const struct {
        const char *state;
        enum stg_event_kind kind;
    } kinds[] = {{"running", STG_EVENT_STARTED},
                 {"ended", STG_EVENT_ENDED},
                 {"failed", STG_EVENT_FAILED},
                 {"stopping", STG_EVENT_STOPPED}};
    const char *state = stg_stage_state(instance->stage);
    if (strcmp(instance->shown_state, state) == 0)
        return;
    instance->shown_state = state;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(kinds[i].state, state) == 0)
            stg_catalog_tell(instance->catalog, kinds[i].kind, instance->pipeline_id);
    }
}

void stg_catalog_note(struct stg_instance *instance)
{
    if (instance->private_run || instance->is_candidate || instance->stage == NULL)
        return;
    uint32_t n = stg_stage_n_clients(instance->stage);
    for (; instance->shown_clients < n; instance->shown_clients++)
        stg_catalog_tell(instance->catalog, STG_EVENT_ATTACHED, instance->pipeline_id);
    for (; instance->shown_clients > n; instance->shown_clients--)
        stg_catalog_tell(instance->catalog, STG_EVENT_DETACHED, instance->pipeline_id);
    note_state(instance);
}

/* ---- priors of smart_stage: auto ---- */

static bool prior_path(const struct stg_catalog *catalog, char *ret, size_t bytes)
{
    int n = snprintf(ret, bytes, "%s/smart_stage", catalog->settings->state_dir);
    return n > 0 && (size_t)n < bytes;
}

void stg_catalog_load_priors(struct stg_catalog *catalog)
{
    char path[4096];
    struct stg_err err = {0};
    if (!prior_path(catalog, path, sizeof(path)))
        return;
    int rc = stg_priors_load(&catalog->priors, path, &err);
    if (rc < 0 && rc != -STAGER_NOT_FOUND)
        stg_log(STG_LOG_WARNING,
                "smart_stage: auto begins without what earlier runs found: %s", err.text);
}

/* A copy: the priors change while the stage is made. */
static struct stg_prior *find_prior(const struct stg_catalog *catalog,
                                    const struct stg_definition *definition)
{
    const struct stg_prior *prior =
        definition->spec->smart_stage == STG_SMART_STAGE_AUTO
            ? stg_priors_find(&catalog->priors, definition->spec->fingerprint,
                              stg_cpus_whole())
            : NULL;
    return prior != NULL ? stg_prior_copy(prior) : NULL;
}

/* ---- the audit ---- */

static const char *delivery_name(enum stg_delivery delivery)
{
    return delivery == STG_DELIVERY_BROADCAST     ? "broadcast"
           : delivery == STG_DELIVERY_ROUND_ROBIN ? "round_robin"
                                                  : "split";
}

/* The number of a line that is missing is a number that no line has. */
static void note_lines(struct stg_instance *instance, struct stg_audit_text *text)
{
    instance->audit_seq += text->has_failed;
    stg_journal_note(instance->journal, text);
}

void stg_catalog_begin_audit(struct stg_instance *instance, struct stg_audit_begin *begin)
{
    struct stg_audit_text text = {0};
    if (instance->journal == NULL)
        return;
    begin->run = instance->config.audit_run;
    begin->time_ns = stg_journal_now_ns();
    begin->delivery = delivery_name(instance->definition->spec->staged.delivery);
    stg_audit_write_begin(&text, &instance->audit_seq, begin);
    note_lines(instance, &text);
}

/* They were collected with the last one first. */
static void write_shares(const struct stg_audit_share *share, struct stg_audit_text *text,
                         uint64_t *seq)
{
    const struct stg_audit_share *end = NULL;
    while (end != share) {
        const struct stg_audit_share *at = share;
        while (at->next != end)
            at = at->next;
        stg_audit_write_share(text, seq, at);
        end = at;
    }
}

static void write_trails(const struct stg_audit_trail *trail, struct stg_audit_text *text,
                         uint64_t *seq)
{
    const struct stg_audit_trail *end = NULL;
    while (end != trail) {
        const struct stg_audit_trail *at = trail;
        while (at->next != end)
            at = at->next;
        stg_audit_write_trail(text, seq, at);
        end = at;
    }
}

static void note_news(struct stg_instance *instance, bool all)
{
    struct stg_audit_news news;
    struct stg_audit_text text = {0};
    if (instance->journal == NULL || instance->stage == NULL ||
        !stg_stage_take_news(instance->stage, all, &news))
        return;
    instance->audit_seq += news.has_lost;
    write_trails(news.trails, &text, &instance->audit_seq);
    write_shares(news.shares, &text, &instance->audit_seq);
    stg_audit_news_finish(&news);
    note_lines(instance, &text);
}

void stg_catalog_note_audit(struct stg_catalog *catalog,
                            const struct stg_journal *journal)
{
    for (struct stg_instance *i = catalog->instances; i != NULL; i = i->next) {
        if (i->journal != journal || i->stage == NULL)
            continue;
        stg_stage_sweep(i->stage);
        note_news(i, true);
    }
}

/* No client of the instance gets another item. */
static void end_audit(struct stg_instance *instance)
{
    struct stg_audit_text text = {0};
    note_news(instance, true);
    if (instance->journal == NULL || instance->audit_ended || instance->audit_seq == 0)
        return;
    instance->audit_ended = true;
    stg_audit_write_end(&text, &instance->audit_seq, instance->config.audit_run,
                        stg_journal_now_ns());
    note_lines(instance, &text);
}

/* ---- the end ---- */

static void give_runners(struct stg_instance *instance)
{
    stg_share_give(instance->definition->share, STG_QUOTA_RUNNERS, instance->n_runners);
    instance->n_runners = 0;
}

void stg_catalog_free_instance(struct stg_instance *instance)
{
    give_runners(instance);
    stg_stage_destroy(instance->stage);
    stg_workers_unref(instance->config.workers);
    stg_definition_unref(instance->definition);
    stg_prior_destroy(instance->prior);
    stg_journal_unref(instance->journal);
    stg_recovery_finish(instance);
    free(instance);
}

bool stg_catalog_stopping(const struct stg_catalog *catalog)
{
    for (struct stg_instance *i = catalog->instances; i != NULL; i = i->next) {
        if (i->state == STG_INSTANCE_ENDING || i->shrinks ||
            (i->state == STG_INSTANCE_LIVE && stg_stage_stopping(i->stage) && !i->quiet))
            return true;
    }
    return false;
}

bool stg_catalog_has_retained(const struct stg_catalog *catalog)
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
    stg_heap_shed_begin();
    stg_stage_destroy(instance->at_work);
    stg_heap_shed_end();
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
    stg_catalog_keep_totals(instance);
    end_audit(instance);
    instance->state = STG_INSTANCE_ENDING;
    instance->at_work = instance->stage;
    instance->stage = NULL;
    uv_queue_work(instance->catalog->loop, &instance->work, destroy_stage,
                  destroyed_stage);
}

static void shrink_stage(uv_work_t *work)
{
    struct stg_instance *instance = work->data;
    stg_heap_shed_begin();
    stg_stage_shrink(instance->stage);
    stg_heap_shed_end();
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

/* Once trials of partitions have ended. */
static void keep_prior(struct stg_instance *instance)
{
    struct stg_catalog *catalog = instance->catalog;
    struct stg_prior prior;
    struct stg_err err = {0};
    char path[4096];
    if (!stg_stage_take_prior(instance->stage, &prior))
        return;
    prior.fingerprint = instance->definition->spec->fingerprint;
    prior.cpus = stg_cpus_whole();
    if (stg_priors_keep(&catalog->priors, &prior) &&
        prior_path(catalog, path, sizeof(path)) &&
        stg_priors_save(&catalog->priors, path, &err) < 0)
        stg_log(STG_LOG_WARNING,
                "pipeline %s: the partition that smart_stage: auto took is not kept for "
                "later runs: %s",
                instance->config.name, err.text);
    free(prior.moved);
}

static void stop_unused(struct stg_instance *instance)
{
    if (!instance->is_claimed && !stg_stage_is_used(instance->stage))
        stg_stage_stop(instance->stage, STAGER_CANCELLED,
                       "no client waits for it any more", false);
}

/* Opens wait until its dataset is at the state. Returns whether it came there, or failed,
 * since the last sweep; by the next one they have attached, or gave up. */
static bool note_start(struct stg_instance *instance, int *next_millis)
{
    struct stg_err err;
    if (instance->start_news == STG_START_FRESH) {
        instance->start_news = STG_START_OVER;
        stop_unused(instance);
    }
    if (instance->start_news != STG_START_AWAITED ||
        stg_stage_sought(instance->stage, &err) == 0)
        return false;
    instance->start_news = STG_START_FRESH;
    sooner(1, next_millis);
    return true;
}

/* Returns whether its runners have ended since the last sweep, or its dataset is where it
 * begins: an open may wait for that. */
static bool sweep_live(struct stg_instance *instance, int *next_millis)
{
    stg_catalog_note(instance);
    stg_recovery_note(instance);
    note_news(instance, false);
    if (instance->shrinks) {
        sooner(stg_stage_sweep(instance->stage), next_millis);
        return false;
    }
    if (stg_stage_finished(instance->stage) && !instance->is_claimed) {
        end_instance(instance);
        return true;
    }
    bool is_sought = note_start(instance, next_millis);
    sooner(stg_stage_sweep(instance->stage), next_millis);
    sooner(stg_stage_choose_partition(instance->stage), next_millis);
    keep_prior(instance);
    bool quiet = stg_stage_quiet(instance->stage);
    bool became = quiet && !instance->quiet;
    instance->quiet = quiet;
    if (became) {
        give_runners(instance);
        end_audit(instance);
    }
    if (became && !stg_stage_finished(instance->stage))
        shrink(instance);
    return became || is_sought;
}

int stg_catalog_sweep(struct stg_catalog *catalog)
{
    int next_millis = -1;
    bool went = stg_recovery_sweep(catalog, &next_millis);
    struct stg_instance *next;
    for (struct stg_instance *i = catalog->instances; i != NULL; i = next) {
        next = i->next;
        if (i->state == STG_INSTANCE_LIVE) {
            went |= sweep_live(i, &next_millis);
        } else if (i->state == STG_INSTANCE_FAILED && !i->is_claimed) {
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
        if (i->stage != NULL)
            stg_stage_sweep(i->stage);
        stg_recovery_write(i, NULL);
    }
    catalog->is_stopping = true;
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
    return catalog->trim.is_running || catalog->journals.n > 0 || catalog->change != NULL;
}

bool stg_catalog_quiet(const struct stg_catalog *catalog)
{
    for (struct stg_instance *i = catalog->instances; i != NULL; i = i->next) {
        if (i->state == STG_INSTANCE_LIVE && !stg_stage_quiet(i->stage))
            return false;
    }
    return !stg_catalog_working(catalog);
}

/* ---- making ---- */

struct stg_budget *stg_catalog_budget(struct stg_catalog *catalog,
                                      struct stg_definition *definition)
{
    if (definition->budget.whole == NULL)
        stg_budget_init_part(&definition->budget, catalog->budget, definition->share);
    return &definition->budget;
}

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
        STG_INSTANCE_FAILED) /* waiting opens know; a new open does not */
        stg_catalog_discard(instance);
    /* Its clients have attached by now, or gave up. */
    if (instance->stage != NULL && instance->config.start == NULL &&
        !instance->config.warm)
        stop_unused(instance);
}

/* Its batches are those of another run: the numbers of an earlier one may go on. */
static void renew(struct stg_instance *instance, struct stg_pipeline *pipeline)
{
    if (instance->private_run)
        return;
    pipeline->run_id = stg_catalog_make_id() >> 1;
    instance->config.run_id = pipeline->run_id;
}

/* One of the stagerds of a job may have been started anew, and counts other passes. */
static bool begins_first_pass(const struct stg_wanted *wanted)
{
    return wanted->private_run || wanted->deal.n_hosts > 0;
}

static void set_start(struct stg_instance *instance, struct stg_pipeline *pipeline,
                      const struct stg_state *state)
{
    instance->start = *state;
    instance->start_news = STG_START_AWAITED;
    instance->config.start = &instance->start;
    instance->config.first_pass = state->pass;
    renew(instance, pipeline);
}

static int take_runners(const struct stg_definition *definition, const char *name,
                        uint32_t n, struct stg_err *err)
{
    int rc = stg_share_take(definition->share, STG_QUOTA_RUNNERS, n, err);
    return rc < 0 ? stg_err_prefix(err, rc, "pipeline %s", name) : 0;
}

/* A private run has all records, or begins when its client likes. */
static struct stg_comparing comparing_of(const struct stg_catalog *catalog,
                                         const struct stg_definition *definition,
                                         const struct stg_wanted *wanted)
{
    const struct stg_cluster_settings *cluster = &catalog->settings->cluster;
    struct stg_comparing comparing = {.timeout_millis = cluster->compare_timeout_millis,
                                      .signature = definition->signature,
                                      .instance = catalog->instance_id};
    if (!wanted->private_run && wanted->deal.n_hosts > 1 &&
        cluster->compare_dir[0] != '\0')
        comparing.dir = cluster->compare_dir;
    snprintf(comparing.job, sizeof(comparing.job), "%s",
             wanted->job != NULL ? wanted->job : "");
    return comparing;
}

/* The workers read on behalf of the applier. */
static struct stg_remote_config remote_of(const struct stg_definition *definition)
{
    return (struct stg_remote_config){.workers = &definition->spec->staged.remote,
                                      .uid = definition->applier.uid,
                                      .gid = definition->applier.gid,
                                      .groups = definition->applier.groups,
                                      .n_groups = definition->applier.n_groups,
                                      .share = definition->share};
}

static uint32_t num_clients_of(const struct stg_definition *definition,
                               const struct stg_wanted *wanted)
{
    return wanted->private_run ? 1 : definition->spec->staged.num_clients;
}

/* Plans the stage, and takes its runners from the quotas of the applier. */
static int plan(struct stg_catalog *catalog, struct stg_pipeline *pipeline,
                const struct stg_wanted *wanted, struct stg_stage_plan *ret,
                struct stg_err *err)
{
    struct stg_definition *definition = pipeline->definition;
    uint32_t max_in_flight = wanted->max_in_flight < 2 ? 2 : wanted->max_in_flight;
    int rc = wanted->private_run || wanted->resumes
                 ? 0
                 : stg_definition_begin_run(definition, wanted->world_size, err);
    if (rc < 0)
        return rc;
    struct stg_plan_asked asked =
        stg_definition_asked(definition, num_clients_of(definition, wanted),
                             max_in_flight, catalog->settings->default_pipeline_memory);
    rc = stg_stage_plan(&asked, ret, err);
    return rc < 0 ? rc
                  : take_runners(definition, pipeline->name,
                                 ret->num_threads + ret->num_remote, err);
}

static bool audits(const struct stg_definition *definition,
                   const struct stg_wanted *wanted)
{
    return (!wanted->private_run || wanted->is_apart) &&
           definition->spec->staged.audit != STG_AUDIT_NONE;
}

/* What the stage of an instance gets, but for its name and where it begins. */
static struct stg_stage_config config_of(struct stg_instance *instance,
                                         const struct stg_pipeline *pipeline,
                                         const struct stg_wanted *wanted)
{
    struct stg_catalog *catalog = instance->catalog;
    struct stg_definition *definition = instance->definition;
    const struct stg_staged *staged = &definition->spec->staged;
    bool private_run = wanted->private_run;
    bool has_audit = audits(definition, wanted);
    return (struct stg_stage_config){
        .spec = definition->spec,
        .projection = &definition->projection,
        .graph = definition->graph,
        .partitions = definition->partitions,
        .generation = pipeline->generation,
        .run_id = private_run ? stg_catalog_make_id() >> 1 : pipeline->run_id,
        .first_number = private_run ? 0 : pipeline->next_number,
        .first_pass = begins_first_pass(wanted) ? 0 : pipeline->next_pass,
        .is_reproducible = definition->irreproducible == NULL,
        .hosts_entry = wanted->hosts_entry,
        .hosts_generation = wanted->hosts_generation,
        .keeps_record = !private_run && definition->irreproducible == NULL &&
                        wanted->hosts_entry == 0,
        .instance = catalog->instance_id,
        .uid = definition->applier.uid,
        .gid = definition->applier.gid,
        .groups = definition->applier.groups,
        .n_groups = definition->applier.n_groups,
        .container = definition->container,
        .delivery = private_run ? STG_DELIVERY_SPLIT : staged->delivery,
        .batch_size = stg_signature_batch_size(definition->spec),
        .deal = wanted->deal,
        .comparing = comparing_of(catalog, definition, wanted),
        .private_run = private_run,
        .replays = wanted->replays,
        .warm = wanted->warm,
        .audit_run = has_audit ? stg_catalog_make_id() : 0,
        .audits_contents = has_audit && staged->audit == STG_AUDIT_CONTENTS,
        .num_clients = num_clients_of(definition, wanted),
        .share = definition->share,
        .budget = stg_catalog_budget(catalog, definition),
        .pool = staged->use_thread_pool
                    ? stg_pools_get(catalog->hooks.pools, staged->thread_pool_id)
                    : NULL,
        .workers = stg_workers_ref(pipeline->workers),
        .tuning = private_run ? NULL : definition->tuning,
        .prior = instance->prior,
        .trace = private_run ? NULL : &definition->trace,
        .tap = private_run ? NULL : &definition->tap,
        .content = definition->content,
        .remote = remote_of(definition),
        .cancelled = &instance->abandoned,
        .wake = catalog->hooks.wake,
        .owner = catalog->hooks.owner,
    };
}

static int new_instance(struct stg_catalog *catalog, struct stg_pipeline *pipeline,
                        const struct stg_wanted *wanted, struct stg_instance **ret,
                        struct stg_err *err)
{
    bool private_run = wanted->private_run;
    struct stg_definition *definition = pipeline->definition;
    struct stg_stage_plan planned;
    int rc = plan(catalog, pipeline, wanted, &planned, err);
    if (rc < 0)
        return rc;
    struct stg_instance *instance = calloc(1, sizeof(*instance));
    if (instance == NULL) {
        stg_share_give(definition->share, STG_QUOTA_RUNNERS,
                       planned.num_threads + planned.num_remote);
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    }
    instance->n_runners = planned.num_threads + planned.num_remote;
    instance->catalog = catalog;
    instance->pipeline = private_run ? NULL : pipeline;
    instance->definition = stg_definition_ref(definition);
    instance->generation = pipeline->generation;
    instance->pipeline_id = pipeline->id;
    instance->shown_state = "";
    instance->private_run = private_run;
    instance->is_apart = wanted->is_apart;
    if (wanted->is_apart && wanted->name != NULL)
        snprintf(instance->apart_id, sizeof(instance->apart_id), "%s", wanted->name);
    instance->plan = planned;
    instance->prior = find_prior(catalog, definition);
    instance->n_gone = catalog->n_gone;
    instance->config = config_of(instance, pipeline, wanted);
    snprintf(instance->config.name, sizeof(instance->config.name), "%s", pipeline->name);
    rc = wanted->resumes ? stg_recovery_resume(instance, err) : 0;
    if (rc < 0) {
        stg_catalog_free_instance(instance);
        return rc;
    }
    if (!private_run && !wanted->resumes && pipeline->journal != NULL)
        stg_recovery_end(catalog, pipeline);
    if (wanted->state != NULL)
        set_start(instance, pipeline, wanted->state);
    else if (instance->config.first_pass < pipeline->next_pass)
        renew(instance, pipeline);
    if (audits(definition, wanted) &&
        pipeline->journal != NULL) /* a candidate has none yet */
        instance->journal = stg_journal_ref(pipeline->journal);
    instance->work.data = instance;
    instance->next = catalog->instances;
    catalog->instances = instance;
    if (!private_run) {
        pipeline->instance = instance;
        pipeline->hosts_entry = wanted->hosts_entry;
        pipeline->max_in_flight = wanted->max_in_flight;
    }
    uv_queue_work(catalog->loop, &instance->work, create_stage, created_stage);
    *ret = instance;
    return 0;
}

/* The shared instance ends: a client loads a state that needs another one. */
static void supersede(struct stg_pipeline *pipeline, const struct stg_wanted *wanted)
{
    struct stg_instance *instance = pipeline->instance;
    char text[384];
    snprintf(text, sizeof(text),
             "client %.127s loaded a state (pass %" PRIu64 ", position %" PRIu64
             "), which begins another run: load the same state in this client",
             wanted->client_id, wanted->state->pass, wanted->state->place.elements);
    stg_catalog_keep_counts(instance);
    instance->pipeline = NULL;
    instance->abandoned = 1;
    stg_stage_stop(instance->stage, STAGER_ABORTED, text, false);
}

/* A warm instance was planned for the clients of the last one. */
static bool is_too_small(const struct stg_instance *instance,
                         const struct stg_wanted *wanted)
{
    return instance->config.warm && instance->state == STG_INSTANCE_LIVE &&
           wanted->max_in_flight > instance->plan.max_in_flight &&
           stg_stage_is_untouched(instance->stage);
}

/* Ends a warm instance that no client has seen: its numbers are given again. */
static void forget_warm(struct stg_pipeline *pipeline)
{
    struct stg_instance *instance = pipeline->instance;
    pipeline->instance = NULL;
    instance->pipeline = NULL;
    instance->abandoned = 1;
    stg_stage_stop(instance->stage, STAGER_CANCELLED,
                   "its first client needs more batches in flight", false);
}

/* A run of an earlier job: one of other hosts, which no client is in any more; or one
 * that its clients leave, which a new client would join in another pass than on other
 * hosts. */
static bool is_of_earlier_job(const struct stg_instance *instance,
                              const struct stg_wanted *wanted)
{
    const struct stg_deal *deal = &instance->config.deal;
    if (instance->state != STG_INSTANCE_LIVE || wanted->deal.n_hosts == 0)
        return false;
    if (deal->n_hosts != wanted->deal.n_hosts || deal->host != wanted->deal.host)
        return !stg_stage_is_used(instance->stage);
    return wanted->is_new && wanted->state == NULL &&
           stg_stage_is_over(instance->stage, wanted->name);
}

static void end_left(struct stg_pipeline *pipeline)
{
    struct stg_instance *instance = pipeline->instance;
    stg_catalog_keep_counts(instance);
    pipeline->instance = NULL;
    instance->pipeline = NULL;
    instance->abandoned = 1;
    stg_stage_stop(instance->stage, STAGER_ABORTED,
                   "another job has begun: open the stream again", false);
}

/* Returns 0 if a client with the state may attach to the shared instance, 1 if that was
 * superseded, 2 if the client needs a run apart. */
static int admit(struct stg_pipeline *pipeline, const struct stg_wanted *wanted,
                 struct stg_err *err)
{
    const struct stg_instance *instance = pipeline->instance;
    if (wanted->state == NULL || instance->state != STG_INSTANCE_LIVE)
        return 0;
    int rc = stg_stage_admit(instance->stage, wanted->name, wanted->state, err);
    if (rc == 1)
        supersede(pipeline, wanted);
    return rc;
}

/* Other clients are past the state. None of them is rewound. */
static int new_apart(struct stg_catalog *catalog, struct stg_pipeline *pipeline,
                     const struct stg_wanted *wanted, struct stg_instance **ret,
                     struct stg_err *err)
{
    struct stg_wanted apart = *wanted;
    apart.private_run = apart.is_apart = true;
    return new_instance(catalog, pipeline, &apart, ret, err);
}

/* A name is that of one client, also if the client has a run of its own. */
static int check_apart(const struct stg_catalog *catalog,
                       const struct stg_pipeline *pipeline,
                       const struct stg_wanted *wanted, struct stg_err *err)
{
    if (wanted->name == NULL || wanted->private_run)
        return 0;
    for (const struct stg_instance *i = catalog->instances; i != NULL; i = i->next) {
        if (!i->is_apart || !stg_catalog_is_of(i, pipeline) || i->stage == NULL ||
            strcmp(i->apart_id, wanted->name) != 0 || !stg_stage_is_used(i->stage))
            continue;
        stg_err(err, -STAGER_ALREADY_EXISTS,
                "client %.127s is attached to pipeline %s already, in a run of its own:",
                wanted->name, pipeline->name);
        stg_stage_name_clients(i->stage, err);
        return stg_err_append(err, err->code,
                              "; choose another client_id, or end that process");
    }
    return 0;
}

/* The instance that goes on with the run of before a restart. */
static int resume(struct stg_catalog *catalog, struct stg_pipeline *pipeline,
                  const struct stg_wanted *wanted, struct stg_instance **ret,
                  struct stg_err *err)
{
    const struct stg_gathering *gathering = pipeline->gathering;
    struct stg_wanted resumed = *wanted;
    *ret = pipeline->instance;
    if (*ret != NULL)
        return 0;
    if (gathering->is_used)
        return stg_err(
            err, -STAGER_ABORTED,
            "%s, and the run of pipeline %s ended before this client came back",
            stg_gathering_cause(gathering), pipeline->name);
    resumed.state = gathering->has_start ? &gathering->start : NULL;
    return new_instance(catalog, pipeline, &resumed, ret, err);
}

int stg_catalog_instance(struct stg_catalog *catalog, struct stg_pipeline *pipeline,
                         const struct stg_wanted *wanted, struct stg_instance **ret,
                         struct stg_err *err)
{
    struct stg_instance *instance = wanted->private_run ? NULL : pipeline->instance;
    if (!wanted->private_run && !wanted->resumes && stg_recovery_blocks(pipeline, err))
        return err->code;
    if (instance != NULL && instance->state == STG_INSTANCE_LIVE &&
        stg_stage_stopping(instance->stage)) {
        if (!stg_stage_quiet(instance->stage))
            return stg_err(err, -STAGER_UNAVAILABLE,
                           "the last run of pipeline %s is still stopping: a read of a "
                           "file is slow; try again",
                           pipeline->name);
        /* A client that left keeps the memory of its batches, and does not stop the
         * pipeline. */
        stg_catalog_keep_counts(instance);
        instance->pipeline = NULL;
        pipeline->instance = NULL;
        instance = NULL;
    }
    if (wanted->resumes)
        return resume(catalog, pipeline, wanted, ret, err);
    if (instance != NULL && is_too_small(instance, wanted)) {
        forget_warm(pipeline);
        instance = NULL;
    }
    if (instance != NULL && is_of_earlier_job(instance, wanted)) {
        end_left(pipeline);
        instance = NULL;
    }
    int rc = check_apart(catalog, pipeline, wanted, err);
    if (rc == 0)
        rc = instance != NULL ? admit(pipeline, wanted, err) : 1;
    if (rc == 0)
        *ret = instance;
    if (rc == 2)
        return new_apart(catalog, pipeline, wanted, ret, err);
    if (rc == 1 && wanted->hosts_entry != 0 &&
        wanted->hosts_entry == pipeline->hosts_entry)
        return stg_err(err, -STAGER_UNAVAILABLE,
                       "the run of pipeline %s in this generation of the hosts has not "
                       "ended yet; try again",
                       pipeline->name);
    return rc == 1 ? new_instance(catalog, pipeline, wanted, ret, err) : rc;
}

/* ---- traces ---- */

bool stg_catalog_has(const struct stg_catalog *catalog,
                     const struct stg_definition *definition)
{
    for (const struct stg_pipeline *p = catalog->pipelines; p != NULL; p = p->next) {
        if (p->definition == definition)
            return true;
    }
    for (const struct stg_instance *i = catalog->instances; i != NULL; i = i->next) {
        if (i->definition == definition && !i->private_run)
            return true;
    }
    return false;
}

void stg_catalog_trace(const struct stg_catalog *catalog,
                       const struct stg_definition *definition, bool last)
{
    for (struct stg_instance *i = catalog->instances; i != NULL; i = i->next) {
        if (i->definition == definition && i->stage != NULL && !i->private_run)
            stg_stage_trace(i->stage, last);
    }
}
