/* SPDX-License-Identifier: Apache-2.0
 *
 * Stage workers: when one is asked, and for what. A runner finds a place in the order as
 * any other does, but a worker on another machine makes the item. What no worker gives is
 * drawn again and made here, so that order and items are those of a stage without
 * workers.
 */
#include <inttypes.h>

#include "daemon/stage/priv.h"

/* While none is to be asked, a runner looks this often. */
#define LOOK_NS UINT64_C(2000000)

/* ---- when ---- */

/* mode: auto. */
static bool helps(const struct stg_stage *stage)
{
    const struct stg_buffer *buffer = &stage->buffer;
    const struct stg_remote_part *remote = &stage->runners.remote;
    const struct stg_auto_seen seen = {
        .n_ready = buffer->next - buffer->first,
        .capacity = (uint64_t)buffer->capacity * buffer->round_items,
        .is_pulling = stage->runners.is_pulling,
        .n_busy = stage->counts.n_in_hand - remote->n_in_hand,
        .n_active = stage->runners.n_active,
        .n_asking = remote->n_asking,
        .n_remote = stage->plan.num_remote};
    return stg_auto_asks(&seen);
}

static bool is_auto(const struct stg_stage *stage)
{
    return stage->staged->remote.mode != STG_SMART_STAGE_ON;
}

static bool may_ask(const struct stg_stage *stage)
{
    const struct stg_runners *runners = &stage->runners;
    const struct stg_remote_part *remote = &runners->remote;
    return !remote->is_alone && !runners->redo.is_on &&
           runners->pull_sequence >= remote->alone_until &&
           stage->boundary.partition == NULL && !stage->boundary.has_trial &&
           stage->start.state != STG_START_PENDING && (!is_auto(stage) || helps(stage));
}

/* Elements are pulled one after the other. */
static bool is_ready(const struct stg_stage *stage)
{
    const struct stg_remote_part *remote = &stage->runners.remote;
    struct stg_auto_runners runners = {0};
    if (is_auto(stage)) {
        uint32_t n_active = stage->runners.n_active;
        runners.n_local = n_active;
        runners.n_remote = stage->plan.num_remote;
        runners.gap_ns = n_active > 0 ? remote->mean_item_ns / n_active : 0;
        if (n_active > 0 && runners.gap_ns < remote->mean_pull_ns)
            runners.gap_ns = remote->mean_pull_ns;
    }
    return stg_remote_ready(remote->workers, remote->n_asking, &runners);
}

bool stg_remote_wait(struct stg_stage *stage)
{
    struct stg_remote *workers = stage->runners.remote.workers;
    pthread_mutex_lock(&stage->lock);
    while (!stage->stop.is_on && stage->pass.state == STG_PASS_RUNNING) {
        bool may = may_ask(stage);
        if (may && stg_remote_look_begin(workers)) {
            stg_stage_commit(stage);
            stg_remote_look(workers);
            pthread_mutex_lock(&stage->lock);
        } else if (may && is_ready(stage)) {
            break;
        } else {
            stg_stage_wait(stage, &stage->runners.remote.may_ask, stg_now_ns() + LOOK_NS,
                           STG_SPAN_WAIT_PULL);
        }
    }
    bool go_on = !stage->stop.is_on;
    stage->runners.remote.n_asking++;
    stg_stage_commit(stage);
    return go_on;
}

/* ---- what ---- */

struct asked {
    struct stg_stage *stage;
    uint64_t sequence;
};

static bool is_void(void *owner)
{
    const struct asked *asked = owner;
    pthread_mutex_lock(&asked->stage->lock);
    bool is = stg_is_redone(asked->stage, asked->sequence) || asked->stage->stop.is_on;
    pthread_mutex_unlock(&asked->stage->lock);
    return is;
}

/* Counts the time for which its turn had come. */
static void end_asking(struct stg_stage *stage, uint64_t sequence, uint64_t began_ns)
{
    pthread_mutex_lock(&stage->lock);
    stage->runners.remote.n_asking--;
    uint64_t from = stage->counts.published_ns;
    from = from > began_ns ? from : began_ns;
    if (stage->pass.publish_next == sequence)
        stage->runners.remote.stall_ns += stg_now_ns() - from;
    pthread_mutex_unlock(&stage->lock);
}

