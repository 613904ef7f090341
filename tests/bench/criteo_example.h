/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of criteo.h as tf.train.Example: label and 13 integers, 26 strings, keys
 * "label", "I1" to "I13", "C1" to "C26". Empty fields and -1 are missing features.
 */
#ifndef STG_TESTS_BENCH_CRITEO_EXAMPLE_H
#define STG_TESTS_BENCH_CRITEO_EXAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CRITEO_MAX_EXAMPLE_BYTES 2048

/* Writes the next row of *state; returns its size in bytes. shuffled: with its keys in
 * random order. */
size_t criteo_example(uint64_t *state, bool shuffled, uint8_t *to);

/* Writes a TFRecord file of n_rows rows; returns its size in bytes. Ends the program on
 * failure. */
uint64_t criteo_example_file(size_t n_rows, const char *path);

/* Writes the text of a pipeline over such a file, which it reads without end: every
 * feature parsed, the strings hashed or unchanged, batches of CRITEO_BATCH_ROWS. staged:
 * additional lines of `staged`, "capacity: 4". to: room for CRITEO_PIPELINE_BYTES. */
void criteo_example_pipeline(const char *name, const char *path, bool hashed,
                             const char *staged, char *to);

#endif
