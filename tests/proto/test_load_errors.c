/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts that do not load, with their errors: the whole text, with line and column.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/load.h"
#include "tests/check.h"
#include "tests/proto/example.h"

#define STEPS "dataset: [{range: {stop: 5}}]\n"

struct error_case {
    const char *text, *want;
};

static int load(const char *text, size_t n, struct stg_err *err)
{
    struct stg_pipeline_spec *spec = NULL;
    int rc = stg_load_pipeline(text, n, "p", &spec, err);
    if (rc < 0)
        CHECK(spec == NULL);
    stg_pipeline_spec_destroy(spec);
    return rc;
}

/* A text that ends with "..." is a prefix of the expected one. */
static bool is_wanted(const char *got, const char *want)
{
    const char *end = strstr(want, "...");
    bool open = end != NULL && end[3] == '\0';
    return open ? strncmp(got, want, (size_t)(end - want)) == 0 : strcmp(got, want) == 0;
}

static void check_cases(const struct error_case *cases, size_t n)
{
    unsigned wrong = 0;
    for (size_t i = 0; i < n; i++) {
        struct stg_err err = {0};
        int rc = load(cases[i].text, strlen(cases[i].text), &err);
        if (rc == -STAGER_INVALID_ARGUMENT && is_wanted(err.text, cases[i].want))
            continue;
        fprintf(stderr, "    %s\n      gives %d: %s\n      not %s\n", cases[i].text, rc,
                err.text, cases[i].want);
        wrong++;
    }
    CHECK_INT(wrong, 0);
}

#define CHECK_CASES(cases) check_cases(cases, sizeof(cases) / sizeof((cases)[0]))

static void what_is_no_yaml_is_refused_with_its_place(void)
{
    static const struct error_case cases[] = {
        {"dataset:\n\t- files\n", "p:2:1: a tab in the indentation; YAML needs spaces"},
        {"dataset: [a,\n  b\n",
         "p:3:1: not valid YAML: did not find expected ',' or ']' (while parsing a flow "
         "sequence that began at line 1)"},
        {"a: b: c",
         "p:1:5: not valid YAML: mapping values are not allowed in this context"},
        {"a: \"\\q\"", "p:1:5: not valid YAML: found unknown escape character (while "
                       "parsing a quoted scalar that began at line 1)"},
        {"name: x\ndataset: \x02",
         "p:2:10: control character \\x02 in the text; write it "
         "as an escape inside double quotes"},
        {"# \xc3\xa9\nn: \xc3\xa9\xff",
         "p:2:5: not UTF-8 text (invalid leading UTF-8 octet); save the file as UTF-8"},
        {STEPS "---\nname: x\n",
         "p:2:1: a second document begins here; a file holds one"},
        {STEPS "name: &x y\n",
         "p:2:7: anchors (&) and aliases (*) are not supported, because they can make a "
         "small text huge; write the value out, or quote it"},
        {"a: [*x]\n",
         "p:1:5: anchors (&) and aliases (*) are not supported, because they can make a "
         "small text huge; write the value out, or quote it"},
        {"dataset: &x [a]\n",
         "p:1:10: anchors (&) and aliases (*) are not supported, because they can make a "
         "small text huge; write the value out, or quote it"},
        {"name: !!str 5\n",
         "p:1:7: tags (!!str) are not supported; quote a value to make "
         "it a string"},
        {"dataset: !x [a]\n",
         "p:1:10: tags (!x) are not supported; quote a value to make it a string"},
        {"[a]: b\n", "p:1:1: a key must be a word, not a list or mapping"},
        {"? {a: b}\n: c\n", "p:1:3: a key must be a word, not a list or mapping"},
        {"\"\": a\n", "p:1:1: a key is missing before ':'"},
        {"\"a\\0b\": a\n", "p:1:1: a key with a NUL inside"},
        {"name: a\nname: b\n", "p:2:1: key \"name\" is given twice (first at line 1); "
                               "keep one"},
        {STEPS "staged: {capacity: 1,\n  num_threads: 2, capacity: 3}\n",
         "p:3:19: key \"capacity\" is given twice (first at line 2); keep one"},
        {"dataset: [[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]\n",
         "p:1:25: nested deeper than 16 levels; flatten it"},
        {"dataset:\n- - - - - - - - - - - - - - - - - a\n",
         "p:2:31: nested deeper than 16 levels; flatten it"},
    };
    CHECK_CASES(cases);
}

