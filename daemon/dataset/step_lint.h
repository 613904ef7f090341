/* SPDX-License-Identifier: Apache-2.0
 *
 * Orders of steps that are known to be slow, or to do something else than one might
 * think: what tf.data's performance guide says of map, batch, cache, interleave, repeat
 * and shuffle. Advice, never an error.
 */
#ifndef STG_DAEMON_STEP_LINT_H
#define STG_DAEMON_STEP_LINT_H

#include "daemon/dataset/dataset.h"

/* Up to n lines about the steps, which stg_dataset_infer has passed, each in bump. Each
 * rule speaks once. Returns how many: fewer where there is no memory. */
size_t stg_step_lint(const struct stg_pipeline_spec *spec, struct stg_bump *bump,
                     const char **ret, size_t n);

/* Returns whether a shuffle with a buffer of that size holds so little of n elements that
 * each comes out near its place in the input. */
bool stg_step_lint_is_small(uint64_t window, uint64_t n);

#endif
