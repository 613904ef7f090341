/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/check.h"
#include "tests/ops/cases.h"

#define N(table) (sizeof(table) / sizeof((table)[0]))

static const struct op_case golden[] = {
#include "tests/ops/golden/cross.rows"
#include "tests/ops/golden/strings.rows"
};

static void ops_on_strings_give_what_tensorflow_gives(void)
{
    for (size_t i = 0; i < N(golden); i++)
        op_case_check(&golden[i], false);
}

/* By hand: ranks for which TensorFlow reports another error, and empty input. */
static const struct op_case good[] = {
    /* Streams of Python's gzip and zlib. */
    {"decode_compressed", "compression_type=\"GZIP\"",
     "string[3] "
     "\"\\x1f\\x8b\\x08\\x00\\x00\\x00\\x00\\x00\\x02\\x03\\xcb\\x48\\xcd\\xc9\\xc9\\x07"
     "\\x00\\x86\\xa6\\x10\\x36\\x05\\x00\\x00\\x00\" \"\" "
     "\"\\x1f\\x8b\\x08\\x00\\x00\\x00\\x00\\x00\\x02\\x03\\x03\\x00\\x00\\x00\\x00\\x00"
     "\\x00\\x00\\x00\\x00\\x1f\\x8b\\x08\\x00\\x00\\x00\\x00\\x00\\x02\\x03\\xcb\\x48\\x"
     "cd\\xc9\\xc9\\x07\\x00\\x86\\xa6\\x10\\x36\\x05\\x00\\x00\\x00\\x1f\\x8b\\x08\\x00"
     "\\x00\\x00\\x00\\x00\\x02\\x03\\xcb\\x48\\xcd\\xc9\\xc9\\x07\\x00\\x86\\xa6\\x10\\x"
     "36\\x05\\x00\\x00\\x00\"",
     "string[3] \"hello\" \"\" \"hellohello\"", NULL, 0},
    {"decode_compressed", "compression_type=\"ZLIB\"",
     "string[] \"\\x78\\x9c\\xcb\\x48\\xcd\\xc9\\xc9\\x07\\x00\\x06\\x2c\\x02\\x15\"",
     "string[] \"hello\"", NULL, 0},
    {"decode_compressed", "", "string[1] \"a b\"", "string[1] \"a b\"", NULL, 0},
    {"decode_compressed", "compression_type=\"GZIP\" max_bytes=10",
     "string[1] "
     "\"\\x1f\\x8b\\x08\\x00\\x00\\x00\\x00\\x00\\x02\\x03\\xcb\\x48\\xcd\\xc9\\xc9\\x07"
     "\\x00\\x86\\xa6\\x10\\x36\\x05\\x00\\x00\\x00\\x1f\\x8b\\x08\\x00\\x00\\x00\\x00\\x"
     "00\\x02\\x03\\xcb\\x48\\xcd\\xc9\\xc9\\x07\\x00\\x86\\xa6\\x10\\x36\\x05\\x00\\x00"
     "\\x00\"",
     "string[1] \"hellohello\"", NULL, 0},
    {"string_split", "", "string[] \"a b\"", "string[2] \"a\" \"b\"\nint64[2] 0 2", NULL,
     0},
    {"string_split", "", "string[0]", "string[0]\nint64[1] 0", NULL, 0},
    {"string_split", "result_type=\"sparse\"", "string[0]",
     "string[0]\nint64[0, 2]\nint64[2] 0 0", NULL, 0},
    {"string_split", "sep=\",\"", "string[1, 2] \"a,b\" \"\"",
     "string[3] \"a\" \"b\" \"\"\nint64[3] 0 2 3", NULL, 0},
    {"string_split", "sep=\",\" result_type=\"sparse\"", "string[1, 2] \"a,b\" \"\"",
     "string[3] \"a\" \"b\" \"\"\nint64[3, 3] 0 0 0 0 0 1 0 1 0\nint64[3] 1 2 2", NULL,
     0},
    {"string_split", "result_type=\"sparse\"", "string[] \"a b\"",
     "string[2] \"a\" \"b\"\nint64[2, 1] 0 1\nint64[1] 2", NULL, 0},
    {"string_split", "delimiter=\",;\"", "string[1] \",a;b\"",
     "string[2] \"a\" \"b\"\nint64[2] 0 2", NULL, 0},
    {"string_to_number", "", "string[0]", "float32[0]", NULL, 0},
    {"cross", "num_buckets=1", "string[2] \"a\" \"b\"\nint32[2] 1 2", "int64[2] 0 0",
     NULL, 0},
    {"cross", "num_buckets=1", "string[1, 2] \"a\" \"b\"\nint64[1] 1", "int64[1, 2] 0 0",
     NULL, 0},
    {"cross", "num_buckets=1", "string[2, 0]\nint64[2, 3] 1 2 3 4 5 6", "int64[2, 0]",
     NULL, 0},
    {"string_to_hash_bucket_strong", "num_buckets=1 key=[1, 2]", "string[] \"\"",
     "int64[] 0", NULL, 0},
};

static void cases_by_hand_give_what_they_should(void)
{
    for (size_t i = 0; i < N(good); i++)
        op_case_check(&good[i], false);
}

