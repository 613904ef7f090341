/* SPDX-License-Identifier: Apache-2.0
 *
 * The requests that make a connection a stream or a worker, and those of a stream.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "daemon/dataset/steps/division.h"
#include "daemon/host/process.h"
#include "daemon/pipeline/elastic.h"
#include "daemon/pipeline/explain.h"
#include "daemon/pipeline/loading.h"
#include "daemon/pipeline/recovery.h"
#include "daemon/pyworker/work.h"
#include "daemon/server/draining.h"
#include "daemon/server/noting.h"
#include "daemon/server/quarantine.h"
#include "daemon/server/request.h"
#include "daemon/stage/feed.h"
#include "daemon/stage/partition.h"

#define CLIENT_ID_MAX_BYTES 127
#define OPEN_MILLIS 25000   /* for memory that comes back */
#define BRIEF_MILLIS 1000   /* for a process that may be about to end, or to release */
#define SEEK_MILLIS 3600000 /* for a dataset that goes to a state, record by record */

/* ---- unsupported nodes ---- */

/* A client that computes behind the boundary first gets the graph, and answers which
 * nodes its build does not support; once for each generation. */
static bool must_ask(const struct stg_pipeline *pipeline,
                     const struct stg_request *request)
{
    struct stg_partition_needs *needs = NULL;
    struct stg_request asked = *request;
    if (!request->has_unsupported ||
        request->unsupported_generation == pipeline->generation)
        return false;
    asked.n_unsupported = 0;
    bool computes =
        stg_needs_read(&asked, pipeline->definition->partitions, &needs, NULL) == 0 &&
        stg_partition_needs_compute(needs);
    stg_partition_needs_destroy(needs);
    return computes;
}

static void ask(struct stg_session *session, const struct stg_request *request,
                const struct stg_pipeline *pipeline)
{
    struct stg_reply reply = stg_reply_to(request);
    reply.asks = true;
    reply.name = pipeline->name;
    reply.generation = pipeline->generation;
    reply.boundary = *stg_graph_boundary(pipeline->definition->graph);
    reply.pipeline = pipeline->definition->spec;
    stg_session_reply(session, &reply, NULL, 0);
}

/* ---- attaching ---- */

static_assert(STG_WIRE_UUID_BYTES == STG_DEVICE_UUID_BYTES, "CUDA's size");

/* Segment, ring, control page, and the memory on a device where there is some. */
static int reply_open(struct stg_session *session, struct stg_reply *reply,
                      const struct stg_attached *attached)
{
    int fds[4];
    size_t n = sizeof(attached->fds) / sizeof(attached->fds[0]);
    memcpy(fds, attached->fds, sizeof(attached->fds));
    if (attached->device.fd >= 0) {
        fds[n++] = attached->device.fd;
        reply->device_bytes = attached->device.bytes;
        reply->device_number = attached->device.number;
        reply->device_uuid = attached->device.uuid;
    }
    int rc = stg_session_reply(session, reply, fds, n);
    if (attached->device.fd >= 0)
        close(attached->device.fd);
    return rc;
}

/* A client that has a run of its own needs no place in the shared one. */
static void leave_shared(struct stg_session *session, const struct stg_attach *params)
{
    const struct stg_instance *instance = session->instance;
    struct stg_pipeline *pipeline =
        stg_catalog_find(session->server->catalog, instance->config.name);
    stg_log(STG_LOG_INFO,
            "pipeline %s: client %s (pid %d) loaded a state of pass %" PRIu64
            ", position %" PRIu64
            ", which other clients have behind them: it gets a run of its own",
            instance->config.name, params->client_id, (int)params->pid,
            params->state->pass, params->state->place.elements);
    if (params->named && pipeline != NULL && pipeline->instance != NULL &&
        pipeline->instance->stage != NULL)
        stg_stage_forget(pipeline->instance->stage, params->client_id,
                         "it has a run of its own now");
}

