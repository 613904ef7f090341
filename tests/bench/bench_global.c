/* SPDX-License-Identifier: Apache-2.0
 *
 * The global shuffle. Rows per second of CPU on one thread, from the page cache, through
 * text_line, a shuffle and batch of 4096, on Criteo-like lines with record indexes: the
 * window of 65,536, `global: true`, and `exact: true` on a tenth of the rows. Then a
 * hundred million short lines in eight files: the time of a pass of the reader without
 * indexes, that in which their indexes are built, that of the first batch after that, and
 * the memory which a pass needs at its most. With less than the default of --seconds a
 * tenth of the lines must do.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "daemon/dataset/dataset.h"
#include "daemon/index/index.h"
#include "proto/load.h"
#include "tests/bench/bench.h"

#define DEFAULT_SECONDS 8.0
#define BATCH 4096
#define N_FILES 8
#define ROWS 65536    /* of a file of Criteo-like lines */
#define MANY 12500000 /* of a file of short lines */

static char folder[] = "/tmp/stg-global-XXXXXX";

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* A label, 13 numbers, 26 words of eight digits. */
static void write_row(FILE *file, uint64_t *state)
{
    fprintf(file, "%d", (int)(next_random(state) & 1));
    for (int i = 0; i < 13; i++)
        fprintf(file, ",%d", (int)(next_random(state) % 999));
    for (int i = 0; i < 26; i++)
        fprintf(file, ",%08x", (unsigned)next_random(state));
    fputc('\n', file);
}

static const char *path_of(const char *name)
{
    static char path[100];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

/* n lines in each file: short ones, or rows. */
static void make_files(const char *kind, int n, bool is_short)
{
    uint64_t state = 88172645463325252ull;
    for (int i = 0; i < N_FILES; i++) {
        char name[40];
        snprintf(name, sizeof(name), "%s-%d", kind, i);
        FILE *file = fopen(path_of(name), "w");
        for (int k = 0; file != NULL && k < n; k++) {
            if (is_short)
                fprintf(file, "%09d\n", i * n + k);
            else
                write_row(file, &state);
        }
        if (file == NULL || fclose(file) != 0)
            bench_die("cannot write %s", path_of(name));
    }
}

static struct stg_pipeline_spec *load(const char *kind, const char *shuffle)
{
    char text[400];
    struct stg_pipeline_spec *spec;
    struct stg_err err;
    snprintf(text, sizeof(text),
             "dataset:\n- files: {pattern: \"%s/%s-*\"}\n- text_line\n%s"
             "- batch: {batch_size: %d}\n",
             folder, kind, shuffle, BATCH);
    if (stg_load_pipeline(text, strlen(text), "global", &spec, &err) < 0)
        bench_die("%s", err.text);
    return spec;
}

/* Runs up to `most` batches of a pass; returns their rows. */
static uint64_t run_pass(const struct stg_pipeline_spec *spec, uint64_t most)
{
    struct stg_dataset_env env = {.uid = 0, .buffer_bytes = 256u << 20};
    struct stg_dataset *dataset;
    struct stg_block *block;
    struct stg_err err;
    uint64_t rows = 0;
    int rc = 0;
    if (stg_dataset_create(spec, &env, &dataset, &err) < 0)
        bench_die("%s", err.text);
    for (; most > 0 && (rc = stg_dataset_next(dataset, &block, &err)) == 0; most--) {
        rows += (uint64_t)block->n_rows;
        stg_block_unref(block);
    }
    if (rc < 0)
        bench_die("%s", err.text);
    stg_dataset_destroy(dataset);
    return rows;
}

/* The best of the passes that fit the time, rows per second of CPU. */
static double best_rate(const char *kind, const char *shuffle, double seconds)
{
    struct stg_pipeline_spec *spec = load(kind, shuffle);
    double best = 0;
    uint64_t start = bench_now_ns();
    do {
        uint64_t before = stg_thread_cpu_ns();
        uint64_t rows = run_pass(spec, UINT64_MAX);
        double rate = (double)rows * 1e9 / (double)(stg_thread_cpu_ns() - before);
        best = rate > best ? rate : best;
    } while ((double)(bench_now_ns() - start) < seconds * 1e9);
    stg_pipeline_spec_destroy(spec);
    return best;
}

static double seconds_of(const char *kind, const char *shuffle, uint64_t n_batches)
{
    struct stg_pipeline_spec *spec = load(kind, shuffle);
    uint64_t began = bench_now_ns();
    run_pass(spec, n_batches);
    stg_pipeline_spec_destroy(spec);
    return (double)(bench_now_ns() - began) / 1e9;
}

/* A line of /proc/self/status, in bytes. */
static double status_bytes(const char *name)
{
    char line[200];
    double kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, name, strlen(name)) == 0)
            kib = strtod(line + strlen(name), NULL);
    }
    if (file != NULL)
        fclose(file);
    return kib * 1024;
}

