/* SPDX-License-Identifier: Apache-2.0 */
#include "client/metrics/scrape.h"

#include <stdlib.h>

#include "client/transport/socket.h"

static int renew(struct stg_scrape *scrape, bool is_open, struct stg_scrape_text *text,
                 struct stg_err *err)
{
    struct stager *client;
    free(text->text);
    *text = (struct stg_scrape_text){0};
    int rc = stg_origin_begin(scrape->origin, &client, err);
    if (rc == 0)
        rc = stg_admin_metrics(client, is_open, stg_origin_left_ns(scrape->origin),
                               &text->text, &text->bytes, err);
    stg_origin_end(scrape->origin, client, rc, err);
    if (rc == 0)
        text->at_ns = stg_clock_ns();
    return rc;
}

int stg_scrape_get(struct stg_scrape *scrape, bool is_open, int64_t age_ns,
                   const struct stg_scrape_text **ret, struct stg_err *err)
{
    struct stg_scrape_text *text = &scrape->texts[is_open];
    *ret = text;
    if (text->at_ns != 0 && stg_clock_ns() - text->at_ns < age_ns)
        return 0;
    return renew(scrape, is_open, text, err);
}

void stg_scrape_finish(struct stg_scrape *scrape)
{
    free(scrape->texts[false].text);
    free(scrape->texts[true].text);
}
