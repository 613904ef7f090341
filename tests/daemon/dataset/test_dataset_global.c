/* SPDX-License-Identifier: Apache-2.0
 *
 * The global shuffle: its permutation, its orders, how far they are from uniform, and
 * what it refuses. The step and the position harness have its rows.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/dataset/steps/global/permutation.h"
#include "daemon/dataset/steps/global_shuffle.h"
#include "daemon/index/index.h"
#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"

/* ---- the permutation ---- */

static struct stg_permutation permutation_of(uint64_t n, uint64_t seed)
{
    struct stg_permutation permutation;
    struct stg_random random;
    stg_random_init(&random, seed, STG_RANDOM_BLOCKS, 0, 0);
    stg_permutation_init(&permutation, n, &random);
    return permutation;
}

static void each_value_has_one_place(void)
{
    static const uint64_t sizes[] = {1, 2, 3, 1000, 1024, 1025, 4096, 4097, 100003};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint64_t n = sizes[i];
        struct stg_permutation permutation = permutation_of(n, i);
        bool *seen = calloc(n, sizeof(bool));
        for (uint64_t place = 0; place < n; place++) {
            uint64_t value = stg_permutation_at(&permutation, place);
            CHECK(value < n && !seen[value]);
            seen[value] = true;
            CHECK_INT(stg_permutation_find(&permutation, value), place);
        }
        free(seen);
    }
}

static void a_large_permutation_is_undone(void)
{
    static const uint64_t sizes[] = {1ull << 32, (1ull << 32) + 1, 1ull << 62};
    for (size_t i = 0; i < 3; i++) {
        struct stg_permutation permutation = permutation_of(sizes[i], 5);
        for (uint64_t k = 0; k < 1000; k++) {
            uint64_t value = stg_permutation_at(&permutation, sizes[i] / 1000 * k);
            CHECK(value < sizes[i]);
            CHECK(stg_permutation_find(&permutation, value) == sizes[i] / 1000 * k);
        }
    }
}

/* ---- chi-square ---- */

#define BUCKETS 16
/* 15 degrees of freedom: one in ten thousand uniform samples has more. */
#define LIMIT 44.3

static double chi_square(const uint64_t *counts, uint64_t n)
{
    double expected = (double)n / BUCKETS, sum = 0;
    for (int i = 0; i < BUCKETS; i++)
        sum += ((double)counts[i] - expected) * ((double)counts[i] - expected) / expected;
    return sum;
}

/* Of the place of a value, over seeds. */
static void the_place_of_a_value_is_uniform(void)
{
    static const uint64_t sizes[] = {64, 1600, 1ull << 20};
    for (size_t i = 0; i < 3; i++) {
        uint64_t n = sizes[i], values[] = {0, 1, n / 2, n - 1};
        for (int k = 0; k < 4; k++) {
            uint64_t counts[BUCKETS] = {0};
            for (uint64_t seed = 0; seed < 8000; seed++) {
                struct stg_permutation permutation = permutation_of(n, seed);
                uint64_t place = stg_permutation_find(&permutation, values[k]);
                counts[place * BUCKETS / n]++;
            }
            CHECK(chi_square(counts, 8000) < LIMIT);
        }
    }
}

/* Of the distance of two values that follow one another, as a rank among n - 1. */
static void the_distance_of_two_values_is_uniform(void)
{
    static const uint64_t sizes[] = {65, 1601, (1 << 20) + 1};
    for (size_t i = 0; i < 3; i++) {
        uint64_t n = sizes[i], counts[BUCKETS] = {0};
        for (uint64_t seed = 0; seed < 8000; seed++) {
            struct stg_permutation permutation = permutation_of(n, seed);
            uint64_t a = stg_permutation_find(&permutation, n / 3);
            uint64_t b = stg_permutation_find(&permutation, n / 3 + 1);
            counts[((b + n - a) % n - 1) * BUCKETS / (n - 1)]++;
        }
        CHECK(chi_square(counts, 8000) < LIMIT);
    }
}

/* ---- windows ---- */

static void each_place_is_in_its_window(void)
{
    for (uint64_t n = 1; n < 60; n++) {
        struct stg_global_layout layout = {
            .n = n, .block = 1 + n % 7, .window = 1 + n % 3};
        layout.n_blocks = (n + layout.block - 1) / layout.block;
        uint64_t n_windows = (layout.n_blocks + layout.window - 1) / layout.window;
        for (layout.short_window = 0; layout.short_window < n_windows;
             layout.short_window++) {
            uint64_t window = 0;
            for (uint64_t place = 0; place < n; place++) {
                while (window + 1 < n_windows &&
                       stg_global_layout_begin(&layout, window + 1) <= place)
                    window++;
                CHECK_INT(stg_global_layout_find(&layout, place), window);
            }
        }
    }
}

