/* SPDX-License-Identifier: Apache-2.0
 *
 * Which of the columns that a pipeline declares are read.
 */
#include "daemon/dataset/sources/projection.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"

struct projected {
    struct stg_pipeline_spec *spec;
    struct stg_bump bump;
    struct stg_schema element;
    struct stg_projection projection;
};

static void project(const char *text, struct projected *ret)
{
    struct stg_err err = {0};
    ret->spec = stg_test_load(text);
    stg_bump_init(&ret->bump, 0);
    CHECK_OK(stg_dataset_infer(ret->spec, &ret->bump, &ret->element, &err), err);
    CHECK_OK(
        stg_projection_init(ret->spec, &ret->element, &ret->bump, &ret->projection, &err),
        err);
}

static void drop(struct projected *projected)
{
    stg_bump_finish(&projected->bump);
    stg_pipeline_spec_destroy(projected->spec);
}

/* Checks the names of what the dataset yields, each behind its place in the element. */
static void yields(const char *text, const char *want)
{
    struct projected p;
    struct stg_schema left;
    struct stg_err err = {0};
    char got[1024] = "";
    project(text, &p);
    CHECK_OK(stg_dataset_infer(&p.projection.spec, &p.bump, &left, &err), err);
    CHECK_INT(left.n, p.projection.n);
    CHECK_INT(p.element.n, p.projection.n_element);
    for (size_t i = 0; i < left.n; i++) {
        uint32_t at = p.projection.places != NULL ? p.projection.places[i] : (uint32_t)i;
        CHECK_STR(left.components[i].name, p.element.components[at].name);
        snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%u %s",
                 i > 0 ? ", " : "", at, left.components[i].name);
    }
    if (strcmp(got, want) != 0)
        FAIL("%s\nyields %s, not %s", text, got, want);
    drop(&p);
}

#define FILES "dataset:\n- files: {pattern: \"$DIR/*\", shuffle: false}\n"
#define COLUMNS "columns: {a: int64, b: int64, s: string, u/id: int64}"
#define PARQUET FILES "- parquet: {" COLUMNS "}\n"
#define BATCH "- batch: {batch_size: 2}\n"
#define STAGE_B "staged: {features: {b: b}}\n"

static void columns_that_nothing_names_are_not_read(void)
{
    yields(PARQUET BATCH STAGE_B, "1 b");
    yields(FILES "- arrow: {" COLUMNS "}\n" BATCH STAGE_B, "1 b");
    yields(FILES "- csv: {header: true, " COLUMNS "}\n" BATCH STAGE_B, "1 b");
    yields(FILES "- interleave: {reader: {parquet: {" COLUMNS "}}}\n" BATCH STAGE_B,
           "1 b");
    yields(PARQUET "- shuffle: {buffer_size: 10}\n- repeat: {count: 2}\n- take: {count: "
                   "5}\n- skip: {count: 1}\n- shard: {num_shards: 2, index: 0}\n"
                   "- enumerate: {}\n" BATCH
                   "- prefetch: {buffer_size: 1}\nstaged: {features: {b: b, u: u/id}}\n",
           "0 index, 2 b, 4 u/id");
}

static void what_the_graph_names_is_read(void)
{
    yields(PARQUET BATCH "graph:\n- {name: x, op: add, input: [a, b]}\n"
                         "staged: {features: {x: x}}\n",
           "0 a, 1 b");
    yields(PARQUET BATCH "graph:\n- {name: x, op: identity, input: [a, \"^s\"]}\n"
                         "staged: {features: {x: x}}\n",
           "0 a, 2 s");
    /* Also in the client, and what is fed. */
    yields(PARQUET BATCH
           "graph:\n- {name: x, op: add, input: [\"staged:b\", a]}\n" STAGE_B,
           "0 a, 1 b");
    yields(PARQUET BATCH "graph:\n- {name: x, op: add, input: [b, b]}\n"
                         "staged: {features: {x: x}, feed_dict: {b: {tensor: a}}}\n",
           "0 a, 1 b");
}

