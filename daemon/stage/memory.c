/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of a stage's batches: what of the arena has memory, what of it counts on the
 * budget, and which clients keep some of it after they left.
 *
 * Where the size of a batch is known, or memory_budget is given, the whole arena is
 * reserved when the stage is made. Elsewhere the arena is sparse: an extent lies in a
 * slot of max_batch_bytes, a slot begins with a granule, and grows with its batches.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/stage/priv.h"
#include "daemon/storage/chunk.h"

#define ARENA "stager-arena" /* what /proc calls it */

void stg_stage_name_holder(const struct stg_stage_config *config,
                           char ret[STG_HOLDER_BYTES])
{
    snprintf(ret, STG_HOLDER_BYTES, "pipeline %s", config->name);
}

/* ---- slots ---- */

static int make_sparse(struct stg_stage *stage, struct stg_err *err)
{
    const struct stg_stage_plan *plan = &stage->plan;
    stage->memory.backed = calloc(plan->n_extents, sizeof(stage->memory.backed[0]));
    if (stage->memory.backed == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    int rc =
        stg_segment_create_sparse(ARENA, plan->arena_bytes, &stage->memory.arena, err);
    for (uint64_t i = 0; rc == 0 && i < plan->n_extents; i++) {
        rc = stg_segment_back(ARENA, &stage->memory.arena, i * plan->max_batch_bytes,
                              STG_GRANULE_BYTES, err);
        stage->memory.backed[i] = STG_GRANULE_BYTES;
    }
    return rc;
}

int stg_stage_make_arena(struct stg_stage *stage, bool for_device, struct stg_err *err)
{
    uint64_t bytes = stage->plan.arena_bytes;
    const _Atomic int *cancelled = stage->config.cancelled;
    if (stage->plan.is_sparse)
        return make_sparse(stage, err);
    return for_device ? stg_segment_create_open(ARENA, bytes, cancelled,
                                                &stage->memory.arena, err)
                      : stg_segment_create(ARENA, bytes, false, cancelled,
                                           &stage->memory.arena, err);
}

/* Takes the least that does when there is no more. */
static int take(struct stg_stage *stage, uint64_t have, uint64_t least, uint64_t *want,
                struct stg_err *err)
{
    struct stg_budget *budget = stage->config.budget;
    if (*want > least &&
        stg_budget_take(budget, *want - have, stage->memory.holder, NULL) == 0)
        return 0;
    *want = least;
    int rc = stg_budget_take(budget, least - have, stage->memory.holder, err);
    if (rc < 0 && err != NULL)
        stg_err_append(err, rc,
                       "; with memory_budget or max_batch_bytes the pipeline's memory is "
                       "reserved when it is opened");
    return rc;
}

static int grow(void *owner, uint64_t needed, uint64_t *ret, struct stg_err *err)
{
    const struct stg_extent_room *room = owner;
    struct stg_stage *stage = room->stage;
    uint64_t slot_bytes = stage->plan.max_batch_bytes;
    uint64_t *backed = &stage->memory.backed[room->offset / slot_bytes], have = *backed;
    uint64_t least = stg_granules(needed), want = stg_granules(have + have / 2);
    want = want > least ? want : least;
    want = want < slot_bytes ? want : slot_bytes;
    int rc = take(stage, have, least, &want, err);
    if (rc < 0)
        return rc;
    rc = stg_segment_back(ARENA, &stage->memory.arena, room->offset + have, want - have,
                          err);
    if (rc < 0) {
        stg_budget_give(stage->config.budget, want - have, stage->memory.holder);
        return rc;
    }
    pthread_mutex_lock(&stage->lock);
    *backed = want;
    stage->memory.budget_bytes += want - have;
    pthread_mutex_unlock(&stage->lock);
    *ret = want;
    return 0;
}

uint64_t stg_stage_extent_room(struct stg_stage *stage, const char *base,
                               struct stg_extent_room *room, struct stg_batch_room *ret)
{
    uint64_t most = stage->plan.max_batch_bytes;
    *room = (struct stg_extent_room){
        .stage = stage,
        .offset = (uint64_t)(base - (const char *)stage->memory.arena.base)};
    *ret = (struct stg_batch_room){
        .limit_bytes = most, .grow = stage->plan.is_sparse ? grow : NULL, .owner = room};
    return stage->plan.is_sparse ? stage->memory.backed[room->offset / most] : most;
}

uint64_t stg_stage_arena_bytes(const struct stg_stage *stage)
{
    uint64_t bytes = 0;
    if (!stage->plan.is_sparse)
        return stage->plan.arena_bytes;
    for (uint64_t i = 0; i < stage->plan.n_extents; i++)
        bytes += stage->memory.backed[i];
    return bytes;
}

/* ---- the dataset's buffers ---- */

static int take_buffers(void *owner, uint64_t bytes, struct stg_err *err)
{
    struct stg_stage *stage = owner;
    return stg_budget_take_free(stage->config.budget, bytes, stage->memory.holder, err);
}

static void give_buffers(void *owner, uint64_t bytes)
{
    struct stg_stage *stage = owner;
    stg_budget_give(stage->config.budget, bytes, stage->memory.holder);
}

const struct stg_fund *stg_stage_fund(struct stg_stage *stage, struct stg_fund *ret)
{
    const struct stg_stage_plan *plan = &stage->plan;
    *ret = (struct stg_fund){.take = take_buffers,
                             .give = give_buffers,
                             .owner = stage,
                             .taken = plan->reserved_buffer_bytes};
    return plan->reserved_buffer_bytes < plan->buffer_bytes ? ret : NULL;
}

/* ---- what would do ---- */

/* Appends "raise staged.memory_budget to N", and what stagerd's must be for that, where
 * it is less. */
static void say_budget(const struct stg_stage *stage, uint64_t budget,
                       struct stg_err *err)
{
    if (budget == 0) {
        stg_err_append(err, err->code, "no staged.memory_budget is enough");
        return;
    }
    uint64_t total = stg_budget_total(stage->config.budget);
    stg_err_append(err, err->code, "raise staged.memory_budget to %" PRIu64 "MiB",
                   budget >> 20);
    if (budget > total)
        stg_err_append(err, err->code,
                       ", and memory_budget in stagerd.yaml, now %" PRIu64
                       "MiB, to at least as much",
                       total >> 20);
}

/* Each runner holds a batch that it pulled. */
static void advise(void *owner, uint64_t limit_bytes, uint64_t in_hand,
                   struct stg_err *err)
{
    struct stg_stage *stage = owner;
    const struct stg_stage_plan *plan = &stage->plan;
    uint64_t held = in_hand * plan->most_threads, batch = plan->max_batch_bytes;
    say_budget(stage, stg_plan_budget(&plan->asked, limit_bytes + held, batch), err);
}

/* max_batch_bytes where it is written, and memory_budget where batches of that size do
 * not fit the one that is. */
void stg_stage_advise_batch(const struct stg_stage *stage, uint64_t bytes,
                            struct stg_err *err)
{
    const struct stg_stage_plan *plan = &stage->plan;
    struct stg_plan_asked asked = plan->asked;
    struct stg_staged staged = *asked.staged;
    bytes = stg_granules(bytes);
    asked.staged = &staged;
    uint64_t budget = stg_plan_budget(&asked, plan->buffer_bytes, bytes);
    if (budget != 0) {
        say_budget(stage, budget, err);
        return;
    }
    staged.max_batch_bytes = bytes;
    stg_err_append(err, err->code, "raise staged.max_batch_bytes to %" PRIu64, bytes);
    budget = stg_plan_budget(&asked, plan->buffer_bytes, bytes);
    if (staged.memory_budget == 0 || budget <= staged.memory_budget)
        return;
    stg_err_append(err, err->code, ", and ");
    say_budget(stage, budget, err);
}

struct stg_adviser stg_stage_adviser(struct stg_stage *stage)
{
    return (struct stg_adviser){.advise = advise, .owner = stage};
}
