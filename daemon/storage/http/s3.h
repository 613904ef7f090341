/* SPDX-License-Identifier: Apache-2.0
 *
 * What S3 answers in XML: a page of a bucket's list (ListObjectsV2), and errors. What is
 * not understood is passed over; nothing in it is trusted. Pure; any thread.
 */
#ifndef STG_DAEMON_S3_H
#define STG_DAEMON_S3_H

#include <stddef.h>

#include "core/err.h"

#define STG_S3_TOKEN_BYTES 2048

/* Called for each key; a negative code ends it and is returned. */
typedef int stg_s3_key(void *owner, const char *key, struct stg_err *err);

/* text: a document that was asked for with encoding-type=url. Keys are given out once all
 * of it was read. token becomes what the next page is asked for with, or "". DATA_LOSS:
 * it is no such list. */
int stg_s3_page(const char *text, size_t bytes, stg_s3_key *found, void *owner,
                char token[STG_S3_TOKEN_BYTES], struct stg_err *err);

/* What a refusal says: the first Code and the first Message, truncated to the room for
 * them,
 * "" without one. The text may end anywhere, and be no XML. */
void stg_s3_refusal(const char *text, size_t bytes, char *code, size_t code_bytes,
                    char *message, size_t message_bytes);

#endif
