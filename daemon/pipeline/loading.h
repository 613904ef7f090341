/* SPDX-License-Identifier: Apache-2.0
 *
 * States that clients load, as far as the pipeline decides: whether a state is of it, and
 * exact. The data and the run decide the rest (daemon/stage/stage.h). Pure functions.
 */
#ifndef STG_DAEMON_PIPELINE_LOADING_H
#define STG_DAEMON_PIPELINE_LOADING_H

#include "daemon/pipeline/definition.h"

/* Checks the items that clients of a split took, and drops those before the place.
 * FAILED_PRECONDITION: the state is that of one of several consumers, or it has items out
 * of order that this pipeline would not leave out. RESOURCE_EXHAUSTED. */
int stg_loading_check_taken(const struct stg_definition *definition, bool private_run,
                            struct stg_state *state, struct stg_err *err);

/* Reads the state of an open, and compares it with the pipeline. *ret may differ from the
 * text: rows of slices that an element each has are part of its position.
 * INVALID_ARGUMENT: it is no state. FAILED_PRECONDITION names the difference. */
int stg_loading_read(const struct stg_request *request,
                     const struct stg_definition *definition, const struct stg_deal *deal,
                     struct stg_state *ret, struct stg_err *err);

/* Finds the share of the records that clients of this host take; n_hosts 0: all. Sets
 * rank and world_size of the request to those of the host. found: the share, where etcd
 * has the hosts, and the client names its rank on this host alone; NULL: it has not.
 * FAILED_PRECONDITION: the
 * pipeline has `shard: auto`, and the client names no data-parallel rank.
 * INVALID_ARGUMENT: its numbers contradict one another, or the pipeline. */
int stg_loading_divide(struct stg_request *request,
                       const struct stg_definition *definition,
                       const struct stg_deal *found, struct stg_deal *ret,
                       struct stg_err *err);

#endif
