/* SPDX-License-Identifier: Apache-2.0
 *
 * Commits: of a stream, what an open resumes from, and the list of them.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/dataset/steps/division.h"
#include "daemon/pipeline/elastic.h"
#include "daemon/pipeline/loading.h"
#include "daemon/pipeline/recovery.h"
#include "daemon/pipeline/signature.h"
#include "daemon/server/request.h"

#define TAG_PREFIX "tag:"
#define N_LISTED 4 /* tags that an error lists */

/* ---- lanes ---- */

/* num_clients: auto: the lanes do not depend on the number of ranks. */
static bool has_clients_apart(const struct stg_definition *definition)
{
    const struct stg_staged *staged = &definition->spec->staged;
    return staged->delivery == STG_DELIVERY_BROADCAST &&
           (staged->num_clients > 1 || staged->num_clients_auto);
}

/* Returns the lane of the commits of the client of an open; NULL: it has none, and the
 * error has the reason. */
static const char *find_lane(const struct stg_request *request,
                             const struct stg_definition *definition, struct stg_err *err)
{
    const char *why = definition->irreproducible;
    if (why != NULL) {
        stg_err(err, -STAGER_FAILED_PRECONDITION,
                "pipeline %s has no commits, because a state is not exact here: %s",
                request->name, why);
        return NULL;
    }
    if (!has_clients_apart(definition))
        return "";
    if (request->named && request->client_id != NULL && request->client_id[0] != '\0')
        return request->client_id;
    stg_err(err, -STAGER_FAILED_PRECONDITION,
            "under broadcast each client has commits, by its name: open pipeline %s with "
            "a client_id",
            request->name);
    return NULL;
}

/* ---- where an open begins ---- */

static bool has_commits(const struct stg_lane *lane)
{
    return lane != NULL && lane->n > 0;
}

/* Returns whether an open joins a run that has clients and shares its items: it needs no
 * position. */
static bool shares(struct stg_pipeline *pipeline)
{
    const struct stg_staged *staged = &pipeline->definition->spec->staged;
    const struct stg_instance *instance = pipeline->instance;
    bool is_shared = staged->delivery == STG_DELIVERY_SPLIT && staged->num_clients > 1;
    if (is_shared && stg_recovery_blocks(pipeline, NULL))
        return true; /* it waits for them */
    return is_shared && instance != NULL && instance->stage != NULL &&
           !stg_stage_stopping(instance->stage) && stg_stage_is_used(instance->stage);
}

/* A trainer that loaded no checkpoint: a commit that reaches the disk meanwhile is not
 * its own. */
static bool names_start(const struct stg_request *request)
{
    return request->resume != NULL && strcmp(request->resume, "start") == 0;
}

static int refuse_unnamed(const char *name, const struct stg_lane *lane,
                          struct stg_err *err)
{
    return stg_err(
        err, -STAGER_FAILED_PRECONDITION,
        "pipeline %s has commits, the last one with tag %s at pass %" PRIu64
        ", position %" PRIu64
        ", and this open names neither a commit nor a state: give the tag of the "
        "checkpoint that was loaded (resume=\"tag:%s\"), its state, resume=\"start\" if "
        "none was loaded, or resume=\"current\" for the last commit; `stagerctl commits "
        "%s` lists them, and `stagerctl delete` deletes them with the pipeline",
        name, lane->last->tag, lane->last->pass, lane->last->position, lane->last->tag,
        name);
}

/* Refuses an open without commits if another kind of lane has some: those of the pipeline
 * and those of its clients are of different lanes, and a change of delivery or
 * num_clients must not lead back to the start silently. */
static int check_other_lanes(const char *name, const struct stg_commits *commits,
                             const char *lane, struct stg_err *err)
{
    const struct stg_lane *other = commits->lanes;
    while (other != NULL &&
           (!has_commits(other) || (other->name[0] == '\0') == (lane[0] == '\0')))
        other = other->next;
    if (other == NULL)
        return 0;
    return stg_err(err, -STAGER_FAILED_PRECONDITION,
                   "pipeline %s has commits of another delivery or num_clients, the last "
                   "one with tag %s, and none of this one: give the state of the "
                   "checkpoint that was loaded (`stagerctl delete` deletes the commits "
                   "with the pipeline)",
                   name, other->last->tag);
}

