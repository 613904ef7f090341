/* SPDX-License-Identifier: Apache-2.0
 *
 * Endpoints are tried one after another. A change is sent once: what it came to is
 * unknown when its answer is lost, and a second request would see the first one's keys.
 */
#include "daemon/cluster/etcd.h"

#include <assert.h>
#include <curl/curl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/text/json.h"
#include "daemon/cluster/etcd_text.h"
#include "daemon/host/text_file.h"
#include "daemon/storage/http/libraries.h"
#include "daemon/storage/http/url.h"

#define ANSWER_BYTES ((size_t)64 << 10) /* all answers but those of ranges */
#define RANGE_BYTES ((size_t)8 << 20)
#define PASSWORD_BYTES 4096u
#define URL_BYTES 512u
#define LOGIN_PATH "/v3/auth/authenticate"

struct stg_etcd {
    struct stg_etcd_settings settings;
    CURL *easy;
    struct curl_slist *headers; /* of the request in work */
    size_t current;             /* the endpoint that is asked first */
    char *token;                /* NULL: none */
    char *text;                 /* the answer */
    size_t bytes, room, limit;
    bool has_no_memory, is_too_long;
    uint64_t cluster; /* of the first answer; 0: there was none */
    int64_t revision; /* the newest that was seen */
};

struct call {
    const char *path;
    const char *body;
    size_t bytes;
    bool is_change;
    bool is_ordered; /* its revision is not older than that of an earlier answer */
    uint64_t due_ns;

    /* What it asks for, and what came. */
    int (*read)(struct call *call, const char *text, size_t bytes, struct stg_err *err);
    const char *key;
    bool prefix;
    int64_t lease;
    struct stg_etcd_range range;
    bool is_done;
    uint32_t ttl_seconds;
    char *token;
    struct stg_etcd_head head;

    /* Of a failed attempt. */
    bool is_lost;    /* the server may have done it, or may do it still */
    bool tries_next; /* another endpoint may do better */
    bool wants_login;
};

static const char *shown(const struct stg_etcd *etcd)
{
    return etcd->settings.endpoints[etcd->current];
}

/* ---- one request ---- */

static size_t on_body(char *bytes, size_t size, size_t count, void *userdata)
{
    struct stg_etcd *etcd = userdata;
    size_t n = size * count;
    if (n > etcd->limit - etcd->bytes) {
        etcd->is_too_long = true;
        return CURL_WRITEFUNC_ERROR;
    }
    if (n > etcd->room - etcd->bytes) {
        size_t room = 2 * etcd->room > etcd->bytes + n ? 2 * etcd->room : etcd->bytes + n;
        char *text = realloc(etcd->text, room);
        if (text == NULL) {
            etcd->has_no_memory = true;
            return CURL_WRITEFUNC_ERROR;
        }
        etcd->text = text;
        etcd->room = room;
    }
    memcpy(etcd->text + etcd->bytes, bytes, n);
    etcd->bytes += n;
    return n;
}

static bool add_header(struct stg_etcd *etcd, const char *line)
{
    struct curl_slist *headers = curl_slist_append(etcd->headers, line);
    if (headers != NULL)
        etcd->headers = headers;
    return headers != NULL;
}

static bool add_token(struct stg_etcd *etcd)
{
    char *line = NULL;
    if (asprintf(&line, "Authorization: %s", etcd->token) < 0)
        return false;
    bool ok = add_header(etcd, line);
    explicit_bzero(line, strlen(line));
    free(line);
    return ok;
}

#define SET(option, value) (curl_easy_setopt(etcd->easy, option, value) == CURLE_OK)

static bool set_how(struct stg_etcd *etcd)
{
    return SET(CURLOPT_NOSIGNAL, 1l) && SET(CURLOPT_QUICK_EXIT, 1l) &&
           SET(CURLOPT_NOPROGRESS, 1l) && SET(CURLOPT_PROXY, "") &&
           SET(CURLOPT_PROTOCOLS_STR, "http,https") && SET(CURLOPT_USERAGENT, "stager") &&
           SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) &&
           SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED) &&
           SET(CURLOPT_WRITEFUNCTION, on_body) && SET(CURLOPT_WRITEDATA, etcd);
}

