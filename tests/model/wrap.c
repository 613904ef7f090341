/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/model/wrap.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "client/transport/guard.h"
#include "client/transport/socket.h"
#include "core/log.h"
#include "core/ring.h"
#include "daemon/host/memory.h"
#include "daemon/remote_stage/remote.h"
#include "tests/check.h"
#include "tests/model/explore.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wreserved-identifier"
#endif

struct waiting {
    const void *cond;
    const void *mutex;
    bool woken;
};

#define SEGMENTS (-1) /* the process of memory that processes share */
#define MAX_SEGMENTS 32

struct shared {
    void *base;
    uint64_t n_maps;
    bool is_daemons; /* one of these is the daemon's */
};

struct world {
    struct outside outside;
    struct shared shared[MAX_SEGMENTS];
    struct waiting waiting[MAX_FIBERS];
    const struct stg_schema *schema; /* of what the worker makes */
};

static struct world *world;

struct outside *outside_create(void)
{
    world = region_alloc(sizeof(*world), 16);
    CHECK(world != NULL);
    world->outside.clock_ns = 1;
    return &world->outside;
}

struct outside *outside(void)
{
    return &world->outside;
}

bool outside_time_left(void)
{
    return world->outside.timeouts_left > 0;
}

static bool always(void *arg)
{
    return true;
}

/* Other fibers may run here. */
static void point(const char *what)
{
    if (fiber_self() >= 0 && world->outside.fine)
        fiber_block(always, NULL, false, what);
}

/* ---- memory ---- */

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *pointer, size_t bytes);
void *__real_aligned_alloc(size_t align, size_t bytes);
void __real_free(void *pointer);
int __real_clock_gettime(clockid_t clock, struct timespec *ret);

void *__wrap_malloc(size_t bytes)
{
    return explore_inside() ? region_alloc(bytes, 16) : __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    return explore_inside() ? region_alloc(n * bytes, 16) : __real_calloc(n, bytes);
}

void *__wrap_realloc(void *pointer, size_t bytes)
{
    if (!explore_inside() || (pointer != NULL && !region_owns(pointer)))
        return __real_realloc(pointer, bytes);
    void *ret = region_alloc(bytes, 16);
    if (ret != NULL && pointer != NULL) {
        size_t n = region_size(pointer);
        memcpy(ret, pointer, n < bytes ? n : bytes);
        region_free(pointer);
    }
    return ret;
}

void *__wrap_reallocarray(void *pointer, size_t n, size_t bytes)
{
    return __wrap_realloc(pointer, n * bytes);
}

void *__wrap_aligned_alloc(size_t align, size_t bytes)
{
    return explore_inside() ? region_alloc(bytes, align)
                            : __real_aligned_alloc(align, bytes);
}

int __wrap_posix_memalign(void **ret, size_t align, size_t bytes)
{
    *ret = __wrap_aligned_alloc(align, bytes);
    return *ret != NULL ? 0 : ENOMEM;
}

void __wrap_free(void *pointer)
{
    if (region_owns(pointer))
        region_free(pointer);
    else
        __real_free(pointer);
}

static char *copy_text(const char *s, size_t n)
{
    char *ret = __wrap_malloc(n + 1);
    if (ret != NULL) {
        memcpy(ret, s, n);
        ret[n] = '\0';
    }
    return ret;
}

char *__wrap_strdup(const char *s)
{
    return copy_text(s, strlen(s));
}

char *__wrap_strndup(const char *s, size_t n)
{
    return copy_text(s, strnlen(s, n));
}

static struct shared *map_once(void *base)
{
    struct shared *at = NULL;
    for (int i = MAX_SEGMENTS; i-- > 0;) {
        struct shared *s = &world->shared[i];
        if (s->base == base || (s->base == NULL && (at == NULL || at->base == NULL)))
            at = s;
    }
    CHECK(at != NULL);
    at->base = base;
    at->n_maps++;
    return at;
}

void outside_map(void *base)
{
    map_once(base);
}

