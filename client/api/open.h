/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a stream, and what delays it: batches in hand, and pins of bindings.
 */
#ifndef STG_CLIENT_API_OPEN_H
#define STG_CLIENT_API_OPEN_H

#include "client/run/run.h"

/* Frees a stream that is closed, has no batch in hand and no pin; else nothing. In a
 * child of fork batches may still be released, which does nothing. */
void stg_stream_reap(struct stager_stream *stream);

/* For bindings whose views may outlive a release: as long as there is a pin, a closed
 * stream keeps its struct and its mappings, so that a look at a batch that was given back
 * sees other bytes and no hole. Each pin is taken back once, and the last one may free
 * the stream. */
void stg_stream_pin(struct stager_stream *stream);
void stg_stream_unpin(struct stager_stream *stream);

/* Drops what stg_run_keep kept, and its pin: work on `native` that was enqueued before
 * (has_native false: on the stream's own) may read it even then. */
void stg_run_drop(struct stager_stream *stream, struct stg_result *result,
                  bool has_native, void *native);

#endif
