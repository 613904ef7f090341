/* SPDX-License-Identifier: Apache-2.0
 *
 * Columns of a Parquet file as blocks of rows, on one thread, from the page cache. Eight
 * columns of int64 and eight of float32 that may be null and are not, in PLAIN pages of
 * 20,000 rows, to batches of 4096: uncompressed over memcpy of as many bytes, from memory
 * that is larger than the caches to a buffer that is not; compressed over the codec
 * alone, page by page. And four columns of lists of int64, of 0 to 15 elements, to ragged
 * batches, over memcpy. Both sides take turns, in bytes of values per second of CPU, and
 * the best round of each counts.
 */
#include <fcntl.h>
#include <malloc.h>
#include <snappy-c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "core/clock.h"
#include "daemon/dataset/dataset.h"
#include "proto/load.h"
#include "tests/bench/bench.h"

#define N_TABLES 4
#define N_COLUMNS 16
#define N_GROUPS 4
#define PAGE_ROWS 20000            /* as pyarrow writes them */
#define PAGE_BYTES (8 * PAGE_ROWS) /* of int64; a page of float32 is half as large */
#define GROUP_PAGES 26
#define GROUP_ROWS (GROUP_PAGES * PAGE_ROWS)
#define LEVEL_BYTES 8  /* a length, and a run */
#define N_LISTS 4      /* columns */
#define LIST_ROWS 2600 /* of a page, of which 20000 levels are about as many */
#define MAX_LIST 15
#define PAGE_ROOM (16 * MAX_LIST * LIST_ROWS)

enum { UNCOMPRESSED = 0, SNAPPY = 1, ZSTD = 6 };

struct page {
    char *data; /* compressed */
    size_t bytes, plain_bytes;
    size_t n,
        value_bytes; /* values, of lists levels; and what those that are there take */
};

struct table {
    int codec;
    bool has_lists;
    int n_columns;
    uint64_t n_rows; /* of a row group */
    char path[64];
    struct page *pages; /* in the order of the file */
    size_t n_pages;
    uint64_t value_bytes;
};

/* ---- Thrift ---- */

static void put_varint(FILE *to, uint64_t value)
{
    for (; value > 127; value >>= 7)
        fputc((int)(value & 127) | 128, to);
    fputc((int)value, to);
}

/* A field of a number, `step` behind the one before. */
static void put_int(FILE *to, int step, int type, int64_t value)
{
    fputc(step << 4 | type, to);
    put_varint(to, (uint64_t)value << 1);
}

static void put_head(FILE *to, int step, int type)
{
    fputc(step << 4 | type, to);
}

static void put_text(FILE *to, int step, const char *text)
{
    put_head(to, step, 8);
    put_varint(to, strlen(text));
    fputs(text, to);
}

enum { I32 = 5, I64 = 6, LIST = 9, STRUCT = 12 };

/* ---- the file ---- */

static bool is_wide(int column)
{
    return column % 2 == 0;
}

/* Numbers that compress as data does: small steps, with noise in their lowest bits. */
static size_t fill_page(char *to, int column, struct page *page, uint64_t *state)
{
    static const unsigned char levels[LEVEL_BYTES] = {4, 0, 0, 0, 0xc0, 0xb8, 0x02, 1};
    memcpy(to, levels, LEVEL_BYTES);
    for (size_t i = 0; i < PAGE_ROWS; i++) {
        *state = *state * 6364136223846793005ull + 1442695040888963407ull;
        int64_t wide = (int64_t)(*state >> 48);
        float narrow = (float)(*state >> 56) / 4;
        if (is_wide(column))
            memcpy(to + LEVEL_BYTES + 8 * i, &wide, 8);
        else
            memcpy(to + LEVEL_BYTES + 4 * i, &narrow, 4);
    }
    page->n = PAGE_ROWS;
    page->value_bytes = (is_wide(column) ? 8 : 4) * (size_t)PAGE_ROWS;
    return LEVEL_BYTES + page->value_bytes;
}

static uint64_t random_below(uint64_t *state, uint64_t n)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (*state >> 33) % n;
}

/* Levels of `width` bits, a byte each, as one packed run behind its length. */
static char *put_levels(char *to, const unsigned char *levels, size_t n, unsigned width)
{
    uint32_t length = 3;
    size_t groups = (n + 7) / 8;
    char *at = to + sizeof(length);
    *at++ = (char)((groups << 1 | 1) | 128);
    *at++ = (char)(groups >> 6 | 128);
    *at++ = (char)(groups >> 13);
    memset(at, 0, groups * width);
    for (size_t i = 0; i < n; i++)
        at[i * width / 8] |= (char)(levels[i] << i * width % 8);
    length += (uint32_t)(groups * width);
    memcpy(to, &length, sizeof(length));
    return at + groups * width;
}

