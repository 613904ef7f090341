/* SPDX-License-Identifier: Apache-2.0
 *
 * Connecting to the daemon: its address, errors if it does not run, versions, requests.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/transport/connect.h"
#include "tests/check.h"
#include "tests/client/fake.h"

static void check_path(const char *runtime_dir, const char *want)
{
    struct sockaddr_un address;
    struct stg_err err = {0};
    CHECK_OK(stg_socket_find(runtime_dir, &address, &err), err);
    CHECK_STR(address.sun_path, want);
}

static void the_socket_is_looked_for_in_order(void)
{
    struct stat st;
    bool system_wide = stat("/run/stager/attach.sock", &st) == 0;
    const char *otherwise = "/run/stager/attach.sock";
    char dir[] = "/tmp/stg-find-XXXXXX", user[64], user_socket[80];
    CHECK(mkdtemp(dir) != NULL);
    snprintf(user, sizeof(user), "%s/stager", dir);
    snprintf(user_socket, sizeof(user_socket), "%s/attach.sock", user);

    unsetenv("STAGER_RUNTIME_DIR");
    unsetenv("XDG_RUNTIME_DIR");
    check_path(NULL, otherwise);
    setenv("XDG_RUNTIME_DIR", dir, 1);
    check_path(NULL, otherwise); /* the folder does not exist yet */
    CHECK(mkdir(user, 0700) == 0);
    check_path(NULL, system_wide ? otherwise : user_socket);
    setenv("STAGER_RUNTIME_DIR", "/a/b", 1);
    check_path(NULL, "/a/b/attach.sock");
    check_path("", "/a/b/attach.sock");
    check_path("/c", "/c/attach.sock");
    rmdir(user);
    rmdir(dir);
}

