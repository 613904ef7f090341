/* SPDX-License-Identifier: Apache-2.0
 *
 * The client of etcd and servers that answer as a script says: wrongly, partly, late, or
 * not at all. The forms of requests and answers are those of etcd's documentation and of
 * etcd 3.4.23.
 */
#include <arpa/inet.h>
#include <curl/curl.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/cluster/etcd.h"
#include "tests/check.h"
#include "tests/failalloc.h"

/* ---- a server ---- */

enum how {
    WHOLE,
    CUT,    /* the connection ends within the answer */
    DROP,   /* the connection ends instead of an answer */
    SILENT, /* no answer comes */
    RAW     /* the body is all that is sent */
};

struct answer {
    enum how how;
    int status; /* 0: 200 */
    const char *body;
    size_t bytes; /* 0: a text */
};

#define MAX_ANSWERS 16
#define MAX_CONNECTIONS 64
#define MAX_REQUESTS 256

struct request {
    char path[64], authorization[128], body[1024];
};

struct server;

struct connection {
    struct server *server;
    int fd;
    pthread_t thread;
    bool is_used;
    atomic_bool has_ended;
};

struct server {
    int fd, port;
    char url[64];
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    struct answer answers[MAX_ANSWERS];
    size_t n_answers, n_requests; /* the last answer repeats */
    struct request requests[MAX_REQUESTS];
    struct connection connections[MAX_CONNECTIONS]; /* of the accepting thread */
};

static void copy_header(const char *head, const char *name, char *ret, size_t bytes)
{
    const char *at = strcasestr(head, name);
    ret[0] = '\0';
    if (at == NULL)
        return;
    at += strlen(name);
    snprintf(ret, bytes, "%.*s", (int)strcspn(at, "\r\n"), at);
}

/* Returns false: the connection has ended. */
static bool read_request(int fd, struct request *ret)
{
    static _Thread_local char text[1 << 16];
    char length[16];
    size_t n = 0, body = 0;
    char *end = NULL;
    memset(text, 0, sizeof(text));
    while (end == NULL || n < (size_t)(end - text) + 4 + body) {
        ssize_t m = recv(fd, text + n, sizeof(text) - 1 - n, 0);
        if (m <= 0)
            return false;
        n += (size_t)m;
        end = strstr(text, "\r\n\r\n");
        copy_header(text, "\r\nContent-Length: ", length, sizeof(length));
        body = (size_t)atoi(length);
    }
    CHECK(sscanf(text, "POST %63s HTTP/1.1", ret->path) == 1);
    CHECK(strstr(text, "\r\nContent-Type: application/json\r\n") != NULL);
    copy_header(text, "\r\nAuthorization: ", ret->authorization,
                sizeof(ret->authorization));
    snprintf(ret->body, sizeof(ret->body), "%s", end + 4);
    return true;
}

static struct answer note(struct server *server, const struct request *request)
{
    pthread_mutex_lock(&server->lock);
    CHECK(server->n_requests < MAX_REQUESTS && server->n_answers > 0);
    size_t i = server->n_requests++;
    server->requests[i] = *request;
    struct answer answer =
        server->answers[i < server->n_answers ? i : server->n_answers - 1];
    pthread_mutex_unlock(&server->lock);
    return answer;
}

static void send_all(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t m = send(fd, bytes, n, MSG_NOSIGNAL);
        if (m <= 0)
            return;
        bytes += m;
        n -= (size_t)m;
    }
}

static void *serve(void *arg)
{
    struct connection *connection = arg;
    int fd = connection->fd;
    struct request request;
    while (read_request(fd, &request)) {
        struct answer answer = note(connection->server, &request);
        size_t n = answer.bytes != 0     ? answer.bytes
                   : answer.body != NULL ? strlen(answer.body)
                                         : 0;
        char head[128];
        int m = snprintf(head, sizeof(head),
                         "HTTP/1.1 %d X\r\nContent-Type: application/json\r\n"
                         "Content-Length: %zu\r\n\r\n",
                         answer.status != 0 ? answer.status : 200,
                         answer.how == CUT ? n + 1 : n);
        if (answer.how == SILENT)
            continue;
        if (answer.how == WHOLE || answer.how == CUT)
            send_all(fd, head, (size_t)m);
        if (answer.how != DROP)
            send_all(fd, answer.body, n);
        if (answer.how != WHOLE)
            shutdown(fd, SHUT_RDWR);
    }
    atomic_store(&connection->has_ended, true);
    return NULL;
}

static void end_connection(struct connection *connection)
{
    if (!connection->is_used)
        return;
    shutdown(connection->fd, SHUT_RDWR);
    CHECK(pthread_join(connection->thread, NULL) == 0);
    close(connection->fd);
    connection->is_used = false;
}

