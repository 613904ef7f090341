/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "client/stagerctl/command.h"

#define LIMIT_NS 10000000000

int stg_ctl_metrics(const struct stg_ctl_options *options)
{
    struct stager *client;
    struct stg_err err = {0};
    char *text;
    size_t bytes;
    if (options->json)
        return stg_ctl_misused("metrics has one format, the text of Prometheus: leave "
                               "out --json, or use `stagerctl status --json`");
    int rc = stager_connect(options->runtime_dir, &client);
    if (rc < 0)
        return stg_ctl_fail(rc, stager_error_text(NULL));
    rc = stg_admin_metrics(client, false, LIMIT_NS, &text, &bytes, &err);
    stager_disconnect(client);
    if (rc < 0)
        return stg_ctl_fail(rc, err.text);
    fwrite(text, 1, bytes, stdout);
    free(text);
    return stg_ctl_finish();
}
