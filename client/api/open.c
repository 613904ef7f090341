/* SPDX-License-Identifier: Apache-2.0
 *
 * stager_open: request, mappings, pool, device, join. A client that computes is asked by
 * stagerd what of the graph its build cannot, and says so, before the open is granted.
 */
#include "client/api/open.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/compute/compute.h"
#include "client/device/copier.h"
#include "client/run/load.h"
#include "client/run/run.h"
#include "client/stager.h"
#include "client/stream/leased.h"
#include "client/stream/progress.h"
#include "client/stream/slice.h"
#include "client/stream/stream.h"
#include "client/stream/view.h"
#include "client/transport/sized.h"

/* Names of boundary and targets of one pipeline: the message has 64 KiB. */
#define BUMP_BYTES (4u << 20)
#define MAX_THREADS 64u /* of stager_run */

/* A pipeline may be replaced while it is looked at. */
#define MAX_ASKED 8

/* A run may end during an open, because another client loads a state. */
#define MAX_OPENED 4

/* A dataset may go to a state record by record. */
#define SEEK_NS 3605000000000

/* The last one where there is memory on a device. */
enum { FD_SEGMENT, FD_RING, FD_CONTROL, N_FDS, FD_DEVICE = N_FDS, MAX_FDS };

/* ---- what this build cannot compute ---- */

/* What was looked at; the request refers to it. */
struct asked {
    struct stg_pipeline_spec *spec;
    const char **names;
};

static void asked_finish(struct asked *asked)
{
    stg_pipeline_spec_destroy(asked->spec);
    free(asked->names);
    *asked = (struct asked){0};
}

/* Without libstager-compute.so a client computes nothing: stager_run returns the reason.
 */