static void *accept_all(void *arg)
{
    struct server *server = arg;
    int fd;
    while ((fd = accept4(server->fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        struct connection *connection = server->connections;
        while (connection->is_used && !atomic_load(&connection->has_ended))
            CHECK(++connection < server->connections + MAX_CONNECTIONS);
        end_connection(connection);
        connection->server = server;
        connection->fd = fd;
        connection->is_used = true;
        atomic_store(&connection->has_ended, false);
        CHECK(pthread_create(&connection->thread, NULL, serve, connection) == 0);
    }
    return NULL;
}

static void start(struct server *server)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(at);
    memset(server, 0, sizeof(*server));
    pthread_mutex_init(&server->lock, NULL);
    server->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(server->fd >= 0 && bind(server->fd, (struct sockaddr *)&at, bytes) == 0 &&
          listen(server->fd, 64) == 0 &&
          getsockname(server->fd, (struct sockaddr *)&at, &bytes) == 0);
    server->port = ntohs(at.sin_port);
    snprintf(server->url, sizeof(server->url), "http://127.0.0.1:%d", server->port);
    CHECK(pthread_create(&server->thread, NULL, accept_all, server) == 0);
}

static void stop(struct server *server)
{
    shutdown(server->fd, SHUT_RDWR);
    CHECK(pthread_join(server->thread, NULL) == 0);
    close(server->fd);
    for (size_t i = 0; i < MAX_CONNECTIONS; i++)
        end_connection(&server->connections[i]);
}

static void script(struct server *server, const struct answer *answers, size_t n)
{
    CHECK(n <= MAX_ANSWERS);
    pthread_mutex_lock(&server->lock);
    memcpy(server->answers, answers, n * sizeof(answers[0]));
    server->n_answers = n;
    server->n_requests = 0;
    pthread_mutex_unlock(&server->lock);
}

#define SCRIPT(server, ...)                                                              \
    script(server, (const struct answer[]){__VA_ARGS__},                                 \
           sizeof((const struct answer[]){__VA_ARGS__}) / sizeof(struct answer))

static size_t n_requests(struct server *server)
{
    pthread_mutex_lock(&server->lock);
    size_t n = server->n_requests;
    pthread_mutex_unlock(&server->lock);
    return n;
}

/* ---- a client ---- */

#define LONG_MILLIS 600000u /* the deadline of the test comes first */
#define SHORT_MILLIS 400u

static struct server servers[3];
static const char *endpoints[3];
static struct stg_etcd_settings settings;
static struct stg_err err;

static struct stg_etcd *begin(size_t n, uint32_t timeout_millis)
{
    struct stg_etcd *etcd;
    for (size_t i = 0; i < n; i++) {
        start(&servers[i]);
        endpoints[i] = servers[i].url;
    }
    settings.endpoints = endpoints;
    settings.n_endpoints = n;
    settings.timeout_millis = timeout_millis;
    CHECK_OK(stg_etcd_create(&settings, &etcd, &err), err);
    return etcd;
}

static void end(struct stg_etcd *etcd)
{
    stg_etcd_destroy(etcd);
    for (size_t i = 0; i < settings.n_endpoints; i++)
        stop(&servers[i]);
}

static int get(struct stg_etcd *etcd)
{
    struct stg_etcd_range range;
    int rc = stg_etcd_get(etcd, "foo", true, &range, &err);
    if (rc == 0)
        stg_etcd_range_finish(&range);
    return rc;
}

static int change(struct stg_etcd *etcd, bool *ret_done)
{
    const struct stg_etcd_compare compare = {.key = "foo", .mod_revision = 7};
    const struct stg_etcd_put puts[] = {
        {.key = "foo", .value = "bar", .value_bytes = 3, .lease = 9}, {.key = "fo"}};
    int64_t revision;
    return stg_etcd_txn(etcd, &compare, 1, puts, 2, ret_done, &revision, &err);
}

#define HEAD_AT(revision)                                                                \
    "\"header\":{\"cluster_id\":\"5\",\"member_id\":\"6\",\"revision\":\"" revision      \
    "\",\"raft_term\":\"2\"}"
#define HEAD HEAD_AT("8")
#define NONE "{" HEAD "}"
#define DONE "{" HEAD ",\"succeeded\":true,\"responses\":[{\"response_put\":{}}]}"
#define ENTRY(key, more) "{\"key\":\"" key "\"," more "}"
#define REVISIONS "\"create_revision\":\"3\",\"mod_revision\":\"7\",\"version\":\"2\""
#define LOGIN(token) "{" HEAD ",\"token\":\"" token "\"}"

/* ---- requests ---- */

static void requests_have_the_documented_form(void)
{
    struct stg_etcd *etcd = begin(1, LONG_MILLIS);
    const struct request *requests = servers[0].requests;
    struct stg_etcd_range range;
    int64_t lease = 0;
    uint32_t ttl = 0;
    bool is_done = false;
    SCRIPT(&servers[0], {.body = NONE}, {.body = NONE}, {.body = DONE},
           {.body = "{" HEAD ",\"ID\":\"7587848943239472601\",\"TTL\":\"10\"}"},
           {.body = "{\"result\":{" HEAD
                    ",\"ID\":\"7587848943239472601\",\"TTL\":\"10\"}}\n"},
           {.body = NONE});
    CHECK_OK(stg_etcd_get(etcd, "foo", false, &range, &err), err);
    CHECK_OK(get(etcd), err);
    CHECK_OK(change(etcd, &is_done), err);
    CHECK(is_done);
    CHECK_OK(stg_etcd_grant(etcd, 10, &lease, &err), err);
    CHECK_INT(lease, INT64_C(7587848943239472601));
    CHECK_OK(stg_etcd_renew(etcd, lease, &ttl, &err), err);
    CHECK_INT(ttl, 10);
    CHECK_OK(stg_etcd_revoke(etcd, lease, &err), err);
    CHECK_INT(n_requests(&servers[0]), 6);
    CHECK_STR(requests[0].path, "/v3/kv/range");
    CHECK_STR(requests[0].body, "{\"key\": \"Zm9v\"}");
    CHECK_STR(requests[1].path, "/v3/kv/range");
    CHECK_STR(requests[1].body, "{\"key\": \"Zm9v\", \"range_end\": \"Zm9w\"}");
    CHECK_STR(requests[2].path, "/v3/kv/txn");
    CHECK_STR(requests[2].body,
              "{\"compare\": [{\"key\": \"Zm9v\", \"target\": \"MOD\", \"result\": "
              "\"EQUAL\", \"mod_revision\": \"7\"}], \"success\": [{\"request_put\": "
              "{\"key\": \"Zm9v\", \"value\": \"YmFy\", \"lease\": \"9\"}}, "
              "{\"request_delete_range\": {\"key\": \"Zm8=\"}}]}");
    CHECK_STR(requests[3].path, "/v3/lease/grant");
    CHECK_STR(requests[3].body, "{\"TTL\": \"10\"}");
    CHECK_STR(requests[4].path, "/v3/lease/keepalive");
    CHECK_STR(requests[4].body, "{\"ID\": \"7587848943239472601\"}");
    CHECK_STR(requests[5].path, "/v3/kv/lease/revoke");
    CHECK_STR(requests[5].body, "{\"ID\": \"7587848943239472601\"}");
    CHECK_STR(requests[5].authorization, "");
    end(etcd);
}

static void answers_are_read_as_etcd_writes_them(void)
{
    struct stg_etcd *etcd = begin(1, LONG_MILLIS);
    struct stg_etcd_range range;
    SCRIPT(&servers[0],
           {.body = "{" HEAD ",\"kvs\":[{\"key\":\"Zm9v\",\"create_revision\":\"3\","
                    "\"mod_revision\":\"7\",\"version\":\"2\",\"value\":\"YmFy\","
                    "\"lease\":\"9\"},{\"key\":\"Zm9vZg==\",\"create_revision\":\"4\","
                    "\"mod_revision\":\"4\",\"version\":\"1\"}],\"count\":\"2\"}"},
           /* Unknown members, other orders, spaces and numbers. */
           {.body = " { \"count\": 1, \"more\": false, \"new\": [{\"a\": [1.5e3, null]}, "
                    "\"\\u00e4\"],\n\"kvs\": [ { \"lease\": 0, \"value\": \"\", "
                    "\"mod_revision\": 7, \"create_revision\": 7, \"key\": "
                    "\"Zm9v\" } ], " HEAD " }\r\n"},
           {.body = "{" HEAD "}"});
    CHECK_OK(stg_etcd_get(etcd, "foo", true, &range, &err), err);
    CHECK_INT(range.revision, 8);
    CHECK_INT(range.n, 2);
    CHECK_STR(range.entries[0].key, "foo");
    CHECK_STR(range.entries[0].value, "bar");
    CHECK_INT(range.entries[0].value_bytes, 3);
    CHECK_INT(range.entries[0].create_revision, 3);
    CHECK_INT(range.entries[0].mod_revision, 7);
    CHECK_INT(range.entries[0].lease, 9);
    CHECK_STR(range.entries[1].key, "foof");
    CHECK_STR(range.entries[1].value, "");
    CHECK_INT(range.entries[1].lease, 0);
    stg_etcd_range_finish(&range);
    CHECK_OK(stg_etcd_get(etcd, "foo", false, &range, &err), err);
    CHECK_INT(range.n, 1);
    CHECK_INT(range.entries[0].mod_revision, 7);
    stg_etcd_range_finish(&range);
    bool is_done = true;
    CHECK_OK(change(etcd, &is_done), err);
    CHECK(!is_done);
    end(etcd);
}

/* ---- wrong answers ---- */

static const struct {
    const char *body, *text;
} bad_ranges[] = {
    {"", "a member is not an object"},
    {"<html>", "a member is not an object"},
    {"[]", "a member is not an object"},
    {"null", "a member is not an object"},
    {"{", "malformed"},
    {"{" HEAD, "malformed"},
    {NONE "x", "malformed"},
    {NONE NONE, "malformed"},
    {"{" HEAD ",}", "malformed"},
    {"{" HEAD " \"count\":\"0\"}", "malformed"},
    {"{}", "names no cluster"},
    {"{\"header\":[]}", "a member is not an object"},
    {"{\"header\":{\"revision\":\"8\"}}", "names no cluster"},
    {"{\"header\":{\"cluster_id\":\"-1\",\"revision\":\"8\"}}", "out of range"},
    {"{\"header\":{\"cluster_id\":\"x\"}}", "not a number"},
    {"{\"header\":{\"cluster_id\":\"99999999999999999999\"}}", "out of range"},
    {"{\"header\":{\"cluster_id\":\"5\",\"revision\":\"-8\"}}", "names no cluster"},
    {"{\"header\":{\"cluster_id\":\"5\",\"revision\":\"9223372036854775808\"}}",
     "out of range"},
    {"{\"header\":{\"cluster_id\":\"5\",\"revision\":\"\"}}", "not a number"},
    {"{\"header\":{\"cluster_id\":\"5\",\"revision\":\"-\"}}", "not a number"},
    {"{\"header\":{\"cluster_id\":\"5\",\"revision\":\" 8\"}}", "not a number"},
    {"{\"header\":{\"cluster_id\":\"5\",\"revision\":8.0}}", "not a number"},
    {"{\"header\":{\"cluster_id\":\"5\",\"revision\":true}}", "not a number"},
    {"{" HEAD ",\"count\":\"1\"}", "keys are missing"},
    {"{" HEAD ",\"count\":\"-1\"}", "keys are missing"},
    {"{" HEAD ",\"more\":true}", "keys are missing"},
    {"{" HEAD ",\"more\":\"true\"}", "not true or false"},
    {"{" HEAD ",\"kvs\":{}}", "kvs is not a list"},
    {"{" HEAD ",\"kvs\":[1]}", "a member is not an object"},
    {"{" HEAD ",\"kvs\":[{}],\"count\":\"1\"}", "not requested"},
    {"{" HEAD ",\"kvs\":[" ENTRY("Zm8=", REVISIONS) "],\"count\":\"1\"}",
     "not requested"},
    {"{" HEAD ",\"kvs\":[" ENTRY("Zm9v", REVISIONS) "]}", "keys are missing"},
    {"{" HEAD ",\"kvs\":[" ENTRY("Zm9v", REVISIONS) "," ENTRY(
         "Zm9v", REVISIONS) "],\"count\":\"2\"}",
     "not sorted"},
    {"{" HEAD ",\"kvs\":[" ENTRY("Zm9vZg==", REVISIONS) "," ENTRY(
         "Zm9v", REVISIONS) "],\"count\":\"2\"}",
     "not sorted"},
    {"{" HEAD ",\"kvs\":[" ENTRY("Zm9v", "\"version\":\"1\"") "],\"count\":\"1\"}",
     "contradict"},
    {"{" HEAD ",\"kvs\":[" ENTRY("Zm9v", "\"create_revision\":\"7\",\"mod_revision\":"
                                         "\"6\"") "],\"count\":\"1\"}",
     "contradict"},
    {"{" HEAD ",\"kvs\":[" ENTRY("Zm9v", "\"create_revision\":\"7\",\"mod_revision\":"
                                         "\"9\"") "],\"count\":\"1\"}",
     "contradict"},
    {"{" HEAD ",\"kvs\":[" ENTRY("Zm9", REVISIONS) "],\"count\":\"1\"}", "not base64"},
    {"{" HEAD ",\"kvs\":[" ENTRY("Zm9v====", REVISIONS) "],\"count\":\"1\"}",
     "not base64"},
    {"{" HEAD ",\"kvs\":[" ENTRY("Zm=v", REVISIONS) "],\"count\":\"1\"}", "not base64"},
    {"{" HEAD ",\"kvs\":[" ENTRY("Zm-v", REVISIONS) "],\"count\":\"1\"}", "not base64"},
    {"{" HEAD ",\"kvs\":[" ENTRY("Zm9vAA==", REVISIONS) "],\"count\":\"1\"}",
     "contains a NUL byte"},
    {"{" HEAD ",\"kvs\":[" ENTRY("Zm9v", "\"value\":7," REVISIONS) "],\"count\":\"1\"}",
     "not a string"},
};

static void a_wrong_answer_to_a_read_is_an_error_that_names_the_endpoint(void)
{
    struct stg_etcd *etcd = begin(1, LONG_MILLIS);
    for (size_t i = 0; i < sizeof(bad_ranges) / sizeof(bad_ranges[0]); i++) {
        SCRIPT(&servers[0], {.body = bad_ranges[i].body});
        if (get(etcd) != -STAGER_DATA_LOSS)
            FAIL("%s: %d: %s", bad_ranges[i].body, err.code, err.text);
        CHECK_CONTAINS(err.text, servers[0].url);
        CHECK_CONTAINS(err.text, bad_ranges[i].text);
    }
    end(etcd);
}

static void the_next_endpoint_is_asked_after_a_wrong_answer_to_a_read(void)
{
    struct stg_etcd *etcd = begin(2, LONG_MILLIS);
    SCRIPT(&servers[0], {.body = "<html>"});
    SCRIPT(&servers[1], {.body = NONE});
    CHECK_OK(get(etcd), err);
    CHECK_OK(get(etcd), err);
    CHECK_INT(n_requests(&servers[0]), 1); /* the second call began with the good one */
    CHECK_INT(n_requests(&servers[1]), 2);
    end(etcd);
}

static void a_wrong_answer_to_a_change_leaves_open_whether_it_was_made(void)
{
    static const struct answer answers[] = {
        {.body = ""},
        {.body = "{" HEAD},
        {.body = "{}"},
        {.body = "{" HEAD ",\"succeeded\":1}"},
        {.how = DROP},
        {.how = CUT, .body = DONE},
        {.how = RAW, .body = "HTTP/1.1 200"},
        {.how = RAW, .body = "SSH-2.0-x\r\n"},
        {.status = 500},
        {.status = 503, .body = "<html>"},
        {.status = 504},
        {.body = "{" HEAD_AT("7") ",\"succeeded\":true}"},
        {.body = "{\"header\":{\"cluster_id\":\"6\",\"revision\":\"8\"}}"},
        {.status = 503,
         .body = "{\"error\":\"etcdserver: request timed out\",\"message\":\"etcdserver: "
                 "request timed out\",\"code\":14}"},
        {.status = 503, .body = "{\"message\":\"etcdserver: no leader\",\"code\":14}"},
        {.status = 500, .body = "{\"error\":\"raft: proposal dropped\",\"code\":2}"},
    };
    struct stg_etcd *etcd = begin(2, LONG_MILLIS);
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        bool is_done = true;
        SCRIPT(&servers[0], {.body = DONE}, answers[i]);
        SCRIPT(&servers[1], {.body = NONE});
        /* The first endpoint is the current one, with an open connection. */
        CHECK_OK(change(etcd, &is_done), err);
        if (change(etcd, &is_done) != -STAGER_UNAVAILABLE)
            FAIL("answer %zu: %d: %s", i, err.code, err.text);
        CHECK_CONTAINS(err.text, servers[0].url);
        CHECK_CONTAINS(err.text, "the changes may have been made");
        CHECK_INT(n_requests(&servers[0]), 2);
        CHECK_INT(n_requests(&servers[1]), 0);
        stg_etcd_destroy(etcd);
        CHECK_OK(stg_etcd_create(&settings, &etcd, &err), err);
    }
    end(etcd);
}