static void the_error_for_a_text_of_another_shape_defines_pipelines(void)
{
    static const struct error_case cases[] = {
        {"", "p:1:1: the text is empty; a pipeline has at least \"dataset:\""},
        {"# only this\n",
         "p:1:1: the text is empty; a pipeline has at least \"dataset:\""},
        {"files\n", "p:1:1: found files; expected a mapping (\"key: value\")"},
        {"- files\n", "p:1:1: found a list; expected a mapping (\"key: value\")"},
        {"---\n", "p:1:1: the text is empty; a pipeline has at least \"dataset:\""},
        {"name: x\n", "p:1:1: dataset: missing; add a list of steps that begins with \"- "
                      "files: {pattern: [...]}\""},
        {"\nname: x\ndataset: []\n",
         "p:2:1: dataset: missing; add a list of steps that begins with \"- files: "
         "{pattern: [...]}\""},
        {"dataset: {files: {pattern: a}}\n", "p:1:10: dataset: found a mapping; expected "
                                             "a list; begin each entry with \"- \""},
        {"dataset: files\n",
         "p:1:10: dataset: found files; expected a list; begin each entry with \"- \""},
        {STEPS "staged: [a]\n",
         "p:2:9: staged: found a list; expected a mapping (\"key: value\")"},
    };
    CHECK_CASES(cases);
}

static void an_unknown_key_suggests_the_nearest(void)
{
    static const struct error_case cases[] = {
        {STEPS "nam: x\n", "p:2:1: unknown key \"nam\"; did you mean \"name\"?"},
        {STEPS "staged:\n  capcity: 3\n",
         "p:3:3: staged: unknown key \"capcity\"; did you mean \"capacity\"?"},
        {"dataset:\n  - batch: {batchsize: 3}\n",
         "p:2:13: dataset[0].batch: unknown key \"batchsize\"; did you mean "
         "\"batch_size\"?"},
        {"dataset:\n  - shufle: {}\n",
         "p:2:5: dataset[0]: unknown key \"shufle\"; did you mean \"shuffle\"?"},
        {"dataset:\n  - repeat\n  - bach\n",
         "p:3:5: dataset[1]: unknown key \"bach\"; did you mean \"batch\"?"},
        {STEPS "graph: [{name: a, op: x, inputs: [b]}]\n",
         "p:2:26: graph[0]: unknown key \"inputs\"; did you mean \"input\"?"},
        {STEPS "graph: [{name: a, op: x, v w: 1}]\n",
         "p:2:26: graph[0]: unknown key \"v w\"; known here: name, op, input"},
        {STEPS "zzzzzz: 1\n", "p:2:1: unknown key \"zzzzzz\"; known here: name, dataset, "
                              "graph, staged, targets, datasets, smart_stage, "
                              "container, gpu, smart_stage_gpu"},
        {STEPS "<<: {a: b}\n", "p:2:1: unknown key \"<<\"; known here: name, dataset, "
                               "graph, staged, targets, datasets, smart_stage, "
                               "container, gpu, smart_stage_gpu"},
        {"dataset: [{line: 3}]\n",
         "p:1:12: dataset[0]: unknown key \"line\"; known here: files, text_line, "
         "range, ..."},
        {STEPS "staged: {feed_dict: [{name: x, value: 1, \"a\\nb\\e\": 1}]}\n",
         "p:2:42: staged.feed_dict[0]: unknown key \"a\\x0ab\\x1b\"; known here: name, "
         "value, tensor, client"},
    };
    CHECK_CASES(cases);
}

static void a_misplaced_key_is_reported_with_its_proper_place(void)
{
    static const struct error_case cases[] = {
        {STEPS "num_clients: 2\n", "p:2:1: \"num_clients\" belongs below \"staged:\""},
        {STEPS "deterministic: true\n",
         "p:2:1: \"deterministic\" belongs below \"staged:\""},
        {STEPS "staged: {smart_stage: auto}\n",
         "p:2:10: staged: \"smart_stage\" belongs at the top of the file, beside "
         "\"staged:\""},
        {STEPS "shuffle: {buffer_size: 4}\n",
         "p:2:1: \"shuffle\" is a step: an entry \"- \" of the list below \"dataset:\""},
        {"dataset:\n  - TFRecordDataset: {}\n",
         "p:2:5: dataset[0]: \"TFRecordDataset\" has the name \"tfrecord\" here"},
    };
    CHECK_CASES(cases);
}

