/* SPDX-License-Identifier: Apache-2.0
 *
 * What test_step_harness.c runs over every transformation: rows of small pipelines, and
 * a source that yields what the test wants. A new step needs one row in step_rows.c.
 */
#ifndef STG_TESTS_STEP_HARNESS_H
#define STG_TESTS_STEP_HARNESS_H

#include "daemon/dataset/step.h"

/* What a record of the test's source is made of. Record i has `value`, int64: i; `text`,
 * string; `weight`, float32. With STG_ELEMENTS_ND also `grid`, uint8 of [2, 3], and
 * `words`, string of [2]. With STG_ELEMENTS_VARIED instead `list`, int64 of [?]: the
 * elements of one pass differ in shape. */
enum {
    STG_ELEMENTS_SCALAR = 1,
    STG_ELEMENTS_ND = 2,
    STG_ELEMENTS_VARIED = 4,
    STG_ELEMENTS_USUAL = STG_ELEMENTS_SCALAR | STG_ELEMENTS_ND
};

/* What is true of a row, so that it is not held against it. */
enum {
    STG_ROW_RESHUFFLES = 1,    /* after a rewind the same comes in another order */
    STG_ROW_COUNTS_ERRORS = 2, /* with errors in its input its records say other things */
    STG_ROW_DROPS_ERRORS = 4,  /* fewer errors come out than go in */
    STG_ROW_OWN_SOURCE = 8,    /* `range` is range; the input is not varied */
    STG_ROW_THREADS = 1 << 8   /* it has threads: allocations have no order */
};

struct stg_step_row {
    const char *step; /* the transformation that this row is for */
    /* A whole pipeline; $DIR is a folder of the test's own, $CALLS how many threads the
     * step has where it may have some. Unless the row has a source
     * of its own, every `range` in it is the test's source, of at most `stop` records. It
     * must end. */
    const char *pipeline;
    unsigned elements; /* that it takes; 0: the usual ones, each in turn */
    unsigned flags;
    /* What comes out when records 0 to 7 go in, with an error before record 2 and one
     * after the last: of each record the first component, "!" for an error. Only for
     * scalar elements; NULL: not checked. */
    const char *in_place;
    void (*prepare)(void); /* makes files; may be NULL */
    void (*reset)(void);   /* before each run: takes away what the last one left; NULL */
};

/* The usual beginning of a row: a step after a source of 20 records. */
#define STG_AFTER_SOURCE(step) "dataset:\n- range: {stop: 20}\n- " step "\n"

extern const struct stg_step_row stg_step_rows[];
extern const size_t stg_n_step_rows;

/* ---- the source ---- */

#define STG_SOURCE_MAX_ERRORS 8

/* Read by every source of the test while it runs. */
struct stg_test_source {
    bool enabled;      /* `range` is this source */
    unsigned elements; /* one of STG_ELEMENTS_… */
    int64_t n;         /* no more records than this */
    /* Error items stand before these records, rising; before record n: after the last. */
    int64_t errors[STG_SOURCE_MAX_ERRORS];
    int n_errors;
    int64_t fail_at; /* the source fails with DATA_LOSS before this record; -1: never */
};

extern struct stg_test_source stg_test_source;

#endif
