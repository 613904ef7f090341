/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps with several inputs. The expectations are TensorFlow 2.21's results for the same
 * inputs, with errors at the same places. The draws of sample_from_datasets are those of
 * golden_sample.py.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"

/* Numbers from $DIR/NAME, one for each line; "bad" is an error. */
#define LINES(name) "[files: {pattern: $DIR/" name "}, text_line: {max_record_bytes: 2}]"

/* Returns items separated by "; ", errors as "!". */
static char *items(const char *text)
{
    struct stg_dataset_env env = stg_test_env();
    char *all = stg_test_render_text(text, &env, 0), *ret = NULL;
    size_t bytes;
    FILE *out = open_memstream(&ret, &bytes);
    const char *between = "";
    for (char *line = strtok(all, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        char *bad = strstr(line, "!INVALID_ARGUMENT");
        if (bad != NULL)
            strcpy(bad, "!");
        fprintf(out, "%s%s", between, line);
        between = "; ";
    }
    fclose(out);
    free(all);
    return ret;
}

static void check(const char *text, const char *want)
{
    char *got = items(text);
    if (strcmp(got, want) != 0)
        FAIL("%s\n%s\n  instead of\n%s", text, got, want);
    free(got);
}

static void check_refused(const char *text, const char *want)
{
    const char *got = stg_test_refused(text);
    if (strcmp(got, want) != 0)
        FAIL("%s\n%s\n  instead of\n%s", text, got, want);
}

static void make_files(void)
{
    STG_TEST_FILE("0-5", "0\n1\n2\n3\n4\n");
    STG_TEST_FILE("0-5!1", "0\nbad\n2\n3\n4\n");
    STG_TEST_FILE("0-5!13", "0\nbad\n2\nbad\n4\n");
    STG_TEST_FILE("0-5!3", "0\n1\n2\nbad\n4\n");
    STG_TEST_FILE("0-3", "0\n1\n2\n");
    STG_TEST_FILE("0-3!1", "0\nbad\n2\n");
    STG_TEST_FILE("0-3!2", "0\n1\nbad\n");
    STG_TEST_FILE("10-15", "10\n11\n12\n13\n14\n");
    STG_TEST_FILE("10-15!12", "10\nbad\nbad\n13\n14\n");
    STG_TEST_FILE("10-15!3", "10\n11\n12\nbad\n14\n");
    STG_TEST_FILE("10-13", "10\n11\n12\n");
    STG_TEST_FILE("10-12", "10\n11\n");
    STG_TEST_FILE("10-12!0", "bad\n11\n");
    STG_TEST_FILE("20-26", "20\n21\n22\n23\n24\n25\n");
    STG_TEST_FILE("none", "");
}

/* ---- zip ---- */

#define ZIP(a, b)                                                                        \
    "datasets: {a: " LINES(a) ", b: " LINES(b) "}\ndataset: [zip: {from: [a, b]}]\n"

static void zip_goes_as_far_as_the_shortest_input(void)
{
    make_files();
    check(ZIP("0-5", "10-13"), "0 10; 1 11; 2 12");
    check(ZIP("10-13", "0-5"), "10 0; 11 1; 12 2");
    check(ZIP("0-5", "none"), "");
    check("datasets: {a: [range: {stop: 6}, batch: {batch_size: 2}]}\n"
          "dataset: [range: {stop: 9}, zip: {from: [a]}, repeat: {count: 2}]\n",
          "0 [0 1]; 1 [2 3]; 2 [4 5]; #1 0 [0 1]; 1 [2 3]; 2 [4 5]");
}

static void an_error_takes_its_place_in_all_inputs_of_zip(void)
{
    make_files();
    check(ZIP("0-5!1", "10-15"), "0 10; !; 2 12; 3 13; 4 14");
    check(ZIP("0-5!13", "10-15!12"), "0 10; !; !; !; 4 14");
    check(ZIP("0-5!3", "10-13"), "0 10; 1 11; 2 12; !");
    check(ZIP("0-3", "10-15!3"), "0 10; 1 11; 2 12");
}

static void zip_names_components_after_their_branches_where_they_must(void)
{
    static const struct {
        const char *text, *names[4];
    } cases[] = {
        {"datasets: {a: [range: {stop: 1}], b: " LINES("x") "}\n"
                                                            "dataset: [zip: {from: [a, "
                                                            "b]}]\n",
         {"value", "record"}},
        {ZIP("x", "y"), {"a/record", "b/record"}},
        {"datasets: {a: [range: {stop: 1}]}\n"
         "dataset: [range: {stop: 1}, zip: {from: [a]}]\n",
         {"value", "a/value"}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct stg_pipeline_spec *spec = stg_test_load(cases[i].text);
        struct stg_bump bump;
        struct stg_schema schema;
        struct stg_err err = {0};
        stg_bump_init(&bump, 0);
        CHECK_OK(stg_dataset_infer(spec, &bump, &schema, &err), err);
        for (size_t c = 0; c < schema.n; c++)
            CHECK_STR(schema.components[c].name, cases[i].names[c]);
        stg_bump_finish(&bump);
        stg_pipeline_spec_destroy(spec);
    }
}

static void a_row_of_zip_is_where_its_first_file_is(void)
{
    make_files();
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec;
    struct stg_dataset *dataset = stg_test_open_text(
        "datasets: {b: " LINES("10-15") ", c: " LINES(
            "0-5") "}\n"
                   "dataset: [range: {stop: 9}, zip: {from: [b, c]}, skip: {count: 3}]\n",
        &env, &spec);
    struct stg_block *block = stg_test_next(dataset);
    char text[200];
    CHECK_CONTAINS(stg_provenance_text(dataset, &block->rows[0], text, sizeof(text)),
                   "/10-15: line 4 (offset 9)");
    stg_block_unref(block);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
}

/* ---- concatenate ---- */

static void concatenate_emits_one_input_after_the_other(void)
{
    make_files();
    check("datasets: {b: " LINES("10-12") ", c: " LINES("none") ", d: " LINES(
              "0-5!3") "}\n"
                       "dataset:\n- files: {pattern: $DIR/0-3}\n- text_line\n"
                       "- concatenate: {from: [b, c, d]}\n- repeat: {count: 2}\n",
          "0; 1; 2; 10; 11; 0; 1; 2; !; 4; #1 0; 1; 2; 10; 11; 0; 1; 2; !; 4");
    check("datasets: {a: " LINES("0-3!2") ", b: " LINES(
              "10-12!0") "}\n"
                         "dataset: [concatenate: {from: [a, b]}]\n",
          "0; 1; !; !; 11");
}

static void branches_take_branches(void)
{
    check("datasets:\n  a: [range: {stop: 2}]\n  b: [concatenate: {from: [a, a]}]\n"
          "dataset: [concatenate: {from: [b, a, b]}, batch: {batch_size: 20}]\n",
          "[0 1 0 1 0 1 0 1 0 1]");
}

/* ---- choose_from_datasets ---- */

/* A branch of one number; choices are built from these. */
#define ONE(n) "[range: {start: " #n ", stop: 100}, take: {count: 1}]"

static const char *choose_text(const char *a, const char *b, const char *c,
                               const char *choices, bool stop)
{
    static char text[1500];
    snprintf(
        text, sizeof(text),
        "datasets:\n  a: [files: {pattern: $DIR/%s}, text_line: {max_record_bytes: "
        "2}]\n"
        "  b: [files: {pattern: $DIR/%s}, text_line: {max_record_bytes: 2}]\n"
        "  c: [files: {pattern: $DIR/%s}, text_line: {max_record_bytes: 2}]\n"
        "  n: [range: {start: -1, stop: 0}]\n  c0: " ONE(0) "\n  c1: " ONE(
            1) "\n  c2: " ONE(2) "\n  c5: " ONE(5) "\n"
                                                   "  all: [concatenate: {from: [c0, c1, "
                                                   "c2, c5, n]}, take: {count: 0}]\n"
                                                   "  choices: [concatenate: {from: [%s, "
                                                   "all]}]\n"
                                                   "dataset: [choose_from_datasets: "
                                                   "{from: [a, b, c], choice_dataset: "
                                                   "choices, "
                                                   "stop_on_empty_dataset: %s}]\n",
        a, b, c, choices, stop ? "true" : "false");
    return text;
}

/* TFD-E9, TFD-D7: choices out of range, and inputs that end. */
static void choose_takes_elements_in_the_order_of_the_choices(void)
{
    make_files();
    static const char *const choices =
        "c0, c1, c2, c2, c1, c0, c0, c2, c1, c2, c0, c2, c2";
    check(choose_text("0-3", "10-12", "20-26", choices, true),
          "0; 10; 20; 21; 11; 1; 2; 22");
    check(choose_text("0-3", "10-12", "20-26", choices, false),
          "0; 10; 20; 21; 11; 1; 2; 22; 23; 24; 25");
    check(choose_text("0-3", "10-12", "none", "c0, c5, c1, n, c0, c1", true),
          "0; !; 10; !; 1; 11");
    check(choose_text("0-3!1", "10-12", "none", "c0, c0, c1, c0, c1", true),
          "0; !; 10; 2; 11");
}

static void choose_ends_when_all_inputs_have(void)
{
    check("datasets: {a: [range: {stop: 2}], b: [range: {start: 10, stop: 12}], "
          "c: [range: {stop: 2}, repeat]}\n"
          "dataset: [choose_from_datasets: {from: [a, b], choice_dataset: c, "
          "stop_on_empty_dataset: false}]\n",
          "0; 10; 1; 11");
    check(
        "datasets: {a: [range: {stop: 2}], c: [range: {stop: 1}, repeat]}\n"
        "dataset: [choose_from_datasets: {from: [a], choice_dataset: c}, repeat: {count: "
        "2}]\n",
        "0; 1; #1 0; 1");
}

/* ---- sample_from_datasets ---- */

#define SAMPLE(arguments)                                                                \
    "datasets: {a: [range: {stop: 6}], b: [range: {start: 10, stop: 16}], c: [range: "   \
    "{start: 20, stop: 26}]}\ndataset: [sample_from_datasets: {from: [a, b, "            \
    "c], " arguments "}]\n"

static void sample_draws_by_its_definition(void)
{
    check(SAMPLE("seed: 7"),
          "10; 11; 12; 0; 13; 20; 1; 2; 21; 3; 14; 4; 15; 5; 22; 23; 24; 25");
    check(SAMPLE("seed: 7, weights: [1, 0.5, 2.5]"),
          "20; 21; 22; 0; 23; 24; 1; 10; 25; 2; 3; 4; 5; 11; 12; 13; 14; 15");
    check(SAMPLE("seed: 7, weights: [1, 0.5, 2.5], stop_on_empty_dataset: true"),
          "20; 21; 22; 0; 23; 24; 1; 10; 25; 2");
}

/* TFD-D7 */
static void an_input_without_weight_is_never_drawn(void)
{
    check(SAMPLE("weights: [0, 1, 0]"), "10; 11; 12; 13; 14; 15");
    check(SAMPLE("weights: [0, 0, 0]"), "");
}

/* TFD-D7 */
static void epochs_of_samples_differ_only_on_request(void)
{
#define TWICE(arguments)                                                                 \
    "datasets: {a: [range: {stop: 40}], b: [range: {start: 100, stop: 140}]}\n"          \
    "dataset: [sample_from_datasets: {from: [a, b], " arguments "}, repeat: {count: "    \
    "2}, batch: {batch_size: 80}]\n"
    for (int again = 0; again < 2; again++) {
        char *got =
            items(again ? TWICE("rerandomize_each_iteration: true") : TWICE("seed: 3"));
        char *second = strstr(got, "; #1 ");
        CHECK(second != NULL);
        *second = '\0';
        CHECK_INT(strcmp(got, second + strlen("; #1 ")) != 0, again);
        free(got);
    }
}

/* TFD-D7: 5,000 draws. Chance exceeds the limit once in a thousand runs (2 degrees of
 * freedom), and never with the fixed seed. */
static void draws_have_the_chances_of_their_weights(void)
{
    static const double weights[] = {0.2, 0.3, 0.5};
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec;
    struct stg_dataset *dataset = stg_test_open_text(
        "datasets: {a: [range: {stop: 1}, repeat], b: [range: {start: 1, stop: 2}, "
        "repeat], c: [range: {start: 2, stop: 3}, repeat]}\n"
        "dataset: [sample_from_datasets: {from: [a, b, c], weights: [2, 3, 5], seed: 1}, "
        "batch: {batch_size: 5000}]\n",
        &env, &spec);
    struct stg_block *block = stg_test_next(dataset);
    double n[3] = {0}, square = 0;
    for (int i = 0; i < 5000; i++)
        n[((const int64_t *)block->tensors[0].data)[i]]++;
    for (int i = 0; i < 3; i++)
        square +=
            (n[i] - 5000 * weights[i]) * (n[i] - 5000 * weights[i]) / (5000 * weights[i]);
    CHECK(square < 13.8);
    stg_block_unref(block);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
}

/* ---- refusals ---- */

#define STEPS "dataset: [{range: {stop: 5}}]\n"
#define A "datasets: {a: [range: {stop: 3}]}\n"

static void a_branch_is_steps_below_a_name(void)
{
    check_refused("datasets: {a: 3}\n" STEPS,
                  "p:1:15: datasets.a: found 3; expected the steps of the branch: "
                  "[{range: {stop: 5}}, ...]");
    check_refused(
        "datasets: {\"a b\": [repeat]}\n" STEPS,
        "p:1:12: datasets.a b.name: \"a b\": not a valid name; use 1 to 64 letters, "
        "digits, '_', '.' or '-'");
    check_refused("datasets: {a: [repeat, bach]}\n" STEPS,
                  "p:1:24: datasets.a.dataset[1]: unknown key \"bach\"; did you mean "
                  "\"batch\"?");
    check_refused("datasets: [{name: a, dataset: 3}]\n" STEPS,
                  "p:1:31: datasets[0].dataset: found 3; expected a list; begin each "
                  "entry with \"- \"");
    check_refused(A, "p:1:1: dataset: missing; add a list of steps that begins with "
                     "\"- files: {pattern: [...]}\"");
}

static void a_branch_is_there_taken_and_no_circle(void)
{
    check_refused(A "dataset:\n- zip: {from: [a, b]}\n",
                  "step zip (line 3): unknown branch b: define its steps below that name "
                  "in `datasets`");
    check_refused(
        "datasets:\n  a: [range: {stop: 3}]\n  b: [range: {stop: 3}]\n"
        "dataset:\n- zip: {from: [a]}\n",
        "branch b (line 3): no step uses the branch: name it in a `from`, or remove it");
    check_refused("datasets:\n  a: [zip: {from: b}]\n  b: [zip: {from: [a]}]\n"
                  "dataset:\n- zip: {from: [a]}\n",
                  "branch a (line 2): the branch is its own input, through `from`");
    check_refused("datasets: {a: []}\ndataset:\n- zip: {from: [a]}\n",
                  "branch a (line 1): it has no steps; begin with a source, such as "
                  "files or range");
    check_refused("dataset:\n- zip\n", "step zip (line 2): from is missing: name the "
                                       "input branches, such as from: [a, b]");
    check_refused("datasets:\n- {name: a, dataset: [range: {stop: 3}]}\n"
                  "- {name: a, dataset: [range: {stop: 3}]}\n"
                  "dataset:\n- zip: {from: [a]}\n",
                  "branch a (line 3): another branch has the same name");
}

/* TFD-E1 */
static void inputs_fit_together(void)
{
    check_refused(
        "datasets: {a: [range: {stop: 3}], b: " LINES(
            "x") "}\ndataset:\n"
                 "- concatenate: {from: [a, b]}\n",
        "step concatenate (line 3): a and b yield different elements: component "
        "0 is called value and record");
    check_refused(A "dataset:\n- range: {stop: 4}\n- batch: {batch_size: 2}\n"
                    "- concatenate: {from: [a]}\n",
                  "step concatenate (line 5): the step before and a yield different "
                  "elements: component value has 1 and 0 dimensions");
    check_refused(A "dataset:\n- zip: {from: [a, a]}\n",
                  "step zip (line 3): two components would have the name a/value: rename "
                  "one in a map step");
    check_refused(
        A "dataset:\n- sample_from_datasets: {from: a, weights: [1, 2]}\n",
        "step sample_from_datasets (line 3): weights has 2 values for 1 inputs");
    check_refused(A "dataset:\n- sample_from_datasets: {from: a, weights: -1}\n",
                  "step sample_from_datasets (line 3): weights[0] is -1; it must be 0 to "
                  "1e+300");
    check_refused(
        "datasets: {a: " LINES(
            "x") "}\n"
                 "dataset:\n- choose_from_datasets: {from: a, choice_dataset: a}\n",
        "step choose_from_datasets (line 3): choice_dataset: a must yield one int64 "
        "scalar, the number of an input from 0");
    check_refused(A "dataset:\n- choose_from_datasets: {from: a}\n",
                  "p:3:25: dataset[0].choose_from_datasets.choice_dataset: missing; add "
                  "\"choice_dataset: ...\" here");
}

/* Each level doubles the one below: refused before it uses memory or time. */
static void branches_that_multiply_are_refused(void)
{
    char text[2000] = "datasets:\n  a0: [range: {stop: 1}]\n";
    for (int i = 1; i <= 14; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text),
                 "  a%d: [concatenate: {from: [a%d, a%d]}]\n", i, i - 1, i - 1);
    strcat(text, "dataset:\n- concatenate: {from: [a14]}\n");
    CHECK_CONTAINS(stg_test_refused(text),
                   "more than 4096 steps, where a branch counts each time it is used");
}

static const struct stg_test tests[] = {
    TEST(zip_goes_as_far_as_the_shortest_input),
    TEST(an_error_takes_its_place_in_all_inputs_of_zip),
    TEST(zip_names_components_after_their_branches_where_they_must),
    TEST(a_row_of_zip_is_where_its_first_file_is),
    TEST(concatenate_emits_one_input_after_the_other),
    TEST(branches_take_branches),
    TEST(choose_takes_elements_in_the_order_of_the_choices),
    TEST(choose_ends_when_all_inputs_have),
    TEST(sample_draws_by_its_definition),
    TEST(an_input_without_weight_is_never_drawn),
    TEST(epochs_of_samples_differ_only_on_request),
    TEST(draws_have_the_chances_of_their_weights),
    TEST(a_branch_is_steps_below_a_name),
    TEST(a_branch_is_there_taken_and_no_circle),
    TEST(inputs_fit_together),
    TEST(branches_that_multiply_are_refused),
};

TEST_MAIN(tests)
