/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/pyworker/priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/log.h"
#include "daemon/dataset/steps/py_function.h"

#define MAX_WORKERS 256u
#define LOOK_NS 100000000u /* how often a waiting runner asks whether all is stopped */

/* ---- life ---- */

int stg_workers_create(const struct stg_workers_config *config, struct stg_workers **ret,
                       struct stg_err *err)
{
    struct stg_workers *workers = calloc(1, sizeof(*workers));
    if (workers == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    workers->config = *config;
    workers->refs = 1;
    snprintf(workers->name, sizeof(workers->name), "%s", config->name);
    stg_bump_init(&workers->bump, 0);
    pthread_mutex_init(&workers->lock, NULL);
    stg_clock_cond_init(&workers->changed); /* I10 */
    const struct stg_pipeline_spec *spec = config->spec;
    const struct stg_step *step = stg_py_function_find(spec);
    workers->step = step;
    workers->function = stg_attr_string(step->attrs, step->n_attrs, "function", "");
    workers->timeout_ns =
        (uint64_t)stg_attr_int(step->attrs, step->n_attrs, "timeout_millis", 1) *
        1000000u;
    int rc = stg_dataset_infer_step(spec, step, &workers->bump, &workers->input,
                                    &workers->output, err);
    if (rc < 0) {
        workers->config.release = NULL;
        stg_workers_unref(workers);
        return rc;
    }
    *ret = workers;
    return 0;
}

struct stg_workers *stg_workers_ref(struct stg_workers *workers)
{
    if (workers != NULL)
        workers->refs++;
    return workers;
}

void stg_workers_unref(struct stg_workers *workers)
{
    if (workers == NULL || --workers->refs > 0)
        return;
    pthread_cond_destroy(&workers->changed);
    pthread_mutex_destroy(&workers->lock);
    stg_bump_finish(&workers->bump);
    if (workers->config.release != NULL)
        workers->config.release(workers->config.keeper);
    free(workers);
}

static void free_worker(struct stg_worker *worker)
{
    close(worker->channel);
    stg_segment_destroy(&worker->input);
    stg_segment_destroy(&worker->scratch);
    if (worker->copy.base != NULL)
        munmap(worker->copy.base, worker->copy.bytes);
    stg_budget_give(worker->workers->config.budget, worker->budget_bytes,
                    worker->workers->name);
    free(worker);
}

/* Lock held. True: it was the last one. */
static bool give_ref(struct stg_worker *worker)
{
    return --worker->refs == 0;
}

/* ---- the loop ---- */

/* Is there room for one more? */
static int check_room(struct stg_workers *workers, uint32_t most, struct stg_err *err)
{
    unsigned n = 0, n_staying = 0;
    pthread_mutex_lock(&workers->lock);
    for (struct stg_worker *w = workers->all; w != NULL; w = w->next) {
        n++;
        n_staying += w->state != STG_WORKER_DISCONNECTED;
    }
    bool is_stopped = workers->is_stopped;
    pthread_mutex_unlock(&workers->lock);
    if (is_stopped)
        return stg_err(err, -STAGER_ABORTED, "pipeline %s: %s", workers->name,
                       workers->why_stopped);
    if (n >= MAX_WORKERS)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                       "pipeline %s has %u workers, the maximum", workers->name, n);
    if (most != 0 && n_staying >= most)
        return stg_err(err, -STAGER_ALREADY_EXISTS,
                       "pipeline %s has all of the %u workers that it needs",
                       workers->name, n_staying);
    return 0;
}

int stg_workers_admit(struct stg_workers *workers, pid_t pid, uint32_t most,
                      struct stg_worker **ret, int *ret_channel, struct stg_err *err)
{
    int rc = check_room(workers, most, err);
    if (rc < 0)
        return rc;
    int ends[2];
    struct stg_worker *worker = calloc(1, sizeof(*worker));
    if (worker == NULL ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
        stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                "cannot create a channel for a worker: %s", strerror(errno));
        free(worker);
        return -STAGER_RESOURCE_EXHAUSTED;
    }
    *worker = (struct stg_worker){.workers = workers,
                                  .refs = 1,
                                  .pid = pid,
                                  .channel = ends[0],
                                  .input.fd = -1,
                                  .scratch.fd = -1};
    pthread_mutex_lock(&workers->lock);
    worker->next = workers->all;
    workers->all = worker;
    pthread_mutex_unlock(&workers->lock);
    stg_workers_ref(workers);
    *ret = worker;
    *ret_channel = ends[1];
    return 0;
}