static int look(struct stager *client, const struct stg_reply *reply, struct asked *asked,
                struct stg_request *request, struct stg_err *err)
{
    const struct stg_compute *table = NULL;
    struct stg_err why = {0};
    asked_finish(asked);
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

/* As stg_client_call. */
static int call_open(struct stager *client, struct stg_request *request,
                     struct stg_reply *ret, int *fds, size_t max_fds, size_t *ret_n_fds,
                     struct stg_err *err)
{
    struct asked asked = {0};
    request->has_unsupported = true;
    int rc = 0;
    for (int i = 0; rc == 0; i++) {
        rc = stg_client_call(
            client, request,
            request->state != NULL || request->resume != NULL ? SEEK_NS : STG_OPEN_NS,
            ret, fds, max_fds, ret_n_fds, err);
        if (rc < 0 || !ret->asks)
            break;
        rc = i < MAX_ASKED ? look(client, ret, &asked, request, err)
                           : stg_err(err, -STAGER_ABORTED,
                                     "pipeline %s was replaced several times during this "
                                     "open: open it again",
                                     request->name);
    }
    asked_finish(&asked);
    return rc;
}

/* ---- what the reply brings ---- */

static int map_pages(struct stager_stream *stream, const int *fds, uint64_t segment_bytes,
                     struct stg_err *err)
{
    int rc = stg_map_open(fds[FD_RING], STG_RING_BYTES, STG_MAP_READ, "ring page",
                          &stream->ring_page, err);
    if (rc == 0)
        rc = stg_map_open(fds[FD_CONTROL], STG_CONTROL_BYTES, STG_MAP_WRITE,
                          "control page", &stream->control_page, err);
    if (rc == 0)
        rc = stg_ring_check(stream->ring_page.base, stream->ring_page.bytes, err);
    if (rc == 0)
        rc =
            stg_control_check(stream->control_page.base, stream->control_page.bytes, err);
    if (rc == 0)
        rc = stg_map_open(fds[FD_SEGMENT], segment_bytes,
                          stream->copy_on_write ? STG_MAP_COPY_ON_WRITE : STG_MAP_READ,
                          "arena segment", &stream->segment, err);
    if (rc < 0)
        return rc;
    stg_map_populate(&stream->segment, fds[FD_SEGMENT]);
    stream->ring.page = stream->ring_page.base;
    stream->control.page = stream->control_page.base;
    return 0;
}

static const char *keep_text(struct stager_stream *stream, const char *text)
{
    const char *given = text != NULL ? text : "";
    return stg_bump_strndup(&stream->bump, given, strlen(given));
}

static int keep_schema(struct stager_stream *stream, const struct stg_schema *from,
                       struct stg_schema *ret, struct stg_err *err)
{
    ret->components =
        stg_bump_alloc(&stream->bump, (from->n + 1) * sizeof(*ret->components));
    if (ret->components == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (size_t i = 0; i < from->n; i++) {
        ret->components[i] = from->components[i];
        ret->components[i].name = keep_text(stream, from->components[i].name);
        if (ret->components[i].name == NULL)
            return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    }
    ret->n = from->n;
    return 0;
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
    int rc = keep_schema(stream, &reply->boundary, &stream->boundary, err);
    if (rc == 0)
        rc = keep_schema(stream, &reply->slots, &stream->slots, err);
    if (rc < 0)
        return rc;
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

/* ---- open ---- */

/* In hand or ready; and ahead on a device. */
static uint32_t max_in_flight_of(const struct stager_options *options)
{
    uint32_t ahead = options->device_capacity != 0 ? options->device_capacity
                                                   : (uint32_t)STG_DEVICE_CAPACITY;
    return (options->max_in_flight != 0 ? options->max_in_flight : 2) +
           (options->device != NULL ? ahead : 0);
}

static int attach(struct stager_stream *stream, const char *name,
                  const struct stager_options *options, struct stg_err *err)
{
    char client_id[128];
    snprintf(client_id, sizeof(client_id), "%.100s-%d", program_invocation_short_name,
             (int)getpid());
    struct stg_request request = {
        .kind = STG_REQUEST_OPEN,
        .name = name,
        .client_id = options->client_id != NULL ? options->client_id : client_id,
        .max_in_flight = max_in_flight_of(options),
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
        .state = options->state,
        .resume = stg_progress_resume(options),
        .approximate = stream->is_approximate,
        .rank = options->rank,
        .world_size = options->world_size,
    };
    struct stg_reply reply;
    int fds[MAX_FDS];
    size_t n_fds = 0;
    int rc = call_open(stream->client, &request, &reply, fds, MAX_FDS, &n_fds, err);
    if (rc < 0)
        return rc;
    if (n_fds != (size_t)N_FDS + (reply.device_bytes != 0))
        rc = stg_err(err, -STAGER_INTERNAL, "stagerd sent %zu descriptors instead of %d",
                     n_fds, N_FDS + (reply.device_bytes != 0));
    if (rc == 0)
        rc = map_pages(stream, fds, reply.segment_bytes, err);
    if (rc == 0 && reply.device_bytes != 0 && stream->copier != NULL)
        stg_copier_import(stream, &reply, fds[FD_DEVICE]);
    for (size_t i = 0; i < n_fds; i++)
        close(fds[i]);
    if (rc == 0)
        rc = stg_leases_init(stream, reply.max_in_flight, err);
    if (rc == 0)
        rc = keep_reply(stream, &reply, err);
    if (rc == 0)
        rc = stg_progress_begin(stream, &reply, options, request.client_id, err);
    if (rc == 0)
        rc = stg_fields_init(stream, options, err);
    if (rc == 0 && stream->copier != NULL)
        rc = stg_copier_start(stream, err);
    return rc;
}

/* Nothing can fail on this side any more: the open takes effect, or fails there. */
static int join(struct stager_stream *stream, struct stg_err *err)
{
    struct stg_request request = {.kind = STG_REQUEST_JOIN};
    struct stg_reply reply;
    stream->passes = 1;
    stg_control_want_pass(&stream->control, stream->passes);
    return stg_client_call(stream->client, &request, STG_REQUEST_NS, &reply, NULL, 0,
                           NULL, err);
}

static int check_names(const char *what, const char *const *names, size_t n,
                       struct stg_err *err)
{
    for (size_t i = 0; names != NULL && i < n; i++) {
        if (names[i] == NULL || names[i][0] == '\0')
            return stg_err(err, -STAGER_INVALID_ARGUMENT, "%s %zu has no name", what, i);
    }
    return 0;
}

static int check_options(const char *name, const struct stager_options *options,
                         struct stg_err *err)
{
    if (name == NULL || name[0] == '\0')
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "the name of the pipeline is missing");
    if (options->max_in_flight > STG_MAX_IN_FLIGHT)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "max_in_flight is %u; the maximum is %u", options->max_in_flight,
                       STG_MAX_IN_FLIGHT);
    if (max_in_flight_of(options) > STG_MAX_IN_FLIGHT)
        return stg_err(
            err, -STAGER_INVALID_ARGUMENT,
            "max_in_flight and device_capacity are %u together; the maximum is %u",
            max_in_flight_of(options), STG_MAX_IN_FLIGHT);
    uint32_t inter_op = options->inter_op_threads_num;
    uint32_t intra_op = options->intra_op_threads_num;
    if (inter_op > MAX_THREADS || intra_op > MAX_THREADS)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "inter_op_threads_num is %u and intra_op_threads_num is %u; the "
                       "maximum of each is %u",
                       inter_op, intra_op, MAX_THREADS);
    int rc = stg_progress_check(options, err);
    if (rc == 0)
        rc = check_names("field", options->fields, options->n_fields, err);
    return rc < 0 ? rc : check_names("fetch", options->fetches, options->n_fetches, err);
}

