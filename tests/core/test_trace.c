/* SPDX-License-Identifier: Apache-2.0 */
#include "core/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/check.h"

#define ROOM ((uint64_t)STG_TRACE_CHUNKS * STG_TRACE_CHUNK_SPANS)

static struct stg_trace trace;
static struct stg_trace_page *page;

static void name_node(void *owner, uint32_t node, char *buf, size_t bytes)
{
    snprintf(buf, bytes, "node %u", node);
}

static void start(uint32_t n_nodes)
{
    struct stg_trace_plan plan = {.pipeline = "rows",
                                  .generation = 3,
                                  .instance = 7,
                                  .until_ns = 9,
                                  .name = name_node,
                                  .n_nodes = n_nodes};
    page = aligned_alloc(4096, (sizeof(*page) + 4095) / 4096 * 4096);
    CHECK(page != NULL);
    memset((void *)page, 0, sizeof(*page));
    stg_trace_start(&trace, page, &plan);
}

static void stop(void)
{
    stg_trace_stop(&trace);
    free(page);
    page = NULL;
}

static void add(uint64_t number)
{
    stg_trace_add(&trace, &(struct stg_trace_span){.begin_ns = number,
                                                   .end_ns = number + 1,
                                                   .number = number,
                                                   .kind = STG_SPAN_OP});
}

/* Checks for the numbers first, first + 1 …: n of them, with that many lost before
 * them. */
static void check_track(uint32_t track, uint64_t first, uint64_t n, uint64_t overwritten)
{
    struct stg_trace_span *spans;
    size_t n_read;
    uint64_t n_overwritten;
    CHECK(stg_trace_read(page, track, &spans, &n_read, &n_overwritten));
    CHECK_INT(n_read, n);
    CHECK_INT(n_overwritten, overwritten);
    for (uint64_t i = 0; i < n; i++)
        CHECK_INT(spans[i].number, first + i);
    free(spans);
}

static void a_trace_that_is_off_takes_nothing(void)
{
    stg_trace_init(&trace);
    CHECK(!stg_trace_is_on(NULL) && !stg_trace_is_on(&trace));
    CHECK_INT(stg_trace_begin(NULL), 0);
    CHECK_INT(stg_trace_begin(&trace), 0);
    struct stg_trace_label label = {0};
    add(1);
    stg_trace_add(NULL, &(struct stg_trace_span){0});
    CHECK_INT(stg_trace_name(&trace, &label, "x"), 0);
    CHECK_INT(stg_trace_track(&trace, 1, "p", "c"), 0);
    stg_trace_add_to(&trace, 1, &(struct stg_trace_span){0});
    stg_trace_lose(&trace, 1);
    stg_trace_stop(&trace);
    stg_trace_finish(&trace);
}

static void spans_of_a_thread_come_in_the_order_of_their_ends(void)
{
    stg_trace_init(&trace);
    start(2);
    CHECK(stg_trace_begin(&trace) >= page->begin_ns);
    for (uint64_t i = 0; i < 5000; i++)
        add(i);
    CHECK_INT(page->n_tracks, 1);
    CHECK_INT(page->tracks[0].pid, getpid());
    CHECK_INT(page->tracks[0].tid, gettid());
    CHECK_STR(page->tracks[0].process, "stagerd");
    check_track(0, 0, 5000, 0);
    CHECK_INT(page->ended_ns, 0);
    stg_trace_stop(&trace);
    CHECK(page->ended_ns >= page->begin_ns);
    add(5000);
    check_track(0, 0, 5000, 0);
    free(page);
    stg_trace_finish(&trace);
}

/* All chunks except one for each track that may still be opened. */
static void more_spans_than_there_is_room_for_are_written_over_and_counted(void)
{
    uint64_t room = ROOM - (STG_TRACE_TRACKS - 1) * STG_TRACE_CHUNK_SPANS;
    stg_trace_init(&trace);
    start(0);
    for (uint64_t i = 0; i < room; i++)
        add(i);
    /* while it is written, the oldest may be half written */
    check_track(0, 1, room - 1, 1);
    for (uint64_t i = room; i < room + 3000; i++)
        add(i);
    check_track(0, 3001, room - 1, 3001);
    uint32_t other = stg_trace_track(&trace, 4711, "train", "rank-0");
    CHECK_INT(other, 2);
    for (uint64_t i = 0; i < 2000; i++)
        stg_trace_add_to(&trace, other, &(struct stg_trace_span){.number = i});
    stg_trace_stop(&trace);
    check_track(0, 3000, room, 3000);
    check_track(1, 2000 - STG_TRACE_CHUNK_SPANS, STG_TRACE_CHUNK_SPANS,
                2000 - STG_TRACE_CHUNK_SPANS);
    CHECK_INT(page->tracks[1].pid, 4711);
    CHECK(page->tracks[1].tid > 1u << 22); /* belongs to no thread */
    CHECK_STR(page->tracks[1].process, "train");
    CHECK_STR(page->tracks[1].name, "rank-0");
    free(page);
    stg_trace_finish(&trace);
}

/* A track that has written nothing yet keeps its room, however much others write. */
static void a_track_without_spans_keeps_its_room(void)
{
    uint64_t room = ROOM - (STG_TRACE_TRACKS - 1) * STG_TRACE_CHUNK_SPANS;
    stg_trace_init(&trace);
    start(0);
    uint32_t late = 0;
    for (uint32_t i = 1; i < STG_TRACE_TRACKS; i++)
        late = stg_trace_track(&trace, 4711, "train", "rank-0");
    for (uint64_t i = 0; i < room + 10; i++)
        add(i);
    stg_trace_add_to(&trace, late, &(struct stg_trace_span){.number = 4711});
    stg_trace_stop(&trace);
    check_track(STG_TRACE_TRACKS - 1, 10, room, 10);
    check_track(late - 1, 4711, 1, 0);
    free(page);
    stg_trace_finish(&trace);
}

