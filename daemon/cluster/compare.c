/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/cluster/compare.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/fingerprint.h"
#include "daemon/host/text_file.h"

#define FIRST_PAUSE_MILLIS 10
#define LONGEST_PAUSE_MILLIS 500
#define OLD_SECONDS 86400

struct meeting {
    const struct stg_comparing *comparing;
    const struct stg_compared *compared;
    char prefix[96]; /* of the names of all notes of the job */
    char name[128];  /* of the own one */
    char before[96]; /* prefix of all notes of the pipeline */
    time_t written;  /* when the own note was, by the clock of the folder */
    struct stg_host_note own;
    struct stg_host_note *notes; /* of the others, as they were read last */
    char (*names)[128];          /* of their files */
    size_t n;
    char *text; /* STG_LIST_BYTES */
};

/* ---- files of the folder ---- */

static int path_of(const struct meeting *meeting, const char *name, const char *suffix,
                   char ret[4096], struct stg_err *err)
{
    int n = snprintf(ret, 4096, "%s/%s%s", meeting->comparing->dir, name, suffix);
    return n < 4096 ? 0
                    : stg_err(err, -STAGER_INVALID_ARGUMENT,
                              "cluster.compare_dir: the path is too long");
}

static int refuse_write(const char *path, int reason, struct stg_err *err)
{
    int code = reason == EACCES || reason == EPERM || reason == EROFS
                   ? -STAGER_PERMISSION_DENIED
               : reason == ENOSPC || reason == EDQUOT ? -STAGER_RESOURCE_EXHAUSTED
                                                      : -STAGER_UNAVAILABLE;
    return stg_err(err, code, "%s: hosts cannot be compared: %s (cluster.compare_dir)",
                   path, strerror(reason));
}

static bool write_all(int fd, const char *text, size_t bytes)
{
    size_t at = 0;
    while (at < bytes) {
        ssize_t n = write(fd, text + at, bytes - at);
        if (n < 0)
            return false;
        at += (size_t)n;
    }
    return true;
}

/* Other hosts may run stagerd as another user: they read, and nothing else. */
static int write_file(struct meeting *meeting, const char *suffix, size_t bytes,
                      struct stg_err *err)
{
    char path[4096], temporary[4096];
    struct stat st;
    int rc = path_of(meeting, meeting->name, suffix, path, err);
    if (rc == 0)
        rc = path_of(meeting, meeting->name, ".tmp", temporary, err);
    if (rc < 0)
        return rc;
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return refuse_write(temporary, errno, err);
    bool ok = fchmod(fd, 0644) == 0 && write_all(fd, meeting->text, bytes);
    ok = fstat(fd, &st) == 0 && ok;
    int reason = errno;
    ok = close(fd) == 0 && ok; /* NFS writes at the close */
    if (ok && rename(temporary, path) == 0) {
        meeting->written = st.st_mtime;
        return 0;
    }
    reason = ok ? errno : reason;
    unlink(temporary);
    return refuse_write(path, reason, err);
}

static int write_note(struct meeting *meeting, struct stg_err *err)
{
    size_t bytes = stg_host_note_write(&meeting->own, meeting->text);
    return write_file(meeting, ".note", bytes, err);
}

static bool ends_with(const char *name, const char *suffix)
{
    size_t n = strlen(name), m = strlen(suffix);
    return n >= m && strcmp(name + n - m, suffix) == 0;
}

/* A note that does not parse is none: it may be of another release. */
static int read_note(struct meeting *meeting, const char *name, struct stg_err *err)
{
    char path[4096], *text;
    struct stat st;
    size_t bytes;
    struct stg_host_note note;
    int rc = path_of(meeting, name, "", path, err);
    if (rc < 0 || stg_text_file_read(path, STG_NOTE_BYTES, &st, &text, &bytes, NULL) < 0)
        return rc;
    rc = strlen(text) == bytes ? stg_host_note_read(text, &note)
                               : -STAGER_INVALID_ARGUMENT;
    free(text);
    if (rc == -STAGER_RESOURCE_EXHAUSTED)
        return stg_err(err, rc, "out of memory");
    if (rc < 0)
        return 0;
    snprintf(meeting->names[meeting->n], sizeof(meeting->names[0]), "%.*s",
             (int)(strlen(name) - strlen(".note")), name);
    meeting->notes[meeting->n++] = note;
    return 0;
}

static void remove_old(struct meeting *meeting, const char *name)
{
    char path[4096];
    struct stat st;
    if (path_of(meeting, name, "", path, NULL) == 0 && lstat(path, &st) == 0 &&
        S_ISREG(st.st_mode) && meeting->written - st.st_mtime > OLD_SECONDS)
        unlink(path);
}

