/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "core/layout.h"
#include "ops/graph/composite.h"
#include "tests/check.h"
#include "tests/failalloc.h"

/* The output of ragged_batch and a map: ids is ragged, tags is sparse, x is neither. */
static struct stg_component components[] = {
    {.name = "x", .dtype = STAGER_INT64, .ndim = 1, .shape = {-1}},
    {.name = "ids/values", .dtype = STAGER_INT64, .ndim = 1, .shape = {-1}},
    {.name = "ids/row_splits",
     .dtype = STAGER_INT64,
     .ndim = 1,
     .shape = {-1},
     .part = STG_PART_ROW_SPLITS},
    {.name = "tags/values", .dtype = STAGER_STRING, .ndim = 1, .shape = {-1}},
    {.name = "tags/indices",
     .dtype = STAGER_INT64,
     .ndim = 2,
     .shape = {-1, 2},
     .part = STG_PART_INDICES},
    {.name = "tags/dense_shape",
     .dtype = STAGER_INT64,
     .ndim = 1,
     .shape = {2},
     .part = STG_PART_DENSE_SHAPE},
    {.name = "y/values", .dtype = STAGER_INT64, .ndim = 1, .shape = {-1}},
};
static const struct stg_schema schema = {components, 7};
static const struct stg_node node = {.name = "tags", .op = "identity"};

#define RAGGED(path)                                                                     \
    "{\"ragged\":{\"values\":\"" path "/values\",\"row_splits\":\"" path "/row_"         \
    "splits\"}}"
#define SPARSE(path)                                                                     \
    "{\"sparse\":{\"values\":\"" path "/values\",\"indices\":\"" path "/indices\","      \
    "\"dense_shape\":\"" path "/dense_shape\"}}"

static void a_name_stands_for_the_parts_that_follow_one_another(void)
{
    size_t n = 0;
    CHECK_STR(stg_composite_find(&schema, "ids", &n)->name, "ids/values");
    CHECK_INT(n, 2);
    CHECK_STR(stg_composite_find(&schema, "tags", &n)->name, "tags/values");
    CHECK_INT(n, 3);
    CHECK(stg_composite_find(&schema, "y", &n) == NULL); /* values alone */
    CHECK(stg_composite_find(&schema, "id", &n) == NULL);
    CHECK(stg_composite_find(&schema, "ids/values", &n) == NULL);
    CHECK(stg_composite_find(&schema, "", &n) == NULL);
}