/* ---- orders ---- */

struct order {
    int64_t *values;
    int64_t n;
};

/* The numbers of a pass over a dataset of numbers; a global shuffle of range(n). */
static struct order read_order(const char *text, uint64_t pass)
{
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec;
    struct order ret = {0};
    env.pass = pass;
    struct stg_dataset *dataset = stg_test_open_text(text, &env, &spec);
    struct stg_block *block;
    while ((block = stg_test_next(dataset)) != NULL) {
        CHECK_INT(block->error.code, 0);
        ret.values =
            realloc(ret.values, (size_t)(ret.n + block->n_rows) * sizeof(*ret.values));
        memcpy(ret.values + ret.n, block->tensors[0].data,
               (size_t)block->n_rows * sizeof(*ret.values));
        ret.n += block->n_rows;
        stg_block_unref(block);
    }
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
    return ret;
}

static struct order order_of(const char *options, int64_t n, uint64_t pass)
{
    char text[400];
    snprintf(text, sizeof(text),
             "dataset:\n- range: {stop: %lld}\n- shuffle: {global: true%s}\n"
             "- batch: {batch_size: 100}\n",
             (long long)n, options);
    return read_order(text, pass);
}

static bool is_same(struct order a, struct order b)
{
    return a.n == b.n && memcmp(a.values, b.values, (size_t)a.n * sizeof(int64_t)) == 0;
}

static void check_complete(const int64_t *values, int64_t n)
{
    bool *seen = calloc((size_t)n, sizeof(bool));
    for (int64_t i = 0; i < n; i++) {
        CHECK(values[i] >= 0 && values[i] < n && !seen[values[i]]);
        seen[values[i]] = true;
    }
    free(seen);
}

static const char *const kinds[] = {"", ", exact: true",
                                    ", block_size: 7, buffer_size: 70",
                                    ", exact: true, buffer_size: 33"};

static void each_epoch_has_each_record_once(void)
{
    static const int64_t sizes[] = {1, 2, 99, 100, 5003};
    for (size_t k = 0; k < 4; k++) {
        for (size_t i = 0; i < 5; i++) {
            char text[400];
            snprintf(text, sizeof(text),
                     "dataset:\n- range: {stop: %lld}\n"
                     "- shuffle_and_repeat: {global: true, count: 3%s}\n"
                     "- batch: {batch_size: 1}\n",
                     (long long)sizes[i], kinds[k]);
            struct order all = read_order(text, 0);
            CHECK_INT(all.n, 3 * sizes[i]);
            for (int64_t epoch = 0; epoch < 3; epoch++)
                check_complete(all.values + epoch * sizes[i], sizes[i]);
            if (sizes[i] > 50)
                CHECK(memcmp(all.values, all.values + sizes[i],
                             (size_t)sizes[i] * sizeof(int64_t)) != 0);
            free(all.values);
        }
    }
}

static void the_order_is_a_function_of_seed_and_pass(void)
{
    for (size_t k = 0; k < 4; k++) {
        char other[100], fixed[100];
        snprintf(other, sizeof(other), "%s, seed: 9", kinds[k]);
        snprintf(fixed, sizeof(fixed), "%s, reshuffle_each_iteration: false", kinds[k]);
        struct order a = order_of(kinds[k], 2000, 0), b = order_of(kinds[k], 2000, 0);
        struct order next = order_of(kinds[k], 2000, 1), seed = order_of(other, 2000, 0);
        struct order c = order_of(fixed, 2000, 0), d = order_of(fixed, 2000, 5);
        CHECK(is_same(a, b) && is_same(c, d));
        CHECK(!is_same(a, next) && !is_same(a, seed));
        free(a.values);
        free(b.values);
        free(c.values);
        free(d.values);
        free(next.values);
        free(seed.values);
    }
}

