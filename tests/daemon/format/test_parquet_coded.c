/* SPDX-License-Identifier: Apache-2.0
 *
 * Coded strings: batches are those of the same table without dictionaries, byte by byte,
 * whatever steps and ops they go through; and of the same file, when none may be coded.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/dataset/step.h"
#include "daemon/dataset/vocabulary.h"
#include "ops/exec/run.h"
#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"
#include "tests/daemon/format/parquet_table.h"

#define BATCH_BYTES (8u << 20)
#define N_THREADS 4
#define MAX_ITEMS 4096

static int words(int column, uint64_t i, char *to)
{
    static const char *const odd[] = {"", "\xc3\xa4", "a longer word than the others"};
    if (column == 2) /* numbers, some of which are none */
        return sprintf(to, i % 17 == 9 ? "x%d" : "%d", (int)i * 3);
    return i < 3 ? sprintf(to, "%s", odd[i]) : sprintf(to, "w%d", (int)(i * 7919 % 1000));
}

static int numbers(int column, uint64_t i, char *to)
{
    return sprintf(to, "%d", (int)i - 20);
}

static const char columns[] =
    "- parquet: {columns: {id: int64, s0: string, s1: string, s2: string},\n"
    "    defaults: {s0: \"\", s1: none, s2: \"5\"}}\n";

/* Each op that looks results up, and some that do not. */
static const char graph[] =
    "graph:\n"
    "- {name: fast, op: string_to_hash_bucket_fast, input: [s0], num_buckets: 997}\n"
    "- {name: legacy, op: string_to_hash_bucket, input: [s0], num_buckets: 13}\n"
    "- {name: strong, op: string_to_hash_bucket_strong, input: [s1], num_buckets: 101, "
    "key: [7, 9]}\n"
    "- {name: vocabulary, op: vocabulary, file: \"$DIR/words\"}\n"
    "- {name: found, op: lookup, input: [vocabulary, s1], num_oov_buckets: 5}\n"
    "- {name: number, op: string_to_number, input: [s2], out_type: int64}\n"
    "- {name: word, op: constant, value: w73}\n"
    "- {name: same, op: equal, input: [s0, word]}\n"
    "- {name: other, op: not_equal, input: [word, s1]}\n"
    "- {name: alike, op: equal, input: [s0, s1]}\n"
    "- {name: itself, op: identity, input: [s1]}\n"
    "- {name: doubled, op: concat, input: [s0, s1], axis: 0}\n"
    "staged: {features: {id: id, fast: fast, legacy: legacy, strong: strong, found: "
    "found, number: number, same: same, other: other, alike: alike, itself: itself, "
    "doubled: doubled, s0: s0, s2: s2}}\n";

/* ---- a run ---- */

struct running {
    struct stg_pipeline_spec *spec;
    struct stg_bump bump;
    struct stg_schema element;
    struct stg_graph *graph;
    struct stg_vocabularies vocabularies;
    struct stg_dataset *dataset;
    struct stg_block *items[MAX_ITEMS];
    size_t n_items, n_coded, n_strings;
};

static void begin(struct running *r, const char *steps, bool takes_codes)
{
    char text[8192];
    struct stg_err err = {0};
    struct stg_dataset_env env = stg_test_env();
    struct stg_vocabulary_reader reader = {0};
    snprintf(text, sizeof(text),
             "dataset:\n- files: {pattern: \"$DIR/*.parquet\", shuffle: false}\n%s%s",
             steps, graph);
    *r = (struct running){.spec = stg_test_load(text)};
    stg_bump_init(&r->bump, 0);
    CHECK_OK(stg_dataset_infer(r->spec, &r->bump, &r->element, &err), err);
    CHECK_OK(stg_graph_create(r->spec, &r->element, NULL, &r->graph, &err), err);
    CHECK_OK(stg_vocabularies_load(r->graph, &reader, &r->vocabularies, &err), err);
    env.takes_codes = takes_codes;
    env.buffer_bytes = 256u << 20;
    r->dataset = stg_test_open_spec(r->spec, &env);
}

