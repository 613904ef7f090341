/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread: keeps the lease, reads the keys of each run in its turn, and makes the step
 * that membership.h decides on. Whatever fails is tried again at the next turn.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "daemon/cluster/roster_priv.h"

#define NS_PER_MILLI UINT64_C(1000000)
#define NS_PER_SECOND UINT64_C(1000000000)
#define LOG_AGAIN_NS (60 * NS_PER_SECOND)

/* ---- texts of keys ---- */

static void key_of_generation(const struct stg_roster_run *run, char *buf)
{
    snprintf(buf, STG_ROSTER_KEY_BYTES + 16, "%sgeneration", run->dir);
}

static void key_of_host(const struct stg_roster_run *run, char *buf)
{
    snprintf(buf, STG_ROSTER_KEY_BYTES + STG_MEMBER_ID_BYTES + 16, "%shosts/%s", run->dir,
             run->own.id);
}

/* ---- reading ---- */

/* The keys of a run at one moment. */
struct keys {
    struct stg_generation generation;
    int64_t generation_revision; /* 0: there is no such key */
    int64_t own_revision, own_lease;
    struct stg_member *hosts;
    size_t n_hosts;
};

static void keys_finish(struct keys *keys)
{
    stg_generation_finish(&keys->generation);
    free(keys->hosts);
}

static void read_host(const struct stg_roster_run *run,
                      const struct stg_etcd_entry *entry, const char *id,
                      struct keys *keys)
{
    struct stg_err err = {0};
    if (strcmp(id, run->own.id) == 0) {
        keys->own_revision = entry->mod_revision;
        keys->own_lease = entry->lease;
    }
    if (stg_member_read(entry->value, entry->value_bytes, id, &keys->hosts[keys->n_hosts],
                        &err) == 0)
        keys->n_hosts++;
    else
        stg_log(STG_LOG_DEBUG, "pipeline %s: %s", run->pipeline, err.text);
}

