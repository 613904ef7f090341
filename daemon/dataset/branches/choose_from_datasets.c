/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/branches/directed.h"

struct choose {
    struct stg_directed directed;
    struct stg_iter *choices; /* the last input */
    struct stg_cursor cursor; /* of it */
};

static int choose_infer(const struct stg_step *step, const struct stg_input *in, size_t n,
                        struct stg_bump *bump, struct stg_schema *ret,
                        struct stg_err *err)
{
    if (stg_attr_find(step->attrs, step->n_attrs, "choice_dataset") == NULL)
        return stg_step_err(
            step, -STAGER_INVALID_ARGUMENT, err,
            "choice_dataset is missing: name the branch that selects the next input");
    const struct stg_schema *choice = in[n - 1].schema;
    if (choice->n != 1 || choice->components[0].dtype != STAGER_INT64 ||
        choice->components[0].ndim != 0)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "choice_dataset: %s must yield one int64 scalar, the number "
                            "of an input from 0",
                            in[n - 1].name);
    return stg_mix_infer(step, in, n - 1, bump, ret, err);
}

/* The next block of choices. 1: there are no more; 2: an error instead. */
static int pull_choices(struct choose *choose, struct stg_err *err)
{
    struct stg_block *block;
    int rc = stg_iter_next(choose->choices, STG_DIRECTED_PULL, &block, err);
    if (rc != 0)
        return rc;
    if (block->error.code != 0) {
        choose->directed.error = block;
        return 2;
    }
    choose->cursor = (struct stg_cursor){.block = block};
    return 0;
}

/* An error item in the place of the element. */
static int out_of_range(struct choose *choose, int64_t choice, struct stg_err *err)
{
    struct stg_directed *directed = &choose->directed;
    struct stg_err bad;
    stg_step_err(directed->iter.step, -STAGER_INVALID_ARGUMENT, &bad,
                 "choice_dataset yielded %lld; there are %zu inputs, numbered from 0",
                 (long long)choice, directed->n);
    int rc = stg_block_create_error(directed->iter.dataset->quota, &bad,
                                    choose->cursor.block->epoch, &directed->error, err);
    return rc < 0 ? rc : 2;
}

static int choose_one(struct stg_directed *directed, size_t *ret, struct stg_err *err)
{
    struct choose *choose = (struct choose *)directed;
    struct stg_cursor *cursor = &choose->cursor;
    int rc = cursor->block == NULL ? pull_choices(choose, err) : 0;
    if (rc != 0)
        return rc;
    int64_t choice = ((const int64_t *)cursor->block->tensors[0].data)[cursor->at];
    if (choice < 0 || (uint64_t)choice >= directed->n)
        rc = out_of_range(choose, choice, err);
    else
        *ret = (size_t)choice;
    if (++cursor->at == cursor->block->n_records)
        stg_cursor_clear(cursor);
    return rc;
}

static int choose_rewind(struct stg_iter *iter, bool afresh, struct stg_err *err)
{
    struct choose *choose = (struct choose *)iter;
    stg_directed_forget(&choose->directed);
    stg_cursor_clear(&choose->cursor);
    return stg_iter_rewind_inputs(iter, afresh, err);
}

static void choose_destroy(struct stg_iter *iter)
{
    stg_cursor_clear(&((struct choose *)iter)->cursor);
    stg_directed_destroy(iter);
}

static const struct stg_iter_impl choose_impl = {
    .next = stg_directed_next,
    .rewind = choose_rewind,
    .destroy = choose_destroy,
    .skip = stg_directed_skip,
};

static int choose_create(struct stg_dataset *dataset, const struct stg_step *step,
                         const struct stg_schema *schema, struct stg_iter *input,
                         struct stg_iter **ret, struct stg_err *err)
{
    size_t n = 0;
    struct stg_iter *last = input;
    for (; last->sibling != NULL; last = last->sibling)
        n++;
    struct choose *choose = stg_directed_create(sizeof(*choose), &choose_impl, dataset,
                                                step, schema, input, n, err);
    if (choose == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    choose->choices = last;
    choose->directed.choose = choose_one;
    choose->directed.stop_on_empty = stg_step_bool(step, "stop_on_empty_dataset", true);
    choose->directed.iter.varies = true; /* choices may be other ones each time */
    *ret = &choose->directed.iter;
    return 0;
}

const struct stg_transformation stg_choose_from_datasets = {
    .name = "choose_from_datasets",
    .create = choose_create,
    .infer_many = choose_infer,
    .last_input = "choice_dataset"};
