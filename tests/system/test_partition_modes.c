/* SPDX-License-Identifier: Apache-2.0
 *
 * Features combined with smart_stage: tensors set by a client, vocabularies, and trainers
 * that take slices of batches. Whatever runs ahead, also while stagerd tries partitions,
 * the values are those of the file.
 */
#include <stdio.h>
#include <string.h>

#include "tests/check.h"
#include "tests/system/fixture.h"

#define BATCH 64
#define N_MODES 3

static const char *const modes[N_MODES] = {"off", "on", "auto"};

static struct fixture fixture;

/* stagerd's report: whether it has decided, the number of nodes that run ahead, the cost
 * of a node in the trainer. */
struct explained {
    bool has_decided, has_tried;
    size_t n_moved;
    uint64_t target_ns, n_target;
};

static void explain(const char *name, struct explained *ret)
{
    struct stager *client;
    struct stg_request request = {.kind = STG_REQUEST_EXPLAIN, .name = name};
    struct stg_reply reply;
    struct stg_err err = {0};
    CHECK_INT(stager_connect(fixture.runtime, &client), 0);
    CHECK_OK(stg_admin_call(client, &request, &reply, &err), err);
    const struct stg_explain *e = &reply.explain;
    *ret = (struct explained){0};
    for (size_t i = 0; i < e->n_decisions; i++) {
        const char *text = e->decisions[i].text;
        ret->has_decided |= strncmp(text, "holds", 5) == 0;
        ret->has_tried |= strstr(text, "compares") != NULL;
    }
    for (size_t i = 0; i < e->n_nodes; i++) {
        bool is_ahead = strncmp(e->nodes[i].name, "ahead", 5) == 0;
        ret->n_moved += is_ahead && e->nodes[i].in_daemon;
        if (strcmp(e->nodes[i].name, "target") != 0)
            continue;
        ret->target_ns = e->nodes[i].trainer_ns;
        ret->n_target = e->nodes[i].n_trainer;
    }
    stager_disconnect(client);
}

static struct stager_stream *open_target(const char *name, uint32_t batch_size)
{
    static const char *const fetches[] = {"target"};
    struct stager_options options = {.struct_size = sizeof(options),
                                     .runtime_dir = fixture.runtime,
                                     .batch_size = batch_size,
                                     .fetches = fetches,
                                     .n_fetches = 1};
    struct stager_stream *stream;
    if (stager_open(NULL, name, &options, &stream) < 0)
        FAIL("%s: %s", name, stager_error_text(NULL));
    return stream;
}

static const int64_t *run_target(struct stager_stream *stream, struct stager_batch *batch,
                                 int64_t n)
{
    static const char *const fetches[] = {"target"};
    struct stager_tensor target;
    if (stager_run(stream, batch, fetches, 1, &target) < 0)
        FAIL("stager_run: %s", stager_error_text(stream));
    CHECK_INT(target.dtype, STAGER_INT64);
    CHECK_INT(target.shape[0], n);
    return target.data;
}

/* ---- feeds of a client ---- */

/* x is value + 1000 times the feed, and is the target. */
static void apply_fed(const char *mode)
{
    char yaml[2048];
    snprintf(
        yaml, sizeof(yaml),
        "name: %s\nsmart_stage: %s\ndataset:\n  - range: {stop: 1000000000}\n"
        "  - batch: {batch_size: %d, drop_remainder: true}\ngraph:\n"
        "  - {name: set, op: placeholder, dtype: int64, shape: []}\n"
        "  - {name: thousand, op: constant, value: 1000, dtype: int64}\n"
        "  - {name: more, op: multiply, input: [set, thousand]}\n"
        "  - {name: x, op: add, input: [value, more]}\n"
        "  - {name: ahead, op: sleep, input: [\"staged:x\"], sleep_microseconds: 1000}\n"
        "  - {name: ahead2, op: sleep, input: [ahead], sleep_microseconds: 1000}\n"
        "  - {name: target, op: sleep, input: [ahead2], sleep_microseconds: 2000}\n"
        "staged: {capacity: 2, features: {x: x},\n"
        "         feed_dict: {set: {value: 0, client: true}}}\ntargets: [target]\n",
        mode, mode, BATCH);
    fixture_apply(&fixture, yaml);
}

