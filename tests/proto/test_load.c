/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/load.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"

static const char full[] =
    "name: criteo\n"
    "dataset:\n"
    "  - files: {pattern: [\"/data/criteo/*.csv\"], shuffle: true, seed: 7}\n"
    "  - text_line: {skip_header_lines: 1}\n"
    "  - shuffle: {buffer_size: 65536, seed: 7, reshuffle_each_iteration: true}\n"
    "  - repeat: {count: 3}\n"
    "  - batch: {batch_size: 4096, drop_remainder: true}\n"
    "graph:\n"
    "  - {name: columns, op: decode_csv, input: [record], record_defaults: [0, 0.0, "
    "\"\"]}\n"
    "  - {name: ids, op: string_to_hash_bucket_fast, input: [\"columns:2\"], "
    "num_buckets: "
    "1000000}\n"
    "  - {name: table, op: variable, shape: [1000000, 16], initializer: ones}\n"
    "  - {name: rows, op: embedding_lookup, input: [table, \"staged:ids\"]}\n"
    "staged:\n"
    "  features: {label: \"columns:0\", ids: ids}   # a dict\n"
    "  capacity: 4\n"
    "  num_threads: 2\n"
    "  num_clients: 2\n"
    "  timeout_millis: 300000\n"
    "  delivery: broadcast\n"
    "targets: [rows]\n";

static struct stg_pipeline_spec *load(const char *text)
{
    struct stg_pipeline_spec *spec = NULL;
    struct stg_err err = {0};
    CHECK_OK(stg_load_pipeline(text, strlen(text), "p.yaml", &spec, &err), err);
    return spec;
}

static void the_full_example_loads(void)
{
    struct stg_pipeline_spec *spec = load(full);
    CHECK_STR(spec->name, "criteo");
    CHECK_INT(spec->n_steps, 5);
    CHECK_STR(spec->steps[0].name, "files");
    const struct stg_attr *pattern =
        stg_attr_find(spec->steps[0].attrs, spec->steps[0].n_attrs, "pattern");
    CHECK(pattern != NULL);
    CHECK_INT(pattern->ndim, 1);
    CHECK_INT(pattern->shape[0], 1);
    CHECK_STR(pattern->values[0].s, "/data/criteo/*.csv");
    const struct stg_step *shuffle = &spec->steps[2];
    CHECK_STR(shuffle->name, "shuffle");
    CHECK_INT(shuffle->line, 5);
    CHECK_INT(shuffle->column, 5);
    CHECK_INT(stg_attr_int(shuffle->attrs, shuffle->n_attrs, "buffer_size", -1), 65536);
    CHECK_INT(spec->n_nodes, 4);
    CHECK_STR(spec->nodes[0].op, "decode_csv");
    CHECK_STR(spec->nodes[0].inputs[0], "record");
    const struct stg_attr *defaults =
        stg_attr_find(spec->nodes[0].attrs, spec->nodes[0].n_attrs, "record_defaults");
    CHECK(defaults != NULL);
    CHECK_INT(defaults->n_values, 3);
    CHECK_INT(defaults->values[0].kind, STG_VALUE_INT);
    CHECK_INT(defaults->values[1].kind, STG_VALUE_FLOAT);
    CHECK_INT(defaults->values[2].kind, STG_VALUE_STRING);
    CHECK_INT(defaults->line, 9);
    CHECK_INT(spec->nodes[3].n_inputs, 2);
    CHECK_STR(spec->nodes[3].inputs[1], "staged:ids");
    CHECK_INT(spec->nodes[3].line, 12);
    CHECK_INT(spec->nodes[3].column, 5);
    CHECK_INT(spec->staged.n_features, 2);
    CHECK_STR(spec->staged.features[0].path, "label");
    CHECK_STR(spec->staged.features[0].tensor, "columns:0");
    CHECK_STR(spec->staged.structure, "{\"label\":\"label\",\"ids\":\"ids\"}");
    CHECK_INT(spec->staged.capacity, 4);
    CHECK_INT(spec->staged.num_threads, 2);
    CHECK_INT(spec->staged.num_clients, 2);
    CHECK_INT(spec->staged.delivery, STG_DELIVERY_BROADCAST);
    CHECK_INT(spec->n_targets, 1);
    CHECK_STR(spec->targets[0], "rows");
    stg_pipeline_spec_destroy(spec);
}

static const struct stg_test tests[] = {
    TEST(the_full_example_loads),
};

TEST_MAIN(tests)
