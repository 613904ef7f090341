/* SPDX-License-Identifier: Apache-2.0
 *
 * One batch from one of the workers. The runner that needs it drives the connections
 * itself, so that nothing writes to its extent any more when it goes on. Where the first
 * worker is slow a second one is asked; the first body that begins has the extent.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "daemon/remote_stage/priv.h"
#include "daemon/storage/codec/crc32c.h"
#include "daemon/storage/storage.h"

#define POLL_MS 10
#define CONNECT_MS 3000l
#define BUFFER_BYTES (256l << 10)
#define SAID_BYTES 128u
#define MAX_TRIES 3u
#define MAX_RETRY_AFTER_S 60u

struct exchange {
    struct stg_remote_lane *lane;
    CURL *easy; /* NULL: it is none */
    struct curl_slist *to;
    int worker;
    uint64_t began_ns;
    long status;
    unsigned char head[STG_FRAME_BYTES];
    size_t n_head;
    uint64_t length, at; /* of the batch */
    uint32_t crc;        /* of what has come, which is in the cache then */
    uint64_t retry_after_ns;
    bool has_no_room;      /* for it, here */
    bool yields;           /* another one has the extent */
    const char *fault;     /* of the answer */
    char said[SAID_BYTES]; /* of an error */
    size_t n_said;
    char zone[64], pass_end[24], cpus[16], cpu_ns[24];
};

struct stg_remote_lane {
    struct stg_remote *remote;
    CURLM *multi;
    const struct stg_remote_wanted *wanted;
    uint64_t capacity;
    struct exchange *owner; /* writes to the extent */
    struct exchange each[2];
};

/* ---- the answer as it comes ---- */

static uint64_t padded(uint64_t bytes)
{
    return (bytes + STG_FRAME_BYTES - 1) / STG_FRAME_BYTES * STG_FRAME_BYTES;
}

static bool take_head(struct exchange *exchange, const char **bytes, size_t *n)
{
    struct stg_remote_lane *lane = exchange->lane;
    const struct stg_remote_wanted *wanted = lane->wanted;
    size_t want = STG_FRAME_BYTES - exchange->n_head, take = *n < want ? *n : want;
    memcpy(exchange->head + exchange->n_head, *bytes, take);
    exchange->n_head += take;
    *bytes += take;
    *n -= take;
    if (exchange->n_head < STG_FRAME_BYTES)
        return true;
    if (take == 0)
        return true;
    struct stg_err none = {0};
    curl_off_t all = -1;
    memcpy(&exchange->length, exchange->head, sizeof(exchange->length));
    curl_easy_getinfo(exchange->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &all);
    if (all < (curl_off_t)STG_FRAME_BYTES || exchange->length > (uint64_t)all ||
        (uint64_t)all != padded(exchange->length) + STG_FRAME_BYTES)
        exchange->fault = "its answer has another length than its frame says";
    else if (exchange->length > lane->capacity)
        exchange->has_no_room = exchange->length > wanted->room->limit_bytes ||
                                wanted->room->grow == NULL ||
                                wanted->room->grow(wanted->room->owner, exchange->length,
                                                   &lane->capacity, &none) < 0;
    return exchange->fault == NULL && !exchange->has_no_room;
}

static bool take_batch(struct exchange *exchange, const char *bytes, size_t n)
{
    if (!take_head(exchange, &bytes, &n))
        return false;
    uint64_t left = exchange->length - exchange->at, take = n < left ? n : left;
    if (take > 0) {
        memcpy(exchange->lane->wanted->base + exchange->at, bytes, take);
        exchange->crc = stg_crc32c()->extend(exchange->crc, bytes, take);
    }
    exchange->at += take;
    return true;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *userdata)
{
    struct exchange *exchange = userdata;
    struct stg_remote_lane *lane = exchange->lane;
    size_t n = size * count;
    if (exchange->status == 0)
        curl_easy_getinfo(exchange->easy, CURLINFO_RESPONSE_CODE, &exchange->status);
    if (exchange->status != 200) {
        size_t room = SAID_BYTES - 1 - exchange->n_said, take = n < room ? n : room;
        memcpy(exchange->said + exchange->n_said, bytes, take);
        exchange->n_said += take;
        return n;
    }
    if (lane->owner == NULL)
        lane->owner = exchange;
    exchange->yields = lane->owner != exchange;
    return !exchange->yields && take_batch(exchange, bytes, n) ? n : CURL_WRITEFUNC_ERROR;
}

