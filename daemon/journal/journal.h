/* SPDX-License-Identifier: Apache-2.0
 *
 * The journal of one pipeline: its commits, and those that wait for the disk. They are
 * judged and written one after the other, so that two trainers that commit one tag get
 * the answers of some order. Counted; belongs to the loop. A worker of libuv writes.
 *
 * Fencing: each run of a lane has an attempt. A new one makes the streams of older ones
 * unable to commit.
 */
#ifndef STG_DAEMON_JOURNAL_JOURNAL_H
#define STG_DAEMON_JOURNAL_JOURNAL_H

#include <uv.h>

#include "core/record/audit.h"
#include "daemon/journal/commits.h"

struct stg_journal;
struct stg_share;

/* The journals of a loop that workers write, and a queue of those that wait for a worker.
 * Zeroed: none. */
struct stg_journal_writers {
    uint32_t n; /* workers */
    struct stg_journal *first, *last;
};

struct stg_journal_config {
    uv_loop_t *loop;
    const char *state_dir, *name; /* copied */
    struct stg_journal_writers *writers;
    void (*changed)(void *owner); /* a write has ended */
    void *owner;
};

/* Reads the file. One that cannot be read is logged, and makes stg_journal_check fail.
 * RESOURCE_EXHAUSTED. */
int stg_journal_create(const struct stg_journal_config *config, struct stg_journal **ret,
                       struct stg_err *err);
struct stg_journal *stg_journal_ref(struct stg_journal *journal);
void stg_journal_unref(struct stg_journal *journal); /* NULL is allowed */

/* The pipeline was deleted: removes the files; commits that wait fail. Any thread: it
 * waits for the disk. */
void stg_journal_remove(struct stg_journal *journal);

/* Returns 0, or the error that the file could not be read with. */
int stg_journal_check(const struct stg_journal *journal, struct stg_err *err);

const struct stg_commits *stg_journal_commits(const struct stg_journal *journal);

/* Commits that clients have asked for since the start, or the apply: those that are on
 * disk, and those that were refused or failed. */
struct stg_journal_counts {
    uint64_t n_commits, n_failed;
};
struct stg_journal_counts stg_journal_count(const struct stg_journal *journal);

/* The files count on the quota of disk of that share from now on, also above its limit.
 * NULL: on none. The caller keeps the share. */
void stg_journal_count_on(struct stg_journal *journal, struct stg_share *share);

/* Returns why the last write failed; "": it did not. */
const char *stg_journal_problem(const struct stg_journal *journal);

/* Returns whether a commit waits for the disk. A new attempt is valid before it is there.
 */
bool stg_journal_is_busy(const struct stg_journal *journal);

/* Begins an attempt of the lane and returns its number; 0: out of memory. It is written
 * to the file if the lane has commits; a run goes on if that fails. */
uint64_t stg_journal_begin(struct stg_journal *journal, const char *lane);

/* Goes on with an attempt of the lane that began before a restart of stagerd, and returns
 * its number. 0: a later one has begun, or memory ran out. */
uint64_t stg_journal_continue(struct stg_journal *journal, const char *lane,
                              uint64_t attempt);

/* An attempt of that number began before a restart: later ones have higher numbers. */
void stg_journal_raise(struct stg_journal *journal, uint64_t attempt);

/* Returns the time of commits: nanoseconds since 1970. */
uint64_t stg_journal_now_ns(void);

/* Returns the number of a new attempt of clients without a lane. */
uint64_t stg_journal_number(struct stg_journal *journal);

/* Appends lines to the audit, before the commits that come later; the journal frees them.
 * A failure is logged. */
void stg_journal_note(struct stg_journal *journal, struct stg_audit_text *text);

/* Calls `done`, now or later, with the audit open for reading: all that was noted is in
 * it. fd -1: there is none, and the error has the reason. The descriptor is the callee's.
 * RESOURCE_EXHAUSTED: `done` is not called. */
int stg_journal_audit(struct stg_journal *journal,
                      void (*done)(void *arg, int fd, const struct stg_err *err),
                      void *arg, struct stg_err *err);

/* One commit of a client. Copied. */
struct stg_journal_request {
    const char *lane, *tag, *client;
    uint64_t attempt; /* of its stream */
    uint64_t run;     /* for the audit; 0: the commit is not in it */
    const struct stg_state *state;
    void (*done)(void *arg, const struct stg_err *err); /* code 0: it is on disk */
    void *arg;
};

/* Commits. `done` is called once, now or later. RESOURCE_EXHAUSTED: `done` is not called.
 * Errors of `done`: FAILED_PRECONDITION (a newer attempt has begun), ALREADY_EXISTS (the
 * tag has another state, and the text names the difference), RESOURCE_EXHAUSTED (the
 * quota of disk), those of stg_journal_file_write. */
int stg_journal_commit(struct stg_journal *journal,
                       const struct stg_journal_request *request, struct stg_err *err);

#endif
