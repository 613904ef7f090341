/* SPDX-License-Identifier: Apache-2.0
 *
 * From a pipeline's steps and branches to a tree of iterators: finds the transformations,
 * lets each say what it yields, and joins them. A branch is built anew for each step that
 * takes it. One thread.
 */
#ifndef STG_DAEMON_BUILD_H
#define STG_DAEMON_BUILD_H

#include "daemon/dataset/step.h"

/* Checks everything that can be checked without IO first (stg_dataset_infer), then makes
 * the iterators: *ret is the last one, which has all others as its inputs. Errors as
 * stg_dataset_create. */
int stg_build_iter(const struct stg_pipeline_spec *spec, struct stg_dataset *dataset,
                   struct stg_iter **ret, struct stg_err *err);

#endif
