/* SPDX-License-Identifier: Apache-2.0
 *
 * Whose secrets, and where: what stagerd.yaml says of objects by the beginning of their
 * URLs (remote.stores), and, for the daemon's own user alone, its environment as AWS's
 * tools read it. Secrets are read from their file when an object is opened, so that a new
 * one counts at once; they are never in a setting and never in a text. Any thread.
 */
#ifndef STG_DAEMON_STORE_H
#define STG_DAEMON_STORE_H

#include "core/spec.h"
#include "daemon/storage/http/object.h"

struct stg_file_user; /* daemon/storage/storage.h */

/* What holds for one object. Strings are malloc'ed; NULL: it is not said. */
struct stg_store {
    bool named;                   /* by stagerd.yaml */
    char *endpoint;               /* "http://host:9000", without a "/" at its end */
    char *region;                 /* of S3 */
    char *key, *secret, *session; /* of S3 */
    char *user, *password;        /* of a login; user alone: of WebHDFS */
    char *bearer;                 /* a token */
};

/* Copied. Replaces what was said before. RESOURCE_EXHAUSTED. */
int stg_stores_configure(const struct stg_remote_store_spec *specs, size_t n,
                         struct stg_err *err);
void stg_stores_finish(void);

/* The one with the longest prefix of url; all NULL where there is none. Errors:
 * PERMISSION_DENIED (its secrets are not for this user), FAILED_PRECONDITION (its file
 * cannot be read, or by too many). */
int stg_store_find(const char *url, const struct stg_file_user *identity,
                   struct stg_store *ret, struct stg_err *err);
void stg_store_finish(struct stg_store *store);

/* For root, and for the user of the daemon. */
bool stg_store_is_own(const struct stg_file_user *identity);

#endif
