/* SPDX-License-Identifier: Apache-2.0
 *
 * filter: yields the elements for which the predicate, an output of the step's graph, is
 * true. Runs the graph on a whole block of the input at once.
 */
#include <stdlib.h>

#include "daemon/dataset/func.h"
#include "daemon/dataset/marks/marks.h"
#include "daemon/dataset/pieces.h"

#define ASK_RECORDS 1024

struct filter {
    struct stg_iter iter;
    struct stg_feature predicate;
    struct stg_func *func;
    struct stg_func_run *run;
    struct stg_func_parts parts;
    struct stg_pieces passed;
    int64_t *index; /* records of a block that stay */
    int64_t index_size;
    int64_t want; /* the largest `want` of a call so far */
    struct stg_marks marks;
};

static struct stg_feature predicate_of(const struct stg_step *step)
{
    return (struct stg_feature){
        .path = "predicate",
        .tensor = stg_attr_string(step->attrs, step->n_attrs, "predicate", ""),
        .line = step->line,
        .column = step->column};
}

/* Creates the func of the predicate. The func keeps a reference to *feature. */
static int make_func(const struct stg_step *step, struct stg_feature *feature,
                     const struct stg_schema *in, struct stg_func **ret,
                     struct stg_err *err)
{
    struct stg_func *func;
    *feature = predicate_of(step);
    int rc = stg_func_create(step, feature, 1, in, &func, err);
    if (rc < 0)
        return rc;
    const struct stg_component *c = &stg_func_schema(func)->components[0];
    if (c->dtype != STAGER_BOOL || c->ndim != 0) {
        char shape[128];
        rc = stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                          "predicate %s is %s %s; it must be one bool", feature->tensor,
                          stg_dtype_name(c->dtype),
                          stg_shape_text(c->shape, c->ndim, shape, sizeof(shape)));
        stg_func_destroy(func);
        return rc;
    }
    *ret = func;
    return 0;
}

static int filter_infer(const struct stg_step *step, const struct stg_schema *in,
                        struct stg_bump *bump, struct stg_schema *ret,
                        struct stg_err *err)
{
    struct stg_func *func;
    struct stg_feature feature;
    int rc = stg_step_needs_input(step, in, err);
    if (rc == 0)
        rc = make_func(step, &feature, in, &func, err);
    if (rc < 0)
        return rc;
    stg_func_destroy(func);
    *ret = *in;
    return 0;
}

/* ---- selection ---- */

static int grow_index(struct filter *filter, int64_t n, struct stg_err *err)
{
    if (n <= filter->index_size)
        return 0;
    int64_t *index = realloc(filter->index, (size_t)n * sizeof(*index));
    if (index == NULL)
        return stg_step_err(filter->iter.step, -STAGER_RESOURCE_EXHAUSTED, err,
                            "out of memory");
    filter->index = index;
    filter->index_size = n;
    return 0;
}

/* Adds the records filter->index[0 .. n) of the block to the output. */
static int keep(struct filter *filter, struct stg_block *block, int64_t n,
                struct stg_err *err)
{
    int rc = stg_pieces_add_picked(&filter->passed, filter->iter.dataset->quota, block,
                                   filter->index, n, err);
    return rc < 0 ? stg_step_prefix(filter->iter.step, rc, err) : 0;
}

/* Adds the records that stay to the output, part by part. An error block takes the place
 * of a record that failed. */
static int keep_parts(struct filter *filter, const struct stg_func_call *call,
                      struct stg_err *err)
{
    int64_t n = 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < filter->parts.n; i++) {
        struct stg_func_part *part = &filter->parts.parts[i];
        if (part->block != NULL) {
            rc = keep(filter, call->input, n, err);
            n = 0;
            if (rc == 0)
                rc = stg_pieces_add(&filter->passed, stg_block_ref(part->block), err);
            continue;
        }
        const uint8_t *stays = call->output->tensors[0].data;
        for (int64_t k = part->first; k < part->first + part->n; k++) {
            if (stays[k] != 0)
                filter->index[n++] = k;
        }
    }
    return rc < 0 ? rc : keep(filter, call->input, n, err);
}

