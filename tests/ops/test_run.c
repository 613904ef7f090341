/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/failalloc.h"
#include "tests/ops/fixture.h"

#define MAX_FETCHES 16

/* ---- a sink that records ---- */

struct sink {
    struct stg_bump memory;
    struct stg_tensor tensors[MAX_FETCHES];
    int n_allocs[MAX_FETCHES], n_copies[MAX_FETCHES];
    int fail_at; /* index of the fetch that fails to allocate; -1: none */
};

static int sink_alloc(void *owner, size_t i, int dtype, int ndim, const int64_t *shape,
                      uint64_t string_bytes, struct stg_tensor *ret, struct stg_err *err)
{
    struct sink *sink = owner;
    if (sink->fail_at == (int)i)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "the extent is full");
    struct stg_tensor *tensor = &sink->tensors[i];
    *tensor = (struct stg_tensor){.dtype = dtype, .ndim = ndim};
    memcpy(tensor->shape, shape, (size_t)ndim * sizeof(*shape));
    size_t n = (size_t)stg_tensor_n(tensor);
    tensor->data_bytes =
        dtype == STAGER_STRING ? string_bytes : n * stg_dtype_bytes(dtype);
    tensor->data = stg_bump_alloc(&sink->memory, tensor->data_bytes);
    if (dtype == STAGER_STRING) {
        int64_t *offsets = stg_bump_alloc(&sink->memory, (n + 1) * sizeof(*offsets));
        tensor->begin = offsets;
        tensor->end = offsets + 1;
    }
    sink->n_allocs[i]++;
    *ret = *tensor;
    return 0;
}

static int sink_copy(void *owner, size_t i, const struct stg_tensor *tensor,
                     struct stg_err *err)
{
    struct sink *sink = owner;
    sink->tensors[i] = *tensor;
    sink->n_copies[i]++;
    return 0;
}

static struct stg_sink as_sink(struct sink *sink)
{
    *sink = (struct sink){.fail_at = -1};
    return (struct stg_sink){.owner = sink, .alloc = sink_alloc, .copy = sink_copy};
}

static bool same_strings(const struct stg_tensor *tensor, size_t n, const char *const *s)
{
    if (tensor->dtype != STAGER_STRING || stg_tensor_n(tensor) != (int64_t)n)
        return false;
    for (size_t i = 0; i < n; i++) {
        size_t bytes = (size_t)(tensor->end[i] - tensor->begin[i]);
        if (bytes != strlen(s[i]) ||
            memcmp((char *)tensor->data + tensor->begin[i], s[i], bytes) != 0)
            return false;
    }
    return true;
}

#define CSV                                                                              \
    "element record string [-1]\n"                                                       \
    "columns = decode_csv(record) record_defaults=[0, 0.5, \"x\"]\n"

static const char *const records[] = {"1,260.0,abc", "-2,,\"a \"\"b\"\", c\"", "33,1e3,"};

/* ---- values ---- */

static void columns_of_a_csv_record_come_out_typed(void)
{
    struct fixture_stage stage;
    struct stg_err err = {0};
    fixture_stage_init(&stage, CSV "feature label = columns:0\n"
                                   "feature price = columns:1\n"
                                   "feature word = columns:2\n");
    struct stg_tensor feed = fixture_strings(&stage.bump, 3, records), out[3];
    CHECK_OK(stg_run_exec(stage.run, &feed, NULL, NULL, out, &err), err);
    const int32_t *label = out[0].data;
    CHECK_INT(label[0], 1);
    CHECK_INT(label[1], -2);
    CHECK_INT(label[2], 33);
    const float *price = out[1].data;
    CHECK(price[0] == 260.0f && price[1] == 0.5f && price[2] == 1000.0f);
    CHECK_INT(out[2].data_bytes, 12);
    CHECK(same_strings(&out[2], 3, (const char *[]){"abc", "a \"b\", c", "x"}));
    fixture_stage_finish(&stage);
}