/* The n-th value set is n, like its version. */
static void set_next(struct stager_stream *stream, int64_t *n)
{
    uint64_t version;
    int64_t next = *n + 1;
    struct stager_tensor value = {
        .dtype = STAGER_INT64, .data = &next, .data_bytes = sizeof(next)};
    if (stager_feed(stream, "set", &value, &version) < 0)
        FAIL("stager_feed: %s", stager_error_text(stream));
    CHECK_INT(version, next);
    *n = next;
}

static void step_fed(struct stager_stream *stream, int64_t *next_row)
{
    struct stager_batch *batch = fixture_take(stream);
    struct stager_batch_info info = {.struct_size = sizeof(info)};
    stager_batch_info(batch, &info);
    const int64_t *values = run_target(stream, batch, BATCH);
    for (int64_t i = 0; i < BATCH; i++)
        CHECK_INT(values[i], *next_row + i + 1000 * (int64_t)info.feed_version);
    *next_row += BATCH;
    stager_release(batch);
}

static void train_fed(const char *mode)
{
    struct explained got = {0};
    int64_t row = 0, n_set = 0, end = now_millis() + fixture_millis(20000);
    struct stager_stream *stream = open_target(mode, 0);
    bool is_auto = strcmp(mode, "auto") == 0;
    for (int turn = 0; turn < 6 || (is_auto && !got.has_decided); turn++) {
        set_next(stream, &n_set);
        for (int i = 0; i < 12; i++)
            step_fed(stream, &row);
        explain(mode, &got);
        if (now_millis() > end)
            FAIL("%s: nothing was decided", mode);
    }
    for (int i = 0; i < 12; i++)
        step_fed(stream, &row);
    explain(mode, &got);
    CHECK_INT(got.n_moved > 0, strcmp(mode, "off") != 0);
    stager_close(stream);
}

static void what_a_client_sets_is_in_what_runs_ahead(void)
{
    fixture_start(&fixture, "");
    for (int i = 0; i < N_MODES; i++) {
        apply_fed(modes[i]);
        train_fed(modes[i]);
    }
    fixture_finish(&fixture);
}

/* ---- slices ---- */

#define SLICE 16

/* The target is v * v * v and takes a millisecond for each slice. */
static void apply_sliced(const char *mode)
{
    char yaml[2048];
    snprintf(yaml, sizeof(yaml),
             "name: %s\nsmart_stage: %s\ndataset:\n  - range: {stop: 1000000000}\n"
             "  - batch: {batch_size: %d, drop_remainder: true}\ngraph:\n"
             "  - {name: ahead, op: multiply, input: [\"staged:v\", \"staged:v\"]}\n"
             "  - {name: ahead2, op: multiply, input: [ahead, \"staged:v\"]}\n"
             "  - {name: target, op: sleep, input: [ahead2], sleep_microseconds: 1000}\n"
             "staged: {capacity: 2, features: {v: value}}\ntargets: [target]\n",
             mode, mode, BATCH);
    fixture_apply(&fixture, yaml);
}

static void step_sliced(struct stager_stream *stream, int64_t *next_row)
{
    struct stager_batch *batch = fixture_take(stream);
    const int64_t *values = run_target(stream, batch, SLICE);
    for (int64_t i = 0; i < SLICE; i++) {
        int64_t v = *next_row + i;
        CHECK_INT(values[i], v * v * v);
    }
    *next_row += SLICE;
    stager_release(batch);
}

static void train_sliced(const char *mode, struct explained *ret)
{
    int64_t row = 0, end = now_millis() + fixture_millis(25000);
    struct stager_stream *stream = open_target(mode, SLICE);
    bool is_auto = strcmp(mode, "auto") == 0;
    *ret = (struct explained){0};
    for (int n_tried = 0;
         ret->n_target < 4 || (is_auto && !ret->has_decided && n_tried < 40);) {
        for (int i = 0; i < 50; i++)
            step_sliced(stream, &row);
        explain(mode, ret);
        n_tried += ret->has_tried;
        if (now_millis() > end)
            FAIL("%s: nothing was tried", mode);
    }
    stager_close(stream);
}

