/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/pipeline/catalog_priv.h"

#define HOLDER "containers"

static int take_memory(void *owner, uint64_t bytes, const char *what, struct stg_err *err)
{
    int rc = stg_budget_take(owner, bytes, HOLDER, err);
    if (rc < 0 && err != NULL)
        stg_err_prefix(err, rc, "%s", what);
    return rc;
}

static void give_memory(void *owner, uint64_t bytes)
{
    stg_budget_give(owner, bytes, HOLDER);
}

static void reclaim_memory(void *owner, uint64_t bytes)
{
    stg_containers_reclaim(owner, bytes);
}

int stg_catalog_make_containers(struct stg_catalog *catalog, struct stg_budget *budget,
                                struct stg_err *err)
{
    struct stg_container_memory memory = {
        .owner = budget, .take = take_memory, .give = give_memory};
    int rc = stg_containers_create(&memory, &catalog->containers, err);
    if (rc < 0)
        return rc;
    budget->owner = catalog->containers;
    budget->reclaim = reclaim_memory;
    return 0;
}

struct stg_containers *stg_catalog_containers(struct stg_catalog *catalog)
{
    return catalog->containers;
}

void stg_catalog_drop_containers(struct stg_catalog *catalog)
{
    catalog->budget->reclaim = NULL;
    stg_containers_destroy(catalog->containers);
}

void stg_catalog_show_container(const struct stg_definition *definition,
                                struct stg_pipeline_status *ret)
{
    struct stg_container_usage usage;
    if (definition->container == NULL)
        return;
    stg_container_usage(definition->container, &usage);
    ret->container = definition->spec->container;
    ret->container_tables = usage.n_tables;
    ret->container_caches = usage.n_caches;
    ret->container_bytes = usage.bytes;
}
