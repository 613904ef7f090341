/* SPDX-License-Identifier: Apache-2.0
 *
 * hdfs://NAMENODE[:PORT]/PATH, by WebHDFS: the namenode says what there is, and sends a
 * reader on to the datanodes for the bytes.
 */
#include <fnmatch.h>
#include <inttypes.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/storage/http/hdfs.h"
#include "daemon/storage/http/remote.h"
#include "daemon/storage/http/store.h"
#include "daemon/storage/http/url.h"

#define WEB_PORT "9870"
#define MAX_STATUS_BYTES ((uint64_t)64 << 10)
#define MAX_LIST_BYTES ((uint64_t)64 << 20)
#define MAX_NAMES 64

static int out_of_memory(const char *path, struct stg_err *err)
{
    return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "hdfs://%s: out of memory", path);
}

static int hdfs_check(const char *pattern, struct stg_err *err)
{
    size_t n = strcspn(pattern, "/"), names = 0;
    if (n == 0 || strcspn(pattern, "@?#%\\\r\n\t ") < n)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "hdfs://%s: the namenode's host is missing or not valid: write "
                       "hdfs://HOST:PORT/PATH with the port of its web interface",
                       pattern);
    if (pattern[n] == '\0' || pattern[n + 1] == '\0')
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "hdfs://%s: the path is missing",
                       pattern);
    for (const char *at = pattern; (at = strchr(at, '/')) != NULL; at++)
        names++;
    if (strlen(pattern) >= PATH_MAX || names > MAX_NAMES)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "hdfs://%.60s…: the path is too "
                       "long",
                       pattern);
    return stg_url_check_dots("hdfs", pattern, err);
}

/* ---- requests ---- */

/* Paths name the port of Hadoop's own protocol as often as that of the web. */
static void print_host(FILE *to, const char *path)
{
    size_t n = strcspn(path, "/"), host = strcspn(path, ":/");
    const char *port = host < n ? path + host + 1 : WEB_PORT;
    size_t port_bytes = host < n ? n - host - 1 : strlen(WEB_PORT);
    if (path[0] == '[') {
        fprintf(to, "http://%.*s", (int)n, path);
        return;
    }
    if (port_bytes == 4 && (memcmp(port, "8020", 4) == 0 || memcmp(port, "9000", 4) == 0))
        port = WEB_PORT;
    fprintf(to, "http://%.*s:%.*s", (int)host, path, (int)port_bytes, port);
}

/* The name goes to the namenode as it is, so it has to be the applier's. */
static void print_user(FILE *to, const struct stg_store *store,
                       const struct stg_file_user *identity)
{
    struct passwd pw, *found = NULL;
    char text[4096], number[32];
    snprintf(number, sizeof(number), "%u", (unsigned)identity->uid);
    if (store->bearer != NULL) {
        fprintf(to, "&delegation=");
        stg_url_encode(to, store->bearer, false);
        return;
    }
    fprintf(to, "&user.name=");
    if (store->user != NULL)
        stg_url_encode(to, store->user, false);
    else if (getpwuid_r(identity->uid, &pw, text, sizeof(text), &found) == 0 &&
             found != NULL)
        stg_url_encode(to, found->pw_name, false);
    else
        stg_url_encode(to, number, false);
}

static char *url_of(const char *path, const char *op, const struct stg_store *store,
                    const struct stg_file_user *identity)
{
    char *url = NULL;
    size_t bytes;
    FILE *to = open_memstream(&url, &bytes);
    if (to == NULL)
        return NULL;
    if (store->endpoint != NULL)
        fprintf(to, "%s", store->endpoint);
    else
        print_host(to, path);
    fprintf(to, "/webhdfs/v1");
    stg_url_encode(to, path + strcspn(path, "/"), true);
    fprintf(to, "?op=%s", op);
    print_user(to, store, identity);
    fclose(to);
    return url;
}

static const char advice[] =
    "the namenode identifies a reader by the name of the pipeline's applier; another "
    "name "
    "(user) or a delegation token (bearer_token) is set in the credentials_file of "
    "remote.stores in stagerd.yaml";

static int object_of(const char *path, const char *op,
                     const struct stg_file_user *identity, struct stg_object **ret,
                     struct stg_err *err)
{
    struct stg_store store;
    char *shown;
    if (asprintf(&shown, "hdfs://%s", path) < 0)
        return out_of_memory(path, err);
    int rc = stg_store_find(shown, identity, &store, err);
    if (rc < 0) {
        stg_err_prefix(err, rc, "%s", shown);
        free(shown);
        return rc;
    }
    struct stg_object *object = stg_object_create();
    if (object != NULL) {
        object->url = url_of(path, op, &store, identity);
        object->advice = strdup(advice);
        object->range_in_query = true;
        object->loopback = store.named || stg_store_is_own(identity);
        object->shown = shown;
        shown = NULL;
    }
    stg_store_finish(&store);
    free(shown);
    if (object == NULL || object->url == NULL || object->advice == NULL) {
        stg_object_unref(object);
        return out_of_memory(path, err);
    }
    *ret = object;
    return 0;
}

/* ---- opening ---- */

