/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "client/stagerctl/command.h"

static void print_json(const struct stg_reply *reply, const char *token)
{
    struct stg_json_writer json = stg_ctl_json();
    stg_json_object_begin(&json);
    stg_json_put_string(&json, "token", token);
    stg_json_put_uint(&json, "seconds", reply->seconds);
    stg_json_put_string(&json, "admin_url", reply->admin_url);
    stg_json_put_string(&json, "events_url", reply->events_url);
    stg_json_object_end(&json);
    putchar('\n');
}

int stg_ctl_token(const struct stg_ctl_options *options)
{
    struct stg_ctl_link *link = stg_ctl_connect(options);
    if (link == NULL)
        return EXIT_FAILED;
    struct stg_request request = {.kind = STG_REQUEST_NEW_TOKEN};
    struct stg_reply reply;
    int status = stg_ctl_ask(link, &request, &reply);
    if (status == 0) {
        char text[2 * STG_TOKEN_BYTES + 1];
        for (size_t i = 0; i < STG_TOKEN_BYTES; i++)
            snprintf(text + 2 * i, 3, "%02x", reply.token[i]);
        if (options->json)
            print_json(&reply, text);
        else
            puts(text);
        explicit_bzero(text, sizeof(text));
        status = stg_ctl_finish();
    }
    stg_ctl_hang_up(link);
    return status;
}
