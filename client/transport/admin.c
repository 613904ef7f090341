/* SPDX-License-Identifier: Apache-2.0 */
#include "client/transport/admin.h"

#include <stdio.h>
#include <unistd.h>

#include "client/transport/connect.h"

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
    if (request->warm && client->version < STG_PROTOCOL_WARM) {
        stg_client_outdated(client,
                            "does not fill a buffer before it replaces a pipeline", err);
        return stg_err_append(err, err->code,
                              ", or apply without --warm (warm=True in Python)");
    }
    int64_t limit_ns =
        request->warm ? (STG_WARM_SECONDS + 10) * INT64_C(1000000000) : STG_REQUEST_NS;
    return stg_client_call(client, request, limit_ns, ret, NULL, 0, NULL, err);
}

int stg_admin_trace(struct stager *client, const char *name, uint32_t millis,
                    struct stg_map *ret, struct stg_err *err)
{
    struct stg_request request = {
        .kind = STG_REQUEST_TRACE, .name = name, .millis = millis};
    struct stg_reply reply;
    int fd = -1;
    size_t n_fds = 0;
    int rc =
        stg_client_call(client, &request, STG_REQUEST_NS, &reply, &fd, 1, &n_fds, err);
    if (rc < 0)
        return rc;
    if (n_fds != 1)
        return stg_err(err, -STAGER_INTERNAL, "stagerd sent no descriptor of the trace");
    rc = stg_map_open(fd, reply.page_bytes, STG_MAP_READ, "trace page", ret, err);
    close(fd);
    return rc;
}

bool stg_admin_wait(struct stager *client, int64_t until_ns)
{
    stg_socket_sleep(client->fd, until_ns);
    return stg_socket_drain(client->fd) == 0;
}
