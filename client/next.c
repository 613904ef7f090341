/* SPDX-License-Identifier: Apache-2.0
 *
 * The way of a batch: ring -> hand -> release. No system call when one is ready and the
 * daemon did not ask for a bell.
 */
#include <stdio.h>
#include <string.h>

#include "client/copier.h"
#include "client/stream.h"
#include "core/batch.h"

/* A sleep is never longer: bounds the harm of a bell that got lost. */
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

static void ring_bell(struct stager_stream *stream)
{
    stream->bell_owed = !stg_socket_bell(stream->client->fd);
}

static void ring_if_dry(struct stager_stream *stream)
{
    if (stream->client != NULL &&
        (stg_ring_should_bell(&stream->ring) || stream->bell_owed))
        ring_bell(stream);
}

static void set_waiting(struct stager_stream *stream, bool waiting)
{
    if (stream->armed == waiting && !waiting)
        return;
    stg_control_set_waiting(&stream->control, waiting);
    stream->armed = waiting;
}

/* ---- what a descriptor means ---- */

/* Everything after the last descriptor gets the same answer. */
static int finish(struct stager_stream *stream, int code, const char *text)
{
    stream->finished = code;
    snprintf(stream->final_text, STG_ERR_TEXT_BYTES, "%s", text);
    return stg_err(&stream->err, code, "%s", text);
}

static int read_final(const struct stager_stream *stream, char text[STG_FINAL_TEXT_BYTES])
{
    const struct stg_final *page = &stream->ring.page->final;
    uint32_t code = page->code, bytes = page->text_bytes;
    if (bytes > sizeof(page->text) - 1)
        bytes = sizeof(page->text) - 1;
    memcpy(text, page->text, bytes);
    text[bytes] = '\0';
    return code == 0 || code > STAGER_UNAUTHENTICATED ? -STAGER_UNKNOWN : -(int)code;
}

static int take_final(struct stager_stream *stream)
{
    char text[STG_FINAL_TEXT_BYTES];
    int code = read_final(stream, text);
    return finish(stream, code, text);
}

int stg_stream_why(struct stager_stream *stream, int rc)
{
    if (rc != -STAGER_UNAVAILABLE || stream->ring.page->final.code == 0)
        return rc;
    char text[STG_FINAL_TEXT_BYTES];
    int code = read_final(stream, text);
    return stg_err(&stream->err, code, "%s", text);
}

/* Where the batch at rest lies that a descriptor names: inside of the segment. */
static int find_batch(struct stager_stream *stream, const struct stg_descriptor *d,
                      const void **ret)
{
    uint64_t bytes = stream->segment.bytes;
    if (d->segment != 0 || d->offset % STG_TENSOR_ALIGN != 0 || d->offset > bytes ||
        d->length > bytes - d->offset || d->length < sizeof(struct stg_batch_header))
        return stg_err(
            &stream->err, -STAGER_DATA_LOSS,
            "batch %llu: lies outside of the memory that stagerd shares (segment %u, "
            "offset %llu, %llu bytes of %llu)",
            (unsigned long long)d->number, d->segment, (unsigned long long)d->offset,
            (unsigned long long)d->length, (unsigned long long)bytes);
    *ret = (const char *)stream->segment.base + d->offset;
    return 0;
}

static void release_lease(struct stager_stream *stream, const struct stg_descriptor *d)
{
    stg_control_release(&stream->control, d->lease, d->lease_generation);
    ring_if_dry(stream);
}

static struct stg_lent *lent_of(struct stager_stream *stream,
                                const struct stg_descriptor *d, const void *base)
{
    struct stg_lent *lent = stream->free_lents;
    stream->free_lents = lent->next_free;
    *lent = (struct stg_lent){
        .base = base,
        .number = d->number,
        .bytes = d->length,
        .assigned_ns = d->assigned_ns,
        .lease = d->lease,
        .lease_generation = d->lease_generation,
        .device = d->device,
        .redelivered = (d->flags & STG_DESCRIPTOR_REDELIVERED) != 0,
    };
    stream->held++;
    if (stream->copy_on_write) /* who wrote to it when it was not its own any more? */
        stg_map_forget(&stream->segment, base, d->length);
    return lent;
}

void stg_lent_forget(struct stager_stream *stream, struct stg_lent *lent)
{
    lent->next_free = stream->free_lents;
    stream->free_lents = lent;
    stream->held--;
}

void stg_lent_return(struct stager_stream *stream, struct stg_lent *lent)
{
    if (stream->copy_on_write)
        stg_map_forget(&stream->segment, lent->base, lent->bytes);
    stg_control_release(&stream->control, lent->lease, lent->lease_generation);
    stg_lent_forget(stream, lent);
    ring_if_dry(stream);
}

/* Hands out a handle on the staged batch. */
static struct stager_batch *hand_out(struct stager_stream *stream, struct stg_lent *lent)
{
    struct stager_batch *batch = stream->free_batches;
    stream->free_batches = batch->next_free;
    batch->lent = lent;
    batch->in_hand = true;
    lent->n_in_hand++;
    return batch;
}

