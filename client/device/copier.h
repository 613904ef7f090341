/* SPDX-License-Identifier: Apache-2.0
 *
 * A stream's batches on a device: copied ahead of the trainer, one copy a batch, each
 * into a slot of device memory that goes with its lease. Only work that needs a copy
 * waits for it: events on the device keep the order.
 *
 *     taken ──copy──► ahead ──stager_next──► in hand ──release──► leaving ──► given back
 *
 * A lease returns to the daemon, which then reuses the memory, when the trainer has
 * released the batch and the event of the copy is reached. A slot is reused when the
 * trainer's stream has passed the point of the release. One thread at a time, like the
 * stream.
 *
 * If the pipeline has memory on the same device (its `gpu`), batches in that memory are
 * not copied: they are complete when they are taken. Their lease returns when the
 * trainer's stream has passed the point of the release, because the daemon writes the
 * next batch to both memories. A batch that is not in that memory is copied as usual.
 */
#ifndef STG_CLIENT_DEVICE_COPIER_H
#define STG_CLIENT_DEVICE_COPIER_H

#include "client/stager.h"
#include "core/batch.h"
#include "core/device.h"
#include "proto/wire.h"

struct stager_stream;
struct stg_leased;
struct stg_copier;
struct stg_compute_device;

#define STG_DEVICE_CAPACITY 2 /* default number of batches ahead */
#define STG_MAX_DEVICE_CAPACITY 64

/* Finds the device that options name. UNAVAILABLE: the text has what is missing;
 * INVALID_ARGUMENT: no such name or number, or an option that `device` excludes. */
int stg_copier_create(const struct stager_options *options, struct stg_copier **ret,
                      struct stg_err *err);

/* Imports the device memory that came with the reply to open, if it is on the device of
 * the options. After a failure the stream copies batches instead. The caller keeps fd. */
void stg_copier_import(struct stager_stream *stream, const struct stg_reply *reply,
                       int fd);

/* Page-locks the memory and creates the slots. Call it after the stream has its memory
 * and its pipeline. */
int stg_copier_start(struct stager_stream *stream, struct stg_err *err);

/* Implements stager_next with a device. */
int stg_copier_next(struct stager_stream *stream, int64_t timeout_millis,
                    struct stager_batch **ret);

/* Releases a batch. The slot may be reused after the current work of `native`, a
 * cudaStream_t; own: of the stream of the options instead. */
void stg_copier_release(struct stager_batch *batch, bool own, void *native);

/* Returns whether the stream holds a batch that stager_next would return. */
bool stg_copier_is_ahead(const struct stager_stream *stream);

/* Gives back the batches that stager_next has not returned. */
void stg_copier_drop_ahead(struct stager_stream *stream);

/* Before the client leaves the pipeline, synchronize waits for copies and returns the
 * batches that the trainer released. After it, leave drops the batches ahead: if the
 * daemon has let go of the client (parted) their leases return, else they stay with the
 * daemon. */
void stg_copier_synchronize(struct stager_stream *stream);
void stg_copier_leave(struct stager_stream *stream, bool parted);

/* Changes ret to the tensor on the device, if it is there (strings are not). */
void stg_copier_show(const struct stager_batch *batch, struct stager_tensor *ret);

/* Returns the device for the nodes of stager_run: they run on the stream of the copies,
 * and the trainer's stream reads the results. False: the device runs no nodes. */
bool stg_copier_where(const struct stg_copier *copier, struct stg_compute_device *ret);

/* Returns the address of a tensor of the staged batch on the device, or NULL. */
void *stg_copier_at(const struct stager_batch *batch, const struct stg_tensor *tensor);

/* Wraps a stream of the trainer, for the duration of a call. */
int stg_copier_wrap(const struct stg_copier *copier, void *native,
                    struct stg_stream **ret, struct stg_err *err);

/* Returns the cudaEvent_t that is reached when the batch is on the device. */
void *stg_copier_event(const struct stager_batch *batch);

/* Make the stream `native` wait for that event, or (order) for any event. */
int stg_copier_wait(const struct stager_batch *batch, void *native);
int stg_copier_order(const struct stg_copier *copier, void *native,
                     struct stg_device_event *event, struct stg_err *err);

/* Waits for all work on the slots and frees them. In a forked child (ours false), frees
 * only the host memory. NULL is allowed. */
void stg_copier_destroy(struct stg_copier *copier, bool ours);

#endif
