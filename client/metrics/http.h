/* SPDX-License-Identifier: Apache-2.0
 *
 * The pages of stager-metrics: /, /metrics, /healthz, /readyz, /version, and below
 * /api/v1/ the JSON of the page. Each connection serves one request, and ends at a
 * deadline, whatever its peer does. One thread at a time.
 */
#ifndef STG_CLIENT_METRICS_HTTP_H
#define STG_CLIENT_METRICS_HTTP_H

#include "client/metrics/api.h"

#define STG_HTTP_CONNECTIONS 32 /* at once; further ones wait in the kernel's queue */

struct stg_http;

/* scrape, api: borrowed. limit_ns: from the start of a connection to its end. INTERNAL:
 * the library refuses. */
int stg_http_create(struct stg_scrape *scrape, struct stg_api *api, int64_t limit_ns,
                    struct stg_http **ret, struct stg_err *err);
void stg_http_destroy(struct stg_http *http); /* NULL is allowed */

/* Returns whether it takes another connection now. */
bool stg_http_has_room(const struct stg_http *http);

/* Accepts a connection of a listening socket, if there is one. */
void stg_http_accept(struct stg_http *http, int listening);

/* Returns a descriptor that is readable if stg_http_run has something to do. */
int stg_http_fd(const struct stg_http *http);

/* Serves what can be served without waiting for a peer, and ends late connections.
 * Returns the milliseconds until the next call is due; -1: none is. */
int stg_http_run(struct stg_http *http);

#endif
