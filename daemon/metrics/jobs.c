/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/metrics/jobs.h"

#include <stdio.h>
#include <string.h>

#define OTHER (STG_JOBS + 1)

uint32_t stg_jobs_find(struct stg_jobs *jobs, const char *name)
{
    if (name == NULL || name[0] == '\0')
        return 0;
    for (uint32_t i = 0; i < jobs->n; i++) {
        if (strncmp(jobs->names[i], name, STG_JOB_BYTES - 1) == 0)
            return i + 1;
    }
    if (jobs->n == STG_JOBS)
        return OTHER;
    snprintf(jobs->names[jobs->n], STG_JOB_BYTES, "%s", name);
    return ++jobs->n;
}

const char *stg_jobs_name(const struct stg_jobs *jobs, uint32_t number)
{
    return number == 0 ? "" : number > STG_JOBS ? "other" : jobs->names[number - 1];
}
