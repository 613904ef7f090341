/* SPDX-License-Identifier: Apache-2.0
 *
 * py_function before other steps: calls the function through env.caller, for several
 * elements at once, and yields what it gives in the order of its input.
 */
#ifndef STG_DAEMON_PY_CALLS_H
#define STG_DAEMON_PY_CALLS_H

#include "daemon/dataset/step.h"

/* As `create` of struct stg_transformation. */
int stg_py_calls_create(struct stg_dataset *dataset, const struct stg_step *step,
                        const struct stg_schema *schema, struct stg_iter *input,
                        struct stg_iter **ret, struct stg_err *err);

#endif
