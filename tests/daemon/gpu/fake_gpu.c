/* SPDX-License-Identifier: Apache-2.0
 *
 * A compromised or faulty stager-gpu. The name of its device selects the fault.
 */

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/status.h"
#include "daemon/gpu/frame.h"

#define MEMORY_BYTES (1u << 20)

static const char *wrong;
static int channels[STG_GPU_CHANNELS];

static bool does(const char *what)
{
    return strcmp(wrong, what) == 0;
}

static void receive_start(struct stg_gpu_start *ret)
{
    union {
        char bytes[CMSG_SPACE(8 * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = ret, .iov_len = sizeof(*ret)};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    if (recvmsg(STG_GPU_FD, &message, 0) != sizeof(*ret))
        _exit(9);
    memcpy(channels, CMSG_DATA(CMSG_FIRSTHDR(&message)) + sizeof(int), sizeof(channels));
}

static void send_ready(const struct stg_gpu_ready *ready, size_t bytes, unsigned n_fds)
{
    union {
        char bytes[CMSG_SPACE(4 * sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)ready, .iov_len = bytes};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    if (n_fds > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        for (unsigned i = 0; i < n_fds; i++) {
            int fd = memfd_create("fake", 0);
            memcpy(CMSG_DATA(header) + i * sizeof(int), &fd, sizeof(fd));
        }
    }
    sendmsg(STG_GPU_FD, &message, MSG_NOSIGNAL);
}

static void begin(void)
{
    struct stg_gpu_start start;
    struct stg_gpu_ready ready = {.magic = STG_GPU_MAGIC, .device_bytes = MEMORY_BYTES};
    receive_start(&start);
    if (does("dies"))
        abort();
    if (does("another_magic"))
        ready.magic++;
    if (does("a_code_that_is_none"))
        ready.code = -77;
    if (does("too_little"))
        ready.device_bytes = 1;
    if (does("too_much"))
        ready.device_bytes = UINT64_MAX;
    if (does("refuses")) {
        ready.code = -STAGER_UNAVAILABLE;
        memset(ready.text, '\n', sizeof(ready.text)); /* endless */
    }
    bool has_memory = start.device_bytes != 0;
    unsigned n_fds = does("no_memory") ? 0 : does("many") ? 4 : !has_memory;
    send_ready(&ready, does("a_short_message") ? 8 : sizeof(ready), n_fds);
}

/* Sends the reply to a job on the first channel. */
static void answer(void)
{
    struct stg_gpu_job job;
    struct stg_gpu_answer reply = {.magic = STG_GPU_MAGIC};
    if (recv(channels[0], &job, sizeof(job), 0) != sizeof(job))
        _exit(0);
    reply.job = job.job;
    if (does("leaves"))
        _exit(3);
    if (does("answers_another"))
        reply.job++;
    if (does("fails"))
        reply.code = -STAGER_INTERNAL;
    size_t bytes = does("answers_little") ? 3 : sizeof(reply);
    send(channels[0], &reply, bytes, MSG_NOSIGNAL);
    if (does("answers_twice"))
        send(channels[0], &reply, bytes, MSG_NOSIGNAL);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    wrong = argv[1];
    begin();
    for (;;)
        answer();
}
