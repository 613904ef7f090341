/* SPDX-License-Identifier: Apache-2.0
 *
 * Columns of an Arrow file as blocks of rows, on one thread, from the page cache. Eight
 * columns of int64 and eight of float32 in record batches of 65,536 rows, to batches of
 * 4096, over memcpy of as many bytes from a mapping of the same file to the memory of a
 * batch. Both sides take turns, in bytes of values per second of CPU, and the best round
 * of each counts.
 */
#include <fcntl.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/clock.h"
#include "daemon/dataset/dataset.h"
#include "proto/load.h"
#include "tests/bench/bench.h"
#include "tests/bench/columns/arrow_file.h"

#define N_COLUMNS 16
#define N_BATCHES 16
#define BATCH_ROWS 65536
#define ROWS 4096 /* of a batch that a trainer gets */

struct table {
    char path[64];
    uint64_t file_bytes, value_bytes;
    const char *mapping;
};

static size_t width_of(int column)
{
    return column % 2 == 0 ? 8 : 4;
}

/* Writes the numbers of a column, which may be any, by one call as pyarrow does: the
 * kernel then keeps the file in large folios. */
static void put_column(FILE *to, int column, uint64_t *state)
{
    static uint64_t values[BATCH_ROWS];
    size_t bytes = BATCH_ROWS * width_of(column);
    for (size_t i = 0; i < bytes / sizeof(*values); i++)
        values[i] = *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    fwrite(values, 1, bytes, to);
}

static void write_table(struct table *table)
{
    uint64_t state = 1;
    strcpy(table->path, "/tmp/stg-bench-XXXXXX");
    int fd = mkstemp(table->path);
    FILE *to = fd >= 0 ? fdopen(fd, "w+") : NULL;
    if (to == NULL)
        bench_die("cannot write %s", table->path);
    bench_arrow_put_schema(to, N_COLUMNS);
    for (int i = 0; i < N_BATCHES; i++) {
        bench_arrow_put_batch(to, N_COLUMNS, BATCH_ROWS);
        for (int c = 0; c < N_COLUMNS; c++) {
            put_column(to, c, &state);
            table->value_bytes += BATCH_ROWS * width_of(c);
        }
    }
    table->file_bytes = (uint64_t)ftell(to);
    if (fflush(to) != 0)
        bench_die("cannot write %s", table->path);
    bench_read_anew(table->path);
    table->mapping = mmap(NULL, table->file_bytes, PROT_READ, MAP_SHARED | MAP_POPULATE,
                          fileno(to), 0);
    if (table->mapping == MAP_FAILED)
        bench_die("cannot map %s", table->path);
    fclose(to);
}

/* memcpy of a column of a batch at a time. */
static double by_memcpy(const struct table *table)
{
    static char *extent;
    size_t step = (size_t)ROWS * 8, end = table->file_bytes - step;
    if (extent == NULL)
        extent = malloc(step * N_COLUMNS);
    uint64_t began = stg_thread_cpu_ns(), bytes = 0;
    for (size_t at = 0, column = 0; at < end; at += step, bytes += step) {
        memcpy(extent + column * step, table->mapping + at, step);
        column = (column + 1) % N_COLUMNS;
        __asm__ volatile("" : : "r"(extent) : "memory");
    }
    return (double)bytes * 1e9 / (double)(stg_thread_cpu_ns() - began);
}

/* The kernel's part: reads of 256 KiB out of the page cache. */
static double by_read(const struct table *table)
{
    static char buffer[256 << 10];
    int fd = open(table->path, O_RDONLY | O_CLOEXEC);
    uint64_t began = stg_thread_cpu_ns();
    for (uint64_t at = 0; at < table->file_bytes; at += sizeof(buffer)) {
        if (fd < 0 || pread(fd, buffer, sizeof(buffer), (off_t)at) < 0)
            bench_die("cannot read %s", table->path);
    }
    double rate = (double)table->file_bytes * 1e9 / (double)(stg_thread_cpu_ns() - began);
    close(fd);
    return rate;
}

static struct stg_pipeline_spec *load(const struct table *table)
{
    char text[1024], columns[512] = "";
    struct stg_pipeline_spec *spec;
    struct stg_err err;
    for (int c = 0; c < N_COLUMNS; c++)
        snprintf(columns + strlen(columns), sizeof(columns) - strlen(columns),
                 "%sc%d: %s", c > 0 ? ", " : "", c, c % 2 == 0 ? "int64" : "float32");
    snprintf(text, sizeof(text),
             "dataset:\n- files: {pattern: \"%s\"}\n- arrow: {columns: {%s}}\n"
             "- batch: {batch_size: %d}\n",
             table->path, columns, ROWS);
    if (stg_load_pipeline(text, strlen(text), "arrow", &spec, &err) < 0)
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
    if (rows != (uint64_t)N_BATCHES * BATCH_ROWS)
        bench_die("%llu rows", (unsigned long long)rows);
    return (double)table->value_bytes * 1e9 / (double)(stg_thread_cpu_ns() - began);
}

static double max(double a, double b)
{
    return a > b ? a : b;
}

int main(int argc, char **argv)
{
    struct bench_options options;
    struct table table = {.value_bytes = 0};
    double rates[3] = {0};
    bench_options_parse(argc, argv, 3.0, "columns of Arrow files to blocks of rows",
                        &options);
    mallopt(M_MMAP_THRESHOLD, 4 << 20); /* as daemon/host/heap.c */
    mallopt(M_TRIM_THRESHOLD, 16 << 20);
    write_table(&table);
    struct stg_pipeline_spec *spec = load(&table);
    uint64_t end = bench_now_ns() + (uint64_t)(options.seconds * 1e9);
    do {
        rates[0] = max(rates[0], by_memcpy(&table));
        rates[1] = max(rates[1], by_stager(spec, &table));
        rates[2] = max(rates[2], by_read(&table));
    } while (bench_now_ns() < end);
    stg_pipeline_spec_destroy(spec);
    munmap((void *)(uintptr_t)table.mapping, table.file_bytes);
    unlink(table.path);
    printf("%8.3f GB/s memcpy %8.3f GB/s read %8.3f GB/s here, ratio %.2f\n",
           rates[0] / 1e9, rates[2] / 1e9, rates[1] / 1e9, rates[1] / rates[0]);
    if (options.json)
        printf("{\"bench\": \"arrow\", \"baseline_memcpy_bytes_per_s\": %.0f, "
               "\"plain_ratio\": %.3f, \"plain_read_ratio\": %.3f}\n",
               rates[0], rates[1] / rates[0], rates[1] / rates[2]);
    return 0;
}
