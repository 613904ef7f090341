/* SPDX-License-Identifier: Apache-2.0
 *
 * Criteo-like records as tf.train.Example, from TFRecord files in the page cache to dense
 * columns in a trainer's hands: both checksums, batches of 4096, parse_example with
 * strings hashed or unchanged, shared memory. With one runner, per second of CPU of
 * daemon and trainer together; with two, in wall time. The variants take turns, and the
 * best round of each counts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "tests/bench/criteo.h"
#include "tests/bench/criteo_example.h"
#include "tests/bench/drain.h"

#define FILE_ROWS (16 * CRITEO_BATCH_ROWS)
#define ROUND_S 0.5

struct contestant {
    const char *name;
    bool hashed;
    int n_runners;
    double rows_per_s, rows_per_cpu_s;
};

static void run_once(struct contestant *c, const char *path)
{
    static char yaml[CRITEO_PIPELINE_BYTES];
    char staged[64];
    struct drain got;
    snprintf(staged, sizeof(staged), "capacity: 4, num_threads: %d", c->n_runners);
    criteo_example_pipeline("records", path, c->hashed, staged, yaml);
    drain("records", yaml, ROUND_S, &got);
    if (got.rows_per_s > c->rows_per_s)
        c->rows_per_s = got.rows_per_s;
    if (got.rows_per_cpu_s > c->rows_per_cpu_s)
        c->rows_per_cpu_s = got.rows_per_cpu_s;
}

int main(int argc, char **argv)
{
    struct bench_options options;
    bench_options_parse(argc, argv, 4.0, "TFRecords of Criteo-like Examples to a trainer",
                        &options);
    struct contestant all[] = {
        {.name = "hashed", .hashed = true, .n_runners = 1},
        {.name = "strings", .n_runners = 1},
        {.name = "two runners", .hashed = true, .n_runners = 2},
    };
    size_t n = sizeof(all) / sizeof(all[0]);
    char path[] = "/tmp/stg-bench-XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0)
        bench_die("cannot make a file in /tmp");
    close(fd);
    double row_bytes = (double)criteo_example_file(FILE_ROWS, path) / FILE_ROWS;
    uint64_t end = bench_now_ns() + (uint64_t)(options.seconds * 1e9);
    do {
        for (size_t i = 0; i < n; i++)
            run_once(&all[i], path);
    } while (bench_now_ns() < end);
    unlink(path);

    printf("batches of %d records, %.0f bytes a record with its frame\n",
           CRITEO_BATCH_ROWS, row_bytes);
    for (size_t i = 0; i < n; i++)
        printf("%-12s %7.3f million rows/s a core  %7.3f million rows/s of wall time\n",
               all[i].name, all[i].rows_per_cpu_s / 1e6, all[i].rows_per_s / 1e6);
    if (options.json)
        printf("{\"bench\": \"records\", \"rows_per_s\": %.0f, \"bytes_per_s\": %.0f, "
               "\"strings_rows_per_s\": %.0f, \"wall_rows_per_s\": %.0f, "
               "\"two_runners_wall_rows_per_s\": %.0f}\n",
               all[0].rows_per_cpu_s, all[0].rows_per_cpu_s * row_bytes,
               all[1].rows_per_cpu_s, all[0].rows_per_s, all[2].rows_per_s);
    return 0;
}