/* A file of authorities replaces those of this machine. */
static bool set_certificates(struct stg_etcd *etcd)
{
    const struct stg_etcd_settings *settings = &etcd->settings;
    return (settings->ca_file == NULL || (SET(CURLOPT_CAINFO, settings->ca_file) &&
                                          SET(CURLOPT_CAPATH, (char *)NULL))) &&
           (settings->cert_file == NULL || SET(CURLOPT_SSLCERT, settings->cert_file)) &&
           (settings->key_file == NULL || SET(CURLOPT_SSLKEY, settings->key_file));
}

/* On a connection that was used before, curl may send a request twice. */
static bool set_request(struct stg_etcd *etcd, const struct call *call, long connect_ms,
                        long limit_ms)
{
    char url[URL_BYTES + 64];
    snprintf(url, sizeof(url), "%s%s", shown(etcd), call->path);
    return add_header(etcd, "Content-Type: application/json") &&
           add_header(etcd, "Expect:") && (etcd->token == NULL || add_token(etcd)) &&
           SET(CURLOPT_URL, url) && SET(CURLOPT_HTTPHEADER, etcd->headers) &&
           SET(CURLOPT_POSTFIELDSIZE, (long)call->bytes) &&
           SET(CURLOPT_POSTFIELDS, call->body) &&
           SET(CURLOPT_FRESH_CONNECT, call->is_change ? 1l : 0l) &&
           SET(CURLOPT_CONNECTTIMEOUT_MS, connect_ms) &&
           SET(CURLOPT_TIMEOUT_MS, limit_ms);
}

static CURLcode request(struct stg_etcd *etcd, struct call *call, long connect_ms,
                        long limit_ms)
{
    long sent = 0;
    etcd->bytes = 0;
    etcd->limit = call->key != NULL ? RANGE_BYTES : ANSWER_BYTES;
    etcd->has_no_memory = etcd->is_too_long = false;
    CURLcode result = CURLE_OUT_OF_MEMORY;
    if (set_request(etcd, call, connect_ms, limit_ms)) {
        result = curl_easy_perform(etcd->easy);
        curl_easy_getinfo(etcd->easy, CURLINFO_REQUEST_SIZE, &sent);
    }
    call->is_lost = result != CURLE_OK && sent > 0;
    curl_slist_free_all(etcd->headers);
    etcd->headers = NULL;
    return result;
}

/* ---- what came of it ---- */

static bool is_of_tls(CURLcode result)
{
    return result == CURLE_PEER_FAILED_VERIFICATION ||
           result == CURLE_SSL_CACERT_BADFILE || result == CURLE_SSL_CERTPROBLEM ||
           result == CURLE_SSL_ISSUER_ERROR;
}

static int fail_by_curl(const struct stg_etcd *etcd, struct call *call, CURLcode result,
                        struct stg_err *err)
{
    const struct stg_etcd_settings *settings = &etcd->settings;
    if (etcd->is_too_long)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                       "the answer is longer than %zu bytes", etcd->limit);
    if (etcd->has_no_memory || result == CURLE_OUT_OF_MEMORY)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    call->tries_next = true;
    if (is_of_tls(result))
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "%s (authorities: %s; certificate of this client: %s)",
                       curl_easy_strerror(result),
                       settings->ca_file != NULL ? settings->ca_file : "/etc/ssl/certs",
                       settings->cert_file != NULL ? settings->cert_file : "none");
    return stg_err(err, -STAGER_UNAVAILABLE, "%s", curl_easy_strerror(result));
}

/* Returns the code of a refusal. gRPC's codes are those of stager. */
static int code_of(int grpc, const char *reason)
{
    bool wants_login = strstr(reason, "user name is empty") != NULL ||
                       strstr(reason, "authentication failed") != NULL ||
                       strstr(reason, "revision of auth store is old") != NULL;
    switch (grpc) {
    case STAGER_INVALID_ARGUMENT:
        return wants_login ? -STAGER_UNAUTHENTICATED : -STAGER_INVALID_ARGUMENT;
    case STAGER_OUT_OF_RANGE: return -STAGER_INVALID_ARGUMENT;
    case STAGER_NOT_FOUND:
    case STAGER_PERMISSION_DENIED:
    case STAGER_RESOURCE_EXHAUSTED:
    case STAGER_FAILED_PRECONDITION:
    case STAGER_UNIMPLEMENTED:
    case STAGER_DATA_LOSS:
    case STAGER_UNAUTHENTICATED: return -grpc;
    default: return -STAGER_UNAVAILABLE;
    }
}

