/* SPDX-License-Identifier: Apache-2.0
 *
 * A mode of fuzz_peers in which the input is the workers of a step py_function.
 */
#ifndef STG_TESTS_FUZZ_PYWORKER_H
#define STG_TESTS_FUZZ_PYWORKER_H

#include <stddef.h>
#include <stdint.h>

/* A pipeline, then several calls of its function, with two workers: batches of drawn
 * shapes with changed bytes, errors, any bytes, messages without a request,
 * descriptors, hangups. What is taken fits the declared types, is inside memory, and does
 * not change with the worker's memory if an op is to read it. Afterwards no memory is
 * counted, and no descriptor is open. */
void stg_fuzz_pyworker(const uint8_t *data, size_t bytes);

void stg_fuzz_pyworker_seeds(void);

#endif
