/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts that load. test_load_errors.c has those that do not.
 */
#include "proto/load.h"

#include <arpa/inet.h>
#include <math.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/proto/example.h"

#define STEPS "dataset: [{range: {stop: 5}}]\n"

static struct stg_pipeline_spec *load(const char *text)
{
    struct stg_pipeline_spec *spec = NULL;
    struct stg_err err = {0};
    CHECK_OK(stg_load_pipeline(text, strlen(text), "p.yaml", &spec, &err), err);
    return spec;
}

static const struct stg_attr *attr_of_step(const struct stg_pipeline_spec *spec, size_t i,
                                           const char *name)
{
    const struct stg_attr *attr =
        stg_attr_find(spec->steps[i].attrs, spec->steps[i].n_attrs, name);
    if (attr == NULL)
        FAIL("step %zu has no %s", i, name);
    return attr;
}

/* The attribute `v` of the only node of a graph. */
static const struct stg_attr *attr_v(const struct stg_pipeline_spec *spec)
{
    CHECK_INT(spec->n_nodes, 1);
    const struct stg_attr *attr =
        stg_attr_find(spec->nodes[0].attrs, spec->nodes[0].n_attrs, "v");
    if (attr == NULL)
        FAIL("no attribute v");
    return attr;
}

static void check_attr(const struct stg_attr *attr, enum stg_value_kind kind, int64_t i,
                       bool is_default)
{
    CHECK_INT(attr->ndim, 0);
    CHECK_INT(attr->n_values, 1);
    CHECK_INT(attr->values[0].kind, kind);
    CHECK_INT(attr->values[0].i, i);
    CHECK_INT(attr->is_default, is_default);
}

static void check_steps(const struct stg_pipeline_spec *spec)
{
    static const char *const names[] = {"files", "text_line", "shuffle", "repeat",
                                        "batch"};
    CHECK_INT(spec->n_steps, 5);
    for (size_t i = 0; i < 5; i++)
        CHECK_STR(spec->steps[i].name, names[i]);
    const struct stg_attr *pattern = attr_of_step(spec, 0, "pattern");
    CHECK_INT(pattern->ndim, 1);
    CHECK_INT(pattern->shape[0], 1);
    CHECK_INT(pattern->is_default, false);
    CHECK_STR(pattern->values[0].s, "/data/criteo/*.csv");
    CHECK_INT(pattern->values[0].s_bytes, 18);
    check_attr(attr_of_step(spec, 0, "shuffle"), STG_VALUE_BOOL, 1, false);
    check_attr(attr_of_step(spec, 0, "seed"), STG_VALUE_INT, 7, false);
    check_attr(attr_of_step(spec, 1, "skip_header_lines"), STG_VALUE_INT, 1, false);
    check_attr(attr_of_step(spec, 1, "with_key"), STG_VALUE_BOOL, 0, true);
    check_attr(attr_of_step(spec, 1, "max_record_bytes"), STG_VALUE_INT, 67108864, true);
    check_attr(attr_of_step(spec, 2, "buffer_size"), STG_VALUE_INT, 65536, false);
    check_attr(attr_of_step(spec, 3, "count"), STG_VALUE_INT, 3, false);
    check_attr(attr_of_step(spec, 4, "batch_size"), STG_VALUE_INT, 4096, false);
    check_attr(attr_of_step(spec, 4, "drop_remainder"), STG_VALUE_BOOL, 1, false);
}

static void check_nodes(const struct stg_pipeline_spec *spec)
{
    CHECK_INT(spec->n_nodes, 4);
    CHECK_STR(spec->nodes[0].name, "columns");
    CHECK_STR(spec->nodes[0].op, "decode_csv");
    CHECK_INT(spec->nodes[0].n_inputs, 1);
    CHECK_STR(spec->nodes[0].inputs[0], "record");
    const struct stg_attr *defaults =
        stg_attr_find(spec->nodes[0].attrs, spec->nodes[0].n_attrs, "record_defaults");
    CHECK(defaults != NULL);
    CHECK_INT(defaults->ndim, 1);
    CHECK_INT(defaults->shape[0], 3);
    CHECK_INT(defaults->n_values, 3);
    CHECK_INT(defaults->values[0].kind, STG_VALUE_INT);
    CHECK_INT(defaults->values[1].kind, STG_VALUE_FLOAT);
    CHECK_INT(defaults->values[2].kind, STG_VALUE_STRING);
    CHECK_INT(defaults->values[2].s_bytes, 0);
    CHECK_INT(
        stg_attr_int(spec->nodes[1].attrs, spec->nodes[1].n_attrs, "num_buckets", 0),
        1000000);
    CHECK_STR(
        stg_attr_string(spec->nodes[2].attrs, spec->nodes[2].n_attrs, "initializer", ""),
        "ones");
    CHECK_INT(spec->nodes[3].n_inputs, 2);
    CHECK_STR(spec->nodes[3].inputs[0], "table");
    CHECK_STR(spec->nodes[3].inputs[1], "staged:ids");
}

