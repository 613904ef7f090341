/* SPDX-License-Identifier: Apache-2.0
 *
 * s3://BUCKET/KEY: the S3 protocol of Amazon, MinIO, Google's interoperability and
 * others. Requests are signed where there is a key, else sent as they are.
 */
#include "daemon/storage/http/s3.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/storage/http/remote.h"
#include "daemon/storage/http/store.h"
#include "daemon/storage/http/url.h"

#define MAX_KEY_BYTES 1024
#define MAX_BUCKET_BYTES 63
#define MAX_LIST_BYTES ((uint64_t)16 << 20)
#define REGION "us-east-1"

/* ---- names ---- */

static size_t bucket_bytes(const char *path)
{
    return strcspn(path, "/");
}

static bool is_bucket(const char *path, size_t n)
{
    if (n < 3 || n > MAX_BUCKET_BYTES || path[0] == '.')
        return false;
    for (size_t i = 0; i < n; i++) {
        if (strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_",
                   path[i]) == NULL)
            return false;
    }
    return true;
}

static int s3_check(const char *pattern, struct stg_err *err)
{
    size_t n = bucket_bytes(pattern);
    if (!is_bucket(pattern, n))
        return stg_err(
            err, -STAGER_INVALID_ARGUMENT,
            "s3://%s: the bucket is missing or not valid: write s3://BUCKET/KEY",
            pattern);
    if (pattern[n] == '\0' || pattern[n + 1] == '\0')
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "s3://%s: the key is missing: write s3://%.*s/* for all objects "
                       "whose keys have no \"/\"",
                       pattern, (int)n, pattern);
    if (strlen(pattern + n + 1) > MAX_KEY_BYTES)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "s3://%.60s…: the key has more than %d bytes", pattern,
                       MAX_KEY_BYTES);
    return stg_url_check_dots("s3", pattern, err);
}

/* ---- requests ---- */

/* Where a bucket is: its host for Amazon, a path at an endpoint that is named, and for a
 * name with dots, for which no certificate stands. */
static void print_base(FILE *to, const struct stg_store *store, const char *bucket,
                       size_t n)
{
    const char *region = store->region != NULL ? store->region : REGION;
    if (store->endpoint != NULL)
        fprintf(to, "%s/%.*s", store->endpoint, (int)n, bucket);
    else if (memchr(bucket, '.', n) != NULL)
        fprintf(to, "https://s3.%s.amazonaws.com/%.*s", region, (int)n, bucket);
    else
        fprintf(to, "https://%.*s.s3.%s.amazonaws.com", (int)n, bucket, region);
}

static char *format(const char *fmt, const char *a, const char *b)
{
    char *text;
    return asprintf(&text, fmt, a, b) < 0 ? NULL : text;
}

static bool sign(struct stg_object *object, const struct stg_store *store)
{
    if (store->key == NULL || store->secret == NULL)
        return true;
    object->key = strdup(store->key);
    object->secret = strdup(store->secret);
    object->region = strdup(store->region != NULL ? store->region : REGION);
    object->token = store->session != NULL ? strdup(store->session) : NULL;
    return object->key != NULL && object->secret != NULL && object->region != NULL &&
           (store->session == NULL || object->token != NULL);
}

static const char *advice(const struct stg_store *store)
{
    if (store->key != NULL)
        return "its key, secret and region are those of credentials_file in "
               "remote.stores of stagerd.yaml, or of the daemon's own environment";
    return "it was requested without a key: name a credentials_file for it in "
           "remote.stores of stagerd.yaml (for a private daemon, set AWS_ACCESS_KEY_ID "
           "and AWS_SECRET_ACCESS_KEY in its environment)";
}

/* url and shown are its own from now on; NULL: out of memory. */
static struct stg_object *object_of(char *url, char *shown, const struct stg_store *store,
                                    const struct stg_file_user *identity)
{
    struct stg_object *object = stg_object_create();
    if (object == NULL) {
        free(url);
        free(shown);
        return NULL;
    }
    object->url = url;
    object->shown = shown;
    object->advice = strdup(advice(store));
    object->loopback = store->named || stg_store_is_own(identity);
    if (url != NULL && shown != NULL && object->advice != NULL && sign(object, store))
        return object;
    stg_object_unref(object);
    return NULL;
}

static int find_store(const char *path, const struct stg_file_user *identity,
                      struct stg_store *ret, struct stg_err *err)
{
    char *url = format("s3://%s%s", path, "");
    int rc = url != NULL ? stg_store_find(url, identity, ret, err)
                         : stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                                   "s3://%s: out of "
                                   "memory",
                                   path);
    if (rc < 0)
        stg_err_prefix(err, rc, "s3://%s", path);
    free(url);
    return rc;
}

/* ---- opening ---- */

static int s3_open(const char *path, const struct stg_file_user *identity,
                   struct stg_source **ret, struct stg_err *err)
{
    struct stg_store store;
    char *url = NULL;
    size_t bytes, n = bucket_bytes(path);
    int rc = s3_check(path, err);
    if (rc == 0)
        rc = find_store(path, identity, &store, err);
    if (rc < 0)
        return rc;
    FILE *to = open_memstream(&url, &bytes);
    if (to != NULL) {
        print_base(to, &store, path, n);
        stg_url_encode(to, path + n, true);
        fclose(to);
    }
    struct stg_object *object =
        object_of(url, format("s3://%s%s", path, ""), &store, identity);
    stg_store_finish(&store);
    if (object == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "s3://%s: out of memory", path);
    return stg_remote_open(&stg_storage_s3, object, identity, ret, err);
}

/* ---- listing ---- */

