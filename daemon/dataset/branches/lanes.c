/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/branches/lanes.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "daemon/dataset/block.h"
#include "daemon/dataset/branches/one_path.h"
#include "daemon/dataset/calls.h"

/* Finished blocks of a lane: so many once it was taken from, one before, so that files
 * that are open ahead hold little. */
#define MAX_BLOCKS 2u
/* Records of a block: a share of the budget, in bytes a record that a view takes. */
#define MAX_BLOCK_RECORDS 1024
#define MIN_BLOCK_RECORDS 16
#define BUDGET_A_RECORD 4096
/* To wake a thread takes as long as to read a small file: one is woken for so much work.
 */
#define WORTH_WAKING_NS 100000
/* To measure its CPU time takes a good part of a run that is no longer than that: each
 * fourth is measured. */
#define SAMPLED 4
/* A taker that has waited for so long needs another thread: those at work are stuck. */
#define STUCK_NS 50000000
/* A taker runs another lane rather than wait for one, if that takes no longer. */
#define SHORT_NS 500000

enum state { FREE, IDLE, RUNNING };

struct lane {
    struct stg_one_path *one; /* its input */
    struct stg_iter *reader;  /* reads from one; NULL: not made yet. Belongs to the thread
                                 that runs the lane */
    enum state state;
    bool counted;      /* among those that are runnable */
    bool fresh;        /* the reader is still at the file before */
    bool ended;        /* the reader has no more */
    bool taken;        /* from, since it started */
    uint64_t sequence; /* when it started */
    struct stg_block *blocks[MAX_BLOCKS];
    unsigned n_blocks;
    int64_t n_records; /* in them */
    bool failed;       /* after them: lanes->failure */
};

struct thread {
    struct stg_lanes *lanes;
    pthread_t thread;
    unsigned index;
};

struct stg_lanes {
    struct stg_lanes_config config;
    int64_t block_records;
    pthread_mutex_t lock; /* guards what follows, and the lanes but for readers */
    pthread_cond_t work, finished; /* something to run; something was run */
    pthread_cond_t more;           /* more threads are to work */
    struct stg_calls calls;
    unsigned n_active; /* the first so many threads work, … */
    unsigned n_spare;  /* … and so many more while those are stuck */
    bool paused, stopping;
    unsigned n_running, n_runnable; /* lanes */
    unsigned n_waiting, n_woken;    /* threads; of those, that do not know it yet */
    int64_t run_ns, open_ns;        /* what a run takes; and the first one of a file */
    bool awaits_any;                /* the taker sleeps until some lane has run, … */
    const struct lane *awaited;     /* … or this one; NULL: awake */
    uint64_t n_started, n_ready, n_runs;
    struct stg_err failure; /* of the lane that failed first */
    struct thread *threads;
    unsigned n_threads;
    struct lane lanes[];
};

/* ---- what there is to run ---- */

/* The lock is held. */
static bool is_runnable(const struct stg_lanes *lanes, const struct lane *lane)
{
    return lane->state == IDLE && !lane->ended &&
           lane->n_blocks < (lane->taken ? MAX_BLOCKS : 1) &&
           lane->n_records < lanes->config.buffer_records;
}

/* To be called after each change to the lane. The lock is held. */
static void count(struct stg_lanes *lanes, struct lane *lane)
{
    lanes->n_runnable -= lane->counted;
    lane->counted = is_runnable(lanes, lane);
    lanes->n_runnable += lane->counted;
}

/* One thread more, if there is enough for it to do beside those that were woken. The lock
 * is held. */
static void wake_one(struct stg_lanes *lanes)
{
    int64_t work_ns = (int64_t)lanes->n_runnable * lanes->run_ns;
    if (lanes->n_waiting == lanes->n_woken ||
        work_ns < (lanes->n_woken + 1) * (int64_t)WORTH_WAKING_NS)
        return;
    lanes->n_woken++;
    pthread_cond_signal(&lanes->work);
}

/* The taker has nothing to do meanwhile. The lock is held. */
static void wake_for_all(struct stg_lanes *lanes)
{
    while (lanes->n_woken < lanes->n_waiting && lanes->n_woken < lanes->n_runnable) {
        lanes->n_woken++;
        pthread_cond_signal(&lanes->work);
    }
}