static int refuse_tag(const char *name, const struct stg_lane *lane, const char *tag,
                      struct stg_err *err)
{
    stg_err(err, -STAGER_NOT_FOUND, "pipeline %s has no commit with tag %.128s", name,
            tag);
    if (!has_commits(lane))
        return stg_err_append(err, err->code, ": it has no commits");
    stg_err_append(err, err->code, "; the last ones:");
    size_t n = lane->n;
    for (const struct stg_commit *c = lane->first; c != NULL; c = c->next) {
        if (n-- <= N_LISTED)
            stg_err_append(err, err->code, " %s", c->tag);
    }
    return stg_err_append(err, err->code,
                          " (the last %d tags are kept; an older checkpoint brings its "
                          "state)",
                          STG_COMMITS_TAGS);
}

/* Writes the state of the start of the first pass. */
static void write_start(const struct stg_definition *definition, char *buf)
{
    /* As of one host that has taken nothing. */
    struct stg_state start = {.order = STG_ORDER_VERSION,
                              .hosts = stg_division_find(definition->spec) != NULL};
    snprintf(start.steps, sizeof(start.steps), "%s", definition->signature);
    stg_state_write(&start, buf);
}

/* Finds the commit that the open names; *ret NULL: the start. */
static int find_commit(const struct stg_request *request, const struct stg_lane *lane,
                       const struct stg_commit **ret, struct stg_err *err)
{
    const char *resume = request->resume;
    *ret = NULL;
    if (names_start(request))
        return 0;
    if (strcmp(resume, "current") == 0) {
        *ret = has_commits(lane) ? lane->last : NULL;
        return 0;
    }
    if (strncmp(resume, TAG_PREFIX, strlen(TAG_PREFIX)) != 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "resume is \"%.64s\"; this stagerd supports \"start\", "
                       "\"current\" and \"tag:NAME\"",
                       resume);
    const char *tag = resume + strlen(TAG_PREFIX);
    *ret = lane != NULL ? stg_lane_find(lane, tag) : NULL;
    return *ret != NULL ? 0 : refuse_tag(request->name, lane, tag, err);
}

/* Returns a lane whose commits the client of an open had until batches came to depend on
 * timing; NULL: there is none. */
static const struct stg_lane *find_former(const struct stg_commits *commits,
                                          const struct stg_request *request,
                                          const struct stg_definition *definition)
{
    const char *name =
        request->named && request->client_id != NULL ? request->client_id : "";
    const struct stg_lane *lane = commits->lanes;
    while (lane != NULL && (!has_commits(lane) ||
                            (has_clients_apart(definition) && lane->name[0] != '\0' &&
                             strcmp(lane->name, name) != 0)))
        lane = lane->next;
    return lane;
}

/* Refuses an open of a client that has no commits, if the pipeline has some of before a
 * change: it would begin at the start silently. */
static int check_former(struct stg_pipeline *pipeline, const struct stg_request *request,
                        struct stg_err *err)
{
    const struct stg_definition *definition = pipeline->definition;
    const struct stg_commits *commits = stg_journal_commits(pipeline->journal);
    int rc = stg_journal_check(pipeline->journal, err);
    if (rc < 0 || shares(pipeline))
        return rc;
    if (definition->irreproducible == NULL)
        return check_other_lanes(request->name, commits, "a client without a name", err);
    const struct stg_lane *lane = find_former(commits, request, definition);
    if (lane == NULL)
        return 0;
    return stg_err(
        err, -STAGER_FAILED_PRECONDITION,
        "pipeline %s has commits, the last one with tag %s, and a state is not "
        "exact here any more: %s; give the state of the checkpoint that was "
        "loaded with resume=\"approximate\", or delete the pipeline with its "
        "commits (`stagerctl delete`)",
        request->name, lane->last->tag, definition->irreproducible);
}