/* curl repeats a request whose connection, used before, ends without an answer. */
static void a_change_is_never_sent_twice(void)
{
    struct stg_etcd *etcd = begin(1, LONG_MILLIS);
    bool is_done;
    SCRIPT(&servers[0], {.body = NONE}, {.how = DROP}, {.body = DONE});
    CHECK_OK(get(etcd), err);
    CHECK_INT(change(etcd, &is_done), -STAGER_UNAVAILABLE);
    CHECK_INT(n_requests(&servers[0]), 2);
    end(etcd);
}

static void a_silent_endpoint_leaves_time_for_the_others(void)
{
    struct stg_etcd *etcd = begin(3, SHORT_MILLIS);
    bool is_done;
    for (int i = 0; i < 3; i++)
        SCRIPT(&servers[i], {.how = SILENT});
    CHECK_INT(get(etcd), -STAGER_UNAVAILABLE);
    for (int i = 0; i < 3; i++)
        CHECK_CONTAINS(err.text, servers[i].url);
    CHECK_CONTAINS(err.text, "no answer within");
    CHECK_INT(change(etcd, &is_done), -STAGER_UNAVAILABLE);
    CHECK_CONTAINS(err.text, "the changes may have been made");
    end(etcd);
}

static void an_answer_that_is_too_long_is_refused(void)
{
    static char body[9 << 20];
    struct stg_etcd *etcd = begin(1, LONG_MILLIS);
    bool is_done;
    memset(body, ' ', sizeof(body));
    memcpy(body, NONE, sizeof(NONE) - 1);
    SCRIPT(&servers[0], {.body = body, .bytes = sizeof(body)});
    CHECK_INT(get(etcd), -STAGER_RESOURCE_EXHAUSTED);
    CHECK_CONTAINS(err.text, "the answer is longer than 8388608 bytes");
    CHECK_INT(change(etcd, &is_done), -STAGER_UNAVAILABLE);
    CHECK_CONTAINS(err.text, "the answer is longer than 65536 bytes");
    SCRIPT(&servers[0], {.body = body, .bytes = 8 << 20});
    CHECK_OK(get(etcd), err);
    end(etcd);
}

