/* SPDX-License-Identifier: Apache-2.0
 *
 * What `auto` stands for in a pipeline's status.
 */
#include "proto/wire_parts.h"

int stg_wire_tuned_fill(const struct stg_pipeline_status *from, struct stg_bump *bump,
                        Stager__StatusReply *to)
{
    Stager__Tuned **all = stg_wire_messages(bump, from->n_tuned, sizeof(Stager__Tuned));
    if (all == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < from->n_tuned; i++) {
        const struct stg_tuned *tuned = &from->tuned[i];
        stager__tuned__init(all[i]);
        all[i]->what = stg_wire_required(tuned->what);
        all[i]->why = stg_wire_required(tuned->why);
        all[i]->from = tuned->from;
        all[i]->to = tuned->to;
    }
    to->tuned = all;
    to->n_tuned = from->n_tuned;
    STG_PUT(to, capacity_auto, from->capacity_auto);
    STG_PUT(to, num_threads_auto, from->num_threads_auto);
    STG_PUT(to, max_capacity, from->max_capacity);
    STG_PUT(to, max_num_threads, from->max_num_threads);
    return 0;
}

int stg_wire_tuned_take(const Stager__StatusReply *from, struct stg_bump *bump,
                        struct stg_pipeline_status *ret)
{
    struct stg_tuned *tuned = stg_bump_alloc(bump, from->n_tuned * sizeof(*tuned));
    if (tuned == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < from->n_tuned; i++)
        tuned[i] = (struct stg_tuned){.what = from->tuned[i]->what,
                                      .why = from->tuned[i]->why,
                                      .from = from->tuned[i]->from,
                                      .to = from->tuned[i]->to};
    ret->tuned = tuned;
    ret->n_tuned = from->n_tuned;
    ret->capacity_auto = from->capacity_auto != 0;
    ret->num_threads_auto = from->num_threads_auto != 0;
    ret->max_capacity = from->max_capacity;
    ret->max_num_threads = from->max_num_threads;
    return 0;
}