/* From golden_global.py. */
static void the_orders_are_the_golden_ones(void)
{
    static const int64_t window[3][14] = {{9, 5, 10, 11, 3, 4, 1, 13, 0, 12, 2, 6, 7, 8},
                                          {4, 10, 5, 9, 11, 3, 6, 0, 1, 2, 7, 8, 13, 12},
                                          {8, 0, 6, 7, 1, 2, 10, 3, 9, 5, 11, 4, 12, 13}};
    static const int64_t exact[] = {1107, 704, 573, 614, 594, 74,
                                    1441, 366, 11,  531, 183, 701};
    static const char twice[] =
        "dataset:\n- range: {stop: 14}\n- shuffle: {global: true, block_size: 3, "
        "buffer_size: 6, seed: 7}\n- repeat: {count: 2}\n- batch: {batch_size: 1}\n";
    struct order first = read_order(twice, 0), next = read_order(twice, 1);
    CHECK(memcmp(first.values, window[0], 2 * sizeof(window[0])) == 0);
    CHECK(memcmp(next.values, window[2], sizeof(window[2])) == 0);
    free(first.values);
    free(next.values);
    first = order_of(", exact: true, buffer_size: 4, seed: 7", 1500, 0);
    CHECK(memcmp(first.values, exact, sizeof(exact)) == 0);
    free(first.values);
}

static void an_empty_input_is_an_empty_output(void)
{
    for (size_t k = 0; k < 4; k++) {
        struct order none = order_of(kinds[k], 0, 0);
        CHECK_INT(none.n, 0);
        free(none.values);
    }
}

/* A block has records of the inputs before and behind it. */
static void an_input_without_records_is_passed_over(void)
{
    static const char *const none[] = {
        "range: {stop: 3}, skip: {count: 5}",
        "range: {stop: 2}, shard: {num_shards: 4, index: 3}", "range: {stop: 0}"};
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        char text[400];
        snprintf(text, sizeof(text),
                 "datasets: {none: [%s], more: [range: {start: 10, stop: 20}]}\n"
                 "dataset: [range: {stop: 10}, concatenate: {from: [none, more, none]}, "
                 "shuffle: {global: true, block_size: 20}, batch: {batch_size: 1}]\n",
                 none[i]);
        struct order order = read_order(text, 0);
        CHECK_INT(order.n, 20);
        check_complete(order.values, 20);
        free(order.values);
    }
}

/* ---- batches as elements ---- */

static int64_t rest_of(int64_t n, int64_t size)
{
    return n % size != 0 ? n % size : size;
}

static void check_windows(const char *step, int64_t n_values)
{
    char text[300];
    snprintf(text, sizeof(text),
             "dataset:\n- range: {stop: 103}\n- %s\n"
             "- shuffle: {global: true, exact: true, buffer_size: 4}\n"
             "- padded_batch: {batch_size: 1}\n",
             step);
    struct order order = read_order(text, 0);
    CHECK_INT(order.n, n_values);
    check_complete(order.values, n_values);
    int64_t n_in_place = 0;
    for (int64_t at = 0; at < n_values;) {
        int64_t first = order.values[at], n = first == 100 ? rest_of(103, 10) : 10;
        CHECK_INT(first % 10, 0);
        n_in_place += first == at;
        for (int64_t i = 0; i < n; i++, at++)
            CHECK_INT(order.values[at], first + i);
    }
    CHECK(n_in_place < 5);
    free(order.values);
}

static void the_elements_of_a_batch_stay_together(void)
{
    check_windows("batch: {batch_size: 10}", 103);
    check_windows("batch: {batch_size: 10, drop_remainder: true}", 100);
    check_windows("padded_batch: {batch_size: 10}", 103);
    check_windows("map_and_batch: {output: [value], batch_size: 10, "
                  "num_parallel_calls: 2}",
                  103);
}

/* Divides by the number minus 13. */
static void an_error_takes_the_place_of_its_batch(void)
{
    static const char text[] =
        "dataset:\n- range: {stop: 103}\n- map: {graph: {d: {op: constant, value: 13, "
        "dtype: int64}, rest: {op: subtract, input: [value, d]}, part: {op: floordiv, "
        "input: [d, rest]}}, output: {value: value, part: part}}\n"
        "- batch: {batch_size: 10}\n"
        "- shuffle: {global: true, block_size: 2, buffer_size: 4}\n";
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec;
    struct stg_dataset *dataset = stg_test_open_text(text, &env, &spec);
    struct stg_block *block;
    int64_t n_errors = 0, n_batches = 0, n = 0;
    while ((block = stg_test_next(dataset)) != NULL) {
        n_errors += block->error.code != 0;
        if (block->error.code == 0) {
            const int64_t *values = block->tensors[0].data;
            n_batches++;
            n += block->n_rows;
            CHECK(values[0] % 10 == 0 && values[0] != 10);
        }
        stg_block_unref(block);
    }
    CHECK_INT(n_errors, 1);
    CHECK_INT(n_batches, 10);
    CHECK_INT(n, 93);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
}