static void a_path_that_fits_no_address_is_refused_with_its_length(void)
{
    char dir[200];
    memset(dir, 'd', sizeof(dir));
    dir[0] = '/';
    struct stager *client;
    dir[96] = '\0'; /* 96 + "/attach.sock" = 108 */
    CHECK_INT(stager_connect(dir, &client), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(stager_error_text(NULL), "107 bytes");
    CHECK_CONTAINS(stager_error_text(NULL), "runtime_dir");
    dir[95] = '\0'; /* the longest that fits */
    CHECK_INT(stager_connect(dir, &client), -STAGER_UNAVAILABLE);
}

static void without_a_daemon_the_error_explains_how_to_start_it(void)
{
    char dir[] = "/tmp/stg-none-XXXXXX";
    CHECK(mkdtemp(dir) != NULL);
    struct stager *client;
    char want[256];
    snprintf(want, sizeof(want),
             "cannot reach stagerd at %s/attach.sock: No such file or directory; start "
             "it with "
             "`systemctl start stagerd` (or `stagerd --foreground`)",
             dir);
    CHECK_INT(stager_connect(dir, &client), -STAGER_UNAVAILABLE);
    CHECK_STR(stager_error_text(NULL), want);
    struct stager_options options = {.struct_size = sizeof(options), .runtime_dir = dir};
    struct stager_stream *stream;
    CHECK_INT(stager_open(NULL, "x", &options, &stream), -STAGER_UNAVAILABLE);
    CHECK_STR(stager_error_text(NULL), want);
    rmdir(dir);
}

static void a_socket_without_a_listener_is_unreachable(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    close(fake.listener);
    fake.listener = -1;
    struct stager *client;
    CHECK_INT(stager_connect(fake.dir, &client), -STAGER_UNAVAILABLE);
    CHECK_CONTAINS(stager_error_text(NULL), "Connection refused");
    fake_stop(&fake);
}

static void a_closed_socket_names_its_group(void)
{
    if (geteuid() != 0)
        SKIP("only root can change the user");
    struct fake fake = {0};
    fake_start(&fake);
    char path[128];
    snprintf(path, sizeof(path), "%s/attach.sock", fake.dir);
    CHECK(chmod(path, 0660) == 0);
    CHECK(chown(path, 0, 4) == 0); /* the group adm on Debian */
    CHECK(chmod(fake.dir, 0755) == 0);
    CHECK(seteuid(65534) == 0);
    struct stager *client;
    int rc = stager_connect(fake.dir, &client);
    CHECK(seteuid(0) == 0);
    CHECK_INT(rc, -STAGER_PERMISSION_DENIED);
    CHECK_CONTAINS(stager_error_text(NULL), "Permission denied");
    CHECK_CONTAINS(stager_error_text(NULL), "group adm");

    CHECK(chmod(fake.dir, 0700) == 0); /* the folder is not accessible either */
    CHECK(seteuid(65534) == 0);
    rc = stager_connect(fake.dir, &client);
    CHECK(seteuid(0) == 0);
    CHECK_INT(rc, -STAGER_PERMISSION_DENIED);
    CHECK_CONTAINS(stager_error_text(NULL), "only root may connect");
    fake_stop(&fake);
}

static void a_daemon_of_another_protocol_is_refused_with_both_versions(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    fake.version = 99;
    CHECK_INT(fake_open_fails(&fake), -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(stager_error_text(NULL), "99");
    CHECK_CONTAINS(stager_error_text(NULL), "2 to 6");
    fake_stop(&fake);
}

/* Opens against a fake daemon that refuses with that code and text, and finishes it. */
static void expect_refusal(struct fake *fake, int code)
{
    fake_start(fake);
    CHECK_INT(fake_open_fails(fake), code);
    CHECK_STR(stager_error_text(NULL), fake->text);
    fake_stop(fake);
}

static void the_daemons_own_refusal_is_repeated_word_for_word(void)
{
    struct fake hello = {.hello_code = -STAGER_FAILED_PRECONDITION,
                         .text = "stagerd speaks protocol 3 to 4, the client 2 to 2"};
    expect_refusal(&hello, -STAGER_FAILED_PRECONDITION);
    struct fake open = {.open_code = -STAGER_RESOURCE_EXHAUSTED,
                        .text = "2 of 2 clients are attached: a, b"};
    expect_refusal(&open, -STAGER_RESOURCE_EXHAUSTED);
    /* After ABORTED, the run having ended meanwhile, the client opens again. */
    struct fake join = {.join_code = -STAGER_FAILED_PRECONDITION, .text = "other fields"};
    expect_refusal(&join, -STAGER_FAILED_PRECONDITION);
}

static void doorbells_and_late_replies_do_not_disturb_a_request(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    fake.n_doorbells =
        5; /* the fake daemon first sends a reply to another id, with a descriptor */
    struct stager_stream *stream = fake_open(&fake, NULL);
    fake_finish(&fake, stream);
}

static void a_daemon_that_hangs_up_in_the_middle_is_unavailable(void)
{
    struct fake fake = {0};
    fake_start(&fake);
    fake.stays_silent = true;
    CHECK_INT(fake_open_fails(&fake), -STAGER_UNAVAILABLE);
    CHECK_CONTAINS(stager_error_text(NULL), "closed the connection");
    fake_stop(&fake);
}

/* ---- requests with a deadline ---- */

static void an_answer_that_does_not_come_ends_with_the_deadline(void)
{
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    static struct stager client;
    struct stg_err err = {0};
    CHECK_OK(stg_guard_create(&client.guard, &err), err);
    client.fd = pair[0];
    struct stg_request request = {.kind = STG_REQUEST_LIST};
    struct stg_reply reply;
    int64_t begin_ns = stg_clock_ns();
    CHECK_INT(stg_client_call(&client, &request, 20000000, &reply, NULL, 0, NULL, &err),
              -STAGER_DEADLINE_EXCEEDED);
    CHECK(stg_clock_ns() - begin_ns >= 20000000);
    stg_guard_destroy(client.guard);
    close(pair[0]);
    close(pair[1]);
}

static void send_list(int fd, uint64_t id, uint32_t n_left_out)
{
    static unsigned char buf[STG_MESSAGE_MAX_BYTES];
    struct stg_reply reply = {
        .id = id, .kind = STG_REQUEST_LIST, .n_left_out = n_left_out};
    long n = stg_wire_encode_reply(&reply, buf, sizeof(buf));
    CHECK(n > 0 && send(fd, buf, (size_t)n, 0) == n);
}

static void an_answer_that_comes_too_late_is_not_taken_for_the_next_ones(void)
{
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    static struct stager client;
    struct stg_err err = {0};
    CHECK_OK(stg_guard_create(&client.guard, &err), err);
    client.fd = pair[0];
    stg_bump_init(&client.bump, 1u << 20);
    struct stg_request request = {.kind = STG_REQUEST_LIST};
    struct stg_reply reply;
    CHECK_INT(stg_client_call(&client, &request, 1000000, &reply, NULL, 0, NULL, &err),
              -STAGER_DEADLINE_EXCEEDED);
    send_list(pair[1], 1, 11);
    send_list(pair[1], 2, 22);
    CHECK_OK(stg_client_call(&client, &request, 5000000000, &reply, NULL, 0, NULL, &err),
             err);
    CHECK_INT(reply.n_left_out, 22);
    stg_bump_finish(&client.bump);
    stg_guard_destroy(client.guard);
    close(pair[0]);
    close(pair[1]);
}

static void send_raw(int fd, const void *data, size_t bytes, int n_fds)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(100 * sizeof(int))];
    } control = {0};
    struct iovec io = {.iov_base = (void *)(uintptr_t)data, .iov_len = bytes};
    struct msghdr msg = {.msg_iov = &io, .msg_iovlen = 1};
    if (n_fds > 0) {
        msg.msg_control = control.bytes;
        msg.msg_controllen = CMSG_SPACE((size_t)n_fds * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN((size_t)n_fds * sizeof(int));
        for (int i = 0; i < n_fds; i++)
            ((int *)(void *)CMSG_DATA(c))[i] = fd;
    }
    CHECK(sendmsg(fd, &msg, MSG_NOSIGNAL) == (ssize_t)bytes);
}

