/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/remote_stage/remote.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "daemon/host/share.h"
#include "daemon/remote_stage/priv.h"
#include "daemon/storage/http/libraries.h"
#include "daemon/storage/http/store.h"
#include "daemon/storage/storage.h"

#define NS_PER_S UINT64_C(1000000000)
#define FIRST_DELAY_NS (NS_PER_S / 4)
#define MOST_DELAY_NS (30 * NS_PER_S)
/* Names may have other addresses; a program that writes workers_file may write it anew.
 */
#define LOOK_NS (5 * NS_PER_S)
#define LOOK_AT_FILE_NS NS_PER_S
#define FILE_NS (5 * NS_PER_S)
#define LOG_NS (60 * NS_PER_S)
#define MAX_FILE_BYTES (1u << 20)
#define N_LATENCIES 64u
/* While a worker makes a batch on each CPU, so many wait there: more come later than they
 * would elsewhere. */
#define MORE_THAN_CPUS 2u
#define MOST_CPUS 4096u
#define MOST_CPU_NS (3600 * NS_PER_S) /* of a batch; more is no time */
#define MOST_ASKED 65536u             /* nothing is known of the worker */
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
    bool is_looking;
    uint64_t looked_ns, warned_ns; /* 0: not yet */
    struct text token, authority;
    uint64_t paid_ns; /* max_bytes_per_s and the quota are kept when this has come */
    uint64_t latencies_ns[N_LATENCIES];
    uint64_t n_latencies, mean_ns;
    struct stg_remote_counts counts;
};

