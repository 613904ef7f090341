/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares a tensor with the value that a test expects. Pure functions; any thread.
 */
#ifndef STG_DAEMON_PIPELINE_TEST_COMPARE_H
#define STG_DAEMON_PIPELINE_TEST_COMPARE_H

#include "core/batch.h"
#include "core/spec.h"

/* Of a test. Texts live in the bump of the differences. */
struct stg_difference {
    size_t batch;
    const char *feature;
    const char *what;  /* "value", "shape", "dtype" */
    const char *index; /* "[1][0]" of a value, else "" */
    const char *expected, *got;
};

/* The first ones of a feature are kept, all are counted. */
#define STG_DIFFERENCES_OF_FEATURE 5

struct stg_differences {
    struct stg_bump bump;
    struct stg_difference all[64];
    size_t n, n_more; /* n_more: that are not kept */
};

/* Adds the differences of a feature. Floats are equal if they differ by at most
 * `tolerance` times the larger of 1 and the expected one, and a NaN equals a NaN. */
void stg_differences_add(struct stg_differences *to, size_t batch,
                         const struct stg_attr *expected, const struct stg_tensor *got,
                         double tolerance);

#endif
