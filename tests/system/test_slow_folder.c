/* SPDX-License-Identifier: Apache-2.0
 *
 * A pipeline with files on a file system that does not answer.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/wire.h"
#include "tests/check.h"
#include "tests/system/fixture.h"

static int connect_to(const struct fixture *fixture)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%.90s/attach.sock",
             fixture->runtime);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    CHECK_INT(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static void send_request(int fd, const struct stg_request *request)
{
    char buf[4096];
    long n = stg_wire_encode_request(request, buf, sizeof(buf));
    CHECK(n > 0);
    CHECK_INT(send(fd, buf, (size_t)n, MSG_NOSIGNAL), n);
}

static void receive(int fd, struct stg_bump *bump, struct stg_reply *ret)
{
    static char buf[STG_MESSAGE_MAX_BYTES];
    struct stg_err err = {0};
    ssize_t n = recv(fd, buf, sizeof(buf), 0);
    CHECK(n > 0);
    CHECK_OK(stg_wire_decode_reply(buf, (size_t)n, bump, ret, &err), err);
    if (ret->code != 0)
        FAIL("%d: %s", ret->code, ret->text);
}

/* Sends a request on a new connection, and another one right behind it. */
static int begin(const struct fixture *fixture, const struct stg_request *request)
{
    struct stg_request hello = {.id = 1,
                                .kind = STG_REQUEST_HELLO,
                                .min_version = STG_PROTOCOL_MIN,
                                .max_version = STG_PROTOCOL_MAX,
                                .client = "test"};
    struct stg_request list = {.id = 3, .kind = STG_REQUEST_LIST};
    struct stg_bump bump = {0};
    struct stg_reply reply;
    int fd = connect_to(fixture);
    send_request(fd, &hello);
    receive(fd, &bump, &reply);
    stg_bump_finish(&bump);
    send_request(fd, request);
    send_request(fd, &list);
    return fd;
}

static void put(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    close(fd);
}

/* Returns whether a list is answered before the request. stagerd waits for the folder for
 * 200 ms alone, which a loaded machine may need for the list. */
static bool list_comes_first(struct fixture *fixture, const struct stg_request *request,
                             const char *hold)
{
    struct stg_bump bump = {0};
    struct stg_reply reply;
    put(hold);
    int fd = begin(fixture, request);
    stager_disconnect(fixture_ask(fixture, STG_REQUEST_LIST, NULL, &reply));
    struct pollfd answered = {.fd = fd, .events = POLLIN};
    bool first = poll(&answered, 1, 0) == 0;
    receive(fd, &bump, &reply);
    CHECK_INT(reply.id, 2);
    CHECK_INT(reply.n_advice > 0, true);
    if (first)
        CHECK_CONTAINS(reply.advice[0], "their file system is slow to answer");
    receive(fd, &bump, &reply); /* the one behind it keeps its place */
    CHECK_INT(reply.id, 3);
    unlink(hold);
    close(fd);
    stg_bump_finish(&bump);
    return first;
}

static void the_loop_does_not_wait_for_the_files_of_a_pipeline(void)
{
    static const enum stg_request_kind kinds[] = {STG_REQUEST_CHECK, STG_REQUEST_APPLY};
    struct fixture fixture;
    char slow[160], hold[160], yaml[512];
    fixture_start_enclosed(&fixture, "", false, SLOW_FOLDER_PATH);
    snprintf(slow, sizeof(slow), "%s/slow", fixture.dir);
    snprintf(hold, sizeof(hold), "%s/hold", fixture.dir);
    CHECK_INT(mkdir(slow, 0700), 0);
    snprintf(yaml, sizeof(yaml),
             "name: x\ndataset:\n  - files: {pattern: \"%s/*.txt\"}\n  - text_line: {}\n"
             "staged: {features: {line: record}}\n",
             slow);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct stg_request request = {.id = 2,
                                      .kind = kinds[i],
                                      .text = yaml,
                                      .text_bytes = strlen(yaml),
                                      .file = "x.yaml"};
        while (!list_comes_first(&fixture, &request, hold)) {
        } /* until the test's own limit */
    }
    fixture_finish(&fixture);
}

/* stagerd outlives a client that leaves meanwhile, and its own end waits for the worker.
 */
static void a_client_may_leave_while_its_files_are_tried(void)
{
    struct fixture fixture;
    char slow[160], hold[160], yaml[512];
    fixture_start_enclosed(&fixture, "", false, SLOW_FOLDER_PATH);
    snprintf(slow, sizeof(slow), "%s/slow", fixture.dir);
    snprintf(hold, sizeof(hold), "%s/hold", fixture.dir);
    CHECK_INT(mkdir(slow, 0700), 0);
    put(hold);
    snprintf(yaml, sizeof(yaml),
             "dataset: [{files: {pattern: \"%s/*\"}}]\nstaged: {features: {v: record}}\n",
             slow);
    struct stg_request request = {
        .id = 2, .kind = STG_REQUEST_CHECK, .text = yaml, .text_bytes = strlen(yaml)};
    struct stg_reply reply;
    close(begin(&fixture, &request));
    stager_disconnect(fixture_ask(&fixture, STG_REQUEST_LIST, NULL, &reply));
    int fd = begin(&fixture, &request);
    fixture_stop(&fixture);
    unlink(hold);
    close(fd);
    fixture_finish(&fixture);
}

static const struct stg_test tests[] = {
    TEST(the_loop_does_not_wait_for_the_files_of_a_pipeline),
    TEST(a_client_may_leave_while_its_files_are_tried),
};
TEST_MAIN(tests)
