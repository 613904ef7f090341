/* SPDX-License-Identifier: Apache-2.0
 *
 * stager_open: what attach.h has, each part awaited.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/api/attach.h"
#include "client/api/reconnect.h"
#include "client/api/replay.h"
#include "client/device/copier.h"
#include "client/stager.h"
#include "client/stream/progress.h"
#include "client/transport/sized.h"

#define MAX_JOB_BYTES 63
#define MAX_THREADS 64u /* of stager_run */

/* A run may end during an open, because another client loads a state. */
#define MAX_OPENED 4

/* A dataset may go to a state record by record. */
#define SEEK_NS 3605000000000

/* ---- checks ---- */

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
    if (stg_attach_max_in_flight(options) > STG_MAX_IN_FLIGHT)
        return stg_err(
            err, -STAGER_INVALID_ARGUMENT,
            "max_in_flight, device_capacity and replay_held are %u together; the maximum "
            "is %u",
            stg_attach_max_in_flight(options), STG_MAX_IN_FLIGHT);
    uint32_t inter_op = options->inter_op_threads_num;
    uint32_t intra_op = options->intra_op_threads_num;
    if (inter_op > MAX_THREADS || intra_op > MAX_THREADS)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "inter_op_threads_num is %u and intra_op_threads_num is %u; the "
                       "maximum of each is %u",
                       inter_op, intra_op, MAX_THREADS);
    if (options->job != NULL && strlen(options->job) > MAX_JOB_BYTES)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "job has %zu bytes; the maximum is %d", strlen(options->job),
                       MAX_JOB_BYTES);
    if (options->follow != 0 && options->daemon_reconnect_millis == STAGER_NEVER)
        return stg_err(
            err, -STAGER_INVALID_ARGUMENT,
            "follow needs a daemon_reconnect_millis: a stream that follows its "
            "pipeline opens it again");
    int rc = stg_progress_check(options, err);
    if (rc == 0)
        rc = check_names("field", options->fields, options->n_fields, err);
    return rc < 0 ? rc : check_names("fetch", options->fetches, options->n_fetches, err);
}

static int check_protocol(const struct stager *client,
                          const struct stager_options *options, struct stg_err *err)
{
    bool resumes = stg_progress_resume(options) != NULL;
    if (options->follow != 0 && client->version < STG_PROTOCOL_RECONNECT)
        return stg_client_outdated(client, "has no streams that follow", err);
    if ((options->state == NULL || client->version >= STG_PROTOCOL_STATE) &&
        (!resumes || client->version >= STG_PROTOCOL_COMMIT))
        return 0;
    return stg_client_outdated(
        client, resumes ? "cannot begin at a commit" : "cannot begin at a state", err);
}

/* ---- open ---- */

/* As stg_client_call. */
static int call_open(struct stager *client, struct stg_request *request,
                     struct stg_reply *ret, int *fds, size_t *ret_n_fds,
                     struct stg_err *err)
{
    struct stg_asked asked = {0};
    int64_t limit_ns =
        request->state != NULL || request->resume != NULL ? SEEK_NS : STG_OPEN_NS;
    int rc = 0;
    for (int i = 0; rc == 0; i++) {
        rc = stg_client_call(client, request, limit_ns, ret, fds, STG_OPEN_MAX, ret_n_fds,
                             err);
        if (rc < 0 || !ret->asks)
            break;
        rc = i < STG_MAX_ASKED ? stg_attach_look(client, ret, &asked, request, err)
                               : stg_err(err, -STAGER_ABORTED,
                                         "pipeline %s was replaced several times during "
                                         "this open: open it again",
                                         request->name);
    }
    stg_asked_finish(&asked);
    return rc;
}

static int attach(struct stager_stream *stream, const char *name,
                  const struct stager_options *options, struct stg_err *err)
{
    char own_id[128];
    snprintf(own_id, sizeof(own_id), "%.100s-%d", program_invocation_short_name,
             (int)getpid());
    const char *client_id = options->client_id != NULL ? options->client_id : own_id;
    struct stg_request request;
    struct stg_reply reply;
    int fds[STG_OPEN_MAX];
    size_t n_fds = 0;
    stg_attach_request(stream, name, options, client_id, &request);
    int rc = call_open(stream->client, &request, &reply, fds, &n_fds, err);
    if (rc < 0)
        return rc;
    rc = stg_attach_take(stream, &reply, fds, n_fds, options, client_id, err);
    return rc < 0 ? rc : stg_reconnect_keep(stream, name, options, &reply.rejoin, err);
}

static int join(struct stager_stream *stream, struct stg_err *err)
{
    struct stg_request request;
    struct stg_reply reply;
    stg_attach_join(stream, &request);
    return stg_client_call(stream->client, &request, STG_REQUEST_NS, &reply, NULL, 0,
                           NULL, err);
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

    struct stager_stream *stream;
    rc = stg_attach_create(options, &stream, err);
    if (rc < 0)
        return rc;
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
    if (rc == 0)
        rc = stg_replay_options(&known, err);
    bool again = rc == 0;
    for (int i = 0; again && i < MAX_OPENED; i++) {
        again = false;
        rc = open_stream(client, name, &known, &again, ret, err);
    }
    return rc;
}
