/* SPDX-License-Identifier: Apache-2.0 */
#include "client/device/copier.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/compute/compute.h"
#include "client/stream/leased.h"
#include "client/stream/stream.h"
#include "client/stream/take.h"
#include "client/stream/view.h"

/* Slots are made a little larger than what they are first used for: batches differ. */
#define SLOT_ROUND ((uint64_t)1 << 20)

/* Where one staged batch lies on the device; that of stream->leases[i] is slots[i]. */
struct slot {
    char *at;       /* in memory, or in what all trainers share */
    bool is_shared; /* the latter */
    void *memory;
    uint64_t bytes;
    uint64_t position; /* of its descriptor in the ring, from 1 */
    void *bounce;      /* page-locked; NULL where the segment itself is */
    uint64_t bounce_bytes;
    uint64_t first; /* byte of the batch at rest that lies there */
    /* On the stream of copies, and of stager_run; on the trainer's. */
    struct stg_device_event *copied, *used;
    bool is_leaving; /* released by the trainer, and not seen done with */
};

struct stg_copier {
    const struct stg_device *device;
    int number;
    uint32_t capacity;
    void *native; /* the trainer's stream, of the options */
    struct stg_stream *trainer, *copies;
    bool is_registered; /* the segment */
    void *registered;
    struct slot *slots;
    uint32_t n_slots;
    struct stg_device_shared shared; /* of all trainers; zero: there is none */
    uint32_t shared_number;          /* what descriptors call it */

    struct stager_batch **ahead; /* a ring of n_slots */
    uint32_t first_ahead, n_ahead;
    uint64_t handed_out; /* position of what stager_next gave last */
    int error;           /* of the item behind those ahead; 0: none. Its text: */
    char error_text[STG_ERR_TEXT_BYTES];
};

static struct slot *slot_of(const struct stager_stream *stream,
                            const struct stg_leased *leased)
{
    return &stream->copier->slots[leased - stream->leases];
}

/* ---- open ---- */

static int check_options(const struct stager_options *options, struct stg_err *err)
{
    if (options->batch_size != 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "batch_size slices batches in host memory and cannot be combined "
                       "with a device: let the pipeline make batches of that size");
    if (options->copy_on_write != 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "copy_on_write applies to batches in host memory: leave it out; a "
                       "batch on a device is a private copy and writable");
    if (options->device_capacity > STG_MAX_DEVICE_CAPACITY)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "device_capacity is %u; the maximum is %u",
                       options->device_capacity, STG_MAX_DEVICE_CAPACITY);
    return 0;
}

static int find_device(const char *name, struct stg_copier *copier, struct stg_err *err)
{
    int n = 0;
    int rc = stg_device_number(name, &copier->number, err);
    if (rc == 0)
        rc = stg_device_cuda(NULL, &copier->device, err);
    if (rc == 0)
        rc = copier->device->count(&n, err);
    if (rc == 0 && copier->number >= n)
        rc = stg_err(
            err, -STAGER_INVALID_ARGUMENT,
            "device \"%s\" does not exist: this process sees %d, numbered from cuda:0",
            name, n);
    return rc;
}

