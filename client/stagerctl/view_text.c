/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/stagerctl/command.h"
#include "client/stagerctl/view.h"

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
