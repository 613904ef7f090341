/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines of 16 files in the page cache, in batches of 4096 to a trainer: one file after
 * the other, and interleaved, 1, 4 and 16 at a time, in runs of 1 and of 16 lines. Rates
 * are per second of CPU of daemon and trainer together, relative to one file after the
 * other. The variants take turns, and the best round of each counts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "tests/bench/criteo.h"
#include "tests/bench/drain.h"

#define N_FILES 16
#define FILE_ROWS 8192
#define ROUND_S 0.3

struct contestant {
    int cycle_length; /* 0: no interleave */
    int block_length;
    double rows_per_s, rows_per_cpu_s;
};

static void pipeline(const struct contestant *c, const char *dir, char *to, size_t bytes)
{
    char read[160] = "text_line: {}";
    if (c->cycle_length > 0)
        snprintf(
            read, sizeof(read),
            "interleave: {cycle_length: %d, block_length: %d, reader: {text_line: {}}}",
            c->cycle_length, c->block_length);
    snprintf(to, bytes,
             "name: lines\ndataset:\n  - files: {pattern: \"%s/*\", shuffle: false}\n"
             "  - %s\n  - repeat: {}\n  - batch: {batch_size: 4096}\n"
             "staged: {capacity: 4, max_batch_bytes: 4MiB}\n",
             dir, read);
}

static void run_once(struct contestant *c, const char *dir)
{
    char yaml[1024];
    struct drain got;
    pipeline(c, dir, yaml, sizeof(yaml));
    drain("lines", yaml, ROUND_S, &got);
    if (got.rows_per_s > c->rows_per_s)
        c->rows_per_s = got.rows_per_s;
    if (got.rows_per_cpu_s > c->rows_per_cpu_s)
        c->rows_per_cpu_s = got.rows_per_cpu_s;
}

static void make_files(char *dir)
{
    char path[64];
    if (mkdtemp(dir) == NULL)
        bench_die("cannot make a folder in /tmp");
    for (int i = 0; i < N_FILES; i++) {
        snprintf(path, sizeof(path), "%s/%02d", dir, i);
        criteo_write(FILE_ROWS, ',', path);
    }
}

static void remove_files(const char *dir)
{
    char path[64];
    for (int i = 0; i < N_FILES; i++) {
        snprintf(path, sizeof(path), "%s/%02d", dir, i);
        unlink(path);
    }
    rmdir(dir);
}

int main(int argc, char **argv)
{
    struct bench_options options;
    bench_options_parse(argc, argv, 6.0, "Lines of 16 files, interleaved, to a trainer",
                        &options);
    struct contestant all[] = {{0}, {1, 1}, {4, 1}, {16, 1}, {4, 16}, {16, 16}};
    size_t n = sizeof(all) / sizeof(all[0]);
    char dir[] = "/tmp/stg-bench-XXXXXX";
    make_files(dir);
    uint64_t end = bench_now_ns() + (uint64_t)(options.seconds * 1e9);
    do {
        for (size_t i = 0; i < n; i++)
            run_once(&all[i], dir);
    } while (bench_now_ns() < end);
    remove_files(dir);

    double plain = all[0].rows_per_cpu_s;
    printf("one after the other: %.3f million rows/s a core, %.3f of wall time\n",
           plain / 1e6, all[0].rows_per_s / 1e6);
    for (size_t i = 1; i < n; i++)
        printf("cycle_length %2d, block_length %2d: %.3f million rows/s a core (%.2f), "
               "%.3f of wall time\n",
               all[i].cycle_length, all[i].block_length, all[i].rows_per_cpu_s / 1e6,
               all[i].rows_per_cpu_s / plain, all[i].rows_per_s / 1e6);
    if (options.json) {
        printf("{\"bench\": \"interleave\", \"reader_rows_per_s\": %.0f", plain);
        for (size_t i = 1; i < n; i++)
            printf(", \"cycle_%d_block_%d_rows_per_s\": %.0f, "
                   "\"cycle_%d_block_%d_ratio\": %.3f",
                   all[i].cycle_length, all[i].block_length, all[i].rows_per_cpu_s,
                   all[i].cycle_length, all[i].block_length,
                   all[i].rows_per_cpu_s / plain);
        printf("}\n");
    }
    return 0;
}