static void pull(struct running *r)
{
    while ((r->items[r->n_items] = stg_test_next(r->dataset)) != NULL) {
        const struct stg_block *item = r->items[r->n_items++];
        CHECK(r->n_items < MAX_ITEMS);
        for (uint32_t c = 0; c < item->n_components; c++) {
            r->n_strings += item->tensors[c].dtype == STAGER_STRING;
            r->n_coded += item->tensors[c].dictionary != NULL;
        }
    }
}

static void end(struct running *r)
{
    for (size_t i = 0; i < r->n_items; i++)
        stg_block_unref(r->items[i]);
    stg_dataset_destroy(r->dataset);
    stg_graph_destroy(r->graph);
    stg_vocabularies_finish(&r->vocabularies);
    stg_bump_finish(&r->bump);
    stg_pipeline_spec_destroy(r->spec);
}

/* Writes the batch of an item, or its error. */
static void put_item(const struct running *r, struct stg_run *run, char *extent,
                     const struct stg_block *item, FILE *to)
{
    struct stg_err err = {.row = -1};
    struct stg_batch_writer writer;
    struct stg_sink sink = stg_sink_of_batch(&writer);
    if (item->error.code != 0) {
        fprintf(to, "error %s\n", item->error.text);
        return;
    }
    CHECK_OK(stg_batch_writer_begin(&writer, extent, BATCH_BYTES,
                                    stg_graph_boundary(r->graph), &err),
             err);
    if (stg_run_exec(run, item->tensors, NULL, &sink, NULL, &err) < 0) {
        fprintf(to, "row %d: %s\n", (int)err.row, err.text);
        return;
    }
    fwrite(extent, 1, stg_batch_writer_seal(&writer), to);
    for (int64_t i = 0; item->rows != NULL && i < item->n_rows; i++)
        fprintf(to, "%d ", (int)item->rows[i].record);
}

struct text {
    const struct running *of;
    char *data;
    size_t bytes;
};

static void *put_all(void *arg)
{
    struct text *text = arg;
    struct stg_err err = {0};
    struct stg_run *run;
    char *extent = aligned_alloc(64, BATCH_BYTES);
    FILE *to = open_memstream(&text->data, &text->bytes);
    memset(extent, 0, BATCH_BYTES);
    CHECK_OK(stg_run_create_stage(text->of->graph, &run, &err), err);
    for (size_t i = 0; i < text->of->n_items; i++)
        put_item(text->of, run, extent, text->of->items[i], to);
    stg_run_destroy(run);
    free(extent);
    fclose(to);
    return NULL;
}

static struct text text_of(const char *steps, bool takes_codes, size_t *ret_coded)
{
    struct running r;
    begin(&r, steps, takes_codes);
    pull(&r);
    struct text text = {.of = &r};
    put_all(&text);
    *ret_coded = r.n_coded;
    end(&r);
    return text;
}

static void check_same(const struct text *got, const struct text *want, const char *what,
                       uint64_t seed)
{
    if (got->bytes != want->bytes || memcmp(got->data, want->data, got->bytes) != 0)
        FAIL("seed %d, %s: %zu and %zu bytes", (int)seed, what, got->bytes, want->bytes);
}

/* ---- the table ---- */

static const struct {
    const char *steps; /* behind the columns */
    bool is_coded;
} rows[] = {
    {"- batch: {batch_size: 7}\n", true},
    {"- repeat: {count: 2}\n- batch: {batch_size: 64}\n", true},
    {"- shuffle: {buffer_size: 40, seed: 3}\n- batch: {batch_size: 16}\n", true},
    {"- shuffle: {buffer_size: 150, seed: 4}\n- batch: {batch_size: 50}\n", true},
    {"- shuffle: {global: true, seed: 5}\n- batch: {batch_size: 5}\n", true},
    {"- batch: {batch_size: 4}\n- shuffle: {buffer_size: 9, seed: 2}\n", true},
    {"- shard: {num_shards: 3, index: 1}\n- skip: {count: 2}\n- take: {count: 200}\n"
     "- batch: {batch_size: 9}\n",
     true},
    {"- enumerate: {}\n- batch: {batch_size: 33}\n- prefetch: {buffer_size: 2}\n", true},
    {"- batch: {batch_size: 31}\n- unbatch: {}\n- batch: {batch_size: 12}\n", true},
    {"- batch: {batch_size: 10}\n- rebatch: {batch_size: 15}\n", true},
    {"- filter: {graph: [{name: h, op: string_to_hash_bucket_fast, input: [s0], "
     "num_buckets: 3}, {name: c, op: constant, value: 1, dtype: int64}, {name: keep, op: "
     "less, input: [h, c]}], predicate: keep}\n- batch: {batch_size: 8}\n",
     true},
    {"- map: {graph: [{name: t, op: identity, input: [s1]}], output: {id: id, s0: s1, "
     "s1: s0, s2: s2, t: t}}\n- batch: {batch_size: 11}\n",
     true},
    {"- padded_batch: {batch_size: 6}\n", false},
    {"- cache: {}\n- repeat: {count: 2}\n- batch: {batch_size: 20}\n", false},
};