static void check_rest(const struct stg_pipeline_spec *spec)
{
    CHECK_STR(spec->name, "criteo");
    CHECK_INT(spec->staged.n_features, 2);
    CHECK_STR(spec->staged.features[0].path, "label");
    CHECK_STR(spec->staged.features[0].tensor, "columns:0");
    CHECK_STR(spec->staged.features[1].path, "ids");
    CHECK_STR(spec->staged.features[1].tensor, "ids");
    CHECK_STR(spec->staged.structure, "{\"label\":\"label\",\"ids\":\"ids\"}");
    CHECK_INT(spec->staged.capacity, 4);
    CHECK_INT(spec->staged.num_threads, 2);
    CHECK_INT(spec->staged.num_clients, 3);
    CHECK_INT(spec->staged.timeout_millis, 1000);
    CHECK_INT(spec->staged.delivery, STG_DELIVERY_BROADCAST);
    CHECK_INT(spec->n_targets, 1);
    CHECK_STR(spec->targets[0], "rows");
}

static void the_full_example_loads(void)
{
    struct stg_pipeline_spec *spec = load(example_yaml);
    check_steps(spec);
    check_nodes(spec);
    check_rest(spec);
    stg_pipeline_spec_destroy(spec);
}

static void the_same_in_json_is_the_same_pipeline(void)
{
    struct stg_pipeline_spec *yaml = load(example_yaml), *json = load(example_json);
    check_steps(json);
    check_nodes(json);
    check_rest(json);
    CHECK(yaml->fingerprint == json->fingerprint);
    stg_pipeline_spec_destroy(yaml);
    stg_pipeline_spec_destroy(json);
}

static void lines_and_columns_are_those_of_the_text(void)
{
    struct stg_pipeline_spec *spec = load(example_yaml);
    CHECK_INT(spec->steps[0].line, 3);
    CHECK_INT(spec->steps[0].column, 5);
    CHECK_INT(spec->steps[4].line, 7);
    CHECK_INT(spec->nodes[1].line, 10);
    CHECK_INT(spec->nodes[1].column, 5);
    const struct stg_attr *buckets =
        stg_attr_find(spec->nodes[1].attrs, spec->nodes[1].n_attrs, "num_buckets");
    CHECK(buckets != NULL);
    CHECK_INT(buckets->line, 10);
    CHECK_INT(buckets->column, 84);
    CHECK_INT(spec->staged.features[1].line, 14);
    CHECK_INT(spec->staged.features[1].column, 39);
    stg_pipeline_spec_destroy(spec);
}

static void what_is_not_written_has_the_default_of_the_schema(void)
{
    struct stg_pipeline_spec *spec =
        load("dataset:\n- files: {pattern: a}\n- text_line\n- shuffle: {buffer_size: 9}\n"
             "- repeat:\n- batch: {batch_size: 2}\n");
    CHECK(spec->name == NULL);
    check_attr(attr_of_step(spec, 0, "shuffle"), STG_VALUE_BOOL, 1, true);
    check_attr(attr_of_step(spec, 0, "seed"), STG_VALUE_INT, 0, true);
    check_attr(attr_of_step(spec, 1, "skip_header_lines"), STG_VALUE_INT, 0, true);
    check_attr(attr_of_step(spec, 1, "with_key"), STG_VALUE_BOOL, 0, true);
    check_attr(attr_of_step(spec, 1, "buffer_size"), STG_VALUE_INT, 262144, true);
    check_attr(attr_of_step(spec, 1, "max_record_bytes"), STG_VALUE_INT, 67108864, true);
    check_attr(attr_of_step(spec, 2, "seed"), STG_VALUE_INT, 0, true);
    check_attr(attr_of_step(spec, 2, "reshuffle_each_iteration"), STG_VALUE_BOOL, 1,
               true);
    check_attr(attr_of_step(spec, 3, "count"), STG_VALUE_INT, -1, true);
    check_attr(attr_of_step(spec, 4, "drop_remainder"), STG_VALUE_BOOL, 0, true);
    CHECK_INT(spec->n_nodes, 0);
    CHECK_INT(spec->n_targets, 0);
    const struct stg_staged *staged = &spec->staged;
    CHECK_INT(staged->n_features, 0);
    CHECK_STR(staged->structure, "");
    CHECK_INT(staged->capacity, 1);
    CHECK_INT(staged->num_threads, 1);
    CHECK_INT(staged->num_clients, 1);
    CHECK_INT(staged->timeout_millis, 300000);
    CHECK_INT(staged->on_timeout, STG_ON_TIMEOUT_WAIT);
    CHECK_INT(staged->delivery, STG_DELIVERY_SPLIT);
    CHECK_INT(staged->max_batch_bytes, 0);
    CHECK_INT(staged->memory_budget, 0);
    CHECK_INT(staged->lease_timeout_millis, 300000);
    CHECK_INT(staged->start_timeout_millis, 300000);
    CHECK(staged->redeliver);
    CHECK_INT(staged->audit, STG_AUDIT_POSITIONS);
    stg_pipeline_spec_destroy(spec);
}

