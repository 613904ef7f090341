/* SPDX-License-Identifier: Apache-2.0
 *
 * stager-metrics: the metrics of stagerd over HTTP, on a Unix socket in runtime_dir, and
 * on an address of TCP if one is set. It goes on while stagerd is away.
 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/metrics/http.h"
#include "client/transport/socket.h"
#include "core/log.h"
#include "core/status.h"
#include "proto/load.h"

#define CONFIG_MAX_BYTES 65536
#define BACKLOG 64
#define DEFAULT_SECONDS 10
/* Free memory that the process retains. */
#define RETAINED_BYTES (8 << 20)
#define SOCKET_NAME "metrics.sock"
/* A part of the time of a connection: the reply has the rest. */
#define SCRAPE_SHARE 4

enum { LISTEN_UNIX, LISTEN_TCP, N_LISTEN };

struct options {
    const char *config, *runtime_dir, *listen, *socket;
    unsigned seconds;
};

struct server {
    struct stg_settings settings;
    bool has_settings;
    struct stg_origin origin;
    struct stg_scrape scrape;
    struct stg_api *api;
    struct stg_http *http;
    int listening[N_LISTEN]; /* -1: none */
    int signals;
    char socket_path[108];
};

static int fail(const struct stg_err *err)
{
    fprintf(stderr, "stager-metrics: %s: %s\n", stg_status_name(err->code), err->text);
    return 1;
}

/* ---- settings ---- */

static int load_settings(const char *path, struct stg_settings *ret, struct stg_err *err)
{
    static char text[CONFIG_MAX_BYTES + 1];
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return stg_err(err, -STAGER_NOT_FOUND, "%s: %s", path, strerror(errno));
    size_t n = fread(text, 1, sizeof(text), file);
    fclose(file);
    if (n > CONFIG_MAX_BYTES)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "%s: more than %d bytes", path,
                       CONFIG_MAX_BYTES);
    return stg_load_settings(text, n, path, ret, err);
}

/* Options win over the file. */
static int choose(struct server *server, struct options *options, struct stg_err *err)
{
    if (options->config == NULL)
        return 0;
    int rc = load_settings(options->config, &server->settings, err);
    if (rc < 0)
        return rc;
    server->has_settings = true;
    if (options->runtime_dir == NULL)
        options->runtime_dir = server->settings.runtime_dir;
    if (options->listen == NULL && server->settings.metrics_address[0] != '\0')
        options->listen = server->settings.metrics_address;
    return 0;
}

/* ---- sockets ---- */

static int refuse_listen(const char *where, struct stg_err *err)
{
    return stg_err(err, -STAGER_UNAVAILABLE, "cannot listen on %s: %s", where,
                   strerror(errno));
}

/* Beside attach.sock, unless another path is given. */
static int find_socket(const struct options *options, struct sockaddr_un *ret,
                       struct stg_err *err)
{
    int rc = stg_socket_find(options->runtime_dir, ret, err);
    char *name = rc == 0 ? strrchr(ret->sun_path, '/') + 1 : NULL;
    size_t room = rc == 0 ? sizeof(ret->sun_path) - (size_t)(name - ret->sun_path) : 0;
    if (rc < 0 && options->socket == NULL)
        return rc;
    *ret = options->socket != NULL ? (struct sockaddr_un){.sun_family = AF_UNIX} : *ret;
    size_t n = options->socket != NULL
                   ? (size_t)snprintf(ret->sun_path, sizeof(ret->sun_path), "%s",
                                      options->socket)
                   : (size_t)snprintf(name, room, SOCKET_NAME);
    return n < (options->socket != NULL ? sizeof(ret->sun_path) : room)
               ? 0
               : stg_err(err, -STAGER_INVALID_ARGUMENT,
                         "the path of " SOCKET_NAME " is longer than a socket allows");
}

/* Users of the group may read; one of a process that died is replaced. */
static int listen_unix(struct server *server, const struct options *options,
                       struct stg_err *err)
{
    struct sockaddr_un address;
    struct stat st;
    int rc = find_socket(options, &address, err);
    if (rc < 0)
        return rc;
    if (lstat(address.sun_path, &st) == 0 && S_ISSOCK(st.st_mode))
        unlink(address.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t before = umask(0117);
    rc = fd >= 0 ? bind(fd, (struct sockaddr *)&address, sizeof(address)) : -1;
    umask(before);
    if (rc == 0)
        snprintf(server->socket_path, sizeof(server->socket_path), "%s",
                 address.sun_path);
    server->listening[LISTEN_UNIX] = fd;
    return rc == 0 && listen(fd, BACKLOG) == 0 ? 0 : refuse_listen(address.sun_path, err);
}

static int listen_tcp(struct server *server, const char *text, struct stg_err *err)
{
    struct sockaddr_storage address;
    int on = 1;
    int rc = stg_load_address(text, &address, err);
    if (rc < 0)
        return rc;
    int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    server->listening[LISTEN_TCP] = fd;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
        bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        listen(fd, BACKLOG) < 0)
        return refuse_listen(text, err);
    return 0;
}

/* ---- life ---- */

/* It needs no rights of its own: neither a core, nor more than it has. */
static void confine(void)
{
    struct rlimit none = {0};
    setrlimit(RLIMIT_CORE, &none);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

/* A text of a megabyte or two is read and copied for each request. By default malloc maps
 * and unmaps its pages each time, which costs more than the copies. */
static void keep_memory(void)
{
    mallopt(M_MMAP_THRESHOLD, RETAINED_BYTES);
    mallopt(M_TRIM_THRESHOLD, RETAINED_BYTES);
}

static int watch_signals(struct server *server, struct stg_err *err)
{
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    server->signals = signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK);
    return server->signals >= 0
               ? 0
               : stg_err(err, -STAGER_INTERNAL, "signalfd: %s", strerror(errno));
}

