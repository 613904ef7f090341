/* SPDX-License-Identifier: Apache-2.0
 *
 * libcurl and libcrypto: linked (linked.c), or loaded at the first use of a URL
 * (loaded.c), which a wheel does, because its stagerd has to start without them. Any
 * thread.
 */
#ifndef STG_DAEMON_HTTP_LIBRARIES_H
#define STG_DAEMON_HTTP_LIBRARIES_H

#include "core/err.h"

/* Loads the libraries if they are not linked. FAILED_PRECONDITION names the missing one.
 * No other function of them may be called before the first success. */
int stg_http_libraries(struct stg_err *err);

/* The same, of libcrypto alone. */
int stg_http_crypto(struct stg_err *err);

#endif
