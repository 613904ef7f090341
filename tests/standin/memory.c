/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/standin/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/status.h"

struct range {
    char *at;
    size_t bytes;
    char *seen; /* device memory: its address on the device */
    struct range *next;
};

/* Guarded by the lock. */
static struct range *allocations, *pinned;

static struct range *find(struct range *ranges, const void *at)
{
    for (struct range *range = ranges; range != NULL; range = range->next) {
        if ((const char *)at >= range->at && (const char *)at < range->at + range->bytes)
            return range;
    }
    return NULL;
}

bool standin_is_pinned(const void *at)
{
    return find(pinned, at) != NULL;
}

void *standin_see(const void *at)
{
    struct range *range = find(allocations, at);
    if (range == NULL) {
        fprintf(stderr, "standin: %p is no memory of the device\n", at);
        abort();
    }
    return range->seen + ((const char *)at - range->at);
}

void *standin_see_locked(const void *at)
{
    pthread_mutex_lock(&standin_lock);
    void *ret = standin_see(at);
    pthread_mutex_unlock(&standin_lock);
    return ret;
}

static void add(struct range **ranges, void *at, size_t bytes, void *seen)
{
    struct range *range = calloc(1, sizeof(*range));
    if (range == NULL)
        abort();
    *range = (struct range){.at = at, .bytes = bytes, .seen = seen, .next = *ranges};
    *ranges = range;
}

static struct range *take(struct range **ranges, const void *at)
{
    for (; *ranges != NULL; ranges = &(*ranges)->next) {
        struct range *range = *ranges;
        if (range->at != at)
            continue;
        *ranges = range->next;
        return range;
    }
    return NULL;
}

/* Two mappings: the host cannot read at the address that is handed out. */
int standin_device_alloc(int device, size_t bytes, void **ret, struct stg_err *err)
{
    if (device != 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "standin: device %d", device);
    if (bytes == 0) {
        *ret = NULL;
        return 0;
    }
    pthread_mutex_lock(&standin_lock);
    standin_control.n_allocs++;
    bool fails = standin_control.no_memory ||
                 (standin_control.fail_alloc > 0 && --standin_control.fail_alloc == 0);
    pthread_mutex_unlock(&standin_lock);
    if (fails)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "standin: no memory");
    int fd = memfd_create("standin", MFD_CLOEXEC);
    if (fd < 0 || bytes > (size_t)1 << 40 || ftruncate(fd, (off_t)bytes) < 0) {
        if (fd >= 0)
            close(fd);
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "standin: %zu bytes", bytes);
    }
    void *at = mmap(NULL, bytes, PROT_NONE, MAP_SHARED, fd, 0);
    void *seen = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED || seen == MAP_FAILED)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "standin: %zu bytes", bytes);
    pthread_mutex_lock(&standin_lock);
    add(&allocations, at, bytes, seen);
    standin_control.n_allocations++;
    pthread_mutex_unlock(&standin_lock);
    *ret = at;
    return 0;
}

bool standin_setting(const char *name, unsigned long *ret)
{
    const char *value = getenv(name);
    if (value != NULL)
        *ret = strtoul(value, NULL, 10);
    return value != NULL;
}

/* Like the memory above; a process that imports it read-only cannot write to it. */
static int add_shared(int fd, size_t bytes, bool read_only, struct stg_device_shared *ret,
                      struct stg_err *err)
{
    int how = read_only ? PROT_READ : PROT_READ | PROT_WRITE;
    void *at = mmap(NULL, bytes, PROT_NONE, MAP_SHARED, fd, 0);
    void *seen = mmap(NULL, bytes, how, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED || seen == MAP_FAILED)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "standin: %zu bytes", bytes);
    pthread_mutex_lock(&standin_lock);
    add(&allocations, at, bytes, seen);
    standin_control.n_allocations++;
    standin_control.n_shared++;
    pthread_mutex_unlock(&standin_lock);
    *ret = (struct stg_device_shared){.memory = at, .bytes = bytes};
    return 0;
}

