/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/standin/standin.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/status.h"

/* Guards all that follows, and what is in streams and events. Memory is copied without
 * it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

enum kind { COPY, RECORD, WAIT };

struct work {
    enum kind kind;
    void *to;
    const void *from;
    void *own; /* a copy of pageable memory, taken at once */
    size_t bytes;
    struct stg_device_event *event;
    uint64_t number;
    struct work *next;
};

struct stg_stream {
    struct stg_stream *of; /* a wrapped one; itself where it is its own */
    pthread_t thread;
    struct work *first, **last;
    bool is_busy, is_over;
    struct stg_stream *next; /* all that work */
};

struct stg_device_event {
    uint64_t recorded, reached;
    unsigned refs; /* its owner, and work that has to do with it */
};

struct range {
    char *at;
    size_t bytes;
    char *seen; /* of device memory: where the device sees it */
    struct range *next;
};

static struct standin control;
static struct range *allocations, *pinned;
static struct stg_stream *streams, *standard;
static bool is_held;

/* ---- memory ---- */

static struct range *find(struct range *ranges, const void *at)
{
    for (struct range *range = ranges; range != NULL; range = range->next) {
        if ((const char *)at >= range->at && (const char *)at < range->at + range->bytes)
            return range;
    }
    return NULL;
}

static void *see(const void *at)
{
    struct range *range = find(allocations, at);
    if (range == NULL) {
        fprintf(stderr, "standin: %p is no memory of the device\n", at);
        abort();
    }
    return range->seen + ((const char *)at - range->at);
}

static void *see_locked(const void *at)
{
    pthread_mutex_lock(&lock);
    void *ret = see(at);
    pthread_mutex_unlock(&lock);
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

/* Two mappings: the address that is handed out cannot be looked at. */
static int device_alloc(int device, size_t bytes, void **ret, struct stg_err *err)
{
    if (device != 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "standin: device %d", device);
    if (bytes == 0) {
        *ret = NULL;
        return 0;
    }
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
    pthread_mutex_lock(&lock);
    add(&allocations, at, bytes, seen);
    control.n_allocations++;
    pthread_mutex_unlock(&lock);
    *ret = at;
    return 0;
}

/* What the program's environment says of the device of a helper process, whose `control`
 * no test reaches. */
static bool is_told(const char *name, unsigned long *ret)
{
    const char *value = getenv(name);
    if (value != NULL)
        *ret = strtoul(value, NULL, 10);
    return value != NULL;
}

/* As the memory above; who only reads it cannot write to it either. */
static int add_shared(int fd, size_t bytes, bool read_only, struct stg_device_shared *ret,
                      struct stg_err *err)
{
    int how = read_only ? PROT_READ : PROT_READ | PROT_WRITE;
    void *at = mmap(NULL, bytes, PROT_NONE, MAP_SHARED, fd, 0);
    void *seen = mmap(NULL, bytes, how, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED || seen == MAP_FAILED)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "standin: %zu bytes", bytes);
    pthread_mutex_lock(&lock);
    add(&allocations, at, bytes, seen);
    control.n_allocations++;
    control.n_shared++;
    pthread_mutex_unlock(&lock);
    *ret = (struct stg_device_shared){.memory = at, .bytes = bytes};
    return 0;
}

static int shared_make(int device, size_t bytes, struct stg_device_shared *ret,
                       int *ret_fd, struct stg_err *err)
{
    unsigned long most = 1ul << 30;
    if (device != 0 || bytes == 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "standin: device %d, %zu bytes",
                       device, bytes);
    is_told("STG_STANDIN_MEMORY", &most);
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

static int shared_import(int device, int fd, size_t bytes, bool read_only,
                         struct stg_device_shared *ret, struct stg_err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0 || st.st_size < 0 || (size_t)st.st_size != bytes || bytes == 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "standin: not %zu bytes", bytes);
    return add_shared(fd, bytes, read_only, ret, err);
}