/* ---- refusals ---- */

static const struct {
    int status;
    const char *body;
    int code;
    const char *text;
} refusals[] = {
    {429, "{\"error\":\"etcdserver: mvcc: database space exceeded\",\"code\":8}",
     STAGER_RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded"},
    {400, "{\"error\":\"etcdserver: request is too large\",\"code\":3}",
     STAGER_INVALID_ARGUMENT, "request is too large"},
    {400,
     "{\"error\":\"etcdserver: mvcc: required revision has been compacted\","
     "\"code\":11}",
     STAGER_INVALID_ARGUMENT, "has been compacted"},
    {403, "{\"error\":\"etcdserver: permission denied\",\"code\":7}",
     STAGER_PERMISSION_DENIED, "permission denied"},
    {401, "{\"error\":\"etcdserver: invalid auth token\",\"code\":16}",
     STAGER_UNAUTHENTICATED, "invalid auth token"},
    {400, "{\"error\":\"etcdserver: user name is empty\",\"code\":3}",
     STAGER_UNAUTHENTICATED, "(etcd requires a user and a password)"},
    {503, "{\"error\":\"etcdserver: no leader\",\"code\":14}", STAGER_UNAVAILABLE,
     "no leader"},
    {500, "{\"error\":\"etcdserver: corrupt cluster\",\"code\":15}", STAGER_DATA_LOSS,
     "corrupt cluster"},
    {404, "{\"error\":\"etcdserver: requested lease not found\",\"code\":5}",
     STAGER_NOT_FOUND, "requested lease not found"},
    /* The form of etcd 3.6, and that of a stream. */
    {400, "{\"code\":3, \"message\":\"etcdserver: key is not provided\", \"details\":[]}",
     STAGER_INVALID_ARGUMENT, "key is not provided"},
    {400,
     "{\"error\":{\"grpc_code\":3,\"http_code\":400,\"message\":\"bad\","
     "\"http_status\":\"Bad Request\"}}",
     STAGER_INVALID_ARGUMENT, "bad"},
    {200, "{\"error\":{\"grpc_code\":14,\"message\":\"a\\u0007b\\nc\"}}",
     STAGER_UNAVAILABLE, "a b c"},
    {404, "Not Found\n", STAGER_UNIMPLEMENTED, "status 404 (it has no JSON gateway"},
    {400, "Client sent an HTTP request to an HTTPS server.\n", STAGER_DATA_LOSS,
     "status 400"},
    {302, "", STAGER_DATA_LOSS, "status 302"},
    {401, "", STAGER_UNAUTHENTICATED, "status 401"},
    {403, "", STAGER_PERMISSION_DENIED, "status 403"},
    {502, "<html>", STAGER_UNAVAILABLE, "status 502"},
    {429, "", STAGER_UNAVAILABLE, "status 429"},
    {500, "{\"error\":\"x\",\"code\":99}", STAGER_UNAVAILABLE, "status 500"},
};

static void a_refusal_has_the_code_and_the_words_of_etcd(void)
{
    struct stg_etcd *etcd = begin(1, LONG_MILLIS);
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        SCRIPT(&servers[0], {.status = refusals[i].status, .body = refusals[i].body});
        CHECK_INT(get(etcd), -refusals[i].code);
        CHECK_CONTAINS(err.text, servers[0].url);
        CHECK_CONTAINS(err.text, refusals[i].text);
    }
    end(etcd);
}

