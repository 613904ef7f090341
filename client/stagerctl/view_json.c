/* SPDX-License-Identifier: Apache-2.0
 *
 * The trace-event format: an array of events, each with a phase. M: a name; X: a span; i:
 * an instant; s and f: the two ends of an arrow, from where a batch was published to
 * where it was taken.
 */
#include <stdlib.h>

#include "client/stagerctl/json.h"
#include "client/stagerctl/view.h"

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
    stg_json_key(json, "ph");
    stg_json_string(json, phase);
    stg_json_key(json, "name");
    stg_json_string(json, name);
    stg_json_key(json, "pid");
    stg_json_uint(json, track->pid);
    stg_json_key(json, "tid");
    stg_json_uint(json, track->tid);
}

static void write_name(struct stg_json_writer *json, const char *what, const char *name,
                       const struct stg_view_track *track)
{
    begin_event(json, "M", what, track);
    stg_json_key(json, "args");
    stg_json_object_begin(json);
    stg_json_key(json, "name");
    stg_json_string(json, name);
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
    stg_json_key(json, key);
    stg_json_uint(json, value);
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
        stg_json_key(json, "client");
        stg_json_string(json, view->tracks[span->value - 1].name);
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
    stg_json_key(json, "cat");
    stg_json_string(json, stg_view_category(span));
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

static int compare(const void *a, const void *b)
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
    qsort(ret->all, ret->n, sizeof(*ret->all), compare);
    return 0;
}

static void write_end(struct stg_json_writer *json, const char *phase, uint64_t id,
                      uint64_t ts_ns, const struct stg_view_track *track)
{
    begin_event(json, phase, "batch", track);
    stg_json_key(json, "cat");
    stg_json_string(json, "batch");
    stg_json_key(json, "id");
    stg_json_uint(json, id);
    stg_json_key(json, "ts");
    stg_json_micros(json, ts_ns);
    if (phase[0] == 'f') {
        stg_json_key(json, "bp");
        stg_json_string(json, "e");
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
                                                sizeof(*origins->all), compare);
            if (from == NULL || from->ts_ns > span->end_ns)
                continue;
            write_end(json, "s", ++id, from->ts_ns, from->track);
            write_end(json, "f", id,
                      span->begin_ns > from->ts_ns ? span->begin_ns : from->ts_ns, track);
        }
    }
}

/* ---- all of it ---- */

static void write_about(const struct stg_trace_view *view, struct stg_json_writer *json)
{
    stg_json_key(json, "otherData");
    stg_json_object_begin(json);
    stg_json_key(json, "pipeline");
    stg_json_string(json, view->page->pipeline);
    write_arg(json, "generation", view->page->generation);
    stg_json_key(json, "clock");
    stg_json_string(json, "CLOCK_MONOTONIC");
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
    stg_json_key(&json, "displayTimeUnit");
    stg_json_string(&json, "ms");
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
