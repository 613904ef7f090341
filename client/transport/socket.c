/* SPDX-License-Identifier: Apache-2.0 */
#include "client/transport/socket.h"

#include <errno.h>
#include <grp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#define SYSTEM_DIR "/run/stager"
#define SOCKET_NAME "attach.sock"
#define CONNECT_S 10
#define PART_NS 1000000000
/* How often a wait calls the thread's patience. */
#define ASK_NS 100000000

/* More than any reply carries, so that a wrong count is seen and closed, not truncated.
 */
#define MAX_FDS 16

/* ---- patience ---- */

static _Thread_local const struct stg_patience *thread_patience;

void stg_socket_set_patience(const struct stg_patience *patience)
{
    thread_patience = patience;
}

static bool patience_is_over(void)
{
    return thread_patience != NULL && thread_patience->is_over(thread_patience->arg);
}

/* ---- where it is ---- */

static bool path_in(const char *dir, const char *below, struct sockaddr_un *ret)
{
    int n = snprintf(ret->sun_path, sizeof(ret->sun_path), "%s%s/%s", dir, below,
                     SOCKET_NAME);
    return n > 0 && (size_t)n < sizeof(ret->sun_path);
}

int stg_socket_find(const char *runtime_dir, struct sockaddr_un *ret, struct stg_err *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *dir = runtime_dir;
    if (dir == NULL || dir[0] == '\0')
        dir = getenv("STAGER_RUNTIME_DIR");
    if (dir != NULL && dir[0] != '\0') {
        if (!path_in(dir, "", &address))
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "the path %s/" SOCKET_NAME
                           " is longer than the %zu bytes of a socket address: use a "
                           "shorter runtime_dir",
                           dir, sizeof(address.sun_path) - 1);
        *ret = address;
        return 0;
    }
    const char *user_dir = getenv("XDG_RUNTIME_DIR");
    struct stat st;
    path_in(SYSTEM_DIR, "", &address);
    if (stat(address.sun_path, &st) < 0 && user_dir != NULL && user_dir[0] != '\0') {
        struct sockaddr_un user = {.sun_family = AF_UNIX};
        char path[sizeof(user.sun_path)];
        int n = snprintf(path, sizeof(path), "%s/stager", user_dir);
        if (n > 0 && (size_t)n < sizeof(path) && stat(path, &st) == 0 &&
            path_in(user_dir, "/stager", &user))
            address = user;
    }
    *ret = address;
    return 0;
}

/* ---- connecting ---- */

static int say_denied(const struct sockaddr_un *address, struct stg_err *err)
{
    char path[sizeof(address->sun_path)];
    snprintf(path, sizeof(path), "%s", address->sun_path);
    struct stat st;
    if (stat(path, &st) < 0) {
        *strrchr(path, '/') = '\0'; /* the folder is closed: its group may enter */
        if (stat(path, &st) < 0)
            return stg_err(err, -STAGER_PERMISSION_DENIED,
                           "cannot reach stagerd at %s: Permission denied",
                           address->sun_path);
    }
    if (st.st_gid == 0) /* no advice to join that group */
        return stg_err(err, -STAGER_PERMISSION_DENIED,
                       "cannot reach stagerd at %s: Permission denied; only root may "
                       "connect: create the access_group of stagerd.yaml (`groupadd -r "
                       "stager`), add your user to it, and restart stagerd",
                       address->sun_path);
    struct group group, *found = NULL;
    char buf[4096];
    getgrgid_r(st.st_gid, &group, buf, sizeof(buf), &found);
    char number[32];
    snprintf(number, sizeof(number), "%u", (unsigned)st.st_gid);
    const char *name = found != NULL ? found->gr_name : number;
    return stg_err(err, -STAGER_PERMISSION_DENIED,
                   "cannot reach stagerd at %s: Permission denied; only group %s may "
                   "connect (`usermod -aG %s USER`, then log in again)",
                   address->sun_path, name, name);
}

static int say_unreachable(const struct sockaddr_un *address, bool waits, int number,
                           struct stg_err *err)
{
    if (number == EACCES || number == EPERM)
        return say_denied(address, err);
    if (number == EAGAIN && waits)
        return stg_err(err, -STAGER_UNAVAILABLE,
                       "cannot reach stagerd at %s: it accepted no connection for %d s",
                       address->sun_path, CONNECT_S);
    return stg_err(
        err, -STAGER_UNAVAILABLE,
        "cannot reach stagerd at %s: %s; start it with `systemctl start stagerd` "
        "(or `stagerd --foreground`)",
        address->sun_path, strerror(number));
}

int stg_socket_connect(const struct sockaddr_un *address, bool waits, int *ret,
                       struct stg_err *err)
{
    int fd =
        socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | (waits ? 0 : SOCK_NONBLOCK), 0);
    if (fd < 0)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "cannot make a socket: %s",
                       strerror(errno));
    /* Bounds connect when the daemon's queue of connections is full. */
    struct timeval limit = {.tv_sec = CONNECT_S};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    int rc;
    do {
        rc = connect(fd, (const struct sockaddr *)address, sizeof(*address));
    } while (rc < 0 && errno == EINTR && !patience_is_over());
    if (rc < 0) {
        int number = errno;
        close(fd);
        return say_unreachable(address, waits, number, err);
    }
    *ret = fd;
    return 0;
}

/* ---- messages ---- */

static int say_gone(struct stg_err *err)
{
    return stg_err(
        err, -STAGER_UNAVAILABLE,
        "stagerd closed the connection; is it running? (`systemctl status stagerd`)");
}

