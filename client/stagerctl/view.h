/* SPDX-License-Identifier: Apache-2.0
 *
 * The content of a trace page, made tidy for people: a copy, in which every span lies
 * inside of the window and inside of the span around it, whatever its writer said.
 * One thread at a time.
 */
#ifndef STG_STAGERCTL_VIEW_H
#define STG_STAGERCTL_VIEW_H

#include <stdio.h>

#include "core/err.h"
#include "core/trace.h"

/* One thread of the daemon, or one client. */
struct stg_view_track {
    uint32_t pid, tid;
    char process[64], name[128];
    struct stg_trace_span *spans; /* by begin; the outer one first */
    uint64_t *self_ns;            /* of each: without those inside of it */
    size_t n_spans;
    uint64_t n_overwritten; /* spans that were before these */
};

struct stg_trace_view {
    const struct stg_trace_page *page;
    uint64_t begin_ns, end_ns; /* the window: until now when it goes on */
    struct stg_view_track tracks[STG_TRACE_TRACKS];
    uint32_t n_tracks, n_clients;
    uint64_t n_spans, n_overwritten, n_lost;
};

/* Copies what is there now; page is borrowed for the view's life. RESOURCE_EXHAUSTED. */
int stg_view_load(const struct stg_trace_page *page, struct stg_trace_view *ret,
                  struct stg_err *err);
void stg_view_finish(struct stg_trace_view *view);

/* What a span is called, "shuffle (line 7)", and what it is: "step". Returns buf. */
const char *stg_view_name(const struct stg_trace_view *view,
                          const struct stg_trace_span *span, char *buf, size_t bytes);
const char *stg_view_category(const struct stg_trace_span *span);

/* At once: it has no length. */
bool stg_view_is_instant(const struct stg_trace_span *span);

/* In the trace-event format, which Perfetto and Chrome show. RESOURCE_EXHAUSTED; whether
 * `out` took it is the caller's to ask. */
int stg_view_json(const struct stg_trace_view *view, FILE *out, struct stg_err *err);

/* Where the time went: a table for each track, on standard output. */
int stg_view_text(const struct stg_trace_view *view, struct stg_err *err);

#endif
