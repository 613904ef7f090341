/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/client/fake.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/check.h"

static int make_object(uint64_t bytes, int seals, void **ret_base)
{
    int fd = memfd_create("fake", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(fd >= 0);
    CHECK(ftruncate(fd, (off_t)bytes) == 0);
    *ret_base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(*ret_base != MAP_FAILED);
    CHECK(fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

void fake_start(struct fake *fake)
{
    fake_start_with(fake, FAKE_SLOTS, STG_GRANULE_BYTES);
}

static uint64_t segment_bytes(const struct fake *fake)
{
    return fake->n_slots * fake->slot_bytes;
}

static char *slot_at(const struct fake *fake, uint32_t slot)
{
    return fake->segment + slot * fake->slot_bytes;
}

void fake_start_with(struct fake *fake, uint32_t n_slots, uint64_t slot_bytes)
{
    int sizes = F_SEAL_SHRINK | F_SEAL_GROW;
    void *base;
    if (fake->dir[0] == '\0') {
        snprintf(fake->dir, sizeof(fake->dir), "/tmp/stg-fake-XXXXXX");
        CHECK(mkdtemp(fake->dir) != NULL);
    }
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/attach.sock", fake->dir);
    unlink(address.sun_path);
    fake->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK(bind(fake->listener, (struct sockaddr *)&address, sizeof(address)) == 0);
    CHECK(listen(fake->listener, 8) == 0);
    fake->socket = -1;

    fake->n_slots = n_slots;
    fake->slot_bytes = slot_bytes;
    fake->segment_fd = make_object(
        segment_bytes(fake), fake->unsealed ? 0 : sizes | F_SEAL_FUTURE_WRITE, &base);
    fake->segment = base;
    fake->ring_fd = make_object(STG_RING_BYTES, sizes | F_SEAL_FUTURE_WRITE, &base);
    fake->ring.page = base;
    fake->control_fd = make_object(STG_CONTROL_BYTES, sizes, &base);
    fake->control.page = base;
    stg_ring_format(fake->ring.page, 7);
    stg_control_format(fake->control.page, 7);

    fake->version = STG_PROTOCOL_MAX;
    fake->max_in_flight = 2;
    fake->segment_bytes = segment_bytes(fake);
    fake->n_fds = 3;
    static struct stg_component x = {
        .name = "x", .dtype = STAGER_INT64, .ndim = 1, .shape = {-1}};
    fake->boundary = (struct stg_schema){.components = &x, .n = 1};
}

/* ---- the thread that replies ---- */

static void send_reply(struct fake *fake, const struct stg_reply *reply, size_t n_fds)
{
    static unsigned char buf[STG_MESSAGE_MAX_BYTES];
    long n = stg_wire_encode_reply(reply, buf, sizeof(buf));
    CHECK(n > 0);
    for (unsigned i = 0; i < fake->n_doorbells; i++)
        fake_ring(fake);

    int all[] = {fake->segment_fd, fake->ring_fd, fake->control_fd,
                 fake->device_bytes != 0 ? fake->device_fd : fake->control_fd};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(all))];
    } control = {0};
    struct iovec io = {.iov_base = buf, .iov_len = (size_t)n};
    struct msghdr msg = {.msg_iov = &io, .msg_iovlen = 1};
    if (n_fds > 0) {
        msg.msg_control = control.bytes;
        msg.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(c), all, n_fds * sizeof(int));
    }
    CHECK(sendmsg(fake->socket, &msg, MSG_NOSIGNAL) == n);
}

static void answer_hello(struct fake *fake, const struct stg_request *request)
{
    CHECK_INT(request->min_version, STG_PROTOCOL_MIN);
    CHECK_INT(request->max_version, STG_PROTOCOL_MAX);
    struct stg_reply reply = {.id = request->id,
                              .code = fake->hello_code,
                              .text = fake->text,
                              .kind = fake->hello_code < 0 ? STG_REQUEST_NONE
                                                           : STG_REQUEST_HELLO,
                              .version = fake->version,
                              .daemon = "9.9.9",
                              .instance = 7,
                              .pid = 1};
    send_reply(fake, &reply, 0);
}