int stg_commit_resolve(struct stg_pipeline *pipeline, const struct stg_request *request,
                       char *buf, struct stg_err *err)
{
    struct stg_journal *journal = pipeline->journal;
    struct stg_err why = {0};
    const struct stg_commit *commit = NULL;
    const char *name = find_lane(request, pipeline->definition, &why);
    bool names = request->resume != NULL, has_state = request->state != NULL;
    buf[0] = '\0';
    if (name == NULL && names) {
        *err = why;
        return why.code;
    }
    if (request->private_run && !names)
        return 0;
    if (!request->private_run && stg_journal_is_busy(journal))
        return 1;
    if (has_state)
        return 0;
    if (name == NULL)
        return check_former(pipeline, request, err);
    int rc = stg_journal_check(journal, err);
    const struct stg_commits *commits = stg_journal_commits(journal);
    const struct stg_lane *lane = stg_commits_find(commits, name);
    if (rc == 0 && !has_commits(lane) && !request->private_run && !names_start(request))
        rc = check_other_lanes(request->name, commits, name, err);
    if (rc == 0 && !names)
        return has_commits(lane) && !shares(pipeline)
                   ? refuse_unnamed(request->name, lane, err)
                   : 0;
    if (rc == 0)
        rc = find_commit(request, lane, &commit, err);
    if (commit != NULL)
        memcpy(buf, commit->state, strlen(commit->state) + 1);
    else if (rc == 0)
        write_start(pipeline->definition, buf);
    return rc;
}

int stg_commit_resolve_in(const struct stg_definition *definition,
                          const struct stg_request *request,
                          const struct stg_commits *commits, char *buf,
                          struct stg_err *err)
{
    const struct stg_commit *commit = NULL;
    const char *name = find_lane(request, definition, err);
    buf[0] = '\0';
    if (name == NULL)
        return err->code;
    if (request->state != NULL)
        return 0;
    const struct stg_lane *lane = stg_commits_find(commits, name);
    if (request->resume == NULL && has_commits(lane))
        return refuse_unnamed(request->name, lane, err);
    int rc = request->resume != NULL ? find_commit(request, lane, &commit, err) : 0;
    if (commit != NULL)
        memcpy(buf, commit->state, strlen(commit->state) + 1);
    else if (rc == 0)
        write_start(definition, buf);
    return rc;
}

/* ---- attempts ---- */

/* Returns the last commit of that state; NULL: there is none. */
static const struct stg_commit *find_state(const struct stg_lane *lane,
                                           const struct stg_state *state)
{
    static struct stg_state there; /* the loop is one thread */
    const struct stg_commit *found = NULL;
    const struct stg_commit *c = lane != NULL ? lane->first : NULL;
    for (; c != NULL; c = c->next) {
        if (stg_state_read(c->state, strlen(c->state), &there, NULL) == 0 &&
            stg_state_differs(&there, state) == NULL)
            found = c;
    }
    return found;
}

/* An attempt that goes on after a restart of stagerd: from where the run begins, or the
 * client. */
static void go_on_in_audit(const struct stg_request *request,
                           struct stg_instance *instance, const char *lane,
                           uint64_t attempt)
{
    static struct stg_state state;
    struct stg_audit_begin begin = {
        .attempt = attempt, .lane = lane, .tag = "", .is_known = true, .from = attempt};
    bool is_own = lane[0] != '\0' && request->state != NULL;
    if (is_own &&
        stg_state_read(request->state, strlen(request->state), &state, NULL) < 0)
        return;
    begin.point.pass = instance->config.first_pass;
    begin.point.taken = "";
    if (is_own)
        begin.point = stg_audit_point_of(&state);
    else if (instance->config.start != NULL)
        begin.point = stg_audit_point_of(instance->config.start);
    stg_catalog_begin_audit(instance, &begin);
}

/* The commits of a job whose hosts etcd has are of generations, and each generation may
 * number the items anew. */
static void begin_audit_in_job(struct stg_session *session,
                               const struct stg_request *request,
                               struct stg_instance *instance, const char *lane,
                               uint64_t attempt)
{
    static struct stg_state state;
    const struct stg_stage_config *config = &instance->config;
    struct stg_audit_begin begin = {
        .attempt = attempt, .lane = lane, .tag = "", .is_known = true};
    const struct stg_commits *commits;
    const struct stg_commit *commit = NULL;
    struct stg_err err = {0};
    begin.point = stg_audit_point_of(config->start);
    begin.hosts = (struct stg_audit_hosts){.job = config->comparing.job,
                                           .generation = config->hosts_generation,
                                           .host = config->deal.host,
                                           .n_hosts = config->deal.n_hosts,
                                           .base = config->start->base};
    if (stg_state_read(request->state, strlen(request->state), &state, NULL) == 0 &&
        stg_elastic_look(session->server->elastic, request, &session->hosts_look,
                         &commits, &err) == 0)
        commit = find_state(stg_commits_find(commits, lane), &state);
    if (commit != NULL) {
        begin.tag = commit->tag;
        begin.hosts.from_generation = commit->attempt;
        begin.hosts.from_items = state.place.items;
    }
    stg_catalog_begin_audit(instance, &begin);
}

