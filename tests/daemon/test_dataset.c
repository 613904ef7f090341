/* SPDX-License-Identifier: Apache-2.0
 *
 * Each step against what tf.data does (TensorFlow 2.21, run by hand for these inputs).
 */
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/daemon/dataset_spec.h"

static void check_items(const struct stg_test_spec *spec, const char *want)
{
    struct stg_dataset_env env = stg_test_env();
    char *got = stg_test_render(spec, &env, 0);
    CHECK_STR(got, want);
    free(got);
}

static void range3(int64_t start, int64_t stop, int64_t step, const char *want)
{
    struct stg_test_spec spec = {0};
    stg_test_range(&spec, stop);
    stg_test_int(&spec, "start", start);
    stg_test_int(&spec, "step", step);
    check_items(&spec, want);
}

static void range_counts_like_tf_data(void)
{
    range3(0, 5, 1, "0\n1\n2\n3\n4\n");
    range3(2, 5, 1, "2\n3\n4\n");
    range3(1, 10, 3, "1\n4\n7\n");
    range3(10, 1, -3, "10\n7\n4\n");
    range3(5, 5, 1, "");
    range3(0, 5, -1, "");
    range3(INT64_MAX - 1, INT64_MAX, 5, "9223372036854775806\n");
    range3(INT64_MIN, INT64_MAX, INT64_MAX,
           "-9223372036854775808\n-1\n9223372036854775806\n");
    range3(INT64_MAX, INT64_MIN, INT64_MIN, "9223372036854775807\n-1\n");
}

static void batches(int64_t n, int64_t size, bool drop, const char *want)
{
    struct stg_test_spec spec = {0};
    stg_test_range(&spec, n);
    stg_test_step(&spec, "batch");
    stg_test_int(&spec, "batch_size", size);
    stg_test_bool(&spec, "drop_remainder", drop);
    check_items(&spec, want);
}

static void batch_keeps_or_drops_the_remainder(void)
{
    batches(10, 4, false, "[0 1 2 3]\n[4 5 6 7]\n[8 9]\n");
    batches(10, 4, true, "[0 1 2 3]\n[4 5 6 7]\n");
    batches(10, 10, true, "[0 1 2 3 4 5 6 7 8 9]\n");
    batches(10, 11, true, "");
    batches(10, 11, false, "[0 1 2 3 4 5 6 7 8 9]\n");
    batches(3, 1, false, "[0]\n[1]\n[2]\n");
    batches(0, 4, false, "");
}
static const struct stg_test tests[] = {
    TEST(range_counts_like_tf_data),
    TEST(batch_keeps_or_drops_the_remainder),
};

TEST_MAIN(tests)