static void fill_opened(const struct stg_session *session,
                        const struct stg_request *request,
                        const struct stg_instance *instance,
                        const struct stg_attach *params,
                        const struct stg_attached *attached, struct stg_reply *reply)
{
    const struct stg_definition *definition = instance->definition;
    reply->name = instance->config.name;
    reply->generation = instance->generation;
    reply->segment_bytes = attached->segment_bytes;
    reply->max_in_flight = request->max_in_flight;
    reply->client_id = params->client_id;
    reply->structure = definition->spec->staged.structure;
    reply->boundary = *stg_graph_boundary(definition->graph);
    reply->slots = stg_definition_slots(definition);
    reply->pipeline = definition->spec;
    reply->batch_rows = stg_definition_batch_rows(definition);
    reply->unwatched = session->unwatched;
    reply->wants_reports = true;
    reply->signature = definition->signature;
    reply->irreproducible = definition->irreproducible;
    reply->begins_pass = stg_stage_begins_pass(instance->stage, attached->client);
    reply->skip_rows = params->state != NULL ? params->state->rows : 0;
    reply->hosts = instance->config.deal.n_hosts;
    reply->host = instance->config.deal.host;
    reply->weight = stg_division_weight(definition->spec, &instance->config.deal);
    reply->hosts_generation = instance->config.hosts_generation;
    reply->base = instance->config.start != NULL ? instance->config.start->base : 0;
    reply->base_pass = instance->config.start != NULL ? instance->config.start->pass : 0;
    reply->anew = request->follow && request->generation != 0 &&
                  request->rejoin.member == 0 && request->state == NULL;
    reply->rejoin = (struct stg_rejoin){
        .run = stg_stage_run_id(&instance->config),
        .member = params->member,
        .attempt = session->attempt != 0 ? session->attempt : instance->attempt};
}

/* Returns where the client begins: the state of a commit, or of the run. NULL: its open
 * has a state, or the first batch shows it. */
static const struct stg_state *find_begin(const struct stg_request *request,
                                          struct stg_instance *instance,
                                          const struct stg_attach *params)
{
    if (instance->config.deal.n_hosts != 0 && params->state != NULL)
        return params->state; /* which may have been one of another number of hosts */
    if (request->state != NULL)
        return NULL;
    return params->state == NULL && stg_stage_inherits(instance->stage)
               ? stg_stage_origin(instance->stage)
               : params->state;
}

/* Sends the reply to an open; its client then has to join. */
static void answer_open(struct stg_session *session, const struct stg_request *request,
                        struct stg_instance *instance, const struct stg_attach *params,
                        const struct stg_attached *attached,
                        const struct stg_run_member *member)
{
    session->instance = instance;
    session->client = attached->client;
    session->joining = true;
    session->member = params->member;
    snprintf(session->client_id, sizeof(session->client_id), "%s", params->client_id);
    stg_commit_attached(session, request, instance, params->client_id,
                        member != NULL ? member->attempt : 0);
    if (instance->is_apart)
        leave_shared(session, params);
    if (instance->config.replays)
        stg_log(STG_LOG_INFO,
                "pipeline %s: client %s (pid %d) replays the first batches of a private "
                "run, which is no training",
                instance->config.name, params->client_id, (int)params->pid);
    char text[STG_STATE_TEXT_BYTES] = "";
    struct stg_reply reply = stg_reply_to(request);
    fill_opened(session, request, instance, params, attached, &reply);
    const struct stg_state *begin = find_begin(request, instance, params);
    if (begin != NULL)
        stg_state_write(begin, text);
    bool is_as_asked = request->resume != NULL && params->state != NULL &&
                       instance->config.deal.n_hosts == 0;
    reply.state = is_as_asked ? request->state : text;
    if (session->unwatched)
        stg_log(
            STG_LOG_WARNING,
            "pipeline %s: the process of client %s cannot be watched (it is in another "
            "pid namespace, and Linux before 6.5 gives no descriptor of it): the end of "
            "its socket counts as its death",
            reply.name, params->client_id);
    if (reply_open(session, &reply, attached) < 0)
        stg_session_close(session); /* the memory did not reach it */
    else
        stg_session_set_deadline(session, STG_JOIN_MILLIS);
}

/* Writes the name of the client of an open: that in the request, or "PROGRAM-PID". */
static bool name_client(const struct stg_session *session,
                        const struct stg_request *request,
                        char ret[CLIENT_ID_MAX_BYTES + 1])
{
    bool given = request->client_id != NULL && request->client_id[0] != '\0';
    if (given)
        snprintf(ret, CLIENT_ID_MAX_BYTES + 1, "%s", request->client_id);
    else
        snprintf(ret, CLIENT_ID_MAX_BYTES + 1, "%s-%d", session->program,
                 (int)session->pid);
    return given;
}

static int attach_stage(struct stg_session *session, struct stg_stage *stage,
                        const struct stg_attach *params, struct stg_attached *ret,
                        struct stg_err *err)
{
    int rc = stg_stage_attach(stage, params, ret, err);
    if (rc != -STAGER_RESOURCE_EXHAUSTED)
        return rc;
    stg_stage_sweep(stage); /* clients that just left may hold it */
    stg_session_sweep_all(session->server);
    return stg_stage_attach(stage, params, ret, err);
}

