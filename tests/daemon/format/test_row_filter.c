/* SPDX-License-Identifier: Apache-2.0
 *
 * Conditions by values and by bounds, where numbers of several types meet, and what is
 * trusted of the statistics of a Parquet file. What is expected is what Python says of
 * such a comparison.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "core/bump.h"
#include "daemon/format/parquet/statistics.h"
#include "tests/check.h"

#define INT(x)                                                                           \
    {                                                                                    \
        .kind = STG_VALUE_INT, .i = (x), .f = (double)(x)                                \
    }
#define FLOAT(x)                                                                         \
    {                                                                                    \
        .kind = STG_VALUE_FLOAT, .f = (x)                                                \
    }
#define TEXT(x)                                                                          \
    {                                                                                    \
        .kind = STG_VALUE_STRING, .s = (x), .s_bytes = sizeof(x) - 1                     \
    }
#define TWO_53 9007199254740992

static struct stg_bump bump;

static struct stg_row_condition condition_of(const char *op,
                                             const struct stg_value *values, size_t n)
{
    struct stg_row_condition ret = {0};
    struct stg_err err = {0};
    CHECK_OK(stg_row_condition_init(&ret, op, values, n, &bump, &err), err);
    return ret;
}

static bool is(const struct stg_row_condition *condition, int dtype, const void *value)
{
    struct stg_row_values values = {.dtype = dtype, .fixed = value};
    return stg_row_condition_is(condition, &values);
}

static void numbers_are_compared_without_rounding(void)
{
    static const struct {
        int64_t x;
        const char *op;
        struct stg_value value;
        bool want;
    } rows[] = {{3, ">", FLOAT(3.5), false},
                {4, ">", FLOAT(3.5), true},
                {3, "<", FLOAT(3.5), true},
                {-3, "<=", FLOAT(-3.5), false},
                {-4, "<=", FLOAT(-3.5), true},
                {3, "=", FLOAT(3.5), false},
                {3, "!=", FLOAT(3.5), true},
                {3, "==", FLOAT(3.0), true},
                {3, "<", FLOAT(3.0), false},
                {3, ">=", FLOAT(3.0), true},
                {TWO_53 + 1, "=", FLOAT((double)TWO_53), false},
                {TWO_53 + 1, ">", FLOAT((double)TWO_53), true},
                {INT64_MAX, "<", FLOAT(9223372036854775808.0), true},
                {INT64_MAX, ">=", FLOAT(9223372036854775808.0), false},
                {INT64_MIN, ">=", FLOAT(-9223372036854775808.0), true},
                {INT64_MIN, "<", FLOAT(-9223372036854775808.0), false},
                {INT64_MIN, ">", FLOAT(-INFINITY), true},
                {INT64_MAX, "<", FLOAT(INFINITY), true},
                {INT64_MAX, ">", INT(INT64_MAX), false},
                {INT64_MIN, "<", INT(INT64_MIN), false},
                {INT64_MIN, "<=", INT(INT64_MIN), true},
                {0, "<", FLOAT(NAN), false},
                {0, ">=", FLOAT(NAN), false},
                {0, "!=", FLOAT(NAN), true}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct stg_row_condition condition = condition_of(rows[i].op, &rows[i].value, 1);
        if (is(&condition, STAGER_INT64, &rows[i].x) != rows[i].want)
            FAIL("row %zu", i);
    }
}

static void floats_and_unsigned_numbers_are_compared_with_integers(void)
{
    static const struct {
        double x;
        const char *op;
        struct stg_value value;
        bool want;
    } rows[] = {{(double)TWO_53, "=", INT(TWO_53 + 1), false},
                {(double)TWO_53, "<", INT(TWO_53 + 1), true},
                {(double)TWO_53, ">=", INT(TWO_53 + 1), false},
                {(double)TWO_53 + 2, ">", INT(TWO_53 + 1), true},
                {9223372036854775808.0, ">", INT(INT64_MAX), true},
                {9223372036854775808.0, "=", INT(INT64_MAX), false},
                {-0.0, "=", INT(0), true},
                {-0.0, "<", FLOAT(0.0), false},
                {-0.0, ">=", FLOAT(0.0), true},
                {INFINITY, ">", FLOAT(DBL_MAX), true},
                {-INFINITY, "<", FLOAT(-DBL_MAX), true},
                {INFINITY, "<=", FLOAT(INFINITY), true},
                {-INFINITY, "<", FLOAT(-INFINITY), false},
                {NAN, "!=", INT(0), true},
                {NAN, "<", FLOAT(INFINITY), false},
                {NAN, "=", FLOAT(NAN), false}};
    static const struct stg_value minus = INT(-1), large = FLOAT(18446744073709551616.0);
    uint64_t most = UINT64_MAX;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct stg_row_condition condition = condition_of(rows[i].op, &rows[i].value, 1);
        if (is(&condition, STAGER_FLOAT64, &rows[i].x) != rows[i].want)
            FAIL("row %zu", i);
    }
    struct stg_row_condition condition = condition_of(">", &minus, 1);
    CHECK(is(&condition, STAGER_UINT64, &most));
    condition = condition_of("<", &large, 1);
    CHECK(is(&condition, STAGER_UINT64, &most));
    condition = condition_of(">=", &large, 1);
    CHECK(!is(&condition, STAGER_UINT64, &most));
}

static bool is_null_kept(const char *op, const struct stg_value *values, size_t n)
{
    struct stg_row_condition condition = condition_of(op, values, n);
    uint8_t valid = 0;
    int64_t zero = 0;
    struct stg_row_values value = {
        .dtype = STAGER_INT64, .fixed = &zero, .valid = &valid};
    return stg_row_condition_is(&condition, &value);
}

static void nulls_and_nan_are_as_in_pyarrow(void)
{
    static const struct stg_value values[] = {
        INT(0), {.kind = STG_VALUE_NULL}, FLOAT(NAN)};
    double nan = NAN;
    CHECK(!is_null_kept("=", values, 1) && !is_null_kept("!=", values, 1));
    CHECK(!is_null_kept("in", values, 1) && is_null_kept("not in", values, 1));
    CHECK(is_null_kept("in", values, 2) && !is_null_kept("not in", values, 2));
    CHECK(is_null_kept("is null", values, 0) && !is_null_kept("is not null", values, 0));
    struct stg_row_condition condition = condition_of("in", values, 3);
    CHECK(is(&condition, STAGER_FLOAT64, &nan));
    condition = condition_of("in", values, 2);
    CHECK(!is(&condition, STAGER_FLOAT64, &nan));
    condition = condition_of("not in", values, 3);
    CHECK(!is(&condition, STAGER_FLOAT64, &nan));
}

/* ---- statistics ---- */

