/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a row of the step harness and returns the output of its last step as text, one
 * line for each record. Each block is checked on arrival: components, shapes, strings,
 * rows.
 */
#ifndef STG_TESTS_STEP_RUN_H
#define STG_TESTS_STEP_RUN_H

#include <stdio.h>

#include "tests/daemon/dataset/step_harness.h"

struct stg_step_run {
    const struct stg_step_row *row;
    struct stg_pipeline_spec *spec;
    struct stg_schema schema; /* of the output */
    struct stg_bump bump;
    _Atomic int stopped;
    bool notes_marks;            /* of the datasets that are opened from now on */
    uint64_t buffer_bytes;       /* of the datasets; a row never uses up what it has */
    struct stg_dataset *dataset; /* NULL: closed */
    struct stg_quota *quota;
};

/* Loads the row with `parallelism` threads in its step and resets the source: the row's
 * number of records, no errors, the given elements. */
void stg_step_run_init(struct stg_step_run *run, const struct stg_step_row *row,
                       unsigned elements, unsigned calls);
/* The same for a row that may be refused. The caller finishes the run either way. */
int stg_step_run_load(struct stg_step_run *run, const struct stg_step_row *row,
                      unsigned elements, unsigned calls, struct stg_err *err);
void stg_step_run_finish(struct stg_step_run *run);

/* Like stg_dataset_create. */
int stg_step_run_try(struct stg_step_run *run, struct stg_err *err);
void stg_step_run_open(struct stg_step_run *run);
/* Ends the test if released memory is still counted. */
void stg_step_run_close(struct stg_step_run *run);

/* Pulls up to n blocks of at most `want` records, as text if out is not NULL. Returns 0
 * or the code that ended the row. */
int stg_step_run_some(struct stg_step_run *run, int64_t want, int64_t n, FILE *out,
                      struct stg_err *err);

/* Returns the remaining output; requests wants[0], wants[1] … in turn. The caller frees
 * it. Ends the test on failure. */
char *stg_step_run_rest(struct stg_step_run *run, const int64_t *wants, size_t n_wants);

void stg_step_run_rewind(struct stg_step_run *run, bool afresh);

/* Opens, pulls everything by `want`, closes. */
char *stg_step_run_all(struct stg_step_run *run, int64_t want);

/* The same with this many threads that pull in turn. Each one works ahead while another
 * one pulls. */
#define STG_STEP_MAX_THREADS 7
char *stg_step_run_on_threads(struct stg_step_run *run, int64_t want, unsigned n_threads);

/* Pulls an item as stg_dataset_next does, and prints it. Returns its code; ends the test
 * on failure. ret may be NULL. */
int stg_step_run_item(struct stg_step_run *run, FILE *out, struct stg_position *ret);

typedef void stg_step_check(struct stg_step_run *run);

/* Calls the check for every row, with each kind of elements that it accepts. Leaves out
 * rows without threads under ThreadSanitizer: it finds nothing in them. */
void stg_step_over_rows(stg_step_check *check);
/* The same, but a row with several kinds of elements is run with the last of them alone,
 * which has all components of the others: for what does not depend on the shapes. */
void stg_step_over_rows_once(stg_step_check *check);

/* The same for a check that starts threads itself: leaves out no row. */
void stg_step_over_all_rows(stg_step_check *check);

/* Ends the test with the row's name unless got and want are equal. */
void stg_step_run_same(const struct stg_step_run *run, const char *what, const char *got,
                       const char *want);

#endif
