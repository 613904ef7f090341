/* SPDX-License-Identifier: Apache-2.0
 *
 * Nodes of an executor on several threads: each runs once those that it waits for have.
 */
#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "ops/exec/priv.h"

#define NO_STEP UINT32_MAX

struct stg_run_ready {
    const struct stg_parallel *parallel;
    struct stg_run_worker *workers; /* one a thread */
    uint32_t n_workers;
    /* Steps that wait for step s: after[first[s]] up to after[first[s + 1]]; one that
     * waits for several outputs of it stands there as often. */
    uint32_t *first, *after;
    uint32_t *n_before; /* of each step: how often it stands in `after` */

    /* While an exec runs. */
    struct stg_run *run;
    const struct stg_key *key;
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t changed;
    uint32_t *n_left; /* of each step: that it still waits for */
    uint32_t *queue;  /* of steps; those from n_taken on are ready */
    uint32_t n_queued, n_taken, n_done;
    uint32_t failed; /* the first step, in their order, that has; NO_STEP: none */
    int rc;          /* its error */
    struct stg_err err;
};

/* ---- what waits for what ---- */

struct order {
    uint32_t *of_slot; /* the step that makes it, or NO_STEP */
    uint32_t *of_node; /* the step that does its work */
    uint32_t *level;   /* of each step: the longest way to it */
    uint32_t depth;
};

static void find_makers(const struct stg_run *run, struct order *order)
{
    memset(order->of_slot, 0xff, run->n_slots * sizeof(uint32_t));
    memset(order->of_node, 0xff, run->graph->n_nodes * sizeof(uint32_t));
    for (uint32_t s = 0; s < run->n_steps; s++) {
        const struct stg_run_step *step = &run->steps[s];
        order->of_node[step->node - run->graph->nodes] = s;
        for (size_t i = 0; i < step->node->n_outputs; i++) {
            order->of_slot[step->outputs[i].slot] = s;
            order->of_node[step->outputs[i].node - run->graph->nodes] = s;
        }
    }
}

/* Calls `each` for every step that step s waits for. */
static void over_before(const struct stg_run *run, const struct order *order, uint32_t s,
                        void (*each)(void *owner, uint32_t before, uint32_t s),
                        void *owner)
{
    const struct stg_run_step *step = &run->steps[s];
    for (size_t i = 0; i < step->node->n_inputs; i++) {
        uint32_t before = order->of_slot[step->inputs[i]];
        if (before != NO_STEP)
            each(owner, before, s);
    }
    for (size_t i = 0; i < step->node->n_controls; i++) {
        uint32_t before = order->of_node[step->node->controls[i]];
        if (before != NO_STEP && before != s)
            each(owner, before, s);
    }
}

struct counting {
    struct stg_run_ready *ready;
    struct order *order;
};

static void count(void *owner, uint32_t before, uint32_t s)
{
    struct counting *counting = owner;
    uint32_t *level = counting->order->level;
    assert(before < s);
    counting->ready->n_before[s]++;
    counting->ready->first[before + 1]++;
    if (level[s] <= level[before])
        level[s] = level[before] + 1;
}

static void list(void *owner, uint32_t before, uint32_t s)
{
    struct stg_run_ready *ready = owner;
    ready->after[ready->first[before] + ready->n_left[before]++] = s;
}

