/* SPDX-License-Identifier: Apache-2.0
 *
 * What the harnesses run every op with: one row or more for each. A new op needs one; the
 * rows of a golden table are rows here too. What a row wants is looked at by the tests of
 * its table, not here.
 */
#ifndef STG_TESTS_OP_ROWS_H
#define STG_TESTS_OP_ROWS_H

#include "tests/ops/cases.h"

extern const struct op_case op_rows[];
extern const size_t n_op_rows;

#endif
