/* SPDX-License-Identifier: Apache-2.0
 *
 * The cost of a trace for the daemon: CPU time for a batch of Criteo rows with a trace
 * on, relative to no trace, in turn in the same run. Also the cost without a trace: the
 * time of a skipped span times the spans of such a batch, relative to the time of that
 * batch.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/trace.h"
#include "tests/bench/bench.h"
#include "tests/bench/criteo.h"
#include "tests/system/fixture.h"

#define FILE_ROWS (16 * CRITEO_BATCH_ROWS)
#define TURN_BATCHES 256
#define MAX_TURNS 256
#define MIN_TURNS 3
#define N_SPANS 20000000u

static void take(struct stager_stream *stream, int n)
{
    for (int i = 0; i < n; i++) {
        struct stager_batch *batch;
        int rc = stager_next(stream, 20000, &batch);
        if (rc < 0)
            bench_die("next: %s", stager_error_text(stream));
        stager_release(batch);
    }
}

/* CPU time of the daemon for a batch. */
static double turn(const struct fixture *fixture, struct stager_stream *stream)
{
    uint64_t before = bench_process_ns(fixture->pid);
    take(stream, TURN_BATCHES);
    return (double)(bench_process_ns(fixture->pid) - before) / TURN_BATCHES;
}

static uint64_t count_spans(const struct stg_trace_page *page)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < atomic_load(&page->n_tracks); i++) {
        if (page->tracks[i].pid == page->pid)
            n += atomic_load(&page->tracks[i].n);
    }
    return n;
}

/* With a trace on; the daemon creates and removes its page outside the turn. */
static double traced_turn(const struct fixture *fixture, struct stager_stream *stream,
                          double *ret_spans)
{
    struct stager *client;
    struct stg_map map;
    struct stg_err err = {0};
    if (stager_connect(fixture->runtime, &client) < 0 ||
        stg_admin_trace(client, "traced", 600000, &map, &err) < 0)
        bench_die("trace: %s%s", stager_error_text(NULL), err.text);
    const struct stg_trace_page *page = map.base;
    uint64_t spans = count_spans(page);
    double ret = turn(fixture, stream);
    *ret_spans = (double)(count_spans(page) - spans) / TURN_BATCHES;
    stager_disconnect(client);
    while (atomic_load(&page->ended_ns) == 0)
        usleep(1000);
    stg_map_close(&map);
    return ret;
}

static double span_ns(struct stg_trace *trace)
{
    uint64_t began = bench_now_ns();
    for (unsigned i = 0; i < N_SPANS; i++) {
        uint64_t span = stg_trace_begin(trace);
        if (span != 0)
            stg_trace_add(trace, &(struct stg_trace_span){.begin_ns = span});
        __asm__ volatile("" ::: "memory");
    }
    return (double)(bench_now_ns() - began) / N_SPANS;
}

int main(int argc, char **argv)
{
    struct bench_options options;
    bench_options_parse(argc, argv, 10, "what a trace costs, on and off", &options);
    struct fixture fixture;
    struct stg_trace trace;
    static char yaml[CRITEO_PIPELINE_BYTES];
    char path[64];
    double off[MAX_TURNS], ratios[MAX_TURNS], spans[MAX_TURNS];
    size_t n = 0;
    stg_trace_init(&trace);
    double off_ns = span_ns(&trace);
    criteo_file(FILE_ROWS, ',', path);
    fixture_start(&fixture, "memory_budget: 1GiB\n");
    criteo_pipeline("traced", path, "{}", "capacity: 4", yaml);
    fixture_apply(&fixture, yaml);
    struct stager_stream *stream = fixture_open(&fixture, "traced", "bench", 2);
    take(stream, 4 * TURN_BATCHES);
    uint64_t end = bench_now_ns() + (uint64_t)(options.seconds * 1e9);
    double last = turn(&fixture, stream);
    while (n < MAX_TURNS && (n < MIN_TURNS || bench_now_ns() < end)) {
        double on = traced_turn(&fixture, stream, &spans[n]),
               next = turn(&fixture, stream);
        off[n] = next;
        ratios[n++] = 2 * on / (last + next);
        last = next;
    }
    stager_close(stream);
    fixture_finish(&fixture);
    unlink(path);

    double batch_ns = bench_median(off, n), a_batch = bench_median(spans, n);
    double on_ratio = bench_median(ratios, n);
    printf("%.1f spans a batch of %.0f us; each %.2f ns without a trace; with a trace "
           "%.3f of the time without\n",
           a_batch, batch_ns / 1000, off_ns, on_ratio);
    if (options.json)
        printf("{\"bench\": \"trace\", \"spans_a_batch\": %.1f, \"batch_ns\": %.0f, "
               "\"span_off_ns\": %.3f, \"off_ratio\": %.6f, \"ratio\": %.3f}\n",
               a_batch, batch_ns, off_ns, 1 + a_batch * off_ns / batch_ns, on_ratio);
    return 0;
}
