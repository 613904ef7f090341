/* SPDX-License-Identifier: Apache-2.0
 *
 * Columns of a Parquet file as blocks of rows, on one thread, from the page cache. Eight
 * columns of int64 and eight of float32 that may be null and are not, in PLAIN pages of
 * 20,000 rows, to batches of 4096: uncompressed over memcpy of as many bytes, from memory
 * that is larger than the caches to a buffer that is not; compressed over the codec
 * alone, page by page. Both sides take turns, in bytes of values per second of CPU, and
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

#define N_COLUMNS 16
#define N_GROUPS 4
#define PAGE_ROWS 20000            /* as pyarrow writes them */
#define PAGE_BYTES (8 * PAGE_ROWS) /* of int64; a page of float32 is half as large */
#define GROUP_PAGES 26
#define GROUP_ROWS (GROUP_PAGES * PAGE_ROWS)
#define LEVEL_BYTES 8 /* a length, and a run */

enum { UNCOMPRESSED = 0, SNAPPY = 1, ZSTD = 6 };

struct page {
    char *data; /* compressed */
    size_t bytes, plain_bytes;
};

struct table {
    int codec;
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
static size_t fill_page(char *to, int column, uint64_t *state)
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
    return LEVEL_BYTES + (is_wide(column) ? 8 : 4) * (size_t)PAGE_ROWS;
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
    put_int(to, 1, I32, PAGE_ROWS);
    put_int(to, 1, I32, 0);
    put_int(to, 1, I32, 3);
    put_int(to, 1, I32, 3);
    fputc(0, to);
    fputc(0, to);
    fwrite(page->data, 1, page->bytes, to);
}

static void put_schema(FILE *to)
{
    put_head(to, 1, LIST);
    fputc(0xf0 | STRUCT, to);
    put_varint(to, N_COLUMNS + 1);
    put_text(to, 4, "root");
    put_int(to, 1, I32, N_COLUMNS);
    fputc(0, to);
    for (int c = 0; c < N_COLUMNS; c++) {
        char name[16];
        snprintf(name, sizeof(name), "c%d", c);
        put_int(to, 1, I32, is_wide(c) ? 2 : 4);
        put_int(to, 2, I32, 1);
        put_text(to, 1, name);
        fputc(0, to);
    }
}

static void put_chunk(FILE *to, const struct table *table, int column, uint64_t begin,
                      uint64_t end)
{
    put_int(to, 2, I64, (int64_t)begin);
    put_head(to, 1, STRUCT);
    put_int(to, 1, I32, is_wide(column) ? 2 : 4);
    put_head(to, 1, LIST);
    fputc(0x10 | I32, to);
    put_varint(to, 0);
    put_head(to, 1, LIST);
    fputc(0x18, to);
    put_varint(to, 0);
    put_int(to, 1, I32, table->codec);
    put_int(to, 1, I64, GROUP_ROWS);
    put_int(to, 1, I64, (int64_t)(end - begin));
    put_int(to, 1, I64, (int64_t)(end - begin));
    put_int(to, 2, I64, (int64_t)begin);
    fputc(0, to);
    fputc(0, to);
}

static void put_footer(FILE *to, const struct table *table, const uint64_t *offsets)
{
    uint32_t begin = (uint32_t)ftell(to);
    put_int(to, 1, I32, 1);
    put_schema(to);
    put_int(to, 1, I64, (int64_t)N_GROUPS * GROUP_ROWS);
    put_head(to, 1, LIST);
    fputc(N_GROUPS << 4 | STRUCT, to);
    for (int g = 0; g < N_GROUPS; g++) {
        put_head(to, 1, LIST);
        fputc(0xf0 | STRUCT, to);
        put_varint(to, N_COLUMNS);
        for (int c = 0; c < N_COLUMNS; c++)
            put_chunk(to, table, c, offsets[g * N_COLUMNS + c],
                      offsets[g * N_COLUMNS + c + 1]);
        put_int(to, 1, I64, 0);
        put_int(to, 1, I64, GROUP_ROWS);
        fputc(0, to);
    }
    fputc(0, to);
    uint32_t bytes = (uint32_t)ftell(to) - begin;
    fwrite(&bytes, 1, sizeof(bytes), to);
    fputs("PAR1", to);
}

static void write_table(struct table *table)
{
    uint64_t offsets[N_GROUPS * N_COLUMNS + 1], state = 1;
    char *plain = malloc(PAGE_BYTES + LEVEL_BYTES);
    strcpy(table->path, "/tmp/stg-bench-XXXXXX");
    int fd = mkstemp(table->path);
    FILE *to = fd >= 0 ? fdopen(fd, "w") : NULL;
    table->pages = calloc(N_GROUPS * N_COLUMNS * GROUP_PAGES, sizeof(*table->pages));
    if (to == NULL || plain == NULL || table->pages == NULL)
        bench_die("cannot write %s", table->path);
    fputs("PAR1", to);
    for (int i = 0; i < N_GROUPS * N_COLUMNS; i++) {
        offsets[i] = (uint64_t)ftell(to);
        for (int k = 0; k < GROUP_PAGES; k++) {
            struct page *page = &table->pages[table->n_pages++];
            page->plain_bytes = fill_page(plain, i % N_COLUMNS, &state);
            table->value_bytes += page->plain_bytes - LEVEL_BYTES;
            compress(table, plain, page);
            put_page(to, page);
        }
        offsets[i + 1] = (uint64_t)ftell(to);
    }
    put_footer(to, table, offsets);
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
        buffer = malloc(PAGE_BYTES + LEVEL_BYTES);
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
    char *buffer = malloc(PAGE_BYTES + LEVEL_BYTES);
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
    char text[1024], columns[512] = "";
    struct stg_pipeline_spec *spec;
    struct stg_err err;
    for (int c = 0; c < N_COLUMNS; c++)
        snprintf(columns + strlen(columns), sizeof(columns) - strlen(columns),
                 "%sc%d: %s", c > 0 ? ", " : "", c, is_wide(c) ? "int64" : "float32");
    snprintf(text, sizeof(text),
             "dataset:\n- files: {pattern: \"%s\"}\n- parquet: {columns: {%s}}\n"
             "- batch: {batch_size: 4096}\n",
             table->path, columns);
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
    if (rows != (uint64_t)N_GROUPS * GROUP_ROWS)
        bench_die("%llu rows", (unsigned long long)rows);
    return (double)table->value_bytes * 1e9 / (double)(stg_thread_cpu_ns() - began);
}

static double max(double a, double b)
{
    return a > b ? a : b;
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"plain", "snappy", "zstd"};
    struct bench_options options;
    bench_options_parse(argc, argv, 6.0, "columns of Parquet files to blocks of rows",
                        &options);
    mallopt(M_MMAP_THRESHOLD, 4 << 20); /* as daemon/host/heap.c */
    mallopt(M_TRIM_THRESHOLD, 16 << 20);
    struct table tables[] = {{.codec = UNCOMPRESSED}, {.codec = SNAPPY}, {.codec = ZSTD}};
    double rates[3][3] = {{0}};
    for (int i = 0; i < 3; i++) {
        write_table(&tables[i]);
        struct stg_pipeline_spec *spec = load(&tables[i]);
        uint64_t end = bench_now_ns() + (uint64_t)(options.seconds * 1e9 / 3);
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
               "%.3f, \"zstd_ratio\": %.3f}\n",
               rates[0][0], rates[0][1] / rates[0][0], rates[0][1] / rates[0][2],
               rates[1][1] / rates[1][0], rates[2][1] / rates[2][0]);
    return 0;
}
