/* SPDX-License-Identifier: Apache-2.0
 *
 * Executors with nodes on a device, compared with the same nodes in host memory: on a
 * GPU, and (the same kernels) as plain C++.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "ops/exec/device.h"
#include "proto/load.h"
#include "tests/check.h"
#include "tests/kernels/host.h"

#define MAX_BLOCKS 64
#define MAX_NODES 16
#define N 37

static struct stg_err err;

/* ---- a graph and its staged tensors ---- */

static struct stg_component components[] = {
    {.name = "x", .dtype = STAGER_FLOAT32, .ndim = 2, .shape = {-1, 3}},
    {.name = "image", .dtype = STAGER_UINT8, .ndim = 4, .shape = {-1, 4, 5, 3}},
    {.name = "ids", .dtype = STAGER_INT64, .ndim = 2, .shape = {-1, 2}},
    {.name = "values", .dtype = STAGER_INT64, .ndim = 1, .shape = {-1}},
    {.name = "splits", .dtype = STAGER_INT64, .ndim = 1, .shape = {-1}},
    {.name = "text", .dtype = STAGER_STRING, .ndim = 1, .shape = {-1}},
};
enum { X, IMAGE, IDS, VALUES, SPLITS, TEXT, N_STAGED };

static const char text[] =
    "name: t\n"
    "dataset: [{files: {pattern: [a]}}, {text_line: {}}]\n"
    "graph:\n"
    "  - {name: log, op: log1p, input: [\"staged:x\"]}\n"
    "  - {name: half, op: cast, input: [log], dtype: float16}\n"
    "  - {name: same, op: cast, input: [log], dtype: float32}\n"
    "  - {name: bucket, op: bucketize, input: [\"staged:x\"], boundaries: [0.5, 1.5, "
    "2]}\n"
    "  - {name: pixels, op: normalize_image, input: [\"staged:image\"], mean: [1, 2, 3],"
    " std: [4, 5, 6]}\n"
    "  - {name: table, op: variable, shape: [50, 4], initializer: random_normal, stddev: "
    "0.3, seed: 7}\n"
    "  - {name: rows, op: embedding_lookup, input: [table, \"staged:ids\"]}\n"
    "  - {name: flat, op: reshape, input: [rows], shape: [-1, 8]}\n"
    "  - {name: fixed, op: constant, value: [[1, 2]], dtype: float32}\n"
    "  - {name: more, op: concat, input: [fixed, fixed, fixed], axis: 1}\n"
    "  - {name: joined, op: concat, input: [flat, \"staged:x\", same], axis: 1}\n"
    "  - {name: piled, op: stack, input: [\"staged:x\", log, log], axis: 1}\n"
    "  - {name: pooled, op: embedding_lookup, input: [table, \"staged:values\", "
    "\"staged:splits\"], combiner: mean}\n"
    "  - {name: through, op: identity, input: [\"staged:x\"]}\n"
    "  - {name: tall, op: concat, input: [\"staged:x\", three], axis: 0}\n"
    "  - {name: three, op: constant, value: [[1, 2, 3], [4, 5, 6]], dtype: float32}\n"
    "  - {name: sum, op: reduce_sum, input: [log], axis: 1}\n"
    "  - {name: rest, op: floormod, input: [log, log]}\n"
    "  - {name: hashed, op: string_to_hash_bucket_fast, input: [\"staged:text\"],"
    " num_buckets: 9}\n"
    "  - {name: grown, op: scatter_add, input: [table, \"staged:values\", ones]}\n"
    "  - {name: ones, op: ones_like, input: [gathered]}\n"
    "  - {name: gathered, op: embedding_lookup, input: [table, \"staged:values\"]}\n"
    "staged:\n"
    "  features: {x: x, image: image, ids: ids, values: values, splits: splits, text: "
    "text}\n"
    "  max_batch_bytes: 1MiB\n";

struct rig {
    const struct bench *bench;
    struct stg_pipeline_spec *spec;
    struct stg_graph *graph, *client;
    struct stg_resources *resources;
    struct stg_tensor staged[N_STAGED];
    void *on_device[N_STAGED];
    int64_t *bad;
    void *blocks[MAX_BLOCKS];
    size_t n_blocks, n_retained;
};