/* Without the rows' newlines, with gaps, and at any address: only begin and end count. */
static void records_may_lie_anywhere_in_their_buffer(void)
{
    struct fixture_stage stage;
    struct stg_err err = {0};
    fixture_stage_init(&stage,
                       CSV "feature price = columns:1\nfeature word = columns:2\n");
    static const char text[] = "zz3,4.25,q,,,,,,12,13,1\"5,.5,y";
    static const int64_t begin[] = {24, 2, 2}, end[] = {30, 10, 9};
    struct stg_tensor out[2];
    for (size_t shift = 0; shift < 9; shift++) {
        char *exact = malloc(sizeof(text) - 1 + shift);
        CHECK(exact != NULL);
        memcpy(exact + shift, text, sizeof(text) - 1);
        struct stg_tensor feed = {.dtype = STAGER_STRING,
                                  .ndim = 1,
                                  .shape = {3},
                                  .data = exact + shift,
                                  .data_bytes = sizeof(text) - 1,
                                  .begin = begin,
                                  .end = end};
        CHECK_OK(stg_run_exec(stage.run, &feed, NULL, NULL, out, &err), err);
        const float *price = out[0].data;
        CHECK(price[0] == 0.5f && price[1] == 4.25f && price[2] == 4.25f);
        CHECK(same_strings(&out[1], 3, (const char *[]){"y", "q", "x"}));
        free(exact);
    }
    fixture_stage_finish(&stage);
}

static void the_program_of_the_seeds_gives_four_rows(void)
{
    struct fixture_stage stage;
    struct stg_err err = {0};
    fixture_stage_init(&stage, "element record string [-1]\n"
                               "v = decode_csv(record) record_defaults=[[\"\"], [\"\"]]\n"
                               "feature 0 = v:0\n"
                               "feature 1 = v:1\n"
                               "var = variable() shape=[100, 3] initializer=\"ones\"\n"
                               "ids = string_to_hash_bucket(staged:0) num_buckets=10\n"
                               "rows = embedding_lookup(var, ids)\n"
                               "xxx = constant() value=[\"xxx\"]\n"
                               "words = concat(staged:1, xxx) axis=0\n"
                               "numbers = as_string(rows)\n"
                               "pair = stack(words, words)\n"
                               "joined = concat(numbers, pair) axis=0\n"
                               "target joined\n");
    struct stg_graph *client = NULL;
    struct stg_resources *resources = NULL;
    struct stg_run *compute = NULL;
    CHECK_OK(stg_graph_create(&stage.fx.spec, NULL, stg_graph_boundary(stage.graph),
                              &client, &err),
             err);
    CHECK_OK(stg_resources_create(client, &resources, &err), err);
    CHECK_OK(stg_run_create_compute(client, resources, stage.fx.spec.targets, 1, &compute,
                                    &err),
             err);
    static const char *const lines[] = {"a,b", "hello,world"};
    struct stg_tensor feed = fixture_strings(&stage.bump, 2, lines), staged[2], joined;
    for (int step = 0; step < 5; step++) {
        CHECK_OK(stg_run_exec(stage.run, &feed, NULL, NULL, staged, &err), err);
        CHECK_OK(stg_run_exec(compute, staged, NULL, NULL, &joined, &err), err);
        CHECK_INT(joined.ndim, 2);
        CHECK_INT(joined.shape[0], 4);
        CHECK_INT(joined.shape[1], 3);
        CHECK(same_strings(&joined, 12,
                           (const char *[]){"1.000000", "1.000000", "1.000000",
                                            "1.000000", "1.000000", "1.000000", "b",
                                            "world", "xxx", "b", "world", "xxx"}));
    }
    stg_run_destroy(compute);
    stg_resources_destroy(resources);
    stg_graph_destroy(client);
    fixture_stage_finish(&stage);
}

/* ---- destinations of outputs ---- */

