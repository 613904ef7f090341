/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/check.h"
#include "tests/ops/cases.h"

#define N(table) (sizeof(table) / sizeof((table)[0]))

static const struct op_case golden[] = {
#include "tests/ops/golden/elementwise.rows"
};

static void element_by_element_gives_what_tensorflow_gives(void)
{
    for (size_t i = 0; i < N(golden); i++)
        op_case_check(&golden[i], false);
}

/* By hand: the sign of zero, wrap-around, and NaN. */
static const struct op_case good[] = {
    {"add", "", "int8[3] 127 -128 1\nint8[] 1", "int8[3] -128 -127 2", NULL, 0},
    {"add", "", "int32[1] 2147483647\nint32[1] 1", "int32[1] -2147483648", NULL, 0},
    {"subtract", "", "uint8[2] 0 5\nuint8[2] 1 5", "uint8[2] 255 0", NULL, 0},
    {"multiply", "", "uint16[1] 65535\nuint16[1] 65535", "uint16[1] 1", NULL, 0},
    {"multiply", "", "int64[1] 9223372036854775807\nint64[1] 2", "int64[1] -2", NULL, 0},
    {"divide", "", "int32[2] 1 -7\nint32[2] 4 2", "float64[2] 0.25 -3.5", NULL, 0},
    {"divide", "", "int8[3] 1 -1 0\nint8[] 0", "float32[3] inf -inf nan", NULL, 0},
    {"floordiv", "", "int32[4] 7 -7 7 -7\nint32[4] 2 2 -2 -2", "int32[4] 3 -4 -4 3", NULL,
     0},
    {"floormod", "", "int32[4] 7 -7 7 -7\nint32[4] 2 2 -2 -2", "int32[4] 1 1 -1 -1", NULL,
     0},
    {"floordiv", "", "int64[1] -9223372036854775808\nint64[] -1",
     "int64[1] -9223372036854775808", NULL, 0},
    {"floormod", "", "int32[1] -2147483648\nint32[] -1", "int32[1] 0", NULL, 0},
    {"floordiv", "", "float32[3] 7 -7 1\nfloat32[3] 2 2 0", "float32[3] 3 -4 inf", NULL,
     0},
    {"floordiv", "", "int32[0]\nint32[] 0", "int32[0]", NULL, 0},
    {"minimum", "", "float32[4] nan 1 -0.0 2\nfloat32[4] 1 nan 0 3",
     "float32[4] nan nan -0.0 2", NULL, 0},
    {"maximum", "", "float32[4] nan 1 -0.0 2\nfloat32[4] 1 nan 0 3",
     "float32[4] nan nan -0.0 3", NULL, 0},
    {"equal", "", "float32[3] nan -0.0 inf\nfloat32[3] nan 0 inf", "bool[3] 0 1 1", NULL,
     0},
    {"not_equal", "", "float64[1] nan\nfloat64[] nan", "bool[1] 1", NULL, 0},
    {"less", "", "uint64[1] 18446744073709551615\nuint64[1] 1", "bool[1] 0", NULL, 0},
    {"equal", "", "string[2, 1] \"a\" \"b\"\nstring[2] \"b\" \"\"", "bool[2, 2] 0 0 1 0",
     NULL, 0},
    {"negative", "", "int8[2] -128 1", "int8[2] -128 -1", NULL, 0},
    {"negative", "", "float32[2] 0 nan", "float32[2] -0.0 nan", NULL, 0},
    {"abs", "", "int64[2] -9223372036854775808 -3", "int64[2] -9223372036854775808 3",
     NULL, 0},
    {"zeros_like", "", "string[2] \"a\" \"b\"", "string[2] \"\" \"\"", NULL, 0},
    {"zeros_like", "dtype=\"string\"", "int8[2] 1 2", "string[2] \"\" \"\"", NULL, 0},
    {"ones_like", "dtype=\"float16\"", "string[5] \"a\" \"\" \"\" \"\" \"\"",
     "float16[5] 1 1 1 1 1", NULL, 0},
    {"where", "", "bool[] 1\nstring[2] \"a\" \"bc\"\nstring[1] \"x\"",
     "string[2] \"a\" \"bc\"", NULL, 0},
    {"where", "", "bool[2, 1] 1 0\nint8[3] 1 2 3\nint8[] 9", "int8[2, 3] 1 2 3 9 9 9",
     NULL, 0},
    {"where", "", "bool[0]\nfloat32[] 1\nfloat32[1] 2", "float32[0]", NULL, 0},
};

static void limits_and_zeros_are_what_they_should_be(void)
{
    for (size_t i = 0; i < N(good); i++)
        op_case_check(&good[i], false);
}

static const struct op_case bad[] = {
    {"floordiv", "", "int32[2, 2] 1 2 3 4\nint32[2, 2] 1 1 0 1", NULL,
     "node y (floordiv): integer division by zero at element 2 of the result", 1},
    {"floormod", "", "uint8[3] 1 2 3\nuint8[] 0", NULL, "by zero at element 0", 0},
    {"floormod", "", "int64[] 1\nint64[] 0", NULL, "by zero at element 0", -1},
    {"floordiv", "", "int16[3, 1] 1 2 3\nint16[2] 1 0", NULL, "by zero at element 1", 0},
    {"add", "", "float32[2] 1 2\nfloat32[3] 1 2 3", NULL,
     "shapes [2] and [3] do not broadcast", -1},
    {"add", "", "float32[2] 1 2\nfloat64[2] 1 2", NULL,
     "input \"in0\" is float32, input \"in1\" is float64; cast one", -1},
    {"add", "", "bool[1] 1\nbool[1] 1", NULL, "inputs are bool, which is not numeric",
     -1},
    {"less", "", "bool[1] 1\nbool[1] 1", NULL, "no order", -1},
    {"logical_and", "", "int32[1] 1\nint32[1] 1", NULL, "is not bool", -1},
    {"logical_not", "", "int32[1] 1", NULL, "logical_not takes", -1},
    {"negative", "", "uint8[1] 1", NULL, "floats and signed integers", -1},
    {"abs", "", "string[1] \"\"", NULL, "input \"in0\" is string", -1},
    {"ones_like", "", "string[1] \"a\"", NULL, "strings have no value 1", -1},
    {"where", "", "int32[1] 1\nint32[1] 1\nint32[1] 1", NULL,
     "the condition must be bool", -1},
    {"where", "", "bool[1] 1\nint32[1] 1\nint64[1] 1", NULL, "cast one", -1},
    {"where", "", "bool[2] 1 0\nint32[] 1\nint32[3] 1 2 3", NULL,
     "shapes [2] and [3] do not broadcast", -1},
    {"where", "", "bool[1] 1", NULL, "takes 3 inputs, not 1", -1},
};

static void what_is_wrong_is_said_with_its_place(void)
{
    for (size_t i = 0; i < N(bad); i++)
        op_case_check(&bad[i], false);
}

static const struct stg_test tests[] = {
    TEST(element_by_element_gives_what_tensorflow_gives),
    TEST(limits_and_zeros_are_what_they_should_be),
    TEST(what_is_wrong_is_said_with_its_place),
};
TEST_MAIN(tests)
