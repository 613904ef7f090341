/* SPDX-License-Identifier: Apache-2.0
 *
 * Orders of shuffle and files compared with golden_shuffle.py (the same algorithm with
 * numpy's Philox), the properties of any order, and the memory of a buffer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/random.h"
#include "daemon/dataset/slab.h"
#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"

/* ---- the generator ---- */

static void philox_gives_what_numpy_gives(void)
{
    static const struct {
        uint64_t key[2], counter[4], want[4];
    } cases[] = {
        {{0, 0},
         {0, 0, 0, 0},
         {0x16554d9eca36314c, 0xdb20fe9d672d0fdc, 0xd7e772cee186176b,
          0x7e68b68aec7ba23b}},
        {{7, 1},
         {5, 2, 3, 0},
         {0xca693350835db33f, 0x6b78ce247d8e315b, 0x4bf69e1bb102974f,
          0x3d3a2919b364a866}},
        {{UINT64_MAX, UINT64_MAX},
         {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX},
         {0x87b092c3013fe90b, 0x438c3c67be8d0224, 0x9cc7d7c69cd777b6,
          0xa09caebf594f0ba0}},
        {{0x452821e638d01377, 0xbe5466cf34e90c6c},
         {0x243f6a8885a308d3, 0x13198a2e03707344, 0xa4093822299f31d0, 0x082efa98ec4e6c89},
         {0xa528f45403e61d95, 0x38c72dbd566e9788, 0xa5a1610e72fd18b5,
          0x57bd43b5e52b7fe6}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t got[4];
        stg_philox(cases[i].key, cases[i].counter, got);
        CHECK(memcmp(got, cases[i].want, sizeof(got)) == 0);
    }
}

static void a_random_number_depends_on_its_place_alone(void)
{
    struct stg_random forwards, backwards;
    stg_random_init(&forwards, 7, STG_RANDOM_SHUFFLE, 3, 2);
    stg_random_init(&backwards, 7, STG_RANDOM_SHUFFLE, 3, 2);
    uint64_t values[100];
    for (uint64_t i = 0; i < 100; i++)
        values[i] = stg_random_at(&forwards, i);
    for (uint64_t i = 100; i-- > 0;)
        CHECK(stg_random_at(&backwards, i) == values[i]);
    CHECK(values[20] == 0xca693350835db33f);
    CHECK(values[22] == 0x4bf69e1bb102974f);
}

/* ---- orders ---- */

static char *order(int64_t n, int64_t buffer, int64_t seed, uint64_t pass, int64_t epochs,
                   bool reshuffle)
{
    struct stg_test_spec spec = {0};
    stg_test_range(&spec, n);
    stg_test_step(&spec, "shuffle");
    stg_test_int(&spec, "buffer_size", buffer);
    stg_test_int(&spec, "seed", seed);
    stg_test_bool(&spec, "reshuffle_each_iteration", reshuffle);
    if (epochs != 1) {
        stg_test_step(&spec, "repeat");
        stg_test_int(&spec, "count", epochs);
    }
    stg_test_step(&spec, "batch");
    stg_test_int(&spec, "batch_size", n);
    struct stg_dataset_env env = stg_test_env();
    env.pass = pass;
    return stg_test_render(&spec, &env, 0);
}

static void check_order(char *got, const char *want)
{
    CHECK_STR(got, want);
    free(got);
}

#define ORDER_7_0_0 "[2 4 0 5 8 1 7 9 10 3 6 11]\n"
#define ORDER_7_0_1 "[0 2 3 6 5 9 4 11 10 1 7 8]\n"
#define ORDER_7_1_0 "[1 3 5 4 8 6 2 7 11 0 10 9]\n"

/* TFD-D3 */
static void shuffle_gives_the_golden_orders(void)
{
    check_order(order(12, 5, 7, 0, 1, true), ORDER_7_0_0);
    check_order(order(12, 5, 7, 1, 1, true), ORDER_7_1_0);
    check_order(order(12, 5, 0, 0, 1, true), "[3 5 0 7 8 4 9 2 11 6 1 10]\n");
    check_order(order(12, 5, 8, 0, 1, true), "[0 3 5 7 6 2 1 11 9 8 4 10]\n");
}

/* TFD-D9 */
static void shuffle_and_repeat_as_one_step_gives_the_same_epochs(void)
{
    check_order(order(12, 5, 7, 0, 2, true), ORDER_7_0_0 "#1 " ORDER_7_0_1);
    check_order(order(12, 5, 7, 0, 3, false),
                ORDER_7_0_0 "#1 " ORDER_7_0_0 "#2 " ORDER_7_0_0);
    check_order(order(12, 5, 7, 1, 2, false), ORDER_7_0_0 "#1 " ORDER_7_0_0);
}

static void a_repeat_further_down_gives_the_same_orders_too(void)
{
    struct stg_test_spec spec = {0};
    stg_test_range(&spec, 12);
    stg_test_step(&spec, "shuffle");
    stg_test_int(&spec, "buffer_size", 5);
    stg_test_int(&spec, "seed", 7);
    stg_test_step(&spec, "batch");
    stg_test_int(&spec, "batch_size", 12);
    stg_test_step(&spec, "repeat");
    stg_test_int(&spec, "count", 2);
    struct stg_dataset_env env = stg_test_env();
    check_order(stg_test_render(&spec, &env, 0), ORDER_7_0_0 "#1 " ORDER_7_0_1);
}

/* TFD-D3 */
static void a_buffer_of_one_changes_nothing(void)
{
    check_order(order(12, 1, 7, 3, 2, true),
                "[0 1 2 3 4 5 6 7 8 9 10 11]\n#1 [0 1 2 3 4 5 6 7 8 9 10 11]\n");
}

/* TFD-D3 */
static void an_empty_input_stays_empty(void)
{
    struct stg_test_spec spec = {0};
    stg_test_range(&spec, 0);
    stg_test_step(&spec, "shuffle");
    stg_test_int(&spec, "buffer_size", 5);
    struct stg_dataset_env env = stg_test_env();
    check_order(stg_test_render(&spec, &env, 0), "");
}

/* Runs n numbers through buffers of all sizes. Each epoch must be a permutation in which
 * no number leaves the buffer before it could have entered. */
static void check_permutations(int64_t n, int64_t buffer, int64_t epochs)
{
    struct stg_test_spec spec = {0};
    stg_test_range(&spec, n);
    stg_test_step(&spec, "shuffle");
    stg_test_int(&spec, "buffer_size", buffer);
    stg_test_step(&spec, "repeat");
    stg_test_int(&spec, "count", epochs);
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset = stg_test_open(&spec, &env);
    for (int64_t epoch = 0; epoch < epochs; epoch++) {
        bool seen[64] = {false};
        for (int64_t i = 0; i < n; i++) {
            struct stg_block *block = stg_test_next(dataset);
            CHECK(block != NULL);
            CHECK_INT(block->epoch, epoch);
            int64_t value = *(const int64_t *)block->tensors[0].data;
            CHECK(value >= 0 && value < n && !seen[value]);
            CHECK(value < i + buffer);
            seen[value] = true;
            stg_block_unref(block);
        }
    }
    CHECK(stg_test_next(dataset) == NULL);
    stg_dataset_destroy(dataset);
}

/* TFD-D9, TFD-D8: with a buffer for all, each epoch is a permutation. */
static void no_record_is_lost_or_doubled_at_the_border_of_epochs(void)
{
    static const int64_t counts[] = {1, 2, 3, 7, 20, 50};
    static const int64_t buffers[] = {1, 2, 3, 5, 8, 19, 20, 21, 50, 1000};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        for (size_t k = 0; k < sizeof(buffers) / sizeof(buffers[0]); k++)
            check_permutations(counts[i], buffers[k], 4);
    }
}

