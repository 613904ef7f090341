/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/remote_stage/remote.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "daemon/remote_stage/priv.h"
#include "daemon/storage/confine.h"
#include "daemon/storage/http/attempt.h"
#include "daemon/storage/http/libraries.h"
#include "daemon/storage/http/store.h"
#include "daemon/storage/http/url.h"
#include "daemon/storage/storage.h"

#define NS_PER_S UINT64_C(1000000000)
#define FIRST_DELAY_NS (NS_PER_S / 4)
#define MOST_DELAY_NS (30 * NS_PER_S)
#define RESOLVE_NS (5 * NS_PER_S)
#define FILE_NS (5 * NS_PER_S)
#define LOG_NS (60 * NS_PER_S)
#define MAX_FILE_BYTES (1u << 20)
#define N_LATENCIES 64u
/* While a worker makes a batch on each CPU, so many wait there: more come later than they
 * would elsewhere. */
#define MORE_THAN_CPUS 2u
#define MOST_CPUS 4096u
#define MOST_ASKED 65536u /* nothing is known of the worker */
/* Good answers of a worker until it gets one request more at once than it refused. */
#define GOOD_FOR_MORE 1024u
/* Before so many answers, nothing is known of how long one takes. */
#define FEW_LATENCIES 8u
#define UNKNOWN_HEDGE_NS NS_PER_S
#define UNKNOWN_LIMIT_NS (10 * NS_PER_S)
#define LEAST_HEDGE_NS (20 * NS_PER_S / 1000)
#define MOST_LIMIT_NS (60 * NS_PER_S)

/* A file of the applier, as it was read last. */
struct text {
    char *content;
    uint64_t read_ns;
};

struct stg_remote {
    struct stg_remote_config config;
    bool may_loop; /* workers may be on this machine */

    pthread_mutex_t lock; /* guards what follows */
    struct stg_worker_end ends[STG_MAX_WORKERS];
    int n_ends;
    bool is_resolving;
    uint64_t resolved_ns;
    struct text token, authority;
    uint64_t paid_ns; /* max_bytes_per_s is kept when this has come */
    uint64_t latencies_ns[N_LATENCIES];
    uint64_t n_latencies, mean_ns;
    struct stg_remote_counts counts;
};

/* ---- URLs ---- */

int stg_remote_check(const struct stg_remote_workers *workers, struct stg_err *err)
{
    struct stg_url_place place;
    for (size_t i = 0; i < workers->n_urls; i++) {
        if (!stg_url_place(workers->urls[i], &place))
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "remote.workers: \"%.128s\" is not the URL of a worker, such "
                           "as http://host:9465",
                           workers->urls[i]);
        int rc = stg_confine_check_url(workers->urls[i], err);
        if (rc < 0)
            return stg_err_prefix(err, rc, "remote.workers");
    }
    return 0;
}

/* ---- names ---- */

static bool is_known(const struct stg_remote *remote, const char *url,
                     const char *address)
{
    bool found = false;
    for (int i = 0; i < remote->n_ends; i++)
        found |= strcmp(remote->ends[i].url, url) == 0 &&
                 strcmp(remote->ends[i].address, address) == 0;
    return found;
}

static void add_end(struct stg_remote *remote, const char *url,
                    const struct stg_url_place *place, const char *address)
{
    pthread_mutex_lock(&remote->lock);
    if (remote->n_ends < (int)STG_MAX_WORKERS && !is_known(remote, url, address)) {
        bool is_6 = strchr(address, ':') != NULL;
        struct stg_worker_end *end = &remote->ends[remote->n_ends];
        *end = (struct stg_worker_end){.url = url};
        snprintf(end->address, sizeof(end->address), "%s", address);
        snprintf(end->connect, sizeof(end->connect), "%s:%s:%s%s%s:%s", place->host,
                 place->port, is_6 ? "[" : "", address, is_6 ? "]" : "", place->port);
        if (strcmp(place->host, address) == 0)
            snprintf(end->shown, sizeof(end->shown), "%.300s", url);
        else
            snprintf(end->shown, sizeof(end->shown), "%.300s (%s)", url, address);
        remote->n_ends++;
    }
    pthread_mutex_unlock(&remote->lock);
}

