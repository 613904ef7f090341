/* SPDX-License-Identifier: Apache-2.0
 *
 * py_function: a function of the user, which runs in processes of the user. This file has
 * its inputs and outputs; daemon/pyworker/work.h calls it. Where it is the last step of
 * the pipeline its iterator is that of its input: each runner calls the function for the
 * item that it has pulled. Elsewhere py_calls.c calls it for the elements in turn.
 */
#ifndef STG_DAEMON_PY_FUNCTION_H
#define STG_DAEMON_PY_FUNCTION_H

#include "core/spec.h"

/* The pipeline's step py_function, also of a branch, or NULL. */
const struct stg_step *stg_py_function_find(const struct stg_pipeline_spec *spec);

/* Is it the step that makes the items? */
bool stg_py_function_is_last(const struct stg_pipeline_spec *spec);

#endif
