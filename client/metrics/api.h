/* SPDX-License-Identifier: Apache-2.0
 *
 * What the page shows, as JSON. All viewers share the answers: stagerd is asked for the
 * metrics about once a second, and so for each pipeline that is looked at. One thread at
 * a time.
 */
#ifndef STG_CLIENT_METRICS_API_H
#define STG_CLIENT_METRICS_API_H

#include <stddef.h>

#include "client/metrics/scrape.h"

/* Pipelines that may be looked at in one second. */
#define STG_API_PIPELINES 16

struct stg_api;

/* The text is the API's, until its next call. */
struct stg_api_answer {
    unsigned status; /* of HTTP */
    const char *text;
    size_t bytes;
};

/* scrape: borrowed. NULL: no memory. */
struct stg_api *stg_api_create(struct stg_scrape *scrape);
void stg_api_destroy(struct stg_api *api); /* NULL is allowed */

/* All pipelines, with totals; the memory of stagerd. 503: stagerd does not answer. */
struct stg_api_answer stg_api_status(struct stg_api *api);

/* One pipeline: what stagerctl's status and explain have with --json. 404: there is
 * none. NULL: no name. */
struct stg_api_answer stg_api_pipeline(struct stg_api *api, const char *name);

/* Its last hour. */
struct stg_api_answer stg_api_history(struct stg_api *api, const char *name);

/* Goes on with the history. Returns the milliseconds until the next call is due. */
int stg_api_run(struct stg_api *api);

#endif
