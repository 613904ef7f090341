/* SPDX-License-Identifier: Apache-2.0
 *
 * One op, its inputs, and what comes out, as a row of a table.
 *
 * A tensor is text: dtype, shape, elements: `float32[2, 2] 1 -0.0 nan 0x1.8p+1`,
 * `string[2] "a" "\x00"`. Floats are read by strtod, which knows "nan(0xc)" too.
 */
#ifndef STG_TESTS_OPS_CASES_H
#define STG_TESTS_OPS_CASES_H

#include "tests/ops/fixture.h"

struct op_case {
    const char *op;
    const char *attrs;
    const char *inputs; /* separated by newlines */
    const char *want;   /* outputs, separated by newlines; NULL: it is refused */
    const char *error;  /* part of the message, or NULL */
    int64_t row;        /* of the error, where one is blamed */
};

/* Runs the case on the stage side, inputs as feeds of unknown shape, and ends the test
 * when anything differs. exact_nan: which NaN it is counts too. */
void op_case_check(const struct op_case *c, bool exact_nan);

/* A tensor from its text; *text moves behind it. Memory from bump. */
struct stg_tensor case_tensor(struct stg_bump *bump, const char **text);

#endif
