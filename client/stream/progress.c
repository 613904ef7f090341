/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stream/progress.h"

#include <stdio.h>
#include <string.h>

#include "client/stream/leased.h"

/* ---- open ---- */

static bool names_commit(const struct stager_options *options)
{
    const char *resume = options->resume != NULL ? options->resume : "";
    return strcmp(resume, "current") == 0 || strncmp(resume, "tag:", 4) == 0;
}

const char *stg_progress_resume(const struct stager_options *options)
{
    return names_commit(options) && options->state == NULL ? options->resume : NULL;
}

int stg_progress_check(const struct stager_options *options, struct stg_err *err)
{
    struct stg_state ignored;
    if (options->resume != NULL && strcmp(options->resume, "exact") != 0 &&
        strcmp(options->resume, "approximate") != 0 && !names_commit(options))
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "resume is \"%s\"; the values are \"exact\", \"approximate\", "
                       "\"current\" and \"tag:NAME\"",
                       options->resume);
    return options->state == NULL
               ? 0
               : stg_state_read(options->state, strlen(options->state), &ignored, err);
}

static uint64_t count_ranks(const struct stager_stream *stream,
                            const struct stager_options *options)
{
    const struct stg_staged *staged = stream->spec != NULL ? &stream->spec->staged : NULL;
    bool rounds = staged != NULL && staged->delivery == STG_DELIVERY_ROUND_ROBIN &&
                  options->private_run == 0;
    return rounds ? staged->num_clients : 1;
}

/* The daemon has counted rows of the state as elements if it asks for none to be dropped.
 */
static int begin_at(struct stager_stream *stream, const char *text,
                    const struct stg_reply *reply, struct stg_err *err)
{
    struct stg_state *state = &stream->state;
    int rc = stg_state_read(text, strlen(text), state, err);
    if (rc < 0)
        return rc;
    if (reply->skip_rows == 0)
        state->place.elements += state->rows;
    state->rows = reply->skip_rows;
    stream->skip_rows = reply->skip_rows;
    stream->has_state = true;
    return 0;
}

int stg_progress_begin(struct stager_stream *stream, const struct stg_reply *reply,
                       const struct stager_options *options, struct stg_err *err)
{
    const char *why = reply->irreproducible != NULL ? reply->irreproducible : "";
    stream->irreproducible = stg_bump_strndup(&stream->bump, why, strlen(why));
    if (stream->irreproducible == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    stream->n_ranks = count_ranks(stream, options);
    stream->state = (struct stg_state){.pass = reply->begins_pass - 1};
    stream->has_state = reply->begins_pass != 0;
    const char *text = options->state;
    if (text == NULL && reply->state != NULL && reply->state[0] != '\0')
        text = reply->state;
    int rc = text != NULL ? begin_at(stream, text, reply, err) : 0;
    stream->state.order = STG_ORDER_VERSION;
    snprintf(stream->state.steps, sizeof(stream->state.steps), "%s",
             reply->signature != NULL ? reply->signature : "");
    return rc;
}

/* ---- what stager_next returns ---- */

static void stand_at(struct stager_stream *stream, const struct stg_batch_header *header,
                     const struct stg_pass_place *place)
{
    stream->state.pass = header->pass;
    stream->state.place = *place;
    stream->state.data = header->data;
    stream->state.rows = 0;
    stream->state.n_delivered = 0;
    stream->state.ranks = 0;
    stream->has_state = true;
}

void stg_progress_batch(struct stager_stream *stream, const struct stager_batch *batch)
{
    const struct stg_leased *leased = batch->leased;
    const struct stg_batch_header *header = leased->base;
    stream->has_error = false;
    if (stream->batch_size == 0 || batch->slice + 1 == leased->n_slices) {
        stand_at(stream, header, &leased->place);
        return;
    }
    stand_at(stream, header, &header->before);
    stream->state.rows =
        (uint64_t)leased->first_row + ((uint64_t)batch->slice + 1) * stream->batch_size;
    stream->state.ranks = stream->n_ranks;
}

void stg_progress_note_error(struct stager_stream *stream, const void *base,
                             bool is_carried)
{
    const struct stg_batch_header *header = base;
    stream->has_error = true;
    stream->error_is_carried = is_carried;
    stream->error_header =
        (struct stg_batch_header){.pass = header->pass, .data = header->data};
    stream->error_place = (struct stg_pass_place){0};
    stg_ring_last_place(&stream->ring, &stream->error_place);
}

/* Items before a carried error item were not delivered: the stream stays before them. */
void stg_progress_error(struct stager_stream *stream)
{
    if (!stream->has_error)
        return;
    stream->has_error = false;
    if (stream->error_is_carried)
        stream->state.n_delivered++;
    else
        stand_at(stream, &stream->error_header, &stream->error_place);
}

/* The files of the pass are not known before its first batch. */
void stg_progress_rewind(struct stager_stream *stream)
{
    struct stg_batch_header header = {.pass = stream->end_pass + 1};
    stand_at(stream, &header, &(struct stg_pass_place){0});
}

/* ---- the state ---- */

int stg_progress_state(struct stager_stream *stream, bool is_ahead, struct stg_state *ret,
                       struct stg_err *err)
{
    if (stream->state.steps[0] == '\0')
        return stg_err(
            err, -STAGER_FAILED_PRECONDITION,
            "this stagerd sends no positions: use stagerd of this release (%s) "
            "or a later one",
            STAGER_RELEASE);
    if (stream->irreproducible[0] != '\0' && !stream->is_approximate)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "the batches of pipeline %s are not the same in every run: %s; a "
                       "state would resume at other rows (resume=\"approximate\" allows "
                       "that)",
                       stream->name, stream->irreproducible);
    if (stream->at_end && !is_ahead)
        stg_progress_rewind(stream);
    if (!stream->has_state)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "this stream of pipeline %s began in the middle of a pass: its "
                       "position is known after the first batch",
                       stream->name);
    *ret = stream->state;
    return 0;
}
