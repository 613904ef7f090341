/* SPDX-License-Identifier: Apache-2.0 */
#include "client/transport/map.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

static int check_object(int fd, uint64_t bytes, const char *what, struct stg_err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return stg_err(err, -STAGER_INTERNAL, "%s: %s", what, strerror(errno));
    if (bytes == 0 || bytes > SIZE_MAX || (uint64_t)st.st_size < bytes)
        return stg_err(err, -STAGER_INTERNAL, "%s has %lld bytes; stagerd announced %llu",
                       what, (long long)st.st_size, (unsigned long long)bytes);
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
        return stg_err(err, -STAGER_INTERNAL,
                       "%s: is not sealed against shrinking, so reading it is not safe",
                       what);
    return 0;
}

int stg_map_open(int fd, uint64_t bytes, enum stg_map_kind kind, const char *what,
                 struct stg_map *ret, struct stg_err *err)
{
    int rc = check_object(fd, bytes, what, err);
    if (rc < 0)
        return rc;
    int prot = PROT_READ | (kind != STG_MAP_READ ? PROT_WRITE : 0);
    int flags = kind == STG_MAP_COPY_ON_WRITE ? MAP_PRIVATE | MAP_NORESERVE : MAP_SHARED;
    void *base = mmap(NULL, (size_t)bytes, prot, flags, fd, 0);
    if (base == MAP_FAILED)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "%s: cannot map %llu bytes: %s",
                       what, (unsigned long long)bytes, strerror(errno));
    madvise(base, (size_t)bytes, MADV_DONTFORK);
    madvise(base, (size_t)bytes, MADV_DONTDUMP);
    *ret = (struct stg_map){.base = base, .bytes = (size_t)bytes};
    return 0;
}

void stg_map_populate(const struct stg_map *map, int fd)
{
    off_t end = (off_t)map->bytes, at = lseek(fd, 0, SEEK_DATA);
    while (at >= 0 && at < end) {
        off_t hole = lseek(fd, at, SEEK_HOLE);
        hole = hole > at && hole < end ? hole : end;
        madvise((char *)map->base + at, (size_t)(hole - at), MADV_POPULATE_READ);
        at = hole < end ? lseek(fd, hole, SEEK_DATA) : end;
    }
}

void stg_map_forget(const struct stg_map *map, const void *at, uint64_t bytes)
{
    uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE), base = (uintptr_t)map->base;
    uintptr_t begin = ((uintptr_t)at - base) / page_bytes * page_bytes;
    uintptr_t end = (uintptr_t)at - base + (uintptr_t)bytes;
    madvise((char *)map->base + begin, end - begin, MADV_DONTNEED);
}

void stg_map_close(struct stg_map *map)
{
    if (map->base != NULL)
        munmap(map->base, map->bytes);
    *map = (struct stg_map){0};
}
