/* SPDX-License-Identifier: Apache-2.0
 *
 * padded_batch, ragged_batch and bucket_by_sequence_length compared with TensorFlow's
 * results for the same elements (golden_batches.py). An element that does not fit is an
 * error and does not cost its batch.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/layout.h"
#include "tests/check.h"
#include "tests/daemon/dataset/dataset_yaml.h"

/* Each line as numbers and as words. */
#define ELEMENTS                                                                         \
    "dataset:\n- files: {pattern: %s, shuffle: false}\n- text_line\n"                    \
    "- map: {graph: {words: {op: string_split, input: record}, "                         \
    "ids: {op: string_to_number, input: \"words:0\", out_type: int64}}, "                \
    "output: {ids: ids, words: \"words:0\"}}\n"

static const char *elements(const char *steps)
{
    static char text[4096];
    STG_TEST_FILE("lines.txt", "1 2 3\n\n4\n5 6\n7 8 9 10\n11\n12 13 14\n");
    snprintf(text, sizeof(text), ELEMENTS "%s\n", stg_test_path("lines.txt"), steps);
    return text;
}

static void check(const char *steps, const char *want)
{
    stg_test_yaml_items(elements(steps), want);
}

static void refuse(const char *steps, const char *part)
{
    stg_test_yaml_refused(elements(steps), part);
}

/* ---- padded_batch ---- */

static void padded_batch_fills_up_to_the_largest(void)
{
    check("- padded_batch: {batch_size: 3}",
          "[[1 2 3] [0 0 0] [4 0 0]] [[1 2 3] [  ] [4  ]]\n"
          "[[5 6 0 0] [7 8 9 10] [11 0 0 0]] [[5 6  ] [7 8 9 10] [11   ]]\n"
          "[[12 13 14]] [[12 13 14]]\n");
    check("- padded_batch: {batch_size: 3, drop_remainder: true}",
          "[[1 2 3] [0 0 0] [4 0 0]] [[1 2 3] [  ] [4  ]]\n"
          "[[5 6 0 0] [7 8 9 10] [11 0 0 0]] [[5 6  ] [7 8 9 10] [11   ]]\n");
}

static void padded_batch_fills_up_to_what_is_said_with_what_is_said(void)
{
    check("- padded_batch: {batch_size: 4, padded_shapes: {ids: [5], words: [null]}, "
          "padding_values: {ids: -1, words: \"-\"}}",
          "[[1 2 3 -1 -1] [-1 -1 -1 -1 -1] [4 -1 -1 -1 -1] [5 6 -1 -1 -1]] "
          "[[1 2 3] [- - -] [4 - -] [5 6 -]]\n"
          "[[7 8 9 10 -1] [11 -1 -1 -1 -1] [12 13 14 -1 -1]] "
          "[[7 8 9 10] [11 - - -] [12 13 14 -]]\n");
}

/* TFD-E7 */
static void an_element_larger_than_its_padding_is_an_error_with_its_place(void)
{
    const char *steps = "- padded_batch: {batch_size: 2, padded_shapes: [3]}";
    check(steps, "[[1 2 3] [0 0 0]] [[1 2 3] [  ]]\n[[4 0 0] [5 6 0]] [[4  ] [5 6 ]]\n"
                 "!INVALID_ARGUMENT\n[[11 0 0] [12 13 14]] [[11  ] [12 13 14]]\n");
    char *error = stg_test_yaml_error(elements(steps));
    CHECK_CONTAINS(error, "lines.txt: line 5 (offset 13)");
    CHECK_CONTAINS(error, "step padded_batch (line 5)");
    CHECK_CONTAINS(error, "component ids of shape [4] is larger than its padded shape: "
                          "dimension 0 has 4 elements; the padded shape has 3");
    free(error);
}

static void inner_dimensions_are_padded_too(void)
{
    check("- map: {graph: {two: {op: constant, value: 2, dtype: int64}, "
          "double: {op: multiply, input: [ids, two]}, "
          "rows: {op: stack, input: [ids, double]}, ones: {op: ones_like, input: ids}, "
          "n: {op: reduce_sum, input: ones}}, output: {rows: rows, n: n}}\n"
          "- padded_batch: {batch_size: 4}",
          "[[[1 2 3] [2 4 6]] [[0 0 0] [0 0 0]] [[4 0 0] [8 0 0]] [[5 6 0] [10 12 0]]] "
          "[3 0 1 2]\n"
          "[[[7 8 9 10] [14 16 18 20]] [[11 0 0 0] [22 0 0 0]] [[12 13 14 0] [24 26 28 "
          "0]]] [4 1 3]\n");
}