static void answer_open(struct fake *fake, const struct stg_request *request)
{
    fake->opened = *request;
    snprintf(fake->opened_state, sizeof(fake->opened_state), "%s",
             request->state != NULL ? request->state : "");
    snprintf(fake->client_id, sizeof(fake->client_id), "%s", request->client_id);
    fake->n_opened++;
    if (fake->stays_silent)
        return;
    struct stg_reply reply = {.id = request->id,
                              .code = fake->open_code,
                              .text = fake->text,
                              .kind = fake->open_code < 0 ? STG_REQUEST_NONE
                                                          : STG_REQUEST_OPEN,
                              .name = "fake",
                              .generation = fake->generation != 0 ? fake->generation : 1,
                              .anew = fake->anew,
                              .segment_bytes = fake->segment_bytes,
                              .max_in_flight = fake->max_in_flight,
                              .client_id = request->client_id,
                              .structure = "\"x\"",
                              .boundary = fake->boundary,
                              .batch_rows = fake->batch_rows,
                              .unwatched = fake->unwatched,
                              .device_bytes = fake->device_bytes,
                              .device_number = fake->device_number,
                              .device_uuid = fake->device_uuid,
                              .irreproducible = fake->irreproducible,
                              .rejoin = fake->rejoin,
                              .signature = fake->signature,
                              .state = fake->state,
                              .begins_pass = fake->begins_pass,
                              .skip_rows = fake->skip_rows,
                              .pipeline = fake->pipeline};
    struct stg_reply late = {
        .id = request->id + 1000, .code = -STAGER_INTERNAL, .text = "late"};
    send_reply(fake, &late, 1);
    send_reply(fake, &reply, fake->open_code < 0 ? 0 : fake->n_fds);
}

static void answer_join(struct fake *fake, const struct stg_request *request)
{
    struct stg_reply reply = {.id = request->id,
                              .code = fake->join_code,
                              .text = fake->text,
                              .kind = fake->join_code < 0 ? STG_REQUEST_NONE
                                                          : STG_REQUEST_JOIN};
    send_reply(fake, &reply, 0);
}

static const struct {
    enum stg_request_kind kind;
    void (*answer)(struct fake *fake, const struct stg_request *request);
} answers[] = {
    {STG_REQUEST_HELLO, answer_hello},
    {STG_REQUEST_OPEN, answer_open},
    {STG_REQUEST_JOIN, answer_join},
};

static void *serve(void *owner)
{
    struct fake *fake = owner;
    static unsigned char buf[STG_MESSAGE_MAX_BYTES];
    fake->socket = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(fake->socket >= 0);
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        ssize_t n = recv(fake->socket, buf, sizeof(buf), 0);
        if (n <= 0)
            return NULL; /* the client disconnected */
        struct stg_bump bump;
        stg_bump_init(&bump, 0);
        struct stg_request request;
        struct stg_err err = {0};
        CHECK_OK(stg_wire_decode_request(buf, (size_t)n, &bump, &request, &err), err);
        CHECK_INT(request.kind, answers[i].kind);
        answers[i].answer(fake, &request);
        stg_bump_finish(&bump);
        if (fake->stays_silent && request.kind == STG_REQUEST_OPEN) {
            fake_hang_up(fake);
            return NULL;
        }
    }
    return NULL;
}

void fake_serve(struct fake *fake)
{
    CHECK(pthread_create(&fake->thread, NULL, serve, fake) == 0);
}

void fake_join(struct fake *fake)
{
    CHECK(pthread_join(fake->thread, NULL) == 0);
}

/* ---- the test's side ---- */

