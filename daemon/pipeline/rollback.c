/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/pipeline/rollback.h"

#include <inttypes.h>

#include "daemon/pipeline/catalog_priv.h"

size_t stg_rollback_list(const struct stg_catalog *catalog,
                         const struct stg_pipeline *pipeline, struct stg_bump *bump,
                         struct stg_pipeline_version ret[STG_MAX_VERSIONS])
{
    const struct stg_definition *now = pipeline->definition;
    size_t n = stg_versions_list(catalog->settings, pipeline->name, pipeline->generation,
                                 bump, ret);
    ret[n++] = (struct stg_pipeline_version){.generation = pipeline->generation,
                                             .content = now->spec->fingerprint,
                                             .time_ns = now->applied_ns,
                                             .uid = now->applier.uid,
                                             .file = now->file};
    return n;
}

/* Names the generations, all but the last one. */
static int append_retained(const struct stg_pipeline_version *versions, size_t n,
                           struct stg_err *err)
{
    stg_err_append(err, err->code, "; stagerd keeps %s",
                   n > 2    ? "generations"
                   : n == 2 ? "generation"
                            : "no earlier one");
    for (size_t i = 0; i + 1 < n; i++)
        stg_err_append(err, err->code, "%s%" PRIu64, i > 0 ? ", " : " ",
                       versions[i].generation);
    return err->code;
}

static const struct stg_pipeline_version *choose(
    const struct stg_pipeline_version *versions, size_t n, uint64_t generation)
{
    for (size_t i = n - 1; i-- > 0;) {
        if (generation != 0 ? versions[i].generation == generation
                            : versions[i].content != versions[n - 1].content)
            return &versions[i];
    }
    return NULL;
}

static int refuse(const struct stg_pipeline *pipeline, uint64_t generation,
                  const struct stg_pipeline_version *versions, size_t n,
                  struct stg_err *err)
{
    if (generation == 0)
        stg_err(err, -STAGER_NOT_FOUND,
                "pipeline %s has no earlier definition with other content",
                pipeline->name);
    else if (generation == pipeline->generation)
        stg_err(err, -STAGER_INVALID_ARGUMENT,
                "generation %" PRIu64 " is the current one of pipeline %s", generation,
                pipeline->name);
    else
        stg_err(err, -STAGER_NOT_FOUND,
                "pipeline %s has no definition of generation %" PRIu64, pipeline->name,
                generation);
    return append_retained(versions, n, err);
}

int stg_rollback_find(struct stg_catalog *catalog, const struct stg_pipeline *pipeline,
                      uint64_t generation, const struct stg_identity *identity,
                      struct stg_pipeline_version *ret_version,
                      struct stg_definition **ret, struct stg_err *err)
{
    struct stg_pipeline_version versions[STG_MAX_VERSIONS];
    struct stg_store_source source = {
        .settings = catalog->settings, .containers = catalog->containers, .path = ""};
    struct stg_bump bump;
    stg_bump_init(&bump, 0);
    size_t n = stg_rollback_list(catalog, pipeline, &bump, versions);
    const struct stg_pipeline_version *found = choose(versions, n, generation);
    int rc;
    if (found == NULL)
        rc = refuse(pipeline, generation, versions, n, err);
    else if (!stg_catalog_allowed_of(catalog, found->uid, identity))
        rc = stg_err(err, -STAGER_PERMISSION_DENIED,
                     "generation %" PRIu64 " of pipeline %s was applied by uid %u: that "
                     "user, root or a member of access_group may roll back to it",
                     found->generation, pipeline->name, (unsigned)found->uid);
    else
        rc = stg_versions_read(&source, pipeline->name, found->generation, ret, err);
    if (rc == 0) {
        *ret_version = *found;
        ret_version->file = NULL;
    }
    stg_bump_finish(&bump);
    return rc;
}
