/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a stream, and what delays it: batches in hand, results of stager_run, and
 * pins of bindings.
 */
#ifndef STG_CLIENT_API_CLOSE_H
#define STG_CLIENT_API_CLOSE_H

#include "client/run/run.h"

/* Frees a stream that is closed, has no batch in hand and no pin; else nothing but those
 * of its retired streams that can be freed. In a child of fork batches may still be
 * released, which does nothing. */
void stg_stream_reap(struct stager_stream *stream);

/* For bindings: the struct stays after stager_close. Each pin is taken back once, and the
 * last one may free the stream. */
void stg_stream_pin(struct stager_stream *stream);
void stg_stream_unpin(struct stager_stream *stream);

/* For bindings whose views may outlive a release: the memory of the batch stays, so that
 * a look at a batch that was given back sees other bytes and no hole. The handle serves
 * to unpin after the release too. */
void stg_batch_pin(struct stager_batch *batch);
void stg_batch_unpin(struct stager_batch *batch);

/* Drops what stg_run_keep kept, and its pin: work on `native` that was enqueued before
 * (has_native false: on the stream's own) may read it even then. */
void stg_run_drop(struct stager_batch *home, struct stg_result *result, bool has_native,
                  void *native);

/* Exchanges the contents of the stream that the trainer has with those of `next`, which
 * is open. What is the trainer's own stays: counters, pins, the last error. */
void stg_stream_exchange(struct stager_stream *stream, struct stager_stream *next);

/* Lets go of a stagerd that has ended. What `old` has of it stays until the last batch of
 * it is released. */
void stg_stream_retire(struct stager_stream *old, struct stager_stream *owner);

#endif
