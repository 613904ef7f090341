/* SPDX-License-Identifier: Apache-2.0
 *
 * `features` of every form: the staged tensors, their order, and a structure that
 * round-trips unchanged.
 */
#include <stdio.h>
#include <string.h>

#include "tests/check.h"
#include "tests/system/fixture.h"

/* Four rows: a b | (nothing) | c | d e f */
#define HEAD                                                                             \
    "name: s\n"                                                                          \
    "dataset:\n"                                                                         \
    "  - files: {pattern: [\"%s\"]}\n"                                                   \
    "  - text_line: {}\n"                                                                \
    "  - batch: {batch_size: 4}\n"                                                       \
    "graph:\n"                                                                           \
    "  - {name: w, op: string_split, input: [record]}\n"                                 \
    "  - {name: s, op: string_split, input: [record], result_type: sparse}\n"            \
    "  - {name: zero_d, op: constant, value: 2.5}\n"                                     \
    "  - {name: empty, op: constant, value: [], shape: [0, 3]}\n"                        \
    "  - {name: v, op: constant, value: [10, 11, 12, 13, 14]}\n"                         \
    "  - {name: splits, op: constant, value: [0, 2, 2, 3, 5], dtype: int64}\n"           \
    "  - {name: falls, op: constant, value: [0, 3, 2, 3, 5], dtype: int64}\n"            \
    "  - {name: short, op: constant, value: [0, 1, 2, 3, 4], dtype: int64}\n"            \
    "  - {name: late, op: constant, value: [1, 1, 2, 3, 5], dtype: int64}\n"             \
    "  - {name: at, op: constant, value: [[0, 0], [0, 8], [2, 1], [3, 0], [3, 9]], "     \
    "dtype: int64}\n"                                                                    \
    "  - {name: out, op: constant, value: [[0, 0], [0, 8], [2, 1], [3, 0], [3, 10]], "   \
    "dtype: int64}\n"                                                                    \
    "  - {name: box, op: constant, value: [4, 10], dtype: int64}\n"                      \
    "  - {name: cube, op: constant, value: [4, 10, 2], dtype: int64}\n"                  \
    "  - {name: few, op: constant, value: [[0, 0], [1, 1]], dtype: int64}\n"

static int try_apply(struct fixture *fixture, const char *features, struct stg_err *err)
{
    static const char lines[] = "a b\n\nc\nd e f\n";
    char path[256], yaml[4096];
    fixture_file(fixture, "lines.txt", lines, sizeof(lines) - 1, path);
    snprintf(yaml, sizeof(yaml), HEAD "staged: {features: %s}\n", path, features);
    *err = (struct stg_err){0};
    return fixture_try_apply(fixture, yaml, true, err);
}

static void describe(const struct stager_tensor *t, char *buf, size_t bytes)
{
    size_t used =
        (size_t)snprintf(buf, bytes, "%s:%s", t->name, stager_dtype_name(t->dtype));
    for (int i = 0; i < t->ndim; i++)
        used += (size_t)snprintf(buf + used, bytes - used, "%s%lld", i > 0 ? "x" : ":",
                                 (long long)t->shape[i]);
    if (t->part != 0)
        snprintf(buf + used, bytes - used, "(%u)", t->part);
}

/* Stages these features, and checks the structure and all tensors in their order. */
static void check_features(const char *features, const char *structure,
                           const char *tensors)
{
    struct fixture fixture;
    struct stg_err err;
    char all[1024] = "";
    fixture_start(&fixture, "");
    CHECK_OK(try_apply(&fixture, features, &err), err);
    struct stager_stream *stream = fixture_open(&fixture, "s", "test", 2);
    CHECK_STR(stager_structure(stream), structure);
    struct stager_batch *batch = fixture_take(stream);
    struct stager_batch_info info = {.struct_size = sizeof(info)};
    stager_batch_info(batch, &info);
    for (uint32_t i = 0; i < info.n_tensors; i++) {
        struct stager_tensor t;
        CHECK_INT(stager_batch_tensor_at(batch, i, &t), 0);
        size_t used = strlen(all);
        used += (size_t)snprintf(all + used, sizeof(all) - used, "%s", i > 0 ? " " : "");
        describe(&t, all + used, sizeof(all) - used);
    }
    CHECK_STR(all, tensors);
    stager_release(batch);
    stager_close(stream);
    fixture_finish(&fixture);
}

static void one_tensor_is_called_as_it_is(void)
{
    check_features("record", "\"record\"", "record:string:4");
    check_features("zero_d", "\"zero_d\"", "zero_d:float32");
}

static void lists_and_mappings_nest_and_nulls_stay(void)
{
    check_features("[record, ~, [zero_d, {k: empty, n: null}]]",
                   "[\"0\",null,[\"2/0\",{\"k\":\"2/1/k\",\"n\":null}]]",
                   "0:string:4 2/0:float32 2/1/k:float32:0x3");
    check_features("{z: record, a: {z: {y: record}}}",
                   "{\"z\":\"z\",\"a\":{\"z\":{\"y\":\"a/z/y\"}}}",
                   "z:string:4 a/z/y:string:4");
}

static void sparse_and_ragged_come_back_where_they_were(void)
{
    check_features(
        "{l: [{sparse: {dense_shape: \"s:2\", values: s, indices: \"s:1\"}}], "
        "r: {ragged: {row_splits: splits, values: v}}}",
        "{\"l\":[{\"sparse\":{\"values\":\"l/0/values\",\"indices\":\"l/0/indices\","
        "\"dense_shape\":\"l/0/dense_shape\"}}],"
        "\"r\":{\"ragged\":{\"values\":\"r/values\",\"row_splits\":\"r/row_splits\"}}}",
        "l/0/values:string:6 l/0/indices:int64:6x2(2) l/0/dense_shape:int64:2(3) "
        "r/values:int32:5 r/row_splits:int64:5(1)");
    check_features("{ragged: {values: w, row_splits: \"w:1\"}}",
                   "{\"ragged\":{\"values\":\"values\",\"row_splits\":\"row_splits\"}}",
                   "values:string:6 row_splits:int64:5(1)");
}