bool stg_remote_make(struct stg_stage *stage, struct stg_remote_lane *lane,
                     struct stg_work *work)
{
    struct asked asked = {.stage = stage, .sequence = work->sequence};
    char *base = stg_stage_extent(stage, work->extent);
    struct stg_extent_room place;
    struct stg_batch_room room;
    uint64_t began = stg_now_ns();
    struct stg_remote_wanted wanted = {
        .digest = work->digest,
        .pass = work->pass,
        .item = work->after.items - 1,
        .epoch = work->epoch,
        .index = work->index,
        .deal = stage->config.deal,
        .deal_first = work->deal_first,
        .rows = stage->config.batch_size != 0
                    ? work->after.elements - work->before.elements
                    : 0,
        .data = &work->data,
        .base = base,
        .capacity = stg_stage_extent_room(stage, base, &place, &room),
        .room = &room,
        .is_void = is_void,
        .owner = &asked,
    };
    work->bytes = work->pulled_partition == NULL ? stg_remote_ask(lane, &wanted) : 0;
    end_asking(stage, work->sequence, began);
    work->rows = work->bytes != 0 ? ((const struct stg_batch_header *)base)->n_rows : 0;
    return work->bytes != 0;
}

void stg_remote_leave(struct stg_stage *stage)
{
    pthread_mutex_lock(&stage->lock);
    stage->runners.remote.n_asking--;
    stg_stage_commit(stage);
}

/* ---- reports ---- */

void stg_remote_add_totals(const struct stg_stage *stage, struct stg_totals *ret)
{
    const struct stg_remote_part *remote = &stage->runners.remote;
    struct stg_remote_counts counts;
    if (remote->workers == NULL)
        return;
    stg_remote_counts(remote->workers, &counts);
    ret->n[STG_TOTAL_REMOTE_BATCHES] = remote->n_published;
    ret->n[STG_TOTAL_REMOTE_BYTES] = counts.n_bytes;
    ret->n[STG_TOTAL_REMOTE_FAILED] = counts.n_failed;
    ret->n[STG_TOTAL_REMOTE_REDONE] = remote->n_redone;
    ret->n[STG_TOTAL_REMOTE_STALL_NS] = remote->stall_ns;
    ret->n[STG_TOTAL_REMOTE_ANSWER_NS] = counts.answer_ns;
    ret->n[STG_TOTAL_REMOTE_CPU_NS] = counts.cpu_ns;
}

/* What the items would have taken here: as those that were made here. */
static double saved_s(const struct stg_stage *stage)
{
    uint64_t n_remote = stage->runners.remote.n_published;
    uint64_t n_here = stage->counts.n_made - stage->counts.n_in_hand - n_remote;
    double ns = (double)stage->counts.busy_ns + (double)stage->counts.pull_ns;
    return n_here > 0 ? ns / (double)n_here * (double)n_remote / 1e9 : 0;
}

void stg_remote_report(const struct stg_stage *stage, struct stg_bump *bump,
                       struct stg_pipeline_status *ret)
{
    const struct stg_remote_part *remote = &stage->runners.remote;
    struct stg_remote_counts counts;
    char workers[1024];
    if (remote->workers == NULL)
        return;
    stg_remote_counts(remote->workers, &counts);
    ret->remote = stg_bump_printf(
        bump,
        "%" PRIu64 " batches (%.1f MiB) by workers, about %.1f s of work here; %" PRIu64
        " requests, %" PRIu64 " of them to a second worker, %" PRIu64 " failed (%" PRIu64
        " by an invalid answer); %" PRIu64
        " times made here after all; waited for %.1f s%s",
        remote->n_published, (double)counts.n_bytes / (1 << 20), saved_s(stage),
        counts.n_asked, counts.n_hedged, counts.n_failed, counts.n_garbage,
        remote->n_redone, (double)remote->stall_ns / 1e9,
        stg_remote_show(remote->workers, workers, sizeof(workers)));
}

/* ---- life ---- */

int stg_remote_part_init(struct stg_stage *stage, struct stg_err *err)
{
    struct stg_remote_config config = stage->config.remote;
    stg_clock_cond_init(&stage->runners.remote.may_ask);
    if (stage->plan.num_remote == 0)
        return 0;
    config.pipeline = stage->config.name;
    config.schema = stg_graph_boundary(stage->config.graph);
    config.stopped = &stage->stop.flag;
    return stg_remote_create(&config, &stage->runners.remote.workers, err);
}

void stg_remote_part_finish(struct stg_stage *stage)
{
    stg_remote_destroy(stage->runners.remote.workers);
    pthread_cond_destroy(&stage->runners.remote.may_ask);
}