static int check_protocol(const struct stager *client,
                          const struct stager_options *options, struct stg_err *err)
{
    bool resumes = stg_progress_resume(options) != NULL;
    if ((options->state == NULL || client->version >= STG_PROTOCOL_STATE) &&
        (!resumes || client->version >= STG_PROTOCOL_COMMIT))
        return 0;
    return stg_client_outdated(
        client, resumes ? "cannot begin at a commit" : "cannot begin at a state", err);
}

/* *ret_again: the run ended between open and join, because another client loaded a
 * state. */
static int open_stream(struct stager *client, const char *name,
                       const struct stager_options *options, bool *ret_again,
                       struct stager_stream **ret, struct stg_err *err)
{
    struct sockaddr_un address;
    int rc = check_options(name, options, err);
    if (rc == 0 && client != NULL)
        address = client->address;
    else if (rc == 0)
        rc = stg_socket_find(options->runtime_dir, &address, err);
    if (rc < 0)
        return rc;

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
    rc = stg_guard_create(&stream->guard, err);
    if (rc == 0 && options->device != NULL)
        rc = stg_copier_create(options, &stream->copier, err);
    if (rc == 0)
        rc = stg_client_connect(&address, &stream->client, err);
    if (rc == 0)
        rc = check_protocol(stream->client, options, err);
    if (rc == 0)
        rc = attach(stream, name, options, err);
    if (rc == 0) {
        rc = join(stream, err);
        *ret_again = rc == -STAGER_ABORTED;
    }
    if (rc < 0) {
        stager_close(stream);
        return rc;
    }
    *ret = stream;
    return 0;
}

int stager_open(struct stager *client, const char *name,
                const struct stager_options *options, struct stager_stream **ret)
{
    struct stager_options known = {0};
    struct stg_err *err = stg_client_err();
    *err = (struct stg_err){0};
    int rc = options == NULL
                 ? 0
                 : stg_sized_read(options, STG_SIZE_TO(stager_options, reserved0),
                                  sizeof(known), "stager_options", &known, err);
    bool again = rc == 0;
    for (int i = 0; again && i < MAX_OPENED; i++) {
        again = false;
        rc = open_stream(client, name, &known, &again, ret, err);
    }
    return rc;
}

/* ---- close ---- */

/* A staged batch whose last slices were not taken goes to others as a whole: it may not
 * be given back before the daemon has let go either. */
static void leave_current(struct stager_stream *stream, bool parted)
{
    struct stg_leased *leased = stream->current;
    stream->current = NULL;
    if (leased == NULL || leased->n_in_hand > 0)
        return;
    if (parted)
        stg_leased_return(stream, leased);
    else
        stg_leased_forget(stream, leased);
}

/* A forked child has neither the mappings nor the lease: it frees its own copies. */
static void free_stream(struct stager_stream *stream, bool ours)
{
    stg_computer_destroy(stream->computer, ours);
    stg_copier_destroy(stream->copier, ours);
    if (ours) {
        stg_map_close(&stream->segment);
        stg_map_close(&stream->ring_page);
        stg_map_close(&stream->control_page);
    }
    stg_pipeline_spec_destroy(stream->spec);
    stg_guard_destroy(stream->guard);
    stg_bump_finish(&stream->bump);
    stg_leases_finish(stream);
    stg_taken_finish(&stream->taken);
    stg_taken_finish(&stream->before);
    free(stream);
}

/* In a child of fork `held` does not fall any more: its batches may still be released,
 * which does nothing. */
void stg_stream_reap(struct stager_stream *stream)
{
    if (stream->client == NULL && stream->held == 0 && stream->pins == 0)
        free_stream(stream, stg_stream_is_ours(stream));
}

void stg_stream_pin(struct stager_stream *stream)
{
    stream->pins++;
}

void stg_stream_unpin(struct stager_stream *stream)
{
    stream->pins--;
    stg_stream_reap(stream);
}

void stg_run_drop(struct stager_stream *stream, struct stg_result *result,
                  bool has_native, void *native)
{
    stg_computer_drop(stream, result, has_native, native);
    stg_stream_unpin(stream);
}

void stager_close(struct stager_stream *stream)
{
    if (stream == NULL)
        return;
    if (stg_stream_is_ours(stream) && stream->control.page != NULL &&
        stream->client != NULL) {
        if (stream->copier != NULL)
            stg_copier_synchronize(stream);
        stg_control_part(&stream->control);
        bool parted = stg_socket_part(stream->client->fd);
        if (parted)
            stg_stream_return_untaken(stream);
        leave_current(stream, parted);
        if (stream->copier != NULL)
            stg_copier_leave(stream, parted);
    }
    stager_disconnect(stream->client);
    stream->client = NULL;
    stg_stream_reap(stream);
}
