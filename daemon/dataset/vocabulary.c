/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/vocabulary.h"

#include <inttypes.h>
#include <stdlib.h>

#include "daemon/storage/storage.h"
#include "ops/base/hash.h"
#include "ops/kernels/text/vocabulary.h"

static int check_size(struct stg_source *source, const char *file, uint64_t *ret,
                      struct stg_err *err)
{
    int rc = source->storage->size(source, ret, err);
    if (rc == 0 && *ret > STG_VOCABULARY_MAX_BYTES)
        return stg_err(
            err, -STAGER_INVALID_ARGUMENT,
            "%s has %" PRIu64
            " bytes; a vocabulary has at most %u (string_to_hash_bucket_fast needs none)",
            file, *ret, STG_VOCABULARY_MAX_BYTES);
    return rc;
}

/* *ret: the caller frees. A file that grows meanwhile is read as far as it was. */
static int read_all(struct stg_source *source, const char *file, char **ret,
                    size_t *ret_bytes, struct stg_err *err)
{
    uint64_t size = 0, at = 0;
    int rc = check_size(source, file, &size, err);
    if (rc < 0)
        return rc;
    char *text = malloc(size + 1);
    if (text == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                       "%s: no memory for %" PRIu64 " bytes", file, size);
    while (at < size) {
        int64_t n = stg_source_read(source, at, text + at, size - at, err);
        if (n < 0) {
            free(text);
            return (int)n;
        }
        if (n == 0)
            break;
        at += (uint64_t)n;
    }
    *ret = text;
    *ret_bytes = at;
    return 0;
}

struct loading {
    const struct stg_vocabulary_reader *reader;
    struct stg_vocabularies *vocabularies;
};

/* Takes the table into the container. On failure it is freed. */
static int share(struct loading *loading, struct stg_tensor *table, struct stg_err *err)
{
    struct stg_vocabularies *v = loading->vocabularies;
    struct stg_shared **grown = realloc(v->shared, (v->n_shared + 1) * sizeof(grown[0]));
    if (grown != NULL)
        v->shared = grown;
    int rc = grown != NULL ? stg_container_share_table(loading->reader->container, table,
                                                       &v->shared[v->n_shared], err)
                           : stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    if (rc == 0)
        v->n_shared++;
    else
        free(table->data);
    return rc;
}

static int keep(struct loading *loading, const char *text, size_t bytes,
                struct stg_tensor *table, struct stg_err *err)
{
    struct stg_vocabularies *v = loading->vocabularies;
    v->fingerprint =
        (v->fingerprint ^ stg_fingerprint64(text, bytes)) * 0x9e3779b97f4a7c15u;
    if (loading->reader->container != NULL)
        return share(loading, table, err);
    v->bytes += table->data_bytes;
    return 0;
}

static int load(void *owner, const struct stg_node *node, struct stg_tensor *ret,
                struct stg_err *err)
{
    struct loading *loading = owner;
    const struct stg_vocabulary_reader *reader = loading->reader;
    const struct stg_file_user identity = {.uid = reader->uid,
                                           .gid = reader->gid,
                                           .groups = reader->groups,
                                           .n_groups = reader->n_groups};
    const char *file = stg_attr_string(node->attrs, node->n_attrs, "file", "");
    int64_t most = stg_attr_int(node->attrs, node->n_attrs, "vocab_size", 0);
    const struct stg_storage *storage;
    struct stg_source *source;
    const char *path;
    char *text = NULL;
    size_t bytes = 0;
    int rc = stg_storage_find(file, &storage, &path, err);
    /* A read over the network would hold up the loop. */
    if (rc == 0 && storage->remote)
        rc = stg_err(err, -STAGER_UNIMPLEMENTED,
                     "%s: a vocabulary must be a local file, because stagerd reads it "
                     "during apply: copy it to this machine",
                     storage->scheme);
    if (rc == 0)
        rc = storage->open(path, &identity, &source, err);
    if (rc < 0)
        return rc;
    rc = read_all(source, file, &text, &bytes, err);
    storage->close(source);
    if (rc < 0)
        return rc;
    struct stg_tensor table;
    rc = stg_vocabulary_create(text, bytes, (uint64_t)most, &table, err);
    if (rc == 0)
        rc = keep(loading, text, bytes, &table, err);
    if (rc == 0)
        *ret = table;
    free(text);
    if (rc < 0)
        return stg_err_prefix(err, rc, "%s", file);
    loading->vocabularies->n++;
    loading->vocabularies->file = file;
    return 0;
}

int stg_vocabularies_load(struct stg_graph *graph,
                          const struct stg_vocabulary_reader *reader,
                          struct stg_vocabularies *ret, struct stg_err *err)
{
    struct loading loading = {.reader = reader, .vocabularies = ret};
    return stg_graph_load_tables(graph, reader->container != NULL, load, &loading, err);
}

void stg_vocabularies_finish(struct stg_vocabularies *vocabularies)
{
    for (size_t i = 0; i < vocabularies->n_shared; i++)
        stg_shared_unref(vocabularies->shared[i]);
    free(vocabularies->shared);
}