static void an_attribute_without_a_default_is_absent_until_written(void)
{
    struct stg_pipeline_spec *spec = load("dataset: [files, {range: {stop: -3}}]\n");
    CHECK(stg_attr_find(spec->steps[0].attrs, spec->steps[0].n_attrs, "pattern") == NULL);
    check_attr(attr_of_step(spec, 1, "stop"), STG_VALUE_INT, -3, false);
    check_attr(attr_of_step(spec, 1, "start"), STG_VALUE_INT, 0, true);
    stg_pipeline_spec_destroy(spec);
}

/* https://yaml.org/spec/1.2.2/#103-core-schema */
static void scalars_follow_the_core_schema(void)
{
    static const struct {
        const char *text;
        enum stg_value_kind kind;
        int64_t i;
        double f;
        const char *s;
    } cases[] = {
        {"0", STG_VALUE_INT, 0, 0, NULL},
        {"-19", STG_VALUE_INT, -19, -19, NULL},
        {"+12", STG_VALUE_INT, 12, 12, NULL},
        {"012", STG_VALUE_INT, 12, 12, NULL},
        {"0x3A", STG_VALUE_INT, 58, 58, NULL},
        {"0o7", STG_VALUE_INT, 7, 7, NULL},
        {"9223372036854775807", STG_VALUE_INT, INT64_MAX, 9223372036854775807.0, NULL},
        {"-9223372036854775808", STG_VALUE_INT, INT64_MIN, -9223372036854775808.0, NULL},
        {"0.", STG_VALUE_FLOAT, 0, 0, NULL},
        {"-0.5", STG_VALUE_FLOAT, 0, -0.5, NULL},
        {".5", STG_VALUE_FLOAT, 0, 0.5, NULL},
        {"12e03", STG_VALUE_FLOAT, 0, 12000, NULL},
        {"-2E+05", STG_VALUE_FLOAT, 0, -200000, NULL},
        {"1e400", STG_VALUE_FLOAT, 0, INFINITY, NULL},
        {".inf", STG_VALUE_FLOAT, 0, INFINITY, NULL},
        {"-.Inf", STG_VALUE_FLOAT, 0, -INFINITY, NULL},
        {"+.INF", STG_VALUE_FLOAT, 0, INFINITY, NULL},
        {"inf", STG_VALUE_FLOAT, 0, INFINITY, NULL},
        {"-inf", STG_VALUE_FLOAT, 0, -INFINITY, NULL},
        {"-Infinity", STG_VALUE_FLOAT, 0, -INFINITY, NULL},
        {"\"inf\"", STG_VALUE_STRING, 0, 0, "inf"},
        {"'.nan'", STG_VALUE_STRING, 0, 0, ".nan"},
        {"nano", STG_VALUE_STRING, 0, 0, "nano"},
        {"infinity", STG_VALUE_STRING, 0, 0, "infinity"},
        {"true", STG_VALUE_BOOL, 1, 0, NULL},
        {"False", STG_VALUE_BOOL, 0, 0, NULL},
        {"null", STG_VALUE_NULL, 0, 0, NULL},
        {"~", STG_VALUE_NULL, 0, 0, NULL},
        {"", STG_VALUE_NULL, 0, 0, NULL},
        {"yes", STG_VALUE_STRING, 0, 0, "yes"},
        {"on", STG_VALUE_STRING, 0, 0, "on"},
        {"1_000", STG_VALUE_STRING, 0, 0, "1_000"},
        {"0x", STG_VALUE_STRING, 0, 0, "0x"},
        {"1e", STG_VALUE_STRING, 0, 0, "1e"},
        {".", STG_VALUE_STRING, 0, 0, "."},
        {"1.2.3", STG_VALUE_STRING, 0, 0, "1.2.3"},
        {"12:30", STG_VALUE_STRING, 0, 0, "12:30"},
        {"64KiB", STG_VALUE_STRING, 0, 0, "64KiB"},
        {"\"7\"", STG_VALUE_STRING, 0, 0, "7"},
        {"'true'", STG_VALUE_STRING, 0, 0, "true"},
        {"\"\"", STG_VALUE_STRING, 0, 0, ""},
        {"\"\\u00e9\"", STG_VALUE_STRING, 0, 0, "\xc3\xa9"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[256];
        snprintf(text, sizeof(text), STEPS "graph:\n- name: n\n  op: x\n  v: %s\n",
                 cases[i].text);
        struct stg_pipeline_spec *spec = load(text);
        const struct stg_attr *attr = attr_v(spec);
        const struct stg_value *value = &attr->values[0];
        if (attr->ndim != 0 || value->kind != cases[i].kind || value->i != cases[i].i ||
            value->f != cases[i].f)
            FAIL("%s: kind %d, %lld, %g", cases[i].text, (int)value->kind,
                 (long long)value->i, value->f);
        if (cases[i].s != NULL)
            CHECK_STR(value->s, cases[i].s);
        stg_pipeline_spec_destroy(spec);
    }
}

static void a_string_value_may_hold_a_nul(void)
{
    struct stg_pipeline_spec *spec =
        load(STEPS "graph: [{name: n, op: x, v: \"a\\0b\"}]\n");
    CHECK_INT(attr_v(spec)->values[0].s_bytes, 3);
    CHECK(memcmp(attr_v(spec)->values[0].s, "a\0b", 4) == 0);
    stg_pipeline_spec_destroy(spec);
}

static void lists_are_rectangular_tensors(void)
{
    struct stg_pipeline_spec *spec =
        load(STEPS "graph: [{name: n, op: x, v: [[1, ~, a], [2.5, true, \"\"]]}]\n");
    const struct stg_attr *attr = attr_v(spec);
    static const enum stg_value_kind kinds[] = {STG_VALUE_INT,    STG_VALUE_NULL,
                                                STG_VALUE_STRING, STG_VALUE_FLOAT,
                                                STG_VALUE_BOOL,   STG_VALUE_STRING};
    CHECK_INT(attr->ndim, 2);
    CHECK_INT(attr->shape[0], 2);
    CHECK_INT(attr->shape[1], 3);
    CHECK_INT(attr->n_values, 6);
    for (size_t i = 0; i < 6; i++)
        CHECK_INT(attr->values[i].kind, kinds[i]);
    stg_pipeline_spec_destroy(spec);

    spec = load(STEPS "graph: [{name: n, op: x, v: []}]\n");
    CHECK_INT(attr_v(spec)->ndim, 1);
    CHECK_INT(attr_v(spec)->n_values, 0);
    stg_pipeline_spec_destroy(spec);

    spec = load(STEPS "graph: [{name: n, op: x, v: [[], []]}]\n");
    CHECK_INT(attr_v(spec)->ndim, 2);
    CHECK_INT(attr_v(spec)->shape[0], 2);
    CHECK_INT(attr_v(spec)->shape[1], 0);
    stg_pipeline_spec_destroy(spec);
}

static void units_are_bytes(void)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {"7", 7},
        {"0x10", 16},
        {"64KiB", 65536},
        {"3MiB", 3145728},
        {"2GiB", 2147483648u},
        {"1TiB", 1099511627776u},
        {"5KB", 5000},
        {"10MB", 10000000},
        {"1 GB", 1000000000},
        {"'2 TB'", 2000000000000u},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[128];
        snprintf(text, sizeof(text), STEPS "staged: {max_batch_bytes: %s}\n",
                 cases[i].text);
        struct stg_pipeline_spec *spec = load(text);
        CHECK_INT(spec->staged.max_batch_bytes, cases[i].bytes);
        stg_pipeline_spec_destroy(spec);
    }
}

