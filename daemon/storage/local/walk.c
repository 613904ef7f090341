/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "daemon/storage/confine.h"
#include "daemon/storage/local/access.h"

#define MAX_LINKS 40
#define REST_BYTES (2 * PATH_MAX)

/* The kernel would walk with the daemon's rights; this one asks at every directory
 * whether the applier may pass. Each step holds the directory that it asked about, so
 * it cannot be exchanged in between. */
struct walk {
    const struct stg_file_user *identity;
    const char *shown;
    int at; /* O_PATH */
    struct stat st;
    unsigned n_links;
    char rest[REST_BYTES];
};

static int walk_move(struct walk *w, int fd, struct stg_err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0) {
        int rc =
            stg_err(err, stg_access_errno(errno), "%s: %s", w->shown, strerror(errno));
        close(fd);
        return rc;
    }
    if (w->at >= 0)
        close(w->at);
    w->at = fd;
    w->st = st;
    return 0;
}

static int walk_to_root(struct walk *w, struct stg_err *err)
{
    int fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return stg_err(err, stg_access_errno(errno), "/: %s", strerror(errno));
    return walk_move(w, fd, err);
}

/* Takes the first name off the rest. False: nothing is left. */
static bool walk_name(struct walk *w, char name[NAME_MAX + 1], bool *ret_too_long)
{
    size_t skip = strspn(w->rest, "/");
    size_t n = strcspn(w->rest + skip, "/");
    *ret_too_long = n > NAME_MAX;
    if (n == 0 || n > NAME_MAX)
        return false;
    memcpy(name, w->rest + skip, n);
    name[n] = '\0';
    memmove(w->rest, w->rest + skip + n, strlen(w->rest + skip + n) + 1);
    return true;
}

/* fd is a symbolic link in the directory w->at: its target goes before the rest. */
static int walk_link(struct walk *w, int fd, struct stg_err *err)
{
    char target[PATH_MAX];
    ssize_t n = readlinkat(fd, "", target, sizeof(target) - 1);
    size_t left = strlen(w->rest);
    if (n <= 0 || ++w->n_links > MAX_LINKS || (size_t)n + 1 + left + 1 > REST_BYTES) {
        close(fd);
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "%s: too many symbolic links",
                       w->shown);
    }
    close(fd);
    memmove(w->rest + n + 1, w->rest, left + 1);
    memcpy(w->rest, target, (size_t)n);
    w->rest[n] = '/';
    return target[0] == '/' ? walk_to_root(w, err) : 0;
}

/* The directory w->at as a path, for messages. */
static const char *here(const struct walk *w, char *buf, size_t bytes)
{
    char link[64];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", w->at);
    ssize_t n = readlink(link, buf, bytes - 1);
    snprintf(buf + (n > 0 ? n : 0), n > 0 ? 1 : bytes, "%s", n > 0 ? "" : w->shown);
    return buf;
}

static int walk_open(struct walk *w, const char *name, int *ret, struct stg_err *err)
{
    char dir[PATH_MAX];
    if (!S_ISDIR(w->st.st_mode))
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "%s: %s", w->shown,
                       strerror(ENOTDIR));
    if (!stg_access_fd(w->at, &w->st, w->identity, STG_ACCESS_SEARCH))
        return stg_access_refuse(w->identity, "read", w->shown, here(w, dir, sizeof(dir)),
                                 err);
    int fd = openat(w->at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0) {
        *ret = fd;
        return 0;
    }
    if (errno == EACCES)
        return stg_access_daemon_cannot(w->shown, here(w, dir, sizeof(dir)), "x", err);
    if (errno == ENOENT && w->rest[0] != '\0')
        return stg_err(err, -STAGER_NOT_FOUND, "%s: %s does not exist in %s", w->shown,
                       name, here(w, dir, sizeof(dir)));
    return stg_err(err, stg_access_errno(errno), "%s: %s", w->shown, strerror(errno));
}

/* O_PATH stops before a file system that is mounted on demand; a step through it mounts
 * it. Returns a descriptor of what is there then, or fd itself. */
static int walk_automount(struct walk *w, const char *name, int fd)
{
    struct statfs fs;
    if (fstatfs(fd, &fs) < 0 || fs.f_type != AUTOFS_SUPER_MAGIC)
        return fd;
    char through[NAME_MAX + 3];
    snprintf(through, sizeof(through), "%s/.", name);
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                           .resolve = RESOLVE_NO_SYMLINKS};
    int mounted = (int)syscall(SYS_openat2, w->at, through, &how, sizeof(how));
    if (mounted < 0)
        return fd;
    close(fd);
    return mounted;
}

static int walk_step(struct walk *w, const char *name, struct stg_err *err)
{
    int fd = -1;
    int rc = walk_open(w, name, &fd, err);
    if (rc < 0)
        return rc;
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISLNK(st.st_mode))
        return walk_link(w, fd, err);
    return walk_move(w, walk_automount(w, name, fd), err);
}

static int walk_begin(struct walk *w, int base, const char *path, struct stg_err *err)
{
    if (strlen(path) >= PATH_MAX)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "%.60s…: %s", path,
                       strerror(ENAMETOOLONG));
    strcpy(w->rest, path);
    if (base < 0 || path[0] == '/')
        return walk_to_root(w, err);
    int fd = fcntl(base, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return stg_err(err, stg_access_errno(errno), "%s: %s", w->shown, strerror(errno));
    return walk_move(w, fd, err);
}

int stg_access_walk(int base, const char *path, const char *shown,
                    const struct stg_file_user *identity, int *ret_fd,
                    struct stat *ret_st, struct stg_err *err)
{
    struct walk w = {.identity = identity, .shown = shown, .at = -1};
    char name[NAME_MAX + 1];
    bool too_long = false;
    int rc = walk_begin(&w, base, path, err);
    while (rc == 0 && walk_name(&w, name, &too_long))
        rc = walk_step(&w, name, err);
    if (rc == 0 && too_long)
        rc = stg_err(err, -STAGER_INVALID_ARGUMENT, "%s: %s", shown,
                     strerror(ENAMETOOLONG));
    if (rc == 0)
        rc = stg_confine_check_fd(w.at, shown, err);
    if (rc < 0) {
        if (w.at >= 0)
            close(w.at);
        return rc;
    }
    *ret_fd = w.at;
    *ret_st = w.st;
    return 0;
}
