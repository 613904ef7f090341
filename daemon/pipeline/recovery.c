/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/pipeline/recovery.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "daemon/host/process.h"
#include "daemon/host/text_file.h"
#include "daemon/pipeline/catalog_priv.h"
#include "daemon/pipeline/loading.h"
#include "daemon/pipeline/signature.h"

#define MAX_BYTES (32u << 20) /* of a record */
#define LOOK_MILLIS 100       /* between two looks at processes, while opens wait */
#define REST_MILLIS 1000      /* while none does */
#define LEAST_MILLIS 5000u    /* that living members have to come back */

/* ---- files ---- */

static int make_path(const struct stg_catalog *catalog, const char *name,
                     const char *suffix, char *ret, size_t bytes)
{
    int n = snprintf(ret, bytes, "%s/runs/%s%s", catalog->settings->runtime_dir, name,
                     suffix);
    return n > 0 && (size_t)n < bytes ? 0 : -1;
}

/* Without fsync: a record is of no use after a failure of the machine. */
static bool save(struct stg_catalog *catalog, const char *name, const char *text,
                 size_t bytes)
{
    char path[4096], temporary[4096];
    const struct stg_text_part part = {.bytes = text, .n = bytes};
    const char *failed;
    if (make_path(catalog, "", "", path, sizeof(path)) < 0 ||
        (mkdir(path, 0700) < 0 && errno != EEXIST))
        return false;
    return make_path(catalog, name, "", path, sizeof(path)) == 0 &&
           make_path(catalog, name, ".tmp", temporary, sizeof(temporary)) == 0 &&
           stg_text_file_replace_soon(path, temporary, &part, 1, &failed) == 0;
}

static void remove_file(struct stg_catalog *catalog, const char *name)
{
    char path[4096];
    if (make_path(catalog, name, "", path, sizeof(path)) == 0)
        unlink(path);
}

void stg_recovery_close(const struct stg_catalog *catalog)
{
    char path[4096];
    if (make_path(catalog, "", "", path, sizeof(path)) == 0)
        rmdir(path);
}

/* ---- writing ---- */

/* The run cannot go on, and its record is removed. */
static bool has_failed(const struct stg_instance *instance)
{
    const struct stg_gathering *gathering = instance->pipeline->gathering;
    return instance->config.resumed != NULL && gathering != NULL &&
           gathering->state == STG_GATHERING_FAILED;
}

static bool keeps_record(const struct stg_instance *instance)
{
    return instance->config.keeps_record && instance->pipeline != NULL &&
           !instance->is_candidate && instance->stage != NULL &&
           !instance->catalog->is_stopping && !has_failed(instance);
}

/* Members that may come still: those that did not attach again yet, and late ones. Until
 * all ranks have attached, the next stagerd has to know of one that has ended. */
static bool may_return(const struct stg_gathering *gathering, size_t i)
{
    const struct stg_run_member *member = &gathering->record.members[i];
    enum stg_gathered_state state = gathering->members[i].state;
    if (gathering->rules.delivery == STG_DELIVERY_ROUND_ROBIN &&
        gathering->state == STG_GATHERING_BEGUN && gathering->record.has_begun)
        return true;
    return (state == STG_GATHERED_ARRIVED || state == STG_GATHERED_LATE) &&
           stg_process_lives((pid_t)member->pid, member->process);
}

