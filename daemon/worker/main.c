/* SPDX-License-Identifier: Apache-2.0
 *
 * stager-worker: the HTTP of `stagerd --worker`, which starts it. It asks stagerd for
 * batches on descriptor 3 and sends their memory.
 */
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/net/address.h"
#include "core/status.h"
#include "daemon/worker/frame.h"
#include "daemon/worker/http.h"
#include "proto/load.h"

#define BACKLOG 128
#define FILE_BYTES 65536
#define TOKEN_LEAST_BYTES 16
/* Requests in work have so long after SIGTERM. */
#define DRAIN_NS 20000000000u

struct options {
    const char *listen, *token_file, *certificate, *key, *zone;
};

struct server {
    struct stg_worker_http *http;
    char *token, *certificate, *key;
    int listening, signals;
    uint64_t until_ns; /* of draining; 0: it serves */
};

static int fail(const struct stg_err *err)
{
    fprintf(stderr, "stager-worker: %s: %s\n", stg_status_name(err->code), err->text);
    return 1;
}

/* ---- files ---- */

static int read_file(const char *path, char **ret, struct stg_err *err)
{
    char *text = calloc(1, FILE_BYTES + 1);
    FILE *file = text != NULL ? fopen(path, "re") : NULL;
    if (file == NULL) {
        free(text);
        return stg_err(err, -STAGER_NOT_FOUND, "%s: %s", path, strerror(errno));
    }
    size_t n = fread(text, 1, FILE_BYTES + 1, file);
    fclose(file);
    if (n > FILE_BYTES) {
        free(text);
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "%s: more than %d bytes", path,
                       FILE_BYTES);
    }
    *ret = text;
    return 0;
}

static int read_token(const char *path, char **ret, struct stg_err *err)
{
    int rc = read_file(path, ret, err);
    if (rc < 0)
        return rc;
    char *token = *ret;
    size_t n = strcspn(token, "\r\n");
    bool good = token[n + strspn(token + n, "\r\n")] == '\0';
    token[n] = '\0';
    for (size_t i = 0; i < n; i++)
        good = good && token[i] > ' ' && token[i] < 127;
    if (good && n >= TOKEN_LEAST_BYTES)
        return 0;
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "%s: a token is one line of at least %d printable characters without "
                   "spaces",
                   path, TOKEN_LEAST_BYTES);
}

static int read_files(struct server *server, const struct options *options,
                      struct stg_err *err)
{
    int rc = 0;
    if ((options->certificate == NULL) != (options->key == NULL))
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "--tls-cert and --tls-key need each other");
    if (options->token_file != NULL)
        rc = read_token(options->token_file, &server->token, err);
    if (rc == 0 && options->certificate != NULL)
        rc = read_file(options->certificate, &server->certificate, err);
    if (rc == 0 && options->key != NULL)
        rc = read_file(options->key, &server->key, err);
    return rc;
}

/* ---- sockets ---- */

/* Port 0 is any free one, which the log names. */
static int read_address(const char *text, struct sockaddr_storage *ret,
                        struct stg_err *err)
{
    char other[128];
    size_t n = strlen(text);
    if (n < 2 || n >= sizeof(other) || strcmp(text + n - 2, ":0") != 0)
        return stg_load_address(text, ret, err);
    snprintf(other, sizeof(other), "%.*s1", (int)n - 1, text);
    int rc = stg_load_address(other, ret, err);
    if (rc == 0)
        ((struct sockaddr_in *)(void *)ret)->sin_port = 0; /* sin6_port lies there too */
    return rc;
}

static int start_listening(struct server *server, const struct options *options,
                           struct stg_err *err)
{
    struct sockaddr_storage address;
    socklen_t bytes = sizeof(address);
    int on = 1;
    int rc = read_address(options->listen, &address, err);
    if (rc < 0)
        return rc;
    if (!stg_address_is_loopback(&address) && server->token == NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "--listen %s: other hosts can ask there: add --token-file",
                       options->listen);
    int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    server->listening = fd;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
        bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        listen(fd, BACKLOG) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &bytes) < 0)
        return stg_err(err, -STAGER_UNAVAILABLE, "cannot listen on %s: %s",
                       options->listen, strerror(errno));
    fprintf(stderr, "stager-worker: listens on %s, port %u\n", options->listen,
            ntohs(((struct sockaddr_in *)(void *)&address)->sin_port));
    return 0;
}

/* ---- life ---- */

static void confine(void)
{
    struct rlimit none = {0};
    setrlimit(RLIMIT_CORE, &none);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    signal(SIGPIPE, SIG_IGN);
}

static int watch_signals(struct server *server, struct stg_err *err)
{
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    server->signals = signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK);
    return server->signals >= 0
               ? 0
               : stg_err(err, -STAGER_INTERNAL, "signalfd: %s", strerror(errno));
}

