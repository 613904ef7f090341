/* SPDX-License-Identifier: Apache-2.0
 *
 * The counters, as proto/control.proto has them.
 */
#include <string.h>

#include "daemon/stage/delivery.h"

static const char *state_name(const struct stg_stage *stage)
{
    if (stage->stop.is_on)
        return "stopping";
    if (stage->pass.failure.code != 0)
        return "failed";
    if (stage->pass.state != STG_PASS_NONE)
        return "running";
    return stage->pass.n_ended > stage->config.first_pass ? "ended" : "waiting";
}

const char *stg_stage_state(struct stg_stage *stage)
{
    pthread_mutex_lock(&stage->lock);
    const char *state = state_name(stage);
    pthread_mutex_unlock(&stage->lock);
    return state;
}

static void fill_memory(const struct stg_stage *stage, struct stg_pipeline_status *ret)
{
    struct stg_lease_usage usage;
    stg_lease_usage(stage->buffer.leases, &usage);
    ret->memory_bytes = stg_stage_arena_bytes(stage);
    ret->memory_used_bytes = usage.total - usage.free;
    ret->quarantined_bytes = usage.quarantined;
    ret->max_batch_bytes = stage->plan.max_batch_bytes;
}

/* Items that live: in the buffer or waiting to be given again, and the rest. */
static void fill_items(const struct stg_stage *stage, struct stg_pipeline_status *ret)
{
    ret->buffered =
        (uint32_t)(stage->buffer.next - stage->buffer.first) + stage->buffer.n_returned;
    ret->unacknowledged = 0;
    for (uint32_t i = 0; i < stage->buffer.max_extents; i++)
        ret->unacknowledged +=
            stage->buffer.items[i].lender && stage->buffer.items[i].unqueued;
    ret->unacknowledged -= stage->buffer.n_returned;
}

static void fill_tuned(struct stg_stage *stage, struct stg_bump *bump,
                       struct stg_pipeline_status *ret)
{
    struct stg_tuning_change changes[STG_TUNING_CHANGES];
    size_t n = stg_tuning_changes(stage->observers.tune.log, changes);
    struct stg_tuned *tuned = stg_bump_alloc(bump, n * sizeof(*tuned));
    for (size_t i = 0; i < n && tuned != NULL; i++)
        tuned[i] = (struct stg_tuned){.what = stg_text_keep(bump, changes[i].what),
                                      .why = stg_text_keep(bump, changes[i].change.why),
                                      .from = changes[i].change.from,
                                      .to = changes[i].change.to};
    ret->tuned = tuned;
    ret->n_tuned = tuned != NULL ? n : 0;
    ret->capacity = stage->buffer.capacity;
    ret->num_threads = stage->runners.n_active;
    ret->max_capacity = stage->observers.tune.capacity.limits.max;
    ret->max_num_threads = stage->observers.tune.threads.limits.max;
}

static void fill_gpu(struct stg_stage *stage, struct stg_bump *bump,
                     struct stg_pipeline_status *ret)
{
    char why[STG_ERR_TEXT_BYTES];
    if (stage->memory.twin == NULL)
        return;
    ret->gpu = stage->config.spec->gpu.device;
    ret->gpu_copies = stg_twin_status(stage->memory.twin, why, sizeof(why));
    ret->gpu_why = stg_text_keep(bump, why);
}

void stg_stage_status(struct stg_stage *stage, struct stg_bump *bump,
                      struct stg_pipeline_status *ret)
{
    pthread_mutex_lock(&stage->lock);
    stg_delivery_run(stage); /* counts releases that came without a doorbell, too */
    ret->state = state_name(stage);
    ret->last_error = stg_text_keep(bump, stage->counts.last_error);
    ret->pass = stage->pass.n_ended;
    ret->epoch = stage->pass.epoch;
    ret->made = stage->counts.n_made;
    ret->published = stage->buffer.n_published;
    ret->dropped = stage->counts.n_dropped;
    ret->dropped_rows = stage->counts.n_dropped_rows;
    ret->ignored = stage->counts.n_ignored;
    ret->ignored_elements = stage->counts.n_ignored_elements;
    ret->in_hand = stage->counts.n_in_hand;
    ret->discarded = stage->counts.n_discarded;
    ret->acknowledged = stage->buffer.n_acknowledged;
    ret->lost = stage->buffer.n_lost;
    ret->discarded_published = stage->buffer.n_discarded;
    ret->incomplete_rounds = stage->counts.n_incomplete;
    ret->assigned = stage->counts.n_assigned;
    ret->released = stage->counts.n_released;
    ret->redelivered = stage->counts.n_redelivered;
    ret->evicted = stage->counts.n_evicted;
    ret->errors = stage->counts.n_errors;
    ret->timeouts = stage->counts.n_timeouts;
    ret->feed_version =
        stage->boundary.feeds != NULL ? stage->boundary.feeds->version : 0;
    ret->rows = stage->buffer.n_rows;
    ret->bytes = stage->buffer.n_bytes;
    ret->producer_wait_ns = stage->counts.wait_ns;
    ret->producer_busy_ns = stage->counts.busy_ns;
    stg_stage_show_cut(stage, bump, ret);
    fill_items(stage, ret);
    fill_memory(stage, ret);
    stg_clients_show(&stage->members, bump, ret);
    fill_tuned(stage, bump, ret);
    fill_gpu(stage, bump, ret);
    stg_stage_commit(stage);
}
