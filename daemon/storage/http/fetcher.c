/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/storage/http/fetcher.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/storage/http/attempt.h"

#define MAX_FETCHERS 4
/* Connections that a thread keeps open for the next fetch. */
#define MAX_ENTRIES 64l
/* A thread looks as often, also where a wake-up fails. */
#define IDLE_MS 1000
/* Between looks where curl cannot wait. */
#define BLIND_MS 10

struct stg_fetcher {
    pthread_t thread;
    CURLM *multi;
    pthread_mutex_t lock;   /* guards these */
    struct stg_fetch *came; /* given, not taken yet; the last first */
    bool stop;
    atomic_bool any_cancelled;
    struct stg_fetch *first; /* all that are not over; the thread's */
};

static struct {
    pthread_mutex_t lock; /* guards all */
    bool configured;
    struct stg_remote_settings settings;
    struct stg_quota *quota;
    struct stg_fetcher *fetchers[MAX_FETCHERS];
    unsigned n, turn;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- settings ---- */

static const struct stg_remote_settings defaults = {.read_ahead_bytes = 256u << 20,
                                                    .range_bytes = 4u << 20,
                                                    .ranges_per_file = 8,
                                                    .connect_timeout_millis = 10000,
                                                    .stall_timeout_millis = 30000,
                                                    .retries = 6};

void stg_fetchers_configure(const struct stg_remote_settings *settings)
{
    pthread_mutex_lock(&all.lock);
    if (all.quota != NULL &&
        all.settings.read_ahead_bytes != settings->read_ahead_bytes) {
        stg_quota_unref(all.quota);
        all.quota = NULL;
    }
    all.settings = *settings;
    all.settings.cache_dir = NULL;
    all.settings.stores = NULL;
    all.settings.n_stores = 0;
    all.configured = true;
    pthread_mutex_unlock(&all.lock);
}

void stg_fetchers_settings(struct stg_remote_settings *ret)
{
    pthread_mutex_lock(&all.lock);
    *ret = all.configured ? all.settings : defaults;
    pthread_mutex_unlock(&all.lock);
}

struct stg_quota *stg_fetchers_quota(void)
{
    struct stg_remote_settings settings;
    struct stg_quota *quota = NULL;
    stg_fetchers_settings(&settings);
    pthread_mutex_lock(&all.lock);
    if (all.quota != NULL || stg_quota_create(settings.read_ahead_bytes, &all.quota) == 0)
        quota = stg_quota_ref(all.quota);
    pthread_mutex_unlock(&all.lock);
    return quota;
}

/* ---- the thread ---- */

static void link_in(struct stg_fetcher *fetcher, struct stg_fetch *fetch)
{
    fetch->prev = NULL;
    fetch->next = fetcher->first;
    if (fetch->next != NULL)
        fetch->next->prev = fetch;
    fetcher->first = fetch;
}

static void link_out(struct stg_fetcher *fetcher, struct stg_fetch *fetch)
{
    if (fetch->prev != NULL)
        fetch->prev->next = fetch->next;
    else
        fetcher->first = fetch->next;
    if (fetch->next != NULL)
        fetch->next->prev = fetch->prev;
}

static void finish(struct stg_fetcher *fetcher, struct stg_fetch *fetch)
{
    link_out(fetcher, fetch);
    stg_fetch_done(fetch, fetch->failed, &fetch->failure);
    stg_fetch_unref(fetch);
}

/* curl_easy_cleanup takes out what this call cannot. */
static void take_out(struct stg_fetcher *fetcher, struct stg_fetch *fetch)
{
    if (fetch->easy != NULL)
        (void)curl_multi_remove_handle(fetcher->multi, fetch->easy);
}

static void drop(struct stg_fetcher *fetcher, struct stg_fetch *fetch)
{
    take_out(fetcher, fetch);
    stg_attempt_drop(fetch);
    fetch->failed = stg_err(&fetch->failure, -STAGER_CANCELLED,
                            "%s: the request was cancelled", fetch->plan.object->shown);
    finish(fetcher, fetch);
}

static void start(struct stg_fetcher *fetcher, struct stg_fetch *fetch)
{
    struct stg_remote_settings settings;
    if (atomic_load(&fetch->cancelled)) {
        drop(fetcher, fetch);
        return;
    }
    stg_fetchers_settings(&settings);
    fetch->failed = stg_attempt_begin(fetch, &settings, &fetch->failure);
    if (fetch->failed == 0) {
        CURLMcode added = curl_multi_add_handle(fetcher->multi, fetch->easy);
        if (added != CURLM_OK) {
            stg_attempt_drop(fetch);
            fetch->failed =
                stg_err(&fetch->failure, -STAGER_RESOURCE_EXHAUSTED, "%s: %s",
                        fetch->plan.object->shown, curl_multi_strerror(added));
        }
    }
    if (fetch->failed < 0)
        finish(fetcher, fetch);
}

/* False: no more is wanted. What came is started in the order in which it came. */
static bool take(struct stg_fetcher *fetcher)
{
    struct stg_fetch *turned = NULL, *next;
    pthread_mutex_lock(&fetcher->lock);
    struct stg_fetch *came = fetcher->came;
    bool stop = fetcher->stop;
    fetcher->came = NULL;
    pthread_mutex_unlock(&fetcher->lock);
    for (; came != NULL; came = next) {
        next = came->next;
        came->next = turned;
        turned = came;
    }
    for (; turned != NULL; turned = next) {
        next = turned->next;
        link_in(fetcher, turned);
        start(fetcher, turned);
    }
    return !stop;
}

static void drop_cancelled(struct stg_fetcher *fetcher)
{
    if (!atomic_exchange(&fetcher->any_cancelled, false))
        return;
    struct stg_fetch *next;
    for (struct stg_fetch *fetch = fetcher->first; fetch != NULL; fetch = next) {
        next = fetch->next;
        if (atomic_load(&fetch->cancelled))
            drop(fetcher, fetch);
    }
}

/* Starts what is due. Returns how long nothing else is. */
static int start_due(struct stg_fetcher *fetcher)
{
    uint64_t now = stg_now_ns(), wait_ms = IDLE_MS;
    struct stg_fetch *next;
    for (struct stg_fetch *fetch = fetcher->first; fetch != NULL; fetch = next) {
        next = fetch->next;
        if (fetch->easy != NULL)
            continue;
        if (fetch->due_ns <= now)
            start(fetcher, fetch);
        else if ((fetch->due_ns - now) / 1000000u + 1 < wait_ms)
            wait_ms = (fetch->due_ns - now) / 1000000u + 1;
    }
    return (int)wait_ms;
}

static void end_attempt(struct stg_fetcher *fetcher, struct stg_fetch *fetch,
                        CURLcode result)
{
    struct stg_remote_settings settings;
    stg_fetchers_settings(&settings);
    take_out(fetcher, fetch);
    if (stg_attempt_end(fetch, result, &settings))
        finish(fetcher, fetch);
}

static struct stg_fetch *fetch_of(const struct stg_fetcher *fetcher, const CURL *easy)
{
    struct stg_fetch *fetch = fetcher->first;
    while (fetch != NULL && fetch->easy != easy)
        fetch = fetch->next;
    return fetch;
}

static void take_results(struct stg_fetcher *fetcher)
{
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(fetcher->multi, &left)) != NULL) {
        struct stg_fetch *fetch = fetch_of(fetcher, message->easy_handle);
        if (fetch != NULL)
            end_attempt(fetcher, fetch, message->data.result);
    }
}

