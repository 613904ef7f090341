/* SPDX-License-Identifier: Apache-2.0
 *
 * Loaded before libc: simulates a kernel without SO_PEERPIDFD.
 */
#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PEERPIDFD 77 /* SO_PEERPIDFD of Linux 6.5 */

__attribute__((visibility("default"))) int getsockopt(int fd, int level, int name,
                                                      void *restrict value,
                                                      socklen_t *restrict n)
{
    if (level == SOL_SOCKET && name == PEERPIDFD) {
        errno = ENOPROTOOPT;
        return -1;
    }
    return (int)syscall(SYS_getsockopt, fd, level, name, value, n);
}
