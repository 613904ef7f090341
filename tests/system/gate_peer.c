/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/system/gate_peer.h"

#include <ctype.h>
#include <dirent.h>
#include <endian.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/check.h"

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

pid_t gate_pid(const struct fixture *fixture)
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

int peer_connect(const struct fixture *fixture, const char *name)
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

int peer_open(const struct fixture *fixture, const char *name, int protocol)
{
    int fd = peer_connect(fixture, name);
    if (fd < 0 || !shake(fd, protocol))
        FAIL("no gate at %s", name);
    return fd;
}

bool peer_send(int fd, const void *bytes, size_t n)
{
    unsigned char head[9] = {1};
    uint64_t size = htobe64(n);
    memcpy(head + 1, &size, 8);
    return send(fd, head, 9, MSG_NOSIGNAL | MSG_MORE) == 9 &&
           send(fd, bytes, n, MSG_NOSIGNAL) == (ssize_t)n;
}

long peer_recv(int fd, void *buf, size_t capacity)
{
    unsigned char head[9];
    uint64_t size;
    if (!read_all(fd, head, 9) || head[0] != 1)
        return -1;
    memcpy(&size, head + 1, 8);
    size = be64toh(size);
    return size <= capacity && read_all(fd, buf, size) ? (long)size : -1;
}

void gate_token(const struct fixture *fixture, unsigned char ret[STG_TOKEN_BYTES])
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

int gate_ask(struct fixture *fixture, struct stg_request *request, struct stg_reply *ret,
             struct stg_err *err)
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

int64_t gate_wait(struct fixture *fixture, pid_t old, int64_t millis)
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
