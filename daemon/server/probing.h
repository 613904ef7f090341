/* SPDX-License-Identifier: Apache-2.0
 *
 * A request to check or to change a pipeline, or to describe a file, until its reply is
 * sent. A worker of libuv tries the files of the pipeline, or waits for the description:
 * a file system that does not answer must not hold the loop. Changes take turns: the next
 * one is served when the disk has the last one. Belongs to the loop.
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
    struct stg_description *description; /* of a file, or NULL: err has the reason */
    struct stg_err err;
    const struct stg_probing_caller *caller;
    void *owner;
    struct stg_reply reply; /* of a change that waits for the disk */
    struct stg_bump bump;   /* of request, problems and reply */
    uint32_t n_refs;
    struct stg_probing *next; /* that waits for its turn */
    uv_work_t work;
};

/* Where the request came from. Each is called once, later; then the probing is freed. */
struct stg_probing_caller {
    void (*serve)(struct stg_probing *probing);
    void (*served)(struct stg_probing *probing); /* the reply was sent */
};

/* Returns whether the request changes a pipeline. */
bool stg_probing_is_change(const struct stg_request *request);

/* Returns whether the request begins so. */
bool stg_probing_is_for(const struct stg_request *request);

/* Decodes the message again and begins. RESOURCE_EXHAUSTED. */
int stg_probing_start(struct stg_server *server, const struct stg_identity *identity,
                      const void *message, size_t bytes,
                      const struct stg_probing_caller *caller, void *owner,
                      struct stg_probing **ret, struct stg_err *err);

/* Serves the changes whose turn it is. */
void stg_probing_serve_turns(struct stg_server *server);

/* The request is served when each hold was released: its reply may come later. */
void stg_probing_hold(struct stg_probing *probing);
void stg_probing_release(struct stg_probing *probing);

#endif
