/* SPDX-License-Identifier: Apache-2.0
 *
 * Modes of fuzz_texts in which the input is a file of state_dir.
 */
#ifndef STG_TESTS_FUZZ_STORED_H
#define STG_TESTS_FUZZ_STORED_H

#include <stddef.h>
#include <stdint.h>

/* An earlier definition of a pipeline, with a sum that fits, or without. */
void stg_fuzz_versions(const uint8_t *data, size_t bytes);

/* The partitions of earlier runs, with a sum that fits. What loads is saved, and loads
 * again as the same. */
void stg_fuzz_priors(const uint8_t *data, size_t bytes);

void stg_fuzz_stored_seeds(void);

#endif
