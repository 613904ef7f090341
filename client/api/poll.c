/* SPDX-License-Identifier: Apache-2.0 */
#include "client/api/poll.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

void stg_poll_destroy(struct stg_poll *poll)
{
    if (poll == NULL)
        return;
    if (poll->fd >= 0)
        close(poll->fd);
    if (poll->timer >= 0)
        close(poll->timer);
    free(poll);
}

static int create(struct stg_poll **ret, struct stg_err *err)
{
    struct stg_poll *poll = calloc(1, sizeof(*poll));
    if (poll == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    poll->watched = -1;
    poll->fd = epoll_create1(EPOLL_CLOEXEC);
    poll->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (poll->fd < 0 || poll->timer < 0) {
        int rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                         "cannot make a descriptor to poll: %s", strerror(errno));
        stg_poll_destroy(poll);
        return rc;
    }
    *ret = poll;
    return 0;
}

int stg_poll_open(struct stager_stream *stream)
{
    if (stream->poll == NULL) {
        int rc = create(&stream->poll, &stream->err);
        if (rc < 0)
            return rc;
        stg_poll_watch(stream->poll, stream->client->fd, 0);
    }
    return stream->poll->fd;
}

void stg_poll_watch(struct stg_poll *poll, int fd, int64_t at_ns)
{
    if (poll == NULL)
        return;
    int wanted = fd >= 0 ? fd : poll->timer;
    struct epoll_event event = {.events = EPOLLIN};
    struct itimerspec at = {.it_value = stg_timespec(at_ns > 0 ? (uint64_t)at_ns : 1)};
    if (fd < 0)
        timerfd_settime(poll->timer, TFD_TIMER_ABSTIME, &at, NULL);
    if (wanted == poll->watched)
        return;
    /* A copy of the socket in a forked child would keep it in there. */
    if (poll->watched >= 0)
        epoll_ctl(poll->fd, EPOLL_CTL_DEL, poll->watched, NULL);
    epoll_ctl(poll->fd, EPOLL_CTL_ADD, wanted, &event);
    poll->watched = wanted;
}
