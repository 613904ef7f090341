/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/content.h"

#include <string.h>

#include "daemon/storage/storage.h"
#include "ops/base/hash.h"

struct sum {
    const uint64_t *key;
    uint64_t value;
};

static void mix(struct sum *sum, uint64_t value)
{
    const uint64_t both[] = {sum->value, value};
    sum->value = stg_siphash(sum->key, both, sizeof(both));
}

static void mix_bytes(struct sum *sum, const void *data, size_t bytes)
{
    mix(sum, bytes);
    mix(sum, stg_siphash(sum->key, data, bytes));
}

static void mix_string(struct sum *sum, const char *s)
{
    mix_bytes(sum, s, strlen(s));
}

/* ---- steps ---- */

static void mix_attrs(struct sum *sum, const struct stg_attr *attrs, size_t n)
{
    mix(sum, n);
    for (size_t i = 0; i < n; i++) {
        const struct stg_attr *attr = &attrs[i];
        mix_string(sum, attr->name);
        mix_bytes(sum, attr->shape, (size_t)attr->ndim * sizeof(attr->shape[0]));
        mix(sum, attr->n_values);
        for (size_t k = 0; k < attr->n_values; k++) {
            const struct stg_value *value = &attr->values[k];
            mix(sum, (uint64_t)value->kind);
            if (value->kind == STG_VALUE_STRING)
                mix_bytes(sum, value->s, value->s_bytes);
            else if (value->kind == STG_VALUE_FLOAT)
                mix_bytes(sum, &value->f, sizeof(value->f));
            else
                mix(sum, (uint64_t)value->i);
        }
    }
}

static void mix_nodes(struct sum *sum, const struct stg_node *nodes, size_t n)
{
    mix(sum, n);
    for (size_t i = 0; i < n; i++) {
        mix_string(sum, nodes[i].name);
        mix_string(sum, nodes[i].op);
        mix(sum, nodes[i].n_inputs);
        for (size_t k = 0; k < nodes[i].n_inputs; k++)
            mix_string(sum, nodes[i].inputs[k]);
        mix_attrs(sum, nodes[i].attrs, nodes[i].n_attrs);
    }
}

static void mix_step(struct sum *sum, const struct stg_step *step)
{
    mix_string(sum, step->name);
    mix_attrs(sum, step->attrs, step->n_attrs);
    mix_nodes(sum, step->nodes, step->n_nodes);
    mix(sum, step->n_outputs);
    for (size_t i = 0; i < step->n_outputs; i++) {
        mix_string(sum, step->outputs[i].path);
        mix_string(sum, step->outputs[i].tensor);
        mix(sum, step->outputs[i].part);
    }
    for (const struct stg_step *reader = step->reader; reader != NULL;
         reader = reader->reader) {
        mix_string(sum, reader->name);
        mix_attrs(sum, reader->attrs, reader->n_attrs);
    }
}

/* The share of the host. A run of no job has all records. */
static void mix_deal(struct sum *sum, const struct stg_dataset_env *env)
{
    if (env->deal.n_hosts == 0)
        return;
    mix(sum, env->deal.n_hosts);
    mix(sum, env->deal.host);
    mix(sum, env->deal_first);
}

static void mix_iter(struct sum *sum, const struct stg_iter *iter)
{
    mix_step(sum, iter->step);
    if (iter == iter->dataset->divider)
        mix_deal(sum, &iter->dataset->env);
    for (const struct stg_iter *in = iter->input; in != NULL; in = in->sibling) {
        mix(sum, 1);
        mix_iter(sum, in);
    }
    mix(sum, 2);
}

/* ---- files ---- */

/* Adds the name and version of a file to the sum. Returns 1 if the version is unknown. */
static int mix_file(const struct stg_dataset *dataset, const char *file, struct sum *sum,
                    struct stg_err *err)
{
    const struct stg_storage *storage;
    struct stg_source *source;
    const char *path;
    int rc = stg_storage_find(file, &storage, &path, err);
    if (rc < 0 || storage->version == NULL || storage->remote)
        return rc < 0 ? rc : 1;
    rc = storage->open(path, &dataset->identity, &source, err);
    if (rc < 0)
        return rc;
    uint64_t version;
    rc = storage->version(source, &version, err);
    storage->close(source);
    if (rc == 0) {
        mix_string(sum, file);
        mix(sum, version);
    }
    return rc;
}

/* by_name: a file of unknown version counts by its name. */
static int mix_files(const struct stg_iter *iter, bool by_name, struct sum *sum,
                     struct stg_err *err)
{
    const struct stg_dataset *dataset = iter->dataset;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < dataset->n_files; i++) {
        const char *file = stg_dataset_file(dataset, i);
        rc = stg_iter_stopped(iter, err);
        if (rc == 0)
            rc = mix_file(dataset, file, sum, err);
        if (rc == 1 && by_name) {
            mix_string(sum, file);
            rc = 0;
        }
    }
    return rc;
}

static int content_by(const uint64_t *key, const struct stg_iter *iter, bool by_name,
                      struct stg_content *ret, struct stg_err *err)
{
    struct sum steps = {key, iter->dataset->vocabularies};
    struct sum files = {key, iter->dataset->n_files};
    mix_iter(&steps, iter);
    int rc = mix_files(iter, by_name, &files, err);
    if (rc == 0)
        *ret = (struct stg_content){.steps = steps.value, .files = files.value};
    return rc;
}

int stg_content_of(const struct stg_iter *iter, struct stg_content *ret,
                   struct stg_err *err)
{
    return content_by(stg_container_key(iter->dataset->env.container), iter, false, ret,
                      err);
}

static const uint64_t lasting_key[2] = {0x7374616765722d63ull, 0x616368652d6b6579ull};

int stg_content_lasting(const struct stg_iter *iter, struct stg_content *ret,
                        struct stg_err *err)
{
    return content_by(lasting_key, iter, true, ret, err);
}

int stg_content_of_pass(const struct stg_iter *iter, struct stg_content *ret,
                        struct stg_err *err)
{
    struct stg_dataset *dataset = iter->dataset;
    struct sum steps = {lasting_key, dataset->vocabularies};
    struct sum files = {lasting_key, dataset->n_files};
    int rc = 0;
    mix_iter(&steps, iter);
    pthread_mutex_lock(&dataset->versions.lock);
    if (!dataset->versions.are_known) {
        dataset->versions.rc = mix_files(iter, false, &files, err);
        dataset->versions.sum = files.value;
        dataset->versions.are_known = true;
    }
    rc = dataset->versions.rc;
    *ret = (struct stg_content){.steps = steps.value, .files = dataset->versions.sum};
    pthread_mutex_unlock(&dataset->versions.lock);
    return rc;
}