/* Counts the places of 10 numbers over many passes, with a buffer for all: 81 degrees of
 * freedom. 99.9 % of such sums lie below 125 (scipy: chi2.ppf(0.999, 81) = 124.8). */
static void a_full_shuffle_is_uniform(void)
{
    enum { N = 10, PASSES = 4000 };
    static int64_t count[N][N];
    struct stg_test_spec spec = {0};
    stg_test_range(&spec, N);
    stg_test_step(&spec, "shuffle");
    stg_test_int(&spec, "buffer_size", N);
    stg_test_int(&spec, "seed", 12345);
    stg_test_step(&spec, "repeat");
    stg_test_int(&spec, "count", PASSES);
    stg_test_step(&spec, "batch");
    stg_test_int(&spec, "batch_size", N);
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset = stg_test_open(&spec, &env);
    for (int pass = 0; pass < PASSES; pass++) {
        struct stg_block *block = stg_test_next(dataset);
        for (int i = 0; i < N; i++)
            count[i][((const int64_t *)block->tensors[0].data)[i]]++;
        stg_block_unref(block);
    }
    stg_dataset_destroy(dataset);
    double sum = 0, expected = (double)PASSES / N;
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < N; k++)
            sum += ((double)count[i][k] - expected) * ((double)count[i][k] - expected) /
                   expected;
    }
    if (sum > 124.8 || sum < 47.0)
        FAIL("chi-square is %f", sum);
}

