/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the settings come from: --config FILE, else /etc/stager/stagerd.yaml when it is
 * there, else the schema's defaults. A user's daemon (not root, no --config) reads
 * stager/stagerd.yaml in $XDG_CONFIG_HOME instead, and its folders lie in
 * $XDG_RUNTIME_DIR, $XDG_STATE_HOME and $XDG_CONFIG_HOME unless that file says otherwise.
 */
#ifndef STG_DAEMON_SERVER_CONFIG_H
#define STG_DAEMON_SERVER_CONFIG_H

#include "core/spec.h"

#define STG_CONFIG_PATH "/etc/stager/stagerd.yaml"

/* path NULL: as above. The caller calls stg_settings_finish. */
int stg_config_load(const char *path, struct stg_settings *ret, struct stg_err *err);

/* Returns the path that stg_config_load reads; the file need not exist. */
void stg_config_find(const char *asked, char *ret, size_t bytes);

/* Returns the line of a settings text that sets a key, from 1; 0: none does. */
unsigned stg_config_line(const char *text, const char *key);

#endif
