/* SPDX-License-Identifier: Apache-2.0
 *
 * The nodes behind the boundary that may run before it, and the tensors that then cross:
 * STAGE-C25 to C33, D10 and D11 of the stage contract (docs/pipeline.md).
 */
#include <stdio.h>
#include <string.h>

#include "ops/partition/partition.h"
#include "proto/load.h"
#include "tests/check.h"
#include "tests/ops/fixture.h"

struct partitioning {
    struct fixture_stage stage;
    struct stg_partitions *partitions;
};

static void partitioning_init(struct partitioning *partitioning, const char *text)
{
    struct stg_err err = {0};
    fixture_stage_init(&partitioning->stage, text);
    CHECK_OK(
        stg_partitions_create(partitioning->stage.graph, &partitioning->partitions, &err),
        err);
}

static void partitioning_finish(struct partitioning *partitioning)
{
    stg_partitions_destroy(partitioning->partitions);
    fixture_stage_finish(&partitioning->stage);
}

/* Lists the nodes of the largest set for a client that fetches this (NULL: the targets),
 * each preceded by a blank. */
static const char *largest(const struct partitioning *partitioning, const char *fetch)
{
    static char text[512];
    bool moved[256] = {false};
    struct stg_err err = {0};
    struct stg_partition_wanted wanted = {
        .has_fetches = fetch != NULL, .fetches = &fetch, .n_fetches = fetch != NULL};
    struct stg_partition_needs *needs;
    CHECK_OK(stg_partition_needs_create(partitioning->partitions, &wanted, &needs, &err),
             err);
    const struct stg_partition_needs *all = needs;
    stg_partitions_largest(partitioning->partitions, &all, 1, moved);
    CHECK_OK(stg_partitions_check(partitioning->partitions, &all, 1, moved, &err), err);
    text[0] = '\0';
    for (size_t i = 0; i < stg_partitions_n_nodes(partitioning->partitions); i++) {
        if (moved[i])
            snprintf(text + strlen(text), sizeof(text) - strlen(text), " %s",
                     stg_partitions_node(partitioning->partitions, i));
    }
    stg_partition_needs_destroy(needs);
    return text;
}

static void check_largest(const char *graph, const char *fetch, const char *nodes)
{
    struct partitioning partitioning;
    partitioning_init(&partitioning, graph);
    CHECK_STR(largest(&partitioning, fetch), nodes);
    partitioning_finish(&partitioning);
}

/* Lists the tensors that cross when every movable node has moved, without unused
 * features. */
static const char *crossing(const struct partitioning *partitioning)
{
    static char text[512];
    bool moved[256] = {false};
    struct stg_err err = {0};
    struct stg_partition_wanted wanted = {.has_fields = true};
    struct stg_partition_needs *needs;
    struct stg_partition *partition;
    CHECK_OK(stg_partition_needs_create(partitioning->partitions, &wanted, &needs, &err),
             err);
    const struct stg_partition_needs *all = needs;
    stg_partitions_largest(partitioning->partitions, &all, 1, moved);
    CHECK_OK(stg_partition_create(partitioning->partitions, &all, 1, moved, false,
                                  &partition, &err),
             err);
    text[0] = '\0';
    for (size_t i = 0; i < stg_partition_schema(partition)->n; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), " %s",
                 stg_partition_schema(partition)->components[i].name);
    stg_partition_destroy(partition);
    stg_partition_needs_destroy(needs);
    return text;
}

#define ELEMENT "element x int64 [-1]\nfeature x = x\n"

static void c25_what_depends_on_a_variable_stays(void)
{
    check_largest(ELEMENT "w = variable() shape=[1] dtype=\"int64\"\n"
                          "a = add(staged:x, staged:x)\nb = add(a, w)\n"
                          "c = add(b, a)\ntarget c\n",
                  NULL, " a");
}

static void c25_what_depends_on_a_placeholder_stays(void)
{
    check_largest(ELEMENT "p = placeholder() dtype=\"int64\" shape=[1]\n"
                          "a = add(staged:x, staged:x)\nb = add(a, p)\nc = add(b, b)\n",
                  "c", " a");
}

static void c25_an_assert_and_what_follows_it_stay(void)
{
    check_largest(ELEMENT "w = variable() shape=[1] dtype=\"int64\"\n"
                          "a = add(staged:x, staged:x)\n"
                          "t = equal(a, a)\nb = assert(t, a)\nc = add(b, b)\n"
                          "d = add(c, w)\ntarget d\n",
                  NULL, " a t");
}