static int add_returning(const struct stg_gathering *gathering,
                         struct stg_run_record *record)
{
    size_t n = record->n_members + gathering->record.n_members;
    struct stg_run_member *members =
        reallocarray(record->members, n + 1, sizeof(*members));
    if (members == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    record->members = members;
    for (size_t i = 0; i < gathering->record.n_members; i++) {
        struct stg_run_member member = gathering->record.members[i];
        member.is_late = gathering->members[i].state == STG_GATHERED_LATE;
        member.acknowledged = NULL; /* the run began behind them */
        if (!gathering->has_start || gathering->start.pass != record->numbers_pass)
            member.consumer = 0; /* the numbers began anew */
        if (may_return(gathering, i))
            members[record->n_members++] = member;
    }
    return 0;
}

/* A client that attaches again is in both. */
static void remove_doubles(struct stg_run_record *record)
{
    size_t n = 0;
    for (size_t i = 0; i < record->n_members; i++) {
        size_t k = 0;
        while (k < n && record->members[k].member != record->members[i].member)
            k++;
        if (k == n)
            record->members[n++] = record->members[i];
        else
            free(record->members[i].acknowledged);
    }
    record->n_members = n;
}

static void note_definition(const struct stg_definition *definition,
                            struct stg_run_record *ret)
{
    const struct stg_staged *staged = &definition->spec->staged;
    ret->fingerprint = definition->spec->fingerprint;
    snprintf(ret->steps, sizeof(ret->steps), "%s", definition->signature);
    ret->delivery = staged->delivery;
    ret->batch_size = stg_signature_batch_size(definition->spec);
}

static int fill(const struct stg_instance *instance, const struct stg_client *joining,
                struct stg_run_record *ret)
{
    const struct stg_pipeline *pipeline = instance->pipeline;
    const struct stg_gathering *gathering = pipeline->gathering;
    snprintf(ret->boot, sizeof(ret->boot), "%s", instance->catalog->boot);
    snprintf(ret->name, sizeof(ret->name), "%s", pipeline->name);
    ret->generation = pipeline->generation;
    note_definition(instance->definition, ret);
    ret->attempt = stg_journal_commits(pipeline->journal)->attempt;
    int rc = stg_stage_note_run(instance->stage, joining, ret);
    if (rc == 0 && gathering != NULL &&
        (gathering->state == STG_GATHERING_BEGUN ||
         gathering->state == STG_GATHERING_CLOSED)) {
        rc = add_returning(gathering, ret);
        remove_doubles(ret);
        /* Until all have attached again, the stage does not know it. */
        ret->has_begun |=
            gathering->state == STG_GATHERING_BEGUN && gathering->record.has_begun;
    }
    return rc;
}

/* Returns whether the record is in its file. */
static bool save_record(struct stg_catalog *catalog, const struct stg_run_record *record)
{
    size_t bytes = 0;
    char *text = stg_run_record_write(record, &bytes);
    bool ok = text != NULL && save(catalog, record->name, text, bytes);
    free(text);
    return ok;
}

void stg_recovery_write(struct stg_instance *instance, const struct stg_client *joining)
{
    if (!keeps_record(instance))
        return;
    struct stg_catalog *catalog = instance->catalog;
    const char *name = instance->pipeline->name;
    struct stg_run_record *record = calloc(1, sizeof(*record));
    int rc = record != NULL ? fill(instance, joining, record) : -1;
    if (rc == 0 && record->n_members == 0) {
        remove_file(catalog, name);
    } else {
        bool ok = rc == 0 && save_record(catalog, record);
        if (!ok && !catalog->has_record_problem)
            stg_log(STG_LOG_WARNING,
                    "pipeline %s: its streams cannot reconnect after a restart of "
                    "stagerd: cannot write %s/runs/%s: %s",
                    name, catalog->settings->runtime_dir, name, strerror(errno));
        catalog->has_record_problem = !ok;
    }
    if (record != NULL)
        stg_run_record_finish(record);
    free(record);
}

void stg_recovery_note(struct stg_instance *instance)
{
    if (!keeps_record(instance))
        return;
    uint64_t version = stg_stage_run_version(instance->stage);
    if (version == instance->run_version)
        return;
    instance->run_version = version;
    stg_recovery_write(instance, NULL);
}

void stg_recovery_end(struct stg_catalog *catalog, struct stg_pipeline *pipeline)
{
    if (!catalog->is_stopping)
        remove_file(catalog, pipeline->name);
    if (pipeline->gathering != NULL)
        stg_gathering_replace(pipeline->gathering);
}

/* ---- reading ---- */

static bool has_living(const struct stg_run_record *record)
{
    for (size_t i = 0; i < record->n_members; i++) {
        const struct stg_run_member *member = &record->members[i];
        if (!member->is_late && stg_process_lives((pid_t)member->pid, member->process))
            return true;
    }
    return false;
}

static int gather(struct stg_pipeline *pipeline, struct stg_definition *definition,
                  struct stg_run_record *record, bool follows, struct stg_err *err)
{
    int rc = stg_definition_begin_run(definition, record->num_clients, err);
    if (rc < 0)
        return rc;
    struct stg_gathering_rules rules = {.delivery = record->delivery,
                                        .num_clients = record->num_clients,
                                        .batch_size = record->batch_size,
                                        .follows = follows};
    stg_journal_raise(pipeline->journal, record->attempt);
    return stg_gathering_create(&rules, record, &pipeline->gathering, err);
}

static void keep_followers(struct stg_run_record *record)
{
    size_t n = 0;
    for (size_t i = 0; i < record->n_members; i++) {
        if (record->members[i].follows)
            record->members[n++] = record->members[i];
        else
            free(record->members[i].acknowledged);
    }
    record->n_members = n;
}

/* Returns whether members of the run that follow go on where they are with that
 * definition, and leaves the others out. Where clients divide the items, all must. */
static bool may_follow(struct stg_run_record *record,
                       const struct stg_definition *definition)
{
    const struct stg_staged *staged = &definition->spec->staged;
    size_t n = record->n_members + record->n_others;
    if (definition->irreproducible != NULL || record->delivery != staged->delivery ||
        (!staged->num_clients_auto && record->num_clients != staged->num_clients) ||
        stg_signature_compare(definition->signature, record->steps, NULL) < 0)
        return false;
    keep_followers(record);
    return record->n_members > 0 &&
           (staged->delivery == STG_DELIVERY_BROADCAST || record->n_members == n);
}

/* Returns whether the record is of that pipeline, as it is now, or of a generation that
 * its clients follow. */
static bool is_of(const struct stg_catalog *catalog, const struct stg_pipeline *pipeline,
                  struct stg_run_record *record)
{
    const struct stg_definition *definition = pipeline->definition;
    if (strcmp(record->boot, catalog->boot) != 0 ||
        strcmp(record->name, pipeline->name) != 0 || definition->irreproducible != NULL)
        return false;
    if (record->generation < pipeline->generation && may_follow(record, definition)) {
        record->generation = pipeline->generation;
        record->fingerprint = definition->spec->fingerprint;
    }
    return record->generation == pipeline->generation &&
           record->fingerprint == definition->spec->fingerprint;
}

static void use_record(struct stg_catalog *catalog, struct stg_pipeline *pipeline,
                       struct stg_run_record *record)
{
    struct stg_err err = {0};
    size_t n = record->n_members;
    if (!is_of(catalog, pipeline, record) || !has_living(record)) {
        remove_file(catalog, pipeline->name);
        return;
    }
    if (gather(pipeline, pipeline->definition, record, false, &err) < 0)
        stg_log(STG_LOG_WARNING, "pipeline %s: %s", pipeline->name, err.text);
    else
        stg_log(STG_LOG_INFO,
                "pipeline %s: %zu client%s of its run may reconnect, and go on where "
                "they were",
                pipeline->name, n, n == 1 ? "" : "s");
}

static void load_record(struct stg_catalog *catalog, struct stg_pipeline *pipeline)
{
    char path[4096], *text = NULL;
    struct stat st;
    size_t bytes = 0;
    struct stg_err err = {0};
    struct stg_run_record *record = calloc(1, sizeof(*record));
    if (record == NULL ||
        make_path(catalog, pipeline->name, "", path, sizeof(path)) < 0) {
        free(record);
        return;
    }
    int rc = access(path, F_OK) == 0
                 ? stg_text_file_read(path, MAX_BYTES, &st, &text, &bytes, &err)
                 : -STAGER_NOT_FOUND;
    if (rc == 0)
        rc = stg_run_record_read(text, bytes, record, &err);
    if (rc == 0)
        use_record(catalog, pipeline, record);
    else if (rc != -STAGER_NOT_FOUND) {
        stg_log(STG_LOG_WARNING, "%s: %s: its streams cannot reconnect", path, err.text);
        remove_file(catalog, pipeline->name);
    }
    stg_run_record_finish(record);
    free(record);
    free(text);
}

static bool is_there(const struct stg_catalog *catalog, const char *name)
{
    const struct stg_pipeline *p = catalog->pipelines;
    while (p != NULL && strcmp(p->name, name) != 0)
        p = p->next;
    return p != NULL;
}

/* Removes the records of pipelines that do not exist any more. */
static void remove_others(struct stg_catalog *catalog)
{
    char path[4096];
    DIR *dir = make_path(catalog, "", "", path, sizeof(path)) == 0 ? opendir(path) : NULL;
    struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] != '.' && !is_there(catalog, entry->d_name))
            remove_file(catalog, entry->d_name);
    }
    if (dir != NULL)
        closedir(dir);
}

