/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses the XML answers of S3: a page of a bucket listing (ListObjectsV2), and errors.
 * Unknown elements are skipped, and the input is not trusted. Pure; any thread.
 */
#ifndef STG_DAEMON_S3_H
#define STG_DAEMON_S3_H

#include <stddef.h>

#include "core/err.h"

#define STG_S3_TOKEN_BYTES 2048

/* Called for each key. A negative code ends the page, and stg_s3_page returns it. */
typedef int stg_s3_key(void *owner, const char *key, struct stg_err *err);

/* Parses a page that was requested with encoding-type=url. Calls `found` only after the
 * whole page was parsed. token becomes the continuation token of the next page, or "".
 * DATA_LOSS: the text is not a listing. */
int stg_s3_page(const char *text, size_t bytes, stg_s3_key *found, void *owner,
                char token[STG_S3_TOKEN_BYTES], struct stg_err *err);

/* Extracts the first Code and the first Message of an error answer, truncated to their
 * buffers; "" if there is none. The text may be cut off anywhere, or not be XML. */
void stg_s3_refusal(const char *text, size_t bytes, char *code, size_t code_bytes,
                    char *message, size_t message_bytes);

#endif