static void a_name_of_deeprecs_is_answered_with_ours(void)
{
    static const struct error_case cases[] = {
        {STEPS "do_smart_stage: true\n", "p:2:1: \"do_smart_stage\" is the key "
                                         "\"smart_stage\" of a pipeline: on, or auto, "
                                         "which measures"},
        {STEPS "staged: {do_smart_stage_gpu: true}\n",
         "p:2:10: staged: \"do_smart_stage_gpu\" is the key \"smart_stage_gpu\" of a "
         "pipeline: on"},
        {STEPS "tf.staged: {}\n",
         "p:2:1: \"tf.staged\" is the mapping \"staged\" of a pipeline"},
        {STEPS "staged: {tf.make_prefetch_hook: 1}\n",
         "p:2:10: staged: \"tf.make_prefetch_hook\" is not needed: stagerd runs the "
         "stage, and trainers open it by its name"},
        {STEPS "tf.train.mark_target_node: [a]\n",
         "p:2:1: \"tf.train.mark_target_node\" is the key \"targets\" of a pipeline: a "
         "list of names of nodes"},
        {STEPS "session_stage_subgraph_thread_pool: []\n",
         "p:2:1: \"session_stage_subgraph_thread_pool\" is \"thread_pools\" in "
         "stagerd.yaml"},
    };
    CHECK_CASES(cases);
}

static void a_partition_contradicts_smart_stage_gpu(void)
{
    static const struct error_case cases[] = {
        {STEPS "smart_stage: auto\nsmart_stage_gpu: on\n",
         "p: smart_stage_gpu: on stages the largest set of nodes, and smart_stage: auto "
         "another: leave smart_stage out"},
        {STEPS "smart_stage: off\nsmart_stage_gpu: on\n",
         "p: smart_stage_gpu: on stages the largest set of nodes, and smart_stage: off "
         "another: leave smart_stage out"},
    };
    CHECK_CASES(cases);
}

static void exception_types_are_status_codes(void)
{
    static const struct error_case cases[] = {
        {STEPS "staged: {closed_exception_types: OUT_OF_RANGE}\n",
         "p:2:34: staged.closed_exception_types: found OUT_OF_RANGE; expected a list of "
         "status codes: [OUT_OF_RANGE]"},
        {STEPS "staged: {ignored_exception_types: [DATA_LOS]}\n",
         "p:2:36: staged.ignored_exception_types[0]: found DATA_LOS; expected the name "
         "of a status code, such as OUT_OF_RANGE, or its number from 1 to 16; did you "
         "mean DATA_LOSS?"},
        {STEPS "staged: {ignored_exception_types: [17]}\n",
         "p:2:36: staged.ignored_exception_types[0]: found 17; expected the name of a "
         "status code, such as OUT_OF_RANGE, or its number from 1 to 16"},
        {STEPS "staged: {feed_dict: {x: {value: 1, tensor: y}}}\n",
         "p: feed_dict \"x\" (line 2) needs one of value and tensor"},
    };
    CHECK_CASES(cases);
}

static void the_error_for_a_wrong_type_names_the_actual_and_the_expected_type(void)
{
    static const struct error_case cases[] = {
        {STEPS "staged: {capacity: two}\n",
         "p:2:20: staged.capacity: found two; expected an integer from 1 to 65536, or "
         "auto"},
        {STEPS "staged: {capacity: \"4\"}\n",
         "p:2:20: staged.capacity: found the string \"4\"; expected an integer from 1 to "
         "65536, or auto; leave out the quotes"},
        {STEPS "staged: {capacity: 1_0}\n",
         "p:2:20: staged.capacity: found 1_0; expected an integer from 1 to 65536, or "
         "auto; "
         "write it without '_'"},
        {STEPS "staged: {capacity: 1.5}\n",
         "p:2:20: staged.capacity: found 1.5; expected an integer from 1 to 65536, or "
         "auto"},
        {STEPS "staged: {capacity: true}\n",
         "p:2:20: staged.capacity: found true; expected an integer from 1 to 65536, or "
         "auto"},
        {STEPS "staged: {capacity: [4]}\n",
         "p:2:20: staged.capacity: found a list; expected an integer from 1 to 65536, or "
         "auto"},
        {STEPS "staged: {max_batch_bytes: 64XB}\n",
         "p:2:27: staged.max_batch_bytes: found 64XB; expected an integer of at least 0; "
         "units are KiB MiB GiB TiB KB MB GB TB"},
        {STEPS "staged: {redeliver: yes}\n",
         "p:2:21: staged.redeliver: found yes; expected true or false"},
        {STEPS "staged: {redeliver: 1}\n",
         "p:2:21: staged.redeliver: found 1; expected true or false"},
        {STEPS "staged: {delivery: brodcast}\n",
         "p:2:20: staged.delivery: found brodcast; expected split, broadcast or "
         "round_robin; did you mean broadcast?"},
        {STEPS "staged: {delivery: 1}\n",
         "p:2:20: staged.delivery: found 1; expected split, broadcast or round_robin"},
        {STEPS "staged: {delivery: {}}\n",
         "p:2:20: staged.delivery: found a mapping; expected split, broadcast or "
         "round_robin"},
        {STEPS "name: [a]\n", "p:2:7: name: found a list; expected a string"},
        {STEPS "targets: [a, ~]\n", "p:2:14: targets[1]: found ~; expected a string"},
        {STEPS "targets: {a: b}\n", "p:2:10: targets: found a mapping; expected a list; "
                                    "begin each entry with \"- \""},
        {STEPS "targets: [[a]]\n", "p:2:11: targets[0]: found a list; expected a string"},
        {"dataset: [{repeat: {count: often}}]\n",
         "p:1:28: dataset[0].repeat.count: found often; expected an integer of at least "
         "-1"},
        {"dataset: [{range: {stop: 1KiB}}]\n",
         "p:1:26: dataset[0].range.stop: found 1KiB; expected an integer"},
        {STEPS "graph: [a]\n",
         "p:2:9: graph[0]: found a; expected a mapping: {name: ..., "
         "op: ..., input: [...]}"},
        {STEPS "graph: 3\n", "p:2:8: graph: found 3; expected a mapping by name, or a "
                             "list; begin each entry with \"- \""},
    };
    CHECK_CASES(cases);
}

