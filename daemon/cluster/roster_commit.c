/* SPDX-License-Identifier: Apache-2.0
 *
 * Commits: the table of a run is one key. A transaction writes it if the generation, the
 * key of this host and the table are as they were read.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cluster/roster_priv.h"

static int refuse_entry(const struct stg_roster_run *run, struct stg_err *err)
{
    return stg_err(err, -STAGER_ABORTED,
                   "pipeline %s: %s: this stream commits nothing more: open it again at "
                   "the last commit",
                   run->pipeline,
                   run->over.code != 0 ? run->over.text
                                       : "this host has left the generation");
}

static int refuse_tag(const struct stg_roster_run *run, const struct stg_commit *there,
                      const struct stg_commit *commit, struct stg_err *err)
{
    return stg_err(err, -STAGER_ALREADY_EXISTS,
                   "pipeline %s: tag %s was committed in this generation by %s at pass "
                   "%" PRIu64 ", position %" PRIu64 ", and this state is of pass %" PRIu64
                   ", position %" PRIu64 ": use a new tag for each checkpoint",
                   run->pipeline, there->tag, there->client, there->pass, there->position,
                   commit->pass, commit->position);
}

/* Makes the next table. Returns 1: the commit is there already. */
static int next_table(const struct stg_roster_run *run,
                      const struct stg_etcd_range *range, struct stg_roster_job *job,
                      char **ret, size_t *ret_bytes)
{
    struct stg_commits commits = {0};
    struct stg_commits_damage damage;
    struct stg_state state;
    struct stg_commit *commit = NULL;
    int rc = range->n == 0
                 ? 0
                 : stg_commits_read(&commits, range->entries[0].value,
                                    range->entries[0].value_bytes, &damage, &job->err);
    struct stg_lane *lane = rc == 0 ? stg_commits_lane(&commits, job->lane) : NULL;
    if (rc == 0 && lane != NULL) {
        const struct stg_commit *there = stg_lane_find(lane, job->commit->tag);
        bool is_there = there != NULL && there->attempt == job->commit->attempt;
        if (is_there)
            rc = strcmp(there->state, job->commit->state) == 0
                     ? 1
                     : refuse_tag(run, there, job->commit, &job->err);
    }
    if (rc == 0 && lane != NULL &&
        stg_state_read(job->commit->state, strlen(job->commit->state), &state, NULL) == 0)
        commit = stg_commit_create(job->commit, &state);
    if (commit != NULL) {
        commit->next = NULL;
        stg_lane_put(&commits, lane, commit);
        *ret = stg_commits_write(&commits, ret_bytes);
    }
    if (rc == 0 && (commit == NULL || *ret == NULL))
        rc = stg_err(&job->err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    stg_commits_finish(&commits);
    return rc;
}

static int write_table(struct stg_roster *roster, const struct stg_roster_run *run,
                       const struct stg_etcd_range *range, struct stg_roster_job *job)
{
    char generation[STG_ROSTER_KEY_BYTES + 16];
    char host[STG_ROSTER_KEY_BYTES + STG_MEMBER_ID_BYTES + 16];
    char *text = NULL;
    size_t bytes = 0;
    bool done;
    int64_t revision;
    int rc = next_table(run, range, job, &text, &bytes);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    snprintf(generation, sizeof(generation), "%sgeneration", run->dir);
    snprintf(host, sizeof(host), "%shosts/%s", run->dir, run->own.id);
    const struct stg_etcd_compare compares[] = {
        {.key = generation, .mod_revision = run->generation_revision},
        {.key = host, .mod_revision = run->put_revision},
        {.key = run->table,
         .mod_revision = range->n > 0 ? range->entries[0].mod_revision : 0}};
    const struct stg_etcd_put put = {
        .key = run->table, .value = text, .value_bytes = bytes};
    rc = stg_etcd_txn(roster->etcd, compares, 3, &put, 1, &done, &revision, &job->err);
    free(text);
    return rc < 0 ? rc : !done;
}

int stg_roster_write(struct stg_roster *roster, struct stg_roster_run *run,
                     struct stg_roster_job *job)
{
    struct stg_etcd_range range;
    pthread_mutex_lock(&roster->lock);
    bool is_in = run->in.entry == job->entry;
    uint64_t number = run->in.number;
    if (!is_in)
        refuse_entry(run, &job->err);
    pthread_mutex_unlock(&roster->lock);
    if (!is_in)
        return job->err.code;
    if (run->put_revision == 0)
        return 1;
    job->commit->attempt = number;
    int rc = stg_etcd_get(roster->etcd, run->table, false, &range, &job->err);
    if (rc < 0)
        return stg_err_prefix(&job->err, rc, "pipeline %s", run->pipeline);
    rc = write_table(roster, run, &range, job);
    stg_etcd_range_finish(&range);
    if (rc < 0 && job->err.code != -STAGER_ALREADY_EXISTS)
        stg_err_prefix(&job->err, rc, "pipeline %s", run->pipeline);
    return rc;
}
