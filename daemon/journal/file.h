/* SPDX-License-Identifier: Apache-2.0
 *
 * The file of a journal. What stg_journal_file_write has returned 0 for is on disk. The
 * audit beside it (core/audit.h) is a report: it is written without fsync. The
 * lock is held over each call that touches the file; a worker writes, the loop loads and
 * removes.
 */
#ifndef STG_DAEMON_JOURNAL_FILE_H
#define STG_DAEMON_JOURNAL_FILE_H

#include <pthread.h>

#include "daemon/journal/commits.h"

struct stg_journal_file {
    pthread_mutex_t lock; /* guards what follows, and the file */
    char *path, *temporary;
    char *audit;
    uint64_t bytes; /* of good records, at the start of the file */
    uint64_t audit_bytes;
    uint64_t base_bytes; /* of the records that were live when it was last whole */
    bool must_rewrite;   /* it has damage, or a write failed in the middle */
    bool is_anchored;    /* this process has synced the folders above it */
    bool is_removed;
};

/* RESOURCE_EXHAUSTED. */
int stg_journal_file_init(struct stg_journal_file *file, const char *state_dir,
                          const char *name, struct stg_err *err);
void stg_journal_file_finish(struct stg_journal_file *file);

/* Reads the file into an empty table; no file is no commit. Logs damage. Other errors
 * have the path and the reason; the file is then not known. */
int stg_journal_file_load(struct stg_journal_file *file, struct stg_commits *commits,
                          struct stg_err *err);

/* Appends the line. Returns 1 if the file has become long, or is damaged: the caller then
 * calls again with `all`, the text of the whole table, and the file is replaced by it and
 * the line. RESOURCE_EXHAUSTED, PERMISSION_DENIED, UNAVAILABLE with the path and the
 * reason: not committed, and the next write replaces what may have been left of the line.
 * NOT_FOUND: it was removed. */
int stg_journal_file_write(struct stg_journal_file *file, const char *line, size_t n,
                           const char *all, size_t n_all, struct stg_err *err);

/* Appends lines to the audit. One that has become long is written anew, without details
 * of what is old. Errors have the path and the reason; lines are missing then. */
int stg_journal_file_note(struct stg_journal_file *file, const char *lines, size_t n,
                          struct stg_err *err);

/* Returns the bytes of both files, as they were read or written last. Not while a worker
 * writes. */
static inline uint64_t stg_journal_file_bytes(const struct stg_journal_file *file)
{
    return file->bytes + file->audit_bytes;
}

/* Returns the newest attempt of the audit; 0: there is none. */
uint64_t stg_journal_file_newest(struct stg_journal_file *file);

/* Opens the audit for reading. NOT_FOUND: there is none; PERMISSION_DENIED ... with the
 * path and the reason. */
int stg_journal_file_open_audit(struct stg_journal_file *file, int *ret,
                                struct stg_err *err);

/* Removes both files; later writes fail. Waits for one that is under way. */
void stg_journal_file_remove(struct stg_journal_file *file);

#endif
