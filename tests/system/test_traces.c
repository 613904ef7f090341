/* SPDX-License-Identifier: Apache-2.0
 *
 * The spans that clients write while their pipeline is traced. check_traces.py has the
 * rest.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/stream/stream.h"
#include "core/status.h"
#include "tests/check.h"
#include "tests/system/fixture.h"

struct trace {
    struct stager *client;
    struct stg_map map;
    const struct stg_trace_page *page;
};

static void trace_begin(struct trace *trace, struct fixture *fixture)
{
    struct stg_err err = {0};
    CHECK_INT(stager_connect(fixture->runtime, &trace->client), 0);
    CHECK_OK(stg_admin_trace(trace->client, "rows", 600000, &trace->map, &err), err);
    trace->page = trace->map.base;
    CHECK_INT(trace->page->header.magic, STG_MAGIC_TRACE);
}

/* The end of the connection ends the trace. */
static void trace_end(struct trace *trace)
{
    stager_disconnect(trace->client);
    trace->client = NULL;
    while (atomic_load(&trace->page->ended_ns) == 0)
        usleep(1000);
}

static int find_client(const struct stg_trace_page *page, const char *id)
{
    for (uint32_t i = 0; i < atomic_load(&page->n_tracks); i++) {
        if (strcmp(page->tracks[i].name, id) == 0)
            return (int)i;
    }
    return -1;
}

static void take_some(struct stager_stream *stream, int n)
{
    for (int i = 0; i < n; i++) {
        struct stager_batch *batch = fixture_take(stream);
        fixture_check_pad(batch);
        stager_release(batch);
    }
}

static void wait_for_lost(const struct trace *trace, uint64_t n)
{
    while (atomic_load(&trace->page->n_lost) < n)
        usleep(1000);
}

static struct stg_trace_span good(void)
{
    uint64_t now = stg_now_ns();
    return (struct stg_trace_span){.begin_ns = now - 10,
                                   .end_ns = now,
                                   .number = UINT64_MAX / 2,
                                   .kind = STG_SPAN_NEXT};
}

/* One valid span, then every kind of invalid one. */
static uint64_t lie(struct stager_stream *stream)
{
    struct stg_trace_span lies[7];
    for (size_t i = 0; i < 7; i++)
        lies[i] = good();
    lies[0].kind = STG_SPAN_PUBLISH;
    lies[1].kind = 0;
    lies[2].kind = UINT16_MAX;
    lies[3].end_ns = UINT64_MAX;
    lies[4].begin_ns = lies[4].end_ns + 1;
    lies[5].begin_ns = lies[5].end_ns = UINT64_MAX;
    lies[6].name = UINT16_MAX;
    struct stg_trace_span truth = good();
    stg_control_note(&stream->control, &truth);
    for (size_t i = 0; i < 7; i++)
        stg_control_note(&stream->control, &lies[i]);
    return 7;
}

static void the_spans_of_a_client_are_checked(void)
{
    struct fixture fixture;
    struct trace trace;
    fixture_start(&fixture, "");
    fixture_apply_endless(&fixture, "capacity: 2, num_clients: 2");
    struct stager_stream *liar = fixture_open(&fixture, "rows", "liar", 2);
    struct stager_stream *other = fixture_open(&fixture, "rows", "other", 2);
    trace_begin(&trace, &fixture);
    CHECK(find_client(trace.page, "liar") >= 0 && find_client(trace.page, "other") >= 0);
    wait_for_lost(&trace, lie(liar));
    take_some(other, 20);
    trace_end(&trace);
    CHECK_INT(trace.page->n_lost, 7);
    struct stg_trace_span *spans;
    size_t n;
    uint64_t n_overwritten;
    CHECK(stg_trace_read(trace.page, (uint32_t)find_client(trace.page, "liar"), &spans,
                         &n, &n_overwritten));
    CHECK_INT(n, 1);
    CHECK_INT(spans[0].number, UINT64_MAX / 2);
    free(spans);
    stg_map_close(&trace.map);
    take_some(liar, 1);
    stager_close(liar);
    stager_close(other);
    fixture_finish(&fixture);
}

