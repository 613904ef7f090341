/* SPDX-License-Identifier: Apache-2.0
 *
 * The side of the loop.
 */
#include "daemon/cluster/roster.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/record/line.h"
#include "daemon/cluster/roster_priv.h"
#include "daemon/journal/journal.h"

#define MAX_RUNS 256
#define NAME_BYTES 64
/* In a part of a key. */
#define KEY_STAYS STG_ALPHANUMERIC "_-."

/* ---- life ---- */

/* The name of the machine, and a number that is this daemon's alone. */
static void name_host(uint64_t instance, char *id)
{
    char name[NAME_BYTES] = "";
    if (gethostname(name, sizeof(name) - 1) < 0 || name[0] == '\0')
        snprintf(name, sizeof(name), "host");
    for (char *c = name; *c != '\0'; c++)
        *c = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                     (*c >= '0' && *c <= '9') || *c == '-' || *c == '.'
                 ? *c
                 : '-';
    snprintf(id, STG_MEMBER_ID_BYTES, "%s.%016" PRIx64, name, instance);
}

static const char *or_null(const char *text)
{
    return text[0] != '\0' ? text : NULL;
}

static int create_etcd(const struct stg_etcd_spec *spec, struct stg_etcd **ret,
                       struct stg_err *err)
{
    uint32_t timeout_millis = spec->steady_millis < 500    ? 500
                              : spec->steady_millis > 2000 ? 2000
                                                           : spec->steady_millis;
    const struct stg_etcd_settings settings = {
        .endpoints = (const char *const *)spec->endpoints,
        .n_endpoints = spec->n_endpoints,
        .user = or_null(spec->user),
        .password_file = or_null(spec->password_file),
        .ca_file = or_null(spec->ca_file),
        .cert_file = or_null(spec->cert_file),
        .key_file = or_null(spec->key_file),
        .timeout_millis = timeout_millis};
    return stg_etcd_create(&settings, ret, err);
}

int stg_roster_create(const struct stg_roster_config *config, struct stg_roster **ret,
                      struct stg_err *err)
{
    struct stg_roster *roster = calloc(1, sizeof(*roster));
    if (roster == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    roster->config = *config;
    name_host(config->instance, roster->id);
    pthread_mutex_init(&roster->lock, NULL);
    stg_clock_cond_init(&roster->cond);
    int rc = create_etcd(config->etcd, &roster->etcd, err);
    if (rc == 0 && pthread_create(&roster->thread, NULL, stg_roster_main, roster) != 0)
        rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "cluster.etcd: no thread");
    roster->has_thread = rc == 0;
    if (rc < 0) {
        stg_roster_destroy(roster);
        return rc;
    }
    *ret = roster;
    return 0;
}

void stg_roster_leave(struct stg_roster *roster)
{
    pthread_mutex_lock(&roster->lock);
    roster->is_leaving = true;
    pthread_cond_signal(&roster->cond);
    pthread_mutex_unlock(&roster->lock);
}

static void free_run(struct stg_roster_run *run)
{
    stg_commits_finish(&run->commits);
    stg_generation_finish(&run->generation);
    free(run->text);
    free(run);
}

static void end_jobs(struct stg_roster_job *job)
{
    while (job != NULL) {
        struct stg_roster_job *next = job->next;
        job->done(job->arg, &job->err);
        free(job->commit);
        free(job);
        job = next;
    }
}

void stg_roster_destroy(struct stg_roster *roster)
{
    if (roster == NULL)
        return;
    stg_roster_leave(roster);
    if (roster->has_thread)
        pthread_join(roster->thread, NULL);
    while (roster->runs != NULL) {
        struct stg_roster_run *run = roster->runs;
        roster->runs = run->next;
        for (struct stg_roster_job *job = run->first; job != NULL; job = job->next)
            stg_err(&job->err, -STAGER_UNAVAILABLE, "stagerd was stopped");
        end_jobs(run->first);
        free_run(run);
    }
    end_jobs(roster->ended);
    stg_etcd_destroy(roster->etcd);
    pthread_cond_destroy(&roster->cond);
    pthread_mutex_destroy(&roster->lock);
    free(roster);
}

/* ---- runs ---- */

static int name_keys(const struct stg_roster *roster, struct stg_roster_run *run)
{
    char job[3 * sizeof(run->job)], pipeline[3 * sizeof(run->pipeline)];
    const char *prefix = roster->config.etcd->prefix;
    stg_escape(run->job[0] != '\0' ? run->job : "-", KEY_STAYS, job);
    stg_escape(run->pipeline, KEY_STAYS, pipeline);
    int n = snprintf(run->dir, sizeof(run->dir), "%sruns/%s/%s/", prefix, job, pipeline);
    snprintf(run->table, sizeof(run->table), "%scommits/%s/%s", prefix, job, pipeline);
    return (size_t)n + STG_MEMBER_ID_BYTES + 8 < sizeof(run->dir) ? 0 : -1;
}

