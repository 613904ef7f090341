/* SPDX-License-Identifier: Apache-2.0
 *
 * Objects of a server on loopback with 50 ms to the first byte and 100 MB/s for each
 * connection: `interleave` over 64 of them, one at a time and sixteen at once, and with
 * deterministic: false while one object never arrives. The same pipeline over local files
 * gives the bound of the parser. The server is a separate process.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/dataset/dataset.h"
#include "daemon/storage/http/fetcher.h"
#include "tests/bench/bench.h"
#include "tests/bench/slow_server.h"

#define DELAY_NS 50000000u
#define BYTES_PER_S 100000000u
#define N_OBJECTS 64
#define BATCH 8
#define CYCLE 16

/* ---- pipelines ---- */

struct run {
    const char *const *paths;
    size_t n_paths;
    int64_t cycle, prefetch;
    bool sloppy;
    int64_t n_records; /* objects that do arrive */
};

static struct stg_attr attr_of(const char *name, const struct stg_value *values, size_t n)
{
    return (struct stg_attr){
        .name = name, .values = (struct stg_value *)values, .n_values = n};
}

/* Bytes of records per second. */
static double rate(const struct run *run)
{
    struct stg_value paths[N_OBJECTS + 1],
        no = {.kind = STG_VALUE_BOOL}, cycle = {.kind = STG_VALUE_INT, .i = run->cycle},
        prefetch = {.kind = STG_VALUE_INT, .i = run->prefetch},
        batch = {.kind = STG_VALUE_INT, .i = BATCH},
        in_order = {.kind = STG_VALUE_BOOL, .i = !run->sloppy};
    for (size_t i = 0; i < run->n_paths; i++)
        paths[i] = (struct stg_value){.kind = STG_VALUE_STRING,
                                      .s = run->paths[i],
                                      .s_bytes = strlen(run->paths[i])};
    struct stg_attr files[] = {attr_of("pattern", paths, run->n_paths),
                               attr_of("shuffle", &no, 1)};
    struct stg_attr interleave[] = {attr_of("cycle_length", &cycle, 1),
                                    attr_of("prefetch_input_elements", &prefetch, 1),
                                    attr_of("deterministic", &in_order, 1)};
    struct stg_attr batches[] = {attr_of("batch_size", &batch, 1)};
    struct stg_step reader = {.name = "tfrecord"};
    struct stg_step steps[] = {
        {.name = "files", .attrs = files, .n_attrs = 2},
        {.name = "interleave", .attrs = interleave, .n_attrs = 3, .reader = &reader},
        {.name = "batch", .attrs = batches, .n_attrs = 1}};
    struct stg_pipeline_spec spec = {.steps = steps, .n_steps = 3};
    _Atomic int stopped = 0;
    struct stg_dataset_env env = {.stopped = &stopped};
    struct stg_dataset *dataset;
    struct stg_block *block;
    struct stg_err err = {0};
    int64_t n = 0;
    uint64_t begin = bench_now_ns();
    if (stg_dataset_create(&spec, &env, &dataset, &err) < 0)
        bench_die("%s", err.text);
    while (n < run->n_records && stg_dataset_next(dataset, &block, &err) == 0) {
        if (block->error.code != 0)
            bench_die("%s", block->error.text);
        n += block->tensors[0].shape[0];
        stg_block_unref(block);
    }
    uint64_t elapsed = bench_now_ns() - begin;
    atomic_store(&stopped, 1);
    stg_dataset_destroy(dataset);
    if (n != run->n_records)
        bench_die("%lld records: %s", (long long)n, err.text);
    return (double)n * SLOW_RECORD_BYTES * 1e9 / (double)elapsed;
}

/* ---- rounds ---- */

enum what { ONE, MANY, LOCAL, SLOPPY, STALLED, N_WHAT };

#define MAX_ROUNDS 200

static double rates[N_WHAT][MAX_ROUNDS];