static void device_free(int device, void *ptr)
{
    if (ptr == NULL)
        return;
    pthread_mutex_lock(&lock);
    struct range *range = take(&allocations, ptr);
    if (range == NULL)
        abort();
    control.n_allocations--;
    pthread_mutex_unlock(&lock);
    munmap(range->at, range->bytes);
    munmap(range->seen, range->bytes);
    free(range);
}

static void shared_release(struct stg_device_shared *shared)
{
    if (shared->memory == NULL)
        return;
    device_free(shared->device, shared->memory);
    pthread_mutex_lock(&lock);
    control.n_shared--;
    pthread_mutex_unlock(&lock);
    *shared = (struct stg_device_shared){0};
}

static int host_register(int device, void *ptr, size_t bytes, bool read_only,
                         struct stg_err *err)
{
    if (ptr == NULL || bytes == 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "standin: %zu bytes", bytes);
    if (read_only && control.no_read_only)
        return stg_err(err, -STAGER_UNIMPLEMENTED, "standin: a read-only mapping");
    pthread_mutex_lock(&lock);
    add(&pinned, ptr, bytes, NULL);
    control.n_registered++;
    pthread_mutex_unlock(&lock);
    return 0;
}

static void unpin(void *ptr, unsigned *count)
{
    if (ptr == NULL)
        return;
    pthread_mutex_lock(&lock);
    struct range *range = take(&pinned, ptr);
    if (range == NULL)
        abort();
    (*count)--;
    pthread_mutex_unlock(&lock);
    free(range);
}

static void host_unregister(void *ptr)
{
    unpin(ptr, &control.n_registered);
}

static int host_alloc(size_t bytes, void **ret, struct stg_err *err)
{
    void *ptr = bytes > 0 ? malloc(bytes) : NULL;
    if (ptr == NULL && bytes > 0)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "standin: %zu bytes", bytes);
    if (ptr != NULL) {
        pthread_mutex_lock(&lock);
        add(&pinned, ptr, bytes, NULL);
        control.n_bounces++;
        pthread_mutex_unlock(&lock);
    }
    *ret = ptr;
    return 0;
}

static void host_free(void *ptr)
{
    unpin(ptr, &control.n_bounces);
    free(ptr);
}

/* ---- events ---- */

static void unref(struct stg_device_event *event)
{
    if (--event->refs == 0)
        free(event);
}

static int event_create(int device, struct stg_device_event **ret, struct stg_err *err)
{
    struct stg_device_event *event = calloc(1, sizeof(*event));
    if (event == NULL || device != 0) {
        free(event);
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "standin: device %d", device);
    }
    event->refs = 1;
    pthread_mutex_lock(&lock);
    control.n_events++;
    pthread_mutex_unlock(&lock);
    *ret = event;
    return 0;
}

static void event_destroy(struct stg_device_event *event)
{
    if (event == NULL)
        return;
    pthread_mutex_lock(&lock);
    control.n_events--;
    unref(event);
    pthread_mutex_unlock(&lock);
}

static int event_query(struct stg_device_event *event, struct stg_err *err)
{
    pthread_mutex_lock(&lock);
    bool reached = event->reached >= event->recorded;
    pthread_mutex_unlock(&lock);
    return reached;
}

static int event_wait(struct stg_device_event *event, struct stg_err *err)
{
    pthread_mutex_lock(&lock);
    uint64_t number = event->recorded;
    while (event->reached < number)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return 0;
}

static void *event_native(struct stg_device_event *event)
{
    return event;
}

/* ---- streams ---- */

static bool can_run(const struct stg_stream *stream)
{
    const struct work *work = stream->first;
    return work != NULL && !is_held &&
           (work->kind != WAIT || work->event->reached >= work->number);
}

/* Without the lock where it touches memory. */
static void run(struct work *work)
{
    switch (work->kind) {
    case COPY:
        pthread_mutex_unlock(&lock);
        memcpy(work->to, work->own != NULL ? work->own : work->from, work->bytes);
        pthread_mutex_lock(&lock);
        break;
    case RECORD:
        if (work->event->reached < work->number)
            work->event->reached = work->number;
        break;
    case WAIT: break;
    }
    if (work->event != NULL)
        unref(work->event);
    free(work->own);
    free(work);
}

