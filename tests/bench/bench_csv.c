/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows like Criteo's (label, 13 numbers such as "260.0", 26 strings of 8 hexadecimal
 * digits, empty as often as in the real ones) from records in memory to tensors in a
 * batch at rest, on one core: decode_csv alone, and with its strings hashed. The ratio is
 * to strsep + strtol + strtof over the same rows, with the strings copied into columns.
 * They take turns, the best round of each counts, in time of this thread on a core: a
 * busy machine makes rounds longer, not slower.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/bench/bench.h"
#include "tests/ops/fixture.h"

#define N_NUMBERS 13
#define N_STRINGS 26
#define BATCH_ROWS 4096
#define N_BATCHES 16
#define MAX_ROW_BYTES 512
#define N_BUCKETS 1000000

/* In percent, of criteo_sample.txt. */
static const uint8_t empty_numbers[N_NUMBERS] = {45, 0, 17, 17, 3,  26, 5,
                                                 0,  5, 45, 5,  79, 17};
static const uint8_t empty_strings[N_STRINGS] = {
    0, 0, 4, 4, 0, 16, 0, 0, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 41, 41, 4, 80, 0, 4, 41, 41};
/* The numbers are below a power of ten that is drawn up to this one. */
static const uint8_t digits[N_NUMBERS] = {2, 3, 3, 2, 6, 3, 2, 2, 3, 1, 2, 1, 2};

struct rows {
    struct stg_tensor batches[N_BATCHES];
    uint64_t bytes; /* of all batches, without the newlines */
};

/* ---- rows ---- */

static uint64_t random_state = 20240607;

static uint64_t random_below(uint64_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (random_state >> 11) % n;
}

static size_t make_row(char *to)
{
    size_t at = (size_t)sprintf(to, "%d", random_below(100) < 26);
    for (int i = 0; i < N_NUMBERS; i++) {
        to[at++] = ',';
        if (random_below(100) < empty_numbers[i])
            continue;
        unsigned limit = 1;
        for (uint64_t d = 1 + random_below(digits[i]); d > 0; d--)
            limit *= 10;
        int value = (int)random_below(limit);
        /* The second one is written as an integer, and may be -1. */
        at += (size_t)(i == 1 ? sprintf(to + at, "%d", random_below(10) == 0 ? -1 : value)
                              : sprintf(to + at, "%d.0", value));
    }
    for (int i = 0; i < N_STRINGS; i++) {
        to[at++] = ',';
        if (random_below(100) >= empty_strings[i])
            at += (size_t)sprintf(to + at, "%08x", (unsigned)random_below(1ull << 32));
    }
    return at;
}

static void make_rows(struct rows *rows)
{
    for (int k = 0; k < N_BATCHES; k++) {
        char *data = malloc(BATCH_ROWS * MAX_ROW_BYTES);
        int64_t *begin = malloc(2 * BATCH_ROWS * sizeof(*begin)), *end;
        if (data == NULL || begin == NULL)
            bench_die("out of memory");
        end = begin + BATCH_ROWS;
        size_t at = 0;
        for (int i = 0; i < BATCH_ROWS; i++) {
            size_t n = make_row(data + at);
            begin[i] = (int64_t)at;
            end[i] = (int64_t)(at + n);
            rows->bytes += n;
            at += n;
            data[at++] = '\n';
        }
        rows->batches[k] = (struct stg_tensor){.dtype = STAGER_STRING,
                                               .ndim = 1,
                                               .shape = {BATCH_ROWS},
                                               .data = data,
                                               .data_bytes = at,
                                               .begin = begin,
                                               .end = end};
    }
}

static void free_rows(struct rows *rows)
{
    for (int k = 0; k < N_BATCHES; k++) {
        free(rows->batches[k].data);
        free((void *)(uintptr_t)rows->batches[k].begin);
    }
}

/* ---- stager ---- */

struct extent {
    struct stg_batch_writer writer;
    void *memory;
    size_t bytes;
};