static void rig_feeds(struct rig *rig)
{
    static float x[N * 3];
    static uint8_t image[N * 60];
    static int64_t ids[N * 2], values[N * 3], splits[N + 1], offsets[N + 1];
    static char letters[N];
    host_random(1, image, sizeof(image));
    for (int i = 0; i < N * 3; i++) {
        x[i] = (float)i / 7.0f;
        values[i] = i * 11 % 50;
    }
    for (int i = 0; i < N * 2; i++)
        ids[i] = i * 7 % 50;
    for (int i = 0; i <= N; i++) {
        splits[i] = i < 5 ? 0 : i == N ? N * 3 : i * 2;
        offsets[i] = i;
    }
    memset(letters, 'a', sizeof(letters));
    int64_t two[] = {N, 3}, four[] = {N, 4, 5, 3}, pairs[] = {N, 2}, all[] = {N * 3},
            rows[] = {N + 1}, one[] = {N};
    rig->staged[X] = host_tensor(STAGER_FLOAT32, 2, two, x);
    rig->staged[IMAGE] = host_tensor(STAGER_UINT8, 4, four, image);
    rig->staged[IDS] = host_tensor(STAGER_INT64, 2, pairs, ids);
    rig->staged[VALUES] = host_tensor(STAGER_INT64, 1, all, values);
    rig->staged[SPLITS] = host_tensor(STAGER_INT64, 1, rows, splits);
    rig->staged[TEXT] = host_tensor(STAGER_STRING, 1, one, letters);
    rig->staged[TEXT].data_bytes = N;
    rig->staged[TEXT].begin = offsets;
    rig->staged[TEXT].end = offsets + 1;
    for (int i = 0; i < TEXT; i++)
        rig->on_device[i] =
            bench_up(rig->bench, rig->staged[i].data, (size_t)rig->staged[i].data_bytes);
}

static void rig_init(struct rig *rig, const struct bench *bench)
{
    int64_t none[MAX_NODES];
    struct stg_schema element = {.components = components, .n = N_STAGED};
    *rig = (struct rig){.bench = bench};
    CHECK_OK(stg_load_pipeline(text, sizeof(text) - 1, "test", &rig->spec, &err), err);
    CHECK_OK(stg_graph_create(rig->spec, &element, NULL, &rig->graph, &err), err);
    CHECK_OK(stg_graph_create(rig->spec, NULL, stg_graph_boundary(rig->graph),
                              &rig->client, &err),
             err);
    CHECK_OK(stg_resources_create(rig->client, &rig->resources, &err), err);
    rig_feeds(rig);
    for (int i = 0; i < MAX_NODES; i++)
        none[i] = INT64_MAX;
    rig->bad = bench_up(bench, none, sizeof(none));
}

static void rig_finish(struct rig *rig)
{
    for (size_t i = 0; i < rig->n_blocks; i++)
        bench_free(rig->bench, rig->blocks[i]);
    for (int i = 0; i < TEXT; i++)
        bench_free(rig->bench, rig->on_device[i]);
    bench_free(rig->bench, rig->bad);
    stg_resources_destroy(rig->resources);
    stg_graph_destroy(rig->client);
    stg_graph_destroy(rig->graph);
    stg_pipeline_spec_destroy(rig->spec);
}

/* ---- a launch ---- */

static int rig_alloc(void *owner, size_t bytes, void **ret, struct stg_err *why)
{
    struct rig *rig = owner;
    CHECK(rig->n_blocks < MAX_BLOCKS);
    *ret = rig->blocks[rig->n_blocks++] = bench_room(rig->bench, bytes);
    return 0;
}

static int rig_keep(void *owner, const void *data, size_t bytes, bool is_variable,
                    const void **ret, struct stg_err *why)
{
    struct rig *rig = owner;
    CHECK(rig->n_blocks < MAX_BLOCKS);
    *ret = rig->blocks[rig->n_blocks++] = bench_up(rig->bench, data, bytes);
    rig->n_retained++;
    return 0;
}

static struct stg_run *rig_run(struct rig *rig, const char *const *fetches, size_t n)
{
    struct stg_run *run = NULL;
    CHECK_OK(stg_run_create_compute(rig->client, rig->resources, fetches, n, &run, &err),
             err);
    return run;
}

static int rig_launch(struct rig *rig, struct stg_run *run, struct stg_tensor *outputs)
{
    static const struct stg_key key;
    struct stg_run_device how = {.kernels = rig->bench->kernels,
                                 .owner = rig,
                                 .alloc = rig_alloc,
                                 .keep = rig_keep,
                                 .bad = rig->bad,
                                 .feeds = rig->on_device};
    return stg_run_launch(run, rig->staged, &how, &key, outputs, &err);
}

/* ---- results ---- */

static void check_same(struct rig *rig, const char *name, const struct stg_tensor *host,
                       const struct stg_tensor *there)
{
    CHECK_INT(there->dtype, host->dtype);
    CHECK_INT(there->ndim, host->ndim);
    for (int d = 0; d < host->ndim; d++)
        CHECK_INT(there->shape[d], host->shape[d]);
    void *got = bench_down(rig->bench, there->data, (size_t)there->data_bytes);
    size_t n = (size_t)stg_tensor_n(host);
    if (host->dtype == STAGER_FLOAT32 || host->dtype == STAGER_FLOAT16)
        host_near(name, host->dtype, got, host->data, n, 2);
    else
        host_same(name, host->dtype, got, host->data, n);
    free(got);
}

