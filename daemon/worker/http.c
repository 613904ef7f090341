/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/worker/http.h"

#include <inttypes.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/library/tls.h"
#include "core/status.h"
#include "daemon/worker/path.h"

/* A request line and its headers. */
#define REQUEST_BYTES 16384u
#define IDLE_SECONDS 60u
/* From the headers of a request to the last byte of its answer. */
#define ANSWER_NS 120000000000u
#define PREFIX "/v1/batches/"

/* A request from its headers to its last byte. */
struct call {
    struct MHD_Connection *connection; /* NULL: free */
    uint64_t id, due_ns;
    struct stg_worker_ask ask;
    struct stg_worker_answer answer; /* kind 0: it has not come */
    char *text;
};

/* Memory of batches, which stagerd writes. */
struct slot {
    char *base; /* NULL: none */
    uint64_t capacity;
};

struct stg_worker_http {
    struct stg_worker_http_config config;
    struct MHD_Daemon *daemon;
    int epoll_fd;
    bool drains;
    unsigned n_connections, n_calls;
    uint64_t next_id;
    char *hello;
    char cpus[16];     /* of the worker */
    struct call began; /* that of a request whose end has not come */
    struct call calls[STG_WORKER_MAX_CONNECTIONS];
    struct slot slots[STG_WORKER_SLOTS];
};

struct page {
    unsigned status;
    const char *text;
    const char *type;
};

/* ---- answers without batches ---- */

static bool add(struct MHD_Response *response, const char *name, const char *value)
{
    return value == NULL || MHD_add_response_header(response, name, value) == MHD_YES;
}

static bool add_common(const struct stg_worker_http *http, struct MHD_Response *response)
{
    return add(response, "Stager-Zone", http->config.zone) &&
           add(response, "Stager-Cpus", http->cpus[0] != '\0' ? http->cpus : NULL) &&
           add(response, "X-Content-Type-Options", "nosniff") &&
           add(response, "Connection", http->drains ? "close" : NULL);
}

static enum MHD_Result queue(struct MHD_Connection *connection, unsigned status,
                             struct MHD_Response *response, bool good)
{
    enum MHD_Result ret =
        good ? MHD_queue_response(connection, status, response) : MHD_NO;
    MHD_destroy_response(response);
    return ret;
}

static enum MHD_Result send_page(const struct stg_worker_http *http,
                                 struct MHD_Connection *connection,
                                 const struct page *page,
                                 const struct stg_worker_answer *answer)
{
    char line[STG_WORKER_TEXT_BYTES + 2], end[32];
    bool is_text = page->type == NULL;
    size_t n = (size_t)snprintf(line, sizeof(line), is_text ? "%s\n" : "%s", page->text);
    struct MHD_Response *response =
        MHD_create_response_from_buffer(n, line, MHD_RESPMEM_MUST_COPY);
    if (response == NULL)
        return MHD_NO;
    bool good = add_common(http, response) &&
                add(response, "Content-Type",
                    is_text ? "text/plain; charset=utf-8" : page->type) &&
                add(response, "Cache-Control", "no-store");
    if (page->status == MHD_HTTP_SERVICE_UNAVAILABLE)
        good = good && add(response, "Retry-After", "1") &&
               (http->drains || add(response, "Connection", "close"));
    if (page->status == MHD_HTTP_UNAUTHORIZED)
        good = good && add(response, "WWW-Authenticate", "Bearer");
    if (page->status == MHD_HTTP_METHOD_NOT_ALLOWED)
        good = good && add(response, "Allow", "GET, HEAD");
    if (answer != NULL && answer->code != 0)
        good = good && add(response, "Stager-Code", stg_status_name(-(int)answer->code));
    snprintf(end, sizeof(end), "%" PRIu64, answer != NULL ? answer->end : 0);
    if (answer != NULL && answer->end != STG_WORKER_NO_END)
        good = good && add(response, "Stager-End", end);
    return queue(connection, page->status, response, good);
}

static enum MHD_Result refuse(const struct stg_worker_http *http,
                              struct MHD_Connection *connection, unsigned status,
                              const char *text)
{
    return send_page(http, connection, &(struct page){.status = status, .text = text},
                     NULL);
}

/* ---- batches ---- */