struct stager_stream *fake_open(struct fake *fake, const struct stager_options *options)
{
    struct stager_options own =
        options != NULL
            ? *options
            : (struct stager_options){.struct_size = sizeof(struct stager_options)};
    own.runtime_dir = fake->dir;
    struct stager_stream *stream;
    fake_serve(fake);
    int rc = stager_open(NULL, "fake", &own, &stream);
    fake_join(fake);
    if (rc < 0)
        FAIL("stager_open: %s: %s", stager_status_name(rc), stager_error_text(NULL));
    return stream;
}

int fake_open_fails(struct fake *fake)
{
    struct stager_options options = {.struct_size = sizeof(options),
                                     .runtime_dir = fake->dir};
    struct stager_stream *stream = NULL;
    fake_serve(fake);
    int rc = stager_open(NULL, "fake", &options, &stream);
    fake_join(fake);
    CHECK(rc < 0);
    CHECK(stream == NULL);
    return rc;
}

void fake_hang_up(struct fake *fake)
{
    close(fake->socket);
    fake->socket = -1;
}

void fake_die(struct fake *fake)
{
    close(fake->listener);
    fake->listener = -1;
    if (fake->socket >= 0)
        fake_hang_up(fake);
}

static void receive(struct fake *fake, enum stg_request_kind kind, struct stg_bump *bump,
                    struct stg_request *ret)
{
    static unsigned char buf[STG_MESSAGE_MAX_BYTES];
    struct stg_err err = {0};
    ssize_t n;
    do {
        n = recv(fake->socket, buf, sizeof(buf), 0);
    } while (n == 1); /* doorbells */
    CHECK(n > 0);
    CHECK_OK(stg_wire_decode_request(buf, (size_t)n, bump, ret, &err), err);
    CHECK_INT(ret->kind, kind);
}

void fake_accept(struct fake *fake)
{
    struct stg_bump bump;
    struct stg_request request;
    stg_bump_init(&bump, 0);
    fake->socket = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(fake->socket >= 0);
    receive(fake, STG_REQUEST_HELLO, &bump, &request);
    answer_hello(fake, &request);
    stg_bump_finish(&bump);
}

void fake_reply(struct fake *fake, enum stg_request_kind kind, int code, const char *text)
{
    struct stg_bump bump;
    struct stg_request request;
    stg_bump_init(&bump, 0);
    receive(fake, kind, &bump, &request);
    fake->opened = request;
    snprintf(fake->client_id, sizeof(fake->client_id), "%s",
             request.client_id != NULL ? request.client_id : "");
    snprintf(fake->opened_state, sizeof(fake->opened_state), "%s",
             request.state != NULL ? request.state : "");
    struct stg_reply reply = {.id = request.id,
                              .code = code,
                              .text = text,
                              .kind = code < 0 ? STG_REQUEST_NONE : kind};
    send_reply(fake, &reply, 0);
    stg_bump_finish(&bump);
}

void fake_stop(struct fake *fake)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/attach.sock", fake->dir);
    unlink(path);
    rmdir(fake->dir);
    int fds[] = {fake->listener, fake->socket, fake->segment_fd, fake->ring_fd,
                 fake->control_fd};
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
    munmap(fake->segment, segment_bytes(fake));
    munmap(fake->ring.page, STG_RING_BYTES);
    munmap(fake->control.page, STG_CONTROL_BYTES);
}

void fake_finish(struct fake *fake, struct stager_stream *stream)
{
    fake_hang_up(fake);
    stager_close(stream);
    fake_stop(fake);
}

struct stg_descriptor fake_descriptor(struct fake *fake, uint32_t slot, uint64_t number,
                                      uint64_t bytes)
{
    return (struct stg_descriptor){.number = number,
                                   .lease = slot,
                                   .lease_generation = 1,
                                   .kind = STG_DESCRIPTOR_BATCH,
                                   .offset = slot * fake->slot_bytes,
                                   .length = bytes,
                                   .assigned_ns = 1};
}