/* A server may repeat what was sent. */
static bool has_secret(const struct stg_etcd *etcd, const struct call *call,
                       const char *reason)
{
    return strcmp(call->path, LOGIN_PATH) == 0 ||
           (etcd->token != NULL && strstr(reason, etcd->token) != NULL);
}

static int refuse(const struct stg_etcd *etcd, struct call *call, int grpc,
                  const char *reason, struct stg_err *err)
{
    int rc = code_of(grpc, reason);
    bool is_empty = strstr(reason, "user name is empty") != NULL;
    call->is_lost = call->tries_next = rc == -STAGER_UNAVAILABLE;
    call->wants_login = rc == -STAGER_UNAUTHENTICATED;
    const char *hint = is_empty && etcd->settings.user == NULL
                           ? " (etcd requires a user and a password)"
                       : strstr(reason, "database space exceeded") != NULL
                           ? " (compact and defragment etcd, then clear its alarm)"
                           : "";
    return stg_err(err, rc, "%s%s",
                   has_secret(etcd, call, reason) ? stg_status_name(rc) : reason, hint);
}

/* An answer that is none of etcd's. */
static int refuse_by_status(struct call *call, long status, struct stg_err *err)
{
    int rc = status == 404                                     ? -STAGER_UNIMPLEMENTED
             : status == 401                                   ? -STAGER_UNAUTHENTICATED
             : status == 403                                   ? -STAGER_PERMISSION_DENIED
             : status >= 500 || status == 408 || status == 429 ? -STAGER_UNAVAILABLE
                                                               : -STAGER_DATA_LOSS;
    call->is_lost = rc == -STAGER_UNAVAILABLE;
    call->tries_next = true;
    call->wants_login = rc == -STAGER_UNAUTHENTICATED;
    return stg_err(err, rc, "the server answered HTTP status %ld%s", status,
                   status == 404 ? " (it has no JSON gateway below /v3)" : "");
}

/* Other endpoints must serve the same keys, and none may go back in time. */
static int check_head(struct stg_etcd *etcd, struct call *call, struct stg_err *err)
{
    const struct stg_etcd_head *head = &call->head;
    if (etcd->cluster != 0 && head->cluster != etcd->cluster) {
        call->tries_next = true;
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "the endpoint belongs to cluster %" PRIx64
                       ", and an earlier answer came from cluster %" PRIx64,
                       head->cluster, etcd->cluster);
    }
    int64_t before = etcd->revision;
    etcd->cluster = head->cluster;
    if (!call->is_ordered)
        return 0;
    etcd->revision = head->revision;
    if (head->revision < before)
        return stg_err(err, -STAGER_DATA_LOSS,
                       "the revision went back from %" PRId64 " to %" PRId64
                       " (has the cluster been restored from a backup?)",
                       before, head->revision);
    return 0;
}

static int take_answer(struct stg_etcd *etcd, struct call *call, struct stg_err *err)
{
    char reason[STG_ETCD_REASON_BYTES];
    long status = 0;
    curl_easy_getinfo(etcd->easy, CURLINFO_RESPONSE_CODE, &status);
    int grpc = stg_etcd_read_refusal(etcd->text, etcd->bytes, reason);
    if (grpc > 0)
        return refuse(etcd, call, grpc, reason, err);
    if (status != 200)
        return refuse_by_status(call, status, err);
    int rc = call->read(call, etcd->text, etcd->bytes, err);
    call->tries_next = rc == -STAGER_DATA_LOSS;
    if (rc == 0)
        rc = check_head(etcd, call, err);
    call->is_lost = rc < 0;
    if (rc < 0)
        stg_etcd_range_finish(&call->range);
    return rc;
}

