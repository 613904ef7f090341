/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/status.h"
#include "daemon/gpu/priv.h"
#include "daemon/host/helper.h"

#define START_MILLIS 30000 /* a driver needs long at its first use */
#define COPY_MILLIS 10000
#define REAP_MILLIS 2000
#define N_FDS (STG_GPU_CHANNELS + 2)

/* ---- ends ---- */

void stg_mirror_process_free(struct stg_mirror_process *process)
{
    if (process == NULL)
        return;
    for (uint32_t i = 0; i < STG_GPU_CHANNELS; i++) {
        if (process->channels[i].fd >= 0)
            close(process->channels[i].fd);
        pthread_mutex_destroy(&process->channels[i].lock);
    }
    if (process->control >= 0)
        close(process->control);
    if (process->pidfd >= 0)
        close(process->pidfd);
    free(process);
}

static struct stg_mirror_process *make(void)
{
    struct stg_mirror_process *process = calloc(1, sizeof(*process));
    if (process == NULL)
        return NULL;
    process->control = -1;
    process->pidfd = -1;
    process->refs = 1;
    for (uint32_t i = 0; i < STG_GPU_CHANNELS; i++) {
        process->channels[i].fd = -1;
        pthread_mutex_init(&process->channels[i].lock, NULL);
    }
    return process;
}

void stg_mirror_process_kill(const struct stg_mirror_process *process)
{
    syscall(SYS_pidfd_send_signal, process->pidfd, SIGKILL, NULL, 0);
}

