/* SPDX-License-Identifier: Apache-2.0
 *
 * The cost of commits. A trainer computes 1 ms for each batch. Blocks of 100 batches with
 * a commit at their end alternate with blocks without one; each pair gives the ratio of
 * their times, and the median counts. Also the time of a commit, fsync included, and the
 * time and the size of a state.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/bench.h"
#include "tests/system/fixture.h"

#define STEP_NS UINT64_C(1000000)
#define BLOCK_BATCHES 100
#define MAX_PAIRS 10000
#define MIN_PAIRS 3

static double ratios[MAX_PAIRS];
static uint64_t commits_ns[MAX_PAIRS];
static uint64_t states_ns[MAX_PAIRS];
static size_t state_bytes;

static void step(struct stager_stream *stream)
{
    struct stager_batch *batch = fixture_take(stream);
    uint64_t end = bench_now_ns() + STEP_NS;
    while (bench_now_ns() < end)
        ;
    stager_release(batch);
}

static uint64_t commit(struct stager_stream *stream, size_t i)
{
    char state[STAGER_STATE_BYTES], tag[32];
    snprintf(tag, sizeof(tag), "checkpoint-%zu", i);
    uint64_t began = bench_now_ns();
    int rc = stager_state(stream, state, sizeof(state));
    uint64_t taken = bench_now_ns();
    if (rc < 0 || stager_commit(stream, state, tag) < 0)
        bench_die("commit: %s", stager_error_text(stream));
    states_ns[i] = taken - began;
    state_bytes = strlen(state);
    return bench_now_ns() - began;
}

/* Returns the time of a block; ret_commit_ns NULL: without a commit. */
static uint64_t run_block(struct stager_stream *stream, size_t i, uint64_t *ret_commit_ns)
{
    uint64_t began = bench_now_ns();
    for (int k = 0; k < BLOCK_BATCHES; k++)
        step(stream);
    if (ret_commit_ns != NULL)
        *ret_commit_ns = commit(stream, i);
    return bench_now_ns() - began;
}

static size_t measure(struct stager_stream *stream, double seconds)
{
    size_t n = 0;
    uint64_t end = bench_now_ns() + (uint64_t)(seconds * 1e9);
    run_block(stream, MAX_PAIRS - 1, &commits_ns[0]); /* makes the file */
    while (n < MAX_PAIRS && (n < MIN_PAIRS || bench_now_ns() < end)) {
        double without_ns = (double)run_block(stream, n, NULL);
        ratios[n] = without_ns / (double)run_block(stream, n, &commits_ns[n]);
        n++;
    }
    return n;
}

int main(int argc, char **argv)
{
    struct bench_options options;
    struct fixture fixture;
    bench_options_parse(argc, argv, 6, "a trainer that commits every 100 batches",
                        &options);
    fixture_start(&fixture, "");
    fixture_apply(&fixture, "name: p\n"
                            "dataset:\n  - range: {stop: 1000000000}\n"
                            "  - batch: {batch_size: 1024}\n"
                            "staged: {capacity: 4}\n");
    struct stager_stream *stream = fixture_open(&fixture, "p", NULL, 2);
    size_t n = measure(stream, options.seconds);
    stager_close(stream);
    fixture_finish(&fixture);

    double ratio = bench_median(ratios, n);
    uint64_t p50_ns = bench_percentile(commits_ns, n, 0.5);
    uint64_t p99_ns = bench_percentile(commits_ns, n, 0.99);
    uint64_t state_p50_ns = bench_percentile(states_ns, n, 0.5);
    uint64_t state_p99_ns = bench_percentile(states_ns, n, 0.99);
    printf("steps of 1 ms with a commit every %d, over none: %.4f  commit: p50 %llu us, "
           "p99 %llu us  state: p50 %llu ns, p99 %llu ns, %zu bytes  (%zu pairs)\n",
           BLOCK_BATCHES, ratio, (unsigned long long)p50_ns / 1000,
           (unsigned long long)p99_ns / 1000, (unsigned long long)state_p50_ns,
           (unsigned long long)state_p99_ns, state_bytes, n);
    if (options.json)
        printf("{\"bench\": \"commit\", \"ratio\": %.4f, \"commit_p50_ns\": %llu, "
               "\"commit_p99_ns\": %llu, \"state_p50_ns\": %llu, \"state_p99_ns\": %llu, "
               "\"state_bytes\": %zu}\n",
               ratio, (unsigned long long)p50_ns, (unsigned long long)p99_ns,
               (unsigned long long)state_p50_ns, (unsigned long long)state_p99_ns,
               state_bytes);
    return 0;
}
