/* SPDX-License-Identifier: Apache-2.0 */
#include "client/transport/admin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/transport/connect.h"

#define MAX_FILE_BYTES (64 << 20)

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

/* Up to what there was when it was asked for: more lines may follow. */
static int read_all(int fd, const char *what, char **ret, size_t *ret_bytes,
                    struct stg_err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0 || st.st_size < 0 || st.st_size > MAX_FILE_BYTES)
        return stg_err(err, -STAGER_DATA_LOSS,
                       "stagerd sent %s of more than %d bytes, or no file: see its log",
                       what, MAX_FILE_BYTES);
    size_t size = (size_t)st.st_size, n = 0;
    char *text = malloc(size + 1);
    ssize_t more = text != NULL;
    while (more > 0 && n < size) {
        more = pread(fd, text + n, size - n, (off_t)n);
        n += more > 0 ? (size_t)more : 0;
    }
    if (text == NULL || more < 0) {
        free(text);
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "cannot read %s: %s", what,
                       text == NULL ? "out of memory" : strerror(errno));
    }
    *ret = text;
    *ret_bytes = n;
    return 0;
}

/* The reply has one descriptor: that of the text. */
static int fetch(struct stager *client, struct stg_request *request, const char *what,
                 int64_t limit_ns, char **ret, size_t *ret_bytes, struct stg_err *err)
{
    struct stg_reply reply;
    int fd = -1;
    size_t n_fds = 0;
    int rc = stg_client_call(client, request, limit_ns, &reply, &fd, 1, &n_fds, err);
    if (rc < 0)
        return rc;
    if (n_fds != 1)
        return stg_err(err, -STAGER_INTERNAL, "stagerd sent no descriptor of %s", what);
    rc = read_all(fd, what, ret, ret_bytes, err);
    close(fd);
    return rc;
}

int stg_admin_audit(struct stager *client, const char *name, char **ret,
                    size_t *ret_bytes, struct stg_err *err)
{
    struct stg_request request = {.kind = STG_REQUEST_AUDIT, .name = name};
    return fetch(client, &request, "an audit", STG_REQUEST_NS, ret, ret_bytes, err);
}

int stg_admin_metrics(struct stager *client, bool open_metrics, int64_t limit_ns,
                      char **ret, size_t *ret_bytes, struct stg_err *err)
{
    struct stg_request request = {.kind = STG_REQUEST_METRICS,
                                  .open_metrics = open_metrics};
    return fetch(client, &request, "metrics", limit_ns, ret, ret_bytes, err);
}

bool stg_admin_wait(struct stager *client, int64_t until_ns)
{
    stg_socket_sleep(client->fd, until_ns);
    return stg_socket_drain(client->fd) == 0;
}