static void results(struct bench bench)
{
    static const char *const names[] = {"half",   "bucket",  "pixels", "rows", "joined",
                                        "pooled", "through", "same",   "tall", "piled"};
    enum { N_NAMES = sizeof(names) / sizeof(names[0]) };
    struct rig rig;
    struct stg_tensor host[N_NAMES], there[N_NAMES];
    rig_init(&rig, &bench);
    struct stg_run *run = rig_run(&rig, names, N_NAMES);
    CHECK(stg_run_launches(run));
    CHECK(stg_run_n_nodes(run) <= MAX_NODES);
    CHECK_OK(rig_launch(&rig, run, there), err);
    struct stg_run *other = rig_run(&rig, names, N_NAMES);
    CHECK_OK(stg_run_exec(other, rig.staged, NULL, NULL, host, &err), err);
    for (size_t i = 0; i < N_NAMES; i++)
        check_same(&rig, names[i], &host[i], &there[i]);
    CHECK(there[6].data != rig.on_device[X]); /* the fetched tensors outlive the batch */
    stg_run_destroy(run);
    stg_run_destroy(other);
    rig_finish(&rig);
}

static void errors(struct bench bench)
{
    static const char *const names[] = {"rows", "pooled"};
    struct rig rig;
    struct stg_tensor there[2];
    rig_init(&rig, &bench);
    struct stg_run *run = rig_run(&rig, names, 2);
    int64_t *ids = rig.staged[IDS].data, *splits = rig.staged[SPLITS].data, *got;
    ids[9] = 50;
    ids[5] = -1;
    bench_free(&bench, rig.on_device[IDS]);
    rig.on_device[IDS] = bench_up(&bench, ids, (size_t)rig.staged[IDS].data_bytes);
    CHECK_OK(rig_launch(&rig, run, there), err);
    got = bench_down(&bench, rig.bad, MAX_NODES * sizeof(*got));
    char name[64];
    for (size_t s = 0; s < stg_run_n_nodes(run); s++) {
        bool is_rows = strcmp(stg_run_node_text(run, s, name, sizeof(name)),
                              "rows (embedding_lookup)") == 0;
        CHECK_INT(got[s], is_rows ? 5 : INT64_MAX);
    }
    free(got);
    splits[7] = 1 << 20;
    CHECK_INT(rig_launch(&rig, run, there), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "node pooled (embedding_lookup): row_splits");
    stg_run_destroy(run);
    rig_finish(&rig);
}

#define EACH(X) X(results) X(errors)

#define DEFINE(name)                                                                     \
    static void name##_are_those_of_the_host_in_c(void)                                  \
    {                                                                                    \
        name(bench_emulated());                                                          \
    }                                                                                    \
    static void name##_are_those_of_the_host_on_the_gpu(void)                            \
    {                                                                                    \
        name(bench_gpu());                                                               \
    }
EACH(DEFINE)
#define LIST(name)                                                                       \
    TEST(name##_are_those_of_the_host_in_c),                                             \
        TEST(name##_are_those_of_the_host_on_the_gpu),

/* ---- nodes that can run on a device ---- */

static void check_launches(const char *name, bool can)
{
    struct bench bench = {.device = stg_device_cpu()};
    struct rig rig;
    rig_init(&rig, &bench);
    struct stg_run *run = rig_run(&rig, &name, 1);
    if (stg_run_launches(run) != can)
        FAIL("%s %s", name, can ? "cannot" : "can");
    stg_run_destroy(run);
    rig_finish(&rig);
}

static void what_has_no_kernel_stays_on_the_host(void)
{
    check_launches("rows", true);
    check_launches("sum", true);
    check_launches("rest", false);     /* has no kernel */
    check_launches("hashed", false);   /* strings stay on the host */
    check_launches("staged:x", false); /* not a node */
    check_launches("more", false);     /* a constant */
    check_launches("table", false);    /* a variable */
    check_launches("grown", false);    /* writes a variable */
}

static void note(void *owner, const void *data)
{
    const void **ret = owner;
    *ret = data;
}

static void what_is_written_is_named(void)
{
    struct bench bench = {.device = stg_device_cpu()};
    static const char *const grown = "grown", *const table = "table";
    struct rig rig;
    struct stg_tensor variable;
    const void *written = NULL;
    rig_init(&rig, &bench);
    struct stg_run *reads = rig_run(&rig, &table, 1);
    CHECK(!stg_run_writes(reads));
    CHECK_OK(stg_run_exec(reads, rig.staged, NULL, NULL, &variable, &err), err);
    stg_run_each_written(reads, note, &written);
    CHECK(written == NULL);
    struct stg_run *writes = rig_run(&rig, &grown, 1);
    CHECK(stg_run_writes(writes));
    stg_run_each_written(writes, note, &written);
    CHECK(written == variable.data);
    stg_run_destroy(reads);
    stg_run_destroy(writes);
    rig_finish(&rig);
}

static const struct stg_test tests[] = {
    EACH(LIST) TEST(what_has_no_kernel_stays_on_the_host),
    TEST(what_is_written_is_named),
};

TEST_MAIN(tests)