static void *loop(void *arg)
{
    struct stg_stream *stream = arg;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!can_run(stream) && !(stream->is_over && stream->first == NULL))
            pthread_cond_wait(&changed, &lock);
        struct work *work = stream->first;
        if (work == NULL)
            break;
        stream->first = work->next;
        if (stream->first == NULL)
            stream->last = &stream->first;
        stream->is_busy = true;
        run(work);
        stream->is_busy = false;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static struct stg_stream *make_stream(void)
{
    struct stg_stream *stream = calloc(1, sizeof(*stream));
    if (stream == NULL)
        abort();
    stream->of = stream;
    stream->last = &stream->first;
    if (pthread_create(&stream->thread, NULL, loop, stream) != 0)
        abort();
    stream->next = streams;
    streams = stream;
    return stream;
}

static struct stg_stream *real(struct stg_stream *stream)
{
    if (stream != NULL)
        return stream->of;
    if (standard == NULL)
        standard = make_stream();
    return standard;
}

static int stream_create(int device, struct stg_stream **ret, struct stg_err *err)
{
    if (device != 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "standin: device %d", device);
    pthread_mutex_lock(&lock);
    *ret = make_stream();
    control.n_streams++;
    pthread_mutex_unlock(&lock);
    return 0;
}

static int stream_wrap(int device, void *native, struct stg_stream **ret,
                       struct stg_err *err)
{
    struct stg_stream *stream = calloc(1, sizeof(*stream));
    if (stream == NULL || device != 0) {
        free(stream);
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "standin: device %d", device);
    }
    pthread_mutex_lock(&lock);
    stream->of = real(native);
    control.n_streams++;
    pthread_mutex_unlock(&lock);
    *ret = stream;
    return 0;
}

static void forget(struct stg_stream *stream)
{
    for (struct stg_stream **at = &streams; *at != NULL; at = &(*at)->next) {
        if (*at == stream) {
            *at = stream->next;
            return;
        }
    }
}

static void stream_destroy(struct stg_stream *stream)
{
    if (stream == NULL)
        return;
    pthread_mutex_lock(&lock);
    control.n_streams--;
    bool is_own = stream->of == stream;
    stream->is_over = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    if (is_own) {
        pthread_join(stream->thread, NULL);
        pthread_mutex_lock(&lock);
        forget(stream);
        pthread_mutex_unlock(&lock);
    }
    free(stream);
}

static void enqueue(struct stg_stream *stream, struct work work)
{
    struct work *copy = malloc(sizeof(*copy));
    if (copy == NULL)
        abort();
    *copy = work;
    if (copy->event != NULL)
        copy->event->refs++;
    struct stg_stream *at = real(stream);
    *at->last = copy;
    at->last = &copy->next;
    pthread_cond_broadcast(&changed);
}

static int event_record(struct stg_device_event *event, struct stg_stream *stream,
                        struct stg_err *err)
{
    pthread_mutex_lock(&lock);
    struct work work = {.kind = RECORD, .event = event, .number = ++event->recorded};
    enqueue(stream, work);
    pthread_mutex_unlock(&lock);
    return 0;
}

static int stream_wait(struct stg_stream *stream, struct stg_device_event *event,
                       struct stg_err *err)
{
    pthread_mutex_lock(&lock);
    struct work work = {.kind = WAIT, .event = event, .number = event->recorded};
    enqueue(stream, work);
    pthread_mutex_unlock(&lock);
    return 0;
}