static int read_range(const struct stg_roster_run *run,
                      const struct stg_etcd_range *range, struct keys *keys,
                      struct stg_err *err)
{
    size_t n = strlen(run->dir);
    keys->hosts = calloc(range->n + 1, sizeof(*keys->hosts));
    if (keys->hosts == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (size_t i = 0; i < range->n; i++) {
        const struct stg_etcd_entry *entry = &range->entries[i];
        const char *name = entry->key + n;
        if (strncmp(name, "hosts/", 6) == 0)
            read_host(run, entry, name + 6, keys);
        if (strcmp(name, "generation") != 0)
            continue;
        int rc =
            stg_generation_read(entry->value, entry->value_bytes, &keys->generation, err);
        if (rc < 0)
            return rc;
        keys->generation_revision = entry->mod_revision;
    }
    return 0;
}

static int read_keys(struct stg_roster *roster, const struct stg_roster_run *run,
                     struct keys *ret, struct stg_err *err)
{
    struct stg_etcd_range range;
    struct keys keys = {0};
    int rc = stg_etcd_get(roster->etcd, run->dir, true, &range, err);
    if (rc < 0)
        return rc;
    rc = read_range(run, &range, &keys, err);
    stg_etcd_range_finish(&range);
    if (rc < 0)
        keys_finish(&keys);
    else
        *ret = keys;
    return rc;
}

/* ---- what has changed for this host; under the lock ---- */

/* The clients that wait must open again; those of later looks wait on. */
static void refuse(struct stg_roster_run *run, const struct stg_err *why, uint64_t ready)
{
    run->refused = run->asked;
    run->refusal = *why;
    run->comes = false;
    run->own.ready = ready;
}

static void end_entry(struct stg_roster_run *run)
{
    const struct stg_generation *generation = &run->generation;
    if (generation->number == 0)
        stg_err(&run->over, -STAGER_ABORTED,
                "generation %" PRIu64 " of the hosts is not in etcd any more",
                run->in.number);
    else
        stg_err(&run->over, -STAGER_ABORTED,
                "%s: generation %" PRIu64 " of the hosts begins",
                generation->why[0] != '\0' ? generation->why : "the hosts have changed",
                generation->number);
    stg_log(STG_LOG_INFO, "pipeline %s: %s", run->pipeline, run->over.text);
    if (generation->number < run->in.number)
        run->own.ready = 0; /* etcd has lost its data: the numbers begin again */
    run->in = (struct stg_roster_entry){0};
}

/* A host whose clients are away is waited for while it is in a generation for as long as
 * a lost one, and longer while its trainers load a checkpoint. */
static void drop_unused(const struct stg_etcd_spec *spec, struct stg_roster_run *run)
{
    bool is_in = run->in.entry != 0 || run->own.ready == 0;
    uint64_t seconds = is_in ? spec->lease_seconds : spec->rejoin_seconds;
    if (stg_now_ns() - run->used_ns < seconds * NS_PER_SECOND || run->first != NULL)
        return;
    if (run->own.ready != 0)
        stg_log(STG_LOG_INFO, "pipeline %s: this host leaves: it has no clients",
                run->pipeline);
    run->own.ready = 0;
    run->comes = false;
    run->in = (struct stg_roster_entry){0};
}

/* Returns whether the generation was closed with this host, as it is now. */
static bool is_taken(const struct stg_roster_run *run)
{
    const struct stg_generation *generation = &run->generation;
    return generation->is_closed && run->own.ready == generation->number &&
           run->in.number != generation->number && run->own.begin == generation->begin &&
           stg_generation_find(generation, run->own.id) >= 0;
}

static void see(struct stg_roster *roster, struct stg_roster_run *run, struct keys *keys)
{
    stg_generation_finish(&run->generation);
    run->generation = keys->generation;
    keys->generation = (struct stg_generation){0};
    run->generation_revision = keys->generation_revision;
    bool is_mine = keys->own_lease == roster->lease;
    run->put_revision = is_mine ? keys->own_revision : 0;
    if (keys->own_revision != 0 && !is_mine)
        run->put.ready = 0; /* of an earlier lease: it is written again */
    if (run->in.entry != 0 && run->in.number != run->generation.number)
        end_entry(run);
    drop_unused(roster->config.etcd, run);
    uint64_t coming = stg_membership_coming(&run->generation);
    if (run->comes && !is_taken(run))
        run->own.ready = coming;
}

/* ---- commits ---- */

/* Reads the commits for clients that look, and finds out whether one was made since the
 * clients that wait have looked. The generation is open or later: no older one can
 * commit. */
static int look(struct stg_roster *roster, struct stg_roster_run *run,
                struct stg_err *err)
{
    struct stg_etcd_range range;
    struct stg_err late = {0};
    pthread_mutex_lock(&roster->lock);
    uint64_t asked = run->asked;
    bool checks =
        run->comes && !run->is_checked && run->generation.number >= run->own.ready;
    bool is_asked = run->answered < asked;
    pthread_mutex_unlock(&roster->lock);
    if (!checks && !is_asked)
        return 0;
    int rc = stg_etcd_get(roster->etcd, run->table, false, &range, err);
    if (rc < 0)
        return rc;
    int64_t revision = range.n > 0 ? range.entries[0].mod_revision : 0;
    pthread_mutex_lock(&roster->lock);
    if (checks && run->comes && revision != run->looked_revision) {
        stg_err(&late, -STAGER_ABORTED,
                "a commit was made since this client has opened: open again at the last "
                "commit");
        refuse(run, &late, run->own.ready - 1);
    }
    run->is_checked |= checks;
    run->answered = asked;
    run->text_revision = revision;
    free(run->text);
    run->text = NULL;
    run->text_bytes = 0;
    run->text = calloc(1, range.n > 0 ? range.entries[0].value_bytes + 1 : 1);
    if (run->text != NULL && range.n > 0) {
        run->text_bytes = range.entries[0].value_bytes;
        memcpy(run->text, range.entries[0].value, run->text_bytes);
    }
    pthread_mutex_unlock(&roster->lock);
    stg_etcd_range_finish(&range);
    roster->config.wake(roster->config.owner);
    return 0;
}

/* ---- the key of this host ---- */

/* Returns whether the key differs from what it is to be. Takes a copy for the text. */
static bool has_to_put(struct stg_roster *roster, struct stg_roster_run *run,
                       struct stg_member *ret)
{
    pthread_mutex_lock(&roster->lock);
    *ret = run->own;
    pthread_mutex_unlock(&roster->lock);
    if (ret->ready == 0)
        return run->put_revision != 0;
    return run->put_revision == 0 || ret->ready != run->put.ready ||
           ret->begin != run->put.begin || ret->pipeline != run->put.pipeline ||
           strcmp(ret->place, run->put.place) != 0;
}

static int take_lease(struct stg_roster *roster, struct stg_err *err)
{
    uint32_t seconds = roster->config.etcd->lease_seconds;
    if (roster->lease != 0)
        return 0;
    int rc = stg_etcd_grant(roster->etcd, seconds, &roster->lease, err);
    roster->renew_ns = stg_now_ns() + seconds * NS_PER_SECOND / 3;
    return rc;
}

static int put_own(struct stg_roster *roster, struct stg_roster_run *run,
                   struct stg_err *err)
{
    char key[STG_ROSTER_KEY_BYTES + STG_MEMBER_ID_BYTES + 16];
    char text[STG_MEMBER_TEXT_BYTES];
    struct stg_member own;
    bool done;
    int64_t revision;
    if (!has_to_put(roster, run, &own))
        return 0;
    int rc = own.ready != 0 ? take_lease(roster, err) : 0;
    if (rc < 0)
        return rc;
    key_of_host(run, key);
    struct stg_etcd_put put = {.key = key};
    if (own.ready != 0)
        put = (struct stg_etcd_put){.key = key,
                                    .value = text,
                                    .value_bytes = stg_member_write(&own, text),
                                    .lease = roster->lease};
    rc = stg_etcd_txn(roster->etcd, NULL, 0, &put, 1, &done, &revision, err);
    if (rc == -STAGER_NOT_FOUND)
        roster->lease = 0; /* another one is taken at the next turn */
    if (rc == 0) {
        run->put = own;
        run->put_revision = own.ready != 0 ? revision : 0;
    }
    return rc;
}

/* ---- steps ---- */

/* The generation was closed with this host. */
static void begin_entry(struct stg_roster *roster, struct stg_roster_run *run)
{
    const struct stg_generation *generation = &run->generation;
    pthread_mutex_lock(&roster->lock);
    bool begins = run->comes && run->is_checked && is_taken(run);
    if (begins) {
        run->comes = false;
        run->in_begin = generation->begin;
        run->in = (struct stg_roster_entry){
            .entry = ++roster->n_entries,
            .number = generation->number,
            .deal = {.n_hosts = generation->n,
                     .host = (uint32_t)stg_generation_find(generation, run->own.id)}};
    }
    pthread_mutex_unlock(&roster->lock);
    if (!begins)
        return;
    stg_log(STG_LOG_INFO,
            "pipeline %s: generation %" PRIu64 " of the hosts: this host is number %u of "
            "%u%s%s",
            run->pipeline, generation->number, run->in.deal.host, generation->n,
            generation->why[0] != '\0' ? ": " : "", generation->why);
    roster->config.wake(roster->config.owner);
}

static int write_generation(struct stg_roster *roster, struct stg_roster_run *run,
                            const struct stg_membership_view *view,
                            enum stg_membership_step step, const struct stg_err *why,
                            struct stg_err *err)
{
    char key[STG_ROSTER_KEY_BYTES + 16];
    struct stg_generation next;
    bool done;
    int64_t revision;
    size_t bytes;
    int rc = stg_membership_next(view, step, why, &next, err);
    if (rc < 0)
        return rc;
    char *text = stg_generation_write(&next, &bytes);
    stg_generation_finish(&next);
    if (text == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    key_of_generation(run, key);
    struct stg_etcd_compare compare = {.key = key,
                                       .mod_revision = run->generation_revision};
    struct stg_etcd_put put = {.key = key, .value = text, .value_bytes = bytes};
    rc = stg_etcd_txn(roster->etcd, &compare, 1, &put, 1, &done, &revision, err);
    free(text);
    return rc; /* done or not, the next turn reads it */
}

/* Clients that wait cannot come to a generation. */
static void give_up(struct stg_roster *roster, struct stg_roster_run *run,
                    const struct stg_err *why)
{
    pthread_mutex_lock(&roster->lock);
    if (run->comes)
        refuse(run, why, 0);
    pthread_mutex_unlock(&roster->lock);
    roster->config.wake(roster->config.owner);
}

static void note_wait(struct stg_roster *roster, struct stg_roster_run *run,
                      const struct stg_err *why)
{
    pthread_mutex_lock(&roster->lock);
    run->waits = *why;
    pthread_mutex_unlock(&roster->lock);
}

/* Returns 1 if a key was written. */
static int step(struct stg_roster *roster, struct stg_roster_run *run,
                const struct keys *keys, struct stg_err *err)
{
    struct stg_err why = {0};
    struct stg_membership_view view = {.generation = &run->generation,
                                       .hosts = keys->hosts,
                                       .n_hosts = keys->n_hosts,
                                       .now_millis = stg_now_ns() / NS_PER_MILLI};
    if (run->put_revision == 0)
        return 0; /* it watches alone */
    if (keys->n_hosts > STG_GENERATION_MAX_HOSTS) {
        stg_err(&why, -STAGER_RESOURCE_EXHAUSTED, "%zu hosts; cluster.etcd serves %u",
                keys->n_hosts, STG_GENERATION_MAX_HOSTS);
        give_up(roster, run, &why);
        return 0;
    }
    if (stg_membership_check(&view, &run->put, &why) < 0)
        give_up(roster, run, &why);
    enum stg_membership_step next = stg_membership_decide(&run->membership, &view, &why);
    if (next == STG_MEMBERSHIP_KEEP)
        note_wait(roster, run, &why);
    if (next == STG_MEMBERSHIP_REFUSE)
        give_up(roster, run, &why);
    if (next != STG_MEMBERSHIP_OPEN && next != STG_MEMBERSHIP_CLOSE)
        return 0;
    int rc = write_generation(roster, run, &view, next, &why, err);
    return rc < 0 ? rc : 1;
}

/* ---- a turn ---- */

/* Returns whether nothing is about to change. */
static bool is_quiet(const struct stg_roster_run *run, const struct keys *keys)
{
    const struct stg_generation *generation = &run->generation;
    bool is_quiet = generation->is_closed && keys->n_hosts == generation->n;
    for (size_t i = 0; is_quiet && i < keys->n_hosts; i++)
        is_quiet = keys->hosts[i].ready == generation->number;
    return is_quiet;
}

static uint64_t between(uint64_t value, uint64_t least, uint64_t most)
{
    return value < least ? least : value > most ? most : value;
}

static uint64_t pause_ns(const struct stg_etcd_spec *spec, bool is_quiet)
{
    return is_quiet ? between(spec->lease_seconds * NS_PER_SECOND / 4, 250 * NS_PER_MILLI,
                              2500 * NS_PER_MILLI)
                    : between(spec->steady_millis * NS_PER_MILLI / 4, 25 * NS_PER_MILLI,
                              500 * NS_PER_MILLI);
}

static struct stg_roster_job *take_job(struct stg_roster *roster,
                                       struct stg_roster_run *run)
{
    pthread_mutex_lock(&roster->lock);
    struct stg_roster_job *job = run->first;
    if (job != NULL)
        run->first = job->next;
    if (run->first == NULL)
        run->last = NULL;
    pthread_mutex_unlock(&roster->lock);
    return job;
}

static void end_job(struct stg_roster *roster, struct stg_roster_job *job)
{
    pthread_mutex_lock(&roster->lock);
    job->next = NULL;
    struct stg_roster_job **at = &roster->ended;
    while (*at != NULL)
        at = &(*at)->next;
    *at = job;
    pthread_mutex_unlock(&roster->lock);
    roster->config.wake(roster->config.owner);
}

static int visit(struct stg_roster *roster, struct stg_roster_run *run, bool *ret_quiet,
                 struct stg_err *err);

/* Makes the commits that wait. The first one that fails for want of etcd leaves the turn,
 * and the others fail with it. */
static void commit_all(struct stg_roster *roster, struct stg_roster_run *run, int rc,
                       const struct stg_err *why)
{
    struct stg_roster_job *job;
    bool is_quiet;
    while ((job = take_job(roster, run)) != NULL) {
        struct stg_err err = {0};
        if (rc < 0)
            job->err = *why;
        for (unsigned i = 0; rc == 0 && stg_roster_write(roster, run, job) == 1; i++) {
            if (visit(roster, run, &is_quiet, &err) < 0 || i == 16) {
                stg_err(&job->err, -STAGER_UNAVAILABLE,
                        "pipeline %s: other hosts commit at once, or the lease has just "
                        "expired: commit again%s%s",
                        run->pipeline, err.text[0] != '\0' ? ": " : "", err.text);
                break;
            }
        }
        end_job(roster, job);
    }
}

/* Reads the keys, and does what follows. */
static int visit(struct stg_roster *roster, struct stg_roster_run *run, bool *ret_quiet,
                 struct stg_err *err)
{
    struct keys keys;
    int rc = read_keys(roster, run, &keys, err);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&roster->lock);
    see(roster, run, &keys);
    pthread_mutex_unlock(&roster->lock);
    rc = look(roster, run, err);
    if (rc == 0)
        rc = put_own(roster, run, err);
    if (rc == 0)
        begin_entry(roster, run);
    if (rc == 0)
        rc = step(roster, run, &keys, err);
    *ret_quiet = rc == 0 && is_quiet(run, &keys);
    keys_finish(&keys);
    return rc;
}

/* Logs a problem at once, and again each minute. */
static void note_result(struct stg_roster *roster, struct stg_roster_run *run, int rc,
                        const struct stg_err *err)
{
    uint64_t now = stg_now_ns();
    pthread_mutex_lock(&roster->lock);
    bool had = run->problem.code < 0;
    if (rc < 0)
        run->problem = *err;
    else
        run->problem = (struct stg_err){0};
    pthread_mutex_unlock(&roster->lock);
    if (rc < 0 && (!had || now - run->logged_ns >= LOG_AGAIN_NS)) {
        run->logged_ns = now;
        stg_log(STG_LOG_WARNING, "pipeline %s: cluster.etcd: %s; the run goes on",
                run->pipeline, err->text);
    }
    if (rc == 0 && had)
        stg_log(STG_LOG_INFO, "pipeline %s: cluster.etcd answers again", run->pipeline);
    if (rc < 0)
        stg_membership_lose(&run->membership);
}

static void turn(struct stg_roster *roster, struct stg_roster_run *run)
{
    struct stg_err err = {0};
    bool is_quiet = false;
    int rc = visit(roster, run, &is_quiet, &err);
    bool is_written = rc == 1;
    rc = rc == -STAGER_NOT_FOUND ? 0 : rc; /* the lease: see put_own */
    note_result(roster, run, rc < 0 ? rc : 0, &err);
    commit_all(roster, run, rc < 0 ? rc : 0, &err);
    uint64_t due =
        is_written ? 0 : stg_now_ns() + pause_ns(roster->config.etcd, is_quiet);
    pthread_mutex_lock(&roster->lock);
    bool is_asked = rc >= 0 && (run->answered < run->asked || run->first != NULL);
    run->due_ns = is_asked ? 0 : due;
    run->is_over =
        run->own.ready == 0 && run->put_revision == 0 && run->first == NULL &&
        stg_now_ns() - run->used_ns > roster->config.etcd->lease_seconds * NS_PER_SECOND;
    bool is_over = run->is_over;
    pthread_mutex_unlock(&roster->lock);
    if (is_over)
        roster->config.wake(roster->config.owner);
}

/* ---- the lease ---- */

static void keep_lease(struct stg_roster *roster)
{
    uint32_t seconds = roster->config.etcd->lease_seconds;
    struct stg_err err = {0};
    if (roster->lease == 0 || stg_now_ns() < roster->renew_ns)
        return;
    int rc = stg_etcd_renew(roster->etcd, roster->lease, &seconds, &err);
    if (rc == -STAGER_NOT_FOUND) {
        stg_log(STG_LOG_WARNING, "the lease of this host in etcd has expired");
        roster->lease = 0;
        pthread_mutex_lock(&roster->lock);
        for (struct stg_roster_run *run = roster->runs; run != NULL; run = run->next)
            run->due_ns = 0; /* the keys are written again */
        pthread_mutex_unlock(&roster->lock);
    }
    roster->renew_ns = stg_now_ns() + (rc < 0 ? pause_ns(roster->config.etcd, false)
                                              : seconds * NS_PER_SECOND / 3);
}

/* ---- the thread ---- */

/* Returns the run whose turn is first; NULL: there is none. */
static struct stg_roster_run *find_first(const struct stg_roster *roster)
{
    struct stg_roster_run *first = NULL;
    for (struct stg_roster_run *run = roster->runs; run != NULL; run = run->next) {
        if (!run->is_over && (first == NULL || run->due_ns < first->due_ns))
            first = run;
    }
    return first;
}

static void wait_until(struct stg_roster *roster, uint64_t due)
{
    if (roster->lease != 0 && roster->renew_ns < due)
        due = roster->renew_ns;
    if (due == UINT64_MAX)
        pthread_cond_wait(&roster->cond, &roster->lock);
    else if (due > stg_now_ns())
        stg_clock_cond_wait(&roster->cond, &roster->lock, due);
}

void *stg_roster_main(void *arg)
{
    struct stg_roster *roster = arg;
    struct stg_err err = {0};
    pthread_mutex_lock(&roster->lock);
    while (!roster->is_leaving) {
        struct stg_roster_run *run = find_first(roster);
        bool is_due = run != NULL && run->due_ns <= stg_now_ns();
        pthread_mutex_unlock(&roster->lock);
        keep_lease(roster);
        if (is_due)
            turn(roster, run);
        pthread_mutex_lock(&roster->lock);
        if (!is_due && !roster->is_leaving) {
            run = find_first(roster);
            wait_until(roster, run != NULL ? run->due_ns : UINT64_MAX);
        }
    }
    pthread_mutex_unlock(&roster->lock);
    if (roster->lease != 0)
        (void)stg_etcd_revoke(roster->etcd, roster->lease, &err);
    return NULL;
}
