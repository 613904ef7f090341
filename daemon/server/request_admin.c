/* SPDX-License-Identifier: Apache-2.0
 *
 * The requests of an administrator, each with one reply.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/log.h"
#include "daemon/dataset/steps/division.h"
#include "daemon/describe/describe.h"
#include "daemon/gate/gate.h"
#include "daemon/operations/operations.h"
#include "daemon/pipeline/elastic.h"
#include "daemon/pipeline/explain.h"
#include "daemon/pipeline/index_job.h"
#include "daemon/server/draining.h"
#include "daemon/server/noting.h"
#include "daemon/server/probing.h"
#include "daemon/server/quarantine.h"
#include "daemon/server/request.h"
#include "daemon/server/tapping.h"
#include "daemon/server/tracing.h"
#include "daemon/server/warming.h"

#define MAX_ADVICE 16
#define SCRIPT_MAX_BYTES 4096
#define MAX_QUARANTINED 16 /* entries that a long reply still has */

static struct stg_catalog *catalog_of(struct stg_session *session)
{
    return session->server->catalog;
}

/* ---- hello ---- */

void stg_serve_hello(struct stg_session *session, const struct stg_request *request)
{
    if (request->min_version > STG_PROTOCOL_MAX ||
        request->max_version < STG_PROTOCOL_MIN) {
        char text[256];
        snprintf(text, sizeof(text),
                 "stagerd %s supports protocol versions %u to %u, the client %u to %u: "
                 "update the older one",
                 STG_VERSION, STG_PROTOCOL_MIN, STG_PROTOCOL_MAX, request->min_version,
                 request->max_version);
        stg_session_fail(session, request->id, -STAGER_FAILED_PRECONDITION, text);
        stg_session_close(session);
        return;
    }
    if (!session->greeted)
        uv_timer_stop(&session->deadline);
    session->greeted = true;
    session->version = request->max_version;
    snprintf(session->program, sizeof(session->program), "%s",
             request->client != NULL ? request->client : "?");
    struct stg_reply reply = stg_reply_to(request);
    reply.version =
        request->max_version < STG_PROTOCOL_MAX ? request->max_version : STG_PROTOCOL_MAX;
    reply.daemon = STG_VERSION;
    reply.instance = session->server->instance;
    reply.pid = (uint32_t)getpid();
    reply.cuda = session->server->cuda;
    stg_session_reply(session, &reply, NULL, 0);
}

/* ---- check, apply ---- */

static int define(struct stg_session *session, const struct stg_request *request,
                  struct stg_definition **ret, struct stg_err *err)
{
    const char *file =
        request->file != NULL && request->file[0] != '\0' ? request->file : "<text>";
    struct stg_definition *definition = NULL;
    int rc = stg_definition_create(
        request->text, request->text_bytes, file, &session->identity,
        stg_catalog_containers(session->server->catalog), &definition, err);
    if (rc == 0)
        rc = stg_definition_check_settings(definition, session->server->settings, err);
    if (rc < 0)
        stg_definition_unref(definition);
    else
        *ret = definition;
    return rc;
}

int stg_request_describe(struct stg_session *session,
                         const struct stg_definition *definition, const char *name,
                         struct stg_bump *bump, struct stg_reply *reply,
                         struct stg_err *err)
{
    struct stg_stage_plan plan;
    struct stg_plan_asked asked =
        stg_definition_asked(definition, definition->spec->staged.num_clients, 2,
                             session->server->settings->default_pipeline_memory);
    int rc = stg_stage_plan(&asked, &plan, err);
    if (rc < 0)
        return rc;
    uint64_t needs = plan.full_bytes;
    if (needs > session->server->budget.total)
        return stg_err(
            err, -STAGER_RESOURCE_EXHAUSTED,
            "the pipeline needs %.1f MiB (%" PRIu64 " batches of at most %" PRIu64
            " bytes, and read buffers), and stagerd's memory_budget is %.1f MiB: "
            "lower capacity, num_threads or batch_size, or raise memory_budget in "
            "stagerd.yaml to %" PRIu64 "MiB",
            (double)needs / 1048576.0, plan.n_extents, plan.max_batch_bytes,
            (double)session->server->budget.total / 1048576.0, (needs + 1048575) >> 20);
    const struct stg_probing *probing = session->probing;
    const size_t max = STG_PROBING_PROBLEMS + MAX_ADVICE;
    const char **advice = stg_bump_alloc(bump, max * sizeof(*advice));
    reply->name = name;
    reply->boundary = *stg_graph_boundary(definition->graph);
    reply->advice = advice;
    size_t n = 0;
    for (; advice != NULL && probing != NULL && n < probing->n_problems; n++)
        advice[n] = probing->problems[n];
    if (advice != NULL)
        n += stg_definition_advice(definition, bump, advice + n, max - n);
    reply->n_advice = n;
    reply->reproducible =
        definition->irreproducible != NULL ? definition->irreproducible : "yes";
    reply->max_batch_bytes = plan.max_batch_bytes;
    reply->memory_bytes = plan.arena_bytes + plan.reserved_buffer_bytes;
    return 0;
}