/* Copied to the socket, as much at once as that takes: see daemon/worker/memory.h. */
static enum MHD_Result send_batches(const struct stg_worker_http *http, struct call *call)
{
    char tag[256], end[32], cpu[32], deal[64] = "";
    const struct stg_worker_answer *answer = &call->answer;
    const struct stg_worker_ask *ask = &call->ask;
    if (ask->deal.n_hosts > 0)
        snprintf(deal, sizeof(deal), "/%u-%u-%" PRIu64, ask->deal.host, ask->deal.n_hosts,
                 ask->deal_first);
    snprintf(tag, sizeof(tag), "\"%s/%" PRIu64 "/%" PRIu64 "-%" PRIu64 "%s\"",
             ask->digest, ask->pass, ask->first, answer->last, deal);
    snprintf(end, sizeof(end), "%" PRIu64, answer->end);
    snprintf(cpu, sizeof(cpu), "%" PRIu64, answer->cpu_ns);
    struct MHD_Response *response = MHD_create_response_from_buffer(
        answer->bytes, http->slots[answer->slot].base, MHD_RESPMEM_PERSISTENT);
    if (response == NULL)
        return MHD_NO;
    bool good =
        add_common(http, response) && add(response, "ETag", tag) &&
        add(response, "Cache-Control", "private, immutable, max-age=86400") &&
        add(response, "Content-Type", "application/octet-stream") &&
        add(response, "Stager-Cpu-Ns", cpu) &&
        add(response, "Stager-End", answer->end != STG_WORKER_NO_END ? end : NULL);
    return queue(call->connection, MHD_HTTP_OK, response, good);
}

static enum MHD_Result send_answer(const struct stg_worker_http *http, struct call *call)
{
    if (call->answer.bytes > 0)
        return send_batches(http, call);
    return send_page(http, call->connection,
                     &(struct page){.status = call->answer.status, .text = call->text},
                     &call->answer);
}

/* ---- requests ---- */

static struct call *new_call(struct stg_worker_http *http,
                             struct MHD_Connection *connection)
{
    for (size_t i = 0; i < STG_WORKER_MAX_CONNECTIONS; i++) {
        struct call *call = &http->calls[i];
        if (call->connection != NULL)
            continue;
        *call = (struct call){.connection = connection,
                              .id = ++http->next_id,
                              .due_ns = stg_now_ns() + ANSWER_NS};
        http->n_calls++;
        return call;
    }
    return NULL;
}

static const char *value_of(struct MHD_Connection *connection, const char *name)
{
    return MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, name);
}

static const char *read_query(struct MHD_Connection *connection,
                              struct stg_worker_ask *ask)
{
    const struct stg_worker_query query = {.epoch = value_of(connection, "epoch"),
                                           .index = value_of(connection, "index"),
                                           .host = value_of(connection, "host"),
                                           .hosts = value_of(connection, "hosts"),
                                           .begin = value_of(connection, "begin")};
    return stg_worker_query(&query, ask);
}

