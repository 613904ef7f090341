/* SPDX-License-Identifier: Apache-2.0
 *
 * Criteo-like rows from the page cache to tensors in a batch at rest: files, text_line,
 * repeat and batch of 4096, then decode_csv with all rules, its strings hashed. With each
 * table of kernels that this CPU can run, with two runners, with a shuffle, with tabs;
 * and by the step csv with columns by name in place of text_line and decode_csv. For
 * scale, strsep + strtol + strtof over lines in memory, strings copied into columns. The
 * variants take turns, and the best round of each counts. One runner's rate is per second
 * of its thread on a core: a busy machine makes rounds longer, not slower. The gain of
 * two runners is measured in wall time, together with the gain of two that share only the
 * file: the machine does not give more than that.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "daemon/dataset/dataset.h"
#include "ops/kernels/csv/csv.h"
#include "tests/bench/bench.h"
#include "tests/bench/criteo.h"
#include "tests/ops/fixture.h"

#define BATCH_ROWS 4096
#define FILE_ROWS (24 * BATCH_ROWS)
#define EPOCHS 16 /* times that a pass reads the file */
#define PASS_ROWS (EPOCHS * FILE_ROWS)
#define SHUFFLE_ROWS 65536
#define N_BUCKETS 1000000
#define MAX_RUNNERS 2

/* ---- the pipeline ---- */

#define N_COLUMNS (1 + CRITEO_NUMBERS + CRITEO_STRINGS)

/* Returns the name of a column, and its dtype. */
static const char *column_name(int c, const char **ret_dtype)
{
    static char names[N_COLUMNS][8];
    bool is_number = c <= CRITEO_NUMBERS;
    *ret_dtype = c == 0 ? "int32" : is_number ? "float32" : "string";
    if (c == 0)
        return "label";
    snprintf(names[c], sizeof(names[c]), "%c%d", is_number ? 'I' : 'C',
             is_number ? c : c - CRITEO_NUMBERS);
    return names[c];
}

/* The same features, of columns that the reader yields by name. */
static void named_graph_text(char *text, size_t bytes)
{
    const char *dtype;
    FILE *to = fmemopen(text, bytes, "w");
    if (to == NULL)
        bench_die("no memory for the text of a graph");
    for (int c = 0; c < N_COLUMNS; c++) {
        const char *name = column_name(c, &dtype);
        fprintf(to, "element %s %s [-1]\n", name, dtype);
    }
    for (int c = 0; c < N_COLUMNS; c++) {
        const char *name = column_name(c, &dtype);
        if (c > CRITEO_NUMBERS)
            fprintf(to,
                    "ids%d = string_to_hash_bucket_fast(%s) num_buckets=%d\n"
                    "feature %s = ids%d\n",
                    c, name, N_BUCKETS, name, c);
        else
            fprintf(to, "feature %s = %s\n", name, name);
    }
    fclose(to);
}

static void graph_text(char *text, size_t bytes, char delim)
{
    FILE *to = fmemopen(text, bytes, "w");
    if (to == NULL)
        bench_die("no memory for the text of a graph");
    fprintf(to,
            "element record string [-1]\n"
            "columns = decode_csv(record) field_delim=\"\\x%02x\" record_defaults=[0",
            (unsigned)delim);
    for (int i = 0; i < CRITEO_NUMBERS; i++)
        fprintf(to, ", 0.0");
    for (int i = 0; i < CRITEO_STRINGS; i++)
        fprintf(to, ", \"\"");
    fprintf(to, "]\nfeature label = columns:0\n");
    for (int i = 0; i < CRITEO_NUMBERS; i++)
        fprintf(to, "feature I%d = columns:%d\n", i + 1, i + 1);
    for (int i = 0; i < CRITEO_STRINGS; i++)
        fprintf(to,
                "ids%d = string_to_hash_bucket_fast(columns:%d) num_buckets=%d\n"
                "feature C%d = ids%d\n",
                i, CRITEO_NUMBERS + 1 + i, N_BUCKETS, i + 1, i);
    fclose(to);
}