void stg_serve_check(struct stg_session *session, const struct stg_request *request)
{
    struct stg_err err = {0};
    struct stg_bump bump;
    stg_bump_init(&bump, 0);
    struct stg_definition *definition = NULL;
    struct stg_reply reply = stg_reply_to(request);
    int rc = define(session, request, &definition, &err);
    if (rc == 0)
        rc = stg_request_describe(session, definition,
                                  definition->spec->name != NULL ? definition->spec->name
                                                                 : "",
                                  &bump, &reply, &err);
    stg_session_finish(session, &reply, rc, &err);
    stg_definition_unref(definition);
    stg_bump_finish(&bump);
}

/* A pipeline that the user may not see is refused later. */
int stg_request_check_generation(struct stg_session *session,
                                 const struct stg_request *request, const char *name,
                                 struct stg_err *err)
{
    if (!request->has_if_generation)
        return 0;
    struct stg_catalog *catalog = catalog_of(session);
    const struct stg_pipeline *p =
        name != NULL && name[0] != '\0' ? stg_catalog_find(catalog, name) : NULL;
    uint64_t generation = p != NULL ? p->generation : 0;
    if (generation == request->if_generation ||
        (p != NULL && !stg_catalog_allowed(catalog, p, &session->identity)))
        return 0;
    return stg_err(err, -STAGER_ABORTED,
                   "if_generation is %" PRIu64
                   ", but pipeline %.64s is at generation %" PRIu64
                   "%s: check its status, then decide again",
                   request->if_generation, name != NULL ? name : "", generation,
                   generation == 0 ? " (it does not exist)" : "");
}

static const char *name_of(const struct stg_request *request,
                           const struct stg_definition *definition)
{
    bool given = request->name != NULL && request->name[0] != '\0';
    return given ? request->name : definition->spec->name;
}

/* if_generation names what is replaced. */
static enum stg_replace how_to_replace(const struct stg_request *request)
{
    if (request->replace)
        return STG_REPLACE_ALL;
    return request->has_if_generation ? STG_REPLACE_IDLE : STG_REPLACE_OWN;
}

static void keep_script(struct stg_definition *definition,
                        const struct stg_request *request)
{
    const char *script = request->script;
    if (script == NULL || script[0] != '/' || strlen(script) > SCRIPT_MAX_BYTES ||
        strchr(script, '\n') != NULL)
        return;
    definition->script = stg_bump_strdup(&definition->bump, script);
    definition->script_run = request->script_run;
}

static void log_version(const struct stg_session *session, const struct stg_reply *reply,
                        const struct stg_pipeline *pipeline)
{
    unsigned uid = (unsigned)session->identity.uid;
    if (reply->restored > 0)
        stg_log(STG_LOG_INFO,
                "pipeline %s: generation %" PRIu64 " has the definition of generation "
                "%" PRIu64 "%s: rolled back by uid %u",
                pipeline->name, pipeline->generation, reply->restored,
                reply->unchanged ? ", as before" : "", uid);
    else
        stg_log(STG_LOG_INFO, "pipeline %s: generation %" PRIu64 " %s by uid %u",
                pipeline->name, pipeline->generation,
                reply->unchanged ? "confirmed" : "applied", uid);
}

/* The disk has the change, or it has failed: sends the reply. */
static void end_change(struct stg_session *session, const struct stg_err *err)
{
    struct stg_probing *probing = session->probing;
    stg_session_finish(session, &probing->reply, err->code, err);
    stg_probing_release(probing);
}

