/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/system/enclosed.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/check.h"

/* The child may not use anything of the test's runner. */
static void must(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "enclosed: %s: %s\n", what, strerror(errno));
    _exit(126);
}

static void write_map(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    must(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text), path);
    close(fd);
}

static void keep_ids(uid_t uid, gid_t gid)
{
    char map[64];
    write_map("/proc/self/setgroups", "deny");
    snprintf(map, sizeof(map), "%u %u 1", (unsigned)uid, (unsigned)uid);
    write_map("/proc/self/uid_map", map);
    snprintf(map, sizeof(map), "%u %u 1", (unsigned)gid, (unsigned)gid);
    write_map("/proc/self/gid_map", map);
}

pid_t enclosed_fork(void)
{
    unsigned long flags = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | SIGCHLD;
    uid_t uid = geteuid();
    gid_t gid = getegid();
    fflush(NULL);
    pid_t pid = (pid_t)syscall(SYS_clone, flags, NULL, NULL, NULL, 0ul);
    if (pid < 0)
        SKIP("no namespaces here: %s", strerror(errno));
    if (pid == 0)
        keep_ids(uid, gid);
    return pid;
}

void enclosed_root(const char *dir, const char *below)
{
    char run[256];
    snprintf(run, sizeof(run), "%s/run", dir);
    must(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0, "private mounts");
    must(mkdir(dir, 0700) == 0 || errno == EEXIST, dir);
    must(mount("none", dir, "tmpfs", 0, "mode=700") == 0, "tmpfs");
    must(mkdir(run, 0700) == 0, run);
    must(mount(below, run, NULL, MS_BIND, NULL) == 0, below);
    must(chroot(dir) == 0 && chdir("/") == 0, "chroot");
}
