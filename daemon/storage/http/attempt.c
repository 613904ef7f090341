/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/storage/http/attempt.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>

#include "daemon/storage/counts.h"
#include "daemon/storage/http/sigv4.h"
#include "daemon/storage/storage.h"

#define BUFFER_BYTES (256l << 10)
#define MAX_REDIRECTIONS 5l
#define STALL_BYTES_PER_S 1024l
#define FIRST_DELAY_MS 100
#define MAX_DELAY_MS 10000
/* An attempt that brought as much was not in vain. */
#define PROGRESS_BYTES ((uint64_t)64 << 10)

/* ---- where it may go ---- */

static bool in_block(const uint8_t *address, const uint8_t *block, unsigned bits)
{
    unsigned whole = bits / 8, rest = bits % 8;
    if (memcmp(address, block, whole) != 0)
        return false;
    return rest == 0 || (address[whole] ^ block[whole]) >> (8 - rest) == 0;
}

static const char *refuses_4(const struct stg_object *object, const uint8_t *a)
{
    if (!object->loopback && (a[0] == 127 || a[0] == 0))
        return "is this machine's own";
    if (in_block(a, (const uint8_t[]){169, 254, 0, 0}, 16))
        return "is link-local, where machines offer their secrets";
    if (a[0] >= 224)
        return "belongs to no machine";
    return NULL;
}

static const char *refuses_6(const struct stg_object *object, const uint8_t *a)
{
    static const uint8_t none[16],
        mapped[16] = {[10] = 0xff, [11] = 0xff}, nat64[16] = {0, 0x64, 0xff, 0x9b},
        local[16] = {0xfe, 0x80}, many[16] = {0xff}, metadata[16] = {0xfd, 0, 0x0e, 0xc2};
    if (in_block(a, mapped, 96) || in_block(a, nat64, 96))
        return refuses_4(object, a + 12);
    if (!object->loopback && memcmp(a, none, 15) == 0 && a[15] <= 1)
        return "is this machine's own";
    if ((in_block(a, local, 10) || in_block(a, metadata, 32)))
        return "is link-local, where machines offer their secrets";
    if (in_block(a, many, 8))
        return "belongs to no machine";
    return NULL;
}

const char *stg_attempt_refuses(const struct stg_object *object, const char *address)
{
    uint8_t bytes[16];
    char plain[64];
    snprintf(plain, sizeof(plain), "%.*s", (int)strcspn(address, "%"), address);
    if (inet_pton(AF_INET, plain, bytes) == 1)
        return refuses_4(object, bytes);
    if (inet_pton(AF_INET6, plain, bytes) == 1)
        return refuses_6(object, bytes);
    return "is not an Internet address";
}

static bool may_connect(struct stg_fetch *fetch, const char *address)
{
    if (stg_attempt_refuses(fetch->plan.object, address) == NULL)
        return true;
    snprintf(fetch->refused, sizeof(fetch->refused), "%s", address);
    return false;
}

/* Of a new connection, before anything is sent. */
static curl_socket_t open_socket(void *userdata, curlsocktype purpose,
                                 struct curl_sockaddr *to)
{
    char address[64];
    if (getnameinfo(&to->addr, to->addrlen, address, sizeof(address), NULL, 0,
                    NI_NUMERICHOST) != 0 ||
        !may_connect(userdata, address))
        return CURL_SOCKET_BAD;
    return socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
}

/* For each connection, also one that a user with more rights has opened. */
static int before_request(void *userdata, char *there, char *here, int port, int own)
{
    return may_connect(userdata, there) ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT;
}

/* ---- the beginning ---- */

#define SET(option, value) (curl_easy_setopt(fetch->easy, option, value) == CURLE_OK)

static bool add_header(struct stg_fetch *fetch, const char *name, const char *value)
{
    char *line;
    if (value == NULL || asprintf(&line, "%s: %s", name, value) < 0)
        return false;
    struct curl_slist *headers = curl_slist_append(fetch->headers, line);
    explicit_bzero(line, strlen(line));
    free(line);
    if (headers == NULL)
        return false;
    fetch->headers = headers;
    return true;
}

static bool is_strong(const char *etag)
{
    return etag[0] == '"';
}

static bool add_signed_headers(struct stg_fetch *fetch, const char *host,
                               const char *date)
{
    const struct stg_object *object = fetch->plan.object;
    const struct stg_sigv4_header headers[] = {
        {"host", host},
        {"x-amz-content-sha256", STG_SIGV4_NO_BODY},
        {"x-amz-date", date},
        {"x-amz-security-token", object->token},
    };
    struct stg_sigv4 request = {.key = object->key,
                                .secret = object->secret,
                                .region = object->region,
                                .service = "s3",
                                .date = date,
                                .url = object->url,
                                .headers = headers,
                                .n_headers = object->token != NULL ? 4 : 3};
    bool ok = true;
    for (size_t i = 0; i < request.n_headers && ok; i++)
        ok = add_header(fetch, headers[i].name, headers[i].value);
    char *authorization = ok ? stg_sigv4(&request) : NULL;
    ok = add_header(fetch, "Authorization", authorization);
    free(authorization);
    return ok;
}