/* The one that has least ready; of those, the one that is waited for longest. The lock is
 * held. */
static struct lane *find_runnable(struct stg_lanes *lanes)
{
    struct lane *best = NULL;
    if (lanes->n_runnable == 0 || lanes->paused)
        return NULL;
    for (unsigned i = 0; i < lanes->config.n_lanes; i++) {
        struct lane *lane = &lanes->lanes[i];
        if (!is_runnable(lanes, lane))
            continue;
        if (best == NULL || lane->n_blocks < best->n_blocks ||
            (lane->n_blocks == best->n_blocks && lane->sequence < best->sequence))
            best = lane;
    }
    return best;
}

/* ---- running a lane ---- */

/* What is the file's own fault takes the place of its records. */
static int failure_to_block(struct stg_lanes *lanes, struct lane *lane, int rc,
                            struct stg_block **ret, struct stg_err *failure)
{
    if (rc == -STAGER_CANCELLED || rc == -STAGER_RESOURCE_EXHAUSTED)
        return rc;
    struct stg_err why = *failure;
    return stg_block_create_error(lanes->config.dataset->quota, &why,
                                  lane->one->block->epoch, ret, failure);
}

/* Has the reader got to the end of its file? One that shares asks for another file then,
 * and not before. */
static bool is_done(const struct stg_lanes *lanes, const struct lane *lane)
{
    return lanes->config.n_lanes > 1 && lane->one->asked_again;
}

/* The next block of the lane, without the lock. After a failure its reader is of no more
 * use. */
static int read_block(struct stg_lanes *lanes, struct lane *lane, int64_t want,
                      struct stg_block **ret, bool *ret_ended, struct stg_err *failure)
{
    int rc = 0;
    if (lane->fresh)
        rc = lane->reader->impl->rewind(lane->reader, failure);
    if (rc == 0)
        rc = stg_iter_next(lane->reader, want, ret, failure);
    *ret_ended = rc != 0 || is_done(lanes, lane);
    if (rc >= 0)
        return rc;
    rc = failure_to_block(lanes, lane, rc, ret, failure);
    stg_iter_destroy(lane->reader);
    lane->reader = NULL;
    lane->one = NULL;
    return rc;
}

/* The mean of the last few. */
static void note_time(int64_t *mean_ns, int64_t ns)
{
    *mean_ns += (ns - *mean_ns) / 8;
}

/* Reads, and what that took. CPU time only where it is measured. */
static int read_measured(struct stg_lanes *lanes, struct lane *lane, int64_t want,
                         bool measured, struct stg_calls_time *spent,
                         struct stg_block **ret, bool *ret_ended, struct stg_err *failure)
{
    struct stg_calls_time began = {.wall_ns = stg_now_ns()};
    if (measured)
        stg_calls_now(&began);
    int rc = read_block(lanes, lane, want, ret, ret_ended, failure);
    if (measured)
        stg_calls_since(&began, spent);
    else
        *spent = (struct stg_calls_time){.wall_ns = stg_now_ns() - began.wall_ns};
    return rc;
}

/* What a run took. The lock is held. */
static void note_run(struct stg_lanes *lanes, const struct lane *lane, bool by_taker,
                     const struct stg_calls_time *spent)
{
    note_time(&lanes->run_ns, (int64_t)spent->wall_ns);
    if (lane->fresh)
        note_time(&lanes->open_ns, (int64_t)spent->wall_ns);
    lanes->n_spare -= lanes->n_spare > 0 && spent->wall_ns >= STUCK_NS;
    stg_calls_worked(&lanes->calls, spent);
    if (by_taker)
        stg_calls_waited(&lanes->calls, spent->wall_ns);
}