struct listing {
    const char *pattern; /* "bucket/key*" */
    const char *glob;    /* its key; "": a directory, of which all is taken */
    size_t prefix_bytes; /* of the key, before the first wildcard */
    const struct stg_file_user *identity;
    stg_storage_found *found;
    void *owner;
    uint64_t n_found;
};

/* The key without the "\" that take away a meaning. */
static char *unquoted(const char *key, size_t n)
{
    char *ret = malloc(n + 1), *to = ret;
    for (size_t i = 0; ret != NULL && i < n; i++) {
        if (key[i] == '\\' && i + 1 < n)
            i++;
        *to++ = key[i];
    }
    if (ret != NULL)
        *to = '\0';
    return ret;
}

static size_t literal_bytes(const char *key)
{
    size_t n = 0;
    while (key[n] != '\0' && strchr("*?[", key[n]) == NULL)
        n += key[n] == '\\' && key[n + 1] != '\0' ? 2 : 1;
    return n;
}

static int take_key(void *owner, const char *key, struct stg_err *err)
{
    struct listing *list = owner;
    size_t n = strlen(key);
    if (n == 0 || key[n - 1] == '/' ||
        fnmatch(list->glob, key, FNM_PATHNAME | FNM_PERIOD) != 0)
        return 0;
    char *path = NULL;
    if (asprintf(&path, "%.*s/%s", (int)bucket_bytes(list->pattern), list->pattern, key) <
        0)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "s3://%s: out of memory",
                       list->pattern);
    list->n_found++;
    int rc = list->found(list->owner, path, err);
    free(path);
    return rc;
}

/* Where only the last name has wildcards, what lies below is not listed. */
static char *list_url(const struct listing *list, const struct stg_store *store,
                      const char *token)
{
    char *url = NULL;
    size_t bytes, n = bucket_bytes(list->pattern);
    const char *key = list->pattern + n + 1;
    char *prefix = unquoted(key, list->prefix_bytes);
    FILE *to = prefix != NULL ? open_memstream(&url, &bytes) : NULL;
    if (to != NULL) {
        print_base(to, store, list->pattern, n);
        fprintf(to, "/?");
        if (token[0] != '\0') {
            fprintf(to, "continuation-token=");
            stg_url_encode(to, token, false);
            fputc('&', to);
        }
        if (strchr(key + list->prefix_bytes, '/') == NULL)
            fprintf(to, "delimiter=%%2F&");
        fprintf(to, "encoding-type=url&list-type=2&prefix=");
        stg_url_encode(to, prefix, false);
        fclose(to);
    }
    free(prefix);
    return url;
}

/* One page; *token becomes what the next one is asked for with, or "". */
static int list_page(struct listing *list, const struct stg_store *store,
                     char token[STG_S3_TOKEN_BYTES], struct stg_err *err)
{
    char *text = NULL, before[STG_S3_TOKEN_BYTES];
    size_t bytes = 0;
    struct stg_object *object =
        object_of(list_url(list, store, token), format("s3://%s%s", list->pattern, ""),
                  store, list->identity);
    if (object == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "s3://%s: out of memory",
                       list->pattern);
    int rc = stg_remote_get(object, MAX_LIST_BYTES, list->identity, &text, &bytes, err);
    stg_object_unref(object);
    if (rc < 0)
        return stg_err_append(err, rc, " (listing the bucket)");
    memcpy(before, token, sizeof(before));
    rc = stg_s3_page(text, bytes, take_key, list, token, err);
    free(text);
    if (rc == -STAGER_DATA_LOSS)
        stg_err_prefix(err, rc, "s3://%s", list->pattern);
    if (rc == 0 && token[0] != '\0' && strcmp(before, token) == 0)
        return stg_err(err, -STAGER_DATA_LOSS,
                       "s3://%s: the server repeats a page of the bucket's list: the "
                       "server is faulty",
                       list->pattern);
    return rc;
}

static int list_pages(struct listing *list, struct stg_err *err)
{
    struct stg_store store;
    char token[STG_S3_TOKEN_BYTES] = "";
    int rc = find_store(list->pattern, list->identity, &store, err);
    if (rc < 0)
        return rc;
    do
        rc = list_page(list, &store, token, err);
    while (rc == 0 && token[0] != '\0');
    stg_store_finish(&store);
    if (rc == 0 && list->n_found == 0)
        return stg_err(err, -STAGER_NOT_FOUND, "no files matched s3://%s", list->pattern);
    return rc;
}

static int s3_list(const char *pattern, const struct stg_file_user *identity,
                   stg_storage_found *found, void *owner, struct stg_err *err)
{
    int rc = s3_check(pattern, err);
    if (rc < 0)
        return rc;
    const char *key = pattern + bucket_bytes(pattern) + 1;
    size_t n = literal_bytes(key);
    bool directory = key[strlen(key) - 1] == '/';
    if (key[n] == '\0' && !directory) {
        char *path = unquoted(pattern, strlen(pattern));
        rc = path != NULL ? found(owner, path, err)
                          : stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
        free(path);
        return rc;
    }
    struct listing list = {.pattern = pattern,
                           .glob = key,
                           .prefix_bytes = n,
                           .identity = identity,
                           .found = found,
                           .owner = owner};
    char *all = directory ? format("%s%s", key, "*") : NULL;
    if (all != NULL)
        list.glob = all;
    rc = list_pages(&list, err);
    free(all);
    return rc;
}

const struct stg_storage stg_storage_s3 = {
    .scheme = "s3",
    .remote = true,
    .open = s3_open,
    .read = stg_remote_read,
    .will_need = stg_remote_will_need,
    .size = stg_remote_size,
    .version = stg_remote_version,
    .close = stg_remote_close,
    .list = s3_list,
    .check = s3_check,
};
