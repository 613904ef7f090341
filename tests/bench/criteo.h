/* SPDX-License-Identifier: Apache-2.0
 *
 * Criteo-like rows: label, 13 numbers such as "260.0", 26 strings of 8 hexadecimal
 * digits, with the real rate of empty fields. The rows are the same each time. And the
 * pipeline that makes batches of them.
 */
#ifndef STG_TESTS_BENCH_CRITEO_H
#define STG_TESTS_BENCH_CRITEO_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/batch.h"
#include "core/bump.h"

#define CRITEO_NUMBERS 13
#define CRITEO_STRINGS 26
#define CRITEO_MAX_ROW_BYTES 512

/* Writes the next row of *state, without a line end; returns its size in bytes. */
size_t criteo_row(uint64_t *state, char delim, char *to);

/* Makes rows with commas, in bump: max_rows of them, or until they reach max_bytes, with
 * the offset of each. */
struct stg_tensor criteo_records(struct stg_bump *bump, int64_t max_rows,
                                 uint64_t max_bytes);

/* Writes a file of n_rows lines; returns its size in bytes. Ends the program on
 * failure. */
uint64_t criteo_write(size_t n_rows, char delim, const char *path);

/* Like criteo_write, to a new file in /tmp; returns its size in bytes. path: room for
 * 64. */
uint64_t criteo_file(size_t n_rows, char delim, char *path);

#define CRITEO_PIPELINE_BYTES 8192
#define CRITEO_BATCH_ROWS 4096

/* Nodes of a graph in YAML: `columns` decodes every column of the input's rows; ids0 to
 * ids25 hash its strings into n_buckets. */
void criteo_nodes(const char *input, int n_buckets, FILE *to);

/* Writes the text of a pipeline over a comma-separated file: every column decoded, the
 * strings hashed, batches of CRITEO_BATCH_ROWS with all columns as features. repeat: how
 * often a pass reads the file, "{count: 4}"; staged: additional lines of `staged`,
 * "capacity: 4". to: room for CRITEO_PIPELINE_BYTES. */
void criteo_pipeline(const char *name, const char *path, const char *repeat,
                     const char *staged, char *to);

#endif