static void check_mixed(int n_shuffles)
{
    struct stg_test_spec spec = {0};
    stg_test_range(&spec, 4);
    stg_test_step(&spec, "repeat");
    stg_test_int(&spec, "count", 5);
    for (int i = 0; i < n_shuffles; i++) {
        stg_test_step(&spec, "shuffle");
        stg_test_int(&spec, "buffer_size", 100);
    }
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset = stg_test_open(&spec, &env);
    int seen[5][4] = {{0}};
    bool fell = false;
    uint64_t last = 0;
    struct stg_block *block;
    while ((block = stg_test_next(dataset)) != NULL) {
        CHECK(block->epoch < 5);
        seen[block->epoch][*(const int64_t *)block->tensors[0].data]++;
        fell |= block->epoch < last;
        last = block->epoch;
        stg_block_unref(block);
    }
    for (int i = 0; i < 20; i++)
        CHECK_INT(seen[i / 4][i % 4], 1);
    CHECK(fell);
    stg_dataset_destroy(dataset);
}

static void shuffle_after_repeat_mixes_epochs_and_keeps_each_record_s_epoch(void)
{
    check_mixed(1);
    check_mixed(2);
}

/* The same records, whether pulled one by one or many at once. */
static void the_order_does_not_depend_on_how_many_are_asked_for(void)
{
    static const int64_t sizes[] = {1, 2, 7, 100, 5000};
    int64_t want[3000];
    for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
        struct stg_test_spec spec = {0};
        stg_test_range(&spec, 1000);
        stg_test_step(&spec, "repeat");
        stg_test_int(&spec, "count", 3);
        stg_test_step(&spec, "shuffle");
        stg_test_int(&spec, "buffer_size", 700);
        stg_test_step(&spec, "batch");
        stg_test_int(&spec, "batch_size", sizes[k]);
        struct stg_dataset_env env = stg_test_env();
        struct stg_dataset *dataset = stg_test_open(&spec, &env);
        struct stg_block *block;
        int64_t at = 0;
        while ((block = stg_test_next(dataset)) != NULL) {
            const int64_t *values = block->tensors[0].data;
            for (int64_t i = 0; i < block->tensors[0].shape[0]; i++, at++) {
                if (k == 0)
                    want[at] = values[i];
                CHECK_INT(values[i], want[at]);
            }
            stg_block_unref(block);
        }
        CHECK_INT(at, 3000);
        stg_dataset_destroy(dataset);
    }
}

