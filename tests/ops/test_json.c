/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/ops/cases.h"

static const struct op_case golden[] = {
#include "tests/ops/golden/json.rows"
};

#define N(table) (sizeof(table) / sizeof((table)[0]))

static void parse_json_gives_what_python_gives(void)
{
    for (size_t i = 0; i < N(golden); i++)
        op_case_check(&golden[i], false);
}

#define INT "features/a/dtype=\"int64\""
#define LIST INT " features/a/shape=[2, 2]"
#define TEXT "features/a/dtype=\"string\""
/* A record in the syntax of cases. */
#define R(text) "string[1] \"" text "\""

static const struct op_case by_hand[] = {
    {"parse_json", INT, "string[] \"{\\\"a\\\":3}\"", "int64[] 3", NULL, 0},
    {"parse_json", INT " features/a/default_value=7",
     "string[3] \"{}\" \"{\\\"a\\\":null}\" \"{\\\"a\\\":1}\"", "int64[3] 7 7 1", NULL,
     0},
    {"parse_json", INT " features/a/default_value=7", R("{\\\"a\\\":1,\\\"a\\\":null}"),
     "int64[1] 7", NULL, 0},
    {"parse_json", LIST, R(" { \\\"a\\\" : [ [ 1 , 2 ] , [3,4] ] } "),
     "int64[1, 2, 2] 1 2 3 4", NULL, 0},
    {"parse_json", TEXT, R("{\\\"\\\\u0061\\\": \\\"\\\\ud83d\\\\ude00\\\\n\\\\/\\\"}"),
     "string[1] \"\\xf0\\x9f\\x98\\x80\\x0a/\"", NULL, 0},
    {"parse_json", INT, R("{\\\"b\\\":[[{\\\"x\\\":[]},{}],1e5,true],\\\"a\\\":1}"),
     "int64[1] 1", NULL, 0},
    {"parse_json", "features/a/dtype=\"float32\" features/a/shape=[0]",
     R("{\\\"a\\\":[]}"), "float32[1, 0]", NULL, 0},
    /* the error */
    {"parse_json", INT, "string[2] \"{\\\"a\\\":1}\" \"{}\"", NULL,
     "feature \"a\" is required and missing", 1},
    {"parse_json", INT, R("{\\\"a\\\":1.5}"), NULL,
     "feature \"a\": \"1.5\" is not a valid int64", 0},
    {"parse_json", INT, R("{\\\"a\\\":\\\"1\\\"}"), NULL, "\"1\" is not a valid int64",
     0},
    {"parse_json", INT, R("{\\\"a\\\":9223372036854775808}"), NULL,
     "is not a valid int64", 0},
    {"parse_json", "features/a/dtype=\"bool\"", R("{\\\"a\\\":1}"), NULL,
     "is not a valid bool", 0},
    {"parse_json", TEXT, R("{\\\"a\\\":1}"), NULL, "is not a valid string", 0},
    {"parse_json", LIST, R("{\\\"a\\\":[[1,2]]}"), NULL,
     "feature \"a\" does not have the shape [2, 2]", 0},
    {"parse_json", LIST, R("{\\\"a\\\":[[1,2],[3,4,5]]}"), NULL, "not have the shape", 0},
    {"parse_json", LIST, R("{\\\"a\\\":[[1,2],[3,[4]]]}"), NULL, "not have the shape", 0},
    {"parse_json", LIST, R("{\\\"a\\\":5}"), NULL, "not have the shape", 0},
    {"parse_json", INT, R("[1]"), NULL,
     "byte 0 of the record: a record must be one object", 0},
    {"parse_json", INT, R(""), NULL, "a record must be one object", 0},
    {"parse_json", INT, R("{\\\"a\\\":1} x"), NULL,
     "byte 8 of the record: unexpected text after the object", 0},
    {"parse_json", INT, R("{\\\"a\\\":1"), NULL,
     "byte 6 of the record: expected ',' or '}'", 0},
    {"parse_json", INT, R("{\\\"a\\\":1,}"), NULL, "expected", 0},
    {"parse_json", INT, R("{\\\"a\\\" 1}"), NULL, "expected ':'", 0},
    {"parse_json", INT, R("{a:1}"), NULL, "expected a value", 0},
    {"parse_json", INT, R("{\\\"a\\\":01}"), NULL, "not a valid number", 0},
    {"parse_json", INT, R("{\\\"a\\\":-}"), NULL, "not a valid number", 0},
    {"parse_json", INT, R("{\\\"a\\\":NaN}"), NULL, "expected a value", 0},
    {"parse_json", INT, R("{\\\"b\\\":\\\"\\\\x\\\"}"), NULL, "unknown escape", 0},
    {"parse_json", INT, R("{\\\"b\\\":\\\"\\\\ud800\\\"}"), NULL, "unknown escape", 0},
    {"parse_json", INT, R("{\\\"b\\\":\\\"\\x01\\\"}"), NULL, "a control character", 0},
    {"parse_json", INT, R("{\\\"b\\\":\\\"x}"), NULL, "a string is not closed", 0},
    {"parse_json", INT, R("{\\\"b\\\":[1,]}"), NULL, "expected a value", 0},
    {"parse_json", INT, R("{\\\"b\\\":[1}}"), NULL, "or the end of the list", 0},
    /* the error of infer */
    {"parse_json", "features/a/dtype=\"int8\"", R("{}"), NULL, "dtype cannot be int8",
     -1},
    {"parse_json", "", R("{}"), NULL, "attribute 'features' is missing", -1},
    {"parse_json", INT " features/a/default_value=\"x\"", R("{}"), NULL,
     "feature \"a\": default_value", -1},
    {"parse_json", INT, "int64[1] 1", NULL, "records must be strings", -1},
};

