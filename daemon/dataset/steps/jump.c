/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/steps/jump.h"

#include <string.h>

#include "daemon/dataset/step.h"
#include "daemon/dataset/steps/division.h"

/* ---- which pipelines can ---- */

static bool is_named(const struct stg_step *step, const char *const *names)
{
    while (*names != NULL && strcmp(step->name, *names) != 0)
        names++;
    return *names != NULL;
}

/* NULL: it can. is_repeated: `repeat` stands before the step. */
static const char *reason_of(const struct stg_step *step, bool is_repeated)
{
    static const char *const drops[] = {"shard", "skip", NULL};
    const struct stg_transformation *of = stg_transformation_find(step->name);
    if (of == NULL || of->infer_many != NULL)
        return "has several inputs";
    if (strcmp(step->name, "repeat") == 0 || stg_division_is(step))
        return NULL;
    if (strcmp(step->name, "shuffle") == 0)
        return of->needs_index != NULL && of->needs_index(step)
                   ? NULL
                   : "draws from a buffer, which must be filled first (give it global: "
                     "true)";
    if (strcmp(step->name, "prefetch") == 0)
        return "makes elements ahead, also those that a worker makes (leave it out: "
               "staged.capacity does the same)";
    if (!of->is_indexable || (of->is_unindexed != NULL && of->is_unindexed(step)))
        return "has no numbers for its elements before they are made";
    return is_repeated && is_named(step, drops) ? "stands behind repeat (put it before)"
                                                : NULL;
}

int stg_jump_check(const struct stg_pipeline_spec *spec, struct stg_err *err)
{
    bool is_repeated = false;
    for (size_t i = 0; i < spec->n_steps; i++) {
        const struct stg_step *step = &spec->steps[i];
        const char *reason = reason_of(step, is_repeated);
        if (reason != NULL)
            return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err, "%s", reason);
        is_repeated |= strcmp(step->name, "repeat") == 0;
    }
    return 0;
}

/* ---- the jump ---- */

static int jump(struct stg_dataset *dataset, uint64_t n, uint64_t *ret_n,
                struct stg_err *err)
{
    dataset->clean_below = UINT32_MAX;
    dataset->jumped_epoch = 0;
    int rc = stg_iter_skip(dataset->last, n, ret_n, err);
    dataset->clean_below = 0;
    return rc;
}

int stg_dataset_jump(struct stg_dataset *dataset, uint64_t n, uint64_t *ret_n,
                     struct stg_position *ret, uint64_t *ret_epoch, struct stg_err *err)
{
    uint64_t got = 0;
    if (dataset->failed == 0)
        dataset->failed = jump(dataset, n, &got, &dataset->failure);
    if (dataset->failed < 0) {
        if (err != NULL)
            *err = dataset->failure;
        return dataset->failed;
    }
    dataset->n_items += got;
    *ret = (struct stg_position){.items = dataset->n_items, .elements = dataset->n_items};
    if (dataset->tells)
        stg_position_pop(&dataset->positions, got, ret);
    ret->errors = atomic_load_explicit(&dataset->errors_from, memory_order_relaxed);
    *ret_epoch = dataset->jumped_epoch;
    *ret_n = got;
    return 0;
}

uint64_t stg_dataset_n_passed(const struct stg_dataset *dataset)
{
    return dataset->n_items;
}