static struct stg_roster_run *find(struct stg_roster *roster,
                                   const struct stg_roster_key *key)
{
    struct stg_roster_run *run = roster->runs;
    while (run != NULL && (run->is_over || strcmp(run->pipeline, key->pipeline) != 0 ||
                           strcmp(run->job, key->job) != 0))
        run = run->next;
    return run;
}

static int make_run(struct stg_roster *roster, const struct stg_roster_key *key,
                    struct stg_roster_run **ret, struct stg_err *err)
{
    struct stg_roster_run *run =
        roster->n_runs < MAX_RUNS ? calloc(1, sizeof(*run)) : NULL;
    if (run == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                       "this stagerd has %d jobs whose hosts etcd has already: close "
                       "streams of other jobs, and try again",
                       MAX_RUNS);
    snprintf(run->job, sizeof(run->job), "%s", key->job);
    snprintf(run->pipeline, sizeof(run->pipeline), "%s", key->pipeline);
    snprintf(run->own.id, sizeof(run->own.id), "%s", roster->id);
    run->membership.steady_millis = roster->config.etcd->steady_millis;
    if (name_keys(roster, run) < 0) {
        free(run);
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "cluster.etcd.prefix is too long for the keys of pipeline %s",
                       key->pipeline);
    }
    run->next = roster->runs;
    roster->runs = run;
    roster->n_runs++;
    *ret = run;
    return 0;
}

/* Locks, and finds the run of a client that is there. */
static int lock_run(struct stg_roster *roster, const struct stg_roster_key *key,
                    struct stg_roster_run **ret, struct stg_err *err)
{
    pthread_mutex_lock(&roster->lock);
    *ret = find(roster, key);
    int rc = *ret != NULL ? 0 : make_run(roster, key, ret, err);
    if (rc == 0)
        (*ret)->used_ns = stg_now_ns();
    else
        pthread_mutex_unlock(&roster->lock);
    return rc;
}

static void hurry(struct stg_roster *roster, struct stg_roster_run *run)
{
    run->due_ns = 0;
    pthread_cond_signal(&roster->cond);
}

/* Returns 1: the client waits, because of that or of a problem. */
static int wait_for(const struct stg_roster_run *run, const char *what,
                    struct stg_err *err)
{
    if (run->problem.code < 0)
        *err = run->problem;
    else
        stg_err(err, -STAGER_UNAVAILABLE, "%s", what);
    return 1;
}

/* ---- commits that there are ---- */

static int read_table(struct stg_roster_run *run, struct stg_err *err)
{
    struct stg_commits_damage damage;
    if (run->text == NULL)
        return 0;
    stg_commits_finish(&run->commits);
    int rc = stg_commits_read(&run->commits, run->text, run->text_bytes, &damage, err);
    free(run->text);
    run->text = NULL;
    return rc;
}

int stg_roster_look(struct stg_roster *roster, const struct stg_roster_key *key,
                    uint64_t *look, const struct stg_commits **ret, struct stg_err *err)
{
    struct stg_roster_run *run;
    int rc = lock_run(roster, key, &run, err);
    if (rc < 0)
        return rc;
    if (*look == 0) {
        *look = ++run->asked;
        hurry(roster, run);
    }
    if (run->answered < *look)
        rc = wait_for(run, "etcd has not answered yet (cluster.etcd)", err);
    else
        rc = read_table(run, err);
    *ret = &run->commits;
    pthread_mutex_unlock(&roster->lock);
    return rc;
}

/* ---- the host in a generation ---- */

bool stg_roster_is_in(struct stg_roster *roster, const struct stg_roster_key *key,
                      uint64_t digest, struct stg_roster_entry *ret)
{
    pthread_mutex_lock(&roster->lock);
    const struct stg_roster_run *run = find(roster, key);
    bool is_in = run != NULL && run->in.entry != 0 && run->in_begin == digest;
    if (is_in)
        *ret = run->in;
    pthread_mutex_unlock(&roster->lock);
    return is_in;
}

/* The clients of a host begin at one state. Those that looked before a later commit are
 * refused when the first one comes that has seen it. */