static size_t measure(const struct run runs[N_WHAT], double seconds)
{
    uint64_t until = bench_now_ns() + (uint64_t)(seconds * 1e9);
    size_t n = 0;
    do {
        for (int i = 0; i < N_WHAT; i++)
            rates[i][n] = rate(&runs[i]);
        n++;
    } while (n < MAX_ROUNDS && bench_now_ns() < until);
    return n;
}

static void report(size_t n, bool json)
{
    double found[N_WHAT];
    for (int i = 0; i < N_WHAT; i++)
        found[i] = bench_median(rates[i], n);
    double streams = CYCLE * found[ONE];
    double most = streams < found[LOCAL] ? streams : found[LOCAL];
    if (!json) {
        printf("one object at a time %.0f MB/s, %d at once %.0f MB/s, local files %.0f "
               "MB/s\n",
               found[ONE] / 1e6, CYCLE, found[MANY] / 1e6, found[LOCAL] / 1e6);
        printf("out of order %.0f MB/s, with one object that never comes %.0f MB/s\n",
               found[SLOPPY] / 1e6, found[STALLED] / 1e6);
        return;
    }
    printf("{\"bench\": \"remote\", \"rounds\": %zu, \"one_bytes_per_s\": %.4g, "
           "\"bytes_per_s\": %.4g, \"local_bytes_per_s\": %.4g, "
           "\"unordered_bytes_per_s\": %.4g, \"stalled_bytes_per_s\": %.4g, "
           "\"ratio\": %.3f, \"ratio_of_possible\": %.3f, \"ratio_stalled\": %.3f}\n",
           n, found[ONE], found[MANY], found[LOCAL], found[SLOPPY], found[STALLED],
           found[MANY] / found[ONE], found[MANY] / most, found[STALLED] / found[SLOPPY]);
}

static const char *write_local(const char *object)
{
    static char path[] = "/tmp/stg-remote-XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0 || write(fd, object, SLOW_OBJECT_BYTES) != (ssize_t)SLOW_OBJECT_BYTES)
        bench_die("%s: cannot be written", path);
    close(fd);
    return path;
}

int main(int argc, char **argv)
{
    struct bench_options options;
    bench_options_parse(
        argc, argv, 10,
        "64 objects, 50 ms to the first byte, 100 MB/s a connection: "
        "interleave with cycle_length 16 against 1 and against local files",
        &options);
    static char urls[N_OBJECTS + 1][64];
    const char *remote[N_OBJECTS + 1], *local[N_OBJECTS];
    struct slow_server server;
    slow_server_start(&server, DELAY_NS, BYTES_PER_S);
    const char *file = write_local(server.object);
    for (int i = 0; i <= N_OBJECTS; i++) {
        snprintf(urls[i], sizeof(urls[i]), "http://127.0.0.1:%u/%s%d", server.port,
                 i == 0 ? "never" : "", i);
        remote[i] = urls[i];
        if (i > 0)
            local[i - 1] = file;
    }
    const struct run runs[N_WHAT] = {
        [ONE] = {remote + 1, CYCLE / 2, 1, 0, false, CYCLE / 2 * SLOW_N_RECORDS},
        [MANY] = {remote + 1, N_OBJECTS, CYCLE, CYCLE, false, N_OBJECTS * SLOW_N_RECORDS},
        [LOCAL] = {local, N_OBJECTS, CYCLE, CYCLE, false, N_OBJECTS * SLOW_N_RECORDS},
        [SLOPPY] = {remote + 1, N_OBJECTS, CYCLE, CYCLE, true,
                    N_OBJECTS * SLOW_N_RECORDS},
        [STALLED] = {remote, N_OBJECTS + 1, CYCLE, CYCLE, true,
                     N_OBJECTS * SLOW_N_RECORDS},
    };
    report(measure(runs, options.seconds), options.json);
    stg_fetchers_finish();
    unlink(file);
    slow_server_stop(&server);
    return 0;
}