static void the_error_for_a_number_out_of_range_names_the_range(void)
{
    static const struct error_case cases[] = {
        {STEPS "staged: {capacity: 0}\n", "p:2:20: staged.capacity: found 0; expected an "
                                          "integer from 1 to 65536, or auto"},
        {STEPS "staged: {capacity: 65537}\n",
         "p:2:20: staged.capacity: found 65537; expected an integer from 1 to 65536, or "
         "auto"},
        {STEPS "staged: {capacity: -2}\n", "p:2:20: staged.capacity: found -2; expected "
                                           "an integer from 1 to 65536, or auto"},
        {STEPS "staged: {num_threads: automatic}\n",
         "p:2:23: staged.num_threads: found automatic; expected an integer from 1 to "
         "256, or auto"},
        {STEPS "staged: {num_clients: auto, keep_warm: true}\n",
         "p: staged: num_clients: auto is known when the first client opens, and "
         "keep_warm: true needs it before: write the number"},
        {STEPS "staged: {num_threads: 257}\n",
         "p:2:23: staged.num_threads: found 257; expected an integer from 1 to 256, or "
         "auto"},
        {STEPS "staged: {num_clients: 1025}\n",
         "p:2:23: staged.num_clients: found 1025; expected an integer from 1 to 1024, or "
         "auto"},
        {STEPS "staged: {timeout_millis: 0}\n",
         "p:2:26: staged.timeout_millis: found 0; expected an integer from 1 to "
         "315360000000"},
        {STEPS "staged: {max_batch_bytes: 9223372036854775808}\n",
         "p:2:27: staged.max_batch_bytes: found 9223372036854775808; expected an integer "
         "of at least 0"},
        {STEPS "staged: {memory_budget: 8388608TiB}\n",
         "p:2:25: staged.memory_budget: found 8388608TiB; expected an integer of at "
         "least "
         "0; units are KiB MiB GiB TiB KB MB GB TB"},
        {"dataset: [{shuffle: {buffer_size: 0}}]\n",
         "p:1:35: dataset[0].shuffle.buffer_size: found 0; expected an integer of at "
         "least "
         "1"},
        {"dataset: [{batch: {batch_size: 0}}]\n",
         "p:1:32: dataset[0].batch.batch_size: found 0; expected an integer from 1 to "
         "2147483647"},
        {STEPS "staged: {timeout_millis: 315360000001}\n",
         "p:2:26: staged.timeout_millis: found 315360000001; expected an integer from 1 "
         "to "
         "315360000000"},
        {STEPS "staged: {lease_timeout_millis: -1}\n",
         "p:2:32: staged.lease_timeout_millis: found -1; expected an integer from 0 to "
         "315360000000"},
        {STEPS "staged: {start_timeout_millis: 0}\n",
         "p:2:32: staged.start_timeout_millis: found 0; expected an integer from 1 to "
         "315360000000"},
        {"dataset: [{text_line: {buffer_size: 2GiB}}]\n",
         "p:1:37: dataset[0].text_line.buffer_size: found 2GiB; expected an integer from "
         "1 "
         "to 1073741824; units are KiB MiB GiB TiB KB MB GB TB"},
        {"dataset: [{text_line: {max_record_bytes: 0}}]\n",
         "p:1:42: dataset[0].text_line.max_record_bytes: found 0; expected an integer "
         "from "
         "1 to 1099511627776"},
        {"dataset: [{repeat: {count: -2}}]\n",
         "p:1:28: dataset[0].repeat.count: found -2; expected an integer of at least -1"},
        {"dataset: [{range: {stop: 9223372036854775808}}]\n",
         "p:1:26: dataset[0].range.stop: found 9223372036854775808; expected an integer"},
        {STEPS "graph: [{name: a, op: x, v: 9223372036854775808}]\n",
         "p:2:29: graph[0].v: found 9223372036854775808; expected an integer of 64 bits; "
         "quote it to make it a string"},
    };
    CHECK_CASES(cases);
}

