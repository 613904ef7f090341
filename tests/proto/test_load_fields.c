/* SPDX-License-Identifier: Apache-2.0
 *
 * Attributes that are mappings of mappings; numbers that may be `auto`; nan.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/load.h"
#include "tests/check.h"

#define STEPS "dataset: [{range: {stop: 5}}]\n"

static struct stg_pipeline_spec *load(const char *text)
{
    struct stg_pipeline_spec *spec = NULL;
    struct stg_err err = {0};
    CHECK_OK(stg_load_pipeline(text, strlen(text), "p.yaml", &spec, &err), err);
    return spec;
}

static uint64_t fingerprint(const char *text)
{
    struct stg_pipeline_spec *spec = load(text);
    uint64_t ret = spec->fingerprint;
    stg_pipeline_spec_destroy(spec);
    return ret;
}

static void not_a_number_is_a_float(void)
{
    static const char *const texts[] = {".nan", ".NaN", ".NAN", "nan", "NaN", "NAN"};
    uint64_t fingerprint = 0;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        char text[256];
        snprintf(text, sizeof(text), STEPS "graph: [{name: n, op: x, v: %s}]\n",
                 texts[i]);
        struct stg_pipeline_spec *spec = load(text);
        CHECK_INT(spec->nodes[0].attrs[0].values[0].kind, STG_VALUE_FLOAT);
        CHECK(isnan(spec->nodes[0].attrs[0].values[0].f));
        CHECK(i == 0 || spec->fingerprint == fingerprint);
        fingerprint = spec->fingerprint;
        stg_pipeline_spec_destroy(spec);
    }
}

static void a_mapping_of_mappings_is_an_attribute_for_each_leaf(void)
{
    static const char *const names[] = {"f/B/dtype", "f/a/b/dtype", "f/a/b/shape", "v"};
    struct stg_pipeline_spec *spec =
        load(STEPS "graph:\n- name: n\n  op: x\n  f:\n"
                   "    a/b: {shape: [2, 3], dtype: int64}\n    B: {dtype: 7}\n  v: 1\n");
    const struct stg_node *node = &spec->nodes[0];
    CHECK_INT(node->n_attrs, 4);
    for (size_t i = 0; i < 4; i++)
        CHECK(stg_attr_find(node->attrs, 4, names[i]) != NULL);
    const struct stg_attr *shape = stg_attr_find(node->attrs, 4, "f/a/b/shape");
    CHECK_INT(shape->n_values, 2);
    CHECK_INT(shape->line, 6);
    stg_pipeline_spec_destroy(spec);
}

static void entries_are_in_the_order_of_their_names(void)
{
    struct stg_pipeline_spec *spec = load(
        STEPS "graph: [{name: n, op: x, f: {b: {p: 1}, a: {q: 2, p: 3}, B: {p: 4}}}]\n");
    static const char *const names[] = {"f/B/p", "f/a/q", "f/a/p", "f/b/p"};
    for (size_t i = 0; i < 4; i++)
        CHECK_STR(spec->nodes[0].attrs[i].name, names[i]);
    stg_pipeline_spec_destroy(spec);
    CHECK(fingerprint(STEPS
                      "graph: [{name: n, op: x, f: {a: {p: 1, q: 2}, b: {p: 3}}}]\n") ==
          fingerprint(STEPS
                      "graph: [{name: n, op: x, f: {b: {p: 3}, a: {q: 2, p: 1}}}]\n"));
    CHECK(fingerprint(STEPS "graph: [{name: n, op: x, f: {a: {p: 1}}}]\n") !=
          fingerprint(STEPS "graph: [{name: n, op: x, f: {b: {p: 1}}}]\n"));
}

static void a_value_other_than_a_mapping_of_mappings_is_reported(void)
{
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"{}", "graph[0].f: found a mapping; expected a mapping with at least one entry"},
        {"{b: 1}", "graph[0].f.b: found 1; expected a mapping with at least one key"},
        {"{b: {c d: 1}}",
         "graph[0].f.b: a key here is a word of letters, digits and '_'"},
        {"{b: {c: {d: 1}}}", "graph[0].f.b.c: found a mapping; expected a value"},
        {"{b: {c: [1, {}]}}", "graph[0].f.b.c: found a mapping; expected a value"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[256] = STEPS "graph: [{name: n, op: x, f: ";
        struct stg_pipeline_spec *spec = NULL;
        struct stg_err err = {0};
        strcat(text, cases[i].text);
        strcat(text, "}]\n");
        CHECK_INT(stg_load_pipeline(text, strlen(text), "p.yaml", &spec, &err),
                  -STAGER_INVALID_ARGUMENT);
        CHECK_CONTAINS(err.text, cases[i].error);
        CHECK_CONTAINS(err.text, "p.yaml:2:");
    }
}

static void auto_and_tf_datas_number_for_it_are_kept_alike(void)
{
    static const char *const words[] = {"auto", "-1", "\"auto\""};
    uint64_t first = 0;
    for (size_t i = 0; i < 3; i++) {
        char text[512];
        snprintf(text, sizeof(text),
                 "dataset: [{files: {pattern: x}}, {interleave: {reader: text_line, "
                 "num_parallel_calls: %s}}, {prefetch: {buffer_size: %s}}]\n"
                 "staged: {capacity: %s, num_threads: %s}\n",
                 words[i], words[i], words[i], words[i]);
        struct stg_pipeline_spec *spec = load(text);
        CHECK_INT(spec->staged.capacity, 0);
        CHECK_INT(spec->staged.num_threads, 0);
        const struct stg_step *steps = spec->steps;
        CHECK_INT(stg_attr_int(steps[1].attrs, steps[1].n_attrs, "num_parallel_calls", 7),
                  -1);
        CHECK_INT(stg_attr_int(steps[2].attrs, steps[2].n_attrs, "buffer_size", 7), 0);
        CHECK(i == 0 || spec->fingerprint == first);
        first = spec->fingerprint;
        stg_pipeline_spec_destroy(spec);
    }
}

static const struct stg_test tests[] = {
    TEST(not_a_number_is_a_float),
    TEST(a_mapping_of_mappings_is_an_attribute_for_each_leaf),
    TEST(entries_are_in_the_order_of_their_names),
    TEST(a_value_other_than_a_mapping_of_mappings_is_reported),
    TEST(auto_and_tf_datas_number_for_it_are_kept_alike),
};
TEST_MAIN(tests)