static void features_that_name_it_become_its_parts(void)
{
    static const struct {
        struct stg_feature features[4];
        size_t n;
        const char *structure, *paths, *want;
    } cases[] = {
        {{{.path = "a", .tensor = "ids"}, {.path = "b", .tensor = "x"}},
         2,
         "{\"a\":\"a\",\"b\":\"b\"}",
         "a/values a/row_splits b",
         "{\"a\":" RAGGED("a") ",\"b\":\"b\"}"},
        {{{.path = "b", .tensor = "x"}, {.path = "ids", .tensor = "ids"}},
         2,
         "{\"b\":\"b\",\"ids\":\"ids\"}",
         "b ids/values ids/row_splits",
         "{\"b\":\"b\",\"ids\":" RAGGED("ids") "}"},
        {{{.path = "ids", .tensor = "ids"}},
         1,
         "\"ids\"",
         "ids/values ids/row_splits",
         RAGGED("ids")},
        {{{.path = "0", .tensor = "ids"}, {.path = "1/q", .tensor = "ids"}},
         2,
         "[\"0\",{\"q\":\"1/q\"}]",
         "0/values 0/row_splits 1/q/values 1/q/row_splits",
         "[" RAGGED("0") ",{\"q\":" RAGGED("1/q") "}]"},
        {{{.path = "a/values", .tensor = "w"},
          {.path = "a/row_splits", .tensor = "w:1", .part = STG_PART_ROW_SPLITS},
          {.path = "b", .tensor = "ids"},
          {.path = "c", .tensor = "tags"}},
         4,
         "{\"a\":" RAGGED("a") ",\"b\":\"b\",\"c\":\"c\"}",
         "a/values a/row_splits b/values b/row_splits c",
         "{\"a\":" RAGGED("a") ",\"b\":" RAGGED("b") ",\"c\":\"c\"}"},
        {{{.path = "x", .tensor = "x"}}, 1, "\"x\"", "x", "\"x\""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct stg_staged staged = {.features = cases[i].features,
                                    .n_features = cases[i].n,
                                    .structure = cases[i].structure};
        struct stg_bump bump;
        stg_bump_init(&bump, 0);
        CHECK_INT(stg_composite_staged(&schema, &node, 1, &bump, &staged), 0);
        char paths[256] = "";
        for (size_t k = 0; k < staged.n_features; k++) {
            strcat(strcat(paths, k > 0 ? " " : ""), staged.features[k].path);
            const char *slash = strrchr(staged.features[k].path, '/');
            CHECK_INT(staged.features[k].part == STG_PART_ROW_SPLITS,
                      slash != NULL && strcmp(slash, "/row_splits") == 0);
        }
        CHECK_STR(paths, cases[i].paths);
        CHECK_STR(staged.structure, cases[i].want);
        stg_bump_finish(&bump);
    }
}

static void a_sparse_one_has_three_parts(void)
{
    struct stg_feature feature = {.path = "\"t\"", .tensor = "tags"};
    struct stg_staged staged = {.features = &feature,
                                .n_features = 1,
                                .structure = "{\"\\\"t\\\"\":\"\\\"t\\\"\"}"};
    struct stg_bump bump;
    stg_bump_init(&bump, 0);
    CHECK_INT(stg_composite_staged(&schema, NULL, 0, &bump, &staged), 0);
    CHECK_INT(staged.n_features, 3);
    CHECK_STR(staged.features[2].tensor, "tags/dense_shape");
    CHECK_STR(staged.structure, "{\"\\\"t\\\"\":" SPARSE("\\\"t\\\"") "}");
    stg_bump_finish(&bump);
}

/* The structure, too, is longer than a page of the bump. */
static void features_of_any_number_have_their_structure(void)
{
    enum { N = 200 };
    struct stg_feature features[N];
    char paths[N][8], before[N * 32] = "", want[N * 128] = "";
    struct stg_bump bump;
    for (int i = 0; i < N; i++) {
        const char *path = paths[i], *comma = i > 0 ? "," : "[";
        snprintf(paths[i], sizeof(paths[i]), "%d", i);
        features[i] = (struct stg_feature){.path = path, .tensor = "ids"};
        sprintf(before + strlen(before), "%s\"%s\"", comma, path);
        sprintf(
            want + strlen(want),
            "%s{\"ragged\":{\"values\":\"%s/values\",\"row_splits\":\"%s/row_splits\"}}",
            comma, path, path);
    }
    struct stg_staged staged = {
        .features = features, .n_features = N, .structure = strcat(before, "]")};
    stg_bump_init(&bump, 0);
    CHECK_INT(stg_composite_staged(&schema, NULL, 0, &bump, &staged), 0);
    CHECK_STR(staged.structure, strcat(want, "]"));
    stg_bump_finish(&bump);
}

static void without_features_the_structure_is_that_of_the_components(void)
{
    struct stg_staged staged = {.structure = ""};
    struct stg_bump bump;
    stg_bump_init(&bump, 0);
    CHECK_INT(stg_composite_staged(&schema, NULL, 0, &bump, &staged), 0);
    CHECK_STR(staged.structure, "{\"x\":\"x\",\"ids\":" RAGGED("ids") ",\"tags\":" SPARSE(
                                    "tags") ",\"y/values\":\"y/values\"}");
    CHECK_INT(staged.n_features, 0);
    struct stg_schema plain = {components, 1};
    staged.structure = "";
    CHECK_INT(stg_composite_staged(&plain, NULL, 0, &bump, &staged), 0);
    CHECK_STR(staged.structure, "");
    stg_bump_finish(&bump);
}

static int expand(void *unused)
{
    struct stg_feature feature = {.path = "ids", .tensor = "ids"};
    struct stg_staged some = {
        .features = &feature, .n_features = 1, .structure = "\"ids\""};
    struct stg_staged none = {.structure = ""};
    struct stg_bump bump;
    stg_bump_init(&bump, 0);
    int rc = stg_composite_staged(&schema, NULL, 0, &bump, &some);
    if (rc == 0)
        rc = stg_composite_staged(&schema, NULL, 0, &bump, &none);
    stg_bump_finish(&bump);
    return rc;
}

static void without_memory_nothing_leaks(void)
{
    CHECK(stg_failalloc_each(expand, NULL) > 0);
}

static const struct stg_test tests[] = {
    TEST(a_name_stands_for_the_parts_that_follow_one_another),
    TEST(features_that_name_it_become_its_parts),
    TEST(a_sparse_one_has_three_parts),
    TEST(features_of_any_number_have_their_structure),
    TEST(without_features_the_structure_is_that_of_the_components),
    TEST(without_memory_nothing_leaks),
};
TEST_MAIN(tests)
