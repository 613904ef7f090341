/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/journal/journal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/log.h"
#include "daemon/host/share.h"
#include "daemon/journal/file.h"

/* Workers that write at once. A disk that hangs leaves the other ones of libuv to the
 * stages. */
#define MAX_WRITERS 2
/* Of a disk that hangs; more are left out, which the audit says. */
#define MAX_NOTES 64

/* A record that waits, or is written. */
struct journal_job {
    struct journal_job *next;
    char lane[STG_LANE_MAX_BYTES + 1];
    uint64_t attempt;
    enum { ATTEMPT, COMMIT, NOTE, AUDIT } kind;
    struct stg_commit *commit; /* COMMIT */
    uint64_t run;              /* COMMIT: for the audit */
    struct stg_audit_text note;
    void (*opened)(void *arg, int fd, const struct stg_err *err); /* AUDIT */
    void (*done)(void *arg, const struct stg_err *err);
    void *arg;
    struct stg_err err;
    int rc;    /* of the write */
    char *all; /* the text of the table before it; NULL: not needed yet */
    size_t n_all, n;
    char line[STG_COMMITS_LINE_BYTES];
};

struct stg_journal {
    struct stg_journal_config config;
    char name[65];
    uint32_t n_refs;
    struct stg_commits commits;
    struct stg_journal_file file;
    struct stg_err unreadable; /* code 0: the file was read */
    char problem[STG_ERR_TEXT_BYTES];
    struct stg_journal_counts counts;
    struct stg_share *share; /* on whose quota the files count; or NULL */
    uint64_t disk_bytes;     /* as counted there */
    uint32_t n_notes;        /* that wait */
    bool has_note_problem;   /* the last write of the audit failed, and was logged */
    struct journal_job *first, *last; /* the first one is at work if is_working */
    bool is_working;                  /* or it waits for a worker */
    struct stg_journal *next_waiting;
    uv_work_t work;
};

/* ---- life ---- */

static void destroy(struct stg_journal *journal)
{
    stg_commits_finish(&journal->commits);
    stg_journal_file_finish(&journal->file);
    free(journal);
}