void stg_mirror_process_reap(const struct stg_mirror_process *process,
                             struct stg_err *err)
{
    struct pollfd dead = {.fd = process->pidfd, .events = POLLIN};
    int status = 0;
    stg_mirror_process_kill(process);
    poll(&dead, 1, REAP_MILLIS);
    pid_t pid = waitpid(process->pid, &status, WNOHANG);
    if (pid != process->pid)
        stg_err(err, -STAGER_INTERNAL, "stager-gpu (pid %d) does not end",
                (int)process->pid);
    else if (WIFSIGNALED(status))
        stg_err(err, -STAGER_ABORTED, "stager-gpu (pid %d) died by signal %d (%s)",
                (int)process->pid, WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        stg_err(err, -STAGER_ABORTED, "stager-gpu (pid %d) ended with status %d",
                (int)process->pid, WEXITSTATUS(status));
}

/* ---- messages ---- */

static int send_start(const struct stg_mirror_start *start, int fd,
                      const int channels[STG_GPU_CHANNELS])
{
    const struct stg_mirror_config *config = start->config;
    struct stg_gpu_start message = {
        .magic = STG_GPU_MAGIC,
        .segment_bytes = config->segment_bytes,
        .wanted_bytes = config->memory_bytes,
        .device_bytes = start->memory.fd >= 0 ? start->memory.bytes : 0,
    };
    int fds[N_FDS] = {config->segment};
    size_t n = 1;
    for (uint32_t i = 0; i < STG_GPU_CHANNELS; i++)
        fds[n++] = channels[i];
    if (start->memory.fd >= 0)
        fds[n++] = start->memory.fd;
    union {
        char bytes[CMSG_SPACE(sizeof(fds))];
        struct cmsghdr align;
    } control = {0};
    struct iovec iov = {.iov_base = &message, .iov_len = sizeof(message)};
    struct msghdr packet = {.msg_iov = &iov,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = CMSG_SPACE(n * sizeof(int))};
    struct cmsghdr *header = CMSG_FIRSTHDR(&packet);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(n * sizeof(int));
    memcpy(CMSG_DATA(header), fds, n * sizeof(int));
    return sendmsg(fd, &packet, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 ? 0 : errno;
}

/* At most one descriptor is taken, -1: none came; the kernel closes what has no room. */
static ssize_t receive_ready(int fd, struct stg_gpu_ready *ret, int *ret_fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = ret, .iov_len = sizeof(*ret)};
    struct msghdr packet = {.msg_iov = &iov,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = CMSG_LEN(sizeof(int))};
    *ret_fd = -1;
    ssize_t n = recvmsg(fd, &packet, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    struct cmsghdr *header = n >= 0 ? CMSG_FIRSTHDR(&packet) : NULL;
    if (header != NULL && header->cmsg_level == SOL_SOCKET &&
        header->cmsg_type == SCM_RIGHTS && header->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(ret_fd, CMSG_DATA(header), sizeof(int));
    return n >= 0 && (packet.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 ? 0 : n;
}

/* Of one that makes memory the descriptor and the size are news; of one that goes on with
 * what was there, neither may be. */
static int check_ready(const struct stg_mirror_start *start, struct stg_gpu_ready *ready,
                       int fd, struct stg_err *err)
{
    const struct stg_mirror_memory *had = &start->memory;
    ready->text[sizeof(ready->text) - 1] = '\0';
    for (char *c = ready->text; *c != '\0'; c++)
        *c = (unsigned char)*c < ' ' ? '?' : *c;
    bool is_good = ready->magic == STG_GPU_MAGIC;
    if (is_good && ready->code < 0 && ready->code >= -STAGER_UNAUTHENTICATED)
        return stg_err(err, ready->code, "%s", ready->text);
    is_good = is_good && ready->code == 0 && (fd >= 0) == (had->fd < 0) &&
              (had->fd >= 0 ? ready->device_bytes == had->bytes
                            : ready->device_bytes >= start->config->memory_bytes &&
                                  ready->device_bytes <= INT64_MAX);
    return is_good ? 0
                   : stg_err(err, -STAGER_INTERNAL,
                             "stager-gpu began with a malformed message");
}

static int64_t now_millis(void)
{
    return (int64_t)(stg_now_ns() / 1000000u);
}

/* 0: readable, within that time. */
static int wait_for(int fd, int stop, int64_t millis, const char *what,
                    struct stg_err *err)
{
    int64_t until = now_millis() + millis;
    for (;;) {
        struct pollfd fds[] = {{.fd = fd, .events = POLLIN},
                               {.fd = stop, .events = POLLIN}};
        int64_t left = until - now_millis();
        int n = poll(fds, 2, left > 0 ? (int)left : 0);
        if (n > 0 && fds[1].revents != 0)
            return stg_err(err, -STAGER_CANCELLED, "the pipeline was stopped");
        if (n > 0)
            return 0;
        if (n == 0)
            return stg_err(err, -STAGER_DEADLINE_EXCEEDED,
                           "stager-gpu %s for %" PRId64 " s", what, millis / 1000);
        if (errno != EINTR)
            return stg_err(err, -STAGER_INTERNAL, "poll: %s", strerror(errno));
    }
}

static int take_ready(struct stg_mirror_start *start,
                      const struct stg_mirror_process *process, struct stg_err *err)
{
    struct stg_gpu_ready ready;
    int fd = -1;
    int rc = wait_for(process->control, start->stop, START_MILLIS, "was not ready", err);
    if (rc < 0)
        return rc;
    if (receive_ready(process->control, &ready, &fd) != sizeof(ready))
        rc = stg_err(err, -STAGER_ABORTED,
                     "stager-gpu (pid %d) ended before it was ready", (int)process->pid);
    else
        rc = check_ready(start, &ready, fd, err);
    if (rc < 0) {
        if (fd >= 0)
            close(fd);
        return rc;
    }
    if (fd >= 0) {
        start->memory.fd = fd;
        start->memory.bytes = ready.device_bytes;
        start->memory.number++;
    }
    memcpy(start->memory.uuid, ready.uuid, sizeof(ready.uuid));
    snprintf(start->name, sizeof(start->name), "%.63s", ready.text);
    return 0;
}

/* ---- birth ---- */

extern char **environ;

static int launch(const struct stg_mirror_config *config, int end, pid_t *ret,
                  struct stg_err *err)
{
    char program[4096], device[64], parent[24];
    int rc = stg_helper_find("gpu", "stager-gpu", program, sizeof(program), err);
    if (rc < 0)
        return rc;
    snprintf(device, sizeof(device), "%s", config->device);
    snprintf(parent, sizeof(parent), "%d", (int)getpid());
    char *argv[] = {(char *)"stager-gpu", device, parent, NULL};
    int number = stg_helper_spawn(program, argv, environ, end, ret);
    return number == 0 ? 0
                       : stg_err(err, -STAGER_UNAVAILABLE, "cannot start %s: %s", program,
                                 strerror(number));
}

static int make_pairs(struct stg_mirror_process *process, int ends[STG_GPU_CHANNELS + 1],
                      struct stg_err *err)
{
    for (uint32_t i = 0; i <= STG_GPU_CHANNELS; i++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
            return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                           "cannot create a socket pair: %s", strerror(errno));
        ends[i] = pair[1];
        if (i < STG_GPU_CHANNELS)
            process->channels[i].fd = pair[0];
        else
            process->control = pair[0];
    }
    return 0;
}

static int start_with(struct stg_mirror_start *start, struct stg_mirror_process *process,
                      int ends[STG_GPU_CHANNELS + 1], struct stg_err *err)
{
    int rc = make_pairs(process, ends, err);
    if (rc == 0)
        rc = launch(start->config, ends[STG_GPU_CHANNELS], &process->pid, err);
    if (rc < 0)
        return rc;
    process->pidfd = (int)syscall(SYS_pidfd_open, process->pid, 0);
    if (process->pidfd < 0) {
        rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                     "cannot open a descriptor of stager-gpu: %s", strerror(errno));
        stg_helper_end(process->pid);
        return rc;
    }
    int number = send_start(start, process->control, ends);
    if (number != 0)
        return stg_err(err, -STAGER_INTERNAL,
                       "cannot send the start message to stager-gpu: %s",
                       strerror(number));
    /* Its death is seen as the end of these, once ours are closed. */
    for (uint32_t i = 0; i <= STG_GPU_CHANNELS; i++) {
        close(ends[i]);
        ends[i] = -1;
    }
    return take_ready(start, process, err);
}

int stg_mirror_process_start(struct stg_mirror_start *start,
                             struct stg_mirror_process **ret, struct stg_err *err)
{
    int ends[STG_GPU_CHANNELS + 1];
    struct stg_mirror_process *process = make();
    if (process == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (uint32_t i = 0; i <= STG_GPU_CHANNELS; i++)
        ends[i] = -1;
    int rc = start_with(start, process, ends, err);
    for (uint32_t i = 0; i <= STG_GPU_CHANNELS; i++) {
        if (ends[i] >= 0)
            close(ends[i]);
    }
    if (rc == 0) {
        *ret = process;
        return 0;
    }
    if (process->pidfd >= 0)
        stg_mirror_process_reap(process, NULL);
    stg_mirror_process_free(process);
    return rc;
}

/* ---- a copy ---- */

static int ask(struct stg_mirror_channel *channel, uint64_t offset, uint64_t bytes,
               struct stg_err *err)
{
    struct stg_gpu_job job = {
        .magic = STG_GPU_MAGIC, .job = ++channel->job, .offset = offset, .bytes = bytes};
    struct stg_gpu_answer answer;
    if (send(channel->fd, &job, sizeof(job), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        return stg_err(err, -STAGER_ABORTED, "stager-gpu accepts no work: %s",
                       strerror(errno));
    int rc = wait_for(channel->fd, -1, COPY_MILLIS, "has worked on one copy", err);
    if (rc < 0)
        return rc;
    ssize_t n = recv(channel->fd, &answer, sizeof(answer), MSG_DONTWAIT | MSG_TRUNC);
    if (n <= 0)
        return stg_err(err, -STAGER_ABORTED, "stager-gpu ended in the middle of a copy");
    if (n != sizeof(answer) || answer.magic != STG_GPU_MAGIC || answer.job != job.job)
        return stg_err(err, -STAGER_INTERNAL, "stager-gpu sent an unexpected reply");
    return answer.code == 0
               ? 0
               : stg_err(err, -STAGER_INTERNAL,
                         "a copy to the device failed (the log has the reason)");
}

int stg_mirror_process_copy(struct stg_mirror_process *process, uint32_t runner,
                            uint64_t offset, uint64_t bytes, struct stg_err *err)
{
    struct stg_mirror_channel *channel = &process->channels[runner % STG_GPU_CHANNELS];
    pthread_mutex_lock(&channel->lock);
    int rc = ask(channel, offset, bytes, err);
    pthread_mutex_unlock(&channel->lock);
    return rc;
}