/* Returns its number in the record of the run; 0: its stream ends with stagerd. */
static uint64_t find_member(const struct stg_session *session,
                            const struct stg_request *request,
                            const struct stg_instance *instance,
                            const struct stg_run_member *member)
{
    if (session->version < STG_PROTOCOL_RECONNECT || request->never_reconnects ||
        !instance->config.keeps_record)
        return 0;
    return member != NULL ? member->member : stg_recovery_make_member();
}

/* member: of a client that reconnects; resumes: in the run that goes on. */
static int attach(struct stg_session *session, const struct stg_request *request,
                  struct stg_instance *instance, const struct stg_state *state,
                  const struct stg_run_member *member, bool resumes, struct stg_err *err)
{
    char client_id[CLIENT_ID_MAX_BYTES + 1];
    bool given = name_client(session, request, client_id);
    struct stg_attach params = {
        .client_id = client_id,
        .program = session->program,
        .max_in_flight = request->max_in_flight,
        .manual_ack = request->manual_ack,
        .named = given && request->named,
        .batch_size = request->batch_size,
        .wants_device = request->wants_device,
        .pid = session->pid,
        .uid = session->identity.uid,
        .socket = session->fd,
        .state = state,
        .rank = request->rank,
        .world_size = request->world_size,
        .member = find_member(session, request, instance, member),
        .follows = request->follow,
        .job = stg_jobs_find(&session->server->jobs, request->job),
        .process = session->pidfd >= 0 ? stg_process_id(session->pidfd) : 0,
    };
    struct stg_attached attached;
    if (resumes)
        stg_recovery_attach(instance->pipeline, member, state, &params);
    int rc =
        stg_needs_read(request, instance->definition->partitions, &params.needs, err);
    if (rc < 0)
        return rc;
    rc = attach_stage(session, instance->stage, &params, &attached, err);
    if (rc < 0) {
        stg_partition_needs_destroy(params.needs);
        return rc;
    }
    answer_open(session, request, instance, &params, &attached, member);
    return 0;
}

/* ---- joining ---- */

struct joining {
    struct stg_session *session;
    const struct stg_reply *reply;
    bool is_lost; /* the reply could not be sent */
};

static bool tell(void *owner)
{
    struct joining *joining = owner;
    joining->is_lost = !stg_session_post(joining->session, joining->reply);
    return !joining->is_lost;
}

/* A client that the reply cannot reach does not join; its connection is closed. */
void stg_serve_join(struct stg_session *session, const struct stg_request *request)
{
    struct stg_err err = {0};
    struct stg_reply reply = stg_reply_to(request);
    struct joining joining = {.session = session, .reply = &reply};
    const struct stg_join join = {.tell = tell, .owner = &joining};
    if (!session->joining) {
        stg_session_fail(session, request->id, -STAGER_FAILED_PRECONDITION,
                         "join must follow an answered open, once");
        return;
    }
    stg_catalog_note(session->instance);
    stg_recovery_write(session->instance, session->client);
    int rc = stg_stage_join(session->instance->stage, session->client, &join, &err);
    if (rc < 0)
        stg_recovery_write(session->instance, NULL);
    if (joining.is_lost) {
        stg_session_close(session);
    } else if (rc < 0) {
        stg_session_fail_with(session, request, &err);
    } else {
        stg_recovery_joined(session->instance->pipeline, session->member);
        session->joining = false;
        stg_noting_done(session, STG_OPERATION_ATTACHED, session->instance->config.name,
                        session->instance->generation);
        uv_timer_stop(&session->deadline);
        stg_catalog_note(session->instance);
        stg_server_sweep_soon(session->server);
    }
}

/* ---- opening ---- */