/* curl does not say which attempts failed: each one begins anew, at its byte and after a
 * delay, as after a failure of the network. */
static void end_all_attempts(struct stg_fetcher *fetcher, CURLMcode code)
{
    struct stg_fetch *next;
    for (struct stg_fetch *fetch = fetcher->first; fetch != NULL; fetch = next) {
        next = fetch->next;
        if (fetch->easy != NULL)
            end_attempt(fetcher, fetch,
                        code == CURLM_OUT_OF_MEMORY ? CURLE_OUT_OF_MEMORY
                                                    : CURLE_FAILED_INIT);
    }
}

/* Waits for the network, or for BLIND_MS where curl cannot. */
static void wait_for_more(struct stg_fetcher *fetcher, int wait_ms)
{
    if (curl_multi_poll(fetcher->multi, NULL, 0, wait_ms, NULL) != CURLM_OK)
        poll(NULL, 0, wait_ms < BLIND_MS ? wait_ms : BLIND_MS);
}

static void *run(void *arg)
{
    struct stg_fetcher *fetcher = arg;
    while (take(fetcher)) {
        int running;
        drop_cancelled(fetcher);
        int wait_ms = start_due(fetcher);
        CURLMcode code = curl_multi_perform(fetcher->multi, &running);
        take_results(fetcher);
        if (code != CURLM_OK)
            end_all_attempts(fetcher, code);
        wait_for_more(fetcher, wait_ms);
    }
    while (fetcher->first != NULL)
        drop(fetcher, fetcher->first);
    return NULL;
}

