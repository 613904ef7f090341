/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/branches/parallel_readers.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "daemon/dataset/block.h"
#include "daemon/dataset/branches/single_path.h"
#include "daemon/dataset/parallelism.h"
#include "daemon/host/fair.h"

/* Finished blocks of a reader: so many once it was taken from, one before, so that files
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
/* A taker runs another reader rather than wait for one, if that takes no longer. */
#define SHORT_NS 500000

enum state { FREE, IDLE, RUNNING };

struct reader {
    struct stg_single_path *one; /* its input */
    struct stg_iter *iter; /* reads from one; NULL: not made yet. Belongs to the thread
                              that runs the reader */
    enum state state;
    bool counted;       /* among those that are runnable */
    bool fresh;         /* the reader is still at the file before */
    bool ended;         /* the reader has no more */
    bool taken;         /* from, since it started */
    uint64_t n_skipped; /* records, before the first */
    uint64_t sequence;  /* when it started */
    struct stg_block *blocks[MAX_BLOCKS];
    unsigned n_blocks;
    int64_t n_records; /* in them */
    bool failed;       /* after them: readers->failure */
};

struct thread {
    struct stg_parallel_readers *readers;
    pthread_t thread;
    unsigned index;
};

struct stg_parallel_readers {
    struct stg_parallel_readers_config config;
    int64_t block_records;
    pthread_mutex_t lock; /* guards what follows, and the readers but for readers */
    pthread_cond_t work, finished; /* something to run; something was run */
    pthread_cond_t more;           /* more threads are to work */
    struct stg_parallelism parallelism;
    unsigned n_active; /* the first so many threads work, … */
    unsigned n_spare;  /* … and so many more while those are stuck */
    bool paused, stopping;
    unsigned n_running, n_runnable; /* readers */
    unsigned n_waiting, n_woken;    /* threads; of those, that do not know it yet */
    int64_t run_ns, open_ns;        /* what a run takes; and the first one of a file */
    bool awaits_any;                /* the taker sleeps until some reader has run, … */
    const struct reader *awaited;   /* … or this one; NULL: awake */
    uint64_t n_started, n_ready, n_runs;
    struct stg_err failure; /* of the reader that failed first */
    struct thread *threads;
    unsigned n_threads;
    struct reader counter; /* counts the records of files, and reads none */
    struct reader readers[];
};

/* ---- what there is to run ---- */

/* The lock is held. */
static bool is_runnable(const struct stg_parallel_readers *readers,
                        const struct reader *reader)
{
    return reader->state == IDLE && !reader->ended &&
           reader->n_blocks < (reader->taken ? MAX_BLOCKS : 1) &&
           reader->n_records < readers->config.buffer_records;
}

/* To be called after each change to the reader. The lock is held. */
static void count(struct stg_parallel_readers *readers, struct reader *reader)
{
    readers->n_runnable -= reader->counted;
    reader->counted = is_runnable(readers, reader);
    readers->n_runnable += reader->counted;
}

/* One thread more, if there is enough for it to do beside those that were woken. The lock
 * is held. */
static void wake_one(struct stg_parallel_readers *readers)
{
    int64_t work_ns = (int64_t)readers->n_runnable * readers->run_ns;
    if (readers->n_waiting == readers->n_woken ||
        work_ns < (readers->n_woken + 1) * (int64_t)WORTH_WAKING_NS)
        return;
    readers->n_woken++;
    pthread_cond_signal(&readers->work);
}

/* The taker has nothing to do meanwhile. The lock is held. */
static void wake_for_all(struct stg_parallel_readers *readers)
{
    while (readers->n_woken < readers->n_waiting &&
           readers->n_woken < readers->n_runnable) {
        readers->n_woken++;
        pthread_cond_signal(&readers->work);
    }
}

/* The one that has least ready; of those, the one that is waited for longest. The lock is
 * held. */
static struct reader *find_runnable(struct stg_parallel_readers *readers)
{
    struct reader *best = NULL;
    if (readers->n_runnable == 0 || readers->paused)
        return NULL;
    for (unsigned i = 0; i < readers->config.n_readers; i++) {
        struct reader *reader = &readers->readers[i];
        if (!is_runnable(readers, reader))
            continue;
        if (best == NULL || reader->n_blocks < best->n_blocks ||
            (reader->n_blocks == best->n_blocks && reader->sequence < best->sequence))
            best = reader;
    }
    return best;
}