static void warn(const struct stg_remote *remote, const char *shown, const char *why)
{
    stg_log(STG_LOG_WARNING, "pipeline %s: stage worker %s: %s", remote->config.pipeline,
            shown, why);
}

static void resolve_one(struct stg_remote *remote, const char *url, bool is_first)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    struct addrinfo *all = NULL;
    struct stg_object object = {.loopback = remote->may_loop};
    struct stg_url_place place;
    char host[256], address[64], text[512];
    if (!stg_url_place(url, &place))
        return;
    bool is_6 = place.host[0] == '[';
    snprintf(host, sizeof(host), "%.*s", (int)(strlen(place.host) - 2 * is_6),
             place.host + is_6);
    int rc = getaddrinfo(host, place.port, &hints, &all);
    if (rc != 0 && is_first)
        warn(remote, url, gai_strerror(rc));
    for (struct addrinfo *at = rc == 0 ? all : NULL; at != NULL; at = at->ai_next) {
        if (getnameinfo(at->ai_addr, at->ai_addrlen, address, sizeof(address), NULL, 0,
                        NI_NUMERICHOST) != 0)
            continue;
        const char *why = stg_attempt_refuses(&object, address);
        if (why == NULL) {
            add_end(remote, url, &place, address);
        } else if (is_first) {
            snprintf(text, sizeof(text), "stagerd asks no worker there: the address %s",
                     why);
            warn(remote, url, text);
        }
    }
    if (rc == 0)
        freeaddrinfo(all);
}

/* Names may have other addresses than before. One runner does it. */
static void resolve(struct stg_remote *remote)
{
    uint64_t now = stg_now_ns();
    pthread_mutex_lock(&remote->lock);
    bool is_first = remote->resolved_ns == 0;
    bool is_due =
        !remote->is_resolving && (is_first || now - remote->resolved_ns >= RESOLVE_NS);
    remote->is_resolving |= is_due;
    pthread_mutex_unlock(&remote->lock);
    if (!is_due)
        return;
    for (size_t i = 0; i < remote->config.workers->n_urls; i++)
        resolve_one(remote, remote->config.workers->urls[i], is_first);
    pthread_mutex_lock(&remote->lock);
    remote->is_resolving = false;
    remote->resolved_ns = stg_now_ns();
    pthread_mutex_unlock(&remote->lock);
}

/* ---- files ---- */

static int read_text(const struct stg_remote *remote, const char *file, char **ret,
                     struct stg_err *err)
{
    const struct stg_remote_config *config = &remote->config;
    const struct stg_file_user identity = {.uid = config->uid,
                                           .gid = config->gid,
                                           .groups = config->groups,
                                           .n_groups = config->n_groups,
                                           .stopped = config->stopped};
    const struct stg_storage *storage;
    struct stg_source *source;
    const char *path;
    uint64_t size = 0;
    bool of_storage;
    int rc = stg_storage_find(file, &storage, &path, err);
    if (rc == 0 && storage->remote)
        rc = stg_err(err, -STAGER_INVALID_ARGUMENT, "%s: not a local file", file);
    if (rc == 0)
        rc = storage->open(path, &identity, &source, err);
    if (rc < 0)
        return rc;
    rc = storage->size(source, &size, err);
    char *text = rc == 0 && size <= MAX_FILE_BYTES ? calloc(1, size + 1) : NULL;
    if (rc == 0 && text == NULL)
        rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "%s: it has %" PRIu64 " bytes",
                     file, size);
    if (rc == 0)
        rc = stg_source_read_all(source, 0, text, size, &of_storage, err);
    storage->close(source);
    if (rc < 0)
        free(text);
    else
        *ret = text;
    return rc;
}

static char *refresh(struct stg_remote *remote, struct text *text, const char *file,
                     char *why, size_t why_bytes)
{
    char *content = NULL, *copy = NULL;
    struct stg_err err = {0};
    why[0] = '\0';
    if (file == NULL)
        return NULL;
    pthread_mutex_lock(&remote->lock);
    bool is_due = text->content == NULL || stg_now_ns() - text->read_ns >= FILE_NS;
    pthread_mutex_unlock(&remote->lock);
    int rc = is_due ? read_text(remote, file, &content, &err) : 0;
    if (rc < 0)
        snprintf(why, why_bytes, "%.170s", err.text);
    pthread_mutex_lock(&remote->lock);
    if (content != NULL) {
        free(text->content);
        text->content = content;
        text->read_ns = stg_now_ns();
    }
    if (rc == 0 && text->content != NULL)
        copy = strdup(text->content);
    pthread_mutex_unlock(&remote->lock);
    return copy;
}

