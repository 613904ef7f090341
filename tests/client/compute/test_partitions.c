/* SPDX-License-Identifier: Apache-2.0
 *
 * Every legal partition of a graph gives the same bytes. The test takes every legal
 * partition of every example, and of a graph with one node of each kind. Each client's
 * fields and fetches must have the bytes of the default boundary. Both sides run in this
 * process: the stage's executor writes a batch at rest, and the table of
 * libstager-compute reads it. STAGER_SOURCE is the top of the tree.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/compute/compute.h"
#include "ops/exec/run.h"
#include "proto/load.h"
#include "tests/check.h"
#include "tests/client/compute/models.golden.h"

#define N_CLICKS (sizeof(clicks) / sizeof(clicks[0]))
#define MAX_ROWS 64
#define MAX_SETS 4096
#define MAX_FETCHES 8
#define BATCH_BYTES (1u << 20)

extern const struct stg_compute stager_compute;

static const struct stg_key key = {.pass = 3, .epoch = 2, .index = 5};

struct sides {
    struct stg_pipeline_spec *spec;
    struct stg_graph *graph;
    struct stg_partitions *partitions;
    struct stg_compute_graph *client;
    struct stg_tensor record;
    char *batch; /* at rest, at the default boundary */
};

/* ---- rows ---- */

static void add_row(struct stg_tensor *record, const char *line)
{
    int64_t *offsets = (int64_t *)(uintptr_t)record->begin;
    size_t bytes = strlen(line);
    CHECK(record->shape[0] < MAX_ROWS);
    memcpy((char *)record->data + record->data_bytes, line, bytes);
    record->data_bytes += bytes;
    offsets[++record->shape[0]] = (int64_t)record->data_bytes;
}

static void rows_of(const char *name, struct stg_tensor *ret)
{
    static int64_t offsets[MAX_ROWS + 1];
    static char data[16384];
    *ret = (struct stg_tensor){.dtype = STAGER_STRING,
                               .ndim = 1,
                               .data = data,
                               .begin = offsets,
                               .end = offsets + 1};
    if (strcmp(name, "seed_staged") == 0) {
        add_row(ret, "user3,item81");
        add_row(ret, "user4,item100");
    } else if (strcmp(name, "criteo_lr") == 0) {
        for (int i = 0; i < 3; i++) {
            char line[512] = "1";
            for (int k = 0; k < 39; k++)
                snprintf(line + strlen(line), sizeof(line) - strlen(line), ",%d",
                         k * 7 + i);
            add_row(ret, line);
        }
    } else if (strcmp(name, "everything") == 0) {
        add_row(ret, "a,x/y,1.5,7");
        add_row(ret, "bb,uu/v,-2.25,8");
        add_row(ret, "a,/,0.5,-9");
    } else {
        for (size_t i = 0; i < N_CLICKS; i++)
            add_row(ret, clicks[i]);
    }
}

/* ---- both sides ---- */

static uint64_t stage_batch(const struct sides *sides,
                            const struct stg_partition *partition, struct stg_run *run,
                            char *base);

static void sides_init(struct sides *sides, const char *text, size_t bytes)
{
    struct stg_err err = {0};
    struct stg_run *run;
    *sides = (struct sides){0};
    CHECK_OK(stg_load_pipeline(text, bytes, "test", &sides->spec, &err), err);
    rows_of(sides->spec->name, &sides->record);
    struct stg_component record = {
        .name = "record", .dtype = STAGER_STRING, .ndim = 1, .shape = {-1}};
    if (strcmp(sides->spec->name, "seed_staged") == 0)
        record.shape[0] = 2;
    struct stg_schema element = {.components = &record, .n = 1};
    CHECK_OK(stg_graph_create(sides->spec, &element, NULL, &sides->graph, &err), err);
    CHECK_OK(stg_partitions_create(sides->graph, &sides->partitions, &err), err);
    CHECK_OK(stager_compute.create(sides->spec, stg_graph_boundary(sides->graph), 3, 2,
                                   &sides->client, &err),
             err);
    sides->batch = aligned_alloc(64, BATCH_BYTES);
    CHECK(sides->batch != NULL);
    CHECK_OK(stg_run_create_stage(sides->graph, &run, &err), err);
    stage_batch(sides, NULL, run, sides->batch);
    stg_run_destroy(run);
}

static void sides_finish(struct sides *sides)
{
    free(sides->batch);
    stager_compute.destroy(sides->client);
    stg_partitions_destroy(sides->partitions);
    stg_graph_destroy(sides->graph);
    stg_pipeline_spec_destroy(sides->spec);
}

/* ---- the stage side ---- */

