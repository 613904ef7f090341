/* SPDX-License-Identifier: Apache-2.0
 *
 * The nanomsg endpoint. An attack of a peer on libnanomsg 1.1.5 costs at most one gate
 * process, and no trainer is affected. Also tokens, request ids, generations, events.
 */
#include <ctype.h>
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/system/fixture.h"

static const char small[] = "name: small\ndataset: [{range: {stop: 8}}, {batch: "
                            "{batch_size: 2}}]\n";
static const char other[] = "name: small\ndataset: [{range: {stop: 9}}, {batch: "
                            "{batch_size: 2}}]\n";

/* ---- a peer of stager-gate that speaks the SP protocol by hand
 * (https://github.com/nanomsg/nanomsg/blob/1.1.5/rfc/), so that it can send invalid
 * frames too ---- */

enum { PEER_REQ = 0x30, PEER_SUB = 0x21 };

static pid_t parent_of(const char *pid)
{
    char path[300], text[512] = "";
    snprintf(path, sizeof(path), "/proc/%s/stat", pid);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return -1;
    size_t n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[n] = '\0';
    char *after = strrchr(text, ')');
    int parent = -1;
    if (after == NULL || after[2] == 'Z' || sscanf(after + 3, "%d", &parent) != 1)
        return -1;
    return parent;
}

/* Returns the pid of this fixture's gate; 0: none runs now. */
static pid_t gate_pid(const struct fixture *fixture)
{
    pid_t ret = 0;
    DIR *dir = opendir("/proc");
    CHECK(dir != NULL);
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        if (isdigit((unsigned char)e->d_name[0]) && parent_of(e->d_name) == fixture->pid)
            ret = atoi(e->d_name);
    }
    closedir(dir);
    return ret;
}

/* Returns a connection to gate/NAME, or -1. Blocking calls on it end after 2 s. */
static int peer_connect(const struct fixture *fixture, const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%.80s/gate/%s",
             fixture->runtime, name);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    struct timeval limit = {.tv_sec = 2};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
        return fd;
    close(fd);
    return -1;
}

static bool read_all(int fd, void *buf, size_t n)
{
    return n == 0 || recv(fd, buf, n, MSG_WAITALL) == (ssize_t)n;
}

static bool shake(int fd, int protocol)
{
    unsigned char ours[8] = {0, 'S', 'P', 0, 0, (unsigned char)protocol, 0, 0};
    unsigned char theirs[8];
    return send(fd, ours, 8, MSG_NOSIGNAL) == 8 && read_all(fd, theirs, 8) &&
           memcmp(theirs, "\0SP\0", 4) == 0;
}

/* Returns a connection after a handshake with that protocol; fails the test on error. */
static int peer_open(const struct fixture *fixture, const char *name, int protocol)
{
    int fd = peer_connect(fixture, name);
    if (fd < 0 || !shake(fd, protocol))
        FAIL("no gate at %s", name);
    return fd;
}

/* These transfer one SP message, and return false (-1) if the peer disconnected or sent
 * nothing in time. */
static bool peer_send(int fd, const void *bytes, size_t n)
{
    unsigned char head[9] = {1};
    uint64_t size = htobe64(n);
    memcpy(head + 1, &size, 8);
    return send(fd, head, 9, MSG_NOSIGNAL | MSG_MORE) == 9 &&
           send(fd, bytes, n, MSG_NOSIGNAL) == (ssize_t)n;
}

static long peer_recv(int fd, void *buf, size_t capacity)
{
    unsigned char head[9];
    uint64_t size;
    if (!read_all(fd, head, 9) || head[0] != 1)
        return -1;
    memcpy(&size, head + 1, 8);
    size = be64toh(size);
    return size <= capacity && read_all(fd, buf, size) ? (long)size : -1;
}