struct steps {
    struct stg_step steps[5];
    struct stg_attr attrs[5];
    struct stg_value values[5];
    /* Of the step csv: header, the columns, the defaults of numbers. */
    struct stg_attr named[1 + N_COLUMNS + CRITEO_NUMBERS];
    struct stg_value named_values[1 + N_COLUMNS + CRITEO_NUMBERS];
    struct stg_pipeline_spec spec;
};

static void add_step(struct steps *to, const char *name, const char *attr,
                     struct stg_value value)
{
    size_t i = to->spec.n_steps++;
    to->values[i] = value;
    to->attrs[i] =
        (struct stg_attr){.name = attr, .n_values = 1, .values = &to->values[i]};
    to->steps[i] = (struct stg_step){
        .name = name, .attrs = &to->attrs[i], .n_attrs = attr != NULL ? 1 : 0};
    to->spec.steps = to->steps;
}

static struct stg_value number(int64_t i)
{
    return (struct stg_value){.kind = STG_VALUE_INT, .i = i};
}

static void add_named(struct steps *to, struct stg_step *step, const char *field,
                      const char *name, struct stg_value value)
{
    static char names[1 + N_COLUMNS + CRITEO_NUMBERS][24]; /* a dataset borrows them */
    size_t i = step->n_attrs++;
    snprintf(names[i], sizeof(names[i]), "%s%s", field, name);
    to->named_values[i] = value;
    to->named[i] = (struct stg_attr){
        .name = names[i], .n_values = 1, .values = &to->named_values[i]};
}

/* The columns by the names of the header. */
static void add_csv(struct steps *to)
{
    add_step(to, "csv", NULL, number(0));
    struct stg_step *step = &to->steps[to->spec.n_steps - 1];
    step->attrs = to->named;
    add_named(to, step, "header", "", (struct stg_value){.kind = STG_VALUE_BOOL, .i = 1});
    for (int c = 0; c < N_COLUMNS; c++) {
        const char *dtype, *name = column_name(c, &dtype);
        add_named(to, step, "columns/", name,
                  (struct stg_value){
                      .kind = STG_VALUE_STRING, .s = dtype, .s_bytes = strlen(dtype)});
        if (c > 0 && c <= CRITEO_NUMBERS)
            add_named(to, step, "defaults/", name, number(0));
    }
}

static void make_steps(struct steps *steps, const char *path, bool by_name, bool shuffle)
{
    *steps = (struct steps){0};
    add_step(
        steps, "files", "pattern",
        (struct stg_value){.kind = STG_VALUE_STRING, .s = path, .s_bytes = strlen(path)});
    if (by_name)
        add_csv(steps);
    else
        add_step(steps, "text_line", NULL, number(0));
    if (shuffle)
        add_step(steps, "shuffle", "buffer_size", number(SHUFFLE_ROWS));
    add_step(steps, "repeat", "count", number(EPOCHS));
    add_step(steps, "batch", "batch_size", number(BATCH_ROWS));
}

/* ---- runners ---- */

/* The private state of one runner. */
struct runner {
    struct pass *pass;
    struct stg_run *run;
    struct stg_batch_writer writer;
    void *memory;
    uint64_t cpu_ns;
    uint64_t n_rows;
};

struct input {
    char path[64];
    uint64_t bytes;
    char delim;
    bool by_name; /* it has a header */
    struct fixture fx;
    struct stg_graph *graph;
    struct runner runners[MAX_RUNNERS];
};

struct pass {
    struct input *input;
    struct stg_dataset *dataset;
    pthread_mutex_t lock; /* guards pulling */
};

#define EXTENT_BYTES (16u << 20)