int stg_copier_create(const struct stager_options *options, struct stg_copier **ret,
                      struct stg_err *err)
{
    int rc = check_options(options, err);
    if (rc < 0)
        return rc;
    struct stg_copier *copier = calloc(1, sizeof(*copier));
    if (copier == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    copier->capacity = options->device_capacity != 0 ? options->device_capacity
                                                     : (uint32_t)STG_DEVICE_CAPACITY;
    copier->native = options->device_stream;
    rc = find_device(options->device, copier, err);
    if (rc < 0) {
        stg_copier_destroy(copier, true);
        return rc;
    }
    *ret = copier;
    return 0;
}

static int make_slots(struct stg_copier *copier, uint32_t n, struct stg_err *err)
{
    copier->slots = calloc(n, sizeof(*copier->slots));
    copier->ahead = calloc(n, sizeof(struct stager_batch *));
    if (copier->slots == NULL || copier->ahead == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    copier->n_slots = n;
    int rc = 0;
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        struct slot *slot = &copier->slots[i];
        rc = copier->device->event_create(copier->number, &slot->copied, err);
        if (rc == 0)
            rc = copier->device->event_create(copier->number, &slot->used, err);
    }
    return rc;
}

/* Whatever the reason is that memory cannot be page-locked where it lies, a copy of it
 * can be. */
static void lock_segment(struct stager_stream *stream)
{
    struct stg_copier *copier = stream->copier;
    struct stg_err why = {0};
    copier->registered = stream->segment.base;
    copier->is_registered =
        copier->device->host_register(copier->number, stream->segment.base,
                                      stream->segment.bytes, true, &why) == 0;
}

int stg_copier_start(struct stager_stream *stream, struct stg_err *err)
{
    struct stg_copier *copier = stream->copier;
    const struct stg_device *device = copier->device;
    uint32_t id = stream->spec != NULL ? stream->spec->staged.stream_id : 0;
    int rc = device->stream_wrap(copier->number, copier->native, &copier->trainer, err);
    if (rc == 0 && id != 0)
        rc = device->stream_create(copier->number, &copier->copies, err);
    else if (rc == 0)
        copier->copies = copier->trainer;
    if (rc == 0)
        rc = make_slots(copier, stream->max_in_flight, err);
    if (rc == 0)
        lock_segment(stream);
    return rc;
}

void stg_copier_import(struct stager_stream *stream, const struct stg_reply *reply,
                       int fd)
{
    struct stg_copier *copier = stream->copier;
    struct stg_device_facts facts;
    struct stg_err why = {0};
    if (copier->device->facts(copier->number, &facts, &why) < 0 ||
        memcmp(facts.uuid, reply->device_uuid, sizeof(facts.uuid)) != 0 ||
        reply->device_bytes > SIZE_MAX)
        return;
    if (copier->device->shared_import(copier->number, fd, (size_t)reply->device_bytes,
                                      true, &copier->shared, &why) == 0)
        copier->shared_number = reply->device_number;
}

/* ---- a copy ---- */

/* Is all of the batch in the memory that trainers share? */
static bool is_there(const struct stager_stream *stream, const struct stg_leased *leased)
{
    const struct stg_copier *copier = stream->copier;
    uint64_t at =
        (uint64_t)((const char *)leased->base - (const char *)stream->segment.base);
    return leased->device != 0 && leased->device == copier->shared_number &&
           leased->bytes <= copier->shared.bytes &&
           at <= copier->shared.bytes - leased->bytes;
}

/* Needs no copy and waits for none. */
static void find_shared(struct stager_stream *stream, struct slot *slot, const void *base)
{
    uint64_t bytes;
    stg_batch_device_span(base, &slot->first, &bytes);
    slot->is_shared = true;
    slot->at = (char *)stream->copier->shared.memory +
               ((const char *)base - (const char *)stream->segment.base) + slot->first;
    stream->n_shared++;
}

/* The slot is free: its bounce buffer is no longer read, and its memory is free once
 * `used` is reached. */
static int grow_slot(const struct stg_copier *copier, struct slot *slot, uint64_t bytes,
                     struct stg_err *err)
{
    const struct stg_device *device = copier->device;
    uint64_t most = (bytes + bytes / 8 + SLOT_ROUND - 1) / SLOT_ROUND * SLOT_ROUND;
    int rc = 0;
    if (bytes > slot->bytes) {
        rc = device->event_wait(slot->used, err);
        if (rc < 0)
            return rc;
        device->free(copier->number, slot->memory);
        slot->memory = NULL;
        slot->bytes = 0;
        rc = device->alloc(copier->number, (size_t)most, &slot->memory, err);
        slot->bytes = rc == 0 ? most : 0;
    }
    if (rc == 0 && !copier->is_registered && bytes > slot->bounce_bytes) {
        device->host_free(slot->bounce);
        slot->bounce = NULL;
        slot->bounce_bytes = 0;
        rc = device->host_alloc((size_t)most, &slot->bounce, err);
        slot->bounce_bytes = rc == 0 ? most : 0;
    }
    return rc;
}

static int copy(struct stager_stream *stream, struct slot *slot, const void *base)
{
    struct stg_copier *copier = stream->copier;
    const struct stg_device *device = copier->device;
    struct stg_err *err = &stream->err;
    uint64_t bytes;
    slot->is_shared = false;
    stg_batch_device_span(base, &slot->first, &bytes);
    const void *from = (const char *)base + slot->first;
    int rc = grow_slot(copier, slot, bytes, err);
    if (rc < 0)
        return rc;
    if (!copier->is_registered && bytes > 0) {
        memcpy(slot->bounce, from, (size_t)bytes);
        from = slot->bounce;
    }
    slot->at = slot->memory;
    rc = device->stream_wait(copier->copies, slot->used, err);
    if (rc == 0)
        rc = device->copy_in(copier->copies, slot->memory, from, (size_t)bytes, err);
    if (rc == 0)
        rc = device->event_record(slot->copied, copier->copies, err);
    if (rc == 0)
        stream->device_bytes += bytes;
    return rc;
}

/* Takes one batch and has it copied. After an error it is not held any more. */
static int take(struct stager_stream *stream, int64_t timeout_millis)
{
    struct stg_copier *copier = stream->copier;
    struct stager_batch *batch;
    int rc = stg_stream_take(stream, timeout_millis, &batch);
    if (rc < 0)
        return rc;
    struct slot *slot = slot_of(stream, batch->leased);
    rc = stg_leased_open(stream, batch->leased, &stream->err);
    if (rc == 0 && is_there(stream, batch->leased))
        find_shared(stream, slot, batch->leased->base);
    else if (rc == 0)
        rc = copy(stream, slot, batch->leased->base);
    if (rc < 0) {
        struct stg_leased *leased = batch->leased;
        stg_batch_hand_in(batch);
        stg_leased_return(stream, leased);
        return rc;
    }
    slot->position = stream->ring.cursor;
    uint32_t at = (copier->first_ahead + copier->n_ahead++) % copier->n_slots;
    copier->ahead[at] = batch;
    return 0;
}

/* ---- what comes back ---- */

/* May the daemon write to it? A copy was read then; what is shared is read by the
 * trainer's own work, and by stager_run. A device that fails reads no more. */
static bool is_done_with(const struct stg_copier *copier, const struct slot *slot,
                         bool waits)
{
    const struct stg_device *device = copier->device;
    if (waits) {
        device->event_wait(slot->copied, NULL);
        if (slot->is_shared)
            device->event_wait(slot->used, NULL);
        return true;
    }
    return device->event_query(slot->copied, NULL) != 0 &&
           (!slot->is_shared || device->event_query(slot->used, NULL) != 0);
}

/* Gives back leases of batches that were released and are done with. waits: until one
 * was. */
static bool collect(struct stager_stream *stream, bool waits)
{
    struct stg_copier *copier = stream->copier;
    bool any = false;
    for (uint32_t i = 0; i < copier->n_slots; i++) {
        struct slot *slot = &copier->slots[i];
        if (!slot->is_leaving || !is_done_with(copier, slot, waits && !any))
            continue;
        slot->is_leaving = false;
        any = true;
        stg_leased_return(stream, &stream->leases[i]);
    }
    return any;
}

static struct stager_batch *pop(struct stg_copier *copier)
{
    struct stager_batch *batch = copier->ahead[copier->first_ahead];
    copier->first_ahead = (copier->first_ahead + 1) % copier->n_slots;
    copier->n_ahead--;
    return batch;
}

/* The handle is free, the lease leaves. */
static void let_go(struct stager_batch *batch)
{
    struct stager_stream *stream = batch->stream;
    slot_of(stream, batch->leased)->is_leaving = !batch->leased->is_retained;
    stg_batch_hand_in(batch);
}

void stg_copier_release(struct stager_batch *batch, bool own, void *native)
{
    struct stager_stream *stream = batch->stream;
    struct stg_copier *copier = stream->copier;
    const struct stg_device *device = copier->device;
    struct slot *slot = slot_of(stream, batch->leased);
    struct stg_stream *after = copier->trainer;
    struct stg_err *err = stg_stream_err(stream);
    int rc = own || native == copier->native
                 ? 0
                 : device->stream_wrap(copier->number, native, &after, err);
    if (rc < 0)
        after = copier->trainer;
    device->event_record(slot->used, after, err);
    if (slot->is_shared)
        device->event_record(slot->copied, copier->copies, err);
    if (after != copier->trainer)
        device->stream_destroy(after);
    let_go(batch);
    collect(stream, stream->client == NULL); /* a closed stream does not collect again */
}

bool stg_copier_is_ahead(const struct stager_stream *stream)
{
    const struct stg_copier *copier = stream->copier;
    return copier != NULL && (copier->n_ahead > 0 || copier->error != 0);
}

/* ---- next ---- */

/* The daemon has let go of this client: what was not handed out may be another's. */
void stg_copier_drop_ahead(struct stager_stream *stream)
{
    struct stg_copier *copier = stream->copier;
    copier->error = 0;
    while (copier->n_ahead > 0)
        let_go(pop(copier));
}

static void keep_error(struct stager_stream *stream, int rc)
{
    stream->copier->error = rc;
    snprintf(stream->copier->error_text, STG_ERR_TEXT_BYTES, "%s", stream->err.text);
}

static int tell_error(struct stager_stream *stream)
{
    int rc = stream->copier->error;
    stream->copier->error = 0;
    return stg_err(&stream->err, rc, "%s", stream->copier->error_text);
}

/* What is ready, up to the capacity and one to hand out. */
static void take_ready(struct stager_stream *stream)
{
    struct stg_copier *copier = stream->copier;
    while (copier->error == 0 && copier->n_ahead <= copier->capacity &&
           stream->held < stream->max_in_flight && !stream->at_end &&
           stream->finished == 0 && stg_ring_ready(&stream->ring) &&
           !stg_ring_is_revoked(&stream->ring)) {
        int rc = take(stream, 0);
        /* The end of a pass and of everything is remembered by the stream itself. */
        if (rc < 0 && !stream->at_end && stream->finished == 0)
            keep_error(stream, rc);
    }
}

/* Before it sleeps, gives all released batches back: the end of a pass waits for them. */
static int take_first(struct stager_stream *stream, int64_t timeout_millis)
{
    while (!stg_ring_ready(&stream->ring) && collect(stream, true))
        ;
    if (stream->held == stream->max_in_flight)
        collect(stream, true);
    stg_control_set_asked(&stream->control, stream->ring.cursor + 1);
    return take(stream, timeout_millis);
}

int stg_copier_next(struct stager_stream *stream, int64_t timeout_millis,
                    struct stager_batch **ret)
{
    struct stg_copier *copier = stream->copier;
    collect(stream, false);
    /* What the trainer had is done with, as stager_next says; what is ahead is not. */
    if (copier->n_ahead > 0)
        stg_control_set_asked(&stream->control, copier->handed_out + 1);
    if (stg_ring_is_revoked(&stream->ring))
        stg_copier_drop_ahead(stream);
    if (copier->n_ahead == 0 && copier->error != 0)
        return tell_error(stream);
    if (copier->n_ahead == 0) {
        int rc = take_first(stream, timeout_millis);
        if (rc < 0)
            return rc;
    }
    take_ready(stream);
    struct stager_batch *batch = pop(copier);
    struct slot *slot = slot_of(stream, batch->leased);
    int rc = copier->device->stream_wait(copier->trainer, slot->copied, &stream->err);
    if (rc < 0) {
        let_go(batch);
        return rc;
    }
    stream->err.code = 0;
    stream->err.text[0] = '\0';
    copier->handed_out = slot->position;
    *ret = batch;
    return 0;
}

/* ---- views ---- */

void *stg_copier_at(const struct stager_batch *batch, const struct stg_tensor *tensor)
{
    const struct slot *slot = slot_of(batch->stream, batch->leased);
    uint64_t at =
        (uint64_t)((const char *)tensor->data - (const char *)batch->leased->base);
    if (tensor->dtype == STAGER_STRING)
        return NULL;
    return tensor->data_bytes > 0 ? slot->at + (at - slot->first) : slot->at;
}

void stg_copier_show(const struct stager_batch *batch, struct stager_tensor *ret)
{
    struct stg_tensor tensor = {.dtype = ret->dtype,
                                .data = (void *)(uintptr_t)ret->data,
                                .data_bytes = ret->data_bytes};
    if (ret->dtype == STAGER_STRING)
        return;
    ret->data = stg_copier_at(batch, &tensor);
    ret->device = (uint32_t)batch->stream->copier->number + 1;
}

/* ---- where stager_run may run nodes ---- */

bool stg_copier_where(const struct stg_copier *copier, struct stg_compute_device *ret)
{
    *ret = (struct stg_compute_device){.device = copier->device,
                                       .number = copier->number,
                                       .stream = copier->copies,
                                       .trainer = copier->trainer};
    return copier->device->kernels != NULL;
}

int stg_copier_wrap(const struct stg_copier *copier, void *native,
                    struct stg_stream **ret, struct stg_err *err)
{
    return copier->device->stream_wrap(copier->number, native, ret, err);
}

/* ---- close ---- */

void stg_copier_synchronize(struct stager_stream *stream)
{
    while (collect(stream, true))
        ;
    for (uint32_t i = 0; i < stream->copier->n_slots; i++)
        is_done_with(stream->copier, &stream->copier->slots[i], true);
}

void stg_copier_leave(struct stager_stream *stream, bool parted)
{
    struct stg_copier *copier = stream->copier;
    while (copier->n_ahead > 0) {
        struct stager_batch *batch = pop(copier);
        struct stg_leased *leased = batch->leased;
        stg_batch_hand_in(batch);
        if (parted)
            stg_leased_return(stream, leased);
        else
            stg_leased_forget(stream, leased);
    }
}

static void free_slot(const struct stg_copier *copier, struct slot *slot)
{
    const struct stg_device *device = copier->device;
    if (slot->copied != NULL)
        device->event_wait(slot->copied, NULL);
    if (slot->used != NULL)
        device->event_wait(slot->used, NULL);
    device->event_destroy(slot->copied);
    device->event_destroy(slot->used);
    device->free(copier->number, slot->memory);
    device->host_free(slot->bounce);
}

void stg_copier_destroy(struct stg_copier *copier, bool ours)
{
    if (copier == NULL)
        return;
    for (uint32_t i = 0; ours && i < copier->n_slots; i++)
        free_slot(copier, &copier->slots[i]);
    if (ours && copier->device != NULL)
        copier->device->shared_release(&copier->shared);
    if (ours && copier->is_registered)
        copier->device->host_unregister(copier->registered);
    if (ours && copier->device != NULL) {
        if (copier->copies != copier->trainer)
            copier->device->stream_destroy(copier->copies);
        copier->device->stream_destroy(copier->trainer);
    }
    free(copier->slots);
    free(copier->ahead);
    free(copier);
}

/* ---- when it is there ---- */

void *stg_copier_event(const struct stager_batch *batch)
{
    const struct stg_device *device = batch->stream->copier->device;
    return device->event_native(slot_of(batch->stream, batch->leased)->copied);
}

int stg_copier_wait(const struct stager_batch *batch, void *native)
{
    struct stager_stream *stream = batch->stream;
    return stg_copier_order(stream->copier, native,
                            slot_of(stream, batch->leased)->copied,
                            stg_stream_err(stream));
}

int stg_copier_order(const struct stg_copier *copier, void *native,
                     struct stg_device_event *event, struct stg_err *err)
{
    struct stg_stream *waiting;
    int rc = stg_copier_wrap(copier, native, &waiting, err);
    if (rc < 0)
        return rc;
    rc = copier->device->stream_wait(waiting, event, err);
    copier->device->stream_destroy(waiting);
    return rc;
}