/* ---- the threads ---- */

static void fetcher_destroy(struct stg_fetcher *fetcher)
{
    (void)curl_multi_cleanup(fetcher->multi);
    pthread_mutex_destroy(&fetcher->lock);
    free(fetcher);
}

static struct stg_fetcher *fetcher_create(unsigned number)
{
    struct stg_fetcher *fetcher = calloc(1, sizeof(*fetcher));
    char name[16];
    if (fetcher == NULL)
        return NULL;
    pthread_mutex_init(&fetcher->lock, NULL);
    fetcher->multi = curl_multi_init();
    /* A thread that cannot be woken would begin each fetch late. */
    if (fetcher->multi != NULL &&
        curl_multi_setopt(fetcher->multi, CURLMOPT_MAXCONNECTS, MAX_ENTRIES) ==
            CURLM_OK &&
        curl_multi_wakeup(fetcher->multi) == CURLM_OK &&
        pthread_create(&fetcher->thread, NULL, run, fetcher) == 0) {
        snprintf(name, sizeof(name), "fetch/%u", number);
        pthread_setname_np(fetcher->thread, name);
        return fetcher;
    }
    fetcher_destroy(fetcher);
    return NULL;
}

/* Half of the CPUs can fetch more than most networks bring. The lock is held. */
static unsigned n_wanted(void)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN) / 2;
    return cpus < 1 ? 1 : cpus > MAX_FETCHERS ? MAX_FETCHERS : (unsigned)cpus;
}

/* The one whose turn it is, or NULL. */
static struct stg_fetcher *take_turn(void)
{
    pthread_mutex_lock(&all.lock);
    if (all.n == 0 && curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK) {
        for (unsigned i = 0; i < n_wanted(); i++) {
            struct stg_fetcher *fetcher = fetcher_create(i);
            if (fetcher != NULL)
                all.fetchers[all.n++] = fetcher;
        }
        if (all.n == 0)
            curl_global_cleanup();
    }
    struct stg_fetcher *fetcher = all.n > 0 ? all.fetchers[all.turn++ % all.n] : NULL;
    pthread_mutex_unlock(&all.lock);
    return fetcher;
}

static int give(struct stg_fetch *fetch, struct stg_err *err)
{
    struct stg_fetcher *fetcher = take_turn();
    if (fetcher == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                       "%s: no memory or thread is available to fetch it",
                       fetch->plan.object->shown);
    fetch->fetcher = fetcher;
    fetch->began_ns = stg_now_ns();
    stg_fetch_ref(fetch);
    pthread_mutex_lock(&fetcher->lock);
    fetch->next = fetcher->came;
    fetcher->came = fetch;
    pthread_mutex_unlock(&fetcher->lock);
    (void)curl_multi_wakeup(fetcher->multi);
    return 0;
}

int stg_fetch_start(const struct stg_fetch_plan *plan, struct stg_fetch **ret,
                    struct stg_err *err)
{
    struct stg_fetch *fetch;
    int rc = stg_fetch_create(plan, &fetch, err);
    if (rc < 0)
        return rc;
    rc = give(fetch, err);
    if (rc < 0) {
        stg_fetch_unref(fetch);
        return rc;
    }
    *ret = fetch;
    return 0;
}

void stg_fetch_cancel(struct stg_fetch *fetch)
{
    if (fetch == NULL)
        return;
    atomic_store(&fetch->cancelled, true);
    atomic_store(&fetch->fetcher->any_cancelled, true);
    (void)curl_multi_wakeup(fetch->fetcher->multi);
    stg_fetch_unref(fetch);
}

static void stop(struct stg_fetcher *fetcher)
{
    pthread_mutex_lock(&fetcher->lock);
    fetcher->stop = true;
    pthread_mutex_unlock(&fetcher->lock);
    (void)curl_multi_wakeup(fetcher->multi);
    pthread_join(fetcher->thread, NULL);
    fetcher_destroy(fetcher);
}

void stg_fetchers_finish(void)
{
    struct stg_fetcher *fetchers[MAX_FETCHERS];
    pthread_mutex_lock(&all.lock);
    unsigned n = all.n;
    memcpy(fetchers, all.fetchers, sizeof(fetchers));
    struct stg_quota *quota = all.quota;
    all.n = 0;
    all.quota = NULL;
    all.configured = false;
    pthread_mutex_unlock(&all.lock);
    for (unsigned i = 0; i < n; i++)
        stop(fetchers[i]);
    if (n > 0)
        curl_global_cleanup();
    stg_quota_unref(quota);
}
