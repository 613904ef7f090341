/* SPDX-License-Identifier: Apache-2.0
 *
 * stager-gpu: has memory on a GPU and copies the batches of one pipeline there, so that
 * stagerd itself has no CUDA, and what becomes of a driver costs no batch. One thread a
 * channel: a job is copied, waited for, answered. Main waits for the end.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/device.h"
#include "core/log.h"
#include "core/status.h"
#include "daemon/gpu/frame.h"

/* What one copy takes of a page-locked buffer, where the segment itself cannot be. */
#define BOUNCE_BYTES ((size_t)8 << 20)
#define MAX_FDS (STG_GPU_CHANNELS + 2)

struct channel {
    struct gpu *gpu;
    int fd;
    struct stg_stream *stream;
    struct stg_device_event *copied;
    char *bounce; /* NULL: none is needed */
};

struct gpu {
    const struct stg_device *device;
    int number;
    struct stg_gpu_start start;
    int fds[MAX_FDS];
    size_t n_fds;
    const char *segment; /* read-only */
    struct stg_device_shared memory;
    struct channel channels[STG_GPU_CHANNELS];
};

/* ---- the start ---- */

static size_t take_fds(struct msghdr *message, int *fds, size_t max)
{
    size_t n = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL;
         c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t here = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < here && n < max; i++, n++)
            memcpy(&fds[n], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
    }
    return n;
}

static int receive_start(struct gpu *gpu, struct stg_err *err)
{
    union {
        char bytes[CMSG_SPACE(MAX_FDS * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = &gpu->start, .iov_len = sizeof(gpu->start)};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    ssize_t n = recvmsg(STG_GPU_FD, &message, MSG_CMSG_CLOEXEC);
    gpu->n_fds = n > 0 ? take_fds(&message, gpu->fds, MAX_FDS) : 0;
    size_t wanted = STG_GPU_CHANNELS + 1 + (gpu->start.device_bytes != 0);
    if (n != sizeof(gpu->start) || gpu->start.magic != STG_GPU_MAGIC ||
        (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || gpu->n_fds != wanted)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "stagerd sent no start message (%zd bytes, %zu descriptors)", n,
                       gpu->n_fds);
    return 0;
}

static int map_segment(struct gpu *gpu, struct stg_err *err)
{
    struct stat st;
    uint64_t bytes = gpu->start.segment_bytes;
    if (fstat(gpu->fds[0], &st) < 0 || st.st_size < 0 || (uint64_t)st.st_size < bytes)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "the segment does not have the expected %" PRIu64 " bytes", bytes);
    void *base = mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED, gpu->fds[0], 0);
    if (base == MAP_FAILED)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "cannot map the segment: %s",
                       strerror(errno));
    gpu->segment = base;
    return 0;
}

/* Not every device can page-lock what is mapped for reading alone. The first stager-gpu
 * of a pipeline may write for as long as that takes; then stagerd seals the segment. */
static int lock_segment(struct gpu *gpu, struct stg_err *err)
{
    const struct stg_device *device = gpu->device;
    void *base = (void *)(uintptr_t)gpu->segment;
    size_t bytes = (size_t)gpu->start.segment_bytes;
    int rc = device->host_register(gpu->number, base, bytes, true, err);
    if (rc == 0 || mprotect(base, bytes, PROT_READ | PROT_WRITE) < 0)
        return rc;
    rc = device->host_register(gpu->number, base, bytes, false, err);
    mprotect(base, bytes, PROT_READ);
    return rc;
}

/* Memory of the one before stays as its trainers have it. */
static int have_memory(struct gpu *gpu, int *ret_fd, struct stg_err *err)
{
    const struct stg_device *device = gpu->device;
    uint64_t had = gpu->start.device_bytes;
    if (had != 0)
        return device->shared_import(gpu->number, gpu->fds[gpu->n_fds - 1], (size_t)had,
                                     false, &gpu->memory, err);
    return device->shared_make(gpu->number, (size_t)gpu->start.wanted_bytes, &gpu->memory,
                               ret_fd, err);
}

static int open_channel(struct gpu *gpu, uint32_t i, bool bounces, struct stg_err *err)
{
    const struct stg_device *device = gpu->device;
    struct channel *channel = &gpu->channels[i];
    channel->gpu = gpu;
    channel->fd = gpu->fds[1 + i];
    int rc = device->stream_create(gpu->number, &channel->stream, err);
    if (rc == 0)
        rc = device->event_create(gpu->number, &channel->copied, err);
    if (rc == 0 && bounces)
        rc = device->host_alloc(BOUNCE_BYTES, (void **)&channel->bounce, err);
    return rc;
}

static int find_device(struct gpu *gpu, const char *name, struct stg_err *err)
{
    int n = 0;
    int rc = stg_device_number(name, &gpu->number, err);
    if (rc == 0)
        rc = stg_device_cuda(getenv("STAGER_CUDA_DIR"), &gpu->device, err);
    if (rc == 0)
        rc = gpu->device->count(&n, err);
    if (rc == 0 && gpu->number >= n)
        rc =
            stg_err(err, -STAGER_INVALID_ARGUMENT,
                    "device \"%s\" does not exist: stagerd sees %d, numbered from cuda:0",
                    name, n);
    return rc;
}