/* Puts a header before the rows of a file. */
static void add_header(const char *path, uint64_t bytes)
{
    const char *dtype;
    char *rows = malloc(bytes);
    FILE *file = fopen(path, "r+");
    if (rows == NULL || file == NULL || fread(rows, 1, bytes, file) != bytes)
        bench_die("no header for %s", path);
    rewind(file);
    for (int c = 0; c < N_COLUMNS; c++)
        fprintf(file, "%s%c", column_name(c, &dtype), c + 1 < N_COLUMNS ? ',' : '\n');
    if (fwrite(rows, 1, bytes, file) != bytes || fclose(file) != 0)
        bench_die("no header for %s", path);
    free(rows);
}

static void input_init(struct input *input, char delim, bool by_name)
{
    static char text[16384];
    struct stg_err err = {0};
    *input = (struct input){.delim = delim, .by_name = by_name};
    input->bytes = criteo_file(FILE_ROWS, delim, input->path);
    if (by_name) {
        add_header(input->path, input->bytes);
        named_graph_text(text, sizeof(text));
    } else {
        graph_text(text, sizeof(text), delim);
    }
    if (fixture_parse(&input->fx, text, &err) < 0 ||
        stg_graph_create(&input->fx.spec, &input->fx.element, NULL, &input->graph, &err) <
            0)
        bench_die("%s", err.text);
    for (int i = 0; i < MAX_RUNNERS; i++) {
        struct runner *runner = &input->runners[i];
        if (stg_run_create_stage(input->graph, &runner->run, &err) < 0)
            bench_die("%s", err.text);
        runner->memory = aligned_alloc(65536, EXTENT_BYTES);
        if (runner->memory == NULL)
            bench_die("out of memory");
        memset(runner->memory, 1, EXTENT_BYTES);
    }
}

static void input_finish(struct input *input)
{
    unlink(input->path);
    for (int i = 0; i < MAX_RUNNERS; i++) {
        free(input->runners[i].memory);
        stg_run_destroy(input->runners[i].run);
    }
    stg_graph_destroy(input->graph);
    fixture_finish(&input->fx);
}

static void compute(struct runner *runner, const struct stg_block *block)
{
    struct stg_err err = {0};
    struct stg_sink sink = stg_sink_of_batch(&runner->writer);
    if (block->error.code != 0)
        bench_die("%s", block->error.text);
    if (stg_batch_writer_begin(&runner->writer, runner->memory, EXTENT_BYTES,
                               stg_graph_boundary(runner->pass->input->graph),
                               &err) < 0 ||
        stg_run_exec(runner->run, block->tensors, NULL, &sink, NULL, &err) < 0)
        bench_die("%s", err.text);
    stg_batch_writer_seal(&runner->writer);
}

/* Like the daemon's runners. */
static void *runner_main(void *arg)
{
    struct runner *runner = arg;
    uint64_t began = stg_thread_cpu_ns();
    for (;;) {
        struct stg_block *block;
        struct stg_err err;
        pthread_mutex_lock(&runner->pass->lock);
        int rc = stg_dataset_next(runner->pass->dataset, &block, &err);
        pthread_mutex_unlock(&runner->pass->lock);
        if (rc < 0)
            bench_die("%s", err.text);
        if (rc == 1)
            break;
        stg_block_read_ahead(block);
        compute(runner, block);
        runner->n_rows += (uint64_t)block->n_rows;
        stg_block_unref(block);
    }
    runner->cpu_ns = stg_thread_cpu_ns() - began;
    return NULL;
}

/* ---- strsep, strtol, strtof ---- */

struct columns {
    int32_t label[BATCH_ROWS];
    float numbers[CRITEO_NUMBERS][BATCH_ROWS];
    int64_t offsets[CRITEO_STRINGS][BATCH_ROWS + 1];
    char strings[CRITEO_STRINGS][BATCH_ROWS * 8];
};

