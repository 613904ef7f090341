/* SPDX-License-Identifier: Apache-2.0
 *
 * The cost of the audit: CPU time of stagerd for a block of batches of a pipeline with
 * `audit: none`, over that of one with an audit. One trainer takes blocks of both in
 * turn, as fast as it can. Each pair gives a ratio, and the median counts. Small batches
 * show the cost of positions, 1 MiB that of a hash of the tensors.
 */
#include <stdio.h>

#include "tests/bench/bench.h"
#include "tests/system/fixture.h"

#define MAX_PAIRS 4000
#define MIN_PAIRS 5

static double ratios[MAX_PAIRS];

static uint64_t run_block(const struct fixture *fixture, struct stager_stream *stream,
                          unsigned n_batches)
{
    uint64_t began = bench_process_ns(fixture->pid);
    for (unsigned i = 0; i < n_batches; i++)
        stager_release(fixture_take(stream));
    return bench_process_ns(fixture->pid) - began;
}

static struct stager_stream *open_one(struct fixture *fixture, const char *audit,
                                      unsigned rows)
{
    char name[64], text[512];
    snprintf(name, sizeof(name), "%s-%u", audit, rows);
    snprintf(text, sizeof(text),
             "name: %s\ndataset:\n  - range: {stop: 1000000000000}\n"
             "  - batch: {batch_size: %u}\n"
             "staged: {capacity: 8, audit: %s}\n",
             name, rows, audit);
    fixture_apply(fixture, text);
    return fixture_open(fixture, name, NULL, 4);
}

/* Returns the median of the ratios of batches per second of CPU, with over without. */
static double measure(struct fixture *fixture, const char *audit, unsigned rows,
                      unsigned n_batches, double seconds)
{
    struct stager_stream *base = open_one(fixture, "none", rows);
    struct stager_stream *audited = open_one(fixture, audit, rows);
    uint64_t end = bench_now_ns() + (uint64_t)(seconds * 1e9);
    size_t n = 0;
    run_block(fixture, base, n_batches);
    run_block(fixture, audited, n_batches);
    while (n < MAX_PAIRS && (n < MIN_PAIRS || bench_now_ns() < end)) {
        double without_ns = (double)run_block(fixture, base, n_batches);
        ratios[n++] = without_ns / (double)run_block(fixture, audited, n_batches);
    }
    stager_close(base);
    stager_close(audited);
    return bench_median(ratios, n);
}

int main(int argc, char **argv)
{
    struct bench_options options;
    struct fixture fixture;
    bench_options_parse(argc, argv, 6,
                        "batches per second of CPU with and without an audit", &options);
    fixture_start(&fixture, "");
    double positions = measure(&fixture, "positions", 16, 20000, options.seconds / 2);
    double contents = measure(&fixture, "contents", 131072, 50, options.seconds / 2);
    fixture_finish(&fixture);
    printf("batches per second of CPU, over audit: none: positions, 128 bytes: %.4f  "
           "contents, "
           "1 MiB: %.4f\n",
           positions, contents);
    if (options.json)
        printf("{\"bench\": \"audit\", \"ratio\": %.4f, \"contents\": %.4f}\n", positions,
               contents);
    return 0;
}
