/* SPDX-License-Identifier: Apache-2.0 */
#include "client/transport/connect.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/stager.h"

/* A reply of 64 KiB unpacks to less than this. */
#define BUMP_BYTES (4u << 20)

static _Thread_local struct stg_err thread_err;

struct stg_err *stg_client_err(void)
{
    return &thread_err;
}

const char *stager_status_name(int code)
{
    return stg_status_name(code);
}

const char *stager_dtype_name(int dtype)
{
    return stg_dtype_name(dtype);
}

const char *stager_version(void)
{
    return STAGER_RELEASE;
}

/* ---- requests ---- */

/* The reply to `id`, or what stagerd said before it was asked; replies to requests that
 * were given up before are dropped. */
static int receive_reply(struct stager *client, uint64_t id, int64_t deadline_ns,
                         struct stg_reply *ret, int *fds, size_t max_fds,
                         size_t *ret_n_fds, struct stg_err *err)
{
    for (;;) {
        size_t n_fds = 0;
        long n = stg_socket_receive(client->fd, client->buf, sizeof(client->buf), fds,
                                    max_fds, &n_fds, deadline_ns, err);
        if (n < 0)
            return (int)n;
        stg_bump_reset(&client->bump);
        struct stg_reply reply = {0};
        int rc =
            stg_wire_decode_reply(client->buf, (size_t)n, &client->bump, &reply, err);
        bool unasked = reply.id == 0 && reply.code != 0;
        if (rc == 0 && (reply.id == id || unasked)) {
            client->reply_bytes = (size_t)n;
            *ret = reply;
            *ret_n_fds = n_fds;
            return 0;
        }
        for (size_t i = 0; i < n_fds; i++)
            close(fds[i]);
        if (rc == -STAGER_RESOURCE_EXHAUSTED)
            return rc;
        if (rc < 0)
            return stg_err_prefix(err, rc, "stagerd sent a malformed reply");
    }
}

static int check_usable(const struct stager *client, struct stg_err *err)
{
    if (!stg_guard_holds(client->guard))
        return stg_err(
            err, -STAGER_FAILED_PRECONDITION,
            "this connection belongs to the parent process: connect again after "
            "fork");
    if (client->broken)
        return stg_err(err, -STAGER_UNAVAILABLE,
                       "an earlier request on this connection failed: connect again");
    return 0;
}

/* The id shows a reply that comes too late. */
static int note_broken(struct stager *client, int rc)
{
    client->broken = client->broken || (rc < 0 && rc != -STAGER_DEADLINE_EXCEEDED);
    return rc;
}

int stg_client_ask(struct stager *client, struct stg_request *request,
                   int64_t deadline_ns, struct stg_err *err)
{
    int rc = check_usable(client, err);
    if (rc < 0)
        return rc;
    request->id = ++client->last_id;
    client->is_answered = false;
    long n = stg_wire_encode_request(request, client->buf, sizeof(client->buf));
    if (n < 0)
        return stg_err(err, (int)n,
                       "the request exceeds the limit of %u bytes for a message: if the "
                       "pipeline names many paths, use a pattern or a `listing` file",
                       STG_MESSAGE_MAX_BYTES);
    rc = stg_socket_send(client->fd, client->buf, (size_t)n, deadline_ns, err);
    if (rc == -STAGER_UNAVAILABLE)
        return 0; /* a reason may have come before the end */
    return note_broken(client, rc);
}

int stg_client_answer(struct stager *client, const struct stg_request *request,
                      int64_t deadline_ns, struct stg_reply *ret, int *fds,
                      size_t max_fds, size_t *ret_n_fds, struct stg_err *err)
{
    struct stg_reply reply;
    size_t n_fds = 0;
    int rc = check_usable(client, err);
    if (rc == 0)
        rc = note_broken(client, receive_reply(client, request->id, deadline_ns, &reply,
                                               fds, max_fds, &n_fds, err));
    if (rc < 0)
        return rc;
    client->is_answered = true;
    if (reply.code == 0 && reply.kind != request->kind)
        rc = stg_err(err, -STAGER_INTERNAL, "stagerd replied to a different request");
    else if (reply.code != 0)
        rc = stg_err(err, reply.code, "%s", reply.text != NULL ? reply.text : "");
    if (rc < 0) {
        for (size_t i = 0; i < n_fds; i++)
            close(fds[i]);
        return rc;
    }
    *ret = reply;
    if (ret_n_fds != NULL)
        *ret_n_fds = n_fds;
    return 0;
}

