/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/base/hash.h"
#include "ops/base/number.h"
#include "tests/check.h"
#include "tests/ops/cases.h"

/* ---- tables from TensorFlow (make_golden.py) ---- */

static const struct op_case golden_csv[] = {
#include "tests/ops/golden/decode_csv_batches.rows"
#include "tests/ops/golden/decode_csv_numbers.rows"
#include "tests/ops/golden/decode_csv_records.rows"
};

static const struct op_case golden_others[] = {
#include "tests/ops/golden/as_string.rows"
#include "tests/ops/golden/cast.rows"
#include "tests/ops/golden/hash_bucket.rows"
#include "tests/ops/golden/shapes.rows"
};

#define N(table) (sizeof(table) / sizeof((table)[0]))

static void decode_csv_gives_what_tensorflow_gives(void)
{
    for (size_t i = 0; i < N(golden_csv); i++)
        op_case_check(&golden_csv[i], true);
}

static void other_ops_give_what_tensorflow_gives(void)
{
    for (size_t i = 0; i < N(golden_others); i++)
        op_case_check(&golden_others[i], false);
}

/* ---- cases by hand ---- */

static const struct op_case good[] = {
    {"identity", "", "string[2] \"a\" \"\"", "string[2] \"a\" \"\"", NULL, 0},
    {"identity", "", "float32[2, 2] 1 2 3 4", "float32[2, 2] 1 2 3 4", NULL, 0},
    {"decode_csv", "record_defaults=[[0], [\"\"]]", "string[1] \"7,x\"",
     "int32[1] 7\nstring[1] \"x\"", NULL, 0},
    {"decode_csv", "record_defaults=[0]", "string[0]", "int32[0]", NULL, 0},
    {"decode_csv", "record_defaults=[\"\"]", "string[2, 2] \"a\" \"b\" \"c\" \"d\"",
     "string[2, 2] \"a\" \"b\" \"c\" \"d\"", NULL, 0},
    {"decode_csv", "record_defaults=[\"\"]", "string[] \"scalar\"", "string[] \"scalar\"",
     NULL, 0},
    {"decode_csv", "record_defaults=[0, 1] out_type=[\"int64\", \"float64\"]",
     "string[1] \",\"", "int64[1] 0\nfloat64[1] 1", NULL, 0},
    {"string_to_hash_bucket_fast", "num_buckets=1", "string[2] \"a\" \"b\"",
     "int64[2] 0 0", NULL, 0},
    {"log1p", "", "float32[5] 0 -0.0 inf -1 nan", "float32[5] 0 -0.0 inf -inf nan", NULL,
     0},
    {"log1p", "", "float64[2] 0 1", "float64[2] 0 0x1.62e42fefa39efp-1", NULL, 0},
    {"concat", "", "string[] \"x\"", "string[] \"x\"", NULL, 0},
    {"assert", "", "bool[2] 1 1\nint32[1] 7\nstring[] \"x\"",
     "int32[1] 7\nstring[] \"x\"", NULL, 0},
    {"assert", "code=\"ABORTED\"", "bool[0]\nint32[] 7", "int32[] 7", NULL, 0},
    {"sleep", "", "string[] \"x\"", "string[] \"x\"", NULL, 0},
    {"sleep", "sleep_microseconds=5", "int32[1] 1\nint64[2] 1 2", "int32[1] 1", NULL, 0},
};

static void cases_by_hand_give_what_they_should(void)
{
    for (size_t i = 0; i < N(good); i++)
        op_case_check(&good[i], false);
}

