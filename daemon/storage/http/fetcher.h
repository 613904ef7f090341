/* SPDX-License-Identifier: Apache-2.0
 *
 * The threads that fetch, and what all of them keep to: settings, the memory for what is
 * fetched ahead. They begin with the first fetch, and keep connections for the next one.
 */
#ifndef STG_DAEMON_FETCHER_H
#define STG_DAEMON_FETCHER_H

#include "core/spec.h"
#include "daemon/storage/http/fetch.h"

/* Settings for what is fetched from now on; before the first call they are those of an
 * empty stagerd.yaml. Copied. Any thread. */
void stg_fetchers_configure(const struct stg_remote_settings *settings);

/* Those of now, but the stores (store.h). */
void stg_fetchers_settings(struct stg_remote_settings *ret);

/* The memory for what is fetched ahead, over all files; the caller unrefs. NULL when out
 * of memory. */
struct stg_quota *stg_fetchers_quota(void);

/* Ends the threads, closes all connections. No fetch may be in progress; afterwards all
 * begins anew. */
void stg_fetchers_finish(void);

#endif
