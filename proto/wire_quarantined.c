/* SPDX-License-Identifier: Apache-2.0
 *
 * What processes keep by batches of closed streams, in the replies to list and status.
 */
#include "proto/wire_parts.h"

int stg_wire_quarantined_fill(const struct stg_quarantined *from, size_t n,
                              struct stg_bump *bump, size_t *ret_n,
                              Stager__Quarantined ***ret)
{
    Stager__Quarantined **all = stg_wire_messages(bump, n, sizeof(Stager__Quarantined));
    if (all == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < n; i++) {
        stager__quarantined__init(all[i]);
        all[i]->program = stg_wire_optional(from[i].program);
        all[i]->pipeline = stg_wire_optional(from[i].pipeline);
        STG_PUT(all[i], pid, from[i].pid);
        STG_PUT(all[i], uid, from[i].uid);
        STG_PUT(all[i], n_batches, from[i].n_batches);
        STG_PUT(all[i], bytes, from[i].bytes);
    }
    *ret_n = n;
    *ret = all;
    return 0;
}

int stg_wire_quarantined_take(Stager__Quarantined *const *from, size_t n,
                              struct stg_bump *bump, size_t *ret_n,
                              struct stg_quarantined **ret)
{
    struct stg_quarantined *all = stg_bump_alloc(bump, n * sizeof(*all));
    if (all == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < n; i++)
        all[i] = (struct stg_quarantined){.program = stg_wire_taken(from[i]->program),
                                          .pipeline = stg_wire_taken(from[i]->pipeline),
                                          .pid = from[i]->pid,
                                          .uid = from[i]->uid,
                                          .n_batches = from[i]->n_batches,
                                          .bytes = from[i]->bytes};
    *ret_n = n;
    *ret = all;
    return 0;
}