void stg_worker_ready(struct stg_worker *worker)
{
    struct stg_workers *workers = worker->workers;
    pthread_mutex_lock(&workers->lock);
    if (worker->state == STG_WORKER_STARTING) {
        worker->state = STG_WORKER_FREE;
        workers->counts.n_ready++;
        pthread_cond_signal(&workers->changed);
    }
    pthread_mutex_unlock(&workers->lock);
}

static void say_lost(struct stg_worker *worker, const char *why)
{
    struct stg_workers *workers = worker->workers;
    workers->counts.n_lost++;
    snprintf(workers->last_loss, sizeof(workers->last_loss), "; the last one, pid %d, %s",
             (int)worker->pid, why);
    stg_log(STG_LOG_WARNING, "pipeline %s: worker pid %d of %s %s", workers->name,
            (int)worker->pid, workers->function, why);
}

/* Lock held. Not FREE or BUSY any more. */
static void end_state(struct stg_worker *worker, enum stg_worker_state state)
{
    if (worker->state == STG_WORKER_FREE || worker->state == STG_WORKER_BUSY)
        worker->workers->counts.n_ready--;
    worker->state = state;
}

void stg_worker_leave(struct stg_worker *worker)
{
    struct stg_workers *workers = worker->workers;
    pthread_mutex_lock(&workers->lock);
    struct stg_worker **at = &workers->all;
    while (*at != worker)
        at = &(*at)->next;
    *at = worker->next;
    end_state(worker, STG_WORKER_GONE);
    bool is_last = give_ref(worker);
    pthread_mutex_unlock(&workers->lock);
    if (is_last)
        free_worker(worker);
    stg_workers_unref(workers);
}

bool stg_worker_is_disconnected(struct stg_worker *worker)
{
    pthread_mutex_lock(&worker->workers->lock);
    bool is_disconnected = worker->state == STG_WORKER_DISCONNECTED;
    pthread_mutex_unlock(&worker->workers->lock);
    return is_disconnected;
}

void stg_workers_stop(struct stg_workers *workers, const char *text)
{
    pthread_mutex_lock(&workers->lock);
    workers->is_stopped = true;
    snprintf(workers->why_stopped, sizeof(workers->why_stopped), "%s", text);
    for (struct stg_worker *w = workers->all; w != NULL; w = w->next) {
        end_state(w, STG_WORKER_DISCONNECTED);
        shutdown(w->channel, SHUT_RDWR);
    }
    pthread_cond_broadcast(&workers->changed);
    pthread_mutex_unlock(&workers->lock);
    workers->config.wake(workers->config.owner);
}

const char *stg_workers_function(const struct stg_workers *workers)
{
    return workers->function;
}

uint64_t stg_workers_seed(const struct stg_workers *workers)
{
    const struct stg_step *step = workers->step;
    return (uint64_t)stg_attr_int(step->attrs, step->n_attrs, "seed", 0);
}

bool stg_workers_is_pure(const struct stg_workers *workers)
{
    const struct stg_step *step = workers->step;
    return stg_attr_bool(step->attrs, step->n_attrs, "pure", false);
}

const struct stg_schema *stg_workers_output(const struct stg_workers *workers)
{
    return &workers->output;
}

void stg_workers_count(struct stg_workers *workers, struct stg_workers_counts *ret)
{
    pthread_mutex_lock(&workers->lock);
    *ret = workers->counts;
    pthread_mutex_unlock(&workers->lock);
}

void stg_workers_look(struct stg_workers *workers, struct stg_workers_busy *ret)
{
    struct stg_workers_busy busy = {0};
    pthread_mutex_lock(&workers->lock);
    for (struct stg_worker *w = workers->all; w != NULL; w = w->next) {
        if (w->state != STG_WORKER_BUSY)
            continue;
        busy.n_busy++;
        if (busy.pid != 0 && busy.since_ns <= w->busy_ns)
            continue;
        busy.pid = w->pid;
        busy.since_ns = w->busy_ns;
    }
    busy.n_ready = workers->counts.n_ready;
    pthread_mutex_unlock(&workers->lock);
    *ret = busy;
}

