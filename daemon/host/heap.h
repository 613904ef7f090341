/* SPDX-License-Identifier: Apache-2.0
 *
 * The heaps of malloc: their number, and the return of freed memory to the system.
 */
#ifndef STG_DAEMON_HOST_HEAP_H
#define STG_DAEMON_HOST_HEAP_H

#include <stdbool.h>
#include <uv.h>

/* Bounds the number of heaps and what each keeps. Called before the first thread starts.
 */
void stg_heap_bound(void);

/* Between these two, what a thread frees leaves the ends of heaps small: for freeing what
 * a pipeline held. Any thread. */
void stg_heap_shed_begin(void);
void stg_heap_shed_end(void);

/* Zero-initialise. Belongs to the loop. */
struct stg_heap_trim {
    uv_work_t work;
    bool is_running;
    bool runs_again; /* more was freed meanwhile */
    void (*done)(void *owner);
    void *owner;
};

/* Returns freed memory to the system on a worker, then calls `done` on the loop. */
void stg_heap_trim(struct stg_heap_trim *trim, uv_loop_t *loop);

#endif
