/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/host/pool.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/log.h"
#include "daemon/host/cpus.h"
#include "ops/base/parts.h"

#define NODE_PATH "/sys/devices/system/node"
#define CPU_PATH "/sys/devices/system/cpu"
#define MAX_NODES 1024u
#define BITS (8 * sizeof(unsigned long))

/* Where the threads of a pool run. */
struct place {
    cpu_set_t cpus;
    bool has_cpus;
    _Atomic bool warned; /* of what is not permitted: once a pool */
};

struct stg_pool {
    const struct stg_thread_pool_spec *spec;
    struct place place;
    struct stg_parts parts;
    pthread_mutex_t lock;        /* of what is below, and of users and jobs */
    pthread_cond_t work;         /* a job waits, or stopping */
    pthread_cond_t ready;        /* a thread has started */
    struct stg_pool_user *round; /* the last one served; its next is served next */
    bool stopping;
    pthread_t *threads;
    uint32_t n_threads, n_ready;
    struct stg_err start; /* code != 0: a thread could not be placed */
};

struct stg_pools {
    size_t n;
    struct stg_pool pools[];
};

/* ---- lists of CPUs ---- */

static bool take_number(const char **text, unsigned *ret)
{
    unsigned n = 0;
    const char *p = *text;
    for (; *p >= '0' && *p <= '9' && n < 1000000; p++)
        n = n * 10 + (unsigned)(*p - '0');
    if (p == *text)
        return false;
    *text = p;
    *ret = n;
    return true;
}

int stg_cpu_list_parse(const char *text, cpu_set_t *ret, struct stg_err *err)
{
    const char *p = text;
    CPU_ZERO(ret);
    do {
        unsigned first = 0, last;
        bool good = take_number(&p, &first);
        last = first;
        if (good && *p == '-') {
            p++;
            good = take_number(&p, &last);
        }
        if (!good || last < first || (*p != ',' && *p != '\0' && *p != '\n'))
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "\"%.64s\" is not a list of CPUs such as 0-3,8 (at \"%.16s\")",
                           text, p);
        if (last >= CPU_SETSIZE)
            return stg_err(err, -STAGER_INVALID_ARGUMENT, "CPU %u: the maximum is %d",
                           last, CPU_SETSIZE - 1);
        for (unsigned cpu = first; cpu <= last; cpu++)
            CPU_SET(cpu, ret);
    } while (*p++ == ',');
    return 0;
}

const char *stg_cpu_list_text(const cpu_set_t *set, char *buf, size_t bytes)
{
    size_t at = 0;
    buf[0] = '\0';
    for (int cpu = 0; cpu < CPU_SETSIZE && at < bytes; cpu++) {
        if (!CPU_ISSET(cpu, set))
            continue;
        int last = cpu;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, set))
            last++;
        at += (size_t)snprintf(buf + at, bytes - at, last > cpu ? "%s%d-%d" : "%s%d",
                               at > 0 ? "," : "", cpu, last);
        cpu = last;
    }
    return buf;
}

static bool read_list(const char *path, cpu_set_t *ret)
{
    char text[4096];
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    size_t n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[n] = '\0';
    return stg_cpu_list_parse(text, ret, NULL) == 0;
}

/* ---- where threads run ---- */

static int find_cpus(const char *text, struct place *ret, struct stg_err *err)
{
    cpu_set_t online, both;
    int rc = stg_cpu_list_parse(text, &ret->cpus, err);
    if (rc < 0)
        return stg_err_prefix(err, rc, "cpus");
    if (!read_list(CPU_PATH "/online", &online))
        sched_getaffinity(0, sizeof(online), &online);
    CPU_AND(&both, &ret->cpus, &online);
    if (!CPU_EQUAL(&both, &ret->cpus)) {
        char wanted[128], here[128];
        CPU_XOR(&both, &both, &ret->cpus);
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "cpus: %s %s not available; this machine has %s",
                       stg_cpu_list_text(&both, wanted, sizeof(wanted)),
                       CPU_COUNT(&both) == 1 ? "is" : "are",
                       stg_cpu_list_text(&online, here, sizeof(here)));
    }
    ret->has_cpus = true;
    return 0;
}

