/* SPDX-License-Identifier: Apache-2.0
 *
 * Loaded before libc: the process is killed at an fsync. The file $STG_DIE_AT holds the
 * number of calls until then, and "before" or "after" the disk has the bytes; or "hold":
 * the call makes $STG_DIE_AT.held and waits until the first file is gone; or "fail": the
 * call returns EIO. "0 readonly": a file of commits is opened for writing only once that
 * file is gone. A folder "slow" opens once the file "hold" beside it is gone; "held" is
 * made beside it meanwhile. Clocks are a minute ahead while $STG_DIE_AT.later exists.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long left = -1;

static int count_down(char *when)
{
    FILE *file = left < 0 && getenv("STG_DIE_AT") != NULL
                     ? fopen(getenv("STG_DIE_AT"), "re")
                     : NULL;
    static char said[16];
    if (file != NULL) {
        if (fscanf(file, "%ld %15s", &left, said) != 2)
            left = -1;
        fclose(file);
    }
    strcpy(when, said);
    return left >= 0 && left-- == 0;
}

__attribute__((visibility("default"))) int fsync(int fd)
{
    char when[16];
    int dies = count_down(when);
    bool holds = dies && strcmp(when, "hold") == 0;
    char held[4096];
    snprintf(held, sizeof(held), "%s.held", holds ? getenv("STG_DIE_AT") : "");
    if (holds)
        close(open(held, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    const struct timespec tick = {.tv_nsec = 1000000};
    while (holds && access(getenv("STG_DIE_AT"), F_OK) == 0)
        nanosleep(&tick, NULL);
    if (dies && strcmp(when, "before") == 0)
        kill(getpid(), SIGKILL);
    errno = EIO;
    if (dies && strcmp(when, "fail") == 0)
        return -1;
    int rc = (int)syscall(SYS_fsync, fd);
    if (dies && !holds)
        kill(getpid(), SIGKILL);
    return rc;
}

static bool is_readonly(const char *path)
{
    char text[32] = "";
    int fd = strstr(path, "/commits/") != NULL && getenv("STG_DIE_AT") != NULL
                 ? (int)syscall(SYS_openat, AT_FDCWD, getenv("STG_DIE_AT"), O_RDONLY)
                 : -1;
    if (fd >= 0) {
        if (read(fd, text, sizeof(text) - 1) < 0)
            text[0] = '\0';
        close(fd);
    }
    return strcmp(text, "0 readonly") == 0;
}

__attribute__((visibility("default"))) int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = (flags & O_CREAT) != 0 ? va_arg(args, mode_t) : 0;
    va_end(args);
    if ((flags & O_ACCMODE) != O_RDONLY && is_readonly(path)) {
        errno = EROFS;
        return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

/* As on a file system that does not answer. */
__attribute__((visibility("default"))) int openat(int at, const char *path, int flags,
                                                  ...)
{
    const struct timespec tick = {.tv_nsec = 1000000};
    va_list args;
    va_start(args, flags);
    mode_t mode = (flags & O_CREAT) != 0 ? va_arg(args, mode_t) : 0;
    va_end(args);
    bool is_slow = strcmp(path, "slow") == 0;
    if (is_slow && faccessat(at, "hold", F_OK, 0) == 0)
        close((int)syscall(SYS_openat, at, "held", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    while (is_slow && faccessat(at, "hold", F_OK, 0) == 0)
        nanosleep(&tick, NULL);
    return (int)syscall(SYS_openat, at, path, flags, mode);
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock,
                                                         struct timespec *ret)
{
    char later[4096];
    const char *rule = getenv("STG_DIE_AT");
    int rc = (int)syscall(SYS_clock_gettime, clock, ret);
    snprintf(later, sizeof(later), "%s.later", rule != NULL ? rule : "");
    if (rc == 0 && rule != NULL && access(later, F_OK) == 0)
        ret->tv_sec += 60;
    return rc;
}