static enum MHD_Result ask(struct stg_worker_http *http,
                           struct MHD_Connection *connection, const char *path,
                           void **state)
{
    struct stg_worker_ask ask = {.kind = STG_WORKER_ASK};
    const char *wrong = stg_worker_path(path, &ask);
    if (wrong == NULL)
        wrong = read_query(connection, &ask);
    if (wrong != NULL)
        return refuse(http, connection, MHD_HTTP_BAD_REQUEST, wrong);
    if (http->drains)
        return refuse(http, connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                      "the worker is draining");
    struct call *call = new_call(http, connection);
    if (call == NULL)
        return refuse(http, connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                      "the worker is busy: too many requests");
    *state = call;
    call->ask = ask;
    call->ask.id = call->id;
    if (send(http->config.fd, &call->ask, sizeof(call->ask),
             MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof(call->ask))
        return refuse(http, connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                      "the worker is busy: stagerd takes no more requests");
    MHD_suspend_connection(connection);
    return MHD_YES;
}

static enum MHD_Result serve(void *arg, struct MHD_Connection *connection,
                             const char *url, const char *method, const char *version,
                             const char *data, size_t *data_bytes, void **state)
{
    struct stg_worker_http *http = arg;
    struct call *call = *state;
    if (call == NULL) { /* an answer before the end of the request ends the connection */
        *state = &http->began;
        return MHD_YES;
    }
    if (call != &http->began)
        return call->answer.kind != 0 ? send_answer(http, call) : MHD_NO;
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return refuse(http, connection, MHD_HTTP_METHOD_NOT_ALLOWED, "use GET");
    if (strcmp(url, "/healthz") == 0)
        return refuse(http, connection, MHD_HTTP_OK, "ok");
    if (strcmp(url, "/readyz") == 0 && (http->drains || http->hello == NULL))
        return refuse(http, connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                      http->drains ? "draining" : "starting");
    if (strcmp(url, "/readyz") == 0)
        return refuse(http, connection, MHD_HTTP_OK, "ready");
    if (http->config.token != NULL &&
        !stg_worker_is_allowed(
            MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Authorization"),
            http->config.token))
        return refuse(http, connection, MHD_HTTP_UNAUTHORIZED,
                      "the header Authorization must be Bearer and the worker's token");
    if (http->hello == NULL)
        return refuse(http, connection, MHD_HTTP_SERVICE_UNAVAILABLE, "starting");
    if (strcmp(url, "/v1/worker") == 0)
        return send_page(http, connection,
                         &(struct page){.status = MHD_HTTP_OK,
                                        .text = http->hello,
                                        .type = "application/json"},
                         NULL);
    if (strncmp(url, PREFIX, sizeof(PREFIX) - 1) == 0)
        return ask(http, connection, url + sizeof(PREFIX) - 1, state);
    return refuse(http, connection, MHD_HTTP_NOT_FOUND,
                  "a worker has /v1/batches/DIGEST/PASS/INDEX, /v1/worker, /healthz and "
                  "/readyz");
}

static void say_done(const struct stg_worker_http *http, uint64_t id)
{
    struct stg_worker_ask done = {.id = id, .kind = STG_WORKER_DONE};
    (void)!send(http->config.fd, &done, sizeof(done), MSG_NOSIGNAL);
}

/* The answer was sent, or the client is gone. */
static void on_completed(void *arg, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode why)
{
    struct stg_worker_http *http = arg;
    struct call *call = *state;
    if (call == NULL || call == &http->began)
        return;
    if (call->answer.bytes > 0)
        say_done(http, call->id);
    free(call->text);
    *call = (struct call){0};
    http->n_calls--;
    *state = NULL;
}

static void unmap(struct slot *slot)
{
    if (slot->base != NULL)
        munmap(slot->base, slot->capacity);
    *slot = (struct slot){0};
}

/* Returns false if the memory of an answer is not here. */
static bool map(struct stg_worker_http *http, const struct stg_worker_answer *answer,
                int fd)
{
    if (answer->bytes == 0)
        return true;
    if (answer->slot >= STG_WORKER_SLOTS)
        return false;
    struct slot *slot = &http->slots[answer->slot];
    if (fd >= 0) {
        unmap(slot);
        void *base = mmap(NULL, answer->capacity, PROT_READ, MAP_SHARED, fd, 0);
        if (base != MAP_FAILED)
            *slot = (struct slot){.base = base, .capacity = answer->capacity};
    }
    return slot->base != NULL && answer->bytes <= slot->capacity;
}

void stg_worker_http_answer(struct stg_worker_http *http,
                            const struct stg_worker_answer *answer, const char *text,
                            int fd)
{
    struct call *call = NULL;
    if (answer->kind == STG_WORKER_HELLO) {
        free(http->hello);
        http->hello = strdup(text);
        snprintf(http->cpus, sizeof(http->cpus), "%" PRIu64, answer->last);
    }
    bool is_here = map(http, answer, fd);
    for (size_t i = 0; answer->kind == STG_WORKER_ANSWER && call == NULL &&
                       i < STG_WORKER_MAX_CONNECTIONS;
         i++) {
        if (http->calls[i].connection != NULL && http->calls[i].id == answer->id)
            call = &http->calls[i];
    }
    if (call == NULL || call->answer.kind != 0) {
        if (answer->bytes > 0)
            say_done(http, answer->id);
        return;
    }
    call->answer = *answer;
    call->text = strdup(text);
    if (call->text == NULL || !is_here)
        call->answer.kind = 0; /* the connection ends */
    MHD_resume_connection(call->connection);
}

/* ---- connections ---- */

static void on_connection(void *arg, struct MHD_Connection *connection, void **state,
                          enum MHD_ConnectionNotificationCode what)
{
    struct stg_worker_http *http = arg;
    http->n_connections += what == MHD_CONNECTION_NOTIFY_STARTED ? 1u : -1u;
}

bool stg_worker_http_has_room(const struct stg_worker_http *http)
{
    return http->n_connections < STG_WORKER_MAX_CONNECTIONS;
}

void stg_worker_http_accept(struct stg_worker_http *http, int listening)
{
    struct sockaddr_storage address;
    socklen_t bytes = sizeof(address);
    int fd = accept4(listening, (struct sockaddr *)&address, &bytes,
                     SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0)
        (void)MHD_add_connection(http->daemon, fd, (struct sockaddr *)&address, bytes);
}

/* A client that reads too slowly has its answer cut. Milliseconds until the next one. */
static int end_late(struct stg_worker_http *http)
{
    uint64_t now = stg_now_ns(), next = UINT64_MAX;
    for (size_t i = 0; i < STG_WORKER_MAX_CONNECTIONS; i++) {
        struct call *call = &http->calls[i];
        if (call->connection == NULL || call->answer.kind == 0)
            continue;
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(call->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        if (call->due_ns <= now && info != NULL)
            shutdown(info->connect_fd, SHUT_RDWR);
        if (call->due_ns <= now)
            call->due_ns = now + ANSWER_NS;
        next = call->due_ns < next ? call->due_ns : next;
    }
    return next == UINT64_MAX ? -1 : (int)((next - now) / 1000000u) + 1;
}

int stg_worker_http_fd(const struct stg_worker_http *http)
{
    return http->epoll_fd;
}

int stg_worker_http_run(struct stg_worker_http *http)
{
    MHD_UNSIGNED_LONG_LONG library_millis = 0;
    MHD_run(http->daemon);
    int millis = end_late(http);
    bool is_due = MHD_get_timeout(http->daemon, &library_millis) == MHD_YES;
    if (is_due && (millis < 0 || library_millis < (unsigned)millis))
        millis = (int)library_millis;
    return millis;
}

unsigned stg_worker_http_drain(struct stg_worker_http *http)
{
    http->drains = true;
    return http->n_calls;
}

/* The library decodes %00 too, and the text would end there. No request needs escapes. */
static size_t keep_escapes(void *arg, struct MHD_Connection *connection, char *text)
{
    return strlen(text);
}

static void be_silent(void *arg, const char *fmt, va_list args)
{
}

int stg_worker_http_create(const struct stg_worker_http_config *config,
                           struct stg_worker_http **ret, struct stg_err *err)
{
    int rc = config->certificate != NULL ? stg_tls_library(err) : 0;
    if (rc < 0)
        return rc;
    struct stg_worker_http *http = calloc(1, sizeof(*http));
    if (http == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    http->config = *config;
    http->next_id =
        stg_now_ns(); /* no request has the number of one of an earlier process */
    bool has_tls = config->certificate != NULL;
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)(uintptr_t)config->certificate},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)(uintptr_t)config->key},
        {MHD_OPTION_END, 0, NULL}};
    http->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME |
            (has_tls ? MHD_USE_TLS : 0u),
        0, NULL, NULL, serve, http, MHD_OPTION_EXTERNAL_LOGGER, be_silent, NULL,
        MHD_OPTION_CONNECTION_LIMIT, STG_WORKER_MAX_CONNECTIONS,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)REQUEST_BYTES,
        MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL,
        MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_CONNECTION_TIMEOUT, IDLE_SECONDS,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, http, MHD_OPTION_NOTIFY_COMPLETED,
        on_completed, http, MHD_OPTION_ARRAY, has_tls ? tls : tls + 2, MHD_OPTION_END);
    const union MHD_DaemonInfo *info =
        http->daemon != NULL ? MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD)
                             : NULL;
    if (info == NULL) {
        stg_worker_http_destroy(http);
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       has_tls ? "libmicrohttpd cannot start: check the certificate and "
                                 "its key, which must be PEM"
                               : "libmicrohttpd cannot start");
    }
    http->epoll_fd = info->epoll_fd;
    *ret = http;
    return 0;
}

/* The library does not end with connections that it must not touch. */
void stg_worker_http_destroy(struct stg_worker_http *http)
{
    if (http == NULL)
        return;
    for (size_t i = 0; i < STG_WORKER_MAX_CONNECTIONS; i++) {
        struct call *call = &http->calls[i];
        if (call->connection != NULL && call->answer.kind == 0)
            MHD_resume_connection(call->connection);
    }
    if (http->daemon != NULL)
        MHD_stop_daemon(http->daemon);
    for (size_t i = 0; i < STG_WORKER_SLOTS; i++)
        unmap(&http->slots[i]);
    free(http->hello);
    free(http);
}
