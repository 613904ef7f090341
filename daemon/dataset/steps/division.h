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

/* Returns the weights of a step `shard: auto`; NULL: it has none. */
const struct stg_attr *stg_division_weights(const struct stg_step *step);

/* Checks that the pipeline has one such step at most, not in a branch, and that hosts get
 * equally many items behind it, or have weights and no clients that need that.
 * INVALID_ARGUMENT names the step. */
int stg_division_check(const struct stg_pipeline_spec *spec, struct stg_err *err);

/* Checks that a pipeline with weights has one for each host. FAILED_PRECONDITION. */
int stg_division_check_hosts(const struct stg_pipeline_spec *spec,
                             const struct stg_deal *deal, struct stg_err *err);

/* Checks that the pipeline works with hosts that come and go. FAILED_PRECONDITION: it has
 * weights. */
int stg_division_check_elastic(const struct stg_pipeline_spec *spec, struct stg_err *err);

/* Returns the share of a host. A single host of a pipeline with several weights, such as
 * a run without ranks, takes all records. */
struct stg_deal_share stg_division_share(const struct stg_step *step,
                                         const struct stg_deal *deal);

/* Returns the weight of this host for its states; 0: the pipeline has no weights. */
uint32_t stg_division_weight(const struct stg_pipeline_spec *spec,
                             const struct stg_deal *deal);

/* Makes a state of another number of hosts one of `deal`: the division begins anew at
 * the first record that no host has taken. Leaves a state of as many hosts, and of a host
 * of the same weight, as it is. FAILED_PRECONDITION: the pipeline does not say which
 * record that is, or the host has another weight. */
int stg_division_restate(const struct stg_pipeline_spec *spec,
                         const struct stg_deal *deal, struct stg_state *state,
                         struct stg_err *err);

#endif
