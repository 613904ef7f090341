/* SPDX-License-Identifier: Apache-2.0 */
#include "client/metrics/origin.h"

#include <stdio.h>

#include "client/transport/connect.h"

#define FAILURE_NS 1000000000

static bool has_failed(const struct stg_origin *origin)
{
    return origin->failed_ns != 0 && stg_clock_ns() - origin->failed_ns < FAILURE_NS;
}

static int greet(struct stg_origin *origin, struct stager *client, struct stg_err *err)
{
    int rc = stg_client_greet(client, origin->until_ns, err);
    if (rc == 0) {
        snprintf(origin->release, sizeof(origin->release), "%s", client->daemon);
        origin->pid = client->pid;
    }
    return rc;
}

int stg_origin_begin(struct stg_origin *origin, struct stager **ret, struct stg_err *err)
{
    struct sockaddr_un address;
    *ret = NULL;
    if (has_failed(origin)) {
        *err = origin->err;
        return err->code;
    }
    origin->until_ns = stg_clock_ns() + origin->limit_ns;
    int rc = stg_socket_find(origin->runtime_dir, &address, err);
    if (rc == 0)
        rc = stg_client_begin(&address, false, ret, err);
    return rc == 0 ? greet(origin, *ret, err) : rc;
}

int64_t stg_origin_left_ns(const struct stg_origin *origin)
{
    return origin->until_ns - stg_clock_ns();
}

void stg_origin_end(struct stg_origin *origin, struct stager *client, int rc,
                    const struct stg_err *err)
{
    stager_disconnect(client);
    if (rc < 0 && !has_failed(origin)) {
        origin->err = *err;
        origin->failed_ns = stg_clock_ns();
    }
}
