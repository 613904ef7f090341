/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/journal/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "core/record/audit.h"
#include "daemon/host/text_file.h"

#define MAX_BYTES (256u << 20)        /* more than REWRITE_RATIO tables have */
#define MIN_REWRITE_BYTES (64u << 10) /* shorter files only grow */
#define REWRITE_RATIO 4
/* Of the audit. A shorter one only grows; a longer one is made half as long. */
#define MAX_AUDIT_BYTES (8u << 20)
#define MAX_EXACT (128u << 10) /* items with a hash each */
#define MAX_ATTEMPTS 64
#define MAX_ATTEMPT_COMMITS 4

int stg_journal_file_init(struct stg_journal_file *file, const char *state_dir,
                          const char *name, struct stg_err *err)
{
    *file = (struct stg_journal_file){0};
    pthread_mutex_init(&file->lock, NULL);
    if (asprintf(&file->path, "%s/commits/%s.journal", state_dir, name) < 0)
        file->path = NULL;
    if (asprintf(&file->temporary, "%s/commits/%s.new", state_dir, name) < 0)
        file->temporary = NULL;
    if (asprintf(&file->audit, "%s/commits/%s.audit", state_dir, name) < 0)
        file->audit = NULL;
    if (file->path != NULL && file->temporary != NULL && file->audit != NULL)
        return 0;
    stg_journal_file_finish(file);
    return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
}

void stg_journal_file_finish(struct stg_journal_file *file)
{
    free(file->path);
    free(file->temporary);
    free(file->audit);
    pthread_mutex_destroy(&file->lock);
    file->path = file->temporary = file->audit = NULL;
}

/* ---- reading ---- */

static void log_damage(const struct stg_journal_file *file,
                       const struct stg_commits_damage *damage, size_t bytes)
{
    if (damage->n_bad > 0)
        stg_log(STG_LOG_ERROR,
                "%s: damaged records, which are left out: %zu; good ones: %zu. A commit "
                "that is missing in `stagerctl commits` was in one of them",
                file->path, damage->n_bad, damage->n_good);
    if (damage->good_bytes < bytes)
        stg_log(
            STG_LOG_INFO,
            "%s: the last %zu bytes are of a commit that was interrupted, and are cut",
            file->path, bytes - damage->good_bytes);
}

static int load_text(struct stg_journal_file *file, const char *text, size_t bytes,
                     struct stg_commits *commits, struct stg_err *err)
{
    struct stg_commits_damage damage;
    size_t live_bytes;
    int rc = stg_commits_read(commits, text, bytes, &damage, err);
    char *live = rc == 0 ? stg_commits_write(commits, &live_bytes) : NULL;
    if (rc == 0 && live == NULL)
        rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    free(live);
    if (rc < 0)
        return stg_err_prefix(err, rc, "%s", file->path);
    log_damage(file, &damage, bytes);
    file->bytes = damage.good_bytes;
    file->base_bytes = live_bytes;
    file->must_rewrite = damage.n_bad > 0;
    return 0;
}

int stg_journal_file_load(struct stg_journal_file *file, struct stg_commits *commits,
                          struct stg_err *err)
{
    struct stat st;
    char *text;
    size_t bytes;
    pthread_mutex_lock(&file->lock);
    size_t limit = 0;
    if (stat(file->path, &st) == 0)
        limit = st.st_size < MAX_BYTES ? (size_t)st.st_size : MAX_BYTES;
    int rc = stg_text_file_read(file->path, limit, &st, &text, &bytes, err);
    if (rc == 0) {
        rc = load_text(file, text, bytes, commits, err);
        free(text);
    } else if (rc == -STAGER_NOT_FOUND) {
        *err = (struct stg_err){0};
        rc = 0;
    }
    pthread_mutex_unlock(&file->lock);
    return rc;
}

/* ---- writing ---- */

static int code_of(int number)
{
    bool is_full = number == ENOSPC || number == EDQUOT || number == EFBIG ||
                   number == ENOMEM || number == EMFILE || number == ENFILE;
    bool is_denied = number == EROFS || number == EACCES || number == EPERM;
    return is_full     ? -STAGER_RESOURCE_EXHAUSTED
           : is_denied ? -STAGER_PERMISSION_DENIED
                       : -STAGER_UNAVAILABLE;
}

static int system_error(const char *path, int number, struct stg_err *err)
{
    return stg_err(err, code_of(number),
                   "cannot write the commit to %s: %s; commits are stored in state_dir "
                   "(stagerd.yaml)",
                   path, strerror(number));
}

static int audit_error(const char *path, int number, struct stg_err *err)
{
    return stg_err(err, code_of(number),
                   "cannot read or write the audit %s: %s; it is stored in state_dir "
                   "(stagerd.yaml)",
                   path, strerror(number));
}

#define FOLDER_BYTES 4096