/* The lock is held, but not while the reader runs. */
static void run_lane(struct stg_lanes *lanes, struct lane *lane, bool by_taker)
{
    struct stg_block *block = NULL;
    struct stg_calls_time spent;
    struct stg_err failure;
    bool ended;
    int64_t want = lanes->config.buffer_records - lane->n_records;
    if (want > lanes->block_records)
        want = lanes->block_records;
    lane->state = RUNNING;
    count(lanes, lane);
    lanes->n_running++;
    lanes->n_runs++;
    bool is_short = lanes->run_ns < WORTH_WAKING_NS;
    bool measured = lanes->calls.is_on && (!is_short || lanes->n_runs % SAMPLED == 0);
    pthread_mutex_unlock(&lanes->lock);
    int rc = read_measured(lanes, lane, want, measured, &spent, &block, &ended, &failure);
    if (is_short)
        spent.cpu_ns *= SAMPLED;
    pthread_mutex_lock(&lanes->lock);
    note_run(lanes, lane, by_taker, &spent);
    lane->fresh = false;
    lane->state = IDLE;
    lanes->n_running--;
    lane->ended = ended;
    if (rc < 0) {
        lane->failed = true;
        if (lanes->failure.code == 0)
            lanes->failure = failure;
    } else if (block != NULL) {
        lane->blocks[lane->n_blocks++] = block;
        lane->n_records += block->n_records;
    }
    count(lanes, lane);
    lanes->n_ready++;
    if (lanes->paused || lanes->awaits_any || lanes->awaited == lane)
        pthread_cond_signal(&lanes->finished);
}

/* One that is to rest hands on what it was woken for. */
static void *thread_main(void *arg)
{
    struct thread *thread = arg;
    struct stg_lanes *lanes = thread->lanes;
    pthread_mutex_lock(&lanes->lock);
    while (!lanes->stopping) {
        bool rests = thread->index >= lanes->n_active + lanes->n_spare;
        struct lane *lane = rests ? NULL : find_runnable(lanes);
        if (lane != NULL) {
            run_lane(lanes, lane, false);
        } else if (rests) {
            wake_for_all(lanes);
            pthread_cond_wait(&lanes->more, &lanes->lock);
        } else {
            lanes->n_waiting++;
            pthread_cond_wait(&lanes->work, &lanes->lock);
            lanes->n_waiting--;
            lanes->n_woken -= lanes->n_woken > 0;
        }
    }
    pthread_mutex_unlock(&lanes->lock);
    return NULL;
}

/* ---- starting ---- */

