/* SPDX-License-Identifier: Apache-2.0
 *
 * Which outputs of an executor share memory: a tensor that no later step reads leaves its
 * buffer to the next one that needs some. Sizes are not known before a batch is there, so
 * that a buffer grows to what the largest of its tensors takes, and then stays.
 */
#include <stdlib.h>

#include "ops/exec/priv.h"

/* Of a tensor that is needed until the next exec, instead of a step. */
#define RETAINED UINT32_MAX

/* While a plan is made. Steps count from 1. */
struct lives {
    bool at_once;        /* no step is known to be after another */
    uint32_t *last;      /* of each slot: the step after which it is not needed */
    uint32_t *n_readers; /* of each slot: inputs of steps */
    uint32_t *idle;      /* buffers */
    size_t n_idle, n_buffers;
};

void *stg_run_room(struct stg_run_buffer *buffer, uint64_t bytes)
{
    if (bytes <= buffer->bytes && buffer->data != NULL)
        return buffer->data;
    uint64_t more = (bytes + bytes / 8 + 64) & ~UINT64_C(63);
    if (more < bytes)
        return NULL;
    free(buffer->data);
    *buffer = (struct stg_run_buffer){.data = aligned_alloc(64, more)};
    buffer->bytes = buffer->data != NULL ? more : 0;
    return buffer->data;
}

static void outlive(struct lives *lives, uint32_t slot, uint32_t step)
{
    if (lives->last[slot] < step)
        lives->last[slot] = step;
}

/* An input lives as long as what may be a view of it. */
static void find_ends(const struct stg_run *run, struct lives *lives)
{
    for (size_t i = 0; i < run->n_fetches; i++)
        lives->last[run->fetches[i].slot] = RETAINED;
    for (uint32_t s = (uint32_t)run->n_steps; s > 0; s--) {
        const struct stg_run_step *step = &run->steps[s - 1];
        uint32_t end = s;
        for (size_t i = 0; i < step->node->n_outputs; i++) {
            uint32_t slot = step->outputs[i].slot;
            outlive(lives, slot, s);
            if ((step->node->op->flags & STG_OP_VIEWS) != 0 && lives->last[slot] > end)
                end = lives->last[slot];
        }
        for (size_t i = 0; i < step->node->n_inputs; i++) {
            outlive(lives, step->inputs[i], end);
            lives->n_readers[step->inputs[i]]++;
        }
    }
}

static uint32_t take(struct lives *lives)
{
    return lives->n_idle > 0 ? lives->idle[--lives->n_idle]
                             : (uint32_t)lives->n_buffers++;
}

/* Once, also when the step reads the slot twice. */
static void give(struct stg_run *run, struct lives *lives, uint32_t index, uint32_t s)
{
    const struct stg_run_slot *slot = &run->slots[index];
    if (lives->last[index] != s)
        return;
    lives->last[index] = RETAINED;
    if (slot->buffer != STG_NO_BUFFER)
        lives->idle[lives->n_idle++] = slot->buffer;
    if (slot->offsets != STG_NO_BUFFER)
        lives->idle[lives->n_idle++] = slot->offsets;
}

/* Inputs that are not read after this step. */
static void find_dying(struct stg_run *run, const struct lives *lives, uint32_t s)
{
    struct stg_run_step *step = &run->steps[s - 1];
    step->dying = 0;
    if ((step->node->op->flags & STG_OP_IN_PLACE) == 0)
        return;
    for (size_t i = 0; i < step->node->n_inputs && i < 63; i++) {
        uint32_t slot = step->inputs[i];
        if (lives->last[slot] == s && run->slots[slot].buffer != STG_NO_BUFFER &&
            (!lives->at_once || lives->n_readers[slot] == 1))
            step->dying |= UINT64_C(1) << i;
    }
}

static void share(struct stg_run *run, struct lives *lives)
{
    for (uint32_t s = 1; s <= run->n_steps; s++) {
        const struct stg_run_step *step = &run->steps[s - 1];
        for (size_t i = 0; i < step->node->n_outputs; i++) {
            struct stg_run_slot *slot = &run->slots[step->outputs[i].slot];
            slot->buffer = take(lives);
            if (step->outputs[i].component->dtype == STAGER_STRING)
                slot->offsets = take(lives);
        }
        find_dying(run, lives, s);
        if (lives->at_once)
            continue;
        for (size_t i = 0; i < step->node->n_inputs; i++)
            give(run, lives, step->inputs[i], s);
        for (size_t i = 0; i < step->node->n_outputs; i++)
            give(run, lives, step->outputs[i].slot, s);
    }
}

int stg_run_plan_buffers(struct stg_run *run, bool at_once, struct stg_err *err)
{
    struct lives lives = {.at_once = at_once};
    lives.n_readers = calloc(run->n_slots + 1, sizeof(*lives.n_readers));
    lives.last = calloc(run->n_slots + 1, sizeof(*lives.last));
    lives.idle = calloc(2 * run->n_slots + 1, sizeof(*lives.idle));
    for (size_t i = 0; i < run->n_slots; i++) {
        run->slots[i].buffer = STG_NO_BUFFER;
        run->slots[i].offsets = STG_NO_BUFFER;
    }
    run->buffers = NULL;
    run->n_buffers = 0;
    if (lives.last != NULL && lives.n_readers != NULL && lives.idle != NULL) {
        find_ends(run, &lives);
        share(run, &lives);
        run->buffers =
            stg_bump_alloc(&run->plan, lives.n_buffers * sizeof(*run->buffers));
        run->n_buffers = run->buffers != NULL ? lives.n_buffers : 0;
    }
    free(lives.last);
    free(lives.n_readers);
    free(lives.idle);
    return run->buffers != NULL
               ? 0
               : stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
}
