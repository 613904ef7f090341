/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the endpoint and the credentials for an object. They come from remote.stores in
 * stagerd.yaml, by the prefix of the URL, and, only for the daemon's own user, from the
 * environment variables of AWS's tools. Secrets are read from their file when an object
 * is opened, so that a changed file takes effect at once. No secret is in a setting or in
 * a text. Any thread.
 */
#ifndef STG_DAEMON_STORE_H
#define STG_DAEMON_STORE_H

#include "core/spec.h"
#include "daemon/storage/http/object.h"

struct stg_file_user; /* daemon/storage/storage.h */

/* The settings for one object. Strings are malloc'ed; NULL: not set. */
struct stg_store {
    bool named;                   /* stagerd.yaml has an entry for it */
    char *endpoint;               /* "http://host:9000", without a "/" at its end */
    char *region;                 /* of S3 */
    char *key, *secret, *session; /* of S3 */
    char *user, *password;        /* of a login; user alone: of WebHDFS */
    char *bearer;                 /* a token */
};

/* Sets the stores of stagerd.yaml: copies specs, and replaces earlier ones.
 * RESOURCE_EXHAUSTED. */
int stg_stores_configure(const struct stg_remote_store_spec *specs, size_t n,
                         struct stg_err *err);
void stg_stores_finish(void);

/* Finds the store with the longest prefix of url; all fields are NULL if there is none.
 * Errors: PERMISSION_DENIED (this user may not use its credentials), FAILED_PRECONDITION
 * (the credentials file cannot be read, or too many users can read it). */
int stg_store_find(const char *url, const struct stg_file_user *identity,
                   struct stg_store *ret, struct stg_err *err);
void stg_store_finish(struct stg_store *store);

/* Returns true for root and for the user of the daemon. */
bool stg_store_is_own(const struct stg_file_user *identity);

#endif
