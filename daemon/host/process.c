/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/host/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BOOT_BYTES 40

uint64_t stg_process_id(int pidfd)
{
    struct stat st;
    return fstat(pidfd, &st) == 0 ? st.st_ino : 0;
}

bool stg_process_lives(pid_t pid, uint64_t id)
{
    if (pid == 0)
        return true;
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd < 0)
        return errno != ESRCH && errno != EINVAL;
    struct pollfd ended = {.fd = pidfd, .events = POLLIN};
    bool lives = poll(&ended, 1, 0) == 0 && stg_process_id(pidfd) == id;
    close(pidfd);
    return lives;
}

void stg_process_boot(char *ret)
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, ret, BOOT_BYTES - 1) : 0;
    if (fd >= 0)
        close(fd);
    ret[n > 0 ? n : 0] = '\0';
    ret[strcspn(ret, "\n")] = '\0';
    if (ret[0] == '\0')
        snprintf(ret, BOOT_BYTES, "unknown");
}