static int wait_because(struct stg_session *session, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* 1, and remembers what the open waits for: it is the error if it waits too long. */
static int wait_because(struct stg_session *session, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(session->open_why, sizeof(session->open_why), fmt, args);
    va_end(args);
    session->open_code = -STAGER_DEADLINE_EXCEEDED;
    session->open_millis = OPEN_MILLIS;
    session->open_brief = false;
    return 1;
}

/* Waits as wait_because, for a shorter time; then the open fails with *err. */
static int wait_briefly(struct stg_session *session, const struct stg_err *err)
{
    wait_because(session, "%s", err->text);
    session->open_code = err->code;
    session->open_millis = BRIEF_MILLIS;
    session->open_brief = true;
    return 1;
}

/* Answers an open whose instance could not be made. The open waits for memory of an
 * instance that ends, and briefly for memory that a closed stream keeps: its process may
 * be about to end. */
static int answer_failed(struct stg_session *session, const struct stg_request *request,
                         struct stg_instance *instance)
{
    struct stg_catalog *catalog = session->server->catalog;
    struct stg_err err = instance->error;
    stg_session_claim(session, NULL);
    if (instance->is_apart)
        stg_err_prefix(&err, err.code,
                       "pipeline %s: the state is before the batches of the other "
                       "clients, and a run of its own cannot be made",
                       instance->config.name);
    if (err.code == -STAGER_RESOURCE_EXHAUSTED &&
        (stg_catalog_stopping(catalog) ||
         stg_catalog_n_gone(catalog) != instance->n_gone)) {
        session->open_gone = instance->n_gone + 1;
        return wait_because(session, "%s", err.text);
    }
    if (err.code == -STAGER_RESOURCE_EXHAUSTED && stg_catalog_has_retained(catalog)) {
        session->open_gone = instance->n_gone + 1;
        return wait_briefly(session, &err);
    }
    stg_catalog_discard(instance);
    stg_session_fail_with(session, request, &err);
    return 0;
}

/* ---- states ---- */

/* Returns 0 if clients may attach to the instance, 1 if the open waits for it. */
static int wait_for_start(struct stg_session *session, struct stg_instance *instance,
                          bool has_state, struct stg_err *err)
{
    int rc = stg_stage_sought(instance->stage, err);
    if (rc < 0) {
        stg_catalog_discard(instance);
        stg_catalog_abandon(instance);
        if (!has_state)
            return wait_because(session,
                                "the last run of pipeline %s, which began at a state, is "
                                "stopping; try again",
                                instance->config.name);
        return stg_err_prefix(err, rc, "pipeline %s", instance->config.name);
    }
    if (rc == 1)
        return 0;
    wait_because(session,
                 "the dataset of pipeline %s is not at position %" PRIu64
                 " of pass %" PRIu64 " yet: it reads the elements before it; try again",
                 instance->config.name, instance->start.place.elements,
                 instance->start.pass);
    session->open_millis = SEEK_MILLIS;
    return 1;
}

/* A name that is truncated might be another one's. */
static int check_options(const struct stg_request *request, struct stg_err *err)
{
    size_t bytes = request->client_id != NULL ? strlen(request->client_id) : 0;
    if (request->max_in_flight < 1 || request->max_in_flight > STG_MAX_IN_FLIGHT)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "max_in_flight %u is not between 1 and %u", request->max_in_flight,
                       STG_MAX_IN_FLIGHT);
    if (bytes > CLIENT_ID_MAX_BYTES)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "client_id has %zu bytes; the maximum is %d: choose a shorter one",
                       bytes, CLIENT_ID_MAX_BYTES);
    return 0;
}

/* Returns 0 and the instance that the open attaches to; 1: the open waits for it. */
static int find_instance(struct stg_session *session, const struct stg_request *request,
                         struct stg_pipeline *pipeline, const struct stg_wanted *wanted,
                         struct stg_instance **ret, struct stg_err *err)
{
    struct stg_catalog *catalog = session->server->catalog;
    /* An instance that was made for it is taken, or given up, before it can end. */
    *ret = session->open_private;
    if (*ret != NULL)
        return 0;
    if (stg_quarantine_check(session->server, session->identity.uid, err) < 0)
        return wait_briefly(session, err);
    if (!session->open_waits) {
        session->open_gone = 0;
        session->open_apart = false;
    }
    bool is_new =
        request->private_run || session->open_apart || pipeline->instance == NULL;
    if (is_new && session->open_gone == stg_catalog_n_gone(catalog) + 1)
        return 1; /* no memory came back since it was refused */
    int rc = stg_catalog_instance(catalog, pipeline, wanted, ret, err);
    if (rc == -STAGER_UNAVAILABLE) {
        wait_because(session, "%s", err->text);
        stg_server_sweep_soon(session->server);
        if (stg_recovery_blocks(pipeline, NULL))
            session->open_millis = SEEK_MILLIS; /* it ends before */
        return 1;
    }
    if (rc == -STAGER_RESOURCE_EXHAUSTED && stg_catalog_stopping(catalog)) {
        wait_briefly(session, err); /* the run that ends may have the runners */
        session->open_millis = OPEN_MILLIS;
        return 1;
    }
    if (rc == 0 && (*ret)->private_run) {
        stg_session_claim(session, *ret);
        session->open_apart = (*ret)->is_apart;
    }
    return rc;
}