void stg_recovery_load(struct stg_catalog *catalog)
{
    stg_process_boot(catalog->boot);
    for (struct stg_pipeline *p = catalog->pipelines; p != NULL; p = p->next)
        load_record(catalog, p);
    remove_others(catalog);
}

/* ---- replacing ---- */

static bool is_under_way(const struct stg_gathering *gathering)
{
    return gathering != NULL && (gathering->state == STG_GATHERING_OPEN ||
                                 gathering->state == STG_GATHERING_BEGUN);
}

/* A restart of stagerd before the clients have followed changes nothing for them. */
static void save_handed(struct stg_catalog *catalog, const struct stg_pipeline *pipeline,
                        const struct stg_definition *definition,
                        struct stg_run_record *record)
{
    record->generation = pipeline->generation;
    record->fingerprint = definition->spec->fingerprint;
    if (!save_record(catalog, record))
        stg_log(STG_LOG_WARNING,
                "pipeline %s: its streams cannot reconnect after a restart of stagerd: "
                "cannot write %s/runs/%s: %s",
                pipeline->name, catalog->settings->runtime_dir, pipeline->name,
                strerror(errno));
}

static bool hand_over_run(struct stg_catalog *catalog, struct stg_pipeline *pipeline,
                          struct stg_definition *definition)
{
    struct stg_instance *instance = pipeline->instance;
    struct stg_gathering *before = pipeline->gathering;
    struct stg_err err = {0};
    struct stg_run_record *record = calloc(1, sizeof(*record));
    if (record == NULL)
        return false;
    stg_stage_sweep(instance->stage);
    bool ok = fill(instance, NULL, record) == 0 && may_follow(record, definition);
    if (ok) {
        save_handed(catalog, pipeline, definition, record);
        ok = gather(pipeline, definition, record, true, &err) == 0;
    }
    if (ok)
        stg_gathering_destroy(before);
    stg_run_record_finish(record);
    free(record);
    return ok;
}

