/* SPDX-License-Identifier: Apache-2.0
 *
 * stager_run: the compute subgraph of the first design document in this process, compared
 * with the output of TensorFlow (tests/peers/seed_staged.golden). STAGER_SOURCE is the
 * top of the tree.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/load.h"
#include "tests/check.h"
#include "tests/client/fake.h"

static struct stg_pipeline_spec *load(const char *text, size_t bytes)
{
    struct stg_pipeline_spec *spec;
    struct stg_err err = {0};
    CHECK_OK(stg_load_pipeline(text, bytes, "test", &spec, &err), err);
    return spec;
}

static struct stg_pipeline_spec *load_example(void)
{
    static char text[STG_TEXT_MAX_BYTES];
    FILE *in = fopen(STAGER_SOURCE "/examples/seed_staged.yaml.in", "re");
    CHECK(in != NULL);
    size_t n = fread(text, 1, sizeof(text), in);
    fclose(in);
    return load(text, n);
}

static void start_seed(struct fake *fake)
{
    static struct stg_component pair[] = {
        {.name = "0", .dtype = STAGER_STRING, .ndim = 1, .shape = {2}},
        {.name = "1", .dtype = STAGER_STRING, .ndim = 1, .shape = {2}},
    };
    fake_start(fake);
    fake->pipeline = load_example();
    fake->boundary = (struct stg_schema){.components = pair, .n = 2};
}

/* The two columns of lines 2 * step and 2 * step + 1 of make_lines.py. */
static void publish_lines(struct fake *fake, int step)
{
    char words[4][32];
    for (int i = 0; i < 2; i++) {
        int line = 2 * step + i;
        snprintf(words[i], sizeof(words[i]), "user%d", line % 7);
        snprintf(words[2 + i], sizeof(words[2 + i]), "item%d", line * line);
    }
    struct stg_err err = {0};
    struct stg_batch_writer w;
    uint32_t slot = (uint32_t)step % 4;
    char *base = fake->segment + (size_t)slot * STG_GRANULE_BYTES;
    CHECK_OK(stg_batch_writer_begin(&w, base, STG_GRANULE_BYTES, &fake->boundary, &err),
             err);
    for (uint32_t t = 0; t < 2; t++) {
        char all[2 * sizeof(words)];
        int64_t offsets[3] = {0}, shape[] = {2};
        offsets[1] = (int64_t)strlen(words[2 * t]);
        offsets[2] = offsets[1] + (int64_t)strlen(words[2 * t + 1]);
        snprintf(all, sizeof(all), "%s%s", words[2 * t], words[2 * t + 1]);
        struct stg_tensor tensor = {.dtype = STAGER_STRING,
                                    .ndim = 1,
                                    .shape = {shape[0]},
                                    .data = all,
                                    .data_bytes = (uint64_t)offsets[2],
                                    .begin = offsets,
                                    .end = offsets + 1};
        CHECK_OK(stg_batch_writer_copy(&w, t, &tensor, &err), err);
    }
    uint64_t bytes = stg_batch_writer_seal(&w);
    struct stg_descriptor d = fake_descriptor(fake, slot, (uint64_t)step, bytes);
    stg_ring_push(&fake->ring, &d);
}

static void take(struct stager_stream *stream, struct stager_batch **ret)
{
    if (stager_next(stream, 0, ret) < 0)
        FAIL("%s", stager_error_text(stream));
}

static void fetch(struct stager_stream *stream, struct stager_batch *batch,
                  const char *const *fetches, size_t n, struct stager_tensor *ret)
{
    if (stager_run(stream, batch, fetches, n, ret) < 0)
        FAIL("%s", stager_error_text(stream));
}

