/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows per second of CPU through the steps, on one thread: files, text_line and batch of
 * 4096 on Criteo-like lines, alone and with a shuffle, and range. In the same run, the
 * bound for any reader: pread of the same file and memchr of its newlines. Also the cost
 * of filling a shuffle of a million lines: time, and memory as the system counts it.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "daemon/dataset/dataset.h"
#include "tests/bench/bench.h"

#define FILE_ROWS 262144
#define BATCH 4096
#define SHUFFLE 65536
#define LARGE_SHUFFLE 1000000
#define LARGE_READS 4 /* size of the file: for more rows than that */

static char path[64];

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* A label, 13 numbers, some of them missing, 26 words of eight digits. */
static void write_row(FILE *file, uint64_t *state)
{
    fprintf(file, "%d", (int)(next_random(state) & 1));
    for (int i = 0; i < 13; i++) {
        uint64_t r = next_random(state);
        fprintf(file, r % 5 == 0 ? "," : ",%llu", (unsigned long long)((r >> 8) % 999));
    }
    for (int i = 0; i < 26; i++)
        fprintf(file, ",%08x", (unsigned)next_random(state));
    fputc('\n', file);
}

static void make_file(void)
{
    strcpy(path, "/tmp/stg-bench-XXXXXX");
    int fd = mkstemp(path);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (file == NULL)
        bench_die("cannot make a file in /tmp");
    uint64_t state = 88172645463325252ull;
    for (int i = 0; i < FILE_ROWS; i++)
        write_row(file, &state);
    fclose(file);
}

struct plan {
    struct stg_step steps[4];
    struct stg_attr attrs[4][2];
    struct stg_value values[4][2];
    struct stg_pipeline_spec spec;
};

static void add(struct plan *plan, const char *step, const char *name,
                struct stg_value value)
{
    size_t i = plan->spec.n_steps;
    if (i == 0 || strcmp(plan->steps[i - 1].name, step) != 0) {
        plan->steps[i] = (struct stg_step){.name = step, .attrs = plan->attrs[i]};
        plan->spec.steps = plan->steps;
        plan->spec.n_steps++;
        i++;
    }
    struct stg_step *at = &plan->steps[i - 1];
    size_t k = at->n_attrs;
    if (name == NULL)
        return;
    plan->values[i - 1][k] = value;
    plan->attrs[i - 1][k] =
        (struct stg_attr){.name = name, .n_values = 1, .values = &plan->values[i - 1][k]};
    at->n_attrs++;
}

static struct stg_value number(int64_t i)
{
    return (struct stg_value){.kind = STG_VALUE_INT, .i = i};
}

/* The file that many times, up to LARGE_READS. */
static void add_lines(struct plan *plan, size_t n_times)
{
    static struct stg_value paths[LARGE_READS];
    for (size_t i = 0; i < LARGE_READS; i++)
        paths[i] = (struct stg_value){
            .kind = STG_VALUE_STRING, .s = path, .s_bytes = strlen(path)};
    add(plan, "files", "pattern", paths[0]);
    plan->attrs[0][0].values = paths;
    plan->attrs[0][0].n_values = n_times;
    add(plan, "text_line", NULL, number(0));
}

/* Runs one pass; returns its rows. */
static uint64_t run_pass(const struct plan *plan)
{
    struct stg_dataset_env env = {.uid = 0, .buffer_bytes = 256u << 20};
    struct stg_dataset *dataset;
    struct stg_err err;
    if (stg_dataset_create(&plan->spec, &env, &dataset, &err) < 0)
        bench_die("%s", err.text);
    uint64_t rows = 0;
    struct stg_block *block;
    int rc;
    while ((rc = stg_dataset_next(dataset, &block, &err)) == 0) {
        rows += (uint64_t)block->n_rows;
        stg_block_unref(block);
    }
    if (rc < 0)
        bench_die("%s", err.text);
    stg_dataset_destroy(dataset);
    return rows;
}