static void what_a_step_names_is_read(void)
{
    yields(PARQUET "- map: {graph: {x: {op: add, input: [a, u/id]}}, output: {x: x, b: "
                   "b}}\n" BATCH "staged: {features: {x: x}}\n",
           "0 x, 1 b");
    yields(PARQUET
           "- filter: {graph: {x: {op: equal, input: [a, b]}}, predicate: x}\n" BATCH
           "staged: {features: {s: s}}\n",
           "0 a, 1 b, 2 s");
    yields(FILES "- parquet: {" COLUMNS ", filters: [[a, \">\", 1]]}\n" BATCH STAGE_B,
           "0 a, 1 b");
    yields(PARQUET "- padded_batch: {batch_size: 2, padded_shapes: {a: [], b: [], s: [], "
                   "u/id: []}}\n" STAGE_B,
           "0 a, 1 b, 2 s, 3 u/id");
}

#define LISTS                                                                            \
    FILES "- parquet: {columns: {l: int64, m: int64, b: int64}, "                        \
          "shapes: {l: [null, null], m: [null]}, defaults: {b: 0}}\n"                    \
          "- ragged_batch: {batch_size: 2}\n"

static void parts_of_lists_belong_together(void)
{
    yields(LISTS STAGE_B, "5 b");
    yields(LISTS "staged: {features: {b: b, m: m}}\n", "3 m/values, 4 m/row_splits, 5 b");
    yields(LISTS "staged: {features: {n: m/row_splits}}\n", "3 m/values, 4 m/row_splits");
    yields(LISTS "staged: {features: {l: l/values/values}}\n",
           "0 l/values/values, 1 l/values/row_splits, 2 l/row_splits");
}

static void a_step_reads_one_column_at_least(void)
{
    yields(PARQUET "- enumerate: {}\n" BATCH "staged: {features: {i: index}}\n",
           "0 index, 1 a");
}

#define ALL "0 a, 1 b, 2 s, 3 u/id"

static void all_columns_are_read_where_any_may_be_used(void)
{
    yields(PARQUET BATCH, ALL);
    yields(PARQUET "- cache: {}\n" BATCH STAGE_B, ALL);
    yields(PARQUET "- py_function: {function: \"m:f\"}\n" BATCH STAGE_B, ALL);
}

static void branches_are_projected(void)
{
    const char *branches = "datasets:\n  x:\n  - files: {pattern: \"$DIR/*\"}\n"
                           "  - parquet: {" COLUMNS "}\n  y:\n"
                           "  - files: {pattern: \"$DIR/*\"}\n  - csv: {header: true, "
                           "columns: {c: int64, a: int64}}\n";
    char text[4096];
    snprintf(text, sizeof(text),
             "%sdataset:\n- zip: {from: [x, y]}\n" BATCH "staged: {features: {b: b, c: "
             "c}}\n",
             branches);
    yields(text, "1 b, 4 c");
    /* Both have an `a`: each has the name of its branch. */
    snprintf(text, sizeof(text),
             "%sdataset:\n- zip: {from: [x, y]}\n" BATCH
             "staged: {features: {b: b, c: x/a}}\n",
             branches);
    yields(text, "0 x/a, 1 b, 2 s, 3 u/id, 4 c, 5 y/a");
    snprintf(text, sizeof(text),
             "%sdataset:\n- concatenate: {from: [x, y]}\n" BATCH STAGE_B,
             "datasets:\n  x:\n  - files: {pattern: \"$DIR/*\"}\n  - parquet: {" COLUMNS
             "}\n  y:\n  - files: {pattern: \"$DIR/*\"}\n  - arrow: {" COLUMNS "}\n");
    yields(text, "1 b");
}