static void warn(const struct stg_remote *remote, const char *what, const char *why)
{
    stg_log(STG_LOG_WARNING, "pipeline %s: stage worker%s%s: %s", remote->config.pipeline,
            what[0] != '\0' ? " " : "s", what, why);
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

/* ---- addresses ---- */

bool stg_remote_look_begin(struct stg_remote *remote)
{
    uint64_t now = stg_now_ns();
    uint64_t pause =
        remote->config.workers->workers_file != NULL ? LOOK_AT_FILE_NS : LOOK_NS;
    pthread_mutex_lock(&remote->lock);
    bool is_due = !remote->is_looking &&
                  (remote->looked_ns == 0 || now - remote->looked_ns >= pause);
    remote->is_looking |= is_due;
    pthread_mutex_unlock(&remote->lock);
    return is_due;
}

/* The lock is held. */
static struct stg_worker_end *find_known(struct stg_remote *remote,
                                         const struct stg_worker_address *at)
{
    for (int i = 0; i < remote->n_ends; i++) {
        struct stg_worker_end *end = &remote->ends[i];
        if (strcmp(end->at.url, at->url) == 0 &&
            strcmp(end->at.address, at->address) == 0)
            return end;
    }
    return NULL;
}

/* The lock is held. Returns the place of one that is gone, of those that have sent
 * garbage last; NULL: there is none. */
static struct stg_worker_end *find_gone(struct stg_remote *remote)
{
    struct stg_worker_end *ret = NULL;
    for (int i = 0; i < remote->n_ends; i++) {
        struct stg_worker_end *end = &remote->ends[i];
        if (!end->is_listed && end->n_asked == 0 && (ret == NULL || ret->is_out))
            ret = end;
    }
    return ret;
}

/* The lock is held. */
static void make_known(struct stg_remote *remote, const struct stg_worker_address *at)
{
    if (find_known(remote, at) != NULL)
        return;
    struct stg_worker_end *end = remote->n_ends < (int)STG_MAX_WORKERS
                                     ? &remote->ends[remote->n_ends++]
                                     : find_gone(remote);
    if (end != NULL)
        *end = (struct stg_worker_end){.at = *at, .is_listed = true};
}

static int count_listed(const struct stg_remote *remote)
{
    int n = 0;
    for (int i = 0; i < remote->n_ends; i++)
        n += remote->ends[i].is_listed;
    return n;
}

/* Those that are known first, so that none of them loses its place. */
static void take_list(struct stg_remote *remote, const struct stg_worker_list *list)
{
    pthread_mutex_lock(&remote->lock);
    int n_before = count_listed(remote);
    for (int i = 0; i < remote->n_ends; i++)
        remote->ends[i].is_listed = false;
    for (int i = 0; i < list->n; i++) {
        struct stg_worker_end *end = find_known(remote, &list->each[i]);
        if (end != NULL)
            end->is_listed = true;
    }
    for (int i = 0; i < list->n; i++)
        make_known(remote, &list->each[i]);
    int n = count_listed(remote);
    pthread_mutex_unlock(&remote->lock);
    if (n != n_before)
        stg_log(STG_LOG_INFO, "pipeline %s: stage workers: %d, before %d",
                remote->config.pipeline, n, n_before);
}

/* Where the name of a URL cannot be looked up now, its addresses of before stay. */
static void keep(struct stg_remote *remote, const char *url, struct stg_worker_list *list)
{
    pthread_mutex_lock(&remote->lock);
    for (int i = 0; i < remote->n_ends && list->n < (int)STG_MAX_WORKERS; i++) {
        const struct stg_worker_end *end = &remote->ends[i];
        if (end->is_listed && strcmp(end->at.url, url) == 0)
            list->each[list->n++] = end->at;
    }
    pthread_mutex_unlock(&remote->lock);
}

static void look_up(struct stg_remote *remote, const char *url,
                    struct stg_worker_list *list, struct stg_err *err)
{
    if (stg_worker_list_add(list, url, remote->may_loop, err) < 0)
        keep(remote, url, list);
}

/* A line is a URL, empty, or begins with '#'. */
static void look_into_file(struct stg_remote *remote, struct stg_worker_list *list,
                           struct stg_err *err)
{
    char *text = NULL, *rest;
    if (remote->config.workers->workers_file == NULL ||
        read_text(remote, remote->config.workers->workers_file, &text, err) < 0)
        return;
    for (char *line = strtok_r(text, "\r\n", &rest); line != NULL;
         line = strtok_r(NULL, "\r\n", &rest)) {
        line += strspn(line, " \t");
        line[strcspn(line, " \t")] = '\0';
        if (line[0] != '#' && line[0] != '\0')
            look_up(remote, line, list, err);
    }
    free(text);
}

/* Of what the last look met, at most once a minute. */
static void warn_of_look(struct stg_remote *remote, const struct stg_err *err)
{
    uint64_t now = stg_now_ns();
    pthread_mutex_lock(&remote->lock);
    bool is_due = err->text[0] != '\0' &&
                  (remote->warned_ns == 0 || now - remote->warned_ns >= LOG_NS);
    remote->warned_ns = is_due ? now : remote->warned_ns;
    pthread_mutex_unlock(&remote->lock);
    if (is_due)
        warn(remote, "", err->text);
}

void stg_remote_look(struct stg_remote *remote)
{
    const struct stg_remote_workers *workers = remote->config.workers;
    struct stg_worker_list *list = calloc(1, sizeof(*list));
    struct stg_err err = {0};
    for (size_t i = 0; list != NULL && i < workers->n_urls; i++)
        look_up(remote, workers->urls[i], list, &err);
    if (list != NULL) {
        look_into_file(remote, list, &err);
        if (list->has_more)
            stg_err(&err, -STAGER_RESOURCE_EXHAUSTED,
                    "there are more than %u addresses: the others are not asked",
                    STG_MAX_WORKERS);
        take_list(remote, list);
    }
    free(list);
    warn_of_look(remote, &err);
    pthread_mutex_lock(&remote->lock);
    remote->is_looking = false;
    remote->looked_ns = stg_now_ns();
    pthread_mutex_unlock(&remote->lock);
}

/* ---- which worker ---- */

static bool may_ask(const struct stg_worker_end *end, uint64_t now)
{
    return end->is_listed && !end->is_out && end->until_ns <= now;
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
    bool is = remote->paid_ns <= now && has_room(remote, n_asking);
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
    memcpy(shown, end->at.shown, sizeof(shown));
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

/* The lock is held. quota_ns: for which the quota of the user has no worker asked. */
static void pay(struct stg_remote *remote, uint64_t bytes, uint64_t quota_ns)
{
    uint64_t rate = remote->config.workers->max_bytes_per_s, now = stg_now_ns();
    if (remote->paid_ns < now)
        remote->paid_ns = now;
    if (rate != 0)
        remote->paid_ns += (uint64_t)((double)bytes / (double)rate * (double)NS_PER_S);
    if (remote->paid_ns < now + quota_ns)
        remote->paid_ns = now + quota_ns;
}

void stg_remote_note_good(struct stg_remote *remote, uint64_t bytes, uint64_t ns,
                          uint64_t cpu_ns)
{
    uint64_t wait = stg_share_spend(remote->config.share, STG_QUOTA_REMOTE, bytes);
    pthread_mutex_lock(&remote->lock);
    remote->counts.n_batches++;
    remote->counts.n_bytes += bytes;
    remote->counts.answer_ns += ns;
    if (cpu_ns > 0 && cpu_ns <= MOST_CPU_NS) {
        remote->counts.n_timed++;
        remote->counts.cpu_ns += cpu_ns;
    }
    remote->latencies_ns[remote->n_latencies++ % N_LATENCIES] = ns;
    remote->mean_ns =
        remote->mean_ns == 0 ? ns : remote->mean_ns - remote->mean_ns / 8 + ns / 8;
    pay(remote, bytes, wait);
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
    int n_asked = 0;
    pthread_mutex_lock(&remote->lock);
    for (int i = 0; i < remote->n_ends; i++)
        n_asked += may_ask(&remote->ends[i], now);
    at = (size_t)snprintf(buf, bytes, "; %d of %d workers may be asked", n_asked,
                          count_listed(remote));
    for (int i = 0; i < remote->n_ends && at + 1 < bytes; i++) {
        const struct stg_worker_end *end = &remote->ends[i];
        if (!end->is_listed || may_ask(end, now))
            continue;
        int n = snprintf(buf + at, bytes - at, "; %s %s: %s",
                         end->is_out ? "left out:" : "away:", end->at.shown, end->why);
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