/* The bound: the file read in pieces of 256 KiB, its newlines counted by memchr. */
static uint64_t run_bound(void)
{
    static char piece[262144];
    int fd = open(path, O_RDONLY);
    uint64_t rows = 0;
    ssize_t n;
    off_t at = 0;
    while ((n = pread(fd, piece, sizeof(piece), at)) > 0) {
        const char *p = piece, *end = piece + n;
        while ((p = memchr(p, '\n', (size_t)(end - p))) != NULL) {
            rows++;
            p++;
        }
        at += n;
    }
    close(fd);
    return rows;
}

/* Time of this thread alone: the machine's other load does not count. */
/* The best of the passes that fit the time, rows per second of CPU. */
static double best_rate(const struct plan *plan, double seconds)
{
    double best = 0;
    uint64_t start = bench_now_ns();
    do {
        uint64_t before = stg_thread_cpu_ns();
        uint64_t rows = plan != NULL ? run_pass(plan) : run_bound();
        double rate = (double)rows * 1e9 / (double)(stg_thread_cpu_ns() - before);
        best = rate > best ? rate : best;
    } while ((double)(bench_now_ns() - start) < seconds * 1e9);
    return best;
}

/* Bytes of memory used by the process. */
static uint64_t resident_bytes(void)
{
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%*u %llu", &pages) != 1)
        bench_die("cannot read /proc/self/statm");
    fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Runs until the first batch is available. */
static void measure_fill(double *ret_seconds, double *ret_bytes)
{
    struct plan plan = {0};
    add_lines(&plan, LARGE_READS);
    add(&plan, "shuffle", "buffer_size", number(LARGE_SHUFFLE));
    add(&plan, "batch", "batch_size", number(BATCH));
    struct stg_dataset_env env = {.uid = 0};
    struct stg_dataset *dataset;
    struct stg_block *block;
    struct stg_err err;
    uint64_t memory = resident_bytes(), began = stg_thread_cpu_ns();
    if (stg_dataset_create(&plan.spec, &env, &dataset, &err) < 0 ||
        stg_dataset_next(dataset, &block, &err) < 0)
        bench_die("%s", err.text);
    *ret_seconds = (double)(stg_thread_cpu_ns() - began) / 1e9;
    *ret_bytes = (double)(resident_bytes() - memory) / LARGE_SHUFFLE;
    stg_block_unref(block);
    stg_dataset_destroy(dataset);
}

int main(int argc, char **argv)
{
    struct bench_options options;
    bench_options_parse(argc, argv, 2.0, "rows a second through the dataset steps",
                        &options);
    make_file();
    double each = options.seconds / 4;

    struct plan lines = {0}, shuffled = {0}, range = {0};
    add_lines(&lines, 1);
    add(&lines, "batch", "batch_size", number(BATCH));
    add_lines(&shuffled, 1);
    add(&shuffled, "shuffle", "buffer_size", number(SHUFFLE));
    add(&shuffled, "batch", "batch_size", number(BATCH));
    add(&range, "range", "stop", number(10000000));
    add(&range, "batch", "batch_size", number(BATCH));

    double fill_seconds, fill_bytes;
    measure_fill(&fill_seconds, &fill_bytes);
    double bound = best_rate(NULL, each);
    double rows = best_rate(&lines, each);
    double shuffle = best_rate(&shuffled, each);
    double numbers = best_rate(&range, each);
    unlink(path);
    printf("pread + memchr      %7.2f million rows/s\n", bound / 1e6);
    printf("text_line, batch    %7.2f million rows/s\n", rows / 1e6);
    printf("with shuffle %6d %7.2f million rows/s\n", SHUFFLE, shuffle / 1e6);
    printf("range, batch        %7.2f million rows/s\n", numbers / 1e6);
    printf("shuffle of %d: filled in %.3f s, %.0f bytes a record\n", LARGE_SHUFFLE,
           fill_seconds, fill_bytes);
    printf("{\"bench\": \"dataset\", \"rows_per_s\": %.0f, \"ratio\": %.3f, "
           "\"shuffle_rows_per_s\": %.0f, \"range_rows_per_s\": %.0f, "
           "\"fill_seconds\": %.3f, \"fill_bytes_per_record\": %.1f}\n",
           rows, rows / bound, shuffle, numbers, fill_seconds, fill_bytes);
    return 0;
}
