/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/branches/directed.h"

#include <stdlib.h>

#define NONE SIZE_MAX

/* The chosen input has no more. 1: that ends the step. */
static int input_ended(struct stg_directed *directed, struct stg_directed_input *input)
{
    directed->chosen = NONE;
    if (!input->ended)
        directed->n_active--;
    input->ended = true;
    directed->over = directed->stop_on_empty || directed->n_active == 0;
    return directed->over;
}

/* A block for the cursor of the chosen input. 1: the block that is made ends here; 2:
 * another one has to be chosen. */
static int pull(struct stg_directed *directed, struct stg_directed_input *input,
                struct stg_err *err)
{
    struct stg_block *block = NULL;
    int rc =
        input->ended ? 1 : stg_iter_next(input->iter, STG_DIRECTED_PULL, &block, err);
    if (rc < 0)
        return rc;
    if (rc == 1)
        return input_ended(directed, input) ? 1 : 2;
    if (block->error.code == 0) {
        input->cursor = (struct stg_cursor){.block = block};
        return 0;
    }
    directed->error = block;
    directed->chosen = NONE;
    return 1;
}

/* One element more into the mix. 1: the block ends here. */
static int collect_one(struct stg_directed *directed, struct stg_err *err)
{
    int rc = directed->chosen == NONE ? stg_iter_stopped(&directed->iter, err) : 0;
    if (rc == 0 && directed->chosen == NONE)
        rc = directed->choose(directed, &directed->chosen, err);
    directed->over |= rc == 1;
    if (rc != 0)
        return rc < 0 ? rc : 1;
    struct stg_directed_input *input = &directed->inputs[directed->chosen];
    if (input->cursor.block == NULL) {
        rc = pull(directed, input, err);
        if (rc != 0)
            return rc == 2 ? 0 : rc;
    }
    if (!stg_mix_takes(&directed->mix, &input->cursor, 1))
        return 1;
    bool full;
    rc = stg_mix_add(&directed->mix, &input->cursor, 1, &full);
    if (rc < 0)
        return stg_step_err(directed->iter.step, rc, err, "out of memory");
    directed->chosen = NONE;
    return full;
}

/* What came after the mix. */
static int emit(struct stg_directed *directed, struct stg_block **ret,
                struct stg_err *err)
{
    if (directed->error != NULL) {
        *ret = directed->error;
        directed->error = NULL;
        return 0;
    }
    if (directed->failed < 0 && err != NULL)
        *err = directed->failure;
    return directed->failed < 0 ? directed->failed : 1;
}

int stg_directed_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                      struct stg_err *err)
{
    struct stg_directed *directed = (struct stg_directed *)iter;
    if (want > STG_BLOCK_MAX_RECORDS)
        want = STG_BLOCK_MAX_RECORDS;
    int rc = 0;
    bool waits = directed->error != NULL || directed->failed < 0;
    while (rc == 0 && !waits && !directed->over && directed->mix.n_records < want)
        rc = collect_one(directed, &directed->failure);
    if (rc < 0)
        directed->failed = rc;
    if (directed->mix.n_records == 0)
        return emit(directed, ret, err);
    rc = stg_mix_emit(&directed->mix, iter->dataset->quota, "a block of mixed inputs",
                      ret, err);
    return rc < 0 ? stg_step_prefix(iter->step, rc, err) : 0;
}

/* ---- moving forward ---- */

static uint64_t held(const struct stg_directed_input *input)
{
    const struct stg_cursor *cursor = &input->cursor;
    return cursor->block != NULL ? (uint64_t)(cursor->block->n_records - cursor->at) : 0;
}

/* Where each input ends has to be known, if it does within n records: the draws after
 * that depend on it. */
static bool can_skip(struct stg_directed *directed, uint64_t n)
{
    bool ok =
        directed->mix.n_records == 0 && directed->error == NULL && directed->failed == 0;
    for (size_t i = 0; ok && i < directed->n; i++) {
        struct stg_directed_input *input = &directed->inputs[i];
        input->n_left = input->n_skipped = 0;
        ok = input->ended || stg_iter_left(input->iter, n, &input->n_left);
        input->n_left = stg_count_add(input->n_left, held(input));
    }
    return ok;
}