/* Gets a token for this user from attach.sock. */
static void gate_token(const struct fixture *fixture, unsigned char ret[STG_TOKEN_BYTES])
{
    struct stager *client;
    struct stg_err err = {0};
    struct stg_request request = {.kind = STG_REQUEST_NEW_TOKEN};
    struct stg_reply reply;
    if (stager_connect(fixture->runtime, &client) < 0)
        FAIL("connect: %s", stager_error_text(NULL));
    CHECK_OK(stg_admin_call(client, &request, &reply, &err), err);
    memcpy(ret, reply.token, STG_TOKEN_BYTES);
    stager_disconnect(client);
}

/* Makes one attempt. Returns the reply's bytes, or -1. */
static long exchange(struct fixture *fixture, const struct stg_request *request,
                     unsigned char *buf, size_t capacity)
{
    static unsigned char message[4 + STG_MESSAGE_MAX_BYTES];
    memcpy(message, "\x80\0\0\x07", 4); /* a request, and the last hop of its path */
    long n = stg_wire_encode_request(request, message + 4, STG_MESSAGE_MAX_BYTES);
    CHECK(n > 0);
    int fd = peer_connect(fixture, "admin.sock");
    if (fd < 0)
        return -1;
    long got = -1;
    if (shake(fd, PEER_REQ) && peer_send(fd, message, (size_t)n + 4))
        got = peer_recv(fd, buf, capacity);
    close(fd);
    CHECK(got < 0 || (got >= 4 && memcmp(buf, message, 4) == 0));
    return got;
}

/* Sends a request through the gate and retries with new connections while it is down (10
 * s). Returns the reply's code, its text in err. request->token is used unchanged. */
static int gate_ask(struct fixture *fixture, struct stg_request *request,
                    struct stg_reply *ret, struct stg_err *err)
{
    static unsigned char buf[4 + STG_MESSAGE_MAX_BYTES];
    static struct stg_bump bump;
    int64_t deadline = now_millis() + fixture_millis(10000);
    long n;
    while ((n = exchange(fixture, request, buf, sizeof(buf))) < 0) {
        if (now_millis() > deadline)
            FAIL("the gate does not answer");
        poll(NULL, 0, 5);
    }
    stg_bump_finish(&bump);
    bump = (struct stg_bump){0};
    CHECK_OK(stg_wire_decode_reply(buf + 4, (size_t)n - 4, &bump, ret, err), *err);
    return ret->code == 0 ? 0 : stg_err(err, ret->code, "%s", ret->text);
}

/* Waits until a gate other than `old` answers; fails the test after millis. Returns the
 * time taken. */
static int64_t gate_wait(struct fixture *fixture, pid_t old, int64_t millis)
{
    int64_t began = now_millis();
    pid_t pid;
    while ((pid = gate_pid(fixture)) == 0 || pid == old) {
        if (now_millis() - began > fixture_millis(millis))
            FAIL("no new gate after %lld ms", (long long)millis);
        poll(NULL, 0, 5);
    }
    struct stg_request request = {.kind = STG_REQUEST_LIST};
    struct stg_reply reply;
    struct stg_err err = {0};
    CHECK_INT(gate_ask(fixture, &request, &reply, &err), -STAGER_UNAUTHENTICATED);
    int64_t took = now_millis() - began;
    CHECK(took <= fixture_millis(millis));
    return took;
}

/* ---- attacks, while a trainer streams ---- */

struct scene {
    struct fixture fixture;
    struct stager_stream *stream;
    pid_t gate;
};

static void scene_begin(struct scene *scene)
{
    fixture_start(&scene->fixture, "");
    fixture_apply_endless(&scene->fixture, "capacity: 2");
    scene->stream = fixture_open(&scene->fixture, "rows", "trainer", 2);
    stager_release(fixture_take(scene->stream));
    gate_wait(&scene->fixture, 0, 10000);
    scene->gate = gate_pid(&scene->fixture);
}

/* Checks that the trainer was not affected. */
static void scene_end(struct scene *scene)
{
    struct fixture_status status;
    for (int i = 0; i < 50; i++) {
        struct stager_batch *batch = fixture_take(scene->stream);
        fixture_check_pad(batch);
        stager_release(batch);
    }
    fixture_status(&scene->fixture, "rows", &status);
    CHECK_INT(status.lost + status.redelivered + status.dropped + status.errors, 0);
    stager_close(scene->stream);
    fixture_finish(&scene->fixture);
}