static void a_feature_is_written_once_to_the_place_that_the_sink_gives(void)
{
    struct fixture_stage stage;
    struct stg_err err = {0};
    fixture_stage_init(&stage,
                       CSV "ids = string_to_hash_bucket_fast(columns:2) num_buckets=9\n"
                           "same = identity(columns:2)\n"
                           "feature word = columns:2\n"
                           "feature again = columns:2\n"
                           "feature ids = ids\n"
                           "feature same = same\n"
                           "feature raw = record\n");
    struct sink sink;
    struct stg_sink to = as_sink(&sink);
    struct stg_tensor feed = fixture_strings(&stage.bump, 3, records), out[5];
    CHECK_OK(stg_run_exec(stage.run, &feed, NULL, &to, out, &err), err);
    static const int allocs[] = {1, 0, 1, 0, 0}, copies[] = {0, 1, 0, 1, 1};
    for (int i = 0; i < 5; i++) {
        CHECK_INT(sink.n_allocs[i], allocs[i]);
        CHECK_INT(sink.n_copies[i], copies[i]);
    }
    /* The duplicate and the view were copied from the extent itself. */
    CHECK(sink.tensors[1].data == sink.tensors[0].data);
    CHECK(sink.tensors[3].data == sink.tensors[0].data);
    CHECK(sink.tensors[4].data == feed.data);
    CHECK(out[0].data == sink.tensors[0].data && out[2].data == sink.tensors[2].data);
    CHECK(same_strings(&out[1], 3, (const char *[]){"abc", "a \"b\", c", "x"}));
    stg_bump_finish(&sink.memory);
    fixture_stage_finish(&stage);
}

static void constants_cross_the_boundary_as_copies(void)
{
    struct fixture_stage stage;
    struct stg_err err = {0};
    fixture_stage_init(&stage, "element record string [-1]\n"
                               "c = constant() value=[\"a\", \"bc\"]\n"
                               "d = concat(c, c)\n"
                               "feature c = c\n"
                               "feature d = d\n");
    struct sink sink;
    struct stg_sink to = as_sink(&sink);
    struct stg_tensor feed = fixture_strings(&stage.bump, 3, records);
    CHECK_OK(stg_run_exec(stage.run, &feed, NULL, &to, NULL, &err), err);
    CHECK(sink.n_copies[0] == 1 && sink.n_copies[1] == 1 && sink.n_allocs[1] == 0);
    CHECK(same_strings(&sink.tensors[1], 4, (const char *[]){"a", "bc", "a", "bc"}));
    stg_bump_finish(&sink.memory);
    fixture_stage_finish(&stage);
}

/* A component, a constant, and the output of an op; from a batch at rest. */
static void what_is_staged_twice_lies_in_the_batch_once(void)
{
    struct fixture_stage stage;
    struct stg_err err = {0};
    fixture_stage_init(&stage, "element n int64 [-1]\nelement record string [-1]\n"
                               "c = constant() value=[1.5, 2.5]\n"
                               "d = add(n, n)\n"
                               "feature n = n\nfeature n2 = n\n"
                               "feature c = c\nfeature c2 = c\n"
                               "feature s = record\nfeature s2 = record\n"
                               "feature d = d\nfeature d2 = d\nfeature n3 = n\n");
    static _Alignas(STG_TENSOR_ALIGN) char base[STG_GRANULE_BYTES];
    struct stg_batch_writer writer;
    struct stg_sink to = stg_sink_of_batch(&writer);
    struct stg_tensor feeds[2] = {
        fixture_dense(&stage.bump, STAGER_INT64, 1, (int64_t[]){2}, (int64_t[]){7, 8}),
        fixture_strings(&stage.bump, 3, records)};
    CHECK_OK(stg_batch_writer_begin(&writer, base, sizeof(base),
                                    stg_graph_boundary(stage.graph), &err),
             err);
    CHECK_OK(stg_run_exec(stage.run, feeds, NULL, &to, NULL, &err), err);
    CHECK_OK(stg_batch_check(base, stg_batch_writer_seal(&writer), true, &err), err);
    struct stg_tensor t[9];
    for (uint32_t i = 0; i < 9; i++)
        stg_batch_tensor_at(base, i, &t[i], NULL);
    for (int i = 0; i < 8; i += 2)
        CHECK(t[i].data == t[i + 1].data && t[i].begin == t[i + 1].begin);
    CHECK(t[8].data == t[0].data);
    CHECK(t[0].data != t[2].data && t[2].data != t[6].data);
    CHECK_INT(((const int64_t *)t[8].data)[1], 8);
    CHECK(((const float *)t[3].data)[1] == 2.5f);
    CHECK(same_strings(&t[5], 3, records));
    CHECK_INT(((const int64_t *)t[7].data)[0], 14);
    fixture_stage_finish(&stage);
}

