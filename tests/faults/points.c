/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/faults/points.h"

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>

#include "client/transport/socket.h"
#include "core/ring.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wreserved-identifier"
#endif

static const char *const names[N_POINTS] = {
    [POINT_NONE] = "none",           [POINT_ANYWHERE] = "anywhere",
    [POINT_CONNECTED] = "connected", [POINT_GREETED] = "greeted",
    [POINT_OPEN_SENT] = "open sent", [POINT_OPEN_ANSWERED] = "open answered",
    [POINT_OPEN_READ] = "open read", [POINT_MAPPED] = "mapped",
    [POINT_JOIN_SENT] = "join sent", [POINT_JOIN_ANSWERED] = "join answered",
    [POINT_JOIN_READ] = "join read", [POINT_OPENED] = "opened",
    [POINT_ASKED] = "asked",         [POINT_ARMED] = "armed",
    [POINT_ASLEEP] = "asleep",       [POINT_WOKEN] = "woken",
    [POINT_TOOK] = "took",           [POINT_TAKEN] = "taken",
    [POINT_IN_HAND] = "in hand",     [POINT_RELEASING] = "releasing",
    [POINT_RELEASED] = "released",   [POINT_RANG] = "rang",
    [POINT_ENDED] = "ended",         [POINT_ASKED_ON] = "asked on",
    [POINT_PARTING] = "parting",     [POINT_PARTED] = "parted",
    [POINT_CLOSED] = "closed",
};

static enum point planned;
static uint32_t left, n_sent, n_received;
static _Atomic int *died_at;

const char *point_name(enum point point)
{
    return names[point];
}

void point_plan(enum point point, uint32_t n, _Atomic int *died)
{
    planned = point;
    left = n;
    died_at = died;
    if (point != POINT_ANYWHERE)
        return;
    atomic_store(died, POINT_ANYWHERE);
    signal(SIGALRM, SIG_DFL);
    struct itimerval timer = {.it_value.tv_usec = (suseconds_t)n};
    setitimer(ITIMER_REAL, &timer, NULL);
}

void point_reach(enum point point)
{
    if (point != planned || --left > 0)
        return;
    atomic_store(died_at, (int)point);
    raise(SIGKILL);
}

/* ---- the socket ---- */

int __real_stg_socket_connect(const struct sockaddr_un *address, int *ret,
                              struct stg_err *err);
int __real_stg_socket_send(int fd, const void *data, size_t bytes, int64_t deadline_ns,
                           struct stg_err *err);
long __real_stg_socket_receive(int fd, void *buf, size_t capacity, int *fds,
                               size_t max_fds, size_t *ret_n_fds, int64_t deadline_ns,
                               struct stg_err *err);
bool __real_stg_socket_doorbell(int fd);
void __real_stg_socket_sleep(int fd, int64_t until_ns);
bool __real_stg_socket_part(int fd);

int __wrap_stg_socket_connect(const struct sockaddr_un *address, int *ret,
                              struct stg_err *err)
{
    int rc = __real_stg_socket_connect(address, ret, err);
    n_sent = n_received = 0;
    if (rc == 0)
        point_reach(POINT_CONNECTED);
    return rc;
}

/* The requests of a stream that opens: hello, open, join. */
int __wrap_stg_socket_send(int fd, const void *data, size_t bytes, int64_t deadline_ns,
                           struct stg_err *err)
{
    if (++n_sent == 3)
        point_reach(POINT_MAPPED);
    int rc = __real_stg_socket_send(fd, data, bytes, deadline_ns, err);
    if (n_sent == 2)
        point_reach(POINT_OPEN_SENT);
    if (n_sent == 3)
        point_reach(POINT_JOIN_SENT);
    return rc;
}

static void reach_answered(int fd, enum point point)
{
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    if (planned == point && poll(&readable, 1, -1) == 1)
        point_reach(point);
}

long __wrap_stg_socket_receive(int fd, void *buf, size_t capacity, int *fds,
                               size_t max_fds, size_t *ret_n_fds, int64_t deadline_ns,
                               struct stg_err *err)
{
    static const enum point answered[] = {POINT_NONE, POINT_NONE, POINT_OPEN_ANSWERED,
                                          POINT_JOIN_ANSWERED};
    static const enum point read[] = {POINT_NONE, POINT_GREETED, POINT_OPEN_READ,
                                      POINT_JOIN_READ};
    uint32_t n = ++n_received < 4 ? n_received : 0;
    reach_answered(fd, n > 1 ? answered[n] : N_POINTS);
    long bytes = __real_stg_socket_receive(fd, buf, capacity, fds, max_fds, ret_n_fds,
                                           deadline_ns, err);
    if (n > 0)
        point_reach(read[n]);
    return bytes;
}

bool __wrap_stg_socket_doorbell(int fd)
{
    bool rang = __real_stg_socket_doorbell(fd);
    point_reach(POINT_RANG);
    return rang;
}

void __wrap_stg_socket_sleep(int fd, int64_t until_ns)
{
    point_reach(POINT_ASLEEP);
    __real_stg_socket_sleep(fd, until_ns);
    point_reach(POINT_WOKEN);
}

bool __wrap_stg_socket_part(int fd)
{
    bool parted = __real_stg_socket_part(fd);
    point_reach(POINT_PARTED);
    return parted;
}

/* ---- the pages ---- */

bool __real_stg_ring_take(struct stg_ring_reader *reader, struct stg_descriptor *ret);
void __real_stg_control_set_asked(struct stg_control_writer *writer, uint64_t asked);
void __real_stg_control_set_taken(struct stg_control_writer *writer, uint64_t taken);
void __real_stg_control_set_waiting(struct stg_control_writer *writer, bool waiting);
void __real_stg_control_want_pass(struct stg_control_writer *writer, uint64_t passes);
void __real_stg_control_part(struct stg_control_writer *writer);
void __real_stg_control_release(struct stg_control_writer *writer, uint32_t lease,
                                uint32_t generation);

bool __wrap_stg_ring_take(struct stg_ring_reader *reader, struct stg_descriptor *ret)
{
    bool took = __real_stg_ring_take(reader, ret);
    if (took)
        point_reach(POINT_TOOK);
    return took;
}

void __wrap_stg_control_set_asked(struct stg_control_writer *writer, uint64_t asked)
{
    __real_stg_control_set_asked(writer, asked);
    point_reach(POINT_ASKED);
}

void __wrap_stg_control_set_taken(struct stg_control_writer *writer, uint64_t taken)
{
    __real_stg_control_set_taken(writer, taken);
    point_reach(POINT_TAKEN);
}

void __wrap_stg_control_set_waiting(struct stg_control_writer *writer, bool waiting)
{
    __real_stg_control_set_waiting(writer, waiting);
    if (waiting)
        point_reach(POINT_ARMED);
}

void __wrap_stg_control_want_pass(struct stg_control_writer *writer, uint64_t passes)
{
    __real_stg_control_want_pass(writer, passes);
    if (passes > 1)
        point_reach(POINT_ASKED_ON);
}

void __wrap_stg_control_part(struct stg_control_writer *writer)
{
    __real_stg_control_part(writer);
    point_reach(POINT_PARTING);
}

void __wrap_stg_control_release(struct stg_control_writer *writer, uint32_t lease,
                                uint32_t generation)
{
    point_reach(POINT_RELEASING);
    __real_stg_control_release(writer, lease, generation);
    point_reach(POINT_RELEASED);
}
