/* SPDX-License-Identifier: Apache-2.0 */
#include "core/param.h"

#include <stdio.h>
#include <string.h>

#include "tests/check.h"

static const struct stg_param params[] = {
    {.name = "num_buckets",
     .type = STG_PARAM_INT,
     .required = true,
     .min = 1,
     .max = INT64_MAX,
     .help = "how many buckets there are"},
    {.name = "rate", .type = STG_PARAM_FLOAT},
    {.name = "keep", .type = STG_PARAM_BOOL},
    {.name = "delim", .type = STG_PARAM_STRING},
    {.name = "dtype", .type = STG_PARAM_DTYPE},
    {.name = "shape", .type = STG_PARAM_SHAPE},
    {.name = "columns", .type = STG_PARAM_INTS, .min = 0, .max = 39},
    {.name = "names", .type = STG_PARAM_STRINGS},
    {.name = "defaults", .type = STG_PARAM_VALUES},
    {.name = "axis", .type = STG_PARAM_INT, .min = INT64_MIN, .max = 7},
};
#define N_PARAMS (sizeof(params) / sizeof(params[0]))

static const struct stg_value some[] = {
    {.kind = STG_VALUE_INT, .i = 3, .f = 3.0},
    {.kind = STG_VALUE_FLOAT, .f = 0.5},
    {.kind = STG_VALUE_BOOL, .i = 1},
    {.kind = STG_VALUE_STRING, .s = "int64", .s_bytes = 5},
    {.kind = STG_VALUE_NULL},
    {.kind = STG_VALUE_STRING, .s = "ab\0c", .s_bytes = 4},
    {.kind = STG_VALUE_INT, .i = -1, .f = -1.0},
    {.kind = STG_VALUE_INT, .i = 40, .f = 40.0},
    {.kind = STG_VALUE_STRING, .s = "int64\0", .s_bytes = 6},
};
enum { THREE, HALF, TRUE, INT64_NAME, NOTHING, AB, MINUS, FORTY, INT64_NUL };

static const struct stg_attr buckets = {
    .name = "num_buckets", .n_values = 1, .values = &some[THREE], .line = 1, .column = 1};

static int check(struct stg_attr attr, struct stg_err *err)
{
    const struct stg_attr attrs[2] = {buckets, attr};
    *err = (struct stg_err){0};
    return stg_param_check(params, N_PARAMS, attrs, 2, err);
}

static struct stg_attr scalar(const char *name, int value)
{
    return (struct stg_attr){
        .name = name, .n_values = 1, .values = &some[value], .line = 12, .column = 5};
}

static struct stg_attr list(const char *name, int value, size_t n)
{
    return (struct stg_attr){.name = name,
                             .ndim = 1,
                             .shape = {(int64_t)n},
                             .n_values = n,
                             .values = &some[value],
                             .line = 12,
                             .column = 5};
}

static void accepted(struct stg_attr attr)
{
    struct stg_err err;
    CHECK_OK(check(attr, &err), err);
}

