/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stagerctl/view.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/stagerctl/command.h"
#include "core/clock.h"
#include "core/text/json.h"

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
    [STG_SPAN_WAIT_PULL] = {"wait", "wait to pull"},
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

/* What lies in the window, clipped to it. */
static size_t clip(struct stg_trace_span *spans, size_t n, uint64_t begin_ns,
                   uint64_t end_ns)
{
    size_t n_in = 0;
    for (size_t i = 0; i < n; i++) {
        struct stg_trace_span span = spans[i];
        if (span.kind == 0 || span.kind > STG_SPAN_LAST || span.begin_ns > span.end_ns ||
            span.end_ns < begin_ns || span.begin_ns > end_ns)
            continue;
        if (span.begin_ns < begin_ns)
            span.begin_ns = begin_ns;
        if (span.end_ns > end_ns)
            span.end_ns = end_ns;
        spans[n_in++] = span;
    }
    return n_in;
}

/* Ends what reaches beyond the span around it with that one, and takes from that one's
 * own time what is another's. Deeper than any program nests is left out. */
static void nest(struct stg_view_track *track)
{
    size_t open[MAX_DEPTH], depth = 0, n_in = 0;
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
            open[depth++] = n_in;
        track->self_ns[n_in] = length;
        track->spans[n_in++] = span;
    }
    track->n_spans = n_in;
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
    to->n_spans = clip(to->spans, n, view->begin_ns, view->end_ns);
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

/* ---- as text ---- */

#define MAX_ROWS 12

/* All spans of one name in one track. */
struct row {
    uint16_t kind, name;
    uint64_t n, total_ns, self_ns, longest_ns;
};

static int by_name(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    return x->kind != y->kind ? x->kind - y->kind : x->name - y->name;
}

static int by_self(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    if (x->self_ns != y->self_ns)
        return x->self_ns > y->self_ns ? -1 : 1;
    return by_name(a, b);
}

static void add(struct row *row, const struct row *other)
{
    row->n += other->n;
    row->total_ns += other->total_ns;
    row->self_ns += other->self_ns;
    if (row->longest_ns < other->longest_ns)
        row->longest_ns = other->longest_ns;
}

/* A row for each name, the one that took longest first. rows has room for every span. */
static size_t find_rows(const struct stg_view_track *track, struct row *rows)
{
    size_t n = 0;
    for (size_t i = 0; i < track->n_spans; i++) {
        const struct stg_trace_span *span = &track->spans[i];
        uint64_t length = span->end_ns - span->begin_ns;
        rows[i] = (struct row){.kind = span->kind,
                               .name = span->name,
                               .n = 1,
                               .total_ns = length,
                               .self_ns = track->self_ns[i],
                               .longest_ns = length};
    }
    qsort(rows, track->n_spans, sizeof(*rows), by_name);
    for (size_t i = 0; i < track->n_spans; i++) {
        if (n > 0 && by_name(&rows[n - 1], &rows[i]) == 0)
            add(&rows[n - 1], &rows[i]);
        else
            rows[n++] = rows[i];
    }
    qsort(rows, n, sizeof(*rows), by_self);
    return n;
}

static void print_track(const struct stg_trace_view *view,
                        const struct stg_view_track *track, struct row *rows)
{
    size_t n = find_rows(track, rows);
    double window_ns = (double)(view->end_ns - view->begin_ns);
    struct stg_table table = {.n_columns = 7};
    static const char *const titles[] = {"SELF %", "SELF ms",    "TOTAL ms", "COUNT",
                                         "WHAT",   "LONGEST ms", "NAME"};
    for (size_t i = 0; i < 7; i++)
        stg_table_add(&table, "%s", titles[i]);
    for (size_t i = 0; i < n && i < MAX_ROWS; i++) {
        struct stg_trace_span span = {.kind = rows[i].kind, .name = rows[i].name};
        char name[256];
        stg_table_add(&table, "%.1f", 100.0 * (double)rows[i].self_ns / window_ns);
        stg_table_add(&table, "%.1f", (double)rows[i].self_ns / 1e6);
        stg_table_add(&table, "%.1f", (double)rows[i].total_ns / 1e6);
        stg_table_add(&table, "%" PRIu64, rows[i].n);
        stg_table_add(&table, "%s", stg_view_category(&span));
        stg_table_add(&table, "%.3f", (double)rows[i].longest_ns / 1e6);
        stg_table_add(&table, "%s", stg_view_name(view, &span, name, sizeof(name)));
    }
    printf("%s %u, %s %s", track->process, track->pid,
           track->pid == view->page->pid ? "thread" : "client", track->name);
    if (track->n_overwritten > 0)
        printf("; %" PRIu64 " spans before these were written over",
               track->n_overwritten);
    printf("\n");
    stg_table_print(&table, "  ");
    if (n > MAX_ROWS)
        printf("  and %zu more\n", n - MAX_ROWS);
}

