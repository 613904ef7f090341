/* SPDX-License-Identifier: Apache-2.0
 *
 * The jobs that clients have named, for labels: their number is bounded, whatever clients
 * send. Belongs to the loop.
 */
#ifndef STG_DAEMON_METRICS_JOBS_H
#define STG_DAEMON_METRICS_JOBS_H

#include <stddef.h>
#include <stdint.h>

#define STG_JOBS 64 /* while stagerd runs; further ones are one job, "other" */
#define STG_JOB_BYTES 64

/* Zero-initialise. */
struct stg_jobs {
    char names[STG_JOBS][STG_JOB_BYTES];
    uint32_t n;
};

/* Returns the number of a job, which is new if it was not named before. 0: NULL or "". */
uint32_t stg_jobs_find(struct stg_jobs *jobs, const char *name);

/* Returns its name; "" for 0. */
const char *stg_jobs_name(const struct stg_jobs *jobs, uint32_t number);

#endif
