/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/describe/describe.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/dataset/files/braces.h"
#include "daemon/describe/records.h"
#include "daemon/format/arrow/file.h"
#include "daemon/format/parquet/describe.h"
#include "daemon/host/bounded.h"

#define BUFFER_BYTES (64u << 20) /* of one description */
#define MAX_THREADS 4            /* at once: each may hang in a file system */
#define MAX_WAITING 2            /* at once: each waits in a worker of libuv */
#define FINISH_PAUSES 400        /* of 5 ms, at the end of the daemon */
#define MAX_LISTED 1000          /* names, of which the first in order is taken */

static atomic_int n_threads, n_waiting;
static atomic_int n_remote; /* threads that read files of other machines */

struct stg_description {
    struct stg_bounded bounded;
    char *url;
    uint32_t first;
    struct stg_identity identity;
    /* Of the thread, until it is done. */
    struct stg_describing to;
    int rc;
    struct stg_err err;
};

/* ---- the first file of a pattern ---- */

struct search {
    const struct stg_file_user *user;
    size_t scheme_bytes;
    const char *url; /* the pattern, with its scheme */
    char *first;     /* url; NULL: none so far */
    size_t n;
};

/* Names come in no order: takes the first one of those that come soon. */
static int take_name(void *owner, const char *path, struct stg_err *err)
{
    struct search *search = owner;
    char *first = search->first;
    if (first == NULL || strcmp(path, first + search->scheme_bytes) < 0) {
        size_t bytes = search->scheme_bytes + strlen(path);
        char *name = malloc(bytes + 1);
        if (name == NULL)
            return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
        memcpy(name, search->url, search->scheme_bytes);
        strcpy(name + search->scheme_bytes, path);
        free(first);
        search->first = name;
    }
    return ++search->n < MAX_LISTED ? 0 : -STAGER_CANCELLED;
}

/* Returns 1: the pattern has files. */
static int search_pattern(void *owner, const char *url, struct stg_err *err)
{
    struct search *search = owner;
    const struct stg_storage *storage;
    const char *path;
    if (search->n > 0) {
        search->n++;
        return 1;
    }
    int rc = stg_storage_find(url, &storage, &path, err);
    if (rc == 0)
        rc = storage->check(path, err);
    if (rc < 0)
        return rc;
    search->url = url;
    search->scheme_bytes = (size_t)(path - url);
    rc = storage->list(path, search->user, take_name, search, err);
    return search->n > 0 && rc == -STAGER_CANCELLED ? 0 : rc;
}

static int find_first(const char *pattern, const struct stg_file_user *user, char **ret,
                      bool *ret_more, struct stg_err *err)
{
    struct search search = {.user = user};
    int rc = stg_braces_each(pattern, search_pattern, &search, err);
    if (rc < 0) {
        free(search.first);
        return rc;
    }
    *ret = search.first;
    *ret_more = search.n > 1;
    return 0;
}

/* ---- formats ---- */

static bool begins(const struct stg_described_file *file, const char *magic, size_t n)
{
    return file->head_bytes >= n && memcmp(file->head->data, magic, n) == 0;
}

static bool is_parquet(const struct stg_described_file *file)
{
    return begins(file, "PAR1", 4) || begins(file, "PARE", 4);
}

/* A stream begins with a continuation and the length of the schema, before 0.15 with that
 * alone, which no format below begins with. */
static bool is_arrow(const struct stg_described_file *file)
{
    return begins(file, "ARROW1", 6) || begins(file, "FEA1", 4) ||
           begins(file, "\xff\xff\xff\xff", 4);
}

static int refuse_compressed(const struct stg_described_file *file, struct stg_err *err)
{
    return file->is_compressed
               ? stg_err(err, -STAGER_INVALID_ARGUMENT,
                         "it is a file of columns, compressed as a whole by %s: "
                         "decompress it",
                         file->to->schema.compression)
               : 0;
}

static int describe_parquet(struct stg_described_file *file, struct stg_err *err)
{
    int rc = refuse_compressed(file, err);
    return rc < 0 ? rc
                  : stg_parquet_describe(file->source, file->quota, file->to,
                                         &file->is_storage, err);
}

static int describe_arrow(struct stg_described_file *file, struct stg_err *err)
{
    int rc = refuse_compressed(file, err);
    if (rc == 0 && !stg_arrow_is_built)
        rc = stg_err(err, -STAGER_UNIMPLEMENTED,
                     "it is an Arrow file, and this stagerd was built without "
                     "flatbuffers");
    return rc < 0 ? rc
                  : stg_arrow_describe(file->source, file->quota, file->to,
                                       &file->is_storage, err);
}

/* The first one that fits. */
static const struct {
    bool (*is)(const struct stg_described_file *file);
    int (*describe)(struct stg_described_file *file, struct stg_err *err);
} formats[] = {{is_parquet, describe_parquet},
               {is_arrow, describe_arrow},
               {stg_described_is_npy, stg_describe_npy},
               {stg_described_is_image, stg_describe_image},
               {stg_described_is_tfrecord, stg_describe_tfrecord},
               {stg_described_is_tar, stg_describe_tar},
               {stg_described_is_jsonl, stg_describe_jsonl},
               {stg_described_is_text, stg_describe_text}};