/* Clients that wait for others wait on: they have reached no run yet. */
static bool hand_over_gathering(struct stg_catalog *catalog,
                                struct stg_pipeline *pipeline,
                                struct stg_definition *definition)
{
    struct stg_gathering *gathering = pipeline->gathering;
    struct stg_run_record *record = &gathering->record;
    size_t n = 0;
    while (n < record->n_members && record->members[n].follows)
        n++;
    if (n < record->n_members || !may_follow(record, definition) ||
        stg_definition_begin_run(definition, record->num_clients, NULL) < 0)
        return false;
    gathering->state = STG_GATHERING_OPEN;
    gathering->rules.follows = true;
    save_handed(catalog, pipeline, definition, record);
    return true;
}

bool stg_recovery_hand_over(struct stg_catalog *catalog, struct stg_pipeline *pipeline,
                            struct stg_definition *definition)
{
    const struct stg_instance *instance = pipeline->instance;
    const struct stg_gathering *gathering = pipeline->gathering;
    if (instance != NULL && instance->stage != NULL &&
        !stg_stage_stopping(instance->stage))
        return keeps_record(instance) && hand_over_run(catalog, pipeline, definition);
    return is_under_way(gathering) && !gathering->is_used &&
           hand_over_gathering(catalog, pipeline, definition);
}

/* ---- gathering ---- */

static void name_awaited(const struct stg_pipeline *pipeline, struct stg_err *err)
{
    const struct stg_gathering *gathering = pipeline->gathering;
    enum stg_gathered_state awaited = gathering->state == STG_GATHERING_OPEN
                                          ? STG_GATHERED_AWAITED
                                          : STG_GATHERED_ARRIVED;
    stg_err(err, -STAGER_UNAVAILABLE,
            "%s, and pipeline %s goes on when its clients have reconnected; missing:",
            stg_gathering_cause(gathering), pipeline->name);
    stg_gathering_name(gathering, awaited, err);
}

bool stg_recovery_blocks(struct stg_pipeline *pipeline, struct stg_err *err)
{
    if (!is_under_way(pipeline->gathering))
        return false;
    if (pipeline->gathering->since_ns == 0)
        pipeline->gathering->since_ns = stg_now_ns();
    if (err != NULL)
        name_awaited(pipeline, err);
    return true;
}

/* As long as the start of a run waits for clients. Under broadcast, where a client that
 * comes later loses nothing, as long as for one that is away. */
