/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/server/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/status.h"

#define N_POOL_THREADS 4 /* libuv's default */

int stg_loop_error(const char *what, int code, struct stg_err *err)
{
    return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                   "cannot %s: %s; raise LimitNOFILE or TasksMax, or give the machine "
                   "more memory",
                   what, uv_strerror(code));
}

static void *wait_for_go(void *go)
{
    pthread_mutex_lock(go);
    pthread_mutex_unlock(go);
    return NULL;
}

/* As many as the pool needs, all at once. */
static int try_threads(struct stg_err *err)
{
    pthread_mutex_t go = PTHREAD_MUTEX_INITIALIZER;
    pthread_t threads[N_POOL_THREADS];
    int n = 0, rc = 0;
    pthread_mutex_lock(&go);
    while (n < N_POOL_THREADS && rc == 0) {
        rc = pthread_create(&threads[n], NULL, wait_for_go, &go);
        n += rc == 0;
    }
    pthread_mutex_unlock(&go);
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&go);
    return rc == 0 ? 0 : stg_loop_error("start worker threads", -rc, err);
}

static void nothing(uv_work_t *work)
{
}

static void on_never(uv_poll_t *poll, int status, int events)
{
}

/* Watches the highest descriptor for a moment, and lets the pool do nothing once. */
static int warm(uv_loop_t *loop, int fd, struct stg_err *err)
{
    uv_poll_t poll;
    uv_work_t work;
    int rc = uv_poll_init(loop, &poll, fd);
    if (rc < 0)
        return stg_loop_error("watch a descriptor", rc, err);
    uv_poll_start(&poll, UV_READABLE, on_never);
    uv_close((uv_handle_t *)&poll, NULL);
    uv_queue_work(loop, &work, nothing, NULL);
    uv_run(loop, UV_RUN_DEFAULT);
    return 0;
}

static int highest_descriptor(int like)
{
    struct rlimit limit;
    rlim_t n = STG_LOOP_DESCRIPTORS;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < n)
        n = limit.rlim_cur;
    return fcntl(like, F_DUPFD_CLOEXEC, (int)n - 1);
}

static int make(uv_loop_t *loop, struct stg_err *err)
{
    int rc = uv_loop_init(loop);
    if (rc == 0)
        return 0;
    if (uv_backend_fd(loop) > STDERR_FILENO) /* libuv leaks it */
        close(uv_backend_fd(loop));
    return stg_loop_error("make an event loop", rc, err);
}

int stg_loop_init(uv_loop_t *loop, struct stg_err *err)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0)
        return stg_loop_error("make a pipe", -errno, err);
    int high = highest_descriptor(fds[0]);
    int rc =
        high >= 0 ? try_threads(err) : stg_loop_error("use descriptors", -errno, err);
    close(fds[0]);
    close(fds[1]);
    if (rc == 0)
        rc = make(loop, err);
    if (rc == 0) {
        rc = warm(loop, high, err);
        if (rc < 0)
            stg_loop_finish(loop);
    }
    if (high >= 0)
        close(high);
    return rc;
}

static void close_any(uv_handle_t *handle, void *arg)
{
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

void stg_loop_finish(uv_loop_t *loop)
{
    uv_walk(loop, close_any, NULL);
    uv_run(loop, UV_RUN_DEFAULT);
    uv_loop_close(loop);
}
