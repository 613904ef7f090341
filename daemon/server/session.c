/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/server/session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/log.h"
#include "core/param.h"
#include "daemon/host/limit.h"
#include "daemon/host/share.h"
#include "daemon/pipeline/index_job.h"
#include "daemon/pipeline/recovery.h"
#include "daemon/pipeline/warm_up.h"
#include "daemon/pyworker/work.h"
#include "daemon/server/noting.h"
#include "daemon/server/tapping.h"
#include "daemon/server/tracing.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

#define HELLO_MILLIS 2000

/* ---- life ---- */

static void free_session(struct stg_session *session)
{
    struct stg_session **at = &session->server->sessions;
    while (*at != session)
        at = &(*at)->next;
    *at = session->next;
    stg_bump_finish(&session->open_bump);
    stg_share_put(session->share);
    stg_journal_unref(session->journal);
    free(session);
}

void stg_session_hold(struct stg_session *session)
{
    session->n_handles++;
}

void stg_session_release(struct stg_session *session)
{
    if (--session->n_handles == 0)
        free_session(session);
}

static void on_handle_closed(uv_handle_t *handle)
{
    stg_session_release(handle->data);
}

static void close_handle(void *handle)
{
    if (!uv_is_closing(handle))
        uv_close(handle, on_handle_closed);
}

void stg_session_end_warming(struct stg_warming *warming)
{
    if (warming == NULL)
        return;
    stg_warm_up_end(warming->warm_up);
    stg_bump_finish(&warming->bump);
    free(warming);
}

/* Nothing of the process is left with us. */
static void end(struct stg_session *session)
{
    if (session->pidfd >= 0) {
        uv_poll_stop(&session->pid_poll);
        close(session->pidfd);
        session->pidfd = -1;
    }
    if (!session->unwatched)
        close_handle(&session->pid_poll);
    close_handle(&session->deadline);
    close_handle(&session->pace);
}

void stg_session_claim(struct stg_session *session, struct stg_instance *instance)
{
    struct stg_instance *before = session->open_private;
    if (before != NULL) {
        before->is_claimed = false;
        stg_server_sweep_soon(session->server);
    }
    session->open_private = instance;
    if (instance != NULL)
        instance->is_claimed = true;
}

void stg_session_stop_waiting(struct stg_session *session)
{
    if (session->open_private != NULL)
        stg_catalog_abandon(session->open_private);
    stg_session_claim(session, NULL);
    session->open_waits = false;
    uv_timer_stop(&session->deadline);
}

/* All that the client of the session holds comes back. */
static void reap_client(struct stg_session *session)
{
    struct stg_client *client = session->client;
    session->client = NULL;
    if (client != NULL)
        stg_stage_dead(session->instance->stage, client);
}

/* An unwatched process had time to release what it holds. */
static void on_unwatched(uv_timer_t *timer)
{
    struct stg_session *session = timer->data;
    reap_client(session);
    end(session);
    stg_server_sweep_soon(session->server);
}

/* It may live on and read what it took, and it may be dead: after a while it is. */
static void give_it_time(struct stg_session *session)
{
    uint64_t hold = session->instance->config.spec->staged.lease_timeout_millis;
    uint64_t millis =
        hold > 0 && hold < STG_UNWATCHED_MILLIS ? hold : STG_UNWATCHED_MILLIS;
    uv_timer_start(&session->deadline, on_unwatched, millis, 0);
}

/* Ends what the connection began besides its stream. */
static void stop_work(struct stg_session *session)
{
    if (session->worker != NULL)
        stg_worker_leave(session->worker);
    session->worker = NULL;
    stg_tracing_end(session);
    stg_tapping_end(session);
    stg_index_job_end(session->index_job);
    session->index_job = NULL;
    stg_session_end_warming(session->warming);
    session->warming = NULL;
}

static void close_socket(struct stg_session *session)
{
    uv_poll_stop(&session->poll);
    close_handle(&session->poll);
    close(session->fd);
    session->fd = -1;
    session->server->n_sessions--;
    if (session->is_counted)
        stg_share_give(session->share, STG_QUOTA_CLIENTS, 1);
    session->is_counted = false;
}

/* A client that closes its stream of a version that was replaced does not follow. */
static void stop_following(const struct stg_session *session)
{
    const struct stg_instance *instance = session->instance;
    if (stg_stage_is_parting(instance->stage, session->client))
        stg_recovery_left(
            stg_catalog_find(session->server->catalog, instance->config.name), instance,
            session->member);
}

