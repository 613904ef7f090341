/* SPDX-License-Identifier: Apache-2.0
 *
 * A stream's batches on a device: copied ahead of the trainer, one copy a batch, each
 * into a slot of device memory that goes with its lease. Nothing waits for a copy but
 * what must: order is kept by events on the device.
 *
 *     taken ──copy──► ahead ──stager_next──► in hand ──release──► leaving ──► given back
 *
 * A lease goes back when the trainer has released the batch and the copy's event was
 * reached: the daemon writes to that memory next. A slot is written again after the
 * trainer's stream has passed the point at which it released the batch. One thread at a
 * time, as the stream.
 *
 * Where the pipeline has memory on the same device (its `gpu`), batches that lie there
 * are not copied: they are complete when they are taken, and their lease goes back when
 * the trainer's stream has passed that point, for the next batch is written to both
 * places. A batch that is not there is copied as ever.
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

#define STG_DEVICE_CAPACITY 2 /* batches ahead, where options do not say */
#define STG_MAX_DEVICE_CAPACITY 64

/* Finds the device that options name. UNAVAILABLE says what is not there;
 * INVALID_ARGUMENT: no such name or number, or an option that does not go with it. */
int stg_copier_create(const struct stager_options *options, struct stg_copier **ret,
                      struct stg_err *err);

/* Takes the memory on a device that came with the reply to open, if it is on the one of
 * the options. What goes wrong here costs copies and nothing else. fd stays the caller's.
 */
void stg_copier_import(struct stager_stream *stream, const struct stg_reply *reply,
                       int fd);

/* Once the stream has its memory and its pipeline: page-locks, makes slots. */
int stg_copier_start(struct stager_stream *stream, struct stg_err *err);

/* What stager_next is with a device. */
int stg_copier_next(struct stager_stream *stream, int64_t timeout_millis,
                    struct stager_batch **ret);

/* The trainer has released the batch: `native` is the cudaStream_t after whose work the
 * slot may be written again; own: the stream of the options instead. */
void stg_copier_release(struct stager_batch *batch, bool own, void *native);

/* Does the stream still hold what stager_next would hand out? */
bool stg_copier_is_ahead(const struct stager_stream *stream);

/* Before the client leaves the pipeline: waits for copies, gives back what
 * the trainer released. After it: what is ahead, whose leases go back if the daemon has
 * let go (parted), else stay with it. */
void stg_copier_synchronize(struct stager_stream *stream);
void stg_copier_leave(struct stager_stream *stream, bool parted);

/* The tensor as it is on the device, where it is there: strings are not. */
void stg_copier_show(const struct stager_batch *batch, struct stager_tensor *ret);

/* The device as nodes of stager_run see it: on the stream of the copies, read by the
 * trainer's. False: nothing runs there. */
bool stg_copier_where(const struct stg_copier *copier, struct stg_compute_device *ret);

/* Where a tensor of the staged batch lies on the device; NULL: not there. */
void *stg_copier_at(const struct stager_batch *batch, const struct stg_tensor *tensor);

/* A stream of the trainer's, for the length of a call. */
int stg_copier_wrap(const struct stg_copier *copier, void *native,
                    struct stg_stream **ret, struct stg_err *err);

/* The cudaEvent_t that is reached when the batch is on the device. */
void *stg_copier_event(const struct stager_batch *batch);

/* Has the trainer's stream wait for that. The second: for any event. */
int stg_copier_wait(const struct stager_batch *batch, void *native);
int stg_copier_order(const struct stg_copier *copier, void *native,
                     struct stg_device_event *event, struct stg_err *err);

/* Waits for all work on the slots, frees them. In a forked child (ours false) frees the
 * host's memory alone. NULL is allowed. */
void stg_copier_destroy(struct stg_copier *copier, bool ours);

#endif