static void stage_workers_have_their_keys_and_no_other(void)
{
    static const struct error_case cases[] = {
        {STEPS "staged: {remote: 3}\n",
         "p:2:18: staged.remote: found 3; expected a mapping (\"key: value\")"},
        {STEPS "staged: {remote: [a]}\n",
         "p:2:18: staged.remote: found a list; expected a mapping (\"key: value\")"},
        {STEPS "staged: {remote: {worker: [a]}}\n",
         "p:2:19: staged.remote: unknown key \"worker\"; did you mean \"workers\"?"},
        {STEPS "staged: {remote: {num_threads: 3}}\n",
         "p:2:19: staged.remote: unknown key \"num_threads\"; known here: workers, mode, "
         "max_requests, max_bytes_per_s, token_file, ca_file, zone, workers_file"},
        {STEPS "staged: {remote: {workers: {a: b}}}\n",
         "p:2:28: staged.remote.workers: found a mapping; expected a list; begin each "
         "entry with \"- \""},
        {STEPS "staged: {remote: {workers: [[a]]}}\n",
         "p:2:29: staged.remote.workers[0]: found a list; expected a string"},
        {STEPS "staged: {remote: {workers: [\"a\\0b\"]}}\n",
         "p:2:29: staged.remote.workers[0]: \"a\\x00b\": a NUL inside a string"},
        {STEPS "staged: {remote: {mode: maybe}}\n",
         "p:2:25: staged.remote.mode: found maybe; expected off, on or auto"},
        {STEPS "staged: {remote: {mode: 1}}\n",
         "p:2:25: staged.remote.mode: found 1; expected off, on or auto"},
        {STEPS "staged: {remote: {max_requests: 0}}\n",
         "p:2:33: staged.remote.max_requests: found 0; expected an integer from 1 to 64"},
        {STEPS "staged: {remote: {max_requests: 65}}\n",
         "p:2:33: staged.remote.max_requests: found 65; expected an integer from 1 to "
         "64"},
        {STEPS "staged: {remote: {max_requests: auto}}\n",
         "p:2:33: staged.remote.max_requests: found auto; expected an integer from 1 to "
         "64"},
        {STEPS "staged: {remote: {max_requests: 1.5}}\n",
         "p:2:33: staged.remote.max_requests: found 1.5; expected an integer from 1 to "
         "64"},
        {STEPS "staged: {remote: {max_requests: 4, max_requests: 5}}\n",
         "p:2:36: key \"max_requests\" is given twice (first at line 2); keep one"},
        {STEPS "staged: {remote: {max_bytes_per_s: -1}}\n",
         "p:2:36: staged.remote.max_bytes_per_s: found -1; expected an integer of at "
         "least 0"},
        {STEPS "staged: {remote: {max_bytes_per_s: fast}}\n",
         "p:2:36: staged.remote.max_bytes_per_s: found fast; expected an integer of at "
         "least 0"},
        {STEPS "staged: {remote: {token_file: [a]}}\n",
         "p:2:31: staged.remote.token_file: found a list; expected a string"},
        {STEPS "staged: {remote: {ca_file: {a: b}}}\n",
         "p:2:28: staged.remote.ca_file: found a mapping; expected a string"},
        {STEPS "staged: {remote: {workers_file: [a, b]}}\n",
         "p:2:33: staged.remote.workers_file: found a list; expected a string"},
        {STEPS "staged: {remote: {zone: \"\"}}\n",
         "p:2:25: staged.remote.zone: \"\": an empty string; write one or leave it out"},
    };
    CHECK_CASES(cases);
}