/* Without `cpus` the node's own. */
static int find_node(const struct stg_thread_pool_spec *spec, struct place *ret,
                     struct stg_err *err)
{
    char path[128], here[128] = "none";
    cpu_set_t nodes, cpus;
    bool known = read_list(NODE_PATH "/online", &nodes);
    if (!known || !CPU_ISSET(spec->numa_node, &nodes)) {
        if (known)
            stg_cpu_list_text(&nodes, here, sizeof(here));
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "numa_node %d does not exist; the nodes of this machine: %s",
                       spec->numa_node, here);
    }
    snprintf(path, sizeof(path), NODE_PATH "/node%d/cpulist", spec->numa_node);
    if (!ret->has_cpus && read_list(path, &cpus)) {
        ret->cpus = cpus;
        ret->has_cpus = true;
    }
    return 0;
}

/* Compares cpus and numa_node of the spec with the machine. */
static int find_place(const struct stg_thread_pool_spec *spec, struct place *ret,
                      struct stg_err *err)
{
    int rc = 0;
    if (spec->cpus != NULL && spec->cpus[0] != '\0')
        rc = find_cpus(spec->cpus, ret, err);
    if (rc == 0 && spec->numa_node >= 0)
        rc = find_node(spec, ret, err);
    return rc;
}

static void warn_once(struct place *place, const struct stg_thread_pool_spec *spec,
                      const char *what, int value, const char *remedy)
{
    const char *why = strerror(errno);
    if (!place->warned)
        stg_log(STG_LOG_WARNING, "thread pool %s: %s %d is not permitted (%s); %s",
                spec->global_name, what, value, why, remedy);
    place->warned = true;
}

static void prefer_node(struct place *place, const struct stg_thread_pool_spec *spec)
{
    const int preferred = 1; /* MPOL_PREFERRED */
    unsigned long mask[MAX_NODES / BITS + 1] = {0};
    mask[(size_t)spec->numa_node / BITS] |= 1ul << ((size_t)spec->numa_node % BITS);
    if (syscall(SYS_set_mempolicy, preferred, mask, (unsigned long)MAX_NODES + 1) < 0)
        warn_once(place, spec, "memory of numa_node", spec->numa_node,
                  "its threads run there nevertheless");
}

/* Moves the calling thread there. A niceness or memory policy that is not permitted is a
 * warning; CPUs that the kernel refuses are an error. */
static int take_place(struct place *place, const struct stg_thread_pool_spec *spec,
                      struct stg_err *err)
{
    char text[128];
    if (place->has_cpus && sched_setaffinity(0, sizeof(place->cpus), &place->cpus) < 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "cpus %s: %s; a cpuset or a container may exclude them",
                       stg_cpu_list_text(&place->cpus, text, sizeof(text)),
                       strerror(errno));
    if (spec->numa_node >= 0)
        prefer_node(place, spec);
    /* Of one thread, not of the process: Linux counts niceness by thread. */
    if (spec->nice != 0 && setpriority(PRIO_PROCESS, 0, spec->nice) < 0)
        warn_once(place, spec, "nice", spec->nice,
                  "its threads keep the niceness of stagerd; give stagerd LimitNICE or "
                  "CAP_SYS_NICE");
    return 0;
}

/* ---- jobs ---- */

static void enter_round(struct stg_pool *pool, struct stg_pool_user *user)
{
    if (pool->round == NULL) {
        user->next = user;
    } else {
        user->next = pool->round->next;
        pool->round->next = user;
    }
    pool->round = user; /* it waits until the others were served */
}

static void leave_round(struct stg_pool *pool, struct stg_pool_user *user)
{
    struct stg_pool_user *before = user;
    while (before->next != user)
        before = before->next;
    before->next = user->next;
    if (pool->round == user)
        pool->round = before != user ? before : NULL;
}

/* The next user's first job; the user stays in the round while it has more. */
static struct stg_pool_job *take_job(struct stg_pool *pool)
{
    struct stg_pool_user *user = pool->round->next;
    struct stg_pool_job *job = user->first;
    user->first = job->next;
    job->was_run = true;
    if (user->first != NULL)
        pool->round = user;
    else
        leave_round(pool, user);
    return job;
}