static void drop_notes(struct meeting *meeting)
{
    while (meeting->n > 0)
        stg_host_note_finish(&meeting->notes[--meeting->n]);
}

/* Stale notes beyond the room are left out: those of hosts that run take their place once
 * they are a day old. */
static int read_notes(struct meeting *meeting, struct stg_err *err)
{
    DIR *dir = opendir(meeting->comparing->dir);
    int rc = 0;
    if (dir == NULL)
        return refuse_write(meeting->comparing->dir, errno, err);
    drop_notes(meeting);
    for (const struct dirent *entry; rc == 0 && (entry = readdir(dir)) != NULL;) {
        const char *name = entry->d_name;
        size_t n = strlen(meeting->name);
        bool is_own = strncmp(name, meeting->name, n) == 0 && name[n] == '.';
        if (is_own || strncmp(name, meeting->before, strlen(meeting->before)) != 0)
            continue;
        remove_old(meeting, name);
        if (strncmp(name, meeting->prefix, strlen(meeting->prefix)) == 0 &&
            ends_with(name, ".note") && meeting->n < STG_NOTE_MAX_HOSTS)
            rc = read_note(meeting, name, err);
    }
    closedir(dir);
    return rc;
}

/* ---- which hosts are there ---- */

static bool is_fresh(const struct meeting *meeting, const struct stg_host_note *note)
{
    return stg_host_note_has_seen(note, meeting->own.draw);
}

/* Returns the note of a host that runs now: the own one, or one that has seen it. */
static const struct stg_host_note *find(const struct meeting *meeting, uint32_t number)
{
    if (number == meeting->own.number)
        return &meeting->own;
    for (size_t i = 0; i < meeting->n; i++) {
        if (meeting->notes[i].number == number && is_fresh(meeting, &meeting->notes[i]))
            return &meeting->notes[i];
    }
    return NULL;
}

/* Returns whether the notes are other ones than the own note repeats. */
static bool see(struct meeting *meeting)
{
    bool is_new = meeting->n != meeting->own.n_seen;
    for (size_t i = 0; i < meeting->n; i++)
        is_new |= !stg_host_note_has_seen(&meeting->own, meeting->notes[i].draw);
    meeting->own.n_seen = meeting->n;
    for (size_t i = 0; i < meeting->n; i++)
        meeting->own.seen[i] = meeting->notes[i].draw;
    return is_new;
}

static int check_numbers(const struct meeting *meeting, struct stg_err *err)
{
    const char *pipeline = meeting->compared->pipeline;
    for (size_t i = 0; i < meeting->n; i++) {
        const struct stg_host_note *note = &meeting->notes[i];
        if (!is_fresh(meeting, note))
            continue;
        if (note->n_hosts != meeting->own.n_hosts)
            return stg_err(err, -STAGER_FAILED_PRECONDITION,
                           "pipeline %s: host %s is number %u of %u, and host %s number "
                           "%u of %u: give the ranks of one job on all hosts, or each "
                           "job its name (job)",
                           pipeline, meeting->own.host, meeting->own.number,
                           meeting->own.n_hosts, note->host, note->number, note->n_hosts);
        const struct stg_host_note *first = find(meeting, note->number);
        if (first != note)
            return stg_err(err, -STAGER_FAILED_PRECONDITION,
                           "pipeline %s: hosts %s and %s are both number %u of %u: give "
                           "each host its own ranks, or each job its name (job)",
                           pipeline, first->host, note->host, note->number,
                           note->n_hosts);
    }
    return 0;
}

/* Returns the first number without a host; n_hosts: all are there. */
static uint32_t find_absent(const struct meeting *meeting)
{
    uint32_t number = 0;
    while (number < meeting->own.n_hosts && find(meeting, number) != NULL)
        number++;
    return number;
}

/* ---- what differs ---- */

/* Both hosts; host 0 comes first, so that all hosts name the same two. */
static int refuse(const struct meeting *meeting, const struct stg_host_note *a,
                  const struct stg_host_note *b, const char *what, struct stg_err *err)
{
    return stg_err(err, -STAGER_FAILED_PRECONDITION,
                   "pipeline %s: %s: host %u (%s) and host %u (%s) differ: apply the "
                   "same pipeline over the same files on all hosts",
                   meeting->compared->pipeline, what, a->number, a->host, b->number,
                   b->host);
}

static size_t n_marks(const struct stg_host_note *note)
{
    return (size_t)(note->n_files / note->span + (note->n_files % note->span != 0));
}

