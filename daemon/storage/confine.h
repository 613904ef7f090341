/* SPDX-License-Identifier: Apache-2.0
 *
 * Where pipelines may read, by rules.read of stagerd.yaml: folders, and prefixes of URLs.
 * It adds to the rights of the applier, and grants none. Any thread.
 */
#ifndef STG_DAEMON_STORAGE_CONFINE_H
#define STG_DAEMON_STORAGE_CONFINE_H

#include "core/spec.h"

/* Uses the rules from now on, for what is opened then. Copied. RESOURCE_EXHAUSTED: the
 * rules of before remain. */
int stg_confine_configure(const struct stg_read_rules *rules, struct stg_err *err);
void stg_confine_finish(void);

/* Checks that the file or folder behind fd (O_PATH is enough) is what the path leads to
 * below an allowed folder, by a walk that leaves it neither by ".." nor by a link.
 * PERMISSION_DENIED names the rule. */
int stg_confine_check_fd(int fd, const char *path, struct stg_err *err);

/* Checks a URL: its scheme and host in any case, with or without the default port.
 * PERMISSION_DENIED names the rule. */
int stg_confine_check_url(const char *url, struct stg_err *err);

/* Returns whether URLs are restricted: an answer may not lead to another place. */
bool stg_confine_has_urls(void);

/* Writes the URL as rules compare it: scheme and host in lower case, without the name of
 * a user, the default port, query and fragment, percent-encoded bytes decoded once.
 * Returns false if it is no URL, is too long, or has a segment "." or "..". */
bool stg_confine_normal(const char *url, char *ret, size_t bytes);

#endif