static uint64_t limit_ns(const struct stg_pipeline *pipeline)
{
    const struct stg_staged *staged = &pipeline->definition->spec->staged;
    uint64_t millis = LEAST_MILLIS;
    if (staged->reconnect_grace_millis > millis)
        millis = staged->reconnect_grace_millis;
    if (staged->start_timeout_millis > millis &&
        staged->delivery != STG_DELIVERY_BROADCAST)
        millis = staged->start_timeout_millis;
    return millis * 1000000;
}

static void look_at_processes(struct stg_gathering *gathering)
{
    for (size_t i = 0; i < gathering->record.n_members; i++) {
        const struct stg_run_member *member = &gathering->record.members[i];
        enum stg_gathered_state state = gathering->members[i].state;
        bool may_come = state == STG_GATHERED_AWAITED || state == STG_GATHERED_ARRIVED;
        if (may_come && !stg_process_lives((pid_t)member->pid, member->process))
            stg_gathering_lose(gathering, (int)i);
    }
}

/* No process is left of the run. */
static void give_up(struct stg_catalog *catalog, struct stg_pipeline *pipeline)
{
    stg_log(STG_LOG_INFO, "pipeline %s: no client of its last run is left",
            pipeline->name);
    remove_file(catalog, pipeline->name);
    stg_gathering_destroy(pipeline->gathering);
    pipeline->gathering = NULL;
}

static void fail(struct stg_catalog *catalog, struct stg_pipeline *pipeline)
{
    stg_log(STG_LOG_WARNING, "pipeline %s: %s", pipeline->name,
            pipeline->gathering->failure.text);
    snprintf(pipeline->last_error, sizeof(pipeline->last_error), "%.500s",
             pipeline->gathering->failure.text);
    remove_file(catalog, pipeline->name);
}

/* Members have as long again to attach. The definition may count batches of another size
 * than the one before. */
static int begin(struct stg_pipeline *pipeline)
{
    struct stg_gathering *gathering = pipeline->gathering;
    struct stg_err err = {0};
    bool was_open = gathering->state == STG_GATHERING_OPEN;
    int rc = stg_gathering_begin(gathering);
    if (gathering->state == STG_GATHERING_BEGUN) {
        gathering->since_ns = stg_now_ns();
        gathering->n_expected = stg_gathering_count(gathering, STG_GATHERED_ARRIVED);
    }
    if (rc != 0 || !was_open || !gathering->has_start)
        return rc;
    rc = stg_loading_check_taken(pipeline->definition, false, &gathering->start, &err);
    if (rc < 0)
        stg_gathering_fail(gathering, &err);
    return rc;
}

/* Returns whether it was given up. */
static bool sweep_open(struct stg_catalog *catalog, struct stg_pipeline *pipeline)
{
    struct stg_gathering *gathering = pipeline->gathering;
    if (stg_gathering_count(gathering, STG_GATHERED_AWAITED) +
            stg_gathering_count(gathering, STG_GATHERED_ARRIVED) ==
        0) {
        give_up(catalog, pipeline);
        return true;
    }
    if (gathering->since_ns != 0)
        (void)begin(pipeline);
    return false;
}

/* No client came to the instance that was made for them. It waits for a number of clients
 * that is not that of a new run. */
static void give_back(struct stg_pipeline *pipeline)
{
    struct stg_instance *instance = pipeline->instance;
    if (instance == NULL ||
        (instance->stage != NULL && stg_stage_is_used(instance->stage)))
        return;
    pipeline->instance = NULL;
    instance->pipeline = NULL;
    instance->abandoned = 1;
    if (instance->stage != NULL)
        stg_stage_stop(instance->stage, STAGER_CANCELLED,
                       "no client is left of the run that goes on", false);
}

/* A pass needs each rank. */
static void abort_ranks(struct stg_pipeline *pipeline)
{
    struct stg_gathering *gathering = pipeline->gathering;
    struct stg_err err;
    stg_err(&err, -STAGER_ABORTED,
            "%s, and round_robin cannot go on: ranks that had reconnected are missing:",
            stg_gathering_cause(gathering));
    stg_gathering_name(gathering, STG_GATHERED_GONE, &err);
    stg_gathering_name(gathering, STG_GATHERED_LATE, &err);
    stg_gathering_fail(gathering, &err);
    give_back(pipeline);
    if (pipeline->instance != NULL)
        stg_stage_stop(pipeline->instance->stage, STAGER_ABORTED, err.text, false);
}