int standin_shared_make(int device, size_t bytes, struct stg_device_shared *ret,
                        int *ret_fd, struct stg_err *err)
{
    unsigned long most = 1ul << 30;
    if (device != 0 || bytes == 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "standin: device %d, %zu bytes",
                       device, bytes);
    standin_setting("STG_STANDIN_MEMORY", &most);
    if (most == 0)
        return stg_err(err, -STAGER_UNIMPLEMENTED, "standin: no memory as descriptors");
    int fd = bytes <= most ? memfd_create("standin", MFD_CLOEXEC) : -1;
    if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "standin: no %zu bytes", bytes);
    int rc = add_shared(fd, bytes, false, ret, err);
    if (rc < 0)
        close(fd);
    else
        *ret_fd = fd;
    return rc;
}

int standin_shared_import(int device, int fd, size_t bytes, bool read_only,
                          struct stg_device_shared *ret, struct stg_err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0 || st.st_size < 0 || (size_t)st.st_size != bytes || bytes == 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "standin: not %zu bytes", bytes);
    return add_shared(fd, bytes, read_only, ret, err);
}

void standin_device_free(int device, void *ptr)
{
    if (ptr == NULL)
        return;
    pthread_mutex_lock(&standin_lock);
    struct range *range = take(&allocations, ptr);
    if (range == NULL)
        abort();
    standin_control.n_allocations--;
    pthread_mutex_unlock(&standin_lock);
    munmap(range->at, range->bytes);
    munmap(range->seen, range->bytes);
    free(range);
}

void standin_shared_release(struct stg_device_shared *shared)
{
    if (shared->memory == NULL)
        return;
    standin_device_free(shared->device, shared->memory);
    pthread_mutex_lock(&standin_lock);
    standin_control.n_shared--;
    pthread_mutex_unlock(&standin_lock);
    *shared = (struct stg_device_shared){0};
}

static bool is_writable(const void *at)
{
    char line[512], write = '-';
    unsigned long long begin, end;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
        if (sscanf(line, "%llx-%llx %*c%c", &begin, &end, &write) == 3 &&
            (uintptr_t)at >= begin && (uintptr_t)at < end)
            break;
        write = '-';
    }
    if (maps != NULL)
        fclose(maps);
    return write == 'w';
}

int standin_host_register(int device, void *ptr, size_t bytes, bool read_only,
                          struct stg_err *err)
{
    if (ptr == NULL || bytes == 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "standin: %zu bytes", bytes);
    unsigned long no_read_only = standin_control.no_read_only;
    standin_setting("STG_STANDIN_NO_READ_ONLY", &no_read_only);
    if (read_only && no_read_only)
        return stg_err(err, -STAGER_UNIMPLEMENTED, "standin: a read-only mapping");
    if (!read_only && !is_writable(ptr))
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "standin: read-only memory");
    pthread_mutex_lock(&standin_lock);
    add(&pinned, ptr, bytes, NULL);
    standin_control.n_registered++;
    pthread_mutex_unlock(&standin_lock);
    return 0;
}

static void unpin(void *ptr, unsigned *count)
{
    if (ptr == NULL)
        return;
    pthread_mutex_lock(&standin_lock);
    struct range *range = take(&pinned, ptr);
    if (range == NULL)
        abort();
    (*count)--;
    pthread_mutex_unlock(&standin_lock);
    free(range);
}

void standin_host_unregister(void *ptr)
{
    unpin(ptr, &standin_control.n_registered);
}

int standin_host_alloc(size_t bytes, void **ret, struct stg_err *err)
{
    void *ptr = bytes > 0 ? malloc(bytes) : NULL;
    if (ptr == NULL && bytes > 0)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "standin: %zu bytes", bytes);
    if (ptr != NULL) {
        pthread_mutex_lock(&standin_lock);
        add(&pinned, ptr, bytes, NULL);
        standin_control.n_bounces++;
        pthread_mutex_unlock(&standin_lock);
    }
    *ret = ptr;
    return 0;
}

void standin_host_free(void *ptr)
{
    unpin(ptr, &standin_control.n_bounces);
    free(ptr);
}
