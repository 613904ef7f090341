/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of an open: request, mappings, pool, device, join. A client that computes is
 * asked by stagerd what of the graph its build cannot, and says so, before the open is
 * granted.
 */
#include "client/api/attach.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/api/replay.h"
#include "client/compute/compute.h"
#include "client/device/copier.h"
#include "client/run/load.h"
#include "client/stager.h"
#include "client/stream/leased.h"
#include "client/stream/progress.h"
#include "client/stream/slice.h"
#include "client/stream/view.h"

/* Names of boundary and targets of one pipeline: the message has 64 KiB. */
#define BUMP_BYTES (4u << 20)

/* ---- what this build cannot compute ---- */

void stg_asked_finish(struct stg_asked *asked)
{
    stg_pipeline_spec_destroy(asked->spec);
    free(asked->names);
    *asked = (struct stg_asked){0};
}

/* Without libstager-compute.so a client computes nothing: stager_run returns the reason.
 */
int stg_attach_look(struct stager *client, const struct stg_reply *reply,
                    struct stg_asked *asked, struct stg_request *request,
                    struct stg_err *err)
{
    const struct stg_compute *table = NULL;
    struct stg_err why = {0};
    stg_asked_finish(asked);
    request->unsupported_generation = reply->generation;
    request->unsupported = NULL;
    request->n_unsupported = 0;
    if (stg_compute_load(&table, &why) < 0)
        return 0;
    int rc =
        stg_wire_decode_pipeline(client->buf, client->reply_bytes, &asked->spec, err);
    if (rc < 0)
        return rc;
    asked->names = calloc(asked->spec->n_nodes + 1, sizeof(*asked->names));
    if (asked->names == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    rc = table->unsupported(asked->spec, &reply->boundary, asked->names,
                            &request->n_unsupported, err);
    request->unsupported = asked->names;
    return rc;
}

/* ---- what the reply brings ---- */

static int map_pages(struct stager_stream *stream, const int *fds, uint64_t segment_bytes,
                     struct stg_err *err)
{
    int rc = stg_map_open(fds[STG_OPEN_RING], STG_RING_BYTES, STG_MAP_READ, "ring page",
                          &stream->ring_page, err);
    if (rc == 0)
        rc = stg_map_open(fds[STG_OPEN_CONTROL], STG_CONTROL_BYTES, STG_MAP_WRITE,
                          "control page", &stream->control_page, err);
    if (rc == 0)
        rc = stg_ring_check(stream->ring_page.base, stream->ring_page.bytes, err);
    if (rc == 0)
        rc =
            stg_control_check(stream->control_page.base, stream->control_page.bytes, err);
    if (rc == 0)
        rc = stg_map_open(fds[STG_OPEN_SEGMENT], segment_bytes,
                          stream->copy_on_write ? STG_MAP_COPY_ON_WRITE : STG_MAP_READ,
                          "arena segment", &stream->segment, err);
    if (rc < 0)
        return rc;
    stg_map_populate(&stream->segment, fds[STG_OPEN_SEGMENT]);
    stream->ring.page = stream->ring_page.base;
    stream->control.page = stream->control_page.base;
    return 0;
}

static const char *keep_text(struct stager_stream *stream, const char *text)
{
    return stg_bump_strdup(&stream->bump, text != NULL ? text : "");
}

/* The reply dies with the next one: what a stream needs is copied. */
static int keep_reply(struct stager_stream *stream, const struct stg_reply *reply,
                      struct stg_err *err)
{
    stream->name = keep_text(stream, reply->name);
    stream->structure = keep_text(stream, reply->structure);
    stream->final_text = stg_bump_alloc(&stream->bump, STG_ERR_TEXT_BYTES);
    stream->why = stg_bump_alloc(&stream->bump, STG_ERR_TEXT_BYTES);
    if (stream->name == NULL || stream->structure == NULL || stream->final_text == NULL ||
        stream->why == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    int rc = stg_schema_copy(&reply->boundary, &stream->bump, &stream->boundary, err);
    if (rc == 0)
        rc = stg_schema_copy(&reply->slots, &stream->bump, &stream->slots, err);
    if (rc < 0)
        return rc;
    stream->generation = reply->generation;
    stream->unwatched = reply->unwatched;
    stream->wants_reports = reply->wants_reports;
    if (stream->batch_size != 0) {
        rc = stg_slice_boundary(&stream->boundary, stream->batch_size, reply->batch_rows,
                                stream->name, err);
        if (rc < 0)
            return rc;
        stg_slice_slots(&stream->slots);
    }

    rc = stg_wire_decode_pipeline(stream->client->buf, stream->client->reply_bytes,
                                  &stream->spec, err);
    return rc == -STAGER_NOT_FOUND ? 0 : rc;
}

static int take_reply(struct stager_stream *stream, const struct stg_reply *reply,
                      const int *fds, size_t n_fds, struct stg_err *err)
{
    size_t n = (size_t)STG_OPEN_N + (reply->device_bytes != 0);
    if (n_fds != n)
        return stg_err(err, -STAGER_INTERNAL,
                       "stagerd sent %zu descriptors instead of %zu", n_fds, n);
    int rc = map_pages(stream, fds, reply->segment_bytes, err);
    if (rc == 0 && reply->device_bytes != 0 && stream->copier != NULL)
        stg_copier_import(stream, reply, fds[STG_OPEN_DEVICE]);
    return rc;
}

int stg_attach_take(struct stager_stream *stream, const struct stg_reply *reply,
                    const int *fds, size_t n_fds, const struct stager_options *options,
                    const char *client_id, struct stg_err *err)
{
    int rc = take_reply(stream, reply, fds, n_fds, err);
    for (size_t i = 0; i < n_fds; i++)
        close(fds[i]);
    if (rc == 0)
        rc = stg_leases_init(stream, reply->max_in_flight, err);
    if (rc == 0)
        rc = keep_reply(stream, reply, err);
    if (rc == 0)
        rc = stg_progress_begin(stream, reply, options, client_id, err);
    if (rc == 0)
        rc = stg_fields_init(stream, options, err);
    if (rc == 0 && stream->copier != NULL)
        rc = stg_copier_start(stream, err);
    return rc;
}

/* ---- what is asked for ---- */

uint32_t stg_attach_max_in_flight(const struct stager_options *options)
{
    uint32_t ahead = options->device_capacity != 0 ? options->device_capacity
                                                   : (uint32_t)STG_DEVICE_CAPACITY;
    return (options->max_in_flight != 0 ? options->max_in_flight : 2) +
           (options->device != NULL ? ahead : 0) + options->replay_held;
}

int stg_attach_create(const struct stager_options *options, struct stager_stream **ret,
                      struct stg_err *err)
{
    struct stager_stream *stream = calloc(1, sizeof(*stream));
    if (stream == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    stg_bump_init(&stream->bump, BUMP_BYTES);
    stream->spin_ns = options->spin_ns;
    stream->batch_size = options->batch_size;
    stream->copy_on_write = options->copy_on_write != 0;
    stream->is_approximate =
        options->resume != NULL && strcmp(options->resume, "approximate") == 0;
    stream->inter_op_threads_num = options->inter_op_threads_num;
    stream->intra_op_threads_num = options->intra_op_threads_num;
    int rc = stg_guard_create(&stream->guard, err);
    if (rc == 0 && options->device != NULL)
        rc = stg_copier_create(options, &stream->copier, err);
    if (rc == 0)
        rc = stg_replay_create(stream, options, err);
    if (rc < 0) {
        stager_close(stream);
        return rc;
    }
    *ret = stream;
    return 0;
}

void stg_attach_request(const struct stager_stream *stream, const char *name,
                        const struct stager_options *options, const char *client_id,
                        struct stg_request *ret)
{
    *ret = (struct stg_request){
        .kind = STG_REQUEST_OPEN,
        .name = name,
        .client_id = client_id,
        .max_in_flight = stg_attach_max_in_flight(options),
        .private_run = options->private_run != 0,
        .manual_ack = options->manual_ack != 0,
        .named = options->client_id != NULL,
        .batch_size = options->batch_size,
        .wants_device = options->device != NULL,
        .has_fields = options->fields != NULL,
        .fields = options->fields,
        .n_fields = options->fields != NULL ? options->n_fields : 0,
        .has_fetches = options->fetches != NULL,
        .fetches = options->fetches,
        .n_fetches = options->fetches != NULL ? options->n_fetches : 0,
        .has_unsupported = true,
        .state = options->state,
        .resume = stg_progress_resume(options),
        .approximate = stream->is_approximate,
        .never_reconnects = options->daemon_reconnect_millis == STAGER_NEVER,
        .follow = options->follow != 0,
        .job = options->job,
        .replays = options->replay_batches != 0,
        .rank = options->rank,
        .world_size = options->world_size,
        .data_parallel = {.rank = options->dp_rank,
                          .size = options->dp_size,
                          .local_rank = options->local_rank,
                          .local_size = options->local_size},
    };
}

void stg_attach_join(struct stager_stream *stream, struct stg_request *ret)
{
    stream->passes = 1;
    stg_control_want_pass(&stream->control, stream->passes);
    *ret = (struct stg_request){.kind = STG_REQUEST_JOIN};
}