/* A field that is no number, and a column that a file lacks. */
static void errors_of_columns_that_are_not_read_are_none(void)
{
    STG_TEST_FILE("a.csv", "a,b,c\n1,10,x\ny,20,2\n");
    STG_TEST_FILE("b.csv", "b\n30\n");
    struct projected p;
    struct stg_dataset_env env = stg_test_env();
    project(FILES "- csv: {header: true, columns: {a: int64, b: int64}}\n" STAGE_B, &p);
    char *all = stg_test_render_spec(p.spec, &env, 0);
    char *read = stg_test_render_spec(&p.projection.spec, &env, 0);
    CHECK_STR(all, "1 10\n!INVALID_ARGUMENT\n!INVALID_ARGUMENT\n");
    CHECK_STR(read, "10\n20\n30\n");
    free(all);
    free(read);
    drop(&p);
}

/* One after the other, a line each. */
static void tells(const char *text, const char *want)
{
    struct projected p;
    const char *const *texts;
    char got[2048] = "";
    size_t n;
    project(text, &p);
    CHECK_INT(stg_projection_tell(p.spec, &p.projection, &p.bump, &texts, &n), 0);
    for (size_t i = 0; i < n; i++)
        snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s\n", texts[i]);
    CHECK_STR(got, want);
    drop(&p);
}

static void steps_that_read_less_are_told(void)
{
    tells(PARQUET BATCH, "");
    tells(PARQUET BATCH "staged: {features: {b: b, u: u/id}}\n",
          "parquet reads 2 of 4: b, u/id\n");
    tells(FILES "- interleave: {reader: {parquet: {" COLUMNS "}}}\n" BATCH STAGE_B,
          "parquet reads 1 of 4: b\n");
    tells("datasets:\n  x:\n  - files: {pattern: \"$DIR/*\"}\n  - parquet: {" COLUMNS
          "}\n  y:\n  - files: {pattern: \"$DIR/*\"}\n  - arrow: {" COLUMNS
          "}\ndataset:\n- concatenate: {from: [x, y]}\n" BATCH STAGE_B,
          "parquet reads 1 of 4: b\narrow reads 1 of 4: b\n");
}

/* 100 columns of 10 bytes, of which all but the last are read: as many names as fit. */
static void names_that_are_too_long_are_cut(void)
{
    char text[8192] = FILES "- parquet: {columns: {", features[4096] = "", want[1024];
    for (int i = 0; i < 100; i++) {
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%scolumn_%03d: int64",
                 i > 0 ? ", " : "", i);
        if (i < 99)
            snprintf(features + strlen(features), sizeof(features) - strlen(features),
                     "%sf%d: column_%03d", i > 0 ? ", " : "", i, i);
    }
    snprintf(text + strlen(text), sizeof(text) - strlen(text),
             "}}\n" BATCH "staged: {features: {%s}}\n", features);
    strcpy(want, "parquet reads 99 of 100: ");
    for (int i = 0; i < 33; i++)
        snprintf(want + strlen(want), sizeof(want) - strlen(want), "column_%03d, ", i);
    strcat(want, "…\n");
    tells(text, want);
}

static void a_block_is_spread_over_the_element(void)
{
    struct projected p;
    project(PARQUET BATCH "staged: {features: {b: b, u: u/id}}\n", &p);
    struct stg_tensor from[2] = {{.dtype = STAGER_INT64}, {.dtype = STAGER_INT32}};
    struct stg_tensor to[4] = {0};
    stg_projection_spread(&p.projection, from, to);
    CHECK_INT(to[0].dtype, 0);
    CHECK_INT(to[1].dtype, STAGER_INT64);
    CHECK_INT(to[2].dtype, 0);
    CHECK_INT(to[3].dtype, STAGER_INT32);
    drop(&p);
}

static const struct stg_test tests[] = {
    TEST(columns_that_nothing_names_are_not_read),
    TEST(what_the_graph_names_is_read),
    TEST(what_a_step_names_is_read),
    TEST(parts_of_lists_belong_together),
    TEST(a_step_reads_one_column_at_least),
    TEST(all_columns_are_read_where_any_may_be_used),
    TEST(branches_are_projected),
    TEST(errors_of_columns_that_are_not_read_are_none),
    TEST(steps_that_read_less_are_told),
    TEST(names_that_are_too_long_are_cut),
    TEST(a_block_is_spread_over_the_element),
};
TEST_MAIN(tests)