static int sink_alloc(void *owner, size_t i, int dtype, int ndim, const int64_t *shape,
                      uint64_t string_bytes, struct stg_tensor *ret, struct stg_err *err)
{
    struct extent *extent = owner;
    return stg_batch_writer_alloc(&extent->writer, (uint32_t)i, dtype, ndim, shape,
                                  string_bytes, ret, err);
}

static int sink_copy(void *owner, size_t i, const struct stg_tensor *tensor,
                     struct stg_err *err)
{
    struct extent *extent = owner;
    return stg_batch_writer_copy(&extent->writer, (uint32_t)i, tensor, err);
}

static void graph_text(char *text, size_t bytes, bool hashed)
{
    FILE *to = fmemopen(text, bytes, "w");
    if (to == NULL)
        bench_die("no memory for the text of a graph");
    fprintf(to, "element record string [-1]\n"
                "columns = decode_csv(record) record_defaults=[0");
    for (int i = 0; i < N_NUMBERS; i++)
        fprintf(to, ", 0.0");
    for (int i = 0; i < N_STRINGS; i++)
        fprintf(to, ", \"\"");
    fprintf(to, "]\nfeature label = columns:0\n");
    for (int i = 0; i < N_NUMBERS; i++)
        fprintf(to, "feature I%d = columns:%d\n", i + 1, i + 1);
    for (int i = 0; i < N_STRINGS; i++) {
        int k = N_NUMBERS + 1 + i;
        if (hashed)
            fprintf(to,
                    "ids%d = string_to_hash_bucket_fast(columns:%d) "
                    "num_buckets=%d\nfeature C%d = ids%d\n",
                    i, k, N_BUCKETS, i + 1, i);
        else
            fprintf(to, "feature C%d = columns:%d\n", i + 1, k);
    }
    fclose(to);
}

static uint64_t batch_once(struct stg_run *run, const struct stg_schema *schema,
                           const struct stg_tensor *feed, struct extent *extent)
{
    struct stg_err err = {0};
    struct stg_sink sink = {.owner = extent, .alloc = sink_alloc, .copy = sink_copy};
    if (stg_batch_writer_begin(&extent->writer, extent->memory, extent->bytes, schema,
                               &err) < 0 ||
        stg_run_exec(run, feed, NULL, &sink, NULL, &err) < 0)
        bench_die("%s", err.text);
    return stg_batch_writer_seal(&extent->writer);
}

struct stager {
    struct fixture fx;
    struct stg_graph *graph;
    struct stg_run *run;
    struct extent extent;
    uint64_t batch_bytes; /* of the last one */
};

static void stager_start(struct stager *stager, bool hashed)
{
    static char text[16384];
    struct stg_err err = {0};
    graph_text(text, sizeof(text), hashed);
    *stager = (struct stager){.extent.bytes = 16u << 20};
    if (fixture_parse(&stager->fx, text, &err) < 0 ||
        stg_graph_create(&stager->fx.spec, &stager->fx.element, NULL, &stager->graph,
                         &err) < 0 ||
        stg_run_create_stage(stager->graph, &stager->run, &err) < 0)
        bench_die("%s", err.text);
    stager->extent.memory = aligned_alloc(65536, stager->extent.bytes);
    if (stager->extent.memory == NULL)
        bench_die("out of memory");
    memset(stager->extent.memory, 1, stager->extent.bytes);
}

static void stager_stop(struct stager *stager)
{
    free(stager->extent.memory);
    stg_run_destroy(stager->run);
    stg_graph_destroy(stager->graph);
    fixture_finish(&stager->fx);
}

static void stager_round(const struct rows *rows, void *owner)
{
    struct stager *stager = owner;
    for (int k = 0; k < N_BATCHES; k++)
        stager->batch_bytes = batch_once(stager->run, stg_graph_boundary(stager->graph),
                                         &rows->batches[k], &stager->extent);
}

/* ---- strsep, strtol, strtof ---- */

struct columns {
    int32_t label[BATCH_ROWS];
    float numbers[N_NUMBERS][BATCH_ROWS];
    int64_t offsets[N_STRINGS][BATCH_ROWS + 1];
    char strings[N_STRINGS][BATCH_ROWS * 8];
};