/* Asks the current endpoint once. A change has all the time that is left. */
static int attempt(struct stg_etcd *etcd, struct call *call, uint64_t until_ns,
                   struct stg_err *err)
{
    uint64_t now = stg_now_ns();
    long connect_ms = until_ns > now ? (long)((until_ns - now) / 1000000u) : 0;
    long limit_ms = call->is_change && call->due_ns > now
                        ? (long)((call->due_ns - now) / 1000000u)
                        : connect_ms;
    call->is_lost = call->tries_next = call->wants_login = false;
    if (connect_ms == 0) {
        call->tries_next = true;
        return stg_err(err, -STAGER_UNAVAILABLE,
                       "the timeout expired before this endpoint was asked");
    }
    CURLcode result = request(etcd, call, connect_ms, limit_ms);
    if (result == CURLE_OK)
        return take_answer(etcd, call, err);
    int rc = fail_by_curl(etcd, call, result, err);
    if (result == CURLE_OPERATION_TIMEDOUT)
        rc = stg_err(err, rc, "no answer within %ld ms", limit_ms);
    return rc;
}

/* ---- login ---- */

static void drop(char **secret)
{
    if (*secret != NULL)
        explicit_bzero(*secret, strlen(*secret));
    free(*secret);
    *secret = NULL;
}

static int read_login(struct call *call, const char *text, size_t bytes,
                      struct stg_err *err)
{
    return stg_etcd_read_login(text, bytes, &call->token, &call->head, err);
}

/* A code of the system would read as one of etcd: NOT_FOUND is a lease that expired. */
static int read_password(const struct stg_etcd *etcd, char **ret, struct stg_err *err)
{
    const char *path = etcd->settings.password_file;
    struct stat st;
    size_t bytes;
    int rc = stg_text_file_read(path, PASSWORD_BYTES, &st, ret, &bytes, err);
    if (rc == -STAGER_RESOURCE_EXHAUSTED)
        return rc;
    if (rc < 0 && err != NULL)
        err->code = -STAGER_FAILED_PRECONDITION;
    if (rc < 0)
        return -STAGER_FAILED_PRECONDITION;
    if ((st.st_mode & (S_IROTH | S_IWOTH | S_IWGRP)) != 0) {
        drop(ret);
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "%s holds a password, but other users may read or write it: run "
                       "`chmod g-w,o= %s`",
                       path, path);
    }
    size_t n = strcspn(*ret, "\r\n");
    explicit_bzero(*ret + n, bytes - n);
    if (n > 0 && stg_json_is_text(*ret, n))
        return 0;
    drop(ret);
    return stg_err(err, -STAGER_FAILED_PRECONDITION,
                   "%s: its first line is not a password in UTF-8", path);
}

