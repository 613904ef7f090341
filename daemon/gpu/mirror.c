/* SPDX-License-Identifier: Apache-2.0
 *
 * One thread a mirror looks after its stager-gpu: starts it, waits for its death, starts
 * it again. It is the process's parent, and so outlives it.
 */
#include "daemon/gpu/mirror.h"

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

struct stg_mirror {
    struct stg_mirror_config config;
    char name[65], device[STG_DEVICE_NAME_BYTES];
    pthread_t thread;
    int stop; /* an eventfd: readable once the thread shall end */

    /* The thread's alone. */
    unsigned n_failures; /* in a row */
    char said[STG_ERR_TEXT_BYTES];

    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t tried;
    bool was_tried;
    struct stg_mirror_process *process; /* NULL: none is ready */
    struct stg_mirror_memory memory;    /* fd -1: none */
    char why[STG_ERR_TEXT_BYTES];
    uint64_t n_copies;
};

/* ---- copies ---- */

static struct stg_mirror_process *take(struct stg_mirror *mirror, uint64_t end,
                                       uint32_t *ret_number)
{
    pthread_mutex_lock(&mirror->lock);
    struct stg_mirror_process *process = mirror->process;
    if (process != NULL && end > mirror->memory.bytes)
        process = NULL; /* an extent beyond what the device was given */
    if (process != NULL)
        process->refs++;
    *ret_number = mirror->memory.number;
    pthread_mutex_unlock(&mirror->lock);
    return process;
}

static void give(struct stg_mirror *mirror, struct stg_mirror_process *process)
{
    pthread_mutex_lock(&mirror->lock);
    bool is_last = --process->refs == 0;
    pthread_mutex_unlock(&mirror->lock);
    if (is_last)
        stg_mirror_process_free(process);
}

/* The first reason is the one to tell: others follow from its end. */
static void blame(struct stg_mirror *mirror, const char *why)
{
    pthread_mutex_lock(&mirror->lock);
    if (mirror->why[0] == '\0')
        snprintf(mirror->why, sizeof(mirror->why), "%s", why);
    pthread_mutex_unlock(&mirror->lock);
}

uint32_t stg_mirror_copy(struct stg_mirror *mirror, uint32_t runner, uint64_t offset,
                         uint64_t bytes)
{
    uint32_t number;
    struct stg_err err = {0};
    struct stg_mirror_process *process = take(mirror, offset + bytes, &number);
    if (process == NULL)
        return 0;
    int rc = 0;
    if (bytes > 0)
        rc = stg_mirror_process_copy(process, runner, offset, bytes, &err);
    if (rc < 0) {
        blame(mirror, err.text);
        stg_mirror_process_kill(process);
    }
    pthread_mutex_lock(&mirror->lock);
    mirror->n_copies += rc == 0;
    pthread_mutex_unlock(&mirror->lock);
    give(mirror, process);
    return rc == 0 ? number : 0;
}

/* ---- the life of stager-gpu ---- */

static bool is_over(const struct stg_mirror *mirror, int fd, int64_t millis)
{
    struct pollfd fds[] = {{.fd = mirror->stop, .events = POLLIN},
                           {.fd = fd, .events = POLLIN}};
    while (poll(fds, 2, (int)millis) < 0 && errno == EINTR)
        ;
    return fds[0].revents != 0;
}

static void note(struct stg_mirror *mirror, struct stg_mirror_process *process,
                 const struct stg_mirror_memory *memory, const char *why)
{
    pthread_mutex_lock(&mirror->lock);
    mirror->process = process;
    mirror->memory = *memory;
    snprintf(mirror->why, sizeof(mirror->why), "%s", why);
    mirror->was_tried = true;
    pthread_cond_broadcast(&mirror->tried);
    pthread_mutex_unlock(&mirror->lock);
}

static void say_failure(struct stg_mirror *mirror, const char *why)
{
    mirror->n_failures++;
    if (strcmp(mirror->said, why) == 0)
        return; /* it is tried again and again: once is enough */
    snprintf(mirror->said, sizeof(mirror->said), "%s", why);
    stg_log(STG_LOG_WARNING,
            "pipeline %s: cannot copy to %s for all trainers: %s; each trainer copies "
            "for itself, and stagerd tries again",
            mirror->name, mirror->device, why);
}

/* What the one before had on the device may be no more: then the next one begins anew. */
static void start_failed(struct stg_mirror *mirror, struct stg_mirror_memory *memory,
                         const struct stg_err *err)
{
    if (memory->fd >= 0 && err->code != -STAGER_CANCELLED) {
        close(memory->fd);
        memory->fd = -1;
    }
    note(mirror, NULL, memory, err->text);
    if (err->code != -STAGER_CANCELLED)
        say_failure(mirror, err->text);
}