static void a_span_count_that_jumps_disturbs_no_other_client(void)
{
    static const uint64_t jumps[] = {STG_CONTROL_SPANS + 1, UINT64_C(1) << 33,
                                     UINT64_C(1) << 63, UINT64_MAX};
    struct fixture fixture;
    struct trace trace;
    fixture_start(&fixture, "");
    fixture_apply_endless(&fixture, "capacity: 2, num_clients: 2");
    struct stager_stream *liar = fixture_open(&fixture, "rows", "liar", 2);
    struct stager_stream *other = fixture_open(&fixture, "rows", "other", 2);
    trace_begin(&trace, &fixture);
    memset(liar->control.page->spans, 0xff, sizeof(liar->control.page->spans));
    for (size_t i = 0; i < sizeof(jumps) / sizeof(jumps[0]); i++) {
        uint64_t lost = atomic_load(&trace.page->n_lost);
        atomic_fetch_add(&liar->control.page->noted, jumps[i]);
        wait_for_lost(&trace, lost + 1);
        take_some(other, 20);
    }
    trace_end(&trace);
    stg_map_close(&trace.map);
    take_some(liar, 1);
    stager_close(liar);
    stager_close(other);
    fixture_finish(&fixture);
}

static void a_tracer_cannot_write_to_the_pages_it_reads(void)
{
    struct fixture fixture;
    struct trace trace;
    fixture_start(&fixture, "");
    fixture_apply_endless(&fixture, "capacity: 2");
    trace_begin(&trace, &fixture);
    CHECK(mprotect(trace.map.base, trace.map.bytes, PROT_READ | PROT_WRITE) < 0);
    stager_disconnect(trace.client);
    stg_map_close(&trace.map);
    fixture_finish(&fixture);
}

static void a_trace_has_a_length(void)
{
    static const uint32_t lengths[] = {0, 600001, UINT32_MAX};
    struct fixture fixture;
    struct stager *client;
    fixture_start(&fixture, "");
    fixture_apply_endless(&fixture, "capacity: 2");
    CHECK_INT(stager_connect(fixture.runtime, &client), 0);
    for (size_t i = 0; i < 3; i++) {
        struct stg_map map;
        struct stg_err err = {0};
        CHECK_INT(stg_admin_trace(client, "rows", lengths[i], &map, &err),
                  -STAGER_INVALID_ARGUMENT);
        CHECK_CONTAINS(err.text, "1 to 600000 milliseconds");
    }
    stager_disconnect(client);
    fixture_finish(&fixture);
}

static void a_trace_counts_on_the_memory_budget(void)
{
    struct fixture fixture;
    struct stager *client;
    struct stg_map map;
    struct stg_err err = {0};
    fixture_start(&fixture, "memory_budget: 8MiB\ndefault_pipeline_memory: 1MiB\n");
    fixture_apply(&fixture, "name: rows\ndataset:\n  - range: {stop: 4}\n  - batch: "
                            "{batch_size: 2}\nstaged: {memory_budget: 4MiB}\n");
    CHECK_INT(stager_connect(fixture.runtime, &client), 0);
    CHECK_INT(stg_admin_trace(client, "rows", 1000, &map, &err),
              -STAGER_RESOURCE_EXHAUSTED);
    CHECK_CONTAINS(err.text, "a trace");
    stager_disconnect(client);
    fixture_finish(&fixture);
}

static const struct stg_test tests[] = {
    TEST_SLOW(the_spans_of_a_client_are_checked, 60),
    TEST_SLOW(a_span_count_that_jumps_disturbs_no_other_client, 60),
    TEST(a_tracer_cannot_write_to_the_pages_it_reads),
    TEST(a_trace_has_a_length),
    TEST(a_trace_counts_on_the_memory_budget),
};
TEST_MAIN(tests)