static uint64_t stage_batch(const struct sides *sides,
                            const struct stg_partition *partition, struct stg_run *run,
                            char *base)
{
    struct stg_err err = {0};
    struct stg_batch_writer writer;
    struct stg_sink sink = stg_sink_of_batch(&writer);
    const struct stg_schema *schema = partition != NULL
                                          ? stg_partition_schema(partition)
                                          : stg_graph_boundary(sides->graph);
    CHECK_OK(stg_batch_writer_begin(&writer, base, BATCH_BYTES, schema, &err), err);
    CHECK_OK(stg_run_exec(run, &sides->record, &key, &sink, NULL, &err), err);
    uint64_t bytes = stg_batch_writer_seal(&writer);
    CHECK_OK(stg_batch_check(base, bytes, true, &err), err);
    return bytes;
}

/* ---- the trainer's side ---- */

struct outputs {
    struct stg_compute_executor *executor;
    struct stg_tensor tensors[MAX_FETCHES];
};

/* Returns the part of the batch beyond the boundary, found as in client/run/run.c. */
static void find_carried(const struct sides *sides, const char *base,
                         struct stg_schema *carried, struct stg_tensor *values)
{
    const struct stg_schema *slots = stg_partitions_slots(sides->partitions);
    for (size_t i = stg_graph_boundary(sides->graph)->n; i < slots->n; i++) {
        int at = stg_batch_find(base, slots->components[i].name);
        if (at < 0)
            continue;
        carried->components[carried->n] = slots->components[i];
        stg_batch_tensor_at(base, (uint32_t)at, &values[carried->n++], NULL);
    }
}

static void compute(const struct sides *sides, const char *base,
                    const char *const *fetches, size_t n, struct outputs *ret)
{
    const struct stg_schema *boundary = stg_graph_boundary(sides->graph);
    size_t n_slots = stg_partitions_slots(sides->partitions)->n;
    struct stg_err err = {0};
    struct stg_schema none = {0}, carried = {0};
    carried.components = calloc(n_slots + 1, sizeof(*carried.components));
    struct stg_tensor *values = calloc(n_slots + 1, sizeof(*values));
    struct stg_tensor *staged = calloc(boundary->n + 1, sizeof(*staged));
    CHECK(carried.components != NULL && values != NULL && staged != NULL);
    find_carried(sides, base, &carried, values);
    CHECK_OK(stager_compute.prepare(sides->client, &none, &carried, fetches, n,
                                    &ret->executor, &err),
             err);
    for (size_t i = 0; i < boundary->n; i++) {
        int at = stg_batch_find(base, boundary->components[i].name);
        if (stager_compute.needs(ret->executor, i) && at < 0)
            FAIL("%s: \"staged:%s\" is needed and was not carried", sides->spec->name,
                 boundary->components[i].name);
        if (at >= 0)
            stg_batch_tensor_at(base, (uint32_t)at, &staged[i], NULL);
    }
    struct stg_compute_key same = {
        .seed = key.seed, .pass = key.pass, .epoch = key.epoch, .index = key.index};
    CHECK_OK(stager_compute.run(ret->executor, staged, NULL, values, NULL, &same,
                                ret->tensors, &err),
             err);
    free(carried.components);
    free(values);
    free(staged);
}

static void check_same(const struct sides *sides, const char *what,
                       const struct stg_tensor *a, const struct stg_tensor *b)
{
    int64_t n = stg_tensor_n(a);
    bool same = a->dtype == b->dtype && a->ndim == b->ndim &&
                memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof(a->shape[0])) == 0;
    if (same && a->dtype != STAGER_STRING)
        same = memcmp(a->data, b->data, (size_t)n * stg_dtype_bytes(a->dtype)) == 0;
    for (int64_t i = 0; same && a->dtype == STAGER_STRING && i < n; i++) {
        size_t bytes = (size_t)(a->end[i] - a->begin[i]);
        same = b->end[i] - b->begin[i] == a->end[i] - a->begin[i] &&
               memcmp((char *)a->data + a->begin[i], (char *)b->data + b->begin[i],
                      bytes) == 0;
    }
    if (!same)
        FAIL("%s: %s is another than at the boundary as it is written", sides->spec->name,
             what);
}

/* ---- one client ---- */

struct client {
    struct stg_partition_wanted wanted;
    struct stg_partition_needs *needs;
};

