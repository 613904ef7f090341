/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "tests/check.h"
#include "tests/ops/fixture.h"

static void columns_of_a_csv_record_come_out_typed(void)
{
    struct stg_err err = {0};
    struct fixture fx;
    CHECK_OK(
        fixture_parse(&fx,
                      "element record string [-1]\n"
                      "columns = decode_csv(record) record_defaults=[0, 0.5, \"x\"]\n"
                      "feature label = columns:0\n"
                      "feature price = columns:1\n"
                      "feature word = columns:2\n",
                      &err),
        err);
    struct stg_graph *graph = NULL;
    CHECK_OK(stg_graph_create(&fx.spec, &fx.element, NULL, &graph, &err), err);
    struct stg_run *run = NULL;
    CHECK_OK(stg_run_create_stage(graph, &run, &err), err);

    struct stg_bump bump = {0};
    const char *records[] = {"1,260.0,abc", "-2,,\"a \"\"b\"\", c\"", "33,1e3,"};
    struct stg_tensor feed = fixture_strings(&bump, 3, records), out[3];
    CHECK_OK(stg_run_exec(run, &feed, NULL, NULL, out, &err), err);
    const int32_t *label = out[0].data;
    CHECK_INT(label[0], 1);
    CHECK_INT(label[1], -2);
    CHECK_INT(label[2], 33);
    const float *price = out[1].data;
    CHECK(price[0] == 260.0f && price[1] == 0.5f && price[2] == 1000.0f);
    CHECK(out[2].end[2] == 12 && memcmp(out[2].data, "abca \"b\", cx", 12) == 0);

    stg_bump_finish(&bump);
    stg_run_destroy(run);
    stg_graph_destroy(graph);
    fixture_finish(&fx);
}

static const struct stg_test tests[] = {
    TEST(columns_of_a_csv_record_come_out_typed),
};
TEST_MAIN(tests)