static int copy_in(struct stg_stream *stream, void *dst, const void *src, size_t bytes,
                   struct stg_err *err)
{
    int rc = 0;
    pthread_mutex_lock(&lock);
    struct work work = {.kind = COPY, .from = src, .bytes = bytes};
    control.n_copies++;
    if (control.fail_copy > 0 && --control.fail_copy == 0)
        rc = stg_err(err, -STAGER_INTERNAL, "standin: a copy failed");
    if (rc == 0 && bytes > 0) {
        work.to = see(dst);
        if (find(pinned, src) == NULL) {
            work.own = malloc(bytes);
            if (work.own == NULL)
                abort();
            memcpy(work.own, src, bytes);
        }
        enqueue(stream, work);
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

static int copy_out(struct stg_stream *stream, void *dst, const void *src, size_t bytes,
                    struct stg_err *err)
{
    if (bytes == 0)
        return 0;
    pthread_mutex_lock(&lock);
    struct work work = {.kind = COPY, .to = dst, .from = see(src), .bytes = bytes};
    enqueue(stream, work);
    pthread_mutex_unlock(&lock);
    return 0;
}

/* ---- what there is ---- */

static int count(int *ret, struct stg_err *err)
{
    unsigned long n = (unsigned long)control.n_devices;
    is_told("STG_STANDIN_DEVICES", &n);
    if (n == 0)
        return stg_err(err, -STAGER_UNAVAILABLE, "standin: no device");
    *ret = (int)n;
    return 0;
}

static int facts(int device, struct stg_device_facts *ret, struct stg_err *err)
{
    if (device != 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "standin: device %d", device);
    *ret = (struct stg_device_facts){.name = "standin",
                                     .memory_bytes = 1u << 30,
                                     .uuid = "standin",
                                     .register_read_only = !control.no_read_only,
                                     .memory_fds = true};
    return 0;
}

static int describe(int device, char *buf, size_t bytes, struct stg_err *err)
{
    if (device != 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "standin: device %d", device);
    snprintf(buf, bytes, "standin");
    return 0;
}

/* ---- the test's hand ---- */

static void hold(void)
{
    pthread_mutex_lock(&lock);
    is_held = true;
    pthread_mutex_unlock(&lock);
}

static void go(void)
{
    pthread_mutex_lock(&lock);
    is_held = false;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static bool is_still(void)
{
    for (struct stg_stream *stream = streams; stream != NULL; stream = stream->next) {
        if (can_run(stream) || stream->is_busy)
            return false;
    }
    return true;
}

static void settle(void)
{
    pthread_mutex_lock(&lock);
    while (!is_still())
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static struct stg_device_event gate = {.refs = 1, .recorded = 1};

static void block(struct stg_stream *stream)
{
    pthread_mutex_lock(&lock);
    gate.reached = 0;
    struct work work = {.kind = WAIT, .event = &gate, .number = 1};
    enqueue(stream, work);
    pthread_mutex_unlock(&lock);
}

static void unblock(void)
{
    pthread_mutex_lock(&lock);
    gate.reached = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

__attribute__((visibility("default"))) struct standin *stg_standin(void);
__attribute__((visibility("default"))) const struct stg_device *stg_cuda_device(void);

static struct standin control = {.hold = hold,
                                 .go = go,
                                 .settle = settle,
                                 .block = block,
                                 .unblock = unblock,
                                 .n_devices = 1,
                                 .see = see_locked};

struct standin *stg_standin(void)
{
    return &control;
}

const struct stg_device *stg_cuda_device(void)
{
    static const struct stg_device table = {
        .abi = STG_DEVICE_ABI,
        .struct_bytes = sizeof(table),
        .name = "standin",
        .count = count,
        .describe = describe,
        .facts = facts,
        .alloc = device_alloc,
        .free = device_free,
        .shared_make = shared_make,
        .shared_import = shared_import,
        .shared_release = shared_release,
        .host_register = host_register,
        .host_unregister = host_unregister,
        .host_alloc = host_alloc,
        .host_free = host_free,
        .stream_create = stream_create,
        .stream_wrap = stream_wrap,
        .stream_destroy = stream_destroy,
        .stream_wait = stream_wait,
        .copy_in = copy_in,
        .copy_out = copy_out,
        .event_create = event_create,
        .event_record = event_record,
        .event_query = event_query,
        .event_wait = event_wait,
        .event_native = event_native,
        .event_destroy = event_destroy,
    };
    return &table;
}