static void a_wrong_frame_type_costs_one_gate_and_no_batch(void)
{
    struct scene scene;
    scene_begin(&scene);
    for (int i = 0; i < 3; i++) {
        pid_t old = gate_pid(&scene.fixture);
        int fd = peer_open(&scene.fixture, "admin.sock", PEER_REQ);
        CHECK(send(fd, "\x02\0\0\0\0\0\0\0\1", 9, MSG_NOSIGNAL) == 9);
        printf("    back after %lld ms\n",
               (long long)gate_wait(&scene.fixture, old, 1000));
        close(fd);
    }
    scene_end(&scene);
}

static void a_huge_length_is_dropped(void)
{
    struct scene scene;
    scene_begin(&scene);
    static const char *const heads[] = {"\x01\x40\0\0\0\0\0\0\0",
                                        "\x01\0\0\0\0\0\x01\0\x01",
                                        "\x01\xff\xff\xff\xff\xff\xff\xff\xff"};
    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        char byte;
        int fd = peer_open(&scene.fixture, "admin.sock", PEER_REQ);
        CHECK(send(fd, heads[i], 9, MSG_NOSIGNAL) == 9);
        ssize_t n = recv(fd, &byte, 1, 0);
        CHECK(n == 0 || (n < 0 && errno == ECONNRESET));
        close(fd);
    }
    CHECK_INT(gate_pid(&scene.fixture), scene.gate);
    gate_wait(&scene.fixture, 0, 1000);
    scene_end(&scene);
}

static void send_descriptors(int fd, int n)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * 64)];
    } control = {0};
    char byte = 0;
    struct iovec iov = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)n)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)n);
    for (int i = 0; i < n; i++)
        memcpy(CMSG_DATA(header) + (size_t)i * sizeof(int), &fd, sizeof(int));
    (void)!sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static int count_descriptors(pid_t pid)
{
    char path[64];
    int n = 0;
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    while (dir != NULL && readdir(dir) != NULL)
        n++;
    if (dir != NULL)
        closedir(dir);
    return n;
}

static void a_flood_of_descriptors_ends_with_the_gate(void)
{
    struct scene scene;
    scene_begin(&scene);
    /* Each message leaks all its descriptors except one: 1024 are soon used up. */
    for (int i = 0; i < 200 && gate_pid(&scene.fixture) == scene.gate; i++) {
        int fd = peer_connect(&scene.fixture, "admin.sock");
        if (fd < 0)
            break;
        send_descriptors(fd, 50);
        close(fd);
    }
    printf("    back after %lld ms\n",
           (long long)gate_wait(&scene.fixture, scene.gate, 2000));
    CHECK(count_descriptors(gate_pid(&scene.fixture)) < 100);
    scene_end(&scene);
}

static void endless_connections_do_not_block_the_endpoint(void)
{
    enum { N = 900 };
    struct scene scene;
    scene_begin(&scene);
    int fds[N], n = 0;
    while (n < N && (fds[n] = peer_connect(&scene.fixture, "events.sock")) >= 0)
        n++;
    for (int i = 0; i < n; i++)
        close(fds[i]);
    gate_wait(&scene.fixture, 0, 3000);
    scene_end(&scene);
}

static void a_killed_gate_is_back_within_a_second(void)
{
    struct scene scene;
    scene_begin(&scene);
    for (int i = 0; i < 3; i++) {
        pid_t old = gate_pid(&scene.fixture);
        kill(old, SIGKILL);
        printf("    back after %lld ms\n",
               (long long)gate_wait(&scene.fixture, old, 1000));
    }
    scene_end(&scene);
}

