/* SPDX-License-Identifier: Apache-2.0
 *
 * One pipeline with every feature of the format, as YAML and as JSON.
 */
#ifndef STG_TESTS_PROTO_EXAMPLE_H
#define STG_TESTS_PROTO_EXAMPLE_H

static const char example_yaml[] =
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
    "  num_clients: 3\n"
    "  timeout_millis: 1000\n"
    "  delivery: broadcast\n"
    "targets: [rows]\n";

/* As written by Python's json.dumps, on one line. */
static const char example_json[] =
    "{\"name\": \"criteo\", \"dataset\": [{\"files\": {\"pattern\": "
    "[\"/data/criteo/*.csv\"], \"shuffle\": true, \"seed\": 7}}, {\"text_line\": "
    "{\"skip_header_lines\": 1}}, {\"shuffle\": {\"buffer_size\": 65536, \"seed\": 7, "
    "\"reshuffle_each_iteration\": true}}, {\"repeat\": {\"count\": 3}}, {\"batch\": "
    "{\"batch_size\": 4096, \"drop_remainder\": true}}], \"graph\": [{\"name\": "
    "\"columns\", \"op\": \"decode_csv\", \"input\": [\"record\"], \"record_defaults\": "
    "[0, "
    "0.0, \"\"]}, {\"name\": \"ids\", \"op\": \"string_to_hash_bucket_fast\", \"input\": "
    "[\"columns:2\"], \"num_buckets\": 1000000}, {\"name\": \"table\", \"op\": "
    "\"variable\", \"shape\": [1000000, 16], \"initializer\": \"ones\"}, {\"name\": "
    "\"rows\", \"op\": \"embedding_lookup\", \"input\": [\"table\", \"staged:ids\"]}], "
    "\"staged\": {\"features\": {\"label\": \"columns:0\", \"ids\": \"ids\"}, "
    "\"capacity\": 4, \"num_threads\": 2, \"num_clients\": 3, \"timeout_millis\": 1000, "
    "\"delivery\": \"broadcast\"}, \"targets\": [\"rows\"]}";

#endif
