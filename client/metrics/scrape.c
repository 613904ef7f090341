/* SPDX-License-Identifier: Apache-2.0 */
#include "client/metrics/scrape.h"

#include <stdio.h>
#include <stdlib.h>

#include "client/transport/admin.h"
#include "client/transport/connect.h"

#define FRESH_NS 200000000

/* A connection for each: stagerd may have been started again. */
static int ask(struct stg_scrape *scrape, bool is_open, struct stg_scrape_text *ret,
               struct stg_err *err)
{
    struct sockaddr_un address;
    struct stager *client = NULL;
    int64_t until_ns = stg_clock_ns() + scrape->limit_ns;
    int rc = stg_socket_find(scrape->runtime_dir, &address, err);
    if (rc == 0)
        rc = stg_client_begin(&address, false, &client, err);
    if (rc == 0)
        rc = stg_client_greet(client, until_ns, err);
    if (rc == 0)
        snprintf(scrape->release, sizeof(scrape->release), "%s", client->daemon);
    if (rc == 0)
        rc = stg_admin_metrics(client, is_open, until_ns - stg_clock_ns(), &ret->text,
                               &ret->bytes, err);
    stager_disconnect(client);
    return rc;
}

static bool is_fresh(int64_t at_ns)
{
    return at_ns != 0 && stg_clock_ns() - at_ns < FRESH_NS;
}

static int renew(struct stg_scrape *scrape, bool is_open, struct stg_scrape_text *text)
{
    free(text->text);
    *text = (struct stg_scrape_text){0};
    int rc = ask(scrape, is_open, text, &scrape->err);
    *(rc < 0 ? &scrape->failed_ns : &text->at_ns) = stg_clock_ns();
    return rc;
}

int stg_scrape_get(struct stg_scrape *scrape, bool is_open,
                   const struct stg_scrape_text **ret, struct stg_err *err)
{
    struct stg_scrape_text *text = &scrape->texts[is_open];
    *ret = text;
    if (is_fresh(text->at_ns))
        return 0;
    if (is_fresh(scrape->failed_ns) || renew(scrape, is_open, text) < 0) {
        *err = scrape->err;
        return err->code;
    }
    return 0;
}

void stg_scrape_finish(struct stg_scrape *scrape)
{
    free(scrape->texts[false].text);
    free(scrape->texts[true].text);
}
