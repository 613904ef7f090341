/* SPDX-License-Identifier: Apache-2.0
 *
 * The pipelines of the conformance tests. Item i of a pass holds the number i.
 */
#ifndef STG_TESTS_CONFORMANCE_PIPELINES_H
#define STG_TESTS_CONFORMANCE_PIPELINES_H

#include "tests/conformance/actor.h"

/* Applies "rows": n items of one int64 each. graph: additional graph lines, or ""; the
 * feature is `value`, or the graph's `out`. staged: parameters such as "capacity: 2". */
void apply_rows(struct fixture *fixture, int n, const char *graph, const char *staged);

/* Like apply_rows with replace; returns the code. */
int replace_rows(struct fixture *fixture, int n, const char *graph, const char *staged);

/* Deletes "rows"; returns the code. */
int delete_rows(struct fixture *fixture);

/* An op for the argument `graph`. Items with value % modulus == rest fail with that
 * status code. */
const char *graph_failing(int modulus, int rest, const char *code);

/* An op that takes this long for each item. */
const char *graph_sleeping(int millis);

/* Waits until a counter of "rows" reaches a value. */
#define WAIT_FOR(fixture, field, at_least)                                               \
    wait_counter(fixture, offsetof(struct fixture_status, field), at_least)
void wait_counter(struct fixture *fixture, size_t offset, uint64_t at_least);

void wait_state(struct fixture *fixture, const char *state);

/* Fails the test unless every item is accounted for (core of proto/control.proto). */
void check_accounts(struct fixture *fixture);

/* Fails the test unless values are first, first + step … */
void check_sequence(const int64_t *values, int n, int64_t first, int64_t step);

#endif
