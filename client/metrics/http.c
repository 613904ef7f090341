/* SPDX-License-Identifier: Apache-2.0 */
#include "client/metrics/http.h"

#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/metrics/accept.h"
#include "client/metrics/host.h"
#include "client/metrics/page.h"
#include "core/clock.h"
#include "core/net/address.h"
#include "core/status.h"

/* A request line and its headers: longer ones are refused by the library. */
#define REQUEST_BYTES 8192u
#define TEXT_TYPE "text/plain; charset=utf-8"
#define PROMETHEUS_TYPE "text/plain; version=0.0.4; charset=utf-8"
#define OPEN_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"
#define JSON_TYPE "application/json"
#define HTML_TYPE "text/html; charset=utf-8"
/* How long a text of stagerd serves. */
#define FRESH_NS 200000000

struct connection {
    int fd; /* -1: none */
    uint64_t due_ns;
};

struct stg_http {
    struct MHD_Daemon *daemon;
    struct stg_scrape *scrape;
    struct stg_api *api;
    uint64_t limit_ns;
    int epoll_fd; /* the daemon's */
    unsigned n;
    struct connection all[STG_HTTP_CONNECTIONS];
};

/* What is sent for a page. */
struct page {
    unsigned status;
    const char *type;
    const char *text; /* copied */
    size_t bytes;
    bool only_get;  /* the answer to another method */
    bool is_static; /* text is not copied */
};

/* ---- pages ---- */

static struct page text_page(unsigned status, const char *text)
{
    return (struct page){
        .status = status, .type = TEXT_TYPE, .text = text, .bytes = strlen(text)};
}

static struct page unavailable(const struct stg_err *err, char *buf, size_t bytes)
{
    snprintf(buf, bytes, "stagerd does not answer: %s: %s\n", stg_status_name(err->code),
             err->text);
    return text_page(MHD_HTTP_SERVICE_UNAVAILABLE, buf);
}

static struct page metrics_page(struct stg_http *http, struct MHD_Connection *connection,
                                char *buf, size_t bytes)
{
    struct stg_err err;
    const struct stg_scrape_text *text;
    bool is_open = stg_metrics_wants_open(
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Accept"));
    if (stg_scrape_get(http->scrape, is_open, FRESH_NS, &text, &err) < 0)
        return unavailable(&err, buf, bytes);
    return (struct page){.status = MHD_HTTP_OK,
                         .type = is_open ? OPEN_TYPE : PROMETHEUS_TYPE,
                         .text = text->text,
                         .bytes = text->bytes};
}

static struct page ready_page(struct stg_http *http, char *buf, size_t bytes)
{
    struct stg_err err;
    const struct stg_scrape_text *text;
    static const char drains[] = "\nstager_draining 1\n";
    if (stg_scrape_get(http->scrape, false, FRESH_NS, &text, &err) < 0)
        return unavailable(&err, buf, bytes);
    if (memmem(text->text, text->bytes, drains, sizeof(drains) - 1) != NULL)
        return text_page(MHD_HTTP_SERVICE_UNAVAILABLE, "stagerd is draining\n");
    return text_page(MHD_HTTP_OK, "ready\n");
}

/* Releases have no characters that JSON escapes. */
static struct page version_page(struct stg_http *http, char *buf, size_t bytes)
{
    struct stg_err err;
    const struct stg_scrape_text *text;
    bool is_there = stg_scrape_get(http->scrape, false, FRESH_NS, &text, &err) == 0;
    const char *quote = is_there ? "\"" : "";
    snprintf(buf, bytes, "{\"stager_metrics\": \"%s\", \"stagerd\": %s%s%s}\n",
             STAGER_RELEASE, quote, is_there ? http->scrape->origin->release : "null",
             quote);
    struct page page = text_page(MHD_HTTP_OK, buf);
    page.type = JSON_TYPE;
    return page;
}

static struct page answer_page(struct stg_api_answer answer)
{
    return (struct page){.status = answer.status,
                         .type = JSON_TYPE,
                         .text = answer.text,
                         .bytes = answer.bytes};
}

static struct page front_page(void)
{
    return (struct page){.status = MHD_HTTP_OK,
                         .type = HTML_TYPE,
                         .text = stg_page,
                         .bytes = sizeof(stg_page),
                         .is_static = true};
}

static struct page api_page(struct stg_http *http, struct MHD_Connection *connection,
                            const char *url)
{
    const char *name =
        MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "name");
    if (strcmp(url, "status") == 0)
        return answer_page(stg_api_status(http->api));
    if (strcmp(url, "pipeline") == 0)
        return answer_page(stg_api_pipeline(http->api, name));
    if (strcmp(url, "history") == 0)
        return answer_page(stg_api_history(http->api, name));
    return text_page(MHD_HTTP_NOT_FOUND,
                     "the API has /api/v1/status, /api/v1/pipeline?name=NAME and "
                     "/api/v1/history?name=NAME\n");
}