static void a_writer_without_a_free_track_is_counted(void)
{
    stg_trace_init(&trace);
    start(0);
    for (uint32_t i = 0; i < STG_TRACE_TRACKS; i++)
        CHECK_INT(stg_trace_track(&trace, 1, "p", "c"), i + 1);
    uint32_t none = stg_trace_track(&trace, 1, "p", "c");
    CHECK_INT(none, 0);
    add(1);
    stg_trace_add_to(&trace, none, &(struct stg_trace_span){0});
    stg_trace_lose(&trace, 5);
    CHECK_INT(page->n_lost, 7);
    CHECK_INT(page->n_tracks, STG_TRACE_TRACKS);
    stop();
    stg_trace_finish(&trace);
}

static void check_name(uint32_t place, const char *want)
{
    char text[256];
    snprintf(text, sizeof(text), "%.*s", (int)page->names[place].bytes,
             page->text + page->names[place].offset);
    CHECK_STR(text, want);
}

static void names_are_kept_once_and_forgotten_with_the_trace(void)
{
    struct stg_trace_label a = {0}, b = {0};
    char long_name[300];
    memset(long_name, 'x', sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = '\0';
    long_name[sizeof(long_name) - 2] = 'z';
    stg_trace_init(&trace);
    start(2);
    check_name(1, "node 0");
    check_name(2, "node 1");
    CHECK_INT(page->n_nodes, 2);
    CHECK_INT(stg_trace_known(&trace, &a), 0);
    CHECK_INT(stg_trace_name(&trace, &a, "node 0"), 3); /* has the name of a node */
    CHECK_INT(stg_trace_known(&trace, &a), 3);
    CHECK_INT(stg_trace_name(&trace, &b, "node 0"), 3);
    CHECK_INT(stg_trace_name(&trace, &b, long_name), 4);
    CHECK_INT(stg_trace_name(&trace, &b, long_name), 4);
    CHECK_INT(page->names[4].bytes, 127);
    CHECK_INT(page->text[page->names[4].offset + 126], 'z');
    stop();
    CHECK_INT(stg_trace_name(&trace, &b, "later"), 0);
    start(0);
    CHECK_INT(stg_trace_known(&trace, &a), 0);
    stop();
    stg_trace_finish(&trace);
}

static void names_that_find_no_room_are_none(void)
{
    struct stg_trace_label label = {0};
    char name[16];
    stg_trace_init(&trace);
    start(STG_TRACE_NAMES + 10);
    CHECK_INT(page->n_nodes, STG_TRACE_NAMES - 1);
    snprintf(name, sizeof(name), "one more");
    CHECK_INT(stg_trace_name(&trace, &label, name), 0);
    CHECK_INT(page->n_names, STG_TRACE_NAMES);
    stop();
    stg_trace_finish(&trace);
}

/* ---- threads ---- */

static _Atomic bool quits;

static void *writer(void *arg)
{
    struct stg_trace_label label = {0};
    for (uint64_t i = 0; !atomic_load(&quits); i++) {
        uint64_t began = stg_trace_begin(&trace);
        if (began != 0 && stg_trace_known(&trace, &label) == 0)
            stg_trace_name(&trace, &label, "a name");
        if (began != 0)
            add(i);
    }
    return NULL;
}

/* Numbers of one thread rise by one, whatever the others write. */
static void read_all(void)
{
    uint32_t n = atomic_load(&page->n_tracks);
    for (uint32_t i = 0; i < n; i++) {
        struct stg_trace_span *spans;
        size_t n_read;
        uint64_t n_overwritten;
        CHECK(stg_trace_read(page, i, &spans, &n_read, &n_overwritten));
        for (size_t k = 1; k < n_read; k++) {
            CHECK_INT(spans[k].number, spans[k - 1].number + 1);
            CHECK_INT(spans[k].end_ns, spans[k].number + 1);
        }
        free(spans);
    }
}

static void traces_begin_and_end_while_threads_write(void)
{
    pthread_t threads[4];
    stg_trace_init(&trace);
    for (size_t i = 0; i < 4; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, writer, NULL), 0);
    for (int round = 0; round < 10; round++) {
        start(1);
        while (atomic_load(&page->n_tracks) < 4 || atomic_load(&page->tracks[3].n) < 3000)
            read_all();
        stg_trace_stop(&trace);
        read_all();
        CHECK_INT(page->n_tracks, 4);
        CHECK_INT(page->n_lost, 0);
        free(page); /* no thread writes to it any more */
    }
    atomic_store(&quits, true);
    for (size_t i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    stg_trace_finish(&trace);
}

static const struct stg_test tests[] = {
    TEST(a_trace_that_is_off_takes_nothing),
    TEST(spans_of_a_thread_come_in_the_order_of_their_ends),
    TEST(more_spans_than_there_is_room_for_are_written_over_and_counted),
    TEST(a_track_without_spans_keeps_its_room),
    TEST(a_writer_without_a_free_track_is_counted),
    TEST(names_are_kept_once_and_forgotten_with_the_trace),
    TEST(names_that_find_no_room_are_none),
    TEST_SLOW(traces_begin_and_end_while_threads_write, 60),
};
TEST_MAIN(tests)
