/* SPDX-License-Identifier: Apache-2.0
 *
 * Criteo-like records as tf.train.Example, in memory, to tensors in a batch at rest by
 * parse_example: label and 13 integers, 26 strings of 8 hexadecimal digits, with the real
 * rate of missing values. Strings hashed, strings as strings, the keys of each record in
 * another order, and only a fifth of the features. The variants take turns, and the best
 * round of each counts. Rates are per second of CPU, of one thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "tests/bench/bench.h"
#include "tests/bench/criteo.h"
#include "tests/bench/criteo_example.h"
#include "tests/ops/fixture.h"

#define BATCH_ROWS 4096
#define N_BATCHES 8
#define EXTENT_BYTES (16u << 20)

/* ---- records ---- */

struct records {
    struct stg_tensor batches[N_BATCHES];
    uint64_t bytes;
};

static void make_records(bool shuffled, struct records *ret)
{
    uint64_t state = 20240607;
    *ret = (struct records){0};
    for (int b = 0; b < N_BATCHES; b++) {
        uint8_t *data = malloc((size_t)BATCH_ROWS * CRITEO_MAX_EXAMPLE_BYTES);
        int64_t *offsets = malloc((BATCH_ROWS + 1) * sizeof(*offsets)), at = 0;
        if (data == NULL || offsets == NULL)
            bench_die("out of memory");
        for (int i = 0; i < BATCH_ROWS; i++) {
            offsets[i] = at;
            at += (int64_t)criteo_example(&state, shuffled, data + at);
        }
        offsets[BATCH_ROWS] = at;
        ret->bytes += (uint64_t)at;
        ret->batches[b] = (struct stg_tensor){.dtype = STAGER_STRING,
                                              .ndim = 1,
                                              .shape = {BATCH_ROWS},
                                              .data = data,
                                              .data_bytes = (uint64_t)at,
                                              .begin = offsets,
                                              .end = offsets + 1};
    }
}

/* ---- graphs ---- */

static void graph_text(char *text, size_t bytes, int step, bool hashed)
{
    FILE *to = fmemopen(text, bytes, "w");
    if (to == NULL)
        bench_die("no memory for the text of a graph");
    fprintf(to, "element record string [-1]\n"
                "p = parse_example(record) features/label/dtype=\"int64\"");
    for (int i = 1; i <= CRITEO_NUMBERS; i += step)
        fprintf(to,
                " features/I%d/dtype=\"int64\" "
                "features/I%d/default_value=0",
                i, i);
    for (int i = 1; i <= CRITEO_STRINGS; i += step)
        fprintf(to,
                " features/C%d/dtype=\"string\" "
                "features/C%d/default_value=\"\"",
                i, i);
    fprintf(to, "\nfeature label = p:label\n");
    for (int i = 1; i <= CRITEO_NUMBERS; i += step)
        fprintf(to, "feature I%d = p:I%d\n", i, i);
    for (int i = 1; i <= CRITEO_STRINGS; i += step) {
        if (hashed)
            fprintf(to, "h%d = string_to_hash_bucket_fast(p:C%d) num_buckets=1000000\n",
                    i, i);
        fprintf(to, hashed ? "feature C%d = h%d\n" : "feature C%d = p:C%d\n", i, i);
    }
    fclose(to);
}

struct contestant {
    const char *name;
    const struct records *records;
    int step;
    bool hashed;
    struct fixture fx;
    struct stg_graph *graph;
    struct stg_run *run;
    double rows_per_s;
};

static void contestant_init(struct contestant *c)
{
    static char text[16384];
    struct stg_err err = {0};
    graph_text(text, sizeof(text), c->step, c->hashed);
    if (fixture_parse(&c->fx, text, &err) < 0 ||
        stg_graph_create(&c->fx.spec, &c->fx.element, NULL, &c->graph, &err) < 0 ||
        stg_run_create_stage(c->graph, &c->run, &err) < 0)
        bench_die("%s", err.text);
}

static void contestant_finish(struct contestant *c)
{
    stg_run_destroy(c->run);
    stg_graph_destroy(c->graph);
    fixture_finish(&c->fx);
}

/* ---- running ---- */

static void run_once(struct contestant *c, void *memory)
{
    struct stg_batch_writer writer;
    struct stg_sink sink = stg_sink_of_batch(&writer);
    struct stg_err err = {0};
    uint64_t began = stg_thread_cpu_ns();
    for (int b = 0; b < N_BATCHES; b++) {
        if (stg_batch_writer_begin(&writer, memory, EXTENT_BYTES,
                                   stg_graph_boundary(c->graph), &err) < 0 ||
            stg_run_exec(c->run, &c->records->batches[b], NULL, &sink, NULL, &err) < 0)
            bench_die("%s", err.text);
        stg_batch_writer_seal(&writer);
    }
    double rate = N_BATCHES * BATCH_ROWS * 1e9 / (double)(stg_thread_cpu_ns() - began);
    c->rows_per_s = rate > c->rows_per_s ? rate : c->rows_per_s;
}

int main(int argc, char **argv)
{
    struct bench_options options;
    bench_options_parse(argc, argv, 4.0, "Criteo-like tf.train.Examples to tensors.",
                        &options);
    static struct records ordered, shuffled;
    make_records(false, &ordered);
    make_records(true, &shuffled);
    struct contestant all[] = {
        {.name = "hashed", .records = &ordered, .step = 1, .hashed = true},
        {.name = "strings", .records = &ordered, .step = 1},
        {.name = "shuffled", .records = &shuffled, .step = 1, .hashed = true},
        {.name = "a fifth", .records = &ordered, .step = 5, .hashed = true},
    };
    size_t n = sizeof(all) / sizeof(all[0]);
    void *memory = aligned_alloc(65536, EXTENT_BYTES);
    if (memory == NULL)
        bench_die("out of memory");
    memset(memory, 1, EXTENT_BYTES);
    for (size_t i = 0; i < n; i++)
        contestant_init(&all[i]);
    uint64_t end = bench_now_ns() + (uint64_t)(options.seconds * 1e9);
    do {
        for (size_t i = 0; i < n; i++)
            run_once(&all[i], memory);
    } while (bench_now_ns() < end);

    double row_bytes = (double)ordered.bytes / (N_BATCHES * BATCH_ROWS);
    printf("batches of %d records, %.0f bytes a record\n", BATCH_ROWS, row_bytes);
    for (size_t i = 0; i < n; i++)
        printf("%-10s %7.3f million rows/s a core\n", all[i].name,
               all[i].rows_per_s / 1e6);
    if (options.json)
        printf("{\"bench\": \"example\", \"rows_per_s\": %.0f, \"bytes_per_s\": %.0f, "
               "\"record_bytes\": %.0f, \"strings_rows_per_s\": %.0f, "
               "\"shuffled_rows_per_s\": %.0f, \"fifth_rows_per_s\": %.0f, "
               "\"ratio\": %.3f}\n",
               all[0].rows_per_s, all[0].rows_per_s * row_bytes, row_bytes,
               all[1].rows_per_s, all[2].rows_per_s, all[3].rows_per_s,
               all[2].rows_per_s / all[0].rows_per_s);
    for (size_t i = 0; i < n; i++)
        contestant_finish(&all[i]);
    for (int b = 0; b < N_BATCHES; b++) {
        free(ordered.batches[b].data);
        free((void *)(uintptr_t)ordered.batches[b].begin);
        free(shuffled.batches[b].data);
        free((void *)(uintptr_t)shuffled.batches[b].begin);
    }
    free(memory);
    return 0;
}
