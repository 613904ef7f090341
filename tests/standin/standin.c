/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/standin/memory.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"

/* Also guards the contents of streams and events. Memory is copied without it. */
pthread_mutex_t standin_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

enum kind { COPY, LAUNCH, RECORD, WAIT };

struct work {
    enum kind kind;
    void *to;
    const void *from;
    void *own; /* a copy of pageable memory, made at once; the argument of a launch */
    void (*run)(void *arg);
    size_t bytes;
    struct stg_device_event *event;
    uint64_t number;
    struct work *next;
};

struct stg_stream {
    struct stg_stream *of; /* the wrapped stream; the stream itself if it wraps none */
    pthread_t thread;
    struct work *first, **last;
    bool is_busy, is_over;
    struct stg_stream *next; /* all of that work */
};

struct stg_device_event {
    uint64_t recorded, reached;
    unsigned refs; /* its owner, and related work */
};

static struct stg_stream *streams, *standard;
static bool is_held;

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
    pthread_mutex_lock(&standin_lock);
    standin_control.n_events++;
    pthread_mutex_unlock(&standin_lock);
    *ret = event;
    return 0;
}

static void event_destroy(struct stg_device_event *event)
{
    if (event == NULL)
        return;
    pthread_mutex_lock(&standin_lock);
    standin_control.n_events--;
    unref(event);
    pthread_mutex_unlock(&standin_lock);
}

static int event_query(struct stg_device_event *event, struct stg_err *err)
{
    pthread_mutex_lock(&standin_lock);
    bool reached = event->reached >= event->recorded;
    pthread_mutex_unlock(&standin_lock);
    return reached;
}

