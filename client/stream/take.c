/* SPDX-License-Identifier: Apache-2.0
 *
 * The way of a batch: ring -> hand -> release. No system call when one is ready and the
 * daemon did not ask for a doorbell.
 */
#include "client/stream/take.h"

#include <stdio.h>
#include <string.h>

#include "client/stream/leased.h"
#include "client/stream/progress.h"
#include "client/stream/slice.h"
#include "client/stream/stream.h"
#include "core/batch.h"

/* A sleep is never longer: bounds the harm of a doorbell that got lost. */
#define SLEEP_NS 1000000000

/* Handles that are made at once when a trainer holds more slices than ever before. */
#define MORE_BATCHES 16

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void set_waiting(struct stager_stream *stream, bool waiting)
{
    if (stream->armed == waiting && !waiting)
        return;
    stg_control_set_waiting(&stream->control, waiting);
    stream->armed = waiting;
}

/* ---- what a descriptor means ---- */

/* Where the batch at rest lies that a descriptor names: inside of the segment. */
static int find_batch(struct stager_stream *stream, const struct stg_descriptor *d,
                      const void **ret)
{
    uint64_t bytes = stream->segment.bytes;
    if (d->segment != 0 || d->offset % STG_TENSOR_ALIGN != 0 || d->offset > bytes ||
        d->length > bytes - d->offset || d->length < sizeof(struct stg_batch_header))
        return stg_err(&stream->err, -STAGER_DATA_LOSS,
                       "batch %llu lies outside the shared memory (segment %u, offset "
                       "%llu, %llu bytes of %llu)",
                       (unsigned long long)d->number, d->segment,
                       (unsigned long long)d->offset, (unsigned long long)d->length,
                       (unsigned long long)bytes);
    *ret = (const char *)stream->segment.base + d->offset;
    return 0;
}

/* The next slice of the staged batch that is being sliced. Out of memory: another try may
 * get it. */
static int take_slice(struct stager_stream *stream, struct stager_batch **ret)
{
    struct stg_leased *leased = stream->current;
    if (stream->free_batches == NULL &&
        stg_stream_add_batches(stream, MORE_BATCHES, &stream->err) < 0)
        return -STAGER_RESOURCE_EXHAUSTED;
    struct stager_batch *batch = stream->free_batches;
    batch->leased = leased;
    int rc = stg_slice_make(batch, stream->batch_size, &stream->err);
    if (rc < 0)
        return rc;
    stg_batch_hand_out(stream, leased);
    if (++leased->next_slice == leased->n_slices)
        stream->current = NULL;
    *ret = batch;
    return 0;
}

/* Returns 1 if all of the batch is dropped, as a state requires. */
static int take_batch(struct stager_stream *stream, const struct stg_descriptor *d,
                      struct stager_batch **ret)
{
    const void *base;
    int rc = find_batch(stream, d, &base);
    if (rc < 0) {
        stg_lease_return(stream, d);
        return rc;
    }
    struct stg_leased *leased = stg_leased_take(stream, d, base);
    if (stream->has_news)
        stg_stream_ring_if_dry(stream);
    if (stream->batch_size == 0) {
        *ret = stg_batch_hand_out(stream, leased);
        return 0;
    }
    rc = stg_slice_prepare(stream, leased, &stream->err);
    if (rc < 0) {
        stream->n_errors++;
        stg_progress_note_error(stream, base, false);
        stg_leased_return(stream, leased);
        return rc;
    }
    if (leased->n_slices == 0) { /* a state has all of it */
        stg_leased_return(stream, leased);
        return 1;
    }
    stream->current = leased;
    return take_slice(stream, ret);
}

/* Reads code and text of an error item; the caller gives its memory back. */
static int read_error(struct stager_stream *stream, const struct stg_descriptor *d,
                      const void *base)
{
    struct stg_batch_header header;
    int rc = stg_batch_check(base, d->length, false, &stream->err);
    memcpy(&header, base, sizeof(header));
    if (rc == 0 && header.kind != STG_BATCH_ERROR)
        rc = stg_err(&stream->err, -STAGER_DATA_LOSS, "holds no error");
    if (rc < 0)
        return stg_err_prefix(&stream->err, rc, "error item %llu",
                              (unsigned long long)d->number);
    return stg_err(
        &stream->err, -(int)header.error_code, "%.*s",
        (int)strnlen((const char *)base + header.error_offset, header.error_bytes),
        (const char *)base + header.error_offset);
}