static void folder_of(const char *path, char folder[FOLDER_BYTES])
{
    snprintf(folder, FOLDER_BYTES, "%s", path);
    *strrchr(folder, '/') = '\0';
}

/* Returns 0, or -1 with errno. */
static int sync_folder(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    int rc = fsync(fd), number = errno;
    close(fd);
    errno = number;
    return rc;
}

/* Syncs state_dir/commits, and once state_dir. Returns 0, or -1 with errno. */
static int sync_folders(struct stg_journal_file *file)
{
    char commits[FOLDER_BYTES], state_dir[FOLDER_BYTES];
    folder_of(file->path, commits);
    folder_of(commits, state_dir);
    int rc = sync_folder(commits);
    if (rc == 0 && !file->is_anchored)
        rc = sync_folder(state_dir);
    file->is_anchored = file->is_anchored || rc == 0;
    return rc;
}

/* Makes state_dir/commits. */
static int make_folder(const char *path)
{
    char folder[FOLDER_BYTES];
    folder_of(path, folder);
    return mkdir(folder, 0700) < 0 && errno != EEXIST ? -1 : 0;
}

static int replace(struct stg_journal_file *file, const struct stg_text_part *parts)
{
    const char *failed;
    return stg_text_file_replace(file->path, file->temporary, parts, 2, &failed);
}

/* Writes the whole file again. Returns 0, or -1 with errno. */
static int rewrite(struct stg_journal_file *file, const char *line, size_t n,
                   const char *all, size_t n_all)
{
    const struct stg_text_part parts[] = {{all, n_all}, {line, n}};
    int rc = replace(file, parts);
    if (rc < 0 && errno == ENOENT && make_folder(file->path) == 0)
        rc = replace(file, parts);
    if (rc < 0)
        return rc;
    file->bytes = file->base_bytes = n_all + n;
    file->must_rewrite = sync_folders(file) < 0;
    return file->must_rewrite ? -1 : 0;
}

static int write_all(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t m = write(fd, bytes, n);
        if (m < 0 && errno == EINTR)
            continue;
        if (m < 0)
            return -1;
        bytes += m;
        n -= (size_t)m;
    }
    return 0;
}

/* Cuts what follows the good records, and appends. */
static int append_to(struct stg_journal_file *file, int fd, const char *line, size_t n)
{
    if (ftruncate(fd, (off_t)file->bytes) < 0 ||
        lseek(fd, (off_t)file->bytes, SEEK_SET) < 0)
        return -1;
    int rc = write_all(fd, line, n);
    bool is_written = rc == 0;
    if (rc == 0)
        rc = fsync(fd);
    int number = errno;
    if (rc == 0)
        file->bytes += n;
    /* After a failed fsync the kernel may hold pages that never reach the disk. */
    else if (ftruncate(fd, (off_t)file->bytes) < 0 || is_written)
        file->must_rewrite = true;
    errno = number;
    return rc;
}