int stg_client_call(struct stager *client, struct stg_request *request, int64_t limit_ns,
                    struct stg_reply *ret, int *fds, size_t max_fds, size_t *ret_n_fds,
                    struct stg_err *err)
{
    int64_t deadline_ns = stg_clock_ns() + limit_ns;
    int rc = stg_client_ask(client, request, deadline_ns, err);
    return rc < 0 ? rc
                  : stg_client_answer(client, request, deadline_ns, ret, fds, max_fds,
                                      ret_n_fds, err);
}

/* ---- hello ---- */

static int copy_hello(struct stager *client, const struct stg_reply *reply,
                      struct stg_err *err)
{
    const char *daemon = reply->daemon != NULL ? reply->daemon : "";
    const char *cuda = reply->cuda != NULL ? reply->cuda : "";
    client->daemon = stg_bump_strdup(&client->hello_bump, daemon);
    client->cuda = stg_bump_strdup(&client->hello_bump, cuda);
    if (client->daemon == NULL || client->cuda == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    client->version = reply->version;
    client->instance = reply->instance;
    client->pid = reply->pid;
    return 0;
}

static void fill_hello(struct stg_request *ret)
{
    *ret = (struct stg_request){
        .kind = STG_REQUEST_HELLO,
        .min_version = STG_PROTOCOL_MIN,
        .max_version = STG_PROTOCOL_MAX,
        .client = program_invocation_short_name,
    };
}

int stg_client_greet(struct stager *client, int64_t deadline_ns, struct stg_err *err)
{
    struct stg_request request = {.kind = STG_REQUEST_HELLO, .id = client->last_id};
    struct stg_reply reply;
    int rc = stg_client_answer(client, &request, deadline_ns, &reply, NULL, 0, NULL, err);
    if (rc < 0)
        return rc;
    if (reply.version < STG_PROTOCOL_MIN || reply.version > STG_PROTOCOL_MAX)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "stagerd %s chose protocol %u, this library (%s) speaks %u to %u",
                       reply.daemon != NULL ? reply.daemon : "", reply.version,
                       STAGER_RELEASE, STG_PROTOCOL_MIN, STG_PROTOCOL_MAX);
    return copy_hello(client, &reply, err);
}

int stg_client_begin(const struct sockaddr_un *address, bool waits, struct stager **ret,
                     struct stg_err *err)
{
    struct stager *client = calloc(1, sizeof(*client));
    if (client == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    client->fd = -1;
    client->address = *address;
    stg_bump_init(&client->bump, BUMP_BYTES);
    stg_bump_init(&client->hello_bump, BUMP_BYTES);

    struct stg_request hello;
    fill_hello(&hello);
    int rc = stg_guard_create(&client->guard, err);
    if (rc == 0)
        rc = stg_socket_connect(address, waits, &client->fd, err);
    if (rc == 0)
        rc = stg_client_ask(client, &hello, stg_clock_ns() + (waits ? STG_REQUEST_NS : 0),
                            err);
    if (rc < 0) {
        stager_disconnect(client);
        return rc;
    }
    *ret = client;
    return 0;
}

int stg_client_connect(const struct sockaddr_un *address, struct stager **ret,
                       struct stg_err *err)
{
    struct stager *client;
    int rc = stg_client_begin(address, true, &client, err);
    if (rc < 0)
        return rc;
    rc = stg_client_greet(client, stg_clock_ns() + STG_REQUEST_NS, err);
    if (rc < 0) {
        stager_disconnect(client);
        return rc;
    }
    *ret = client;
    return 0;
}

int stg_client_outdated(const struct stager *client, const char *what,
                        struct stg_err *err)
{
    return stg_err(err, -STAGER_FAILED_PRECONDITION,
                   "stagerd %s %s (protocol %u): use stagerd of this release (%s) or a "
                   "later one",
                   client->daemon, what, client->version, STAGER_RELEASE);
}

int stager_connect(const char *runtime_dir, struct stager **ret)
{
    struct stg_err *err = stg_client_err();
    *err = (struct stg_err){0};
    struct sockaddr_un address;
    int rc = stg_socket_find(runtime_dir, &address, err);
    return rc < 0 ? rc : stg_client_connect(&address, ret, err);
}

void stager_disconnect(struct stager *client)
{
    if (client == NULL)
        return;
    if (client->fd >= 0)
        close(client->fd);
    stg_guard_destroy(client->guard);
    stg_bump_finish(&client->hello_bump);
    stg_bump_finish(&client->bump);
    free(client);
}