void outside_unmap(void *base)
{
    for (int i = 0; i < MAX_SEGMENTS; i++) {
        struct shared *s = &world->shared[i];
        if (s->base != base || base == NULL || --s->n_maps > 0)
            continue;
        *s = (struct shared){0};
        region_free(base);
    }
}

static void unmap_daemons(void *base)
{
    for (int i = 0; i < MAX_SEGMENTS; i++) {
        if (world->shared[i].base == base)
            world->shared[i].is_daemons = false;
    }
    outside_unmap(base);
}

void outside_lose_daemon(void)
{
    for (int i = 0; i < MAX_SEGMENTS; i++) {
        if (world->shared[i].is_daemons)
            unmap_daemons(world->shared[i].base);
    }
    for (int i = 0; i < MAX_FIBERS; i++) {
        if (fiber_ended(i))
            world->waiting[i] = (struct waiting){0};
    }
}

int __wrap_stg_segment_create(const char *name, uint64_t bytes, bool client_writable,
                              const _Atomic int *cancelled, struct stg_segment *ret,
                              struct stg_err *err)
{
    *ret = (struct stg_segment){
        .fd = -1, .bytes = bytes, .base = region_alloc_for(SEGMENTS, bytes, 4096)};
    map_once(ret->base)->is_daemons = true;
    return 0;
}

/* The client has its own mapping and continues to read. */
void __wrap_stg_segment_destroy(struct stg_segment *segment)
{
    unmap_daemons(segment->base);
    segment->base = NULL;
}

/* ---- locks: the first bytes of the program's lock objects name the holder ---- */

struct mutex {
    int held;
};

static bool is_free(void *arg)
{
    return ((struct mutex *)arg)->held == 0;
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    struct mutex *m = (void *)mutex;
    if (fiber_self() < 0 || !region_owns(mutex))
        return 0;
    fiber_block(is_free, m, false, "takes a lock");
    m->held = 1;
    return 0;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    if (fiber_self() >= 0 && region_owns(mutex))
        ((struct mutex *)(void *)mutex)->held = 0;
    return 0;
}

int __wrap_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attr)
{
    memset(mutex, 0, sizeof(*mutex));
    return 0;
}

int __wrap_pthread_mutex_destroy(pthread_mutex_t *mutex)
{
    return 0;
}

int __wrap_pthread_cond_init(pthread_cond_t *cond, const pthread_condattr_t *attr)
{
    memset(cond, 0, sizeof(*cond));
    return 0;
}

int __wrap_pthread_cond_destroy(pthread_cond_t *cond)
{
    return 0;
}

static bool is_woken(void *arg)
{
    const struct waiting *w = arg;
    return w->woken && ((const struct mutex *)w->mutex)->held == 0;
}

static bool wait_on(pthread_cond_t *cond, pthread_mutex_t *mutex, bool timed)
{
    struct waiting *w = &world->waiting[fiber_self()];
    CHECK(((struct mutex *)(void *)mutex)->held != 0);
    *w = (struct waiting){.cond = cond, .mutex = mutex};
    ((struct mutex *)(void *)mutex)->held = 0;
    bool woken = fiber_block(is_woken, w, timed, timed ? "waits a while" : "waits");
    *w = (struct waiting){0};
    if (!woken)
        fiber_block(is_free, mutex, false, "takes a lock after its time");
    ((struct mutex *)(void *)mutex)->held = 1;
    return woken;
}

int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
    wait_on(cond, mutex, false);
    return 0;
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                  const struct timespec *until)
{
    uint64_t deadline = (uint64_t)until->tv_sec * 1000000000u + (uint64_t)until->tv_nsec;
    if (world->outside.clock_ns >= deadline)
        return ETIMEDOUT;
    if (wait_on(cond, mutex, true))
        return 0;
    if (world->outside.clock_ns < deadline)
        world->outside.clock_ns = deadline;
    if (world->outside.timeouts_left > 0)
        world->outside.timeouts_left--;
    return ETIMEDOUT;
}

static bool may_wake(void *arg, int i)
{
    return world->waiting[i].cond == arg && !world->waiting[i].woken;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *cond)
{
    for (int i = 0; i < MAX_FIBERS; i++) {
        if (may_wake(cond, i))
            world->waiting[i].woken = true;
    }
    return 0;
}

