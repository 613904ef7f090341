/* SPDX-License-Identifier: Apache-2.0
 *
 * One thread a twin looks after its stager-gpu: starts it, waits for its death, starts it
 * again. It is the process's parent, and so outlives it.
 */
#include "daemon/gpu/twin.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/status.h"
#include "daemon/gpu/priv.h"

#define FIRST_MILLIS 10000 /* how long create waits for the first try */
#define LOOK_MILLIS 50     /* how often it looks whether it is cancelled meanwhile */
#define REST_MILLIS 100    /* between two tries; twice as long after each that failed */
#define REST_MAX_MILLIS 30000
#define LIVED_NS 10000000000u /* a life this long makes up for earlier failures */
#define MIB (1024.0 * 1024.0)

struct stg_twin {
    struct stg_twin_config config;
    char name[65], device[STG_DEVICE_NAME_BYTES];
    pthread_t thread;
    int stop; /* an eventfd: readable once the thread shall end */

    /* The thread's alone. */
    unsigned n_failures; /* in a row */
    char said[STG_ERR_TEXT_BYTES];

    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t tried;
    bool was_tried;
    struct stg_twin_process *process; /* NULL: none is ready */
    struct stg_twin_memory memory;    /* fd -1: none */
    char why[STG_ERR_TEXT_BYTES];
    uint64_t n_copies;
};

/* ---- copies ---- */

static struct stg_twin_process *take(struct stg_twin *twin, uint64_t end,
                                     uint32_t *ret_number)
{
    pthread_mutex_lock(&twin->lock);
    struct stg_twin_process *process = twin->process;
    if (process != NULL && end > twin->memory.bytes)
        process = NULL; /* an extent beyond what the device was given */
    if (process != NULL)
        process->refs++;
    *ret_number = twin->memory.number;
    pthread_mutex_unlock(&twin->lock);
    return process;
}

static void give(struct stg_twin *twin, struct stg_twin_process *process)
{
    pthread_mutex_lock(&twin->lock);
    bool is_last = --process->refs == 0;
    pthread_mutex_unlock(&twin->lock);
    if (is_last)
        stg_twin_process_free(process);
}

/* The first reason is the one to tell: others follow from its end. */
static void blame(struct stg_twin *twin, const char *why)
{
    pthread_mutex_lock(&twin->lock);
    if (twin->why[0] == '\0')
        snprintf(twin->why, sizeof(twin->why), "%s", why);
    pthread_mutex_unlock(&twin->lock);
}

uint32_t stg_twin_copy(struct stg_twin *twin, uint32_t lane, uint64_t offset,
                       uint64_t bytes)
{
    uint32_t number;
    struct stg_err err = {0};
    struct stg_twin_process *process = take(twin, offset + bytes, &number);
    if (process == NULL)
        return 0;
    int rc = 0;
    if (bytes > 0)
        rc = stg_twin_process_copy(process, lane, offset, bytes, &err);
    if (rc < 0) {
        blame(twin, err.text);
        stg_twin_process_kill(process);
    }
    pthread_mutex_lock(&twin->lock);
    twin->n_copies += rc == 0;
    pthread_mutex_unlock(&twin->lock);
    give(twin, process);
    return rc == 0 ? number : 0;
}

/* ---- the life of stager-gpu ---- */

static bool is_over(const struct stg_twin *twin, int fd, int64_t millis)
{
    struct pollfd fds[] = {{.fd = twin->stop, .events = POLLIN},
                           {.fd = fd, .events = POLLIN}};
    while (poll(fds, 2, (int)millis) < 0 && errno == EINTR)
        ;
    return fds[0].revents != 0;
}

static void note(struct stg_twin *twin, struct stg_twin_process *process,
                 const struct stg_twin_memory *memory, const char *why)
{
    pthread_mutex_lock(&twin->lock);
    twin->process = process;
    twin->memory = *memory;
    snprintf(twin->why, sizeof(twin->why), "%s", why);
    twin->was_tried = true;
    pthread_cond_broadcast(&twin->tried);
    pthread_mutex_unlock(&twin->lock);
}

static void say_failure(struct stg_twin *twin, const char *why)
{
    twin->n_failures++;
    if (strcmp(twin->said, why) == 0)
        return; /* it is tried again and again: once is enough */
    snprintf(twin->said, sizeof(twin->said), "%s", why);
    stg_log(STG_LOG_WARNING,
            "pipeline %s: no copies to %s for all trainers: %s; each copies for itself, "
            "and it is tried again",
            twin->name, twin->device, why);
}

/* What the one before had on the device may be no more: then the next one begins anew. */
static void start_failed(struct stg_twin *twin, struct stg_twin_memory *memory,
                         const struct stg_err *err)
{
    if (memory->fd >= 0 && err->code != -STAGER_CANCELLED) {
        close(memory->fd);
        memory->fd = -1;
    }
    note(twin, NULL, memory, err->text);
    if (err->code != -STAGER_CANCELLED)
        say_failure(twin, err->text);
}

