/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stagerctl/view.h"

#include <stdlib.h>
#include <string.h>

#include "client/stagerctl/command.h"

/* Of spans inside of one another: more than any writer of ours makes. */
#define MAX_DEPTH 256

/* ---- words ---- */

static const struct {
    const char *category, *name; /* name: of one that brings none */
} kinds[STG_SPAN_LAST + 1] = {
    [STG_SPAN_READ] = {"read", "read"},
    [STG_SPAN_STEP] = {"step", "step"},
    [STG_SPAN_OP] = {"op", "op"},
    [STG_SPAN_MAKE] = {"item", "make item"},
    [STG_SPAN_WAIT_MEMORY] = {"wait", "wait for memory"},
    [STG_SPAN_WAIT_ROOM] = {"wait", "wait for room"},
    [STG_SPAN_WAIT_TURN] = {"wait", "wait for turn"},
    [STG_SPAN_WAIT_DRAW] = {"wait", "wait to draw"},
    [STG_SPAN_WAIT_PASS] = {"wait", "wait for pass"},
    [STG_SPAN_PUBLISH] = {"batch", "publish"},
    [STG_SPAN_ASSIGN] = {"batch", "assign"},
    [STG_SPAN_RELEASE] = {"batch", "release"},
    [STG_SPAN_NEXT] = {"client", "stager_next"},
    [STG_SPAN_RUN] = {"client", "stager_run"},
    [STG_SPAN_WAIT_PARKED] = {"wait", "parked"},
};

/* As JSON and a terminal like it. */
static void clean(char *text)
{
    bool is_text = stg_json_is_text(text, strlen(text));
    for (char *c = text; *c != '\0' && !is_text; c++)
        *c = (unsigned char)*c < 0x80 ? *c : '?';
    stg_ctl_clean(text);
}

const char *stg_view_category(const struct stg_trace_span *span)
{
    return kinds[span->kind].category;
}

bool stg_view_is_instant(const struct stg_trace_span *span)
{
    return span->kind == STG_SPAN_ASSIGN || span->kind == STG_SPAN_RELEASE;
}

const char *stg_view_name(const struct stg_trace_view *view,
                          const struct stg_trace_span *span, char *buf, size_t bytes)
{
    const struct stg_trace_page *page = view->page;
    uint32_t n = atomic_load_explicit(&page->n_names, memory_order_acquire);
    snprintf(buf, bytes, "%s", kinds[span->kind].name);
    if (span->name == 0 || span->name >= n || span->name >= STG_TRACE_NAMES)
        return buf;
    struct stg_trace_name name = page->names[span->name];
    if (name.offset > STG_TRACE_TEXT_BYTES ||
        name.bytes > STG_TRACE_TEXT_BYTES - name.offset)
        return buf;
    snprintf(buf, bytes, "%.*s", (int)name.bytes, page->text + name.offset);
    clean(buf);
    return buf;
}

/* ---- tidying ---- */

static int compare(const void *a, const void *b)
{
    const struct stg_trace_span *x = a, *y = b;
    if (x->begin_ns != y->begin_ns)
        return x->begin_ns < y->begin_ns ? -1 : 1;
    if (x->end_ns != y->end_ns)
        return x->end_ns > y->end_ns ? -1 : 1;
    return 0;
}

/* What lies in the window, cut to it. */
static size_t cut(struct stg_trace_span *spans, size_t n, uint64_t begin_ns,
                  uint64_t end_ns)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        struct stg_trace_span span = spans[i];
        if (span.kind == 0 || span.kind > STG_SPAN_LAST || span.begin_ns > span.end_ns ||
            span.end_ns < begin_ns || span.begin_ns > end_ns)
            continue;
        if (span.begin_ns < begin_ns)
            span.begin_ns = begin_ns;
        if (span.end_ns > end_ns)
            span.end_ns = end_ns;
        spans[kept++] = span;
    }
    return kept;
}

/* Ends what reaches beyond the span around it with that one, and takes from that one's
 * own time what is another's. Deeper than any program nests is left out. */
static void nest(struct stg_view_track *track)
{
    size_t open[MAX_DEPTH], depth = 0, kept = 0;
    for (size_t i = 0; i < track->n_spans; i++) {
        struct stg_trace_span span = track->spans[i];
        while (depth > 0 && track->spans[open[depth - 1]].end_ns <= span.begin_ns)
            depth--;
        if (depth == MAX_DEPTH)
            continue;
        if (depth > 0 && span.end_ns > track->spans[open[depth - 1]].end_ns)
            span.end_ns = track->spans[open[depth - 1]].end_ns;
        uint64_t length = span.end_ns - span.begin_ns;
        if (depth > 0)
            track->self_ns[open[depth - 1]] -= length;
        if (length > 0)
            open[depth++] = kept;
        track->self_ns[kept] = length;
        track->spans[kept++] = span;
    }
    track->n_spans = kept;
}

/* ---- life ---- */

static bool load_track(struct stg_trace_view *view, uint32_t i)
{
    const struct stg_trace_track *from = &view->page->tracks[i];
    struct stg_view_track *to = &view->tracks[i];
    to->pid = from->pid;
    to->tid = from->tid;
    memcpy(to->process, from->process, sizeof(to->process) - 1);
    memcpy(to->name, from->name, sizeof(to->name) - 1);
    clean(to->process);
    clean(to->name);
    size_t n;
    if (!stg_trace_read(view->page, i, &to->spans, &n, &to->n_overwritten))
        return false;
    to->n_spans = cut(to->spans, n, view->begin_ns, view->end_ns);
    to->self_ns = calloc(to->n_spans + 1, sizeof(*to->self_ns));
    if (to->self_ns == NULL)
        return false;
    qsort(to->spans, to->n_spans, sizeof(*to->spans), compare);
    nest(to);
    return true;
}

int stg_view_load(const struct stg_trace_page *page, struct stg_trace_view *ret,
                  struct stg_err *err)
{
    *ret = (struct stg_trace_view){.page = page, .begin_ns = page->begin_ns};
    ret->end_ns = atomic_load_explicit(&page->ended_ns, memory_order_acquire);
    if (ret->end_ns == 0)
        ret->end_ns = stg_now_ns();
    ret->n_lost = atomic_load_explicit(&page->n_lost, memory_order_relaxed);
    uint32_t n = atomic_load_explicit(&page->n_tracks, memory_order_acquire);
    ret->n_tracks = n < STG_TRACE_TRACKS ? n : STG_TRACE_TRACKS;
    for (uint32_t i = 0; i < ret->n_tracks; i++) {
        struct stg_view_track *track = &ret->tracks[i];
        if (!load_track(ret, i)) {
            stg_view_finish(ret);
            return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
        }
        ret->n_clients += track->pid != page->pid;
        ret->n_spans += track->n_spans;
        ret->n_overwritten += track->n_overwritten;
    }
    return 0;
}

void stg_view_finish(struct stg_trace_view *view)
{
    for (uint32_t i = 0; i < view->n_tracks; i++) {
        free(view->tracks[i].spans);
        free(view->tracks[i].self_ns);
    }
    view->n_tracks = 0;
}