static void a_name_that_looks_like_a_number_is_a_string(void)
{
    struct stg_pipeline_spec *spec =
        load("name: 123\n" STEPS "graph: [{name: 1.5, op: true}]\n");
    CHECK_STR(spec->name, "123");
    CHECK_STR(spec->nodes[0].name, "1.5");
    CHECK_STR(spec->nodes[0].op, "true");
    stg_pipeline_spec_destroy(spec);
}

static void one_value_is_a_list_of_one(void)
{
    struct stg_pipeline_spec *spec =
        load("dataset: [files: {pattern: /data/*.csv}]\n"
             "graph: [{name: n, op: x, input: record}]\ntargets: n\n");
    CHECK_STR(attr_of_step(spec, 0, "pattern")->values[0].s, "/data/*.csv");
    CHECK_INT(spec->nodes[0].n_inputs, 1);
    CHECK_STR(spec->nodes[0].inputs[0], "record");
    CHECK_INT(spec->n_targets, 1);
    stg_pipeline_spec_destroy(spec);
}

static void null_is_as_if_not_written(void)
{
    struct stg_pipeline_spec *spec =
        load("name: ~\ndataset: [{repeat: {count: null}}]\ngraph:\nstaged: {capacity: }\n"
             "targets:\n");
    CHECK(spec->name == NULL);
    check_attr(attr_of_step(spec, 0, "count"), STG_VALUE_INT, -1, true);
    CHECK_INT(spec->staged.capacity, 1);
    CHECK_INT(spec->n_nodes, 0);
    stg_pipeline_spec_destroy(spec);
}

