/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/server/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/log.h"
#include "core/status.h"
#include "daemon/pipeline/store.h"

#define TRIES 16
#define N_WAITS 200
#define WAIT_NS 5000000

/* The content of another daemon's file; "?" for a missing line. */
struct holder {
    char pid[32];
    char runtime_dir[256];
};

static void lock_path(const char *folder, char *ret, size_t bytes)
{
    snprintf(ret, bytes, "%s/stagerd.lock", folder);
}

/* Returns whether the locked file still has the name: a daemon that ends removes its lock
 * file. */
static bool has_name(int fd, const char *path)
{
    struct stat open_file, named;
    return fstat(fd, &open_file) == 0 && lstat(path, &named) == 0 &&
           open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino;
}

static void read_holder(int fd, struct holder *ret)
{
    char text[320] = "";
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    char *rest = text;
    const char *pid = strsep(&rest, "\n"), *dir = strsep(&rest, "\n");
    snprintf(ret->pid, sizeof(ret->pid), "%.31s",
             pid != NULL && *pid != '\0' ? pid : "?");
    snprintf(ret->runtime_dir, sizeof(ret->runtime_dir), "%.255s",
             dir != NULL && *dir != '\0' ? dir : "?");
}

static int fill(int fd, const char *runtime_dir)
{
    char text[320];
    int n = snprintf(text, sizeof(text), "%d\n%.255s\n", (int)getpid(), runtime_dir);
    return ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)n, 0) < 0 ? errno : 0;
}

/* Locks the file. Returns 0 or a number of errno. EWOULDBLOCK: another process has it,
 * and holder is filled. */
static int take(const char *path, const char *runtime_dir, int *ret_fd,
                struct holder *holder)
{
    int number = EWOULDBLOCK;
    snprintf(holder->pid, sizeof(holder->pid), "?");
    snprintf(holder->runtime_dir, sizeof(holder->runtime_dir), "?");
    for (int i = 0; i < TRIES; i++) {
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (fd < 0)
            return errno;
        number = flock(fd, LOCK_EX | LOCK_NB) < 0 ? errno : 0;
        bool is_it = number == 0 && has_name(fd, path);
        if (is_it)
            number = fill(fd, runtime_dir);
        else if (number == EWOULDBLOCK)
            read_holder(fd, holder);
        if (is_it && number == 0)
            *ret_fd = fd;
        else
            close(fd);
        if (is_it || number != 0)
            return number;
    }
    return EWOULDBLOCK;
}

static bool has_ended(const struct holder *holder)
{
    long pid = strtol(holder->pid, NULL, 10);
    return pid > 0 && kill((pid_t)pid, 0) < 0 && errno == ESRCH;
}

/* As take. A child that a killed daemon had just made has its lock until it executes its
 * program: waits for it. */
static int take_after(const char *path, const char *runtime_dir, int *ret_fd,
                      struct holder *holder)
{
    const struct timespec pause = {.tv_nsec = WAIT_NS};
    int number = take(path, runtime_dir, ret_fd, holder);
    for (int i = 0; i < N_WAITS && number == EWOULDBLOCK && has_ended(holder); i++) {
        nanosleep(&pause, NULL);
        number = take(path, runtime_dir, ret_fd, holder);
    }
    return number;
}

static void release(const char *folder, int *fd)
{
    char path[4096];
    if (*fd < 0)
        return;
    lock_path(folder, path, sizeof(path));
    unlink(path);
    close(*fd);
    *fd = -1;
}

/* ---- both folders ---- */

int stg_runtime_dir_error(const char *what, const char *path, int number,
                          struct stg_err *err)
{
    bool is_forbidden = number == EACCES || number == EPERM;
    return stg_err(err, is_forbidden ? -STAGER_PERMISSION_DENIED : -STAGER_UNAVAILABLE,
                   "cannot %s %s: %s%s", what, path, strerror(number),
                   is_forbidden
                       ? "; set another directory by runtime_dir in stagerd.yaml or, "
                         "without that file, by STAGER_RUNTIME_DIR"
                       : "");
}

static int take_runtime(const char *dir, int *ret_fd, struct stg_err *err)
{
    char path[4096];
    struct holder holder;
    if (mkdir(dir, 0755) < 0 && errno != EEXIST)
        return stg_runtime_dir_error("make runtime_dir", dir, errno, err);
    lock_path(dir, path, sizeof(path));
    int number = take_after(path, dir, ret_fd, &holder);
    if (number == EWOULDBLOCK)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "another stagerd (pid %s) runs in runtime_dir %s: stop it, or set "
                       "another runtime_dir in stagerd.yaml",
                       holder.pid, dir);
    return number == 0 ? 0 : stg_runtime_dir_error("lock", path, number, err);
}

static int take_state(const struct stg_settings *settings, int *ret_fd,
                      struct stg_err *err)
{
    char path[4096];
    struct holder holder;
    if (stg_store_make_folders(settings) < 0)
        return 0;
    lock_path(settings->state_dir, path, sizeof(path));
    int number = take_after(path, settings->runtime_dir, ret_fd, &holder);
    if (number == EWOULDBLOCK)
        return stg_err(
            err, -STAGER_FAILED_PRECONDITION,
            "another stagerd (pid %s, runtime_dir %s) keeps its pipelines in state_dir "
            "%s: stop it, or set another state_dir in stagerd.yaml (without that file, "
            "STAGER_RUNTIME_DIR names both folders)",
            holder.pid, holder.runtime_dir, settings->state_dir);
    if (number != 0)
        stg_log(STG_LOG_WARNING, "cannot lock %s: %s; a second stagerd could start", path,
                strerror(number));
    return 0;
}

int stg_locks_take(const struct stg_settings *settings, struct stg_locks *ret,
                   struct stg_err *err)
{
    int rc = take_runtime(settings->runtime_dir, &ret->runtime_fd, err);
    return rc == 0 ? take_state(settings, &ret->state_fd, err) : rc;
}

void stg_locks_release(const struct stg_settings *settings, struct stg_locks *locks)
{
    release(settings->state_dir, &locks->state_fd);
    release(settings->runtime_dir, &locks->runtime_fd);
}