/* One element. 1: there are no more; 2: an input has ended, and gave none. */
static int draw(struct stg_directed *directed, struct stg_err *err)
{
    int rc = 0;
    if (directed->chosen == NONE)
        rc = directed->choose(directed, &directed->chosen, err);
    if (rc == 2) { /* an error among the choices is an element */
        rc = stg_iter_is_clean(&directed->iter)
                 ? stg_iter_unexpected(directed->error, err)
                 : 0;
        stg_block_unref(directed->error);
        directed->error = NULL;
        return rc;
    }
    directed->over |= rc == 1;
    if (rc != 0)
        return rc;
    struct stg_directed_input *input = &directed->inputs[directed->chosen];
    if (input->n_left == 0)
        return input_ended(directed, input) ? 1 : 2;
    input->n_left--;
    input->n_skipped++;
    directed->chosen = NONE;
    return 0;
}

static int skip_input(struct stg_directed *directed, struct stg_directed_input *input,
                      struct stg_err *err)
{
    uint64_t n_held = held(input), got;
    if (input->n_skipped < n_held) {
        input->cursor.at += (int64_t)input->n_skipped;
        return 0;
    }
    stg_cursor_clear(&input->cursor);
    uint64_t n = input->n_skipped - n_held;
    int rc = n > 0 ? stg_iter_skip(input->iter, n, &got, err) : 0;
    if (rc == 0 && n > 0 && got < n)
        rc = stg_step_err(directed->iter.step, -STAGER_FAILED_PRECONDITION, err,
                          "the data is not what the position was taken of: an input has "
                          "ended early");
    return rc;
}

#define DRAWS 65536 /* between two looks at a stop */

int stg_directed_skip(struct stg_iter *iter, uint64_t n, uint64_t *ret,
                      struct stg_err *err)
{
    struct stg_directed *directed = (struct stg_directed *)iter;
    if (!can_skip(directed, n))
        return stg_iter_replay(iter, n, ret, err);
    int rc = 0;
    *ret = 0;
    for (uint64_t i = 0; *ret < n && !directed->over; i++) {
        rc = i % DRAWS == 0 ? stg_iter_stopped(iter, err) : 0;
        if (rc == 0)
            rc = draw(directed, err);
        if (rc < 0)
            return rc;
        *ret += rc == 0;
    }
    rc = 0;
    for (size_t i = 0; rc == 0 && i < directed->n; i++)
        rc = skip_input(directed, &directed->inputs[i], err);
    return rc;
}

void stg_directed_forget(struct stg_directed *directed)
{
    for (size_t i = 0; i < directed->n; i++) {
        stg_cursor_clear(&directed->inputs[i].cursor);
        directed->inputs[i].ended = false;
    }
    stg_mix_clear(&directed->mix);
    stg_block_unref(directed->error);
    directed->error = NULL;
    directed->failed = 0;
    directed->over = false;
    directed->chosen = NONE;
    directed->n_active = directed->n;
}

void stg_directed_destroy(struct stg_iter *iter)
{
    struct stg_directed *directed = (struct stg_directed *)iter;
    stg_directed_forget(directed);
    stg_mix_finish(&directed->mix);
    free(directed->inputs);
    free(directed);
}

void *stg_directed_create(size_t bytes, const struct stg_iter_impl *impl,
                          struct stg_dataset *dataset, const struct stg_step *step,
                          const struct stg_schema *schema, struct stg_iter *input,
                          size_t n, struct stg_err *err)
{
    struct stg_directed *directed =
        stg_iter_create(bytes, impl, dataset, step, schema, input, err);
    if (directed == NULL)
        return NULL;
    directed->inputs = calloc(n, sizeof(*directed->inputs));
    if (directed->inputs == NULL) {
        free(directed);
        stg_step_err(step, -STAGER_RESOURCE_EXHAUSTED, err, "out of memory");
        return NULL;
    }
    directed->n = n;
    for (size_t i = 0; i < n; i++, input = input->sibling)
        directed->inputs[i].iter = input;
    directed->stop_on_empty = stg_step_bool(step, "stop_on_empty_dataset", false);
    directed->iter.varies |= directed->stop_on_empty; /* the choices differ each time */
    stg_directed_forget(directed);
    return directed;
}
