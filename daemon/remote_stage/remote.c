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
/* Names may have other addresses; a program that writes workers_file may write it anew.
 */
#define LOOK_NS (5 * NS_PER_S)
#define LOOK_AT_FILE_NS NS_PER_S
#define FILE_NS (5 * NS_PER_S)
#define LOG_NS (60 * NS_PER_S)
#define MAX_FILE_BYTES (1u << 20)
#define MOST_CPU_NS (3600 * NS_PER_S) /* of a batch; more is no time */

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
    struct stg_worker_load loads[STG_MAX_WORKERS]; /* of ends */
    int n_ends;
    bool is_looking;
    uint64_t looked_ns, warned_ns; /* 0: not yet */
    struct text token, authority;
    uint64_t paid_ns; /* max_bytes_per_s and the quota are kept when this has come */
    uint64_t latencies_ns[STG_N_LATENCIES];
    uint64_t n_latencies;
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

/* The lock is held. Returns the number of the worker, or -1. */
static int find_known(const struct stg_remote *remote,
                      const struct stg_worker_address *at)
{
    for (int i = 0; i < remote->n_ends; i++) {
        const struct stg_worker_end *end = &remote->ends[i];
        if (strcmp(end->at.url, at->url) == 0 &&
            strcmp(end->at.address, at->address) == 0)
            return i;
    }
    return -1;
}

/* The lock is held. Returns the place of one that is gone, of those that have sent
 * garbage last; -1: there is none. */
static int find_gone(const struct stg_remote *remote)
{
    int ret = -1;
    for (int i = 0; i < remote->n_ends; i++) {
        const struct stg_worker_load *load = &remote->loads[i];
        if (!load->is_listed && load->n_asked == 0 &&
            (ret < 0 || remote->loads[ret].is_out))
            ret = i;
    }
    return ret;
}

/* The lock is held. */
static void make_known(struct stg_remote *remote, const struct stg_worker_address *at)
{
    if (find_known(remote, at) >= 0)
        return;
    int i = remote->n_ends < (int)STG_MAX_WORKERS ? remote->n_ends++ : find_gone(remote);
    if (i < 0)
        return;
    remote->ends[i] = (struct stg_worker_end){.at = *at};
    remote->loads[i] = (struct stg_worker_load){.is_listed = true};
}

static int count_listed(const struct stg_remote *remote)
{
    int n = 0;
    for (int i = 0; i < remote->n_ends; i++)
        n += remote->loads[i].is_listed;
    return n;
}

