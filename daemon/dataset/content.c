/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/content.h"

#include <string.h>

#include "daemon/storage/storage.h"
#include "ops/hash.h"

static uint64_t mix(uint64_t sum, uint64_t value)
{
    return (sum ^ value) * 0x9e3779b97f4a7c15ull + (sum >> 29);
}

static uint64_t mix_bytes(uint64_t sum, const void *data, size_t bytes)
{
    return mix(mix(sum, bytes), stg_fingerprint64(data, bytes));
}

static uint64_t mix_string(uint64_t sum, const char *s)
{
    return mix_bytes(sum, s, strlen(s));
}

/* ---- steps ---- */

static uint64_t mix_attrs(uint64_t sum, const struct stg_attr *attrs, size_t n)
{
    sum = mix(sum, n);
    for (size_t i = 0; i < n; i++) {
        const struct stg_attr *attr = &attrs[i];
        sum = mix_string(sum, attr->name);
        sum = mix_bytes(sum, attr->shape, (size_t)attr->ndim * sizeof(attr->shape[0]));
        for (size_t k = 0; k < attr->n_values; k++) {
            const struct stg_value *value = &attr->values[k];
            sum = mix(sum, (uint64_t)value->kind);
            if (value->kind == STG_VALUE_STRING)
                sum = mix_bytes(sum, value->s, value->s_bytes);
            else if (value->kind == STG_VALUE_FLOAT)
                sum = mix_bytes(sum, &value->f, sizeof(value->f));
            else
                sum = mix(sum, (uint64_t)value->i);
        }
    }
    return sum;
}

static uint64_t mix_nodes(uint64_t sum, const struct stg_node *nodes, size_t n)
{
    sum = mix(sum, n);
    for (size_t i = 0; i < n; i++) {
        sum = mix_string(mix_string(sum, nodes[i].name), nodes[i].op);
        sum = mix(sum, nodes[i].n_inputs);
        for (size_t k = 0; k < nodes[i].n_inputs; k++)
            sum = mix_string(sum, nodes[i].inputs[k]);
        sum = mix_attrs(sum, nodes[i].attrs, nodes[i].n_attrs);
    }
    return sum;
}

static uint64_t mix_step(uint64_t sum, const struct stg_step *step)
{
    sum = mix_string(sum, step->name);
    sum = mix_attrs(sum, step->attrs, step->n_attrs);
    sum = mix_nodes(sum, step->nodes, step->n_nodes);
    sum = mix(sum, step->n_outputs);
    for (size_t i = 0; i < step->n_outputs; i++) {
        sum = mix_string(sum, step->outputs[i].path);
        sum = mix_string(sum, step->outputs[i].tensor);
        sum = mix(sum, step->outputs[i].part);
    }
    for (const struct stg_step *reader = step->reader; reader != NULL;
         reader = reader->reader)
        sum = mix_attrs(mix_string(sum, reader->name), reader->attrs, reader->n_attrs);
    return sum;
}

static uint64_t mix_iter(uint64_t sum, const struct stg_iter *iter)
{
    sum = mix_step(sum, iter->step);
    for (const struct stg_iter *in = iter->input; in != NULL; in = in->sibling)
        sum = mix_iter(mix(sum, 1), in);
    return mix(sum, 2);
}

/* ---- files ---- */

static int mix_file(const struct stg_dataset *dataset, const char *file, uint64_t *sum,
                    struct stg_err *err)
{
    const struct stg_storage *storage;
    struct stg_source *source;
    const char *path;
    int rc = stg_storage_find(file, &storage, &path, err);
    if (rc < 0 || storage->version == NULL)
        return rc < 0 ? rc : 1;
    rc = storage->open(path, &dataset->who, &source, err);
    if (rc < 0)
        return rc;
    uint64_t version;
    rc = storage->version(source, &version, err);
    storage->close(source);
    if (rc == 0)
        *sum = mix(mix_string(*sum, file), version);
    return rc;
}

int stg_content_of(const struct stg_iter *iter, struct stg_content *ret,
                   struct stg_err *err)
{
    const struct stg_dataset *dataset = iter->dataset;
    struct stg_content content = {.whose = UINT64_MAX, .files = dataset->n_files};
    content.steps = mix_iter(dataset->vocabularies, iter);
    for (uint32_t i = 0; i < dataset->n_files; i++) {
        int rc = stg_iter_stopped(iter, err);
        if (rc == 0)
            rc = mix_file(dataset, stg_dataset_file(dataset, i), &content.files, err);
        if (rc != 0)
            return rc;
    }
    *ret = content;
    return 0;
}
