/* SPDX-License-Identifier: Apache-2.0
 *
 * A stream reports to stagerd now and then what its trainer measured, for the choice of
 * a partition. It waits for nothing: what cannot be sent now is dropped.
 */
#ifndef STG_CLIENT_RUN_REPORT_H
#define STG_CLIENT_RUN_REPORT_H

#include "client/compute/compute.h"

struct stager_stream;

/* As of the last report. Zero-initialise. */
struct stg_reporter {
    int64_t at_ns;
    uint64_t n_batches, wait_ns, cpu_ns;
};

/* Is it time for the next one? */
bool stg_report_is_due(const struct stg_reporter *reporter,
                       const struct stager_stream *stream);

/* Sends what one executor measured. */
void stg_report_send(struct stg_reporter *reporter, struct stager_stream *stream,
                     const struct stg_compute_measured *measured);

#endif
