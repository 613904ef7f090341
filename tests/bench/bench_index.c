/* SPDX-License-Identifier: Apache-2.0
 *
 * Record indexes. Building: CPU time of a pass over files in the page cache that stores
 * the index of each, compared with the same pass without indexes, in batches of 4096
 * records; one large file of each format, and text in files of 4 MiB, the smallest that
 * have an index. Using: time to the record in the middle of the large file by the index,
 * compared with a replay of the ends of records, and with producing all records before
 * it. The variants take turns, and the best round of each counts.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "daemon/dataset/step.h"
#include "daemon/index/index.h"
#include "tests/bench/bench.h"
#include "tests/bench/criteo.h"
#include "tests/bench/frame.h"

#define FILE_ROWS 400000
#define N_SMALL 16
#define SMALL_ROWS 18400 /* a little more than 4 MiB */
#define RECORD_BYTES 725
#define BATCH_RECORDS 4096

static char folder[64] = "/tmp/stg-bench-index-XXXXXX";

static const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

/* ---- files ---- */

static void write_frames(const char *path, size_t n)
{
    char frame[RECORD_BYTES + STG_FRAME_HEAD + STG_FRAME_TAIL];
    uint64_t seed = 1;
    FILE *file = fopen(path, "we");
    for (size_t i = 0; file != NULL && i < n; i++) {
        uint64_t bytes = bench_frame_random(frame, RECORD_BYTES, &seed);
        if (fwrite(frame, 1, bytes, file) != bytes)
            bench_die("%s: cannot be written", path);
    }
    if (file == NULL || fclose(file) != 0)
        bench_die("%s: cannot be written", path);
}

static void write_files(void)
{
    char name[32];
    if (mkdtemp(folder) == NULL)
        bench_die("cannot make a folder in /tmp");
    criteo_write(FILE_ROWS, ',', path_of("large.csv"));
    write_frames(path_of("large.tfrecord"), FILE_ROWS);
    for (int i = 0; i < N_SMALL; i++) {
        snprintf(name, sizeof(name), "small%02d", i);
        criteo_write(SMALL_ROWS, ',', path_of(name));
    }
}

static void empty(const char *path, bool itself)
{
    char at[512];
    DIR *dir = opendir(path);
    const struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        snprintf(at, sizeof(at), "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.' && unlink(at) < 0)
            empty(at, true);
    }
    if (dir != NULL)
        closedir(dir);
    if (itself)
        rmdir(path);
}

static void use_indexes(bool on)
{
    struct stg_err err = {0};
    if (stg_index_configure(path_of("index"), on ? 1ull << 30 : 0, &err) < 0)
        bench_die("%s", err.text);
}

/* ---- measured work ---- */

struct input {
    const char *name, *reader, *pattern;
    int64_t n_records;
};

static struct stg_dataset *open_input(const struct input *input, bool in_batches)
{
    static struct stg_value values[2];
    static struct stg_attr attrs[2];
    static struct stg_step steps[3];
    static char pattern[128];
    snprintf(pattern, sizeof(pattern), "%s", path_of(input->pattern));
    values[0] = (struct stg_value){
        .kind = STG_VALUE_STRING, .s = pattern, .s_bytes = strlen(pattern)};
    values[1] = (struct stg_value){.kind = STG_VALUE_INT, .i = BATCH_RECORDS};
    attrs[0] = (struct stg_attr){.name = "pattern", .n_values = 1, .values = &values[0]};
    attrs[1] =
        (struct stg_attr){.name = "batch_size", .n_values = 1, .values = &values[1]};
    steps[0] = (struct stg_step){.name = "files", .attrs = &attrs[0], .n_attrs = 1};
    steps[1] = (struct stg_step){.name = input->reader};
    steps[2] = (struct stg_step){.name = "batch", .attrs = &attrs[1], .n_attrs = 1};
    struct stg_pipeline_spec spec = {.steps = steps, .n_steps = in_batches ? 3 : 2};
    struct stg_dataset_env env = {.uid = 0};
    struct stg_dataset *dataset;
    struct stg_err err = {0};
    if (stg_dataset_create(&spec, &env, &dataset, &err) < 0)
        bench_die("%s", err.text);
    return dataset;
}

static void check_count(int64_t got, int64_t want)
{
    if (got != want)
        bench_die("%lld records, not %lld", (long long)got, (long long)want);
}

static void read_all(const struct input *input)
{
    struct stg_dataset *dataset = open_input(input, true);
    struct stg_block *block;
    struct stg_err err = {0};
    int64_t n = 0;
    while (stg_dataset_next(dataset, &block, &err) == 0) {
        n += block->tensors[0].shape[0];
        stg_block_unref(block);
    }
    stg_dataset_destroy(dataset);
    check_count(n, input->n_records);
}