static int prepare(struct gpu *gpu, const char *name, struct stg_gpu_ready *ready,
                   int *ret_fd, struct stg_err *err)
{
    struct stg_device_facts facts;
    struct stg_err why = {0};
    int rc = receive_start(gpu, err);
    if (rc == 0)
        rc = find_device(gpu, name, err);
    if (rc == 0)
        rc = gpu->device->facts(gpu->number, &facts, err);
    if (rc == 0)
        rc = map_segment(gpu, err);
    if (rc == 0)
        rc = have_memory(gpu, ret_fd, err);
    if (rc < 0)
        return rc;
    bool bounces = lock_segment(gpu, &why) < 0;
    if (bounces)
        stg_log(STG_LOG_WARNING, "gpu: batches are copied through a buffer: %s",
                why.text);
    for (uint32_t i = 0; rc == 0 && i < STG_GPU_CHANNELS; i++)
        rc = open_channel(gpu, i, bounces, err);
    ready->device_bytes = gpu->memory.bytes;
    memcpy(ready->uuid, facts.uuid, sizeof(ready->uuid));
    snprintf(ready->text, sizeof(ready->text), "%s", facts.name);
    return rc;
}

static bool send_ready(const struct stg_gpu_ready *ready, int fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)ready, .iov_len = sizeof(*ready)};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fd >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &fd, sizeof(int));
    }
    return sendmsg(STG_GPU_FD, &message, MSG_NOSIGNAL) == sizeof(*ready);
}

/* ---- copies ---- */

static int copy_part(const struct channel *channel, uint64_t at, size_t bytes,
                     struct stg_err *err)
{
    const struct gpu *gpu = channel->gpu;
    const char *from = gpu->segment + at;
    if (channel->bounce != NULL)
        from = memcpy(channel->bounce, from, bytes);
    int rc = gpu->device->copy_in(channel->stream, (char *)gpu->memory.memory + at, from,
                                  bytes, err);
    if (rc == 0)
        rc = gpu->device->event_record(channel->copied, channel->stream, err);
    return rc == 0 ? gpu->device->event_wait(channel->copied, err) : rc;
}

static int copy(const struct channel *channel, const struct stg_gpu_job *job,
                struct stg_err *err)
{
    const struct gpu *gpu = channel->gpu;
    uint64_t room = gpu->memory.bytes < gpu->start.segment_bytes
                        ? gpu->memory.bytes
                        : gpu->start.segment_bytes;
    if (job->magic != STG_GPU_MAGIC || job->offset > room ||
        job->bytes > room - job->offset)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "a job of %" PRIu64 " bytes at %" PRIu64
                       " lies outside the segment of %" PRIu64,
                       job->bytes, job->offset, room);
    uint64_t part = channel->bounce != NULL ? BOUNCE_BYTES : job->bytes;
    int rc = 0;
    for (uint64_t done = 0; rc == 0 && done < job->bytes; done += part) {
        uint64_t left = job->bytes - done;
        rc = copy_part(channel, job->offset + done, (size_t)(left < part ? left : part),
                       err);
    }
    return rc;
}

/* After an error the device does nothing right any more: stagerd starts another. */
static void *serve(void *arg)
{
    const struct channel *channel = arg;
    struct stg_gpu_job job;
    while (recv(channel->fd, &job, sizeof(job), MSG_TRUNC) == sizeof(job)) {
        struct stg_err err = {0};
        struct stg_gpu_answer answer = {.magic = STG_GPU_MAGIC, .job = job.job};
        answer.code = copy(channel, &job, &err);
        if (answer.code < 0)
            stg_log(STG_LOG_ERROR, "gpu: %s", err.text);
        if (send(channel->fd, &answer, sizeof(answer), MSG_NOSIGNAL) < 0)
            break;
    }
    return NULL;
}

static int start_threads(struct gpu *gpu, struct stg_err *err)
{
    for (uint32_t i = 0; i < STG_GPU_CHANNELS; i++) {
        pthread_t thread;
        int number = pthread_create(&thread, NULL, serve, &gpu->channels[i]);
        if (number != 0)
            return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "cannot start a thread: %s",
                           strerror(number));
        pthread_detach(thread);
    }
    return 0;
}

int main(int argc, char **argv)
{
    static struct gpu gpu;
    struct stg_err err = {0};
    struct stg_gpu_ready ready = {.magic = STG_GPU_MAGIC};
    int fd = -1;
    char byte;
    if (argc != 3) {
        fprintf(stderr,
                "stager-gpu is a helper that stagerd starts: see `gpu` of a pipeline\n");
        return 2;
    }
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != (pid_t)strtol(argv[2], NULL, 10))
        return 1;
    /* stagerd alone says when it ends: it gets these too, and closes the socket. */
    signal(SIGTERM, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    stg_log_start();
    ready.code = prepare(&gpu, argv[1], &ready, &fd, &err);
    if (ready.code == 0)
        ready.code = start_threads(&gpu, &err);
    if (ready.code < 0)
        snprintf(ready.text, sizeof(ready.text), "%.*s", STG_GPU_TEXT_BYTES - 1,
                 err.text);
    if (!send_ready(&ready, ready.code == 0 ? fd : -1) || ready.code < 0) {
        stg_log_stop();
        _exit(1); /* threads may be at work: nothing is taken from under them */
    }
    if (fd >= 0)
        close(fd);
    while (recv(STG_GPU_FD, &byte, 1, 0) < 0 && errno == EINTR)
        ;
    stg_log_stop();
    _exit(0);
}
