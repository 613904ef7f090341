/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/host/heap.h"

#include <malloc.h>

#include "daemon/host/cpus.h"

#define MIN_HEAPS 4
#define MMAP_BYTES (4 << 20)
#define TRIM_BYTES (2 << 20)

/* By default malloc makes up to eight heaps for each CPU, and keeps more at the end of
 * each the larger the blocks are that were freed. The daemon needs one heap for each CPU.
 * Blocks from MMAP_BYTES on are mapped one by one: the dataset reuses chunks of that size
 * (daemon/storage/chunk.h). */
void stg_heap_bound(void)
{
    unsigned n = stg_cpus_whole();
    mallopt(M_ARENA_MAX, n < MIN_HEAPS ? MIN_HEAPS : (int)n);
    mallopt(M_MMAP_THRESHOLD, MMAP_BYTES);
    mallopt(M_TRIM_THRESHOLD, TRIM_BYTES);
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
