/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/pipeline/elastic.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/fingerprint.h"
#include "daemon/cluster/membership.h"
#include "daemon/dataset/steps/division.h"
#include "daemon/pipeline/signature.h"

#define TICK_MILLIS 250
#define LIST_NS UINT64_C(10000000000) /* for the answer of etcd to a list */

/* A list of commits that waits for etcd. */
struct listing {
    struct listing *next;
    char job[64], pipeline[65];
    uint64_t look, until_ns;
    void (*done)(void *arg, const struct stg_commits *commits, const struct stg_err *err);
    void *arg;
};

struct stg_elastic {
    struct stg_elastic_config config;
    struct stg_roster *roster;
    struct listing *listings;
    bool is_leaving;
    uv_async_t async; /* of the roster's thread */
    uv_timer_t timer; /* while there are runs */
};

/* ---- runs ---- */

static struct stg_roster_key key_of(const struct stg_instance *instance)
{
    return (struct stg_roster_key){.job = instance->config.comparing.job,
                                   .pipeline = instance->config.name};
}

/* The run of a generation that is over ends; libstager's next call returns the text. */
static void check_instance(struct stg_elastic *elastic, struct stg_instance *instance)
{
    struct stg_err err = {0};
    if (instance == NULL || instance->config.hosts_entry == 0 ||
        instance->stage == NULL || stg_stage_stopping(instance->stage))
        return;
    const struct stg_roster_key key = key_of(instance);
    if (stg_roster_hold(elastic->roster, &key, instance->config.hosts_entry, &err) == 0)
        return;
    stg_err_prefix(&err, err.code, "pipeline %s", instance->config.name);
    stg_stage_stop(instance->stage, STAGER_ABORTED, err.text, false);
}

/* ---- lists ---- */

/* Returns whether it has been answered. */
static bool answer(struct stg_elastic *elastic, struct listing *listing)
{
    struct stg_err err = {0};
    const struct stg_commits *commits;
    const struct stg_roster_key key = {.job = listing->job,
                                       .pipeline = listing->pipeline};
    int rc = stg_roster_look(elastic->roster, &key, &listing->look, &commits, &err);
    if (rc == 1 && stg_now_ns() < listing->until_ns)
        return false;
    if (rc == 1)
        rc = stg_err_prefix(&err, -STAGER_UNAVAILABLE, "pipeline %s", listing->pipeline);
    listing->done(listing->arg, rc == 0 ? commits : NULL, &err);
    return true;
}

static void answer_lists(struct stg_elastic *elastic)
{
    for (struct listing **at = &elastic->listings; *at != NULL;) {
        struct listing *listing = *at;
        if (!answer(elastic, listing)) {
            at = &listing->next;
            continue;
        }
        *at = listing->next;
        free(listing);
    }
}

/* ---- turns ---- */

static void turn(struct stg_elastic *elastic)
{
    struct stg_pipeline *pipeline = stg_catalog_first(elastic->config.catalog);
    for (; pipeline != NULL; pipeline = pipeline->next)
        check_instance(elastic, pipeline->instance);
    bool has_runs = stg_roster_sweep(elastic->roster);
    answer_lists(elastic);
    elastic->config.changed(elastic->config.owner);
    if (!has_runs)
        uv_timer_stop(&elastic->timer);
}

static void on_timer(uv_timer_t *timer)
{
    turn(timer->data);
}

static void on_async(uv_async_t *async)
{
    struct stg_elastic *elastic = async->data;
    if (!elastic->is_leaving)
        turn(elastic);
}

static void begin_turns(struct stg_elastic *elastic)
{
    if (!uv_is_active((uv_handle_t *)&elastic->timer))
        uv_timer_start(&elastic->timer, on_timer, TICK_MILLIS, TICK_MILLIS);
}

/* ---- life ---- */

static void wake(void *owner)
{
    struct stg_elastic *elastic = owner;
    uv_async_send(&elastic->async);
}

