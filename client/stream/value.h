/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors that come from the trainer.
 */
#ifndef STG_CLIENT_STREAM_VALUE_H
#define STG_CLIENT_STREAM_VALUE_H

#include "client/stager.h"
#include "core/err.h"

#define STG_FEED_MAX_BYTES 61440u /* of one in a message */

/* Is a tensor of the trainer's what it says of itself, and no larger than max_bytes? Says
 * how many elements it has. INVALID_ARGUMENT. */
int stg_value_check(const struct stager_tensor *value, uint64_t max_bytes, int64_t *ret_n,
                    struct stg_err *err);

#endif
