/* SPDX-License-Identifier: Apache-2.0
 *
 * An Arrow stream of numbers for bench_arrow, by the builder of libflatbuffers.
 */
#ifndef STG_BENCH_ARROW_FILE_H
#define STG_BENCH_ARROW_FILE_H

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the schema: columns c0, c1, …, int64 and float32 in turn. */
void bench_arrow_put_schema(FILE *to, int n_columns);
/* Writes the metadata of a record batch whose columns have n_rows and no nulls, and lie
 * one behind the other in its body. */
void bench_arrow_put_batch(FILE *to, int n_columns, long n_rows);

#ifdef __cplusplus
}
#endif

#endif
