/* SPDX-License-Identifier: Apache-2.0
 *
 * Braces of a pattern, as the shell expands them: {a,b} stands for both, {000..099} for a
 * hundred numbers of three digits. They may stand one in another. What is neither, and
 * what follows a backslash, is a character like others. Pure functions.
 */
#ifndef STG_DAEMON_BRACES_H
#define STG_DAEMON_BRACES_H

#include "core/err.h"

/* What one pattern comes to, at most. */
#define STG_BRACES_MAX 1000000u

/* Calls `each` for what the pattern stands for, from left to right: itself, if it has no
 * braces. A return other than 0 ends it and is returned. INVALID_ARGUMENT: it stands for
 * more than STG_BRACES_MAX, or for one that is too long; RESOURCE_EXHAUSTED. */
int stg_braces_each(const char *pattern,
                    int (*each)(void *owner, const char *pattern, struct stg_err *err),
                    void *owner, struct stg_err *err);

/* Returns a pattern that matches only that path, or NULL if memory runs out. The caller
 * frees it. */
char *stg_braces_escape(const char *path);

#endif