char *stg_remote_token(struct stg_remote *remote, char *why, size_t why_bytes)
{
    char *token = refresh(remote, &remote->token, remote->config.workers->token_file, why,
                          why_bytes);
    if (token != NULL)
        token[strcspn(token, "\r\n")] = '\0';
    return token;
}

char *stg_remote_authority(struct stg_remote *remote, char *why, size_t why_bytes)
{
    return refresh(remote, &remote->authority, remote->config.workers->ca_file, why,
                   why_bytes);
}

/* ---- which worker ---- */

static bool may_ask(const struct stg_worker_end *end, uint64_t now)
{
    return !end->is_out && end->until_ns <= now;
}

/* Requests at once. */
static unsigned room_of(const struct stg_worker_end *end)
{
    unsigned fits = end->fits != 0 ? end->fits : MOST_ASKED;
    return end->most_asked != 0 && end->most_asked < fits ? end->most_asked : fits;
}

static bool is_full(const struct stg_worker_end *end)
{
    return end->n_asked >= room_of(end);
}

/* The lock is held. Those of the zone first, then those with the fewest requests. */
static int find(const struct stg_remote *remote, uint64_t tried)
{
    uint64_t now = stg_now_ns();
    int best = -1;
    for (int i = 0; i < remote->n_ends; i++) {
        const struct stg_worker_end *end = &remote->ends[i];
        const struct stg_worker_end *than = best >= 0 ? &remote->ends[best] : NULL;
        if ((tried >> i & 1) != 0 || !may_ask(end, now) || is_full(end))
            continue;
        if (than == NULL || end->zone > than->zone ||
            (end->zone == than->zone && end->n_asked < than->n_asked))
            best = i;
    }
    return best;
}

int stg_remote_choose(struct stg_remote *remote, uint64_t tried)
{
    pthread_mutex_lock(&remote->lock);
    int i = find(remote, tried);
    if (i < 0 && tried == 0) {
        pthread_mutex_unlock(&remote->lock);
        resolve(remote);
        pthread_mutex_lock(&remote->lock);
        i = find(remote, tried);
    }
    if (i >= 0) {
        remote->ends[i].n_asked++;
        remote->counts.n_asked++;
    }
    pthread_mutex_unlock(&remote->lock);
    return i;
}

bool stg_remote_is_full(struct stg_remote *remote, uint64_t tried)
{
    uint64_t now = stg_now_ns();
    bool is = false;
    pthread_mutex_lock(&remote->lock);
    for (int i = 0; i < remote->n_ends; i++) {
        const struct stg_worker_end *end = &remote->ends[i];
        is |= (tried >> i & 1) == 0 && may_ask(end, now) && is_full(end);
    }
    pthread_mutex_unlock(&remote->lock);
    return is;
}

const struct stg_worker_end *stg_remote_worker(const struct stg_remote *remote, int i)
{
    return &remote->ends[i];
}

const struct stg_remote_config *stg_remote_config(const struct stg_remote *remote)
{
    return &remote->config;
}

/* The lock is held. Returns whether workers have room for one request more than n. */
static bool has_room(const struct stg_remote *remote, uint32_t n)
{
    uint64_t now = stg_now_ns(), room = 0;
    for (int i = 0; i < remote->n_ends; i++) {
        if (may_ask(&remote->ends[i], now))
            room += room_of(&remote->ends[i]);
    }
    return room > n;
}

bool stg_remote_ready(struct stg_remote *remote, uint32_t n_asking)
{
    uint64_t now = stg_now_ns();
    pthread_mutex_lock(&remote->lock);
    bool is = remote->paid_ns <= now &&
              (has_room(remote, n_asking) ||
               (!remote->is_resolving &&
                (remote->resolved_ns == 0 || now - remote->resolved_ns >= RESOLVE_NS)));
    pthread_mutex_unlock(&remote->lock);
    return is;
}