/* 1 when ready, 0 after the deadline. Errors of the socket show at the next call on it.
 */
static int wait_for(int fd, short events, int64_t deadline_ns)
{
    for (;;) {
        int64_t left_ns = deadline_ns - stg_clock_ns();
        bool is_last = thread_patience == NULL || left_ns <= ASK_NS;
        int64_t ns = !is_last ? ASK_NS : left_ns > 0 ? left_ns : 0;
        struct timespec left = stg_timespec((uint64_t)ns);
        struct pollfd poll_fd = {.fd = fd, .events = events};
        int rc = ppoll(&poll_fd, 1, &left, NULL);
        if (rc > 0)
            return 1;
        if ((rc == 0 && is_last) || (rc < 0 && errno != EINTR) || patience_is_over())
            return 0;
    }
}

bool stg_socket_wait(int fd, int64_t until_ns)
{
    wait_for(fd, POLLIN, until_ns);
    return !patience_is_over();
}

int stg_socket_send(int fd, const void *data, size_t bytes, int64_t deadline_ns,
                    struct stg_err *err)
{
    for (;;) {
        ssize_t n = send(fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n >= 0)
            return 0;
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN
                       ? say_gone(err)
                       : stg_err(err, -STAGER_INTERNAL,
                                 "cannot send %zu bytes to stagerd: %s", bytes,
                                 strerror(errno));
        if (wait_for(fd, POLLOUT, deadline_ns) == 0)
            return stg_err(err, -STAGER_DEADLINE_EXCEEDED,
                           "stagerd did not read the request in time");
    }
}

/* All descriptors of a message, truncated or not. */
static size_t take_fds(struct msghdr *msg, int *fds, size_t max_fds)
{
    size_t n = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c != NULL; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t here = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < here && n < max_fds; i++, n++)
            memcpy(&fds[n], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
    }
    return n;
}

static void close_fds(const int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        close(fds[i]);
}

/* One message, doorbells too. 0: none there yet. */
static long receive_one(int fd, void *buf, size_t capacity, int *fds, size_t max_fds,
                        size_t *ret_n_fds, struct stg_err *err)
{
    int all[MAX_FDS];
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(all))];
    } control;
    struct iovec io = {.iov_base = buf, .iov_len = capacity};
    struct msghdr msg = {.msg_iov = &io,
                         .msg_iovlen = 1,
                         .msg_control = control.bytes,
                         .msg_controllen = sizeof(control.bytes)};
    ssize_t n = recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0 && errno == ECONNRESET) /* it was closed unread; what it said comes after */
        n = recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : say_gone(err);
    size_t n_fds = take_fds(&msg, all, MAX_FDS);
    if (n == 0 && n_fds == 0)
        return say_gone(err);
    if ((msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || n_fds > max_fds) {
        close_fds(all, n_fds);
        return stg_err(err, -STAGER_INTERNAL,
                       "stagerd sent a message that is too long or carries too many "
                       "descriptors (%zu bytes, %zu descriptors)",
                       (size_t)n, n_fds);
    }
    if (n_fds > 0)
        memcpy(fds, all, n_fds * sizeof(int));
    *ret_n_fds = n_fds;
    return n;
}

long stg_socket_receive(int fd, void *buf, size_t capacity, int *fds, size_t max_fds,
                        size_t *ret_n_fds, int64_t deadline_ns, struct stg_err *err)
{
    for (;;) {
        size_t n_fds = 0;
        long n = receive_one(fd, buf, capacity, fds, max_fds, &n_fds, err);
        if (n < 0)
            return n;
        if (n > 1) {
            *ret_n_fds = n_fds;
            return n;
        }
        close_fds(fds, n_fds); /* a doorbell carries none */
        if (n == 0 && wait_for(fd, POLLIN, deadline_ns) == 0)
            return stg_err(err, -STAGER_DEADLINE_EXCEEDED,
                           "stagerd did not answer in time");
    }
}

/* ---- doorbells ---- */

bool stg_socket_doorbell(int fd)
{
    return send(fd, "!", 1, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 ||
           (errno != ENOBUFS && errno != ENOMEM && errno != EINTR);
}

bool stg_socket_post(int fd, const void *data, size_t bytes)
{
    return send(fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

int stg_socket_drain(int fd)
{
    /* Bounded: a daemon that rings without end must not keep us here. */
    for (int i = 0; i < 64; i++) {
        char doorbell[16];
        ssize_t n = recv(fd, doorbell, sizeof(doorbell), MSG_DONTWAIT);
        if (n > 0 || (n < 0 && errno == EINTR))
            continue;
        return n < 0 && errno == EAGAIN ? 0 : -STAGER_UNAVAILABLE;
    }
    return 0;
}

void stg_socket_sleep(int fd, int64_t until_ns)
{
    int64_t ns = until_ns - stg_clock_ns();
    if (ns <= 0)
        return;
    struct timespec left = stg_timespec((uint64_t)ns);
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    (void)!ppoll(&poll_fd, 1, &left, NULL);
}

void stg_socket_leave(int fd)
{
    (void)shutdown(fd, SHUT_WR);
}

bool stg_socket_part(int fd)
{
    if (shutdown(fd, SHUT_WR) < 0)
        return true; /* it has gone already */
    int64_t until = stg_clock_ns() + PART_NS;
    while (stg_socket_drain(fd) == 0) {
        if (stg_clock_ns() >= until)
            return false;
        stg_socket_sleep(fd, until);
    }
    return true;
}