static void strsep_row(const char *row, size_t n, int i, struct columns *to)
{
    char copy[CRITEO_MAX_ROW_BYTES], *rest = copy;
    memcpy(copy, row, n + 1);
    const char *field = strsep(&rest, ",");
    to->label[i] = (int32_t)strtol(field, NULL, 10);
    for (int c = 0; c < CRITEO_NUMBERS; c++) {
        field = strsep(&rest, ",");
        to->numbers[c][i] = *field != '\0' ? strtof(field, NULL) : 0.0f;
    }
    for (int c = 0; c < CRITEO_STRINGS; c++) {
        field = strsep(&rest, ",");
        size_t bytes = strlen(field);
        int64_t at = to->offsets[c][i];
        memcpy(to->strings[c] + at, field, bytes);
        to->offsets[c][i + 1] = at + (int64_t)bytes;
    }
}

/* Rows per second of CPU, best round. */
static double strsep_rate(double seconds)
{
    static struct columns columns;
    static char rows[BATCH_ROWS][CRITEO_MAX_ROW_BYTES];
    size_t bytes[BATCH_ROWS];
    uint64_t state = 20240607;
    for (int i = 0; i < BATCH_ROWS; i++) {
        bytes[i] = criteo_row(&state, ',', rows[i]);
        rows[i][bytes[i]] = '\0';
    }
    double best = 0;
    uint64_t end = bench_now_ns() + (uint64_t)(seconds * 1e9);
    do {
        uint64_t began = stg_thread_cpu_ns();
        for (int i = 0; i < BATCH_ROWS; i++)
            strsep_row(rows[i], bytes[i], i, &columns);
        double rate = BATCH_ROWS * 1e9 / (double)(stg_thread_cpu_ns() - began);
        best = rate > best ? rate : best;
    } while (bench_now_ns() < end);
    return best;
}

/* ---- taking turns ---- */

struct contestant {
    const char *name;
    struct input *input;
    const struct stg_csv_kernels *kernels;
    int n_runners;
    bool apart; /* each reads its own data set */
    bool shuffle;
    double rows_per_s; /* of CPU, all runners together over the busiest one */
    double wall_rows_per_s;
};

static void best_of(double *best, double rate)
{
    *best = rate > *best ? rate : *best;
}

/* Idle pages leave the cache of some machines within seconds. */
static void warm(const char *path)
{
    static char piece[1 << 20];
    FILE *file = fopen(path, "r");
    while (file != NULL && fread(piece, 1, sizeof(piece), file) > 0)
        ;
    if (file != NULL)
        fclose(file);
}

static struct stg_dataset *open_dataset(const struct contestant *c)
{
    struct steps steps;
    struct stg_dataset *dataset;
    struct stg_err err;
    struct stg_dataset_env env = {
        .uid = getuid(), .gid = getgid(), .buffer_bytes = 256u << 20};
    make_steps(&steps, c->input->path, c->input->by_name, c->shuffle);
    if (stg_dataset_create(&steps.spec, &env, &dataset, &err) < 0)
        bench_die("%s", err.text);
    return dataset;
}

static void run_once(struct contestant *c)
{
    struct pass passes[MAX_RUNNERS];
    pthread_t threads[MAX_RUNNERS];
    int n_passes = c->apart ? c->n_runners : 1;
    stg_csv_kernels_use(c->kernels);
    warm(c->input->path);
    uint64_t began = bench_now_ns();
    for (int i = 0; i < n_passes; i++)
        passes[i] = (struct pass){.input = c->input,
                                  .dataset = open_dataset(c),
                                  .lock = PTHREAD_MUTEX_INITIALIZER};
    for (int i = 0; i < c->n_runners; i++) {
        struct runner *runner = &c->input->runners[i];
        runner->pass = &passes[i % n_passes];
        runner->n_rows = 0;
        if (pthread_create(&threads[i], NULL, runner_main, runner) != 0)
            bench_die("no thread");
    }
    uint64_t busiest = 0, n_rows = 0;
    for (int i = 0; i < c->n_runners; i++) {
        const struct runner *runner = &c->input->runners[i];
        pthread_join(threads[i], NULL);
        n_rows += runner->n_rows;
        busiest = runner->cpu_ns > busiest ? runner->cpu_ns : busiest;
    }
    uint64_t wall = bench_now_ns() - began;
    for (int i = 0; i < n_passes; i++)
        stg_dataset_destroy(passes[i].dataset);
    stg_csv_kernels_use(NULL);
    if (n_rows != (uint64_t)n_passes * PASS_ROWS)
        bench_die("%llu rows of %d", (unsigned long long)n_rows, n_passes * PASS_ROWS);
    best_of(&c->rows_per_s, (double)n_rows * 1e9 / (double)busiest);
    best_of(&c->wall_rows_per_s, (double)n_rows * 1e9 / (double)wall);
}

