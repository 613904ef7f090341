/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the tests of a file, in this process. One thread.
 */
#ifndef STG_DAEMON_PIPELINE_TEST_H
#define STG_DAEMON_PIPELINE_TEST_H

#include <stdbool.h>

/* Prints a line for each test and its differences, or one object of JSON. Returns the
 * exit status: 0, or 1 if a test failed or the file is wrong. */
int stg_pipeline_test_run(const char *file, bool json);

#endif