static void answer_version(void *arg, const struct stg_changed *changed)
{
    struct stg_session *session = arg;
    struct stg_reply *reply = &session->probing->reply;
    const struct stg_pipeline *pipeline = changed->pipeline;
    if (changed->err.code == 0) {
        reply->name = pipeline->name;
        reply->generation = pipeline->generation;
        reply->unchanged = changed->unchanged;
        reply->boundary = *stg_graph_boundary(pipeline->definition->graph);
        log_version(session, reply, pipeline);
        stg_noting_changed(session, reply);
    }
    end_change(session, &changed->err);
}

int stg_request_change(struct stg_session *session,
                       const struct stg_warming_config *config, struct stg_err *err)
{
    struct stg_catalog *catalog = catalog_of(session);
    struct stg_probing *probing = session->probing;
    struct stg_change_done done = {answer_version, session};
    if (probing->request.warm && config->definition->spec->staged.num_clients_auto)
        return stg_err(
            err, -STAGER_FAILED_PRECONDITION,
            "--warm fills a buffer before the first client, which num_clients: "
            "auto asks: write the number, or apply without --warm");
    if (probing->request.warm && stg_division_find(config->definition->spec) != NULL)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "--warm fills a buffer before the first client, which names the "
                       "hosts of shard: auto: apply without --warm");
    if (probing->request.warm)
        return stg_warming_begin(session, config, err);
    stg_probing_hold(probing);
    int rc = config->pipeline != NULL
                 ? stg_catalog_replace(catalog, config->pipeline, config->definition,
                                       config->replace, &done, err)
                 : stg_catalog_apply(catalog, config->definition, config->name,
                                     config->replace, &done, err);
    if (rc < 0)
        stg_probing_release(probing);
    return rc;
}

void stg_serve_apply(struct stg_session *session, const struct stg_request *request)
{
    struct stg_err err = {0};
    struct stg_probing *probing = session->probing;
    struct stg_definition *definition = NULL;
    probing->reply = stg_reply_to(request);
    int rc = stg_draining_check(session->server, &err);
    if (rc == 0)
        rc = define(session, request, &definition, &err);
    if (rc == 0)
        stg_noting_name(session, name_of(request, definition));
    if (rc == 0)
        rc = stg_request_describe(session, definition, "", &probing->bump,
                                  &probing->reply, &err);
    if (rc == 0)
        rc = stg_request_check_generation(session, request, name_of(request, definition),
                                          &err);
    if (rc == 0)
        keep_script(definition, request);
    if (rc == 0)
        rc = stg_request_change(
            session,
            &(struct stg_warming_config){.definition = definition,
                                         .name = request->name,
                                         .replace = how_to_replace(request),
                                         .reply = &probing->reply},
            &err);
    if (rc < 0) {
        stg_definition_unref(definition);
        stg_session_fail_with(session, request, &err);
    }
}

/* ---- list, status, delete ---- */

/* Without memory to see, the reply itself will fail. */
bool stg_request_fits(const struct stg_reply *reply)
{
    static char buf[STG_MESSAGE_MAX_BYTES]; /* the loop is one thread */
    return stg_wire_encode_reply(reply, buf, sizeof(buf)) != -STAGER_OUT_OF_RANGE;
}

/* A list that is too long for one message loses the names of files, then entries. */
static void shorten_list(struct stg_reply *reply)
{
    while (reply->n_quarantined > MAX_QUARANTINED && !stg_request_fits(reply))
        reply->n_quarantined /= 2;
    for (size_t i = 0; !stg_request_fits(reply) && i < reply->n_entries; i += 16) {
        for (size_t k = i; k < i + 16 && k < reply->n_entries; k++)
            reply->entries[k].file = "";
    }
    while (!stg_request_fits(reply) && reply->n_entries > 0) {
        size_t n = reply->n_entries / 16 + 1;
        reply->n_entries -= n;
        reply->n_left_out += (uint32_t)n;
    }
}

static void shorten_status(struct stg_reply *reply)
{
    struct stg_pipeline_status *status = &reply->status;
    while (status->n_quarantined > MAX_QUARANTINED && !stg_request_fits(reply))
        status->n_quarantined /= 2;
    while (!stg_request_fits(reply) && status->n_clients > 0) {
        size_t n = status->n_clients / 16 + 1;
        status->n_clients -= n;
        status->n_clients_left_out += (uint32_t)n;
    }
}