int main(int argc, char **argv)
{
    struct bench_options options;
    bench_options_parse(argc, argv, 4.0,
                        "Criteo-like rows from the page cache to tensors.", &options);
    static struct input csv, tsv, named;
    input_init(&csv, ',', false);
    input_init(&tsv, '\t', false);
    input_init(&named, ',', true);
    size_t n_tables;
    const struct stg_csv_kernels *const *tables = stg_csv_kernels_all(&n_tables);
    const struct stg_csv_kernels *best = tables[n_tables - 1];
    struct contestant all[10] = {
        {.name = "one runner", .input = &csv, .kernels = best, .n_runners = 1},
        {.name = "tabs", .input = &tsv, .kernels = best, .n_runners = 1},
        {.name = "two runners", .input = &csv, .kernels = best, .n_runners = 2},
        {.name = "shuffle",
         .input = &csv,
         .kernels = best,
         .n_runners = 1,
         .shuffle = true},
        {.name = "two apart",
         .input = &csv,
         .kernels = best,
         .n_runners = 2,
         .apart = true},
        {.name = "by name", .input = &named, .kernels = best, .n_runners = 1},
    };
    size_t n = 6;
    for (size_t i = 0; i + 1 < n_tables; i++)
        all[n++] = (struct contestant){
            .name = tables[i]->name, .input = &csv, .kernels = tables[i], .n_runners = 1};
    double baseline = strsep_rate(options.seconds / 10);
    uint64_t end = bench_now_ns() + (uint64_t)(options.seconds * 1e9);
    do {
        for (size_t i = 0; i < n; i++)
            run_once(&all[i]);
    } while (bench_now_ns() < end);

    double row_bytes = (double)csv.bytes / FILE_ROWS, rate = all[0].rows_per_s;
    printf("batches of %d rows, %.0f bytes a row, kernels: %s\n", BATCH_ROWS, row_bytes,
           best->name);
    for (size_t i = 0; i < n; i++)
        printf("%-12s %7.3f million rows/s a core  %7.3f million rows/s of wall time\n",
               all[i].name, all[i].rows_per_s / 1e6, all[i].wall_rows_per_s / 1e6);
    printf("%-12s %7.3f million rows/s a core\n", "strsep", baseline / 1e6);
    if (options.json)
        printf("{\"bench\": \"csv\", \"kernels\": \"%s\", \"rows_per_s\": %.0f, "
               "\"bytes_per_s\": %.0f, \"ratio\": %.3f, \"scalar_rows_per_s\": %.0f, "
               "\"tab_rows_per_s\": %.0f, \"two_runners_ratio\": %.3f, "
               "\"two_apart_ratio\": %.3f, "
               "\"shuffle_rows_per_s\": %.0f, \"shuffle_ratio\": %.3f, "
               "\"by_name_rows_per_s\": %.0f, \"by_name_ratio\": %.3f, "
               "\"baseline_rows_per_s\": %.0f, \"baseline_ratio\": %.3f}\n",
               best->name, rate, rate * row_bytes, rate / all[6].rows_per_s,
               all[6].rows_per_s, all[1].rows_per_s,
               all[2].wall_rows_per_s / all[0].wall_rows_per_s,
               all[4].wall_rows_per_s / all[0].wall_rows_per_s, all[3].rows_per_s,
               all[3].rows_per_s / rate, all[5].rows_per_s, all[5].rows_per_s / rate,
               baseline, rate / baseline);
    input_finish(&named);
    input_finish(&tsv);
    input_finish(&csv);
    return 0;
}