/* Clients that came, and then neither attached nor stayed. n: those that are left. */
static void miss(struct stg_pipeline *pipeline, uint32_t n)
{
    struct stg_gathering *gathering = pipeline->gathering;
    const struct stg_instance *instance = pipeline->instance;
    bool is_made = instance != NULL && instance->stage != NULL;
    if (!gathering->record.has_begun || gathering->rules.delivery == STG_DELIVERY_SPLIT)
        return;
    if (gathering->rules.delivery == STG_DELIVERY_ROUND_ROBIN) {
        abort_ranks(pipeline);
    } else if (is_made) {
        gathering->n_expected = n;
        stg_stage_expect(instance->stage, n);
    }
}

static void sweep_begun(struct stg_pipeline *pipeline)
{
    struct stg_gathering *gathering = pipeline->gathering;
    uint32_t n = stg_gathering_count(gathering, STG_GATHERED_ARRIVED);
    uint32_t n_all = n + stg_gathering_count(gathering, STG_GATHERED_ATTACHED);
    if (n_all > 0 && n_all < gathering->n_expected)
        miss(pipeline, n_all);
    if (n > 0 || gathering->state != STG_GATHERING_BEGUN)
        return;
    gathering->state = STG_GATHERING_CLOSED;
    if (n_all == 0)
        give_back(pipeline);
}

/* Returns whether the state has changed since opens that wait looked at it. */
static bool has_news(struct stg_catalog *catalog, struct stg_pipeline *pipeline)
{
    struct stg_gathering *gathering = pipeline->gathering;
    if (gathering == NULL || gathering->announced == gathering->state)
        return false;
    gathering->announced = gathering->state;
    if (gathering->state == STG_GATHERING_FAILED)
        fail(catalog, pipeline);
    return true;
}

static bool sweep(struct stg_catalog *catalog, struct stg_pipeline *pipeline)
{
    struct stg_gathering *gathering = pipeline->gathering;
    look_at_processes(gathering);
    if (gathering->since_ns != 0 &&
        stg_now_ns() - gathering->since_ns > limit_ns(pipeline))
        stg_gathering_expire(gathering);
    if (gathering->state == STG_GATHERING_OPEN)
        return sweep_open(catalog, pipeline);
    sweep_begun(pipeline);
    return false;
}

bool stg_recovery_sweep(struct stg_catalog *catalog, int *next_millis)
{
    bool changed = false;
    if (catalog->is_stopping)
        return false; /* the next stagerd waits for the clients */
    for (struct stg_pipeline *p = catalog->pipelines; p != NULL; p = p->next) {
        if (is_under_way(p->gathering))
            changed |= sweep(catalog, p);
        changed |= has_news(catalog, p);
        if (!is_under_way(p->gathering))
            continue;
        int millis = p->gathering->since_ns != 0 ? LOOK_MILLIS : REST_MILLIS;
        if (*next_millis < 0 || *next_millis > millis)
            *next_millis = millis;
    }
    return changed;
}

/* ---- clients that reconnect ---- */

static int refuse_unknown(const struct stg_pipeline *pipeline, struct stg_err *err)
{
    return stg_err(err, -STAGER_ABORTED,
                   "stagerd was started again, and the run of this stream of pipeline %s "
                   "is not there any more: it was replaced, its other clients have "
                   "ended, or stagerd has no record of it",
                   pipeline->name);
}

int stg_recovery_find(const struct stg_pipeline *pipeline,
                      const struct stg_rejoin *rejoin, uid_t uid,
                      const struct stg_run_member **ret, struct stg_err *err)
{
    const struct stg_gathering *gathering = pipeline->gathering;
    int i = gathering != NULL
                ? stg_gathering_find(gathering, rejoin->run, rejoin->member, uid)
                : -1;
    if (i < 0)
        return refuse_unknown(pipeline, err);
    *ret = &gathering->record.members[i];
    return 0;
}

bool stg_recovery_follows(const struct stg_pipeline *pipeline,
                          const struct stg_rejoin *rejoin, uid_t uid)
{
    const struct stg_gathering *gathering = pipeline->gathering;
    return gathering != NULL && gathering->record.generation == pipeline->generation &&
           stg_gathering_find(gathering, rejoin->run, rejoin->member, uid) >= 0;
}