static const struct op_case bad[] = {
    {"assert", "message=\"no\"", "bool[3, 2] 1 1 1 1 1 0\nint32[] 7", NULL,
     "node y (assert): assertion failed: no", 2},
    {"assert", "", "bool[] 0\nint32[] 7", NULL, "assertion failed", -1},
    {"assert", "", "int32[] 1\nint32[] 7", NULL, "the condition must be bool", -1},
    {"assert", "code=\"OK\"", "bool[] 1\nint32[] 7", NULL,
     "\"OK\" is not the status code of an error", -1},
    {"sleep", "sleep_microseconds=60000001", "int32[] 1", NULL, "sleep_microseconds", -1},
    {"sleep", "sleep_microseconds=-1", "int32[] 1", NULL, "sleep_microseconds", -1},
    {"sleep", "", "int32[] 1\nint32[] 1", NULL, "microseconds must be int64", -1},
    {"sleep", "", "int32[] 1\nint64[2] 1 -1", NULL, "-1 microseconds", 1},
    {"sleep", "sleep_microseconds=2", "int32[] 1\nint64[] 59999999", NULL,
     "the total must be 0 to 60000000", -1},
    {"decode_csv", "record_defaults=[0]", "string[2] \"1\" \"x\\x01\\\"y\"", NULL,
     "field 0: a field that does not start with a quote", 1},
    {"decode_csv", "record_defaults=[\"\", 0]", "string[3] \"a,1\" \"b,2\" \"c,\\x01q\"",
     NULL, "node y (decode_csv): field 1: \"\\x01q\" is not a valid int32", 2},
    {"decode_csv", "record_defaults=[0]", "string[2] \"1\" \"2147483648\"", NULL,
     "\"2147483648\" is not a valid int32", 1},
    {"decode_csv", "record_defaults=[0.0, 0.0]", "string[2] \"x,1\" \"1\"", NULL,
     "field 0: \"x\" is not a valid float32", 0},
    {"decode_csv", "record_defaults=[null] out_type=[\"int32\"]", "string[2] \"1\" \"\"",
     NULL, "expected 1 fields, the record has 0: \"\"", 1},
    {"decode_csv", "record_defaults=[null, 0] out_type=[\"int32\", \"int32\"]",
     "string[2] \"1,1\" \",1\"", NULL, "field 0 is required and missing", 1},
    {"decode_csv", "record_defaults=[0] select_cols=[3]", "string[1] \"1,2,3,x\"", NULL,
     "field 3: \"x\" is not a valid int32", 0},
    {"decode_csv", "record_defaults=[0] select_cols=[3]", "string[1] \"1,2,3\"", NULL,
     "expected 1 selected fields, the record has 0", 0},
    {"decode_csv", "record_defaults=[0, 0]", "string[1] \"1,2,3\"", NULL,
     "expected 2 fields, the record has 3: \"1,2,3\"", 0},
    {"decode_csv", "record_defaults=[\"\"]", "string[1] \"\\\"a\\\"b\\\"\"", NULL,
     "a quote inside a quoted field is not doubled", 0},
    {"decode_csv", "record_defaults=[\"\"]", "string[1] \"\\\"a\"", NULL,
     "a quoted field does not end with a quote", 0},
    {"decode_csv", "record_defaults=[0]",
     "string[1] \"01234567890123456789012345678901234567890123456789\"", NULL,
     "field 0: \"0123456789012345678901234567890123456789\"…", 0},
    {"decode_csv", "record_defaults=[null]", "string[0]", NULL,
     "record_defaults[0] is null (required) and has no type", -1},
    {"decode_csv", "record_defaults=[true]", "string[0]", NULL, "column 0 cannot be bool",
     -1},
    {"decode_csv", "record_defaults=[0] out_type=[\"int8\"]", "string[0]", NULL,
     "column 0 cannot be int8", -1},
    {"decode_csv", "record_defaults=[0.5] out_type=[\"int32\"]", "string[0]", NULL,
     "record_defaults[0]: this literal is not a valid int32", -1},
    {"decode_csv", "record_defaults=[0] out_type=[\"string\"]", "string[0]", NULL,
     "record_defaults[0] is not a string", -1},
    {"decode_csv", "record_defaults=[3000000000] out_type=[\"int32\"]", "string[0]", NULL,
     "3000000000 does not fit int32", -1},
    {"decode_csv", "record_defaults=[0] out_type=[\"int32\", \"int32\"]", "string[0]",
     NULL, "out_type has 2 entries, record_defaults 1", -1},
    {"decode_csv", "record_defaults=[]", "string[0]", NULL, "one default a column", -1},
    {"decode_csv", "record_defaults=[[0, 1]]", "string[0]", NULL, "one default a column",
     -1},
    {"decode_csv", "record_defaults=[0] field_delim=\"\"", "string[0]", NULL,
     "field_delim must be one byte, not 0", -1},
    {"decode_csv", "record_defaults=[0] field_delim=\"::\"", "string[0]", NULL,
     "field_delim must be one byte, not 2", -1},
    {"decode_csv", "record_defaults=[0, 0] select_cols=[1, 1]", "string[0]", NULL,
     "strictly increasing, and 1 follows 1", -1},
    {"decode_csv", "record_defaults=[0, 0] select_cols=[1]", "string[0]", NULL,
     "select_cols has 1 entries, record_defaults 2", -1},
    {"decode_csv", "record_defaults=[0] select_cols=[-1]", "string[0]", NULL,
     "select_cols", -1},
    {"decode_csv", "record_defaults=[0]", "int32[0]", NULL,
     "input \"in0\" is int32; records must be strings", -1},
    {"string_to_hash_bucket", "num_buckets=0", "string[0]", NULL, "num_buckets", -1},
    {"string_to_hash_bucket", "", "string[0]", NULL, "num_buckets", -1},
    {"string_to_hash_bucket_fast", "num_buckets=5", "int64[1] 1", NULL,
     "only strings are hashed", -1},
    {"cast", "dtype=\"string\"", "int32[1] 1", NULL, "int32 cannot be cast to string",
     -1},
    {"cast", "dtype=\"int32\"", "string[1] \"1\"", NULL, "string cannot be cast to int32",
     -1},
    {"cast", "dtype=\"int33\"", "int32[1] 1", NULL, "dtype", -1},
    {"maximum", "", "float32[2] 1 2\nfloat32[3] 1 2 3", NULL,
     "shapes [2] and [3] do not broadcast", -1},
    {"maximum", "", "float32[2] 1 2\nint32[2] 1 2", NULL, "cast one", -1},
    {"maximum", "", "string[1] \"a\"\nstring[1] \"b\"", NULL, "is not numeric", -1},
    {"maximum", "", "float32[1] 1", NULL, "takes 2 inputs, not 1", -1},
    {"log1p", "", "int32[1] 1", NULL, "cast it to a float", -1},
    {"stack", "", "int32[2] 1 2\nint32[3] 1 2 3", NULL,
     "input 1 has shape [3], input 0 has [2]", -1},
    {"stack", "axis=2", "int32[2] 1 2", NULL, "axis 2 is not in [-2, 2)", -1},
    {"stack", "", "int32[2] 1 2\nint32[1, 2] 1 2", NULL, "has 1 dimensions", -1},
    {"stack", "", "", NULL, "takes at least 1 input, not 0", -1},
    {"concat", "axis=1", "int32[2] 1 2", NULL, "axis 1 is not in [-1, 1)", -1},
    {"concat", "", "int32[] 1\nint32[] 2", NULL, "use stack", -1},
    {"concat", "", "int32[1] 1\nint64[1] 2", NULL, "cast one", -1},
    {"concat", "axis=1", "int32[2, 1] 1 2\nint32[3, 1] 1 2 3", NULL,
     "input 1 has 3 in dimension 0, input 0 has 2", -1},
    {"as_string", "fill=\"x\"", "int32[1] 1", NULL, "fill must be one of", -1},
    {"as_string", "fill=\"00\"", "int32[1] 1", NULL, "fill must be one of", -1},
    {"as_string", "precision=1", "int32[1] 1", NULL, "precision is for floats", -1},
    {"as_string", "scientific=true", "bool[1] 1", NULL, "are for floats", -1},
    {"as_string", "scientific=true shortest=true", "float32[1] 1", NULL,
     "cannot both be set", -1},
    {"embedding_lookup", "", "float32[2, 1] 1 2\nint64[2, 2] 0 1 1 2", NULL,
     "id 2 (element 3 of the ids) is not in [0, 2)", 1},
    {"embedding_lookup", "", "float32[2] 1 2\nint32[1] -1", NULL, "id -1", 0},
    {"embedding_lookup", "", "float32[2] 1 2\nint32[] 2", NULL, "id 2", -1},
    {"embedding_lookup", "", "float32[0, 4]\nint32[1] 0", NULL, "not in [0, 0)", 0},
    {"embedding_lookup", "", "float32[] 1\nint32[1] 0", NULL, "at least one dimension",
     -1},
    {"embedding_lookup", "", "float32[2] 1 2\nfloat32[1] 0", NULL,
     "ids must be int32 or int64", -1},
    {"identity", "depth=1", "int32[1] 1", NULL, "depth", -1},
};

