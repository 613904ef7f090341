/* SPDX-License-Identifier: Apache-2.0
 *
 * The golden tables, and rows by hand for ops without one.
 */
#include "tests/ops/op_rows.h"

const struct op_case op_rows[] = {
#include "tests/ops/golden/as_string.rows"
#include "tests/ops/golden/cast.rows"
#include "tests/ops/golden/cross.rows"
#include "tests/ops/golden/decode_csv_batches.rows"
#include "tests/ops/golden/decode_csv_numbers.rows"
#include "tests/ops/golden/decode_csv_records.rows"
#include "tests/ops/golden/elementwise.rows"
#include "tests/ops/golden/embedding.rows"
#include "tests/ops/golden/example.rows"
#include "tests/ops/golden/hash_bucket.rows"
#include "tests/ops/golden/images.rows"
#include "tests/ops/golden/json.rows"
#include "tests/ops/golden/masked.rows"
#include "tests/ops/golden/moves.rows"
#include "tests/ops/golden/recurrent.rows"
#include "tests/ops/golden/shapes.rows"
#include "tests/ops/golden/strings.rows"
#include "tests/ops/golden/sums.rows"
    /* Ops with results that differ from TensorFlow's in the last bits, and errors of a
     * row. */
    {"exp", "", "float32[5] 0.5 1 3 -2 nan", NULL, NULL, 0},
    {"exp", "", "bfloat16[3, 2] 0 0.25 1 2 inf 4", NULL, NULL, 0},
    {"log", "", "float32[5] 0.5 1 3 -2 nan", NULL, NULL, 0},
    {"log", "", "bfloat16[3, 2] 0 0.25 1 2 inf 4", NULL, NULL, 0},
    {"sqrt", "", "float32[5] 0.5 1 3 -2 nan", NULL, NULL, 0},
    {"sqrt", "", "bfloat16[3, 2] 0 0.25 1 2 inf 4", NULL, NULL, 0},
    {"tanh", "", "float32[5] 0.5 1 3 -2 nan", NULL, NULL, 0},
    {"tanh", "", "bfloat16[3, 2] 0 0.25 1 2 inf 4", NULL, NULL, 0},
    {"sigmoid", "", "float32[5] 0.5 1 3 -2 nan", NULL, NULL, 0},
    {"sigmoid", "", "bfloat16[3, 2] 0 0.25 1 2 inf 4", NULL, NULL, 0},
    {"relu", "", "float32[5] 0.5 1 3 -2 nan", NULL, NULL, 0},
    {"relu", "", "bfloat16[3, 2] 0 0.25 1 2 inf 4", NULL, NULL, 0},
    {"log1p", "", "float32[5] 0.5 1 3 -2 nan", NULL, NULL, 0},
    {"log1p", "", "bfloat16[3, 2] 0 0.25 1 2 inf 4", NULL, NULL, 0},
    {"logical_not", "", "bool[3] 1 0 1", NULL, NULL, 0},
    {"softmax", "axis=-1", "float32[2, 3, 2] 1 2 3 4 5 6 7 8 9 0.5 0.25 0.125", NULL,
     NULL, 0},
    {"softmax", "axis=0", "float32[2, 3, 2] 1 2 3 4 5 6 7 8 9 0.5 0.25 0.125", NULL, NULL,
     0},
    {"softmax", "axis=1", "float32[2, 3, 2] 1 2 3 4 5 6 7 8 9 0.5 0.25 0.125", NULL, NULL,
     0},
    {"l2_normalize", "axis=-1", "float32[2, 3, 2] 1 2 3 4 5 6 7 8 9 0.5 0.25 0.125", NULL,
     NULL, 0},
    {"l2_normalize", "axis=0", "float32[2, 3, 2] 1 2 3 4 5 6 7 8 9 0.5 0.25 0.125", NULL,
     NULL, 0},
    {"l2_normalize", "axis=1", "float32[2, 3, 2] 1 2 3 4 5 6 7 8 9 0.5 0.25 0.125", NULL,
     NULL, 0},
    {"floordiv", "", "int32[4] 1 2 3 4\nint32[4] 1 2 0 0", NULL, NULL, 2},
    {"string_to_number", "", "string[3] \"1\" \"x\" \"y\"", NULL, NULL, 1},
    {"embedding_lookup", "", "float32[2, 1] 1 2\nint64[2, 2] 0 1 1 2", NULL, NULL, 1},
    {"decode_csv", "record_defaults=[0, \"\"]", "string[3] \"1,a\" \"2,b\" \"x,c\"", NULL,
     NULL, 2},
    /* A vocabulary of one word, "a". */
    {"lookup", "",
     "uint8[113] 115 116 103 97 99 111 118 49 1 0 0 0 0 0 0 0 15 0 0 0 0 0 0 0 1 0 0 0 0 "
     "0 0 0 0 0 0 0 0 0 0 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 0 0 0 0 0 0 0 0 "
     "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 "
     "0 97\nstring[3] \"a\" \"b\" \"a\"",
     NULL, NULL, 0},
    {"color_jitter", "contrast=[0.5, 2] hue=[-0.5, 0.5]",
     "uint8[2, 1, 2, 3] 1 2 3 4 5 6 7 8 9 10 11 12", NULL, NULL, 0},
    {"random_crop", "size=[1, 1]", "int16[2, 1, 2, 1] 1 2 3 4", NULL, NULL, 0},
    {"random_crop", "size=[1, 3]", "int16[1, 2, 1] 1 2", NULL, NULL, -1},
    {"random_flip", "", "int16[2, 1, 2, 1] 1 2 3 4", NULL, NULL, 0},
    {"random_resized_crop", "size=[2, 2]", "float32[2, 2, 2, 1] 1 2 3 4 5 6 7 8", NULL,
     NULL, 0},
    {"decode_compressed", "compression_type=\"GZIP\"",
     "string[2] "
     "\"\\x1f\\x8b\\x08\\x00\\x00\\x00\\x00\\x00\\x02\\x03\\xcb\\x48\\xcd\\xc9\\xc9\\x07"
     "\\x00\\x86\\xa6\\x10\\x36\\x05\\x00\\x00\\x00\" \"\"",
     NULL, NULL, 0},
    {"resize", "size=[1, 2]", "uint8[2, 2, 3, 1] 1 2 3 4 5 6 7 8 9 10 11 12", NULL, NULL,
     0},
    {"resize_shorter_side", "size=1", "uint8[2, 2, 3, 1] 1 2 3 4 5 6 7 8 9 10 11 12",
     NULL, NULL, 0},
    {"decode_raw", "out_type=\"uint8\"", "string[3] \"ab\" \"cd\" \"e\"", NULL, NULL, 2},
    /* Ops that are not split, and ops with an output made before anything runs. */
    {"identity", "", "string[3] \"a\" \"\" \"bc\"", NULL, NULL, 0},
    {"assert", "message=\"no\"", "bool[3, 2] 1 1 1 1 1 0\nint32[] 7", NULL, NULL, 2},
    {"assert", "", "bool[3] 1 1 1\nint32[3] 7 8 9", NULL, NULL, 0},
    {"narrow", "dtype=\"int32\"", "int64[3, 2] 1 -2 3 4 -2147483648 2147483647", NULL,
     NULL, 0},
    {"narrow", "dtype=\"uint8\"", "uint16[3] 255 7 256", NULL, NULL, 2},
    {"narrow", "dtype=\"bfloat16\"", "float32[2] 1.5 0.1", NULL, NULL, 0},
    {"narrow", "dtype=\"float32\"", "float64[2] 1.5 0.1", NULL, NULL, 0},
    {"squeeze", "axis=[1]", "int32[2, 1, 2] 1 2 3 4", NULL, NULL, 0},
    {"sleep", "sleep_microseconds=1", "int32[2] 1 2", NULL, NULL, 0},
    {"sleep", "", "int32[2] 1 2\nint64[2] 1 -1", NULL, NULL, 1},
    {"constant", "value=[3, 4] dtype=\"int64\"", "", NULL, NULL, 0},
    {"placeholder", "dtype=\"int64\" shape=[2]", "", NULL, NULL, 0},
    {"variable", "dtype=\"float32\" shape=[2]", "", NULL, NULL, 0},
    /* Only variables are written, and none can be fed: test_models.c. */
    {"assign", "", "float32[2] 1 2\nfloat32[2] 3 4", NULL, NULL, 0},
    {"assign_add", "", "float32[2] 1 2\nfloat32[2] 3 4", NULL, NULL, 0},
    {"scatter_add", "", "float32[2] 1 2\nint32[1] 0\nfloat32[1] 4", NULL, NULL, 0},
    {"vocabulary", "file=\"/words\"", "", NULL, NULL, 0},
};

const size_t n_op_rows = sizeof(op_rows) / sizeof(op_rows[0]);