static bool may(const char *op, struct stg_value value,
                const struct stg_row_bounds *bounds)
{
    struct stg_row_condition condition = condition_of(op, &value, 1);
    return stg_row_condition_may(&condition, bounds);
}

#define BYTES(x) ((struct stg_row_text){(const char *)&(x), sizeof(x)})

static void bounds_exclude_what_lies_outside_of_them(void)
{
    int64_t low = 10, high = 20;
    struct stg_parquet_leaf leaf = {
        .is_there = true, .type = STG_PARQUET_INT64, .bits = 64, .max_level = 1};
    struct stg_parquet_statistics statistics = {
        .min = BYTES(low), .max = BYTES(high), .n_nulls = 0};
    struct stg_row_bounds bounds =
        stg_parquet_bounds(&leaf, STAGER_INT64, &statistics, true, 5);
    CHECK(!may(">", (struct stg_value)INT(20), &bounds));
    CHECK(may(">=", (struct stg_value)INT(20), &bounds));
    CHECK(!may("=", (struct stg_value)FLOAT(9.5), &bounds));
    CHECK(!may("<", (struct stg_value)INT(10), &bounds));
    CHECK(may("!=", (struct stg_value)INT(10), &bounds));
    struct stg_row_condition null = condition_of("is null", NULL, 0);
    CHECK(!stg_row_condition_may(&null, &bounds));
    statistics.n_nulls = -1;
    bounds = stg_parquet_bounds(&leaf, STAGER_INT64, &statistics, true, 5);
    CHECK(stg_row_condition_may(&null, &bounds));
    statistics.n_nulls = 5;
    bounds = stg_parquet_bounds(&leaf, STAGER_INT64, &statistics, true, 5);
    CHECK(!may("<", (struct stg_value)INT(100), &bounds));
    statistics.n_nulls = 0;
    statistics.max = statistics.min;
    bounds = stg_parquet_bounds(&leaf, STAGER_INT64, &statistics, true, 5);
    CHECK(!may("!=", (struct stg_value)INT(10), &bounds));
    CHECK(may("!=", (struct stg_value)INT(11), &bounds));
    statistics.min = BYTES(high);
    bounds = stg_parquet_bounds(&leaf, STAGER_INT64, &statistics, true, 5);
    CHECK(may("=", (struct stg_value)INT(0), &bounds));
}

