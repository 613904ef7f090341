/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether the next version of a pipeline serves the trainer of a stream that follows.
 */
#ifndef STG_CLIENT_API_VERSION_H
#define STG_CLIENT_API_VERSION_H

#include "client/stream/stream.h"

/* Checks that `next` has each feature of the stream, with the same dtype, part and shape,
 * and its targets unless it names fetches. The first dimension may differ.
 * FAILED_PRECONDITION: the text names the difference. */
int stg_version_check(const struct stager_stream *stream,
                      const struct stager_stream *next, struct stg_err *err);

#endif