static void refused(struct stg_attr attr, const char *text)
{
    struct stg_err err;
    CHECK_INT(check(attr, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_STR(err.text, text);
    CHECK_INT(check(attr, &(struct stg_err){0}), -STAGER_INVALID_ARGUMENT);
}

static void what_fits_its_type_is_accepted(void)
{
    accepted(scalar("rate", HALF));
    accepted(scalar("rate", THREE));
    accepted(scalar("rate", MINUS));
    accepted(scalar("keep", TRUE));
    accepted(scalar("delim", AB));
    accepted(scalar("dtype", INT64_NAME));
    accepted(scalar("axis", MINUS));
    accepted(list("shape", THREE, 1));
    accepted(list("shape", THREE, 0));
    accepted(list("columns", THREE, 1));
    accepted(list("columns", THREE, 0));
    accepted(list("names", INT64_NAME, 1));
    accepted(list("defaults", THREE, 6));
    accepted(scalar("defaults", NOTHING));
    accepted((struct stg_attr){
        .name = "defaults", .ndim = 2, .shape = {2, 2}, .n_values = 4, .values = some});
}

static void what_does_not_fit_is_refused_by_name_and_place(void)
{
    refused(scalar("rate", TRUE),
            "attribute 'rate' (line 12, column 5) must be a number, not true or false");
    refused(scalar("keep", THREE),
            "attribute 'keep' (line 12, column 5) must be true or false, not an integer");
    refused(scalar("delim", NOTHING),
            "attribute 'delim' (line 12, column 5) must be a string, not null");
    refused(scalar("axis", HALF), "attribute 'axis' (line 12, column 5) must be an "
                                  "integer, not a number with a fraction");
    refused(scalar("dtype", AB),
            "attribute 'dtype' (line 12, column 5) must be the name of a dtype (float32, "
            "int64, string …), not the string \"ab\"");
    refused(list("shape", MINUS, 1),
            "attribute 'shape' (line 12, column 5) must be a shape (a list of integers, "
            "none negative), not a list with an integer");
    refused(scalar("columns", THREE), "attribute 'columns' (line 12, column 5) must be a "
                                      "list of integers, not an integer");
    refused(list("axis", THREE, 1),
            "attribute 'axis' (line 12, column 5) must be an integer, not a list");
    refused(list("names", TRUE, 1), "attribute 'names' (line 12, column 5) must be a "
                                    "list of strings, not a list with true or false");
    struct stg_err err;
    CHECK(check(scalar("dtype", INT64_NUL), &err) < 0);
    CHECK(check((struct stg_attr){.name = "columns",
                                  .ndim = 2,
                                  .shape = {1, 1},
                                  .n_values = 1,
                                  .values = &some[THREE]},
                &err) < 0);
    CHECK_STR(err.text, "attribute 'columns' must be a list of integers, not a list");
}

static void ranges_are_checked(void)
{
    refused(list("columns", FORTY, 1),
            "attribute 'columns' (line 12, column 5) must be between 0 and 39, not 40");
    refused(scalar("axis", FORTY),
            "attribute 'axis' (line 12, column 5) must be at most 7, not 40");
    struct stg_err err;
    struct stg_attr attr = buckets;
    attr.values = &some[MINUS];
    CHECK_INT(stg_param_check(params, N_PARAMS, &attr, 1, &err),
              -STAGER_INVALID_ARGUMENT);
    CHECK_STR(err.text,
              "attribute 'num_buckets' (line 1, column 1) must be at least 1, not -1");
}

static void unknown_names_suggest_the_nearest(void)
{
    refused(scalar("num_bucket", THREE), "unknown attribute 'num_bucket' (line 12, "
                                         "column 5); did you mean 'num_buckets'?");
    refused(scalar("colums", THREE),
            "unknown attribute 'colums' (line 12, column 5); did you mean 'columns'?");
    refused(scalar("frobnicate", THREE),
            "unknown attribute 'frobnicate' (line 12, column 5); known: num_buckets, "
            "rate, keep, delim, dtype, shape, columns, names, defaults, axis");
    struct stg_err err;
    CHECK_INT(stg_param_check(NULL, 0, &buckets, 1, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_STR(err.text, "unknown attribute 'num_buckets' (line 1, column 1); no "
                        "attribute is allowed here");
    char name[5000];
    memset(name, 'x', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    CHECK_INT(check(scalar(name, THREE), &err), -STAGER_INVALID_ARGUMENT);
}

static void required_ones_must_be_there(void)
{
    struct stg_err err;
    CHECK_INT(stg_param_check(params, N_PARAMS, NULL, 0, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_STR(err.text, "attribute 'num_buckets' is missing: how many buckets there are");
    CHECK_INT(stg_param_check(params, N_PARAMS, NULL, 0, NULL), -STAGER_INVALID_ARGUMENT);
}

static void fields_of_entries_are_checked_each(void)
{
    static const struct stg_param fields[] = {
        {.name = "dtype", .type = STG_PARAM_DTYPE, .required = true, .help = "which"},
        {.name = "shape", .type = STG_PARAM_SHAPE},
    };
    static const struct stg_param table[] = {{.name = "features",
                                              .type = STG_PARAM_FIELDS,
                                              .required = true,
                                              .fields = fields,
                                              .n_fields = 2}};
    struct stg_attr good[] = {
        scalar("features/a/b/dtype", INT64_NAME), list("features/a/b/shape", THREE, 1),
        scalar("features/c/dtype", INT64_NAME), scalar("features//dtype", INT64_NAME)};
    struct stg_attr_path path;
    struct stg_err err;
    CHECK_OK(stg_param_check(table, 1, good, 4, &err), err);
    CHECK(stg_attr_path(&good[1], "features", &path));
    CHECK_INT(path.entry_bytes, 3);
    CHECK(memcmp(path.entry, "a/b", 3) == 0);
    CHECK_STR(path.field, "shape");
    CHECK(!stg_attr_path(&good[1], "feature", &path));
    CHECK_INT(stg_attr_entry(good, 4, "features"), 2);
    CHECK_INT(stg_attr_entry(good + 2, 2, "features"), 1);

    static const struct {
        struct stg_attr attr;
        const char *text;
    } bad[] = {
        {{.name = "features/c/shap"},
         "unknown attribute 'features/c/shap'; did you mean 'shape'?"},
        {{.name = "feature/c/dtype"},
         "unknown attribute 'feature/c/dtype'; known: features"},
        {{.name = "features"},
         "attribute 'features' must be a mapping of mappings: {name: {key: value}}, not "
         "an integer"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        good[3] = bad[i].attr;
        good[3].n_values = 1;
        good[3].values = &some[THREE];
        CHECK_INT(stg_param_check(table, 1, good, 4, &err), -STAGER_INVALID_ARGUMENT);
        CHECK_STR(err.text, bad[i].text);
    }
    good[2] = list("features/c/shape", THREE, 1);
    CHECK_INT(stg_param_check(table, 1, good, 3, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_STR(err.text, "'c': attribute 'dtype' is missing: which");
    CHECK_INT(stg_param_check(table, 1, good, 0, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_STR(err.text, "attribute 'features' is missing: a mapping of mappings: {name: "
                        "{key: value}}");
}

static void nothing_is_given_twice(void)
{
    refused(buckets, "attribute 'num_buckets' (line 1, column 1) is given twice");
}

static void the_nearest_is_near(void)
{
    static const char *const names[] = {"shuffle", "repeat", "batch", "text_line"};
    CHECK_STR(stg_nearest("shufle", names, 4), "shuffle");
    CHECK_STR(stg_nearest("batches", names, 4), "batch");
    CHECK_STR(stg_nearest("text-line", names, 4), "text_line");
    CHECK_STR(stg_nearest("batch", names, 4), "batch");
    CHECK(stg_nearest("interleave", names, 4) == NULL);
    CHECK_STR(stg_nearest("text", names, 4), "text_line");
    CHECK(stg_nearest("te", names, 4) == NULL);
    CHECK_STR(stg_nearest("memory", (const char *const[]){"remote", "memory_budget"}, 2),
              "memory_budget");
    CHECK(stg_nearest("", names, 4) == NULL);
    CHECK(stg_nearest("shuffle", names, 0) == NULL);
    /* kitten to sitting is 3, and 6 letters allow 1 + 2 */
    CHECK_STR(stg_nearest("kitten", (const char *const[]){"sitting"}, 1), "sitting");
    CHECK(stg_nearest("kitte", (const char *const[]){"sitting"}, 1) == NULL);
}

static const struct stg_test tests[] = {
    TEST(what_fits_its_type_is_accepted),
    TEST(what_does_not_fit_is_refused_by_name_and_place),
    TEST(ranges_are_checked),
    TEST(unknown_names_suggest_the_nearest),
    TEST(required_ones_must_be_there),
    TEST(fields_of_entries_are_checked_each),
    TEST(nothing_is_given_twice),
    TEST(the_nearest_is_near),
};
TEST_MAIN(tests)