/* The most that 200 batches take beside what is there before. */
static double measure_memory(const char *kind, const char *shuffle)
{
    FILE *clear = fopen("/proc/self/clear_refs", "w");
    if (clear == NULL || fputs("5", clear) < 0 || fclose(clear) != 0)
        return 0;
    double before = status_bytes("VmRSS:");
    seconds_of(kind, shuffle, 200);
    return status_bytes("VmHWM:") - before;
}

int main(int argc, char **argv)
{
    static const char global[] = "- shuffle: {global: true, seed: 3}\n";
    struct bench_options options;
    struct stg_err err;
    bench_options_parse(argc, argv, DEFAULT_SECONDS, "the global shuffle", &options);
    if (mkdtemp(folder) == NULL)
        bench_die("cannot make a folder in /tmp");
    bool is_short = options.seconds < DEFAULT_SECONDS;
    double each = options.seconds / 4;

    make_files("many", is_short ? MANY / 10 : MANY, true);
    double read = seconds_of("many", "", UINT64_MAX);
    if (stg_index_configure(path_of("index"), 1u << 30, &err) < 0)
        bench_die("%s", err.text);
    double build = seconds_of("many", global, 1);
    double first = seconds_of("many", global, 1);
    double memory = measure_memory("many", global);

    make_files("rows", ROWS, false);
    seconds_of("rows", "", UINT64_MAX);
    double window = best_rate("rows", "- shuffle: {buffer_size: 65536}\n", each);
    double blocks = best_rate("rows", global, each);
    double exact = best_rate(
        "rows", "- take: {count: 52428}\n- shuffle: {global: true, exact: true}\n", each);
    stg_index_finish();
    char command[200];
    snprintf(command, sizeof(command), "rm -r %s", folder);
    if (system(command) != 0)
        bench_die("cannot remove %s", folder);

    printf("window of 65536     %7.2f million rows/s\n", window / 1e6);
    printf("global              %7.2f million rows/s, %.2f of that\n", blocks / 1e6,
           blocks / window);
    printf("global, exact       %7.2f million rows/s\n", exact / 1e6);
    printf(
        "%d million lines: a pass %.2f s, the indexes and the first batch %.2f s (%.2f "
        "of the rate), the first batch %.3f s, %.1f MiB\n",
        is_short ? 10 : 100, read, build, read / build, first, memory / (1 << 20));
    printf(
        "{\"bench\": \"global\", \"window_rows_per_s\": %.0f, \"rows_per_s\": %.0f, "
        "\"ratio\": %.3f, \"exact_rows_per_s\": %.0f, \"pass_seconds\": %.3f, "
        "\"build_seconds\": %.3f, \"build_ratio\": %.3f, \"first_batch_seconds\": %.4f, "
        "\"memory_bytes\": %.0f}\n",
        window, blocks, blocks / window, exact, read, build, read / build, first, memory);
    return 0;
}
