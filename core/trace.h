/* SPDX-License-Identifier: Apache-2.0
 *
 * A trace: spans of time of threads and clients, on CLOCK_MONOTONIC. What is traced has a
 * struct stg_trace. It is nearly always off; a span then costs one load. While it is on,
 * spans go into a trace page (core/layout.h), a ring for each thread. A ring grows while
 * the page has room, and holds the last spans of its thread. No writer waits for a
 * reader.
 *
 * A struct stg_trace outlives all its writers; its page lives from start to stop.
 */
#ifndef STG_CORE_TRACE_H
#define STG_CORE_TRACE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "core/clock.h"
#include "core/layout.h"

struct stg_trace {
    _Atomic uint32_t on;
    _Atomic uint32_t n_inside; /* threads that are writing to the page */
    _Atomic uint64_t session;  /* of the page: never the same twice in a process */
    struct stg_trace_page *page;
    pthread_mutex_t lock; /* guards the page's names and tracks */
};

/* Off. */
void stg_trace_init(struct stg_trace *trace);
void stg_trace_finish(struct stg_trace *trace); /* it must be off */

struct stg_trace_plan {
    const char *pipeline;
    uint64_t generation;
    uint64_t instance; /* of the daemon */
    uint64_t until_ns; /* when it is meant to end */
    /* The names of the nodes of the graph, in their order. */
    void (*name)(void *owner, uint32_t node, char *buf, size_t bytes);
    void *owner;
    uint32_t n_nodes; /* those that find no room have no name */
};

/* page: zeroed; spans go there until stop. It must be off. start and stop: one thread. */
void stg_trace_start(struct stg_trace *trace, struct stg_trace_page *page,
                     const struct stg_trace_plan *plan);

/* Waits (for less than a millisecond, as a rule) until no thread writes to the page. Does
 * nothing if the trace is off. */
void stg_trace_stop(struct stg_trace *trace);

/* ---- any thread ---- */

/* NULL is never on. One load. */
static inline bool stg_trace_is_on(const struct stg_trace *trace)
{
    return trace != NULL && atomic_load_explicit(&trace->on, memory_order_relaxed) != 0;
}

/* When a span begins: 0 when it is off, and then nothing more is to be done about it. */
static inline uint64_t stg_trace_begin(const struct stg_trace *trace)
{
    return stg_trace_is_on(trace) ? stg_now_ns() : 0;
}

/* The span goes to the ring of the calling thread, which gets one when it has none. When
 * there is no more ring it is counted as lost. Nothing happens when it is off. trace may
 * be NULL. */
void stg_trace_add(struct stg_trace *trace, const struct stg_trace_span *span);

/* What remembers a name's place in the names. Zero-initialise. */
struct stg_trace_label {
    _Atomic uint64_t place; /* and the session that it is of */
};

/* The place of the name in this trace, or 0: ask stg_trace_name, once. */
uint16_t stg_trace_known(const struct stg_trace *trace,
                         const struct stg_trace_label *label);

/* Its place; 0 when it is off, or there is no room. The end of a long one is kept, of 127
 * bytes. */
uint16_t stg_trace_name(struct stg_trace *trace, struct stg_trace_label *label,
                        const char *text);

/* Makes a ring for a thread of another process. Returns its place from 1, or 0. */
uint32_t stg_trace_track(struct stg_trace *trace, uint32_t pid, const char *process,
                         const char *name);

/* Of these track by track only one thread at a time. */
void stg_trace_add_to(struct stg_trace *trace, uint32_t track,
                      const struct stg_trace_span *span);
void stg_trace_lose(struct stg_trace *trace, uint64_t n);

/* A span in shared memory, which may be read while it is written: by words, none of which
 * is torn, and none of which is seen earlier than a count that was stored before it. */
void stg_span_store(struct stg_trace_span *to, const struct stg_trace_span *from);
void stg_span_load(struct stg_trace_span *to, const struct stg_trace_span *from);

/* ---- readers, perhaps in another process ---- */

/* Copies what is left of a track's spans, in the order in which they ended, into memory
 * that the caller frees. Those that were written over, also while they were copied, are
 * counted. What they hold is as it was written: kinds and names are not checked. False:
 * out of memory. */
bool stg_trace_read(const struct stg_trace_page *page, uint32_t track,
                    struct stg_trace_span **ret, size_t *ret_n,
                    uint64_t *ret_n_overwritten);

#endif