/* A client that closes its stream while the run reconnects is not waited for. */
static void stop_returning(struct stg_session *session)
{
    const struct stg_instance *instance = session->instance;
    const char *name = session->open_waits       ? session->open.name
                       : session->client != NULL ? instance->config.name
                                                 : NULL;
    uint64_t member = session->open_waits ? session->open.rejoin.member : session->member;
    if (name == NULL || member == 0 || session->server->stopping)
        return;
    if (session->open_waits || instance->pipeline != NULL)
        stg_recovery_gone(stg_catalog_find(session->server->catalog, name), member);
    else
        stop_following(session);
}

void stg_session_close(struct stg_session *session)
{
    if (session->closing || session->answer != NULL)
        return;
    stop_returning(session);
    session->closing = true;
    session->joining = false;
    stg_session_stop_waiting(session);
    stop_work(session);
    bool gone = true;
    if (session->client != NULL) {
        gone = stg_stage_detach(session->instance->stage, session->client);
        stg_recovery_note(session->instance); /* before stager_close returns */
        if (gone)
            session->client = NULL;
        else
            stg_log(STG_LOG_DEBUG,
                    "pid %d left pipeline %s and still holds batches of it",
                    (int)session->pid, session->instance->config.name);
    }
    close_socket(session);
    if (gone)
        end(session);
    else if (session->unwatched)
        give_it_time(session);
    stg_server_sweep_soon(session->server);
}

/* The process is dead: all it held comes back. If its socket ended first,
 * stg_session_close has detached the client already. */
static void on_death(uv_poll_t *poll, int status, int events)
{
    struct stg_session *session = poll->data;
    stg_log(STG_LOG_DEBUG, "pid %d exited", (int)session->pid);
    uv_poll_stop(&session->pid_poll);
    stop_returning(session);
    reap_client(session);
    if (!session->closing)
        stg_session_close(session);
    end(session);
    stg_server_sweep_soon(session->server);
}

static void sweep(struct stg_session *session)
{
    if (session->worker != NULL && stg_worker_is_disconnected(session->worker))
        stg_session_close(session);
    if (!session->closing || session->client == NULL)
        return;
    if (stg_stage_client_held(session->instance->stage, session->client) > 0)
        return;
    reap_client(session);
    end(session);
}

void stg_session_sweep_all(struct stg_server *server)
{
    for (struct stg_session *s = server->sessions; s != NULL; s = s->next)
        sweep(s);
}

void stg_session_abort(struct stg_session *session)
{
    session->client = NULL;
    stop_work(session);
    if (!session->closing) {
        session->closing = true;
        stg_session_stop_waiting(session);
        close_socket(session);
    }
    end(session);
}

/* ---- replies ---- */

