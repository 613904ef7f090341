/* SPDX-License-Identifier: Apache-2.0
 *
 * Thread pools of the daemon (settings: thread_pools), on which stages with
 * use_stage_subgraph_thread_pool pull and compute. A job occupies a thread until it
 * returns. A runner that waits for room, memory, a turn or a pass occupies no thread.
 * Stages that share a pool take turns, regardless of how many jobs each has. Besides the
 * threads for jobs, a pool may have threads that help a job in its ops
 * (stg_pool_parallel).
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
    struct stg_pool_job *first, *last; /* jobs that wait for a thread */
    struct stg_pool_user *next;        /* in the round of users with jobs */
    bool is_cancelled;                 /* no further job starts */
};

/* A piece of work. The caller owns its memory, which must outlive stg_pool_run. */
struct stg_pool_job {
    void (*run)(void *arg);
    void *arg;
    bool is_done, was_run;
    pthread_cond_t done;
    struct stg_pool_job *next;
};

/* Starts all threads of all pools, with their CPUs, niceness and NUMA node. Threads for
 * jobs are named NAME/0, NAME/1 …; helpers (intra_op_threads_num minus one) are named
 * NAME+1, NAME+2 …. INVALID_ARGUMENT: cpus is not a list, a CPU or node does not exist
 * (the text has the existing ones), or two pools have one name. RESOURCE_EXHAUSTED: no
 * more threads. A niceness that stagerd may not set is a warning in the log. */
int stg_pools_create(const struct stg_thread_pool_spec *specs, size_t n,
                     struct stg_pools **ret, struct stg_err *err);

/* Joins the threads. No job may be waiting or running. NULL is allowed. */
void stg_pools_destroy(struct stg_pools *pools);

/* Returns pool i, or NULL. */
struct stg_pool *stg_pools_get(struct stg_pools *pools, size_t i);

/* Returns the number of threads for jobs. */
uint32_t stg_pool_n_threads(const struct stg_pool *pool);

/* Returns the number of CPUs that these threads can use: daemon/host/cpus.h. */
double stg_pool_cpus(const struct stg_pool *pool);

/* Returns the threads over which a job may spread an op: its own and the helpers. NULL:
 * the pool has no helpers. Lives as long as the pool. */
const struct stg_parallel *stg_pool_parallel(struct stg_pool *pool);

/* Puts the calling thread on the pool's CPUs, as its own threads are: for a thread that
 * works with it and must stay off the same cores. */
void stg_pool_stay_with(struct stg_pool *pool);

/* Runs run(arg) on a thread of the user's pool, and blocks until it returns. Returns
 * false if the job was cancelled before it began. Any thread outside the pool. The caller
 * initialises job->done, and no other field. */
bool stg_pool_run(struct stg_pool_user *user, struct stg_pool_job *job,
                  void (*run)(void *arg), void *arg);

/* Returns how many jobs of the user wait for a thread. Any thread. */
size_t stg_pool_n_waiting(struct stg_pool_user *user);

/* Cancels the waiting jobs and all later ones. Running jobs continue. Any thread. */
void stg_pool_cancel(struct stg_pool_user *user);

/* Parses a list of CPUs in the format of the kernel, "0-3,8". INVALID_ARGUMENT: the text
 * has the position of the fault. */
int stg_cpu_list_parse(const char *text, cpu_set_t *ret, struct stg_err *err);

/* Writes a set as such a list. Returns buf. */
const char *stg_cpu_list_text(const cpu_set_t *set, char *buf, size_t bytes);

/* Returns the global_name of a pool. */
const char *stg_pool_name(const struct stg_pool *pool);

/* Checks that a pool `id` exists. INVALID_ARGUMENT: the text has the range and the names.
 */
int stg_pool_check_id(uint32_t id, const struct stg_thread_pool_spec *specs, size_t n,
                      struct stg_err *err);

#endif
