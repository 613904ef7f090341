/* SPDX-License-Identifier: Apache-2.0
 *
 * smart_stage: auto in a real stagerd. The ops sleep, so that the slower side does not
 * depend on the machine.
 */
#include <stdio.h>
#include <string.h>

#include "tests/check.h"
#include "tests/system/fixture.h"

#define BATCH 64

static struct fixture fixture;

/* first and second are in the trainer, and may move. */
static void apply(const char *name, const char *mode, int stage_us, int first_us,
                  int second_us, int target_us)
{
    char yaml[2048];
    snprintf(
        yaml, sizeof(yaml),
        "name: %s\nsmart_stage: %s\ndataset:\n  - range: {stop: 1000000000}\n"
        "  - batch: {batch_size: %d}\ngraph:\n"
        "  - {name: x, op: sleep, input: [value], sleep_microseconds: %d}\n"
        "  - {name: first, op: sleep, input: [\"staged:x\"], sleep_microseconds: %d}\n"
        "  - {name: second, op: sleep, input: [first], sleep_microseconds: %d}\n"
        "  - {name: target, op: sleep, input: [second], sleep_microseconds: %d}\n"
        "staged: {capacity: 2, features: {x: x}}\ntargets: [target]\n",
        name, mode, BATCH, stage_us, first_us, second_us, target_us);
    fixture_apply(&fixture, yaml);
}

/* stagerd's report: the last decision, and the nodes that run in the daemon. */
struct explained {
    char decision[256], all[4096];
    bool first_moved, second_moved;
    size_t n_crossing;
};

static void explain(const char *name, struct explained *ret)
{
    struct stg_reply reply;
    struct stager *client = fixture_ask(&fixture, STG_REQUEST_EXPLAIN, name, &reply);
    const struct stg_explain *e = &reply.explain;
    *ret = (struct explained){.n_crossing = e->n_tensors};
    for (size_t i = 0; i < e->n_decisions; i++) {
        size_t at = strlen(ret->all);
        snprintf(ret->all + at, sizeof(ret->all) - at, "%s\n", e->decisions[i].text);
        snprintf(ret->decision, sizeof(ret->decision), "%s", e->decisions[i].text);
    }
    for (size_t i = 0; i < e->n_nodes; i++) {
        ret->first_moved |=
            strcmp(e->nodes[i].name, "first") == 0 && e->nodes[i].in_daemon;
        ret->second_moved |=
            strcmp(e->nodes[i].name, "second") == 0 && e->nodes[i].in_daemon;
    }
    stager_disconnect(client);
}

/* Runs one step. Wherever nodes run, the target equals the dataset's value. */
static void step(struct stager_stream *stream, int64_t *next)
{
    static const char *const fetches[] = {"target"};
    struct stager_batch *batch = fixture_take(stream);
    struct stager_tensor target;
    int rc = stager_run(stream, batch, fetches, 1, &target);
    if (rc < 0)
        FAIL("stager_run: %s", stager_error_text(stream));
    const int64_t *values = target.data;
    CHECK_INT(values[0], *next);
    CHECK_INT(values[BATCH - 1], *next + BATCH - 1);
    *next += BATCH;
    stager_release(batch);
}

static struct stager_stream *open_target(const char *name)
{
    static const char *const nothing[1];
    static const char *const fetches[] = {"target"};
    struct stager_options options = {.struct_size = sizeof(options),
                                     .runtime_dir = fixture.runtime,
                                     .fields = nothing,
                                     .fetches = fetches,
                                     .n_fetches = 1};
    struct stager_stream *stream;
    if (stager_open(NULL, name, &options, &stream) < 0)
        FAIL("%s: %s", name, stager_error_text(NULL));
    return stream;
}

/* Trains until stagerd has decided. */
static void train(const char *name, struct explained *ret)
{
    int64_t next = 0, end = now_millis() + fixture_millis(90000);
    struct stager_stream *stream = open_target(name);
    do {
        for (int i = 0; i < 25; i++)
            step(stream, &next);
        explain(name, ret);
        if (now_millis() > end)
            FAIL("%s: nothing was decided: %s", name, ret->all);
    } while (strncmp(ret->decision, "holds", 5) != 0);
    for (int i = 0; i < 20; i++)
        step(stream, &next);
    explain(name, ret);
    stager_close(stream);
}

static void what_a_busy_trainer_computes_moves_to_the_daemon(void)
{
    struct explained got;
    fixture_start(&fixture, "");
    apply("busy-trainer", "auto", 100, 300, 2000, 2300);
    train("busy-trainer", &got);
    CHECK_CONTAINS(got.decision, "holds moving first, second, +");
    CHECK_CONTAINS(got.decision, "% over the file's own; looks again");
    CHECK(got.first_moved && got.second_moved);
    CHECK_INT(got.n_crossing, 1);
    fixture_finish(&fixture);
}

static void what_would_burden_a_busy_daemon_stays(void)
{
    struct explained got;
    fixture_start(&fixture, "");
    apply("busy-daemon", "auto", 2700, 1000, 1000, 100);
    train("busy-daemon", &got);
    CHECK_CONTAINS(got.decision, "holds the file's own partition");
    CHECK(!got.first_moved && !got.second_moved);
    fixture_finish(&fixture);
}

/* The middle of the chain: half of it moves. */
static void the_partition_lies_where_both_sides_take_as_long(void)
{
    struct explained got;
    fixture_start(&fixture, "");
    apply("middle", "auto", 100, 2000, 2000, 100);
    train("middle", &got);
    CHECK_CONTAINS(got.decision, "holds moving first, +");
    CHECK(got.first_moved && !got.second_moved);
    fixture_finish(&fixture);
}

/* One batch, by which the trainer has what it needs. */
static void begin_again(const char *name, struct explained *ret)
{
    int64_t next = 0;
    fixture_stop(&fixture);
    fixture_restart(&fixture);
    struct stager_stream *stream = open_target(name);
    step(stream, &next);
    explain(name, ret);
    stager_close(stream);
}

static void a_later_run_begins_with_what_the_last_one_took(void)
{
    struct explained got;
    char path[256];
    fixture_start(&fixture, "");
    apply("again", "auto", 100, 300, 2000, 2300);
    train("again", &got);
    CHECK(got.first_moved && got.second_moved);
    begin_again("again", &got);
    CHECK_CONTAINS(got.all,
                   "begins with moving first, second, which an earlier run took");
    CHECK(got.first_moved && got.second_moved);

    fixture_file(&fixture, "home/state/smart_stage", "damaged", 7, path);
    begin_again("again", &got);
    fixture_wait_log(&fixture,
                     "smart_stage: auto begins without what earlier runs found");
    CHECK_STR(got.all, "");
    CHECK(!got.first_moved && !got.second_moved);
    fixture_finish(&fixture);
}

static const struct stg_test tests[] = {
    TEST_SLOW(what_a_busy_trainer_computes_moves_to_the_daemon, 100),
    TEST_SLOW(what_would_burden_a_busy_daemon_stays, 100),
    TEST_SLOW(the_partition_lies_where_both_sides_take_as_long, 100),
    TEST_SLOW(a_later_run_begins_with_what_the_last_one_took, 100),
};
TEST_MAIN(tests)