static int take_error(struct stager_stream *stream, const struct stg_descriptor *d)
{
    const void *base;
    int rc = find_batch(stream, d, &base);
    stream->n_errors++;
    if (rc == 0) {
        stg_progress_note_error(stream, base, (d->flags & STG_DESCRIPTOR_CARRIED) != 0);
        rc = read_error(stream, d, base);
    }
    stg_lease_return(stream, d);
    return rc;
}

static int say_end(struct stager_stream *stream)
{
    return stg_err(
        &stream->err, -STAGER_OUT_OF_RANGE,
        "end of pass %llu of pipeline %s: call stager_rewind for the next pass",
        (unsigned long long)stream->end_pass, stream->name);
}

/* After a reconnect, the end of a pass that the trainer has left may come again: the
 * stream asks for the next one. Returns 1 then. */
static int take_end(struct stager_stream *stream, const struct stg_descriptor *d)
{
    const struct stg_reconnect *reconnect = stream->reconnect;
    if (d->number < stream->n_over && reconnect != NULL &&
        reconnect->n + reconnect->n_followed > 0) {
        stg_control_want_pass(&stream->control, ++stream->passes);
        stg_stream_ring_doorbell(stream);
        return 1;
    }
    stream->at_end = true;
    stream->end_pass = d->number;
    return say_end(stream);
}

static int take_descriptor(struct stager_stream *stream, const struct stg_descriptor *d,
                           struct stager_batch **ret)
{
    switch (d->kind) {
    case STG_DESCRIPTOR_BATCH: return take_batch(stream, d, ret);
    case STG_DESCRIPTOR_ERROR: return take_error(stream, d);
    case STG_DESCRIPTOR_END: return take_end(stream, d);
    case STG_DESCRIPTOR_FINAL: return stg_stream_take_final(stream);
    }
    char text[128];
    snprintf(
        text, sizeof(text),
        "stagerd sent a descriptor of kind %u, which this library (%s) does not support",
        d->kind, STAGER_RELEASE);
    return stg_stream_finish(stream, -STAGER_INTERNAL, text);
}

/* ---- waiting ---- */

static bool spin(struct stager_stream *stream)
{
    int64_t until_ns = stg_clock_ns() + stream->spin_ns;
    do {
        for (int i = 0; i < 64; i++) {
            if (stg_ring_ready(&stream->ring))
                return true;
            pause_cpu();
        }
    } while (stg_clock_ns() < until_ns);
    return false;
}

static void sleep_once(struct stager_stream *stream, int64_t now_ns, int64_t deadline_ns)
{
    int64_t until_ns = now_ns + SLEEP_NS;
    stg_socket_sleep(stream->client->fd, until_ns < deadline_ns ? until_ns : deadline_ns);
    stream->n_sleeps++;
    stream->wait_ns += (uint64_t)(stg_clock_ns() - now_ns);
}

/* Waits until the ring has something: 0. The order of the look at the ring and all else
 * in here is the protocol: arm, take stale doorbells away, look, sleep. */
static int wait_for_descriptor(struct stager_stream *stream, int64_t timeout_millis)
{
    stg_stream_ring_if_dry(stream);
    if (stream->spin_ns > 0 && timeout_millis != 0 && spin(stream))
        return 0;
    int64_t now_ns = stg_clock_ns();
    int64_t deadline_ns = stg_clock_deadline_ns(now_ns, timeout_millis);
    if (stream->dry_since_ns == 0)
        stream->dry_since_ns = now_ns;
    stg_control_set_waiting_since(&stream->control, (uint64_t)now_ns);
    for (;;) {
        set_waiting(stream, true);
        int rc = stg_socket_drain(stream->client->fd);
        if (stg_ring_ready(&stream->ring))
            return 0;
        if (rc < 0)
            return stg_stream_lose(stream);
        stream->late = deadline_ns <= now_ns;
        if (stream->late) {
            rc = stg_stream_say_late(stream, timeout_millis);
            stream->late = rc < 0;
            return rc;
        }
        stg_stream_ring_if_dry(stream);
        sleep_once(stream, now_ns, deadline_ns);
        if (stg_ring_ready(&stream->ring))
            return 0; /* the doorbell that woke us is taken away before the next sleep */
        now_ns = stg_clock_ns();
    }
}