static void an_expired_lease_is_not_found(void)
{
    struct stg_etcd *etcd = begin(1, LONG_MILLIS);
    uint32_t ttl;
    SCRIPT(&servers[0], {.body = "{\"result\":{" HEAD ",\"ID\":\"123\"}}"},
           {.body = "{\"result\":{" HEAD ",\"ID\":\"124\",\"TTL\":\"5\"}}"},
           {.body = "{\"result\":{" HEAD ",\"ID\":\"123\",\"TTL\":\"-5\"}}"},
           {.body = "{" HEAD ",\"ID\":\"123\",\"TTL\":\"5\"}"});
    CHECK_INT(stg_etcd_renew(etcd, 123, &ttl, &err), -STAGER_NOT_FOUND);
    CHECK_CONTAINS(err.text, "lease 7b has expired");
    CHECK_INT(stg_etcd_renew(etcd, 123, &ttl, &err), -STAGER_DATA_LOSS);
    CHECK_CONTAINS(err.text, "another lease");
    CHECK_INT(stg_etcd_renew(etcd, 123, &ttl, &err), -STAGER_DATA_LOSS);
    CHECK_INT(stg_etcd_renew(etcd, 123, &ttl, &err), -STAGER_DATA_LOSS);
    end(etcd);
}

static void endpoints_of_two_clusters_are_an_error(void)
{
    struct stg_etcd *etcd = begin(2, LONG_MILLIS);
    SCRIPT(&servers[0], {.body = NONE}, {.how = DROP});
    SCRIPT(&servers[1],
           {.body = "{\"header\":{\"cluster_id\":\"171\",\"revision\":\"9\"}}"});
    CHECK_OK(get(etcd), err);
    CHECK_INT(get(etcd), -STAGER_UNAVAILABLE);
    CHECK_CONTAINS(err.text, "cluster ab, and an earlier answer came from cluster 5");
    end(etcd);
}

