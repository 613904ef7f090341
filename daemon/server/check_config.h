/* SPDX-License-Identifier: Apache-2.0
 *
 * `stagerd --check-config`: the settings and what they refer to, without a daemon.
 */
#ifndef STG_DAEMON_SERVER_CHECK_CONFIG_H
#define STG_DAEMON_SERVER_CHECK_CONFIG_H

/* Reads the settings as the daemon does (path NULL: from its default place). Prints each
 * mistake to standard error as "FILE:LINE: KEY: what", or "FILE: ok" to standard output.
 * Also prints pipelines that the daemon would leave out: they are no mistakes of the
 * settings. Returns the exit status. */
int stg_check_config(const char *path);

#endif
