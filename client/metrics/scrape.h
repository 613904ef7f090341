/* SPDX-License-Identifier: Apache-2.0
 *
 * The last answers of stagerd, which serve all requests of the next fifth of a second:
 * HTTP clients cannot keep stagerd busy, and a stagerd that hangs does not delay them one
 * after the other. One thread at a time.
 */
#ifndef STG_CLIENT_METRICS_SCRAPE_H
#define STG_CLIENT_METRICS_SCRAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

struct stg_scrape_text {
    char *text; /* NULL: none */
    size_t bytes;
    int64_t at_ns; /* when stagerd had sent it */
};

/* Zero-initialise, with runtime_dir (NULL: where clients look) and limit_ns. */
struct stg_scrape {
    const char *runtime_dir;
    int64_t limit_ns;                /* how long stagerd may take */
    struct stg_scrape_text texts[2]; /* 0.0.4, OpenMetrics */
    char release[64];                /* of stagerd, when it answered last; "": never */
    int64_t failed_ns;               /* the end of the last failure */
    struct stg_err err;              /* of that failure */
};

/* Gets the metrics, and the release. Returns 0, or the error; the text is the scrape's,
 * until the next call. UNAVAILABLE: stagerd does not run. */
int stg_scrape_get(struct stg_scrape *scrape, bool is_open,
                   const struct stg_scrape_text **ret, struct stg_err *err);
void stg_scrape_finish(struct stg_scrape *scrape);

#endif