static void bounds_that_cannot_be_trusted_exclude_nothing(void)
{
    float low = 1, high = 2, nan = NAN;
    uint32_t small = 1, large = 2;
    struct stg_parquet_leaf leaf = {.is_there = true, .type = STG_PARQUET_FLOAT};
    struct stg_parquet_statistics statistics = {
        .min = BYTES(low), .max = BYTES(high), .n_nulls = 0};
    struct stg_row_bounds bounds =
        stg_parquet_bounds(&leaf, STAGER_FLOAT32, &statistics, true, 5);
    CHECK(!may(">", (struct stg_value)INT(2), &bounds));
    statistics.max = statistics.min;
    bounds = stg_parquet_bounds(&leaf, STAGER_FLOAT32, &statistics, true, 5);
    CHECK(may("!=", (struct stg_value)INT(1), &bounds)); /* a value may be NaN */
    statistics.max = BYTES(nan);
    bounds = stg_parquet_bounds(&leaf, STAGER_FLOAT32, &statistics, true, 5);
    CHECK(may(">", (struct stg_value)INT(2), &bounds));

    leaf = (struct stg_parquet_leaf){
        .is_there = true, .type = STG_PARQUET_INT32, .bits = 32, .is_unsigned = true};
    statistics = (struct stg_parquet_statistics){.older_min = BYTES(small),
                                                 .older_max = BYTES(large)};
    bounds = stg_parquet_bounds(&leaf, STAGER_UINT32, &statistics, true, 5);
    CHECK(may(">", (struct stg_value)INT(2), &bounds));
    leaf.is_unsigned = false;
    bounds = stg_parquet_bounds(&leaf, STAGER_INT32, &statistics, true, 5);
    CHECK(!may(">", (struct stg_value)INT(2), &bounds));

    leaf = (struct stg_parquet_leaf){
        .is_there = true, .type = STG_PARQUET_BYTE_ARRAY, .is_bytewise = true};
    statistics = (struct stg_parquet_statistics){.min = {"b", 1}, .max = {"c", 1}};
    bounds = stg_parquet_bounds(&leaf, STAGER_STRING, &statistics, true, 5);
    CHECK(!may("=", (struct stg_value)TEXT("a"), &bounds));
    CHECK(!may(">", (struct stg_value)TEXT("c"), &bounds));
    CHECK(may("in", (struct stg_value)TEXT("bcd"), &bounds));
    bounds = stg_parquet_bounds(&leaf, STAGER_STRING, &statistics, false, 5);
    CHECK(may("=", (struct stg_value)TEXT("a"), &bounds));
    leaf.is_bytewise = false;
    bounds = stg_parquet_bounds(&leaf, STAGER_STRING, &statistics, true, 5);
    CHECK(may("=", (struct stg_value)TEXT("a"), &bounds));
}

static const struct stg_test tests[] = {
    TEST(numbers_are_compared_without_rounding),
    TEST(floats_and_unsigned_numbers_are_compared_with_integers),
    TEST(nulls_and_nan_are_as_in_pyarrow),
    TEST(bounds_exclude_what_lies_outside_of_them),
    TEST(bounds_that_cannot_be_trusted_exclude_nothing),
};
TEST_MAIN(tests)