static void without_features_everything_is_copied(void)
{
    struct fixture_stage stage;
    struct stg_err err = {0};
    fixture_stage_init(&stage, "element record string [-1]\nelement n int64 [-1]\n");
    struct sink sink;
    struct stg_sink to = as_sink(&sink);
    struct stg_tensor feeds[2] = {fixture_strings(&stage.bump, 3, records)};
    feeds[1] =
        fixture_dense(&stage.bump, STAGER_INT64, 1, (int64_t[]){2}, (int64_t[]){7, 8});
    CHECK_OK(stg_run_exec(stage.run, feeds, NULL, &to, NULL, &err), err);
    CHECK(sink.n_copies[0] == 1 && sink.n_copies[1] == 1);
    CHECK(sink.tensors[1].data == feeds[1].data);
    stg_bump_finish(&sink.memory);
    fixture_stage_finish(&stage);
}

static void a_fetch_of_the_boundary_is_the_batch_itself(void)
{
    struct fixture_stage stage;
    struct stg_err err = {0};
    fixture_stage_init(&stage, CSV "feature price = columns:1\n");
    struct stg_graph *client = NULL;
    struct stg_run *compute = NULL;
    static const char *const fetches[] = {"staged:price", "staged:price"};
    CHECK_OK(stg_graph_create(&stage.fx.spec, NULL, stg_graph_boundary(stage.graph),
                              &client, &err),
             err);
    CHECK_OK(stg_run_create_compute(client, NULL, fetches, 2, &compute, &err), err);
    struct stg_tensor feed = fixture_dense(&stage.bump, STAGER_FLOAT32, 1, (int64_t[]){2},
                                           (float[]){1, 2}),
                      out[2];
    CHECK_OK(stg_run_exec(compute, &feed, NULL, NULL, out, &err), err);
    CHECK(out[0].data == feed.data && out[1].data == feed.data);
    stg_run_destroy(compute);
    stg_graph_destroy(client);
    fixture_stage_finish(&stage);
}

/* ---- nodes that run ---- */

static void what_no_feature_needs_does_not_run(void)
{
    struct fixture_stage stage;
    struct stg_err err = {0};
    fixture_stage_init(&stage,
                       "element record string [-1]\n"
                       "table = constant() value=[1, 2]\n"
                       "ids = string_to_hash_bucket_fast(record) num_buckets=1000000\n"
                       "fails = embedding_lookup(table, ids)\n"
                       "feature ids = ids\n");
    struct stg_tensor feed = fixture_strings(&stage.bump, 3, records), out;
    CHECK_OK(stg_run_exec(stage.run, &feed, NULL, NULL, &out, &err), err);
    CHECK_INT(out.shape[0], 3);
    fixture_stage_finish(&stage);
}

static void a_control_input_runs_first(void)
{
    struct fixture_stage stage;
    struct stg_err err = {0};
    fixture_stage_init(&stage,
                       "element record string [-1]\n"
                       "table = constant() value=[1, 2]\n"
                       "out = identity(record, ^fails)\n"
                       "ids = string_to_hash_bucket_fast(record) num_buckets=1000000\n"
                       "fails = embedding_lookup(table, ids)\n"
                       "feature out = out\n");
    struct stg_tensor feed = fixture_strings(&stage.bump, 3, records), out;
    CHECK_INT(stg_run_exec(stage.run, &feed, NULL, NULL, &out, &err),
              -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "node fails (embedding_lookup): id ");
    fixture_stage_finish(&stage);
}

/* ---- errors ---- */

