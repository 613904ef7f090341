/* SPDX-License-Identifier: Apache-2.0
 *
 * Content negotiation. Pure; any thread.
 */
#ifndef STG_CLIENT_METRICS_ACCEPT_H
#define STG_CLIENT_METRICS_ACCEPT_H

#include <stdbool.h>

/* Returns whether a header Accept prefers OpenMetrics 1.0 to the text format 0.0.4 of
 * Prometheus. NULL: there is none. */
bool stg_metrics_wants_open(const char *accept);

#endif
