/* SPDX-License-Identifier: Apache-2.0
 *
 * What the gate publishes of the catalog.
 */
#include <string.h>

#include "daemon/pipeline/catalog_priv.h"

void stg_catalog_tell(const struct stg_catalog *catalog, enum stg_event_kind kind,
                      uint64_t pipeline_id)
{
    catalog->hooks.event(catalog->hooks.owner, kind, pipeline_id);
}

static void note_state(struct stg_instance *instance)
{
    static const struct {
        const char *state;
        enum stg_event_kind kind;
    } kinds[] = {{"running", STG_EVENT_STARTED},
                 {"ended", STG_EVENT_ENDED},
                 {"failed", STG_EVENT_FAILED},
                 {"stopping", STG_EVENT_STOPPED}};
    const char *state = stg_stage_state(instance->stage);
    if (strcmp(instance->told_state, state) == 0)
        return;
    instance->told_state = state;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(kinds[i].state, state) == 0)
            stg_catalog_tell(instance->catalog, kinds[i].kind, instance->pipeline_id);
    }
}

void stg_catalog_note(struct stg_instance *instance)
{
    if (instance->private_run || instance->stage == NULL)
        return;
    uint32_t n = stg_stage_n_clients(instance->stage);
    for (; instance->told_clients < n; instance->told_clients++)
        stg_catalog_tell(instance->catalog, STG_EVENT_ATTACHED, instance->pipeline_id);
    for (; instance->told_clients > n; instance->told_clients--)
        stg_catalog_tell(instance->catalog, STG_EVENT_DETACHED, instance->pipeline_id);
    note_state(instance);
}