/* ---- running a reader ---- */

/* What is the file's own fault takes the place of its records. */
static int failure_to_block(struct stg_parallel_readers *readers, struct reader *reader,
                            int rc, struct stg_block **ret, struct stg_err *failure)
{
    if (rc == -STAGER_CANCELLED || rc == -STAGER_RESOURCE_EXHAUSTED)
        return rc;
    struct stg_err why = *failure;
    return stg_block_create_error(readers->config.dataset->quota, &why,
                                  reader->one->block->epoch, ret, failure);
}

/* Has the reader got to the end of its file? One that shares asks for another file then,
 * and not before. */
static bool is_done(const struct stg_parallel_readers *readers,
                    const struct reader *reader)
{
    return readers->config.n_readers > 1 && reader->one->asked_again;
}

/* To its file, behind the records that are skipped. */
static int begin(const struct stg_parallel_readers *readers, struct reader *reader,
                 struct stg_err *failure)
{
    uint64_t n = reader->n_skipped, got = 0;
    int rc = reader->iter->impl->rewind(reader->iter, false, failure);
    if (rc == 0 && n > 0)
        rc = stg_iter_skip(reader->iter, n, &got, failure);
    if (rc == 0 && got < n)
        rc = stg_step_err(readers->config.step, -STAGER_FAILED_PRECONDITION, failure,
                          "the data is not what the position was taken of: a file has "
                          "ended early");
    return rc;
}

/* The next block of the reader, without the lock. After a failure its reader is of no
 * more use. */
static int read_block(struct stg_parallel_readers *readers, struct reader *reader,
                      int64_t want, struct stg_block **ret, bool *ret_ended,
                      struct stg_err *failure)
{
    int rc = 0;
    if (reader->fresh)
        rc = begin(readers, reader, failure);
    if (rc == 0)
        rc = stg_iter_next(reader->iter, want, ret, failure);
    *ret_ended = rc != 0 || is_done(readers, reader);
    if (rc >= 0)
        return rc;
    rc = failure_to_block(readers, reader, rc, ret, failure);
    stg_iter_destroy(reader->iter);
    reader->iter = NULL;
    reader->one = NULL;
    return rc;
}

/* The mean of the last few. */
static void note_time(int64_t *mean_ns, int64_t ns)
{
    *mean_ns += (ns - *mean_ns) / 8;
}

/* Reads, and what that took. CPU time only where it is measured. */
static int read_measured(struct stg_parallel_readers *readers, struct reader *reader,
                         int64_t want, bool measured, struct stg_thread_time *spent,
                         struct stg_block **ret, bool *ret_ended, struct stg_err *failure)
{
    struct stg_thread_time began = {.wall_ns = stg_now_ns()};
    if (measured)
        stg_thread_time_now(&began);
    int rc = read_block(readers, reader, want, ret, ret_ended, failure);
    if (measured)
        stg_thread_time_since(&began, spent);
    else
        *spent = (struct stg_thread_time){.wall_ns = stg_now_ns() - began.wall_ns};
    return rc;
}

/* What a run took. The lock is held. */
static void note_run(struct stg_parallel_readers *readers, const struct reader *reader,
                     bool by_taker, const struct stg_thread_time *spent)
{
    note_time(&readers->run_ns, (int64_t)spent->wall_ns);
    if (reader->fresh)
        note_time(&readers->open_ns, (int64_t)spent->wall_ns);
    readers->n_spare -= readers->n_spare > 0 && spent->wall_ns >= STUCK_NS;
    stg_parallelism_worked(&readers->parallelism, spent);
    if (by_taker)
        stg_parallelism_waited(&readers->parallelism, spent->wall_ns);
}

