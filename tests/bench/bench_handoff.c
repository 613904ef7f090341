/* SPDX-License-Identifier: Apache-2.0
 *
 * What a trainer pays to take a ready batch and give it back: stager_next +
 * stager_release, for batches of 4 KB and of 256 MB. Each sample is taken when the daemon
 * says that every credit of this client is filled; the call that empties the ring rings
 * the daemon's bell and is counted too.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/bench.h"
#include "tests/system/fixture.h"

#define MAX_HELD 8u
#define MAX_SAMPLES 200000u

struct result {
    uint64_t p50_ns, p99_ns;
    size_t n;
};

/* Were that many batches handed to us? Releases may not have been noticed yet: credits do
 * not tell. */
static bool all_ready(const struct fixture_status *status, void *n_taken)
{
    return status->assigned >= *(size_t *)n_taken + MAX_HELD;
}

static void measure(struct fixture *fixture, const char *name, uint64_t n_floats,
                    double seconds, struct result *ret)
{
    char yaml[1024];
    snprintf(yaml, sizeof(yaml),
             "name: %s\n"
             "dataset:\n  - range: {stop: 1000000000}\n"
             "graph:\n  - {name: x, op: constant, value: 1.5, shape: [%llu]}\n"
             "staged: {features: {x: x}, capacity: 1}\n",
             name, (unsigned long long)n_floats);
    fixture_apply(fixture, yaml);
    struct stager_stream *stream = fixture_open(fixture, name, name, MAX_HELD);
    uint64_t *samples = malloc(MAX_SAMPLES * sizeof(*samples));
    uint64_t end = bench_now_ns() + (uint64_t)(seconds * 1e9);
    *ret = (struct result){0};
    while (bench_now_ns() < end && ret->n + MAX_HELD <= MAX_SAMPLES) {
        fixture_wait(fixture, name, 20000, all_ready, &ret->n);
        for (unsigned i = 0; i < MAX_HELD; i++) {
            struct stager_batch *batch;
            uint64_t began = bench_now_ns();
            int rc = stager_next(stream, 0, &batch);
            if (rc < 0)
                bench_die("next: %s", stager_error_text(stream));
            stager_release(batch);
            samples[ret->n++] = bench_now_ns() - began;
        }
    }
    ret->p50_ns = bench_percentile(samples, ret->n, 0.5);
    ret->p99_ns = bench_percentile(samples, ret->n, 0.99);
    free(samples);
    stager_close(stream);
}

int main(int argc, char **argv)
{
    struct bench_options options;
    bench_options_parse(argc, argv, 4, "stager_next + stager_release of a ready batch",
                        &options);
    struct fixture fixture;
    fixture_start(&fixture, "memory_budget: 6GiB\n");
    struct result small, large;
    measure(&fixture, "small", 1024, options.seconds / 2, &small);
    measure(&fixture, "large", 64u << 20, options.seconds / 2, &large);
    fixture_finish(&fixture);

    double ratio = (double)large.p50_ns / (double)small.p50_ns;
    printf("4 KB batches:   p50 %6llu ns  p99 %6llu ns  (%zu samples)\n",
           (unsigned long long)small.p50_ns, (unsigned long long)small.p99_ns, small.n);
    printf("256 MB batches: p50 %6llu ns  p99 %6llu ns  (%zu samples)\n",
           (unsigned long long)large.p50_ns, (unsigned long long)large.p99_ns, large.n);
    if (options.json)
        printf("{\"bench\": \"handoff\", \"p50_ns\": %llu, \"p99_ns\": %llu, "
               "\"large_p50_ns\": %llu, \"large_p99_ns\": %llu, \"ratio\": %.3f}\n",
               (unsigned long long)small.p50_ns, (unsigned long long)small.p99_ns,
               (unsigned long long)large.p50_ns, (unsigned long long)large.p99_ns, ratio);
    return 0;
}