static void switches_are_true_and_on_and_false_and_off(void)
{
    static const struct {
        const char *word;
        bool is_on;
    } rows[] = {{"true", true},     {"on", true},       {"\"on\"", true},
                {"\"true\"", true}, {"True", true},     {"false", false},
                {"off", false},     {"\"off\"", false}, {"\"false\"", false},
                {"FALSE", false}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[512];
        snprintf(text, sizeof(text),
                 "dataset: [{range: {stop: 5}}, {batch: {batch_size: 1, drop_remainder: "
                 "%s}}]\ngraph: [{name: n, op: x, v: %s}]\n"
                 "staged: {redeliver: %s, compute_device: %s}\nsmart_stage: %s\n",
                 rows[i].word, rows[i].word, rows[i].word, rows[i].word, rows[i].word);
        struct stg_pipeline_spec *spec = load(text);
        CHECK_INT(attr_of_step(spec, 1, "drop_remainder")->values[0].i, rows[i].is_on);
        CHECK_INT(stg_attr_bool(spec->nodes[0].attrs, spec->nodes[0].n_attrs, "v",
                                !rows[i].is_on),
                  rows[i].is_on);
        CHECK_INT(spec->staged.redeliver, rows[i].is_on);
        CHECK_INT(spec->staged.compute_device, rows[i].is_on);
        CHECK_INT(spec->smart_stage, rows[i].is_on);
        stg_pipeline_spec_destroy(spec);
    }
}

static void smart_stage_is_auto_where_there_are_targets(void)
{
    static const struct {
        const char *text;
        enum stg_smart_stage smart_stage;
        bool is_default, gpu;
    } rows[] = {
        {STEPS, STG_SMART_STAGE_OFF, true, false},
        {STEPS "targets: [a]\n", STG_SMART_STAGE_AUTO, true, false},
        {STEPS "targets: [a]\nsmart_stage: off\n", STG_SMART_STAGE_OFF, false, false},
        {STEPS "smart_stage: on\n", STG_SMART_STAGE_ON, false, false},
        {STEPS "targets: [a]\nsmart_stage_gpu: on\n", STG_SMART_STAGE_ON, true, true},
        {STEPS "smart_stage: true\nsmart_stage_gpu: true\n", STG_SMART_STAGE_ON, false,
         true},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct stg_pipeline_spec *spec = load(rows[i].text);
        CHECK_INT(spec->smart_stage, rows[i].smart_stage);
        CHECK_INT(spec->smart_stage_is_default, rows[i].is_default);
        CHECK_INT(spec->smart_stage_gpu, rows[i].gpu);
        stg_pipeline_spec_destroy(spec);
    }
}

static void stage_workers_are_off_until_there_are_some(void)
{
    static const struct {
        const char *text;
        enum stg_smart_stage mode;
        size_t n_urls;
        bool has_file;
    } rows[] = {
        {STEPS, STG_SMART_STAGE_OFF, 0, false},
        {STEPS "staged: {remote: }\n", STG_SMART_STAGE_OFF, 0, false},
        {STEPS "staged: {remote: {}}\n", STG_SMART_STAGE_OFF, 0, false},
        {STEPS "staged: {remote: {mode: on}}\n", STG_SMART_STAGE_OFF, 0, false},
        {STEPS "staged: {remote: {workers: [], mode: on}}\n", STG_SMART_STAGE_OFF, 0,
         false},
        {STEPS "staged: {remote: {workers: \"http://a:1\"}}\n", STG_SMART_STAGE_AUTO, 1,
         false},
        {STEPS "staged: {remote: {workers: [b, a, b], mode: on}}\n", STG_SMART_STAGE_ON,
         3, false},
        {STEPS "staged: {remote: {workers: [a], mode: off}}\n", STG_SMART_STAGE_OFF, 1,
         false},
        {STEPS "staged: {remote: {workers_file: /f}}\n", STG_SMART_STAGE_AUTO, 0, true},
        {STEPS "staged: {remote: {workers: [a], workers_file: /f, mode: true}}\n",
         STG_SMART_STAGE_ON, 1, true},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct stg_pipeline_spec *spec = load(rows[i].text);
        const struct stg_remote_workers *remote = &spec->staged.remote;
        CHECK_INT(remote->mode, rows[i].mode);
        CHECK_INT(remote->n_urls, rows[i].n_urls);
        CHECK_INT(remote->workers_file != NULL, rows[i].has_file);
        stg_pipeline_spec_destroy(spec);
    }
}

