/* SPDX-License-Identifier: Apache-2.0
 *
 * tf.data's unbatch: the first dimension of every component becomes records. The bytes
 * stay where they are. rebatch is this one and a batch.
 */
#ifndef STG_DAEMON_UNBATCH_H
#define STG_DAEMON_UNBATCH_H

#include "daemon/dataset/step.h"

/* As those of stg_transformation; for any step. */
int stg_unbatch_infer(const struct stg_step *step, const struct stg_schema *in,
                      struct stg_bump *bump, struct stg_schema *ret, struct stg_err *err);
int stg_unbatch_create(struct stg_dataset *dataset, const struct stg_step *step,
                       const struct stg_schema *schema, struct stg_iter *input,
                       struct stg_iter **ret, struct stg_err *err);

#endif