/* Returns how many marks there are; 0: they cannot be read. */
static size_t read_marks(struct meeting *meeting, const struct stg_host_note *note,
                         struct stg_file_mark *ret)
{
    char path[4096], *text;
    struct stat st;
    size_t bytes, i = (size_t)(note - meeting->notes);
    if (note == &meeting->own) {
        memcpy(ret, meeting->compared->marks, n_marks(note) * sizeof(*ret));
        return n_marks(note);
    }
    if (path_of(meeting, meeting->names[i], ".files", path, NULL) < 0 ||
        stg_text_file_read(path, STG_LIST_BYTES, &st, &text, &bytes, NULL) < 0)
        return 0;
    int n = stg_file_marks_read(text, note->draw, ret);
    free(text);
    return n < 0 ? 0 : (size_t)n;
}

static void name_file(const struct meeting *meeting, const struct stg_host_note *a,
                      const struct stg_host_note *b, const struct stg_file_mark *of_a,
                      const struct stg_file_mark *of_b, size_t i, char *what,
                      size_t bytes)
{
    const struct stg_compared *own = meeting->compared;
    const struct stg_file_mark *mark = i < n_marks(&meeting->own) ? &own->marks[i] : NULL;
    bool is_known = mark != NULL && ((of_a != NULL && mark->name == of_a->name) ||
                                     (of_b != NULL && mark->name == of_b->name));
    char shown[256], sizes[128] = "";
    uint64_t at = i * a->span;
    if (is_known)
        snprintf(shown, sizeof(shown), "%.200s (file %" PRIu64 ")",
                 own->file(own->owner, at), at + 1);
    else
        snprintf(shown, sizeof(shown), "file %" PRIu64, at + 1);
    if (of_a == NULL || of_b == NULL)
        snprintf(sizes, sizeof(sizes),
                 " is missing on one of them (%" PRIu64 " and %" PRIu64 " files)",
                 a->n_files, b->n_files);
    else if (of_a->name == of_b->name)
        snprintf(sizes, sizeof(sizes), " has %" PRIu64 " and %" PRIu64 " bytes",
                 of_a->bytes, of_b->bytes);
    else
        snprintf(sizes, sizeof(sizes), " is another one");
    if (a->span > 1)
        snprintf(what, bytes, "%s, or one of the %" PRIu64 " behind it", shown,
                 a->span - 1);
    else
        snprintf(what, bytes, "%s%s", shown, sizes);
}

