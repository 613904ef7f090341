/* SPDX-License-Identifier: Apache-2.0
 *
 * `stagerctl explain`: what a pipeline is made of, what each part of it takes, where it
 * is partitioned and what holds it up. Belongs to the loop.
 */
#ifndef STG_DAEMON_PIPELINE_EXPLAIN_H
#define STG_DAEMON_PIPELINE_EXPLAIN_H

#include "daemon/pipeline/catalog.h"

/* Of the running instance; of the last one when there is none. Strings live in bump or as
 * long as the pipeline. RESOURCE_EXHAUSTED. */
int stg_explain_fill(struct stg_pipeline *pipeline, struct stg_bump *bump,
                     struct stg_explain *ret, struct stg_err *err);

/* Keeps a result of a client of the pipeline. Without memory it is lost. */
void stg_explain_add_replay(struct stg_pipeline *pipeline,
                            const struct stg_replay_result *result);

#endif
