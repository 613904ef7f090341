/* SPDX-License-Identifier: Apache-2.0
 *
 * The inputs with which the harnesses run every op: one row or more for each. A new op
 * needs one; the rows of a golden table are rows here too. The tests of an op's table
 * check the expected results, not the harnesses.
 */
#ifndef STG_TESTS_OP_ROWS_H
#define STG_TESTS_OP_ROWS_H

#include "tests/ops/cases.h"

extern const struct op_case op_rows[];
extern const size_t n_op_rows;

#endif
