/* SPDX-License-Identifier: Apache-2.0 */
#include "client/api/replay.h"

#include <stdio.h>
#include <stdlib.h>

#include "client/device/copier.h"
#include "client/stream/leased.h"
#include "client/stream/progress.h"
#include "client/stream/take.h"

#define DEFAULT_HELD 4u
#define MIN_BATCHES 8u /* fewer give no mean */

/* ---- at open ---- */

static int check(const struct stager_options *options, struct stg_err *err)
{
    const char *excluded = options->state != NULL                 ? "state"
                           : stg_progress_resume(options) != NULL ? "resume"
                           : options->follow != 0                 ? "follow"
                                                                  : NULL;
    if (excluded != NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "%s excludes replay_batches: a replay has no position", excluded);
    if (options->replay_batches < MIN_BATCHES)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "replay_batches is %u; the minimum is %u", options->replay_batches,
                       MIN_BATCHES);
    return 0;
}

int stg_replay_options(struct stager_options *options, struct stg_err *err)
{
    if (options->replay_batches == 0 && options->replay_held == 0)
        return 0;
    if (options->replay_held == 0)
        options->replay_held = DEFAULT_HELD;
    options->private_run = 1;
    options->manual_ack = 0;
    int rc = check(options, err);
    options->daemon_reconnect_millis = STAGER_NEVER;
    return rc;
}