static bool header_is(const char *line, size_t n, const char *name, char *ret,
                      size_t bytes)
{
    size_t length = strlen(name);
    if (n <= length || strncasecmp(line, name, length) != 0 || line[length] != ':')
        return false;
    size_t first = length + 1;
    while (first < n && (line[first] == ' ' || line[first] == '\t'))
        first++;
    while (n > first && (unsigned char)line[n - 1] <= ' ')
        n--;
    snprintf(ret, bytes, "%.*s", (int)(n - first < bytes ? n - first : bytes - 1),
             line + first);
    return true;
}

static size_t on_header(char *line, size_t size, size_t count, void *userdata)
{
    struct exchange *exchange = userdata;
    size_t n = size * count;
    char text[24];
    if (header_is(line, n, "Retry-After", text, sizeof(text))) {
        unsigned long seconds = strtoul(text, NULL, 10);
        seconds = seconds < MAX_RETRY_AFTER_S ? seconds : MAX_RETRY_AFTER_S;
        exchange->retry_after_ns = (uint64_t)seconds * 1000000000u;
    }
    header_is(line, n, "Stager-Zone", exchange->zone, sizeof(exchange->zone));
    header_is(line, n, "Stager-End", exchange->pass_end, sizeof(exchange->pass_end));
    header_is(line, n, "Stager-Cpus", exchange->cpus, sizeof(exchange->cpus));
    header_is(line, n, "Stager-Cpu-Ns", exchange->cpu_ns, sizeof(exchange->cpu_ns));
    return n;
}

/* ---- an exchange ---- */

#define SET(option, value) (curl_easy_setopt(exchange->easy, option, value) == CURLE_OK)

static bool set_secrets(struct exchange *exchange, char *why, size_t bytes)
{
    struct stg_remote *remote = exchange->lane->remote;
    char *token = stg_remote_token(remote, why, bytes);
    bool ok = why[0] == '\0';
    if (ok && token != NULL)
        ok = SET(CURLOPT_HTTPAUTH, CURLAUTH_BEARER) && SET(CURLOPT_XOAUTH2_BEARER, token);
    if (token != NULL)
        explicit_bzero(token, strlen(token));
    free(token);
    char *authority = ok ? stg_remote_authority(remote, why, bytes) : NULL;
    ok = ok && why[0] == '\0';
    if (ok && authority != NULL) {
        struct curl_blob blob = {
            .data = authority, .len = strlen(authority), .flags = CURL_BLOB_COPY};
        ok = SET(CURLOPT_CAINFO_BLOB, &blob);
    }
    free(authority);
    return ok;
}

static bool set_options(struct exchange *exchange)
{
    const struct stg_worker_end *end =
        stg_remote_worker(exchange->lane->remote, exchange->worker);
    const struct stg_remote_wanted *wanted = exchange->lane->wanted;
    char url[1024];
    size_t n = strlen(end->at.url);
    n = (size_t)snprintf(
        url, sizeof(url),
        "%s%sv1/batches/%s/%" PRIu64 "/%" PRIu64 "?epoch=%" PRIu64 "&index=%" PRIu64,
        end->at.url, n > 0 && end->at.url[n - 1] == '/' ? "" : "/", wanted->digest,
        wanted->pass, wanted->item, wanted->epoch, wanted->index);
    if (wanted->deal.n_hosts > 0)
        snprintf(url + n, sizeof(url) - n, "&host=%u&hosts=%u&begin=%" PRIu64,
                 wanted->deal.host, wanted->deal.n_hosts, wanted->deal_first);
    exchange->to = curl_slist_append(NULL, end->at.connect);
    return exchange->to != NULL && SET(CURLOPT_URL, url) &&
           SET(CURLOPT_CONNECT_TO, exchange->to) && SET(CURLOPT_NOSIGNAL, 1l) &&
           SET(CURLOPT_NOPROGRESS, 1l) && SET(CURLOPT_PROXY, "") &&
           SET(CURLOPT_PROTOCOLS_STR, "http,https") &&
           SET(CURLOPT_BUFFERSIZE, BUFFER_BYTES) && SET(CURLOPT_USERAGENT, "stager") &&
           SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) &&
           SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED) &&
           SET(CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS) &&
           SET(CURLOPT_HEADERFUNCTION, on_header) && SET(CURLOPT_HEADERDATA, exchange) &&
           SET(CURLOPT_WRITEFUNCTION, on_body) && SET(CURLOPT_WRITEDATA, exchange);
}

static void drop(struct exchange *exchange)
{
    struct stg_remote_lane *lane = exchange->lane;
    if (exchange->easy != NULL) {
        (void)curl_multi_remove_handle(lane->multi, exchange->easy);
        curl_easy_cleanup(exchange->easy);
    }
    curl_slist_free_all(exchange->to);
    exchange->easy = NULL;
    exchange->to = NULL;
    if (lane->owner == exchange)
        lane->owner = NULL;
}

