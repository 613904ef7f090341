/* SPDX-License-Identifier: Apache-2.0
 *
 * Loaded before libc in a program whose files shall be slow: each pread sleeps for the
 * number of nanoseconds in the first eight bytes of the file STG_SLOW_READS.
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const _Atomic uint64_t *delay_ns;

__attribute__((constructor)) static void map_delay(void)
{
    const char *path = getenv("STG_SLOW_READS");
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *map = fd >= 0 ? mmap(NULL, sizeof(*delay_ns), PROT_READ, MAP_SHARED, fd, 0)
                        : MAP_FAILED;
    if (fd >= 0)
        close(fd);
    if (map != MAP_FAILED)
        delay_ns = map;
}

__attribute__((visibility("default"))) ssize_t pread(int fd, void *to, size_t bytes,
                                                     off_t offset)
{
    uint64_t ns = delay_ns != NULL ? atomic_load(delay_ns) : 0;
    struct timespec pause = {.tv_sec = (time_t)(ns / 1000000000u),
                             .tv_nsec = (long)(ns % 1000000000u)};
    if (ns > 0)
        nanosleep(&pause, NULL);
    return syscall(SYS_pread64, fd, to, bytes, offset);
}
