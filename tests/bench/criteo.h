/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows like Criteo's: label, 13 numbers such as "260.0", 26 strings of 8 hexadecimal
 * digits, empty as often as in the real ones. The same ones each time. And the pipeline
 * that makes batches of them.
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

/* Writes the next row of *state, without a line end; returns its bytes. */
size_t criteo_row(uint64_t *state, char delim, char *to);

/* Rows with commas, in bump: max_rows of them, or what reaches max_bytes with the offsets
 * of each. */
struct stg_tensor criteo_records(struct stg_bump *bump, int64_t max_rows,
                                 uint64_t max_bytes);

/* Writes a file of n_rows lines; returns its bytes. Ends the program where it cannot. */
uint64_t criteo_write(size_t n_rows, char delim, const char *path);

/* As criteo_write, a new file in /tmp; returns its bytes. path: room for 64. */
uint64_t criteo_file(size_t n_rows, char delim, char *path);

#define CRITEO_PIPELINE_BYTES 8192
#define CRITEO_BATCH_ROWS 4096

/* Nodes of a graph in YAML: `columns`, which decodes every column of the input's rows,
 * and ids0 to ids25, its strings in n_buckets. */
void criteo_nodes(const char *input, int n_buckets, FILE *to);

/* The text of a pipeline over a file of commas: every column decoded, the strings hashed,
 * batches of CRITEO_BATCH_ROWS, all of them features. repeat: how often the file is read
 * in a pass, "{count: 4}"; staged: more of `staged`, "capacity: 4". to: room for
 * CRITEO_PIPELINE_BYTES. */
void criteo_pipeline(const char *name, const char *path, const char *repeat,
                     const char *staged, char *to);

#endif
