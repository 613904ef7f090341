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

struct stg_url_place {
    char host[256], port[8]; /* the port of the scheme where the URL has none */
    const char *path;        /* in the URL: "" or from its "/" on */
};

/* Splits an http:// or https:// URL of at most 512 bytes. Returns false: it is none, or
 * it has a user, a query or a fragment. */
bool stg_url_place(const char *url, struct stg_url_place *ret);

/* Refuses "." and ".." among the names of a path (up to "?"), also percent-encoded: they
 * would lead elsewhere than the beginning of the URL says. INVALID_ARGUMENT. */
int stg_url_check_dots(const char *scheme, const char *path, struct stg_err *err);

#endif