/* ---- the distance from uniform ---- */

static int64_t find(struct order order, int64_t value)
{
    int64_t i = 0;
    while (order.values[i] != value)
        i++;
    return i;
}

/* Of the place of one record over 400 passes. */
static double spread(const char *step, int64_t value)
{
    uint64_t counts[BUCKETS] = {0};
    for (uint64_t pass = 0; pass < 400; pass++) {
        char text[300];
        snprintf(text, sizeof(text),
                 "dataset:\n- range: {stop: 1600}\n- %s\n- batch: {batch_size: 1600}\n",
                 step);
        struct order order = read_order(text, pass);
        counts[find(order, value) * BUCKETS / 1600]++;
        free(order.values);
    }
    return chi_square(counts, 400);
}

static void places_are_uniform_where_those_of_a_window_are_not(void)
{
    SKIP_WITHOUT_THREADS();
    CHECK(spread("shuffle: {global: true, exact: true, buffer_size: 50}", 0) < LIMIT);
    CHECK(spread("shuffle: {global: true, exact: true, buffer_size: 50}", 1599) < LIMIT);
    CHECK(spread("shuffle: {global: true, block_size: 10, buffer_size: 50}", 0) < LIMIT);
    CHECK(spread("shuffle: {global: true, block_size: 10, buffer_size: 50}", 1599) <
          LIMIT);
    CHECK(spread("shuffle: {buffer_size: 50}", 0) > 1000);
    CHECK(spread("shuffle: {buffer_size: 50}", 1599) > 1000);
}

/* How often two records that follow one another in the input come less than a window of
 * 50 apart: always where they are of one block, else in 5 of 159 cases or so. */
static void records_of_a_block_come_within_one_window(void)
{
    int64_t n_near[2] = {0}, n[2] = {0};
    for (uint64_t pass = 0; pass < 20; pass++) {
        struct order order = order_of(", block_size: 10, buffer_size: 50", 1600, pass);
        int64_t at[1600];
        for (int64_t i = 0; i < 1600; i++)
            at[order.values[i]] = i;
        for (int64_t i = 0; i < 1599; i++) {
            bool is_border = i % 10 == 9;
            n[is_border]++;
            n_near[is_border] += at[i] / 50 == at[i + 1] / 50;
        }
        free(order.values);
    }
    CHECK_INT(n_near[0], n[0]);
    CHECK(n_near[1] * 100 < 5 * n[1]);
}

/* ---- files ---- */

#define LINE_BYTES 96

static char *lines_text(int64_t n)
{
    char *text = calloc((size_t)n + 1, LINE_BYTES), *at = text;
    for (int64_t i = 0; i < n; i++)
        at += snprintf(at, LINE_BYTES, "%lld %.*s\n", (long long)i, (int)(i % 60),
                       "------------------------------------------------------------");
    return text;
}

static void make_files(void)
{
    for (int i = 0; i < 5; i++) {
        char name[20], *text = lines_text(i == 2 ? 0 : 4000 * (i + 1));
        snprintf(name, sizeof(name), "g%d.txt", i);
        stg_test_file(name, text, strlen(text));
        free(text);
    }
}

#define LINES                                                                            \
    "dataset:\n- files: {pattern: \"$DIR/g*.txt\", seed: 3}\n"                           \
    "- text_line: {with_key: true}\n"

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Sorts the lines of a text, which is changed. */
static char *sorted(char *text)
{
    size_t n = 0, bytes;
    char **lines = malloc((strlen(text) + 1) * sizeof(*lines)), *sorted;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"))
        lines[n++] = line;
    qsort(lines, n, sizeof(*lines), compare);
    FILE *out = open_memstream(&sorted, &bytes);
    for (size_t i = 0; i < n; i++)
        fprintf(out, "%s\n", lines[i]);
    fclose(out);
    free(lines);
    free(text);
    return sorted;
}

static char *render(const char *text)
{
    struct stg_dataset_env env = stg_test_env();
    return stg_test_render_text(text, &env, 0);
}

