/* SPDX-License-Identifier: Apache-2.0 */
#include "core/device.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/status.h"

#define PLUGIN "libstager-cuda.so"
#define ALIGN 64u

/* ---- the CPU ---- */

/* Work on the CPU is done when the call returns: both need an identity and nothing else.
 */
struct stg_stream {
    int device;
};

struct stg_device_event {
    int device;
};

static int check_device(int device, struct stg_err *err)
{
    if (device == 0)
        return 0;
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "cpu: device %d does not exist, only device 0", device);
}

static int no_memory(size_t bytes, struct stg_err *err)
{
    return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "cpu: no memory for %zu bytes",
                   bytes);
}

static int cpu_count(int *ret, struct stg_err *err)
{
    *ret = 1;
    return 0;
}

static int cpu_facts(int device, struct stg_device_facts *ret, struct stg_err *err)
{
    int rc = check_device(device, err);
    if (rc < 0)
        return rc;
    *ret = (struct stg_device_facts){
        .name = "CPU",
        .memory_bytes =
            (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE),
        .register_read_only = true,
        .memory_fds = true,
    };
    return 0;
}

static int cpu_describe(int device, char *buf, size_t bytes, struct stg_err *err)
{
    struct stg_device_facts facts;
    int rc = cpu_facts(device, &facts, err);
    if (rc < 0)
        return rc;
    snprintf(buf, bytes, "CPU, %ld cores, %.0f GiB", sysconf(_SC_NPROCESSORS_ONLN),
             (double)facts.memory_bytes / (1 << 30));
    return 0;
}

static int cpu_alloc(int device, size_t bytes, void **ret, struct stg_err *err)
{
    int rc = check_device(device, err);
    if (rc < 0)
        return rc;
    void *ptr = NULL;
    if (bytes > PTRDIFF_MAX - ALIGN)
        return no_memory(bytes, err);
    if (bytes > 0) {
        ptr = aligned_alloc(ALIGN, (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1));
        if (ptr == NULL)
            return no_memory(bytes, err);
    }
    *ret = ptr;
    return 0;
}

static void cpu_free(int device, void *ptr)
{
    free(ptr);
}

/* ---- the CPU's memory that is shared: a memfd ---- */

static int map_shared(int fd, size_t bytes, bool read_only, struct stg_device_shared *ret,
                      struct stg_err *err)
{
    void *memory = mmap(NULL, bytes, read_only ? PROT_READ : PROT_READ | PROT_WRITE,
                        MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return no_memory(bytes, err);
    *ret = (struct stg_device_shared){.memory = memory, .bytes = bytes};
    return 0;
}

static int cpu_shared_make(int device, size_t bytes, struct stg_device_shared *ret,
                           int *ret_fd, struct stg_err *err)
{
    int rc = check_device(device, err);
    if (rc < 0)
        return rc;
    if (bytes == 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "cpu: cannot share 0 bytes");
    int fd = memfd_create("stager-device", MFD_CLOEXEC);
    if (fd < 0 || bytes > PTRDIFF_MAX || ftruncate(fd, (off_t)bytes) < 0)
        rc = no_memory(bytes, err);
    if (rc == 0)
        rc = map_shared(fd, bytes, false, ret, err);
    if (rc == 0)
        *ret_fd = fd;
    else if (fd >= 0)
        close(fd);
    return rc;
}

static int cpu_shared_import(int device, int fd, size_t bytes, bool read_only,
                             struct stg_device_shared *ret, struct stg_err *err)
{
    struct stat st;
    int rc = check_device(device, err);
    if (rc < 0)
        return rc;
    if (bytes == 0 || fstat(fd, &st) < 0 || st.st_size < 0 || (size_t)st.st_size != bytes)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "cpu: descriptor %d is not shared memory of %zu bytes", fd, bytes);
    return map_shared(fd, bytes, read_only, ret, err);
}

static void cpu_shared_release(struct stg_device_shared *shared)
{
    if (shared->memory != NULL)
        munmap(shared->memory, shared->bytes);
    *shared = (struct stg_device_shared){0};
}

static int cpu_host_register(int device, void *ptr, size_t bytes, bool read_only,
                             struct stg_err *err)
{
    if (ptr == NULL || bytes == 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "cpu: cannot register %zu bytes at %p", bytes, ptr);
    return 0;
}

static void cpu_host_unregister(void *ptr)
{
}

static int cpu_host_alloc(size_t bytes, void **ret, struct stg_err *err)
{
    return cpu_alloc(0, bytes, ret, err);
}

static int cpu_stream_create(int device, struct stg_stream **ret, struct stg_err *err)
{
    int rc = check_device(device, err);
    if (rc < 0)
        return rc;
    struct stg_stream *stream = calloc(1, sizeof(*stream));
    if (stream == NULL)
        return no_memory(sizeof(*stream), err);
    *ret = stream;
    return 0;
}

static int cpu_stream_wrap(int device, void *native, struct stg_stream **ret,
                           struct stg_err *err)
{
    return cpu_stream_create(device, ret, err);
}

static int cpu_stream_wait(struct stg_stream *stream, struct stg_device_event *event,
                           struct stg_err *err)
{
    return 0;
}

static void cpu_stream_destroy(struct stg_stream *stream)
{
    free(stream);
}

static int cpu_copy(struct stg_stream *stream, void *dst, const void *src, size_t bytes,
                    struct stg_err *err)
{
    if (bytes > 0)
        memcpy(dst, src, bytes);
    return 0;
}

static int cpu_event_create(int device, struct stg_device_event **ret,
                            struct stg_err *err)
{
    int rc = check_device(device, err);
    if (rc < 0)
        return rc;
    struct stg_device_event *event = calloc(1, sizeof(*event));
    if (event == NULL)
        return no_memory(sizeof(*event), err);
    *ret = event;
    return 0;
}

