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

/* The same, and floats may differ by that much, absolutely or of the wanted value. */
void op_case_check_near(const struct op_case *c, double tolerance);

/* The inputs of the case, and how many outputs it wants (1 where it is refused). Memory
 * from bump; at most OP_CASE_TENSORS of each. */
#define OP_CASE_TENSORS 64
size_t op_case_inputs(const struct op_case *c, struct stg_bump *bump,
                      struct stg_tensor *ret, size_t *ret_n_outputs);

/* The op alone as a pipeline, outputs as features, its node called "y". The caller
 * finishes the fixture, after a failure too. */
int op_case_fixture(const struct op_case *c, const struct stg_tensor *feeds, size_t n,
                    size_t n_outputs, struct fixture *fixture, struct stg_err *err);

/* The graph of that. The caller finishes fixture and graph,
 * after a failure too. */
int op_case_graph(const struct op_case *c, const struct stg_tensor *feeds, size_t n,
                  size_t n_outputs, struct fixture *fixture, struct stg_graph **ret,
                  struct stg_err *err);

/* A tensor from its text; *text moves behind it. Memory from bump. */
struct stg_tensor case_tensor(struct stg_bump *bump, const char **text);

#endif
