/* SPDX-License-Identifier: Apache-2.0
 *
 * All metrics of stagerd, as one text. Belongs to the loop.
 */
#ifndef STG_DAEMON_METRICS_METRICS_H
#define STG_DAEMON_METRICS_METRICS_H

#include "daemon/host/memory.h"
#include "daemon/metrics/jobs.h"
#include "daemon/metrics/text.h"
#include "daemon/pipeline/catalog.h"

/* What the server counts. */
struct stg_server_counts {
    uint64_t started_ns; /* since 1970 */
    uint64_t n_connections, n_requests;
    uint64_t errors[STG_N_CODES]; /* error replies, by code */
};

struct stg_metrics_source {
    struct stg_catalog *catalog;
    const struct stg_identity *identity; /* of the client: pipelines that it may see */
    struct stg_budget *budget;
    const struct stg_server_counts *counts;
    const struct stg_jobs *jobs;
    const char *release;
    uint32_t n_sessions;
    bool is_draining;
    uint64_t n_lost_operations; /* records that the operations log does not have */
};

/* Appends the metrics. RESOURCE_EXHAUSTED. */
int stg_metrics_write(const struct stg_metrics_source *source,
                      struct stg_metrics_text *text, struct stg_err *err);

#endif