/* TFD-E1 */
static void what_is_wrong_is_said_with_its_place(void)
{
    for (size_t i = 0; i < N(bad); i++)
        op_case_check(&bad[i], false);
}

/* ---- other cases ---- */

static void a_very_long_number_is_rounded_by_its_last_digit(void)
{
    /* 1 + 2^-24 lies half-way between two floats: a digit at place 3000 decides. */
    char text[4096] = "string[2] \"1.000000059604644775390625";
    size_t at = strlen(text);
    memset(text + at, '0', 3000);
    strcpy(text + at + 3000, "\" \"1.000000059604644775390625");
    at = strlen(text);
    memset(text + at, '0', 500);
    strcpy(text + at + 500, "1\"");
    struct op_case c = {"decode_csv", "record_defaults=[0.0]",
                        text,         "float32[2] 1 0x1.000002p+0",
                        NULL,         0};
    op_case_check(&c, true);
}

static void a_float_has_at_most_fifty_million_digits(void)
{
    size_t limit = 50000000;
    char *text = malloc(limit + 2);
    CHECK(text != NULL);
    memset(text, '1', limit + 2);
    float value;
    double wide;
    CHECK(stg_parse_float32(text, limit - 1, &value) && value > 1e38f);
    CHECK(!stg_parse_float32(text, limit, &value));
    CHECK(!stg_parse_float64(text, limit, &wide));
    text[1] = '.';
    CHECK(stg_parse_float64(text, limit + 1, &wide) && wide < 1.2);
    memset(text, '0', limit);
    CHECK(stg_parse_float32(text, limit + 1, &value) && value == 1.0f);
    text[1] = '.';
    CHECK(!stg_parse_float32(text, limit + 2, &value));
    free(text);
}