/* index: the number of the block's first record. */
static int ask(struct filter *filter, struct stg_block *block, uint64_t index,
               struct stg_err *err)
{
    struct stg_func_call call = {
        .input = block, .epoch = filter->marks.iteration, .index = index};
    int rc = grow_index(filter, block->n_records, err);
    if (rc == 0)
        rc = stg_func_place(filter->func, filter->iter.dataset, &call, err);
    if (rc < 0)
        return rc;
    rc = stg_func_apply(filter->run, &call, 0, block->n_records, &filter->parts, err);
    if (rc == 0)
        rc = keep_parts(filter, &call, err);
    stg_func_parts_clear(&filter->parts);
    stg_block_unref(call.output);
    return rc;
}

/* Pulls one more block from the input and filters it. Returns 1 at the end of the input.
 */
static int pull(struct filter *filter, struct stg_err *err)
{
    struct stg_block *block;
    int64_t want = filter->want < ASK_RECORDS ? filter->want : ASK_RECORDS;
    uint64_t index = filter->marks.n_in;
    int rc = stg_iter_stopped(&filter->iter, err);
    if (rc == 0)
        rc = stg_marks_pull(&filter->iter, &filter->marks, want, NULL, 0, &block, err);
    if (rc == 1)
        stg_marks_end(&filter->iter, &filter->marks);
    if (rc != 0)
        return rc;
    if (block->error.code != 0)
        return stg_pieces_add(&filter->passed, block, err);
    rc = ask(filter, block, index, err);
    stg_block_unref(block);
    return rc;
}

static int filter_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                       struct stg_err *err)
{
    struct filter *filter = (struct filter *)iter;
    filter->want = want > filter->want ? want : filter->want;
    while (!stg_pieces_any(&filter->passed)) {
        int rc = pull(filter, err);
        if (rc != 0)
            return rc;
    }
    int rc = stg_pieces_take(&filter->passed, iter->dataset->quota, want, ret, err);
    if (rc == 0)
        stg_marks_yield(&filter->marks, *ret);
    return rc;
}

/* ---- moving forward ---- */

/* It holds nothing at a mark. */
static int restore(struct stg_iter *iter, const uint64_t *held, uint32_t n_held,
                   struct stg_err *err)
{
    (void)held;
    (void)n_held;
    (void)err;
    stg_pieces_clear(&((struct filter *)iter)->passed);
    return 0;
}

static int filter_skip(struct stg_iter *iter, uint64_t n, uint64_t *ret,
                       struct stg_err *err)
{
    return stg_marks_skip(iter, &((struct filter *)iter)->marks, n, restore, ret, err);
}

static bool filter_left(struct stg_iter *iter, uint64_t most, uint64_t *ret)
{
    return stg_marks_left(iter, &((struct filter *)iter)->marks, most, ret);
}

/* ---- life ---- */

static int filter_rewind(struct stg_iter *iter, bool afresh, struct stg_err *err)
{
    struct filter *filter = (struct filter *)iter;
    stg_pieces_clear(&filter->passed);
    stg_marks_rewind(&filter->marks, afresh);
    return iter->input->impl->rewind(iter->input, afresh, err);
}

static void filter_destroy(struct stg_iter *iter)
{
    struct filter *filter = (struct filter *)iter;
    stg_pieces_finish(&filter->passed);
    stg_func_parts_finish(&filter->parts);
    stg_func_run_destroy(filter->run);
    stg_func_destroy(filter->func);
    stg_marks_finish(&filter->marks);
    free(filter->index);
    free(filter);
}

static const struct stg_iter_impl filter_impl = {
    .next = filter_next,
    .rewind = filter_rewind,
    .destroy = filter_destroy,
    .skip = filter_skip,
    .left = filter_left,
    .left_has_errors = true,
};

static int filter_create(struct stg_dataset *dataset, const struct stg_step *step,
                         const struct stg_schema *schema, struct stg_iter *input,
                         struct stg_iter **ret, struct stg_err *err)
{
    struct filter *filter =
        stg_iter_create(sizeof(*filter), &filter_impl, dataset, step, schema, input, err);
    if (filter == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    filter->iter.varies = true;
    int rc = make_func(step, &filter->predicate, input->schema, &filter->func, err);
    if (rc == 0)
        rc = stg_func_load(filter->func, dataset, err);
    if (rc == 0)
        rc = stg_func_run_create(filter->func, dataset, &filter->run, err);
    if (rc < 0) {
        filter_destroy(&filter->iter);
        return rc;
    }
    *ret = &filter->iter;
    return 0;
}

const struct stg_transformation stg_filter = {.name = "filter",
                                              .infer = filter_infer,
                                              .create = filter_create,
                                              .passes_codes = true};