static void a_revision_that_goes_back_is_reported_once(void)
{
    struct stg_etcd *etcd = begin(1, LONG_MILLIS);
    uint32_t ttl;
    SCRIPT(&servers[0], {.body = NONE},
           {.body = "{\"result\":{" HEAD_AT("6") ",\"ID\":\"1\",\"TTL\":\"5\"}}"},
           {.body = "{" HEAD_AT("7") "}"});
    CHECK_OK(get(etcd), err);
    CHECK_OK(stg_etcd_renew(etcd, 1, &ttl, &err), err); /* of a member that lags */
    CHECK_INT(get(etcd), -STAGER_DATA_LOSS);
    CHECK_CONTAINS(err.text, "the revision went back from 8 to 7");
    CHECK_OK(get(etcd), err);
    end(etcd);
}

/* ---- users ---- */

#define PASSWORD "open sesame"

static char password_file[64];

static struct stg_etcd *begin_with_user(size_t n)
{
    strcpy(password_file, "/tmp/stg-etcd-XXXXXX");
    int fd = mkstemp(password_file);
    CHECK(fd >= 0 && write(fd, PASSWORD "\nmore\n", 17) == 17);
    close(fd);
    settings.user = "ada";
    settings.password_file = password_file;
    return begin(n, LONG_MILLIS);
}

static void end_with_user(struct stg_etcd *etcd)
{
    end(etcd);
    unlink(password_file);
}

#define INVALID                                                                          \
    {                                                                                    \
        .status = 401,                                                                   \
        .body = "{\"error\":\"etcdserver: invalid auth token\",\"code\":16}"             \
    }

static void a_client_logs_in_when_its_token_is_refused(void)
{
    struct stg_etcd *etcd = begin_with_user(1);
    const struct request *requests = servers[0].requests;
    bool is_done = false;
    SCRIPT(
        &servers[0], {.body = LOGIN("t1.1")}, {.body = NONE}, INVALID,
        {.body = LOGIN("t2.2")}, {.body = DONE},
        {.status = 400,
         .body = "{\"error\":\"etcdserver: revision of auth store is old\",\"code\":3}"},
        {.body = LOGIN("t3.3")}, {.body = NONE});
    CHECK_OK(get(etcd), err);
    CHECK_OK(change(etcd, &is_done), err);
    CHECK(is_done);
    CHECK_OK(get(etcd), err);
    CHECK_INT(n_requests(&servers[0]), 8);
    CHECK_STR(requests[0].path, "/v3/auth/authenticate");
    CHECK_STR(requests[0].body, "{\"name\": \"ada\", \"password\": \"open sesame\"}");
    CHECK_STR(requests[0].authorization, "");
    CHECK_STR(requests[1].authorization, "t1.1");
    CHECK_STR(requests[2].authorization, "t1.1");
    CHECK_STR(requests[3].authorization, "");
    CHECK_STR(requests[4].authorization, "t2.2");
    CHECK_STR(requests[7].authorization, "t3.3");
    end_with_user(etcd);
}

static void a_token_that_is_always_refused_ends_the_call(void)
{
    struct stg_etcd *etcd = begin_with_user(1);
    bool is_done;
    SCRIPT(&servers[0], {.body = LOGIN("t1")}, INVALID, INVALID, {.body = LOGIN("t2")},
           INVALID);
    CHECK_INT(get(etcd), -STAGER_UNAUTHENTICATED);
    CHECK_INT(n_requests(&servers[0]), 2);
    CHECK_INT(change(etcd, &is_done), -STAGER_UNAUTHENTICATED);
    CHECK(strstr(err.text, "may have been made") == NULL);
    CHECK_INT(n_requests(&servers[0]), 5);
    end_with_user(etcd);
}