static int describe_content(struct stg_described_file *file, struct stg_err *err)
{
    file->is_storage = false;
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        if (formats[i].is(file))
            return formats[i].describe(file, err);
    }
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   file->head_bytes == 0
                       ? "it is empty"
                       : "it is of no format that stager knows by its first bytes");
}

static bool is_remote(const char *url)
{
    const struct stg_storage *storage;
    const char *path;
    return stg_storage_find(url, &storage, &path, NULL) == 0 && storage->remote;
}

static int describe_file(const char *url, const struct stg_file_user *user,
                         struct stg_describing *to, struct stg_err *err)
{
    struct stg_described_file file = {.url = url, .user = user, .to = to};
    int rc = stg_quota_create(BUFFER_BYTES, &file.quota);
    if (rc < 0)
        return stg_err(err, rc, "out of memory");
    rc = stg_described_open(&file, err);
    if (rc == 0)
        rc = describe_content(&file, err);
    if (rc == 0 && to->schema.bytes == 0 && !file.is_compressed)
        file.source->storage->size(file.source, &to->schema.bytes, NULL);
    if (rc == 0)
        rc = stg_describing_check(to, err);
    if (rc < 0 && !file.is_storage)
        stg_err_prefix(err, rc, "%s", file.shown);
    else if (rc == 0)
        to->schema.url = stg_describing_text(to, "%s", file.shown);
    stg_described_close(&file);
    stg_quota_unref(file.quota);
    return rc;
}

/* ---- the thread ---- */

static int work(struct stg_description *d, struct stg_err *err)
{
    const struct stg_file_user user = {.uid = d->identity.uid,
                                       .gid = d->identity.gid,
                                       .groups = d->identity.groups,
                                       .n_groups = d->identity.n_groups,
                                       .in_places = true,
                                       .stopped = &d->bounded.stopped};
    char *url = NULL;
    bool has_more = false;
    int rc = find_first(d->url, &user, &url, &has_more, err);
    if (rc == 0)
        rc = describe_file(url, &user, &d->to, err);
    d->to.schema.has_more = has_more;
    free(url);
    return rc;
}

static void run(struct stg_bounded *bounded)
{
    struct stg_description *d = (struct stg_description *)bounded;
    bool counts = is_remote(d->url);
    atomic_fetch_add(&n_remote, counts);
    d->rc = work(d, &d->err);
    atomic_fetch_sub(&n_remote, counts);
}

static void destroy(struct stg_bounded *bounded)
{
    struct stg_description *d = (struct stg_description *)bounded;
    stg_describing_finish(&d->to);
    free(d->url);
    free(d);
}

/* ---- the caller ---- */

static const struct stg_bounded_kind kind = {
    .run = run, .destroy = destroy, .n_threads = &n_threads, .max_threads = MAX_THREADS};

static int create(const struct stg_describe_config *config, struct stg_description **ret,
                  struct stg_err *err)
{
    struct stg_description *d = calloc(1, sizeof(*d));
    if (d == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    stg_bounded_init(&d->bounded, &kind);
    d->first = config->first;
    d->identity = *config->identity;
    d->url = strdup(config->url);
    int rc = d->url != NULL ? stg_describing_init(&d->to, config->first, err)
                            : stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    if (rc < 0)
        stg_description_free(d);
    else
        *ret = d;
    return rc;
}

static int wait_for(struct stg_description *d, const struct stg_describe_config *config,
                    struct stg_err *err)
{
    if (!stg_bounded_start(&d->bounded))
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                       "stagerd describes %d files already: try again", MAX_THREADS);
    if (stg_bounded_wait(&d->bounded, config->wait_ns, config->stopped)) {
        if (d->rc < 0 && err != NULL)
            *err = d->err;
        return d->rc;
    }
    if (config->stopped != NULL && atomic_load(config->stopped) != 0)
        return stg_err(err, -STAGER_CANCELLED, "the description was cancelled");
    return stg_err(err, -STAGER_DEADLINE_EXCEEDED,
                   "%.512s: stagerd could not describe it within %u s: its storage is "
                   "slow to answer, or it has very many record batches",
                   config->url, (unsigned)(config->wait_ns / 1000000000u));
}

int stg_describe(const struct stg_describe_config *config, struct stg_description **ret,
                 struct stg_err *err)
{
    struct stg_description *d = NULL;
    int rc = create(config, &d, err);
    if (rc < 0)
        return rc;
    rc = atomic_fetch_add(&n_waiting, 1) < MAX_WAITING
             ? wait_for(d, config, err)
             : stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                       "stagerd describes %d files already: try again", MAX_WAITING);
    atomic_fetch_sub(&n_waiting, 1);
    if (rc < 0)
        stg_description_free(d);
    else
        *ret = d;
    return rc;
}

void stg_describe_finish(void)
{
    const struct timespec pause = {.tv_nsec = 5000000};
    for (int i = 0; i < FINISH_PAUSES && atomic_load(&n_remote) > 0; i++)
        nanosleep(&pause, NULL);
}

struct stg_file_schema *stg_description_schema(struct stg_description *description)
{
    return &description->to.schema;
}

void stg_description_free(struct stg_description *description)
{
    if (description != NULL)
        stg_bounded_unref(&description->bounded);
}
