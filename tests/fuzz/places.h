/* SPDX-License-Identifier: Apache-2.0
 *
 * A mode of fuzz_pipelines: record indexes and trails, as a damaged disk or another
 * writer may have left them.
 */
#ifndef STG_TESTS_FUZZ_PLACES_H
#define STG_TESTS_FUZZ_PLACES_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/dataset/block.h"

/* Returns a hash of the error of a block, or of its tensors. */
uint64_t stg_fuzz_hash_block(const struct stg_block *block);

/* Changes a file that a pass has stored, and continues the pass in its middle. With the
 * sums as they were the same items follow. With sums that fit the changes the pass ends,
 * or fails with a text. */
void stg_fuzz_places(const uint8_t *data, size_t bytes);

void stg_fuzz_places_seeds(void);

#endif