static void slices_are_those_of_the_file_while_partitions_are_tried(void)
{
    struct explained got;
    fixture_start(&fixture, "");
    apply_sliced("auto");
    train_sliced("auto", &got);
    CHECK(got.has_tried);
    fixture_finish(&fixture);
}

/* Costs count per staged batch: four slices sleep four times. */
static void what_slices_take_counts_for_the_whole_batch(void)
{
    struct explained got;
    fixture_start(&fixture, "");
    for (int i = 0; i < 2; i++) {
        apply_sliced(modes[i]);
        train_sliced(modes[i], &got);
        CHECK(got.target_ns >= UINT64_C(1000000) * (BATCH / SLICE));
        CHECK_INT(got.n_moved, i == 0 ? 0 : 2);
    }
    fixture_finish(&fixture);
}

/* ---- vocabularies ---- */

/* word is the decimal number of its row; "7", "3" and "5" are known, in this order. */
static int apply_words(const char *mode, const char *target, struct stg_err *err)
{
    char yaml[2048], path[256];
    fixture_file(&fixture, "words", "7\n3\n5\n", 6, path);
    snprintf(
        yaml, sizeof(yaml),
        "name: %s\nsmart_stage: %s\ndataset:\n  - range: {stop: 40}\n"
        "  - batch: {batch_size: 8, drop_remainder: true}\ngraph:\n"
        "  - {name: word, op: as_string, input: [value]}\n"
        "  - {name: known, op: vocabulary, file: %s}\n"
        "  - {name: ahead, op: lookup, input: [known, \"staged:word\"],\n"
        "     default_value: -1}\n"
        "  - {name: bias, op: variable, shape: [1], initializer: ones, dtype: int64}\n"
        "  - {name: target, op: add, input: [ahead, bias]}\n"
        "staged: {capacity: 2, features: {word: word}}\ntargets: [%s]\n",
        mode, mode, path, target);
    return fixture_try_apply(&fixture, yaml, true, err);
}

static void check_words(const char *mode)
{
    struct stager_stream *stream = open_target(mode, 0);
    struct explained got;
    for (int64_t row = 0; row < 40; row += 8) {
        struct stager_batch *batch = fixture_take(stream);
        const int64_t *values = run_target(stream, batch, 8);
        for (int64_t v = row; v < row + 8; v++) {
            int64_t id = v == 7 ? 0 : v == 3 ? 1 : v == 5 ? 2 : -1;
            CHECK_INT(values[v - row], id + 1);
        }
        stager_release(batch);
    }
    explain(mode, &got);
    CHECK_INT(got.n_moved, 1);
    stager_close(stream);
}

/* No trainer has the vocabulary. */
static void words_behind_the_boundary_are_looked_up_ahead_of_trainers(void)
{
    struct stg_err err = {0};
    fixture_start(&fixture, "");
    for (int i = 1; i < N_MODES; i++) {
        CHECK_OK(apply_words(modes[i], "target", &err), err);
        check_words(modes[i]);
    }
    CHECK_INT(apply_words("off", "target", &err), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "vocabulary \"known\" exists only in the daemon");
    CHECK_CONTAINS(err.text, "or set smart_stage to on or auto");
    CHECK_INT(apply_words("on", "ahead", &err), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "node ahead (lookup), line 9");
    CHECK_CONTAINS(err.text, "it is a target; or look words up before the boundary");
    fixture_finish(&fixture);
}

static const struct stg_test tests[] = {
    TEST_SLOW(what_a_client_sets_is_in_what_runs_ahead, 60),
    TEST_SLOW(slices_are_those_of_the_file_while_partitions_are_tried, 60),
    TEST(what_slices_take_counts_for_the_whole_batch),
    TEST(words_behind_the_boundary_are_looked_up_ahead_of_trainers),
};
TEST_MAIN(tests)