/* Wakes any one of the waiting fibers. */
int __wrap_pthread_cond_signal(pthread_cond_t *cond)
{
    int n = 0, last = 0;
    for (int i = 0; i < MAX_FIBERS; i++) {
        n += may_wake(cond, i);
        last = may_wake(cond, i) ? i : last;
    }
    if (n > 1 && fiber_self() >= 0)
        last = fiber_choose(MAX_FIBERS, may_wake, cond, "wakes one");
    if (n > 0)
        world->waiting[last].woken = true;
    return 0;
}

/* ---- threads ---- */

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
                          void *(*body)(void *arg), void *arg)
{
    static const char *const names[] = {"runner 0", "runner 1", "runner 2", "runner 3"};
    static int n;
    *thread = (pthread_t)fiber_start(names[n++ % 4], body, arg);
    n %= 4;
    return 0;
}

static bool has_ended(void *arg)
{
    return fiber_ended((int)(intptr_t)arg);
}

int __wrap_pthread_join(pthread_t thread, void **ret)
{
    fiber_block(has_ended, (void *)(intptr_t)thread, false, "joins");
    fiber_forget((int)thread);
    return 0;
}

int __wrap_pthread_setname_np(pthread_t thread, const char *name)
{
    return 0;
}

/* ---- time and wires ---- */

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    if (!explore_inside())
        return __real_clock_gettime(clock, ret);
    uint64_t now = world->outside.clock_ns;
    *ret = (struct timespec){.tv_sec = (time_t)(now / 1000000000u),
                             .tv_nsec = (long)(now % 1000000000u)};
    return 0;
}

ssize_t __wrap_send(int fd, const void *bytes, size_t n, int flags)
{
    world->outside.wires[fd - SOCKET_OF(0)].doorbell_to_client = true;
    return (ssize_t)n;
}

int __wrap_shutdown(int fd, int how)
{
    world->outside.wires[fd - SOCKET_OF(0)].shut = true;
    return 0;
}

bool __wrap_stg_socket_doorbell(int fd)
{
    world->outside.wires[fd - SOCKET_OF(0)].doorbell_to_daemon = true;
    return true;
}

int __wrap_stg_socket_drain(int fd)
{
    struct wire *wire = &world->outside.wires[fd - SOCKET_OF(0)];
    point("takes stale doorbells away");
    wire->doorbell_to_client = false;
    return wire->shut ? -STAGER_UNAVAILABLE : 0;
}

static bool has_doorbell(void *arg)
{
    const struct wire *wire = arg;
    return wire->doorbell_to_client || wire->shut;
}

void __wrap_stg_socket_sleep(int fd, int64_t until_ns)
{
    fiber_block(has_doorbell, &world->outside.wires[fd - SOCKET_OF(0)], false,
                "sleeps on its socket");
}

bool __wrap_stg_guard_holds(const struct stg_guard *guard)
{
    return true;
}

void __wrap_stg_log(enum stg_log_level level, const char *fmt, ...)
{
}

/* ---- a stage worker, which may be asked at any time and has each item ---- */

int __wrap_stg_remote_create(const struct stg_remote_config *config,
                             struct stg_remote **ret, struct stg_err *err)
{
    world->schema = config->schema;
    *ret = (void *)world;
    return 0;
}

void __wrap_stg_remote_destroy(struct stg_remote *remote)
{
}

bool __wrap_stg_remote_look_begin(struct stg_remote *remote)
{
    return false;
}

bool __wrap_stg_remote_ready(struct stg_remote *remote, uint32_t n_asking,
                             const struct stg_auto_runners *runners)
{
    return true;
}

void __wrap_stg_remote_counts(struct stg_remote *remote, struct stg_remote_counts *ret)
{
    *ret = (struct stg_remote_counts){0};
}

int __wrap_stg_lane_create(struct stg_remote *remote, struct stg_remote_lane **ret,
                           struct stg_err *err)
{
    *ret = (void *)remote;
    return 0;
}

