/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules of `shard: auto`, which divides records among the hosts of a job: what may
 * stand behind it, and what a state of one number of hosts is for another number. Pure
 * functions; any thread.
 */
#ifndef STG_DAEMON_DATASET_DIVISION_H
#define STG_DAEMON_DATASET_DIVISION_H

#include "core/division/deal.h"
#include "core/spec.h"
#include "core/state.h"

/* Returns whether the step is `shard: auto`. */
bool stg_division_is(const struct stg_step *step);

/* Returns the step `shard: auto` of a pipeline; NULL: it has none. */
const struct stg_step *stg_division_find(const struct stg_pipeline_spec *spec);

/* Checks that the pipeline has one such step at most, not in a branch, and that hosts get
 * equally many items behind it. INVALID_ARGUMENT names the step. */
int stg_division_check(const struct stg_pipeline_spec *spec, struct stg_err *err);

/* Makes a state of another number of hosts one of `deal`: the division begins anew at
 * the first record that no host has taken. Leaves a state of as many hosts as it is.
 * FAILED_PRECONDITION: the pipeline does not say which record that is. */
int stg_division_restate(const struct stg_pipeline_spec *spec,
                         const struct stg_deal *deal, struct stg_state *state,
                         struct stg_err *err);

#endif
