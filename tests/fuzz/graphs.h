/* SPDX-License-Identifier: Apache-2.0
 *
 * A mode of fuzz_pipelines: graphs of ops over tensors.
 */
#ifndef STG_TESTS_FUZZ_GRAPHS_H
#define STG_TESTS_FUZZ_GRAPHS_H

#include "tests/fuzz/fuzz.h"

/* Nodes after rows of op_rows.c, with changed attributes, over outputs of other nodes or
 * fed tensors with changed elements and rows. A graph is refused with a text, or each of
 * its outputs has the inferred type, lies in memory, and is the same a second time. */
void stg_fuzz_graph(const uint8_t *data, size_t bytes);

/* A seed for each row. */
void stg_fuzz_graph_seeds(void);

/* Copies a text whose numbers the input changes. Those behind the word `but` (NULL: none)
 * stay. */
void stg_fuzz_numbers(struct stg_fuzz_input *input, const char *text, const char *but,
                      char *ret, size_t bytes);

#endif