static void the_error_for_a_bad_name_defines_names(void)
{
    static const struct error_case cases[] = {
        {STEPS "name: a b\n",
         "p:2:7: name: \"a b\": not a valid name; use 1 to 64 letters, "
         "digits, '_', '.' or '-', the first not a '.'"},
        {STEPS "name: a/b\n",
         "p:2:7: name: \"a/b\": not a valid name; use 1 to 64 letters, "
         "digits, '_', '.' or '-', the first not a '.'"},
        {STEPS "name: ..\n",
         "p:2:7: name: \"..\": not a valid name; use 1 to 64 letters, "
         "digits, '_', '.' or '-', the first not a '.'"},
        {STEPS "name: ''\n",
         "p:2:7: name: \"\": an empty string; write one or leave it out"},
        {STEPS "name: \"a\\0\"\n", "p:2:7: name: \"a\\x00\": a NUL inside a string"},
        {STEPS "name: "
               "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n",
         "p:2:7: name: "
         "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\": not a "
         "valid name; use 1 to 64 letters, digits, '_', '.' or '-', the first not a '.'"},
        {STEPS "graph: [{name: \"a:0\", op: x}]\n",
         "p:2:16: graph[0].name: \"a:0\": not a valid name; use 1 to 255 letters, "
         "digits, '_', "
         "'.', '-' or '/'"},
        {STEPS "graph:\n- {name: a, op: x}\n- {name: b, op: x}\n- {name: a, op: y}\n",
         "p:5:3: graph: two nodes have the name \"a\" (the other at line 3); rename one"},
    };
    CHECK_CASES(cases);
}

static void what_is_required_is_missed_by_name(void)
{
    static const struct error_case cases[] = {
        {STEPS "graph: [{name: a}]\n",
         "p:2:9: graph[0].op: missing; add \"op: ...\" here"},
        {STEPS "graph: [{op: a}]\n",
         "p:2:9: graph[0].name: missing; add \"name: ...\" here"},
        {STEPS "graph: [{name: a, op: ~}]\n",
         "p:2:9: graph[0].op: missing; add \"op: ...\" here"},
        {STEPS "graph:\n  a: {input: b}\n",
         "p:3:6: graph.a.op: missing; add \"op: ...\" here"},
        {STEPS "graph:\n  a: {op: x, name: b}\n",
         "p:3:14: graph.a: \"name\" is given twice: the key of the entry is its name"},
        {STEPS "graph:\n  a: 3\n", "p:3:6: graph.a: found 3; expected a mapping: {name: "
                                   "..., op: ..., input: [...]}"},
        {"dataset:\n  - repeat\n  - take:\n",
         "p:3:5: dataset[1].take.count: missing; add \"count: ...\" here"},
        {"dataset:\n  - batch\n",
         "p:2:5: dataset[0].batch.batch_size: missing; add \"batch_size: ...\" here"},
        {"dataset:\n  - range: {start: 3}\n",
         "p:2:12: dataset[0].range.stop: missing; add \"stop: ...\" here"},
    };
    CHECK_CASES(cases);
}

static void a_step_is_one_key_with_arguments(void)
{
    static const struct error_case cases[] = {
        {"dataset:\n  - repeat: 3\n",
         "p:2:13: dataset[0].repeat: found 3; expected its arguments: {count: ...}"},
        {"dataset:\n  - files: [a]\n", "p:2:12: dataset[0].files: found a list; expected "
                                       "its arguments: {pattern: ...}"},
        {"dataset:\n  - repeat:\n    batch: {batch_size: 3}\n",
         "p:3:5: dataset[0]: a step has one key; begin \"batch\" with \"- \" if it is a "
         "step, indent it more if it is an argument"},
        {"dataset:\n  - repeat:\n    count: 3\n",
         "p:3:5: dataset[0]: a step has one key; begin \"count\" with \"- \" if it is a "
         "step, indent it more if it is an argument"},
        {"dataset: [{}]\n", "p:1:11: dataset[0]: found a mapping; expected a step: \"- "
                            "shuffle: {buffer_size: 1000}\""},
        {"dataset: [[repeat]]\n",
         "p:1:11: dataset[0]: found a list; expected a step: \"- "
         "shuffle: {buffer_size: 1000}\""},
        {"dataset: [~]\n", "p:1:11: dataset[0]: found ~; expected a step: \"- shuffle: "
                           "{buffer_size: 1000}\""},
    };
    CHECK_CASES(cases);
}