static void a_stopped_gate_does_not_hold_up_the_daemon(void)
{
    struct scene scene;
    scene_begin(&scene);
    kill(scene.gate, SIGSTOP);
    int64_t worst = 0;
    for (int i = 0; i < 600; i++) { /* more events than its socket holds */
        int64_t began = now_millis();
        struct stg_err err = {0};
        CHECK_OK(fixture_try_apply(&scene.fixture, i % 2 ? small : other, true, &err),
                 err);
        int64_t took = now_millis() - began;
        worst = took > worst ? took : worst;
        if (i % 100 == 0)
            stager_release(fixture_take(scene.stream));
    }
    printf("    worst apply %lld ms\n", (long long)worst);
    CHECK(worst < fixture_millis(10000)); /* an apply waits for the disk */
    kill(scene.gate, SIGCONT);
    gate_wait(&scene.fixture, 0, 10000);
    scene_end(&scene);
}

/* ---- lifetime ---- */

static void wait_for_end(pid_t pid)
{
    int64_t deadline = now_millis() + fixture_millis(5000);
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd/0", (int)pid);
    while (access(path, F_OK) == 0 || errno == EACCES) {
        if (now_millis() > deadline)
            FAIL("gate %d lives on", (int)pid);
        poll(NULL, 0, 2);
    }
}

static void stagerd_leaves_no_gate_behind(void)
{
    struct fixture fixture;
    char folder[160];
    fixture_start(&fixture, "");
    snprintf(folder, sizeof(folder), "%s/gate", fixture.runtime);
    gate_wait(&fixture, 0, 10000);
    pid_t gate = gate_pid(&fixture);
    fixture_stop(&fixture);
    wait_for_end(gate);
    CHECK(access(folder, F_OK) < 0);

    fixture_restart(&fixture);
    gate_wait(&fixture, gate, 10000);
    gate = gate_pid(&fixture);
    fixture_kill(&fixture);
    wait_for_end(gate);

    fixture_restart(&fixture); /* on the socket files of the dead one */
    gate_wait(&fixture, gate, 10000);
    fixture_finish(&fixture);
}

static void a_disabled_gate_is_not_started(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "gate: {enable: false}\n");
    CHECK_INT(gate_pid(&fixture), 0);
    struct stager *client;
    struct stg_err err = {0};
    struct stg_request request = {.kind = STG_REQUEST_NEW_TOKEN};
    struct stg_reply reply;
    CHECK_INT(stager_connect(fixture.runtime, &client), 0);
    CHECK_INT(stg_admin_call(client, &request, &reply, &err),
              -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(err.text, "gate: {enable: true}");
    stager_disconnect(client);
    fixture_finish(&fixture);
}

/* ---- requests ---- */

struct asker {
    struct fixture fixture;
    unsigned char token[STG_TOKEN_BYTES];
    struct stg_reply reply;
    struct stg_err err;
};

static void asker_begin(struct asker *asker)
{
    *asker = (struct asker){0};
    fixture_start(&asker->fixture, "");
    gate_token(&asker->fixture, asker->token);
}

static int ask(struct asker *asker, struct stg_request request)
{
    if (request.token == NULL) {
        request.token = asker->token;
        request.token_bytes = sizeof(asker->token);
    }
    return gate_ask(&asker->fixture, &request, &asker->reply, &asker->err);
}

static struct stg_request change(const char *text, const char *id)
{
    return (struct stg_request){.kind =
                                    text != NULL ? STG_REQUEST_APPLY : STG_REQUEST_DELETE,
                                .text = text,
                                .text_bytes = text != NULL ? strlen(text) : 0,
                                .name = text != NULL ? NULL : "small",
                                .request_id = id,
                                .request_id_bytes = id != NULL ? strlen(id) : 0};
}

static struct stg_request about(enum stg_request_kind kind)
{
    return (struct stg_request){.kind = kind, .name = "small", .max_in_flight = 2};
}

