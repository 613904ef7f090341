/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/check.h"
#include "tests/ops/cases.h"

#define N(table) (sizeof(table) / sizeof((table)[0]))

static const struct op_case golden[] = {
#include "tests/ops/golden/sums.rows"
};

static void exact_sums_are_those_of_tensorflow(void)
{
    for (size_t i = 0; i < N(golden); i++)
        op_case_check(&golden[i], false);
}

static const struct op_case good[] = {
    {"reduce_sum", "", "int8[3] 100 100 100", "int8[] 44", NULL, 0},
    {"reduce_sum", "axis=1", "float32[2, 0]", "float32[2] 0 0", NULL, 0},
    {"reduce_sum", "axis=0", "float32[0, 2]", "float32[2] 0 0", NULL, 0},
    {"reduce_sum", "axis=[]", "int32[2] 1 2", "int32[2] 1 2", NULL, 0},
    {"reduce_sum", "", "int32[] 7", "int32[] 7", NULL, 0},
    {"reduce_sum", "axis=[0, 2] keepdims=true", "int32[2, 2, 2] 1 2 3 4 5 6 7 8",
     "int32[1, 2, 1] 14 22", NULL, 0},
    {"reduce_sum", "", "float32[3] nan 1 2", "float32[] nan", NULL, 0},
    {"reduce_sum", "", "float32[2] inf -inf", "float32[] nan", NULL, 0},
    {"reduce_sum", "", "uint64[2] 18446744073709551615 2", "uint64[] 1", NULL, 0},
    {"reduce_mean", "", "int32[2] -3 -4", "int32[] -3", NULL, 0},
    {"reduce_mean", "", "int8[3] 100 100 100", "int8[] 100", NULL, 0},
    {"reduce_mean", "", "int32[0]", "int32[] 0", NULL, 0},
    {"reduce_mean", "", "float16[0]", "float16[] nan", NULL, 0},
    {"reduce_mean", "axis=-1", "float64[2, 2] 1 2 3 5", "float64[2] 1.5 4", NULL, 0},
    {"reduce_max", "", "float32[0]", "float32[] -inf", NULL, 0},
    {"reduce_max", "", "int16[0]", "int16[] -32768", NULL, 0},
    {"reduce_max", "", "uint8[0]", "uint8[] 0", NULL, 0},
    {"reduce_max", "axis=0", "float32[3, 2] 1 nan nan 2 3 1", "float32[2] nan nan", NULL,
     0},
    {"reduce_max", "", "uint64[2] 18446744073709551615 2",
     "uint64[] 18446744073709551615", NULL, 0},
    {"l2_normalize", "axis=0", "float32[2] 3 4", "float32[2] 0x1.333334p-1 0x1.99999ap-1",
     NULL, 0},
    {"l2_normalize", "axis=0", "float64[2] 0 0", "float64[2] 0 0", NULL, 0},
    {"l2_normalize", "axis=[0, 1] epsilon=4", "float32[1, 1] 1", "float32[1, 1] 0.5",
     NULL, 0},
    {"l2_normalize", "axis=0", "float32[0, 2]", "float32[0, 2]", NULL, 0},
    {"softmax", "", "float32[2, 2] 1 1 5 5", "float32[2, 2] 0.5 0.5 0.5 0.5", NULL, 0},
    {"softmax", "axis=0", "float64[2, 1] 0 -inf", "float64[2, 1] 1 0", NULL, 0},
    {"softmax", "", "float32[2] inf 1", "float32[2] nan nan", NULL, 0},
    {"softmax", "", "float32[2] -inf -inf", "float32[2] nan nan", NULL, 0},
    {"softmax", "", "float32[2, 0]", "float32[2, 0]", NULL, 0},
    {"softmax", "axis=0", "float16[4] 7 7 7 7", "float16[4] 0.25 0.25 0.25 0.25", NULL,
     0},
    {"matmul", "", "float32[2, 0]\nfloat32[0, 3]", "float32[2, 3] 0 0 0 0 0 0", NULL, 0},
    {"matmul", "", "int32[0, 2]\nint32[2, 3] 1 2 3 4 5 6", "int32[0, 3]", NULL, 0},
    {"matmul", "", "int32[1, 1] 2147483647\nint32[1, 1] 2", "int32[1, 1] -2", NULL, 0},
    {"matmul", "", "float32[1, 2] 0 1\nfloat32[2, 1] inf 1", "float32[1, 1] nan", NULL,
     0},
    {"bias_add", "", "int8[1, 2] 127 1\nint8[2] 1 1", "int8[1, 2] -128 2", NULL, 0},
    {"bias_add", "data_format=\"NCHW\"", "int8[1, 2, 1, 2] 1 2 3 4\nint8[2] 10 20",
     "int8[1, 2, 1, 2] 11 12 23 24", NULL, 0},
    {"bias_add", "", "float32[0, 2]\nfloat32[2] 1 2", "float32[0, 2]", NULL, 0},
};