int stg_journal_create(const struct stg_journal_config *config, struct stg_journal **ret,
                       struct stg_err *err)
{
    struct stg_journal *journal = calloc(1, sizeof(*journal));
    if (journal == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    int rc = stg_journal_file_init(&journal->file, config->state_dir, config->name, err);
    if (rc < 0) {
        free(journal);
        return rc;
    }
    journal->config = *config;
    snprintf(journal->name, sizeof(journal->name), "%s", config->name);
    journal->config.name = journal->name;
    journal->n_refs = 1;
    if (stg_journal_file_load(&journal->file, &journal->commits, &journal->unreadable) <
        0) {
        stg_commits_finish(&journal->commits); /* half a table must never be written */
        stg_log(STG_LOG_ERROR,
                "the commits of pipeline %s cannot be read, and none can be made until "
                "stagerd is restarted: %s",
                journal->name, journal->unreadable.text);
        snprintf(journal->problem, sizeof(journal->problem), "%s",
                 journal->unreadable.text);
    }
    uint64_t newest = stg_journal_file_newest(&journal->file);
    if (newest > journal->commits.attempt)
        journal->commits.attempt = newest;
    journal->disk_bytes = stg_journal_file_bytes(&journal->file);
    *ret = journal;
    return 0;
}

struct stg_journal *stg_journal_ref(struct stg_journal *journal)
{
    journal->n_refs++;
    return journal;
}

void stg_journal_unref(struct stg_journal *journal)
{
    if (journal != NULL && --journal->n_refs == 0)
        destroy(journal);
}

void stg_journal_remove(struct stg_journal *journal)
{
    stg_journal_file_remove(&journal->file);
}

int stg_journal_check(const struct stg_journal *journal, struct stg_err *err)
{
    if (journal->unreadable.code < 0 && err != NULL)
        *err = journal->unreadable;
    return journal->unreadable.code;
}

const struct stg_commits *stg_journal_commits(const struct stg_journal *journal)
{
    return &journal->commits;
}

struct stg_journal_counts stg_journal_count(const struct stg_journal *journal)
{
    return journal->counts;
}

const char *stg_journal_problem(const struct stg_journal *journal)
{
    return journal->problem;
}

bool stg_journal_is_busy(const struct stg_journal *journal)
{
    const struct journal_job *job = journal->first;
    while (job != NULL && job->commit == NULL)
        job = job->next;
    return job != NULL;
}

/* ---- judging ---- */

static int refuse_attempt(const struct stg_journal *journal, const struct stg_lane *lane,
                          const struct journal_job *job, struct stg_err *err)
{
    return stg_err(err, -STAGER_FAILED_PRECONDITION,
                   "pipeline %s: attempt %" PRIu64
                   " has begun, and this stream is of attempt %" PRIu64
                   ": it commits nothing more; another trainer has taken over",
                   journal->name, lane->attempt, job->attempt);
}

static int refuse_forgotten(const struct stg_journal *journal,
                            const struct journal_job *job, struct stg_err *err)
{
    return stg_err(
        err, -STAGER_FAILED_PRECONDITION,
        "pipeline %s: the attempt of client %s is forgotten, because more than "
        "%d other clients were opened since: open the stream again, and commit "
        "again",
        journal->name, job->lane, STG_COMMITS_NAMES - STG_COMMITS_LANES);
}

static int refuse_tag(const struct stg_journal *journal, const struct stg_commit *there,
                      const struct journal_job *job, struct stg_err *err)
{
    struct stg_state old, new;
    const char *key = "state";
    if (stg_state_read(there->state, strlen(there->state), &old, NULL) == 0 &&
        stg_state_read(job->commit->state, strlen(job->commit->state), &new, NULL) == 0)
        key = stg_state_differs(&old, &new);
    return stg_err(err, -STAGER_ALREADY_EXISTS,
                   "pipeline %s: tag %s was committed in this attempt by %s at pass "
                   "%" PRIu64 ", position %" PRIu64 ", and this state is of pass %" PRIu64
                   ", position %" PRIu64
                   " (%s differs): use a new tag for each checkpoint",
                   journal->name, there->tag, there->client, there->pass, there->position,
                   job->commit->pass, job->commit->position, key);
}

/* Returns 1 if the record has to be written, 0 if the commit is on disk already. */
static int judge(const struct stg_journal *journal, const struct journal_job *job,
                 struct stg_err *err)
{
    if (job->kind == NOTE || job->kind == AUDIT)
        return job->kind == NOTE;
    const struct stg_lane *lane = stg_commits_find(&journal->commits, job->lane);
    if (job->commit == NULL)
        return lane != NULL && lane->n > 0;
    if (lane == NULL) /* a later attempt may be forgotten as well */
        return job->lane[0] == '\0' ? 1 : refuse_forgotten(journal, job, err);
    if (job->attempt < lane->attempt)
        return refuse_attempt(journal, lane, job, err);
    const struct stg_commit *there = stg_lane_find(lane, job->commit->tag);
    if (there == NULL || there->attempt != job->attempt)
        return 1;
    return strcmp(there->state, job->commit->state) == 0
               ? 0
               : refuse_tag(journal, there, job, err);
}

/* ---- the quota of disk ---- */

void stg_journal_count_on(struct stg_journal *journal, struct stg_share *share)
{
    if (journal == NULL)
        return;
    stg_share_give(journal->share, STG_QUOTA_DISK, journal->disk_bytes);
    stg_share_add(share, STG_QUOTA_DISK, journal->disk_bytes);
    journal->share = share;
}

/* Takes what a record adds. A new attempt is a few bytes that a run cannot do without. */
static int take_disk(struct stg_journal *journal, struct journal_job *job)
{
    uint64_t n = job->kind == NOTE ? job->note.n : job->n;
    int rc = 0;
    if (job->kind == ATTEMPT)
        stg_share_add(journal->share, STG_QUOTA_DISK, n);
    else
        rc = stg_share_take(journal->share, STG_QUOTA_DISK, n, &job->err);
    if (rc < 0)
        return stg_err_prefix(&job->err, rc, "pipeline %s", journal->name);
    journal->disk_bytes += n;
    return 0;
}

/* A record was written, or was not; a file that has become long was shortened. */
static void count_disk(struct stg_journal *journal)
{
    stg_share_give(journal->share, STG_QUOTA_DISK, journal->disk_bytes);
    journal->disk_bytes = stg_journal_file_bytes(&journal->file);
    stg_share_add(journal->share, STG_QUOTA_DISK, journal->disk_bytes);
}

/* ---- writing ---- */

static void start(struct stg_journal *journal);

static void write_record(uv_work_t *work)
{
    struct stg_journal *journal = work->data;
    struct journal_job *job = journal->first;
    if (job->kind == NOTE) {
        job->rc = stg_journal_file_note(&journal->file, job->note.bytes, job->note.n,
                                        &job->err);
        return;
    }
    job->rc = stg_journal_file_write(&journal->file, job->line, job->n, job->all,
                                     job->n_all, &job->err);
}

/* Logs a problem once, however often the trainer commits again. */
static void note_result(struct stg_journal *journal, const struct stg_err *err)
{
    if (err->code < 0 && strcmp(journal->problem, err->text) != 0)
        stg_log(STG_LOG_WARNING, "pipeline %s: %s", journal->name, err->text);
    snprintf(journal->problem, sizeof(journal->problem), "%s",
             err->code < 0 ? err->text : "");
}

/* Training goes on; the audit says that lines are missing. */
static void note_audit_result(struct stg_journal *journal, const struct stg_err *err)
{
    bool is_new = err->code < 0 && !journal->has_note_problem;
    journal->has_note_problem = err->code < 0;
    if (is_new)
        stg_log(STG_LOG_WARNING, "pipeline %s: %s", journal->name, err->text);
}

static void note_any_result(struct stg_journal *journal, const struct journal_job *job)
{
    if (job->kind == NOTE)
        note_audit_result(journal, &job->err);
    else
        note_result(journal, &job->err);
}

static void open_audit(struct stg_journal *journal, const struct journal_job *job)
{
    struct stg_err err = {0};
    int fd = -1;
    if (stg_journal_file_open_audit(&journal->file, &fd, &err) < 0)
        stg_err_prefix(&err, err.code, "pipeline %s", journal->name);
    job->opened(job->arg, fd, &err);
}

/* Takes the first job off the queue and answers it. */
static void answer(struct stg_journal *journal)
{
    struct journal_job *job = journal->first;
    journal->first = job->next;
    if (journal->first == NULL)
        journal->last = NULL;
    journal->counts.n_commits += job->kind == COMMIT && job->err.code == 0;
    journal->counts.n_failed += job->kind == COMMIT && job->err.code != 0;
    if (job->kind == AUDIT)
        open_audit(journal, job);
    else if (job->done != NULL)
        job->done(job->arg, &job->err);
    journal->n_notes -= job->kind == NOTE;
    free(job->commit);
    free(job->note.bytes);
    free(job->all);
    free(job);
}

static void enqueue(struct stg_journal *journal, struct journal_job *job);

/* The audit has a line for it, once it is on disk. */
static void note_commit(struct stg_journal *journal, const struct journal_job *job)
{
    static struct stg_state state; /* the loop is one thread */
    struct stg_audit_text text = {0};
    const char *state_text = job->commit->state;
    if (job->run == 0 || stg_state_read(state_text, strlen(state_text), &state, NULL) < 0)
        return;
    stg_audit_write_commit(
        &text, &(struct stg_audit_commit){.run = job->run,
                                          .attempt = job->commit->attempt,
                                          .time_ns = job->commit->time_ns,
                                          .tag = job->commit->tag,
                                          .point = stg_audit_point_of(&state)});
    stg_journal_note(journal, &text);
}

/* Puts a commit that is on disk into the table. */
static void take_over(struct stg_journal *journal, struct journal_job *job)
{
    struct stg_lane *lane = stg_commits_lane(&journal->commits, job->lane);
    if (lane == NULL) { /* it was forgotten meanwhile */
        journal->file.must_rewrite = true;
        stg_err(&job->err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    note_commit(journal, job);
    stg_lane_put(&journal->commits, lane, job->commit);
    job->commit = NULL;
}

static void wrote_record(uv_work_t *work, int status);

static void begin_work(struct stg_journal *journal)
{
    journal->config.writers->n++;
    uv_queue_work(journal->config.loop, &journal->work, write_record, wrote_record);
}

/* Writes the first job, at once or in its turn. */
static void write_first(struct stg_journal *journal)
{
    struct stg_journal_writers *writers = journal->config.writers;
    journal->is_working = true;
    journal->n_refs++;
    journal->work.data = journal;
    journal->next_waiting = NULL;
    if (writers->n < MAX_WRITERS) {
        begin_work(journal);
        return;
    }
    if (writers->last != NULL)
        writers->last->next_waiting = journal;
    else
        writers->first = journal;
    writers->last = journal;
}

/* The next journal has the worker. */
static void end_work(struct stg_journal_writers *writers)
{
    struct stg_journal *next = writers->first;
    writers->n--;
    if (next == NULL)
        return;
    writers->first = next->next_waiting;
    if (writers->first == NULL)
        writers->last = NULL;
    begin_work(next);
}

/* Returns whether the job is written again, with the text of the table. */
static bool write_again(struct stg_journal *journal, struct journal_job *job)
{
    if (job->rc != 1)
        return false;
    job->all = stg_commits_write(&journal->commits, &job->n_all);
    if (job->all == NULL)
        stg_err(&job->err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    else
        write_first(journal);
    return job->all != NULL;
}

static void wrote_record(uv_work_t *work, int status)
{
    struct stg_journal *journal = work->data;
    struct journal_job *job = journal->first;
    journal->is_working = false;
    end_work(journal->config.writers);
    if (!write_again(journal, job)) {
        count_disk(journal);
        note_any_result(journal, job);
        if (job->err.code == 0 && job->commit != NULL)
            take_over(journal, job);
        answer(journal);
        start(journal);
        journal->config.changed(journal->config.owner);
    }
    stg_journal_unref(journal);
}

static void fill_line(struct journal_job *job)
{
    if (job->kind == NOTE)
        return;
    job->n = job->commit != NULL
                 ? stg_commits_write_commit(job->lane, job->commit, job->line)
                 : stg_commits_write_attempt(job->lane, job->attempt, job->line);
}

/* Judges jobs until one has to be written. */
static void start(struct stg_journal *journal)
{
    while (journal->first != NULL && !journal->is_working) {
        struct journal_job *job = journal->first;
        if (judge(journal, job, &job->err) != 1) {
            answer(journal);
            continue;
        }
        fill_line(job);
        if (take_disk(journal, job) == 0) {
            write_first(journal);
        } else {
            note_any_result(journal, job);
            answer(journal);
        }
    }
}

static void enqueue(struct stg_journal *journal, struct journal_job *job)
{
    if (journal->last != NULL)
        journal->last->next = job;
    else
        journal->first = job;
    journal->last = job;
    if (journal->first == job)
        start(journal);
}

/* ---- entry points ---- */

/* Returns the attempt of that lane that waits, and is not in a line yet; NULL: none. */
static struct journal_job *find_attempt(const struct stg_journal *journal,
                                        const char *lane)
{
    struct journal_job *job = journal->first;
    if (job != NULL && journal->is_working)
        job = job->next;
    while (job != NULL && (job->kind != ATTEMPT || strcmp(job->lane, lane) != 0))
        job = job->next;
    return job;
}

uint64_t stg_journal_begin(struct stg_journal *journal, const char *name)
{
    struct stg_lane *lane = stg_commits_lane(&journal->commits, name);
    if (lane == NULL)
        return 0;
    uint64_t attempt = stg_lane_begin(&journal->commits, lane);
    struct journal_job *job = find_attempt(journal, name);
    if (job != NULL) { /* commits behind it are of this attempt, or are refused */
        job->attempt = attempt;
        return attempt;
    }
    job = lane->n > 0 ? calloc(1, sizeof(*job)) : NULL;
    if (job != NULL) {
        snprintf(job->lane, sizeof(job->lane), "%s", name);
        job->attempt = attempt;
        enqueue(journal, job);
    }
    return attempt;
}

uint64_t stg_journal_continue(struct stg_journal *journal, const char *name,
                              uint64_t attempt)
{
    struct stg_lane *lane = stg_commits_lane(&journal->commits, name);
    if (lane == NULL || lane->attempt > attempt)
        return 0;
    lane->attempt = attempt;
    stg_journal_raise(journal, attempt);
    return attempt;
}

void stg_journal_raise(struct stg_journal *journal, uint64_t attempt)
{
    if (attempt > journal->commits.attempt)
        journal->commits.attempt = attempt;
}

uint64_t stg_journal_number(struct stg_journal *journal)
{
    return ++journal->commits.attempt;
}

void stg_journal_note(struct stg_journal *journal, struct stg_audit_text *text)
{
    bool has_room = text->n > 0 && journal->n_notes < MAX_NOTES;
    struct journal_job *job = has_room ? calloc(1, sizeof(*job)) : NULL;
    if (job == NULL) {
        free(text->bytes);
        return;
    }
    journal->n_notes++;
    job->kind = NOTE;
    job->note = *text;
    enqueue(journal, job);
}

int stg_journal_audit(struct stg_journal *journal,
                      void (*done)(void *arg, int fd, const struct stg_err *err),
                      void *arg, struct stg_err *err)
{
    struct journal_job *job = calloc(1, sizeof(*job));
    if (job == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    job->kind = AUDIT;
    job->opened = done;
    job->arg = arg;
    enqueue(journal, job);
    return 0;
}

uint64_t stg_journal_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

int stg_journal_commit(struct stg_journal *journal,
                       const struct stg_journal_request *request, struct stg_err *err)
{
    int rc = stg_journal_check(journal, err);
    if (rc < 0)
        return rc;
    struct journal_job *job = calloc(1, sizeof(*job));
    struct stg_commit head = {.attempt = request->attempt,
                              .time_ns = stg_journal_now_ns()};
    snprintf(head.tag, sizeof(head.tag), "%s", request->tag);
    snprintf(head.client, sizeof(head.client), "%s", request->client);
    struct stg_commit *commit = stg_commit_create(&head, request->state);
    if (job == NULL || commit == NULL) {
        free(job);
        free(commit);
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    }
    snprintf(job->lane, sizeof(job->lane), "%s", request->lane);
    job->attempt = request->attempt;
    job->kind = COMMIT;
    job->commit = commit;
    job->run = request->run;
    job->done = request->done;
    job->arg = request->arg;
    enqueue(journal, job);
    return 0;
}