/* Returns whether the message was sent; if not, errno has the reason. */
static bool post_message(struct stg_session *session, const void *bytes, size_t n,
                         const int *fds, size_t n_fds)
{
    if (session->answer != NULL) {
        session->answer->n = n;
        memcpy(session->answer->bytes, bytes, n);
        return true;
    }
    union {
        char bytes[CMSG_SPACE(sizeof(int) * 8)];
        struct cmsghdr align;
    } control = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = n};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    if (n_fds > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
        memcpy(CMSG_DATA(header), fds, sizeof(int) * n_fds);
    }
    return sendmsg(session->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

static int send_message(struct stg_session *session, const void *bytes, size_t n,
                        const int *fds, size_t n_fds)
{
    if (post_message(session, bytes, n, fds, n_fds))
        return 0;
    if (session->client != NULL && (errno == ENOBUFS || errno == ENOMEM)) {
        stg_log(STG_LOG_WARNING, "pid %d gets no reply to a request on its stream: %s",
                (int)session->pid, strerror(errno));
        return -STAGER_RESOURCE_EXHAUSTED;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        stg_log(STG_LOG_WARNING, "pid %d does not read its replies and was disconnected",
                (int)session->pid);
    stg_session_close(session);
    return -STAGER_UNAVAILABLE;
}

bool stg_session_post(struct stg_session *session, const struct stg_reply *reply)
{
    char buf[4096];
    long bytes = stg_wire_encode_reply(reply, buf, sizeof(buf));
    return bytes > 0 && post_message(session, buf, (size_t)bytes, NULL, 0);
}

int stg_session_reply(struct stg_session *session, const struct stg_reply *reply,
                      const int *fds, size_t n)
{
    if (session->closing)
        return -STAGER_UNAVAILABLE;
    static char buf[STG_MESSAGE_MAX_BYTES]; /* the loop is one thread */
    long bytes = stg_wire_encode_reply(reply, buf, sizeof(buf));
    if (bytes < 0) {
        stg_session_fail(session, reply->id, -STAGER_RESOURCE_EXHAUSTED,
                         bytes == -STAGER_OUT_OF_RANGE
                             ? "the reply does not fit a message of 64 KiB"
                             : "stagerd is out of memory for the reply");
        return -STAGER_RESOURCE_EXHAUSTED;
    }
    return send_message(session, buf, (size_t)bytes, fds, n);
}

void stg_session_fail(struct stg_session *session, uint64_t id, int code,
                      const char *text)
{
    if (session->closing)
        return;
    struct stg_reply reply = {.id = id, .code = code, .text = text};
    char buf[4096];
    session->server->counts.errors[-code % STG_N_CODES]++;
    stg_noting_failed(session, code, text);
    long bytes = stg_wire_encode_reply(&reply, buf, sizeof(buf));
    if (bytes > 0)
        send_message(session, buf, (size_t)bytes, NULL, 0);
    else
        stg_session_close(session);
}

void stg_session_fail_with(struct stg_session *session, const struct stg_request *request,
                           const struct stg_err *err)
{
    stg_session_fail(session, request->id, err->code, err->text);
}

void stg_session_finish(struct stg_session *session, const struct stg_reply *reply,
                        int rc, const struct stg_err *err)
{
    if (rc < 0)
        stg_session_fail(session, reply->id, err->code, err->text);
    else
        stg_session_reply(session, reply, NULL, 0);
}

struct stg_pipeline *stg_session_find_pipeline(struct stg_session *session,
                                               const struct stg_request *request)
{
    const char *names[256];
    size_t n = 0;
    struct stg_catalog *catalog = session->server->catalog;
    for (struct stg_pipeline *p = stg_catalog_first(catalog); p != NULL; p = p->next) {
        bool allowed = stg_catalog_allowed(catalog, p, &session->identity);
        if (strcmp(p->name, request->name) == 0 && allowed)
            return p;
        if (strcmp(p->name, request->name) == 0) {
            char text[256];
            snprintf(text, sizeof(text),
                     "pipeline %s belongs to uid %u; to use it, join group %s", p->name,
                     (unsigned)p->definition->applier.uid,
                     session->server->settings->access_group);
            stg_session_fail(session, request->id, -STAGER_PERMISSION_DENIED, text);
            return NULL;
        }
        if (allowed && n < 256)
            names[n++] = p->name;
    }
    const char *near = stg_nearest(request->name, names, n);
    char text[512];
    snprintf(text, sizeof(text),
             "no pipeline %.64s here: %s%s%s`stagerctl list` (stager.list in Python) "
             "shows all, `stagerctl apply FILE` (stager.apply) adds one",
             request->name, near != NULL ? "did you mean " : "", near != NULL ? near : "",
             near != NULL ? "? " : "");
    stg_session_fail(session, request->id, -STAGER_NOT_FOUND, text);
    return NULL;
}

/* ---- deadlines ---- */

static void on_deadline(uv_timer_t *timer)
{
    struct stg_session *session = timer->data;
    if (session->open_waits) {
        uint64_t id = session->open.id;
        stg_session_stop_waiting(session);
        stg_session_fail(session, id, session->open_code, session->open_why);
    } else if (session->joining) {
        stg_log(STG_LOG_WARNING,
                "pid %d opened pipeline %s and did not join it within %d ms",
                (int)session->pid, session->instance->config.name, STG_JOIN_MILLIS);
        stg_session_close(session);
    } else if (!session->greeted) {
        stg_log(STG_LOG_DEBUG, "pid %d sent no hello", (int)session->pid);
        stg_session_close(session);
    }
}

void stg_session_set_deadline(struct stg_session *session, uint64_t millis)
{
    uv_timer_start(&session->deadline, on_deadline, millis, 0);
}

/* ---- peers ---- */

/* pid: 0 when it is of a namespace that we do not see into. */
static int open_pidfd(int fd, pid_t pid)
{
    int pidfd = -1;
    socklen_t n = sizeof(pidfd);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &n) == 0)
        return pidfd;
    if (errno != ENOPROTOOPT)
        return -1;
    pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd < 0)
        return -1;
    /* Before Linux 6.5 the pid may be another's by now, but not while its socket is open.
     */
    char byte;
    ssize_t got = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK)) {
        close(pidfd);
        return -1;
    }
    return pidfd;
}

