/* SPDX-License-Identifier: Apache-2.0
 *
 * Which kept definition a rollback applies. Belongs to the loop.
 */
#ifndef STG_DAEMON_PIPELINE_ROLLBACK_H
#define STG_DAEMON_PIPELINE_ROLLBACK_H

#include "daemon/pipeline/catalog.h"
#include "daemon/pipeline/versions.h"

/* Lists the generations of a pipeline, the current one last; strings live in bump. */
size_t stg_rollback_list(const struct stg_catalog *catalog,
                         const struct stg_pipeline *pipeline, struct stg_bump *bump,
                         struct stg_pipeline_version ret[STG_MAX_VERSIONS]);

/* Makes the definition of a kept generation; 0: the last one with other content than now.
 * It keeps its applier. *ret_version has no file. NOT_FOUND names the kept generations;
 * PERMISSION_DENIED: the identity may not use what that applier applied. */
int stg_rollback_find(struct stg_catalog *catalog, const struct stg_pipeline *pipeline,
                      uint64_t generation, const struct stg_identity *identity,
                      struct stg_pipeline_version *ret_version,
                      struct stg_definition **ret, struct stg_err *err);

#endif