/* A page of lists, some of which are empty. */
static size_t fill_lists(char *to, struct page *page, uint64_t *state)
{
    static unsigned char repeats[(MAX_LIST + 1) * LIST_ROWS], defined[sizeof(repeats)];
    int64_t *values = malloc(MAX_LIST * LIST_ROWS * sizeof(*values));
    size_t n = 0, n_values = 0;
    for (int row = 0; row < LIST_ROWS; row++) {
        size_t length = random_below(state, MAX_LIST + 1);
        for (size_t i = 0; i < length || i == 0; i++) {
            repeats[n] = i > 0;
            defined[n++] = length > 0;
        }
        for (size_t i = 0; i < length; i++)
            values[n_values++] = (int64_t)random_below(state, 1u << 30);
    }
    char *at = put_levels(put_levels(to, repeats, n, 1), defined, n, 1);
    memcpy(at, values, n_values * sizeof(*values));
    free(values);
    page->n = n;
    page->value_bytes = n_values * sizeof(*values);
    return (size_t)(at - to) + page->value_bytes;
}

static void compress(struct table *table, const char *plain, struct page *page)
{
    size_t most = ZSTD_compressBound(page->plain_bytes) +
                  snappy_max_compressed_length(page->plain_bytes);
    page->data = malloc(most);
    page->bytes = most;
    if (page->data == NULL)
        bench_die("out of memory");
    if (table->codec == ZSTD)
        page->bytes = ZSTD_compress(page->data, most, plain, page->plain_bytes, 1);
    else if (table->codec == SNAPPY)
        snappy_compress(plain, page->plain_bytes, page->data, &page->bytes);
    else
        memcpy(page->data, plain, page->bytes = page->plain_bytes);
    page->data = realloc(page->data, page->bytes);
}

static void put_page(FILE *to, const struct page *page)
{
    put_int(to, 1, I32, 0);
    put_int(to, 1, I32, (int64_t)page->plain_bytes);
    put_int(to, 1, I32, (int64_t)page->bytes);
    put_head(to, 2, STRUCT);
    put_int(to, 1, I32, (int64_t)page->n);
    put_int(to, 1, I32, 0);
    put_int(to, 1, I32, 3);
    put_int(to, 1, I32, 3);
    fputc(0, to);
    fputc(0, to);
    fwrite(page->data, 1, page->bytes, to);
}

/* A list of required elements, in the two levels of old writers. */
static void put_column(FILE *to, const struct table *table, int c)
{
    char name[16];
    snprintf(name, sizeof(name), "c%d", c);
    put_int(to, 1, I32, is_wide(c) || table->has_lists ? 2 : 4);
    put_int(to, 2, I32, table->has_lists ? 2 : 1);
    put_text(to, 1, name);
    fputc(0, to);
}

static void put_schema(FILE *to, const struct table *table)
{
    put_head(to, 1, LIST);
    fputc(0xf0 | STRUCT, to);
    put_varint(to, (uint64_t)table->n_columns + 1);
    put_text(to, 4, "root");
    put_int(to, 1, I32, table->n_columns);
    fputc(0, to);
    for (int c = 0; c < table->n_columns; c++)
        put_column(to, table, c);
}

static void put_chunk(FILE *to, const struct table *table, int column, uint64_t n,
                      uint64_t begin, uint64_t end)
{
    char name[16];
    snprintf(name, sizeof(name), "c%d", column);
    put_int(to, 2, I64, (int64_t)begin);
    put_head(to, 1, STRUCT);
    put_int(to, 1, I32, is_wide(column) || table->has_lists ? 2 : 4);
    put_head(to, 1, LIST);
    fputc(0x10 | I32, to);
    put_varint(to, 0);
    put_head(to, 1, LIST);
    fputc(0x18, to);
    put_varint(to, strlen(name));
    fputs(name, to);
    put_int(to, 1, I32, table->codec);
    put_int(to, 1, I64, (int64_t)n);
    put_int(to, 1, I64, (int64_t)(end - begin));
    put_int(to, 1, I64, (int64_t)(end - begin));
    put_int(to, 2, I64, (int64_t)begin);
    fputc(0, to);
    fputc(0, to);
}