static int cpu_event_record(struct stg_device_event *event, struct stg_stream *stream,
                            struct stg_err *err)
{
    return 0;
}

static int cpu_event_query(struct stg_device_event *event, struct stg_err *err)
{
    return 1;
}

static int cpu_event_wait(struct stg_device_event *event, struct stg_err *err)
{
    return 0;
}

static void cpu_event_destroy(struct stg_device_event *event)
{
    free(event);
}

static void *cpu_event_native(struct stg_device_event *event)
{
    return event;
}

static const struct stg_device cpu_device = {
    .abi = STG_DEVICE_ABI,
    .struct_bytes = sizeof(struct stg_device),
    .name = "cpu",
    .count = cpu_count,
    .describe = cpu_describe,
    .facts = cpu_facts,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .shared_make = cpu_shared_make,
    .shared_import = cpu_shared_import,
    .shared_release = cpu_shared_release,
    .host_register = cpu_host_register,
    .host_unregister = cpu_host_unregister,
    .host_alloc = cpu_host_alloc,
    .host_free = free,
    .stream_create = cpu_stream_create,
    .stream_wrap = cpu_stream_wrap,
    .stream_destroy = cpu_stream_destroy,
    .stream_wait = cpu_stream_wait,
    .copy_in = cpu_copy,
    .copy_out = cpu_copy,
    .event_create = cpu_event_create,
    .event_record = cpu_event_record,
    .event_query = cpu_event_query,
    .event_wait = cpu_event_wait,
    .event_native = cpu_event_native,
    .event_destroy = cpu_event_destroy,
};

const struct stg_device *stg_device_cpu(void)
{
    return &cpu_device;
}

/* ---- loading the other one ---- */

int stg_device_number(const char *name, int *ret, struct stg_err *err)
{
    char *end = NULL;
    long n = 0;
    if (strncmp(name, "cuda:", 5) == 0)
        n = strtol(name + 5, &end, 10);
    bool is_good = end != NULL ? end != name + 5 && *end == '\0' && name[5] >= '0' &&
                                     name[5] <= '9' && n <= 4096
                               : strcmp(name, "cuda") == 0;
    if (!is_good)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "device is \"%.32s\", not \"cuda\" or \"cuda:N\"; leave it out "
                       "for batches in host memory",
                       name);
    *ret = (int)n;
    return 0;
}

/* Guards `loaded`. */
static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static const struct stg_device *loaded;

/* A table of another abi, or one that ends before ours does, is not called into. A longer
 * one is: within an abi, members are only added at the end. */
static int check_table(const struct stg_device *table, const char *path,
                       struct stg_err *err)
{
    if (table == NULL)
        return stg_err(err, -STAGER_UNAVAILABLE, "%s: returned no table", path);
    if (table->abi != STG_DEVICE_ABI)
        return stg_err(
            err, -STAGER_UNAVAILABLE,
            "%s: has device abi %u, this program has %u: install both from one "
            "version",
            path, table->abi, STG_DEVICE_ABI);
    if (table->struct_bytes < sizeof(struct stg_device))
        return stg_err(
            err, -STAGER_UNAVAILABLE,
            "%s: has a table of %u bytes, this program needs %zu: install both "
            "from one version",
            path, table->struct_bytes, sizeof(struct stg_device));
    return 0;
}

static int load_from(const char *path, const struct stg_device **ret, struct stg_err *err)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        const char *why = dlerror();
        return stg_err(err, -STAGER_UNAVAILABLE, "%s", why != NULL ? why : path);
    }
    const struct stg_device *(*entry)(void);
    void *symbol = dlsym(handle, STG_DEVICE_SYMBOL);
    int rc;
    if (symbol == NULL) {
        rc = stg_err(err, -STAGER_UNAVAILABLE, "%s: exports no %s", path,
                     STG_DEVICE_SYMBOL);
        goto fail;
    }
    memcpy(&entry, &symbol, sizeof(entry));
    const struct stg_device *table = entry();
    rc = check_table(table, path, err);
    if (rc < 0)
        goto fail;
    *ret = table; /* the handle stays open as long as the process lives */
    return 0;

fail:
    dlclose(handle);
    return rc;
}

static int load(const char *dir, const struct stg_device **ret, struct stg_err *err)
{
    char path[4096];
    const char *first = dir != NULL ? dir : STG_PLUGIN_DIR;
    if ((size_t)snprintf(path, sizeof(path), "%s/" PLUGIN, first) >= sizeof(path))
        return stg_err(err, -STAGER_UNAVAILABLE, "%.64s…: path too long", first);
    int rc = load_from(path, ret, err);
    if (rc == 0 || dir != NULL)
        return rc;
    if (access(path, F_OK) == 0)
        return rc; /* it is installed, and that is what is wrong with it */
    rc = load_from(PLUGIN, ret, err);
    if (rc == 0)
        return 0;
    return stg_err_append(err, rc,
                          "; it is not in %s either: build " PLUGIN
                          " with a CUDA toolkit "
                          "(meson setup -Dcuda=enabled) and install it",
                          STG_PLUGIN_DIR);
}

int stg_device_cuda(const char *dir, const struct stg_device **ret, struct stg_err *err)
{
    struct stg_err why = {0};
    const struct stg_device *table = NULL;
    pthread_mutex_lock(&load_lock);
    int rc = loaded != NULL ? 0 : load(dir, &loaded, &why);
    table = loaded;
    pthread_mutex_unlock(&load_lock);
    if (rc < 0)
        return stg_err(err, rc, "CUDA is not available: %s", why.text);
    *ret = table;
    return 0;
}
