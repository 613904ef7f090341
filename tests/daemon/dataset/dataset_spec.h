/* SPDX-License-Identifier: Apache-2.0
 *
 * Pipelines for tests of datasets, written down in C: no loader in between. Attributes
 * hold what the loader would fill in; what is not set here is taken by the steps' own
 * defaults, which equal the schema's.
 */
#ifndef STG_TESTS_DATASET_SPEC_H
#define STG_TESTS_DATASET_SPEC_H

#include "core/spec.h"
#include "daemon/dataset/dataset.h"

#define STG_TEST_MAX_STEPS 10
#define STG_TEST_MAX_ATTRS 8

struct stg_test_spec {
    struct stg_pipeline_spec spec;
    struct stg_step steps[STG_TEST_MAX_STEPS];
    struct stg_attr attrs[STG_TEST_MAX_STEPS][STG_TEST_MAX_ATTRS];
    struct stg_value values[STG_TEST_MAX_STEPS][STG_TEST_MAX_ATTRS];
    struct stg_value patterns[STG_TEST_MAX_STEPS];
};

/* Appends a step; its line is its number, from 1. */
void stg_test_step(struct stg_test_spec *spec, const char *name);
/* Sets attributes of the last step. */
void stg_test_int(struct stg_test_spec *spec, const char *name, int64_t value);
void stg_test_bool(struct stg_test_spec *spec, const char *name, bool value);
void stg_test_string(struct stg_test_spec *spec, const char *name, const char *value);
/* A list; the values are borrowed. */
void stg_test_list(struct stg_test_spec *spec, const char *name,
                   const struct stg_value *values, size_t n);
void stg_test_pattern(struct stg_test_spec *spec, const char *pattern);

/* The usual beginnings. */
void stg_test_range(struct stg_test_spec *spec, int64_t stop);
void stg_test_lines(struct stg_test_spec *spec, const char *pattern);

/* An environment for uid 0 without a limit. */
struct stg_dataset_env stg_test_env(void);

/* Creates; ends the test when it fails. */
struct stg_dataset *stg_test_open_spec(const struct stg_pipeline_spec *spec,
                                       const struct stg_dataset_env *env);
struct stg_dataset *stg_test_open(const struct stg_test_spec *spec,
                                  const struct stg_dataset_env *env);
/* The next item, or NULL at the end; ends the test on a failure. */
struct stg_block *stg_test_next(struct stg_dataset *dataset);

/* All items of a dataset as text, one line an item: numbers and strings separated by
 * spaces, rows of a batch in brackets, errors as "!CODE", a new epoch as "#N ". The
 * caller frees. Without limit when max_items is 0. */
char *stg_test_render(const struct stg_test_spec *spec, const struct stg_dataset_env *env,
                      int max_items);
char *stg_test_render_spec(const struct stg_pipeline_spec *spec,
                           const struct stg_dataset_env *env, int max_items);

/* The same of a pipeline written in YAML, "$DIR" in it being stg_test_dir(); ends the
 * test when it is refused. Only in tests that link proto (dataset_text.c). */
struct stg_pipeline_spec *stg_test_load(const char *text);
struct stg_dataset *stg_test_open_text(const char *text,
                                       const struct stg_dataset_env *env,
                                       struct stg_pipeline_spec **ret_spec);
char *stg_test_render_text(const char *text, const struct stg_dataset_env *env,
                           int max_items);
/* What check would say: ends the test unless it is refused. Returns err's text. */
const char *stg_test_refused(const char *text);

/* A directory that goes with the test, unless that fails; paths and files in it. They
 * live as long as the process. */
const char *stg_test_dir(void);
const char *stg_test_path(const char *name);
const char *stg_test_file(const char *name, const void *data, size_t bytes);
#define STG_TEST_FILE(name, text) stg_test_file(name, text, sizeof(text) - 1)

#endif