static int login(struct stg_etcd *etcd, struct call *for_call, uint64_t until_ns,
                 struct stg_err *err)
{
    struct call call = {.path = LOGIN_PATH, .read = read_login};
    char *password = NULL;
    for_call->is_lost = for_call->tries_next = for_call->wants_login = false;
    int rc = read_password(etcd, &password, err);
    if (rc < 0)
        return rc;
    char *body = stg_etcd_text_login(etcd->settings.user, password, &call.bytes);
    drop(&password);
    drop(&etcd->token);
    if (body == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    call.body = body;
    rc = attempt(etcd, &call, until_ns, err);
    drop(&body);
    explicit_bzero(etcd->text, etcd->bytes);
    etcd->token = call.token;
    for_call->tries_next = call.tries_next;
    if (rc < 0)
        stg_err_prefix(err, rc, "user %s cannot log in", etcd->settings.user);
    return rc;
}

/* ---- calls ---- */

/* Asks the current endpoint, behind a login where one is needed. */
static int ask(struct stg_etcd *etcd, struct call *call, uint64_t until_ns,
               struct stg_err *err)
{
    bool has_user = etcd->settings.user != NULL;
    bool logs_in = has_user && etcd->token == NULL;
    int rc = logs_in ? login(etcd, call, until_ns, err) : 0;
    if (rc == 0)
        rc = attempt(etcd, call, until_ns, err);
    if (rc == 0 || !call->wants_login || !has_user || logs_in)
        return rc;
    rc = login(etcd, call, until_ns, err); /* the token has expired */
    return rc < 0 ? rc : attempt(etcd, call, until_ns, err);
}

/* Asks one endpoint after another. The error names all that were asked. */
static int exchange(struct stg_etcd *etcd, struct call *call, struct stg_err *err)
{
    struct stg_err all = {0};
    size_t n = etcd->settings.n_endpoints;
    bool goes_on = true, is_away = false;
    int rc = 0;
    call->due_ns = stg_now_ns() + (uint64_t)etcd->settings.timeout_millis * 1000000u;
    for (size_t left = n; left > 0 && goes_on; left--) {
        struct stg_err one = {0};
        uint64_t now = stg_now_ns();
        uint64_t share = call->due_ns > now ? (call->due_ns - now) / left : 0;
        rc = ask(etcd, call, now + share, &one);
        if (rc == 0)
            return 0;
        bool is_lost = call->is_change && call->is_lost;
        if (is_lost)
            rc = -STAGER_UNAVAILABLE;
        stg_err_append(&all, rc, "%setcd %s: %s%s", left < n ? "; " : "", shown(etcd),
                       one.text, is_lost ? ": the changes may have been made" : "");
        goes_on = call->tries_next && !is_lost;
        is_away |= rc == -STAGER_UNAVAILABLE;
        if (call->tries_next)
            etcd->current = (etcd->current + 1) % n;
    }
    rc = goes_on && is_away ? -STAGER_UNAVAILABLE : rc;
    all.code = rc;
    all.row = -1;
    if (err != NULL)
        *err = all;
    return rc;
}

static int no_memory(struct stg_err *err)
{
    return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "etcd: out of memory");
}

/* Frees the body, which may be NULL. */
static int call_with(struct stg_etcd *etcd, struct call *call, char *body,
                     struct stg_err *err)
{
    if (body == NULL)
        return no_memory(err);
    call->body = body;
    int rc = exchange(etcd, call, err);
    free(body);
    return rc;
}

static int read_range(struct call *call, const char *text, size_t bytes,
                      struct stg_err *err)
{
    return stg_etcd_read_range(text, bytes, call->key, call->prefix, &call->range,
                               &call->head, err);
}

int stg_etcd_get(struct stg_etcd *etcd, const char *key, bool prefix,
                 struct stg_etcd_range *ret, struct stg_err *err)
{
    assert(key[0] != '\0');
    struct call call = {.path = "/v3/kv/range",
                        .read = read_range,
                        .is_ordered = true,
                        .key = key,
                        .prefix = prefix};
    char *body = stg_etcd_text_range(key, prefix, &call.bytes);
    int rc = call_with(etcd, &call, body, err);
    if (rc == 0)
        *ret = call.range;
    return rc;
}

static int read_grant(struct call *call, const char *text, size_t bytes,
                      struct stg_err *err)
{
    return stg_etcd_read_grant(text, bytes, &call->lease, &call->head, err);
}

int stg_etcd_grant(struct stg_etcd *etcd, uint32_t ttl_seconds, int64_t *ret_lease,
                   struct stg_err *err)
{
    struct call call = {.path = "/v3/lease/grant", .read = read_grant};
    char *body = stg_etcd_text_grant(ttl_seconds, &call.bytes);
    int rc = call_with(etcd, &call, body, err);
    if (rc == 0)
        *ret_lease = call.lease;
    return rc;
}

static int read_renew(struct call *call, const char *text, size_t bytes,
                      struct stg_err *err)
{
    return stg_etcd_read_renew(text, bytes, call->lease, &call->ttl_seconds, &call->head,
                               err);
}

int stg_etcd_renew(struct stg_etcd *etcd, int64_t lease, uint32_t *ret_ttl_seconds,
                   struct stg_err *err)
{
    struct call call = {
        .path = "/v3/lease/keepalive", .read = read_renew, .lease = lease};
    char *body = stg_etcd_text_lease(lease, &call.bytes);
    int rc = call_with(etcd, &call, body, err);
    if (rc < 0)
        return rc;
    if (call.ttl_seconds == 0)
        return stg_err(err, -STAGER_NOT_FOUND, "etcd %s: lease %" PRIx64 " has expired",
                       shown(etcd), (uint64_t)lease);
    *ret_ttl_seconds = call.ttl_seconds;
    return 0;
}