int stg_replay_create(struct stager_stream *stream, const struct stager_options *options,
                      struct stg_err *err)
{
    if (options->replay_batches == 0)
        return 0;
    struct stg_replay *replay =
        calloc(1, sizeof(*replay) + options->replay_held * sizeof(replay->retained[0]));
    if (replay == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    replay->n_batches = options->replay_batches;
    replay->max_retained = options->replay_held;
    stream->replay = replay;
    return 0;
}

void stg_replay_destroy(struct stg_replay *replay)
{
    free(replay);
}

/* ---- measuring ---- */

/* The first quarter of a half is not measured: buffers that were filled before, and what
 * the trainer does once. */
static uint64_t unmeasured(const struct stg_replay *replay)
{
    return replay->n_batches / 4;
}

static void count(struct stager_stream *stream, struct stg_replay_half *half)
{
    half->n++;
    if (half->n == unmeasured(stream->replay)) {
        half->from_ns = stg_clock_ns();
        half->from_wait_ns = stream->wait_ns;
    }
}

/* Returns false if it has too few batches for a mean. */
static bool end_half(struct stager_stream *stream, struct stg_replay_half *half)
{
    uint64_t before = unmeasured(stream->replay);
    if (half->n <= before)
        return false;
    half->n_measured = half->n - before;
    half->ns = (uint64_t)(stg_clock_ns() - half->from_ns);
    half->wait_ns = stream->wait_ns - half->from_wait_ns;
    return true;
}

static uint64_t step_ns(const struct stg_replay_half *half)
{
    return half->n_measured > 0 ? half->ns / half->n_measured : 0;
}

/* ---- from the run to the replay ---- */

static void begin(struct stager_stream *stream)
{
    struct stg_leased *current = stream->current;
    stream->current = NULL;
    if (current != NULL && current->n_in_hand == 0 && !current->is_retained)
        stg_leased_return(stream, current);
    if (stream->copier != NULL)
        stg_copier_drop_ahead(stream);
    stream->at_end = false;
    stream->replay->is_on = true;
}

static void retain(struct stg_replay *replay, struct stg_leased *leased)
{
    if (leased->is_retained || replay->n_retained == replay->max_retained)
        return;
    leased->is_retained = true;
    replay->retained[replay->n_retained++] = leased;
}

static void note_taken(struct stager_stream *stream, const struct stager_batch *batch)
{
    struct stg_replay *replay = stream->replay;
    retain(replay, batch->leased);
    count(stream, &replay->run);
    if (replay->run.n == replay->n_batches) {
        end_half(stream, &replay->run);
        begin(stream);
    }
}

/* The pass has fewer batches than the run was to have. */
static int end_early(struct stager_stream *stream)
{
    struct stg_replay *replay = stream->replay;
    if (!end_half(stream, &replay->run))
        return stg_err(&stream->err, -STAGER_FAILED_PRECONDITION,
                       "the pass of pipeline %s has only %llu batches, and the first "
                       "quarter of replay_batches %llu is not measured: replay fewer, or "
                       "repeat the dataset",
                       stream->name, (unsigned long long)replay->run.n,
                       (unsigned long long)replay->n_batches);
    begin(stream);
    return 0;
}

/* ---- the replay ---- */

static void report(struct stager_stream *stream)
{
    const struct stg_replay *replay = stream->replay;
    struct stager *client = stream->client;
    struct stg_request request = {
        .kind = STG_REQUEST_REPORT,
        .report.replay = {.client_id = stream->client_id,
                          .n_held = replay->n_retained,
                          .n_run = replay->run.n_measured,
                          .run_ns = replay->run.ns,
                          .run_wait_ns = replay->run.wait_ns,
                          .n_replayed = replay->again.n_measured,
                          .replayed_ns = replay->again.ns}};
    long n = stg_wire_encode_request(&request, client->buf, sizeof(client->buf));
    if (n > 0)
        stg_socket_post(client->fd, client->buf, (size_t)n);
}

static int end_replay(struct stager_stream *stream)
{
    char text[160];
    snprintf(text, sizeof(text),
             "the replay of pipeline %.64s is over: %llu batches were replayed",
             stream->name, (unsigned long long)stream->replay->again.n);
    return stg_stream_finish(stream, -STAGER_OUT_OF_RANGE, text);
}

static int replay_one(struct stager_stream *stream, struct stager_batch **ret)
{
    struct stg_replay *replay = stream->replay;
    if (replay->again.n == replay->n_batches)
        return end_replay(stream);
    int rc = stg_stream_take_again(stream, replay->retained[replay->at], ret);
    if (rc < 0)
        return rc;
    if (stream->current == NULL)
        replay->at = (replay->at + 1) % replay->n_retained;
    count(stream, &replay->again);
    if (replay->again.n == replay->n_batches) {
        end_half(stream, &replay->again);
        report(stream);
    }
    return 0;
}

int stg_replay_next(struct stager_stream *stream, int rc, struct stager_batch **ret)
{
    if (stream->replay->is_on)
        return replay_one(stream, ret);
    if (rc == 0)
        note_taken(stream, *ret);
    if (rc != -STAGER_OUT_OF_RANGE)
        return rc;
    rc = end_early(stream);
    return rc < 0 ? rc : replay_one(stream, ret);
}

int stg_replay_refuses(struct stager_stream *stream, const char *what)
{
    return stream->replay == NULL
               ? 0
               : stg_err(&stream->err, -STAGER_FAILED_PRECONDITION,
                         "a stream with replay_batches %s: its batches are not for "
                         "training (open another stream)",
                         what);
}

void stg_replay_leave(struct stager_stream *stream, bool parted)
{
    struct stg_replay *replay = stream->replay;
    for (uint32_t i = 0; replay != NULL && i < replay->n_retained; i++) {
        struct stg_leased *leased = replay->retained[i];
        leased->is_retained = false;
        if (leased->n_in_hand > 0)
            continue;
        if (parted)
            stg_leased_return(stream, leased);
        else
            stg_leased_forget(stream, leased);
    }
    if (replay != NULL)
        replay->n_retained = 0;
}

void stg_replay_info(const struct stager_stream *stream, struct stager_stream_info *ret)
{
    const struct stg_replay *replay = stream->replay;
    if (replay == NULL)
        return;
    ret->replayed = replay->again.n;
    ret->run_step_ns = step_ns(&replay->run);
    ret->replay_step_ns = step_ns(&replay->again);
}
