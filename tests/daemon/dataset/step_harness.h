/* SPDX-License-Identifier: Apache-2.0
 *
 * The inputs of test_step_harness.c, which tests every transformation: rows of small
 * pipelines, and a source with configurable elements. A new step needs one row in
 * step_rows.c.
 */
#ifndef STG_TESTS_STEP_HARNESS_H
#define STG_TESTS_STEP_HARNESS_H

#include "daemon/dataset/step.h"

/* The components of a record of the test's source. Record i has `value`, int64: i;
 * `text`, string; `weight`, float32. STG_ELEMENTS_ND adds `grid`, uint8 of [2, 3], and
 * `words`, string of [2]. STG_ELEMENTS_VARIED adds `list`, int64 of [?], instead: the
 * elements of one pass differ in shape. */
enum {
    STG_ELEMENTS_SCALAR = 1,
    STG_ELEMENTS_ND = 2,
    STG_ELEMENTS_VARIED = 4,
    STG_ELEMENTS_USUAL = STG_ELEMENTS_SCALAR | STG_ELEMENTS_ND
};

/* Properties of a row that exempt it from a check. */
enum {
    STG_ROW_RESHUFFLES = 1,    /* after a rewind the same records come in another order */
    STG_ROW_COUNTS_ERRORS = 2, /* with errors in its input the records differ */
    STG_ROW_DROPS_ERRORS = 4,  /* it yields fewer errors than its input has */
    STG_ROW_OWN_SOURCE = 8,    /* `range` is the real step; the input is not varied */
    STG_ROW_THREADS = 1 << 8,  /* it has threads, so allocations have no fixed order */
    STG_ROW_AHEAD = 1 << 9     /* it has a thread, and allocations have an order */
};

struct stg_step_row {
    const char *step; /* the transformation that this row tests */
    /* A whole pipeline. $DIR is a folder of the test; $CALLS is the number of threads of
     * the step, if the step can have some. Every `range` in it is the test's source with
     * at most `stop` records, unless the row uses the real `range`. The pipeline must
     * end. */
    const char *pipeline;
    unsigned elements; /* elements that it accepts; 0: the usual ones, each in turn */
    unsigned flags;
    /* The expected output for records 0 to 7 with an error before record 2 and one after
     * the last: of each record the first component, "!" for an error. Only for scalar
     * elements; NULL: not checked. */
    const char *in_place;
    void (*prepare)(void); /* makes files; may be NULL */
    /* before each run: removes the files of the last one; may be NULL */
    void (*reset)(void);
    struct stg_deal deal; /* of `shard: auto`; n_hosts 0: a run of no job */
};

/* The usual start of a row: a step after a source of 20 records. */
#define STG_AFTER_SOURCE(step) "dataset:\n- range: {stop: 20}\n- " step "\n"

extern const struct stg_step_row stg_step_rows[];
extern const size_t stg_n_step_rows;

/* Returns the text of a pipeline drawn at random (step_random.c). The caller frees it. */
char *stg_step_draw(uint64_t seed);

/* ---- the source ---- */

#define STG_SOURCE_MAX_ERRORS 8

/* Every source of the test reads it while it runs. */
struct stg_test_source {
    bool enabled;      /* `range` is this source */
    unsigned elements; /* one of STG_ELEMENTS_… */
    int64_t n;         /* the largest number of records */
    /* Error items stand before the records with these numbers, in rising order. Number n:
     * after the last record. */
    int64_t errors[STG_SOURCE_MAX_ERRORS];
    int n_errors;
    int64_t fail_at;  /* the source fails with DATA_LOSS before this record; -1: never */
    bool cannot_skip; /* what is skipped is produced */
    _Atomic int64_t n_made; /* records that were produced */
};

extern struct stg_test_source stg_test_source;

void stg_test_source_set_errors(const int64_t *errors, int n);

#endif