int stg_elastic_create(const struct stg_elastic_config *config, struct stg_elastic **ret,
                       struct stg_err *err)
{
    *ret = NULL;
    if (config->etcd->n_endpoints == 0)
        return 0;
    struct stg_elastic *elastic = calloc(1, sizeof(*elastic));
    if (elastic == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    elastic->config = *config;
    int rc = uv_async_init(config->loop, &elastic->async, on_async);
    if (rc < 0) {
        free(elastic);
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "cluster.etcd: no descriptor: %s",
                       uv_strerror(rc));
    }
    elastic->async.data = elastic;
    uv_timer_init(config->loop, &elastic->timer);
    elastic->timer.data = elastic;
    *ret = elastic;
    const struct stg_roster_config roster = {.etcd = config->etcd,
                                             .instance = config->instance,
                                             .wake = wake,
                                             .owner = elastic};
    return stg_roster_create(&roster, &elastic->roster, err);
}

void stg_elastic_leave(struct stg_elastic *elastic)
{
    if (elastic == NULL || elastic->is_leaving)
        return;
    elastic->is_leaving = true;
    uv_timer_stop(&elastic->timer);
    stg_roster_leave(elastic->roster);
}

static void fail_lists(struct stg_elastic *elastic)
{
    struct stg_err err = {0};
    stg_err(&err, -STAGER_UNAVAILABLE, "stagerd was stopped");
    while (elastic->listings != NULL) {
        struct listing *listing = elastic->listings;
        elastic->listings = listing->next;
        listing->done(listing->arg, NULL, &err);
        free(listing);
    }
}

void stg_elastic_finish(struct stg_elastic *elastic)
{
    if (elastic == NULL)
        return;
    elastic->is_leaving = true;
    stg_roster_destroy(elastic->roster);
    elastic->roster = NULL;
    fail_lists(elastic);
}

void stg_elastic_destroy(struct stg_elastic *elastic)
{
    free(elastic);
}

/* ---- opening ---- */

bool stg_elastic_has(const struct stg_elastic *elastic,
                     const struct stg_definition *definition)
{
    return elastic != NULL && stg_division_find(definition->spec) != NULL;
}

bool stg_elastic_serves(const struct stg_elastic *elastic,
                        const struct stg_request *request,
                        const struct stg_definition *definition)
{
    return request->data_parallel.size == 0 && !request->private_run &&
           stg_elastic_has(elastic, definition);
}

/* Digests where the client begins, and says it in words. */
static int describe(const struct stg_request *request, const char *text,
                    uint64_t *ret_digest, char *place, size_t bytes, struct stg_err *err)
{
    static struct stg_state state; /* the loop is one thread */
    static char canonical[STG_STATE_TEXT_BYTES];
    int rc = stg_state_read(text, strlen(text), &state, err);
    if (rc < 0)
        return stg_err_prefix(err, rc, "pipeline %s", request->name);
    *ret_digest = stg_farm_hash(canonical, stg_state_write(&state, canonical));
    bool is_tag = request->state == NULL && request->resume != NULL &&
                  strncmp(request->resume, "tag:", 4) == 0;
    snprintf(place, bytes, "%s%.80spass %" PRIu64 ", position %" PRIu64 "%s",
             is_tag ? request->resume : "", is_tag ? " (" : "", state.pass,
             state.place.elements, is_tag ? ")" : "");
    return 0;
}

