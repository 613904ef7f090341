/* SPDX-License-Identifier: Apache-2.0
 *
 * From a position to the first batch: a new dataset that is moved to batch 10,000 of a
 * million records, and to batch 1,000,000 of a hundred million; as they lie, through a
 * shuffle window of 65,536, and through a global shuffle. Then to batch 100,000 of ten
 * million lines in eight files, with the record indexes that a pass before has built, and
 * behind a filter of ten million records with the marks of the replay. In the same run, a
 * dataset that replays: it makes the batches before that one, and drops them. The batches
 * must be equal. With less than the default of --seconds a tenth of the hundred million
 * must do.
 * At last the same through stagerd: from stager_open with a state to the first batch.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/state.h"
#include "daemon/dataset/dataset.h"
#include "daemon/index/index.h"
#include "proto/load.h"
#include "tests/bench/bench.h"
#include "tests/system/fixture.h"

#define BATCH 90
#define DEFAULT_SECONDS 2.0

#define N_FILES 8
#define LINES 1250000 /* of a file */

static char folder[] = "/tmp/stg-resume-XXXXXX";

struct result {
    double seconds;
    uint64_t sum; /* over the bytes of the batch */
};

static struct stg_pipeline_spec *load(const char *source, const char *shuffle)
{
    char text[600];
    struct stg_pipeline_spec *spec;
    struct stg_err err;
    snprintf(text, sizeof(text), "dataset:\n%s%s- batch: {batch_size: %d}\n", source,
             shuffle, BATCH);
    if (stg_load_pipeline(text, strlen(text), "resume", &spec, &err) < 0)
        bench_die("%s", err.text);
    return spec;
}

/* Over numbers, or over the bytes of strings. */
static uint64_t sum(const struct stg_tensor *tensor)
{
    uint64_t ret = 0;
    for (int64_t i = 0; i < BATCH; i++) {
        if (tensor->begin == NULL)
            ret = ret * 31 + ((const uint64_t *)tensor->data)[i];
        for (int64_t k = tensor->begin != NULL ? tensor->begin[i] : 0;
             tensor->begin != NULL && k < tensor->end[i]; k++)
            ret = ret * 31 + ((const uint8_t *)tensor->data)[k];
    }
    return ret;
}

static void take(struct stg_dataset *dataset, struct result *ret)
{
    struct stg_block *block;
    struct stg_err err;
    int rc = stg_dataset_next(dataset, &block, &err);
    if (rc != 0 || block->n_rows != BATCH)
        bench_die("no batch: %s", rc < 0 ? err.text : "the data has ended");
    ret->sum = sum(&block->tensors[0]);
    stg_block_unref(block);
}

