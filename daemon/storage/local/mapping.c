/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/storage/local/mapping.h"

#include <linux/magic.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "daemon/storage/local/guard.h"

#define MIN_READ (16u << 10)           /* less costs pread less than a page fault */
#define MIN_FILE ((uint64_t)1 << 20)   /* so does a file that is soon read */
#define WINDOW ((uint64_t)1 << 30)     /* of which page tables have 2 MiB */
#define ALIGN ((uint64_t)2 << 20)      /* where windows of larger files begin */
#define MAX_WINDOWS 64u                /* of the process */
#define MIN_COPIED ((uint64_t)4 << 20) /* of a window that was worth mapping */
#define MAX_SHORT 4u                   /* windows that were not, before files are read */

static _Atomic unsigned n_windows;

void stg_mapping_init(struct stg_mapping *mapping, bool is_refused)
{
    *mapping = (struct stg_mapping){.is_refused = is_refused};
    pthread_mutex_init(&mapping->lock, NULL);
}

/* The lock is held here, and below. */
static void drop(struct stg_mapping *mapping)
{
    if (mapping->base == NULL)
        return;
    munmap(mapping->base, mapping->end - mapping->begin);
    mapping->base = NULL;
    atomic_fetch_sub_explicit(&n_windows, 1, memory_order_relaxed);
}

static void refuse(struct stg_mapping *mapping)
{
    drop(mapping);
    mapping->is_refused = true;
}

void stg_mapping_refuse(struct stg_mapping *mapping)
{
    pthread_mutex_lock(&mapping->lock);
    refuse(mapping);
    pthread_mutex_unlock(&mapping->lock);
}

void stg_mapping_finish(struct stg_mapping *mapping)
{
    drop(mapping);
    pthread_mutex_destroy(&mapping->lock);
}

/* Returns the size of the file; 0: it is not mapped. A mapping of hugetlbfs has lengths
 * of its own. To touch a hole of a file in memory takes memory, which counts as that of
 * the process. */
static uint64_t size_of(int fd)
{
    struct stat st;
    struct statfs fs;
    if (fstat(fd, &st) < 0 || (uint64_t)st.st_size < MIN_FILE || fstatfs(fd, &fs) < 0 ||
        fs.f_type == HUGETLBFS_MAGIC || fs.f_type == TMPFS_MAGIC)
        return 0;
    return (uint64_t)st.st_size;
}

/* Maps the window of an offset. */
static void map(struct stg_mapping *mapping, int fd, uint64_t offset)
{
    uint64_t size = size_of(fd), begin = size > WINDOW ? offset / ALIGN * ALIGN : 0;
    if (begin >= size)
        return;
    uint64_t bytes = size - begin < WINDOW ? size - begin : WINDOW;
    if (atomic_fetch_add_explicit(&n_windows, 1, memory_order_relaxed) < MAX_WINDOWS) {
        void *base = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, (off_t)begin);
        if (base != MAP_FAILED) {
            mapping->base = base;
            mapping->begin = begin;
            mapping->end = begin + bytes;
            mapping->is_last = mapping->end == size;
            mapping->copied = 0;
            return;
        }
        mapping->is_refused = true; /* the file system maps no files */
    }
    atomic_fetch_sub_explicit(&n_windows, 1, memory_order_relaxed);
}

static bool has(const struct stg_mapping *mapping, uint64_t offset, uint64_t behind)
{
    return mapping->base != NULL && offset >= mapping->begin && behind < mapping->end;
}

/* Makes the window have the offset, unless that is where the file ends. */
static void move(struct stg_mapping *mapping, int fd, uint64_t offset)
{
    bool is_at_end =
        mapping->base != NULL && mapping->is_last && offset >= mapping->begin;
    if (is_at_end)
        return;
    if (mapping->base != NULL && mapping->copied < MIN_COPIED)
        mapping->is_refused = ++mapping->n_short == MAX_SHORT;
    drop(mapping);
    if (!mapping->is_refused)
        map(mapping, fd, offset);
}

/* A file that was truncated inside of the last page of a range has zeros there, and the
 * page behind is gone. So that page must be there too: it is read with the range. */
static uint64_t page_behind(uint64_t offset, size_t bytes)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    return (offset + bytes + page - 1) / page * page;
}

static bool copy(struct stg_mapping *mapping, int fd, uint64_t offset, void *buf,
                 size_t bytes)
{
    uint64_t behind = page_behind(offset, bytes);
    if (!has(mapping, offset, behind))
        move(mapping, fd, offset);
    if (!has(mapping, offset, behind))
        return false;
    const char *base = mapping->base;
    if (stg_guard_copy(buf, base + (offset - mapping->begin), bytes,
                       base + (behind - mapping->begin))) {
        mapping->copied += bytes;
        return true;
    }
    refuse(mapping);
    return false;
}

/* While another thread copies, pread does. */
bool stg_mapping_read(struct stg_mapping *mapping, int fd, uint64_t offset, void *buf,
                      size_t bytes)
{
    if (bytes < MIN_READ || offset > UINT64_MAX / 4 ||
        pthread_mutex_trylock(&mapping->lock) != 0)
        return false;
    bool ret = !mapping->is_refused && copy(mapping, fd, offset, buf, bytes);
    pthread_mutex_unlock(&mapping->lock);
    return ret;
}