/* Returns 0 when the request was answered, 1: it waits. */
static int attach_or_wait(struct stg_session *session, const struct stg_request *request,
                          struct stg_instance *instance, const struct stg_state *state,
                          const struct stg_run_member *member, bool resumes)
{
    struct stg_err err = {0};
    if (instance->state == STG_INSTANCE_CREATING)
        return wait_because(
            session,
            "reserving %.0f MiB of memory for pipeline %s is not finished; try again",
            (double)instance->plan.arena_bytes / 1048576.0, instance->config.name);
    if (instance->state == STG_INSTANCE_FAILED)
        return answer_failed(session, request, instance);
    int rc = wait_for_start(session, instance, state != NULL || resumes, &err);
    if (rc == 1)
        return 1;
    if (rc == 0)
        rc = attach(session, request, instance, state, member, resumes, &err);
    stg_session_claim(session, NULL);
    if (rc < 0)
        stg_session_fail_with(session, request, &err);
    return 0;
}

/* hosts: of a job whose hosts etcd has; or NULL. Returns 0 when the request was answered,
 * 1: it waits. */
static int try_begin(struct stg_session *session, const struct stg_request *request,
                     const struct stg_deal *deal, const struct stg_roster_entry *hosts,
                     struct stg_pipeline *pipeline)
{
    struct stg_err err = {0};
    struct stg_state state;
    struct stg_instance *instance;
    struct stg_wanted wanted = {
        .private_run = request->private_run,
        .replays = request->private_run && request->replays,
        .max_in_flight = request->max_in_flight,
        .world_size = request->world_size,
        .deal = *deal,
        .hosts_entry = hosts != NULL ? hosts->entry : 0,
        .hosts_generation = hosts != NULL ? hosts->number : 0,
        .job = request->job,
        .state = request->state != NULL ? &state : NULL,
        .client_id = request->client_id != NULL ? request->client_id : session->program,
        .name = request->named ? request->client_id : NULL,
        .is_new = request->generation == 0};
    if (request->state != NULL &&
        stg_loading_read(request, pipeline->definition, deal, &state, &err) < 0) {
        stg_session_fail_with(session, request, &err);
        return 0;
    }
    if (!session->open_waits && !request->private_run)
        stg_recovery_replace(pipeline, session->pid, wanted.client_id);
    int rc = find_instance(session, request, pipeline, &wanted, &instance, &err);
    if (rc == 0)
        return attach_or_wait(session, request, instance, wanted.state, NULL, false);
    if (rc < 0) {
        stg_session_claim(session, NULL);
        stg_session_fail_with(session, request, &err);
    }
    return rc == 1;
}

/* Waits for the other clients of the run, or for what any open waits for. Returns as
 * try_begin. */
static int go_on(struct stg_session *session, const struct stg_request *request,
                 const struct stg_deal *deal, struct stg_pipeline *pipeline,
                 const struct stg_state *state, struct stg_err *err)
{
    struct stg_returning returning = {.rejoin = &request->rejoin,
                                      .uid = session->identity.uid,
                                      .state = state,
                                      .max_in_flight = request->max_in_flight};
    const struct stg_run_member *member = NULL;
    struct stg_instance *instance;
    bool resumes = false;
    int rc = stg_recovery_arrive(pipeline, &returning, &member, &resumes, err);
    stg_server_sweep_soon(session->server);
    if (rc == 1) {
        wait_because(session, "%s", err->text);
        session->open_millis = SEEK_MILLIS; /* it ends before */
        return 1;
    }
    if (rc == 0)
        rc = stg_commit_check_attempt(pipeline, request, member->attempt, err);
    struct stg_wanted wanted = {
        .max_in_flight = stg_gathering_max_in_flight(pipeline->gathering),
        .deal = *deal,
        .job = request->job,
        .state = state,
        .client_id = request->client_id != NULL ? request->client_id : session->program,
        .name = request->named ? request->client_id : NULL,
        .resumes = resumes};
    if (rc == 0)
        rc = find_instance(session, request, pipeline, &wanted, &instance, err);
    return rc == 0 ? attach_or_wait(session, request, instance, state, member, resumes)
                   : rc;
}