void stg_batch_hand_in(struct stager_batch *batch)
{
    struct stager_stream *stream = batch->stream;
    batch->in_hand = false;
    batch->next_free = stream->free_batches;
    stream->free_batches = batch;
    batch->lent->n_in_hand--;
}

/* The next slice of the staged batch that is being cut. Out of memory: another try may
 * get it. */
static int take_slice(struct stager_stream *stream, struct stager_batch **ret)
{
    struct stg_lent *lent = stream->current;
    if (stream->free_batches == NULL &&
        stg_stream_add_batches(stream, MORE_BATCHES, &stream->err) < 0)
        return -STAGER_RESOURCE_EXHAUSTED;
    struct stager_batch *batch = stream->free_batches;
    batch->lent = lent;
    int rc = stg_slice_make(batch, stream->batch_size, &stream->err);
    if (rc < 0)
        return rc;
    hand_out(stream, lent);
    if (++lent->next_slice == lent->n_slices)
        stream->current = NULL;
    *ret = batch;
    return 0;
}

static int take_batch(struct stager_stream *stream, const struct stg_descriptor *d,
                      struct stager_batch **ret)
{
    const void *base;
    int rc = find_batch(stream, d, &base);
    if (rc < 0) {
        release_lease(stream, d);
        return rc;
    }
    struct stg_lent *lent = lent_of(stream, d, base);
    if (stream->batch_size == 0) {
        ring_if_dry(stream);
        *ret = hand_out(stream, lent);
        return 0;
    }
    rc = stg_slice_prepare(stream, lent, &stream->err);
    if (rc < 0) {
        stream->n_errors++;
        stg_lent_return(stream, lent);
        return rc;
    }
    stream->current = lent;
    ring_if_dry(stream);
    return take_slice(stream, ret);
}

/* Reads code and text of an error item; the caller gives its memory back. */
static int read_error(struct stager_stream *stream, const struct stg_descriptor *d)
{
    const void *base;
    int rc = find_batch(stream, d, &base);
    if (rc < 0)
        return rc;
    rc = stg_batch_check(base, d->length, false, &stream->err);
    struct stg_batch_header header;
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
    stream->n_errors++;
    int rc = read_error(stream, d);
    release_lease(stream, d);
    return rc;
}

static int say_end(struct stager_stream *stream)
{
    return stg_err(&stream->err, -STAGER_OUT_OF_RANGE,
                   "end of pass %llu of pipeline %s: stager_rewind asks for the next",
                   (unsigned long long)stream->end_pass, stream->name);
}

static int take_descriptor(struct stager_stream *stream, const struct stg_descriptor *d,
                           struct stager_batch **ret)
{
    switch (d->kind) {
    case STG_DESCRIPTOR_BATCH: return take_batch(stream, d, ret);
    case STG_DESCRIPTOR_ERROR: return take_error(stream, d);
    case STG_DESCRIPTOR_END:
        stream->at_end = true;
        stream->end_pass = d->number;
        return say_end(stream);
    case STG_DESCRIPTOR_FINAL: return take_final(stream);
    }
    char text[128];
    snprintf(text, sizeof(text),
             "stagerd sent a descriptor of kind %u, which this library (%s) "
             "does not know",
             d->kind, STAGER_RELEASE);
    return finish(stream, -STAGER_INTERNAL, text);
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
 * in here is the protocol: arm, take stale bells away, look, sleep. */
static int wait_for_descriptor(struct stager_stream *stream, int64_t timeout_millis)
{
    ring_if_dry(stream);
    if (stream->spin_ns > 0 && timeout_millis != 0 && spin(stream))
        return 0;
    int64_t now_ns = stg_clock_ns();
    int64_t deadline_ns = STG_NEVER;
    if (timeout_millis >= 0 && timeout_millis < (STG_NEVER - now_ns) / 1000000)
        deadline_ns = now_ns + timeout_millis * 1000000;
    if (stream->dry_since_ns == 0)
        stream->dry_since_ns = now_ns;
    stg_control_set_waiting_since(&stream->control, (uint64_t)now_ns);
    for (;;) {
        set_waiting(stream, true);
        int rc = stg_socket_drain(stream->client->fd);
        if (stg_ring_ready(&stream->ring))
            return 0;
        if (rc < 0)
            return finish(
                stream, -STAGER_UNAVAILABLE,
                "stagerd went away; batches in hand stay readable; start it again "
                "and open the stream anew");
        stream->late = deadline_ns <= now_ns;
        if (stream->late) {
            rc = stg_stream_say_late(stream, timeout_millis);
            stream->late = rc < 0;
            return rc;
        }
        ring_if_dry(stream);
        sleep_once(stream, now_ns, deadline_ns);
        if (stg_ring_ready(&stream->ring))
            return 0; /* the bell that woke us is taken away before the next sleep */
        now_ns = stg_clock_ns();
    }
}

/* ---- next, release, rewind ---- */

static int say_all_held(struct stager_stream *stream)
{
    char numbers[256];
    size_t used = 0;
    numbers[0] = '\0';
    for (uint32_t i = 0; i < stream->max_held && used < sizeof(numbers) - 64; i++) {
        const struct stg_lent *lent = &stream->lents[i]; /* all are out */
        used += (size_t)snprintf(numbers + used, sizeof(numbers) - used, "%s%llu",
                                 used > 0 ? ", " : "", (unsigned long long)lent->number);
        if (stream->batch_size != 0)
            used +=
                (size_t)snprintf(numbers + used, sizeof(numbers) - used,
                                 ": %u of %u slices", lent->n_in_hand, lent->n_slices);
    }
    return stg_err(
        &stream->err, -STAGER_FAILED_PRECONDITION,
        "would wait for ever: %u of %u %sbatches are in hand (%s): release %s, or "
        "open with a larger max_held",
        stream->held, stream->max_held, stream->batch_size != 0 ? "staged " : "", numbers,
        stream->batch_size != 0 ? "all slices of one" : "one");
}

/* The rest of the batch that is being sliced may be another's by now. */
static int cut_off(struct stager_stream *stream)
{
    struct stg_lent *lent = stream->current;
    stream->current = NULL;
    if (lent != NULL && lent->n_in_hand == 0)
        stg_lent_return(stream, lent);
    stg_stream_return_untaken(stream);
    set_waiting(stream, false);
    return take_final(stream);
}

int stg_stream_take(struct stager_stream *stream, int64_t timeout_millis,
                    struct stager_batch **ret)
{
    if (stream->finished != 0)
        return stg_err(&stream->err, stream->finished, "%s", stream->final_text);
    if (stg_ring_is_cut(&stream->ring))
        return cut_off(stream);
    if (stream->current != NULL)
        return take_slice(stream, ret);
    if (stream->at_end)
        return say_end(stream);
    if (stream->held == stream->max_held)
        return say_all_held(stream);