/* TFD-E1 */
static void mistakes_in_paddings_are_found_when_it_is_applied(void)
{
    refuse("- padded_batch: {batch_size: 2, padded_shapes: {ids: [3, 3]}}",
           "padded_shapes of ids: the number of dimensions differs; the component has "
           "shape [?]");
    refuse("- padded_batch: {batch_size: 2, padded_shapes: {ids: [-2]}}",
           "a dimension is not valid");
    refuse("- batch: {batch_size: 1, drop_remainder: true}\n"
           "- padded_batch: {batch_size: 2, padded_shapes: [0, 3]}",
           "a dimension is smaller than that of the component");
    refuse("- padded_batch: {batch_size: 2, padded_shapes: {id: [3]}}",
           "padded_shapes: the element has no component \"id\"; did you mean \"ids\"?");
    refuse("- padded_batch: {batch_size: 2, padding_values: {ids: 1.5}}",
           "padding_values of ids");
    refuse("- padded_batch: {batch_size: 2, padding_values: {words: 1}}",
           "padding_values of words must be one string");
    refuse("- padded_batch: {batch_size: 2, padding_values: 0}",
           "padding_values of words must be one string");
}

/* ---- ragged_batch ---- */

static void ragged_batch_puts_elements_one_after_the_other(void)
{
    check("- ragged_batch: {batch_size: 4}",
          "[1 2 3 4 5 6] [0 3 3 4 6] [1 2 3 4 5 6] [0 3 3 4 6]\n"
          "[7 8 9 10 11 12 13 14] [0 4 5 8] [7 8 9 10 11 12 13 14] [0 4 5 8]\n");
    check("- ragged_batch: {batch_size: 4, drop_remainder: true}",
          "[1 2 3 4 5 6] [0 3 3 4 6] [1 2 3 4 5 6] [0 3 3 4 6]\n");
}

static void what_is_not_ragged_is_a_batch(void)
{
    stg_test_yaml_items("dataset:\n- range: {stop: 5}\n"
                        "- ragged_batch: {batch_size: 2, row_splits_dtype: int64}\n",
                        "[0 1]\n[2 3]\n[4]\n");
}

static void ragged_parts_are_named_as_those_of_a_feature(void)
{
    const struct stg_test_spec *spec =
        stg_test_yaml("%s", elements("- ragged_batch: {batch_size: 4}"));
    struct stg_bump bump;
    struct stg_schema schema;
    struct stg_err err = {0};
    stg_bump_init(&bump, 0);
    CHECK_OK(stg_dataset_infer(&spec->spec, &bump, &schema, &err), err);
    CHECK_INT(schema.n, 4);
    CHECK_STR(schema.components[0].name, "ids/values");
    CHECK_STR(schema.components[1].name, "ids/row_splits");
    CHECK_INT(schema.components[1].part, STG_PART_ROW_SPLITS);
    CHECK_INT(schema.components[1].dtype, STAGER_INT64);
    CHECK_STR(schema.components[3].name, "words/row_splits");
    stg_bump_finish(&bump);
}

static void only_the_first_dimension_may_be_ragged(void)
{
    refuse("- map: {graph: {rows: {op: stack, input: [ids, ids]}}, output: {rows: "
           "rows}}\n- ragged_batch: {batch_size: 2}",
           "component rows has shape [2, ?]; only its first dimension may be ragged");
}

/* ---- bucket_by_sequence_length ---- */

#define BUCKETS "- bucket_by_sequence_length: {element_length: ids, "

static void elements_of_like_length_are_batched(void)
{
    check(BUCKETS "bucket_boundaries: [2, 4], bucket_batch_sizes: [2, 2, 1]}",
          "[[0] [4]] [[] [4]]\n[[1 2 3] [5 6 0]] [[1 2 3] [5 6 ]]\n"
          "[[7 8 9 10]] [[7 8 9 10]]\n[[11]] [[11]]\n[[12 13 14]] [[12 13 14]]\n");
    check(BUCKETS "bucket_boundaries: [2, 4], bucket_batch_sizes: [2, 2, 1], "
                  "drop_remainder: true}",
          "[[0] [4]] [[] [4]]\n[[1 2 3] [5 6 0]] [[1 2 3] [5 6 ]]\n"
          "[[7 8 9 10]] [[7 8 9 10]]\n");
}

static void buckets_may_be_padded_to_their_boundary(void)
{
    check(BUCKETS "bucket_boundaries: [2, 5], bucket_batch_sizes: [2, 2, 1], "
                  "pad_to_bucket_boundary: true}",
          "[[0] [4]] [[] [4]]\n[[1 2 3 0] [5 6 0 0]] [[1 2 3 ] [5 6  ]]\n"
          "[[7 8 9 10] [12 13 14 0]] [[7 8 9 10] [12 13 14 ]]\n[[11]] [[11]]\n");
}