static void let_go(struct stg_mirror *mirror, struct stg_mirror_process *process)
{
    struct stg_err err = {0};
    pthread_mutex_lock(&mirror->lock);
    mirror->process = NULL;
    pthread_mutex_unlock(&mirror->lock);
    stg_mirror_process_reap(process, &err);
    blame(mirror, err.text);
    give(mirror, process);
}

/* From its start to its end; false: that was the last one. */
static bool live_once(struct stg_mirror *mirror)
{
    struct stg_err err = {0};
    struct stg_mirror_process *process;
    struct stg_mirror_start start = {
        .config = &mirror->config, .stop = mirror->stop, .memory = mirror->memory};
    if (stg_mirror_process_start(&start, &process, &err) < 0) {
        start_failed(mirror, &start.memory, &err);
        return err.code != -STAGER_CANCELLED;
    }
    note(mirror, process, &start.memory, "");
    stg_log(STG_LOG_INFO,
            "pipeline %s: stager-gpu (pid %d) copies its batches to %s (%s) for all "
            "trainers, into %.1f MiB",
            mirror->name, (int)process->pid, mirror->device, start.name,
            (double)start.memory.bytes / MIB);
    uint64_t began = stg_now_ns();
    bool goes_on = !is_over(mirror, process->control, -1);
    let_go(mirror, process);
    if (stg_now_ns() - began >= LIVED_NS) {
        mirror->n_failures = 0;
        mirror->said[0] = '\0';
    }
    if (goes_on)
        say_failure(mirror, mirror->why);
    return goes_on;
}

static int64_t rest_millis(const struct stg_mirror *mirror)
{
    unsigned n = mirror->n_failures < 12 ? mirror->n_failures : 12;
    int64_t millis = (int64_t)REST_MILLIS << n;
    return millis < REST_MAX_MILLIS ? millis : REST_MAX_MILLIS;
}

static void *look_after(void *arg)
{
    struct stg_mirror *mirror = arg;
    while (live_once(mirror) && !is_over(mirror, -1, rest_millis(mirror)))
        ;
    return NULL;
}

/* ---- life ---- */

static void wait_for_first(struct stg_mirror *mirror)
{
    uint64_t until = stg_now_ns() + FIRST_MILLIS * UINT64_C(1000000);
    pthread_mutex_lock(&mirror->lock);
    while (!mirror->was_tried && stg_now_ns() < until &&
           (mirror->config.cancelled == NULL ||
            atomic_load(mirror->config.cancelled) == 0)) {
        uint64_t next = stg_now_ns() + LOOK_MILLIS * UINT64_C(1000000);
        stg_clock_cond_wait(&mirror->tried, &mirror->lock, next);
    }
    pthread_mutex_unlock(&mirror->lock);
}

static void free_mirror(struct stg_mirror *mirror)
{
    if (mirror->memory.fd >= 0)
        close(mirror->memory.fd);
    if (mirror->stop >= 0)
        close(mirror->stop);
    pthread_cond_destroy(&mirror->tried);
    pthread_mutex_destroy(&mirror->lock);
    free(mirror);
}

int stg_mirror_create(const struct stg_mirror_config *config, struct stg_mirror **ret,
                      struct stg_err *err)
{
    struct stg_mirror *mirror = calloc(1, sizeof(*mirror));
    if (mirror == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    mirror->config = *config;
    mirror->memory.fd = -1;
    snprintf(mirror->name, sizeof(mirror->name), "%s", config->name);
    snprintf(mirror->device, sizeof(mirror->device), "%s", config->device);
    snprintf(mirror->why, sizeof(mirror->why), "stager-gpu is starting");
    stg_clock_cond_init(&mirror->tried);
    pthread_mutex_init(&mirror->lock, NULL);
    mirror->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int number = mirror->stop < 0 ? errno : 0;
    if (number == 0)
        number = pthread_create(&mirror->thread, NULL, look_after, mirror);
    if (number != 0) {
        free_mirror(mirror);
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                       "cannot start the thread of a GPU: %s", strerror(number));
    }
    wait_for_first(mirror);
    *ret = mirror;
    return 0;
}

void stg_mirror_destroy(struct stg_mirror *mirror)
{
    if (mirror == NULL)
        return;
    eventfd_write(mirror->stop, 1);
    pthread_join(mirror->thread, NULL);
    free_mirror(mirror);
}

/* ---- reports ---- */

void stg_mirror_memory(struct stg_mirror *mirror, struct stg_mirror_memory *ret)
{
    pthread_mutex_lock(&mirror->lock);
    *ret = mirror->memory;
    if (ret->fd >= 0)
        ret->fd = fcntl(ret->fd, F_DUPFD_CLOEXEC, 0);
    pthread_mutex_unlock(&mirror->lock);
}

uint64_t stg_mirror_status(struct stg_mirror *mirror, char *why, size_t bytes)
{
    pthread_mutex_lock(&mirror->lock);
    snprintf(why, bytes, "%s", mirror->why);
    uint64_t n = mirror->n_copies;
    pthread_mutex_unlock(&mirror->lock);
    return n;
}