/* ---- runners ---- */

static struct stg_worker *find_free(struct stg_workers *workers)
{
    struct stg_worker *worker = workers->all;
    while (worker != NULL && worker->state != STG_WORKER_FREE)
        worker = worker->next;
    return worker;
}

static int say_none(struct stg_workers *workers, uint64_t millis, struct stg_err *err)
{
    return stg_err(err, -STAGER_FAILED_PRECONDITION,
                   "%s: no worker was ready within start_timeout_millis %" PRIu64
                   "%s: start one with `stager worker %s`, or open the pipeline in "
                   "Python with workers=1",
                   workers->function, millis, workers->last_loss, workers->name);
}

static void wait_a_little(struct stg_workers *workers, uint64_t now)
{
    stg_clock_cond_wait(&workers->changed, &workers->lock, now + LOOK_NS);
}

/* 1: not yet. Lock held; the clock stands while others are at work. */
static int try_take(struct stg_workers *workers, const struct stg_work_call *call,
                    uint64_t now, uint64_t *since, struct stg_worker **ret,
                    struct stg_err *err)
{
    if (call->stopped != NULL && atomic_load(call->stopped))
        return stg_err(err, -STAGER_CANCELLED, "the pipeline was stopped");
    if (workers->is_stopped)
        return stg_err(err, -STAGER_ABORTED, "pipeline %s: %s", workers->name,
                       workers->why_stopped);
    *ret = find_free(workers);
    if (*ret != NULL)
        return 0;
    if (workers->counts.n_ready > 0)
        *since = now;
    if (now - *since < call->start_timeout_millis * 1000000u)
        return 1;
    return say_none(workers, call->start_timeout_millis, err);
}

int stg_work_take(struct stg_workers *workers, const struct stg_work_call *call,
                  struct stg_worker **ret, struct stg_err *err)
{
    uint64_t since = stg_now_ns();
    struct stg_worker *worker = NULL;
    pthread_mutex_lock(&workers->lock);
    int rc;
    for (;;) {
        uint64_t now = stg_now_ns();
        rc = try_take(workers, call, now, &since, &worker, err);
        if (rc <= 0)
            break;
        wait_a_little(workers, now);
    }
    if (rc == 0) {
        worker->state = STG_WORKER_BUSY;
        worker->busy_ns = stg_now_ns();
        worker->refs++;
        workers->counts.n_calls++;
        *ret = worker;
    }
    pthread_mutex_unlock(&workers->lock);
    return rc;
}

int stg_work_disconnect(struct stg_worker *worker, struct stg_err *err, const char *fmt,
                        ...)
{
    struct stg_workers *workers = worker->workers;
    char why[128];
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof(why), fmt, args);
    va_end(args);
    pthread_mutex_lock(&workers->lock);
    bool is_there = worker->state == STG_WORKER_BUSY;
    if (!workers->is_stopped)
        say_lost(worker, why);
    if (is_there) {
        end_state(worker, STG_WORKER_DISCONNECTED);
        shutdown(worker->channel, SHUT_RDWR);
    }
    pthread_mutex_unlock(&workers->lock);
    if (is_there)
        workers->config.wake(workers->config.owner);
    return stg_err(err, -STAGER_ABORTED, "%s: its worker, pid %d, %s", workers->function,
                   (int)worker->pid, why);
}

bool stg_work_is_lost(struct stg_worker *worker)
{
    pthread_mutex_lock(&worker->workers->lock);
    bool is_lost = worker->state != STG_WORKER_BUSY;
    pthread_mutex_unlock(&worker->workers->lock);
    return is_lost;
}

void stg_work_release(struct stg_worker *worker)
{
    if (worker == NULL)
        return;
    struct stg_workers *workers = worker->workers;
    pthread_mutex_lock(&workers->lock);
    if (worker->state == STG_WORKER_BUSY) {
        worker->state = STG_WORKER_FREE;
        pthread_cond_signal(&workers->changed);
    }
    bool is_last = give_ref(worker);
    pthread_mutex_unlock(&workers->lock);
    if (is_last)
        free_worker(worker);
}