static void an_error_names_node_and_row_and_the_next_batch_is_good(void)
{
    struct fixture_stage stage;
    struct stg_err err = {0};
    fixture_stage_init(&stage,
                       CSV "feature label = columns:0\nfeature word = columns:2\n");
    static const char *const broken[] = {"1,2,3", "1,2,3", "1,2"};
    struct stg_tensor good = fixture_strings(&stage.bump, 3, records),
                      bad = fixture_strings(&stage.bump, 3, broken), out[2];
    for (int i = 0; i < 3; i++) {
        CHECK_INT(stg_run_exec(stage.run, &bad, NULL, NULL, out, &err),
                  -STAGER_INVALID_ARGUMENT);
        CHECK_INT(err.row, 2);
        CHECK_CONTAINS(err.text, "node columns (decode_csv): expected 3 fields");
        CHECK_OK(stg_run_exec(stage.run, &good, NULL, NULL, out, &err), err);
        CHECK(same_strings(&out[1], 3, (const char *[]){"abc", "a \"b\", c", "x"}));
    }
    fixture_stage_finish(&stage);
}

static void a_full_extent_is_an_error_of_the_node(void)
{
    struct fixture_stage stage;
    struct stg_err err = {0};
    fixture_stage_init(&stage,
                       CSV "feature label = columns:0\nfeature word = columns:2\n");
    struct sink sink;
    struct stg_sink to = as_sink(&sink);
    struct stg_tensor feed = fixture_strings(&stage.bump, 3, records);
    for (int i = 0; i < 2; i++) {
        sink.fail_at = i;
        CHECK_INT(stg_run_exec(stage.run, &feed, NULL, &to, NULL, &err),
                  -STAGER_RESOURCE_EXHAUSTED);
        CHECK_STR(err.text, "node columns (decode_csv): the extent is full");
    }
    stg_bump_finish(&sink.memory);
    fixture_stage_finish(&stage);
}

static void a_feed_of_another_kind_is_refused(void)
{
    struct fixture_stage stage;
    struct stg_err err = {0};
    fixture_stage_init(&stage, "element x float32 [-1, 2]\nfeature x = x\n");
    struct stg_tensor out, feeds[] = {
                               fixture_dense(&stage.bump, STAGER_INT32, 2,
                                             (int64_t[]){1, 2}, (int32_t[]){1, 2}),
                               fixture_dense(&stage.bump, STAGER_FLOAT32, 2,
                                             (int64_t[]){2, 1}, (float[]){1, 2}),
                               fixture_dense(&stage.bump, STAGER_FLOAT32, 1,
                                             (int64_t[]){2}, (float[]){1, 2}),
                           };
    for (size_t i = 0; i < 3; i++) {
        CHECK_INT(stg_run_exec(stage.run, &feeds[i], NULL, NULL, &out, &err),
                  -STAGER_INVALID_ARGUMENT);
        CHECK_CONTAINS(err.text, "feed \"x\" is ");
        CHECK_CONTAINS(err.text, ", not float32 [?, 2]");
    }
    fixture_stage_finish(&stage);
}

/* ---- many batches ---- */

#define BUSY                                                                             \
    "element record string [-1]\n"                                                       \
    "c = decode_csv(record) record_defaults=[0, 0.5, \"x\", \"\"]\n"                     \
    "ids = string_to_hash_bucket_fast(c:2) num_buckets=1000\n"                           \
    "more = string_to_hash_bucket(c:3) num_buckets=1000\n"                               \
    "pair = stack(ids, more) axis=1\n"                                                   \
    "zero = constant() value=0.0\n"                                                      \
    "price = maximum(c:1, zero)\n"                                                       \
    "log = log1p(price)\n"                                                               \
    "text = as_string(log)\n"                                                            \
    "words = concat(c:2, text, c:3)\n"                                                   \
    "label = cast(c:0) dtype=\"float32\"\n"                                              \
    "feature label = label\n"                                                            \
    "feature pair = pair\n"                                                              \
    "feature log = log\n"                                                                \
    "feature words = words\n"                                                            \
    "feature word = c:2\n"

