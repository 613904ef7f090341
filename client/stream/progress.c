/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stream/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- open ---- */

static bool names_commit(const struct stager_options *options)
{
    const char *resume = options->resume != NULL ? options->resume : "";
    return strcmp(resume, "start") == 0 || strcmp(resume, "current") == 0 ||
           strncmp(resume, "tag:", 4) == 0;
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
                       "\"start\", \"current\" and \"tag:NAME\"",
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

/* Each client of such a run takes other items. Its states contain which. */
static bool is_shared(const struct stager_stream *stream,
                      const struct stager_options *options)
{
    const struct stg_staged *staged = stream->spec != NULL ? &stream->spec->staged : NULL;
    return staged != NULL && staged->delivery == STG_DELIVERY_SPLIT &&
           staged->num_clients > 1 && options->private_run == 0;
}

/* The hosts that divide the pass of the place, and where they began. */
static void note_hosts(struct stager_stream *stream)
{
    struct stg_state *state = &stream->state;
    state->hosts = stream->hosts;
    state->weight = stream->weight;
    state->base = state->pass == stream->base_pass ? stream->base : 0;
}

/* What came before the place was taken, by whichever client. The state of one consumer,
 * after a reconnect, has what that one took. */
static int begin_taken(struct stager_stream *stream, struct stg_err *err)
{
    const struct stg_state *state = &stream->state;
    int rc = stg_taken_read(state->taken, &stream->taken, err);
    if (rc == 0 && state->consumer != 0)
        rc = stg_taken_read(state->before, &stream->before, err);
    else if (rc == 0)
        rc = stg_taken_add(&stream->taken, 0, state->place.items, err);
    return rc;
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
    state->start = state->place;
    stream->has_state = true;
    return begin_taken(stream, err);
}

int stg_progress_begin(struct stager_stream *stream, const struct stg_reply *reply,
                       const struct stager_options *options, const char *client_id,
                       struct stg_err *err)
{
    const char *why = reply->irreproducible != NULL ? reply->irreproducible : "";
    stream->irreproducible = stg_bump_strdup(&stream->bump, why);
    stream->client_id = stg_bump_strdup(&stream->bump, client_id);
    if (stream->irreproducible == NULL || stream->client_id == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    stream->n_ranks = count_ranks(stream, options);
    stream->is_shared = is_shared(stream, options);
    stream->state = (struct stg_state){.pass = reply->begins_pass - 1};
    stream->has_state = reply->begins_pass != 0;
    stream->hosts = reply->hosts;
    stream->host = reply->host;
    stream->weight = reply->weight;
    stream->hosts_generation = reply->hosts_generation;
    stream->base = reply->base;
    stream->base_pass = reply->base_pass;
    note_hosts(stream);
    /* Of clients that reconnect to a split, the daemon unites the states. */
    const char *text = options->state;
    if (reply->state != NULL && reply->state[0] != '\0')
        text = reply->state;
    int rc = text != NULL ? begin_at(stream, text, reply, err) : 0;
    stream->state.order = STG_ORDER_VERSION;
    snprintf(stream->state.steps, sizeof(stream->state.steps), "%s",
             reply->signature != NULL ? reply->signature : "");
    return rc;
}

/* ---- what stager_next returns ---- */

/* Others may stand at the end of the pass before. */
static void turn_to(struct stager_stream *stream, uint64_t pass)
{
    struct stg_taken before = stream->before;
    if (stream->has_state && stream->state.pass == pass)
        return;
    stream->before = stream->taken;
    stream->taken = before;
    stg_taken_clear(&stream->taken);
    if (!stream->has_state || stream->state.pass + 1 != pass)
        stg_taken_clear(&stream->before);
    stream->taken_err.code = 0;
    stream->state.n_before = 0;
    stream->state.start = (struct stg_pass_place){0};
}

/* Returns whether the stream has states: else no set of items is needed, which costs time
 * if they come in no order. */
static bool has_states(const struct stager_stream *stream)
{
    return stream->irreproducible[0] == '\0' || stream->is_approximate;
}

/* An item of a split, which begins behind `begin` items: those may be another client's.
 */
static void take_item(struct stager_stream *stream, const struct stg_stream_place *at,
                      uint64_t begin)
{
    uint64_t end = at->place.items;
    turn_to(stream, at->pass);
    bool is_first = !stream->has_state || stream->state.pass != at->pass;
    if (is_first || end > stream->state.place.items)
        stream->state.place = at->place;
    stream->state.pass = at->pass;
    note_hosts(stream);
    stg_ring_data(&stream->ring, at->pass, &stream->state.data);
    stream->state.rows = stream->state.n_delivered = stream->state.ranks = 0;
    stream->has_state = true;
    stream->is_partial = false;
    if (begin >= end)
        begin = end - (end > 0);
    if (stream->taken_err.code == 0 && has_states(stream))
        stg_taken_add(&stream->taken, begin, end, &stream->taken_err);
}

static void stand_at(struct stager_stream *stream, const struct stg_stream_place *at)
{
    turn_to(stream, at->pass);
    stream->state.pass = at->pass;
    stream->state.place = at->place;
    note_hosts(stream);
    stream->state.data = (struct stg_data_identity){0};
    stream->state.rows = stream->state.n_delivered = stream->state.ranks = 0;
    stream->has_state = true;
}

/* The daemon writes the files of a pass before its first item, and may be at it earlier.
 */
static void stand_after(struct stager_stream *stream, const struct stg_stream_place *at)
{
    stand_at(stream, at);
    stg_ring_data(&stream->ring, at->pass, &stream->state.data);
}

/* Takes the noted batch into the state. */
static void take_noted(struct stager_stream *stream)
{
    struct stg_noted noted = stream->noted;
    struct stg_stream_place at;
    stream->noted.header = NULL;
    if (noted.header == NULL || !stg_ring_place_at(&stream->ring, noted.position, &at))
        return;
    if (stream->is_shared)
        stream->is_partial = noted.rows > 0;
    if (stream->is_shared && noted.rows == 0) {
        take_item(stream, &at, noted.header->before.items);
    } else if (noted.rows == 0) {
        stand_after(stream, &at);
    } else if (!stream->is_shared) {
        at.place = noted.header->before;
        stand_after(stream, &at);
        stream->state.rows = noted.rows;
        stream->state.ranks = stream->n_ranks;
    }
}

/* A client of a split has the items of each batch; of any other the last batch counts. */
void stg_progress_batch(struct stager_stream *stream, const struct stager_batch *batch)
{
    const struct stg_leased *leased = batch->leased;
    uint64_t n_slices = (uint64_t)batch->slice + 1;
    bool is_whole = stream->batch_size == 0 || n_slices == leased->n_slices;
    if (stream->is_shared)
        take_noted(stream);
    stream->has_error = false;
    stream->noted =
        (struct stg_noted){.header = leased->base, .position = leased->position};
    if (!is_whole)
        stream->noted.rows = (uint64_t)leased->first_row + n_slices * stream->batch_size;
}

void stg_progress_leave(struct stager_stream *stream, const struct stg_leased *leased)
{
    if ((stream->is_shared || stream->noted.rows > 0) &&
        stream->noted.header == leased->base)
        take_noted(stream);
}

void stg_progress_note_error(struct stager_stream *stream, const void *base,
                             bool is_carried)
{
    const struct stg_batch_header *header = base;
    stream->has_error = true;
    stream->error_is_carried = is_carried;
    stream->error_begin = header->before.items;
    stream->error_at = (struct stg_stream_place){.pass = header->pass};
    stg_ring_place_at(&stream->ring, stream->ring.cursor, &stream->error_at);
}

/* Items before a carried error item were not delivered: the stream stays before them. */
void stg_progress_error(struct stager_stream *stream)
{
    if (!stream->has_error)
        return;
    take_noted(stream);
    stream->has_error = false;
    if (stream->is_shared)
        take_item(stream, &stream->error_at, stream->error_begin);
    else if (stream->error_is_carried)
        stream->state.n_delivered++;
    else
        stand_after(stream, &stream->error_at);
}

/* The files of the pass are not known before its first batch. A consumer of a split stays
 * at the end until it takes an item: others may not have the end yet. */
void stg_progress_rewind(struct stager_stream *stream)
{
    take_noted(stream);
    stream->n_over = stream->end_pass + 1;
    if (stream->is_shared)
        return;
    stand_at(stream, &(struct stg_stream_place){.pass = stream->end_pass + 1});
}

/* ---- the state ---- */

/* Text that no writer of JSON escapes. */
static void name_client(const char *name, char ret[STG_STATE_CLIENT_BYTES])
{
    size_t n = 0;
    memset(ret, 0, STG_STATE_CLIENT_BYTES);
    for (; name[n] != '\0' && n + 1 < STG_STATE_CLIENT_BYTES; n++)
        ret[n] = name[n];
    for (char *c = ret; *c != '\0'; c++) {
        if (*c < ' ' || *c > '~' || *c == '"' || *c == '\\')
            *c = '?';
    }
}

/* A client that took nothing stands at the start of the run's part of the pass. So does
 * one that has the end of its pass once the daemon has begun the next one: the numbers of
 * consumers are those of that pass, and those that left the earlier one have none. */
static void catch_up(struct stager_stream *stream, const struct stg_sharing *sharing,
                     bool is_ahead)
{
    uint64_t pass = stream->state.pass;
    uint64_t n_over = stream->at_end && !is_ahead ? stream->end_pass + 1 : stream->n_over;
    bool is_done = stream->taken.n == 0 || pass < n_over;
    if (stream->has_state && (stream->is_partial || pass >= sharing->pass || !is_done))
        return;
    stand_at(stream,
             &(struct stg_stream_place){.pass = sharing->pass, .place = sharing->start});
}

static int refuse_sharing(const struct stager_stream *stream, int code,
                          struct stg_err *err)
{
    if (code == -STAGER_NOT_FOUND)
        return stg_client_outdated(stream->client, "sends no numbers of consumers", err);
    return stg_err(err, -STAGER_UNAVAILABLE,
                   "stagerd does not finish writing the numbers of consumers: it has "
                   "ended, or is stopped; try again");
}

/* One of several clients of a split. is_lost: a stagerd that ended while it wrote writes
 * no more, and a stream that reconnects needs no place of the pass. */
static int state_of_consumer(struct stager_stream *stream, bool is_ahead, bool is_lost,
                             struct stg_state *ret, struct stg_err *err)
{
    struct stg_sharing sharing;
    int rc = stg_ring_sharing(&stream->ring, &sharing);
    if (rc < 0 && !(is_lost && rc == -STAGER_UNAVAILABLE))
        return refuse_sharing(stream, rc, err);
    if (rc == 0)
        catch_up(stream, &sharing, is_ahead);
    if (stream->is_partial)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "slices of the staged batch in hand are left, and the clients of "
                       "a split take whole ones: take the state after its last slice");
    if (stream->taken_err.code != 0)
        return stg_err(err, stream->taken_err.code, "%s", stream->taken_err.text);
    struct stg_state *state = &stream->state;
    state->run = sharing.run;
    state->consumer = sharing.consumer;
    state->consumers = sharing.consumers;
    state->batch = sharing.batch;
    if (rc == 0 && state->pass == sharing.pass) { /* else the daemon has ended it */
        state->n_before = sharing.before;
        state->start = sharing.start;
    }
    name_client(stream->client_id, state->client);
    rc = stg_taken_write(&stream->taken, state->taken, err);
    if (rc == 0)
        rc = stg_taken_write(&stream->before, state->before, err);
    if (rc < 0)
        return stg_err_append(err, rc,
                              " in pass %" PRIu64
                              ", and a state has no room for more: use larger batches, "
                              "shorter passes, or delivery: round_robin",
                              state->pass);
    *ret = *state;
    return 0;
}

/* The only client, or a rank: all before its place was taken, and what the state that it
 * loaded has behind it. */
static int add_taken(const struct stager_stream *stream, struct stg_state *ret,
                     struct stg_err *err)
{
    struct stg_taken all = {0};
    ret->n_before = 0;
    memset(ret->before, 0, sizeof(ret->before));
    if (stream->taken.end <= ret->place.items) {
        ret->run = ret->consumers = ret->consumer = ret->batch = 0;
        ret->start = (struct stg_pass_place){0};
        memset(ret->client, 0, sizeof(ret->client));
        memset(ret->taken, 0, sizeof(ret->taken));
        return 0;
    }
    int rc = stg_taken_unite(&stream->taken, 1, &all, err);
    if (rc == 0)
        rc = stg_taken_add(&all, 0, ret->place.items, err);
    if (rc == 0)
        rc = stg_taken_write(&all, ret->taken, err);
    stg_taken_finish(&all);
    ret->consumer = 0;
    return rc;
}

int stg_progress_lost(struct stager_stream *stream, bool *ret_has, struct stg_state *ret,
                      struct stg_err *err)
{
    take_noted(stream);
    /* The end of a pass says that others have all of it, too. */
    if (stream->is_shared && stream->has_state && stream->state.pass < stream->n_over)
        stand_at(stream, &(struct stg_stream_place){.pass = stream->n_over});
    *ret_has = stream->has_state || stream->is_partial;
    if (!*ret_has)
        return 0;
    if (stream->is_shared)
        return state_of_consumer(stream, false, true, ret, err);
    *ret = stream->state;
    return add_taken(stream, ret, err);
}

int stg_progress_state(struct stager_stream *stream, bool is_ahead, struct stg_state *ret,
                       struct stg_err *err)
{
    if (stream->state.steps[0] == '\0')
        return stg_client_outdated(stream->client, "sends no positions", err);
    take_noted(stream);
    if (!has_states(stream))
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "the batches of pipeline %s are not the same in every run: %s; a "
                       "state would resume at other rows (resume=\"approximate\" allows "
                       "that)",
                       stream->name, stream->irreproducible);
    if (stream->is_shared)
        return state_of_consumer(stream, is_ahead, false, ret, err);
    if (stream->at_end && !is_ahead)
        stg_progress_rewind(stream);
    if (!stream->has_state)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "this stream of pipeline %s began in the middle of a pass: its "
                       "position is known after the first batch",
                       stream->name);
    *ret = stream->state;
    return add_taken(stream, ret, err);
}
