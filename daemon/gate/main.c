/* SPDX-License-Identifier: Apache-2.0
 *
 * stager-gate: the nanomsg endpoint of stagerd, which starts, watches and ends it. It
 * alone links libnanomsg, which any peer can make abort, spin or leak descriptors: so it
 * is a separate process, without rights or data. What comes in on the REP
 * socket goes to stagerd as it is; what stagerd sends goes to its asker, or to all
 * subscribers.
 *
 * The last event is published again while nothing happens, so that a subscriber that lost
 * one notices.
 */
#include <errno.h>
#include <nanomsg/ipc.h>
#include <nanomsg/nn.h>
#include <nanomsg/pubsub.h>
#include <nanomsg/reqrep.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/log.h"
#include "daemon/gate/confine.h"
#include "daemon/gate/frame.h"

#define REPEAT_MILLIS 500
#define LOOKS 64 /* frames between two looks at the descriptors */

struct gate {
    int admin, events; /* nanomsg's numbers */
    int admin_fd;      /* readable: a request is there; never read */
    uint64_t tag;      /* of the last request */
    bool asked;        /* the last request has no reply yet: REP takes one at a time */
    bool alive;
    char last_event[256];
    size_t last_event_bytes;
};

/* ---- endpoints ---- */

/* `path` lies in the working folder. */
static int open_endpoint(int protocol, const char *path, gid_t gid, struct stg_err *err)
{
    unlink(path); /* of a gate that died */
    char url[64];
    snprintf(url, sizeof(url), "ipc://%s", path);
    int most = STG_GATE_PAYLOAD_MAX_BYTES;
    int endpoint = nn_socket(AF_SP, protocol);
    if (endpoint < 0)
        return stg_err(err, -STAGER_UNAVAILABLE, "nn_socket: %s",
                       nn_strerror(nn_errno()));
    if (nn_setsockopt(endpoint, NN_SOL_SOCKET, NN_RCVMAXSIZE, &most, sizeof(most)) < 0 ||
        nn_bind(endpoint, url) < 0)
        return stg_err(err, -STAGER_UNAVAILABLE, "cannot bind %s: %s", url,
                       nn_strerror(nn_errno()));
    /* The umask kept all other users off until here. */
    struct stat st;
    if (gid != (gid_t)-1 &&
        (stat(path, &st) < 0 || (st.st_gid != gid && chown(path, (uid_t)-1, gid) < 0) ||
         chmod(path, 0660) < 0))
        return stg_err(err, -STAGER_PERMISSION_DENIED, "cannot give %s to group %u: %s",
                       path, (unsigned)gid, strerror(errno));
    return endpoint;
}

static int open_endpoints(struct gate *gate, gid_t gid, struct stg_err *err)
{
    umask(0177);
    gate->admin = open_endpoint(NN_REP, "admin.sock", gid, err);
    if (gate->admin < 0)
        return gate->admin;
    gate->events = open_endpoint(NN_PUB, "events.sock", gid, err);
    if (gate->events < 0)
        return gate->events;
    size_t n = sizeof(gate->admin_fd);
    if (nn_getsockopt(gate->admin, NN_SOL_SOCKET, NN_RCVFD, &gate->admin_fd, &n) < 0)
        return stg_err(err, -STAGER_UNAVAILABLE, "NN_RCVFD: %s", nn_strerror(nn_errno()));
    return 0;
}

/* ---- frames ---- */

