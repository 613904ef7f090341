/* SPDX-License-Identifier: Apache-2.0
 *
 * Pipelines for tests of datasets, written in C without a loader. Attributes hold the
 * values that the loader would fill in. Steps use their defaults for unset attributes;
 * these equal the schema's.
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

/* Appends a step. Its line is its number, from 1. */
void stg_test_step(struct stg_test_spec *spec, const char *name);
/* Set attributes of the last step. */
void stg_test_int(struct stg_test_spec *spec, const char *name, int64_t value);
void stg_test_bool(struct stg_test_spec *spec, const char *name, bool value);
void stg_test_string(struct stg_test_spec *spec, const char *name, const char *value);
/* A list; the values are borrowed. */
void stg_test_list(struct stg_test_spec *spec, const char *name,
                   const struct stg_value *values, size_t n);
void stg_test_pattern(struct stg_test_spec *spec, const char *pattern);

/* The usual first steps. */
void stg_test_range(struct stg_test_spec *spec, int64_t stop);
void stg_test_lines(struct stg_test_spec *spec, const char *pattern);

/* Returns an environment for uid 0 without a limit. */
struct stg_dataset_env stg_test_env(void);

/* Creates a dataset; ends the test on failure. */
struct stg_dataset *stg_test_open_spec(const struct stg_pipeline_spec *spec,
                                       const struct stg_dataset_env *env);
struct stg_dataset *stg_test_open(const struct stg_test_spec *spec,
                                  const struct stg_dataset_env *env);
/* Returns the next item, or NULL at the end; ends the test on failure. */
struct stg_block *stg_test_next(struct stg_dataset *dataset);

/* Returns all items of a dataset as text, one line for each item: numbers and strings
 * separated by spaces, rows of a batch in brackets, errors as "!CODE", a new epoch as "#N
 * ". The caller frees it. max_items 0: no limit. */
char *stg_test_render(const struct stg_test_spec *spec, const struct stg_dataset_env *env,
                      int max_items);
char *stg_test_render_spec(const struct stg_pipeline_spec *spec,
                           const struct stg_dataset_env *env, int max_items);

/* The same for a pipeline in YAML, where "$DIR" stands for stg_test_dir(). Ends the test
 * if it is refused. Only in tests that link proto (dataset_text.c). */
struct stg_pipeline_spec *stg_test_load(const char *text);
struct stg_dataset *stg_test_open_text(const char *text,
                                       const struct stg_dataset_env *env,
                                       struct stg_pipeline_spec **ret_spec);
char *stg_test_render_text(const char *text, const struct stg_dataset_env *env,
                           int max_items);
/* Returns the error that check would report. Ends the test unless the pipeline is
 * refused. */
const char *stg_test_refused(const char *text);

/* A directory that is removed if the test succeeds, and paths and files in it. The
 * strings live as long as the process. */
const char *stg_test_dir(void);
/* Makes that directory in memory if the system can: a sync costs nothing there. Call it
 * before any other function of these. */
void stg_test_dir_in_memory(void);
const char *stg_test_path(const char *name);
const char *stg_test_file(const char *name, const void *data, size_t bytes);
#define STG_TEST_FILE(name, text) stg_test_file(name, text, sizeof(text) - 1)

/* Returns the bytes that this process has read so far, from files and the page cache. */
uint64_t stg_test_bytes_read(void);

#endif
