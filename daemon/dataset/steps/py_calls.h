/* SPDX-License-Identifier: Apache-2.0
 *
 * py_function before other steps. Calls the function through env.caller, with several
 * calls in progress at once, and yields the results in input order.
 */
#ifndef STG_DAEMON_PY_CALLS_H
#define STG_DAEMON_PY_CALLS_H

#include "daemon/dataset/step.h"

/* Creates the iterator, as `create` of struct stg_transformation does. */
int stg_py_calls_create(struct stg_dataset *dataset, const struct stg_step *step,
                        const struct stg_schema *schema, struct stg_iter *input,
                        struct stg_iter **ret, struct stg_err *err);

#endif