/* Formats lists the way Python prints them. */
static void print(const struct stager_tensor *tensor, char *buf, size_t bytes)
{
    size_t used = (size_t)snprintf(buf, bytes, "[");
    int64_t columns = tensor->ndim == 2 ? tensor->shape[1] : tensor->shape[0];
    int64_t rows = tensor->ndim == 2 ? tensor->shape[0] : 1;
    for (int64_t i = 0; i < rows * columns; i++) {
        const char *open = tensor->ndim == 2 && i % columns == 0 ? "[" : "";
        const char *close = tensor->ndim == 2 && i % columns == columns - 1 ? "]" : "";
        used +=
            (size_t)snprintf(buf + used, bytes - used, "%s%s", i > 0 ? ", " : "", open);
        if (tensor->dtype == STAGER_STRING)
            used += (size_t)snprintf(buf + used, bytes - used, "'%.*s'",
                                     (int)(tensor->offsets[i + 1] - tensor->offsets[i]),
                                     (const char *)tensor->data + tensor->offsets[i]);
        else
            used += (size_t)snprintf(buf + used, bytes - used, "%lld",
                                     (long long)((const int64_t *)tensor->data)[i]);
        used += (size_t)snprintf(buf + used, bytes - used, "%s", close);
    }
    snprintf(buf + used, bytes - used, "]");
}

/* Runs the program on one batch `times` times and checks the first few runs. */
static void check_program(const struct stager_options *options, int times)
{
    struct fake fake = {0};
    start_seed(&fake);
    struct stager_stream *stream = fake_open(&fake, options);
    CHECK_INT(stager_target_count(stream), 1);
    CHECK_STR(stager_target(stream, 0), "target");
    FILE *golden = fopen(STAGER_SOURCE "/tests/peers/seed_staged.golden", "re");
    CHECK(golden != NULL);
    for (int step = 0; step < 5; step++) {
        publish_lines(&fake, step);
        struct stager_batch *batch;
        take(stream, &batch);
        const char *fetches[] = {"bucket", "target"};
        struct stager_tensor results[2];
        for (int i = 0; i < times; i++)
            fetch(stream, batch, fetches, 2, results);
        CHECK_INT(results[1].shape[0], 4);
        CHECK_INT(results[1].shape[1], 3);
        for (int i = 0; i < 2; i++) {
            char got[512], want[512];
            print(&results[i], got, sizeof(got));
            CHECK(fgets(want, sizeof(want), golden) != NULL);
            want[strcspn(want, "\n")] = '\0';
            CHECK_STR(got, want);
            CHECK_STR(results[i].name, fetches[i]);
        }
        stager_release(batch);
        fake_releases(&fake);
    }
    fclose(golden);
    fake_finish(&fake, stream);
    stg_pipeline_spec_destroy((struct stg_pipeline_spec *)(uintptr_t)fake.pipeline);
}

static void the_first_program_computes_what_tensorflow_computes(void)
{
    check_program(NULL, 1);
}

