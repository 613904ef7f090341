/* SPDX-License-Identifier: Apache-2.0
 *
 * Thread pools of the daemon (settings: thread_pools): where stages that say
 * use_stage_subgraph_thread_pool draw and compute. A job occupies a thread until it
 * returns; a runner that waits for room, memory, a turn or a pass has no thread. Stages
 * that share a pool take turns, however many jobs each of them has. Beside the threads
 * that do jobs a pool may have some that help a job in its ops (stg_pool_parallel).
 *
 * Pools and their threads live from the start of the daemon to its end.
 */
#ifndef STG_DAEMON_HOST_POOL_H
#define STG_DAEMON_HOST_POOL_H

#include <pthread.h>
#include <sched.h>

#include "core/spec.h"

struct stg_parallel;
struct stg_pools;
struct stg_pool;

/* One stage's place in a pool. Guarded by the pool. */
struct stg_pool_user {
    struct stg_pool *pool;
    struct stg_pool_job *first, *last; /* that wait for a thread */
    struct stg_pool_user *next;        /* in the round of those that have some */
    bool is_cancelled;                 /* no job of it is begun any more */
};

/* A piece of work; its memory is the caller's, and outlives stg_pool_run. */
struct stg_pool_job {
    void (*run)(void *arg);
    void *arg;
    bool is_done, was_run;
    pthread_cond_t done;
    struct stg_pool_job *next;
};

/* Starts all threads of all pools, on their CPUs, with their niceness and NUMA node; they
 * are named NAME/0, NAME/1 … where they do jobs, NAME+1, NAME+2 … where they help (one
 * less than intra_op_threads_num). INVALID_ARGUMENT: cpus that are no list, CPUs or nodes
 * that are not here (and which are), two pools of one name. RESOURCE_EXHAUSTED: no more
 * threads. A niceness that stagerd may not have is a warning in the log. */
int stg_pools_create(const struct stg_thread_pool_spec *specs, size_t n,
                     struct stg_pools **ret, struct stg_err *err);

/* Joins the threads: no job may be waiting or running. NULL is allowed. */
void stg_pools_destroy(struct stg_pools *pools);

/* Pool i, or NULL. */
struct stg_pool *stg_pools_get(struct stg_pools *pools, size_t i);

/* Threads that do jobs. */
uint32_t stg_pool_n_threads(const struct stg_pool *pool);

/* How many CPUs' time those have: daemon/host/cpus.h. */
double stg_pool_cpus(const struct stg_pool *pool);

/* What a job may spread an op over: its own thread and all that help. NULL: there are
 * none. Lives as long as the pool. */
const struct stg_parallel *stg_pool_parallel(struct stg_pool *pool);

/* Puts the calling thread on the pool's CPUs, as its own threads are: for a thread that
 * works with it and must stay off the same cores. */
void stg_pool_stay_with(struct stg_pool *pool);

/* Runs run(arg) on a thread of the user's pool and returns true when it has returned; or
 * false: cancelled before it began. Any thread that is not the pool's. job->done is
 * initialised, the rest is not the caller's. */
bool stg_pool_run(struct stg_pool_user *user, struct stg_pool_job *job,
                  void (*run)(void *arg), void *arg);

/* How many of its jobs wait for a thread. Any thread. */
size_t stg_pool_n_waiting(struct stg_pool_user *user);

/* Jobs that wait are not begun, and none after them; those that run go on. Any thread. */
void stg_pool_cancel(struct stg_pool_user *user);

/* "0-3,8" as the kernel writes lists of CPUs. INVALID_ARGUMENT says where it is none. */
int stg_cpu_list_parse(const char *text, cpu_set_t *ret, struct stg_err *err);

/* The set as such a list. Returns buf. */
const char *stg_cpu_list_text(const cpu_set_t *set, char *buf, size_t bytes);

/* Its global_name. */
const char *stg_pool_name(const struct stg_pool *pool);

/* Is pool `id` one of these? INVALID_ARGUMENT with the range and the pools' names. */
int stg_pool_check_id(uint32_t id, const struct stg_thread_pool_spec *specs, size_t n,
                      struct stg_err *err);

#endif
