/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/load.h"
#include "tests/check.h"

static unsigned char buf[STG_MESSAGE_MAX_BYTES];

static void a_request_comes_back_as_it_was(void)
{
    struct stg_request request = {.id = 7,
                                  .kind = STG_REQUEST_APPLY,
                                  .text = "dataset: []\n",
                                  .text_bytes = 12,
                                  .file = "/tmp/a.yaml",
                                  .replace = true};
    long n = stg_wire_encode_request(&request, buf, sizeof(buf));
    CHECK(n > 0);
    struct stg_bump bump = {0};
    struct stg_request got;
    struct stg_err err = {0};
    CHECK_OK(stg_wire_decode_request(buf, (size_t)n, &bump, &got, &err), err);
    CHECK_INT(got.id, 7);
    CHECK_INT(got.kind, STG_REQUEST_APPLY);
    CHECK_STR(got.text, "dataset: []\n");
    CHECK_INT(got.text_bytes, 12);
    CHECK_STR(got.file, "/tmp/a.yaml");
    CHECK(got.name == NULL);
    CHECK(got.replace);
    stg_bump_finish(&bump);
}

static const char text[] = "name: p\n"
                           "dataset: [{range: {stop: 5}}]\n"
                           "graph:\n"
                           "  - {name: c, op: decode_csv, input: [record], "
                           "record_defaults: [[0, 1.5], [~, \"x\"]]}\n"
                           "staged: {features: {u: {a: c, b: \"c:1\"}}, capacity: 3}\n"
                           "targets: [c]\n";

static void an_open_reply_carries_the_pipeline(void)
{
    struct stg_err err = {0};
    struct stg_pipeline_spec *spec = NULL, *got = NULL;
    CHECK_OK(stg_load_pipeline(text, strlen(text), "t", &spec, &err), err);
    struct stg_component component = {
        .name = "u/a", .dtype = STAGER_INT32, .ndim = 2, .shape = {-1, 3}};
    struct stg_reply reply = {.id = 9,
                              .kind = STG_REQUEST_OPEN,
                              .name = "p",
                              .generation = 4,
                              .boundary = {.components = &component, .n = 1},
                              .segment_bytes = 1 << 20,
                              .max_held = 2,
                              .structure = spec->staged.structure,
                              .pipeline = spec};
    long n = stg_wire_encode_reply(&reply, buf, sizeof(buf));
    CHECK(n > 0);
    struct stg_bump bump = {0};
    struct stg_reply back;
    CHECK_OK(stg_wire_decode_reply(buf, (size_t)n, &bump, &back, &err), err);
    CHECK_INT(back.kind, STG_REQUEST_OPEN);
    CHECK_INT(back.boundary.n, 1);
    CHECK_INT(back.boundary.components[0].shape[0], -1);
    CHECK_STR(back.structure, "{\"u\":{\"a\":\"u/a\",\"b\":\"u/b\"}}");
    CHECK_OK(stg_wire_decode_pipeline(buf, (size_t)n, &got, &err), err);
    CHECK_INT(got->n_nodes, 1);
    CHECK_INT(got->nodes[0].attrs[0].ndim, 2);
    CHECK_INT(got->nodes[0].attrs[0].values[2].kind, STG_VALUE_NULL);
    CHECK_STR(got->nodes[0].attrs[0].values[3].s, "x");
    CHECK_INT(got->staged.capacity, 3);
    CHECK_STR(got->staged.features[1].tensor, "c:1");
    CHECK_STR(got->targets[0], "c");
    stg_pipeline_spec_destroy(spec);
    stg_pipeline_spec_destroy(got);
    stg_bump_finish(&bump);
}

static const struct stg_test tests[] = {
    TEST(a_request_comes_back_as_it_was),
    TEST(an_open_reply_carries_the_pipeline),
};

TEST_MAIN(tests)