static void it_does_on_threads_too(void)
{
    struct stager_options options = {.struct_size = sizeof(options),
                                     .inter_op_threads_num = 3,
                                     .intra_op_threads_num = 2};
    check_program(&options, 20);
    options.inter_op_threads_num = 65;
    struct stager_stream *stream;
    CHECK_INT(stager_open(NULL, "x", &options, &stream), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(stager_error_text(NULL), "inter_op_threads_num is 65");
}

static void fetches_may_change_from_call_to_call(void)
{
    static const char *const names[] = {"bucket", "rows",     "longer",
                                        "pair",   "target",   "xxx",
                                        "bucket", "staged:0", "staged:1"};
    struct fake fake = {0};
    start_seed(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    publish_lines(&fake, 1);
    struct stager_batch *batch;
    take(stream, &batch);
    /* more fetch lists than cached executors */
    for (int round = 0; round < 50; round++) {
        const char *fetches[3];
        size_t n = 1 + (size_t)round % 3;
        for (size_t i = 0; i < n; i++)
            fetches[i] = names[((size_t)round * 5 + i * 3) % 9];
        struct stager_tensor results[3];
        fetch(stream, batch, fetches, n, results);
        for (size_t i = 0; i < n; i++) {
            CHECK_STR(results[i].name, fetches[i]);
            if (strcmp(fetches[i], "bucket") == 0)
                CHECK_INT(results[i].dtype, STAGER_INT64);
            if (strcmp(fetches[i], "rows") == 0)
                CHECK(((const float *)results[i].data)[5] == 1.0f);
        }
    }
    stager_release(batch);
    fake_finish(&fake, stream);
    stg_pipeline_spec_destroy((struct stg_pipeline_spec *)(uintptr_t)fake.pipeline);
}

static void a_fetched_boundary_tensor_is_a_view_of_the_batch(void)
{
    struct fake fake = {0};
    start_seed(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    publish_lines(&fake, 0);
    struct stager_batch *batch;
    take(stream, &batch);
    const char *name = "staged:1";
    struct stager_tensor result, view;
    fetch(stream, batch, &name, 1, &result);
    CHECK_INT(stager_batch_tensor(batch, "1", &view), 0);
    CHECK(result.data == view.data);
    CHECK(result.offsets == view.offsets);
    stager_release(batch);
    fake_finish(&fake, stream);
    stg_pipeline_spec_destroy((struct stg_pipeline_spec *)(uintptr_t)fake.pipeline);
}

static void an_impossible_run_is_reported_with_its_reason(void)
{
    struct fake fake = {0};
    start_seed(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    publish_lines(&fake, 0);
    struct stager_batch *batch;
    struct stager_tensor results[2];
    take(stream, &batch);
    const char *unknown = "targte", *none[] = {"target", NULL}, *staged = "v:0";
    CHECK_INT(stager_run(stream, batch, &unknown, 1, results), -STAGER_NOT_FOUND);
    CHECK_CONTAINS(stager_error_text(stream), "target");
    CHECK_INT(stager_run(stream, batch, none, 2, results), -STAGER_INVALID_ARGUMENT);
    CHECK_INT(stager_run(stream, NULL, &unknown, 1, results), -STAGER_INVALID_ARGUMENT);
    CHECK_INT(stager_run(stream, batch, &staged, 1, results),
              -STAGER_FAILED_PRECONDITION);
    stager_release(batch);
    CHECK_INT(stager_run(stream, batch, &unknown, 1, results), -STAGER_INVALID_ARGUMENT);
    fake_finish(&fake, stream);
    stg_pipeline_spec_destroy((struct stg_pipeline_spec *)(uintptr_t)fake.pipeline);
}

static void what_is_fed_is_not_computed(void)
{
    struct fake fake = {0};
    start_seed(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    publish_lines(&fake, 0);
    struct stager_batch *batch;
    struct stager_tensor result;
    take(stream, &batch);
    const int64_t ids[] = {3, 4};
    struct stager_tensor feed = {.name = "bucket",
                                 .dtype = STAGER_INT64,
                                 .ndim = 1,
                                 .shape = {2},
                                 .data = ids,
                                 .data_bytes = sizeof(ids)};
    const char *bucket = "bucket", *rows = "rows", *target = "target";
    for (int i = 0; i < 3; i++) {
        /* Returns one row of a table for each id, without a batch. */
        CHECK_INT(stager_run_fed(stream, NULL, &feed, 1, &rows, 1, &result), 0);
        CHECK_INT(result.shape[0], 2);
        CHECK(((const float *)result.data)[0] == 1.0f);
    }
    CHECK_INT(stager_run_fed(stream, NULL, &feed, 1, &bucket, 1, &result), 0);
    CHECK(result.data == ids);
    CHECK_INT(stager_run_fed(stream, batch, &feed, 1, &target, 1, &result), 0);
    CHECK_INT(stager_run_fed(stream, NULL, &feed, 1, &target, 1, &result),
              -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(stager_error_text(stream), "\"staged:1\" is needed: give a batch");

    feed.data_bytes = 8;
    CHECK_INT(stager_run_fed(stream, batch, &feed, 1, &rows, 1, &result),
              -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(stager_error_text(stream),
                   "feed \"bucket\": data_bytes is 8; the shape needs 16");
    feed.data_bytes = 16;
    feed.ndim = 0;
    feed.dtype = STAGER_INT64;
    feed.data_bytes = 8;
    CHECK_INT(stager_run_fed(stream, batch, &feed, 1, &rows, 1, &result),
              -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(stager_error_text(stream), "in the graph it is int64 [2]");
    feed.name = NULL;
    CHECK_INT(stager_run_fed(stream, batch, &feed, 1, &rows, 1, &result),
              -STAGER_INVALID_ARGUMENT);
    stager_release(batch);
    fake_finish(&fake, stream);
    stg_pipeline_spec_destroy((struct stg_pipeline_spec *)(uintptr_t)fake.pipeline);
}

static void without_a_graph_from_the_daemon_there_is_nothing_to_run(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    struct stager_stream *stream = fake_open(&fake, NULL);
    fake_publish(&fake, 0, 0, 1, 1);
    struct stager_batch *batch;
    take(stream, &batch);
    const char *name = "x";
    struct stager_tensor result;
    CHECK_INT(stager_run(stream, batch, &name, 1, &result), -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(stager_error_text(stream), "no graph");
    stager_release(batch);
    fake_finish(&fake, stream);
}

static int64_t first_id(const struct stager_tensor *tensor)
{
    return ((const int64_t *)tensor->data)[0];
}

/* Results stay until the next stager_run, as long as their stagerd is gone too. */
static void a_batch_of_the_stagerd_before_can_be_run(void)
{
    const char *name = "bucket";
    struct fake before = {.rejoin = {.run = 1, .member = 2}}, fake = before;
    start_seed(&before);
    struct stager_stream *stream = fake_open(&before, NULL);
    struct stager_batch *old, *batch;
    struct stager_tensor expected, result;
    publish_lines(&before, 0);
    take(stream, &old);
    fetch(stream, old, &name, 1, &expected);
    int64_t want = first_id(&expected);
    fake_die(&before);
    memcpy(fake.dir, before.dir, sizeof(fake.dir));
    start_seed(&fake);
    publish_lines(&fake, 1);
    fake_serve(&fake);
    CHECK_INT(stager_next(stream, -1, &batch), 0);
    fake_join(&fake);
    CHECK_INT(first_id(&expected), want);
    fetch(stream, batch, &name, 1, &result);
    fetch(stream, old, &name, 1, &expected);
    stager_release(old);
    CHECK_INT(first_id(&expected), want);
    fetch(stream, batch, &name, 1, &result);
    stager_release(batch);
    struct stager_stream_info info = {.struct_size = sizeof(info)};
    stager_stream_info(stream, &info);
    CHECK_INT(info.held, 0);
    fake_hang_up(&fake);
    stager_close(stream);
    fake_stop(&fake);
    fake_stop(&before);
    stg_pipeline_spec_destroy((struct stg_pipeline_spec *)(uintptr_t)fake.pipeline);
    stg_pipeline_spec_destroy((struct stg_pipeline_spec *)(uintptr_t)before.pipeline);
}

static const struct stg_test tests[] = {
    TEST(the_first_program_computes_what_tensorflow_computes),
    TEST(it_does_on_threads_too),
    TEST(fetches_may_change_from_call_to_call),
    TEST(a_fetched_boundary_tensor_is_a_view_of_the_batch),
    TEST(an_impossible_run_is_reported_with_its_reason),
    TEST(what_is_fed_is_not_computed),
    TEST(without_a_graph_from_the_daemon_there_is_nothing_to_run),
    TEST(a_batch_of_the_stagerd_before_can_be_run),
};

TEST_MAIN(tests)