static int identify(struct stg_session *session, int fd)
{
    struct ucred cred;
    socklen_t n = sizeof(cred);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) < 0)
        return -1;
    session->pid = cred.pid;
    session->identity.uid = cred.uid;
    session->identity.gid = cred.gid;
    n = sizeof(session->identity.groups);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, session->identity.groups, &n) == 0)
        session->identity.n_groups = n / sizeof(gid_t);
    session->pidfd = open_pidfd(fd, cred.pid);
    session->unwatched = session->pidfd < 0 && errno == EINVAL && cred.pid == 0;
    return session->pidfd < 0 && !session->unwatched ? -1 : 0;
}

/* What could not be watched is closed again; the session goes with its last handle. */
static int init_handles(struct stg_session *session)
{
    uv_loop_t *loop = &session->server->loop;
    uv_timer_init(loop, &session->deadline);
    session->deadline.data = session;
    uv_timer_init(loop, &session->pace);
    session->pace.data = session;
    session->n_handles = 2;
    int rc = uv_poll_init(loop, &session->poll, session->fd);
    if (rc == 0) {
        session->poll.data = session;
        session->n_handles++;
        if (!session->unwatched)
            rc = uv_poll_init(loop, &session->pid_poll, session->pidfd);
    }
    if (rc == 0 && !session->unwatched) {
        session->pid_poll.data = session;
        session->n_handles++;
        uv_poll_start(&session->pid_poll, UV_READABLE, on_death);
    }
    if (rc == 0) {
        stg_session_set_deadline(session, HELLO_MILLIS);
        return 0;
    }
    session->closing = true;
    if (session->n_handles > 2)
        close_handle(&session->poll);
    close_handle(&session->deadline);
    close_handle(&session->pace);
    return rc;
}

void stg_session_refuse(int fd, int number)
{
    char text[256];
    snprintf(text, sizeof(text), "stagerd cannot take another connection: %s",
             strerror(number));
    if (number == EMFILE)
        snprintf(text, sizeof(text),
                 "stagerd has all of its %" PRIu64
                 " file descriptors in use: set LimitNOFILE= of stagerd.service to more "
                 "(ulimit -Hn where it runs without systemd), or stop some clients",
                 stg_limit_files());
    stg_log(STG_LOG_WARNING, "a connection was refused: %s", text);
    struct stg_reply reply = {.code = -STAGER_RESOURCE_EXHAUSTED, .text = text};
    char buf[1024];
    long bytes = stg_wire_encode_reply(&reply, buf, sizeof(buf));
    if (fd < 0)
        return;
    if (bytes > 0 && send(fd, buf, (size_t)bytes, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
        /* the client sees the end of the connection */
    }
    close(fd);
}

/* Refuses a connection above max_clients or the quota of its user. */
static int admit(struct stg_session *session)
{
    const struct stg_server *server = session->server;
    const struct stg_identity *identity = &session->identity;
    struct stg_err err = {0};
    session->share =
        stg_share_get(identity->uid, identity->gid, identity->groups, identity->n_groups);
    if (server->n_sessions > server->settings->max_clients)
        stg_err(&err, -STAGER_RESOURCE_EXHAUSTED,
                "stagerd has max_clients %u connections already: raise it in "
                "stagerd.yaml to at least %u and reload stagerd, or stop some clients",
                server->settings->max_clients, server->n_sessions);
    else if (session->share == NULL)
        stg_err(&err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    else
        stg_share_take(session->share, STG_QUOTA_CLIENTS, 1, &err);
    session->is_counted = err.code == 0;
    if (err.code == 0)
        return 0;
    stg_log(STG_LOG_WARNING, "pid %d was refused: %s", (int)session->pid, err.text);
    stg_session_fail(session, 0, err.code, err.text);
    stg_session_close(session);
    return err.code;
}

struct stg_session *stg_session_create(struct stg_server *server, int fd)
{
    struct stg_session *session = calloc(1, sizeof(*session));
    errno = 0;
    if (session == NULL || identify(session, fd) < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
            stg_session_refuse(fd, errno);
        else
            close(fd);
        free(session);
        return NULL;
    }
    session->server = server;
    session->fd = fd;
    session->next = server->sessions;
    server->sessions = session;
    stg_bump_init(&session->open_bump, 1u << 20);
    int rc = init_handles(session);
    if (rc < 0) {
        if (session->pidfd >= 0)
            close(session->pidfd);
        stg_session_refuse(fd, -rc);
        session->fd = session->pidfd = -1;
        return NULL;
    }
    server->n_sessions++;
    server->counts.n_connections++;
    return admit(session) == 0 ? session : NULL;
}