    /* Says that what was taken before is done with, unless ack_explicit was asked for. */
    if (stream->copier == NULL)
        stg_control_set_asked(&stream->control, stream->ring.cursor + 1);
    struct stg_descriptor d;
    while (!stg_ring_take(&stream->ring, &d)) {
        int rc = wait_for_descriptor(stream, timeout_millis);
        if (rc == 0 && stg_ring_is_cut(&stream->ring))
            return cut_off(stream);
        if (rc < 0) {
            if (timeout_millis != 0)
                set_waiting(stream, false);
            return rc;
        }
    }
    stg_control_set_taken(&stream->control, stream->ring.cursor);
    set_waiting(stream, false);
    stream->dry_since_ns = 0;
    stream->why[0] = '\0';
    return take_descriptor(stream, &d, ret);
}

int stager_next(struct stager_stream *stream, int64_t timeout_millis,
                struct stager_batch **ret)
{
    int rc = stg_stream_enter(stream);
    if (rc < 0)
        return rc;
    stream->late = false;
    uint64_t began = stg_stream_span_begin(stream);
    rc = stream->copier != NULL ? stg_copier_next(stream, timeout_millis, ret)
                                : stg_stream_take(stream, timeout_millis, ret);
    stream->n_batches += rc == 0;
    if (rc == -STAGER_OUT_OF_RANGE) {
        int late = stg_computer_settle(stream);
        rc = late < 0 ? late : rc;
    }
    if (began != 0)
        stg_stream_span_end(stream, STG_SPAN_NEXT, began, rc == 0 ? *ret : NULL);
    return rc;
}

static bool may_release(const struct stager_batch *batch)
{
    return batch != NULL && batch->in_hand && stg_guard_holds(batch->stream->guard);
}

void stager_release(struct stager_batch *batch)
{
    if (!may_release(batch))
        return;
    struct stager_stream *stream = batch->stream;
    if (stream->copier != NULL) {
        stg_copier_release(batch, true, NULL);
    } else {
        struct stg_lent *lent = batch->lent;
        stg_batch_hand_in(batch);
        if (lent->n_in_hand == 0 && lent != stream->current)
            stg_lent_return(stream, lent);
    }
    stg_stream_reap(stream);
}

void stager_release_after(struct stager_batch *batch, void *device_stream)
{
    if (!may_release(batch))
        return;
    struct stager_stream *stream = batch->stream;
    if (stream->copier == NULL) {
        stager_release(batch);
        return;
    }
    stg_copier_release(batch, false, device_stream);
    stg_stream_reap(stream);
}

int stager_rewind(struct stager_stream *stream)
{
    int rc = stg_stream_enter(stream);
    if (rc < 0)
        return rc;
    if (stream->finished != 0)
        return stg_err(&stream->err, stream->finished, "%s", stream->final_text);
    if (!stream->at_end || stg_copier_is_ahead(stream))
        return stg_err(&stream->err, -STAGER_FAILED_PRECONDITION,
                       "pass %llu of pipeline %s is not over: take its batches first",
                       (unsigned long long)(stream->passes - 1), stream->name);
    stream->at_end = false;
    stg_control_want_pass(&stream->control, ++stream->passes);
    ring_bell(stream);
    return 0;
}

int stager_pollfd(struct stager_stream *stream)
{
    int rc = stg_stream_enter(stream);
    return rc < 0 ? rc : stream->client->fd;
}