/* The lock is held, but not while the reader runs. */
static void run_reader(struct stg_parallel_readers *readers, struct reader *reader,
                       bool by_taker)
{
    struct stg_block *block = NULL;
    struct stg_thread_time spent;
    struct stg_err failure;
    bool ended;
    int64_t want = readers->config.buffer_records - reader->n_records;
    if (want > readers->block_records)
        want = readers->block_records;
    reader->state = RUNNING;
    count(readers, reader);
    readers->n_running++;
    readers->n_runs++;
    bool is_short = readers->run_ns < WORTH_WAKING_NS;
    bool measured =
        readers->parallelism.is_on && (!is_short || readers->n_runs % SAMPLED == 0);
    pthread_mutex_unlock(&readers->lock);
    int rc =
        read_measured(readers, reader, want, measured, &spent, &block, &ended, &failure);
    if (is_short)
        spent.cpu_ns *= SAMPLED;
    pthread_mutex_lock(&readers->lock);
    note_run(readers, reader, by_taker, &spent);
    reader->fresh = false;
    reader->state = IDLE;
    readers->n_running--;
    reader->ended = ended;
    if (rc < 0) {
        reader->failed = true;
        if (readers->failure.code == 0)
            readers->failure = failure;
    } else if (block != NULL) {
        reader->blocks[reader->n_blocks++] = block;
        reader->n_records += block->n_records;
    }
    count(readers, reader);
    readers->n_ready++;
    if (readers->paused || readers->awaits_any || readers->awaited == reader)
        pthread_cond_signal(&readers->finished);
}

/* One that is inactive passes its wake-up on. */
static void *thread_main(void *arg)
{
    struct thread *thread = arg;
    struct stg_parallel_readers *readers = thread->readers;
    pthread_mutex_lock(&readers->lock);
    while (!readers->stopping) {
        bool rests = thread->index >= readers->n_active + readers->n_spare;
        struct reader *reader = rests ? NULL : find_runnable(readers);
        if (reader != NULL) {
            run_reader(readers, reader, false);
        } else if (rests) {
            wake_for_all(readers);
            pthread_cond_wait(&readers->more, &readers->lock);
        } else {
            readers->n_waiting++;
            pthread_cond_wait(&readers->work, &readers->lock);
            readers->n_waiting--;
            readers->n_woken -= readers->n_woken > 0;
        }
    }
    pthread_mutex_unlock(&readers->lock);
    return NULL;
}

/* ---- starting ---- */

