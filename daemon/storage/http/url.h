/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of URLs. Pure; any thread.
 */
#ifndef STG_DAEMON_URL_H
#define STG_DAEMON_URL_H

#include <stdbool.h>
#include <stdio.h>

#include "core/err.h"

/* Writes text with all but letters, digits and "-._~" as %XX. keep_slashes: "/" too is
 * written as it is. */
void stg_url_encode(FILE *to, const char *text, bool keep_slashes);

/* Refuses "." and ".." among the names of a path (up to "?"), also percent-encoded: they
 * would lead elsewhere than the beginning of the URL says. INVALID_ARGUMENT. */
int stg_url_check_dots(const char *scheme, const char *path, struct stg_err *err);

#endif
