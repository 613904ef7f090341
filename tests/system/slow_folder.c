/* SPDX-License-Identifier: Apache-2.0
 *
 * Loaded before libc: a folder "slow" that opens only when the file "hold" beside it is
 * gone, as a file system does that does not answer.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

__attribute__((visibility("default"))) int openat(int at, const char *path, int flags,
                                                  ...)
{
    const struct timespec tick = {.tv_nsec = 1000000};
    va_list args;
    va_start(args, flags);
    mode_t mode = (flags & O_CREAT) != 0 ? va_arg(args, mode_t) : 0;
    va_end(args);
    while (strcmp(path, "slow") == 0 && faccessat(at, "hold", F_OK, 0) == 0)
        nanosleep(&tick, NULL);
    return (int)syscall(SYS_openat, at, path, flags, mode);
}