void __wrap_stg_lane_destroy(struct stg_remote_lane *lane)
{
}

/* Batches of one row, of zeros. */
uint64_t __wrap_stg_remote_ask(struct stg_remote_lane *lane,
                               const struct stg_remote_wanted *wanted)
{
    static const int64_t one[STG_MAX_DIMS] = {1, 1, 1, 1, 1, 1, 1, 1};
    struct stg_batch_writer writer;
    struct stg_tensor tensor;
    struct stg_err err = {0};
    const struct stg_schema *schema = world->schema;
    CHECK_OK(stg_batch_writer_begin_growing(&writer, wanted->base, wanted->capacity,
                                            wanted->room, schema, &err),
             err);
    for (uint32_t i = 0; i < schema->n; i++) {
        const struct stg_component *c = &schema->components[i];
        CHECK_OK(
            stg_batch_writer_alloc(&writer, i, c->dtype, c->ndim, one, 0, &tensor, &err),
            err);
        memset((void *)(uintptr_t)tensor.data, 0, tensor.data_bytes);
    }
    uint64_t bytes = stg_batch_writer_seal(&writer);
    ((struct stg_batch_header *)wanted->base)->n_rows = 1;
    return bytes;
}

/* ---- accesses to shared pages ---- */

bool __real_stg_control_waiting(const struct stg_control_reader *reader);
int __real_stg_control_poll(struct stg_control_reader *reader,
                            struct stg_release_entry *ret);
void __real_stg_ring_want_doorbell(struct stg_ring_writer *writer);
void __real_stg_ring_push(struct stg_ring_writer *writer,
                          const struct stg_descriptor *descriptor);
bool __real_stg_ring_take(struct stg_ring_reader *reader, struct stg_descriptor *ret);
bool __real_stg_ring_ready(const struct stg_ring_reader *reader);
bool __real_stg_ring_needs_doorbell(struct stg_ring_reader *reader, uint64_t few);
void __real_stg_control_set_waiting(struct stg_control_writer *writer, bool waiting);
void __real_stg_control_release(struct stg_control_writer *writer, uint32_t lease,
                                uint32_t generation);

bool __wrap_stg_control_waiting(const struct stg_control_reader *reader)
{
    point("looks whether a client sleeps");
    return __real_stg_control_waiting(reader);
}

int __wrap_stg_control_poll(struct stg_control_reader *reader,
                            struct stg_release_entry *ret)
{
    point("looks for releases");
    return __real_stg_control_poll(reader, ret);
}

void __wrap_stg_ring_want_doorbell(struct stg_ring_writer *writer)
{
    point("asks for a doorbell");
    __real_stg_ring_want_doorbell(writer);
}

void __wrap_stg_ring_push(struct stg_ring_writer *writer,
                          const struct stg_descriptor *descriptor)
{
    point("gives a batch");
    __real_stg_ring_push(writer, descriptor);
}

bool __wrap_stg_ring_take(struct stg_ring_reader *reader, struct stg_descriptor *ret)
{
    if (fiber_self() >= 0)
        fiber_block(always, NULL, false, "takes from its ring");
    return __real_stg_ring_take(reader, ret);
}

bool __wrap_stg_ring_ready(const struct stg_ring_reader *reader)
{
    point("looks at its ring");
    return __real_stg_ring_ready(reader);
}

bool __wrap_stg_ring_needs_doorbell(struct stg_ring_reader *reader, uint64_t few)
{
    point("looks whether to ring");
    return __real_stg_ring_needs_doorbell(reader, few);
}

void __wrap_stg_control_set_waiting(struct stg_control_writer *writer, bool waiting)
{
    point(waiting ? "says that it sleeps" : "says that it is awake");
    __real_stg_control_set_waiting(writer, waiting);
    world->outside.touched = true;
}

void __wrap_stg_control_release(struct stg_control_writer *writer, uint32_t lease,
                                uint32_t generation)
{
    point("releases");
    __real_stg_control_release(writer, lease, generation);
    world->outside.touched = true;
}
