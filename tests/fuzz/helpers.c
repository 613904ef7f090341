/* SPDX-License-Identifier: Apache-2.0
 *
 * Modes of fuzz_peers in which the input is a helper process: stager-gate and stager-gpu
 * as stagerd sees them. stagerd starts a process that does nothing, and this one has its
 * end of the socket pair.
 */
#include "tests/fuzz/helpers.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/gate/frame.h"
#include "daemon/gate/gate.h"
#include "daemon/gpu/priv.h"
#include "daemon/host/helper.h"
#include "daemon/server/server.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/server.h"

#define MAX_OPS 30
#define SEGMENT_BYTES ((uint64_t)65536)

/* ---- a helper that does nothing ---- */

static int end = -1;          /* the end of the helper that was started last */
static struct msghdr *greets; /* what it has sent when it starts, or NULL */

int __wrap_stg_helper_find(const char *folder, const char *name, char *path, size_t bytes,
                           struct stg_err *err);
int __wrap_stg_helper_spawn(const char *program, char *const *argv, char *const *env,
                            int end_fd, pid_t *ret);
int __real_stg_helper_spawn(const char *program, char *const *argv, char *const *env,
                            int end_fd, pid_t *ret);

int __wrap_stg_helper_find(const char *folder, const char *name, char *path, size_t bytes,
                           struct stg_err *err)
{
    snprintf(path, bytes, "/bin/sleep");
    return 0;
}

int __wrap_stg_helper_spawn(const char *program, char *const *argv, char *const *env,
                            int end_fd, pid_t *ret)
{
    char *const sleeps[] = {(char *)"sleep", (char *)"120", NULL};
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    FUZZ_CHECK(null >= 0);
    if (end >= 0)
        close(end);
    end = fcntl(end_fd, F_DUPFD_CLOEXEC, 0);
    FUZZ_CHECK(end >= 0);
    if (greets != NULL)
        FUZZ_CHECK(sendmsg(end, greets, MSG_NOSIGNAL) >= 0);
    int rc = __real_stg_helper_spawn("/bin/sleep", sleeps, env, null, ret);
    close(null);
    return rc;
}

static void drop_end(void)
{
    if (end >= 0)
        close(end);
    end = -1;
}

/* ---- stager-gate ---- */

static struct {
    struct stg_server *server;
    int is_of; /* `end` when the gate was ready; -1: it is to start again */
    bool is_ready;
    uint64_t first_tag,
        n_sent;        /* of this input; stagerd may still answer the one before */
    uint64_t answered; /* bits of tags */
    unsigned char tokens[3][STG_TOKEN_BYTES];
} gate = {.is_of = -1};