static int refuse_files(struct meeting *meeting, const struct stg_host_note *a,
                        const struct stg_host_note *b, struct stg_err *err)
{
    struct stg_file_mark *marks = calloc((size_t)2 * STG_NOTE_MAX_FILES, sizeof(*marks));
    char what[512];
    if (marks == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    struct stg_file_mark *of_b = marks + STG_NOTE_MAX_FILES;
    size_t n = read_marks(meeting, a, marks), m = read_marks(meeting, b, of_b), i = 0;
    while (i < n && i < m && marks[i].name == of_b[i].name &&
           marks[i].bytes == of_b[i].bytes)
        i++;
    if (a->span != b->span || (i == n && i == m))
        snprintf(what, sizeof(what), "the files (%" PRIu64 " and %" PRIu64 ")",
                 a->n_files, b->n_files);
    else
        name_file(meeting, a, b, i < n ? &marks[i] : NULL, i < m ? &of_b[i] : NULL, i,
                  what, sizeof(what));
    free(marks);
    return refuse(meeting, a, b, what, err);
}

/* All hosts are there. */
static int compare(struct meeting *meeting, struct stg_err *err)
{
    const struct stg_host_note *first = find(meeting, 0);
    char what[256];
    for (uint32_t i = 1; i < meeting->own.n_hosts; i++) {
        const struct stg_host_note *note = find(meeting, i);
        if (stg_host_notes_differ(first, note, what, sizeof(what)))
            return refuse(meeting, first, note, what, err);
        if (first->files != note->files || first->n_files != note->n_files)
            return refuse_files(meeting, first, note, err);
    }
    return 0;
}

/* ---- the meeting ---- */

/* Returns 0 and whether all hosts are there. */
static int look(struct meeting *meeting, bool *ret_all, struct stg_err *err)
{
    int rc = read_notes(meeting, err);
    if (rc == 0 && see(meeting))
        rc = write_note(meeting, err);
    if (rc == 0)
        rc = check_numbers(meeting, err);
    *ret_all = rc == 0 && find_absent(meeting) == meeting->own.n_hosts;
    return rc;
}

static int meet(struct meeting *meeting, const _Atomic int *stopped, struct stg_err *err)
{
    uint64_t timeout_ns = meeting->comparing->timeout_millis * (uint64_t)1000000;
    uint64_t began = stg_now_ns();
    int pause = FIRST_PAUSE_MILLIS;
    for (bool all = false;;) {
        int rc = look(meeting, &all, err);
        if (rc < 0 || all)
            return rc < 0 ? rc : compare(meeting, err);
        if (atomic_load(stopped) != 0)
            return stg_err(err, -STAGER_CANCELLED, "the pipeline was stopped");
        if (stg_now_ns() - began > timeout_ns)
            return stg_err(err, -STAGER_DEADLINE_EXCEEDED,
                           "pipeline %s: host %u of %u has not begun its run within "
                           "%" PRIu32 " ms (cluster.compare_timeout_millis): start all "
                           "hosts, with the same job and the same compare_dir (%s)",
                           meeting->compared->pipeline, find_absent(meeting),
                           meeting->own.n_hosts, meeting->comparing->timeout_millis,
                           meeting->comparing->dir);
        poll(NULL, 0, pause);
        pause = pause * 2 < LONGEST_PAUSE_MILLIS ? pause * 2 : LONGEST_PAUSE_MILLIS;
    }
}

static void fill_own(struct meeting *meeting)
{
    const struct stg_compared *compared = meeting->compared;
    struct stg_host_note *own = &meeting->own;
    own->number = compared->number;
    own->n_hosts = compared->n_hosts;
    own->batch_size = compared->batch_size;
    own->vocabularies = compared->vocabularies;
    own->n_files = compared->n_files;
    own->span = compared->span;
    own->files = stg_file_marks_digest(compared->marks, n_marks(own));
    snprintf(own->release, sizeof(own->release), "%s", STG_RELEASE);
    snprintf(own->steps, sizeof(own->steps), "%s", meeting->comparing->signature);
    if (gethostname(own->host, sizeof(own->host) - 1) < 0 || own->host[0] == '\0')
        snprintf(own->host, sizeof(own->host), "?");
    for (char *c = own->host; *c != '\0'; c++)
        *c = *c > ' ' && *c < 0x7f ? *c : '?';
    if (getrandom(&own->draw, sizeof(own->draw), 0) < 0)
        own->draw = stg_now_ns() ^ meeting->comparing->instance;
}

static void name_note(struct meeting *meeting)
{
    const char *job = meeting->comparing->job;
    snprintf(meeting->before, sizeof(meeting->before), "%.64s.",
             meeting->compared->pipeline);
    snprintf(meeting->prefix, sizeof(meeting->prefix), "%.64s.%016" PRIx64 ".",
             meeting->compared->pipeline, stg_farm_hash(job, strlen(job)));
    snprintf(meeting->name, sizeof(meeting->name), "%s%016" PRIx64, meeting->prefix,
             meeting->comparing->instance);
}

static int allocate(struct meeting *meeting, struct stg_err *err)
{
    meeting->notes = calloc(STG_NOTE_MAX_HOSTS, sizeof(*meeting->notes));
    meeting->names = calloc(STG_NOTE_MAX_HOSTS, sizeof(*meeting->names));
    meeting->own.seen = calloc(STG_NOTE_MAX_HOSTS, sizeof(uint64_t));
    meeting->text = malloc(STG_LIST_BYTES);
    return meeting->notes != NULL && meeting->names != NULL &&
                   meeting->own.seen != NULL && meeting->text != NULL
               ? 0
               : stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
}

static void meeting_finish(struct meeting *meeting)
{
    if (meeting->notes != NULL)
        drop_notes(meeting);
    stg_host_note_finish(&meeting->own);
    free(meeting->notes);
    free(meeting->names);
    free(meeting->text);
}

int stg_hosts_compare(const struct stg_comparing *comparing,
                      const struct stg_compared *compared, const _Atomic int *stopped,
                      struct stg_err *err)
{
    struct meeting meeting = {.comparing = comparing, .compared = compared};
    if (compared->n_hosts > STG_NOTE_MAX_HOSTS)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "pipeline %s: %u hosts; cluster.compare_dir serves at most %u",
                       compared->pipeline, compared->n_hosts, STG_NOTE_MAX_HOSTS);
    fill_own(&meeting);
    name_note(&meeting);
    int rc = allocate(&meeting, err);
    if (rc == 0)
        rc = write_file(&meeting, ".files",
                        stg_file_marks_write(meeting.own.draw, compared->marks,
                                             n_marks(&meeting.own), meeting.text),
                        err);
    if (rc == 0)
        rc = write_note(&meeting, err);
    if (rc == 0)
        rc = meet(&meeting, stopped, err);
    meeting_finish(&meeting);
    return rc;
}