static void client_check(const struct sides *sides, const struct client *client,
                         const char *base)
{
    const struct stg_schema *boundary = stg_graph_boundary(sides->graph);
    const struct stg_partition_wanted *wanted = &client->wanted;
    const char *const *fetches =
        wanted->has_fetches ? wanted->fetches : sides->spec->targets;
    size_t n = wanted->has_fetches ? wanted->n_fetches : sides->spec->n_targets;
    for (size_t i = 0; i < boundary->n; i++) {
        const char *name = boundary->components[i].name;
        struct stg_tensor got, want;
        bool asked = !wanted->has_fields;
        for (size_t k = 0; k < wanted->n_fields; k++)
            asked = asked || strcmp(wanted->fields[k], name) == 0;
        if (!asked)
            continue;
        CHECK(stg_batch_find(base, name) >= 0);
        stg_batch_tensor_at(base, (uint32_t)stg_batch_find(base, name), &got, NULL);
        stg_batch_tensor_at(sides->batch, (uint32_t)i, &want, NULL);
        check_same(sides, name, &got, &want);
    }
    struct outputs got, want;
    if (n == 0)
        return;
    compute(sides, base, fetches, n, &got);
    compute(sides, sides->batch, fetches, n, &want);
    for (size_t i = 0; i < n; i++)
        check_same(sides, fetches[i], &got.tensors[i], &want.tensors[i]);
    stager_compute.discard(got.executor);
    stager_compute.discard(want.executor);
}

/* ---- all partitions ---- */

static void check_partition(const struct sides *sides, const struct client *clients,
                            size_t n, const struct stg_partition_needs *const *needs,
                            const bool *moved, bool is_wide)
{
    struct stg_err err = {0};
    struct stg_partition *partition;
    struct stg_run *run;
    char *base = aligned_alloc(64, BATCH_BYTES);
    CHECK(base != NULL);
    CHECK_OK(stg_partitions_check(sides->partitions, needs, n, moved, &err), err);
    CHECK_OK(stg_partition_create(sides->partitions, needs, n, moved, is_wide, &partition,
                                  &err),
             err);
    CHECK_OK(stg_run_create_partition(partition, &run, &err), err);
    for (int round = 0; round < 2; round++)
        stage_batch(sides, partition, run, base);
    for (size_t i = 0; i < n; i++) {
        CHECK(stg_partition_suffices(partition, needs[i]));
        client_check(sides, &clients[i], base);
    }
    stg_run_destroy(run);
    stg_partition_destroy(partition);
    free(base);
}

/* Returns the number of partitions. */
static size_t check_all_partitions(const struct sides *sides, struct client *clients,
                                   size_t n)
{
    const struct stg_partition_needs *needs[4];
    struct stg_err err = {0};
    size_t n_nodes = stg_partitions_n_nodes(sides->partitions);
    bool *sets = calloc(MAX_SETS * n_nodes + 1, sizeof(*sets));
    CHECK(sets != NULL && n <= 4);
    for (size_t i = 0; i < n; i++) {
        CHECK_OK(stg_partition_needs_create(sides->partitions, &clients[i].wanted,
                                            &clients[i].needs, &err),
                 err);
        needs[i] = clients[i].needs;
    }
    size_t n_sets = stg_partitions_enumerate(sides->partitions, needs, n, sets, MAX_SETS);
    for (size_t i = 0; i < n_sets; i++) {
        check_partition(sides, clients, n, needs, sets + i * n_nodes, true);
        check_partition(sides, clients, n, needs, sets + i * n_nodes, false);
    }
    for (size_t i = 0; i < n; i++)
        stg_partition_needs_destroy(clients[i].needs);
    free(sets);
    return n_sets;
}

/* Tests clients of every kind, alone and together. Returns the number of partitions of
 * the default client.
 */
