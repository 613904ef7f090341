/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/etcd.h"

#include <curl/curl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/cluster/etcd.h"
#include "tests/fuzz/fuzz.h"

#define N_ENDPOINTS 3u
#define MAX_CALLS 12u

/* ---- the network ---- */

static struct {
    struct stg_fuzz_input input;
    CURL *easy;
    curl_write_callback write;
    void *owner;
    bool is_change; /* the request in work */
    long status, sent;
    unsigned n_performed;      /* of the call in work */
    bool is_lost, is_answered; /* the change of the call in work */
} net;

CURLcode __real_curl_easy_setopt(CURL *easy, CURLoption option, ...);
CURLcode __wrap_curl_easy_setopt(CURL *easy, CURLoption option, ...);
CURLcode __real_curl_easy_getinfo(CURL *easy, CURLINFO info, ...);
CURLcode __wrap_curl_easy_getinfo(CURL *easy, CURLINFO info, ...);
CURLcode __wrap_curl_easy_perform(CURL *easy);

#undef curl_easy_setopt
#undef curl_easy_getinfo

CURLcode __wrap_curl_easy_setopt(CURL *easy, CURLoption option, ...)
{
    va_list args;
    va_start(args, option);
    void *value = va_arg(args, void *);
    va_end(args);
    if (option == CURLOPT_WRITEFUNCTION)
        memcpy(&net.write, &value, sizeof(value));
    else if (option == CURLOPT_WRITEDATA)
        net.owner = value;
    else if (option == CURLOPT_URL)
        net.is_change = strstr(value, "/v3/kv/txn") != NULL;
    return __real_curl_easy_setopt(easy, option, value);
}

CURLcode __wrap_curl_easy_getinfo(CURL *easy, CURLINFO info, ...)
{
    va_list args;
    va_start(args, info);
    void *ret = va_arg(args, void *);
    va_end(args);
    if (easy != net.easy)
        return __real_curl_easy_getinfo(easy, info, ret);
    *(long *)ret = info == CURLINFO_RESPONSE_CODE ? net.status : net.sent;
    return CURLE_OK;
}

/* Returns false: the client has refused it. */
static bool send_body(struct stg_fuzz_input *input, size_t n)
{
    n = n < stg_fuzz_left(input) ? n : stg_fuzz_left(input);
    char *piece = malloc(n + 1); /* exactly this size, for the sanitizer */
    FUZZ_CHECK(piece != NULL);
    memcpy(piece, input->at, n);
    input->at += n;
    bool is_taken = n == 0 || net.write(piece, 1, n, net.owner) == n;
    free(piece);
    return is_taken;
}

CURLcode __wrap_curl_easy_perform(CURL *easy)
{
    static const CURLcode ends[] = {CURLE_COULDNT_CONNECT, CURLE_RECV_ERROR,
                                    CURLE_OPERATION_TIMEDOUT,
                                    CURLE_PEER_FAILED_VERIFICATION};
    static const long states[] = {200, 200, 200, 200, 400, 401, 404, 503};
    struct stg_fuzz_input *input = &net.input;
    unsigned how = stg_fuzz_byte(input);
    net.easy = easy;
    net.n_performed++;
    net.status = states[how & 7];
    CURLcode end = (how & 8) != 0 ? ends[how >> 4 & 3] : CURLE_OK;
    net.sent = end == CURLE_OK || (how & 64) != 0 ? 100 : 0;
    if (net.sent > 0) {
        unsigned first = (how & 128) != 0 ? stg_fuzz_byte(input) : 0;
        if (!send_body(input, first) || !send_body(input, stg_fuzz_number(input)))
            end = CURLE_WRITE_ERROR;
    }
    if (net.is_change) {
        FUZZ_CHECK(!net.is_lost);
        net.is_lost = net.sent > 0 && end != CURLE_OK;
        net.is_answered = end == CURLE_OK && net.status == 200;
    }
    return end;
}

/* ---- calls ---- */

static void check_range(const struct stg_etcd_range *range, const char *key, bool prefix)
{
    size_t n = strlen(key);
    FUZZ_CHECK(range->revision >= 0);
    for (size_t i = 0; i < range->n; i++) {
        const struct stg_etcd_entry *entry = &range->entries[i];
        FUZZ_CHECK(prefix ? strncmp(entry->key, key, n) == 0
                          : strcmp(entry->key, key) == 0 && range->n == 1);
        FUZZ_CHECK(i == 0 || strcmp(entry[-1].key, entry->key) < 0);
        FUZZ_CHECK(entry->value[entry->value_bytes] == '\0');
        FUZZ_CHECK(0 < entry->create_revision &&
                   entry->create_revision <= entry->mod_revision &&
                   entry->mod_revision <= range->revision);
    }
}

static int get(struct stg_etcd *etcd, bool prefix, struct stg_err *err)
{
    struct stg_etcd_range range;
    int rc = stg_etcd_get(etcd, "foo", prefix, &range, err);
    if (rc == 0) {
        check_range(&range, "foo", prefix);
        stg_etcd_range_finish(&range);
    }
    return rc;
}

static int change(struct stg_etcd *etcd, struct stg_err *err)
{
    const struct stg_etcd_compare compare = {.key = "foo", .mod_revision = 7};
    const struct stg_etcd_put puts[] = {{.key = "foo", .value = "bar", .value_bytes = 3},
                                        {.key = "fo"}};
    bool is_done;
    int64_t revision;
    int rc = stg_etcd_txn(etcd, &compare, 1, puts, 2, &is_done, &revision, err);
    FUZZ_CHECK(!net.is_lost || rc == -STAGER_UNAVAILABLE);
    FUZZ_CHECK(net.is_answered || rc < 0);
    return rc;
}