static struct stg_list_entry list_entry(struct stg_pipeline *pipeline,
                                        struct stg_bump *bump)
{
    const struct stg_instance *instance = pipeline->instance;
    struct stg_pipeline_status status;
    stg_catalog_status(pipeline, bump, &status);
    return (struct stg_list_entry){
        .name = pipeline->name,
        .state = status.state,
        .file = pipeline->definition->file,
        .generation = pipeline->generation,
        .n_clients = instance != NULL && instance->stage != NULL
                         ? stg_stage_n_clients(instance->stage)
                         : 0,
        .uid = (uint32_t)pipeline->definition->applier.uid,
        .pipeline = pipeline->id,
    };
}

static int fill_list(struct stg_session *session, struct stg_bump *bump,
                     struct stg_reply *ret, struct stg_err *err)
{
    struct stg_catalog *catalog = catalog_of(session);
    struct stg_pipeline *first = stg_catalog_first(catalog);
    size_t n = 0;
    for (struct stg_pipeline *p = first; p != NULL; p = p->next)
        n++;
    ret->entries = stg_bump_alloc(bump, n * sizeof(ret->entries[0]));
    if (ret->entries == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                       "out of memory for a list of %zu pipelines", n);
    for (struct stg_pipeline *p = first; p != NULL; p = p->next) {
        if (stg_catalog_allowed(catalog, p, &session->identity))
            ret->entries[ret->n_entries++] = list_entry(p, bump);
    }
    return stg_quarantine_list(session->server, NULL, &session->identity, bump,
                               &ret->quarantined, &ret->n_quarantined, err);
}

void stg_request_finish(struct stg_session *session, struct stg_reply *reply,
                        void (*shorten)(struct stg_reply *reply), int rc,
                        const struct stg_err *err)
{
    if (rc == 0)
        shorten(reply);
    stg_session_finish(session, reply, rc, err);
}

void stg_serve_list(struct stg_session *session, const struct stg_request *request)
{
    struct stg_bump bump;
    struct stg_err err = {0};
    struct stg_reply reply = stg_reply_to(request);
    stg_bump_init(&bump, 0);
    int rc = fill_list(session, &bump, &reply, &err);
    stg_request_finish(session, &reply, shorten_list, rc, &err);
    stg_bump_finish(&bump);
}

/* `stagerctl index` works for a session; the pipeline shows it, too. */
static void add_index_jobs(const struct stg_server *server,
                           const struct stg_pipeline *pipeline, struct stg_bump *bump,
                           struct stg_pipeline_status *ret)
{
    size_t n = ret->n_progress;
    for (const struct stg_session *s = server->sessions; s != NULL; s = s->next)
        n += s->index_job != NULL;
    struct stg_status_progress *all = stg_bump_alloc(bump, n * sizeof(*all));
    if (all == NULL)
        return;
    for (size_t i = 0; i < ret->n_progress; i++)
        all[i] = ret->progress[i];
    ret->progress = all;
    for (const struct stg_session *s = server->sessions; s != NULL; s = s->next) {
        struct stg_index_report report;
        if (s->index_job == NULL || s->index_pipeline != pipeline->id)
            continue;
        stg_index_job_report(s->index_job, bump, &report);
        if (!report.done)
            all[ret->n_progress++] =
                (struct stg_status_progress){.what = "index",
                                             .unit = "bytes",
                                             .done = report.bytes_done,
                                             .total = report.bytes,
                                             .elapsed_ns = report.elapsed_ns};
    }
}

void stg_serve_status(struct stg_session *session, const struct stg_request *request)
{
    struct stg_pipeline *pipeline = stg_session_find_pipeline(session, request);
    if (pipeline == NULL)
        return;
    struct stg_bump bump;
    struct stg_err err = {0};
    stg_bump_init(&bump, 0);
    struct stg_reply reply = stg_reply_to(request);
    stg_catalog_status(pipeline, &bump, &reply.status);
    stg_catalog_show_apart(session->server->catalog, pipeline, &bump, &reply.status);
    add_index_jobs(session->server, pipeline, &bump, &reply.status);
    char problem[STG_ERR_TEXT_BYTES];
    stg_elastic_problem(session->server->elastic, pipeline, problem, sizeof(problem));
    if (problem[0] != '\0')
        reply.status.commit_problem = problem;
    int rc =
        stg_quarantine_list(session->server, pipeline->name, &session->identity, &bump,
                            &reply.status.quarantined, &reply.status.n_quarantined, &err);
    stg_request_finish(session, &reply, shorten_status, rc, &err);
    stg_bump_finish(&bump);
}

