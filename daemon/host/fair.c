/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread weighs 1/1.25 for each step of its nice value, on Linux. If n threads of a
 * user of weight w want a CPU, each of them is to weigh w/n. The heaviest keep the nice
 * value of stagerd. A thread that waits for data wants no CPU and does not count.
 */
#include "daemon/host/fair.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "daemon/host/share.h"

#define STEP_NS 500000000u
#define LAST_NICE 19
#define IDLE 0.05 /* fewer busy threads than this slow no other user down */

struct fair_thread {
    struct fair_thread *next, *before;
    struct stg_share *share;
    void *(*run)(void *arg);
    void *arg;
    pid_t tid;
    int nice;
    uint64_t wanted_ns, at_ns; /* CPU time, and time waiting for a CPU, by then */
    double busy;               /* of the last steps: 0 to 1 */
};

/* Of one user, or of the members of a group. */
struct party {
    struct stg_party id;
    double busy;
    int nice;
};

static struct {
    pthread_mutex_t lock; /* guards what follows, and all workers */
    pthread_cond_t changed;
    struct fair_thread *workers;
    size_t n_workers;
    pthread_t thread;
    bool has_thread, is_on, has_warned;
    int base; /* the nice value of stagerd */
} fair = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local struct fair_thread *own;

/* ---- threads ---- */

/* Begins with the nice value of another thread of the user. The lock is held. */
static void add(struct fair_thread *worker)
{
    struct fair_thread *other = fair.workers;
    while (other != NULL && other->share != worker->share)
        other = other->next;
    worker->tid = gettid();
    worker->nice = getpriority(PRIO_PROCESS, 0);
    if (fair.is_on && other != NULL && other->nice > worker->nice &&
        setpriority(PRIO_PROCESS, 0, other->nice) == 0)
        worker->nice = other->nice;
    worker->next = fair.workers;
    if (fair.workers != NULL)
        fair.workers->before = worker;
    fair.workers = worker;
    fair.n_workers++;
    if (fair.is_on)
        pthread_cond_signal(&fair.changed);
}

static void drop(struct fair_thread *worker)
{
    if (worker->before != NULL)
        worker->before->next = worker->next;
    else
        fair.workers = worker->next;
    if (worker->next != NULL)
        worker->next->before = worker->before;
    fair.n_workers--;
}

static void *worker_main(void *arg)
{
    struct fair_thread *worker = arg;
    own = worker;
    pthread_mutex_lock(&fair.lock);
    add(worker);
    pthread_mutex_unlock(&fair.lock);
    void *ret = worker->run(worker->arg);
    pthread_mutex_lock(&fair.lock);
    drop(worker);
    pthread_mutex_unlock(&fair.lock);
    stg_share_put(worker->share);
    free(worker);
    return ret;
}

int stg_fair_start(pthread_t *ret, struct stg_share *share, void *(*run)(void *arg),
                   void *arg)
{
    if (share == NULL && own != NULL)
        share = own->share;
    if (share == NULL)
        return pthread_create(ret, NULL, run, arg);
    struct fair_thread *worker = calloc(1, sizeof(*worker));
    if (worker == NULL)
        return ENOMEM;
    worker->share = stg_share_ref(share);
    worker->run = run;
    worker->arg = arg;
    int number = pthread_create(ret, NULL, worker_main, worker);
    if (number != 0) {
        stg_share_put(share);
        free(worker);
    }
    return number;
}

/* ---- measuring ---- */

