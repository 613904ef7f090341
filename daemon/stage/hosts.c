/* SPDX-License-Identifier: Apache-2.0
 *
 * Before the first batch of a run: whether the other hosts divide the same (`shard:
 * auto`).
 */
#include <stdlib.h>
#include <string.h>

#include "core/fingerprint.h"
#include "daemon/dataset/files/identity.h"
#include "daemon/dataset/step.h"
#include "daemon/stage/priv.h"

static const char *file_of(const void *owner, uint64_t i)
{
    return stg_dataset_file(owner, i < UINT32_MAX ? (uint32_t)i : UINT32_MAX);
}

/* Marks of several files in a row mix their names in this order. */
static int mark_files(const struct stg_stage *stage, uint64_t span,
                      struct stg_file_mark *marks, struct stg_err *err)
{
    const struct stg_dataset *dataset = stage->runners.dataset;
    for (uint32_t i = 0; i < dataset->n_files; i++) {
        struct stg_file_mark *mark = &marks[i / span];
        uint64_t bytes;
        const char *path =
            stg_identity_file(stage->config.spec, dataset->files[i], &bytes);
        uint64_t name = stg_farm_hash(path, strlen(path));
        int rc = stg_iter_stopped(dataset->last, err);
        if (rc < 0)
            return rc;
        mark->name =
            i % span == 0 ? name : stg_fingerprint64_of(mark->name, name ^ bytes, 16);
        mark->bytes += bytes;
    }
    return 0;
}

/* A run that goes on after a restart of stagerd was compared, and the other hosts are in
 * the middle of it. */
int stg_stage_compare_hosts(struct stg_stage *stage, uint64_t pass, struct stg_err *err)
{
    const struct stg_stage_config *config = &stage->config;
    const struct stg_dataset *dataset = stage->runners.dataset;
    if (config->comparing.dir == NULL || config->resumed != NULL ||
        pass != config->first_pass)
        return 0;
    struct stg_file_mark *marks = calloc(STG_NOTE_MAX_FILES, sizeof(*marks));
    if (marks == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    struct stg_compared compared = {
        .pipeline = config->name,
        .number = config->deal.host,
        .n_hosts = config->deal.n_hosts,
        .batch_size = config->batch_size,
        .vocabularies = dataset->vocabularies,
        .n_files = dataset->n_files,
        .span =
            1 + (dataset->n_files > 0 ? dataset->n_files - 1 : 0) / STG_NOTE_MAX_FILES,
        .marks = marks,
        .file = file_of,
        .owner = dataset};
    int rc = mark_files(stage, compared.span, marks, err);
    if (rc == 0)
        rc = stg_hosts_compare(&config->comparing, &compared, &stage->stop.flag, err);
    free(marks);
    return rc;
}
