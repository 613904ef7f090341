/* SPDX-License-Identifier: Apache-2.0
 *
 * From a position to the first batch: a new dataset that is moved to batch 10,000 of a
 * million records, and to batch 1,000,000 of a hundred million; with and without a
 * shuffle window of 65,536. In the same run, a dataset that replays: it makes the batches
 * before that one, and drops them. The batches must be equal.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/dataset/dataset.h"
#include "proto/load.h"
#include "tests/bench/bench.h"

#define BATCH 90

struct result {
    double seconds;
    int64_t rows[BATCH]; /* of the batch */
};

static struct stg_pipeline_spec *load(const char *shuffle, uint64_t n_records)
{
    char text[300];
    struct stg_pipeline_spec *spec;
    struct stg_err err;
    snprintf(text, sizeof(text),
             "dataset:\n- range: {stop: %" PRIu64 "}\n%s- batch: {batch_size: %d}\n",
             n_records, shuffle, BATCH);
    if (stg_load_pipeline(text, strlen(text), "resume", &spec, &err) < 0)
        bench_die("%s", err.text);
    return spec;
}

static void take(struct stg_dataset *dataset, struct result *ret)
{
    struct stg_block *block;
    struct stg_err err;
    int rc = stg_dataset_next(dataset, &block, &err);
    if (rc != 0 || block->n_rows != BATCH)
        bench_die("no batch: %s", rc < 0 ? err.text : "the data has ended");
    memcpy(ret->rows, block->tensors[0].data, sizeof(ret->rows));
    stg_block_unref(block);
}

/* seeks: or replays. */
static void run(const struct stg_pipeline_spec *spec, uint64_t n_batches, bool seeks,
                struct result *ret)
{
    const struct stg_dataset_env env = {.uid = 0};
    const struct stg_position position = {.items = n_batches,
                                          .elements = n_batches * BATCH};
    struct stg_dataset *dataset;
    struct stg_err err;
    uint64_t began = bench_now_ns();
    if (stg_dataset_create(spec, &env, &dataset, &err) < 0)
        bench_die("%s", err.text);
    if (seeks && stg_dataset_seek(dataset, &position, &err) < 0)
        bench_die("%s", err.text);
    for (uint64_t i = 0; !seeks && i < n_batches; i++)
        take(dataset, ret);
    take(dataset, ret);
    ret->seconds = (double)(bench_now_ns() - began) / 1e9;
    stg_dataset_destroy(dataset);
}

static void measure(const char *what, const char *name, const char *shuffle,
                    uint64_t n_records, uint64_t n_batches, char *json, size_t bytes)
{
    struct stg_pipeline_spec *spec = load(shuffle, n_records);
    struct result seek, replay;
    size_t used = strlen(json);
    run(spec, n_batches, true, &seek);
    run(spec, n_batches, false, &replay);
    if (memcmp(seek.rows, replay.rows, sizeof(seek.rows)) != 0)
        bench_die("%s: another batch than that of the replay", what);
    printf("%-42s %8.3f s, replay %8.3f s: %.0f times\n", what, seek.seconds,
           replay.seconds, replay.seconds / seek.seconds);
    snprintf(json + used, bytes - used,
             ", \"%s_seconds\": %.6f, \"%s_replay_seconds\": %.6f, \"%s_ratio\": %.1f",
             name, seek.seconds, name, replay.seconds, name,
             replay.seconds / seek.seconds);
    stg_pipeline_spec_destroy(spec);
}

int main(int argc, char **argv)
{
    static const char window[] = "- shuffle: {buffer_size: 65536, seed: 3}\n";
    struct bench_options options;
    char json[1000] = "";
    bench_options_parse(argc, argv, 2.0, "from a position to the first batch", &options);
    measure("1 M records", "million", "", 1000000, 10000, json, sizeof(json));
    measure("1 M records, window 65536", "million_window", window, 1000000, 10000, json,
            sizeof(json));
    measure("100 M records", "all", "", 100000000, 1000000, json, sizeof(json));
    measure("100 M records, window 65536", "window", window, 100000000, 1000000, json,
            sizeof(json));
    printf("{\"bench\": \"resume\"%s}\n", json);
    return 0;
}