static void put_job(struct stg_pool_user *user, struct stg_pool_job *job)
{
    if (user->first == NULL) {
        enter_round(user->pool, user);
        user->first = job;
    } else {
        user->last->next = job;
    }
    user->last = job;
    pthread_cond_signal(&user->pool->work);
}

bool stg_pool_run(struct stg_pool_user *user, struct stg_pool_job *job,
                  void (*run)(void *arg), void *arg)
{
    struct stg_pool *pool = user->pool;
    job->run = run;
    job->arg = arg;
    job->is_done = job->was_run = false;
    job->next = NULL;
    pthread_mutex_lock(&pool->lock);
    if (!user->is_cancelled)
        put_job(user, job);
    while (!job->is_done && (job->was_run || !user->is_cancelled))
        pthread_cond_wait(&job->done, &pool->lock);
    bool was_run = job->was_run;
    pthread_mutex_unlock(&pool->lock);
    return was_run;
}

void stg_pool_cancel(struct stg_pool_user *user)
{
    struct stg_pool *pool = user->pool;
    pthread_mutex_lock(&pool->lock);
    user->is_cancelled = true;
    while (user->first != NULL) {
        struct stg_pool_job *job = user->first;
        user->first = job->next;
        pthread_cond_signal(&job->done);
        if (user->first == NULL)
            leave_round(pool, user);
    }
    pthread_mutex_unlock(&pool->lock);
}

size_t stg_pool_n_waiting(struct stg_pool_user *user)
{
    size_t n = 0;
    pthread_mutex_lock(&user->pool->lock);
    for (const struct stg_pool_job *job = user->first; job != NULL; job = job->next)
        n++;
    pthread_mutex_unlock(&user->pool->lock);
    return n;
}

/* ---- threads ---- */

const struct stg_parallel *stg_pool_parallel(struct stg_pool *pool)
{
    return pool->parts.parallel.n_threads > 1 ? &pool->parts.parallel : NULL;
}

uint32_t stg_pool_n_threads(const struct stg_pool *pool)
{
    return pool->spec->inter_op_threads_num;
}

double stg_pool_cpus(const struct stg_pool *pool)
{
    double all = stg_cpus(), own = CPU_COUNT(&pool->place.cpus);
    return pool->place.has_cpus && own < all ? own : all;
}

void stg_pool_stay_with(struct stg_pool *pool)
{
    struct stg_err err = {0};
    if (take_place(&pool->place, pool->spec, &err) < 0)
        stg_log(STG_LOG_WARNING, "thread pool %s: %s", pool->spec->global_name, err.text);
}

/* True: it does jobs. The first of them do, the others help. */
static bool begin_thread(struct stg_pool *pool)
{
    struct stg_err err = {0};
    int rc = take_place(&pool->place, pool->spec, &err);
    pthread_mutex_lock(&pool->lock);
    uint32_t n_inter = pool->spec->inter_op_threads_num;
    bool does_jobs = pool->n_ready < n_inter;
    char name[48], index[16];
    int n = does_jobs
                ? snprintf(index, sizeof(index), "/%u", pool->n_ready)
                : snprintf(index, sizeof(index), "+%u", pool->n_ready - n_inter + 1);
    snprintf(name, sizeof(name), "%.*s%s", 15 - n, pool->spec->global_name, index);
    pthread_setname_np(pthread_self(), name);
    if (rc < 0)
        pool->start = err;
    pool->n_ready++;
    pthread_cond_signal(&pool->ready);
    pthread_mutex_unlock(&pool->lock);
    return does_jobs;
}

static void do_jobs(struct stg_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (pool->round == NULL && !pool->stopping)
            pthread_cond_wait(&pool->work, &pool->lock);
        if (pool->round == NULL)
            break;
        struct stg_pool_job *job = take_job(pool);
        pthread_mutex_unlock(&pool->lock);
        job->run(job->arg);
        pthread_mutex_lock(&pool->lock);
        job->is_done = true;
        pthread_cond_signal(&job->done);
    }
    pthread_mutex_unlock(&pool->lock);
}