/* A page of another site, whose name its owner points at 127.0.0.1, is not answered. */
static bool is_misdirected(struct MHD_Connection *connection)
{
    struct sockaddr_storage address = {0};
    socklen_t bytes = sizeof(address);
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host");
    if (info == NULL ||
        getsockname(info->connect_fd, (struct sockaddr *)&address, &bytes) < 0)
        return true;
    return stg_address_is_loopback(&address) && host != NULL &&
           !stg_metrics_is_local(host);
}

static struct page find_page(struct stg_http *http, struct MHD_Connection *connection,
                             const char *url, const char *method, char *buf, size_t bytes)
{
    static const char api[] = "/api/v1/";
    struct page page;
    if (is_misdirected(connection))
        return text_page(MHD_HTTP_MISDIRECTED_REQUEST,
                         "on a loopback address the header Host must be localhost or an "
                         "IP address (a proxy must set it)\n");
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
        page = text_page(MHD_HTTP_METHOD_NOT_ALLOWED, "use GET\n");
        page.only_get = true;
        return page;
    }
    if (strcmp(url, "/") == 0)
        return front_page();
    if (strncmp(url, api, sizeof(api) - 1) == 0)
        return api_page(http, connection, url + sizeof(api) - 1);
    if (strcmp(url, "/metrics") == 0)
        return metrics_page(http, connection, buf, bytes);
    if (strcmp(url, "/healthz") == 0)
        return text_page(MHD_HTTP_OK, "ok\n");
    if (strcmp(url, "/readyz") == 0)
        return ready_page(http, buf, bytes);
    if (strcmp(url, "/version") == 0)
        return version_page(http, buf, bytes);
    return text_page(MHD_HTTP_NOT_FOUND,
                     "the pages are /, /metrics, /healthz, /readyz and /version\n");
}

/* A browser neither stores a page nor takes it for another type, nor shows it in a frame.
 */
static bool add_headers(struct MHD_Response *response, const struct page *page)
{
    const struct {
        const char *name, *value;
    } headers[] = {
        {"Content-Type", page->type},
        {"Connection", "close"},
        {"Cache-Control", "no-store"},
        {"X-Content-Type-Options", "nosniff"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {"Referrer-Policy", "no-referrer"},
        {"Content-Security-Policy", page->is_static
                                        ? STG_PAGE_POLICY
                                        : "default-src 'none'; frame-ancestors 'none'"},
        {"Allow", page->only_get ? "GET, HEAD" : NULL},
    };
    bool good = true;
    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]) && good; i++)
        good = headers[i].value == NULL ||
               MHD_add_response_header(response, headers[i].name, headers[i].value) ==
                   MHD_YES;
    return good;
}

/* The first call for a request has its headers: the answer needs no body. */
static enum MHD_Result serve(void *arg, struct MHD_Connection *connection,
                             const char *url, const char *method, const char *version,
                             const char *data, size_t *data_bytes, void **state)
{
    char buf[STG_ERR_TEXT_BYTES + 128];
    struct page page = find_page(arg, connection, url, method, buf, sizeof(buf));
    struct MHD_Response *response = MHD_create_response_from_buffer(
        page.bytes, (void *)(uintptr_t)page.text,
        page.is_static ? MHD_RESPMEM_PERSISTENT : MHD_RESPMEM_MUST_COPY);
    if (response == NULL)
        return MHD_NO;
    bool good = add_headers(response, &page);
    enum MHD_Result ret =
        good ? MHD_queue_response(connection, page.status, response) : MHD_NO;
    MHD_destroy_response(response);
    return ret;
}