void fake_publish(struct fake *fake, uint32_t slot, uint64_t number, int64_t value,
                  int64_t n)
{
    struct stg_err err = {0};
    struct stg_batch_writer w;
    char *base = slot_at(fake, slot);
    CHECK_OK(stg_batch_writer_begin(&w, base, fake->slot_bytes, &fake->boundary, &err),
             err);
    struct stg_tensor x;
    CHECK_OK(stg_batch_writer_alloc(&w, 0, STAGER_INT64, 1, &n, 0, &x, &err), err);
    for (int64_t i = 0; i < n; i++)
        ((int64_t *)x.data)[i] = value + i;
    uint64_t bytes = stg_batch_writer_seal(&w);
    struct stg_batch_header *header = (struct stg_batch_header *)base;
    header->number = number;
    header->n_rows = (uint64_t)n;
    header->epoch = 3;
    struct stg_descriptor d = fake_descriptor(fake, slot, number, bytes);
    d.device = fake->device;
    stg_ring_push(&fake->ring, &d);
}

void fake_publish_from(struct fake *fake, uint32_t slot, uint64_t number,
                       const struct stg_stream_place *from, int64_t value, int64_t n)
{
    struct stg_stream_place after = *from;
    after.place.items++;
    after.place.elements += (uint64_t)n;
    stg_ring_place(&fake->ring, &after);
    fake_publish(fake, slot, number, value, n);
    struct stg_batch_header *header = (struct stg_batch_header *)slot_at(fake, slot);
    header->pass = from->pass;
    header->before = from->place;
}

void fake_publish_error(struct fake *fake, uint32_t slot, uint64_t number, int code,
                        const char *text)
{
    uint64_t bytes =
        stg_batch_write_error(slot_at(fake, slot), fake->slot_bytes, code, text);
    struct stg_descriptor d = fake_descriptor(fake, slot, number, bytes);
    d.kind = STG_DESCRIPTOR_ERROR;
    stg_ring_push(&fake->ring, &d);
}

void fake_publish_end(struct fake *fake, uint64_t pass)
{
    stg_ring_push(&fake->ring,
                  &(struct stg_descriptor){.kind = STG_DESCRIPTOR_END, .number = pass});
}

void fake_ring(struct fake *fake)
{
    CHECK(send(fake->socket, "!", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1 ||
          errno == EAGAIN);
}

unsigned fake_doorbells(struct fake *fake)
{
    char buf[16];
    unsigned n = 0;
    while (recv(fake->socket, buf, sizeof(buf), MSG_DONTWAIT) == 1)
        n++;
    return n;
}

void fake_wait_asleep(struct fake *fake)
{
    while (!stg_control_waiting(&fake->control))
        sched_yield();
}

struct stager_batch *fake_take(struct stager_stream *stream)
{
    struct stager_batch *batch;
    int rc = stager_next(stream, 0, &batch);
    if (rc < 0)
        FAIL("stager_next: %s", stager_error_text(stream));
    return batch;
}

int fake_next_code(struct stager_stream *stream)
{
    struct stager_batch *batch = NULL;
    int rc = stager_next(stream, 0, &batch);
    CHECK(rc < 0);
    CHECK(batch == NULL);
    return rc;
}

int64_t fake_first_value(const struct stager_batch *batch)
{
    struct stager_tensor x;
    CHECK_INT(stager_batch_tensor(batch, "x", &x), 0);
    CHECK_INT(x.dtype, STAGER_INT64);
    return ((const int64_t *)x.data)[0];
}

unsigned fake_releases(struct fake *fake)
{
    struct stg_release_entry entry;
    unsigned n = 0;
    while (stg_control_poll(&fake->control, &entry) == 1)
        n++;
    return n;
}

void fake_skip_where_forks_are_hidden(void)
{
    char *page =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    if (madvise(page, 4096, MADV_WIPEONFORK) == 0) {
        int status;
        *page = 1;
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            _exit(*page);
        CHECK(waitpid(pid, &status, 0) == pid);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            SKIP("MADV_WIPEONFORK wipes nothing here, as under qemu-user");
    }
    munmap(page, 4096);
}
