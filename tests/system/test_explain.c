/* SPDX-License-Identifier: Apache-2.0
 *
 * stagerd's explanation of pipelines that the test slows down.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tests/check.h"
#include "tests/system/fixture.h"

#define WORK_NS 2000000
#define WINDOW_NS 500000000 /* of what is explained */
#define LIMIT_MILLIS 40000  /* for it */
#define FEW 32              /* batches between two looks */

static struct fixture fixture;

struct explained {
    char state[32], bottleneck[32], why[256];
    uint64_t node_ns, n_items, elapsed_ns;
};

static void explain(const char *name, struct explained *ret)
{
    struct stg_reply reply;
    struct stager *client = fixture_ask(&fixture, STG_REQUEST_EXPLAIN, name, &reply);
    const struct stg_explain *e = &reply.explain;
    *ret = (struct explained){.n_items = e->n_items, .elapsed_ns = e->elapsed_ns};
    snprintf(ret->state, sizeof(ret->state), "%s", e->state);
    snprintf(ret->bottleneck, sizeof(ret->bottleneck), "%s", e->bottleneck);
    snprintf(ret->why, sizeof(ret->why), "%s", e->why);
    for (size_t i = 0; i < e->n_nodes; i++) {
        if (strcmp(e->nodes[i].name, "x") == 0)
            ret->node_ns = e->nodes[i].daemon_ns;
    }
    stager_disconnect(client);
}

static void apply(const char *name, int stage_us)
{
    char yaml[512];
    snprintf(yaml, sizeof(yaml),
             "name: %s\ndataset:\n  - range: {stop: 1000000000}\n"
             "  - batch: {batch_size: 16}\ngraph:\n"
             "  - {name: x, op: sleep, input: [value], sleep_microseconds: %d}\n"
             "staged: {capacity: 2, features: {x: x}}\n",
             name, stage_us);
    fixture_apply(&fixture, yaml);
}

/* Takes batches until stagerd has measured for long enough and finds that bottleneck,
 * however many those are: a thread that gets no CPU for a while looks like another one.
 */
static struct stager_stream *take_until(const char *name, const char *bottleneck,
                                        long train_ns, struct explained *ret)
{
    int64_t end = now_millis() + fixture_millis(LIMIT_MILLIS);
    struct stager_stream *stream = fixture_open(&fixture, name, NULL, 2);
    struct timespec work = {.tv_nsec = train_ns};
    do {
        for (int i = 0; i < FEW; i++) {
            struct stager_batch *batch = fixture_take(stream);
            nanosleep(&work, NULL); /* computes */
            stager_release(batch);
        }
        explain(name, ret);
        if (now_millis() > end)
            FAIL("%s: %s", ret->bottleneck, ret->why);
    } while (ret->elapsed_ns < WINDOW_NS || strcmp(ret->bottleneck, bottleneck) != 0);
    return stream;
}

static void a_trainer_that_takes_long_holds_it_up(void)
{
    struct explained got;
    fixture_start(&fixture, "");
    apply("trainer", 0);
    explain("trainer", &got);
    CHECK_STR(got.state, "idle");
    CHECK_STR(got.bottleneck, "unknown");
    CHECK_STR(got.why, "nothing was measured yet: no trainer took from it");
    struct stager_stream *stream = take_until("trainer", "trainer", WORK_NS, &got);
    CHECK_STR(got.state, "running");
    CHECK(got.n_items > 0);
    stager_close(stream);
    fixture_finish(&fixture);
}

static void a_graph_that_takes_long_holds_it_up_and_is_shown_afterwards(void)
{
    struct explained got;
    fixture_start(&fixture, "");
    apply("graph", WORK_NS / 1000);
    struct stager_stream *stream = take_until("graph", "daemon CPU", 0, &got);
    CHECK(got.node_ns >= WORK_NS);
    stager_close(stream);
    do {
        explain("graph", &got);
    } while (strcmp(got.state, "idle") != 0);
    CHECK_STR(got.bottleneck, "daemon CPU");
    CHECK(got.node_ns >= WORK_NS);
    fixture_finish(&fixture);
}

/* A trainer that has taken its pass evaluates, writes a checkpoint, and leaves. */
static void what_was_measured_last_stays_while_no_trainer_reads(void)
{
    struct explained got;
    fixture_start(&fixture, "");
    fixture_apply(&fixture, "name: rests\ndataset:\n  - range: {stop: 300}\n"
                            "  - batch: {batch_size: 1}\ngraph:\n"
                            "  - {name: x, op: sleep, input: [value], "
                            "sleep_microseconds: 2000}\n"
                            "staged: {keep_warm: true, features: {x: x}}\n");
    struct stager_stream *stream = fixture_open(&fixture, "rests", NULL, 2);
    struct stager_batch *batch;
    while (stager_next(stream, -1, &batch) == 0)
        stager_release(batch);
    struct timespec rests = {.tv_sec = 1};
    for (int i = 0; i < 2; i++) { /* attached, then after it left */
        double age_s = 0;
        nanosleep(&rests, NULL);
        explain("rests", &got);
        if (strcmp(got.bottleneck, "daemon CPU") != 0)
            FAIL("%s: %s", got.bottleneck, got.why);
        CHECK_INT(sscanf(got.why, "no trainer reads now; until %lf s ago: ", &age_s), 1);
        CHECK(age_s >= 0.9 + i);
        CHECK_CONTAINS(got.why, " s ago: trainers wait ");
        stager_close(i == 0 ? stream : NULL);
    }
    fixture_finish(&fixture);
}

static void clients_that_are_not_there_hold_it_up(void)
{
    struct explained got;
    fixture_start(&fixture, "");
    fixture_apply(&fixture, "name: ranks\ndataset:\n  - range: {stop: 4}\n"
                            "staged: {num_clients: 3, delivery: round_robin}\n");
    struct stager_stream *stream = fixture_open(&fixture, "ranks", "a", 2);
    explain("ranks", &got);
    CHECK_STR(got.state, "waiting");
    CHECK_STR(got.bottleneck, "clients");
    CHECK_STR(got.why, "round_robin begins when all 3 clients are there, and 1 is");
    stager_close(stream);
    fixture_finish(&fixture);
}

static const struct stg_test tests[] = {
    TEST_SLOW(a_trainer_that_takes_long_holds_it_up, 60),
    TEST_SLOW(a_graph_that_takes_long_holds_it_up_and_is_shown_afterwards, 60),
    TEST(what_was_measured_last_stays_while_no_trainer_reads),
    TEST(clients_that_are_not_there_hold_it_up),
};
TEST_MAIN(tests)