/* A stream whose stagerd ended. Returns as try_begin. */
static int try_rejoin(struct stg_session *session, const struct stg_request *request,
                      const struct stg_deal *deal, struct stg_pipeline *pipeline)
{
    struct stg_err err = {0};
    struct stg_state state;
    const struct stg_run_member *member;
    int rc = stg_recovery_find(pipeline, &request->rejoin, session->identity.uid, &member,
                               &err);
    if (rc == 0 && pipeline->gathering->failure.code != 0) {
        err = pipeline->gathering->failure;
        rc = err.code;
    }
    if (rc == 0 && request->state != NULL)
        rc = stg_loading_read(request, pipeline->definition, deal, &state, &err);
    if (rc == 0)
        rc = go_on(session, request, deal, pipeline,
                   request->state != NULL ? &state : NULL, &err);
    if (rc < 0) {
        stg_session_claim(session, NULL);
        stg_session_fail_with(session, request, &err);
    }
    if (rc != 1 && !session->joining)
        stg_recovery_gone(pipeline, request->rejoin.member);
    return rc == 1;
}

/* Waits for the disk, and not shorter than for what the open has waited for before. */
static int wait_for_disk(struct stg_session *session, const char *name)
{
    uint64_t millis = session->open_waits ? session->open_millis : 0;
    wait_because(
        session,
        "a commit or a change of pipeline %s waits for the disk of state_dir; try "
        "again",
        name);
    if (session->open_millis < millis)
        session->open_millis = millis;
    return 1;
}

/* ---- a stream that follows ---- */

/* Returns whether the stream has another version than the pipeline has now, and the run
 * does not go on in this one. */
static bool follows(const struct stg_session *session, const struct stg_request *request,
                    const struct stg_pipeline *pipeline)
{
    return request->follow && request->generation != 0 &&
           request->generation != pipeline->generation &&
           !stg_recovery_follows(pipeline, &request->rejoin, session->identity.uid);
}

/* A stream that shared its run has no place outside of it. */
static bool has_place(const struct stg_request *request, const struct stg_deal *deal,
                      const struct stg_pipeline *pipeline)
{
    struct stg_state ignored;
    return request->rejoin.member == 0 && request->state != NULL &&
           stg_loading_read(request, pipeline->definition, deal, &ignored, NULL) == 0;
}

/* Returns as try_begin. */
static int try_follow(struct stg_session *session, const struct stg_request *request,
                      const struct stg_deal *deal, struct stg_pipeline *pipeline)
{
    struct stg_request next = *request;
    if (request->generation > pipeline->generation) {
        stg_session_fail(session, request->id, -STAGER_ABORTED,
                         "the pipeline was deleted, and applied again: open the stream "
                         "again");
        return 0;
    }
    if (!request->private_run && stg_journal_is_busy(pipeline->journal))
        return wait_for_disk(session, pipeline->name);
    if (!has_place(request, deal, pipeline))
        next.state = NULL;
    next.rejoin = (struct stg_rejoin){0};
    return try_begin(session, &next, deal, NULL, pipeline);
}

/* The clients of a run are all on the same host of as many. */
static int check_hosts(const struct stg_pipeline *pipeline,
                       const struct stg_request *request, const struct stg_deal *deal,
                       uint64_t hosts_entry, struct stg_err *err)
{
    const struct stg_instance *instance = pipeline->instance;
    const struct stg_deal_rank *rank = &request->data_parallel;
    if (request->private_run || instance == NULL ||
        (instance->stage != NULL &&
         (stg_stage_stopping(instance->stage) || !stg_stage_is_used(instance->stage))))
        return 0;
    const struct stg_deal *there = &instance->config.deal;
    if (hosts_entry != instance->config.hosts_entry)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "pipeline %s: the other clients of this stagerd are of another "
                       "job, or of an earlier generation of its hosts: wait until they "
                       "have left",
                       pipeline->name);
    if (there->n_hosts == deal->n_hosts && there->host == deal->host)
        return 0;
    return stg_err(err, -STAGER_FAILED_PRECONDITION,
                   "pipeline %s: dp_rank %u of dp_size %u with local_size %u is on host "
                   "%u of %u, and the other clients of this stagerd are on host %u of "
                   "%u: give each client the ranks of one job, or wait until the clients "
                   "of the earlier job have left",
                   pipeline->name, rank->rank, rank->size, rank->local_size, deal->host,
                   deal->n_hosts, there->host, there->n_hosts);
}

/* The hosts of an open are there: its time for what it waits for next begins. */
static void note_entry(struct stg_session *session, uint64_t entry)
{
    if (session->hosts_entry != entry)
        session->open_since = uv_now(&session->server->loop);
    session->hosts_entry = entry;
}