static void *thread_main(void *arg)
{
    struct stg_pool *pool = arg;
    if (begin_thread(pool))
        do_jobs(pool);
    else
        stg_parts_help(&pool->parts);
    return NULL;
}

static int start_threads(struct stg_pool *pool, struct stg_err *err)
{
    uint32_t n = pool->spec->inter_op_threads_num + pool->spec->intra_op_threads_num - 1;
    pool->threads = calloc(n, sizeof(pool->threads[0]));
    if (pool->threads == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    int rc = 0;
    while (rc == 0 && pool->n_threads < n) {
        rc = pthread_create(&pool->threads[pool->n_threads], NULL, thread_main, pool);
        pool->n_threads += rc == 0;
    }
    pthread_mutex_lock(&pool->lock);
    while (pool->n_ready < pool->n_threads)
        pthread_cond_wait(&pool->ready, &pool->lock);
    *err = pool->start;
    pthread_mutex_unlock(&pool->lock);
    if (rc != 0)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                       "cannot start thread %u of %u: %s", pool->n_threads + 1, n,
                       strerror(rc));
    return err->code;
}

static void init_pool(struct stg_pool *pool, const struct stg_thread_pool_spec *spec)
{
    pool->spec = spec;
    stg_parts_init(&pool->parts, spec->intra_op_threads_num);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->ready, NULL);
}

static void finish_pool(struct stg_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    assert(pool->round == NULL);
    pool->stopping = true;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    stg_parts_stop(&pool->parts);
    for (uint32_t i = 0; i < pool->n_threads; i++)
        pthread_join(pool->threads[i], NULL);
    free(pool->threads);
    stg_parts_finish(&pool->parts);
    pthread_cond_destroy(&pool->ready);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->lock);
}

/* ---- pools ---- */

static int check_name(const struct stg_thread_pool_spec *specs, size_t i,
                      struct stg_err *err)
{
    for (size_t k = 0; k < i; k++) {
        if (strcmp(specs[k].global_name, specs[i].global_name) == 0)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "another pool has the same global_name: rename one");
    }
    return 0;
}

int stg_pools_create(const struct stg_thread_pool_spec *specs, size_t n,
                     struct stg_pools **ret, struct stg_err *err)
{
    struct stg_pools *pools = calloc(1, sizeof(*pools) + n * sizeof(pools->pools[0]));
    if (pools == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "thread_pools: out of memory");
    for (size_t i = 0; i < n; i++) {
        struct stg_pool *pool = &pools->pools[i];
        init_pool(pool, &specs[i]);
        pools->n++;
        int rc = check_name(specs, i, err);
        if (rc == 0)
            rc = find_place(&specs[i], &pool->place, err);
        if (rc == 0)
            rc = start_threads(pool, err);
        if (rc < 0) {
            stg_pools_destroy(pools);
            return stg_err_prefix(err, rc, "thread_pools: %s", specs[i].global_name);
        }
    }
    *ret = pools;
    return 0;
}

void stg_pools_destroy(struct stg_pools *pools)
{
    for (size_t i = 0; pools != NULL && i < pools->n; i++)
        finish_pool(&pools->pools[i]);
    free(pools);
}

struct stg_pool *stg_pools_get(struct stg_pools *pools, size_t i)
{
    return pools != NULL && i < pools->n ? &pools->pools[i] : NULL;
}

const char *stg_pool_name(const struct stg_pool *pool)
{
    return pool->spec->global_name;
}

int stg_pool_check_id(uint32_t id, const struct stg_thread_pool_spec *specs, size_t n,
                      struct stg_err *err)
{
    if (id < n)
        return 0;
    stg_err(
        err, -STAGER_INVALID_ARGUMENT,
        "stage_subgraph_thread_pool_id %u is out of range [0, %zu): stagerd.yaml has ",
        id, n);
    if (n == 0)
        return stg_err_append(err, err->code, "no thread_pools");
    stg_err_append(err, err->code, n == 1 ? "the pool " : "the pools ");
    for (size_t i = 0; i < n; i++)
        stg_err_append(err, err->code, "%s%s", i > 0 ? ", " : "", specs[i].global_name);
    return err->code;
}