/* Signs for now: a server refuses what was signed a quarter of an hour ago. */
static bool add_signature(struct stg_fetch *fetch)
{
    char date[32];
    time_t now = time(NULL);
    struct tm utc;
    strftime(date, sizeof(date), "%Y%m%dT%H%M%SZ", gmtime_r(&now, &utc));
    char *host = stg_sigv4_host(fetch->plan.object->url);
    bool ok = host != NULL && add_signed_headers(fetch, host, date);
    free(host);
    return ok;
}

static bool add_headers(struct stg_fetch *fetch)
{
    const struct stg_object *object = fetch->plan.object;
    const struct stg_version *version = &fetch->progress.version;
    bool ok = true;
    if (version->known && is_strong(version->etag))
        ok = add_header(fetch, "If-Match", version->etag);
    if (ok && stg_progress_may_keep(&fetch->progress))
        ok = add_header(fetch, "If-None-Match", fetch->plan.cached.etag);
    if (ok && object->key != NULL)
        ok = add_signature(fetch);
    return ok && (fetch->headers == NULL || SET(CURLOPT_HTTPHEADER, fetch->headers));
}

static bool set_what(struct stg_fetch *fetch)
{
    const struct stg_object *object = fetch->plan.object;
    uint64_t from = stg_progress_from(&fetch->progress), end = fetch->progress.end;
    char range[64];
    if (object->range_in_query && fetch->plan.kind == STG_FETCH_RANGE) {
        char url[8192];
        int n = snprintf(url, sizeof(url), "%s&offset=%" PRIu64 "&length=%" PRIu64,
                         object->url, from, end - from);
        return n < (int)sizeof(url) && SET(CURLOPT_URL, url);
    }
    snprintf(range, sizeof(range), "%" PRIu64 "-%" PRIu64, from, end - 1);
    return SET(CURLOPT_URL, object->url) &&
           (fetch->plan.kind == STG_FETCH_ALL || SET(CURLOPT_RANGE, range));
}

static bool set_who(struct stg_fetch *fetch)
{
    const struct stg_object *object = fetch->plan.object;
    return (object->login == NULL || SET(CURLOPT_USERPWD, object->login)) &&
           (object->bearer == NULL || (SET(CURLOPT_HTTPAUTH, CURLAUTH_BEARER) &&
                                       SET(CURLOPT_XOAUTH2_BEARER, object->bearer)));
}

/* What is signed is for one place. Others may send a reader on, never from TLS to none,
 * and curl drops the login at another host. */
static bool set_where(struct stg_fetch *fetch)
{
    const struct stg_object *object = fetch->plan.object;
    bool secure = strncmp(object->url, "https:", 6) == 0;
    return SET(CURLOPT_PROTOCOLS_STR, "http,https") &&
           SET(CURLOPT_REDIR_PROTOCOLS_STR, secure ? "https" : "http,https") &&
           SET(CURLOPT_FOLLOWLOCATION, object->key == NULL && !object->stays ? 1l : 0l) &&
           SET(CURLOPT_MAXREDIRS, MAX_REDIRECTIONS) &&
           SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
}

static bool set_how(struct stg_fetch *fetch, const struct stg_remote_settings *settings)
{
    long stall_s = (long)(settings->stall_timeout_millis + 999) / 1000;
    return SET(CURLOPT_NOSIGNAL, 1l) && SET(CURLOPT_QUICK_EXIT, 1l) &&
           SET(CURLOPT_NOPROGRESS, 1l) && SET(CURLOPT_BUFFERSIZE, BUFFER_BYTES) &&
           SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) &&
           SET(CURLOPT_USERAGENT, "stager") &&
           SET(CURLOPT_CONNECTTIMEOUT_MS, (long)settings->connect_timeout_millis) &&
           SET(CURLOPT_LOW_SPEED_LIMIT, STALL_BYTES_PER_S) &&
           SET(CURLOPT_LOW_SPEED_TIME, stall_s);
}

/* Without the first two it could connect to anything. */
static bool set_callbacks(struct stg_fetch *fetch)
{
    return SET(CURLOPT_OPENSOCKETFUNCTION, open_socket) &&
           SET(CURLOPT_OPENSOCKETDATA, fetch) &&
           SET(CURLOPT_PREREQFUNCTION, before_request) &&
           SET(CURLOPT_PREREQDATA, fetch) &&
           SET(CURLOPT_HEADERFUNCTION, stg_answer_header) &&
           SET(CURLOPT_HEADERDATA, fetch) &&
           SET(CURLOPT_WRITEFUNCTION, stg_answer_body) && SET(CURLOPT_WRITEDATA, fetch);
}

