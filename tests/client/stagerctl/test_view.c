/* SPDX-License-Identifier: Apache-2.0
 *
 * stagerctl reads a trace page to which a hostile client wrote arbitrary bytes.
 */
#include "client/stagerctl/view.h"

#include <stdlib.h>
#include <string.h>

#include "tests/check.h"

static struct stg_trace trace;
static struct stg_trace_page *page;
static uint64_t begin_ns;

static void start(void)
{
    struct stg_trace_plan plan = {.pipeline = "rows", .until_ns = UINT64_MAX};
    page = aligned_alloc(4096, (sizeof(*page) + 4095) / 4096 * 4096);
    CHECK(page != NULL);
    memset((void *)page, 0, sizeof(*page));
    stg_trace_init(&trace);
    stg_trace_start(&trace, page, &plan);
    begin_ns = page->begin_ns;
}

/* Times relative to the trace's begin. */
static void add(uint64_t from, uint64_t to)
{
    stg_trace_add(&trace, &(struct stg_trace_span){.begin_ns = begin_ns + from,
                                                   .end_ns = begin_ns + to,
                                                   .kind = STG_SPAN_OP});
}

static void load(struct stg_trace_view *ret)
{
    struct stg_err err = {0};
    stg_trace_stop(&trace);
    page->ended_ns = begin_ns + 1000000;
    CHECK_OK(stg_view_load(page, ret, &err), err);
    CHECK_INT(ret->n_tracks, 1);
}

static void finish(struct stg_trace_view *view)
{
    stg_view_finish(view);
    stg_trace_finish(&trace);
    free(page);
}

static void each_span_has_its_own_time_without_those_inside(void)
{
    struct stg_trace_view view;
    start();
    add(0, 100);
    add(10, 40);
    add(20, 30);
    add(50, 60);
    load(&view);
    const uint64_t *self_ns = view.tracks[0].self_ns;
    CHECK_INT(view.tracks[0].n_spans, 4);
    CHECK_INT(self_ns[0], 100 - 30 - 10);
    CHECK_INT(self_ns[1], 30 - 10);
    CHECK_INT(self_ns[2], 10);
    CHECK_INT(self_ns[3], 10);
    finish(&view);
}

static void a_span_that_outlasts_its_parent_ends_with_it(void)
{
    struct stg_trace_view view;
    start();
    add(0, 100);
    add(90, 200);
    load(&view);
    CHECK_INT(view.tracks[0].spans[1].end_ns - begin_ns, 100);
    CHECK_INT(view.tracks[0].self_ns[0], 90);
    CHECK_INT(view.tracks[0].self_ns[1], 10);
    finish(&view);
}

/* 300 nested spans; in the innermost one, two that overlap in part. */
static void deeper_than_any_program_nests_is_left_out(void)
{
    struct stg_trace_view view;
    uint64_t sum = 0;
    start();
    for (uint64_t i = 0; i < 300; i++)
        add(i, 10000 - i);
    add(4000, 5000);
    add(4500, 5500);
    load(&view);
    CHECK_INT(view.tracks[0].n_spans, 256);
    for (size_t i = 0; i < view.tracks[0].n_spans; i++)
        sum += view.tracks[0].self_ns[i];
    CHECK_INT(sum, 10000); /* no time counts twice, and none is negative */
    finish(&view);
}

static const struct stg_test tests[] = {
    TEST(each_span_has_its_own_time_without_those_inside),
    TEST(a_span_that_outlasts_its_parent_ends_with_it),
    TEST(deeper_than_any_program_nests_is_left_out),
};
TEST_MAIN(tests)