static void c26_a_control_edge_from_a_variable_stops_it(void)
{
    check_largest(ELEMENT "w = variable() shape=[1] dtype=\"int64\"\n"
                          "r = identity(w)\na = add(staged:x, staged:x)\n"
                          "b = add(a, a, ^r)\nc = add(b, b)\nd = add(c, a)\ntarget d\n",
                  NULL, " a");
}

static void c27_of_what_two_read_only_the_edge_that_crosses_is_past_end(void)
{
    const char *graph = ELEMENT "w = variable() shape=[1] dtype=\"int64\"\n"
                                "a = add(staged:x, staged:x)\nb = add(a, a)\n"
                                "c = add(a, w)\nd = add(b, c)\ntarget d\n";
    struct partitioning partitioning;
    partitioning_init(&partitioning, graph);
    CHECK_STR(largest(&partitioning, NULL), " a b");
    CHECK_STR(crossing(&partitioning), " a:0 b:0");
    partitioning_finish(&partitioning);
}

static void c28_an_output_that_many_read_crosses_once(void)
{
    struct partitioning partitioning;
    partitioning_init(&partitioning,
                      ELEMENT "w = variable() shape=[1] dtype=\"int64\"\n"
                              "a = add(staged:x, staged:x)\n"
                              "same = add(staged:x, staged:x)\n"
                              "b = add(a, w)\nc = add(same, w)\nd = add(a, b)\n"
                              "e = add(c, d)\ntarget e\n");
    CHECK_STR(crossing(&partitioning), " a:0");
    partitioning_finish(&partitioning);
}

static void c29_a_marked_target_is_not_run_ahead_nor_what_follows_it(void)
{
    const char *graph = ELEMENT "a = add(staged:x, staged:x)\nb = add(a, a)\n"
                                "c = add(b, b)\ntarget b\n";
    check_largest(graph, NULL, " a");
    check_largest(graph, "c", " a");
    check_largest(graph, "a", "");
}

/* DeepRec reports an error if there are two. stager's format cannot express two. */
static void c30_a_pipeline_has_one_stage(void)
{
    struct stg_pipeline_spec *spec;
    struct stg_err err = {0};
    const char *text = "dataset: [{range: {stop: 1}}]\nstaged: {capacity: 1}\n"
                       "staged: {capacity: 2}\n";
    CHECK_INT(stg_load_pipeline(text, strlen(text), "p", &spec, &err),
              -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "p:3:1: ");
    CHECK_CONTAINS(err.text, "staged");
}

static void c31_without_anything_to_move_the_partition_is_the_users(void)
{
    struct partitioning partitioning;
    struct stg_err err = {0};
    struct stg_partition_needs *needs;
    struct stg_partition *partition;
    bool moved[16] = {false};
    partitioning_init(&partitioning, ELEMENT "w = variable() shape=[1] dtype=\"int64\"\n"
                                             "b = add(staged:x, w)\ntarget b\n");
    CHECK_STR(largest(&partitioning, NULL), "");
    CHECK(!stg_partitions_may_move(
        partitioning.partitions)); /* `check` and `apply` report it */
    CHECK_OK(stg_partition_needs_create(partitioning.partitions,
                                        &(struct stg_partition_wanted){0}, &needs, &err),
             err);
    const struct stg_partition_needs *all = needs;
    CHECK_OK(stg_partition_create(partitioning.partitions, &all, 1, moved, false,
                                  &partition, &err),
             err);
    CHECK(stg_partition_is_own(partition));
    stg_partition_destroy(partition);
    stg_partition_needs_destroy(needs);
    partitioning_finish(&partitioning);
}