/* Hosts have equally many clients, as they have equally many records. */
static uint64_t digest_pipeline(const struct stg_request *request,
                                const struct stg_definition *definition)
{
    char text[STG_STATE_STEPS_BYTES + 128];
    const struct stg_staged *staged = &definition->spec->staged;
    int n = snprintf(text, sizeof(text), "%s %s %" PRIu64 " %u %u", STG_RELEASE,
                     definition->signature, stg_signature_batch_size(definition->spec),
                     request->data_parallel.local_size,
                     staged->num_clients_auto ? 0 : staged->num_clients);
    return stg_farm_hash(text, (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1);
}

/* Clients of a run that goes on attach to it. A run of an entry that has ended is not
 * begun again: the other hosts are in the middle of theirs. */
static bool may_attach(const struct stg_pipeline *pipeline, uint64_t entry)
{
    const struct stg_instance *instance = pipeline->instance;
    bool is_there = instance != NULL && instance->config.hosts_entry == entry &&
                    (instance->stage == NULL || !stg_stage_stopping(instance->stage));
    return is_there || pipeline->hosts_entry != entry;
}

static struct stg_roster_key key_of_open(const struct stg_request *request)
{
    return (struct stg_roster_key){.job = request->job != NULL ? request->job : "",
                                   .pipeline = request->name};
}

static int check_job(const char *job, struct stg_err *err)
{
    return strlen(job) > 63 ? stg_err(err, -STAGER_INVALID_ARGUMENT,
                                      "job has more than 63 bytes: choose a shorter one")
                            : 0;
}

int stg_elastic_look(struct stg_elastic *elastic, const struct stg_request *request,
                     uint64_t *look, const struct stg_commits **ret, struct stg_err *err)
{
    const struct stg_roster_key key = key_of_open(request);
    if (check_job(key.job, err) < 0)
        return err->code;
    begin_turns(elastic);
    int rc = stg_roster_look(elastic->roster, &key, look, ret, err);
    if (rc != 0)
        stg_err_prefix(err, err->code, "pipeline %s", request->name);
    return rc;
}

int stg_elastic_admit(struct stg_elastic *elastic, const struct stg_request *request,
                      const struct stg_pipeline *pipeline, uint64_t look,
                      const char *state, struct stg_roster_entry *ret,
                      struct stg_err *err)
{
    const struct stg_roster_key key = key_of_open(request);
    uint64_t digest = 0;
    char place[STG_MEMBER_PLACE_BYTES];
    int rc = describe(request, state, &digest, place, sizeof(place), err);
    if (rc < 0)
        return rc;
    if (stg_roster_is_in(elastic->roster, &key, digest, ret) &&
        may_attach(pipeline, ret->entry))
        return 0;
    const struct stg_roster_begin begin = {
        .digest = digest,
        .pipeline = digest_pipeline(request, pipeline->definition),
        .place = place};
    rc = stg_roster_enter(elastic->roster, &key, look, &begin, err);
    stg_err_prefix(err, err->code, "pipeline %s", request->name);
    return rc;
}

/* ---- commits ---- */

int stg_elastic_commit(struct stg_elastic *elastic, const struct stg_instance *instance,
                       struct stg_roster_commit *commit, struct stg_err *err)
{
    commit->key = key_of(instance);
    commit->entry = instance->config.hosts_entry;
    begin_turns(elastic);
    return stg_roster_commit(elastic->roster, commit, err);
}

int stg_elastic_list(struct stg_elastic *elastic, const char *job, const char *pipeline,
                     void (*done)(void *arg, const struct stg_commits *commits,
                                  const struct stg_err *err),
                     void *arg, struct stg_err *err)
{
    if (job != NULL && check_job(job, err) < 0)
        return err->code;
    struct listing *listing = calloc(1, sizeof(*listing));
    if (listing == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    snprintf(listing->job, sizeof(listing->job), "%s", job != NULL ? job : "");
    snprintf(listing->pipeline, sizeof(listing->pipeline), "%s", pipeline);
    listing->until_ns = stg_now_ns() + LIST_NS;
    listing->done = done;
    listing->arg = arg;
    listing->next = elastic->listings;
    elastic->listings = listing;
    begin_turns(elastic);
    answer_lists(elastic);
    return 0;
}

void stg_elastic_problem(const struct stg_elastic *elastic,
                         const struct stg_pipeline *pipeline, char *buf, size_t bytes)
{
    const struct stg_instance *instance = pipeline->instance;
    buf[0] = '\0';
    if (elastic == NULL || instance == NULL || instance->config.hosts_entry == 0)
        return;
    const struct stg_roster_key key = key_of(instance);
    stg_roster_problem(elastic->roster, &key, buf, bytes);
}
