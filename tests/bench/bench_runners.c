/* SPDX-License-Identifier: Apache-2.0
 *
 * The cost of more runners than there is work: batches of one number, with 1, 4, 16 and
 * 64 runners. `ratio` is the rate of 64 over that of one.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/bench/bench.h"
#include "tests/system/fixture.h"

static const int n_threads[] = {1, 4, 16, 64};
#define N (sizeof(n_threads) / sizeof(n_threads[0]))

static double measure(struct fixture *fixture, int threads, double seconds)
{
    char name[32], yaml[512];
    snprintf(name, sizeof(name), "runners%d", threads);
    snprintf(yaml, sizeof(yaml),
             "name: %s\n"
             "dataset:\n  - range: {stop: 1000000000}\n"
             "staged: {capacity: 8, num_threads: %d}\n",
             name, threads);
    fixture_apply(fixture, yaml);
    struct stager_stream *stream = fixture_open(fixture, name, name, 4);
    for (int i = 0; i < 1000; i++)
        stager_release(fixture_take(stream));
    uint64_t n = 0, began = bench_now_ns(), now = began;
    while (now - began < (uint64_t)(seconds * 1e9)) {
        for (int i = 0; i < 100; i++)
            stager_release(fixture_take(stream));
        n += 100;
        now = bench_now_ns();
    }
    stager_close(stream);
    return (double)n / ((double)(now - began) / 1e9);
}

int main(int argc, char **argv)
{
    struct bench_options options;
    bench_options_parse(argc, argv, 4, "tiny batches by many runners", &options);
    struct fixture fixture;
    fixture_start(&fixture, "memory_budget: 1GiB\n");
    double rates[N];
    for (size_t i = 0; i < N; i++) {
        rates[i] = measure(&fixture, n_threads[i], options.seconds / N);
        printf("%2d runners: %8.0f batches/s\n", n_threads[i], rates[i]);
    }
    fixture_finish(&fixture);
    if (options.json)
        printf("{\"bench\": \"runners\", \"rows_per_s\": %.0f, \"ratio\": %.3f}\n",
               rates[0], rates[N - 1] / rates[0]);
    return 0;
}
