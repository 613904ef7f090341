/* SPDX-License-Identifier: Apache-2.0
 *
 * A row of the step harness that runs: what its last step yields, as text, one line a
 * record. Each block is looked at as it comes: components, shapes, strings, rows.
 */
#ifndef STG_TESTS_STEP_RUN_H
#define STG_TESTS_STEP_RUN_H

#include <stdio.h>

#include "tests/daemon/dataset/step_harness.h"

struct stg_step_run {
    const struct stg_step_row *row;
    struct stg_pipeline_spec *spec;
    struct stg_schema schema; /* of what comes out */
    struct stg_bump bump;
    _Atomic int stopped;
    struct stg_dataset *dataset; /* NULL: closed */
    struct stg_quota *quota;
};

/* Loads the row, its own threads being `calls`, and makes the source's settings the usual
 * ones: as many records as the row says, no errors, of the given elements. */
void stg_step_run_init(struct stg_step_run *run, const struct stg_step_row *row,
                       unsigned elements, unsigned calls);
void stg_step_run_finish(struct stg_step_run *run);

/* As stg_dataset_create. */
int stg_step_run_try(struct stg_step_run *run, struct stg_err *err);
void stg_step_run_open(struct stg_step_run *run);
/* Ends the test when memory is still counted that was given back. */
void stg_step_run_close(struct stg_step_run *run);

/* Up to n blocks of at most `want` records; with out not NULL, as text. 0, or what ended
 * it. */
int stg_step_run_some(struct stg_step_run *run, int64_t want, int64_t n, FILE *out,
                      struct stg_err *err);

/* What is left, with wants[0], wants[1] … asked for in turn. The caller frees. Ends the
 * test on a failure. */
char *stg_step_run_rest(struct stg_step_run *run, const int64_t *wants, size_t n_wants);

void stg_step_run_rewind(struct stg_step_run *run);

/* Opens, takes all by `want`, closes. */
char *stg_step_run_all(struct stg_step_run *run, int64_t want);

/* The same with so many threads drawing in turn, each of which works ahead while others
 * draw. */
#define STG_STEP_MAX_THREADS 7
char *stg_step_run_on_threads(struct stg_step_run *run, int64_t want, unsigned n_threads);

/* Ends the test unless got and want are equal; says which row it is. */
void stg_step_run_same(const struct stg_step_run *run, const char *what, const char *got,
                       const char *want);

#endif