/* An open whose hosts etcd has. Returns as try_begin. */
static int try_elastic(struct stg_session *session, const struct stg_request *request,
                       struct stg_pipeline *pipeline)
{
    struct stg_err err = {0};
    char text[STG_STATE_TEXT_BYTES];
    struct stg_request resolved = *request;
    struct stg_elastic *elastic = session->server->elastic;
    struct stg_roster_entry entry;
    const struct stg_commits *commits;
    struct stg_deal deal;
    int rc = 0;
    if (request->generation != 0 || request->rejoin.member != 0)
        rc = stg_err(&err, -STAGER_ABORTED,
                     "pipeline %s: the pipeline or stagerd has changed, and with etcd a "
                     "stream goes on in its generation alone: open it again at the last "
                     "commit",
                     pipeline->name);
    if (rc == 0 &&
        (rc = stg_division_check_elastic(pipeline->definition->spec, &err)) < 0)
        stg_err_prefix(&err, rc, "pipeline %s", pipeline->name);
    if (rc == 0)
        rc = stg_elastic_look(elastic, request, &session->hosts_look, &commits, &err);
    if (rc == 0)
        rc = stg_commit_resolve_in(pipeline->definition, request, commits, text, &err);
    if (rc == 0 && text[0] != '\0')
        resolved.state = text;
    if (rc == 0)
        rc = stg_elastic_admit(elastic, request, pipeline, session->hosts_look,
                               resolved.state, &entry, &err);
    if (rc == 0)
        rc =
            stg_loading_divide(&resolved, pipeline->definition, &entry.deal, &deal, &err);
    if (rc == 0 && check_hosts(pipeline, request, &deal, entry.entry, &err) < 0)
        return wait_briefly(session, &err);
    if (rc == 1) {
        wait_because(session, "%s", err.text);
        session->open_millis = SEEK_MILLIS;
        return 1;
    }
    if (rc < 0) {
        stg_session_fail_with(session, request, &err);
        return 0;
    }
    note_entry(session, entry.entry);
    return try_begin(session, &resolved, &deal, &entry, pipeline);
}

/* Returns 0 when the request was answered, 1: it waits. */
static int try_open(struct stg_session *session, const struct stg_request *request)
{
    struct stg_err err = {0};
    char text[STG_STATE_TEXT_BYTES]; /* of the state that a tag names */
    struct stg_request resolved = *request;
    struct stg_deal deal;
    struct stg_pipeline *pipeline = stg_session_find_pipeline(session, request);
    if (pipeline == NULL)
        return 0;
    /* A stream that reconnects or follows was admitted before. */
    bool is_new = request->rejoin.member == 0 && request->generation == 0;
    if (check_options(request, &err) < 0 ||
        (is_new && stg_draining_check(session->server, &err) < 0)) {
        stg_session_fail_with(session, request, &err);
        return 0;
    }
    if (must_ask(pipeline, request)) {
        ask(session, request, pipeline);
        return 0;
    }
    if (stg_catalog_changes(session->server->catalog, pipeline))
        return wait_for_disk(session, pipeline->name);
    if (stg_elastic_serves(session->server->elastic, request, pipeline->definition))
        return try_elastic(session, request, pipeline);
    if (stg_loading_divide(&resolved, pipeline->definition, NULL, &deal, &err) < 0) {
        stg_session_fail_with(session, request, &err);
        return 0;
    }
    if (check_hosts(pipeline, request, &deal, 0, &err) < 0)
        return wait_briefly(session, &err); /* those of the earlier job may be leaving */
    request = &resolved;
    if (follows(session, request, pipeline))
        return try_follow(session, request, &deal, pipeline);
    if (request->rejoin.member != 0)
        return try_rejoin(session, request, &deal, pipeline);
    int rc = stg_commit_resolve(pipeline, request, text, &err);
    if (rc == 1)
        return wait_for_disk(session, pipeline->name);
    if (rc < 0) {
        stg_session_fail_with(session, request, &err);
        return 0;
    }
    if (text[0] != '\0')
        resolved.state = text;
    return try_begin(session, &resolved, &deal, NULL, pipeline);
}

/* Arms the deadline of an open that waits. Each reason has its time, counted from the
 * first try. */
static void arm_open(struct stg_session *session)
{
    uint64_t now = uv_now(&session->server->loop);
    uint64_t due = session->open_since + session->open_millis;
    stg_session_set_deadline(session, due > now ? due - now : 1);
}

static void wait_with_open(struct stg_session *session, uint64_t id, const void *bytes,
                           size_t n)
{
    struct stg_err err = {0};
    if (session->open_waits)
        return;
    stg_bump_reset(&session->open_bump);
    /* Decoded once more: its strings have to outlive this message. */
    int rc = stg_wire_decode_request(bytes, n, &session->open_bump, &session->open, &err);
    if (rc < 0) {
        stg_session_stop_waiting(session);
        stg_session_fail(session, id, rc, err.text);
        return;
    }
    session->open_waits = true;
    session->open_since = uv_now(&session->server->loop);
    arm_open(session);
}