static void shuffle_after_batch_shuffles_batches(void)
{
    struct stg_test_spec spec = {0};
    stg_test_range(&spec, 11);
    stg_test_step(&spec, "batch");
    stg_test_int(&spec, "batch_size", 2);
    stg_test_step(&spec, "shuffle");
    stg_test_int(&spec, "buffer_size", 3);
    stg_test_step(&spec, "repeat");
    stg_test_int(&spec, "count", 2);
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset = stg_test_open(&spec, &env);
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        int seen = 0;
        for (int i = 0; i < 6; i++) {
            struct stg_block *block = stg_test_next(dataset);
            const int64_t *values = block->tensors[0].data;
            CHECK_INT(block->epoch, epoch);
            CHECK_INT(block->tensors[0].shape[0], values[0] == 10 ? 1 : 2);
            CHECK(values[0] % 2 == 0 && (values[0] == 10 || values[1] == values[0] + 1));
            seen |= 1 << (values[0] / 2);
            stg_block_unref(block);
        }
        CHECK_INT(seen, 63);
    }
    CHECK(stg_test_next(dataset) == NULL);
    stg_dataset_destroy(dataset);
}

/* ---- records ---- */

#define N_LINES 600

/* From nothing to more than a slab. */
static size_t line_bytes(int i)
{
    return i % 50 == 49 ? 1300u * (unsigned)(i % 71) : (unsigned)(i * 37 % 700);
}

static const char *make_lines(uint64_t *offsets)
{
    const char *path = stg_test_path("lines");
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    for (int i = 0; i < N_LINES; i++) {
        offsets[i] = (uint64_t)ftell(file);
        for (size_t k = 0; k < line_bytes(i); k++)
            fputc('0' + (int)((k + (unsigned)i) % 71), file);
        fputc('\n', file);
    }
    CHECK_INT(fclose(file), 0);
    return path;
}

static void check_line(const struct stg_block *block, int64_t row, const char *path,
                       const uint64_t *offsets)
{
    const struct stg_tensor *line = &block->tensors[0], *key = &block->tensors[1];
    int i = (int)block->rows[row].record;
    char want[256];
    int n = snprintf(want, sizeof(want), "%s:%d", path, i + 1);
    CHECK_INT(block->rows[row].file, 0);
    CHECK_INT(block->rows[row].offset, offsets[i]);
    CHECK_INT(line->end[row] - line->begin[row], line_bytes(i));
    for (size_t k = 0; k < line_bytes(i); k++)
        CHECK_INT(((const char *)line->data)[(size_t)line->begin[row] + k],
                  '0' + (int)((k + (unsigned)i) % 71));
    CHECK_INT(key->end[row] - key->begin[row], n);
    CHECK(memcmp((const char *)key->data + key->begin[row], want, (size_t)n) == 0);
}

static void records_of_any_length_come_out_as_they_went_in(void)
{
    static uint64_t offsets[N_LINES];
    const char *path = make_lines(offsets);
    struct stg_test_spec spec = {0};
    stg_test_lines(&spec, path);
    stg_test_bool(&spec, "with_key", true);
    stg_test_step(&spec, "shuffle");
    stg_test_int(&spec, "buffer_size", 100);
    stg_test_step(&spec, "repeat");
    stg_test_int(&spec, "count", 5);
    stg_test_step(&spec, "batch");
    stg_test_int(&spec, "batch_size", 7);
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset = stg_test_open(&spec, &env);
    int seen[N_LINES] = {0};
    struct stg_block *block;
    while ((block = stg_test_next(dataset)) != NULL) {
        for (int64_t row = 0; row < block->n_rows; row++) {
            check_line(block, row, path, offsets);
            seen[block->rows[row].record]++;
        }
        stg_block_unref(block);
    }
    stg_dataset_destroy(dataset);
    for (int i = 0; i < N_LINES; i++)
        CHECK_INT(seen[i], 5);
}

