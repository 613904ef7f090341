/* SPDX-License-Identifier: Apache-2.0
 *
 * Datasets written as text, as in a pipeline file.
 */
#ifndef STG_TESTS_DATASET_YAML_H
#define STG_TESTS_DATASET_YAML_H

#include "tests/daemon/dataset/dataset_spec.h"

/* Loads a dataset; ends the test on failure. The spec lives until the next one is
 * loaded. */
struct stg_test_spec *stg_test_yaml(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));

/* Ends the test unless the dataset yields these items (stg_test_render). */
void stg_test_yaml_items(const char *text, const char *want);

/* Ends the test unless the dataset is refused with a text that contains `part`. */
void stg_test_yaml_refused(const char *text, const char *part);

/* Returns the text of the first error item. The caller frees it. */
char *stg_test_yaml_error(const char *text);

#endif
