/* SPDX-License-Identifier: Apache-2.0
 *
 * The connections of stager-worker, by libmicrohttpd. One thread.
 */
#ifndef STG_DAEMON_WORKER_HTTP_H
#define STG_DAEMON_WORKER_HTTP_H

#include <stdbool.h>

#include "core/err.h"
#include "daemon/worker/frame.h"

struct stg_worker_http;

struct stg_worker_http_config {
    const char *token;             /* NULL: every client may ask */
    const char *certificate, *key; /* in PEM; NULL: no TLS */
    const char *zone;              /* NULL: none */
    int fd;                        /* to stagerd */
};

/* config is copied, its texts are borrowed. INVALID_ARGUMENT: the certificate or key.
 * FAILED_PRECONDITION: the machine has no library for TLS. */
int stg_worker_http_create(const struct stg_worker_http_config *config,
                           struct stg_worker_http **ret, struct stg_err *err);
void stg_worker_http_destroy(struct stg_worker_http *http);

/* Returns the descriptor that becomes readable when stg_worker_http_run has work. */
int stg_worker_http_fd(const struct stg_worker_http *http);

/* Works on all connections. Returns the milliseconds until it has to be called again;
 * -1: only when the descriptor is readable. */
int stg_worker_http_run(struct stg_worker_http *http);

bool stg_worker_http_has_room(const struct stg_worker_http *http);
void stg_worker_http_accept(struct stg_worker_http *http, int listening);

/* Takes a message of stagerd, and the descriptor that came along, or -1. */
void stg_worker_http_answer(struct stg_worker_http *http,
                            const struct stg_worker_answer *answer, const char *text,
                            int fd);

/* From now on requests are refused. Returns how many are in work. */
unsigned stg_worker_http_drain(struct stg_worker_http *http);

#endif
