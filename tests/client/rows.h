/* SPDX-License-Identifier: Apache-2.0
 *
 * Staged batches with every kind of tensor, computed from row numbers, and the expected
 * contents of a batch or slice of the rows [first, first + n), computed the same way.
 *
 *   x      int64 [n]        the row's number
 *   words  string [n, 2]    "a<r>" and r % 3 times "b"
 *   pad    float32 [n, 3]   r, r / 2, -r
 *   one    int32 []         42
 *   ids    ragged int32     r % 3 values: 10 r, 10 r + 1
 *   tags   ragged string    r % 2 values: "t<r>"
 *   hot    sparse float64   [n, 5]; r + 0.5 at column r % 5, unless r % 4 is 0
 */
#ifndef STG_TESTS_CLIENT_ROWS_H
#define STG_TESTS_CLIENT_ROWS_H

#include "tests/client/fake.h"

/* The boundary of such batches; `rows` is the first dimension, -1 if unknown. */
struct stg_schema rows_boundary(int64_t rows);

/* Publishes the rows [first, first + n), n at most 64, with fake_publish. */
void rows_publish(struct fake *fake, uint32_t slot, uint64_t number, int64_t first,
                  int64_t n);

/* Fails the test unless the batch or slice holds exactly the rows [first, first + n). */
void rows_check(const struct stager_batch *batch, int64_t first, int64_t n);

#endif
