/* SPDX-License-Identifier: Apache-2.0
 *
 * One attempt of a fetch: the options of curl, where it may connect to, and the meaning
 * of its outcome. Its fetcher's thread alone.
 */
#ifndef STG_DAEMON_ATTEMPT_H
#define STG_DAEMON_ATTEMPT_H

#include "core/spec.h"
#include "daemon/storage/http/fetch_priv.h"

/* fetch->easy is ready to be run, from the first byte that is not there yet.
 * RESOURCE_EXHAUSTED. */
int stg_attempt_begin(struct stg_fetch *fetch, const struct stg_remote_settings *settings,
                      struct stg_err *err);

/* fetch->easy was taken out of what runs; it is gone now. True: the fetch is over, with
 * fetch->failed and failure; false: it is tried again at due_ns. */
bool stg_attempt_end(struct stg_fetch *fetch, CURLcode result,
                     const struct stg_remote_settings *settings);

/* Frees what it has, in the middle of it or not. */
void stg_attempt_drop(struct stg_fetch *fetch);

/* Why a numeric address may not be connected to, or NULL: it may. `object` says what it
 * may. */
const char *stg_attempt_refuses(const struct stg_object *object, const char *address);

#endif