static int count_fds(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    CHECK(dir != NULL);
    while (readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n;
}

/* Returns whether recvmsg installs descriptors beyond the room of the caller's buffer.
 * Linux closes them. qemu-user doubles the room and installs them without a report. */
static bool kernel_leaks_descriptors(void)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    int pair[2];
    char buf[8];
    struct iovec io = {.iov_base = buf, .iov_len = sizeof(buf)};
    struct msghdr msg = {.msg_iov = &io,
                         .msg_iovlen = 1,
                         .msg_control = control.bytes,
                         .msg_controllen = CMSG_LEN(sizeof(int))};
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    send_raw(pair[1], "probe", 5, 100);
    int before = count_fds();
    CHECK(recvmsg(pair[0], &msg, MSG_CMSG_CLOEXEC) == 5);
    int n = count_fds() - before;
    close(*(int *)(void *)CMSG_DATA(CMSG_FIRSTHDR(&msg)));
    close(pair[0]);
    close(pair[1]);
    return n > 1;
}

static void check_refused(const char *data, size_t bytes, int n_sent, size_t capacity)
{
    int pair[2], fds[3];
    char buf[64];
    size_t n_fds;
    struct stg_err err = {0};
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    send_raw(pair[1], data, bytes, n_sent);
    CHECK_INT(stg_socket_receive(pair[0], buf, capacity, fds, 3, &n_fds,
                                 stg_clock_ns() + 1000000000, &err),
              -STAGER_INTERNAL);
    close(pair[0]);
    close(pair[1]);
}

static void a_message_of_another_form_is_refused_and_leaks_nothing(void)
{
    check_refused("many descriptors", 16, 4, 64); /* one more than expected */
    check_refused("a longer message", 16, 0, 8);  /* truncated */
    check_refused("a longer message", 16, 2, 8);
}

static void truncated_descriptors_do_not_leak(void)
{
    if (kernel_leaks_descriptors())
        SKIP("recvmsg leaks descriptors here, as that of qemu-user does");
    check_refused("cut descriptors", 15, 100, 64); /* more than fit */
}

static const struct stg_test tests[] = {
    TEST(the_socket_is_looked_for_in_order),
    TEST(a_path_that_fits_no_address_is_refused_with_its_length),
    TEST(without_a_daemon_the_error_explains_how_to_start_it),
    TEST(a_socket_without_a_listener_is_unreachable),
    TEST(a_closed_socket_names_its_group),
    TEST(a_daemon_of_another_protocol_is_refused_with_both_versions),
    TEST(the_daemons_own_refusal_is_repeated_word_for_word),
    TEST(doorbells_and_late_replies_do_not_disturb_a_request),
    TEST(a_daemon_that_hangs_up_in_the_middle_is_unavailable),
    TEST(an_answer_that_does_not_come_ends_with_the_deadline),
    TEST(an_answer_that_comes_too_late_is_not_taken_for_the_next_ones),
    TEST(a_message_of_another_form_is_refused_and_leaks_nothing),
    TEST(truncated_descriptors_do_not_leak),
};

TEST_MAIN(tests)
