/* SPDX-License-Identifier: Apache-2.0
 *
 * What a request asks for. Pure functions.
 */
#ifndef STG_DAEMON_WORKER_PATH_H
#define STG_DAEMON_WORKER_PATH_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/worker/frame.h"

/* Reads "DIGEST/PASS/INDEX" or "DIGEST/PASS/FIRST-LAST". Returns NULL, or what is wrong.
 */
const char *stg_worker_path(const char *text, struct stg_worker_ask *ret);

/* The values of a query; NULL: it has none of that name. */
struct stg_worker_query {
    const char *epoch, *index, *host, *hosts, *begin;
};

/* Reads the values. Returns NULL, or what is wrong. */
const char *stg_worker_query(const struct stg_worker_query *query,
                             struct stg_worker_ask *ret);

/* Reads a decimal without sign or leading zeros. */
bool stg_worker_number(const char *text, const char **ret_end, uint64_t *ret);

/* Returns whether the header Authorization has the token; the time depends on the lengths
 * alone. header: may be NULL. */
bool stg_worker_is_allowed(const char *header, const char *token);

#endif
