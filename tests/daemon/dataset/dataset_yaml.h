/* SPDX-License-Identifier: Apache-2.0
 *
 * Datasets of tests that are written as text, as in a pipeline file.
 */
#ifndef STG_TESTS_DATASET_YAML_H
#define STG_TESTS_DATASET_YAML_H

#include "tests/daemon/dataset/dataset_spec.h"

/* Loads; ends the test when that fails. The spec lives until the next one is
 * loaded. */
struct stg_test_spec *stg_test_yaml(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));

/* Ends the test unless these items come out (stg_test_render). */
void stg_test_yaml_items(const char *text, const char *want);

/* Ends the test unless the dataset is refused, with a text that has `part` in it. */
void stg_test_yaml_refused(const char *text, const char *part);

/* The text of the first error item. The caller frees. */
char *stg_test_yaml_error(const char *text);

#endif