static void retry(struct stg_session *session)
{
    if (!session->open_waits)
        return;
    if (try_open(session, &session->open) == 0) {
        stg_session_claim(session, NULL);
        session->open_waits = false;
        if (!session->joining)
            uv_timer_stop(&session->deadline);
    } else {
        arm_open(session);
    }
}

void stg_request_open(struct stg_session *session, const struct stg_request *request,
                      const void *bytes, size_t n)
{
    session->hosts_look = session->hosts_entry = 0;
    if (try_open(session, request) == 1)
        wait_with_open(session, request->id, bytes, n);
}

void stg_request_retry_opens(struct stg_server *server, bool brief)
{
    for (struct stg_session *s = server->sessions; s != NULL; s = s->next) {
        if (s->open_brief || !brief)
            retry(s);
    }
}

/* ---- working ---- */

static int admit(struct stg_session *session, struct stg_pipeline *pipeline,
                 uint32_t most, int *ret_channel, struct stg_err *err)
{
    if (pipeline->workers == NULL)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "pipeline %s has no step py_function, and needs no workers",
                       pipeline->name);
    return stg_workers_admit(pipeline->workers, session->pid, most, &session->worker,
                             ret_channel, err);
}

void stg_serve_work(struct stg_session *session, const struct stg_request *request)
{
    struct stg_err err = {0};
    struct stg_pipeline *pipeline = stg_session_find_pipeline(session, request);
    if (pipeline == NULL)
        return;
    int channel;
    if (admit(session, pipeline, request->most, &channel, &err) < 0) {
        stg_session_fail(session, request->id, err.code, err.text);
        return;
    }
    struct stg_reply reply = stg_reply_to(request);
    reply.name = pipeline->name;
    reply.function = stg_workers_function(pipeline->workers);
    reply.seed = stg_workers_seed(pipeline->workers);
    reply.pure = stg_workers_is_pure(pipeline->workers);
    reply.boundary = *stg_workers_output(pipeline->workers);
    if (stg_session_reply(session, &reply, &channel, 1) < 0)
        stg_session_close(session); /* the channel did not reach it */
    else
        stg_noting_done(session, STG_OPERATION_ATTACHED, pipeline->name,
                        pipeline->generation);
    close(channel);
}

/* ---- requests of a stream ---- */

void stg_serve_feed(struct stg_session *session, const struct stg_request *request)
{
    struct stg_err err = {0};
    struct stg_reply reply = stg_reply_to(request);
    int rc;
    if (session->client == NULL)
        rc = stg_err(
            &err, -STAGER_FAILED_PRECONDITION,
            "a feed must be sent on the connection of a stream: open a pipeline first");
    else
        rc = stg_stage_feed(session->instance->stage, request, &reply.feed_version, &err);
    stg_session_finish(session, &reply, rc, &err);
}

/* Of a stream that was stopped meanwhile, too. */
static void keep_replay(struct stg_session *session,
                        const struct stg_replay_result *result)
{
    const struct stg_instance *instance = session->instance;
    struct stg_pipeline *pipeline = stg_catalog_first(session->server->catalog);
    while (pipeline != NULL && pipeline->id != instance->pipeline_id)
        pipeline = pipeline->next;
    if (pipeline == NULL || pipeline->generation != instance->generation)
        return;
    struct stg_replay_result known = *result;
    known.pid = (uint32_t)session->pid;
    stg_explain_add_replay(pipeline, &known);
}

void stg_serve_report(struct stg_session *session, const struct stg_request *request)
{
    const struct stg_replay_result *replay = &request->report.replay;
    if (session->client != NULL && replay->n_held != 0 &&
        session->instance->config.replays)
        keep_replay(session, replay);
    else if (session->client != NULL)
        stg_stage_report(session->instance->stage, &request->report);
    else
        stg_session_fail(session, request->id, -STAGER_FAILED_PRECONDITION,
                         "a report must be sent on the connection of a stream");
}

void stg_serve_why(struct stg_session *session, const struct stg_request *request)
{
    struct stg_err why = {0};
    struct stg_reply reply = stg_reply_to(request);
    if (session->client == NULL) {
        stg_session_fail(session, request->id, -STAGER_FAILED_PRECONDITION,
                         "`why` must be sent on the connection of a stream");
        return;
    }
    stg_stage_why(session->instance->stage, session->client, &why);
    reply.text = why.text;
    (void)stg_session_post(session, &reply); /* a stream does not end for want of it */
}