/* A batch of rows generated from the seed; some with quotes. */
static struct stg_tensor random_batch(struct stg_bump *bump, uint64_t seed)
{
    static const char *const words[] = {"",
                                        "a",
                                        "68fd1e64",
                                        "\"q\"",
                                        "\"a,b\"",
                                        "\"x\"\"y\"",
                                        "longer than sixteen bytes"};
    size_t n = seed * 2654435761u % 300;
    const char **lines = stg_bump_alloc(bump, (n + 1) * sizeof(*lines));
    uint64_t state = seed + 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        unsigned draw = (unsigned)(state >> 33);
        char line[128];
        snprintf(line, sizeof(line), "%d,%u.%u,%s,%s", (int)(draw % 7) - 3, draw % 90000,
                 draw % 10, words[draw % 7], words[draw / 7 % 7]);
        lines[i] = stg_bump_strdup(bump, line);
    }
    return fixture_strings(bump, n, lines);
}

static void check_same(const struct stg_tensor *a, const struct stg_tensor *b)
{
    CHECK(a->dtype == b->dtype && a->ndim == b->ndim);
    CHECK(memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof(a->shape[0])) == 0);
    CHECK_INT(a->data_bytes, b->data_bytes);
    CHECK(memcmp(a->data, b->data, a->data_bytes) == 0);
    if (a->dtype == STAGER_STRING)
        CHECK(memcmp(a->begin, b->begin, (size_t)(stg_tensor_n(a) + 1) * 8) == 0);
}

static void an_executor_gives_each_batch_the_bytes_that_a_new_one_gives(void)
{
    struct fixture_stage stage;
    struct stg_err err = {0};
    fixture_stage_init(&stage, BUSY);
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct stg_tensor feed = random_batch(&stage.bump, seed), old[5], fresh[5];
        struct stg_run *run = NULL;
        CHECK_OK(stg_run_create_stage(stage.graph, &run, &err), err);
        CHECK_OK(stg_run_exec(stage.run, &feed, NULL, NULL, old, &err), err);
        CHECK_OK(stg_run_exec(run, &feed, NULL, NULL, fresh, &err), err);
        for (int i = 0; i < 5; i++)
            check_same(&old[i], &fresh[i]);
        stg_run_destroy(run);
        stg_bump_reset(&stage.bump);
    }
    fixture_stage_finish(&stage);
}

static void a_steady_state_allocates_nothing(void)
{
    struct fixture_stage stage;
    struct stg_err err = {0};
    fixture_stage_init(&stage, BUSY);
    struct stg_tensor feeds[8], out[5];
    for (uint64_t k = 0; k < 8; k++)
        feeds[k] = random_batch(&stage.bump, k + 100);
    for (int warm = 0; warm < 20; warm++)
        CHECK_OK(stg_run_exec(stage.run, &feeds[warm % 8], NULL, NULL, out, &err), err);
    stg_failalloc_from(1);
    for (int i = 0; i < 80; i++)
        CHECK_OK(stg_run_exec(stage.run, &feeds[i % 8], NULL, NULL, out, &err), err);
    CHECK_INT(stg_failalloc_off(), 0);
    fixture_stage_finish(&stage);
}

/* ---- threads ---- */

struct worker {
    pthread_t thread;
    const struct stg_graph *graph;
    const struct stg_tensor *feed;
    struct stg_run *run;
    struct stg_tensor outputs[5];
    struct stg_err err;
    int rc;
};

static void *work(void *owner)
{
    struct worker *w = owner;
    w->rc = stg_run_create_stage(w->graph, &w->run, &w->err);
    for (int i = 0; w->rc == 0 && i < 50; i++)
        w->rc = stg_run_exec(w->run, w->feed, NULL, NULL, w->outputs, &w->err);
    return NULL;
}