static size_t check_pipeline(const char *text, size_t bytes, const char *inner)
{
    struct sides sides;
    sides_init(&sides, text, bytes);
    const char *field = stg_graph_boundary(sides.graph)->components[0].name;
    const struct stg_partition_wanted all = {0},
                                      none = {.has_fields = true, .has_fetches = true},
                                      compute_alone = {.has_fields = true},
                                      fields_alone = {.has_fetches = true},
                                      one = {.has_fields = true,
                                             .fields = &field,
                                             .n_fields = 1,
                                             .has_fetches = true},
                                      half_way = {.has_fields = true,
                                                  .has_fetches = true,
                                                  .fetches = &inner,
                                                  .n_fetches = 1};
    const struct stg_partition_wanted kinds[] = {all, none, compute_alone, fields_alone,
                                                 one};
    for (size_t i = 1; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        check_all_partitions(&sides, &(struct client){.wanted = kinds[i]}, 1);
    struct client pair[] = {{.wanted = one}, {.wanted = compute_alone}};
    check_all_partitions(&sides, pair, 2);
    if (inner != NULL) {
        struct client three[] = {
            {.wanted = half_way}, {.wanted = compute_alone}, {.wanted = one}};
        check_all_partitions(&sides, three, 1);
        check_all_partitions(&sides, three, 3);
    }
    size_t n = check_all_partitions(&sides, &(struct client){.wanted = all}, 1);
    sides_finish(&sides);
    return n;
}

/* ---- tests ---- */

static size_t check_example(const char *name, const char *inner)
{
    static char text[STG_TEXT_MAX_BYTES];
    char path[1024];
    snprintf(path, sizeof(path), STAGER_SOURCE "/examples/%s.yaml.in", name);
    FILE *in = fopen(path, "re");
    CHECK(in != NULL);
    size_t n = fread(text, 1, sizeof(text), in);
    fclose(in);
    for (char *at = text; (at = strstr(at, "@")) != NULL && at < text + n;) {
        /* values that the user supplies: any number works */
        char *end = strchr(at + 1, '@');
        memset(at, '1', (size_t)(end - at + 1));
    }
    return check_pipeline(text, n, inner);
}

static void every_partition_of_the_first_design_gives_the_same(void)
{
    /* bucket, longer, pair: pair requires longer. */
    CHECK_INT(check_example("seed_staged", "bucket"), 6);
}

static void every_partition_of_every_model_gives_the_same(void)
{
    check_example("models/deepfm", NULL);
    check_example("models/dien", NULL);
    check_example("models/din", NULL);
    check_example("models/dlrm", NULL);
    check_example("models/dssm", NULL);
    check_example("criteo_lr", NULL);
}

/* One node of each kind: identical nodes, control edges, several outputs, constants, a
 * tensor that crosses at half its width, strings, a fetch that is a feature, an op that
 * draws random numbers, one that does not move. */
static const char everything[] =
    "name: everything\n"
    "dataset:\n  - files: {pattern: [x]}\n  - text_line: {}\n"
    "  - batch: {batch_size: 3}\n"
    "graph:\n"
    "  - {name: v, op: decode_csv, input: [record], record_defaults: [\"\", \"\", 0.0, "
    "0]}\n"
    "  - {name: id, op: cast, input: [\"v:3\"], dtype: int64}\n"
    "  - {name: a, op: string_to_hash_bucket_fast, input: [\"staged:word\"], "
    "num_buckets: 9}\n"
    "  - {name: b, op: string_to_hash_bucket_fast, input: [\"staged:word\"], "
    "num_buckets: 9}\n"
    "  - {name: parts, op: decode_csv, input: [\"staged:pair\"], record_defaults: [\"\", "
    "\"\"],"
    " field_delim: \"/\"}\n"
    "  - {name: left, op: string_to_hash_bucket_fast, input: [parts], num_buckets: 5}\n"
    "  - {name: right, op: string_to_hash_bucket_fast, input: [\"parts:1\"], "
    "num_buckets: 5}\n"
    "  - {name: one, op: constant, value: 1, dtype: int64}\n"
    "  - {name: more, op: add, input: [left, one]}\n"
    "  - {name: wide, op: add, input: [\"staged:id\", a]}\n"
    "  - {name: square, op: multiply, input: [\"staged:x\", \"staged:x\"]}\n"
    "  - {name: waits, op: add, input: [b, more, \"^square\"]}\n"
    "  - {name: late, op: sleep, input: [waits], sleep_microseconds: 1}\n"
    "  - {name: table, op: variable, shape: [64, 2], initializer: random_normal, seed: "
    "3}\n"
    "  - {name: rows, op: embedding_lookup, input: [table, a]}\n"
    "  - {name: other, op: embedding_lookup, input: [table, b, \"^late\"]}\n"
    "  - {name: zero, op: constant, value: -100, dtype: int64}\n"
    "  - {name: fine, op: greater, input: [wide, zero]}\n"
    "  - {name: checked, op: assert, input: [fine, right]}\n"
    "  - {name: third, op: embedding_lookup, input: [table, checked]}\n"
    "staged:\n"
    "  features: {word: \"v:0\", pair: \"v:1\", x: \"v:2\", id: id}\n"
    "  transfer_dtypes: {id: int32, x: bfloat16}\n"
    "  max_batch_bytes: 1MiB\n"
    "targets: [rows, other, third, \"staged:x\"]\n"
    "smart_stage: on\n";

static void every_partition_of_one_of_everything_gives_the_same(void)
{
    size_t n = check_pipeline(everything, sizeof(everything) - 1, "more");
    CHECK(n > 50 && n < MAX_SETS);
}

static const struct stg_test tests[] = {
    TEST(every_partition_of_the_first_design_gives_the_same),
    TEST(every_partition_of_every_model_gives_the_same),
    TEST(every_partition_of_one_of_everything_gives_the_same),
};
TEST_MAIN(tests)
