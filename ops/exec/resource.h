/* SPDX-License-Identifier: Apache-2.0
 *
 * The variables of a graph: state is never an op's, it is owned by whoever runs the graph
 * and passed in as an input. Made and initialised once (ops/exec/run.h), then read by any
 * thread while none runs a STATEFUL op.
 */
#ifndef STG_OPS_EXEC_RESOURCE_H
#define STG_OPS_EXEC_RESOURCE_H

#include "ops/exec/run.h"

/* The memory of variable node `index` (position in the pipeline's graph), or NULL when
 * that node is no variable. */
const struct stg_tensor *stg_resources_tensor(const struct stg_resources *resources,
                                              uint32_t index);

#endif