/* n_left counts what is listed meanwhile. */
static int order_steps(struct stg_run *run, struct stg_run_ready *ready,
                       struct order *order, struct stg_err *err)
{
    struct counting counting = {.ready = ready, .order = order};
    for (uint32_t s = 0; s < run->n_steps; s++) {
        over_before(run, order, s, count, &counting);
        if (order->depth <= order->level[s])
            order->depth = order->level[s] + 1;
    }
    for (uint32_t s = 0; s < run->n_steps; s++)
        ready->first[s + 1] += ready->first[s];
    ready->after = stg_bump_alloc(&run->plan, (ready->first[run->n_steps] + 1) *
                                                  sizeof(*ready->after));
    if (ready->after == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (uint32_t s = 0; s < run->n_steps; s++)
        over_before(run, order, s, list, ready);
    return 0;
}

static int plan(struct stg_run *run, struct stg_run_ready *ready, uint32_t *ret_depth,
                struct stg_err *err)
{
    size_t n = run->n_steps + 1;
    struct order order = {0};
    order.of_slot = calloc(run->n_slots + 1, sizeof(uint32_t));
    order.of_node = calloc(run->graph->n_nodes + 1, sizeof(uint32_t));
    order.level = calloc(n, sizeof(uint32_t));
    ready->first = stg_bump_alloc(&run->plan, (n + 1) * sizeof(uint32_t));
    ready->n_before = stg_bump_alloc(&run->plan, n * sizeof(uint32_t));
    ready->n_left = stg_bump_alloc(&run->plan, n * sizeof(uint32_t));
    ready->queue = stg_bump_alloc(&run->plan, n * sizeof(uint32_t));
    int rc = 0;
    if (order.of_slot == NULL || order.of_node == NULL || order.level == NULL ||
        ready->first == NULL || ready->n_before == NULL || ready->n_left == NULL ||
        ready->queue == NULL) {
        rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    } else {
        find_makers(run, &order);
        rc = order_steps(run, ready, &order, err);
    }
    *ret_depth = order.depth;
    free(order.of_slot);
    free(order.of_node);
    free(order.level);
    return rc;
}

/* ---- life ---- */

static int make_workers(struct stg_run *run, struct stg_run_ready *ready,
                        struct stg_err *err)
{
    uint32_t n = ready->parallel->n_threads;
    ready->workers = calloc(n, sizeof(*ready->workers));
    ready->n_workers = ready->workers != NULL ? n : 0;
    bool ok = ready->workers != NULL;
    for (uint32_t i = 0; ok && i < n; i++) {
        struct stg_run_worker *worker = &ready->workers[i];
        worker->run = run;
        worker->inputs =
            stg_bump_alloc(&run->plan, run->max_inputs * sizeof(*worker->inputs));
        worker->split = run->rows != NULL ? stg_split_create(run->rows) : NULL;
        ok = worker->inputs != NULL && (run->rows == NULL || worker->split != NULL);
    }
    return ok ? 0 : stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
}

int stg_run_inter_op(struct stg_run *run, const struct stg_parallel *parallel,
                     struct stg_err *err)
{
    assert(run->ready == NULL);
    /* What a variable holds when it is read is said by the order of the file. */
    if (parallel->n_threads < 2 || stg_run_writes(run))
        return 0;
    struct stg_run_ready *ready = calloc(1, sizeof(*ready));
    if (ready == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    pthread_mutex_init(&ready->lock, NULL);
    pthread_cond_init(&ready->changed, NULL);
    ready->parallel = parallel;
    ready->run = run;
    uint32_t depth = 0;
    int rc = plan(run, ready, &depth, err);
    bool pays = depth < run->n_steps; /* else one waits for the other */
    if (rc == 0 && pays)
        rc = make_workers(run, ready, err);
    if (rc == 0 && pays)
        rc = stg_run_plan_buffers(run, true, err);
    if (rc < 0 || !pays)
        stg_run_ready_destroy(ready);
    else
        run->ready = ready;
    return rc;
}

void stg_run_ready_destroy(struct stg_run_ready *ready)
{
    if (ready == NULL)
        return;
    for (uint32_t i = 0; i < ready->n_workers; i++) {
        stg_split_destroy(ready->workers[i].split);
        stg_bump_finish(&ready->workers[i].scratch);
    }
    free(ready->workers);
    pthread_cond_destroy(&ready->changed);
    pthread_mutex_destroy(&ready->lock);
    free(ready);
}

/* ---- exec ---- */

/* The lock is held. A thread that finishes a step runs one that became ready by it. */
static void finish(struct stg_run_ready *ready, uint32_t s)
{
    uint32_t n_new = 0;
    for (uint32_t i = ready->first[s]; i < ready->first[s + 1]; i++) {
        if (--ready->n_left[ready->after[i]] == 0) {
            ready->queue[ready->n_queued++] = ready->after[i];
            n_new++;
        }
    }
    if (++ready->n_done == ready->run->n_steps)
        pthread_cond_broadcast(&ready->changed);
    for (; n_new > 1; n_new--)
        pthread_cond_signal(&ready->changed);
}

/* The lock is held, and given back meanwhile. What comes after a step that has failed, in
 * their order, would not have run. */
static void run_one(struct stg_run_ready *ready, struct stg_run_worker *worker,
                    uint32_t s)
{
    if (s > ready->failed)
        return;
    struct stg_err err;
    pthread_mutex_unlock(&ready->lock);
    err.code = 0;
    err.text[0] = '\0';
    err.row = -1;
    int rc = stg_run_step(worker, &ready->run->steps[s], ready->key, &err);
    pthread_mutex_lock(&ready->lock);
    if (rc < 0 && s < ready->failed) {
        ready->failed = s;
        ready->rc = rc;
        ready->err = err;
    }
}

static void work(void *arg, uint32_t i)
{
    struct stg_run_ready *ready = arg;
    pthread_mutex_lock(&ready->lock);
    while (ready->n_done < ready->run->n_steps) {
        if (ready->n_taken == ready->n_queued) {
            pthread_cond_wait(&ready->changed, &ready->lock);
            continue;
        }
        uint32_t s = ready->queue[ready->n_taken++];
        run_one(ready, &ready->workers[i], s);
        finish(ready, s);
    }
    pthread_mutex_unlock(&ready->lock);
}

int stg_run_ready_exec(struct stg_run *run, const struct stg_key *key,
                       struct stg_err *err)
{
    struct stg_run_ready *ready = run->ready;
    ready->key = key;
    ready->n_queued = ready->n_taken = ready->n_done = 0;
    ready->failed = NO_STEP;
    memcpy(ready->n_left, ready->n_before, run->n_steps * sizeof(*ready->n_left));
    for (uint32_t s = 0; s < run->n_steps; s++) {
        if (ready->n_before[s] == 0)
            ready->queue[ready->n_queued++] = s;
    }
    ready->parallel->run(ready->parallel->owner, ready->n_workers, work, ready);
    if (ready->failed == NO_STEP)
        return 0;
    if (err != NULL)
        *err = ready->err;
    return ready->rc;
}
