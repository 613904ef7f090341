/* SPDX-License-Identifier: Apache-2.0
 *
 * A page of a bucket's list, as ListObjectsV2 answers it. What is not understood is
 * passed over; nothing in it is trusted. Pure; any thread.
 */
#ifndef STG_DAEMON_S3_H
#define STG_DAEMON_S3_H

#include "core/err.h"

#define STG_S3_TOKEN_BYTES 2048

/* Called for each key; a negative code ends it and is returned. */
typedef int stg_s3_key(void *owner, const char *key, struct stg_err *err);

/* text: a document that was asked for with encoding-type=url; it is written into. token
 * becomes what the next page is asked for with, or "". DATA_LOSS: it is no such list. */
int stg_s3_page(char *text, stg_s3_key *found, void *owner,
                char token[STG_S3_TOKEN_BYTES], struct stg_err *err);

#endif