int stg_recovery_arrive(struct stg_pipeline *pipeline,
                        const struct stg_returning *returning,
                        const struct stg_run_member **ret, bool *ret_resumes,
                        struct stg_err *err)
{
    struct stg_gathering *gathering = pipeline->gathering;
    int i = stg_gathering_find(gathering, returning->rejoin->run,
                               returning->rejoin->member, returning->uid);
    if (gathering->since_ns == 0)
        gathering->since_ns = stg_now_ns();
    if (gathering->state == STG_GATHERING_OPEN) {
        int rc = stg_gathering_arrive(gathering, i, returning->state,
                                      returning->max_in_flight, err);
        if (rc == 0)
            rc = begin(pipeline);
        if (rc == 1)
            name_awaited(pipeline, err);
        if (rc == 1 || rc == -STAGER_RESOURCE_EXHAUSTED)
            return rc;
    }
    enum stg_gathered_state state = gathering->members[i].state;
    *ret = &gathering->record.members[i];
    *ret_resumes = state == STG_GATHERED_ARRIVED ||
                   gathering->rules.delivery != STG_DELIVERY_BROADCAST;
    return stg_gathering_admit(gathering, i, returning->state, err);
}

void stg_recovery_attach(const struct stg_pipeline *pipeline,
                         const struct stg_run_member *member,
                         const struct stg_state *state, struct stg_attach *attach)
{
    const struct stg_gathering *gathering = pipeline->gathering;
    const struct stg_gathering_rules *rules = &gathering->rules;
    const struct stg_state *start = gathering->has_start ? &gathering->start : NULL;
    bool is_shared = rules->delivery == STG_DELIVERY_SPLIT && rules->num_clients > 1;
    uint64_t pass = gathering->start.pass;
    attach->reconnects = true;
    attach->state = is_shared ? NULL : state != NULL ? state : start;
    attach->pass = state != NULL ? state->pass : pass;
    if (gathering->record.numbers_pass == pass)
        attach->consumer = member->consumer;
    else if (state != NULL && state->pass == pass && state->consumer <= UINT32_MAX)
        attach->consumer = (uint32_t)state->consumer;
    if (rules->delivery == STG_DELIVERY_ROUND_ROBIN) {
        attach->rank = member->rank;
        attach->world_size = rules->num_clients;
    }
}

/* Returns the place of a member among those of the gathering, or -1. */
static int find_member(const struct stg_pipeline *pipeline, uint64_t member)
{
    const struct stg_gathering *gathering = pipeline != NULL ? pipeline->gathering : NULL;
    for (size_t i = 0; gathering != NULL && i < gathering->record.n_members; i++) {
        if (gathering->record.members[i].member == member)
            return (int)i;
    }
    return -1;
}

void stg_recovery_joined(struct stg_pipeline *pipeline, uint64_t member)
{
    int i = find_member(pipeline, member);
    if (i < 0)
        return;
    struct stg_gathering *gathering = pipeline->gathering;
    gathering->members[i].state = STG_GATHERED_ATTACHED;
    gathering->is_used = true;
    /* Members that end from here on leave the run as any client does. */
    if (gathering->state == STG_GATHERING_BEGUN &&
        stg_gathering_count(gathering, STG_GATHERED_ATTACHED) == gathering->n_expected)
        gathering->state = STG_GATHERING_CLOSED;
}

void stg_recovery_gone(struct stg_pipeline *pipeline, uint64_t member)
{
    int i = find_member(pipeline, member);
    enum stg_gathered_state state =
        i >= 0 ? pipeline->gathering->members[i].state : STG_GATHERED_GONE;
    if (state == STG_GATHERED_ARRIVED || state == STG_GATHERED_ATTACHED)
        stg_gathering_lose(pipeline->gathering, i);
}

void stg_recovery_left(struct stg_pipeline *pipeline, const struct stg_instance *instance,
                       uint64_t member)
{
    int i = find_member(pipeline, member);
    if (i >= 0 &&
        pipeline->gathering->record.run == stg_stage_run_id(&instance->config) &&
        pipeline->gathering->members[i].state == STG_GATHERED_AWAITED)
        stg_gathering_lose(pipeline->gathering, i);
}