static void log1p_of_floats_is_rounded_right(void)
{
    /* Python's math.log1p, rounded to float32 by struct. */
    static const float rows[][2] = {
        {0x1p-30f, 0x1p-30f},          {0x1p-28f, 0x1p-28f},
        {0x1.8p-24f, 0x1.7ffffep-24f}, {0x1.99999ap-4f, 0x1.8663f8p-4f},
        {0x1p-1f, 0x1.9f323ep-2f},     {1.0f, 0x1.62e43p-1f},
        {260.0f, 0x1.64211ap+2f},      {30251.0f, 0x1.4a2778p+3f},
        {16777216.0f, 0x1.0a2b24p+4f}, {0x1.fffffep+127f, 0x1.62e43p+6f},
        {-0x1p-1f, -0x1.62e43p-1f},    {-0x1.fffffep-1f, -0x1.0a2b24p+4f},
    };
    for (size_t i = 0; i < N(rows); i++) {
        char input[64], want[64];
        struct op_case c = {"log1p", "", input, want, NULL, 0};
        snprintf(input, sizeof(input), "float32[1] %a", (double)rows[i][0]);
        snprintf(want, sizeof(want), "float32[1] %a", (double)rows[i][1]);
        op_case_check(&c, true);
    }
}

static void fingerprints_are_those_of_libfarmhash(void)
{
    void *lib = dlopen("libfarmhash.so.0", RTLD_NOW);
    if (lib == NULL)
        SKIP("no libfarmhash: %s", dlerror());
    uint64_t (*judge)(const char *, size_t) = NULL;
    *(void **)&judge = dlsym(lib, "_ZN4util13Fingerprint64EPKcm");
    CHECK(judge != NULL);
    uint64_t seed = 1;
    for (size_t n = 0; n <= 1100; n++) {
        char *exact = malloc(n + 1);
        CHECK(exact != NULL);
        for (int round = 0; round < 20; round++) {
            for (size_t i = 0; i < n; i++)
                exact[i] = (char)((seed = seed * 6364136223846793005u + 1) >> 56);
            if (stg_fingerprint64(exact, n) != judge(exact, n))
                FAIL("%zu bytes hash differently", n);
        }
        free(exact);
    }
    dlclose(lib);
}

