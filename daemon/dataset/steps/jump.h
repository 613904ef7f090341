/* SPDX-License-Identifier: Apache-2.0
 *
 * Jumps: a dataset that passes over items in the middle of a pass, without reading them,
 * because they are made elsewhere. Only pipelines whose items have numbers can, and only
 * where no element before the jump, or in it, is an error.
 */
#ifndef STG_DAEMON_STEP_JUMP_H
#define STG_DAEMON_STEP_JUMP_H

#include "daemon/dataset/dataset.h"

/* Checks that every step of the pipeline passes over items in a time that does not depend
 * on their number, and makes none of them ahead. INVALID_ARGUMENT names the step that
 * does not. */
int stg_jump_check(const struct stg_pipeline_spec *spec, struct stg_err *err);

/* Passes over the next n items. *ret_n: how many there were, less than n only at the end.
 * *ret: the position after the last of them, if there was one; *ret_epoch: the epoch of
 * the first of them. FAILED_PRECONDITION: one of them is an error. After a failure only
 * destroy may follow. */
int stg_dataset_jump(struct stg_dataset *dataset, uint64_t n, uint64_t *ret_n,
                     struct stg_position *ret, uint64_t *ret_epoch, struct stg_err *err);

/* Returns the items of the pass before the next one. */
uint64_t stg_dataset_n_passed(const struct stg_dataset *dataset);

#endif