void stg_recovery_replace(struct stg_pipeline *pipeline, pid_t pid, const char *client_id)
{
    struct stg_gathering *gathering = pipeline->gathering;
    if (!is_under_way(gathering))
        return;
    for (size_t i = 0; i < gathering->record.n_members; i++) {
        const struct stg_run_member *member = &gathering->record.members[i];
        if (gathering->members[i].state == STG_GATHERED_AWAITED && pid != 0 &&
            member->pid == (uint32_t)pid && strcmp(member->client_id, client_id) == 0) {
            stg_gathering_lose(gathering, (int)i);
            return;
        }
    }
}

uint64_t stg_recovery_make_member(void)
{
    uint64_t member;
    return getrandom(&member, sizeof(member), 0) == sizeof(member) ? member : 0;
}

/* ---- the instance ---- */

/* Numbers that the states of the pass have, too. */
static uint32_t count_consumers(const struct stg_gathering *gathering)
{
    uint64_t pass = gathering->start.pass;
    uint64_t n = gathering->record.numbers_pass == pass ? gathering->record.consumers : 0;
    for (size_t i = 0; i < gathering->record.n_members; i++) {
        const struct stg_state *place = gathering->members[i].place;
        if (place != NULL && place->pass == pass && place->consumers > n)
            n = place->consumers;
    }
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

static int copy_lists(struct stg_instance *instance, const struct stg_run_record *record,
                      struct stg_err *err)
{
    struct stg_resumed *resumed = &instance->resumed;
    size_t bytes = record->n_vacant * sizeof(record->vacant[0]);
    struct stg_state *origin = record->has_origin ? malloc(sizeof(*origin)) : NULL;
    uint32_t *vacant = malloc(bytes + 1);
    if (vacant == NULL || (record->has_origin && origin == NULL)) {
        free(origin);
        free(vacant);
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    }
    if (origin != NULL)
        *origin = record->origin;
    memcpy(vacant, record->vacant, bytes);
    resumed->origin = origin;
    resumed->vacant = vacant;
    return 0;
}

int stg_recovery_resume(struct stg_instance *instance, struct stg_err *err)
{
    struct stg_pipeline *pipeline = instance->pipeline;
    const struct stg_gathering *gathering = pipeline->gathering;
    struct stg_resumed *resumed = &instance->resumed;
    int rc = copy_lists(instance, &gathering->record, err);
    if (rc < 0)
        return rc;
    resumed->run = gathering->record.run;
    resumed->has_begun = gathering->record.has_begun;
    resumed->consumers = count_consumers(gathering);
    resumed->n_vacant = gathering->record.numbers_pass == gathering->start.pass
                            ? gathering->record.n_vacant
                            : 0;
    if (gathering->rules.delivery == STG_DELIVERY_BROADCAST &&
        gathering->record.has_begun)
        resumed->n_begin = stg_gathering_count(gathering, STG_GATHERED_ARRIVED);
    instance->config.resumed = resumed;
    instance->config.first_pass = gathering->start.pass;
    return 0;
}

void stg_recovery_finish(struct stg_instance *instance)
{
    free((void *)(uintptr_t)instance->resumed.origin);
    free((void *)(uintptr_t)instance->resumed.vacant);
}

/* ---- status ---- */

void stg_recovery_show(const struct stg_pipeline *pipeline, struct stg_bump *bump,
                       struct stg_pipeline_status *ret)
{
    const struct stg_gathering *gathering = pipeline->gathering;
    if (!is_under_way(gathering) || pipeline->instance != NULL)
        return;
    ret->state = "reconnecting";
    ret->clients =
        stg_bump_alloc(bump, (gathering->record.n_members + 1) * sizeof(ret->clients[0]));
    if (ret->clients == NULL)
        return;
    for (size_t i = 0; i < gathering->record.n_members; i++) {
        const struct stg_run_member *member = &gathering->record.members[i];
        enum stg_gathered_state state = gathering->members[i].state;
        bool has_come = state == STG_GATHERED_ARRIVED;
        if (has_come || state == STG_GATHERED_AWAITED)
            ret->clients[ret->n_clients++] =
                (struct stg_client_status){.client_id = member->client_id,
                                           .program = "",
                                           .last_error = "",
                                           .state = has_come ? "reconnecting" : "missing",
                                           .pid = member->pid,
                                           .uid = member->uid,
                                           .rank = member->rank};
    }
}