/* ---- files ---- */

/* TFD-D6 */
static void files_come_in_the_golden_orders(void)
{
    char pattern[128], want[128];
    for (char name[] = "a"; name[0] <= 'f'; name[0]++)
        STG_TEST_FILE(name, "");
    snprintf(pattern, sizeof(pattern), "%s/?", stg_test_dir());
    struct stg_test_spec spec = {0};
    stg_test_step(&spec, "files");
    stg_test_pattern(&spec, pattern);
    stg_test_int(&spec, "seed", 3);
    stg_test_step(&spec, "repeat");
    stg_test_int(&spec, "count", 2);
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset = stg_test_open(&spec, &env);
    static const char orders[] = "dcbefafaedbc"; /* 3 2 1 4 5 0, 5 0 4 3 1 2 */
    for (int i = 0; i < 12; i++) {
        struct stg_block *block = stg_test_next(dataset);
        const struct stg_tensor *path = &block->tensors[0];
        int n = snprintf(want, sizeof(want), "%s/%c", stg_test_dir(), orders[i]);
        CHECK_INT(path->end[0] - path->begin[0], n);
        CHECK(memcmp((const char *)path->data + path->begin[0], want, (size_t)n) == 0);
        CHECK_INT(block->rows[0].file, orders[i] - 'a');
        CHECK_STR(stg_dataset_file(dataset, block->rows[0].file), want);
        CHECK_INT(block->epoch, i / 6);
        stg_block_unref(block);
    }
    stg_dataset_destroy(dataset);
}

/* ---- memory ---- */

static void a_buffer_over_the_budget_is_refused_with_the_arithmetic(void)
{
    struct stg_test_spec spec = {0};
    stg_test_range(&spec, INT64_MAX);
    stg_test_step(&spec, "shuffle");
    stg_test_int(&spec, "buffer_size", 1000000);
    struct stg_dataset_env env = stg_test_env();
    env.buffer_bytes = 8 << 20;
    struct stg_dataset *dataset = stg_test_open(&spec, &env);
    struct stg_block *block;
    struct stg_err err = {0};
    CHECK_INT(stg_dataset_next(dataset, &block, &err), -STAGER_RESOURCE_EXHAUSTED);
    CHECK_CONTAINS(err.text, "step shuffle (line 2): buffer_size 1000000 x ");
    CHECK_CONTAINS(err.text, "the dataset's buffers may take 8388608 bytes");
    CHECK_INT(stg_dataset_next(dataset, &block, &err), -STAGER_RESOURCE_EXHAUSTED);
    stg_dataset_destroy(dataset);
}

static void check_slabs(uint64_t limit, int n, uint64_t most_bytes)
{
    struct stg_quota *quota;
    CHECK_INT(stg_quota_create(limit, &quota), 0);
    struct stg_slabs slabs = {.quota = quota};
    uint32_t *pieces = calloc((size_t)n, sizeof(*pieces));
    uint64_t *bytes = calloc((size_t)n, sizeof(*bytes));
    uint64_t state = 1, total = 0;
    for (int i = 0; i < n * 5; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        int at = (int)((state >> 33) % (unsigned)n);
        if (pieces[at] != 0) {
            const unsigned char *p = stg_slabs_at(&slabs, pieces[at]);
            for (uint64_t k = 0; k < bytes[at]; k += 7)
                CHECK_INT(p[k], at & 255);
            stg_slabs_free(&slabs, pieces[at]);
            total -= bytes[at];
            pieces[at] = 0;
        } else {
            bytes[at] = 1 + (state >> 20) % (i % 100 == 0 ? 40000 : most_bytes);
            pieces[at] = stg_slabs_alloc(&slabs, bytes[at]);
            CHECK(pieces[at] != 0);
            char *p = stg_slabs_at(&slabs, pieces[at]);
            CHECK_INT((uintptr_t)p % 64, 0);
            memset(p, at & 255, bytes[at]);
            total += bytes[at];
        }
        CHECK(stg_quota_used(quota) >= total);
    }
    for (int i = 0; i < n; i++) {
        if (pieces[i] != 0)
            stg_slabs_free(&slabs, pieces[i]);
    }
    stg_slabs_finish(&slabs);
    CHECK_INT(stg_quota_used(quota), 0);
    stg_quota_unref(quota);
    free(pieces);
    free(bytes);
}