static void stage_workers_are_read(void)
{
    struct stg_pipeline_spec *few = load(STEPS "staged: {remote: {workers: [a]}}\n");
    CHECK_INT(few->staged.remote.max_requests, 4);
    CHECK_INT(few->staged.remote.max_bytes_per_s, 0);
    CHECK(few->staged.remote.token_file == NULL && few->staged.remote.ca_file == NULL &&
          few->staged.remote.zone == NULL);
    struct stg_pipeline_spec *all =
        load(STEPS "staged:\n  remote:\n    workers: [\"https://a:1\", \"http://b:2\"]\n"
                   "    max_requests: 64\n    max_bytes_per_s: 2MiB\n"
                   "    token_file: /t\n    ca_file: /c\n    zone: z\n");
    const struct stg_remote_workers *remote = &all->staged.remote;
    CHECK_STR(remote->urls[0], "https://a:1");
    CHECK_STR(remote->urls[1], "http://b:2");
    CHECK_INT(remote->max_requests, 64);
    CHECK_INT(remote->max_bytes_per_s, 2 << 20);
    CHECK_STR(remote->token_file, "/t");
    CHECK_STR(remote->ca_file, "/c");
    CHECK_STR(remote->zone, "z");
    stg_pipeline_spec_destroy(all);
    stg_pipeline_spec_destroy(few);
}

static void nodes_may_be_written_by_name(void)
{
    struct stg_pipeline_spec *list = load(
        STEPS "graph: [{name: a, op: x, input: [record], k: 1}, {name: b, op: y}]\n");
    struct stg_pipeline_spec *mapping =
        load(STEPS "graph:\n  a: {op: x, k: 1, input: record}\n  b: {op: y}\n");
    CHECK_INT(mapping->n_nodes, 2);
    CHECK_STR(mapping->nodes[0].name, "a");
    CHECK_STR(mapping->nodes[1].op, "y");
    CHECK_INT(mapping->nodes[1].line, 4);
    CHECK(list->fingerprint == mapping->fingerprint);
    stg_pipeline_spec_destroy(list);
    stg_pipeline_spec_destroy(mapping);
}

static void ranges_of_inputs_are_written_out(void)
{
    struct stg_pipeline_spec *spec =
        load(STEPS "graph: [{name: n, op: x, input: [^c, \"col:9..11\", \"staged:a/b\", "
                   "\"p..q\", \"d:3..3\"]}]\n");
    static const char *const want[] = {"^c",         "col:9", "col:10", "col:11",
                                       "staged:a/b", "p..q",  "d:3"};
    CHECK_INT(spec->nodes[0].n_inputs, 7);
    for (size_t i = 0; i < 7; i++)
        CHECK_STR(spec->nodes[0].inputs[i], want[i]);
    stg_pipeline_spec_destroy(spec);
}

static void features_keep_their_structure(void)
{
    static const struct {
        const char *text, *structure, *paths;
    } cases[] = {
        {"rows", "\"rows\"", "rows=rows "},
        {"\"c:1\"", "\"c:1\"", "c:1=c:1 "},
        {"[a, b]", "[\"0\",\"1\"]", "0=a 1=b "},
        {"{u: {id: a, x: [b, c]}, l: d}",
         "{\"u\":{\"id\":\"u/id\",\"x\":[\"u/x/0\",\"u/x/1\"]},\"l\":\"l\"}",
         "u/id=a u/x/0=b u/x/1=c l=d "},
        {"[[a], {k: b}]", "[[\"0/0\"],{\"k\":\"1/k\"}]", "0/0=a 1/k=b "},
        {"{'q\"\\': a, x/y: b}", "{\"q\\\"\\\\\":\"q\\\"\\\\\",\"x/y\":\"x/y\"}",
         "q\"\\=a x/y=b "},
        {"{0: a}", "{\"0\":\"0\"}", "0=a "},
        {"[~, a, {k: null}]", "[null,\"1\",{\"k\":null}]", "1=a "},
        {"{u: {sparse: {dense_shape: s, values: v, indices: \"i:1\"}}, l: d}",
         "{\"u\":{\"sparse\":{\"values\":\"u/values\",\"indices\":\"u/indices\","
         "\"dense_shape\":\"u/dense_shape\"}},\"l\":\"l\"}",
         "u/values=v u/indices=i:1(2) u/dense_shape=s(3) l=d "},
        {"{ragged: {row_splits: r, values: v}}",
         "{\"ragged\":{\"values\":\"values\",\"row_splits\":\"row_splits\"}}",
         "values=v row_splits=r(1) "},
        /* A mapping may have a key of that name. */
        {"{ragged: r, l: d}", "{\"ragged\":\"ragged\",\"l\":\"l\"}", "ragged=r l=d "},
        {"{sparse: s}", "{\"sparse\":\"sparse\"}", "sparse=s "},
        {"{sparse: {values: v}, l: d}",
         "{\"sparse\":{\"values\":\"sparse/values\"},\"l\":\"l\"}",
         "sparse/values=v l=d "},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[256], paths[256] = "";
        snprintf(text, sizeof(text), STEPS "staged: {features: %s}\n", cases[i].text);
        struct stg_pipeline_spec *spec = load(text);
        for (size_t k = 0; k < spec->staged.n_features; k++) {
            size_t used = strlen(paths);
            static const char *const parts[] = {"", "(1)", "(2)", "(3)"};
            const struct stg_feature *f = &spec->staged.features[k];
            snprintf(paths + used, sizeof(paths) - used, "%s=%s%s ", f->path, f->tensor,
                     parts[f->part]);
        }
        CHECK_STR(spec->staged.structure, cases[i].structure);
        CHECK_STR(paths, cases[i].paths);
        stg_pipeline_spec_destroy(spec);
    }
}