/* A graph that is too long for one message loses its last nodes. */
static void shorten_explain(struct stg_reply *reply)
{
    struct stg_explain *explain = &reply->explain;
    while (!stg_request_fits(reply) && explain->n_nodes > 0) {
        size_t n = explain->n_nodes / 16 + 1;
        explain->n_nodes -= n;
        explain->n_left_out += (uint32_t)n;
        for (size_t i = 0; i < explain->n_tensors; i++)
            explain->tensors[i].is_constant |=
                explain->tensors[i].from >= explain->n_nodes;
    }
}

void stg_serve_explain(struct stg_session *session, const struct stg_request *request)
{
    struct stg_pipeline *pipeline = stg_session_find_pipeline(session, request);
    if (pipeline == NULL)
        return;
    struct stg_bump bump;
    stg_bump_init(&bump, 0);
    struct stg_err err = {0};
    struct stg_reply reply = stg_reply_to(request);
    int rc = stg_explain_fill(pipeline, &bump, &reply.explain, &err);
    stg_request_finish(session, &reply, shorten_explain, rc, &err);
    stg_bump_finish(&bump);
}

static void answer_delete(void *arg, const struct stg_changed *changed)
{
    struct stg_session *session = arg;
    struct stg_probing *probing = session->probing;
    probing->reply.name = probing->request.name;
    if (changed->err.code == 0) {
        stg_log(STG_LOG_INFO, "pipeline %s deleted by uid %u", probing->request.name,
                (unsigned)session->identity.uid);
        stg_noting_done(session, STG_OPERATION_DELETED, probing->request.name, 0);
    }
    end_change(session, &changed->err);
}

void stg_serve_delete(struct stg_session *session, const struct stg_request *request)
{
    struct stg_probing *probing = session->probing;
    struct stg_pipeline *pipeline = stg_session_find_pipeline(session, request);
    if (pipeline == NULL)
        return;
    struct stg_err err = {0};
    probing->reply = stg_reply_to(request);
    stg_probing_hold(probing);
    int rc = stg_request_check_generation(session, request, request->name, &err);
    if (rc == 0)
        rc = stg_catalog_delete(catalog_of(session), pipeline,
                                &(struct stg_change_done){answer_delete, session}, &err);
    if (rc < 0)
        end_change(session, &err);
}

/* ---- schema ---- */

/* The client asks again for columns that did not fit. */
static void shorten_schema(struct stg_reply *reply)
{
    while (!stg_request_fits(reply) && reply->schema.n > 0)
        reply->schema.n -= reply->schema.n / 16 + 1;
}

void stg_serve_schema(struct stg_session *session, const struct stg_request *request)
{
    const struct stg_probing *probing = session->probing;
    struct stg_reply reply = stg_reply_to(request);
    if (probing->description != NULL)
        reply.schema = *stg_description_schema(probing->description);
    stg_request_finish(session, &reply, shorten_schema, probing->err.code, &probing->err);
}

/* ---- tokens ---- */

void stg_serve_new_token(struct stg_session *session, const struct stg_request *request)
{
    struct stg_err err = {0};
    struct stg_reply reply = stg_reply_to(request);
    int rc = stg_gate_give_token(session->server->gate, &session->identity, &reply, &err);
    stg_session_finish(session, &reply, rc, &err);
}

/* ---- trace ---- */

void stg_serve_trace(struct stg_session *session, const struct stg_request *request)
{
    struct stg_pipeline *pipeline = stg_session_find_pipeline(session, request);
    struct stg_err err = {0};
    struct stg_reply reply = stg_reply_to(request);
    int fd;
    if (pipeline == NULL)
        return;
    reply.page_bytes = sizeof(struct stg_trace_page);
    if (stg_tracing_begin(session, pipeline, request->millis, &fd, &err) < 0)
        stg_session_fail_with(session, request, &err);
    else if (stg_session_reply(session, &reply, &fd, 1) < 0)
        stg_tracing_end(session);
}

/* ---- tap ---- */

static void answer_tap(struct stg_session *session, const struct stg_reply *reply,
                       const struct stg_err *err)
{
    stg_session_finish(session, reply, err->code, err);
}

void stg_serve_tap(struct stg_session *session, const struct stg_request *request)
{
    struct stg_pipeline *pipeline = stg_session_find_pipeline(session, request);
    struct stg_err err = {0};
    if (pipeline != NULL &&
        stg_tapping_begin(session, pipeline, request, answer_tap, &err) < 0)
        stg_session_fail_with(session, request, &err);
}