static void slabs_give_back_what_they_took(void)
{
    check_slabs(0, 20000, 600);
    check_slabs(64u << 20, 2000, 5000);
    check_slabs(16u << 20, 100, 16384);
}

/* Pieces of all sizes, one size after another, each in the memory of the one before. */
static void an_empty_slab_serves_any_size(void)
{
    struct stg_quota *quota;
    CHECK_INT(stg_quota_create(1u << 20, &quota), 0);
    struct stg_slabs slabs = {.quota = quota};
    uint32_t pieces[1024];
    for (uint64_t bytes = 1; bytes <= 16384; bytes += 37) {
        int n = 0;
        while ((uint64_t)n * bytes < 400000 && n < 1024) {
            pieces[n] = stg_slabs_alloc(&slabs, bytes);
            CHECK(pieces[n++] != 0);
        }
        while (n > 0)
            stg_slabs_free(&slabs, pieces[--n]);
    }
    CHECK(stg_quota_used(quota) < 600000);
    stg_slabs_finish(&slabs);
    CHECK_INT(stg_quota_used(quota), 0);
    stg_quota_unref(quota);
}

/* At the limit memory comes in small pieces; most of it can be used. */
static void slabs_use_up_their_quota_and_refuse_the_rest(void)
{
    struct stg_quota *quota;
    CHECK_INT(stg_quota_create(100u << 20, &quota), 0);
    struct stg_slabs slabs = {.quota = quota};
    static uint32_t pieces[400000];
    uint32_t n = 0;
    while ((pieces[n] = stg_slabs_alloc(&slabs, 300)) != 0)
        n++;
    CHECK(n * 320ull > 95u << 20 && stg_quota_used(quota) <= 100u << 20);
    stg_slabs_free(&slabs, pieces[n / 2]);
    pieces[n / 2] = stg_slabs_alloc(&slabs, 257);
    CHECK(pieces[n / 2] != 0 && stg_slabs_alloc(&slabs, 300) == 0);
    while (n > 0)
        stg_slabs_free(&slabs, pieces[--n]);
    stg_slabs_finish(&slabs);
    CHECK_INT(stg_quota_used(quota), 0);
    stg_quota_unref(quota);
}

static const struct stg_test tests[] = {
    TEST(philox_gives_what_numpy_gives),
    TEST(a_random_number_depends_on_its_place_alone),
    TEST(shuffle_gives_the_golden_orders),
    TEST(shuffle_and_repeat_as_one_step_gives_the_same_epochs),
    TEST(a_repeat_further_down_gives_the_same_orders_too),
    TEST(a_buffer_of_one_changes_nothing),
    TEST(an_empty_input_stays_empty),
    TEST(no_record_is_lost_or_doubled_at_the_border_of_epochs),
    TEST(a_full_shuffle_is_uniform),
    TEST(shuffle_after_repeat_mixes_epochs_and_keeps_each_record_s_epoch),
    TEST(the_order_does_not_depend_on_how_many_are_asked_for),
    TEST(shuffle_after_batch_shuffles_batches),
    TEST(records_of_any_length_come_out_as_they_went_in),
    TEST(files_come_in_the_golden_orders),
    TEST(a_buffer_over_the_budget_is_refused_with_the_arithmetic),
    TEST(slabs_give_back_what_they_took),
    TEST(an_empty_slab_serves_any_size),
    TEST(slabs_use_up_their_quota_and_refuse_the_rest),
};

TEST_MAIN(tests)