static void sparse_and_ragged_equal_tensorflow(void)
{
    struct fixture fixture;
    struct stg_err err;
    fixture_start(&fixture, "");
    CHECK_OK(try_apply(&fixture,
                       "{r: {ragged: {values: w, row_splits: \"w:1\"}}, "
                       "s: {sparse: {values: v, indices: at, dense_shape: box}}}",
                       &err),
             err);
    struct stager_stream *stream = fixture_open(&fixture, "s", "test", 2);
    struct stager_batch *batch = fixture_take(stream);
    struct stager_ragged r;
    struct stager_sparse s;
    CHECK_INT(stager_batch_ragged(batch, "r", &r), 0);
    CHECK_INT(stager_batch_sparse(batch, "s", &s), 0);
    /* tf.strings.split(["a b", "", "c", "d e f"]).row_splits */
    static const int64_t splits[] = {0, 2, 2, 3, 6};
    CHECK(memcmp(r.row_splits.data, splits, sizeof(splits)) == 0);
    CHECK_INT(r.values.data_bytes, 6);
    CHECK(memcmp(r.values.data, "abcdef", 6) == 0);
    CHECK_INT(((const int32_t *)s.values.data)[4], 14);
    CHECK_INT(((const int64_t *)s.indices.data)[9], 9);
    CHECK_INT(((const int64_t *)s.dense_shape.data)[1], 10);
    stager_release(batch);
    stager_close(stream);
    fixture_finish(&fixture);
}

static void parts_that_cannot_be_are_refused_when_applied(void)
{
    static const struct {
        const char *features, *text;
    } cases[] = {
        {"{r: {ragged: {values: w, row_splits: v}}}",
         "staged.features.r/row_splits, line 21: row_splits must be int64 [rows + 1], "
         "found int32 [5]"},
        {"{r: {ragged: {values: w, row_splits: at}}}", "found int64 [5, 2]"},
        {"{r: {ragged: {values: zero_d, row_splits: splits}}}",
         "the values of a ragged feature must have rank 1 or more"},
        {"{a: {sparse: {values: v, indices: splits, dense_shape: box}}}",
         "staged.features.a/indices, line 21: indices must be int64 [values, rank], "
         "found int64 [5]"},
        {"{a: {sparse: {values: v, indices: few, dense_shape: box}}}",
         "2 indices for 5 values"},
        {"{a: {sparse: {values: empty, indices: at, dense_shape: box}}}",
         "the values of a sparse feature must have rank 1, but \"a/values\" has rank 2"},
        {"{a: {sparse: {values: v, indices: at, dense_shape: cube}}}",
         "staged.features.a/dense_shape, line 21: a dense_shape of rank 3 for indices of "
         "rank 2"},
        {"{a: {sparse: {values: v, indices: at}}}", "dense_shape is missing"},
        {"[null, null]", "nothing but nulls"},
    };
    struct fixture fixture;
    fixture_start(&fixture, "");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct stg_err err;
        CHECK_INT(try_apply(&fixture, cases[i].features, &err), -STAGER_INVALID_ARGUMENT);
        CHECK_CONTAINS(err.text, cases[i].text);
    }
    fixture_finish(&fixture);
}

static void content_that_does_not_fit_makes_an_error_item_that_names_the_tensor(void)
{
    static const struct {
        const char *features, *text;
    } cases[] = {
        {"{r: {ragged: {values: v, row_splits: falls}}}",
         "tensor r/row_splits: row_splits decrease at row 1, from 3 to 2"},
        {"{r: {ragged: {values: v, row_splits: short}}}",
         "tensor r/row_splits: row_splits end with 4, there are 5 values"},
        {"{r: {ragged: {values: v, row_splits: late}}}",
         "tensor r/row_splits: row_splits must begin with 0, not with 1"},
        {"{a: {sparse: {values: v, indices: out, dense_shape: box}}}",
         "tensor a/indices: entry 4 has index 10 in dimension 1, which has 10"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fixture fixture;
        struct stg_err err;
        fixture_start(&fixture, "");
        CHECK_OK(try_apply(&fixture, cases[i].features, &err), err);
        struct stager_stream *stream = fixture_open(&fixture, "s", "test", 2);
        struct stager_batch *batch = NULL;
        CHECK_INT(stager_next(stream, fixture_millis(20000), &batch),
                  -STAGER_INVALID_ARGUMENT);
        CHECK_CONTAINS(stager_error_text(stream), cases[i].text);
        CHECK_INT(stager_next(stream, fixture_millis(20000), &batch),
                  -STAGER_OUT_OF_RANGE);
        stager_close(stream);
        fixture_finish(&fixture);
    }
}

static const struct stg_test tests[] = {
    TEST(one_tensor_is_called_as_it_is),
    TEST(lists_and_mappings_nest_and_nulls_stay),
    TEST(sparse_and_ragged_come_back_where_they_were),
    TEST(sparse_and_ragged_equal_tensorflow),
    TEST(parts_that_cannot_be_are_refused_when_applied),
    TEST(content_that_does_not_fit_makes_an_error_item_that_names_the_tensor),
};

TEST_MAIN(tests)