/* Returns 1 if the file is not the one that was written last. */
static int append(struct stg_journal_file *file, const char *line, size_t n)
{
    struct stat st;
    int fd = open(file->path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno == ENOENT ? 1 : -1;
    int rc = fstat(fd, &st);
    if (rc == 0 && (uint64_t)st.st_size < file->bytes)
        rc = 1;
    if (rc == 0 && !file->is_anchored) /* an earlier process may have died before that */
        rc = sync_folders(file);
    if (rc == 0)
        rc = append_to(file, fd, line, n);
    int number = errno;
    close(fd);
    errno = number;
    return rc;
}

static bool is_long(const struct stg_journal_file *file, size_t n)
{
    return file->bytes + n > MIN_REWRITE_BYTES &&
           file->bytes + n > REWRITE_RATIO * file->base_bytes;
}

int stg_journal_file_write(struct stg_journal_file *file, const char *line, size_t n,
                           const char *all, size_t n_all, struct stg_err *err)
{
    pthread_mutex_lock(&file->lock);
    int rc = file->must_rewrite || file->bytes == 0 || is_long(file, n);
    if (!file->is_removed && rc == 0)
        rc = append(file, line, n);
    if (!file->is_removed && rc == 1 && all != NULL)
        rc = rewrite(file, line, n, all, n_all);
    if (file->is_removed)
        rc = stg_err(err, -STAGER_NOT_FOUND, "the pipeline was deleted");
    else if (rc < 0)
        rc = system_error(file->path, errno, err);
    pthread_mutex_unlock(&file->lock);
    return rc;
}

/* ---- the audit ---- */

static int read_audit(struct stg_journal_file *file, char **ret, size_t *ret_bytes,
                      struct stg_err *err)
{
    struct stat st;
    size_t limit = 0;
    if (stat(file->audit, &st) == 0)
        limit = st.st_size < MAX_BYTES ? (size_t)st.st_size : MAX_BYTES;
    return stg_text_file_read(file->audit, limit, &st, ret, ret_bytes, err);
}

/* Writes a table whose text is short enough. */
static void write_short(struct stg_audit *audit, struct stg_audit_text *text)
{
    size_t n_exact = MAX_EXACT, n_attempts = MAX_ATTEMPTS;
    do {
        text->n = 0;
        stg_audit_shrink(audit, n_exact, n_attempts, MAX_ATTEMPT_COMMITS);
        stg_audit_write(audit, text);
        n_exact /= 4;
        n_attempts = n_attempts > 2 ? n_attempts / 2 : 1;
    } while (text->n > MAX_AUDIT_BYTES / 2 && n_exact > 0);
    if (text->n <= MAX_AUDIT_BYTES / 2)
        return;
    text->n = 0;
    stg_audit_forget_items(audit);
    stg_audit_write(audit, text);
}

static int shorten(struct stg_journal_file *file, struct stg_err *err)
{
    struct stg_audit audit = {0};
    struct stg_audit_text text = {0};
    char *before, temporary[FOLDER_BYTES];
    const char *failed;
    size_t n;
    int rc = read_audit(file, &before, &n, err);
    if (rc < 0)
        return rc;
    rc = stg_audit_read(&audit, before, n, err);
    free(before);
    if (rc == 0)
        write_short(&audit, &text);
    stg_audit_finish(&audit);
    snprintf(temporary, sizeof(temporary), "%s.new", file->audit);
    const struct stg_text_part part = {text.bytes, text.n};
    if (rc == 0 && text.has_failed)
        rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    else if (rc == 0 &&
             stg_text_file_replace(file->audit, temporary, &part, 1, &failed) < 0)
        rc = audit_error(failed, errno, err);
    if (rc == 0)
        file->audit_bytes = text.n;
    free(text.bytes);
    return rc;
}

static int open_to_append(const char *path)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 && errno == ENOENT && make_folder(path) == 0)
        fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    return fd;
}

static int append_lines(struct stg_journal_file *file, const char *lines, size_t n,
                        struct stg_err *err)
{
    struct stat st = {0};
    int fd = open_to_append(file->audit);
    int rc = fd >= 0 ? write_all(fd, lines, n) : -1;
    if (rc < 0)
        rc = audit_error(file->audit, errno, err);
    else
        rc = fstat(fd, &st);
    if (fd >= 0)
        close(fd);
    if (rc == 0)
        file->audit_bytes = (uint64_t)st.st_size;
    return rc == 0 && st.st_size > MAX_AUDIT_BYTES ? shorten(file, err) : rc;
}

int stg_journal_file_note(struct stg_journal_file *file, const char *lines, size_t n,
                          struct stg_err *err)
{
    pthread_mutex_lock(&file->lock);
    int rc = file->is_removed ? 0 : append_lines(file, lines, n, err);
    pthread_mutex_unlock(&file->lock);
    return rc;
}

uint64_t stg_journal_file_newest(struct stg_journal_file *file)
{
    struct stg_err err = {0};
    char *text;
    size_t n;
    pthread_mutex_lock(&file->lock);
    int rc = read_audit(file, &text, &n, &err);
    uint64_t newest = rc == 0 ? stg_audit_scan_newest(text, n) : 0;
    file->audit_bytes = rc == 0 ? n : 0;
    if (rc == 0)
        free(text);
    else if (rc != -STAGER_NOT_FOUND)
        stg_log(STG_LOG_WARNING,
                "the audit cannot be read, and attempts may have a number again: %s",
                err.text);
    pthread_mutex_unlock(&file->lock);
    return newest;
}

int stg_journal_file_open_audit(struct stg_journal_file *file, int *ret,
                                struct stg_err *err)
{
    int fd = open(file->audit, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno == ENOENT)
        return stg_err(err, -STAGER_NOT_FOUND,
                       "stagerd has no audit of it yet: open it first, with another "
                       "`audit` than none");
    if (fd < 0)
        return audit_error(file->audit, errno, err);
    *ret = fd;
    return 0;
}

void stg_journal_file_remove(struct stg_journal_file *file)
{
    char folder[FOLDER_BYTES];
    folder_of(file->path, folder);
    pthread_mutex_lock(&file->lock);
    file->is_removed = true;
    if (unlink(file->audit) < 0 && errno != ENOENT)
        stg_log(STG_LOG_WARNING, "cannot remove %s: %s", file->audit, strerror(errno));
    int rc = unlink(file->path);
    if (rc == 0) /* a pipeline of that name that is applied later has no old commits */
        rc = sync_folder(folder);
    if (rc < 0 && errno != ENOENT)
        stg_log(STG_LOG_WARNING, "cannot remove %s: %s", file->path, strerror(errno));
    pthread_mutex_unlock(&file->lock);
}