static struct stg_test_table table_of(uint64_t seed, int (*entry)(int, uint64_t, char *))
{
    return (struct stg_test_table){.seed = seed,
                                   .n_strings = 3,
                                   .n_groups = 1 + (int)(seed % 4),
                                   .n_rows = seed % 3 == 0 ? 2000 : 60,
                                   .n_entries = seed % 2 == 0 ? 300 : 12,
                                   .has_nulls = seed % 5 != 0,
                                   .falls_back = seed % 3 == 1,
                                   .has_dictionaries = true,
                                   .entry = entry};
}

static void check_row(size_t row, uint64_t seed, int (*entry)(int, uint64_t, char *))
{
    struct stg_test_table table = table_of(seed, entry);
    const char *path = stg_test_path("a.parquet");
    char steps[2048];
    size_t n_coded, n_plain;
    snprintf(steps, sizeof(steps), "%s%s", columns, rows[row].steps);
    stg_test_table_write(&table, path);
    struct text coded = text_of(steps, true, &n_coded);
    struct text strings = text_of(steps, false, &n_plain);
    check_same(&coded, &strings, rows[row].steps, seed);
    CHECK_INT(n_plain, 0);
    /* A batch of rows of two row groups is not coded: these are large. */
    if (seed % 3 == 0 && (n_coded > 0) != rows[row].is_coded)
        FAIL("seed %d, %s: %zu coded", (int)seed, rows[row].steps, n_coded);
    table.has_dictionaries = false;
    stg_test_table_write(&table, path);
    struct text plain = text_of(steps, true, &n_plain);
    CHECK_INT(n_plain, 0);
    check_same(&coded, &plain, rows[row].steps, seed);
    free(coded.data);
    free(strings.data);
    free(plain.data);
}

static void write_words(void)
{
    STG_TEST_FILE("words", "w73\nnone\nw919\nw838\nw1\n");
}

static void batches_are_those_without_dictionaries(void)
{
    write_words();
    for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
        for (uint64_t seed = 1; seed <= 9; seed++)
            check_row(row, seed, seed % 2 == 0 ? words : numbers);
    }
}

/* ---- threads ---- */

static void runners_share_the_results_of_a_dictionary(void)
{
    struct stg_test_table table = table_of(6, numbers);
    struct text texts[N_THREADS];
    pthread_t threads[N_THREADS];
    struct running r;
    char steps[1024];
    write_words();
    snprintf(steps, sizeof(steps), "%s- batch: {batch_size: 50}\n", columns);
    stg_test_table_write(&table, stg_test_path("a.parquet"));
    begin(&r, steps, true);
    pull(&r);
    for (int i = 0; i < N_THREADS; i++) {
        texts[i] = (struct text){.of = &r};
        CHECK_INT(pthread_create(&threads[i], NULL, put_all, &texts[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
        check_same(&texts[i], &texts[0], "threads", 6);
    }
    for (int i = 0; i < N_THREADS; i++)
        free(texts[i].data);
    end(&r);
}

static const struct stg_test tests[] = {
    TEST_SLOW(batches_are_those_without_dictionaries, 120),
    TEST(runners_share_the_results_of_a_dictionary),
};

TEST_MAIN(tests)
