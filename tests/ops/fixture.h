/* SPDX-License-Identifier: Apache-2.0
 *
 * Small graphs for the tests of ops/, written as text, one statement a line:
 *
 *     element record string [-1]                      a component of the dataset's
 * element columns = decode_csv(record) record_defaults=[0, 0.0, "", null] feature label =
 * columns:0                       a leaf of staged.features target rows
 *
 * Values are integers, floats (with a point, an exponent, inf or nan), true, false, null,
 * "strings" with \xNN, \\ and \", and nested lists. A node's line number is its line in
 * the text.
 */
#ifndef STG_TESTS_OPS_FIXTURE_H
#define STG_TESTS_OPS_FIXTURE_H

#include "ops/exec/run.h"

struct fixture {
    struct stg_pipeline_spec spec; /* its bump owns everything */
    struct stg_schema element;
};

/* Returns 0, or INVALID_ARGUMENT with the invalid line. The caller calls
 * fixture_finish. */
int fixture_parse(struct fixture *fixture, const char *text, struct stg_err *err);
void fixture_finish(struct fixture *fixture);

/* The vocabularies of the graph, from their files. */
int fixture_tables(struct stg_graph *graph, struct stg_err *err);

/* A graph with its stage executor. */
struct fixture_stage {
    struct fixture fx;
    struct stg_graph *graph;
    struct stg_run *run;
    struct stg_bump bump; /* for the test's tensors */
};

/* Ends the test if the text is invalid. */
void fixture_stage_init(struct fixture_stage *stage, const char *text);
void fixture_stage_finish(struct fixture_stage *stage);

/* Tensors by hand; memory from bump. */
struct stg_tensor fixture_strings(struct stg_bump *bump, size_t n, const char *const *s);
struct stg_tensor fixture_dense(struct stg_bump *bump, int dtype, int ndim,
                                const int64_t *shape, const void *data);

#endif
