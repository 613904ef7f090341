/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop of a trainer: next, release, rewind, and what it polls between them.
 */
#include "client/api/close.h"
#include "client/api/poll.h"
#include "client/api/reconnect.h"
#include "client/api/replay.h"
#include "client/device/copier.h"
#include "client/run/run.h"
#include "client/stager.h"
#include "client/stream/leased.h"
#include "client/stream/progress.h"
#include "client/stream/take.h"

/* On a device the batches ahead are not the trainer's yet, nor is the error behind them.
 */
static void note_progress(struct stager_stream *stream, const struct stager_batch *batch)
{
    if (batch != NULL)
        stg_progress_batch(stream, batch);
    else if (!stg_copier_is_ahead(stream))
        stg_progress_error(stream);
}

static int take(struct stager_stream *stream, int64_t timeout_millis,
                struct stager_batch **ret)
{
    return stream->copier != NULL ? stg_copier_next(stream, timeout_millis, ret)
                                  : stg_stream_take(stream, timeout_millis, ret);
}

/* stagerd has ended, or the pipeline was replaced: waits for what comes then, and takes
 * from that. */
static int take_again(struct stager_stream *stream, int64_t timeout_millis,
                      struct stager_batch **ret)
{
    int64_t deadline_ns = stg_clock_deadline_ns(stg_clock_ns(), timeout_millis);
    int rc = stream->finished;
    while (stg_reconnect_is_due(stream, rc)) {
        rc = stg_reconnect_until(stream, deadline_ns);
        if (rc < 0)
            return rc;
        int64_t left_ns = deadline_ns - stg_clock_ns();
        rc = take(stream,
                  deadline_ns == STG_NEVER ? -1
                  : left_ns > 0            ? left_ns / 1000000
                                           : 0,
                  ret);
    }
    return rc;
}

int stager_next(struct stager_stream *stream, int64_t timeout_millis,
                struct stager_batch **ret)
{
    int rc = stg_stream_enter(stream);
    if (rc < 0)
        return rc;
    stream->late = false;
    uint64_t began = stg_stream_span_begin(stream);
    if (!stg_replay_is_on(stream))
        rc = take(stream, timeout_millis, ret);
    if (stg_reconnect_is_due(stream, rc))
        rc = take_again(stream, timeout_millis, ret);
    if (stream->replay != NULL)
        rc = stg_replay_next(stream, rc, ret);
    else
        note_progress(stream, rc == 0 ? *ret : NULL);
    stream->n_batches += rc == 0;
    if (rc == -STAGER_OUT_OF_RANGE) {
        int late = stg_computer_synchronize(stream);
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
        struct stg_leased *leased = batch->leased;
        stg_batch_hand_in(batch);
        if (leased->is_retained)
            stg_leased_restore(stream, leased);
        else if (leased->n_in_hand == 0 && leased != stream->current)
            stg_leased_return(stream, leased);
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
    if (rc == 0)
        rc = stg_replay_refuses(stream, "has no next pass");
    if (rc < 0)
        return rc;
    if (stg_stream_is_over(stream))
        return stg_err(&stream->err, stream->finished, "%s", stream->final_text);
    if (!stream->at_end || stg_copier_is_ahead(stream))
        return stg_err(&stream->err, -STAGER_FAILED_PRECONDITION,
                       "pass %llu of pipeline %s is not over: take its batches first",
                       (unsigned long long)(stream->passes - 1), stream->name);
    stream->at_end = false;
    stg_progress_rewind(stream);
    stg_control_want_pass(&stream->control, ++stream->passes);
    stg_stream_ring_doorbell(stream);
    return 0;
}

int stager_pollfd(struct stager_stream *stream)
{
    int rc = stg_stream_enter(stream);
    if (rc == 0)
        rc = stg_replay_refuses(stream, "has no descriptor to poll");
    if (rc == 0)
        rc = stg_poll_open(stream);
    if (rc >= 0) {
        int64_t at_ns;
        int fd = stg_reconnect_watched(stream, &at_ns);
        stg_poll_watch(stream->poll, fd, at_ns);
    }
    return rc;
}