static const struct op_case bad[] = {
    /* Streams of Python's gzip and zlib. */
    {"decode_compressed", "compression_type=\"GZIP\" max_bytes=9",
     "string[1] "
     "\"\\x1f\\x8b\\x08\\x00\\x00\\x00\\x00\\x00\\x02\\x03\\xcb\\x48\\xcd\\xc9\\xc9\\x07"
     "\\x00\\x86\\xa6\\x10\\x36\\x05\\x00\\x00\\x00\\x1f\\x8b\\x08\\x00\\x00\\x00\\x00\\x"
     "00\\x02\\x03\\xcb\\x48\\xcd\\xc9\\xc9\\x07\\x00\\x86\\xa6\\x10\\x36\\x05\\x00\\x00"
     "\\x00\"",
     NULL, "more than max_bytes, 9", 0},
    {"decode_compressed", "compression_type=\"GZIP\" max_bytes=9999",
     "string[1] "
     "\"\\x1f\\x8b\\x08\\x00\\x00\\x00\\x00\\x00\\x02\\x03\\xed\\xc1\\x01\\x0d\\x00\\x00"
     "\\x00\\xc2\\xa0\\xac\\xef\\x5f\\xc2\\x1c\\x6e\\x40\\x01\\x00\\x00\\x00\\x00\\x00\\x"
     "00\\x00\\x00\\xc0\\xbf\\x01\\x97\\xd4\\x7e\\x46\\x10\\x27\\x00\\x00\"",
     NULL, "more than max_bytes, 9999", 0},
    {"decode_compressed", "compression_type=\"GZIP\"",
     "string[2] "
     "\"\\x1f\\x8b\\x08\\x00\\x00\\x00\\x00\\x00\\x02\\x03\\xcb\\x48\\xcd\\xc9\\xc9\\x07"
     "\\x00\\x86\\xa6\\x10\\x36\\x05\\x00\\x00\\x00\" \"hello\"",
     NULL, "not valid GZIP: it does not begin as one", 1},
    {"decode_compressed", "compression_type=\"GZIP\"",
     "string[1] "
     "\"\\x1f\\x8b\\x08\\x00\\x00\\x00\\x00\\x00\\x02\\x03\\xcb\\x48\\xcd\\xc9\\xc9\\x07"
     "\\x00\\x86\\xa6\\x10\\x36\\x05\"",
     NULL, "not valid GZIP: it is truncated", 0},
    {"decode_compressed", "compression_type=\"GZIP\"",
     "string[1] "
     "\"\\x1f\\x8b\\x08\\x00\\x00\\x00\\x00\\x00\\x02\\x03\\xcb\\x48\\xcd\\xc9\\xc9\\x07"
     "\\x00\\x87\\xa6\\x10\\x36\\x05\\x00\\x00\\x00\"",
     NULL, "not valid GZIP: it is damaged", 0},
    {"decode_compressed", "compression_type=\"ZSTD\"", "string[1] \"a\"", NULL,
     "compression_type is \"ZSTD\"", -1},
    {"decode_compressed", "compression_type=\"GZIP\"", "int32[1] 1", NULL, "string", -1},
    {"cross", "num_buckets=1", "string[2] \"a\" \"b\"\nint32[1] 1", NULL,
     "input 1 has 1 records, the first input 2", -1},
    {"cross", "num_buckets=1", "float32[1] 1", NULL, "is float32 of rank 1", -1},
    {"cross", "num_buckets=1", "int64[] 1", NULL, "is int64 of rank 0", -1},
    {"cross", "", "int64[1] 1", NULL, "'num_buckets' is missing", -1},
    {"string_to_number", "out_type=\"int32\"", "string[2, 2] \"1\" \"2\" \"3\" \"4x\"",
     NULL, "node y (string_to_number): element 3, \"4x\", is not a valid int32", 1},
    {"string_to_number", "", "string[] \"\"", NULL,
     "element 0, \"\", is not a valid float32", -1},
    {"string_to_number", "out_type=\"uint32\"", "string[2] \"1\" \"-1\"", NULL,
     "\"-1\", is not a valid uint32", 1},
    {"string_to_number", "out_type=\"int8\"", "string[0]", NULL, "out_type is int8", -1},
    {"string_to_number", "", "int32[1] 1", NULL, "string_to_number takes strings", -1},
    {"string_split", "", "float32[1] 1", NULL, "string_split takes strings", -1},
    {"string_split", "delimiter=\",\" sep=\",\"", "string[0]", NULL,
     "delimiter cannot be combined with sep", -1},
    {"string_split", "delimiter=\",\" maxsplit=1", "string[0]", NULL, "or maxsplit", -1},
    {"string_split", "skip_empty=false", "string[0]", NULL, "skip_empty needs delimiter",
     -1},
    {"string_split", "result_type=\"dense\"", "string[0]", NULL,
     "result_type must be ragged or sparse, not \"dense\"", -1},
    {"string_length", "unit=\"CHAR\"", "string[0]", NULL, "BYTE or UTF8_CHAR", -1},
    {"string_length", "", "bool[1] 1", NULL, "string_length takes strings", -1},
    {"string_strip", "", "int8[1] 1", NULL, "string_strip takes strings", -1},
    {"string_to_hash_bucket_strong", "num_buckets=0 key=[1, 2]", "string[0]", NULL,
     "num_buckets", -1},
    {"string_to_hash_bucket_strong", "num_buckets=5 key=[1]", "string[0]", NULL,
     "key has 1 elements, not 2", -1},
    {"string_to_hash_bucket_strong", "num_buckets=5", "string[0]", NULL, "key", -1},
};

static void what_is_wrong_is_said_with_its_place(void)
{
    for (size_t i = 0; i < N(bad); i++)
        op_case_check(&bad[i], false);
}

static const struct stg_test tests[] = {
    TEST(ops_on_strings_give_what_tensorflow_gives),
    TEST(cases_by_hand_give_what_they_should),
    TEST(what_is_wrong_is_said_with_its_place),
};
TEST_MAIN(tests)
