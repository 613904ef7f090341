/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/storage/local/glob.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/storage/local/access.h"

#define MAX_WILD 16 /* names with a wildcard in one pattern */

struct glob_run {
    const char *pattern;
    const struct stg_file_user *identity;
    stg_storage_found *found;
    void *owner;
    uint64_t n_found;
    uint64_t n_closed; /* directories passed over for want of rights */
    uint64_t n_dirs;   /* that matched, where files are looked for */
    struct stg_err *err;
};

static bool is_wild(const char *name, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (name[i] == '\\')
            i++;
        else if (name[i] == '*' || name[i] == '?' || name[i] == '[')
            return true;
    }
    return false;
}

int stg_glob_check(const char *pattern, struct stg_err *err)
{
    if (pattern[0] == '~')
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "%s: stagerd does not expand ~: write the absolute path, such as "
                       "/home/ada/data.csv",
                       pattern);
    if (pattern[0] != '/')
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "%s is a relative path, and stagerd does not run in your "
                       "directory: write the absolute path, such as /home/ada/%s",
                       pattern[0] != '\0' ? pattern : "\"\"", pattern);
    if (strlen(pattern) >= PATH_MAX)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "%.60s… is too long for a path",
                       pattern);
    unsigned n_wild = 0;
    for (const char *p = pattern; *p != '\0';) {
        size_t n = strcspn(p, "/");
        if (n == 2 && p[0] == '*' && p[1] == '*')
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "%s: ** does not match nested directories: write one * for "
                           "each level, or several patterns, or a listing",
                           pattern);
        n_wild += is_wild(p, n);
        p += n + (p[n] == '/');
    }
    if (n_wild > MAX_WILD)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "%s: more than %d path components with a wildcard", pattern,
                       MAX_WILD);
    return 0;
}

/* Copies n bytes without the backslashes that quote. */
static void unquote(const char *from, size_t n, char *to)
{
    for (size_t i = 0; i < n; i++) {
        if (from[i] == '\\' && i + 1 < n)
            i++;
        *to++ = from[i];
    }
    *to = '\0';
}

/* The bytes before the first name with a wildcard; all when there is none. */
static size_t literal_bytes(const char *pattern)
{
    size_t at = 0;
    while (pattern[at] != '\0') {
        size_t n = strcspn(pattern + at, "/");
        if (is_wild(pattern + at, n))
            return at;
        at += n;
        at += strspn(pattern + at, "/");
    }
    return at;
}

/* prefix, name and, where more follows, '/' in one. False: too long for a path. A million
 * names come by here. */
static bool join(const char *prefix, const char *name, bool more, char ret[PATH_MAX])
{
    size_t n = strlen(prefix), name_bytes = strlen(name);
    if (n + name_bytes + more >= PATH_MAX)
        return false;
    memcpy(ret, prefix, n);
    memcpy(ret + n, name, name_bytes);
    n += name_bytes;
    if (more)
        ret[n++] = '/';
    ret[n] = '\0';
    return true;
}

static int expand(struct glob_run *run, int base, const char *prefix, const char *pattern,
                  bool sure);

/* One name that matched in the directory dir (its path is `prefix`, ending in '/'). */
static int matched(struct glob_run *run, int dir, const char *prefix, const char *name,
                   unsigned char type, const char *rest)
{
    char path[PATH_MAX];
    if (!join(prefix, name, *rest != '\0', path))
        return 0;
    if (*rest == '\0' && type != DT_DIR && type != DT_LNK && type != DT_UNKNOWN) {
        run->n_found++;
        return run->found(run->owner, path, run->err);
    }
    if (*rest != '\0' && type != DT_DIR && type != DT_LNK && type != DT_UNKNOWN)
        return 0;
    int fd;
    struct stat st;
    struct stg_err ignored;
    int rc = stg_access_walk(dir, name, path, run->identity, &fd, &st, &ignored);
    if (rc < 0) {
        run->n_closed += rc == -STAGER_PERMISSION_DENIED;
        return 0;
    }
    bool is_dir = S_ISDIR(st.st_mode);
    run->n_dirs += *rest == '\0' && is_dir;
    if (*rest == '\0' && !is_dir) {
        run->n_found++;
        rc = run->found(run->owner, path, run->err);
    } else if (*rest != '\0' && is_dir) {
        rc = expand(run, fd, path, rest, false);
    }
    close(fd);
    return rc;
}

