/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/vocabulary.h"

#include <inttypes.h>
#include <stdlib.h>

#include "daemon/storage/storage.h"
#include "ops/hash.h"
#include "ops/vocabulary.h"

static int check_size(struct stg_source *source, const char *file, uint64_t *ret,
                      struct stg_err *err)
{
    int rc = source->storage->size(source, ret, err);
    if (rc == 0 && *ret > STG_VOCABULARY_MAX_BYTES)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "%s has %" PRIu64 " bytes, and a vocabulary at most %u; "
                       "string_to_hash_bucket_fast needs no vocabulary",
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
        int64_t n = source->storage->read(source, at, text + at, size - at, err);
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

static int load(void *owner, const struct stg_node *node, struct stg_tensor *ret,
                struct stg_err *err)
{
    struct stg_vocabulary_reader *reader = owner;
    const struct stg_identity who = {.uid = reader->uid,
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
    /* Whoever applies it would hold up the loop. */
    if (rc == 0 && storage->remote)
        rc =
            stg_err(err, -STAGER_UNIMPLEMENTED,
                    "%s: a vocabulary is read while the pipeline is applied, which waits "
                    "for no other machine: copy it to a local file",
                    storage->scheme);
    if (rc == 0)
        rc = storage->open(path, &who, &source, err);
    if (rc < 0)
        return rc;
    rc = read_all(source, file, &text, &bytes, err);
    storage->close(source);
    if (rc < 0)
        return rc;
    rc = stg_vocabulary_create(text, bytes, (uint64_t)most, ret, err);
    if (rc == 0) {
        reader->fingerprint =
            (reader->fingerprint ^ stg_fingerprint64(text, bytes)) * 0x9e3779b97f4a7c15u;
        reader->bytes += ret->data_bytes;
    }
    free(text);
    return rc < 0 ? stg_err_prefix(err, rc, "%s", file) : 0;
}

int stg_vocabularies_load(struct stg_graph *graph, struct stg_vocabulary_reader *reader,
                          struct stg_err *err)
{
    reader->fingerprint = reader->bytes = 0;
    return stg_graph_load_tables(graph, load, reader, err);
}
