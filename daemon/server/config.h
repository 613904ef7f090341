/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds and loads the settings: from --config FILE, else from /etc/stager/stagerd.yaml if
 * it exists, else the defaults of the schema. A user's daemon (not root, no --config)
 * reads stager/stagerd.yaml in $XDG_CONFIG_HOME instead. Its directories are in
 * $XDG_RUNTIME_DIR, $XDG_STATE_HOME and $XDG_CONFIG_HOME, unless that file sets others.
 */
#ifndef STG_DAEMON_SERVER_CONFIG_H
#define STG_DAEMON_SERVER_CONFIG_H

#include "core/spec.h"

#define STG_CONFIG_PATH "/etc/stager/stagerd.yaml"

/* Loads the settings. path NULL: as above. The caller calls stg_settings_finish. */
int stg_config_load(const char *path, struct stg_settings *ret, struct stg_err *err);

/* Writes the path that stg_config_load reads to ret. The file need not exist. */
void stg_config_find(const char *asked, char *ret, size_t bytes);

/* Returns the line of a settings text that sets `key`, from 1; 0: no line sets it. */
unsigned stg_config_line(const char *text, const char *key);

/* Returns the text of the settings file that stg_config_load reads; "" if there is none.
 * The caller frees it. NULL: out of memory. */
char *stg_config_text(const char *path);

/* Lists the top-level keys whose values differ between two texts: "quotas, rules". */
void stg_config_changes(const char *before, const char *after, char *ret, size_t bytes);

#endif