/* Where no file has an index, then where all have. */
static void all_records_of_files_come_in_the_same_order_with_an_index(void)
{
    struct stg_err err = {0};
    make_files();
    char *with[3], *without[3];
    static const char *const shuffles[] = {
        LINES "- shuffle: {global: true, block_size: 100, buffer_size: 1000}\n",
        LINES "- shuffle: {global: true}\n",
        LINES "- take: {count: 6000}\n- shuffle: {global: true, exact: true}\n"};
    for (int i = 0; i < 3; i++)
        without[i] = render(shuffles[i]);
    stg_index_set_min_bytes(1);
    CHECK_OK(stg_index_configure(stg_test_path("index"), 1u << 30, &err), err);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 3; i++) {
            with[i] = render(shuffles[i]);
            CHECK_STR(with[i], without[i]);
            free(with[i]);
        }
    }
    stg_index_finish();
    char *all = sorted(render(LINES)), *got = sorted(without[0]);
    CHECK_STR(got, all);
    free(got);
    got = sorted(without[1]);
    CHECK_STR(got, all);
    free(got);
    free(all);
    free(without[2]);
}

/* ---- row groups ---- */

static void make_table(const char *name, const char *options)
{
    char command[1024];
    snprintf(command, sizeof(command), "python3 '%s' '%s' %s", getenv("STG_MAKE_PARQUET"),
             stg_test_path(name), options);
    CHECK_INT(system(command), 0);
}

static const char *table_text(const char *options)
{
    static char text[500];
    snprintf(text, sizeof(text),
             "dataset:\n- files: {pattern: \"$DIR/g*.parquet\", shuffle: false}\n"
             "- parquet: {columns: {c0: int64}}\n- shuffle: {global: true, seed: 7%s}\n"
             "- repeat: {count: 2}\n- batch: {batch_size: 100}\n",
             options);
    return text;
}

/* From golden_global.py: the second epoch of pass 1. */
static void blocks_are_row_groups_several_or_pieces(void)
{
    static const int64_t golden[] = {27, 16, 25, 19, 29, 4,  5,  6,  33, 7,  18, 32,
                                     17, 24, 21, 28, 9,  11, 23, 20, 8,  3,  22, 0,
                                     34, 2,  10, 1,  15, 12, 14, 26, 30, 31, 13};
    make_table("g1.parquet", "--columns 1 --groups 6 --rows 4 --page-rows 3");
    make_table("g2.parquet", "--columns 1 --groups 1 --rows 11");
    struct order order = read_order(table_text(", buffer_size: 14"), 1);
    CHECK_INT(order.n, 70);
    for (int i = 0; i < 35; i++)
        CHECK_INT(order.values[35 + i],
                  (golden[i] < 24 ? golden[i] : golden[i] - 24) * 1000);
    free(order.values);
}

/* A window of 10,000 rows has five row groups, and each is read once an epoch. */
static void row_groups_are_read_once(void)
{
    make_table("g.parquet", "--columns 1 --groups 40 --rows 2000 --page-rows 1000");
    struct stat st;
    CHECK_INT(stat(stg_test_path("g.parquet"), &st), 0);
    uint64_t before = stg_test_bytes_read();
    struct order order = read_order(table_text(", buffer_size: 10000"), 0);
    uint64_t bytes = stg_test_bytes_read() - before;
    CHECK_INT(order.n, 160000);
    for (int epoch = 0; epoch < 2; epoch++) {
        bool seen[40] = {false};
        for (int window = 0; window < 8; window++) {
            const int64_t *rows = order.values + epoch * 80000 + window * 10000;
            int64_t counts[40] = {0};
            int n_groups = 0;
            for (int i = 0; i < 10000; i++)
                counts[rows[i] / 2000000]++;
            for (int g = 0; g < 40; g++) {
                CHECK(counts[g] == 0 || (counts[g] == 2000 && !seen[g]));
                seen[g] |= counts[g] > 0;
                n_groups += counts[g] > 0;
            }
            CHECK_INT(n_groups, 5);
            CHECK(rows[0] + 1000 != rows[1] || rows[1] + 1000 != rows[2]);
        }
    }
    /* Of two epochs; with it the footer is read, and a part of a page behind each page.
     */
    CHECK(bytes < 2 * (uint64_t)st.st_size * 5 / 4);
    free(order.values);
    /* Blocks of another size are read from several groups. */
    before = stg_test_bytes_read();
    order = read_order(table_text(", buffer_size: 10000, block_size: 1250"), 0);
    CHECK(stg_test_bytes_read() - before > bytes * 4 / 3);
    free(order.values);
}