static void let_go(struct stg_twin *twin, struct stg_twin_process *process)
{
    struct stg_err err = {0};
    pthread_mutex_lock(&twin->lock);
    twin->process = NULL;
    pthread_mutex_unlock(&twin->lock);
    stg_twin_process_reap(process, &err);
    blame(twin, err.text);
    give(twin, process);
}

/* From its start to its end; false: that was the last one. */
static bool live_once(struct stg_twin *twin)
{
    struct stg_err err = {0};
    struct stg_twin_process *process;
    struct stg_twin_start start = {
        .config = &twin->config, .stop = twin->stop, .memory = twin->memory};
    if (stg_twin_process_start(&start, &process, &err) < 0) {
        start_failed(twin, &start.memory, &err);
        return err.code != -STAGER_CANCELLED;
    }
    note(twin, process, &start.memory, "");
    stg_log(STG_LOG_INFO,
            "pipeline %s: stager-gpu (pid %d) copies its batches to %s (%s) for all "
            "trainers, into %.1f MiB",
            twin->name, (int)process->pid, twin->device, start.name,
            (double)start.memory.bytes / MIB);
    uint64_t began = stg_now_ns();
    bool goes_on = !is_over(twin, process->control, -1);
    let_go(twin, process);
    if (stg_now_ns() - began >= LIVED_NS) {
        twin->n_failures = 0;
        twin->said[0] = '\0';
    }
    if (goes_on)
        say_failure(twin, twin->why);
    return goes_on;
}

static int64_t rest_millis(const struct stg_twin *twin)
{
    unsigned n = twin->n_failures < 12 ? twin->n_failures : 12;
    int64_t millis = (int64_t)REST_MILLIS << n;
    return millis < REST_MAX_MILLIS ? millis : REST_MAX_MILLIS;
}

static void *look_after(void *arg)
{
    struct stg_twin *twin = arg;
    while (live_once(twin) && !is_over(twin, -1, rest_millis(twin)))
        ;
    return NULL;
}

/* ---- life ---- */

static void wait_for_first(struct stg_twin *twin)
{
    uint64_t until = stg_now_ns() + FIRST_MILLIS * UINT64_C(1000000);
    pthread_mutex_lock(&twin->lock);
    while (!twin->was_tried && stg_now_ns() < until &&
           (twin->config.cancelled == NULL || atomic_load(twin->config.cancelled) == 0)) {
        uint64_t next = stg_now_ns() + LOOK_MILLIS * UINT64_C(1000000);
        stg_clock_cond_wait(&twin->tried, &twin->lock, next);
    }
    pthread_mutex_unlock(&twin->lock);
}

static void free_twin(struct stg_twin *twin)
{
    if (twin->memory.fd >= 0)
        close(twin->memory.fd);
    if (twin->stop >= 0)
        close(twin->stop);
    pthread_cond_destroy(&twin->tried);
    pthread_mutex_destroy(&twin->lock);
    free(twin);
}

int stg_twin_create(const struct stg_twin_config *config, struct stg_twin **ret,
                    struct stg_err *err)
{
    struct stg_twin *twin = calloc(1, sizeof(*twin));
    if (twin == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    twin->config = *config;
    twin->memory.fd = -1;
    snprintf(twin->name, sizeof(twin->name), "%s", config->name);
    snprintf(twin->device, sizeof(twin->device), "%s", config->device);
    snprintf(twin->why, sizeof(twin->why), "stager-gpu is starting");
    stg_clock_cond_init(&twin->tried);
    pthread_mutex_init(&twin->lock, NULL);
    twin->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int number = twin->stop < 0 ? errno : 0;
    if (number == 0)
        number = pthread_create(&twin->thread, NULL, look_after, twin);
    if (number != 0) {
        free_twin(twin);
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "cannot look after a GPU: %s",
                       strerror(number));
    }
    wait_for_first(twin);
    *ret = twin;
    return 0;
}

void stg_twin_destroy(struct stg_twin *twin)
{
    if (twin == NULL)
        return;
    eventfd_write(twin->stop, 1);
    pthread_join(twin->thread, NULL);
    free_twin(twin);
}

/* ---- reports ---- */

void stg_twin_memory(struct stg_twin *twin, struct stg_twin_memory *ret)
{
    pthread_mutex_lock(&twin->lock);
    *ret = twin->memory;
    if (ret->fd >= 0)
        ret->fd = fcntl(ret->fd, F_DUPFD_CLOEXEC, 0);
    pthread_mutex_unlock(&twin->lock);
}

uint64_t stg_twin_status(struct stg_twin *twin, char *why, size_t bytes)
{
    pthread_mutex_lock(&twin->lock);
    snprintf(why, bytes, "%s", twin->why);
    uint64_t n = twin->n_copies;
    pthread_mutex_unlock(&twin->lock);
    return n;
}
