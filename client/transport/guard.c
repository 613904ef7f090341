/* SPDX-License-Identifier: Apache-2.0 */
#include "client/transport/guard.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_BYTES 4096

struct stg_guard {
    pid_t pid;     /* 0 in a child: wiped */
    bool is_wiped; /* by the kernel; else the pid is compared, which costs a call */
};

int stg_guard_create(struct stg_guard **ret, struct stg_err *err)
{
    struct stg_guard *guard = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (guard == MAP_FAILED)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "cannot map a page: %s",
                       strerror(errno));
    guard->pid = getpid();
    guard->is_wiped = madvise(guard, PAGE_BYTES, MADV_WIPEONFORK) == 0;
    *ret = guard;
    return 0;
}

void stg_guard_destroy(struct stg_guard *guard)
{
    if (guard != NULL)
        munmap(guard, PAGE_BYTES);
}

bool stg_guard_holds(const struct stg_guard *guard)
{
    return guard->pid != 0 && (guard->is_wiped || guard->pid == getpid());
}
