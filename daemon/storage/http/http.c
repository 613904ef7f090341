/* SPDX-License-Identifier: Apache-2.0
 *
 * http:// and https://: one object, asked for by its URL. Nothing lists them.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/storage/confine.h"
#include "daemon/storage/http/remote.h"
#include "daemon/storage/http/store.h"
#include "daemon/storage/http/url.h"

/* Room for a range's digits and the rest of a request line. */
#define MAX_URL_BYTES 7000

static char *join(const char *scheme, const char *path)
{
    size_t bytes = strlen(scheme) + 3 + strlen(path) + 1;
    char *url = malloc(bytes);
    if (url != NULL)
        snprintf(url, bytes, "%s://%s", scheme, path);
    return url;
}

/* ---- what can be a URL ---- */

static int check_text(const char *scheme, const char *path, struct stg_err *err)
{
    char shown[512];
    stg_storage_shown_query(path, shown, sizeof(shown));
    size_t host = strcspn(path, "/?#");
    for (const char *at = path; *at != '\0'; at++) {
        if (isspace((unsigned char)*at) || iscntrl((unsigned char)*at))
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "%s://%s: a URL must not contain spaces: write %%20", scheme,
                           shown);
    }
    if (strlen(path) > MAX_URL_BYTES)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "%s://%.60s…: the URL has more than %d bytes", scheme, shown,
                       MAX_URL_BYTES);
    if (host == 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "%s://%s: the host is missing",
                       scheme, shown);
    if (memchr(path, '@', host) != NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "%s://…: a URL must not contain a password: name a file that "
                       "holds it in remote.stores of stagerd.yaml",
                       scheme);
    return stg_url_check_dots(scheme, path, err);
}

/* "?" begins a query here; "[" may be the address of a host. */
static int check(const char *scheme, const char *path, struct stg_err *err)
{
    char shown[512];
    int rc = check_text(scheme, path, err);
    if (rc < 0)
        return rc;
    size_t host = strcspn(path, "/?#"), n = strcspn(path, "?#");
    stg_storage_shown_query(path, shown, sizeof(shown));
    if (path[n] == '#')
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "%s://%s: a URL must not contain \"#\": write %%23", scheme,
                       shown);
    if (memchr(path, '*', n) != NULL || memchr(path + host, '[', n - host) != NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "%s://%s: %s cannot list files: name each file (write a literal * "
                       "as %%2A and [ as %%5B), or use s3://",
                       scheme, shown, scheme);
    if (n == host || path[n - 1] == '/')
        return stg_err(
            err, -STAGER_INVALID_ARGUMENT,
            "%s://%s: %s cannot list a directory: name each of its files, or use s3://",
            scheme, shown, scheme);
    return 0;
}

static int http_check(const char *pattern, struct stg_err *err)
{
    return check("http", pattern, err);
}

static int https_check(const char *pattern, struct stg_err *err)
{
    return check("https", pattern, err);
}

static int http_list(const char *pattern, const struct stg_file_user *identity,
                     stg_storage_found *found, void *owner, struct stg_err *err)
{
    return found(owner, pattern, err);
}

/* ---- opening ---- */

static const char *advice(const struct stg_store *store)
{
    if (store->user != NULL || store->bearer != NULL)
        return "its login comes from credentials_file in remote.stores of stagerd.yaml";
    return "if it needs a login, name a credentials_file for it in remote.stores of "
           "stagerd.yaml";
}

/* False: out of memory. */
static bool set_login(struct stg_object *object, const struct stg_store *store)
{
    if (store->bearer != NULL) {
        object->bearer = strdup(store->bearer);
        return object->bearer != NULL;
    }
    if (store->user == NULL)
        return true;
    return asprintf(&object->login, "%s:%s", store->user,
                    store->password != NULL ? store->password : "") >= 0;
}

static struct stg_object *object_of(const char *scheme, const char *path,
                                    const struct stg_store *store,
                                    const struct stg_file_user *identity)
{
    char shown[512];
    struct stg_object *object = stg_object_create();
    if (object == NULL)
        return NULL;
    object->url = join(scheme, path);
    object->shown = join(scheme, stg_storage_shown_query(path, shown, sizeof(shown)));
    object->advice = strdup(advice(store));
    object->loopback = store->named || stg_store_is_own(identity);
    object->stays = stg_confine_has_urls();
    if (object->url != NULL && object->shown != NULL && object->advice != NULL &&
        set_login(object, store))
        return object;
    stg_object_unref(object);
    return NULL;
}

static int find_store(const char *scheme, const char *path,
                      const struct stg_file_user *identity, struct stg_store *ret,
                      struct stg_err *err)
{
    char shown[512], *url = join(scheme, path);
    if (url == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "%s://…: out of memory", scheme);
    int rc = stg_store_find(url, identity, ret, err);
    if (rc < 0)
        stg_err_prefix(err, rc, "%s", stg_storage_shown_query(url, shown, sizeof(shown)));
    free(url);
    return rc;
}

static int open_url(const struct stg_storage *storage, const char *path,
                    const struct stg_file_user *identity, struct stg_source **ret,
                    struct stg_err *err)
{
    struct stg_store store;
    int rc = check(storage->scheme, path, err);
    if (rc == 0)
        rc = find_store(storage->scheme, path, identity, &store, err);
    if (rc < 0)
        return rc;
    struct stg_object *object = object_of(storage->scheme, path, &store, identity);
    stg_store_finish(&store);
    if (object == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "%s://…: out of memory",
                       storage->scheme);
    return stg_remote_open(storage, object, identity, ret, err);
}

static int http_open(const char *path, const struct stg_file_user *identity,
                     struct stg_source **ret, struct stg_err *err)
{
    return open_url(&stg_storage_http, path, identity, ret, err);
}

static int https_open(const char *path, const struct stg_file_user *identity,
                      struct stg_source **ret, struct stg_err *err)
{
    return open_url(&stg_storage_https, path, identity, ret, err);
}

const struct stg_storage stg_storage_http = {
    .scheme = "http",
    .remote = true,
    .open = http_open,
    .read = stg_remote_read,
    .will_need = stg_remote_will_need,
    .size = stg_remote_size,
    .version = stg_remote_version,
    .close = stg_remote_close,
    .list = http_list,
    .check = http_check,
};

const struct stg_storage stg_storage_https = {
    .scheme = "https",
    .remote = true,
    .open = https_open,
    .read = stg_remote_read,
    .will_need = stg_remote_will_need,
    .size = stg_remote_size,
    .version = stg_remote_version,
    .close = stg_remote_close,
    .list = http_list,
    .check = https_check,
};
