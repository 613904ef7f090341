/* SPDX-License-Identifier: Apache-2.0
 *
 * `stagerd --check-config`: the settings and what they refer to, without a daemon.
 */
#ifndef STG_DAEMON_SERVER_CHECK_CONFIG_H
#define STG_DAEMON_SERVER_CHECK_CONFIG_H

/* Reads the settings as the daemon would (path NULL: where it looks) and prints each
 * mistake to standard error as "FILE:LINE: KEY: what"; without one, "FILE: ok" to
 * standard output. Returns the exit status. A pipeline that the daemon would leave out is
 * printed, and is no mistake of the settings. */
int stg_check_config(const char *path);

#endif