static void a_login_that_fails_has_no_secret_in_its_text(void)
{
    static const struct {
        struct answer answer;
        int code;
    } rows[] = {
        {{.status = 400,
          .body = "{\"error\":\"etcdserver: authentication failed, invalid user ID or "
                  "password " PASSWORD "\",\"code\":3}"},
         STAGER_UNAUTHENTICATED},
        {{.status = 412,
          .body = "{\"error\":\"etcdserver: authentication is not enabled\",\"code\":9}"},
         STAGER_FAILED_PRECONDITION},
        {{.status = 500, .body = PASSWORD}, STAGER_UNAVAILABLE},
        {{.body = NONE}, STAGER_DATA_LOSS},
        {{.body = LOGIN("")}, STAGER_DATA_LOSS},
        {{.body = LOGIN("open sesame")}, STAGER_DATA_LOSS},
        {{.body = LOGIN("a\\r\\nX: open sesame")}, STAGER_DATA_LOSS},
        {{.body = LOGIN("open sesame\\u0000")}, STAGER_DATA_LOSS},
        {{.how = DROP}, STAGER_UNAVAILABLE},
    };
    struct stg_etcd *etcd = begin_with_user(1);
    bool is_done;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        SCRIPT(&servers[0], rows[i].answer);
        CHECK_INT(change(etcd, &is_done), -rows[i].code);
        CHECK_CONTAINS(err.text, "user ada cannot log in");
        CHECK(strstr(err.text, PASSWORD) == NULL);
        CHECK(strstr(err.text, "may have been made") == NULL);
    }
    SCRIPT(&servers[0], {.body = LOGIN("secret.1")},
           {.status = 503, .body = "{\"error\":\"not secret.1\",\"code\":14}"});
    CHECK_INT(get(etcd), -STAGER_UNAVAILABLE);
    CHECK(strstr(err.text, "secret") == NULL);
    end_with_user(etcd);
}

static void a_change_goes_to_the_next_endpoint_if_the_login_does_not_come_through(void)
{
    struct stg_etcd *etcd = begin_with_user(2);
    bool is_done = false;
    SCRIPT(&servers[0], {.how = DROP});
    SCRIPT(&servers[1], {.body = LOGIN("t1")}, {.body = DONE});
    CHECK_OK(change(etcd, &is_done), err);
    CHECK(is_done);
    CHECK_INT(n_requests(&servers[0]), 1);
    end_with_user(etcd);
}

static void a_password_file_that_cannot_be_used_is_named(void)
{
    struct stg_etcd *etcd = begin_with_user(1);
    static char long_text[5000];
    memset(long_text, 'x', sizeof(long_text));
    SCRIPT(&servers[0], {.body = LOGIN("t1")});
    for (int i = 0; i < 6; i++) {
        static const char *const texts[] = {
            "No such file or directory",        "not a regular file",
            "other users may read or write it", "is not a password in UTF-8",
            "is not a password in UTF-8",       "longer than"};
        unlink(password_file);
        if (i == 1)
            CHECK(mkfifo(password_file, 0600) == 0);
        int fd = i >= 2 ? open(password_file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) : -1;
        if (i == 2)
            CHECK(fchmod(fd, 0644) == 0);
        if (i == 3)
            CHECK(write(fd, "\nx", 2) == 2);
        if (i == 4)
            CHECK(write(fd, "\xff\n", 2) == 2);
        if (i == 5)
            CHECK(write(fd, long_text, sizeof(long_text)) == (ssize_t)sizeof(long_text));
        if (fd >= 0)
            close(fd);
        CHECK_INT(get(etcd), -STAGER_FAILED_PRECONDITION);
        CHECK_INT(err.code, -STAGER_FAILED_PRECONDITION);
        CHECK_CONTAINS(err.text, password_file);
        CHECK_CONTAINS(err.text, texts[i]);
    }
    CHECK_INT(n_requests(&servers[0]), 0);
    end_with_user(etcd);
}

/* ---- settings ---- */

static void settings_that_are_not_valid_are_refused(void)
{
    static const char *const bad[] = {"",
                                      "host:2379",
                                      "ftp://host",
                                      "http://",
                                      "http://:2379",
                                      "http://host:2379/v3",
                                      "http://host:x",
                                      "http://ada:secret@host",
                                      "http://host?x",
                                      "http://ho st",
                                      "http://[::1",
                                      "http://host\r\nX: y"};
    struct stg_etcd *etcd = NULL;
    struct stg_etcd_settings good = {
        .endpoints = endpoints, .n_endpoints = 1, .timeout_millis = 1};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        endpoints[0] = bad[i];
        CHECK_INT(stg_etcd_create(&good, &etcd, &err), -STAGER_INVALID_ARGUMENT);
        CHECK_CONTAINS(err.text, "is not an endpoint such as http://host:2379");
    }
    endpoints[0] = "https://[::1]:2379";
    CHECK_OK(stg_etcd_create(&good, &etcd, &err), err);
    stg_etcd_destroy(etcd);
    struct stg_etcd_settings each[] = {good, good, good, good, good, good};
    each[0].n_endpoints = 0;
    each[1].n_endpoints = STG_ETCD_MAX_ENDPOINTS + 1;
    each[2].timeout_millis = 0;
    each[3].user = "ada";
    each[4].password_file = "/x";
    each[5].key_file = "/x";
    for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++)
        CHECK_INT(stg_etcd_create(&each[i], &etcd, &err), -STAGER_INVALID_ARGUMENT);
    stg_etcd_destroy(NULL);
}

/* ---- resources that are missing ---- */

