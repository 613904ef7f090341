/* SPDX-License-Identifier: Apache-2.0
 *
 * The steps of a pipeline as a test runs them. Pure functions; any thread.
 */
#ifndef STG_DAEMON_PIPELINE_TEST_REWRITE_H
#define STG_DAEMON_PIPELINE_TEST_REWRITE_H

#include "proto/load.h"

/* Replaces the source of a pipeline: by the values of the test, or the pattern of its
 * `files` by `path` if that is not NULL. Removes the steps that order, repeat, divide or
 * keep elements, and keeps the last batch. All memory is the spec's. INVALID_ARGUMENT:
 * the input does not fit the source; FAILED_PRECONDITION: a test cannot run the pipeline.
 */
int stg_pipeline_test_rewrite(struct stg_pipeline_spec *spec,
                              const struct stg_test_case *test, const char *path,
                              struct stg_err *err);

#endif