/* ---- take ---- */

static int say_all_held(struct stager_stream *stream)
{
    char numbers[256];
    size_t used = 0;
    numbers[0] = '\0';
    for (uint32_t i = 0; i < stream->max_in_flight && used < sizeof(numbers) - 64; i++) {
        const struct stg_leased *leased = &stream->leases[i]; /* all are out */
        used +=
            (size_t)snprintf(numbers + used, sizeof(numbers) - used, "%s%llu",
                             used > 0 ? ", " : "", (unsigned long long)leased->number);
        if (stream->batch_size != 0)
            used += (size_t)snprintf(numbers + used, sizeof(numbers) - used,
                                     ": %u of %u slices", leased->n_in_hand,
                                     leased->n_slices);
    }
    return stg_err(&stream->err, -STAGER_FAILED_PRECONDITION,
                   "this call would block forever: %u of %u %sbatches are in hand (%s): "
                   "release %s, or open with a larger max_in_flight",
                   stream->held, stream->max_in_flight,
                   stream->batch_size != 0 ? "staged " : "", numbers,
                   stream->batch_size != 0 ? "all slices of one" : "one");
}

/* The rest of the batch that is being sliced may be another's by now. */
static int end_revoked(struct stager_stream *stream)
{
    struct stg_leased *leased = stream->current;
    stream->current = NULL;
    if (leased != NULL && leased->n_in_hand == 0 && !leased->is_retained)
        stg_leased_return(stream, leased);
    stg_stream_return_untaken(stream);
    set_waiting(stream, false);
    return stg_stream_take_final(stream);
}

static void end_dry(struct stager_stream *stream)
{
    stream->dry_since_ns = 0;
    stream->why[0] = '\0';
}

/* Returns 1 if a batch was dropped. */
static int take_one(struct stager_stream *stream, int64_t timeout_millis,
                    struct stager_batch **ret)
{
    if (stream->finished != 0)
        return stg_err(&stream->err, stream->finished, "%s", stream->final_text);
    if (stg_ring_is_revoked(&stream->ring))
        return end_revoked(stream);
    if (stream->current != NULL)
        return take_slice(stream, ret);
    if (stream->at_end)
        return say_end(stream);
    if (stream->held == stream->max_in_flight)
        return say_all_held(stream);

    /* Says that what was taken before is done with, unless manual_ack was asked for. */
    if (stream->copier == NULL)
        stg_control_set_asked(&stream->control, stream->ring.cursor + 1);
    struct stg_descriptor d;
    while (!stg_ring_take(&stream->ring, &d)) {
        int rc = wait_for_descriptor(stream, timeout_millis);
        if (rc == 0 && stg_ring_is_revoked(&stream->ring))
            return end_revoked(stream);
        if (rc < 0) {
            if (timeout_millis != 0)
                set_waiting(stream, false);
            return rc;
        }
    }
    stg_control_set_taken(&stream->control, stream->ring.cursor);
    set_waiting(stream, false);
    if (stream->dry_since_ns != 0)
        end_dry(stream);
    return take_descriptor(stream, &d, ret);
}

int stg_stream_take(struct stager_stream *stream, int64_t timeout_millis,
                    struct stager_batch **ret)
{
    int rc;
    do {
        rc = take_one(stream, timeout_millis, ret);
    } while (rc == 1);
    return rc;
}

int stg_stream_take_again(struct stager_stream *stream, struct stg_leased *leased,
                          struct stager_batch **ret)
{
    if (stream->finished != 0)
        return stg_err(&stream->err, stream->finished, "%s", stream->final_text);
    if (stg_ring_is_revoked(&stream->ring))
        return end_revoked(stream);
    if (stream->batch_size != 0) {
        if (stream->current == NULL)
            leased->next_slice = 0;
        stream->current = leased;
        return take_slice(stream, ret);
    }
    if (stream->free_batches == NULL)
        return stg_err(&stream->err, -STAGER_FAILED_PRECONDITION,
                       "this call would block forever: %u batches are in hand: release "
                       "one, or open with a larger max_in_flight",
                       stream->max_in_flight);
    *ret = stg_batch_hand_out(stream, leased);
    return 0;
}