/* ---- connections ---- */

static struct connection *find(struct stg_http *http, int fd)
{
    for (size_t i = 0; i < STG_HTTP_CONNECTIONS; i++) {
        if (http->all[i].fd == fd)
            return &http->all[i];
    }
    return NULL;
}

static void on_connection(void *arg, struct MHD_Connection *connection, void **state,
                          enum MHD_ConnectionNotificationCode what)
{
    struct stg_http *http = arg;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    bool starts = what == MHD_CONNECTION_NOTIFY_STARTED;
    int fd = info != NULL ? info->connect_fd : -1;
    struct connection *at = fd >= 0 ? find(http, starts ? -1 : fd) : NULL;
    if (at == NULL)
        return;
    *at = (struct connection){.fd = starts ? fd : -1,
                              .due_ns = stg_now_ns() + http->limit_ns};
    http->n += starts ? 1u : -1u;
}

bool stg_http_has_room(const struct stg_http *http)
{
    return http->n < STG_HTTP_CONNECTIONS;
}

/* The library takes the descriptor, also if it refuses. */
void stg_http_accept(struct stg_http *http, int listening)
{
    struct sockaddr_storage address;
    socklen_t bytes = sizeof(address);
    int fd = accept4(listening, (struct sockaddr *)&address, &bytes,
                     SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0)
        (void)MHD_add_connection(http->daemon, fd, (struct sockaddr *)&address, bytes);
}

/* Returns the milliseconds until the next one is late; -1: there is none. */
static int end_late(struct stg_http *http)
{
    uint64_t now = stg_now_ns(), next = UINT64_MAX;
    for (size_t i = 0; i < STG_HTTP_CONNECTIONS; i++) {
        struct connection *at = &http->all[i];
        if (at->fd < 0)
            continue;
        if (at->due_ns <= now) {
            shutdown(at->fd, SHUT_RDWR); /* the library sees the end, and closes it */
            at->due_ns = now + http->limit_ns;
        }
        next = at->due_ns < next ? at->due_ns : next;
    }
    return next == UINT64_MAX ? -1 : (int)((next - now) / 1000000u) + 1;
}

/* ---- the loop's ---- */

int stg_http_fd(const struct stg_http *http)
{
    return http->epoll_fd;
}

int stg_http_run(struct stg_http *http)
{
    MHD_UNSIGNED_LONG_LONG library_millis = 0;
    MHD_run(http->daemon);
    int millis = end_late(http);
    bool is_due = MHD_get_timeout(http->daemon, &library_millis) == MHD_YES;
    if (is_due && (millis < 0 || library_millis < (unsigned)millis))
        millis = (int)library_millis;
    return millis;
}

static void be_silent(void *arg, const char *fmt, va_list args)
{
}

int stg_http_create(struct stg_scrape *scrape, struct stg_api *api, int64_t limit_ns,
                    struct stg_http **ret, struct stg_err *err)
{
    struct stg_http *http = calloc(1, sizeof(*http));
    if (http == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    http->scrape = scrape;
    http->api = api;
    http->limit_ns = (uint64_t)limit_ns;
    for (size_t i = 0; i < STG_HTTP_CONNECTIONS; i++)
        http->all[i].fd = -1;
    http->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET, 0, NULL, NULL, serve, http,
        MHD_OPTION_EXTERNAL_LOGGER, be_silent, NULL, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)STG_HTTP_CONNECTIONS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)REQUEST_BYTES, MHD_OPTION_NOTIFY_CONNECTION, on_connection, http,
        MHD_OPTION_END);
    const union MHD_DaemonInfo *info =
        http->daemon != NULL ? MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD)
                             : NULL;
    if (info == NULL) {
        stg_http_destroy(http);
        return stg_err(err, -STAGER_INTERNAL, "libmicrohttpd cannot start");
    }
    http->epoll_fd = info->epoll_fd;
    *ret = http;
    return 0;
}

void stg_http_destroy(struct stg_http *http)
{
    if (http == NULL)
        return;
    if (http->daemon != NULL)
        MHD_stop_daemon(http->daemon);
    free(http);
}