/* seeks: or replays. */
static void run(const struct stg_pipeline_spec *spec, uint64_t n_batches, bool seeks,
                struct result *ret)
{
    const struct stg_dataset_env env = {.uid = 0, .notes_marks = true};
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

static char json[3000];

static void measure(const char *what, const char *name, const char *source,
                    const char *shuffle, uint64_t n_batches)
{
    struct stg_pipeline_spec *spec = load(source, shuffle);
    struct result seek, replay;
    size_t used = strlen(json), bytes = sizeof(json);
    run(spec, n_batches, false, &replay);
    run(spec, n_batches, true, &seek);
    if (seek.sum != replay.sum)
        bench_die("%s: another batch than that of the replay", what);
    if (used + 200 > bytes)
        bench_die("%s: no room in the JSON", what);
    printf("%-42s %8.3f s, replay %8.3f s: %.0f times\n", what, seek.seconds,
           replay.seconds, replay.seconds / seek.seconds);
    snprintf(json + used, bytes - used,
             ", \"%s_seconds\": %.6f, \"%s_replay_seconds\": %.6f, \"%s_ratio\": %.1f",
             name, seek.seconds, name, replay.seconds, name,
             replay.seconds / seek.seconds);
    stg_pipeline_spec_destroy(spec);
}

static const char *path_of(const char *name)
{
    static char path[100];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static void make_files(void)
{
    if (mkdtemp(folder) == NULL)
        bench_die("cannot make a folder in /tmp");
    for (int i = 0; i < N_FILES; i++) {
        char name[20];
        snprintf(name, sizeof(name), "lines-%d", i);
        FILE *file = fopen(path_of(name), "w");
        for (int k = 0; file != NULL && k < LINES; k++)
            fprintf(file, "%09d\n", i * LINES + k);
        if (file == NULL || fclose(file) != 0)
            bench_die("cannot write %s", path_of(name));
    }
    struct stg_err err;
    if (stg_index_configure(path_of("index"), 1u << 30, &err) < 0)
        bench_die("%s", err.text);
}

static void remove_files(void)
{
    char command[100];
    stg_index_finish();
    snprintf(command, sizeof(command), "rm -r %s", folder);
    if (system(command) != 0)
        bench_die("cannot remove %s", folder);
}

/* A pass that builds the indexes. */
static void read_all(const char *source)
{
    const struct stg_dataset_env env = {.uid = 0};
    struct stg_pipeline_spec *spec = load(source, "");
    struct stg_dataset *dataset;
    struct stg_block *block;
    struct stg_err err;
    if (stg_dataset_create(spec, &env, &dataset, &err) < 0)
        bench_die("%s", err.text);
    while (stg_dataset_next(dataset, &block, &err) == 0)
        stg_block_unref(block);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
}

static void measure_files(const char *window, const char *global)
{
    static const char filter[] =
        "- range: {stop: 10000000}\n"
        "- filter: {graph: {three: {op: constant, value: 3, dtype: int64}, two: {op: "
        "constant, value: 2, dtype: int64}, rest: {op: floormod, input: [value, three]}, "
        "is: {op: less, input: [rest, two]}}, predicate: is}\n";
    char lines[200], turns[200];
    make_files();
    measure("10 M records, filter", "filter", filter, "", 70000);
    measure("10 M records, filter, window 65536", "filter_window", filter, window, 70000);
    snprintf(lines, sizeof(lines), "- files: {pattern: \"%s/lines*\", seed: 5}\n%s",
             folder, "- text_line\n");
    snprintf(turns, sizeof(turns), "- files: {pattern: \"%s/lines*\", seed: 5}\n%s",
             folder, "- interleave: {cycle_length: 4, reader: {text_line: {}}}\n");
    read_all(lines);
    measure("10 M lines", "lines", lines, "", 100000);
    measure("10 M lines, window 65536", "lines_window", lines, window, 100000);
    measure("10 M lines, global", "lines_global", lines, global, 100000);
    measure("10 M lines, 4 files in turn, window 65536", "turns_window", turns, window,
            100000);
    remove_files();
}

/* ---- through stagerd ---- */

/* Takes a state behind the first batch, and moves it behind n_batches. */
static void make_state(struct fixture *fixture, uint64_t n_batches,
                       char text[STAGER_STATE_BYTES])
{
    struct stager_stream *stream = fixture_open(fixture, "resume", NULL, 1);
    struct stg_state state;
    struct stg_err err;
    stager_release(fixture_take(stream));
    if (stager_state(stream, text, STAGER_STATE_BYTES) < 0 ||
        stg_state_read(text, strlen(text), &state, &err) < 0)
        bench_die("no state: %s", stager_error_text(stream));
    stager_close(stream);
    state.place.items = state.place.index = n_batches;
    state.place.elements = n_batches * BATCH;
    stg_state_write(&state, text);
}

static void open_at(struct fixture *fixture, const char *state, struct result *ret)
{
    struct stager_options options = {
        .struct_size = sizeof(options), .runtime_dir = fixture->runtime, .state = state};
    struct stager_stream *stream;
    struct stager_tensor tensor;
    uint64_t began = bench_now_ns();
    if (stager_open(NULL, "resume", &options, &stream) < 0)
        bench_die("%s", stager_error_text(NULL));
    struct stager_batch *batch = fixture_take(stream);
    ret->seconds = (double)(bench_now_ns() - began) / 1e9;
    if (stager_batch_tensor(batch, "value", &tensor) < 0)
        bench_die("%s", stager_error_text(stream));
    ret->sum = 0;
    for (int i = 0; i < BATCH; i++)
        ret->sum = ret->sum * 31 + ((const uint64_t *)tensor.data)[i];
    stager_release(batch);
    stager_close(stream);
}

static void measure_open(const char *what, const char *name, const char *source,
                         const char *shuffle, uint64_t n_batches)
{
    struct stg_pipeline_spec *spec = load(source, shuffle);
    struct fixture fixture;
    struct result open, seek;
    char text[600], state[STAGER_STATE_BYTES];
    size_t used = strlen(json), bytes = sizeof(json);
    run(spec, n_batches, true, &seek);
    stg_pipeline_spec_destroy(spec);
    snprintf(text, sizeof(text),
             "name: resume\ndataset:\n%s%s- batch: {batch_size: %d}\n", source, shuffle,
             BATCH);
    fixture_start(&fixture, "");
    fixture_apply(&fixture, text);
    make_state(&fixture, n_batches, state);
    open_at(&fixture, state, &open);
    fixture_finish(&fixture);
    if (open.sum != seek.sum)
        bench_die("%s: another batch than that of the seek", what);
    printf("%-42s %8.3f s from stager_open, %zu bytes\n", what, open.seconds,
           strlen(state));
    snprintf(json + used, bytes - used, ", \"%s_open_seconds\": %.6f", name,
             open.seconds);
}

int main(int argc, char **argv)
{
    static const char window[] = "- shuffle: {buffer_size: 65536, seed: 3}\n";
    static const char global[] = "- shuffle: {global: true, seed: 3}\n";
    static const char million[] = "- range: {stop: 1000000}\n";
    static const char all[] = "- range: {stop: 100000000}\n";
    static const char tenth[] = "- range: {stop: 10000000}\n";
    struct bench_options options;
    bench_options_parse(argc, argv, DEFAULT_SECONDS, "from a position to the first batch",
                        &options);
    measure("1 M records", "million", million, "", 10000);
    measure("1 M records, window 65536", "million_window", million, window, 10000);
    measure("1 M records, global", "million_global", million, global, 10000);
    if (options.seconds >= DEFAULT_SECONDS) {
        measure("100 M records", "all", all, "", 1000000);
        measure("100 M records, window 65536", "window", all, window, 1000000);
        measure("100 M records, global", "global", all, global, 1000000);
    } else {
        measure("10 M records", "all", tenth, "", 100000);
        measure("10 M records, window 65536", "window", tenth, window, 100000);
        measure("10 M records, global", "global", tenth, global, 100000);
    }
    measure_files(window, global);
    measure_open("100 M records", "all", all, "", 1000000);
    measure_open("100 M records, window 65536", "window", all, window, 1000000);
    measure_open("100 M records, global", "global", all, global, 1000000);
    printf("{\"bench\": \"resume\"%s}\n", json);
    return 0;
}
