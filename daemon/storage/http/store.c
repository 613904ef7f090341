/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/storage/http/store.h"

#include <grp.h>
#include <pthread.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/storage/confine.h"
#include "daemon/storage/http/credentials.h"
#include "daemon/storage/http/libraries.h"
#include "daemon/storage/storage.h"

static struct {
    pthread_mutex_t lock; /* guards the whole struct */
    struct stg_bump bump; /* owns the copied settings */
    struct stg_remote_store_spec *specs;
    size_t n;
} stores = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- settings ---- */

static const char *copy(const char *text)
{
    return stg_bump_strdup(&stores.bump, text);
}

static const char *const *copy_list(const char *const *list, size_t n)
{
    const char **ret = stg_bump_alloc(&stores.bump, (n + 1) * sizeof(char *));
    for (size_t i = 0; ret != NULL && i < n; i++) {
        ret[i] = copy(list[i]);
        if (ret[i] == NULL)
            return NULL;
    }
    return ret;
}

static bool copy_spec(const struct stg_remote_store_spec *from,
                      struct stg_remote_store_spec *ret)
{
    *ret = (struct stg_remote_store_spec){
        .prefix = copy(from->prefix),
        .endpoint = copy(from->endpoint),
        .region = copy(from->region),
        .credentials_file = copy(from->credentials_file),
        .profile = copy(from->profile),
        .users = copy_list(from->users, from->n_users),
        .groups = copy_list(from->groups, from->n_groups),
        .n_users = from->n_users,
        .n_groups = from->n_groups,
    };
    return ret->prefix != NULL && ret->endpoint != NULL && ret->region != NULL &&
           ret->credentials_file != NULL && ret->profile != NULL && ret->users != NULL &&
           ret->groups != NULL;
}

/* The lock is held. */
static void forget(void)
{
    stg_bump_finish(&stores.bump);
    stores.specs = NULL;
    stores.n = 0;
}

int stg_stores_configure(const struct stg_remote_store_spec *specs, size_t n,
                         struct stg_err *err)
{
    pthread_mutex_lock(&stores.lock);
    forget();
    stg_bump_init(&stores.bump, 0);
    stores.specs = stg_bump_alloc(&stores.bump, (n + 1) * sizeof(*specs));
    bool ok = stores.specs != NULL;
    for (size_t i = 0; ok && i < n; i++)
        ok = copy_spec(&specs[i], &stores.specs[i]);
    stores.n = ok ? n : 0;
    pthread_mutex_unlock(&stores.lock);
    return ok ? 0 : stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "remote: out of memory");
}

void stg_stores_finish(void)
{
    pthread_mutex_lock(&stores.lock);
    forget();
    pthread_mutex_unlock(&stores.lock);
}

/* ---- users ---- */

bool stg_store_is_own(const struct stg_file_user *identity)
{
    return identity->uid == 0 || identity->uid == geteuid();
}

static bool is_user(const struct stg_file_user *identity, const char *name)
{
    struct passwd pw, *found = NULL;
    char text[4096];
    return getpwnam_r(name, &pw, text, sizeof(text), &found) == 0 && found != NULL &&
           found->pw_uid == identity->uid;
}

static bool is_member(const struct stg_file_user *identity, const char *name)
{
    struct group gr, *found = NULL;
    char text[16384];
    if (getgrnam_r(name, &gr, text, sizeof(text), &found) != 0 || found == NULL)
        return false;
    bool member = identity->gid == found->gr_gid;
    for (size_t i = 0; i < identity->n_groups; i++)
        member |= identity->groups[i] == found->gr_gid;
    return member;
}

static bool may_use(const struct stg_remote_store_spec *spec,
                    const struct stg_file_user *identity)
{
    bool may = stg_store_is_own(identity);
    for (size_t i = 0; !may && i < spec->n_users; i++)
        may = is_user(identity, spec->users[i]);
    for (size_t i = 0; !may && i < spec->n_groups; i++)
        may = is_member(identity, spec->groups[i]);
    return may;
}

static int refuse(const struct stg_remote_store_spec *spec,
                  const struct stg_file_user *identity, struct stg_err *err)
{
    return stg_err(err, -STAGER_PERMISSION_DENIED,
                   "user %u may not use the credentials with which stagerd reads %s: an "
                   "administrator can add the user to users, or a group to groups, of "
                   "that entry of remote.stores in stagerd.yaml",
                   (unsigned)identity->uid, spec->prefix);
}

/* ---- lookup ---- */

/* A prefix must end where a component of the URL ends: http://a is no prefix of
 * http://ab. */
static bool is_prefix(const char *prefix, const char *url)
{
    size_t n = strlen(prefix);
    if (n == 0 || strncmp(prefix, url, n) != 0)
        return false;
    return prefix[n - 1] == '/' || url[n] == '\0' || strchr("/?#", url[n]) != NULL;
}

static const struct stg_remote_store_spec *longest(const char *url)
{
    const struct stg_remote_store_spec *best = NULL;
    for (size_t i = 0; i < stores.n; i++) {
        const struct stg_remote_store_spec *spec = &stores.specs[i];
        if (is_prefix(spec->prefix, url) &&
            (best == NULL || strlen(spec->prefix) > strlen(best->prefix)))
            best = spec;
    }
    return best;
}

static char *said(const char *text)
{
    return text != NULL && text[0] != '\0' ? strdup(text) : NULL;
}

/* The lock is held. */
static int use(const struct stg_remote_store_spec *spec,
               const struct stg_file_user *identity, struct stg_store *ret,
               struct stg_err *err)
{
    bool secret = spec->credentials_file[0] != '\0';
    if (secret && !may_use(spec, identity))
        return refuse(spec, identity, err);
    ret->named = true;
    ret->endpoint = said(spec->endpoint);
    ret->region = said(spec->region);
    if (!secret)
        return 0;
    const char *profile = spec->profile[0] != '\0' ? spec->profile : "default";
    return stg_credentials_read(spec->credentials_file, profile, ret, err);
}

static void trim_slashes(char *endpoint)
{
    size_t n = endpoint != NULL ? strlen(endpoint) : 0;
    while (n > 0 && endpoint[n - 1] == '/')
        endpoint[--n] = '\0';
}

int stg_store_find(const char *url, const struct stg_file_user *identity,
                   struct stg_store *ret, struct stg_err *err)
{
    struct stg_store store = {0};
    int rc = stg_confine_check_url(url, err);
    if (rc == 0)
        rc = stg_http_libraries(err);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&stores.lock);
    const struct stg_remote_store_spec *spec = longest(url);
    rc = spec != NULL ? use(spec, identity, &store, err) : 0;
    pthread_mutex_unlock(&stores.lock);
    if (rc == 0 && spec == NULL && strncmp(url, "s3://", 5) == 0 &&
        stg_store_is_own(identity))
        rc = stg_credentials_of_environment(&store, err);
    if (rc < 0) {
        stg_store_finish(&store);
        return rc;
    }
    trim_slashes(store.endpoint);
    *ret = store;
    return 0;
}

static void forget_secret(char *secret)
{
    if (secret != NULL)
        explicit_bzero(secret, strlen(secret));
    free(secret);
}

void stg_store_finish(struct stg_store *store)
{
    free(store->endpoint);
    free(store->region);
    free(store->key);
    free(store->user);
    forget_secret(store->secret);
    forget_secret(store->session);
    forget_secret(store->password);
    forget_secret(store->bearer);
    *store = (struct stg_store){0};
}