static int start(struct server *server, const struct options *options,
                 struct stg_err *err)
{
    int rc = read_files(server, options, err);
    struct stg_worker_http_config config = {.token = server->token,
                                            .certificate = server->certificate,
                                            .key = server->key,
                                            .zone = options->zone,
                                            .fd = STG_WORKER_FD};
    if (rc == 0)
        rc = watch_signals(server, err);
    if (rc == 0)
        rc = stg_worker_http_create(&config, &server->http, err);
    return rc == 0 ? start_listening(server, options, err) : rc;
}

static void finish(struct server *server)
{
    stg_worker_http_destroy(server->http);
    if (server->listening >= 0)
        close(server->listening);
    if (server->signals >= 0)
        close(server->signals);
    free(server->token);
    free(server->certificate);
    free(server->key);
}

static void drain(struct server *server)
{
    stg_worker_http_drain(server->http);
    if (server->until_ns == 0)
        server->until_ns = stg_now_ns() + DRAIN_NS;
}

/* Returns false when stagerd has ended. */
static bool take_one(struct server *server)
{
    static char text[STG_WORKER_TEXT_BYTES];
    struct stg_worker_answer answer;
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec parts[] = {{&answer, sizeof(answer)}, {text, sizeof(text) - 1}};
    struct msghdr message = {.msg_iov = parts,
                             .msg_iovlen = 2,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    int fd = -1;
    ssize_t n = recvmsg(STG_WORKER_FD, &message, MSG_CMSG_CLOEXEC);
    if (n < (ssize_t)sizeof(answer))
        return n < 0 && errno == EINTR;
    text[(size_t)n - sizeof(answer)] = '\0';
    if (message.msg_controllen >= CMSG_LEN(sizeof(int)))
        memcpy(&fd, CMSG_DATA(&control.header), sizeof(fd));
    if (answer.kind == STG_WORKER_DRAIN)
        drain(server);
    else
        stg_worker_http_answer(server->http, &answer, text, fd);
    if (fd >= 0)
        close(fd);
    return true;
}

static bool is_over(const struct server *server)
{
    return server->until_ns != 0 &&
           (stg_worker_http_drain(server->http) == 0 || stg_now_ns() >= server->until_ns);
}

/* Milliseconds; while it drains, it looks at the clock. */
static int pause_of(const struct server *server, int millis)
{
    enum { DRAIN_MILLIS = 100 };
    return server->until_ns != 0 && (millis < 0 || millis > DRAIN_MILLIS) ? DRAIN_MILLIS
                                                                          : millis;
}

static int serve(struct server *server)
{
    while (!is_over(server)) {
        int millis = stg_worker_http_run(server->http);
        struct pollfd fds[] = {
            {.fd = STG_WORKER_FD, .events = POLLIN},
            {.fd = server->signals, .events = POLLIN},
            {.fd = stg_worker_http_fd(server->http), .events = POLLIN},
            {.fd = stg_worker_http_has_room(server->http) ? server->listening : -1,
             .events = POLLIN}};
        if (poll(fds, 4, pause_of(server, millis)) < 0 && errno != EINTR)
            return 1;
        if (fds[0].revents != 0 && !take_one(server))
            return 1;
        if (fds[1].revents != 0)
            drain(server);
        if (fds[3].revents != 0)
            stg_worker_http_accept(server->http, server->listening);
    }
    return 0;
}

static bool read_options(int argc, char **argv, struct options *ret)
{
    static const struct option names[] = {{"listen", required_argument, NULL, 'l'},
                                          {"token-file", required_argument, NULL, 't'},
                                          {"tls-cert", required_argument, NULL, 'c'},
                                          {"tls-key", required_argument, NULL, 'k'},
                                          {"zone", required_argument, NULL, 'z'},
                                          {NULL, 0, NULL, 0}};
    int letter;
    while ((letter = getopt_long(argc, argv, "", names, NULL)) != -1) {
        switch (letter) {
        case 'l': ret->listen = optarg; break;
        case 't': ret->token_file = optarg; break;
        case 'c': ret->certificate = optarg; break;
        case 'k': ret->key = optarg; break;
        case 'z': ret->zone = optarg; break;
        default: return false;
        }
    }
    return optind == argc && ret->listen != NULL;
}

int main(int argc, char **argv)
{
    struct options options = {0};
    struct server server = {.listening = -1, .signals = -1};
    struct stg_err err = {0};
    stg_log_fill_standard();
    if (!read_options(argc, argv, &options)) {
        fprintf(stderr, "stager-worker is a part of stagerd: see stagerd --worker\n");
        return 2;
    }
    confine();
    int rc = start(&server, &options, &err);
    int status = rc < 0 ? fail(&err) : serve(&server);
    finish(&server);
    return status;
}