static void row_groups_of_any_size_have_each_row_once(void)
{
    static const char *const options[] = {"", ", buffer_size: 1", ", buffer_size: 40",
                                          ", buffer_size: 1500", ", exact: true"};
    make_table("g1.parquet", "--columns 1 --groups 1 --rows 3000");
    make_table("g2.parquet", "--columns 1 --groups 100 --rows 7");
    make_table("g3.parquet", "--columns 1 --groups 3 --rows 400 --page-rows 99");
    for (size_t k = 0; k < 5; k++) {
        struct order a = read_order(table_text(options[k]), 3);
        struct order b = read_order(table_text(options[k]), 3);
        int counts[3000] = {0};
        CHECK_INT(a.n, 2 * (3000 + 700 + 1200));
        CHECK(is_same(a, b));
        for (int64_t i = 0; i < a.n / 2; i++)
            counts[a.values[i] / 1000]++;
        for (int i = 0; i < 3000; i++)
            CHECK_INT(counts[i], 1 + (i < 700) + (i < 1200));
        free(a.values);
        free(b.values);
    }
}

/* What the process reads until the first item of a pass. */
static uint64_t read_for_first(const char *text, uint64_t pass)
{
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec;
    uint64_t before = stg_test_bytes_read();
    env.pass = pass;
    struct stg_dataset *dataset = stg_test_open_text(text, &env, &spec);
    stg_block_unref(stg_test_next(dataset));
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
    return stg_test_bytes_read() - before;
}

#define SMALL_FILES 20
#define SMALL_LINES                                                                      \
    "dataset:\n- files: {pattern: \"$DIR/s*.txt\", seed: 3}\n- text_line\n"

/* The window of two blocks lies in two files at most. */
static void small_files_are_counted_once(void)
{
    static const char text[] = SMALL_LINES "- shuffle: {global: true, block_size: 10, "
                                           "buffer_size: 20}\n";
    char *lines = lines_text(1000), name[20];
    size_t bytes = strlen(lines);
    for (int i = 0; i < SMALL_FILES; i++) {
        snprintf(name, sizeof(name), "s%02d.txt", i);
        stg_test_file(name, lines, bytes);
    }
    CHECK(read_for_first(text, 0) >= SMALL_FILES * bytes);
    CHECK(read_for_first(text, 1) < 4 * bytes);
    stg_test_file("s07.txt", lines, bytes / 2); /* has changed: it is counted anew */
    uint64_t again = read_for_first(text, 2);
    CHECK(again >= bytes / 2 && again < 5 * bytes);
    char *all = sorted(render(SMALL_LINES)), *got = sorted(render(text));
    CHECK_STR(got, all);
    free(got);
    free(all);
    free(lines);
}

#define TWO_FILES                                                                        \
    "dataset:\n- files: {pattern: \"$DIR/t*.txt\", shuffle: false}\n- text_line\n"       \
    "- shuffle: {global: true, block_size: 10, buffer_size: 20}\n"                       \
    "- batch: {batch_size: 20}\n"

/* No record comes twice. */
static void note_lines(struct stg_block *block, bool seen[2000])
{
    const struct stg_tensor *tensor = &block->tensors[0];
    CHECK_INT(block->error.code, 0);
    for (int64_t i = 0; i < block->n_rows; i++) {
        const char *line = (const char *)tensor->data + tensor->begin[i];
        long number = strtol(line, NULL, 10);
        CHECK(number >= 0 && number < 2000 && !seen[number]);
        seen[number] = true;
    }
    stg_block_unref(block);
}