/* ---- what came of it ---- */

static void fail(struct stg_remote *remote, struct stg_worker_end *end,
                 enum stg_outcome outcome, uint64_t retry_after_ns, const char *why)
{
    unsigned doublings = end->n_failed < 7 ? end->n_failed : 7;
    uint64_t delay =
        outcome == STG_OUTCOME_REFUSED ? MOST_DELAY_NS / 3 : FIRST_DELAY_NS << doublings;
    delay = delay > retry_after_ns ? delay : retry_after_ns;
    end->until_ns = stg_now_ns() + (delay < MOST_DELAY_NS ? delay : MOST_DELAY_NS);
    end->is_out |= outcome == STG_OUTCOME_GARBAGE;
    end->n_failed++;
    snprintf(end->why, sizeof(end->why), "%s", why);
    remote->counts.n_failed++;
    remote->counts.n_garbage += outcome == STG_OUTCOME_GARBAGE;
}

/* It refuses one more than it has. A worker that refuses the only one is away. */
static enum stg_outcome take_busy(struct stg_worker_end *end)
{
    if (end->n_asked == 0)
        return STG_OUTCOME_AWAY;
    end->most_asked = end->n_asked;
    end->n_good = 0;
    return STG_OUTCOME_BUSY;
}

/* Once in a while one request more is tried. */
static void take_good(struct stg_worker_end *end)
{
    end->n_failed = 0;
    if (end->most_asked == 0 || ++end->n_good < GOOD_FOR_MORE)
        return;
    end->most_asked++;
    end->n_good = 0;
}

void stg_remote_note(struct stg_remote *remote, int i, enum stg_outcome outcome,
                     uint64_t retry_after_ns, const char *why)
{
    uint64_t now = stg_now_ns();
    char shown[384], text[256];
    pthread_mutex_lock(&remote->lock);
    struct stg_worker_end *end = &remote->ends[i];
    end->n_asked--;
    if (outcome == STG_OUTCOME_BUSY)
        outcome = take_busy(end);
    bool is_failure = outcome > STG_OUTCOME_BUSY && outcome != STG_OUTCOME_ELEMENT;
    if (is_failure)
        fail(remote, end, outcome, retry_after_ns, why);
    else if (outcome != STG_OUTCOME_BUSY)
        take_good(end);
    bool is_told = is_failure && (outcome == STG_OUTCOME_GARBAGE || end->logged_ns == 0 ||
                                  now - end->logged_ns >= LOG_NS);
    end->logged_ns = is_told ? now : end->logged_ns;
    memcpy(shown, end->shown, sizeof(shown));
    pthread_mutex_unlock(&remote->lock);
    if (!is_told)
        return;
    snprintf(text, sizeof(text), "%.192s%s", why,
             outcome == STG_OUTCOME_GARBAGE
                 ? ": it is not asked again in this run"
                 : ": its batches are asked elsewhere, or made here");
    warn(remote, shown, text);
}

void stg_remote_forget(struct stg_remote *remote, int i)
{
    pthread_mutex_lock(&remote->lock);
    remote->ends[i].n_asked--;
    pthread_mutex_unlock(&remote->lock);
}

void stg_remote_note_zone(struct stg_remote *remote, int i, const char *zone)
{
    const char *own = remote->config.workers->zone;
    if (own == NULL)
        return;
    pthread_mutex_lock(&remote->lock);
    remote->ends[i].zone = strcmp(zone, own) == 0 ? 1 : -1;
    pthread_mutex_unlock(&remote->lock);
}

void stg_remote_note_cpus(struct stg_remote *remote, int i, unsigned long cpus)
{
    pthread_mutex_lock(&remote->lock);
    if (cpus > 0 && cpus < MOST_CPUS)
        remote->ends[i].fits = (unsigned)cpus + MORE_THAN_CPUS;
    pthread_mutex_unlock(&remote->lock);
}

static void pay(struct stg_remote *remote, uint64_t bytes)
{
    uint64_t rate = remote->config.workers->max_bytes_per_s, now = stg_now_ns();
    if (rate == 0)
        return;
    if (remote->paid_ns < now)
        remote->paid_ns = now;
    remote->paid_ns += (uint64_t)((double)bytes / (double)rate * (double)NS_PER_S);
}