/* The audit says where the attempt begins. */
static void begin_audit(struct stg_session *session, const struct stg_request *request,
                        struct stg_instance *instance, const char *lane, uint64_t attempt)
{
    static struct stg_state state;
    struct stg_audit_begin begin = {.attempt = attempt, .lane = lane, .tag = ""};
    const struct stg_commits *commits = stg_journal_commits(instance->journal);
    uint64_t pass = stg_stage_begins_pass(instance->stage, session->client);
    if (request->rejoin.member != 0) {
        go_on_in_audit(request, instance, lane, attempt);
        return;
    }
    if (instance->config.hosts_entry != 0) {
        begin_audit_in_job(session, request, instance, lane, attempt);
        return;
    }
    if (request->state != NULL &&
        stg_state_read(request->state, strlen(request->state), &state, NULL) == 0) {
        const struct stg_commit *commit =
            find_state(stg_commits_find(commits, lane), &state);
        begin.is_known = true;
        begin.point = stg_audit_point_of(&state);
        begin.from = commit != NULL ? commit->attempt : 0;
        begin.tag = commit != NULL ? commit->tag : "";
    } else if (pass > 0) {
        begin.is_known = true;
        begin.point.pass = pass - 1;
    }
    stg_catalog_begin_audit(instance, &begin);
}

int stg_commit_check_attempt(const struct stg_pipeline *pipeline,
                             const struct stg_request *request, uint64_t attempt,
                             struct stg_err *err)
{
    const char *name = find_lane(request, pipeline->definition, NULL);
    const struct stg_lane *lane =
        name != NULL ? stg_commits_find(stg_journal_commits(pipeline->journal), name)
                     : NULL;
    if (lane == NULL || lane->attempt <= attempt)
        return 0;
    return stg_err(err, -STAGER_FAILED_PRECONDITION,
                   "pipeline %s: attempt %" PRIu64
                   " has begun, and this stream is of attempt %" PRIu64
                   ": another trainer has taken over",
                   pipeline->name, lane->attempt, attempt);
}

static uint64_t begin_attempt(struct stg_journal *journal, const char *lane,
                              uint64_t before)
{
    if (before != 0 && lane != NULL)
        return stg_journal_continue(journal, lane, before);
    if (before != 0)
        return before;
    return lane != NULL ? stg_journal_begin(journal, lane) : stg_journal_number(journal);
}

void stg_commit_attached(struct stg_session *session, const struct stg_request *request,
                         struct stg_instance *instance, const char *client_id,
                         uint64_t before)
{
    const char *lane = find_lane(request, instance->definition, NULL);
    const struct stg_pipeline *pipeline =
        instance->is_apart ? stg_catalog_find(instance->catalog, instance->config.name)
                           : instance->pipeline;
    if ((instance->private_run && !instance->is_apart) || pipeline == NULL)
        return;
    struct stg_journal *journal = pipeline->journal;
    bool is_own = lane != NULL && lane[0] != '\0';
    uint64_t *attempt = is_own ? &session->attempt : &instance->attempt;
    if (*attempt == 0) {
        *attempt = begin_attempt(journal, lane, before);
        if (instance->journal != NULL)
            begin_audit(session, request, instance, lane != NULL ? lane : "", *attempt);
    }
    stg_stage_name_attempt(instance->stage, session->client, *attempt);
    if (lane == NULL)
        return;
    session->attempt = *attempt;
    session->journal = stg_journal_ref(journal);
    snprintf(session->lane, sizeof(session->lane), "%s", lane);
    snprintf(session->committer, sizeof(session->committer), "%s", client_id);
}

/* ---- committing ---- */

/* A request whose answer waits for the disk. */
struct pending {
    struct stg_session *session;
    struct stg_request request; /* id and kind alone */
    char name[65];              /* of a pipeline, whose commits are listed */
};

/* Returns NULL if memory is short: then the request has failed. */
static struct pending *begin_pending(struct stg_session *session,
                                     const struct stg_request *request)
{
    struct pending *pending = calloc(1, sizeof(*pending));
    if (pending == NULL) {
        stg_session_fail(session, request->id, -STAGER_RESOURCE_EXHAUSTED,
                         "out of memory");
        return NULL;
    }
    pending->session = session;
    pending->request = (struct stg_request){.id = request->id, .kind = request->kind};
    stg_session_hold(session);
    return pending;
}