static void what_attach_sock_answers_the_gate_answers(void)
{
    struct asker a;
    asker_begin(&a);
    struct stg_request check = change(small, NULL);
    check.kind = STG_REQUEST_CHECK;
    CHECK_OK(ask(&a, check), a.err);
    CHECK_STR(a.reply.name, "small");
    CHECK_OK(ask(&a, change(small, "1")), a.err);
    CHECK_INT(a.reply.generation, 1);
    CHECK_OK(ask(&a, about(STG_REQUEST_LIST)), a.err);
    CHECK_INT(a.reply.n_entries, 1);
    uint64_t pipeline = a.reply.entries[0].pipeline;
    CHECK(pipeline != 0);
    CHECK_OK(ask(&a, about(STG_REQUEST_STATUS)), a.err);
    CHECK(a.reply.status.pipeline == pipeline);
    struct stg_request hello = {.kind = STG_REQUEST_HELLO,
                                .min_version = STG_PROTOCOL_MIN,
                                .max_version = STG_PROTOCOL_MAX};
    CHECK_OK(ask(&a, hello), a.err);
    CHECK_INT(a.reply.pid, a.fixture.pid);
    hello.min_version = hello.max_version = 99;
    CHECK_INT(ask(&a, hello), -STAGER_FAILED_PRECONDITION);
    CHECK_OK(ask(&a, change(NULL, "2")), a.err);
    CHECK_INT(ask(&a, about(STG_REQUEST_STATUS)), -STAGER_NOT_FOUND);
    fixture_finish(&a.fixture);
}

static void what_needs_descriptors_is_refused(void)
{
    struct asker a;
    asker_begin(&a);
    CHECK_INT(ask(&a, about(STG_REQUEST_OPEN)), -STAGER_UNIMPLEMENTED);
    CHECK_CONTAINS(a.err.text, "attach.sock");
    CHECK_INT(ask(&a, about(STG_REQUEST_FEED)), -STAGER_UNIMPLEMENTED);
    CHECK_INT(ask(&a, about(STG_REQUEST_TRACE)), -STAGER_UNIMPLEMENTED);
    CHECK_INT(ask(&a, about(STG_REQUEST_TAP)), -STAGER_UNIMPLEMENTED);
    CHECK_INT(ask(&a, about(STG_REQUEST_DRAIN)), -STAGER_PERMISSION_DENIED);
    CHECK_INT(ask(&a, about(STG_REQUEST_NEW_TOKEN)), -STAGER_PERMISSION_DENIED);
    fixture_finish(&a.fixture);
}

static void an_invalid_token_is_refused(void)
{
    struct asker a;
    asker_begin(&a);
    struct stg_request list = about(STG_REQUEST_LIST);
    CHECK_INT(gate_ask(&a.fixture, &list, &a.reply, &a.err), -STAGER_UNAUTHENTICATED);
    CHECK_CONTAINS(a.err.text, "stagerctl token");
    for (size_t bytes = 0; bytes <= STG_TOKEN_BYTES; bytes += 8) {
        unsigned char wrong[STG_TOKEN_BYTES];
        memcpy(wrong, a.token, sizeof(wrong));
        wrong[31] ^= 1;
        list.token = wrong;
        list.token_bytes = bytes;
        CHECK_INT(ask(&a, list), -STAGER_UNAUTHENTICATED);
    }
    CHECK_OK(ask(&a, about(STG_REQUEST_LIST)), a.err);
    fixture_stop(&a.fixture);
    fixture_restart(&a.fixture);
    CHECK_INT(ask(&a, about(STG_REQUEST_LIST)), -STAGER_UNAUTHENTICATED);
    fixture_finish(&a.fixture);
}

static void stranger_body(struct fixture *fixture, int fd, void *arg)
{
    unsigned char token[STG_TOKEN_BYTES];
    CHECK(setresgid(4242, 4242, 4242) == 0 && setresuid(4242, 4242, 4242) == 0);
    gate_token(fixture, token);
    CHECK(write(fd, token, sizeof(token)) == (ssize_t)sizeof(token));
}

