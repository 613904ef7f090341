/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/host/heap.h"

#include <malloc.h>
#include <pthread.h>

#include "daemon/host/cpus.h"

#define MIN_HEAPS 4
#define MMAP_BYTES (4 << 20)
#define TRIM_BYTES (16 << 20)
#define SMALL_TRIM_BYTES (128 << 10)

/* By default malloc makes up to eight heaps for each CPU, and keeps more at the end of
 * each the larger the blocks are that were freed. The daemon needs one heap for each CPU.
 * Blocks from MMAP_BYTES on are mapped one by one: the dataset reuses chunks of that size
 * (daemon/storage/chunk.h).
 *
 * A heap keeps up to TRIM_BYTES at its end. If that is less than a few batches, each
 * batch causes page faults. */
void stg_heap_bound(void)
{
    unsigned n = stg_cpus_whole();
    mallopt(M_ARENA_MAX, n < MIN_HEAPS ? MIN_HEAPS : (int)n);
    mallopt(M_MMAP_THRESHOLD, MMAP_BYTES);
    mallopt(M_TRIM_THRESHOLD, TRIM_BYTES);
}

/* ---- the return of memory ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards n_shedding */
static unsigned n_shedding;

/* malloc_trim returns the end of the first heap only. The others shrink when a block of
 * theirs is freed. */
static void shed(int change)
{
    pthread_mutex_lock(&lock);
    n_shedding += (unsigned)change;
    mallopt(M_TRIM_THRESHOLD, n_shedding > 0 ? SMALL_TRIM_BYTES : TRIM_BYTES);
    pthread_mutex_unlock(&lock);
}

void stg_heap_shed_begin(void)
{
    shed(1);
}

void stg_heap_shed_end(void)
{
    shed(-1);
}

static void run(uv_work_t *work)
{
    malloc_trim(0);
}

static void ran(uv_work_t *work, int status)
{
    struct stg_heap_trim *trim = work->data;
    trim->is_running = false;
    if (trim->runs_again)
        stg_heap_trim(trim, work->loop);
    trim->done(trim->owner);
}

void stg_heap_trim(struct stg_heap_trim *trim, uv_loop_t *loop)
{
    trim->runs_again = trim->is_running;
    if (trim->is_running)
        return;
    trim->is_running = true;
    trim->work.data = trim;
    uv_queue_work(loop, &trim->work, run, ran);
}