static void ops_are_found_by_name_and_all_are_described(void)
{
    size_t n;
    const struct stg_op *const *all = stg_op_all(&n);
    CHECK(n >= 13);
    for (size_t i = 0; i < n; i++) {
        CHECK(stg_op_find(all[i]->name) == all[i]);
        CHECK(all[i]->summary != NULL && all[i]->infer != NULL);
        bool held = (all[i]->flags & (STG_OP_CONSTANT | STG_OP_VARIABLE |
                                      STG_OP_PLACEHOLDER | STG_OP_TABLE)) != 0;
        CHECK(held == (all[i]->run == NULL));
        CHECK(((all[i]->flags & STG_OP_VARIABLE) != 0) == (all[i]->initialize != NULL));
        for (size_t k = 0; k < all[i]->n_params; k++)
            CHECK(all[i]->params[k].help != NULL);
        if (i > 0)
            CHECK(strcmp(all[i - 1]->name, all[i]->name) < 0);
    }
    CHECK(stg_op_find("no_such_op") == NULL);
}

/* "## name" or "## a, name" or "## name, b", up to the next heading. */
static const char *section_of(const char *doc, const char *op)
{
    char word[64];
    for (const char *p = strstr(doc, "\n## "); p != NULL; p = strstr(p + 1, "\n## ")) {
        size_t n = strcspn(p + 4, "\n"), bytes = strlen(op);
        CHECK(bytes < sizeof(word));
        for (const char *at = p + 4; at < p + 4 + n; at += strcspn(at, " ,\n") + 1) {
            if (strncmp(at, op, bytes) == 0 && strchr(" ,\n", at[bytes]) != NULL)
                return p;
        }
    }
    return NULL;
}

static const char *read_doc(void)
{
    static char doc[65536];
    FILE *file = fopen(OPS_DOC, "r");
    CHECK(file != NULL);
    CHECK(fread(doc, 1, sizeof(doc) - 1, file) > 1000);
    fclose(file);
    return doc;
}

static void ops_that_are_not_split_are_documented(void)
{
    char list[2048] = "", wanted[128];
    const char *section = strstr(read_doc(), "\n## On many threads\n");
    CHECK(section != NULL);
    const char *first = strstr(section, "These ops are not: ");
    CHECK(first != NULL);
    memcpy(list, first, strcspn(first, ";"));
    size_t n;
    const struct stg_op *const *all = stg_op_all(&n);
    for (size_t i = 0; i < n; i++) {
        snprintf(wanted, sizeof(wanted), "`%s`", all[i]->name);
        if ((strstr(list, wanted) != NULL) != (all[i]->rows == NULL))
            FAIL("%s says of %s what is not true", OPS_DOC, all[i]->name);
    }
}

static void ops_and_attributes_are_documented(void)
{
    char wanted[128];
    const char *doc = read_doc();
    size_t n;
    const struct stg_op *const *all = stg_op_all(&n);
    for (size_t i = 0; i < n; i++) {
        const char *section = section_of(doc, all[i]->name);
        if (section == NULL)
            FAIL("%s has no section in %s", all[i]->name, OPS_DOC);
        const char *end = strstr(section + 1, "\n## ");
        for (size_t k = 0; k < all[i]->n_params; k++) {
            snprintf(wanted, sizeof(wanted), "| `%s` |", all[i]->params[k].name);
            const char *row = strstr(section, wanted);
            if (row == NULL || (end != NULL && row > end))
                FAIL("%s of %s is not in %s", all[i]->params[k].name, all[i]->name,
                     OPS_DOC);
        }
    }
}

static const struct stg_test tests[] = {
    TEST(decode_csv_gives_what_tensorflow_gives),
    TEST(other_ops_give_what_tensorflow_gives),
    TEST(cases_by_hand_give_what_they_should),
    TEST(what_is_wrong_is_said_with_its_place),
    TEST(a_very_long_number_is_rounded_by_its_last_digit),
    TEST(a_float_has_at_most_fifty_million_digits),
    TEST(log1p_of_floats_is_rounded_right),
    TEST(fingerprints_are_those_of_libfarmhash),
    TEST(ops_are_found_by_name_and_all_are_described),
    TEST(ops_and_attributes_are_documented),
    TEST(ops_that_are_not_split_are_documented),
};
TEST_MAIN(tests)
