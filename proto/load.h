/* SPDX-License-Identifier: Apache-2.0
 *
 * YAML (or JSON) text -> message of proto/pipeline.proto -> core/spec.h. One generic
 * loader over protobuf-c's descriptors: a new field needs no code here. Opens no file.
 * Any thread.
 *
 * Errors are INVALID_ARGUMENT and read "FILE:LINE:COLUMN: staged.capacity: …"; an unknown
 * key suggests the nearest known one.
 */
#ifndef STG_PROTO_LOAD_H
#define STG_PROTO_LOAD_H

#include "core/spec.h"
#include "proto/wire.h" /* STG_TEXT_MAX_BYTES */

/* `file` is for messages only. The caller destroys *ret with stg_pipeline_spec_destroy.
 */
int stg_load_pipeline(const char *text, size_t bytes, const char *file,
                      struct stg_pipeline_spec **ret, struct stg_err *err);

/* A test of a pipeline (docs/stagerctl.md, test). */
struct stg_test_batch {
    const struct stg_attr *values; /* by feature, or by target */
    size_t n;
};

struct stg_test_case {
    const char *name;
    const struct stg_attr *input; /* by component; the only one may have no name, "" */
    size_t n_input;
    bool has_input;
    const char *text; /* of a file to read; or NULL */
    const char *file; /* likewise its path */
    const struct stg_test_batch *batches;
    size_t n_batches;
    const char *error; /* NULL, or a code and a part of the text: "DATA_LOSS field 3" */
    double tolerance;
    int line, column;
};

struct stg_test_cases {
    const char *pipeline; /* the path of its file */
    const struct stg_test_case *tests;
    size_t n_tests;
    struct stg_bump bump; /* owns all of the above */
};

/* Of a file of tests. The caller calls stg_bump_finish on ret->bump. */
int stg_load_tests(const char *text, size_t bytes, const char *file,
                   struct stg_test_cases *ret, struct stg_err *err);

/* ret is filled (all defaults when text is empty); the caller calls stg_settings_finish.
 */
int stg_load_settings(const char *text, size_t bytes, const char *file,
                      struct stg_settings *ret, struct stg_err *err);

struct sockaddr_storage; /* of <sys/socket.h> */

/* Parses an address of settings, "127.0.0.1:9464" or "[::1]:9464". Resolves no name.
 * INVALID_ARGUMENT. */
int stg_load_address(const char *text, struct sockaddr_storage *ret, struct stg_err *err);

#endif
