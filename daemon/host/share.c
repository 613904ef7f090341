/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/host/share.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/clock.h"

#define SECOND_NS 1000000000ull
#define NAP_NS 50000000ull /* between two looks at `stopped` */
#define MOST_ACCOUNTS 64   /* that one user counts on */

/* A quota in force: of a user, or of a group. */
struct account {
    struct account *next;
    bool is_group, is_star; /* is_star: by the quota of user "*" */
    uint32_t id;
    uint32_t refs; /* shares, and the settings */
    char name[64];
    uint32_t weight; /* 0: the quota has none */
    uint64_t limit[STG_N_QUOTA_KINDS], used[STG_N_QUOTA_KINDS];
    uint64_t paid_ns[STG_N_QUOTA_KINDS]; /* of a rate: when all that was spent is paid */
};

struct stg_share {
    struct stg_share *next;
    uint32_t refs;
    uint64_t used[STG_N_QUOTA_KINDS];
    struct account *accounts[MOST_ACCOUNTS];
    size_t n_accounts;
    uid_t uid;
    gid_t gid;
    size_t n_groups;
    gid_t groups[];
};

static struct {
    pthread_mutex_t lock; /* guards all of this file */
    struct stg_share *shares;
    struct account *accounts;
    uint64_t star[STG_N_QUOTA_KINDS]; /* limits of user "*" */
    bool has_star;
    uint32_t star_weight;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const struct {
    const char *key, *what, *remedy;
} kinds[STG_N_QUOTA_KINDS] = {
    [STG_QUOTA_MEMORY] = {"memory", "bytes of memory",
                          "end a client or delete a pipeline that holds memory"},
    [STG_QUOTA_DISK] = {"disk", "bytes of state_dir", "delete a pipeline"},
    [STG_QUOTA_PIPELINES] = {"pipelines", "pipelines", "delete a pipeline"},
    [STG_QUOTA_CLIENTS] = {"clients", "connections", "end a client"},
    [STG_QUOTA_RUNNERS] = {"runners", "runners",
                           "lower num_threads of a pipeline, or end the clients of one"},
    [STG_QUOTA_REQUESTS] = {"requests_per_second", "requests a second",
                            "send fewer requests"},
    [STG_QUOTA_REMOTE] = {"remote_bytes_per_second", "bytes a second", "read less"},
};

bool stg_quota_is_rate(enum stg_quota_kind kind)
{
    return kind == STG_QUOTA_REQUESTS || kind == STG_QUOTA_REMOTE;
}

const char *stg_quota_key(enum stg_quota_kind kind)
{
    return kinds[kind].key;
}

/* ---- accounts ---- */

static bool has_group(const struct stg_share *share, gid_t gid)
{
    bool found = share->gid == gid;
    for (size_t i = 0; i < share->n_groups; i++)
        found |= share->groups[i] == gid;
    return found;
}

static bool counts_on(const struct stg_share *share, const struct account *account)
{
    return account->is_group ? has_group(share, account->id) : account->id == share->uid;
}

static void drop_account(struct account *account)
{
    struct account **at = &table.accounts;
    if (--account->refs > 0)
        return;
    while (*at != account)
        at = &(*at)->next;
    *at = account->next;
    free(account);
}

static struct account *add_account(bool is_group, uint32_t id, const char *name)
{
    struct account *account = calloc(1, sizeof(*account));
    if (account == NULL)
        return NULL;
    account->is_group = is_group;
    account->id = id;
    account->refs = 1;
    snprintf(account->name, sizeof(account->name), "%s", name);
    account->next = table.accounts;
    table.accounts = account;
    return account;
}

static struct account *find_account(bool is_group, uint32_t id)
{
    struct account *account = table.accounts;
    while (account != NULL && (account->is_group != is_group || account->id != id))
        account = account->next;
    return account;
}

static void join(struct stg_share *share, struct account *account)
{
    share->accounts[share->n_accounts++] = account;
    account->refs++;
    for (size_t k = 0; k < STG_N_QUOTA_KINDS; k++)
        account->used[k] += share->used[k];
}

static void leave_all(struct stg_share *share)
{
    for (size_t i = 0; i < share->n_accounts; i++) {
        for (size_t k = 0; k < STG_N_QUOTA_KINDS; k++)
            share->accounts[i]->used[k] -= share->used[k];
        drop_account(share->accounts[i]);
    }
    share->n_accounts = 0;
}

/* Joins the accounts of the settings, and that of "*" where the user has none by name,
 * unless it is root. */
static int join_all(struct stg_share *share)
{
    for (struct account *a = table.accounts; a != NULL; a = a->next) {
        if (counts_on(share, a) && share->n_accounts < MOST_ACCOUNTS)
            join(share, a);
    }
    if (!table.has_star || share->uid == 0 || find_account(false, share->uid) != NULL ||
        share->n_accounts == MOST_ACCOUNTS)
        return 0;
    struct account *account = add_account(false, share->uid, "*");
    if (account == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    account->is_star = true;
    account->weight = table.star_weight;
    memcpy(account->limit, table.star, sizeof(table.star));
    join(share, account);
    account->refs--; /* shares alone keep it */
    return 0;
}

/* ---- settings ---- */

static int find_id(const struct stg_quota_spec *quota, size_t number, uint32_t *ret,
                   struct stg_err *err)
{
    const char *name = quota->user != NULL ? quota->user : quota->group;
    bool is_user = quota->user != NULL;
    if (is_user ? !stg_user_find(name, ret) : !stg_group_find(name, ret))
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "quotas[%zu]: %s %s does not exist: correct the name, or write a "
                       "number",
                       number, is_user ? "user" : "group", name);
    return 0;
}

static int add_quota(const struct stg_quota_spec *quota, size_t number,
                     struct stg_err *err)
{
    uint32_t id = 0;
    const char *name = quota->user != NULL ? quota->user : quota->group;
    bool is_group = quota->user == NULL, is_star = !is_group && strcmp(name, "*") == 0;
    int rc = is_star ? 0 : find_id(quota, number, &id, err);
    if (rc < 0)
        return rc;
    if (is_star ? table.has_star : find_account(is_group, id) != NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "quotas[%zu]: %s %s has an entry already: make one of both",
                       number, is_group ? "group" : "user", name);
    if (is_star) {
        table.has_star = true;
        table.star_weight = quota->weight;
        memcpy(table.star, quota->limit, sizeof(table.star));
        return 0;
    }
    struct account *account = add_account(is_group, id, name);
    if (account == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory for quotas");
    account->weight = quota->weight;
    memcpy(account->limit, quota->limit, sizeof(account->limit));
    return 0;
}

/* The lock is held. */
static void forget_quotas(void)
{
    for (struct stg_share *s = table.shares; s != NULL; s = s->next)
        leave_all(s);
    while (table.accounts != NULL)
        drop_account(table.accounts);
    table.has_star = false;
}

int stg_share_configure(const struct stg_quota_spec *quotas, size_t n,
                        struct stg_err *err)
{
    int rc = 0;
    struct stg_err ignored;
    pthread_mutex_lock(&table.lock);
    forget_quotas();
    for (size_t i = 0; i < n; i++) {
        int added = add_quota(&quotas[i], i, rc == 0 ? err : &ignored);
        rc = rc == 0 ? added : rc;
    }
    for (struct stg_share *s = table.shares; s != NULL; s = s->next) {
        if (join_all(s) < 0 && rc == 0)
            rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory for quotas");
    }
    pthread_mutex_unlock(&table.lock);
    return rc;
}

void stg_share_finish(void)
{
    pthread_mutex_lock(&table.lock);
    forget_quotas();
    pthread_mutex_unlock(&table.lock);
}

/* ---- shares ---- */

static bool is_of(const struct stg_share *share, uid_t uid, gid_t gid,
                  const gid_t *groups, size_t n_groups)
{
    return share->uid == uid && share->gid == gid && share->n_groups == n_groups &&
           (n_groups == 0 ||
            memcmp(share->groups, groups, n_groups * sizeof(gid_t)) == 0);
}

static struct stg_share *make_share(uid_t uid, gid_t gid, const gid_t *groups,
                                    size_t n_groups)
{
    struct stg_share *share = calloc(1, sizeof(*share) + n_groups * sizeof(gid_t));
    if (share == NULL)
        return NULL;
    share->refs = 1;
    share->uid = uid;
    share->gid = gid;
    share->n_groups = n_groups;
    if (n_groups > 0)
        memcpy(share->groups, groups, n_groups * sizeof(gid_t));
    if (join_all(share) < 0) {
        leave_all(share);
        free(share);
        return NULL;
    }
    share->next = table.shares;
    table.shares = share;
    return share;
}

struct stg_share *stg_share_get(uid_t uid, gid_t gid, const gid_t *groups,
                                size_t n_groups)
{
    pthread_mutex_lock(&table.lock);
    struct stg_share *share = table.shares;
    while (share != NULL && !is_of(share, uid, gid, groups, n_groups))
        share = share->next;
    if (share != NULL)
        share->refs++;
    else
        share = make_share(uid, gid, groups, n_groups);
    pthread_mutex_unlock(&table.lock);
    return share;
}

void stg_share_put(struct stg_share *share)
{
    if (share == NULL)
        return;
    pthread_mutex_lock(&table.lock);
    if (--share->refs == 0) {
        struct stg_share **at = &table.shares;
        while (*at != share)
            at = &(*at)->next;
        *at = share->next;
        leave_all(share);
        free(share);
    }
    pthread_mutex_unlock(&table.lock);
}

struct stg_share *stg_share_ref(struct stg_share *share)
{
    pthread_mutex_lock(&table.lock);
    share->refs++;
    pthread_mutex_unlock(&table.lock);
    return share;
}

struct stg_party stg_share_party(const struct stg_share *share)
{
    const struct account *found = NULL;
    pthread_mutex_lock(&table.lock);
    for (size_t i = 0; i < share->n_accounts; i++) {
        const struct account *a = share->accounts[i];
        if (a->weight > 0 && (found == NULL || !a->is_group))
            found = a;
    }
    struct stg_party ret = {.id = share->uid, .weight = 1};
    if (found != NULL)
        ret = (struct stg_party){found->is_group, found->id, found->weight};
    pthread_mutex_unlock(&table.lock);
    return ret;
}

bool stg_share_has_weights(const struct stg_quota_spec *quotas, size_t n)
{
    bool has = false;
    for (size_t i = 0; i < n; i++)
        has |= quotas[i].weight > 0;
    return has;
}

/* ---- use ---- */

static int refuse(const struct account *account, enum stg_quota_kind kind, uint64_t n,
                  struct stg_err *err)
{
    const char *of = account->is_group ? "group" : "user";
    char owner[96];
    if (account->is_star)
        snprintf(owner, sizeof(owner), "user %" PRIu32, account->id);
    else
        snprintf(owner, sizeof(owner), "%s %s", of, account->name);
    uint64_t used = account->used[kind], sum = used + n < used ? UINT64_MAX : used + n;
    return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                   "the quota of %s is %" PRIu64 " %s, %" PRIu64
                   " of them are in use, and the request needs %" PRIu64
                   " more: %s, or raise %s of {%s: \"%s\"} in quotas of stagerd.yaml to "
                   "at least %" PRIu64 " and reload stagerd",
                   owner, account->limit[kind], kinds[kind].what, used, n,
                   kinds[kind].remedy, kinds[kind].key, of, account->name, sum);
}

int stg_share_take(struct stg_share *share, enum stg_quota_kind kind, uint64_t n,
                   struct stg_err *err)
{
    int rc = 0;
    if (share == NULL)
        return 0;
    pthread_mutex_lock(&table.lock);
    for (size_t i = 0; rc == 0 && i < share->n_accounts; i++) {
        const struct account *a = share->accounts[i];
        uint64_t left =
            a->limit[kind] > a->used[kind] ? a->limit[kind] - a->used[kind] : 0;
        if (n > left)
            rc = err != NULL ? refuse(a, kind, n, err) : -STAGER_RESOURCE_EXHAUSTED;
    }
    for (size_t i = 0; rc == 0 && i < share->n_accounts; i++)
        share->accounts[i]->used[kind] += n;
    share->used[kind] += rc == 0 ? n : 0;
    pthread_mutex_unlock(&table.lock);
    return rc;
}

void stg_share_add(struct stg_share *share, enum stg_quota_kind kind, uint64_t n)
{
    if (share == NULL)
        return;
    pthread_mutex_lock(&table.lock);
    for (size_t i = 0; i < share->n_accounts; i++)
        share->accounts[i]->used[kind] += n;
    share->used[kind] += n;
    pthread_mutex_unlock(&table.lock);
}

void stg_share_give(struct stg_share *share, enum stg_quota_kind kind, uint64_t n)
{
    if (share == NULL)
        return;
    pthread_mutex_lock(&table.lock);
    assert(share->used[kind] >= n);
    for (size_t i = 0; i < share->n_accounts; i++)
        share->accounts[i]->used[kind] -= n;
    share->used[kind] -= n;
    pthread_mutex_unlock(&table.lock);
}

/* ---- rates ---- */

static uint64_t spend(struct account *account, enum stg_quota_kind kind, uint64_t n,
                      uint64_t now)
{
    uint64_t *paid = &account->paid_ns[kind];
    uint64_t least = now > SECOND_NS ? now - SECOND_NS : 0;
    if (account->limit[kind] == STG_NO_QUOTA)
        return 0;
    *paid = *paid > least ? *paid : least;
    *paid += (uint64_t)((double)n / (double)account->limit[kind] * (double)SECOND_NS);
    return *paid > now ? *paid - now : 0;
}

uint64_t stg_share_spend(struct stg_share *share, enum stg_quota_kind kind, uint64_t n)
{
    uint64_t wait = 0, now = stg_now_ns();
    if (share == NULL)
        return 0;
    pthread_mutex_lock(&table.lock);
    for (size_t i = 0; i < share->n_accounts; i++) {
        uint64_t one = spend(share->accounts[i], kind, n, now);
        wait = one > wait ? one : wait;
    }
    pthread_mutex_unlock(&table.lock);
    return wait;
}

void stg_share_pace(struct stg_share *share, enum stg_quota_kind kind, uint64_t n,
                    const _Atomic int *stopped)
{
    uint64_t wait = stg_share_spend(share, kind, n);
    uint64_t end = stg_now_ns() + wait;
    for (uint64_t now = stg_now_ns(); wait > 0 && now < end; now = stg_now_ns()) {
        uint64_t nap = end - now < NAP_NS ? end - now : NAP_NS;
        if (stopped != NULL && atomic_load(stopped))
            return;
        nanosleep(&(struct timespec){.tv_nsec = (long)nap}, NULL);
    }
}

/* ---- reports ---- */

void stg_share_each(void (*see)(void *owner, const struct stg_share_use *use),
                    void *owner)
{
    pthread_mutex_lock(&table.lock);
    for (const struct account *a = table.accounts; a != NULL; a = a->next) {
        struct stg_share_use use = {
            .is_group = a->is_group, .id = a->id, .name = a->name};
        memcpy(use.limit, a->limit, sizeof(use.limit));
        memcpy(use.used, a->used, sizeof(use.used));
        see(owner, &use);
    }
    pthread_mutex_unlock(&table.lock);
}