static void end_pending(struct pending *pending)
{
    stg_session_release(pending->session);
    free(pending);
}

static void answer(void *arg, const struct stg_err *err)
{
    struct pending *pending = arg;
    struct stg_reply reply = stg_reply_to(&pending->request);
    pending->session->commits = false;
    stg_session_finish(pending->session, &reply, err->code, err);
    end_pending(pending);
}

/* Finds the pipeline of a stream, if its user may still open it. journal: the stream's;
 * NULL: not known. */
static int find_pipeline(const struct stg_session *session, const char *name,
                         const struct stg_journal *journal, struct stg_pipeline **ret,
                         struct stg_err *err)
{
    struct stg_catalog *catalog = session->server->catalog;
    struct stg_pipeline *pipeline = stg_catalog_find(catalog, name);
    if (pipeline == NULL || (journal != NULL && pipeline->journal != journal))
        return stg_err(err, -STAGER_NOT_FOUND, "pipeline %s was deleted", name);
    if (!stg_catalog_allowed(catalog, pipeline, &session->identity))
        return stg_err(err, -STAGER_PERMISSION_DENIED,
                       "pipeline %s belongs to uid %u now", name,
                       (unsigned)pipeline->definition->applier.uid);
    *ret = pipeline;
    return 0;
}

/* A stream without a journal: of a private run, or one that has no states. */
static int refuse_stream(const struct stg_session *session, struct stg_err *err)
{
    const struct stg_instance *instance = session->instance;
    struct stg_request unnamed = {.name = instance->config.name};
    if (instance->private_run && !instance->is_apart)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "a private run of pipeline %s has no commits: open it without "
                       "private_run",
                       instance->config.name);
    if (find_lane(&unnamed, instance->definition, err) == NULL)
        return err->code;
    return stg_err(err, -STAGER_ABORTED, "this run of pipeline %s is over",
                   instance->config.name);
}

static int check_state(const struct stg_definition *definition, const char *text,
                       struct stg_state *ret, struct stg_err *err)
{
    int rc = stg_state_read(text, strlen(text), ret, err);
    if (rc == 0 && ret->order != STG_ORDER_VERSION)
        rc = stg_err(err, -STAGER_FAILED_PRECONDITION,
                     "the state counts elements in order version %" PRIu64
                     ", and this release of stagerd has version %d",
                     ret->order, STG_ORDER_VERSION);
    if (rc == 0)
        rc = stg_signature_compare(definition->signature, ret->steps, err);
    return rc == 0 ? stg_loading_check_taken(definition, false, ret, err) : rc;
}

/* elastic NULL: the commit goes to the journal, else to etcd. */
static int start_commit(struct stg_elastic *elastic, const struct stg_instance *instance,
                        struct stg_journal *journal, const struct stg_definition *of,
                        struct stg_journal_request *what,
                        const struct stg_request *request, struct pending *pending,
                        struct stg_err *err)
{
    struct stg_state state;
    int rc = stg_commits_check_tag(request->tag, err);
    if (rc == 0)
        rc = check_state(of, request->state, &state, err);
    if (rc < 0)
        return stg_err_prefix(err, rc, "pipeline %s", of->spec->name);
    what->tag = request->tag;
    what->state = &state;
    what->done = answer;
    what->arg = pending;
    if (elastic == NULL)
        return stg_journal_commit(journal, what, err);
    struct stg_roster_commit commit = {.lane = what->lane,
                                       .tag = what->tag,
                                       .client = what->client,
                                       .state = what->state,
                                       .done = answer,
                                       .arg = pending};
    return stg_elastic_commit(elastic, instance, &commit, err);
}

/* A commit of a stream that has not reconnected to this stagerd yet: the run waits for
 * other clients, and they may wait for this commit. */