static void send_frame(struct gate *gate, uint32_t kind, uint64_t tag, void *payload,
                       size_t n)
{
    struct stg_gate_frame frame = {.kind = kind, .tag = tag};
    struct iovec parts[] = {{.iov_base = &frame, .iov_len = sizeof(frame)},
                            {.iov_base = payload, .iov_len = n}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t sent;
    do {
        sent = sendmsg(STG_GATE_FD, &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    gate->alive = gate->alive && sent >= 0;
}

static void publish(struct gate *gate)
{
    if (gate->last_event_bytes > 0)
        nn_send(gate->events, gate->last_event, gate->last_event_bytes, NN_DONTWAIT);
}

/* nanomsg drops a reply to a peer that left meanwhile. */
static void take_frame(struct gate *gate)
{
    static char buf[sizeof(struct stg_gate_frame) + STG_GATE_PAYLOAD_MAX_BYTES];
    ssize_t n = recv(STG_GATE_FD, buf, sizeof(buf), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    struct stg_gate_frame frame;
    if (n < (ssize_t)sizeof(frame)) {
        gate->alive = false; /* stagerd has closed its end */
        return;
    }
    memcpy(&frame, buf, sizeof(frame));
    const char *payload = buf + sizeof(frame);
    size_t bytes = (size_t)n - sizeof(frame);
    if (frame.kind == STG_GATE_REPLY && gate->asked && frame.tag == gate->tag) {
        nn_send(gate->admin, payload, bytes, NN_DONTWAIT);
        gate->asked = false;
    } else if (frame.kind == STG_GATE_EVENT && bytes <= sizeof(gate->last_event)) {
        memcpy(gate->last_event, payload, bytes);
        gate->last_event_bytes = bytes;
        publish(gate);
    }
}

static void take_request(struct gate *gate)
{
    void *request;
    int n = nn_recv(gate->admin, &request, NN_MSG, NN_DONTWAIT);
    if (n < 0)
        return; /* it was none: nanomsg has thrown it away */
    gate->asked = true;
    send_frame(gate, STG_GATE_REQUEST, ++gate->tag, request, (size_t)n);
    nn_freemsg(request);
}

/* ---- life ---- */

/* A peer can make libnanomsg leak descriptors, and spin when there is none left. */
static bool short_of_files(void)
{
    static struct pollfd all[STG_GATE_MAX_FILES];
    struct rlimit limit;
    int max = STG_GATE_MAX_FILES;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < STG_GATE_MAX_FILES)
        max = (int)limit.rlim_cur; /* poll takes no more */
    int n_open = max;
    for (int i = 0; i < max; i++)
        all[i] = (struct pollfd){.fd = i};
    poll(all, (nfds_t)max, 0);
    for (int i = 0; i < max; i++)
        n_open -= (all[i].revents & POLLNVAL) != 0;
    return n_open > max - max / 8;
}

/* False: nothing was there. */
static bool look(struct gate *gate)
{
    struct pollfd fds[] = {
        {.fd = STG_GATE_FD, .events = POLLIN},
        {.fd = gate->asked ? -1 : gate->admin_fd, .events = POLLIN},
    };
    int n = poll(fds, 2, REPEAT_MILLIS);
    if (n == 0)
        publish(gate);
    if (n > 0 && fds[0].revents != 0)
        take_frame(gate);
    if (n > 0 && gate->alive && fds[1].revents != 0)
        take_request(gate);
    return n > 0;
}

static int parse_id(const char *text, long long *ret)
{
    char *end;
    errno = 0;
    *ret = strtoll(text, &end, 10);
    return errno == 0 && *end == '\0' && end != text ? 0 : -1;
}

static int start(struct gate *gate, char **argv, struct stg_err *err)
{
    long long uid, gid, group, parent;
    if (parse_id(argv[2], &uid) < 0 || parse_id(argv[3], &gid) < 0 ||
        parse_id(argv[4], &group) < 0 || parse_id(argv[5], &parent) < 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "not a number");
    /* The user that this process becomes may not pass a folder above it. */
    if (chdir(argv[1]) < 0)
        return stg_err(err, -STAGER_UNAVAILABLE, "%s: %s", argv[1], strerror(errno));
    int rc = stg_gate_confine((uid_t)uid, (gid_t)gid, (pid_t)parent, err);
    if (rc == 0 && stg_gate_filter(err) < 0)
        stg_log(STG_LOG_DEBUG, "gate: %s", err->text);
    return rc == 0 ? open_endpoints(gate, (gid_t)group, err) : rc;
}

int main(int argc, char **argv)
{
    struct gate gate = {.alive = true};
    struct stg_err err = {0};
    if (argc != 6) {
        fprintf(
            stderr,
            "stager-gate is a helper that stagerd starts: see `gate` in stagerd.yaml\n");
        return 2;
    }
    /* stagerd alone says when it ends: it gets these too, and closes the socket. */
    signal(SIGTERM, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    int rc = start(&gate, argv, &err);
    stg_log_start(); /* the confinement holds for the calling thread and its children */
    if (rc < 0) {
        stg_log(STG_LOG_ERROR, "gate: %s", err.text);
        stg_log_stop();
        return 1;
    }
    send_frame(&gate, STG_GATE_READY, 0, NULL, 0);
    for (unsigned turn = 0; gate.alive; turn++) {
        if ((!look(&gate) || turn % LOOKS == 0) && short_of_files()) {
            stg_log(STG_LOG_WARNING,
                    "gate: nearly all descriptors are in use (at most %d): a peer causes "
                    "libnanomsg to leak them, or opens connections without closing them",
                    STG_GATE_MAX_FILES);
            stg_log_stop();
            return 3;
        }
    }
    stg_log_stop();
    return 0;
}