/* offsets and n_values: one a column of each group. */
static void put_footer(FILE *to, const struct table *table, const uint64_t *offsets,
                       const uint64_t *n_values)
{
    uint32_t begin = (uint32_t)ftell(to);
    put_int(to, 1, I32, 1);
    put_schema(to, table);
    put_int(to, 1, I64, (int64_t)(N_GROUPS * table->n_rows));
    put_head(to, 1, LIST);
    fputc(N_GROUPS << 4 | STRUCT, to);
    for (int g = 0, i = 0; g < N_GROUPS; g++) {
        put_head(to, 1, LIST);
        fputc(0xf0 | STRUCT, to);
        put_varint(to, (uint64_t)table->n_columns);
        for (int c = 0; c < table->n_columns; c++, i++)
            put_chunk(to, table, c, n_values[i], offsets[i], offsets[i + 1]);
        put_int(to, 1, I64, 0);
        put_int(to, 1, I64, (int64_t)table->n_rows);
        fputc(0, to);
    }
    fputc(0, to);
    uint32_t bytes = (uint32_t)ftell(to) - begin;
    fwrite(&bytes, 1, sizeof(bytes), to);
    fputs("PAR1", to);
}

static void write_table(struct table *table)
{
    uint64_t offsets[N_GROUPS * N_COLUMNS + 1], n_values[N_GROUPS * N_COLUMNS] = {0};
    uint64_t state = 1;
    char *plain = malloc(PAGE_ROOM);
    strcpy(table->path, "/tmp/stg-bench-XXXXXX");
    int fd = mkstemp(table->path), n = N_GROUPS * table->n_columns;
    FILE *to = fd >= 0 ? fdopen(fd, "w") : NULL;
    table->pages = calloc((size_t)n * GROUP_PAGES, sizeof(*table->pages));
    if (to == NULL || plain == NULL || table->pages == NULL)
        bench_die("cannot write %s", table->path);
    fputs("PAR1", to);
    for (int i = 0; i < n; i++) {
        offsets[i] = (uint64_t)ftell(to);
        for (int k = 0; k < GROUP_PAGES; k++) {
            struct page *page = &table->pages[table->n_pages++];
            page->plain_bytes = table->has_lists
                                    ? fill_lists(plain, page, &state)
                                    : fill_page(plain, i % N_COLUMNS, page, &state);
            table->value_bytes += page->value_bytes;
            n_values[i] += page->n;
            compress(table, plain, page);
            put_page(to, page);
        }
        offsets[i + 1] = (uint64_t)ftell(to);
    }
    put_footer(to, table, offsets, n_values);
    if (fclose(to) != 0)
        bench_die("cannot write %s", table->path);
    bench_read_anew(table->path);
    free(plain);
}

/* ---- both sides ---- */

static double alone(const struct table *table)
{
    static char *buffer;
    uint64_t began = stg_thread_cpu_ns();
    if (buffer == NULL)
        buffer = malloc(PAGE_ROOM);
    for (size_t i = 0; i < table->n_pages; i++) {
        const struct page *page = &table->pages[i];
        size_t n = page->plain_bytes;
        if (table->codec == ZSTD)
            n = ZSTD_decompress(buffer, n, page->data, page->bytes);
        else if (table->codec == SNAPPY)
            snappy_uncompress(page->data, page->bytes, buffer, &n);
        else
            memcpy(buffer, page->data, n);
        if (n != page->plain_bytes)
            bench_die("a page is damaged");
        __asm__ volatile("" : : "r"(buffer) : "memory");
    }
    return (double)table->value_bytes * 1e9 / (double)(stg_thread_cpu_ns() - began);
}

/* The kernel's part: a read of each page out of the page cache. */
static double read_alone(const struct table *table)
{
    char *buffer = malloc(PAGE_ROOM);
    int fd = open(table->path, O_RDONLY | O_CLOEXEC);
    uint64_t began = stg_thread_cpu_ns();
    for (size_t i = 0, at = 0; i < table->n_pages; at += table->pages[i++].bytes) {
        if (fd < 0 || buffer == NULL ||
            pread(fd, buffer, table->pages[i].bytes, (off_t)at) < 0)
            bench_die("cannot read %s", table->path);
    }
    double rate =
        (double)table->value_bytes * 1e9 / (double)(stg_thread_cpu_ns() - began);
    close(fd);
    free(buffer);
    return rate;
}