static int ask_status(struct stg_object *object, const struct stg_file_user *identity,
                      struct stg_version *ret, struct stg_err *err)
{
    char *text = NULL;
    size_t bytes = 0;
    struct stg_hdfs_status status;
    int rc = stg_remote_get(object, MAX_STATUS_BYTES, identity, &text, &bytes, err);
    if (rc < 0)
        return rc;
    rc = stg_hdfs_status(text, bytes, &status, err);
    free(text);
    if (rc < 0)
        return stg_err_prefix(err, rc, "%s", object->shown);
    if (status.is_directory)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "%s is a directory: write %s/* to read the files in it",
                       object->shown, object->shown);
    *ret = (struct stg_version){.known = true, .size = status.length};
    snprintf(ret->modified, sizeof(ret->modified), "%" PRIu64 "/%" PRIu64,
             status.modified, status.id);
    return 0;
}

static int hdfs_open(const char *path, const struct stg_file_user *identity,
                     struct stg_source **ret, struct stg_err *err)
{
    struct stg_object *object = NULL;
    struct stg_remote_probe probe = {.ask = ask_status};
    struct stg_version version;
    int rc = hdfs_check(path, err);
    if (rc == 0)
        rc = object_of(path, "GETFILESTATUS", identity, &probe.object, err);
    if (rc == 0)
        rc = ask_status(probe.object, identity, &version, err);
    if (rc == 0)
        rc = object_of(path, "OPEN", identity, &object, err);
    if (rc < 0) {
        stg_object_unref(probe.object);
        return rc;
    }
    return stg_remote_open_known(&stg_storage_hdfs, object, &version, &probe, identity,
                                 ret, err);
}

/* ---- listing ---- */

struct listing {
    const struct stg_file_user *identity;
    stg_storage_found *found;
    void *owner;
    uint64_t n_found;
};

/* A directory, and what of the pattern is below it. */
struct level {
    struct listing *list;
    char path[PATH_MAX]; /* "host:port/dir/", or, without a "/", a file or directory */
    char name[NAME_MAX + 1]; /* of the pattern; "": whatever is there */
    const char *rest;        /* behind that; "" at the end */
};

static int list_level(struct listing *list, const char *prefix, const char *pattern,
                      struct stg_err *err);

static int take_entry(void *owner, const struct stg_hdfs_status *status,
                      struct stg_err *err)
{
    const struct level *level = owner;
    struct listing *list = level->list;
    char path[PATH_MAX];
    if (status->name[0] != '\0' && level->name[0] != '\0' &&
        fnmatch(level->name, status->name, FNM_PERIOD) != 0)
        return 0;
    size_t n = strlen(level->path);
    const char *slash =
        status->name[0] != '\0' && n > 0 && level->path[n - 1] != '/' ? "/" : "";
    if (snprintf(path, sizeof(path), "%s%s%s", level->path, slash, status->name) >=
        (int)sizeof(path))
        return 0;
    if (level->rest[0] != '\0')
        return status->is_directory ? list_level(list, path, level->rest, err) : 0;
    if (status->is_directory || (level->name[0] == '\0' && status->name[0] == '.'))
        return 0;
    list->n_found++;
    return list->found(list->owner, path, err);
}

static bool is_wild(const char *name, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strchr("*?[\\", name[i]) != NULL)
            return true;
    }
    return false;
}

/* The names before the first one with a wildcard are a path. */
static size_t literal_bytes(const char *pattern)
{
    size_t n = 0;
    while (pattern[n] != '\0') {
        size_t name = strcspn(pattern + n, "/");
        if (is_wild(pattern + n, name))
            break;
        n += name;
        n += strspn(pattern + n, "/");
    }
    return n;
}

/* Calls itself once a name of the pattern, at most (MAX_NAMES). */
static int list_level(struct listing *list, const char *prefix, const char *pattern,
                      struct stg_err *err)
{
    struct level *level = calloc(1, sizeof(*level));
    struct stg_object *object = NULL;
    char *text = NULL;
    size_t bytes = 0, n = literal_bytes(pattern), name = strcspn(pattern + n, "/");
    if (level == NULL)
        return out_of_memory(pattern, err);
    level->list = list;
    snprintf(level->path, sizeof(level->path), "%s%s%.*s", prefix,
             prefix[0] != '\0' ? "/" : "", (int)n, pattern);
    snprintf(level->name, sizeof(level->name), "%.*s", (int)name, pattern + n);
    level->rest = pattern + n + name + strspn(pattern + n + name, "/");
    int rc = object_of(level->path, "LISTSTATUS", list->identity, &object, err);
    if (rc == 0)
        rc = stg_remote_get(object, MAX_LIST_BYTES, list->identity, &text, &bytes, err);
    /* A directory that a wildcard found may be gone. */
    if (rc == -STAGER_NOT_FOUND && prefix[0] != '\0')
        rc = 0;
    else if (rc == 0)
        rc = stg_hdfs_list(text, bytes, take_entry, level, err);
    stg_object_unref(object);
    free(text);
    free(level);
    return rc;
}

static int hdfs_list(const char *pattern, const struct stg_file_user *identity,
                     stg_storage_found *found, void *owner, struct stg_err *err)
{
    struct listing list = {.identity = identity, .found = found, .owner = owner};
    int rc = hdfs_check(pattern, err);
    if (rc == 0)
        rc = list_level(&list, "", pattern, err);
    if (rc == 0 && list.n_found == 0)
        return stg_err(err, -STAGER_NOT_FOUND, "no files matched hdfs://%s", pattern);
    return rc;
}

const struct stg_storage stg_storage_hdfs = {
    .scheme = "hdfs",
    .remote = true,
    .open = hdfs_open,
    .read = stg_remote_read,
    .will_need = stg_remote_will_need,
    .size = stg_remote_size,
    .version = stg_remote_version,
    .close = stg_remote_close,
    .list = hdfs_list,
    .check = hdfs_check,
};
