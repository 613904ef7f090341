/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stagerctl/endpoint.h"

#include <errno.h>
#include <nanomsg/nn.h>
#include <nanomsg/pubsub.h>
#include <nanomsg/reqrep.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#define SCHEME "ipc://"
#define ASK_MILLIS 10000

/* libnanomsg ends the process when the path is too long. */
static int check_url(const char *url, struct stg_err *err)
{
    const size_t most = sizeof(((struct sockaddr_un *)0)->sun_path) - 1;
    const char *path = url + strlen(SCHEME);
    if (strncmp(url, SCHEME, strlen(SCHEME)) != 0 || path[0] != '/')
        return stg_err(
            err, -STAGER_INVALID_ARGUMENT,
            "%s is not the address of a gate, such as ipc:///run/stager/gate/admin.sock; "
            "`stagerctl token --json` prints it",
            url);
    if (strlen(path) > most)
        return stg_err(
            err, -STAGER_INVALID_ARGUMENT,
            "%s: the path of a socket has at most %zu bytes, this one has %zu: "
            "use a shorter runtime_dir",
            url, most, strlen(path));
    if (access(path, R_OK | W_OK) == 0)
        return 0;
    if (errno == EACCES)
        return stg_err(err, -STAGER_PERMISSION_DENIED,
                       "%s: %s; only the access_group of stagerd.yaml may connect", url,
                       strerror(errno));
    return stg_err(err, -STAGER_NOT_FOUND,
                   "%s: %s; is stagerd running, and the gate enabled in stagerd.yaml?",
                   url, strerror(errno));
}

static int open_endpoint(const char *url, int protocol, int *ret, struct stg_err *err)
{
    int rc = check_url(url, err);
    if (rc < 0)
        return rc;
    int endpoint = nn_socket(AF_SP, protocol);
    int most = STG_MESSAGE_MAX_BYTES, millis = ASK_MILLIS;
    if (endpoint < 0 ||
        nn_setsockopt(endpoint, NN_SOL_SOCKET, NN_RCVMAXSIZE, &most, sizeof(most)) < 0 ||
        nn_setsockopt(endpoint, NN_SOL_SOCKET, NN_RCVTIMEO, &millis, sizeof(millis)) <
            0 ||
        (protocol == NN_SUB &&
         nn_setsockopt(endpoint, NN_SUB, NN_SUB_SUBSCRIBE, "", 0) < 0) ||
        (protocol == NN_REQ && nn_setsockopt(endpoint, NN_SOL_SOCKET, NN_SNDTIMEO,
                                             &millis, sizeof(millis)) < 0) ||
        nn_connect(endpoint, url) < 0) {
        rc = stg_err(err, -STAGER_UNAVAILABLE, "%s: %s", url, nn_strerror(nn_errno()));
        stg_endpoint_close(endpoint);
        return rc;
    }
    *ret = endpoint;
    return 0;
}

int stg_endpoint_open_admin(const char *url, int *ret, struct stg_err *err)
{
    return open_endpoint(url, NN_REQ, ret, err);
}

int stg_endpoint_open_events(const char *url, int *ret, struct stg_err *err)
{
    return open_endpoint(url, NN_SUB, ret, err);
}

void stg_endpoint_close(int endpoint)
{
    if (endpoint >= 0)
        nn_close(endpoint);
}

static long fail(struct stg_err *err)
{
    int number = nn_errno();
    if (number == ETIMEDOUT || number == EAGAIN)
        return stg_err(err, -STAGER_DEADLINE_EXCEEDED,
                       "the gate did not answer within %d s", ASK_MILLIS / 1000);
    return stg_err(err, number == EINTR ? -STAGER_CANCELLED : -STAGER_UNAVAILABLE,
                   "the gate: %s", nn_strerror(number));
}

long stg_endpoint_ask(int endpoint, const void *message, size_t bytes, void *buf,
                      size_t capacity, struct stg_err *err)
{
    if (nn_send(endpoint, message, bytes, 0) < 0)
        return fail(err);
    int n = nn_recv(endpoint, buf, capacity, 0);
    if (n < 0)
        return fail(err);
    if ((size_t)n > capacity)
        return stg_err(err, -STAGER_INTERNAL,
                       "the gate sent a message of invalid length: %d bytes", n);
    return n;
}

int stg_endpoint_listen(int endpoint, int millis, struct stg_event *ret)
{
    char buf[STG_EVENT_MAX_BYTES];
    struct stg_err err;
    nn_setsockopt(endpoint, NN_SOL_SOCKET, NN_RCVTIMEO, &millis, sizeof(millis));
    int n = nn_recv(endpoint, buf, sizeof(buf), 0);
    return n >= 0 && (size_t)n <= sizeof(buf) &&
           stg_wire_decode_event(buf, (size_t)n, ret, &err) == 0;
}
