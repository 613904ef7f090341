/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests of an administrator over a connection: what stagerctl needs and stager.h does
 * not offer. Not exported. One thread at a time.
 */
#ifndef STG_CLIENT_TRANSPORT_ADMIN_H
#define STG_CLIENT_TRANSPORT_ADMIN_H

#include "client/stager.h"
#include "client/transport/map.h"
#include "proto/wire.h"

/* What the daemon said at hello; strings live as long as the connection. */
struct stg_admin_daemon {
    const char *path; /* of attach.sock */
    const char *release, *cuda;
    uint64_t instance;
    uint32_t version, pid;
};

void stg_admin_daemon(const struct stager *client, struct stg_admin_daemon *ret);

/* Where a connection to runtime_dir would go, for messages: fills buf. */
int stg_admin_path(const char *runtime_dir, char *buf, size_t bytes, struct stg_err *err);

/* Sends a request, waits for its reply (10 s; a warm one: as long as the daemon does).
 * ret lives until the next call on the connection. Returns the daemon's code and text
 * when it refused. */
int stg_admin_call(struct stager *client, struct stg_request *request,
                   struct stg_reply *ret, struct stg_err *err);

/* Traces a pipeline for so long: maps the page that fills up meanwhile; the caller closes
 * the map. Errors as stg_admin_call, and stg_map_open's. */
int stg_admin_trace(struct stager *client, const char *name, uint32_t millis,
                    struct stg_map *ret, struct stg_err *err);

/* Reads the audit of a pipeline, a text of core/audit.h, which the caller frees. Errors
 * as stg_admin_call. */
int stg_admin_audit(struct stager *client, const char *name, char **ret,
                    size_t *ret_bytes, struct stg_err *err);

/* Reads the metrics, which the caller frees: for Prometheus, or as OpenMetrics. limit_ns:
 * how long stagerd may take. Errors as stg_admin_call. */
int stg_admin_metrics(struct stager *client, bool open_metrics, int64_t limit_ns,
                      char **ret, size_t *ret_bytes, struct stg_err *err);

/* Sleeps until then, or a signal. False: stagerd closed the connection. */
bool stg_admin_wait(struct stager *client, int64_t until_ns);

#endif