static uint64_t fingerprint(const char *text)
{
    struct stg_pipeline_spec *spec = load(text);
    uint64_t ret = spec->fingerprint;
    stg_pipeline_spec_destroy(spec);
    return ret;
}

static void the_fingerprint_ignores_name_order_and_layout(void)
{
    uint64_t one = fingerprint(
        "name: a\n" STEPS "graph: [{name: n, op: x, k: [1], j: 2, input: [r]}]\n"
        "staged: {capacity: 2, features: {a: n, b: {c: n, d: n}}}\n");
    uint64_t two = fingerprint(
        "# another layout\nstaged:\n  features: {b: {d: n, c: n}, a: n}\n  capacity: 2\n"
        "graph:\n  - input: r\n    op: x\n    j: 2\n    k: [0x1]\n    name: n\n"
        "dataset:\n  - range:\n      stop: 5\nname: b\n");
    CHECK(one == two);
    CHECK(one == fingerprint(STEPS "graph: [{name: n, op: x, k: [1], j: 2, input: [r]}]\n"
                                   "staged: {capacity: 2, features: {a: n, b: {c: n, d: "
                                   "n}}}\n"));
}

static void the_fingerprint_sees_every_change(void)
{
    static const char *const texts[] = {
        STEPS,
        "dataset: [{range: {stop: 6}}]\n",
        "dataset: [{range: {stop: 5}}, {range: {stop: 5}}]\n",
        "dataset: [{range: {stop: 5}}, repeat]\n",
        STEPS "staged: {capacity: 2}\n",
        STEPS "staged: {num_threads: 2}\n",
        STEPS "staged: {features: [a, b]}\n",
        STEPS "staged: {features: [b, a]}\n",
        STEPS "staged: {features: {\"0\": a, \"1\": b}}\n",
        STEPS "targets: [a]\n",
        STEPS "graph: [{name: n, op: x}]\n",
        STEPS "graph: [{name: n, op: x, v: 1}]\n",
        STEPS "graph: [{name: n, op: x, v: 1.0}]\n",
        STEPS "graph: [{name: n, op: x, v: \"1\"}]\n",
        STEPS "graph: [{name: n, op: x, v: [1]}]\n",
        STEPS "graph: [{name: n, op: x, v: ~}]\n",
    };
    size_t n = sizeof(texts) / sizeof(texts[0]);
    uint64_t all[sizeof(texts) / sizeof(texts[0])];
    for (size_t i = 0; i < n; i++) {
        all[i] = fingerprint(texts[i]);
        for (size_t k = 0; k < i; k++) {
            if (all[k] == all[i])
                FAIL("equal: %s and %s", texts[k], texts[i]);
        }
    }
}

static void windows_line_ends_and_a_byte_order_mark_are_read(void)
{
    struct stg_pipeline_spec *spec =
        load("\xef\xbb\xbf"
             "name: a\r\ndataset:\r\n  - range: {stop: 5}\r\n");
    CHECK_STR(spec->name, "a");
    CHECK_INT(spec->steps[0].line, 3);
    stg_pipeline_spec_destroy(spec);
}

