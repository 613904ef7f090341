/* SPDX-License-Identifier: Apache-2.0
 *
 * The last texts of stagerd, which serve all requests for a moment: HTTP clients cannot
 * keep stagerd busy. One thread at a time.
 */
#ifndef STG_CLIENT_METRICS_SCRAPE_H
#define STG_CLIENT_METRICS_SCRAPE_H

#include <stddef.h>

#include "client/metrics/origin.h"

struct stg_scrape_text {
    char *text; /* NULL: none */
    size_t bytes;
    int64_t at_ns; /* when stagerd had sent it */
};

/* Zero-initialise, with origin. */
struct stg_scrape {
    struct stg_origin *origin;
    struct stg_scrape_text texts[2]; /* 0.0.4, OpenMetrics */
};

/* Gets the metrics: those of the last age_ns if there are any. Returns 0, or the error;
 * the text is the scrape's, until the next call. UNAVAILABLE: stagerd does not run. */
int stg_scrape_get(struct stg_scrape *scrape, bool is_open, int64_t age_ns,
                   const struct stg_scrape_text **ret, struct stg_err *err);
void stg_scrape_finish(struct stg_scrape *scrape);

#endif
