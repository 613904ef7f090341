/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows like Criteo's: label, 13 numbers such as "260.0", 26 strings of 8 hexadecimal
 * digits, empty as often as in the real ones. The same ones each time.
 */
#ifndef STG_TESTS_BENCH_CRITEO_H
#define STG_TESTS_BENCH_CRITEO_H

#include <stddef.h>
#include <stdint.h>

#define CRITEO_NUMBERS 13
#define CRITEO_STRINGS 26
#define CRITEO_MAX_ROW_BYTES 512

/* Writes the next row of *state, without a line end; returns its bytes. */
size_t criteo_row(uint64_t *state, char delim, char *to);

/* Writes a file of n_rows lines into /tmp; returns its bytes. path: room for 64. */
uint64_t criteo_file(size_t n_rows, char delim, char *path);

#endif