static void threads_share_a_graph(void)
{
    struct fixture_stage stage;
    fixture_stage_init(&stage, BUSY);
    struct stg_tensor feed = random_batch(&stage.bump, 7);
    struct worker workers[4];
    memset(workers, 0, sizeof(workers));
    for (int i = 0; i < 4; i++) {
        workers[i].graph = stage.graph;
        workers[i].feed = &feed;
        CHECK(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(workers[i].thread, NULL);
        CHECK_OK(workers[i].rc, workers[i].err);
        for (int k = 0; k < 5; k++)
            check_same(&workers[i].outputs[k], &workers[0].outputs[k]);
    }
    for (int i = 0; i < 4; i++)
        stg_run_destroy(workers[i].run);
    fixture_stage_finish(&stage);
}

/* dense_shape is data: it must not decide how much memory stagerd takes. */
static void a_size_in_the_data_takes_no_more_than_the_limit(void)
{
    static const int64_t ids[] = {0, 1}, indices[] = {0, 0, 1, 0};
    int64_t shape[] = {2, 1};
    struct stg_tensor feeds[] = {{.dtype = STAGER_INT64,
                                  .ndim = 1,
                                  .shape = {2},
                                  .data = (void *)ids,
                                  .data_bytes = 16},
                                 {.dtype = STAGER_INT64,
                                  .ndim = 2,
                                  .shape = {2, 2},
                                  .data = (void *)indices,
                                  .data_bytes = 32},
                                 {.dtype = STAGER_INT64,
                                  .ndim = 1,
                                  .shape = {2},
                                  .data = shape,
                                  .data_bytes = 16}};
    struct fixture_stage stage;
    struct stg_err err = {0};
    struct stg_tensor out;
    fixture_stage_init(
        &stage, "element ids int64 [-1]\n"
                "element indices int64 [-1, 2]\n"
                "element shape int64 [2]\n"
                "table = constant() value=[1.0, 2.0, 3.0] dtype=\"float32\"\n"
                "sums = embedding_lookup(table, ids, indices, shape) combiner=\"sum\"\n"
                "feature sums = sums\n");
    stg_run_limit(stage.run, 1 << 20);
    CHECK_OK(stg_run_exec(stage.run, feeds, NULL, NULL, &out, &err), err);
    CHECK_INT(out.shape[0], 2);
    shape[0] = 1 << 16; /* half of it for row_splits, a quarter for the sums */
    CHECK_OK(stg_run_exec(stage.run, feeds, NULL, NULL, &out, &err), err);
    shape[0] = INT64_C(1) << 31;
    CHECK_INT(stg_run_exec(stage.run, feeds, NULL, NULL, &out, &err),
              -STAGER_RESOURCE_EXHAUSTED);
    CHECK_CONTAINS(err.text,
                   "node sums (embedding_lookup): no memory for 2147483648 rows");
    shape[0] = 2;
    CHECK_OK(stg_run_exec(stage.run, feeds, NULL, NULL, &out, &err), err);
    stg_run_limit(stage.run, 4);
    CHECK_INT(stg_run_exec(stage.run, feeds, NULL, NULL, &out, &err),
              -STAGER_RESOURCE_EXHAUSTED);
    fixture_stage_finish(&stage);
}

static const struct stg_test tests[] = {
    TEST(a_size_in_the_data_takes_no_more_than_the_limit),
    TEST(columns_of_a_csv_record_come_out_typed),
    TEST(records_may_lie_anywhere_in_their_buffer),
    TEST(the_program_of_the_seeds_gives_four_rows),
    TEST(a_feature_is_written_once_to_the_place_that_the_sink_gives),
    TEST(constants_cross_the_boundary_as_copies),
    TEST(what_is_staged_twice_lies_in_the_batch_once),
    TEST(without_features_everything_is_copied),
    TEST(a_fetch_of_the_boundary_is_the_batch_itself),
    TEST(what_no_feature_needs_does_not_run),
    TEST(a_control_input_runs_first),
    TEST(an_error_names_node_and_row_and_the_next_batch_is_good),
    TEST(a_full_extent_is_an_error_of_the_node),
    TEST(a_feed_of_another_kind_is_refused),
    TEST(an_executor_gives_each_batch_the_bytes_that_a_new_one_gives),
    TEST(a_steady_state_allocates_nothing),
    TEST(threads_share_a_graph),
};
TEST_MAIN(tests)
