/* SPDX-License-Identifier: Apache-2.0
 *
 * GnuTLS, with which libmicrohttpd encrypts: linked (tls_linked.c), or loaded
 * (tls_loaded.c), which a wheel for other machines does. Any thread.
 */
#ifndef STG_CORE_LIBRARY_TLS_H
#define STG_CORE_LIBRARY_TLS_H

#include "core/err.h"

/* Loads GnuTLS if it is not linked. FAILED_PRECONDITION names what is missing. To be
 * called before libmicrohttpd starts with a certificate. */
int stg_tls_library(struct stg_err *err);

#endif
