/* SPDX-License-Identifier: Apache-2.0
 *
 * A warm apply: the new version of a pipeline fills its buffer beside the old one, and
 * takes over when that is done. A pipeline that is idle, or new, fills its own buffer
 * before its first client. Belongs to the loop.
 */
#ifndef STG_DAEMON_PIPELINE_WARM_UP_H
#define STG_DAEMON_PIPELINE_WARM_UP_H

#include "daemon/pipeline/catalog.h"

struct stg_warm_up;

/* Begins one, of a definition (takes its reference on success) as stg_catalog_apply
 * applies it. The catalog changes when it is done; a name that is free is taken first.
 * FAILED_PRECONDITION: another one runs, or the definition has a py_function. */
int stg_warm_up_apply(struct stg_catalog *catalog, struct stg_definition *definition,
                      const char *name, enum stg_replace replace,
                      struct stg_warm_up **ret, struct stg_err *err);

/* The same for a pipeline that exists. */
int stg_warm_up_replace(struct stg_catalog *catalog, struct stg_pipeline *pipeline,
                        struct stg_definition *definition, enum stg_replace replace,
                        struct stg_warm_up **ret, struct stg_err *err);

/* Goes on. Returns 1: call it again on `changed`, and every few milliseconds. 0: it is
 * done, and *ret_pipeline is at its generation; *ret_unchanged: it had the content
 * before. Negative: the pipeline stays as it was. RESOURCE_EXHAUSTED: the memory of both,
 * with the sum; ABORTED: another change came first; FAILED_PRECONDITION: all batches are
 * errors; DEADLINE_EXCEEDED; the code of a source that fails. */
int stg_warm_up_step(struct stg_warm_up *warm_up, struct stg_pipeline **ret_pipeline,
                     bool *ret_unchanged, struct stg_err *err);

/* Frees it; one that is not done ends, once a change that waits for the disk is made.
 * NULL is allowed. */
void stg_warm_up_end(struct stg_warm_up *warm_up);

#endif
