/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening a stream and taking slices survive the failure of every allocation. The call
 * reports the failure, nothing leaks, and the next call returns the slice that failed.
 * The daemon is a thread that sends prepared replies, so that only the client allocates.
 */
#include "tests/failalloc.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/client/rows.h"

struct canned {
    struct fake fake;
    struct stg_rejoin rejoin;
    unsigned char hello[4096], open[4096], join[64];
    long hello_bytes, open_bytes, join_bytes;
};

/* The client numbers its requests from 1. */
static void can_replies(struct canned *canned)
{
    struct stg_reply hello = {.id = 1,
                              .kind = STG_REQUEST_HELLO,
                              .version = STG_PROTOCOL_MAX,
                              .daemon = "9.9.9",
                              .cuda = "none"};
    canned->hello_bytes =
        stg_wire_encode_reply(&hello, canned->hello, sizeof(canned->hello));
    struct stg_pipeline_spec spec = {.name = "fake"};
    struct stg_reply open = {.id = 2,
                             .kind = STG_REQUEST_OPEN,
                             .name = "fake",
                             .segment_bytes = FAKE_SEGMENT_BYTES,
                             .max_in_flight = 2,
                             .structure = "\"x\"",
                             .boundary = canned->fake.boundary,
                             .rejoin = canned->rejoin,
                             .signature = "fake:1",
                             .begins_pass = 1,
                             .pipeline = &spec};
    canned->open_bytes = stg_wire_encode_reply(&open, canned->open, sizeof(canned->open));
    struct stg_reply join = {.id = 3, .kind = STG_REQUEST_JOIN};
    canned->join_bytes = stg_wire_encode_reply(&join, canned->join, sizeof(canned->join));
    CHECK(canned->hello_bytes > 0 && canned->open_bytes > 0 && canned->join_bytes > 0);
}

static void send_open(const struct canned *canned, int fd)
{
    int all[] = {canned->fake.segment_fd, canned->fake.ring_fd, canned->fake.control_fd};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(all))];
    } control = {0};
    struct iovec io = {.iov_base = (void *)(uintptr_t)canned->open,
                       .iov_len = (size_t)canned->open_bytes};
    struct msghdr msg = {.msg_iov = &io,
                         .msg_iovlen = 1,
                         .msg_control = control.bytes,
                         .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(all));
    memcpy(CMSG_DATA(c), all, sizeof(all));
    (void)!sendmsg(fd, &msg, MSG_NOSIGNAL);
}

/* Serves one client after another, until the listener is shut down. */
static void *serve(void *owner)
{
    const struct canned *canned = owner;
    int fd;
    while ((fd = accept4(canned->fake.listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        char buf[4096];
        if (recv(fd, buf, sizeof(buf), 0) > 0)
            (void)!send(fd, canned->hello, (size_t)canned->hello_bytes, MSG_NOSIGNAL);
        if (recv(fd, buf, sizeof(buf), 0) > 0)
            send_open(canned, fd);
        if (recv(fd, buf, sizeof(buf), 0) > 0)
            (void)!send(fd, canned->join, (size_t)canned->join_bytes, MSG_NOSIGNAL);
        close(fd);
    }
    return NULL;
}

static int open_and_close(void *owner)
{
    struct canned *canned = owner;
    struct stager_options options = {.struct_size = sizeof(options),
                                     .runtime_dir = canned->fake.dir};
    struct stager_stream *stream = NULL;
    int rc = stager_open(NULL, "fake", &options, &stream);
    if (rc < 0) {
        CHECK(stream == NULL);
        CHECK_CONTAINS(stager_error_text(NULL), "memory");
    } else {
        CHECK_STR(stager_structure(stream), "\"x\"");
    }
    stager_close(stream);
    return rc;
}

static void opening_a_stream_survives_every_failed_allocation(void)
{
    static struct canned canned;
    fake_start(&canned.fake);
    can_replies(&canned);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, serve, &canned) == 0);
    CHECK(stg_failalloc_each(open_and_close, &canned) >= 5);
    shutdown(canned.fake.listener, SHUT_RDWR);
    pthread_join(thread, NULL);
    fake_stop(&canned.fake);
}

/* Holds all slices of the batch in the ring at once. A failed slice is tried again. */
static int take_slices(void *owner)
{
    struct canned *canned = owner;
    struct stager_options options = {
        .struct_size = sizeof(options), .runtime_dir = canned->fake.dir, .batch_size = 1};
    struct stager_stream *stream = NULL;
    struct stager_batch *slices[20];
    int failed = stager_open(NULL, "fake", &options, &stream), n = 0;
    for (int tries = 0; stream != NULL && n < 20 && tries < 2; tries++) {
        int rc = 0;
        while (n < 20 && (rc = stager_next(stream, 0, &slices[n])) == 0) {
            rows_check(slices[n], n, 1);
            n++;
        }
        if (rc == 0)
            break;
        CHECK_INT(rc, -STAGER_RESOURCE_EXHAUSTED);
        failed = rc;
    }
    for (int i = 0; i < n; i++)
        stager_release(slices[i]);
    stager_close(stream);
    return failed;
}

static void taking_slices_survives_every_failed_allocation(void)
{
    static struct canned canned;
    fake_start(&canned.fake);
    canned.fake.boundary = rows_boundary(20);
    can_replies(&canned);
    rows_publish(&canned.fake, 0, 0, 0, 20);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, serve, &canned) == 0);
    CHECK(stg_failalloc_each(take_slices, &canned) >= 25);
    shutdown(canned.fake.listener, SHUT_RDWR);
    pthread_join(thread, NULL);
    fake_stop(&canned.fake);
}

/* The daemon ends after each join. A stream that could not reconnect does so later. */
static int reconnect(void *owner)
{
    struct canned *canned = owner;
    const char *fields[] = {"x"};
    struct stager_options options = {.struct_size = sizeof(options),
                                     .runtime_dir = canned->fake.dir,
                                     .client_id = "a",
                                     .fields = fields,
                                     .n_fields = 1};
    struct stager_stream_info info = {.struct_size = sizeof(info)};
    struct stager_stream *stream = NULL;
    struct stager_batch *batch;
    int failed = stager_open(NULL, "fake", &options, &stream), n_failed = 0;
    while (stream != NULL && info.reconnects == 0 && n_failed < 3) {
        int rc = stager_next(stream, 20, &batch);
        if (rc != -STAGER_DEADLINE_EXCEEDED) {
            CHECK_INT(rc, -STAGER_RESOURCE_EXHAUSTED);
            CHECK_CONTAINS(stager_error_text(stream), "memory");
            failed = rc;
            n_failed++;
        }
        CHECK_INT(stager_stream_info(stream, &info), 0);
        CHECK_INT(info.finished, 0);
    }
    CHECK(failed < 0 || info.reconnects > 0);
    stager_close(stream);
    return failed;
}

static void reconnecting_survives_every_failed_allocation(void)
{
    static struct canned canned = {.rejoin = {.run = 1, .member = 2}};
    fake_start(&canned.fake);
    can_replies(&canned);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, serve, &canned) == 0);
    stg_failalloc_each_of_threads(reconnect, &canned);
    shutdown(canned.fake.listener, SHUT_RDWR);
    pthread_join(thread, NULL);
    fake_stop(&canned.fake);
}

static const struct stg_test tests[] = {
    TEST(opening_a_stream_survives_every_failed_allocation),
    TEST(taking_slices_survives_every_failed_allocation),
    TEST_SLOW(reconnecting_survives_every_failed_allocation, 60),
};

TEST_MAIN(tests)