/* Goes to the middle, and takes one record. */
static void go_to_middle(const struct input *input, bool produces)
{
    struct stg_dataset *dataset = open_input(input, false);
    struct stg_block *block;
    struct stg_err err = {0};
    uint64_t half = (uint64_t)input->n_records / 2, n = 0;
    int rc = produces ? stg_iter_replay(dataset->last, half, &n, &err)
                      : stg_iter_skip(dataset->last, half, &n, &err);
    if (rc < 0 || n != half || stg_dataset_next(dataset, &block, &err) != 0)
        bench_die("%s", err.text);
    check_count((int64_t)block->rows[0].record, (int64_t)half);
    stg_block_unref(block);
    stg_dataset_destroy(dataset);
}

/* ---- rounds ---- */

struct result {
    uint64_t plain_ns, built_ns;                   /* CPU of a pass */
    uint64_t indexed_ns, replayed_ns, produced_ns; /* to the middle, by the clock */
};

static void best(uint64_t *ns, uint64_t took)
{
    if (*ns == 0 || took < *ns)
        *ns = took;
}

static void build_round(const struct input *input, struct result *result)
{
    use_indexes(false);
    uint64_t begin = stg_thread_cpu_ns();
    read_all(input);
    best(&result->plain_ns, stg_thread_cpu_ns() - begin);
    empty(path_of("index"), false);
    use_indexes(true);
    begin = stg_thread_cpu_ns();
    read_all(input);
    best(&result->built_ns, stg_thread_cpu_ns() - begin);
}

static void seek_round(const struct input *input, struct result *result)
{
    use_indexes(true);
    uint64_t begin = bench_now_ns();
    go_to_middle(input, false);
    best(&result->indexed_ns, bench_now_ns() - begin);
    use_indexes(false);
    begin = bench_now_ns();
    go_to_middle(input, false);
    best(&result->replayed_ns, bench_now_ns() - begin);
    begin = bench_now_ns();
    go_to_middle(input, true);
    best(&result->produced_ns, bench_now_ns() - begin);
}

static struct result measure(const struct input *input, double seconds)
{
    struct result result = {0};
    uint64_t until = bench_now_ns() + (uint64_t)(seconds * 1e9);
    do {
        build_round(input, &result);
        if (input->n_records == FILE_ROWS)
            seek_round(input, &result);
    } while (bench_now_ns() < until);
    return result;
}

static void report(const struct input *input, const struct result *r, bool json,
                   bool last)
{
    double build = (double)r->plain_ns / (double)r->built_ns;
    bool has_middle = r->indexed_ns > 0;
    double replay = has_middle ? (double)r->replayed_ns / (double)r->indexed_ns : 0;
    double produce = has_middle ? (double)r->produced_ns / (double)r->indexed_ns : 0;
    if (json) {
        printf("\"%s\": {\"build_ratio\": %.3f", input->name, build);
        if (has_middle)
            printf(", \"indexed_ns\": %llu, \"replay_ratio\": %.1f, "
                   "\"produce_ratio\": %.1f",
                   (unsigned long long)r->indexed_ns, replay, produce);
        printf("}%s", last ? "}\n" : ", ");
        return;
    }
    printf("%s: building at %.3f of the rate without", input->name, build);
    if (has_middle)
        printf("; to the middle in %.2f ms, %.0f times faster than a replay, %.0f times "
               "than producing",
               (double)r->indexed_ns / 1e6, replay, produce);
    printf("\n");
}

int main(int argc, char **argv)
{
    struct bench_options options;
    bench_options_parse(argc, argv, 8, "Record indexes: building and using them",
                        &options);
    static const struct input inputs[] = {
        {"text_line", "text_line", "large.csv", FILE_ROWS},
        {"csv", "csv", "large.csv", FILE_ROWS},
        {"tfrecord", "tfrecord", "large.tfrecord", FILE_ROWS},
        {"small_files", "text_line", "small*", N_SMALL * SMALL_ROWS},
    };
    size_t n = sizeof(inputs) / sizeof(inputs[0]);
    write_files();
    if (options.json)
        printf("{\"bench\": \"index\", ");
    for (size_t i = 0; i < n; i++) {
        struct result result = measure(&inputs[i], options.seconds / (double)n);
        report(&inputs[i], &result, options.json, i + 1 == n);
    }
    stg_index_finish();
    empty(folder, true);
    return 0;
}