static void send_frame(uint32_t kind, uint32_t zero, uint64_t tag, const void *payload,
                       size_t bytes)
{
    struct stg_gate_frame frame = {.kind = kind, .zero = zero, .tag = tag};
    struct iovec parts[] = {
        {.iov_base = &frame, .iov_len = sizeof(frame)},
        {.iov_base = (void *)(uintptr_t)payload, .iov_len = bytes},
    };
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    if (end >= 0)
        (void)sendmsg(end, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void check_payload(const struct stg_gate_frame *frame, const void *payload,
                          size_t bytes)
{
    struct stg_bump bump = {0};
    struct stg_reply reply;
    struct stg_event event;
    struct stg_err err = {0};
    FUZZ_CHECK(frame->zero == 0);
    if (frame->kind == STG_GATE_EVENT) {
        FUZZ_CHECK(stg_wire_decode_event(payload, bytes, &event, &err) == 0);
        return;
    }
    FUZZ_CHECK(frame->kind == STG_GATE_REPLY);
    FUZZ_CHECK(frame->tag < gate.first_tag + gate.n_sent);
    if (frame->tag >= gate.first_tag) {
        uint64_t bit = (uint64_t)1 << (frame->tag - gate.first_tag);
        FUZZ_CHECK((gate.answered & bit) == 0);
        gate.answered |= bit;
    }
    FUZZ_CHECK_TEXT(stg_wire_decode_reply(payload, bytes, &bump, &reply, &err) == 0,
                    err.text);
    FUZZ_CHECK(reply.code == 0 || (reply.text != NULL && reply.text[0] != '\0'));
    stg_bump_finish(&bump);
}

/* Takes what stagerd sent to the gate. */
static void take_frames(void)
{
    static char bytes[sizeof(struct stg_gate_frame) + STG_GATE_PAYLOAD_MAX_BYTES + 1];
    struct stg_gate_frame frame;
    ssize_t n;
    while (end >= 0 && (n = recv(end, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0) {
        FUZZ_CHECK(n >= (ssize_t)sizeof(frame) && n < (ssize_t)sizeof(bytes));
        memcpy(&frame, bytes, sizeof(frame));
        check_payload(&frame, bytes + sizeof(frame), (size_t)n - sizeof(frame));
    }
}

/* Each input has a gate that has sent nothing but that it is ready, or not even that. */
static void begin_gate(bool is_ready)
{
    struct stg_identity users[] = {{.uid = 0}, {.uid = 1000, .gid = 1000}};
    struct stg_reply reply = {0};
    struct stg_err err = {0};
    gate.server = stg_fuzz_server_begin();
    if (gate.is_of < 0 || gate.is_of != end || !is_ready) {
        stg_gate_enable(gate.server->gate, false);
        stg_fuzz_server_turn();
        stg_gate_enable(gate.server->gate, true);
        gate.is_of = end;
        if (is_ready)
            send_frame(STG_GATE_READY, 0, 0, NULL, 0);
        stg_fuzz_server_turn();
    }
    gate.is_ready = is_ready;
    gate.first_tag += gate.n_sent;
    gate.n_sent = 0;
    gate.answered = 0;
    for (size_t i = 0; i < 2; i++) {
        FUZZ_CHECK_TEXT(stg_gate_give_token(gate.server->gate, &users[i], &reply, &err) ==
                            0,
                        err.text);
        memcpy(gate.tokens[i], reply.token, STG_TOKEN_BYTES);
    }
    take_frames();
}

static void send_request(struct stg_fuzz_input *input)
{
    static char bytes[STG_MESSAGE_MAX_BYTES];
    struct stg_request request;
    stg_fuzz_request(input, &request);
    unsigned user = stg_fuzz_byte(input), which = stg_fuzz_byte(input);
    request.token = user % 8 == 7 ? NULL : gate.tokens[user % 8 < 6 ? user % 2 : 2];
    request.token_bytes = request.token != NULL ? STG_TOKEN_BYTES - (user >> 4 == 15) : 0;
    request.request_id = which % 4 == 3 ? NULL : "123";
    request.request_id_bytes = which % 4 == 3 ? 0 : 1 + which % 4;
    long n = stg_wire_encode_request(&request, bytes, sizeof(bytes));
    if (n > 0)
        send_frame(STG_GATE_REQUEST, 0, gate.first_tag + gate.n_sent++, bytes, (size_t)n);
}

static size_t take_bytes(struct stg_fuzz_input *input, const uint8_t **ret)
{
    size_t n = stg_fuzz_byte(input), left = stg_fuzz_left(input);
    *ret = input->at;
    n = n < left ? n : left;
    input->at += n;
    return n;
}

static void gate_step(struct stg_fuzz_input *input)
{
    const uint8_t *bytes;
    size_t n;
    unsigned op = stg_fuzz_byte(input);
    switch (op % 16) {
    case 8: /* any request */
        n = take_bytes(input, &bytes);
        send_frame(STG_GATE_REQUEST, 0, gate.first_tag + gate.n_sent++, bytes, n);
        break;
    case 9: /* any frame */
        n = take_bytes(input, &bytes);
        (void)send(end, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        gate.is_of = -1;
        break;
    case 10:
        send_frame(op >> 4, stg_fuzz_byte(input), 0, NULL, 0);
        gate.is_of = -1;
        break;
    case 11:
        shutdown(end, SHUT_RDWR);
        gate.is_of = -1;
        break;
    case 12: break;
    default: send_request(input);
    }
    stg_fuzz_server_turn();
    take_frames();
}

void stg_fuzz_gate(const uint8_t *data, size_t bytes)
{
    struct stg_fuzz_input input = {data, data + bytes};
    begin_gate(stg_fuzz_byte(&input) % 8 != 7);
    for (int n = 0; n < MAX_OPS && input.at < input.end; n++)
        gate_step(&input);
    if (!gate.is_ready)
        gate.is_of = -1;
    stg_fuzz_server_end();
    take_frames();
}

/* ---- stager-gpu ---- */

static int lowest_free(void)
{
    int fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    close(fd);
    return fd;
}

static int make_memory(void)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    FUZZ_CHECK(fd >= 0 && ftruncate(fd, SEGMENT_BYTES) == 0);
    return fd;
}

/* Takes the channels of the start message; returns how many came. */
static size_t take_channels(int channels[STG_GPU_CHANNELS])
{
    struct stg_gpu_start start;
    int fds[STG_GPU_CHANNELS + 2];
    union {
        char bytes[CMSG_SPACE(sizeof(fds))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = &start, .iov_len = sizeof(start)};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    ssize_t n = recvmsg(end, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    FUZZ_CHECK(n == sizeof(start) && start.magic == STG_GPU_MAGIC);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    FUZZ_CHECK(header != NULL);
    size_t n_fds = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(fds, CMSG_DATA(header), n_fds * sizeof(int));
    close(fds[0]);
    for (size_t i = STG_GPU_CHANNELS + 1; i < n_fds; i++)
        close(fds[i]);
    memcpy(channels, fds + 1, STG_GPU_CHANNELS * sizeof(int));
    return n_fds - 1;
}

/* One copy. The answer is there before the job is; without one the channel is closed. */
static int copy_once(struct stg_fuzz_input *input, struct stg_mirror_process *process,
                     int channels[STG_GPU_CHANNELS])
{
    unsigned op = stg_fuzz_byte(input), runner = op >> 4;
    int *fd = &channels[runner % STG_GPU_CHANNELS];
    struct stg_gpu_answer answer = {
        .magic = STG_GPU_MAGIC,
        .code = op % 4 == 1 ? -(int)stg_fuzz_byte(input) : 0,
        .job = process->channels[runner % STG_GPU_CHANNELS].job + 1 + (op % 16 == 15)};
    struct stg_err err = {0};
    const uint8_t *bytes;
    size_t n = 0;
    if (op % 4 == 2)
        n = take_bytes(input, &bytes);
    if (op % 16 == 14 && *fd >= 0) {
        close(*fd);
        *fd = -1;
    }
    if (*fd >= 0)
        (void)send(*fd, op % 4 == 2 ? (const void *)bytes : &answer,
                   op % 4 == 2 ? n : sizeof(answer), MSG_DONTWAIT | MSG_NOSIGNAL);
    int rc = stg_mirror_process_copy(process, runner, 0, 64, &err);
    FUZZ_CHECK(rc == 0 || err.text[0] != '\0');
    return rc;
}

static void copy(struct stg_fuzz_input *input, struct stg_mirror_process *process)
{
    int channels[STG_GPU_CHANNELS];
    FUZZ_CHECK(take_channels(channels) >= STG_GPU_CHANNELS);
    int rc = 0;
    for (int n = 0; n < MAX_OPS && rc == 0 && input->at < input->end; n++)
        rc = copy_once(input, process, channels);
    for (uint32_t i = 0; i < STG_GPU_CHANNELS; i++) {
        if (channels[i] >= 0)
            close(channels[i]);
    }
    stg_mirror_process_reap(process, NULL);
    stg_mirror_process_free(process);
}

/* Fills what stager-gpu says at first: a message that is nearly right, or any bytes. */
static size_t make_ready(struct stg_fuzz_input *input, unsigned flags, char *ret)
{
    static const uint64_t sizes[] = {SEGMENT_BYTES, SEGMENT_BYTES / 2, UINT64_MAX, 0};
    struct stg_gpu_ready ready = {.magic = STG_GPU_MAGIC};
    const uint8_t *bytes;
    size_t n;
    if ((flags & 1) == 0) {
        ready.code = (flags & 2) != 0 ? -(int)stg_fuzz_byte(input) : 0;
        ready.device_bytes = sizes[(flags >> 5) & 3];
        n = take_bytes(input, &bytes);
        memcpy(ready.text, bytes, n);
        memcpy(ret, &ready, sizeof(ready));
        return sizeof(ready) + ((flags & 16) != 0);
    }
    n = take_bytes(input, &bytes);
    memset(ret, 'x', sizeof(ready));
    memcpy(ret, bytes, n);
    return (flags & 2) != 0 ? sizeof(ready) : n;
}

static void start_gpu(struct stg_fuzz_input *input, struct stg_mirror_start *start,
                      unsigned flags)
{
    static char bytes[sizeof(struct stg_gpu_ready) + 1];
    struct stg_mirror_process *process = NULL;
    struct stg_err err = {0};
    bool had = start->memory.fd >= 0;
    int memory = make_memory();
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {.align = {.cmsg_level = SOL_SOCKET,
                           .cmsg_type = SCM_RIGHTS,
                           .cmsg_len = CMSG_LEN(sizeof(int))}};
    memcpy(CMSG_DATA(&control.align), &memory, sizeof(memory));
    struct iovec iov = {.iov_base = bytes, .iov_len = make_ready(input, flags, bytes)};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    if ((flags & 4) != 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
    }
    greets = &message;
    int rc = stg_mirror_process_start(start, &process, &err);
    greets = NULL;
    close(memory);
    if (rc == 0) {
        FUZZ_CHECK(start->memory.fd >= 0 && start->memory.bytes >= SEGMENT_BYTES);
        copy(input, process);
        return;
    }
    FUZZ_CHECK((start->memory.fd >= 0) == had && process == NULL);
    for (const char *c = err.text; *c != '\0'; c++)
        FUZZ_CHECK((unsigned char)*c >= ' ');
}

void stg_fuzz_gpu(const uint8_t *data, size_t bytes)
{
    struct stg_fuzz_input input = {data, data + bytes};
    unsigned flags = stg_fuzz_byte(&input);
    drop_end();
    int free_before = lowest_free();
    struct stg_mirror_config config = {.name = "p",
                                       .device = "cuda:0",
                                       .segment = make_memory(),
                                       .segment_bytes = SEGMENT_BYTES,
                                       .memory_bytes = SEGMENT_BYTES};
    struct stg_mirror_start start = {
        .config = &config, .stop = eventfd(0, EFD_CLOEXEC), .memory = {.fd = -1}};
    if ((flags & 8) != 0)
        start.memory =
            (struct stg_mirror_memory){.fd = make_memory(), .bytes = SEGMENT_BYTES};
    start_gpu(&input, &start, flags);
    if (start.memory.fd >= 0)
        close(start.memory.fd);
    close(start.stop);
    close(config.segment);
    drop_end();
    FUZZ_CHECK(lowest_free() == free_before);
}

/* ---- seeds ---- */

void stg_fuzz_helper_seeds(void)
{
    /* Each kind of request, again with the same id, of the other user, without a token.
     */
    for (uint8_t kind = 0; kind < STG_REQUEST_METRICS; kind++) {
        const uint8_t calls[] = {0, 0, kind, 1,    0, 0, 0,    0, 0, kind,
                                 1, 0, 0,    0,    0, 0, kind, 0, 1, 0,
                                 1, 1, 0,    kind, 1, 0, 0,    7, 3, 12};
        stg_fuzz_seed("gate", NULL, 0, calls, sizeof(calls));
    }
    stg_fuzz_seed("gate", NULL, 0, "\7\x1a\0\x0b", 4);
    stg_fuzz_seed("gate", NULL, 0, "\0\x08\5abcde\x09\4abcd\x0b", 14);
    /* New memory, four copies; memory of before; a refusal; any bytes. */
    stg_fuzz_seed("gpu", NULL, 0, "\4\3gpu\0\x10\x20\x31\5", 10);
    stg_fuzz_seed("gpu", NULL, 0, "\x08\3gpu\0\x0f\x0e\2\4abcd", 13);
    stg_fuzz_seed("gpu", NULL, 0, "\2\5\3why", 6);
    stg_fuzz_seed("gpu", NULL, 0,
                  "\5\x0a"
                  "0123456789",
                  12);
}