/* Reads on until the pass fails. */
static void check_fails(struct stg_dataset *dataset, const char *why)
{
    struct stg_block *block;
    struct stg_err err = {0};
    bool seen[2000] = {false};
    int rc;
    while ((rc = stg_dataset_next(dataset, &block, &err)) == 0)
        note_lines(block, seen);
    CHECK_INT(rc, -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(err.text, "step text_line (line 3): ");
    CHECK_CONTAINS(err.text, why);
}

/* Of two files, the first one goes, or becomes shorter, behind the first window. */
static void lose_records(bool goes, const char *why)
{
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec;
    char *lines = lines_text(2000), *middle = strstr(lines, "\n500 ") + 1;
    char *second = strstr(lines, "\n1000 ") + 1;
    const char *first = stg_test_file("t1.txt", lines, (size_t)(second - lines));
    stg_test_file("t2.txt", second, strlen(second));
    env.ignored_codes = STG_CODE_BIT(STAGER_NOT_FOUND);
    struct stg_dataset *dataset = stg_test_open_text(TWO_FILES, &env, &spec);
    stg_block_unref(stg_test_next(dataset));
    const char *shorter = stg_test_file("shorter", lines, (size_t)(middle - lines));
    CHECK_INT(goes ? unlink(first) : rename(shorter, first), 0);
    check_fails(dataset, why);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
    free(lines);
}

static void a_file_that_loses_records_in_a_pass_ends_it(void)
{
    lose_records(true, "t1.txt has 1 records now, and had 1000 when they were counted: ");
    lose_records(false, "t1.txt has 500 records now, and had 1000 when they were "
                        "counted: keep the files");
}

/* A block has the last records of the first file, and the first ones of the second. */
static void what_a_file_gets_in_a_pass_is_left_out(void)
{
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec;
    struct stg_block *block;
    bool seen[2000] = {false};
    char *lines = lines_text(2000), *second = strstr(lines, "\n995 ") + 1;
    size_t bytes = (size_t)(second - lines);
    char *twice = malloc(2 * bytes);
    memcpy(twice, lines, bytes);
    memcpy(twice + bytes, lines, bytes);
    const char *first = stg_test_file("t1.txt", lines, bytes);
    stg_test_file("t2.txt", second, strlen(second));
    struct stg_dataset *dataset = stg_test_open_text(TWO_FILES, &env, &spec);
    note_lines(stg_test_next(dataset), seen);
    CHECK_INT(rename(stg_test_file("longer", twice, 2 * bytes), first), 0);
    while ((block = stg_test_next(dataset)) != NULL)
        note_lines(block, seen);
    for (int i = 0; i < 2000; i++)
        CHECK(seen[i]);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
    free(twice);
    free(lines);
}

/* Root may write to any folder. Returns whether the process was root. */
static bool become_another_user(void)
{
    bool is_root = geteuid() == 0;
    if (is_root)
        CHECK(chown(stg_test_dir(), 65534, 65534) == 0 && seteuid(65534) == 0);
    return is_root;
}

static char *render_and_free(char *before)
{
    free(before);
    return render(SMALL_LINES "- shuffle: {global: true, block_size: 50, buffer_size: "
                              "500}\n");
}

/* First there is no index, and none can be stored; then all files have one, and that of a
 * file that has changed cannot be deleted. */
static void a_read_only_folder_of_indexes_changes_nothing(void)
{
    struct stg_err err = {0};
    bool was_root = become_another_user();
    char *lines = lines_text(1000), *folder = strdup(stg_test_path("index"));
    size_t bytes = strlen(lines);
    stg_test_file("s1.txt", lines, bytes);
    stg_test_file("s2.txt", lines, bytes);
    char *want = render_and_free(NULL), *got = NULL;
    CHECK_INT(mkdir(folder, 0500), 0);
    stg_index_set_min_bytes(bytes / 2);
    for (int is_full = 0; is_full < 2; is_full++) {
        CHECK_OK(stg_index_configure(folder, 1u << 30, &err), err);
        CHECK_STR(got = render_and_free(got), want);
        CHECK_STR(got = render_and_free(got), want);
        CHECK_INT(chmod(folder, 0700), 0);
        CHECK_STR(got = render_and_free(got), want);
        CHECK_INT(chmod(folder, 0500), 0);
    }
    stg_test_file("s2.txt", lines + 6, bytes - 6);
    got = render_and_free(got);
    stg_index_finish();
    stg_index_set_min_bytes(STG_INDEX_MIN_BYTES);
    CHECK_STR(got, want = render_and_free(want));
    CHECK_INT(chmod(folder, 0700), 0);
    if (was_root)
        CHECK_INT(seteuid(0), 0); /* a leak checker needs the rights of the start */
    free(want);
    free(got);
    free(folder);
    free(lines);
}

/* Python's gzip.compress(b"a\\nb\\nc\\nd\\n", mtime=0). */
static const char gzip_lines[] =
    "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\x4b\xe4\x4a\xe2"
    "\x4a\xe6\x4a\xe1\x02\x00\x74\x0c\xdf\x17\x08\x00\x00\x00";

/* The file with that name, of which each seek begins at the start: if it is large. */
static void check_large(const char *name, const char *why)
{
    char text[300];
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec;
    struct stg_block *block;
    struct stg_err err = {0};
    snprintf(text, sizeof(text),
             "dataset:\n- files: {pattern: \"$DIR/%s\"}\n- text_line\n"
             "- shuffle: {global: true, exact: true, buffer_size: 2}\n"
             "- batch: {batch_size: 4}\n",
             name);
    struct stg_dataset *dataset = stg_test_open_text(text, &env, &spec);
    block = stg_test_next(dataset);
    CHECK_INT(block->n_rows, 4);
    stg_block_unref(block);
    stg_dataset_destroy(dataset);
    stg_index_set_min_bytes(1);
    dataset = stg_test_open_spec(spec, &env);
    CHECK_INT(stg_dataset_next(dataset, &block, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "step text_line (line 3): ");
    CHECK_CONTAINS(err.text, why);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
    stg_index_set_min_bytes(STG_INDEX_MIN_BYTES);
}

static void a_large_file_without_places_is_refused(void)
{
    stg_test_file("lines.gz", gzip_lines, sizeof(gzip_lines) - 1);
    STG_TEST_FILE("lines.txt", "a\nb\nc\nd\n");
    check_large("lines.gz", "lines.gz is compressed, and has 28 bytes");
    check_large("lines.txt", "lines.txt has no record index (see the log), and has 8 ");
}

/* ---- refusals ---- */

#define RANGE "dataset:\n- range: {stop: 9}\n- "

static void what_has_no_numbers_is_refused(void)
{
    static const char *const before[] = {
        "repeat: {count: 2}",
        "shuffle: {buffer_size: 3}",
        "cache",
        "ignore_errors",
        "filter: {graph: {is: {op: less, input: [value, value]}}, predicate: is}",
        "prefetch: {buffer_size: 2}"};
    for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++) {
        char text[300], name[100];
        snprintf(text, sizeof(text),
                 RANGE "%s\n- take: {count: 5}\n- shuffle: {global: true}\n", before[i]);
        snprintf(name, sizeof(name), "put %.*s after this step",
                 (int)strcspn(before[i], ":"), before[i]);
        const char *refusal = stg_test_refused(text);
        CHECK_CONTAINS(refusal,
                       "step shuffle (line 5): global: true needs an input whose "
                       "records have numbers");
        CHECK_CONTAINS(refusal, name);
    }
    CHECK_CONTAINS(
        stg_test_refused("datasets: {a: [range: {stop: 5}, repeat: {count: 2}], b: "
                         "[range: {stop: 5}]}\ndataset: [zip: {from: [b, a]}, "
                         "shuffle_and_repeat: {global: true}]\n"),
        "put repeat after this step");
}

static void options_without_a_meaning_are_refused(void)
{
    CHECK_CONTAINS(stg_test_refused(RANGE "shuffle: {global: true, exact: true, "
                                          "block_size: 4}\n"),
                   "leave block_size out");
    CHECK_CONTAINS(stg_test_refused(RANGE "shuffle: {buffer_size: 3, exact: true}\n"),
                   "exact is an option of global: true");
    CHECK_CONTAINS(stg_test_refused(RANGE "shuffle: {buffer_size: 3, block_size: 3}\n"),
                   "block_size is an option of global: true");
    CHECK_CONTAINS(stg_test_refused(RANGE "shuffle\n"),
                   "buffer_size is missing: add it, or global: true");
}

static const struct stg_test tests[] = {
    TEST(each_value_has_one_place),
    TEST(a_large_permutation_is_undone),
    TEST(the_place_of_a_value_is_uniform),
    TEST(the_distance_of_two_values_is_uniform),
    TEST(each_place_is_in_its_window),
    TEST(each_epoch_has_each_record_once),
    TEST(the_order_is_a_function_of_seed_and_pass),
    TEST(the_orders_are_the_golden_ones),
    TEST(an_empty_input_is_an_empty_output),
    TEST(an_input_without_records_is_passed_over),
    TEST(the_elements_of_a_batch_stay_together),
    TEST(an_error_takes_the_place_of_its_batch),
    TEST(places_are_uniform_where_those_of_a_window_are_not),
    TEST(records_of_a_block_come_within_one_window),
    TEST(all_records_of_files_come_in_the_same_order_with_an_index),
    TEST(blocks_are_row_groups_several_or_pieces),
    TEST(row_groups_are_read_once),
    TEST(row_groups_of_any_size_have_each_row_once),
    TEST(small_files_are_counted_once),
    TEST(a_file_that_loses_records_in_a_pass_ends_it),
    TEST(what_a_file_gets_in_a_pass_is_left_out),
    TEST(a_read_only_folder_of_indexes_changes_nothing),
    TEST(a_large_file_without_places_is_refused),
    TEST(what_has_no_numbers_is_refused),
    TEST(options_without_a_meaning_are_refused),
};

TEST_MAIN(tests)
