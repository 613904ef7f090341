/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal to daemon/dataset: `shard: auto`, the share of this host in records that all
 * hosts of a job divide (core/division/deal.h). A round is yielded when all of its
 * records are there, so that each host yields equally many.
 */
#ifndef STG_DAEMON_STEP_SHARD_AUTO_H
#define STG_DAEMON_STEP_SHARD_AUTO_H

#include "daemon/dataset/step.h"

/* Implement infer and create of the step `shard` with num_shards: auto. */
int stg_shard_auto_infer(const struct stg_step *step, struct stg_err *err);
int stg_shard_auto_create(struct stg_dataset *dataset, const struct stg_step *step,
                          const struct stg_schema *schema, struct stg_iter *input,
                          struct stg_iter **ret, struct stg_err *err);

#endif
