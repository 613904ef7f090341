/* SPDX-License-Identifier: Apache-2.0
 *
 * The header Host on a loopback address. The owner of a name can point it at 127.0.0.1:
 * a browser then takes answers for those of that site. Pure; any thread.
 */
#ifndef STG_CLIENT_METRICS_HOST_H
#define STG_CLIENT_METRICS_HOST_H

#include <stdbool.h>

/* Returns whether no name server was asked for that host: "localhost" or an IP address,
 * with or without a port. */
bool stg_metrics_is_local(const char *host);

#endif
