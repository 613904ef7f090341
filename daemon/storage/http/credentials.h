/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of secrets, in the form of AWS's: "[profile]", then "name = value". Any thread.
 */
#ifndef STG_DAEMON_CREDENTIALS_H
#define STG_DAEMON_CREDENTIALS_H

#include "daemon/storage/http/store.h"

/* Sets what the profile says: aws_access_key_id, aws_secret_access_key,
 * aws_session_token, region (where store has none), user, password, bearer_token. Other
 * names are passed over. FAILED_PRECONDITION: the file cannot be read, others may read or
 * write it, or it has no such profile. No text has anything of it. */
int stg_credentials_read(const char *path, const char *profile, struct stg_store *store,
                         struct stg_err *err);

/* AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION or
 * AWS_DEFAULT_REGION, AWS_ENDPOINT_URL; else the profile AWS_PROFILE ("default") of
 * AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials), if that is there. */
int stg_credentials_of_environment(struct stg_store *store, struct stg_err *err);

#endif
