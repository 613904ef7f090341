/* SPDX-License-Identifier: Apache-2.0
 *
 * A request to check or to apply a pipeline, while a worker of libuv tries the files of
 * the pipeline: a file system that does not answer must not hold the loop. Belongs to the
 * loop.
 */
#ifndef STG_DAEMON_SERVER_PROBING_H
#define STG_DAEMON_SERVER_PROBING_H

#include "daemon/server/server.h"
#include "proto/wire.h"

#define STG_PROBING_PROBLEMS 8

struct stg_probing {
    struct stg_server *server;
    struct stg_identity identity; /* of the caller */
    struct stg_request request;
    const char *problems[STG_PROBING_PROBLEMS]; /* that the first batch would fail with */
    size_t n_problems;
    void (*done)(struct stg_probing *probing); /* serves the request */
    void *owner;
    uint64_t tag;
    struct stg_bump bump; /* of request and problems */
    uv_work_t work;
};

/* Returns whether the request begins so. */
bool stg_probing_is_for(const struct stg_request *request);

/* Decodes the message again and begins. `done` is called once, later; then the probing is
 * freed. RESOURCE_EXHAUSTED. */
int stg_probing_start(struct stg_server *server, const struct stg_identity *identity,
                      const void *message, size_t bytes,
                      void (*done)(struct stg_probing *probing), void *owner,
                      uint64_t tag, struct stg_probing **ret, struct stg_err *err);

#endif