static int commit_away(struct stg_session *session, const struct stg_request *request,
                       struct pending *pending, struct stg_err *err)
{
    struct stg_pipeline *pipeline;
    const struct stg_run_member *member;
    int rc = find_pipeline(session, request->name, NULL, &pipeline, err);
    if (rc == 0)
        rc = stg_recovery_find(pipeline, &request->rejoin, session->identity.uid, &member,
                               err);
    if (rc < 0)
        return rc;
    struct stg_request of = {.name = pipeline->name,
                             .client_id = member->client_id,
                             .named = member->is_named};
    const char *lane = find_lane(&of, pipeline->definition, err);
    if (lane == NULL)
        return err->code;
    rc = stg_commit_check_attempt(pipeline, &of, member->attempt, err);
    if (rc < 0)
        return rc;
    if (stg_journal_continue(pipeline->journal, lane, member->attempt) == 0)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    struct stg_journal_request what = {
        .lane = lane, .client = member->client_id, .attempt = member->attempt};
    return start_commit(NULL, NULL, pipeline->journal, pipeline->definition, &what,
                        request, pending, err);
}

static int commit(struct stg_session *session, const struct stg_request *request,
                  struct pending *pending, struct stg_err *err)
{
    struct stg_pipeline *pipeline = NULL;
    bool is_away = request->rejoin.member != 0 && request->name != NULL &&
                   request->client_id != NULL;
    if (session->client == NULL && is_away)
        return commit_away(session, request, pending, err);
    if (session->client == NULL || session->joining)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "a commit must be sent on the connection of a stream");
    if (session->journal == NULL)
        return refuse_stream(session, err);
    int rc = find_pipeline(session, session->instance->config.name, session->journal,
                           &pipeline, err);
    if (rc < 0)
        return rc;
    struct stg_journal_request what = {.lane = session->lane,
                                       .client = session->committer,
                                       .attempt = session->attempt,
                                       .run = session->instance->config.audit_run};
    stg_catalog_note_audit(session->server->catalog, session->journal);
    bool is_elastic = session->instance->config.hosts_entry != 0;
    return start_commit(is_elastic ? session->server->elastic : NULL, session->instance,
                        session->journal, pipeline->definition, &what, request, pending,
                        err);
}

void stg_serve_commit(struct stg_session *session, const struct stg_request *request)
{
    struct stg_err err = {0};
    if (session->commits) { /* libstager waits for the answer, or up to a limit */
        stg_session_fail(session, request->id, -STAGER_UNAVAILABLE,
                         "an earlier commit of this stream still waits for the disk of "
                         "state_dir: try again");
        return;
    }
    struct pending *pending = begin_pending(session, request);
    if (pending == NULL)
        return;
    session->commits = true;
    if (commit(session, request, pending, &err) < 0)
        answer(pending, &err);
}

/* ---- the list ---- */

static size_t count(const struct stg_commits *commits)
{
    size_t n = 0;
    for (const struct stg_lane *lane = commits->lanes; lane != NULL; lane = lane->next)
        n += lane->n;
    return n;
}

/* How far the list is in a lane. */
struct listed_lane {
    const struct stg_lane *lane;
    const struct stg_commit *next; /* NULL: all of them are listed */
};

/* Returns the lane with the oldest commit that is left; NULL: none is. */
static struct listed_lane *find_oldest(struct listed_lane *lanes, size_t n)
{
    struct listed_lane *oldest = NULL;
    for (struct listed_lane *at = lanes; at < lanes + n; at++) {
        if (at->next != NULL &&
            (oldest == NULL || at->next->time_ns < oldest->next->time_ns))
            oldest = at;
    }
    return oldest;
}

/* Returns the items before the place of a commit. */
static uint64_t items_of(const struct stg_commit *commit)
{
    static struct stg_state state; /* the loop is one thread */
    int rc = stg_state_read(commit->state, strlen(commit->state), &state, NULL);
    return rc == 0 ? state.place.items : 0;
}

/* Lists the commits of all lanes from the oldest on, those of a lane in their order also
 * if the clock was set back. Strings are the table's. */
