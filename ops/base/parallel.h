/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads that an executor may use while it runs. ops/ starts none: the caller that runs
 * the graph has them, and hands over this table.
 */
#ifndef STG_OPS_BASE_PARALLEL_H
#define STG_OPS_BASE_PARALLEL_H

#include <stdint.h>

struct stg_parallel {
    void *owner;
    uint32_t n_threads; /* at work at once, the caller's own among them */
    /* The least bytes of input that are worth a part; what has less than two stays whole.
     */
    uint64_t part_bytes;
    /* Calls part(arg, i) once for each i below n, on any threads, the caller's too, and
     * returns when all have returned. Any thread; many at once. */
    void (*run)(void *owner, uint32_t n, void (*part)(void *arg, uint32_t i), void *arg);
};

#endif