static int start(struct server *server, struct options *options, struct stg_err *err)
{
    int64_t limit_ns = options->seconds * INT64_C(1000000000);
    int rc = choose(server, options, err);
    if (rc < 0)
        return rc;
    server->origin.runtime_dir = options->runtime_dir;
    server->origin.limit_ns = limit_ns / SCRAPE_SHARE;
    server->scrape.origin = &server->origin;
    server->api = stg_api_create(&server->scrape);
    if (server->api == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    rc = watch_signals(server, err);
    if (rc == 0)
        rc = stg_http_create(&server->scrape, server->api, limit_ns, &server->http, err);
    if (rc == 0)
        rc = listen_unix(server, options, err);
    if (rc == 0 && options->listen != NULL)
        rc = listen_tcp(server, options->listen, err);
    return rc;
}

static void finish(struct server *server)
{
    stg_http_destroy(server->http);
    stg_api_destroy(server->api);
    stg_scrape_finish(&server->scrape);
    for (size_t i = 0; i < N_LISTEN; i++) {
        if (server->listening[i] >= 0)
            close(server->listening[i]);
    }
    if (server->socket_path[0] != '\0')
        unlink(server->socket_path);
    if (server->signals >= 0)
        close(server->signals);
    if (server->has_settings)
        stg_settings_finish(&server->settings);
}

/* Milliseconds; -1: for ever. */
static int earlier(int a, int b)
{
    return a < 0 || (b >= 0 && b < a) ? b : a;
}

static void serve(struct server *server)
{
    for (;;) {
        int millis = stg_http_run(server->http);
        bool has_room = stg_http_has_room(server->http);
        struct pollfd fds[N_LISTEN + 2] = {
            {.fd = server->signals, .events = POLLIN},
            {.fd = stg_http_fd(server->http), .events = POLLIN}};
        for (size_t i = 0; i < N_LISTEN; i++)
            fds[2 + i] = (struct pollfd){.fd = has_room ? server->listening[i] : -1,
                                         .events = POLLIN};
        millis = earlier(millis, stg_api_run(server->api));
        if (poll(fds, N_LISTEN + 2, millis) < 0 && errno != EINTR)
            return;
        if (fds[0].revents != 0)
            return;
        for (size_t i = 0; i < N_LISTEN; i++) {
            if (fds[2 + i].revents != 0 && stg_http_has_room(server->http))
                stg_http_accept(server->http, server->listening[i]);
        }
    }
}

/* ---- options ---- */

static int usage(FILE *out)
{
    fprintf(
        out,
        "usage: stager-metrics [--config FILE] [--runtime-dir DIR] [--listen ADDRESS]\n"
        "                      [--socket PATH] [--timeout SECONDS]\n\n"
        "Serves the metrics of stagerd over HTTP: /metrics, /healthz, /readyz, "
        "/version;\nand at / a page for people.\n\n"
        "  --config FILE        takes runtime_dir and metrics_address of this "
        "stagerd.yaml\n"
        "  --runtime-dir DIR    where attach.sock is; the default is that of "
        "stagerctl\n"
        "  --listen ADDRESS     listens on TCP too, such as 127.0.0.1:9464\n"
        "  --socket PATH        the Unix socket; the default is metrics.sock in DIR\n"
        "  --timeout SECONDS    ends a connection after that time (10)\n"
        "  --version, --help\n");
    return out == stdout ? 0 : 2;
}

static bool read_seconds(const char *text, unsigned *ret)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || n < 1 || n > 3600)
        return false;
    *ret = (unsigned)n;
    return true;
}

/* -1: goes on; else the exit status. */
static int read_options(int argc, char **argv, struct options *ret)
{
    static const struct option names[] = {{"config", required_argument, NULL, 'c'},
                                          {"runtime-dir", required_argument, NULL, 'd'},
                                          {"listen", required_argument, NULL, 'l'},
                                          {"socket", required_argument, NULL, 's'},
                                          {"timeout", required_argument, NULL, 't'},
                                          {"version", no_argument, NULL, 'v'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    int letter;
    while ((letter = getopt_long(argc, argv, "h", names, NULL)) != -1) {
        switch (letter) {
        case 'c': ret->config = optarg; break;
        case 'd': ret->runtime_dir = optarg; break;
        case 'l': ret->listen = optarg; break;
        case 's': ret->socket = optarg; break;
        case 't':
            if (!read_seconds(optarg, &ret->seconds))
                return usage(stderr);
            break;
        case 'v': return printf("stager-metrics %s\n", STAGER_RELEASE) < 0;
        case 'h': return usage(stdout);
        default: return usage(stderr);
        }
    }
    return optind == argc ? -1 : usage(stderr);
}

int main(int argc, char **argv)
{
    struct options options = {.seconds = DEFAULT_SECONDS};
    struct server server = {.listening = {-1, -1}, .signals = -1};
    struct stg_err err = {0};
    stg_log_fill_standard();
    keep_memory();
    int status = read_options(argc, argv, &options);
    if (status >= 0)
        return status;
    confine();
    int rc = start(&server, &options, &err);
    if (rc == 0)
        serve(&server);
    finish(&server);
    return rc < 0 ? fail(&err) : 0;
}