void stg_remote_note_good(struct stg_remote *remote, uint64_t bytes, uint64_t ns)
{
    pthread_mutex_lock(&remote->lock);
    remote->counts.n_batches++;
    remote->counts.n_bytes += bytes;
    remote->latencies_ns[remote->n_latencies++ % N_LATENCIES] = ns;
    remote->mean_ns =
        remote->mean_ns == 0 ? ns : remote->mean_ns - remote->mean_ns / 8 + ns / 8;
    pay(remote, bytes);
    pthread_mutex_unlock(&remote->lock);
}

void stg_remote_note_hedge(struct stg_remote *remote)
{
    pthread_mutex_lock(&remote->lock);
    remote->counts.n_hedged++;
    pthread_mutex_unlock(&remote->lock);
}

static int by_size(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

void stg_remote_patience(struct stg_remote *remote, uint64_t *ret_hedge_ns,
                         uint64_t *ret_limit_ns)
{
    uint64_t sorted[N_LATENCIES];
    pthread_mutex_lock(&remote->lock);
    size_t n = remote->n_latencies < N_LATENCIES ? remote->n_latencies : N_LATENCIES;
    memcpy(sorted, remote->latencies_ns, sizeof(sorted));
    pthread_mutex_unlock(&remote->lock);
    *ret_hedge_ns = UNKNOWN_HEDGE_NS;
    *ret_limit_ns = UNKNOWN_LIMIT_NS;
    if (n < FEW_LATENCIES)
        return;
    qsort(sorted, n, sizeof(sorted[0]), by_size);
    uint64_t p95 = sorted[n * 95 / 100], limit = 4 * p95;
    *ret_hedge_ns = p95 > LEAST_HEDGE_NS ? p95 : LEAST_HEDGE_NS;
    *ret_limit_ns = limit < NS_PER_S        ? NS_PER_S
                    : limit < MOST_LIMIT_NS ? limit
                                            : MOST_LIMIT_NS;
}

uint64_t stg_remote_latency_ns(struct stg_remote *remote)
{
    pthread_mutex_lock(&remote->lock);
    uint64_t mean = remote->mean_ns;
    pthread_mutex_unlock(&remote->lock);
    return mean;
}

void stg_remote_counts(struct stg_remote *remote, struct stg_remote_counts *ret)
{
    pthread_mutex_lock(&remote->lock);
    *ret = remote->counts;
    pthread_mutex_unlock(&remote->lock);
}

const char *stg_remote_show(struct stg_remote *remote, char *buf, size_t bytes)
{
    uint64_t now = stg_now_ns();
    size_t at = 0;
    buf[0] = '\0';
    pthread_mutex_lock(&remote->lock);
    for (int i = 0; i < remote->n_ends && at + 1 < bytes; i++) {
        const struct stg_worker_end *end = &remote->ends[i];
        if (may_ask(end, now))
            continue;
        int n = snprintf(buf + at, bytes - at, "; %s %s: %s",
                         end->is_out ? "left out:" : "away:", end->shown, end->why);
        at += (size_t)n < bytes - at ? (size_t)n : bytes - at - 1;
    }
    pthread_mutex_unlock(&remote->lock);
    return buf;
}

/* ---- life ---- */

int stg_remote_create(const struct stg_remote_config *config, struct stg_remote **ret,
                      struct stg_err *err)
{
    int rc = stg_http_libraries(err);
    if (rc < 0)
        return rc;
    struct stg_remote *remote = calloc(1, sizeof(*remote));
    if (remote == NULL || curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        free(remote);
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    }
    const struct stg_file_user identity = {.uid = config->uid, .gid = config->gid};
    remote->config = *config;
    remote->may_loop = stg_store_is_own(&identity);
    pthread_mutex_init(&remote->lock, NULL);
    *ret = remote;
    return 0;
}

static void wipe(struct text *text)
{
    if (text->content != NULL)
        explicit_bzero(text->content, strlen(text->content));
    free(text->content);
}

void stg_remote_destroy(struct stg_remote *remote)
{
    if (remote == NULL)
        return;
    wipe(&remote->token);
    wipe(&remote->authority);
    pthread_mutex_destroy(&remote->lock);
    free(remote);
    curl_global_cleanup();
}