static int read_revoke(struct call *call, const char *text, size_t bytes,
                       struct stg_err *err)
{
    return stg_etcd_read_revoke(text, bytes, &call->head, err);
}

int stg_etcd_revoke(struct stg_etcd *etcd, int64_t lease, struct stg_err *err)
{
    struct stg_err why = {0};
    struct call call = {.path = "/v3/kv/lease/revoke", .read = read_revoke};
    char *body = stg_etcd_text_lease(lease, &call.bytes);
    int rc = call_with(etcd, &call, body, &why);
    if (rc == -STAGER_NOT_FOUND)
        return 0;
    if (rc < 0 && err != NULL)
        *err = why;
    return rc;
}

static int read_txn(struct call *call, const char *text, size_t bytes,
                    struct stg_err *err)
{
    return stg_etcd_read_txn(text, bytes, &call->is_done, &call->head, err);
}

int stg_etcd_txn(struct stg_etcd *etcd, const struct stg_etcd_compare *compares,
                 size_t n_compares, const struct stg_etcd_put *puts, size_t n_puts,
                 bool *ret_done, int64_t *ret_revision, struct stg_err *err)
{
    struct call call = {
        .path = "/v3/kv/txn", .read = read_txn, .is_change = true, .is_ordered = true};
    char *body = stg_etcd_text_txn(compares, n_compares, puts, n_puts, &call.bytes);
    int rc = call_with(etcd, &call, body, err);
    if (rc < 0)
        return rc;
    *ret_done = call.is_done;
    *ret_revision = call.head.revision;
    return 0;
}

/* ---- life ---- */

static int check(const struct stg_etcd_settings *settings, struct stg_err *err)
{
    struct stg_url_place place;
    const char *wrong = NULL;
    if (settings->n_endpoints < 1 || settings->n_endpoints > STG_ETCD_MAX_ENDPOINTS)
        wrong = "the settings need 1 to 16 endpoints";
    else if (settings->timeout_millis == 0)
        wrong = "the timeout must not be 0";
    else if ((settings->user != NULL) != (settings->password_file != NULL))
        wrong = "a user needs a password file, and a password file a user";
    else if (settings->user != NULL &&
             (settings->user[0] == '\0' ||
              !stg_json_is_text(settings->user, strlen(settings->user))))
        wrong = "the name of the user is empty or not UTF-8";
    else if (settings->key_file != NULL && settings->cert_file == NULL)
        wrong = "a key file needs a certificate file";
    if (wrong != NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "etcd: %s", wrong);
    for (size_t i = 0; i < settings->n_endpoints; i++) {
        if (!stg_url_place(settings->endpoints[i], &place) || place.path[0] != '\0')
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "etcd: \"%.128s\" is not an endpoint such as "
                           "http://host:2379",
                           settings->endpoints[i]);
    }
    return 0;
}

int stg_etcd_create(const struct stg_etcd_settings *settings, struct stg_etcd **ret,
                    struct stg_err *err)
{
    int rc = check(settings, err);
    if (rc == 0)
        rc = stg_http_libraries(err);
    if (rc < 0)
        return rc;
    struct stg_etcd *etcd = calloc(1, sizeof(*etcd));
    if (etcd == NULL || curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        free(etcd);
        return no_memory(err);
    }
    etcd->settings = *settings;
    etcd->room = ANSWER_BYTES;
    etcd->text = malloc(etcd->room);
    etcd->easy = curl_easy_init();
    if (etcd->text == NULL || etcd->easy == NULL || !set_how(etcd) ||
        !set_certificates(etcd)) {
        stg_etcd_destroy(etcd);
        return no_memory(err);
    }
    *ret = etcd;
    return 0;
}

void stg_etcd_destroy(struct stg_etcd *etcd)
{
    if (etcd == NULL)
        return;
    curl_easy_cleanup(etcd->easy);
    drop(&etcd->token);
    free(etcd->text);
    free(etcd);
    curl_global_cleanup();
}