static void json_is_read_by_the_rules_of_rfc_8259(void)
{
    for (size_t i = 0; i < N(by_hand); i++)
        op_case_check(&by_hand[i], false);
}

static void lists_may_be_nested_so_deep_and_no_deeper(void)
{
    char text[400] = "string[1] \"{\\\"b\\\":";
    size_t at = strlen(text);
    for (int depth = 64; depth <= 65; depth++) {
        memset(text + at, '[', (size_t)depth);
        memset(text + at + depth, ']', (size_t)depth);
        strcpy(text + at + 2 * depth, ",\\\"a\\\":1}\"");
        struct op_case c = {.op = "parse_json",
                            .attrs = INT,
                            .inputs = text,
                            .want = depth == 64 ? "int64[1] 1" : NULL,
                            .error = "nested deeper than 64"};
        op_case_check(&c, false);
    }
}

/* ---- damage ---- */

static void a_damaged_record_is_refused_or_read_within_its_bounds(void)
{
    static const char whole[] =
        "{\"a\":[1,-2.5e3],\"b\":\"x\\u00e9\\n\",\"c\":{\"d\":[true,"
        "null,{}]},\"e\":false}";
    static const char text[] =
        "element r string [-1]\n"
        "p = parse_json(r) features/a/dtype=\"float64\" features/a/shape=[2] "
        "features/b/dtype=\"string\" features/e/dtype=\"bool\"\n"
        "feature a = p:a\nfeature b = p:b\nfeature e = p:e\n";
    struct fixture fx;
    struct stg_graph *graph;
    struct stg_run *run;
    struct stg_err err = {0};
    size_t n = sizeof(whole) - 1;
    CHECK_OK(fixture_parse(&fx, text, &err), err);
    CHECK_OK(stg_graph_create(&fx.spec, &fx.element, NULL, &graph, &err), err);
    CHECK_OK(stg_run_create_stage(graph, &run, &err), err);
    for (size_t at = 0; at <= n; at++) {
        for (int value = 0; value <= 256; value++) {
            /* Truncated at `at`, or with another byte there. */
            size_t bytes = value == 256 ? at : n;
            if (at == n && value < 256)
                continue;
            char *data = malloc(bytes + (bytes == 0));
            memcpy(data, whole, bytes);
            if (value < 256)
                data[at] = (char)value;
            int64_t offsets[2] = {0, (int64_t)bytes};
            struct stg_tensor x = {.dtype = STAGER_STRING,
                                   .ndim = 1,
                                   .shape = {1},
                                   .data = data,
                                   .data_bytes = bytes,
                                   .begin = offsets,
                                   .end = offsets + 1};
            struct stg_tensor got[3];
            int rc = stg_run_exec(run, &x, NULL, NULL, got, &err);
            CHECK(rc == 0 || (rc == -STAGER_INVALID_ARGUMENT && err.row == 0));
            CHECK(value < 256 || at == n || rc < 0);
            free(data);
        }
    }
    stg_run_destroy(run);
    stg_graph_destroy(graph);
    fixture_finish(&fx);
}

static const struct stg_test tests[] = {
    TEST(parse_json_gives_what_python_gives),
    TEST(json_is_read_by_the_rules_of_rfc_8259),
    TEST(lists_may_be_nested_so_deep_and_no_deeper),
    TEST(a_damaged_record_is_refused_or_read_within_its_bounds),
};
TEST_MAIN(tests)