static struct stg_pipeline_spec *load(const struct table *table)
{
    char text[1024], columns[512] = "", shapes[64] = "";
    struct stg_pipeline_spec *spec;
    struct stg_err err;
    for (int c = 0; c < table->n_columns; c++)
        snprintf(columns + strlen(columns), sizeof(columns) - strlen(columns),
                 "%sc%d: %s", c > 0 ? ", " : "", c,
                 is_wide(c) || table->has_lists ? "int64" : "float32");
    for (int c = 0; table->has_lists && c < table->n_columns; c++)
        snprintf(shapes + strlen(shapes), sizeof(shapes) - strlen(shapes),
                 "%sc%d: [null]", c > 0 ? ", " : "", c);
    snprintf(text, sizeof(text),
             "dataset:\n- files: {pattern: \"%s\"}\n- parquet: {columns: {%s}%s%s%s}\n"
             "- %s: {batch_size: 4096}\n",
             table->path, columns, table->has_lists ? ", shapes: {" : "", shapes,
             table->has_lists ? "}" : "", table->has_lists ? "ragged_batch" : "batch");
    if (stg_load_pipeline(text, strlen(text), "parquet", &spec, &err) < 0)
        bench_die("%s", err.text);
    return spec;
}

static double by_stager(const struct stg_pipeline_spec *spec, const struct table *table)
{
    struct stg_dataset_env env = {.uid = 0, .buffer_bytes = 256u << 20};
    struct stg_dataset *dataset;
    struct stg_block *block;
    struct stg_err err;
    uint64_t rows = 0, began = stg_thread_cpu_ns();
    int rc = stg_dataset_create(spec, &env, &dataset, &err);
    while (rc == 0 && (rc = stg_dataset_next(dataset, &block, &err)) == 0) {
        if (block->error.code != 0)
            bench_die("%s", block->error.text);
        rows += (uint64_t)block->n_rows;
        stg_block_unref(block);
    }
    if (rc < 0)
        bench_die("%s", err.text);
    stg_dataset_destroy(dataset);
    if (rows != N_GROUPS * table->n_rows)
        bench_die("%llu rows", (unsigned long long)rows);
    return (double)table->value_bytes * 1e9 / (double)(stg_thread_cpu_ns() - began);
}

static double max(double a, double b)
{
    return a > b ? a : b;
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"plain", "snappy", "zstd", "lists"};
    struct bench_options options;
    bench_options_parse(argc, argv, 6.0, "columns of Parquet files to blocks of rows",
                        &options);
    mallopt(M_MMAP_THRESHOLD, 4 << 20); /* as daemon/host/heap.c */
    mallopt(M_TRIM_THRESHOLD, 16 << 20);
    struct table tables[N_TABLES] = {{.codec = UNCOMPRESSED},
                                     {.codec = SNAPPY},
                                     {.codec = ZSTD},
                                     {.codec = UNCOMPRESSED, .has_lists = true}};
    double rates[N_TABLES][3] = {{0}};
    for (int i = 0; i < N_TABLES; i++) {
        tables[i].n_columns = tables[i].has_lists ? N_LISTS : N_COLUMNS;
        tables[i].n_rows = tables[i].has_lists ? GROUP_PAGES * LIST_ROWS : GROUP_ROWS;
        write_table(&tables[i]);
        struct stg_pipeline_spec *spec = load(&tables[i]);
        uint64_t end = bench_now_ns() + (uint64_t)(options.seconds * 1e9 / N_TABLES);
        do {
            rates[i][0] = max(rates[i][0], alone(&tables[i]));
            rates[i][1] = max(rates[i][1], by_stager(spec, &tables[i]));
            rates[i][2] = max(rates[i][2], read_alone(&tables[i]));
        } while (bench_now_ns() < end);
        stg_pipeline_spec_destroy(spec);
        unlink(tables[i].path);
        for (size_t k = 0; k < tables[i].n_pages; k++)
            free(tables[i].pages[k].data);
        free(tables[i].pages);
        printf("%-8s %8.3f GB/s alone %8.3f GB/s here, ratio %.2f\n", names[i],
               rates[i][0] / 1e9, rates[i][1] / 1e9, rates[i][1] / rates[i][0]);
    }
    if (options.json)
        printf("{\"bench\": \"parquet\", \"baseline_memcpy_bytes_per_s\": %.0f, "
               "\"plain_ratio\": %.3f, \"plain_read_ratio\": %.3f, \"snappy_ratio\": "
               "%.3f, \"zstd_ratio\": %.3f, \"lists_ratio\": %.3f}\n",
               rates[0][0], rates[0][1] / rates[0][0], rates[0][1] / rates[0][2],
               rates[1][1] / rates[1][0], rates[2][1] / rates[2][0],
               rates[3][1] / rates[3][0]);
    return 0;
}