/* Those that are known first, so that none of them loses its place. */
static void take_list(struct stg_remote *remote, const struct stg_worker_list *list)
{
    pthread_mutex_lock(&remote->lock);
    int n_before = count_listed(remote);
    for (int i = 0; i < remote->n_ends; i++)
        remote->loads[i].is_listed = false;
    for (int i = 0; i < list->n; i++) {
        int known = find_known(remote, &list->each[i]);
        if (known >= 0)
            remote->loads[known].is_listed = true;
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
        if (remote->loads[i].is_listed && strcmp(end->at.url, url) == 0)
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

int stg_remote_choose(struct stg_remote *remote, uint64_t tried)
{
    uint64_t now = stg_now_ns();
    pthread_mutex_lock(&remote->lock);
    int i = stg_load_choose(remote->loads, remote->n_ends, tried, now);
    if (i >= 0) {
        stg_load_begin(&remote->loads[i], now);
        remote->counts.n_asked++;
    }
    pthread_mutex_unlock(&remote->lock);
    return i;
}

bool stg_remote_is_full(struct stg_remote *remote, uint64_t tried)
{
    uint64_t now = stg_now_ns();
    pthread_mutex_lock(&remote->lock);
    bool is = stg_load_is_full(remote->loads, remote->n_ends, tried, now);
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

bool stg_remote_ready(struct stg_remote *remote, uint32_t n_asking,
                      const struct stg_auto_runners *runners)
{
    uint64_t now = stg_now_ns();
    pthread_mutex_lock(&remote->lock);
    bool is = remote->paid_ns <= now &&
              stg_load_has_room(remote->loads, remote->n_ends, n_asking, runners, now);
    pthread_mutex_unlock(&remote->lock);
    return is;
}

/* ---- what came of it ---- */

void stg_remote_note(struct stg_remote *remote, int i, enum stg_outcome outcome,
                     uint64_t retry_after_ns, const char *why)
{
    uint64_t now = stg_now_ns();
    char shown[384], text[256];
    pthread_mutex_lock(&remote->lock);
    struct stg_worker_end *end = &remote->ends[i];
    outcome = stg_load_note(&remote->loads[i], outcome, retry_after_ns, now);
    bool is_failure = stg_outcome_is_failure(outcome);
    bool is_told = is_failure && (outcome == STG_OUTCOME_GARBAGE || end->logged_ns == 0 ||
                                  now - end->logged_ns >= LOG_NS);
    if (is_failure)
        snprintf(end->why, sizeof(end->why), "%s", why);
    remote->counts.n_failed += is_failure;
    remote->counts.n_garbage += outcome == STG_OUTCOME_GARBAGE;
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
    remote->loads[i].n_asked--;
    pthread_mutex_unlock(&remote->lock);
}

void stg_remote_note_zone(struct stg_remote *remote, int i, const char *zone)
{
    const char *own = remote->config.workers->zone;
    if (own == NULL)
        return;
    pthread_mutex_lock(&remote->lock);
    remote->loads[i].zone = strcmp(zone, own) == 0 ? 1 : -1;
    pthread_mutex_unlock(&remote->lock);
}

void stg_remote_note_cpus(struct stg_remote *remote, int i, unsigned long cpus)
{
    pthread_mutex_lock(&remote->lock);
    stg_load_note_cpus(&remote->loads[i], cpus);
    pthread_mutex_unlock(&remote->lock);
}

void stg_remote_note_good(struct stg_remote *remote, int i, uint64_t bytes, uint64_t ns,
                          uint64_t cpu_ns)
{
    uint64_t wait_ns = stg_share_spend(remote->config.share, STG_QUOTA_REMOTE, bytes);
    uint64_t now = stg_now_ns();
    pthread_mutex_lock(&remote->lock);
    remote->counts.n_batches++;
    remote->counts.n_bytes += bytes;
    remote->counts.answer_ns += ns;
    if (cpu_ns > 0 && cpu_ns <= MOST_CPU_NS) {
        remote->counts.n_timed++;
        remote->counts.cpu_ns += cpu_ns;
    }
    remote->latencies_ns[remote->n_latencies++ % STG_N_LATENCIES] = ns;
    stg_load_note_latency(&remote->loads[i], ns);
    remote->paid_ns = stg_rate_pay(remote->config.workers->max_bytes_per_s,
                                   remote->paid_ns, bytes, now);
    if (remote->paid_ns < now + wait_ns) /* the quota of the user */
        remote->paid_ns = now + wait_ns;
    pthread_mutex_unlock(&remote->lock);
}

void stg_remote_note_hedge(struct stg_remote *remote)
{
    pthread_mutex_lock(&remote->lock);
    remote->counts.n_hedged++;
    pthread_mutex_unlock(&remote->lock);
}

void stg_remote_patience(struct stg_remote *remote, uint64_t *ret_hedge_ns,
                         uint64_t *ret_limit_ns)
{
    pthread_mutex_lock(&remote->lock);
    stg_patience(remote->latencies_ns, remote->n_latencies, ret_hedge_ns, ret_limit_ns);
    pthread_mutex_unlock(&remote->lock);
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
        n_asked += stg_load_may_ask(&remote->loads[i], now);
    at = (size_t)snprintf(buf, bytes, "; %d of %d workers may be asked", n_asked,
                          count_listed(remote));
    for (int i = 0; i < remote->n_ends && at + 1 < bytes; i++) {
        const struct stg_worker_end *end = &remote->ends[i];
        const struct stg_worker_load *load = &remote->loads[i];
        if (!load->is_listed || stg_load_may_ask(load, now))
            continue;
        int n = snprintf(buf + at, bytes - at, "; %s %s: %s",
                         load->is_out ? "left out:" : "away:", end->at.shown, end->why);
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