/* Reads the CPU time of a thread, and the time that it waited for a CPU. */
static bool read_wanted(pid_t tid, uint64_t *ret)
{
    char path[64], text[96];
    uint64_t ran, waited;
    snprintf(path, sizeof(path), "/proc/self/task/%d/schedstat", (int)tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    if (sscanf(text, "%" SCNu64 " %" SCNu64, &ran, &waited) != 2)
        return false;
    *ret = ran + waited;
    return true;
}

/* A kernel that does not count them makes every thread a busy one. */
static void measure(struct fair_thread *worker, uint64_t now)
{
    uint64_t wanted, passed = now - worker->at_ns;
    double busy = 1;
    if (read_wanted(worker->tid, &wanted)) {
        busy = (double)(wanted - worker->wanted_ns) / (double)passed;
        worker->wanted_ns = wanted;
    }
    bool is_first = worker->at_ns == 0;
    worker->at_ns = now;
    if (!is_first)
        worker->busy = (worker->busy + (busy > 1 ? 1 : busy)) / 2;
}

static struct party *find_party(struct party *parties, size_t *n,
                                const struct stg_share *share)
{
    struct stg_party id = stg_share_party(share);
    for (size_t i = 0; i < *n; i++) {
        if (parties[i].id.id == id.id && parties[i].id.is_group == id.is_group)
            return &parties[i];
    }
    parties[*n] = (struct party){.id = id};
    return &parties[(*n)++];
}

static double weight(const struct party *party)
{
    return (double)party->id.weight / (party->busy > 1 ? party->busy : 1);
}

/* Returns the nearest number of steps of 1.25. */
static int steps_of(double ratio)
{
    int n = 0;
    for (double at = 1.118; at < ratio && n < LAST_NICE; at *= 1.25)
        n++;
    return n;
}

static void divide(struct party *parties, size_t n)
{
    double heaviest = 0;
    for (size_t i = 0; i < n; i++) {
        double w = parties[i].busy >= IDLE ? weight(&parties[i]) : 0;
        heaviest = w > heaviest ? w : heaviest;
    }
    for (size_t i = 0; i < n; i++) {
        int nice = fair.base + steps_of(heaviest / weight(&parties[i]));
        parties[i].nice = nice < LAST_NICE ? nice : LAST_NICE;
    }
}

static void use(struct fair_thread *worker, int nice)
{
    if (nice == worker->nice)
        return;
    if (setpriority(PRIO_PROCESS, (id_t)worker->tid, nice) == 0) {
        worker->nice = nice;
    } else if (!fair.has_warned) {
        fair.has_warned = true;
        stg_log(STG_LOG_WARNING,
                "quotas: weight: the nice value of a thread cannot go back from %d to "
                "%d: %s; give stagerd LimitNICE=+0 or CAP_SYS_NICE",
                worker->nice, nice, strerror(errno));
    }
}

/* The lock is held. Without memory nothing changes. */
static void balance(void)
{
    size_t n = 0;
    uint64_t now = stg_now_ns();
    struct party *parties = calloc(fair.n_workers, sizeof(*parties));
    if (parties == NULL)
        return;
    for (struct fair_thread *w = fair.workers; w != NULL; w = w->next) {
        measure(w, now);
        find_party(parties, &n, w->share)->busy += w->busy;
    }
    divide(parties, n);
    for (struct fair_thread *w = fair.workers; w != NULL; w = w->next)
        use(w, find_party(parties, &n, w->share)->nice);
    free(parties);
}

static void wait_for_step(void)
{
    uint64_t until = stg_now_ns() + STEP_NS;
    while (fair.is_on && stg_now_ns() < until)
        stg_clock_cond_wait(&fair.changed, &fair.lock, until);
}

static void *fair_main(void *arg)
{
    (void)arg;
    pthread_setname_np(pthread_self(), "fair");
    pthread_mutex_lock(&fair.lock);
    while (fair.is_on) {
        if (fair.n_workers == 0) {
            pthread_cond_wait(&fair.changed, &fair.lock);
            continue;
        }
        balance();
        wait_for_step();
    }
    for (struct fair_thread *w = fair.workers; w != NULL; w = w->next)
        use(w, fair.base);
    pthread_mutex_unlock(&fair.lock);
    return NULL;
}

int stg_fair_configure(bool is_on)
{
    if (is_on == fair.has_thread)
        return 0;
    if (!is_on) {
        pthread_mutex_lock(&fair.lock);
        fair.is_on = false;
        pthread_cond_signal(&fair.changed);
        pthread_mutex_unlock(&fair.lock);
        pthread_join(fair.thread, NULL);
        pthread_cond_destroy(&fair.changed);
        fair.has_thread = false;
        return 0;
    }
    pthread_mutex_lock(&fair.lock);
    stg_clock_cond_init(&fair.changed);
    fair.base = getpriority(PRIO_PROCESS, 0);
    int number = pthread_create(&fair.thread, NULL, fair_main, NULL);
    fair.has_thread = fair.is_on = number == 0;
    if (number != 0)
        pthread_cond_destroy(&fair.changed);
    pthread_mutex_unlock(&fair.lock);
    return number;
}