#define ONE_OF_EACH                                                                      \
    {.body = LOGIN("t1")},                                                               \
        {.body = "{" HEAD ",\"kvs\":[" ENTRY("Zm9v", REVISIONS) "],\"count\":\"1\"}"},   \
        {.body = DONE}, {.body = "{" HEAD ",\"ID\":\"1\"}"},                             \
        {.body = "{\"result\":{" HEAD ",\"ID\":\"1\",\"TTL\":\"5\"}}"},                  \
    {                                                                                    \
        .body = NONE                                                                     \
    }

static const struct answer one_of_each[] = {ONE_OF_EACH};

/* All calls, with a login; what has failed, fails no later one. */
static int attempt(void *owner)
{
    struct stg_etcd *etcd;
    int64_t lease;
    uint32_t ttl;
    bool is_done;
    script(&servers[0], one_of_each, sizeof(one_of_each) / sizeof(one_of_each[0]));
    int rc = stg_etcd_create(&settings, &etcd, &err);
    if (rc < 0)
        return rc;
    rc = get(etcd);
    if (rc == 0)
        rc = change(etcd, &is_done);
    if (rc == 0)
        rc = stg_etcd_grant(etcd, 5, &lease, &err);
    if (rc == 0)
        rc = stg_etcd_renew(etcd, 1, &ttl, &err);
    if (rc == 0)
        rc = stg_etcd_revoke(etcd, 1, &err);
    stg_etcd_destroy(etcd);
    return rc;
}

static void memory_that_is_missing_is_an_error(void)
{
    struct stg_etcd *etcd = begin_with_user(1);
    CHECK(stg_failalloc_each(attempt, NULL) > 5);
    end_with_user(etcd);
}

/* The calls of libcurl by which a request begins. */
static unsigned fails_at; /* 0: never */
static unsigned n_calls;

static bool fails(void)
{
    return ++n_calls == fails_at;
}

CURLcode __real_curl_global_init(long flags);
CURLcode __wrap_curl_global_init(long flags);
CURL *__real_curl_easy_init(void);
CURL *__wrap_curl_easy_init(void);
CURLcode __real_curl_easy_setopt(CURL *easy, CURLoption option, ...);
CURLcode __wrap_curl_easy_setopt(CURL *easy, CURLoption option, ...);
struct curl_slist *__real_curl_slist_append(struct curl_slist *list, const char *text);
struct curl_slist *__wrap_curl_slist_append(struct curl_slist *list, const char *text);

CURLcode __wrap_curl_global_init(long flags)
{
    return fails() ? CURLE_OUT_OF_MEMORY : __real_curl_global_init(flags);
}

CURL *__wrap_curl_easy_init(void)
{
    return fails() ? NULL : __real_curl_easy_init();
}

#undef curl_easy_setopt
CURLcode __wrap_curl_easy_setopt(CURL *easy, CURLoption option, ...)
{
    va_list args;
    va_start(args, option);
    void *value = va_arg(args, void *);
    va_end(args);
    return fails() ? CURLE_OUT_OF_MEMORY : __real_curl_easy_setopt(easy, option, value);
}

struct curl_slist *__wrap_curl_slist_append(struct curl_slist *list, const char *text)
{
    return fails() ? NULL : __real_curl_slist_append(list, text);
}

static void a_call_of_libcurl_that_fails_is_an_error(void)
{
    struct stg_etcd *etcd = begin_with_user(1);
    int rc = -1;
    unsigned n = 0;
    while (rc != 0) {
        fails_at = ++n;
        n_calls = 0;
        rc = attempt(NULL);
        if (rc != 0)
            CHECK_INT(rc, -STAGER_RESOURCE_EXHAUSTED);
        if (rc != 0)
            CHECK_CONTAINS(err.text, "out of memory");
    }
    CHECK(n > 50);
    end_with_user(etcd);
}

static const struct stg_test tests[] = {
    TEST_SLOW(requests_have_the_documented_form, 60),
    TEST_SLOW(answers_are_read_as_etcd_writes_them, 60),
    TEST_SLOW(a_wrong_answer_to_a_read_is_an_error_that_names_the_endpoint, 60),
    TEST_SLOW(the_next_endpoint_is_asked_after_a_wrong_answer_to_a_read, 60),
    TEST_SLOW(a_wrong_answer_to_a_change_leaves_open_whether_it_was_made, 60),
    TEST_SLOW(a_change_is_never_sent_twice, 60),
    TEST_SLOW(a_silent_endpoint_leaves_time_for_the_others, 60),
    TEST_SLOW(an_answer_that_is_too_long_is_refused, 60),
    TEST_SLOW(a_refusal_has_the_code_and_the_words_of_etcd, 60),
    TEST_SLOW(an_expired_lease_is_not_found, 60),
    TEST_SLOW(endpoints_of_two_clusters_are_an_error, 60),
    TEST_SLOW(a_revision_that_goes_back_is_reported_once, 60),
    TEST_SLOW(a_client_logs_in_when_its_token_is_refused, 60),
    TEST_SLOW(a_token_that_is_always_refused_ends_the_call, 60),
    TEST_SLOW(a_login_that_fails_has_no_secret_in_its_text, 60),
    TEST_SLOW(a_change_goes_to_the_next_endpoint_if_the_login_does_not_come_through, 60),
    TEST_SLOW(a_password_file_that_cannot_be_used_is_named, 60),
    TEST_SLOW(settings_that_are_not_valid_are_refused, 60),
    TEST_SLOW(memory_that_is_missing_is_an_error, 120),
    TEST_SLOW(a_call_of_libcurl_that_fails_is_an_error, 120),
};

TEST_MAIN(tests)
