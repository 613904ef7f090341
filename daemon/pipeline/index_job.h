/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds the record indexes of all files of a pipeline, in a thread, as a first pass
 * would: each file is read once by the reader of the pipeline, and its records are
 * dropped. Files that have an index are not read. Any thread.
 */
#ifndef STG_DAEMON_PIPELINE_INDEX_JOB_H
#define STG_DAEMON_PIPELINE_INDEX_JOB_H

#include "core/bump.h"
#include "daemon/dataset/dataset.h"
#include "proto/wire.h"

/* Copied. */
struct stg_index_job_config {
    const char *text; /* of a pipeline that was checked */
    size_t text_bytes;
    uid_t uid; /* on whose behalf the files are opened */
    gid_t gid;
    const gid_t *groups;
    size_t n_groups;
    uint64_t buffer_bytes; /* the pipeline's own: it decides which records are too long */
};

struct stg_index_job;

/* RESOURCE_EXHAUSTED: without memory, or if two jobs run. */
int stg_index_job_start(const struct stg_index_job_config *config,
                        struct stg_index_job **ret, struct stg_err *err);
/* Fills in how far it is; strings are in bump. */
void stg_index_job_report(struct stg_index_job *job, struct stg_bump *bump,
                          struct stg_index_report *ret);
/* Ends the job, and frees it as soon as its thread has stopped. NULL is allowed. */
void stg_index_job_end(struct stg_index_job *job);

#endif
