/* SPDX-License-Identifier: Apache-2.0
 *
 * `stagerd --check-config`: checks the settings, and the files that they name, without
 * starting a daemon.
 */
#ifndef STG_DAEMON_SERVER_CHECK_CONFIG_H
#define STG_DAEMON_SERVER_CHECK_CONFIG_H

/* Reads the settings as the daemon does (path NULL: from the default path). Prints each
 * mistake to standard error as "FILE:LINE: KEY: TEXT", or "FILE: ok" to standard output.
 * Also prints the pipelines that the daemon would skip; these do not count as mistakes.
 * Returns the exit status. */
int stg_check_config(const char *path);

#endif