int stg_view_text(const struct stg_trace_view *view, struct stg_err *err)
{
    struct row *rows = malloc((view->n_spans + 1) * sizeof(*rows));
    if (rows == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (uint32_t i = 0; i < view->n_tracks; i++) {
        if (view->tracks[i].n_spans > 0)
            print_track(view, &view->tracks[i], rows);
    }
    free(rows);
    return 0;
}

/* ---- in the trace-event format ---- */

/* An array of events, each with a phase. M: a name; X: a span; i: an instant; s and f:
 * the two ends of an arrow, from where a batch was published to where it was taken. */

/* Where a batch was published. */
struct origin {
    uint64_t number, ts_ns;
    const struct stg_view_track *track;
};

struct origins {
    struct origin *all; /* by number */
    size_t n;
};

/* ---- events ---- */

static void begin_event(struct stg_json_writer *json, const char *phase, const char *name,
                        const struct stg_view_track *track)
{
    fputs(json->comma ? ",\n" : "\n", json->out);
    json->comma = false;
    stg_json_object_begin(json);
    stg_json_put_string(json, "ph", phase);
    stg_json_put_string(json, "name", name);
    stg_json_put_uint(json, "pid", track->pid);
    stg_json_put_uint(json, "tid", track->tid);
}

static void write_name(struct stg_json_writer *json, const char *what, const char *name,
                       const struct stg_view_track *track)
{
    begin_event(json, "M", what, track);
    stg_json_key(json, "args");
    stg_json_object_begin(json);
    stg_json_put_string(json, "name", name);
    stg_json_object_end(json);
    stg_json_object_end(json);
}

static void write_names(const struct stg_trace_view *view, struct stg_json_writer *json)
{
    struct stg_view_track daemon = {.pid = view->page->pid, .tid = view->page->pid};
    write_name(json, "process_name", "stagerd", &daemon);
    for (uint32_t i = 0; i < view->n_tracks; i++) {
        const struct stg_view_track *track = &view->tracks[i];
        if (track->pid != view->page->pid)
            write_name(json, "process_name", track->process, track);
        write_name(json, "thread_name", track->name, track);
    }
}

static void write_arg(struct stg_json_writer *json, const char *key, uint64_t value)
{
    stg_json_put_uint(json, key, value);
}

static void write_args(const struct stg_trace_view *view, struct stg_json_writer *json,
                       const struct stg_trace_span *span)
{
    static const char *const values[STG_SPAN_LAST + 1] = {
        [STG_SPAN_READ] = "bytes",
        [STG_SPAN_STEP] = "records",
        [STG_SPAN_MAKE] = "rows",
        [STG_SPAN_PUBLISH] = "kib",
    };
    stg_json_key(json, "args");
    stg_json_object_begin(json);
    if (span->number != STG_NO_NUMBER)
        write_arg(json, span->kind == STG_SPAN_READ ? "offset" : "batch", span->number);
    if (values[span->kind] != NULL)
        write_arg(json, values[span->kind], span->value);
    if (stg_view_is_instant(span) && span->value > 0 && span->value <= view->n_tracks) {
        stg_json_put_string(json, "client", view->tracks[span->value - 1].name);
    }
    stg_json_object_end(json);
}

static void write_span(const struct stg_trace_view *view, struct stg_json_writer *json,
                       const struct stg_view_track *track,
                       const struct stg_trace_span *span)
{
    char name[256];
    bool is_instant = stg_view_is_instant(span);
    begin_event(json, is_instant ? "i" : "X",
                stg_view_name(view, span, name, sizeof(name)), track);
    stg_json_put_string(json, "cat", stg_view_category(span));
    stg_json_key(json, "ts");
    stg_json_micros(json, span->begin_ns);
    stg_json_key(json, is_instant ? "s" : "dur");
    if (is_instant)
        stg_json_string(json, "t");
    else
        stg_json_micros(json, span->end_ns - span->begin_ns);
    write_args(view, json, span);
    stg_json_object_end(json);
}

/* ---- arrows ---- */

static int by_number(const void *a, const void *b)
{
    const struct origin *x = a, *y = b;
    return x->number < y->number ? -1 : x->number > y->number;
}

static int find_origins(const struct stg_trace_view *view, struct origins *ret,
                        struct stg_err *err)
{
    ret->all = malloc((view->n_spans + 1) * sizeof(*ret->all));
    if (ret->all == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (uint32_t i = 0; i < view->n_tracks; i++) {
        const struct stg_view_track *track = &view->tracks[i];
        for (size_t k = 0; k < track->n_spans; k++) {
            const struct stg_trace_span *span = &track->spans[k];
            if (span->kind == STG_SPAN_PUBLISH)
                ret->all[ret->n++] = (struct origin){
                    .number = span->number, .ts_ns = span->begin_ns, .track = track};
        }
    }
    qsort(ret->all, ret->n, sizeof(*ret->all), by_number);
    return 0;
}

static void write_end(struct stg_json_writer *json, const char *phase, uint64_t id,
                      uint64_t ts_ns, const struct stg_view_track *track)
{
    begin_event(json, phase, "batch", track);
    stg_json_put_string(json, "cat", "batch");
    stg_json_put_uint(json, "id", id);
    stg_json_key(json, "ts");
    stg_json_micros(json, ts_ns);
    if (phase[0] == 'f') {
        stg_json_put_string(json, "bp", "e");
    }
    stg_json_object_end(json);
}

/* An arrow for each batch that a client took, to where it took its first slice. */
static void write_arrows(const struct stg_trace_view *view, const struct origins *origins,
                         struct stg_json_writer *json)
{
    uint64_t id = 0;
    for (uint32_t i = 0; i < view->n_tracks; i++) {
        const struct stg_view_track *track = &view->tracks[i];
        uint64_t last = STG_NO_NUMBER;
        for (size_t k = 0; k < track->n_spans; k++) {
            const struct stg_trace_span *span = &track->spans[k];
            if (span->kind != STG_SPAN_NEXT || span->number == last)
                continue;
            last = span->number;
            struct origin wanted = {.number = span->number};
            const struct origin *from = bsearch(&wanted, origins->all, origins->n,
                                                sizeof(*origins->all), by_number);
            if (from == NULL || from->ts_ns > span->end_ns)
                continue;
            write_end(json, "s", ++id, from->ts_ns, from->track);
            write_end(json, "f", id,
                      span->begin_ns > from->ts_ns ? span->begin_ns : from->ts_ns, track);
        }
    }
}

/* ---- all of it ---- */

/* CLOCK_REALTIME minus CLOCK_MONOTONIC, now. */
static int64_t realtime_offset_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - (int64_t)stg_now_ns();
}

static void write_about(const struct stg_trace_view *view, struct stg_json_writer *json)
{
    stg_json_key(json, "otherData");
    stg_json_object_begin(json);
    stg_json_put_string(json, "pipeline", view->page->pipeline);
    write_arg(json, "generation", view->page->generation);
    stg_json_put_string(json, "clock", "CLOCK_MONOTONIC");
    stg_json_key(json, "realtime_offset_ns"); /* to merge it with other traces */
    stg_json_int(json, realtime_offset_ns());
    write_arg(json, "begin_ns", view->begin_ns);
    write_arg(json, "end_ns", view->end_ns);
    write_arg(json, "spans", view->n_spans);
    write_arg(json, "overwritten", view->n_overwritten);
    write_arg(json, "lost", view->n_lost);
    stg_json_object_end(json);
}

int stg_view_json(const struct stg_trace_view *view, FILE *out, struct stg_err *err)
{
    struct origins origins = {0};
    struct stg_json_writer json = {.out = out};
    int rc = find_origins(view, &origins, err);
    if (rc < 0)
        return rc;
    stg_json_object_begin(&json);
    stg_json_put_string(&json, "displayTimeUnit", "ms");
    write_about(view, &json);
    stg_json_key(&json, "traceEvents");
    stg_json_array_begin(&json);
    write_names(view, &json);
    for (uint32_t i = 0; i < view->n_tracks; i++) {
        const struct stg_view_track *track = &view->tracks[i];
        for (size_t k = 0; k < track->n_spans; k++)
            write_span(view, &json, track, &track->spans[k]);
    }
    write_arrows(view, &origins, &json);
    stg_json_array_end(&json);
    stg_json_object_end(&json);
    fputc('\n', out);
    free(origins.all);
    return 0;
}
