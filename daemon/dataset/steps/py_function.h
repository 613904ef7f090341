/* SPDX-License-Identifier: Apache-2.0
 *
 * py_function: a function of the user, which runs in processes of the user. This file has
 * its inputs and outputs; daemon/pyworker/work.h calls it. It is the last step, and its
 * iterator is that of its input: each runner calls the function for the item that it has
 * pulled.
 */
#ifndef STG_DAEMON_PY_FUNCTION_H
#define STG_DAEMON_PY_FUNCTION_H

#include "core/batch.h"
#include "core/spec.h"

/* The pipeline's step py_function, or NULL. */
const struct stg_step *stg_py_function_find(const struct stg_pipeline_spec *spec);

/* What the step gets and gives, of a pipeline that was checked; in bump. */
int stg_py_function_schemas(const struct stg_pipeline_spec *spec, struct stg_bump *bump,
                            struct stg_schema *ret_input, struct stg_schema *ret_output,
                            struct stg_err *err);

#endif