static void an_attribute_is_a_value_or_a_rectangular_list(void)
{
    static const struct error_case cases[] = {
        {STEPS "graph: [{name: a, op: x, v: [[1, 2], [3]]}]\n",
         "p:2:38: graph[0].v: this list has 1 entries, the first one 2; nested lists "
         "must "
         "be rectangular (use null for a required column)"},
        {STEPS "graph: [{name: a, op: x, v: [[0], [0.0], []]}]\n",
         "p:2:42: graph[0].v: this list has 0 entries, the first one 1; nested lists "
         "must "
         "be rectangular (use null for a required column)"},
        {STEPS "graph: [{name: a, op: x, v: [1, [2]]}]\n",
         "p:2:33: graph[0].v: lists and values side by side; nested lists must be "
         "rectangular (use null for a required column)"},
        {STEPS "graph: [{name: a, op: x, v: [[1], 2]}]\n",
         "p:2:35: graph[0].v: lists and values side by side; nested lists must be "
         "rectangular (use null for a required column)"},
        {STEPS "graph: [{name: a, op: x, v: {b: c}}]\n",
         "p:2:33: graph[0].v.b: found c; expected a mapping with at least one key"},
        {STEPS "graph: [{name: a, op: x, v: [{b: c}]}]\n",
         "p:2:30: graph[0].v: found a mapping; expected a value or a list"},
        {STEPS "graph: [{name: a, op: x, v: [[[[[1]]]]]}]\n",
         "p:2:29: graph[0].v: lists nested 5 deep; at most 4"},
    };
    CHECK_CASES(cases);
}

static void a_range_of_inputs_is_bounded(void)
{
    static const struct error_case cases[] = {
        {STEPS "graph: [{name: a, op: x, input: [\"b:5..3\"]}]\n",
         "p:2:34: graph[0].input[0]: \"b:5..3\" is not a range; write it as "
         "\"node:0..25\", with the smaller number first"},
        {STEPS "graph: [{name: a, op: x, input: [c, \"b:0..x\"]}]\n",
         "p:2:37: graph[0].input[1]: \"b:0..x\" is not a range; write it as "
         "\"node:0..25\", with the smaller number first"},
        {STEPS "graph: [{name: a, op: x, input: \"b:0..99999999999999999999\"}]\n",
         "p:2:33: graph[0].input[0]: \"b:0..99999999999999999999\" is not a range; write "
         "it as \"node:0..25\", with the smaller number first"},
        {STEPS "graph: [{name: a, op: x, input: \"b:0..4096\"}]\n",
         "p:2:33: graph[0].input[0]: more than 4096 inputs in the graph, with all ranges "
         "written out"},
        {STEPS "graph: [{name: a, op: x, input: [\"b:0..4094\", c]},\n"
               "  {name: d, op: x, input: e}]\n",
         "p:3:27: graph[1].input[0]: more than 4096 inputs in the graph, with all ranges "
         "written out"},
    };
    CHECK_CASES(cases);
}

static void features_name_tensors(void)
{
    static const struct error_case cases[] = {
        {STEPS "staged: {features: []}\n", "p:2:20: staged.features: an empty list; name "
                                           "at least one tensor, or leave it out"},
        {STEPS "staged: {features: {}}\n", "p:2:20: staged.features: an empty mapping; "
                                           "name at least one tensor, or leave it "
                                           "out"},
        {STEPS "staged: {features: [a, {b: []}]}\n",
         "p:2:28: staged.features[1].b: an empty list; name at least one tensor, or "
         "leave "
         "it out"},
        {STEPS "staged: {features: {a: ~, b: [null]}}\n",
         "p:2:20: staged.features: nothing but nulls; name at least one tensor"},
        {STEPS "staged: {features: {a: ''}}\n",
         "p:2:24: staged.features.a: found the string \"\"; expected the name of a "
         "tensor: "
         "\"ids\" or \"columns:0\""},
        {STEPS "staged: {features: {a/b: x, a: {b: y}}}\n",
         "p:2:36: staged.features: two features have the name \"a/b\" (the other at line "
         "2); rename one"},
        {STEPS "staged: {features: {\"a\\tb\": x}}\n",
         "p:2:29: staged.features: a control character in the name of a feature"},
    };
    CHECK_CASES(cases);
}