static int fill_list(const struct stg_commits *commits, bool has_items,
                     struct stg_bump *bump, struct stg_reply *ret, struct stg_err *err)
{
    struct listed_lane *at, *lanes;
    size_t n = 0;
    lanes = stg_bump_alloc(bump, commits->n_lanes * sizeof(*lanes));
    ret->commits = stg_bump_alloc(bump, count(commits) * sizeof(ret->commits[0]));
    if (lanes == NULL || ret->commits == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (const struct stg_lane *lane = commits->lanes; lane != NULL; lane = lane->next)
        lanes[n++] = (struct listed_lane){.lane = lane, .next = lane->first};
    while ((at = find_oldest(lanes, n)) != NULL) {
        const struct stg_commit *c = at->next;
        ret->commits[ret->n_commits++] =
            (struct stg_commit_entry){.tag = c->tag,
                                      .client = c->client,
                                      .lane = at->lane->name,
                                      .attempt = c->attempt,
                                      .pass = c->pass,
                                      .position = c->position,
                                      .time_ns = c->time_ns,
                                      .items = has_items ? items_of(c) : 0};
        at->next = c->next;
    }
    return 0;
}

/* Leaves out the oldest entries of a list that is too long for one message. */
static void shorten(struct stg_reply *reply)
{
    while (reply->n_commits > 0 && !stg_request_fits(reply)) {
        size_t n = reply->n_commits / 16 + 1;
        reply->commits += n;
        reply->n_commits -= n;
        reply->n_left_out += (uint32_t)n;
    }
}

static void answer_list(struct stg_session *session, const struct stg_request *request,
                        const char *name, const struct stg_commits *commits,
                        bool has_items, int rc, struct stg_err *err)
{
    struct stg_bump bump;
    struct stg_reply reply = stg_reply_to(request);
    stg_bump_init(&bump, 0);
    reply.name = name;
    if (rc == 0)
        rc = fill_list(commits, has_items, &bump, &reply, err);
    stg_request_finish(session, &reply, shorten, rc, err);
    stg_bump_finish(&bump);
}

static void list_journal(struct stg_session *session, const struct stg_request *request,
                         const struct stg_pipeline *pipeline)
{
    struct stg_err err = {0};
    int rc = stg_journal_check(pipeline->journal, &err);
    answer_list(session, request, pipeline->name, stg_journal_commits(pipeline->journal),
                false, rc, &err);
}

/* A job whose clients name the hosts has its commits in the journal. */
static void answer_elastic(void *arg, const struct stg_commits *commits,
                           const struct stg_err *why)
{
    struct pending *pending = arg;
    struct stg_session *session = pending->session;
    struct stg_err err = *why;
    struct stg_pipeline *pipeline =
        stg_catalog_find(session->server->catalog, pending->name);
    if (pipeline != NULL && why->code == 0 && count(commits) == 0)
        list_journal(session, &pending->request, pipeline);
    else
        answer_list(session, &pending->request, pending->name, commits, true, why->code,
                    &err);
    end_pending(pending);
}

void stg_serve_commits(struct stg_session *session, const struct stg_request *request)
{
    struct stg_err err = {0};
    struct stg_pipeline *pipeline = stg_session_find_pipeline(session, request);
    if (pipeline == NULL)
        return;
    if (!stg_elastic_has(session->server->elastic, pipeline->definition)) {
        list_journal(session, request, pipeline);
        return;
    }
    struct pending *pending = begin_pending(session, request);
    if (pending == NULL)
        return;
    snprintf(pending->name, sizeof(pending->name), "%s", pipeline->name);
    if (stg_elastic_list(session->server->elastic, request->job, pipeline->name,
                         answer_elastic, pending, &err) < 0)
        answer_elastic(pending, NULL, &err);
}

/* ---- the audit ---- */

static void answer_audit(void *arg, int fd, const struct stg_err *err)
{
    struct pending *pending = arg;
    struct stg_reply reply = stg_reply_to(&pending->request);
    pending->session->audits = false;
    if (fd < 0)
        stg_session_fail_with(pending->session, &pending->request, err);
    else
        stg_session_reply(pending->session, &reply, &fd, 1);
    if (fd >= 0)
        close(fd);
    end_pending(pending);
}

void stg_serve_audit(struct stg_session *session, const struct stg_request *request)
{
    struct stg_err err = {0};
    struct stg_pipeline *pipeline = stg_session_find_pipeline(session, request);
    if (pipeline == NULL)
        return;
    if (session->audits) {
        stg_session_fail(session, request->id, -STAGER_RESOURCE_EXHAUSTED,
                         "an earlier audit still waits for the disk of state_dir: try "
                         "again");
        return;
    }
    struct pending *pending = begin_pending(session, request);
    if (pending == NULL)
        return;
    stg_catalog_note_audit(session->server->catalog, pipeline->journal);
    session->audits = true;
    int rc = stg_journal_audit(pipeline->journal, answer_audit, pending, &err);
    if (rc < 0)
        answer_audit(pending, -1, &err);
}