/* No upward-closed set makes a cycle. Other sets are refused, and so is a cycle. */
static void c32_a_partition_makes_no_cycle(void)
{
    struct partitioning partitioning;
    struct stg_err err = {0};
    struct stg_partition_needs *needs;
    partitioning_init(&partitioning,
                      ELEMENT "w = variable() shape=[1] dtype=\"int64\"\n"
                              "a = add(staged:x, staged:x)\nb = add(a, a)\n"
                              "c = add(b, w)\ntarget c\n");
    CHECK_OK(stg_partition_needs_create(partitioning.partitions,
                                        &(struct stg_partition_wanted){0}, &needs, &err),
             err);
    const struct stg_partition_needs *all = needs;
    CHECK_INT(stg_partitions_check(partitioning.partitions, &all, 1,
                                   (bool[]){false, true}, &err),
              -STAGER_INVALID_ARGUMENT);
    CHECK_STR(err.text, "node b cannot move without a, which comes before it");
    stg_partition_needs_destroy(needs);
    partitioning_finish(&partitioning);

    struct fixture fixture;
    struct stg_graph *graph;
    CHECK_OK(
        fixture_parse(&fixture, ELEMENT "a = add(staged:x, b)\nb = add(a, a)\n", &err),
        err);
    CHECK_INT(stg_graph_create(&fixture.spec, &fixture.element, NULL, &graph, &err),
              -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "form a cycle");
    fixture_finish(&fixture);
}

/* Nodes that look up ids may move, like DeepRec's lookup of ids. Nodes that read rows of
 * a variable by id may not. */
static void c33_a_lookup_of_ids_may_move(void)
{
    check_largest("element word string [-1]\nfeature word = word\n"
                  "table = variable() shape=[9, 2]\n"
                  "id = string_to_hash_bucket_fast(staged:word) num_buckets=9\n"
                  "row = embedding_lookup(table, id)\ntarget row\n",
                  NULL, " id");
}

/* With names and numbers concatenated, output 10 of Split_1 would equal output 0 of
 * Split_11. */
static void d10_outputs_are_identified_by_node_and_number(void)
{
    struct partitioning partitioning;
    partitioning_init(
        &partitioning,
        "element line string [-1]\nfeature line = line\n"
        "w = variable() shape=[1] dtype=\"int64\"\n"
        "Split_1 = decode_csv(staged:line) record_defaults=[0, 0, 0, 0, 0, 0, 0, "
        "0, 0, 0, 0]\n"
        "Split_11 = identity(Split_1:3)\n"
        "a = cast(Split_1:10) dtype=\"int64\"\n"
        "b = cast(Split_11:0) dtype=\"int64\"\n"
        "t = equal(Split_1:10, Split_11:0)\n"
        "pass1 = assert(t, Split_1:10, Split_11:0)\n"
        "c = add(a, w)\nd = add(b, w)\ne = add(c, d)\n"
        "target e\ntarget pass1\n");
    CHECK_STR(crossing(&partitioning), " Split_1:10 Split_11:0 a:0 b:0 t:0");
    partitioning_finish(&partitioning);
}

/* A node that writes a variable depends on it: only trainers run it, and once. */
static void d11_what_has_a_side_effect_runs_on_one_side(void)
{
    struct partitioning partitioning;
    partitioning_init(&partitioning,
                      ELEMENT "w = variable() shape=[1] dtype=\"int64\"\n"
                              "one = constant() value=[1] dtype=\"int64\"\n"
                              "up = assign_add(w, one)\n"
                              "a = add(staged:x, staged:x)\n"
                              "b = add(a, a, ^up)\nc = add(a, b)\ntarget c\n");
    CHECK_STR(largest(&partitioning, NULL), " a");
    for (size_t i = 0; i < stg_partitions_n_nodes(partitioning.partitions); i++)
        CHECK(strcmp(stg_partitions_node(partitioning.partitions, i), "up") != 0);
    partitioning_finish(&partitioning);
}

static const struct stg_test tests[] = {
    TEST(c25_what_depends_on_a_variable_stays),
    TEST(c25_what_depends_on_a_placeholder_stays),
    TEST(c25_an_assert_and_what_follows_it_stay),
    TEST(c26_a_control_edge_from_a_variable_stops_it),
    TEST(c27_of_what_two_read_only_the_edge_that_crosses_is_past_end),
    TEST(c28_an_output_that_many_read_crosses_once),
    TEST(c29_a_marked_target_is_not_run_ahead_nor_what_follows_it),
    TEST(c30_a_pipeline_has_one_stage),
    TEST(c31_without_anything_to_move_the_partition_is_the_users),
    TEST(c32_a_partition_makes_no_cycle),
    TEST(c33_a_lookup_of_ids_may_move),
    TEST(d10_outputs_are_identified_by_node_and_number),
    TEST(d11_what_has_a_side_effect_runs_on_one_side),
};
TEST_MAIN(tests)