static void a_text_of_the_largest_size_is_read(void)
{
    size_t n = STG_TEXT_MAX_BYTES;
    char *text = malloc(n + 1);
    CHECK(text != NULL);
    memset(text, '#', n + 1);
    memcpy(text, STEPS, strlen(STEPS));
    struct stg_pipeline_spec *spec = NULL;
    struct stg_err err = {0};
    CHECK_OK(stg_load_pipeline(text, n, "p", &spec, &err), err);
    stg_pipeline_spec_destroy(spec);
    CHECK_INT(stg_load_pipeline(text, n + 1, "p", &spec, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_STR(err.text, "p: the text has 61441 bytes; the maximum is 61440");
    free(text);
}

static void settings_have_their_defaults(void)
{
    static const char *const texts[] = {"", "# nothing\n", "---\n", "{}"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct stg_settings s;
        struct stg_err err = {0};
        CHECK_OK(stg_load_settings(texts[i], strlen(texts[i]), "s", &s, &err), err);
        CHECK_STR(s.runtime_dir, "/run/stager");
        CHECK_STR(s.state_dir, "/var/lib/stager");
        CHECK_STR(s.pipeline_dir, "/etc/stager/pipelines");
        CHECK_STR(s.log_level, "info");
        CHECK_STR(s.access_group, "stager");
        CHECK_STR(s.metrics_address, "");
        CHECK_INT(s.memory_budget, 0);
        CHECK_INT(s.default_pipeline_memory, 134217728);
        CHECK_INT(s.max_clients, 1024);
        CHECK_INT(s.n_thread_pools, 0);
        stg_settings_finish(&s);
    }
}

static void settings_are_read(void)
{
    static const char text[] =
        "runtime_dir: /tmp/r\nstate_dir: /tmp/s\nmemory_budget: 2GiB\nmax_clients: 7\n"
        "thread_pools:\n  - {global_name: a, inter_op_threads_num: 3}\n"
        "  - {global_name: b, intra_op_threads_num: 4}\n";
    struct stg_settings s;
    struct stg_err err = {0};
    CHECK_OK(stg_load_settings(text, strlen(text), "s", &s, &err), err);
    CHECK_STR(s.runtime_dir, "/tmp/r");
    CHECK_STR(s.state_dir, "/tmp/s");
    CHECK_STR(s.log_level, "info");
    CHECK_INT(s.memory_budget, 2147483648u);
    CHECK_INT(s.max_clients, 7);
    CHECK_INT(s.n_thread_pools, 2);
    CHECK_STR(s.thread_pools[0].global_name, "a");
    CHECK_INT(s.thread_pools[0].inter_op_threads_num, 3);
    CHECK_INT(s.thread_pools[0].intra_op_threads_num, 1);
    CHECK_INT(s.thread_pools[1].intra_op_threads_num, 4);
    stg_settings_finish(&s);
}

static void addresses_have_a_number_and_a_port(void)
{
    struct sockaddr_storage address;
    struct stg_err err = {0};
    CHECK_OK(stg_load_address("127.0.0.1:9464", &address, &err), err);
    CHECK_INT(address.ss_family, AF_INET);
    CHECK_INT(ntohs(((struct sockaddr_in *)&address)->sin_port), 9464);
    CHECK_INT(ntohl(((struct sockaddr_in *)&address)->sin_addr.s_addr), 0x7f000001);
    CHECK_OK(stg_load_address("[::1]:1", &address, &err), err);
    CHECK_INT(address.ss_family, AF_INET6);
    CHECK_INT(((struct sockaddr_in6 *)&address)->sin6_addr.s6_addr[15], 1);
    static const char *const bad[] = {
        "",
        ":",
        "localhost:9464",
        "127.0.0.1",
        "127.0.0.1:",
        "9464",
        ":9464",
        "127.0.0.1:0",
        "127.0.0.1:x",
        "127.0.0.1:65536",
        "::1:9464",
        "[::1]",
        "[::1:9464",
        "127.0.0.1:1 ",
        "127.0.0.1:-1",
        "127.1:9464",
        "[]:1",
        "127.0.0.1:99999999999999999999",
        "[00000000000000000000000000000000000000000000000000000000000000::1]:9464"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        CHECK_INT(stg_load_address(bad[i], &address, &err), -STAGER_INVALID_ARGUMENT);
        CHECK_CONTAINS(err.text, "is not an address with a port");
    }
}

static const struct stg_test tests[] = {
    TEST(the_full_example_loads),
    TEST(the_same_in_json_is_the_same_pipeline),
    TEST(lines_and_columns_are_those_of_the_text),
    TEST(what_is_not_written_has_the_default_of_the_schema),
    TEST(an_attribute_without_a_default_is_absent_until_written),
    TEST(scalars_follow_the_core_schema),
    TEST(a_string_value_may_hold_a_nul),
    TEST(lists_are_rectangular_tensors),
    TEST(units_are_bytes),
    TEST(a_name_that_looks_like_a_number_is_a_string),
    TEST(one_value_is_a_list_of_one),
    TEST(null_is_as_if_not_written),
    TEST(switches_are_true_and_on_and_false_and_off),
    TEST(smart_stage_is_auto_where_there_are_targets),
    TEST(stage_workers_are_off_until_there_are_some),
    TEST(stage_workers_are_read),
    TEST(nodes_may_be_written_by_name),
    TEST(ranges_of_inputs_are_written_out),
    TEST(features_keep_their_structure),
    TEST(the_fingerprint_ignores_name_order_and_layout),
    TEST(the_fingerprint_sees_every_change),
    TEST(windows_line_ends_and_a_byte_order_mark_are_read),
    TEST(a_text_of_the_largest_size_is_read),
    TEST(settings_have_their_defaults),
    TEST(settings_are_read),
    TEST(addresses_have_a_number_and_a_port),
};

TEST_MAIN(tests)