/* Ends it without a word about the worker. */
static void forget(struct exchange *exchange)
{
    if (exchange->easy == NULL)
        return;
    drop(exchange);
    stg_remote_forget(exchange->lane->remote, exchange->worker);
}

static void fail(struct exchange *exchange, enum stg_outcome outcome, const char *why)
{
    struct stg_remote *remote = exchange->lane->remote;
    stg_remote_note(remote, exchange->worker, outcome, exchange->retry_after_ns, why);
    drop(exchange);
}

static bool begin(struct stg_remote_lane *lane, struct exchange *exchange, int worker)
{
    char why[192] = "";
    *exchange = (struct exchange){.lane = lane,
                                  .worker = worker,
                                  .began_ns = stg_now_ns(),
                                  .easy = curl_easy_init()};
    bool ok = exchange->easy != NULL && set_options(exchange) &&
              set_secrets(exchange, why, sizeof(why)) &&
              curl_multi_add_handle(lane->multi, exchange->easy) == CURLM_OK;
    if (!ok)
        fail(exchange, STG_OUTCOME_AWAY, why[0] != '\0' ? why : "out of memory");
    return ok;
}

/* What the status says of the worker. */
static enum stg_outcome outcome_of(struct exchange *exchange, char *why, size_t bytes)
{
    if (exchange->status == 422)
        return STG_OUTCOME_ELEMENT;
    exchange->said[exchange->n_said] = '\0';
    exchange->said[strcspn(exchange->said, "\r\n")] = '\0';
    stg_storage_make_printable(exchange->said);
    stg_storage_make_printable(exchange->pass_end);
    if (exchange->pass_end[0] != '\0') {
        snprintf(why, bytes, "its pass ends at batch %s: it has other data",
                 exchange->pass_end);
        return STG_OUTCOME_GARBAGE;
    }
    snprintf(why, bytes, "it answered %ld%s%.100s", exchange->status,
             exchange->said[0] != '\0' ? ": " : "", exchange->said);
    if (exchange->status == 503 || exchange->status == 429)
        return STG_OUTCOME_BUSY;
    return exchange->status >= 500 || exchange->status == 408 ? STG_OUTCOME_AWAY
                                                              : STG_OUTCOME_REFUSED;
}

/* Returns the outcome of an exchange that is over. */
static enum stg_outcome judge(struct exchange *exchange, CURLcode result, char *why,
                              size_t bytes)
{
    struct stg_err err = {0};
    const struct stg_remote_config *config = stg_remote_config(exchange->lane->remote);
    curl_easy_getinfo(exchange->easy, CURLINFO_RESPONSE_CODE, &exchange->status);
    if (exchange->fault != NULL) {
        snprintf(why, bytes, "%s", exchange->fault);
        return STG_OUTCOME_GARBAGE;
    }
    if (exchange->has_no_room)
        return STG_OUTCOME_ELEMENT;
    if (result != CURLE_OK) {
        snprintf(why, bytes, "%s", curl_easy_strerror(result));
        return STG_OUTCOME_AWAY;
    }
    if (exchange->status != 200)
        return outcome_of(exchange, why, bytes);
    if (exchange->lane->owner == exchange && exchange->n_head == STG_FRAME_BYTES &&
        stg_answer_check(exchange->lane->wanted, config->schema, exchange->head,
                         exchange->at, exchange->crc, &err) == 0)
        return STG_OUTCOME_GOOD;
    snprintf(why, bytes, "its answer is not the batch that was asked for: %.120s",
             err.code != 0 ? err.text : "it is shorter than a batch");
    return STG_OUTCOME_GARBAGE;
}

/* ---- the batch ---- */

struct asking {
    uint64_t tried; /* workers, a bit each */
    unsigned n_tries;
    uint64_t began_ns, hedge_ns, limit_ns;
    uint64_t bytes; /* of the good answer */
    bool is_over;
};

/* Returns false if no worker is left. */
static bool try_one(struct stg_remote_lane *lane, struct asking *asking)
{
    struct exchange *exchange = &lane->each[lane->each[0].easy != NULL];
    bool has_begun = false;
    while (!has_begun && asking->n_tries < MAX_TRIES) {
        int worker = stg_remote_choose(lane->remote, asking->tried);
        if (worker < 0)
            return false;
        asking->n_tries++;
        asking->tried |= UINT64_C(1) << worker;
        has_begun = begin(lane, exchange, worker);
    }
    return has_begun;
}