static void strsep_row(const char *row, size_t n, int i, struct columns *to)
{
    char copy[MAX_ROW_BYTES], *rest = copy;
    memcpy(copy, row, n);
    copy[n] = '\0';
    const char *field = strsep(&rest, ",");
    to->label[i] = (int32_t)strtol(field, NULL, 10);
    for (int c = 0; c < N_NUMBERS; c++) {
        field = strsep(&rest, ",");
        to->numbers[c][i] = *field != '\0' ? strtof(field, NULL) : 0.0f;
    }
    for (int c = 0; c < N_STRINGS; c++) {
        field = strsep(&rest, ",");
        size_t bytes = strlen(field);
        int64_t at = to->offsets[c][i];
        memcpy(to->strings[c] + at, field, bytes);
        to->offsets[c][i + 1] = at + (int64_t)bytes;
    }
}

static void strsep_round(const struct rows *rows, void *owner)
{
    for (int k = 0; k < N_BATCHES; k++) {
        const struct stg_tensor *batch = &rows->batches[k];
        for (int i = 0; i < BATCH_ROWS; i++)
            strsep_row((const char *)batch->data + batch->begin[i],
                       (size_t)(batch->end[i] - batch->begin[i]), i, owner);
    }
}

/* ---- all three ---- */

static uint64_t thread_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

struct contestant {
    const char *name;
    void (*round)(const struct rows *rows, void *owner);
    void *owner;
    double rows_per_s;
};

static void measure(const struct rows *rows, struct contestant *contestants, size_t n,
                    double seconds)
{
    uint64_t end = bench_now_ns() + (uint64_t)(seconds * 1e9);
    do {
        for (size_t i = 0; i < n; i++) {
            uint64_t start = thread_ns();
            contestants[i].round(rows, contestants[i].owner);
            double rate = N_BATCHES * BATCH_ROWS * 1e9 / (double)(thread_ns() - start);
            if (rate > contestants[i].rows_per_s)
                contestants[i].rows_per_s = rate;
        }
    } while (bench_now_ns() < end);
}

int main(int argc, char **argv)
{
    struct bench_options options;
    bench_options_parse(argc, argv, 3.0,
                        "Criteo-like rows from records to tensors, on one core.",
                        &options);
    static struct rows rows;
    static struct columns columns;
    struct stager plain, hashed;
    make_rows(&rows);
    stager_start(&plain, false);
    stager_start(&hashed, true);
    struct contestant all[] = {
        {"decode_csv", stager_round, &plain, 0},
        {"decode_csv and hashes", stager_round, &hashed, 0},
        {"strsep, strtol, strtof", strsep_round, &columns, 0},
    };
    measure(&rows, all, 3, options.seconds);

    double row_bytes = (double)rows.bytes / (N_BATCHES * BATCH_ROWS);
    printf("%d batches of %d rows, %.0f bytes a row; a batch at rest has %.2f MB, hashed "
           "%.2f MB\n",
           N_BATCHES, BATCH_ROWS, row_bytes, (double)plain.batch_bytes / 1e6,
           (double)hashed.batch_bytes / 1e6);
    for (int i = 0; i < 3; i++)
        printf("%-23s %7.3f million rows/s  %7.1f ns/row  %7.1f MB/s\n", all[i].name,
               all[i].rows_per_s / 1e6, 1e9 / all[i].rows_per_s,
               all[i].rows_per_s * row_bytes / 1e6);
    if (options.json)
        printf("{\"rows_per_s\": %.0f, \"rows_per_s_hashed\": %.0f, \"bytes_per_s\": "
               "%.0f, \"baseline_rows_per_s\": %.0f, \"row_bytes\": %.1f, \"ratio\": "
               "%.3f}\n",
               all[0].rows_per_s, all[1].rows_per_s, all[0].rows_per_s * row_bytes,
               all[2].rows_per_s, row_bytes, all[0].rows_per_s / all[2].rows_per_s);
    stager_stop(&hashed);
    stager_stop(&plain);
    free_rows(&rows);
    return 0;
}
