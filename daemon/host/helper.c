/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/host/helper.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/status.h"

#define END_FD 3
#define END_LOOKS 1000 /* a millisecond each */

int stg_helper_find(const char *folder, const char *name, char *path, size_t bytes,
                    struct stg_err *err)
{
    assert(path != NULL);
    char self[3072];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(self, '/');
    if (slash != NULL) {
        *slash = '\0';
        snprintf(path, bytes, "%s/%s/%s", self, folder, name);
        if (access(path, X_OK) == 0)
            return 0;
        snprintf(path, bytes, "%s/../libexec/stager/%s", self, name);
        if (access(path, X_OK) == 0)
            return 0;
    }
    snprintf(path, bytes, STG_HELPER_DIR "/%s", name);
    if (access(path, X_OK) == 0)
        return 0;
    return stg_err(err, -STAGER_NOT_FOUND, "%s: %s; install all of stager", path,
                   strerror(errno));
}

int stg_helper_spawn(const char *program, char *const *argv, char *const *env, int end_fd,
                     pid_t *ret)
{
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawn_file_actions_init(&actions);
    int number = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null",
                                                  O_RDONLY, 0);
    if (number == 0)
        number = posix_spawn_file_actions_adddup2(&actions, end_fd, END_FD);
    if (number == 0)
        number = posix_spawn_file_actions_addclosefrom_np(&actions, END_FD + 1);
    if (number == 0)
        number = posix_spawn(ret, program, &actions, &attributes, argv, env);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return number;
}

bool stg_helper_end(pid_t pid)
{
    struct timespec moment = {.tv_nsec = 1000000};
    kill(pid, SIGKILL);
    pid_t ended = waitpid(pid, NULL, WNOHANG);
    for (int i = 0; i < END_LOOKS && ended == 0; i++) {
        nanosleep(&moment, NULL);
        ended = waitpid(pid, NULL, WNOHANG);
    }
    return ended != 0;
}