static int call(struct stg_etcd *etcd, unsigned what, struct stg_err *err)
{
    int64_t lease = 0;
    uint32_t ttl = 0;
    int rc;
    switch (what) {
    case 0:
    case 1: return get(etcd, what == 1, err);
    case 2:
    case 3: return change(etcd, err);
    case 4:
        rc = stg_etcd_grant(etcd, 5, &lease, err);
        FUZZ_CHECK(rc < 0 || lease != 0);
        return rc;
    case 5:
        rc = stg_etcd_renew(etcd, 1, &ttl, err);
        FUZZ_CHECK(rc < 0 || ttl > 0);
        return rc;
    default: return stg_etcd_revoke(etcd, 1, err);
    }
}

void stg_fuzz_etcd(const uint8_t *data, size_t bytes)
{
    static const char *const endpoints[N_ENDPOINTS] = {"http://127.0.0.1:1",
                                                       "https://etcd:2", "http://[::1]"};
    char file[64];
    struct stg_etcd *etcd;
    struct stg_err err = {0};
    int fd = memfd_create("password", MFD_CLOEXEC);
    FUZZ_CHECK(fd >= 0 && fchmod(fd, 0600) == 0 && write(fd, "open sesame", 11) == 11);
    snprintf(file, sizeof(file), "/proc/self/fd/%d", fd);
    net.input = (struct stg_fuzz_input){.at = data, .end = data + bytes};
    bool has_user = (stg_fuzz_byte(&net.input) & 1) != 0;
    struct stg_etcd_settings settings = {.endpoints = endpoints,
                                         .n_endpoints = N_ENDPOINTS,
                                         .user = has_user ? "ada" : NULL,
                                         .password_file = has_user ? file : NULL,
                                         .timeout_millis = UINT32_MAX};
    FUZZ_CHECK_TEXT(stg_etcd_create(&settings, &etcd, &err) == 0, err.text);
    for (unsigned i = 0; i < MAX_CALLS && stg_fuzz_left(&net.input) > 0; i++) {
        net.n_performed = 0;
        net.is_lost = net.is_answered = false;
        err = (struct stg_err){0};
        int rc = call(etcd, stg_fuzz_byte(&net.input) % 7, &err);
        FUZZ_CHECK(net.n_performed >= 1 && net.n_performed <= 4 * N_ENDPOINTS);
        FUZZ_CHECK_TEXT(rc == 0
                            ? err.code == 0
                            : rc == err.code && strncmp(err.text, "etcd http", 9) == 0,
                        err.text);
    }
    stg_etcd_destroy(etcd);
    net.easy = NULL;
    close(fd);
}

/* ---- seeds ---- */

struct seed {
    uint8_t bytes[2048];
    size_t n;
};

static void add(struct seed *seed, unsigned what, unsigned how, const char *body)
{
    size_t n = strlen(body);
    if (what < 7)
        seed->bytes[seed->n++] = (uint8_t)what;
    seed->bytes[seed->n++] = (uint8_t)how;
    seed->bytes[seed->n++] = (uint8_t)(n >> 8);
    seed->bytes[seed->n++] = (uint8_t)n;
    memcpy(seed->bytes + seed->n, body, n);
    seed->n += n;
}

#define HEAD "\"header\":{\"cluster_id\":\"5\",\"revision\":\"8\"}"
#define NO_CALL 7u /* a further answer to the call before */
#define REFUSED 4u
#define NO_TOKEN 5u

void stg_fuzz_etcd_seeds(void)
{
    struct seed one = {.n = 1}, two = {.bytes = {1}, .n = 1};
    add(&one, 1, 0,
        "{" HEAD ",\"kvs\":[{\"key\":\"Zm9v\",\"create_revision\":\"3\",\"mod_revision\":"
        "\"7\",\"value\":\"YmFy\",\"lease\":\"9\"},{\"key\":\"Zm9vZg==\","
        "\"create_revision\":\"4\",\"mod_revision\":\"4\"}],\"count\":\"2\"}");
    add(&one, 2, 0, "{" HEAD ",\"succeeded\":true}");
    add(&one, 4, 0, "{" HEAD ",\"ID\":\"1\",\"TTL\":\"5\"}");
    add(&one, 5, 0, "{\"result\":{" HEAD ",\"ID\":\"1\",\"TTL\":\"5\"}}");
    add(&one, 6, REFUSED, "{\"error\":\"requested lease not found\",\"code\":5}");
    add(&one, 0, 0, "{" HEAD "}");
    stg_fuzz_seed("etcd", NULL, 0, one.bytes, one.n);
    add(&two, 0, 0, "{" HEAD ",\"token\":\"a.1\"}");
    add(&two, NO_CALL, 0, "{" HEAD "}");
    add(&two, 2, NO_TOKEN, "{\"error\":\"invalid auth token\",\"code\":16}");
    add(&two, NO_CALL, 0, "{" HEAD ",\"token\":\"a.2\"}");
    add(&two, NO_CALL, 0, "{" HEAD ",\"succeeded\":true}");
    add(&two, 5, 0, "{\"error\":{\"grpc_code\":14,\"message\":\"no \\u006ceader\"}}");
    add(&two, NO_CALL, 0, "{\"result\":{" HEAD ",\"ID\":\"1\",\"TTL\":\"5\"}}");
    stg_fuzz_seed("etcd", NULL, 0, two.bytes, two.n);
}