static void what_is_longer_than_the_last_boundary_is_an_error_of_its_own(void)
{
    const char *steps =
        BUCKETS "bucket_boundaries: [2, 4], bucket_batch_sizes: [2, 2, 1], "
                "pad_to_bucket_boundary: true}";
    check(steps, "[[0] [4]] [[] [4]]\n[[1 2 3] [5 6 0]] [[1 2 3] [5 6 ]]\n"
                 "!INVALID_ARGUMENT\n[[11]] [[11]]\n[[12 13 14]] [[12 13 14]]\n");
    char *error = stg_test_yaml_error(elements(steps));
    CHECK_CONTAINS(error, "lines.txt: line 5 (offset 13)");
    CHECK_CONTAINS(error, "an element of length 4");
    CHECK_CONTAINS(error, "shorter than the last boundary, 4");
    free(error);
}

static void buckets_take_paddings(void)
{
    check(BUCKETS "bucket_boundaries: [2, 4], bucket_batch_sizes: [2, 2, 1], "
                  "padded_shapes: {ids: [6]}, padding_values: {ids: -1, words: \"-\"}}",
          "[[-1 -1 -1 -1 -1 -1] [4 -1 -1 -1 -1 -1]] [[-] [4]]\n"
          "[[1 2 3 -1 -1 -1] [5 6 -1 -1 -1 -1]] [[1 2 3] [5 6 -]]\n"
          "[[7 8 9 10 -1 -1]] [[7 8 9 10]]\n[[11 -1 -1 -1 -1 -1]] [[11]]\n"
          "[[12 13 14 -1 -1 -1]] [[12 13 14]]\n");
}

/* The length is computed by a graph. Without padding, elements of a bucket must have one
 * shape. */
static void the_length_may_be_computed(void)
{
    check("- filter: {graph: {ones: {op: ones_like, input: ids}, "
          "n: {op: reduce_sum, input: ones}, two: {op: constant, value: 2, dtype: "
          "int64}, is: {op: not_equal, input: [n, two]}}, predicate: is}\n"
          "- bucket_by_sequence_length: {graph: {ones: {op: ones_like, input: ids}, "
          "n: {op: reduce_sum, input: ones}}, element_length: n, "
          "bucket_boundaries: [1, 2, 4], bucket_batch_sizes: [2, 2, 2, 2], "
          "no_padding: true}",
          "[[4] [11]] [[4] [11]]\n[[1 2 3] [12 13 14]] [[1 2 3] [12 13 14]]\n"
          "[[]] [[]]\n[[7 8 9 10]] [[7 8 9 10]]\n");
    check(BUCKETS "bucket_batch_sizes: [2], no_padding: true}",
          "!INVALID_ARGUMENT\n!INVALID_ARGUMENT\n!INVALID_ARGUMENT\n"
          "[[12 13 14]] [[12 13 14]]\n");
}

/* TFD-E8, TFD-E1 */
static void mistakes_in_buckets_are_found_when_it_is_applied(void)
{
    refuse(BUCKETS "bucket_boundaries: [2, 4], bucket_batch_sizes: [2, 2]}",
           "2 bucket_batch_sizes for 2 bucket_boundaries; there must be one more");
    refuse(BUCKETS "bucket_boundaries: [4, 4], bucket_batch_sizes: [2, 2, 2]}",
           "bucket_boundaries 4 and 4: they must increase");
    refuse(BUCKETS "bucket_batch_sizes: [2], pad_to_bucket_boundary: true}",
           "pad_to_bucket_boundary needs bucket_boundaries");
    refuse("- bucket_by_sequence_length: {element_length: word, bucket_batch_sizes: [2]}",
           "did you mean \"words\"?");
    refuse("- map: {graph: {x: {op: constant, value: 1.5}}, output: {x: x}}\n"
           "- bucket_by_sequence_length: {element_length: x, bucket_batch_sizes: [2]}",
           "element_length x is float32 []; it must be an integer");
}

static const struct stg_test tests[] = {
    TEST(padded_batch_fills_up_to_the_largest),
    TEST(padded_batch_fills_up_to_what_is_said_with_what_is_said),
    TEST(an_element_larger_than_its_padding_is_an_error_with_its_place),
    TEST(inner_dimensions_are_padded_too),
    TEST(mistakes_in_paddings_are_found_when_it_is_applied),
    TEST(ragged_batch_puts_elements_one_after_the_other),
    TEST(what_is_not_ragged_is_a_batch),
    TEST(ragged_parts_are_named_as_those_of_a_feature),
    TEST(only_the_first_dimension_may_be_ragged),
    TEST(elements_of_like_length_are_batched),
    TEST(buckets_may_be_padded_to_their_boundary),
    TEST(what_is_longer_than_the_last_boundary_is_an_error_of_its_own),
    TEST(buckets_take_paddings),
    TEST(the_length_may_be_computed),
    TEST(mistakes_in_buckets_are_found_when_it_is_applied),
};

TEST_MAIN(tests)
