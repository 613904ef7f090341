/* SPDX-License-Identifier: Apache-2.0
 *
 * What arrives on the socket of a session: requests, and doorbells of one byte. Belongs
 * to the loop.
 *
 * I5  No descriptor is accepted from a client: recv has no control buffer.
 */
#ifndef STG_DAEMON_SERVER_CONNECTION_H
#define STG_DAEMON_SERVER_CONNECTION_H

#include "daemon/server/session.h"

/* Makes a session of an accepted socket and reads from it. On failure the socket is
 * closed. */
void stg_connection_create(struct stg_server *server, int fd);

#endif