static int come(struct stg_roster *roster, struct stg_roster_run *run, uint64_t look,
                const struct stg_roster_begin *begin, struct stg_err *err)
{
    if (run->comes && run->own.begin == begin->digest)
        return 0;
    if (run->comes && run->looked_revision == run->text_revision)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "this client begins at %s, and the other clients of this host at "
                       "%s: begin at the same commit or state",
                       begin->place, run->own.place);
    if (run->comes) {
        run->refused = look - 1;
        stg_err(&run->refusal, -STAGER_ABORTED,
                "a commit was made since: open again at the last commit");
    }
    run->comes = true;
    run->is_checked = false;
    run->looked_revision = run->text_revision;
    run->own.begin = begin->digest;
    run->own.pipeline = begin->pipeline;
    snprintf(run->own.place, sizeof(run->own.place), "%s", begin->place);
    run->waits.text[0] = '\0';
    hurry(roster, run);
    return 0;
}

int stg_roster_enter(struct stg_roster *roster, const struct stg_roster_key *key,
                     uint64_t look, const struct stg_roster_begin *begin,
                     struct stg_err *err)
{
    struct stg_roster_run *run;
    int rc = lock_run(roster, key, &run, err);
    if (rc < 0)
        return rc;
    if (look <= run->refused) {
        *err = run->refusal;
        rc = err->code;
    } else {
        rc = come(roster, run, look, begin, err);
    }
    if (rc == 0)
        rc = wait_for(run,
                      run->waits.text[0] != '\0' ? run->waits.text
                                                 : "the hosts of the job gather",
                      err);
    pthread_mutex_unlock(&roster->lock);
    return rc;
}

int stg_roster_hold(struct stg_roster *roster, const struct stg_roster_key *key,
                    uint64_t entry, struct stg_err *err)
{
    int rc = 0;
    pthread_mutex_lock(&roster->lock);
    struct stg_roster_run *run = find(roster, key);
    if (run != NULL && run->in.entry == entry)
        run->used_ns = stg_now_ns();
    else
        rc = stg_err(err, -STAGER_ABORTED, "%s: open the stream again at the last commit",
                     run != NULL && run->over.code != 0
                         ? run->over.text
                         : "this host has left the generation");
    pthread_mutex_unlock(&roster->lock);
    return rc;
}

/* ---- committing ---- */

static struct stg_roster_job *make_job(const struct stg_roster_commit *what)
{
    struct stg_commit head = {.time_ns = stg_journal_now_ns()};
    struct stg_roster_job *job = calloc(1, sizeof(*job));
    snprintf(head.tag, sizeof(head.tag), "%s", what->tag);
    snprintf(head.client, sizeof(head.client), "%s", what->client);
    struct stg_commit *commit = stg_commit_create(&head, what->state);
    if (job == NULL || commit == NULL) {
        free(job);
        free(commit);
        return NULL;
    }
    snprintf(job->lane, sizeof(job->lane), "%s", what->lane);
    job->entry = what->entry;
    job->commit = commit;
    job->done = what->done;
    job->arg = what->arg;
    return job;
}

int stg_roster_commit(struct stg_roster *roster, const struct stg_roster_commit *commit,
                      struct stg_err *err)
{
    struct stg_roster_run *run;
    struct stg_roster_job *job = make_job(commit);
    if (job == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    int rc = lock_run(roster, &commit->key, &run, err);
    if (rc < 0) {
        free(job->commit);
        free(job);
        return rc;
    }
    if (run->last != NULL)
        run->last->next = job;
    else
        run->first = job;
    run->last = job;
    hurry(roster, run);
    pthread_mutex_unlock(&roster->lock);
    return 0;
}

/* ---- sweeping ---- */

static struct stg_roster_run *take_over_runs(struct stg_roster *roster)
{
    struct stg_roster_run *taken = NULL;
    for (struct stg_roster_run **at = &roster->runs; *at != NULL;) {
        struct stg_roster_run *run = *at;
        if (!run->is_over) {
            at = &run->next;
            continue;
        }
        *at = run->next;
        run->next = taken;
        taken = run;
        roster->n_runs--;
    }
    return taken;
}

bool stg_roster_sweep(struct stg_roster *roster)
{
    pthread_mutex_lock(&roster->lock);
    struct stg_roster_job *jobs = roster->ended;
    roster->ended = NULL;
    struct stg_roster_run *runs = take_over_runs(roster);
    bool has_runs = roster->runs != NULL;
    pthread_mutex_unlock(&roster->lock);
    end_jobs(jobs);
    while (runs != NULL) {
        struct stg_roster_run *next = runs->next;
        free_run(runs);
        runs = next;
    }
    return has_runs;
}

void stg_roster_problem(struct stg_roster *roster, const struct stg_roster_key *key,
                        char *buf, size_t bytes)
{
    pthread_mutex_lock(&roster->lock);
    const struct stg_roster_run *run = find(roster, key);
    snprintf(buf, bytes, "%s",
             run != NULL && run->problem.code < 0 ? run->problem.text : "");
    pthread_mutex_unlock(&roster->lock);
}
