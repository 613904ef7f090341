/* SPDX-License-Identifier: Apache-2.0
 *
 * One op, its inputs and its results, as a row of a table.
 *
 * A tensor is text: dtype, shape, elements: `float32[2, 2] 1 -0.0 nan 0x1.8p+1`,
 * `string[2] "a" "\x00"`. strtod reads floats, including "nan(0xc)".
 */
#ifndef STG_TESTS_OPS_CASES_H
#define STG_TESTS_OPS_CASES_H

#include "tests/ops/fixture.h"

struct op_case {
    const char *op;
    const char *attrs;
    const char *inputs; /* separated by newlines */
    const char *want;   /* outputs, separated by newlines; NULL: the op refuses */
    const char *error;  /* part of the message, or NULL */
    int64_t row;        /* the row that the error names, if any */
};

/* Runs the case on the stage side with inputs as feeds of unknown shape. Ends the test if
 * a result differs. exact_nan: the bits of a NaN count too. */
void op_case_check(const struct op_case *c, bool exact_nan);

/* The same, but floats may differ by that amount, absolute or relative to the expected
 * value. */
void op_case_check_near(const struct op_case *c, double tolerance);

/* The inputs of the case, and the number of expected outputs (1 if it is refused). Memory
 * from bump; at most OP_CASE_TENSORS of each. */
#define OP_CASE_TENSORS 64
size_t op_case_inputs(const struct op_case *c, struct stg_bump *bump,
                      struct stg_tensor *ret, size_t *ret_n_outputs);

/* Makes a pipeline of the op alone, outputs as features, its node called "y". The caller
 * finishes the fixture, after a failure too. */
int op_case_fixture(const struct op_case *c, const struct stg_tensor *feeds, size_t n,
                    size_t n_outputs, struct fixture *fixture, struct stg_err *err);

/* Makes the graph of that pipeline. The caller finishes fixture and graph, after a
 * failure too. */
int op_case_graph(const struct op_case *c, const struct stg_tensor *feeds, size_t n,
                  size_t n_outputs, struct fixture *fixture, struct stg_graph **ret,
                  struct stg_err *err);

/* Parses a tensor from its text; *text moves behind it. Memory from bump. */
struct stg_tensor case_tensor(struct stg_bump *bump, const char **text);

#endif