static void end(struct asking *asking, struct exchange *exchange, CURLcode result)
{
    struct stg_remote *remote = exchange->lane->remote;
    char why[192] = "";
    if (exchange->yields) {
        forget(exchange);
        return;
    }
    enum stg_outcome outcome = judge(exchange, result, why, sizeof(why));
    if (exchange->zone[0] != '\0')
        stg_remote_note_zone(remote, exchange->worker, exchange->zone);
    if (exchange->cpus[0] != '\0')
        stg_remote_note_cpus(remote, exchange->worker, strtoul(exchange->cpus, NULL, 10));
    if (outcome == STG_OUTCOME_GOOD) {
        asking->bytes = exchange->length;
        stg_remote_note_good(remote, exchange->worker, exchange->length + STG_FRAME_BYTES,
                             stg_now_ns() - exchange->began_ns,
                             strtoull(exchange->cpu_ns, NULL, 10));
    }
    if (outcome == STG_OUTCOME_BUSY) {
        asking->tried &= ~(UINT64_C(1) << exchange->worker);
        asking->n_tries--;
    }
    asking->is_over |= outcome == STG_OUTCOME_GOOD || outcome == STG_OUTCOME_ELEMENT;
    fail(exchange, outcome, why);
}

static void take_results(struct stg_remote_lane *lane, struct asking *asking)
{
    CURLMsg *message;
    int left;
    while (!asking->is_over &&
           (message = curl_multi_info_read(lane->multi, &left)) != NULL) {
        CURLcode result = message->data.result;
        for (int i = 0; i < 2; i++) {
            if (lane->each[i].easy == message->easy_handle) {
                end(asking, &lane->each[i], result);
                break;
            }
        }
    }
}

/* Gives up what takes too long; asks a second worker where none has begun to answer. */
static void look_at_time(struct stg_remote_lane *lane, struct asking *asking)
{
    uint64_t now = stg_now_ns();
    int n = 0;
    for (int i = 0; i < 2; i++) {
        struct exchange *exchange = &lane->each[i];
        if (exchange->easy != NULL && now - exchange->began_ns > asking->limit_ns)
            fail(exchange, STG_OUTCOME_AWAY, "it does not answer in time");
        n += exchange->easy != NULL;
    }
    const struct exchange *first = &lane->each[lane->each[0].easy == NULL];
    if (n == 1 && lane->owner == NULL && now - first->began_ns > asking->hedge_ns &&
        try_one(lane, asking))
        stg_remote_note_hedge(lane->remote);
}

static bool is_busy(const struct stg_remote_lane *lane)
{
    return lane->each[0].easy != NULL || lane->each[1].easy != NULL;
}

static bool is_wanted(const struct stg_remote_lane *lane)
{
    const _Atomic int *stopped = stg_remote_config(lane->remote)->stopped;
    return atomic_load_explicit(stopped, memory_order_relaxed) == 0 &&
           !lane->wanted->is_void(lane->wanted->owner);
}

/* None can be asked now, and one soon, when it has answered others. */
static bool may_wait(const struct stg_remote_lane *lane, const struct asking *asking)
{
    return asking->n_tries < MAX_TRIES &&
           stg_now_ns() - asking->began_ns < asking->limit_ns &&
           stg_remote_is_full(lane->remote, asking->tried);
}

uint64_t stg_remote_ask(struct stg_remote_lane *lane,
                        const struct stg_remote_wanted *wanted)
{
    struct asking asking = {0};
    int running;
    lane->wanted = wanted;
    lane->capacity = wanted->capacity;
    asking.began_ns = stg_now_ns();
    stg_remote_patience(lane->remote, &asking.hedge_ns, &asking.limit_ns);
    while (!asking.is_over && is_wanted(lane)) {
        if (!is_busy(lane) && !try_one(lane, &asking) && !may_wait(lane, &asking))
            break;
        if (curl_multi_perform(lane->multi, &running) != CURLM_OK)
            break;
        take_results(lane, &asking);
        look_at_time(lane, &asking);
        if (!asking.is_over)
            (void)curl_multi_poll(lane->multi, NULL, 0, POLL_MS, NULL);
    }
    forget(&lane->each[0]);
    forget(&lane->each[1]);
    return asking.bytes;
}

/* ---- life ---- */

int stg_lane_create(struct stg_remote *remote, struct stg_remote_lane **ret,
                    struct stg_err *err)
{
    struct stg_remote_lane *lane = calloc(1, sizeof(*lane));
    CURLM *multi = lane != NULL ? curl_multi_init() : NULL;
    if (multi == NULL) {
        free(lane);
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    }
    *lane = (struct stg_remote_lane){.remote = remote, .multi = multi};
    lane->each[0].lane = lane->each[1].lane = lane;
    *ret = lane;
    return 0;
}

void stg_lane_destroy(struct stg_remote_lane *lane)
{
    if (lane == NULL)
        return;
    (void)curl_multi_cleanup(lane->multi);
    free(lane);
}