/* All readers of the lanes share what one alone would take of the budget. */
static int make_reader(struct stg_lanes *lanes, struct lane *lane, struct stg_err *err)
{
    const struct stg_lanes_config *config = &lanes->config;
    const struct stg_transformation *transformation =
        stg_transformation_find(config->reader->name);
    struct stg_one_path *one =
        stg_iter_create(sizeof(*one), &stg_one_path_impl, config->dataset, config->reader,
                        config->path, NULL, err);
    if (one == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    unsigned sharing = config->dataset->n_sharing;
    config->dataset->n_sharing = config->n_lanes;
    int rc = transformation->create(config->dataset, config->reader, config->schema,
                                    &one->iter, &lane->reader, err);
    config->dataset->n_sharing = sharing;
    if (rc < 0) {
        stg_iter_destroy(&one->iter);
        return rc;
    }
    lane->one = one;
    return 0;
}

int stg_lanes_start(struct stg_lanes *lanes, unsigned i, struct stg_block *path,
                    struct stg_err *err)
{
    struct lane *lane = &lanes->lanes[i];
    assert(lane->state == FREE);
    bool is_error = path->error.code != 0;
    if (!is_error && lane->reader == NULL) {
        int rc = make_reader(lanes, lane, err);
        if (rc < 0) {
            stg_block_unref(path);
            return rc;
        }
    }
    pthread_mutex_lock(&lanes->lock);
    lane->state = IDLE;
    lane->taken = false;
    lane->ended = is_error;
    lane->fresh = true;
    lane->failed = false;
    lane->sequence = lanes->n_started++;
    if (is_error)
        lane->blocks[lane->n_blocks++] = path;
    else
        stg_one_path_set(lane->one, path);
    count(lanes, lane);
    lanes->n_ready++;
    wake_one(lanes);
    pthread_mutex_unlock(&lanes->lock);
    return 0;
}

/* ---- taking ---- */

/* The lock is held; there is a block. */
static struct stg_block *take_first(struct stg_lanes *lanes, struct lane *lane)
{
    struct stg_block *block = lane->blocks[0];
    for (unsigned i = 1; i < lane->n_blocks; i++)
        lane->blocks[i - 1] = lane->blocks[i];
    lane->n_blocks--;
    lane->n_records -= block->n_records;
    count(lanes, lane);
    wake_one(lanes);
    return block;
}

/* The lock is held. */
static void tune(struct stg_lanes *lanes, const struct stg_block *block)
{
    if (!stg_calls_took(&lanes->calls, block->n_records > 0 ? block->n_records : 1))
        return;
    lanes->n_active = lanes->calls.tuner.value;
    pthread_cond_broadcast(&lanes->more);
}

/* The lock is held. */
static void wait_for_any(struct stg_lanes *lanes)
{
    bool is_late = stg_clock_cond_wait(&lanes->finished, &lanes->lock,
                                       stg_now_ns() + STUCK_NS) == ETIMEDOUT;
    if (!is_late || lanes->n_runnable == 0 ||
        lanes->n_active + lanes->n_spare >= lanes->n_threads)
        return;
    lanes->n_spare++;
    pthread_cond_broadcast(&lanes->more);
}

/* Until the lane has run, or, for NULL, any, or more threads may work. The lock is held.
 */
static void wait_for(struct stg_lanes *lanes, const struct lane *lane)
{
    uint64_t began_ns = stg_now_ns();
    lanes->awaited = lane;
    lanes->awaits_any = lane == NULL;
    if (lane != NULL)
        pthread_cond_wait(&lanes->finished, &lanes->lock);
    else
        wait_for_any(lanes);
    lanes->awaited = NULL;
    lanes->awaits_any = false;
    stg_calls_waited(&lanes->calls, stg_now_ns() - began_ns);
}

/* Returns the lane that the taker runs while `lane` has nothing yet: `lane` itself, if no
 * thread runs it, or one that is wanted soon. NULL: sleep. The lock is held. */
static struct lane *find_for_taker(struct stg_lanes *lanes, struct lane *lane)
{
    if (lane->state == IDLE)
        return lane;
    bool is_short = lanes->run_ns <= SHORT_NS && lanes->open_ns <= SHORT_NS;
    return is_short ? find_runnable(lanes) : NULL;
}

/* The lock is held. */
static int answer(struct stg_lanes *lanes, struct lane *lane, struct stg_block **ret,
                  struct stg_err *err)
{
    lane->taken = true;
    if (lane->n_blocks > 0) {
        *ret = take_first(lanes, lane);
        tune(lanes, *ret);
        return STG_LANE_BLOCK;
    }
    if (lane->failed) {
        if (err != NULL)
            *err = lanes->failure;
        return lanes->failure.code;
    }
    if (!lane->ended)
        return STG_LANE_BUSY;
    lane->state = FREE;
    return STG_LANE_END;
}

int stg_lanes_take(struct stg_lanes *lanes, unsigned i, bool wait, struct stg_block **ret,
                   struct stg_err *err)
{
    struct lane *lane = &lanes->lanes[i];
    pthread_mutex_lock(&lanes->lock);
    assert(lane->state != FREE);
    int rc;
    while ((rc = answer(lanes, lane, ret, err)) == STG_LANE_BUSY && wait) {
        struct lane *next = find_for_taker(lanes, lane);
        if (next != NULL)
            run_lane(lanes, next, true);
        else
            wait_for(lanes, lane);
    }
    pthread_mutex_unlock(&lanes->lock);
    return rc;
}

uint64_t stg_lanes_ready(struct stg_lanes *lanes)
{
    pthread_mutex_lock(&lanes->lock);
    uint64_t n = lanes->n_ready;
    pthread_mutex_unlock(&lanes->lock);
    return n;
}

void stg_lanes_wait(struct stg_lanes *lanes, uint64_t seen)
{
    pthread_mutex_lock(&lanes->lock);
    while (lanes->n_ready == seen) {
        struct lane *lane = lanes->n_active == 0 ? find_runnable(lanes) : NULL;
        wake_for_all(lanes);
        if (lane != NULL)
            run_lane(lanes, lane, true);
        else
            wait_for(lanes, NULL);
    }
    pthread_mutex_unlock(&lanes->lock);
}

/* ---- life ---- */

static void lane_clear(struct stg_lanes *lanes, struct lane *lane)
{
    for (unsigned i = 0; i < lane->n_blocks; i++)
        stg_block_unref(lane->blocks[i]);
    lane->n_blocks = 0;
    lane->n_records = 0;
    lane->state = FREE;
    count(lanes, lane);
}

void stg_lanes_clear(struct stg_lanes *lanes)
{
    pthread_mutex_lock(&lanes->lock);
    lanes->paused = true;
    while (lanes->n_running > 0)
        pthread_cond_wait(&lanes->finished, &lanes->lock);
    for (unsigned i = 0; i < lanes->config.n_lanes; i++)
        lane_clear(lanes, &lanes->lanes[i]);
    lanes->paused = false;
    pthread_mutex_unlock(&lanes->lock);
}

static int make_threads(struct stg_lanes *lanes, struct stg_err *err)
{
    unsigned n = lanes->config.n_threads;
    lanes->threads = calloc(n + 1, sizeof(lanes->threads[0]));
    if (lanes->threads == NULL)
        return stg_step_err(lanes->config.reader, -STAGER_RESOURCE_EXHAUSTED, err,
                            "out of memory");
    for (; lanes->n_threads < n; lanes->n_threads++) {
        struct thread *thread = &lanes->threads[lanes->n_threads];
        *thread = (struct thread){.lanes = lanes, .index = lanes->n_threads};
        int error = pthread_create(&thread->thread, NULL, thread_main, thread);
        if (error != 0)
            return stg_step_err(lanes->config.reader, -STAGER_RESOURCE_EXHAUSTED, err,
                                "thread %u of %u cannot be made: %s",
                                lanes->n_threads + 1, n, strerror(error));
    }
    return 0;
}

static int64_t block_records(const struct stg_lanes_config *config)
{
    uint64_t n =
        stg_quota_limit(config->dataset->quota) / BUDGET_A_RECORD / config->n_lanes;
    return n > MAX_BLOCK_RECORDS   ? MAX_BLOCK_RECORDS
           : n < MIN_BLOCK_RECORDS ? MIN_BLOCK_RECORDS
                                   : (int64_t)n;
}

int stg_lanes_create(const struct stg_lanes_config *config, struct stg_lanes **ret,
                     struct stg_err *err)
{
    struct stg_lanes *lanes =
        calloc(1, sizeof(*lanes) + config->n_lanes * sizeof(struct lane));
    if (lanes == NULL)
        return stg_step_err(config->reader, -STAGER_RESOURCE_EXHAUSTED, err,
                            "out of memory");
    lanes->config = *config;
    lanes->block_records = block_records(config);
    pthread_mutex_init(&lanes->lock, NULL);
    pthread_cond_init(&lanes->work, NULL);
    stg_clock_cond_init(&lanes->finished);
    pthread_cond_init(&lanes->more, NULL);
    lanes->run_ns = lanes->open_ns = 2 * (int64_t)SHORT_NS; /* until it is known */
    lanes->n_active = config->n_threads;
    if (config->tuned != NULL) {
        stg_calls_init(&lanes->calls, config->dataset, config->tuned, config->n_threads,
                       config->least_threads, config->n_threads);
        lanes->n_active = lanes->calls.tuner.value;
    }
    int rc = make_threads(lanes, err);
    if (rc < 0) {
        stg_lanes_destroy(lanes);
        return rc;
    }
    *ret = lanes;
    return 0;
}

void stg_lanes_destroy(struct stg_lanes *lanes)
{
    if (lanes == NULL)
        return;
    pthread_mutex_lock(&lanes->lock);
    lanes->stopping = true;
    pthread_cond_broadcast(&lanes->work);
    pthread_cond_broadcast(&lanes->more);
    pthread_mutex_unlock(&lanes->lock);
    for (unsigned i = 0; i < lanes->n_threads; i++)
        pthread_join(lanes->threads[i].thread, NULL);
    stg_calls_finish(&lanes->calls);
    for (unsigned i = 0; i < lanes->config.n_lanes; i++) {
        lane_clear(lanes, &lanes->lanes[i]);
        stg_iter_destroy(lanes->lanes[i].reader);
    }
    pthread_cond_destroy(&lanes->finished);
    pthread_cond_destroy(&lanes->work);
    pthread_cond_destroy(&lanes->more);
    pthread_mutex_destroy(&lanes->lock);
    free(lanes->threads);
    free(lanes);
}