static void a_sparse_or_ragged_feature_has_its_keys_and_no_other(void)
{
    static const struct error_case cases[] = {
        {STEPS "staged: {features: {a: {sparse: {values: v, indices: i}}}}\n",
         "p:2:33: staged.features.a.sparse: a sparse feature needs the keys values, "
         "indices, dense_shape; dense_shape is missing"},
        {STEPS "staged: {features: {ragged: {row_splits: r}}}\n",
         "p:2:29: staged.features.ragged: a ragged feature needs the keys values, "
         "row_splits; values is missing"},
        {STEPS "staged: {features: [{ragged: {values: v, row_splits: r, x: y}}]}\n",
         "p:2:30: staged.features[0].ragged: a ragged feature has only the keys values, "
         "row_splits"},
        {STEPS "staged: {features: {a: {ragged: {values: v, row_splits: ~}}}}\n",
         "p:2:57: staged.features.a.ragged.row_splits: found ~; expected the name of a "
         "tensor: \"ids\" or \"columns:0\""},
        {STEPS "staged: {features: {a: {ragged: {values: v, row_splits: [r]}}}}\n",
         "p:2:57: staged.features.a.ragged.row_splits: found a list; expected the name "
         "of a tensor: \"ids\" or \"columns:0\""},
        {STEPS "staged: {features: {a/values: x, a: {ragged: {values: v, row_splits: "
               "r}}}}\n",
         "p:2:55: staged.features: two features have the name \"a/values\" (the other at "
         "line 2); rename one"},
    };
    CHECK_CASES(cases);
}

static void a_name_of_a_feature_is_bounded(void)
{
    char text[600] = STEPS "staged: {features: {";
    size_t n = strlen(text);
    memset(text + n, 'a', 256);
    strcpy(text + n + 256, ": x}}\n");
    struct stg_err err = {0};
    CHECK_INT(load(text, strlen(text), &err), -STAGER_INVALID_ARGUMENT);
    CHECK_STR(err.text,
              "p:2:279: staged.features: the name of a feature has 256 bytes; at "
              "most 255");
}

static void too_many_values_are_refused(void)
{
    char *text = malloc(STG_TEXT_MAX_BYTES);
    CHECK(text != NULL);
    strcpy(text, STEPS "graph: [{name: a, op: x, v: [");
    size_t n = strlen(text);
    for (unsigned i = 0; i < 20000; i++, n += 2)
        memcpy(text + n, "1,", 2);
    struct stg_err err = {0};
    CHECK_INT(load(text, n, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_STR(err.text, "p:2:40010: more than 20000 values in one text; make it smaller");

    strcpy(text + n - 20000, "]}]\n");
    CHECK_INT(load(text, strlen(text), &err), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "p: the pipeline has too many values to fit a message");

    snprintf(text, STG_TEXT_MAX_BYTES,
             STEPS "graph: [{name: a, op: x, v: \"%049152d\"}]\n", 1);
    CHECK_INT(load(text, strlen(text), &err), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "p: the pipeline has too many values to fit a message");
    free(text);
}

static void a_truncated_text_never_loads_as_something_else(void)
{
    for (size_t n = 0; n < strlen(example_json) - 1; n++) {
        struct stg_err err = {0};
        CHECK_INT(load(example_json, n, &err), -STAGER_INVALID_ARGUMENT);
        CHECK(strncmp(err.text, "p:1:", 4) == 0);
    }
}

static void a_file_name_cannot_forge_a_line_of_a_log(void)
{
    struct stg_pipeline_spec *spec = NULL;
    struct stg_err err = {0};
    CHECK_INT(stg_load_pipeline("a", 1, "x\ny", &spec, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_STR(err.text, "x\\x0ay:1:1: found a; expected a mapping (\"key: value\")");
    CHECK_INT(stg_load_pipeline("a", 1, NULL, &spec, NULL), -STAGER_INVALID_ARGUMENT);
}

static const struct stg_test tests[] = {
    TEST(what_is_no_yaml_is_refused_with_its_place),
    TEST(the_error_for_a_text_of_another_shape_defines_pipelines),
    TEST(an_unknown_key_suggests_the_nearest),
    TEST(a_misplaced_key_is_reported_with_its_proper_place),
    TEST(a_name_of_deeprecs_is_answered_with_ours),
    TEST(a_partition_contradicts_smart_stage_gpu),
    TEST(exception_types_are_status_codes),
    TEST(the_error_for_a_wrong_type_names_the_actual_and_the_expected_type),
    TEST(the_error_for_a_number_out_of_range_names_the_range),
    TEST(stage_workers_have_their_keys_and_no_other),
    TEST(the_error_for_a_bad_name_defines_names),
    TEST(what_is_required_is_missed_by_name),
    TEST(a_step_is_one_key_with_arguments),
    TEST(an_attribute_is_a_value_or_a_rectangular_list),
    TEST(a_range_of_inputs_is_bounded),
    TEST(features_name_tensors),
    TEST(a_sparse_or_ragged_feature_has_its_keys_and_no_other),
    TEST(a_name_of_a_feature_is_bounded),
    TEST(too_many_values_are_refused),
    TEST(a_truncated_text_never_loads_as_something_else),
    TEST(a_file_name_cannot_forge_a_line_of_a_log),
};

TEST_MAIN(tests)