static void a_strangers_token_opens_what_is_the_strangers(void)
{
    if (geteuid() != 0)
        SKIP("only root can change the user");
    struct asker a;
    asker_begin(&a);
    CHECK_OK(ask(&a, change(small, "1")), a.err);
    char path[160];
    snprintf(path, sizeof(path), "%s/attach.sock", a.fixture.runtime);
    CHECK(chmod(path, 0666) == 0 && chmod(a.fixture.dir, 0755) == 0);
    struct trainer stranger;
    trainer_start(&stranger, stranger_body, &a.fixture, NULL);
    CHECK(recv(stranger.fd, a.token, sizeof(a.token), MSG_WAITALL) ==
          (ssize_t)sizeof(a.token));
    trainer_join(&stranger);
    CHECK_OK(ask(&a, about(STG_REQUEST_LIST)), a.err);
    CHECK_INT(a.reply.n_entries, 0);
    CHECK_INT(ask(&a, change(NULL, "2")), -STAGER_PERMISSION_DENIED);
    CHECK_INT(ask(&a, change(other, "3")), -STAGER_PERMISSION_DENIED);
    gate_token(&a.fixture, a.token);
    CHECK_OK(ask(&a, about(STG_REQUEST_STATUS)), a.err);
    fixture_finish(&a.fixture);
}