static void cases_by_hand_give_what_they_should(void)
{
    for (size_t i = 0; i < N(good); i++)
        op_case_check(&good[i], false);
}

static const struct op_case bad[] = {
    {"reduce_sum", "axis=1", "int32[2] 1 2", NULL, "axis must hold integers in [-1, 1)",
     -1},
    {"reduce_sum", "axis=[0, -1]", "int32[2] 1 2", NULL, "names a dimension twice", -1},
    {"reduce_mean", "axis=0.5", "int32[2] 1 2", NULL, "axis must hold integers", -1},
    {"reduce_max", "", "string[1] \"a\"", NULL, "is string, which is not numeric", -1},
    {"reduce_max", "", "bool[1] 1", NULL, "is bool", -1},
    {"l2_normalize", "axis=0", "int32[1] 1", NULL, "cast it to a float", -1},
    {"l2_normalize", "", "float32[1] 1", NULL, "axis", -1},
    {"softmax", "", "float32[] 1", NULL, "axis -1 is not in [0, 0)", -1},
    {"softmax", "", "int32[1] 1", NULL, "cast it to a float", -1},
    {"matmul", "", "float32[1, 2] 1 2\nfloat32[1, 2] 1 2", NULL,
     "the first has rows of 2, the second columns of 1", -1},
    {"matmul", "", "float32[2] 1 2\nfloat32[2, 1] 1 2", NULL,
     "inputs have ranks 1 and 2; a matrix has at least 2", -1},
    {"matmul", "", "int8[1, 1] 1\nint8[1, 1] 1", NULL, "is int8", -1},
    {"matmul", "", "float32[1, 1] 1\nfloat64[1, 1] 1", NULL,
     "input \"in0\" is float32, input \"in1\" is float64", -1},
    {"batch_matmul", "", "int32[2, 1, 1] 1 2\nint32[3, 1, 1] 1 2 3", NULL,
     "shapes [2] and [3] do not broadcast", -1},
    {"bias_add", "", "int8[2] 1 2\nint8[2] 1 1", NULL, "the value has rank 1", -1},
    {"bias_add", "", "int8[1, 2] 1 2\nint8[3] 1 1 1", NULL,
     "the bias has 3 elements, the dimension 2", -1},
    {"bias_add", "data_format=\"CHW\"", "int8[1, 2] 1 2\nint8[2] 1 1", NULL,
     "data_format must begin with NC", -1},
    {"bias_add", "", "int8[1, 2] 1 2\nint16[2] 1 1", NULL, "both must be one", -1},
};

static void what_is_wrong_is_said_with_its_place(void)
{
    for (size_t i = 0; i < N(bad); i++)
        op_case_check(&bad[i], false);
}

static const struct stg_test tests[] = {
    TEST(exact_sums_are_those_of_tensorflow),
    TEST(cases_by_hand_give_what_they_should),
    TEST(what_is_wrong_is_said_with_its_place),
};
TEST_MAIN(tests)
