/* SPDX-License-Identifier: Apache-2.0 */
#include "client/admin.h"

#include <stdio.h>

#include "client/connect.h"

void stg_admin_daemon(const struct stager *client, struct stg_admin_daemon *ret)
{
    *ret = (struct stg_admin_daemon){
        .path = client->address.sun_path,
        .release = client->daemon,
        .cuda = client->cuda,
        .instance = client->instance,
        .version = client->version,
        .pid = client->pid,
    };
}

int stg_admin_path(const char *runtime_dir, char *buf, size_t bytes, struct stg_err *err)
{
    struct sockaddr_un address;
    int rc = stg_socket_find(runtime_dir, &address, err);
    if (rc == 0)
        snprintf(buf, bytes, "%s", address.sun_path);
    return rc;
}

int stg_admin_call(struct stager *client, struct stg_request *request,
                   struct stg_reply *ret, struct stg_err *err)
{
    return stg_client_call(client, request, STG_REQUEST_NS, ret, NULL, 0, NULL, err);
}