/* sure: no wildcard led here, so that a closed directory is an error. */
static int open_listed(struct glob_run *run, int fd, const struct stat *st,
                       const char *path, bool sure, DIR **ret)
{
    *ret = NULL;
    if (!S_ISDIR(st->st_mode))
        return sure ? stg_err(run->err, -STAGER_NOT_FOUND,
                              "no files matched %s: %s is not a directory", run->pattern,
                              path)
                    : 0;
    if (!stg_access_fd(fd, st, run->identity, STG_ACCESS_READ)) {
        run->n_closed++;
        return sure ? stg_access_refuse(run->identity, "list", path, NULL, run->err) : 0;
    }
    char link[64];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    int listed = open(link, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (listed >= 0)
        *ret = fdopendir(listed);
    if (*ret != NULL)
        return 0;
    int error = errno;
    if (listed >= 0)
        close(listed);
    if (error == EACCES || error == EPERM)
        return stg_access_daemon_cannot(path, path, "rx", run->err);
    return stg_err(run->err, stg_access_errno(error), "%s: %s", path, strerror(error));
}

/* pattern begins with a name with a wildcard. */
static int expand_wild(struct glob_run *run, int fd, const struct stat *st,
                       const char *prefix, const char *pattern, bool sure)
{
    char glob[NAME_MAX * 4 + 1];
    size_t n = strcspn(pattern, "/");
    if (n >= sizeof(glob))
        return 0;
    memcpy(glob, pattern, n);
    glob[n] = '\0';
    const char *rest = pattern + n + strspn(pattern + n, "/");

    DIR *dir;
    int rc = open_listed(run, fd, st, prefix, sure, &dir);
    if (rc < 0 || dir == NULL)
        return rc;
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (entry == NULL)
            break;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            fnmatch(glob, entry->d_name, FNM_PERIOD) != 0)
            continue;
        rc = matched(run, fd, prefix, entry->d_name, entry->d_type, rest);
        if (rc < 0)
            break;
    }
    if (rc == 0 && errno != 0)
        rc = stg_err(run->err, stg_access_errno(errno), "%s: listing it: %s", prefix,
                     strerror(errno));
    closedir(dir);
    return rc;
}

/* What is at the literal part of a pattern. 1: nothing, and that is no error. */
static int walk_literal(struct glob_run *run, int base, const char *literal,
                        const char *path, bool sure, int *ret_fd, struct stat *ret_st)
{
    struct stg_err why;
    int rc = stg_access_walk(base, literal, path, run->identity, ret_fd, ret_st, &why);
    if (rc == 0)
        return 0;
    if (!sure) {
        run->n_closed += rc == -STAGER_PERMISSION_DENIED;
        return 1;
    }
    if (rc == -STAGER_NOT_FOUND)
        return stg_err(run->err, rc, "no files matched %s: %s%s", run->pattern, why.text,
                       strchr(literal, '{') != NULL
                           ? "; stagerd does not expand braces: write *, ? or [0-9]"
                           : "");
    if (run->err != NULL)
        *run->err = why;
    return rc;
}

/* A directory that is named is all files in it. */
static int expand_directory(struct glob_run *run, int fd, const struct stat *st,
                            const char *path)
{
    char prefix[PATH_MAX];
    size_t n = strlen(path);
    if (snprintf(prefix, sizeof(prefix), "%s%s", path,
                 n > 0 && path[n - 1] == '/' ? "" : "/") >= (int)sizeof(prefix))
        return 0;
    return expand_wild(run, fd, st, prefix, "*", true);
}

static int expand(struct glob_run *run, int base, const char *prefix, const char *pattern,
                  bool sure)
{
    char literal[PATH_MAX], path[PATH_MAX];
    size_t n = literal_bytes(pattern);
    unquote(pattern, n, literal);
    if (snprintf(path, sizeof(path), "%s%s", prefix, literal) >= (int)sizeof(path))
        return 0;
    int fd;
    struct stat st;
    int rc = walk_literal(run, base, literal, path, sure, &fd, &st);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    if (pattern[n] != '\0') {
        rc = expand_wild(run, fd, &st, path, pattern + n, sure);
    } else if (sure && S_ISDIR(st.st_mode)) {
        rc = expand_directory(run, fd, &st, path);
    } else if (sure || !S_ISDIR(st.st_mode)) {
        run->n_found++;
        rc = run->found(run->owner, path, run->err);
    }
    close(fd);
    return rc;
}

/* Nothing matched: what looks like a reason. */
static int say_nothing(struct glob_run *run)
{
    const char *pattern = run->pattern;
    int rc = stg_err(run->err, -STAGER_NOT_FOUND, "no files matched %s", pattern);
    if (run->n_closed > 0)
        stg_err_append(run->err, rc,
                       " (%llu directories on the way may not be read by user %u)",
                       (unsigned long long)run->n_closed, (unsigned)run->identity->uid);
    if (run->n_dirs > 0)
        stg_err_append(run->err, rc,
                       ", but %llu directories%s: for the files in them %s%s",
                       (unsigned long long)run->n_dirs,
                       is_wild(pattern, strlen(pattern)) ? "" : " are in it", pattern,
                       is_wild(pattern, strlen(pattern)) ? "/*" : "/*/*");
    return rc;
}

int stg_glob(const char *pattern, const struct stg_file_user *identity,
             stg_storage_found *found, void *owner, struct stg_err *err)
{
    struct glob_run run = {.pattern = pattern,
                           .identity = identity,
                           .found = found,
                           .owner = owner,
                           .err = err};
    int rc = stg_glob_check(pattern, err);
    if (rc == 0)
        rc = expand(&run, -1, "", pattern, true);
    if (rc < 0 || run.n_found > 0)
        return rc;
    return say_nothing(&run);
}
