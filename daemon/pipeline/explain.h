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

#endif