static void a_change_that_is_sent_again_is_done_once(void)
{
    struct asker a;
    asker_begin(&a);
    CHECK_INT(ask(&a, change(small, NULL)), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(a.err.text, "request_id");
    CHECK_OK(ask(&a, change(small, "first")), a.err);
    CHECK_OK(ask(&a, change(NULL, "second")), a.err);
    CHECK_OK(ask(&a, change(small, "first")), a.err);
    CHECK_INT(a.reply.generation, 1);
    CHECK_INT(ask(&a, about(STG_REQUEST_STATUS)), -STAGER_NOT_FOUND);
    CHECK_INT(ask(&a, change(other, "first")), -STAGER_INVALID_ARGUMENT);
    CHECK_OK(ask(&a, change(small, "third")), a.err);
    /* The new gate starts without state. */
    pid_t old = gate_pid(&a.fixture);
    kill(old, SIGKILL);
    gate_wait(&a.fixture, old, 1000);
    CHECK_OK(ask(&a, change(NULL, "second")), a.err);
    CHECK_OK(ask(&a, about(STG_REQUEST_STATUS)), a.err);
    fixture_finish(&a.fixture);
}

static void a_change_of_another_generation_is_not_done(void)
{
    struct asker a;
    asker_begin(&a);
    struct stg_request request = change(small, "1");
    request.has_if_generation = true;
    request.if_generation = 1;
    CHECK_INT(ask(&a, request), -STAGER_ABORTED);
    request = change(small, "2");
    request.has_if_generation = true;
    CHECK_OK(ask(&a, request), a.err);
    request = change(other, "3");
    request.has_if_generation = true;
    request.if_generation = 7;
    CHECK_INT(ask(&a, request), -STAGER_ABORTED);
    CHECK_CONTAINS(a.err.text, "if_generation is 7");
    CHECK_CONTAINS(a.err.text, "at generation 1");
    request.request_id = "4";
    request.if_generation = 1;
    CHECK_OK(ask(&a, request), a.err);
    CHECK_INT(a.reply.generation, 2);
    request = change(NULL, "5");
    request.has_if_generation = true;
    request.if_generation = 1;
    CHECK_INT(ask(&a, request), -STAGER_ABORTED);
    request.request_id = "6";
    request.if_generation = 2;
    CHECK_OK(ask(&a, request), a.err);
    fixture_finish(&a.fixture);
}

static void a_rollback_that_is_sent_again_is_done_once(void)
{
    struct asker a;
    asker_begin(&a);
    struct stg_request request = about(STG_REQUEST_ROLLBACK);
    CHECK_INT(ask(&a, request), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(a.err.text, "rollback need a request_id");
    CHECK_OK(ask(&a, change(small, "1")), a.err);
    struct stg_request replace = change(other, "2");
    replace.replace = true;
    CHECK_OK(ask(&a, replace), a.err);
    request.request_id = "3";
    request.request_id_bytes = 1;
    for (int i = 0; i < 2; i++) {
        CHECK_OK(ask(&a, request), a.err);
        CHECK_INT(a.reply.generation, 3);
        CHECK_INT(a.reply.restored, 1);
    }
    request.generation = 2;
    CHECK_INT(ask(&a, request), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(a.err.text, "belongs to another change");
    CHECK_OK(ask(&a, about(STG_REQUEST_VERSIONS)), a.err);
    CHECK_INT(a.reply.n_versions, 3);
    request.request_id = "4";
    request.warm = true;
    CHECK_INT(ask(&a, request), -STAGER_UNIMPLEMENTED);
    CHECK_CONTAINS(a.err.text, "--warm`, without --gate");
    fixture_finish(&a.fixture);
}

/* ---- events ---- */

/* Returns the next event that is no repeat; sequences have no gap. */
static struct stg_event next_event(int fd, uint64_t *sequence)
{
    char buf[256];
    for (int i = 0; i < 100; i++) {
        struct stg_event event;
        struct stg_err err = {0};
        long n = peer_recv(fd, buf, sizeof(buf));
        CHECK(n > 0);
        CHECK_OK(stg_wire_decode_event(buf, (size_t)n, &event, &err), err);
        if (event.sequence <= *sequence)
            continue;
        if (*sequence != 0)
            CHECK_INT(event.sequence, *sequence + 1);
        *sequence = event.sequence;
        return event;
    }
    FAIL("only repeats");
}

static void events_are_reported_in_order_without_a_gap(void)
{
    static const enum stg_event_kind kinds[] = {
        STG_EVENT_APPLIED,  STG_EVENT_ATTACHED, STG_EVENT_STARTED, STG_EVENT_ENDED,
        STG_EVENT_DETACHED, STG_EVENT_STOPPED,  STG_EVENT_DELETED};
    struct asker a;
    asker_begin(&a);
    gate_wait(&a.fixture, 0, 10000);
    int fd = peer_open(&a.fixture, "events.sock", PEER_SUB);
    uint64_t sequence = 0, pipeline = 0;
    CHECK_INT(next_event(fd, &sequence).kind, STG_EVENT_GATE); /* a repeat of it */
    CHECK_OK(ask(&a, change(small, "1")), a.err);
    struct stager_stream *stream = NULL;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (kinds[i] == STG_EVENT_ATTACHED)
            stream = fixture_open(&a.fixture, "small", "trainer", 2);
        if (kinds[i] == STG_EVENT_ENDED) {
            struct stager_batch *batch;
            while (stager_next(stream, 10000, &batch) == 0)
                stager_release(batch);
        }
        if (kinds[i] == STG_EVENT_STARTED) {
            stager_release(fixture_take(stream));
        }
        if (kinds[i] == STG_EVENT_DETACHED)
            stager_close(stream);
        if (kinds[i] == STG_EVENT_DELETED)
            CHECK_OK(ask(&a, change(NULL, "2")), a.err);
        struct stg_event event = next_event(fd, &sequence);
        CHECK_STR(stg_event_name(event.kind), stg_event_name(kinds[i]));
        pipeline = pipeline == 0 ? event.pipeline : pipeline;
        CHECK(event.pipeline == pipeline && pipeline != 0);
    }
    close(fd);
    fixture_finish(&a.fixture);
}

static const struct stg_test tests[] = {
    TEST_SLOW(a_wrong_frame_type_costs_one_gate_and_no_batch, 40),
    TEST_SLOW(a_huge_length_is_dropped, 40),
    TEST_SLOW(a_flood_of_descriptors_ends_with_the_gate, 40),
    TEST_SLOW(endless_connections_do_not_block_the_endpoint, 60),
    TEST_SLOW(a_killed_gate_is_back_within_a_second, 40),
    TEST_SLOW(a_stopped_gate_does_not_hold_up_the_daemon, 60),
    TEST_SLOW(stagerd_leaves_no_gate_behind, 60),
    TEST(a_disabled_gate_is_not_started),
    TEST(what_attach_sock_answers_the_gate_answers),
    TEST(what_needs_descriptors_is_refused),
    TEST(an_invalid_token_is_refused),
    TEST(a_strangers_token_opens_what_is_the_strangers),
    TEST(a_change_that_is_sent_again_is_done_once),
    TEST(a_change_of_another_generation_is_not_done),
    TEST(a_rollback_that_is_sent_again_is_done_once),
    TEST_SLOW(events_are_reported_in_order_without_a_gap, 40),
};

TEST_MAIN(tests)