int stg_attempt_begin(struct stg_fetch *fetch, const struct stg_remote_settings *settings,
                      struct stg_err *err)
{
    fetch->answer = (struct stg_answer){0};
    fetch->failed = 0;
    fetch->again = false;
    fetch->refused[0] = '\0';
    stg_progress_attempt(&fetch->progress);
    fetch->n_before = fetch->progress.n;
    fetch->easy = curl_easy_init();
    if (fetch->easy != NULL && set_how(fetch, settings) && set_callbacks(fetch) &&
        set_what(fetch) && set_who(fetch) && set_where(fetch) && add_headers(fetch))
        return 0;
    stg_attempt_drop(fetch);
    return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                   "%s: out of memory, or its URL is too long",
                   fetch->plan.object->shown);
}

void stg_attempt_drop(struct stg_fetch *fetch)
{
    curl_easy_cleanup(fetch->easy);
    curl_slist_free_all(fetch->headers);
    fetch->easy = NULL;
    fetch->headers = NULL;
}

/* ---- the end ---- */

static bool is_of_tls(CURLcode result)
{
    return result == CURLE_PEER_FAILED_VERIFICATION ||
           result == CURLE_SSL_CACERT_BADFILE || result == CURLE_SSL_CERTPROBLEM ||
           result == CURLE_SSL_ISSUER_ERROR;
}

/* Names the place that the server sent us to, without what may be secret. */
static void name_redirection(struct stg_fetch *fetch, struct stg_err *err)
{
    char shown[256];
    const char *to = NULL;
    long n = 0;
    curl_easy_getinfo(fetch->easy, CURLINFO_REDIRECT_COUNT, &n);
    curl_easy_getinfo(fetch->easy, CURLINFO_REDIRECT_URL, &to);
    if (to == NULL && n > 0)
        curl_easy_getinfo(fetch->easy, CURLINFO_EFFECTIVE_URL, &to);
    if (to != NULL)
        stg_err_append(err, err->code, ": the server redirects to %s",
                       stg_storage_shown_query(to, shown, sizeof(shown)));
}

static void fail_by_curl(struct stg_fetch *fetch, CURLcode result)
{
    const char *shown = fetch->plan.object->shown;
    struct stg_err *err = &fetch->failure;
    if (fetch->refused[0] != '\0') {
        fetch->failed = stg_err(
            err, -STAGER_PERMISSION_DENIED,
            "%s: its address %s %s: stagerd does not read from there (on this machine it "
            "does for its own user, and for hosts in remote.stores of stagerd.yaml)",
            shown, fetch->refused,
            stg_attempt_refuses(fetch->plan.object, fetch->refused));
    } else if (is_of_tls(result)) {
        fetch->failed = stg_err(err, -STAGER_FAILED_PRECONDITION,
                                "%s: %s: the server's certificate is not signed by an "
                                "authority that this machine trusts (/etc/ssl/certs)",
                                shown, curl_easy_strerror(result));
    } else if (result == CURLE_UNSUPPORTED_PROTOCOL || result == CURLE_URL_MALFORMAT ||
               result == CURLE_TOO_MANY_REDIRECTS) {
        fetch->failed = stg_err(err, -STAGER_INVALID_ARGUMENT, "%s: %s", shown,
                                curl_easy_strerror(result));
        name_redirection(fetch, err);
    } else {
        fetch->failed =
            stg_err(err, -STAGER_UNAVAILABLE, "%s: at offset %" PRIu64 ": %s", shown,
                    stg_progress_from(&fetch->progress), curl_easy_strerror(result));
        fetch->again = true;
    }
}

static uint64_t draw_below(uint64_t n)
{
    uint64_t drawn = 0;
    if (getrandom(&drawn, sizeof(drawn), GRND_NONBLOCK) < 0)
        drawn = stg_now_ns();
    return drawn % n;
}

/* Twice as long each time; half of it at random, so that fetches that failed together do
 * not retry together. */
static uint64_t delay_ms(const struct stg_fetch *fetch)
{
    unsigned doublings = fetch->n_attempts - 1;
    uint64_t most = doublings < 7 ? FIRST_DELAY_MS << doublings : MAX_DELAY_MS;
    if (most > MAX_DELAY_MS)
        most = MAX_DELAY_MS;
    uint64_t delay = most / 2 + draw_below(most / 2 + 1);
    return delay > fetch->answer.retry_after_ms ? delay : fetch->answer.retry_after_ms;
}

static bool try_again(struct stg_fetch *fetch, unsigned retries)
{
    if (!fetch->again)
        return false;
    if (stg_progress_sure(&fetch->progress) - fetch->n_before >= PROGRESS_BYTES)
        fetch->n_attempts = 0;
    if (++fetch->n_attempts > retries) {
        stg_err_append(&fetch->failure, fetch->failed, " (%u attempts, remote.retries)",
                       fetch->n_attempts);
        return false;
    }
    fetch->due_ns = stg_now_ns() + delay_ms(fetch) * 1000000u;
    stg_storage_count(STG_COUNT_REMOTE_RETRIES, 1);
    return true;
}

bool stg_attempt_end(struct stg_fetch *fetch, CURLcode result,
                     const struct stg_remote_settings *settings)
{
    if (!stg_answer_end(fetch, result == CURLE_OK) && fetch->failed == 0)
        fail_by_curl(fetch, result);
    stg_attempt_drop(fetch);
    return fetch->failed == 0 || !try_again(fetch, settings->retries);
}