/* ---- drain ---- */

void stg_serve_drain(struct stg_session *session, const struct stg_request *request)
{
    struct stg_err err = {0};
    struct stg_reply reply = stg_reply_to(request);
    int rc = stg_draining_set(session, !request->disable, &err);
    if (rc == 0)
        reply.n_consumers = stg_draining_count(session->server, &reply.name);
    stg_session_finish(session, &reply, rc, &err);
}

/* ---- metrics ---- */

void stg_serve_metrics(struct stg_session *session, const struct stg_request *request)
{
    struct stg_server *server = session->server;
    struct stg_metrics_source source = {.catalog = server->catalog,
                                        .identity = &session->identity,
                                        .budget = &server->budget,
                                        .counts = &server->counts,
                                        .jobs = &server->jobs,
                                        .release = STG_VERSION,
                                        .n_sessions = server->n_sessions,
                                        .is_draining = server->draining,
                                        .n_lost_operations = stg_operations_lost()};
    struct stg_metrics_text text = {.is_open = request->open_metrics,
                                    .has_file = true,
                                    .fd = memfd_create("stager-metrics", MFD_CLOEXEC)};
    struct stg_reply reply = stg_reply_to(request);
    struct stg_err err = {0};
    int rc = text.fd >= 0
                 ? stg_metrics_write(&source, &text, &err)
                 : stg_err(&err, -STAGER_RESOURCE_EXHAUSTED,
                           "cannot create a file for metrics: %s", strerror(errno));
    if (rc < 0)
        stg_session_fail_with(session, request, &err);
    else
        stg_session_reply(session, &reply, &text.fd, 1);
    if (text.fd >= 0)
        close(text.fd);
    free(text.data);
}

/* ---- index ---- */

/* The files are opened on behalf of the applier, as a run of the pipeline does. */
static int begin_index(struct stg_session *session,
                       const struct stg_definition *definition, struct stg_err *err)
{
    const struct stg_settings *settings = session->server->settings;
    const struct stg_identity *applier = &definition->applier;
    struct stg_stage_plan plan;
    struct stg_plan_asked asked =
        stg_definition_asked(definition, definition->spec->staged.num_clients, 2,
                             settings->default_pipeline_memory);
    if (settings->index_bytes == 0)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "index_size is 0 in stagerd.yaml: stagerd stores no indexes");
    int rc = stg_stage_plan(&asked, &plan, err);
    if (rc < 0)
        return rc;
    struct stg_index_job_config config = {.text = definition->text,
                                          .text_bytes = definition->text_bytes,
                                          .uid = applier->uid,
                                          .gid = applier->gid,
                                          .groups = applier->groups,
                                          .n_groups = applier->n_groups,
                                          .buffer_bytes = plan.buffer_bytes};
    stg_index_job_end(session->index_job);
    session->index_job = NULL;
    return stg_index_job_start(&config, &session->index_job, err);
}

static int begin_index_of(struct stg_session *session, const struct stg_request *request,
                          struct stg_err *err)
{
    struct stg_definition *definition = NULL;
    int rc = define(session, request, &definition, err);
    if (rc == 0)
        rc = begin_index(session, definition, err);
    stg_definition_unref(definition);
    return rc;
}

void stg_serve_index(struct stg_session *session, const struct stg_request *request)
{
    struct stg_err err = {0};
    struct stg_pipeline *pipeline = NULL;
    int rc = 0;
    if (request->name != NULL) {
        pipeline = stg_session_find_pipeline(session, request);
        if (pipeline == NULL)
            return;
        rc = begin_index(session, pipeline->definition, &err);
        session->index_pipeline = pipeline->id;
    } else if (request->text != NULL) {
        rc = begin_index_of(session, request, &err);
        session->index_pipeline = 0;
    } else if (session->index_job == NULL) {
        rc = stg_err(&err, -STAGER_FAILED_PRECONDITION,
                     "this connection has not begun to build indexes");
    }
    if (rc < 0) {
        stg_session_fail_with(session, request, &err);
        return;
    }
    struct stg_bump bump;
    struct stg_reply reply = stg_reply_to(request);
    stg_bump_init(&bump, 0);
    stg_index_job_report(session->index_job, &bump, &reply.index);
    stg_session_reply(session, &reply, NULL, 0);
    stg_bump_finish(&bump);
}