static int event_wait(struct stg_device_event *event, struct stg_err *err)
{
    pthread_mutex_lock(&standin_lock);
    uint64_t number = event->recorded;
    while (event->reached < number)
        pthread_cond_wait(&changed, &standin_lock);
    pthread_mutex_unlock(&standin_lock);
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

/* Releases the lock while it touches memory. */
static void run(struct work *work)
{
    switch (work->kind) {
    case COPY:
        pthread_mutex_unlock(&standin_lock);
        memcpy(work->to, work->own != NULL ? work->own : work->from, work->bytes);
        pthread_mutex_lock(&standin_lock);
        break;
    case LAUNCH:
        pthread_mutex_unlock(&standin_lock);
        work->run(work->own);
        pthread_mutex_lock(&standin_lock);
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
    pthread_mutex_lock(&standin_lock);
    for (;;) {
        while (!can_run(stream) && !(stream->is_over && stream->first == NULL))
            pthread_cond_wait(&changed, &standin_lock);
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
    pthread_mutex_unlock(&standin_lock);
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
    pthread_mutex_lock(&standin_lock);
    *ret = make_stream();
    standin_control.n_streams++;
    pthread_mutex_unlock(&standin_lock);
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
    pthread_mutex_lock(&standin_lock);
    stream->of = real(native);
    standin_control.n_streams++;
    pthread_mutex_unlock(&standin_lock);
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
    pthread_mutex_lock(&standin_lock);
    standin_control.n_streams--;
    bool is_own = stream->of == stream;
    stream->is_over = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&standin_lock);
    if (is_own) {
        pthread_join(stream->thread, NULL);
        pthread_mutex_lock(&standin_lock);
        forget(stream);
        pthread_mutex_unlock(&standin_lock);
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
    pthread_mutex_lock(&standin_lock);
    struct work work = {.kind = RECORD, .event = event, .number = ++event->recorded};
    enqueue(stream, work);
    pthread_mutex_unlock(&standin_lock);
    return 0;
}

static int stream_wait(struct stg_stream *stream, struct stg_device_event *event,
                       struct stg_err *err)
{
    pthread_mutex_lock(&standin_lock);
    struct work work = {.kind = WAIT, .event = event, .number = event->recorded};
    enqueue(stream, work);
    pthread_mutex_unlock(&standin_lock);
    return 0;
}

static int copy_in(struct stg_stream *stream, void *dst, const void *src, size_t bytes,
                   struct stg_err *err)
{
    int rc = 0;
    pthread_mutex_lock(&standin_lock);
    struct work work = {.kind = COPY, .from = src, .bytes = bytes};
    standin_control.n_copies++;
    if (standin_control.fail_copy > 0 && --standin_control.fail_copy == 0)
        rc = stg_err(err, -STAGER_INTERNAL, "standin: a copy failed");
    if (rc == 0 && bytes > 0) {
        work.to = standin_see(dst);
        if (!standin_is_pinned(src)) {
            work.own = malloc(bytes);
            if (work.own == NULL)
                abort();
            memcpy(work.own, src, bytes);
        }
        enqueue(stream, work);
    }
    pthread_mutex_unlock(&standin_lock);
    return rc;
}

static int copy_out(struct stg_stream *stream, void *dst, const void *src, size_t bytes,
                    struct stg_err *err)
{
    if (bytes == 0)
        return 0;
    pthread_mutex_lock(&standin_lock);
    struct work work = {
        .kind = COPY, .to = dst, .from = standin_see(src), .bytes = bytes};
    enqueue(stream, work);
    pthread_mutex_unlock(&standin_lock);
    return 0;
}

int standin_launch(struct stg_stream *stream, void (*run_it)(void *arg), void *arg,
                   struct stg_err *err)
{
    int rc = 0;
    pthread_mutex_lock(&standin_lock);
    standin_control.n_launches++;
    if (standin_control.fail_kernel > 0 && --standin_control.fail_kernel == 0)
        rc = stg_err(err, -STAGER_INTERNAL, "standin: a kernel failed");
    struct work work = {.kind = LAUNCH, .own = arg, .run = run_it};
    if (rc == 0)
        enqueue(stream, work);
    pthread_mutex_unlock(&standin_lock);
    if (rc < 0)
        free(arg);
    return rc;
}

/* ---- existing objects ---- */

static int count(int *ret, struct stg_err *err)
{
    unsigned long n = (unsigned long)standin_control.n_devices;
    standin_setting("STG_STANDIN_DEVICES", &n);
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
                                     .register_read_only = !standin_control.no_read_only,
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

/* ---- the test's controls ---- */

static void hold(void)
{
    pthread_mutex_lock(&standin_lock);
    is_held = true;
    pthread_mutex_unlock(&standin_lock);
}

static void go(void)
{
    pthread_mutex_lock(&standin_lock);
    is_held = false;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&standin_lock);
}

static bool is_still(void)
{
    for (struct stg_stream *stream = streams; stream != NULL; stream = stream->next) {
        if (can_run(stream) || stream->is_busy)
            return false;
    }
    return true;
}

static void synchronize(void)
{
    pthread_mutex_lock(&standin_lock);
    while (!is_still())
        pthread_cond_wait(&changed, &standin_lock);
    pthread_mutex_unlock(&standin_lock);
}

static struct stg_device_event gate = {.refs = 1, .recorded = 1};

static void block(struct stg_stream *stream)
{
    pthread_mutex_lock(&standin_lock);
    gate.reached = 0;
    struct work work = {.kind = WAIT, .event = &gate, .number = 1};
    enqueue(stream, work);
    pthread_mutex_unlock(&standin_lock);
}

static void unblock(void)
{
    pthread_mutex_lock(&standin_lock);
    gate.reached = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&standin_lock);
}

__attribute__((visibility("default"))) struct standin *stg_standin(void);
__attribute__((visibility("default"))) const struct stg_device *stg_cuda_device(void);

struct standin standin_control = {.hold = hold,
                                  .go = go,
                                  .synchronize = synchronize,
                                  .block = block,
                                  .unblock = unblock,
                                  .n_devices = 1,
                                  .see = standin_see_locked};

struct standin *stg_standin(void)
{
    return &standin_control;
}

const struct stg_device *stg_cuda_device(void)
{
    static struct stg_device table = {
        .abi = STG_DEVICE_ABI,
        .struct_bytes = sizeof(table),
        .name = "standin",
        .count = count,
        .describe = describe,
        .facts = facts,
        .alloc = standin_device_alloc,
        .free = standin_device_free,
        .shared_make = standin_shared_make,
        .shared_import = standin_shared_import,
        .shared_release = standin_shared_release,
        .host_register = standin_host_register,
        .host_unregister = standin_host_unregister,
        .host_alloc = standin_host_alloc,
        .host_free = standin_host_free,
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
    table.kernels = standin_kernels;
    return &table;
}