/* All readers of the readers share what one alone would take of the budget. */
static int make_reader(struct stg_parallel_readers *readers, struct reader *reader,
                       struct stg_err *err)
{
    const struct stg_parallel_readers_config *config = &readers->config;
    const struct stg_transformation *transformation =
        stg_transformation_find(config->step->name);
    struct stg_single_path *one =
        stg_iter_create(sizeof(*one), &stg_single_path_impl, config->dataset,
                        config->step, config->path, NULL, err);
    if (one == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    unsigned sharing = config->dataset->n_sharing;
    config->dataset->n_sharing = config->n_readers;
    int rc = transformation->create(config->dataset, config->step, config->schema,
                                    &one->iter, &reader->iter, err);
    config->dataset->n_sharing = sharing;
    if (rc < 0) {
        stg_iter_destroy(&one->iter);
        return rc;
    }
    reader->one = one;
    return 0;
}

int stg_parallel_readers_start(struct stg_parallel_readers *readers, unsigned i,
                               struct stg_block *path, uint64_t n_skipped,
                               struct stg_err *err)
{
    struct reader *reader = &readers->readers[i];
    assert(reader->state == FREE);
    bool is_error = path->error.code != 0;
    if (!is_error && reader->iter == NULL) {
        int rc = make_reader(readers, reader, err);
        if (rc < 0) {
            stg_block_unref(path);
            return rc;
        }
    }
    pthread_mutex_lock(&readers->lock);
    reader->state = IDLE;
    reader->taken = false;
    reader->ended = is_error;
    reader->fresh = true;
    reader->failed = false;
    reader->n_skipped = n_skipped;
    reader->sequence = readers->n_started++;
    if (is_error)
        reader->blocks[reader->n_blocks++] = path;
    else
        stg_single_path_set(reader->one, path);
    count(readers, reader);
    readers->n_ready++;
    wake_one(readers);
    pthread_mutex_unlock(&readers->lock);
    return 0;
}

int stg_parallel_readers_count(struct stg_parallel_readers *readers,
                               struct stg_block *path, uint64_t *ret, struct stg_err *err)
{
    struct reader *counter = &readers->counter;
    int rc = counter->iter == NULL ? make_reader(readers, counter, err) : 0;
    if (rc < 0)
        return rc;
    stg_single_path_set(counter->one, stg_block_ref(path));
    rc = counter->iter->impl->rewind(counter->iter, false, err);
    return rc < 0 ? rc : !stg_iter_left(counter->iter, UINT64_MAX, ret);
}

/* ---- taking ---- */

/* The lock is held; there is a block. */
static struct stg_block *take_first(struct stg_parallel_readers *readers,
                                    struct reader *reader)
{
    struct stg_block *block = reader->blocks[0];
    for (unsigned i = 1; i < reader->n_blocks; i++)
        reader->blocks[i - 1] = reader->blocks[i];
    reader->n_blocks--;
    reader->n_records -= block->n_records;
    count(readers, reader);
    wake_one(readers);
    return block;
}

/* The lock is held. */
static void tune(struct stg_parallel_readers *readers, const struct stg_block *block)
{
    if (!stg_parallelism_took(&readers->parallelism,
                              block->n_records > 0 ? block->n_records : 1))
        return;
    readers->n_active = readers->parallelism.tuner.value;
    pthread_cond_broadcast(&readers->more);
}

/* The lock is held. */
static void wait_for_any(struct stg_parallel_readers *readers)
{
    bool is_late = stg_clock_cond_wait(&readers->finished, &readers->lock,
                                       stg_now_ns() + STUCK_NS) == ETIMEDOUT;
    if (!is_late || readers->n_runnable == 0 ||
        readers->n_active + readers->n_spare >= readers->n_threads)
        return;
    readers->n_spare++;
    pthread_cond_broadcast(&readers->more);
}

/* Until the reader has run, or, for NULL, any, or more threads may work. The lock is
 * held.
 */
static void wait_for(struct stg_parallel_readers *readers, const struct reader *reader)
{
    uint64_t began_ns = stg_now_ns();
    readers->awaited = reader;
    readers->awaits_any = reader == NULL;
    if (reader != NULL)
        pthread_cond_wait(&readers->finished, &readers->lock);
    else
        wait_for_any(readers);
    readers->awaited = NULL;
    readers->awaits_any = false;
    stg_parallelism_waited(&readers->parallelism, stg_now_ns() - began_ns);
}

/* Returns the reader that the taker runs while `reader` has nothing yet: `reader` itself,
 * if no thread runs it, or one that is wanted soon. NULL: sleep. The lock is held. */
static struct reader *find_for_taker(struct stg_parallel_readers *readers,
                                     struct reader *reader)
{
    if (reader->state == IDLE)
        return reader;
    bool is_short = readers->run_ns <= SHORT_NS && readers->open_ns <= SHORT_NS;
    return is_short ? find_runnable(readers) : NULL;
}

/* The lock is held. */
static int answer(struct stg_parallel_readers *readers, struct reader *reader,
                  struct stg_block **ret, struct stg_err *err)
{
    reader->taken = true;
    if (reader->n_blocks > 0) {
        *ret = take_first(readers, reader);
        tune(readers, *ret);
        return STG_READER_BLOCK;
    }
    if (reader->failed) {
        if (err != NULL)
            *err = readers->failure;
        return readers->failure.code;
    }
    if (!reader->ended)
        return STG_READER_BUSY;
    reader->state = FREE;
    return STG_READER_END;
}

int stg_parallel_readers_take(struct stg_parallel_readers *readers, unsigned i, bool wait,
                              struct stg_block **ret, struct stg_err *err)
{
    struct reader *reader = &readers->readers[i];
    pthread_mutex_lock(&readers->lock);
    assert(reader->state != FREE);
    int rc;
    while ((rc = answer(readers, reader, ret, err)) == STG_READER_BUSY && wait) {
        struct reader *next = find_for_taker(readers, reader);
        if (next != NULL)
            run_reader(readers, next, true);
        else
            wait_for(readers, reader);
    }
    pthread_mutex_unlock(&readers->lock);
    return rc;
}

uint64_t stg_parallel_readers_ready(struct stg_parallel_readers *readers)
{
    pthread_mutex_lock(&readers->lock);
    uint64_t n = readers->n_ready;
    pthread_mutex_unlock(&readers->lock);
    return n;
}

void stg_parallel_readers_wait(struct stg_parallel_readers *readers, uint64_t seen)
{
    pthread_mutex_lock(&readers->lock);
    while (readers->n_ready == seen) {
        struct reader *reader = readers->n_active == 0 ? find_runnable(readers) : NULL;
        wake_for_all(readers);
        if (reader != NULL)
            run_reader(readers, reader, true);
        else
            wait_for(readers, NULL);
    }
    pthread_mutex_unlock(&readers->lock);
}

/* ---- life ---- */

static void reader_clear(struct stg_parallel_readers *readers, struct reader *reader)
{
    for (unsigned i = 0; i < reader->n_blocks; i++)
        stg_block_unref(reader->blocks[i]);
    reader->n_blocks = 0;
    reader->n_records = 0;
    reader->state = FREE;
    count(readers, reader);
}

void stg_parallel_readers_clear(struct stg_parallel_readers *readers)
{
    pthread_mutex_lock(&readers->lock);
    readers->paused = true;
    while (readers->n_running > 0)
        pthread_cond_wait(&readers->finished, &readers->lock);
    for (unsigned i = 0; i < readers->config.n_readers; i++)
        reader_clear(readers, &readers->readers[i]);
    readers->paused = false;
    pthread_mutex_unlock(&readers->lock);
}

static int make_threads(struct stg_parallel_readers *readers, struct stg_err *err)
{
    unsigned n = readers->config.n_threads;
    readers->threads = calloc(n + 1, sizeof(readers->threads[0]));
    if (readers->threads == NULL)
        return stg_step_err(readers->config.step, -STAGER_RESOURCE_EXHAUSTED, err,
                            "out of memory");
    for (; readers->n_threads < n; readers->n_threads++) {
        struct thread *thread = &readers->threads[readers->n_threads];
        *thread = (struct thread){.readers = readers, .index = readers->n_threads};
        int error = stg_fair_start(&thread->thread, NULL, thread_main, thread);
        if (error != 0)
            return stg_step_err(readers->config.step, -STAGER_RESOURCE_EXHAUSTED, err,
                                "cannot start thread %u of %u: %s",
                                readers->n_threads + 1, n, strerror(error));
    }
    return 0;
}

static int64_t block_records(const struct stg_parallel_readers_config *config)
{
    uint64_t n =
        stg_quota_limit(config->dataset->quota) / BUDGET_A_RECORD / config->n_readers;
    return n > MAX_BLOCK_RECORDS   ? MAX_BLOCK_RECORDS
           : n < MIN_BLOCK_RECORDS ? MIN_BLOCK_RECORDS
                                   : (int64_t)n;
}

int stg_parallel_readers_create(const struct stg_parallel_readers_config *config,
                                struct stg_parallel_readers **ret, struct stg_err *err)
{
    struct stg_parallel_readers *readers =
        calloc(1, sizeof(*readers) + config->n_readers * sizeof(struct reader));
    if (readers == NULL)
        return stg_step_err(config->step, -STAGER_RESOURCE_EXHAUSTED, err,
                            "out of memory");
    readers->config = *config;
    readers->block_records = block_records(config);
    pthread_mutex_init(&readers->lock, NULL);
    pthread_cond_init(&readers->work, NULL);
    stg_clock_cond_init(&readers->finished);
    pthread_cond_init(&readers->more, NULL);
    readers->run_ns = readers->open_ns = 2 * (int64_t)SHORT_NS; /* until it is known */
    readers->n_active = config->n_threads;
    if (config->tuned != NULL) {
        stg_parallelism_init(&readers->parallelism, config->dataset, config->tuned,
                             config->n_threads, config->least_threads, config->n_threads);
        readers->n_active = readers->parallelism.tuner.value;
    }
    int rc = make_threads(readers, err);
    if (rc < 0) {
        stg_parallel_readers_destroy(readers);
        return rc;
    }
    *ret = readers;
    return 0;
}

void stg_parallel_readers_destroy(struct stg_parallel_readers *readers)
{
    if (readers == NULL)
        return;
    pthread_mutex_lock(&readers->lock);
    readers->stopping = true;
    pthread_cond_broadcast(&readers->work);
    pthread_cond_broadcast(&readers->more);
    pthread_mutex_unlock(&readers->lock);
    for (unsigned i = 0; i < readers->n_threads; i++)
        pthread_join(readers->threads[i].thread, NULL);
    stg_parallelism_finish(&readers->parallelism);
    for (unsigned i = 0; i < readers->config.n_readers; i++) {
        reader_clear(readers, &readers->readers[i]);
        stg_iter_destroy(readers->readers[i].iter);
    }
    stg_iter_destroy(readers->counter.iter);
    pthread_cond_destroy(&readers->finished);
    pthread_cond_destroy(&readers->work);
    pthread_cond_destroy(&readers->more);
    pthread_mutex_destroy(&readers->lock);
    free(readers->threads);
    free(readers);
}
